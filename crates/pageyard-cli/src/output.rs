//! What the commands share in printing.

use std::error::Error;
use std::fs::File;
use std::io::{self, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Says something on standard error. Where that cannot be written, nobody can be told.
macro_rules! say {
    ($($what:tt)*) => {{
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{}\n", format_args!($($what)*)));
    }};
}
pub(crate) use say;

/// What first could not be written: what it was, why, and what to do.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);
/// The file that is being written beside its place. Whoever holds it while the program ends lets no
/// other begin.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What could not be written, if that is why a command failed: what comes of it on its way up may
/// have lost the name.
pub(crate) fn not_written() -> Option<io::Error> {
    lock(&FAILED).take()
}

/// A place to write to that says its name in errors.
pub(crate) struct Named<W> {
    to: W,
    name: String,
    bytes: u64,
}

impl<W> Named<W> {
    /// How many bytes were written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn tell(&self, e: &io::Error) -> io::Error {
        let error = named(&self.name, e);
        if e.kind() != io::ErrorKind::Interrupted {
            lock(&FAILED).get_or_insert_with(|| named(&self.name, e));
        }
        error
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes).map_err(|e| self.tell(&e))?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|e| self.tell(&e))
    }
}

/// The error with its place and a way out.
pub(crate) fn named(name: &str, e: &io::Error) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let fix = match e.kind() {
        StorageFull => "make room, or write elsewhere",
        QuotaExceeded => "make room within your quota, or write elsewhere",
        FileTooLarge => "raise the limit on the size of files (ulimit -f)",
        _ if name == STDOUT => "send it elsewhere",
        _ => "name a file that can be written",
    };
    io::Error::new(e.kind(), format!("{name}: {e}; {fix}"))
}

pub(crate) const STDOUT: &str = "standard output";

/// Standard output.
pub(crate) fn stdout() -> Named<StdoutLock<'static>> {
    Named { to: io::stdout().lock(), name: STDOUT.into(), bytes: 0 }
}

/// Prints one JSON document and a line end.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    let mut out = stdout();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// Writes a file. It is written beside its place and moved there when it is whole, so a failure
/// leaves nothing behind, and what is read may be what is written. What is no plain file, such as
/// `/dev/stdout`, is written as it is.
pub(crate) fn write_file<T>(
    path: &Path,
    write: impl FnOnce(Named<File>) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let name = path.display().to_string();
    let failed = |e: io::Error| named(&name, &e);
    if path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        let to = File::options().write(true).open(path).map_err(failed)?;
        return write(Named { to, name, bytes: 0 });
    }
    // Another run that writes the same file has its own.
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    let to = {
        let mut unfinished = lock(&UNFINISHED);
        let to = File::create(&part).map_err(failed)?;
        *unfinished = Some(part.clone());
        to
    };
    let done = to.try_clone().map_err(|e| failed(e).into()).and_then(|file| {
        let done = write(Named { to: file, name: name.clone(), bytes: 0 })?;
        // Some file systems say only now that there is no room.
        to.sync_all().map_err(failed)?;
        std::fs::rename(&part, path).map_err(failed)?;
        Ok(done)
    });
    if done.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    *lock(&UNFINISHED) = None;
    done
}

/// Removes what is not whole, as the program ends.
pub(crate) fn drop_unfinished() {
    let unfinished = lock(&UNFINISHED);
    if let Some(part) = &*unfinished {
        let _ = std::fs::remove_file(part);
    }
    std::mem::forget(unfinished);
}
