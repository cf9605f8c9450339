//! All state files of a recording, from the folder next to it or from its attachments.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::names::{FILES, PFNMAPS, RELEASES, SUFFIXES};
use super::near::{self, Near};
use super::{BuddyInfo, Counters, CpuCaches, PageTypeInfo, PfnMap, Settings, ZoneInfo};
use crate::attachment::{Attachments, ENABLED_EVENTS, KERNEL_RELEASE};
use crate::error::{Fault, Position, TraceError, excerpt};
use crate::input::bound::{self, Bound};
use crate::input::{Used, decompress_all, read_at_most};
use crate::printable::printable;
use crate::release;

/// State of a machine at one moment, as far as files describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// `/proc/zoneinfo`.
    pub zoneinfo: Option<ZoneInfo>,
    /// `/proc/buddyinfo`.
    pub buddyinfo: Option<BuddyInfo>,
    /// `/proc/pagetypeinfo`.
    pub pagetypeinfo: Option<PageTypeInfo>,
    /// `/proc/vmstat`.
    pub vmstat: Option<Counters>,
    /// The CPU caches.
    pub cpu_cache: Option<CpuCaches>,
    /// The settings in `/proc/sys/vm`.
    pub sys_vm: Option<Settings>,
}

/// The state files of a recording. They are next to it under these names, optionally compressed
/// with the extension `.xz`, `.gz` or `.zst`:
///
/// - `before/FILE` and `after/FILE`: before and after the recording;
/// - `FILE.traced_start` and `FILE.traced_end`: just inside the recording;
/// - `pfnmap.before` and `pfnmap.after`: just inside the recording;
/// - `kernel_release`: the output of `uname -r`. Without it, that of `uname -a` or `uname -r` in
///   `uname`, or `/proc/version` in `version`, here or in `before/`;
/// - `enabled_events`: the events that were recorded, a name on each line;
///
/// where FILE is `zoneinfo`, `buddyinfo`, `pagetypeinfo`, `vmstat`, `cpu_cache` or `sys_vm`. A file
/// with a similar name is used if its meaning is clear, such as `zoneinfo` or `TRACE.zoneinfo` for
/// `before/zoneinfo`. [`StateDir::notes`] names these files, and those that are not used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateDir {
    /// Before the recording began.
    pub before: Snapshot,
    /// Just after it began.
    pub traced_start: Snapshot,
    /// Just before it ended.
    pub traced_end: Snapshot,
    /// After it ended.
    pub after: Snapshot,
    /// All frames just after the recording began.
    pub pfnmap_before: Option<PfnMap>,
    /// All frames just before it ended.
    pub pfnmap_after: Option<PfnMap>,
    /// Release of the kernel that recorded, as `uname -r` prints it.
    pub kernel_release: Option<String>,
    /// Names of the events that were recorded, whether they happened or not.
    pub enabled_events: Option<Vec<String>>,
    /// Which files with similar names are used, and which are not: for the user.
    pub notes: Vec<String>,
}

/// Maximum number of notes on files with similar names.
const MOST_NOTES: usize = 8;
/// Maximum size of a frame map, one byte per frame; enough for 4 TiB of memory.
const MAX_MAP: u64 = 1 << 30;
/// Maximum size of another file; enough for 4096 CPUs in each of 100 zones.
const MAX_TEXT: u64 = 1 << 26;

impl StateDir {
    /// Reads the state files next to a trace. `path` is the trace or its folder.
    ///
    /// # Errors
    /// Fails if there is nothing at `path`, or if a file exists but cannot be read, decompressed or
    /// parsed.
    pub fn beside(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let (files, notes) = read_all(path)?;
        Ok(StateDir { notes, ..Self::parse(&prefix_of(path), files)? })
    }

    /// Returns whether there are no state files.
    pub fn is_empty(&self) -> bool {
        *self == StateDir { notes: self.notes.clone(), ..StateDir::default() }
    }

    /// Parses the files attached to a trace. Ignores attachments with other names.
    ///
    /// # Errors
    /// Fails on the first attachment that cannot be parsed.
    pub fn from_attachments(attachments: &Attachments) -> Result<Self, TraceError> {
        Self::parse("", attachments.clone())
    }

    /// Returns the state files of a trace: those that are attached to it, otherwise those next to it.
    /// `path` is the trace, if it is a file, or its folder. An attached `kernel_release` and
    /// `enabled_events`, which every import may add, replace those next to the trace.
    ///
    /// If state files are attached, the notes name the other ones next to the trace, which are not
    /// used.
    ///
    /// # Errors
    /// Fails if a file that is used cannot be read, decompressed or parsed.
    pub fn of_trace(attachments: &Attachments, path: Option<&Path>) -> Result<Self, TraceError> {
        let Some(path) = path else { return Self::from_attachments(attachments) };
        let mut attached = Self::parse(&format!("{}: ", path.display()), attachments.clone())?;
        let (release, events) = (attached.kernel_release.take(), attached.enabled_events.take());
        let mut state = if attached.is_empty() {
            Self::beside(path)?
        } else {
            attached.notes.extend(Self::not_used(attachments, path));
            attached
        };
        state.kernel_release = release.or(state.kernel_release);
        state.enabled_events = events.or(state.enabled_events);
        Ok(state)
    }

