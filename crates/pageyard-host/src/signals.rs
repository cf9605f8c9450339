//! Memory signals of the system: memory stalls (PSI), and the limits of this process's control
//! group (cgroup v2). Each is used if available; otherwise the state says why not.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};

/// Reports a stall if some task waited for memory for 150,000 µs out of 2 s, the shortest window
/// open to unprivileged processes. The system replaces the last byte that it gets by the text's end.
const TRIGGER: &str = "some 150000 2000000\0";
/// How long a stall signal counts, in nanoseconds: a little longer than the interval to the next
/// one.
const STALL: u64 = 2_500_000_000;

/// Whether a file of the system is watched.
///
/// ```
/// use pageyard_host::{Builder, Watching};
///
/// let yard = Builder::new(16 << 20).build()?;
/// if let Watching::Not(why) = yard.status().stalls {
///     println!("stalls are not watched: {why}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Watching {
    /// This file is watched.
    File(PathBuf),
    /// Not watched, with the reason.
    Not(String),
}

impl fmt::Display for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Watching::File(path) => write!(f, "{}", path.display()),
            Watching::Not(why) => write!(f, "not watched: {why}"),
        }
    }
}

/// The system files to watch.
///
/// ```
/// use pageyard_host::{Builder, SystemFiles};
///
/// // A yard that watches nothing of the system.
/// let yard = Builder::new(16 << 20).system(SystemFiles::none()).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemFiles {
    /// File of memory stalls; `None`: not watched.
    pub pressure: Option<PathBuf>,
    /// Directory of the control group whose limits count, together with those of its ancestors up
    /// to `group_root`; `None`: not watched.
    pub group: Option<PathBuf>,
    /// Root of the control group tree.
    pub group_root: PathBuf,
}

impl SystemFiles {
    /// Returns `/proc/pressure/memory`, and the group of this process under the first mount of a
    /// cgroup v2 tree.
    pub fn detect() -> SystemFiles {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let root = mounts.lines().find_map(|l| {
            let mut words = l.split(' ').skip(1);
            let (dir, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| PathBuf::from(dir))
        });
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let path = own.lines().find_map(|l| l.strip_prefix("0::/"));
        let group = root.as_ref().zip(path).map(|(root, path)| root.join(path));
        SystemFiles {
            pressure: Some("/proc/pressure/memory".into()),
            group,
            group_root: root.unwrap_or_default(),
        }
    }

    /// Returns no files: nothing is watched.
    pub fn none() -> SystemFiles {
        SystemFiles { pressure: None, group: None, group_root: PathBuf::new() }
    }
}

/// Memory limits of a control group in bytes, the tightest of a group and its ancestors.
///
/// ```
/// use pageyard_host::{GroupMemory, SystemFiles};
///
/// let files = SystemFiles::detect();
/// let memory = files.group.and_then(|group| GroupMemory::read(&group, &files.group_root));
/// if let Some(left) = memory.and_then(|m| m.below_max) {
///     println!("{left} bytes until the control group's limit");
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupMemory {
    /// Bytes left below `memory.high`, above which the group is throttled; `None`: no such limit.
    pub below_high: Option<u64>,
    /// Bytes left below `memory.max`, above which the OOM killer kills a process of the group.
    pub below_max: Option<u64>,
    /// `memory.high` and `memory.max` of the tightest group for each.
    pub high: Option<u64>,
    /// See `high`.
    pub max: Option<u64>,
    /// Number of times that a group reached its `memory.high` or `memory.max` (`memory.events`).
    pub events: u64,
}

impl GroupMemory {
    /// Reads a group and its ancestors; `None` if none of them has a memory controller.
    pub fn read(group: &Path, root: &Path) -> Option<GroupMemory> {
        let mut all = GroupMemory::default();
        let mut any = false;
        for dir in group.ancestors().take_while(|d| d.starts_with(root)) {
            let text = |name| fs::read_to_string(dir.join(name)).ok();
            let number = |name| text(name)?.trim().parse::<u64>().ok();
            let Some(current) = number("memory.current") else { continue };
            any = true;
            for (name, limit, below) in [
                ("memory.high", &mut all.high, &mut all.below_high),
                ("memory.max", &mut all.max, &mut all.below_max),
            ] {
                let Some(here) = number(name) else { continue };
                let room = here.saturating_sub(current);
                if below.is_none_or(|b| room < b) {
                    (*limit, *below) = (Some(here), Some(room));
                }
            }
            let events = text("memory.events").unwrap_or_default();
            let count = |l: &str| {
                let (name, n) = l.split_once(' ')?;
                ["high", "max"].contains(&name).then(|| n.trim().parse::<u64>().ok())?
            };
            all.events = events.lines().filter_map(count).fold(all.events, u64::saturating_add);
        }
        any.then_some(all)
    }
}

