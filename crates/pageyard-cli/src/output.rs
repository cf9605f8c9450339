//! What the commands share in printing.

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

/// Writes a file. It is written beside its place and moved there when it is whole, so a failure
/// leaves nothing behind, and what is read may be what is written. What is no plain file, such as
/// `/dev/stdout`, is written as it is.
pub(crate) fn write_file<T>(
    path: &Path,
    write: impl FnOnce(File) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let named = |path: &Path, e: io::Error| {
        format!("{}: {e}; name a file that can be written", path.display())
    };
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let file = File::options().write(true).open(path).map_err(|e| named(path, e))?;
        return write(file);
    }
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let file = File::create(&part).map_err(|e| named(path, e))?;
    let done = write(file).and_then(|done| {
        std::fs::rename(&part, path).map_err(|e| named(path, e))?;
        Ok(done)
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    done
}
