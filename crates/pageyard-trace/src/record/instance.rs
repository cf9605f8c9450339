//! A tracing instance of tracefs, used by this recording only.
//!
//! An instance has buffers and enabled events of its own. The global buffer, and what other
//! programs trace, stay as they are. An instance that existed before gets its settings back at the
//! end: events, clock, buffer sizes, and whether it traces.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::error::RecordError;

/// Prefix of the names of instances; the process id follows.
const PREFIX: &str = "pageyard-";

/// A tracing instance. Dropping it ends tracing. One that this program made is removed; another one
/// gets back the settings that it had.
#[derive(Debug)]
pub(super) struct Instance {
    path: PathBuf,
    is_made: bool,
    /// What files contained before they were written, in an instance that stays.
    found: Vec<(PathBuf, String)>,
    marker: Option<File>,
}

impl Instance {
    /// Makes an instance, or takes the existing one of this name.
    pub(super) fn new(tracefs: &Path, existing: Option<&str>) -> Result<Self, RecordError> {
        let instances = tracefs.join("instances");
        let (path, is_made) = match existing {
            Some(name) => (instances.join(name), false),
            None => (instances.join(format!("{PREFIX}{}", std::process::id())), true),
        };
        if is_made {
            fs::create_dir(&path).map_err(|e| RecordError::tracefs(&path, &e))?;
        } else if !path.is_dir() {
            let fix = "make it (mkdir), or leave --instance out";
            return Err(RecordError::new(&path, "no such tracing instance", fix));
        }
        let mut instance = Instance { path, is_made, found: Vec::new(), marker: None };
        instance.set("tracing_on", "0")?;
        let marker = instance.path.join("trace_marker");
        let opened = File::options().append(true).open(&marker);
        instance.marker = Some(opened.map_err(|e| RecordError::tracefs(&marker, &e))?);
        Ok(instance)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a value to a file of the instance.
    pub(super) fn set(&mut self, file: &str, value: &str) -> Result<(), RecordError> {
        let path = self.path.join(file);
        self.keep(&path);
        write(&path, value).map_err(|e| RecordError::tracefs(&path, &e))
    }

    /// Keeps what a file contains, before the first write to it.
    fn keep(&mut self, path: &Path) {
        if self.is_made || self.found.iter().any(|(known, _)| known == path) {
            return;
        }
        match fs::read_to_string(path).ok().as_deref().and_then(setting) {
            Some(value) => self.found.push((path.to_owned(), value)),
            // The buffers of the CPUs have different sizes.
            None if path.ends_with(BUFFER_SIZE) => {
                let cpus = self.cpus().unwrap_or_default();
                let file = |cpu| self.path.join(format!("per_cpu/cpu{cpu}")).join(BUFFER_SIZE);
                let files: Vec<PathBuf> = cpus.into_iter().map(file).collect();
                files.into_iter().for_each(|path| self.keep_of_cpu(path));
            }
            None => {}
        }
    }

    fn keep_of_cpu(&mut self, path: PathBuf) {
        let value = fs::read_to_string(&path).ok().as_deref().and_then(setting);
        self.found.extend(value.map(|value| (path, value)));
    }

    /// Enables an event. Returns `false` if the kernel does not have it.
    pub(super) fn enable(&mut self, system: &str, event: &str) -> Result<bool, RecordError> {
        let path = self.path.join("events").join(system).join(event).join("enable");
        self.keep(&path);
        match write(&path, "1") {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(RecordError::tracefs(&path, &error)),
        }
    }

    /// Writes a mark into the trace.
    pub(super) fn mark(&mut self, text: &str) -> io::Result<()> {
        let marker = self.marker.as_mut().ok_or(io::ErrorKind::NotFound)?;
        marker.write_all(format!("{text}\n").as_bytes())
    }

    /// Returns the CPUs with buffers, in ascending order.
    pub(super) fn cpus(&self) -> Result<Vec<u16>, RecordError> {
        let folder = self.path.join("per_cpu");
        let failed = |e| RecordError::tracefs(&folder, &e);
        let mut cpus = Vec::new();
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse::<u16>().ok());
            cpus.extend(number);
        }
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Opens the raw buffer of a CPU. Reading does not wait for events.
    pub(super) fn pipe(&self, cpu: u16) -> Result<File, RecordError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let flags = OFlags::NONBLOCK.bits() as i32;
        let opened = File::options().read(true).custom_flags(flags).open(&path);
        opened.map_err(|e| RecordError::tracefs(&path, &e))
    }

    /// Returns the events that the kernel counts as lost on a CPU: overwritten before they were
    /// read, or dropped.
    pub(super) fn lost(&self, cpu: u16) -> u64 {
        let path = self.path.join(format!("per_cpu/cpu{cpu}/stats"));
        let stats = fs::read_to_string(path).unwrap_or_default();
        let count = |key: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|n| n.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        count("overrun:").saturating_add(count("dropped events:"))
    }

    /// Returns the size of a sub-buffer in bytes, if the kernel lets it be chosen (6.8 or later).
    pub(super) fn sub_buffer(&self) -> Option<usize> {
        let text = fs::read_to_string(self.path.join("buffer_subbuf_size_kb")).ok()?;
        text.trim().parse::<usize>().ok()?.checked_mul(1024)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = write(&self.path.join("tracing_on"), "0");
        self.marker = None;
        if self.is_made {
            // Fails if a file of the instance is still open; the next recording removes it then.
            let _ = fs::remove_dir(&self.path);
        } else {
            // The first that was written, whether it traces, is the last that comes back.
            self.found.iter().rev().for_each(|(path, value)| _ = write(path, value));
        }
    }
}