/// The open files, and what they last reported.
#[derive(Debug)]
pub(crate) struct Signals {
    psi: Option<File>,
    pub(crate) psi_state: Watching,
    group: Option<PathBuf>,
    root: PathBuf,
    pub(crate) group_state: Watching,
    events: Option<File>,
    stalled_at: Option<u64>,
    last: GroupMemory,
    hit_at: Option<u64>,
}

fn open_psi(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    file.write_all(TRIGGER.as_bytes())?;
    Ok(file)
}

impl Signals {
    pub(crate) fn open(files: &SystemFiles) -> Signals {
        let off = || Watching::Not("disabled".into());
        let (psi, psi_state) = match &files.pressure {
            None => (None, off()),
            Some(path) => match open_psi(path) {
                Ok(file) => (Some(file), Watching::File(path.clone())),
                Err(e) => (None, Watching::Not(format!("{}: {e}", path.display()))),
            },
        };
        let mut signals = Signals {
            psi,
            psi_state,
            group: None,
            root: files.group_root.clone(),
            group_state: Watching::Not("no cgroup v2 tree is mounted, or it is disabled".into()),
            events: None,
            stalled_at: None,
            last: GroupMemory::default(),
            hit_at: None,
        };
        if let Some(group) = &files.group {
            match GroupMemory::read(group, &files.group_root) {
                Some(memory) => {
                    signals.last = memory;
                    signals.events = File::open(group.join("memory.events")).ok();
                    signals.group_state = Watching::File(group.clone());
                    signals.group = Some(group.clone());
                }
                None => {
                    let what = format!("{}: no memory controller", group.display());
                    signals.group_state = Watching::Not(what);
                }
            }
        }
        signals
    }

    /// Returns the files to poll.
    pub(crate) fn files(&self) -> Vec<RawFd> {
        [&self.psi, &self.events].into_iter().flatten().map(AsRawFd::as_raw_fd).collect()
    }

    /// Handles what `poll` reported for one of [`files`](Signals::files). Returns whether the file
    /// is still watched: a dead file would wake the worker forever.
    pub(crate) fn handle_event(&mut self, fd: RawFd, revents: i16, now: u64) -> bool {
        let is = |file: &Option<File>| file.as_ref().is_some_and(|f| f.as_raw_fd() == fd);
        let gone = revents & (libc::POLLHUP | libc::POLLNVAL) != 0;
        if is(&self.psi) {
            // An error means that the trigger is gone, as happens with its control group.
            if !gone && revents & libc::POLLERR == 0 {
                self.stalled_at = Some(now);
                return true;
            }
            self.psi = None;
            self.psi_state = Watching::Not("the pressure file is gone".into());
        } else if is(&self.events) {
            // Here every change is reported as an error, until the file is read to its end. The
            // file of a removed group cannot be read.
            if !gone && self.read_events().is_ok() {
                return true;
            }
            self.drop_group();
        }
        false
    }

    /// Stops watching the group: it was removed, so this process is in another one.
    fn drop_group(&mut self) {
        if let Some(group) = self.group.take() {
            self.group_state =
                Watching::Not(format!("{}: the control group is gone", group.display()));
        }
        self.events = None;
        self.last = GroupMemory::default();
    }

    /// Reads the file to its end, after which it reports only the next change.
    fn read_events(&mut self) -> io::Result<()> {
        if let Some(events) = &mut self.events {
            events.rewind()?;
            io::copy(events, &mut io::sink())?;
        }
        Ok(())
    }

