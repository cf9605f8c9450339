//! What is tidied up when the program is told to end: files that are not whole, the terminal, programs
//! that it started. It ends by the signal then, as one without a handler does: 130 in a shell for SIGINT.

use std::io;
use std::sync::Arc;

use pageyard_lab::reproduce::fast_path;
// signal-hook: handlers without unsafe code; crossterm, below `top`, has it too.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// From now on. A file that grows beyond the limit (`ulimit -f`) is an error like others.
///
/// # Errors
/// The system's.
pub(crate) fn watch() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let ignored = ignored();
    // Who ignores one (nohup, a shell in the background) means it.
    let meant = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0);
    let mut signals = Signals::new(meant)?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            output::drop_unfinished();
            fast_path::stop();
            pageyard_top::leave();
            let _ = emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

/// The signals that this process was started to ignore, a bit each from 1 on.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}