/// The file with the size of each CPU's buffer in KiB.
const BUFFER_SIZE: &str = "buffer_size_kb";

/// Returns what to write to a file of tracefs so that it contains this text again. `None` if no
/// value does that.
fn setting(text: &str) -> Option<String> {
    let text = text.trim();
    // Of several choices, such as clocks, the present one is in brackets.
    if let Some((_, rest)) = text.split_once('[') {
        return Some(rest.split_once(']')?.0.to_owned());
    }
    // A buffer that nothing was written to yet: `7 (expanded: 1408)`.
    let text = text.split_once("expanded:").map_or(text, |(_, rest)| rest.trim_end_matches(')'));
    // An event may be on for other reasons as well: `1*`.
    let digits = text.trim().trim_end_matches('*');
    (!digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.to_owned())
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = File::options().write(true).truncate(true).open(path)?;
    file.write_all(value.as_bytes())
}

/// Removes instances of recordings whose process has ended, such as by SIGKILL. Returns their
/// names, and whether each could be removed.
pub(super) fn remove_stale(tracefs: &Path, proc: &Path) -> Vec<(String, bool)> {
    let Ok(entries) = fs::read_dir(tracefs.join("instances")) else { return Vec::new() };
    let mut stale = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(PREFIX).filter(|pid| pid.bytes().all(|b| b.is_ascii_digit()));
        let Some(pid) = pid.filter(|pid| !pid.is_empty()) else { continue };
        if !proc.join(pid).exists() {
            // Fails while a process of another PID namespace, which this `/proc` does not show, has
            // files of the instance open. Its recording must go on, so nothing is written here.
            let removed = fs::remove_dir(entry.path()).is_ok();
            stale.push((name, removed));
        }
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn settings_are_what_to_write_for_what_is_read() {
        for (read, written) in [
            ("0\n", Some("0")),
            ("1*\n", Some("1")),
            ("1408\n", Some("1408")),
            ("7 (expanded: 1408)\n", Some("1408")),
            ("local [global] counter mono\n", Some("global")),
            ("[mono\n", None),
            ("X\n", None),
            ("", None),
        ] {
            assert_eq!(setting(read).as_deref(), written, "{read}");
        }
    }
}
