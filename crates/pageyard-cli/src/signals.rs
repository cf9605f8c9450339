//! Cleanup on a termination signal: partial files, the terminal, and started programs. The program
//! then dies by the signal, as without a handler: exit code 130 in a shell for SIGINT. While it
//! records, the first signal ends the recording instead.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, OnceLock};

use pageyard_lab::reproduce::fast_path;
// signal-hook installs handlers without unsafe code here. crossterm, which `top` uses, depends on
// it too.
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::output;

/// Starts to handle signals. Also makes a file that exceeds the limit (`ulimit -f`) an ordinary
/// error.
///
/// # Errors
/// Fails if the system refuses a handler or the thread.
pub(crate) fn watch() -> io::Result<()> {
    signal_hook::flag::register(SIGXFSZ, Arc::default())?;
    let ignored = ignored();
    // Signals that were ignored at the start (nohup, a background shell) stay ignored.
    let meant = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| ignored >> (s - 1) & 1 == 0);
    let mut signals = Signals::new(meant)?;
    let begun = Arc::new(Barrier::new(2));
    let here = begun.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        here.wait();
        for signal in signals.forever() {
            if GENTLE.swap(false, Ordering::Relaxed) {
                STOPPED.store(true, Ordering::Relaxed);
                continue;
            }
            output::drop_unfinished();
            fast_path::stop();
            crate::top::screen::leave();
            if let Some(line) = LAST_LINE.get() {
                eprintln!("{line}");
            }
            let _ = emulate_default_handler(signal);
        }
    })?;
    // The C library allocates while a thread starts and aborts if it can't. Later, the work may have
    // used up the memory.
    begun.wait();
    Ok(())
}

/// What [`say_at_the_end`] was told.
static LAST_LINE: OnceLock<String> = OnceLock::new();

/// Sets a line that is printed on standard error if a signal ends the program.
pub(crate) fn say_at_the_end(line: String) {
    LAST_LINE.get_or_init(|| line);
}

/// Whether the next signal only ends a recording.
static GENTLE: AtomicBool = AtomicBool::new(false);
/// Whether such a signal came.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Makes the next signal end a recording, which [`stopped`] tells, instead of the program.
pub(crate) fn end_gently(gently: bool) {
    GENTLE.store(gently, Ordering::Relaxed);
}

/// Returns whether a signal asked to end the recording.
pub(crate) fn stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}

/// Returns the signals that were ignored when this process started, one bit each, bit 0 for signal
/// 1.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}
