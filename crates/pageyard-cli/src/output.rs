//! Output helpers shared by the commands.

use std::error::Error;
use std::fs::{File, Metadata, Permissions};
use std::io::{self, BufWriter, StdoutLock, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pageyard_trace::is_active;
use tempfile::NamedTempFile;

use crate::closed;

/// Result of a command: its exit code, or an error that ends the program with code 2.
pub(crate) type Outcome = Result<std::process::ExitCode, Box<dyn Error>>;

/// Returns whether an error only means that the reader closed our output (`pageyard … | head`).
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

/// Removes the system's error numbers, as in " (os error 2)": the words before them say the same.
pub(crate) fn without_numbers(error: &impl ToString) -> String {
    const BEFORE: &str = " (os error ";
    let text = error.to_string();
    let mut parts = text.split(BEFORE);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit());
        match rest.strip_prefix(')') {
            Some(rest) => out += rest,
            None => out.extend([BEFORE, part]),
        }
    }
    out
}

/// Prints a line on standard error. Failures are ignored, since they cannot be reported.
macro_rules! say {
    ($($what:tt)*) => {{
        let mut to = $crate::output::Escaping::text(std::io::stderr());
        let _ = std::io::Write::write_fmt(&mut to, format_args!("{}\n", format_args!($($what)*)));
    }};
}
pub(crate) use say;

/// The first write error, with its file and a fix.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);
/// The partial file that is being written. Holding this lock while the program exits prevents
/// another one from being created.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the write error, if that is why a command failed. The error that the command returns may
/// have lost the file's name.
pub(crate) fn not_written() -> Option<io::Error> {
    lock(&FAILED).take()
}

/// Writer for all output to a terminal. Escapes the characters that a terminal acts on, except line
/// ends and tabs.
pub(crate) struct Escaping<W> {
    to: W,
    json: bool,
    /// The first bytes of a character whose remaining bytes have not been written yet.
    begun: Vec<u8>,
}

impl<W: Write> Escaping<W> {
    /// Escapes for text, like [`printable`](pageyard_trace::printable).
    pub(crate) fn text(to: W) -> Self {
        Escaping { to, json: false, begun: Vec::new() }
    }

    /// Escapes for JSON, where such characters occur only in strings and can be escaped without a
    /// change of meaning.
    fn json(to: W) -> Self {
        Escaping { json: true, ..Escaping::text(to) }
    }

    fn escape(&mut self, text: &str) -> io::Result<()> {
        let escaped = |c: char| c != '\n' && c != '\t' && is_active(c);
        let mut rest = text;
        while let Some(at) = rest.find(escaped) {
            let (before, from) = rest.split_at(at);
            self.to.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                match self.json {
                    true => write!(self.to, "\\u{:04x}", u32::from(c))?,
                    false => write!(self.to, "{}", c.escape_default())?,
                }
            }
            rest = chars.as_str();
        }
        self.to.write_all(rest.as_bytes())
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let plain = |b: &u8| matches!(b, b' '..=b'~' | b'\n' | b'\t');
        if self.begun.is_empty() && bytes.iter().all(plain) {
            return self.to.write(bytes);
        }
        let joined = [&std::mem::take(&mut self.begun), bytes].concat();
        let mut rest = &joined[..];
        while !rest.is_empty() {
            let valid = str::from_utf8(rest).map_or_else(|e| e.valid_up_to(), str::len);
            let (text, after) = rest.split_at(valid);
            self.escape(str::from_utf8(text).unwrap_or_default())?;
            let Err(e) = str::from_utf8(after) else { break };
            let Some(wrong) = e.error_len() else {
                self.begun = after.to_vec();
                break;
            };
            for byte in &after[..wrong] {
                write!(self.to, "\\x{byte:02x}")?;
            }
            rest = &after[wrong..];
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// A writer whose errors include its name.
pub(crate) struct Named<W> {
    to: W,
    name: String,
    bytes: u64,
}

impl<W> Named<W> {
    /// Returns the number of bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn record_failure(&self, e: &io::Error) -> io::Error {
        let error = named(&self.name, e);
        if e.kind() != io::ErrorKind::Interrupted {
            lock(&FAILED).get_or_insert_with(|| named(&self.name, e));
        }
        error
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes).map_err(|e| self.record_failure(&e))?;
        self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|e| self.record_failure(&e))
    }
}

/// Adds the name and a suggested fix to an error.
pub(crate) fn named(name: &str, e: &io::Error) -> io::Error {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let fix = match e.kind() {
        StorageFull => "free space, or write elsewhere",
        QuotaExceeded => "free some of your quota, or write elsewhere",
        FileTooLarge => "raise the file size limit (ulimit -f)",
        _ if name == STDOUT => "redirect it elsewhere",
        _ => "name a writable file",
    };
    io::Error::new(e.kind(), format!("{name}: {e}; {fix}"))
}