    /// Returns whether state files are attached, other than what every import may add.
    pub fn is_attached(attachments: &Attachments) -> bool {
        attachments.iter().any(|file| ![KERNEL_RELEASE, ENABLED_EVENTS].contains(&&*file.name))
    }

    /// Returns a note on the state files next to a trace that are other than those attached to it.
    pub fn not_used(attachments: &Attachments, path: &Path) -> Option<String> {
        let unused = match read_all(path) {
            Ok((files, _)) => files
                .iter()
                .filter(|file| attachments.get(&file.name) != Some(&file.data[..]))
                .map(|file| file.name.clone())
                .collect(),
            Err(error) => vec![error.to_string()],
        };
        let unused = Some(unused).filter(|unused| !unused.is_empty())?;
        Some(format!("not used, since the trace has state files attached: {}", unused.join(", ")))
    }

    /// Reads and decompresses the files next to a trace, under the names above, ready to be
    /// attached. `path` is the trace or its folder. The texts are those of [`StateDir::notes`].
    ///
    /// # Errors
    /// Fails as [`StateDir::beside`] does.
    pub fn collect(path: impl AsRef<Path>) -> Result<(Attachments, Vec<String>), TraceError> {
        let path = path.as_ref();
        let (files, notes) = read_all(path)?;
        // What is attached is read again only later, perhaps without these files.
        Self::parse_texts(&prefix_of(path), &files)?;
        Ok((files, notes))
    }

    fn parse(prefix: &str, mut files: Attachments) -> Result<Self, TraceError> {
        let mut state = Self::parse_texts(prefix, &files)?;
        // Maps are large, so move them instead of copying.
        [state.pfnmap_before, state.pfnmap_after] =
            PFNMAPS.map(|name| files.take(name).filter(|map| !map.is_empty()).map(PfnMap::new));
        Ok(state)
    }

    /// Parses all files but the frame maps.
    fn parse_texts(prefix: &str, files: &Attachments) -> Result<Self, TraceError> {
        let snapshot = |before: &str, behind: &str| {
            Snapshot::parse(files, &|file| format!("{before}{file}{behind}"), prefix)
        };
        let (before, after) = (snapshot("before/", "")?, snapshot("after/", "")?);
        let traced_start = snapshot("", ".traced_start")?;
        let traced_end = snapshot("", ".traced_end")?;
        let kernel_release = match files.get(KERNEL_RELEASE) {
            Some(data) => Some(kernel_release(prefix, data)?),
            None => None,
        };
        let enabled_events = files.get(ENABLED_EVENTS).map(|data| {
            let text = String::from_utf8_lossy(data);
            text.split_ascii_whitespace().map(str::to_owned).collect()
        });
        Ok(StateDir {
            before,
            traced_start,
            traced_end,
            after,
            kernel_release,
            enabled_events,
            ..StateDir::default()
        })
    }
}

fn kernel_release(prefix: &str, data: &[u8]) -> Result<String, TraceError> {
    release::find(data).map(str::to_owned).ok_or_else(|| {
        let expected = "a kernel release, such as 6.12.30, as `uname -r` prints it";
        let found = excerpt(data.split(|&b| b == b'\n').next().unwrap_or_default());
        let name = format!("{prefix}{KERNEL_RELEASE}");
        TraceError::new(&name, Position::Line(1), Fault::State { expected, found })
    })
}

type Parser<T> = fn(&str, &[u8]) -> Result<T, TraceError>;

impl Snapshot {
    fn parse(
        files: &Attachments,
        name: &dyn Fn(&str) -> String,
        prefix: &str,
    ) -> Result<Self, TraceError> {
        fn one<T>(
            files: &Attachments,
            prefix: &str,
            name: String,
            parser: Parser<T>,
        ) -> Result<Option<T>, TraceError> {
            let data = files.get(&name).filter(|data| !data.is_empty());
            data.map(|data| parser(&format!("{prefix}{name}"), data)).transpose()
        }
        Ok(Snapshot {
            zoneinfo: one(files, prefix, name("zoneinfo"), ZoneInfo::parse)?,
            buddyinfo: one(files, prefix, name("buddyinfo"), BuddyInfo::parse)?,
            pagetypeinfo: one(files, prefix, name("pagetypeinfo"), PageTypeInfo::parse)?,
            vmstat: one(files, prefix, name("vmstat"), Counters::parse)?,
            cpu_cache: one(files, prefix, name("cpu_cache"), CpuCaches::parse)?,
            sys_vm: one(files, prefix, name("sys_vm"), Settings::parse)?,
        })
    }
}

