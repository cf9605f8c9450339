//! What the commands share in printing.

use std::error::Error;
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

/// Where a file is written until it is whole.
pub(crate) fn part_of(output: &Path) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

/// A number of bytes: `4096`, `512K`, `2M`, `16G`, `1T`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text}: expected a size such as 512M or 2G");
    let (digits, unit) = match text.to_ascii_uppercase().trim_end_matches('B').chars().last() {
        Some('K') => (1, 1 << 10),
        Some('M') => (1, 1 << 20),
        Some('G') => (1, 1 << 30),
        Some('T') => (1, 1u64 << 40),
        _ => (0, 1),
    };
    let digits =
        &text.trim_end_matches(['B', 'b'])[..text.trim_end_matches(['B', 'b']).len() - digits];
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).ok_or_else(wrong)
}