pub(crate) const STDOUT: &str = "standard output";

/// Whether a file of this command is written to standard output. Text then goes to standard error.
static IS_A_FILE: AtomicBool = AtomicBool::new(false);

/// Standard output, whose writes fail if it was closed at the start.
pub(crate) struct Stdout(StdoutLock<'static>);

impl Stdout {
    fn new() -> Self {
        Stdout(io::stdout().lock())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IS_A_FILE.load(Ordering::Relaxed) {
            return io::stderr().write(bytes);
        }
        closed::check()?;
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Returns standard output, for text.
pub(crate) fn stdout() -> Named<Escaping<Stdout>> {
    Named { to: Escaping::text(Stdout::new()), name: STDOUT.into(), bytes: 0 }
}

/// Returns the number of columns of the terminal that standard output is; `None` if it is not one.
pub(crate) fn width() -> Option<usize> {
    let (width, _) = terminal_size::terminal_size_of(io::stdout())?;
    // Some terminals without a size, such as serial ones, report 0.
    Some(usize::from(width.0)).filter(|columns| *columns > 0)
}

/// Prints one JSON document and a newline.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    let to = Escaping::json(Stdout::new());
    to_json(Named { to, name: STDOUT.into(), bytes: 0 }, value)
}

/// Writes a file of one JSON document and a newline.
pub(crate) fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    write_file(path, |file| to_json(file, value))
}

fn to_json(to: impl Write, value: &impl serde::Serialize) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(to);
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Whether a path stands for standard output.
fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns an output's name for messages.
pub(crate) fn name_of(path: &Path) -> String {
    if is_dash(path) { STDOUT.into() } else { path.display().to_string() }
}

/// Returns the folder of a file: the current one if the path does not name any.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses outputs that would replace an input or each other, and those that cannot be written: that is
/// known before the work begins, not after it.
pub(crate) fn check(inputs: &[&Path], outputs: &[&Path]) -> Result<(), Box<dyn Error>> {
    // Only regular files are replaced; a device takes any number of outputs.
    let place = |path: &Path| match path.canonicalize() {
        _ if is_dash(path) => Some(path.to_owned()),
        Ok(whole) => whole.is_file().then_some(whole),
        Err(_) => Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?)),
    };
    let mut taken: Vec<PathBuf> = Vec::new();
    for output in outputs {
        let Some(whole) = place(output) else { continue };
        // As an input, - is standard input.
        let mut inputs = inputs.iter().filter(|input| !is_dash(input));
        let what = if inputs.any(|input| place(input).as_ref() == Some(&whole)) {
            "input and output are the same file; name another output"
        } else if taken.contains(&whole) {
            "two outputs are the same file; name another file for one of them"
        } else {
            taken.push(whole);
            continue;
        };
        return Err(format!("{}: {what}", name_of(output)).into());
    }
    for output in outputs {
        if !is_written_directly(output) {
            // The program does not exit while the file is there.
            let _unfinished = lock(&UNFINISHED);
            part_of(output)?;
        }
        if descriptor(output) == Some(1) {
            IS_A_FILE.store(true, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Whether a path is not replaced by a file: a device, a pipe, or a descriptor of this process, such as
/// `-` or `/dev/stdout`, whatever it is open for. Does not open it: a pipe's reader would see its end.
fn is_written_directly(path: &Path) -> bool {
    descriptor(path).is_some() || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
}

fn open_directly(path: &Path) -> io::Result<File> {
    let of = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
    match descriptor(path) {
        Some(1) => {
            closed::check()?;
            of(io::stdout().as_fd())
        }
        Some(2) => of(io::stderr().as_fd()),
        _ => File::options().write(true).open(path),
    }
}

/// Returns the descriptor of this process that a path leads to: standard output for `-`.
fn descriptor(path: &Path) -> Option<u32> {
    if is_dash(path) {
        return Some(1);
    }
    let descriptors = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut path = path.to_owned();
    // As many links as the system follows.
    for _ in 0..40 {
        let (folder, name) = (folder_of(&path).canonicalize().ok()?, path.file_name()?);
        if folder == descriptors {
            return name.to_str()?.parse().ok();
        }
        path = folder.join(folder.join(name).read_link().ok()?);
    }
    None
}

/// Creates the temporary file that is to replace `path`, with the mode of the file that is there.
fn part_of(path: &Path) -> io::Result<NamedTempFile> {
    let failed = |e: io::Error| named(&path.display().to_string(), &e);
    let file = path.file_name().filter(|_| !path.is_dir());
    let file = file.ok_or_else(|| failed(io::ErrorKind::IsADirectory.into()))?;
    // The temporary name must be unpredictable and new. In a folder that others can write to, a
    // known name could be a link to one of our files.
    let mut prefix = if file.len() < 200 { file.to_owned() } else { "pageyard".into() };
    prefix.push(".");
    let mut part = tempfile::Builder::new();
    // That of the file which is replaced: a link is not followed.
    let old = path.symlink_metadata().ok().filter(Metadata::is_file);
    let old = old.map(|old| Permissions::from_mode(old.permissions().mode() & 0o777));
    let new = || Permissions::from_mode(0o666);
    part.prefix(&prefix).suffix(".part").permissions(old.clone().unwrap_or_else(new));
    let part = part.tempfile_in(folder_of(path)).map_err(|e| failed(without_path(e)))?;
    if let Some(old) = old {
        // Whatever the umask is.
        part.as_file().set_permissions(old).map_err(failed)?;
    }
    Ok(part)
}

/// Writes a file. The data goes to a temporary file in the same folder, which replaces `path` when
/// it is complete, so a failure leaves nothing behind. A file that is replaced keeps its mode. A
/// path that leads to a device, a pipe or a descriptor, such as `/dev/stdout` or `-`, is written
/// directly.
pub(crate) fn write_file<T>(
    path: &Path,
    write: impl FnOnce(Named<File>) -> Result<T, Box<dyn Error>>,
) -> Result<T, Box<dyn Error>> {
    let name = name_of(path);
    let failed = |e: io::Error| named(&name, &e);
    if is_written_directly(path) {
        let to = open_directly(path).map_err(failed)?;
        return write(Named { to, name, bytes: 0 });
    }
    let part = {
        let mut unfinished = lock(&UNFINISHED);
        let part = part_of(path)?;
        *unfinished = Some(part.path().to_owned());
        part
    };
    let done = part.as_file().try_clone().map_err(|e| failed(e).into()).and_then(|to| {
        let done = write(Named { to, name: name.clone(), bytes: 0 })?;
        // Some file systems report a lack of space only here.
        part.as_file().sync_all().map_err(failed)?;
        // The temporary file is deleted if it cannot be renamed.
        part.persist(path).map_err(|e| failed(e.error))?;
        Ok(done)
    });
    *lock(&UNFINISHED) = None;
    done
}

/// Returns an error without the name of the temporary file, which `tempfile` adds to the text.
fn without_path(e: io::Error) -> io::Error {
    match e.to_string().split_once(" at path ") {
        Some((what, _)) => io::Error::new(e.kind(), what.to_owned()),
        None => e,
    }
}

/// Removes the partial file when the program exits.
pub(crate) fn drop_unfinished() {
    let unfinished = lock(&UNFINISHED);
    if let Some(part) = &*unfinished {
        let _ = std::fs::remove_file(part);
    }
    std::mem::forget(unfinished);
}

/// Like [`drop_unfinished`], but does nothing while the file is being created or renamed.
pub(crate) fn drop_unfinished_if_free() {
    if let Ok(unfinished) = UNFINISHED.try_lock()
        && let Some(part) = &*unfinished
    {
        let _ = std::fs::remove_file(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(mut to: Escaping<Vec<u8>>, pieces: &[&[u8]]) -> String {
        pieces.iter().for_each(|p| to.write_all(p).unwrap());
        String::from_utf8(to.to).unwrap()
    }

    #[test]
    fn control_characters_are_escaped() {
        let text = |pieces: &[&[u8]]| through(Escaping::text(Vec::new()), pieces);
        assert_eq!(text(&[b"plain\ttext\n"]), "plain\ttext\n");
        assert_eq!(
            text(&["é\u{1b}[2J\u{9b}\r\u{202e}\n".as_bytes()]),
            "é\\u{1b}[2J\\u{9b}\\r\\u{202e}\n"
        );
        // A character in two pieces, and bytes that are not a character.
        assert_eq!(text(&[b"a\xc2", b"\x9b\xe2\x80", b"\xae\x9bz"]), "a\\u{9b}\\u{202e}\\x9bz");
        assert_eq!(text(&[b"\xc3", "\u{a9}".as_bytes()]), "\\xc3©");
    }

    #[test]
    fn escaped_json_keeps_its_value() {
        let value = serde_json::json!({ "a\u{9b}\u{7f}": "\u{1b}\u{202e}é\n\u{2066}" });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = through(Escaping::json(Vec::new()), &[text.as_bytes()]);
        assert!(!shown.contains(|c| c != '\n' && is_active(c)), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