/// Reads and decompresses the files next to a trace. Returns them, and notes for the user.
fn read_all(path: &Path) -> Result<(Attachments, Vec<String>), TraceError> {
    if let Err(error) = fs::metadata(path) {
        return Err(TraceError::new(&path.to_string_lossy(), Position::Whole, Fault::Io(error)));
    }
    let folder = folder_of(path);
    let (mut found, mut notes) = (Attachments::new(), Vec::new());
    let (mut texts, mut maps) = (Used::default(), Used::default());
    let names = ["before/", "after/"].into_iter().flat_map(|at| FILES.map(|f| format!("{at}{f}")));
    let traced = [".traced_start", ".traced_end"].into_iter();
    let traced = traced.flat_map(|at| FILES.map(|f| format!("{f}{at}")));
    for name in names.chain(traced).chain(PFNMAPS.map(str::to_owned)) {
        let (bound, most, used) = if PFNMAPS.contains(&name.as_str()) {
            (bound::MAP, MAX_MAP, &mut maps)
        } else {
            (bound::TEXT, MAX_TEXT, &mut texts)
        };
        match read(folder, &name, bound, most, used)? {
            // What `cat /proc/pagetypeinfo` leaves to a user who may not read it.
            Some(data) if data.is_empty() => {
                notes.push(format!("{name} is not used: it is empty"));
            }
            Some(data) => found.insert(name, data),
            None => {}
        }
    }
    let mut text = |name: &str| read(folder, name, bound::TEXT, MAX_TEXT, &mut texts);
    if let Some(data) = text(ENABLED_EVENTS)? {
        found.insert(ENABLED_EVENTS, data);
    }
    if let Some(data) = text(KERNEL_RELEASE)? {
        found.insert(KERNEL_RELEASE, data);
    } else {
        for name in RELEASES {
            if let Some(release) = text(name)?.as_deref().and_then(release::find) {
                found.insert(KERNEL_RELEASE, format!("{release}\n").into_bytes());
                break;
            }
        }
    }
    let trace = path.file_name().filter(|_| folder != path).and_then(|name| name.to_str());
    let mut taken = Vec::new();
    let near = near::find(folder, trace);
    let meant =
        |name: &str| near.iter().filter(|near| matches!(near, Near::Is(_, e) if e == name)).count();
    for file in &near {
        let shown = |path: &str| printable(path).into_owned();
        let note = match file {
            Near::Is(path, name) if found.get(name).is_some() => {
                format!("{} is not used: {name} is there too", shown(path))
            }
            Near::Is(path, name) if meant(name) > 1 => format!(
                "{} is not used: another file may be {name} too; rename the right one to {name}",
                shown(path)
            ),
            Near::Is(path, name) => match read_near(folder, path, name, &mut texts) {
                Ok(data) => {
                    taken.push((name.clone(), data));
                    format!("{} is used as {name}", shown(path))
                }
                Err(e) => format!("{} is not used: {e}", shown(path)),
            },
            Near::Unclear(path) => format!(
                "{} is not used: the names of state files are before/FILE, after/FILE, \
                 FILE.traced_start and FILE.traced_end",
                shown(path)
            ),
        };
        notes.push(note);
    }
    for (name, data) in taken {
        found.insert(name, data);
    }
    let more = notes.len().saturating_sub(MOST_NOTES);
    if more > 0 {
        notes.truncate(MOST_NOTES);
        notes.push(format!("and {more} more files with similar names"));
    }
    Ok((found, notes))
}

/// What precedes the name of a state file in an error.
fn prefix_of(path: &Path) -> String {
    format!("{}/", folder_of(path).display())
}

fn folder_of(path: &Path) -> &Path {
    if path.is_dir() {
        return path;
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Reads the file of this name in the folder, compressed or not; `None` if there is none.
fn read(
    folder: &Path,
    name: &str,
    bound: Bound,
    most: u64,
    used: &mut Used,
) -> Result<Option<Vec<u8>>, TraceError> {
    for suffix in SUFFIXES {
        let path = folder.join(format!("{name}{suffix}"));
        if let Some(data) = read_exactly(&path, bound, most, used)? {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// Reads and decompresses the file at exactly this path; `None` if there is none.
fn read_exactly(
    path: &Path,
    bound: Bound,
    most: u64,
    used: &mut Used,
) -> Result<Option<Vec<u8>>, TraceError> {
    let fail = |fault| TraceError::new(&path.to_string_lossy(), Position::Whole, fault);
    match regular(path).and_then(|file| read_at_most(file, most)) {
        Ok(data) => decompress_all(data, bound, used, most).map(Some).map_err(fail),
        Err(error) if missing(&error) => Ok(None),
        Err(error) => Err(fail(Fault::Io(error))),
    }
}

/// Reads the file of a similar name that means the state file `name`, if it has the form of one.
fn read_near(
    folder: &Path,
    path: &str,
    name: &str,
    used: &mut Used,
) -> Result<Vec<u8>, TraceError> {
    let data = read_exactly(&folder.join(path), bound::TEXT, MAX_TEXT, used)?.unwrap_or_default();
    let mut alone = Attachments::new();
    alone.insert(name, data.clone());
    StateDir::parse("", alone)?;
    Ok(data)
}

/// Opens a regular file. Refuses devices, which have no end, and FIFOs, whose open would block.
fn regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