    /// Reads the limits and events. Returns whether the group, if there was one, is still watched.
    pub(crate) fn refresh(&mut self, now: u64) -> bool {
        let Some(group) = &self.group else { return true };
        let memory = GroupMemory::read(group, &self.root);
        let watched = self.read_events().is_ok();
        if watched {
            let events = self.last.events;
            // Files that cannot be read now do not show how short memory is.
            let memory = memory.unwrap_or(GroupMemory { events, ..GroupMemory::default() });
            if memory.events > events {
                self.hit_at = Some(now);
            }
            self.last = memory;
        } else {
            self.drop_group();
        }
        watched
    }

    pub(crate) fn stalled(&self, now: u64) -> bool {
        self.stalled_at.is_some_and(|t| now.saturating_sub(t) < STALL)
    }

    /// Returns whether the group is near its limits: `Some(true)` if a process is about to be
    /// killed.
    pub(crate) fn group_short(&self, now: u64) -> Option<bool> {
        let within = |room: Option<u64>, limit: Option<u64>, part: u64| {
            room.zip(limit).is_some_and(|(room, limit)| room < limit / part)
        };
        let m = &self.last;
        let hit = self.hit_at.is_some_and(|t| now.saturating_sub(t) < STALL);
        if within(m.below_max, m.max, 32) {
            Some(true)
        } else if hit || within(m.below_max, m.max, 10) || within(m.below_high, m.high, 20) {
            Some(false)
        } else {
            None
        }
    }

