//! What the commands share in printing.

use std::error::Error;
use std::io::{self, Write};

/// What a command returns: its exit code, or an error that ends it with code 2.
pub(crate) type Outcome = Result<std::process::ExitCode, Box<dyn Error>>;

/// Whether an error only says that nobody reads our output any more (`pageyard … | head`).
pub(crate) fn is_broken_pipe(e: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(e);
    while let Some(e) = cause {
        let io = e.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = e.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
        if io.or(json) == Some(io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = e.source();
    }
    false
}

/// Prints one JSON document and a line end.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}