    #[cfg(test)]
    fn of(psi: File) -> Signals {
        Signals { psi: Some(psi), ..Signals::open(&SystemFiles::none()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use super::*;

    fn write(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        assert_eq!(GroupMemory::read(&d.join("a/b"), d), None);
        write(d, "a/memory.current", "900\n");
        write(d, "a/memory.max", "1000\n");
        write(d, "a/memory.high", "max\n");
        write(d, "a/memory.events", "low 1\nhigh 0\nmax 3\noom 1\noom_kill 0\n");
        write(d, "a/b/memory.current", "50\n");
        write(d, "a/b/memory.max", "500\n");
        write(d, "a/b/memory.high", "60\n");
        write(d, "a/b/memory.events", "low 9\nhigh 2\nmax 0\n");
        let all = GroupMemory::read(&d.join("a/b"), d).unwrap();
        let wanted = GroupMemory {
            below_high: Some(10),
            below_max: Some(100),
            high: Some(60),
            max: Some(1000),
            events: 5,
        };
        assert_eq!(all, wanted);
    }

    #[test]
    fn damaged_counts_do_not_overflow() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        write(d, "a/memory.current", "900\n");
        write(d, "a/memory.max", "1000\n");
        write(d, "a/memory.events", "high 18446744073709551615\nmax 18446744073709551615\n");
        assert_eq!(GroupMemory::read(&d.join("a"), d).unwrap().events, u64::MAX);
    }

    #[test]
    fn a_group_near_its_limit_is_under_pressure() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        write(d, "memory.current", "500\n");
        write(d, "memory.max", "1000\n");
        write(d, "memory.high", "max\n");
        let files =
            SystemFiles { pressure: None, group: Some(d.to_owned()), group_root: d.to_owned() };
        let mut s = Signals::open(&files);
        assert_eq!(s.group_state, Watching::File(d.to_owned()));
        assert_eq!(s.psi_state, Watching::Not("disabled".into()));
        let mut at = |current: &str, now| {
            write(d, "memory.current", current);
            s.refresh(now);
            s.group_short(now)
        };
        assert_eq!(at("500", 1), None);
        assert_eq!(at("950", 2), Some(false));
        assert_eq!(at("980", 3), Some(true));
        assert_eq!(at("100", 4), None);
        write(d, "memory.events", "high 1\n");
        assert_eq!(at("100", 5), Some(false));
        assert_eq!(at("100", 5 + STALL), None);
    }

    #[test]
    fn missing_sources_are_reported() {
        let files = SystemFiles {
            pressure: Some("/nowhere/pressure".into()),
            group: Some("/nowhere/group".into()),
            group_root: "/nowhere".into(),
        };
        let s = Signals::open(&files);
        assert!(s.psi_state.to_string().starts_with("not watched: /nowhere/pressure: "));
        assert_eq!(s.group_state.to_string(), "not watched: /nowhere/group: no memory controller");
        assert!(s.files().is_empty());
    }

    /// The system's own file can be polled, unless the system refuses the trigger.
    #[test]
    fn system_stalls_can_be_polled() {
        let s = Signals::open(&SystemFiles::detect());
        match &s.psi_state {
            Watching::File(path) => {
                assert_eq!(path, Path::new("/proc/pressure/memory"));
                let wake_event = crate::wake_event::WakeEvent::new().unwrap();
                assert_eq!(wake_event.wait(&s.files()[..1], Duration::ZERO).len(), 0);
            }
            // There is no such file, it may not be written, or the system was started without it.
            Watching::Not(why) => {
                let path = Path::new("/proc/pressure/memory");
                let open = || File::options().read(true).write(true).open(path);
                let refused = open().and_then(|mut f| f.write_all(b"some 500000 2000000\0"));
                let why_not = refused.expect_err(why).raw_os_error();
                let known =
                    [libc::ENOENT, libc::EACCES, libc::EPERM, libc::EROFS, libc::EOPNOTSUPP];
                assert!(known.map(Some).contains(&why_not), "{why}");
            }
        }
    }

    #[test]
    fn a_stall_counts_for_a_limited_time() {
        use std::os::unix::net::UnixStream;
        let (one, other) = UnixStream::pair().unwrap();
        let mut s = Signals::of(File::from(OwnedFd::from(one)));
        assert!(!s.stalled(0));
        let byte = [1u8];
        // SAFETY: one byte of ours; out-of-band data is reported as urgent, as a stall is.
        let sent = unsafe { libc::send(other.as_raw_fd(), byte.as_ptr().cast(), 1, libc::MSG_OOB) };
        if !pageyard_unmet::met("MSG_OOB on Unix sockets", sent == 1) {
            return;
        }
        let wake_event = crate::wake_event::WakeEvent::new().unwrap();
        for (fd, revents) in wake_event.wait(&s.files(), Duration::from_secs(3600)) {
            assert!(s.handle_event(fd, revents, 10));
        }
        assert!(s.stalled(10) && s.stalled(9 + STALL) && !s.stalled(10 + STALL));
    }

    /// One end of a socket whose other end is closed: a file that reports nothing any more.
    fn closed() -> File {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(other);
        File::from(OwnedFd::from(one))
    }

    /// Otherwise the file would wake the worker at once, each time.
    #[test]
    fn a_removed_file_is_not_polled() {
        let wake_event = crate::wake_event::WakeEvent::new().unwrap();
        let files =
            SystemFiles { pressure: None, group: Some("/".into()), group_root: "/nowhere".into() };
        let mut s = Signals::open(&files);
        s.psi = Some(closed());
        s.events = Some(closed());
        s.group = files.group;
        let heard = wake_event.wait(&s.files(), Duration::from_secs(3600));
        assert_eq!(heard.len(), 2);
        for (fd, revents) in heard {
            assert!(!s.handle_event(fd, revents, 1));
        }
        assert!(s.files().is_empty() && !s.stalled(1));
        assert_eq!(s.psi_state.to_string(), "not watched: the pressure file is gone");
        assert_eq!(s.group_state.to_string(), "not watched: /: the control group is gone");
    }

    /// The files of a removed group report `POLLERR` forever, and have no text.
    #[test]
    fn a_removed_group_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        write(d, "memory.current", "990\n");
        write(d, "memory.max", "1000\n");
        let files =
            SystemFiles { pressure: None, group: Some(d.to_owned()), group_root: d.to_owned() };
        for by_event in [true, false] {
            let mut s = Signals::open(&files);
            assert!(s.refresh(1) && s.group_short(1) == Some(true));
            // Opens, but cannot be read.
            s.events = Some(File::open(d).unwrap());
            let fd = s.files()[0];
            let error = libc::POLLERR | libc::POLLPRI;
            assert!(if by_event { !s.handle_event(fd, error, 2) } else { !s.refresh(2) });
            assert!(s.files().is_empty());
            assert_eq!(s.group_short(2), None, "what it said last is no sign any more");
            assert!(s.group_state.to_string().ends_with("the control group is gone"));
            assert!(s.refresh(3), "said once");
        }
        // Unreadable for a moment is not gone.
        let mut s = Signals::open(&files);
        fs::remove_file(d.join("memory.current")).unwrap();
        assert!(s.refresh(1));
        assert_eq!(s.group_short(1), None);
        write(d, "memory.current", "990\n");
        assert!(s.refresh(2) && s.group_short(2) == Some(true));
    }
}
