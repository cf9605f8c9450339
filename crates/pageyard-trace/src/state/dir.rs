//! All state files of a recording, from the folder next to it or from its attachments.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{BuddyInfo, Counters, CpuCaches, PageTypeInfo, PfnMap, Settings, ZoneInfo};
use crate::attachment::Attachments;
use crate::error::{Fault, Position, TraceError};
use crate::input::bound::{self, Bound};
use crate::input::{Used, decompress_all, read_at_most};

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
///
/// where FILE is `zoneinfo`, `buddyinfo`, `pagetypeinfo`, `vmstat`, `cpu_cache` or `sys_vm`.
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
}

const FILES: [&str; 6] = ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "cpu_cache", "sys_vm"];
const PFNMAPS: [&str; 2] = ["pfnmap.before", "pfnmap.after"];
const SUFFIXES: [&str; 4] = ["", ".xz", ".gz", ".zst"];
/// Maximum size of a frame map, one byte per frame; enough for 4 TiB of memory.
const MAX_MAP: u64 = 1 << 30;
/// Maximum size of another file; enough for 4096 CPUs in each of 100 zones.
const MAX_TEXT: u64 = 1 << 26;

/// Returns whether `name` is that of a state file, next to a recording or attached to it.
pub(crate) fn is_state_file(name: &str) -> bool {
    let file = |name: &str| FILES.contains(&name);
    match name.split_once('/') {
        Some(("before" | "after", name)) => file(name),
        Some(_) => false,
        None => {
            let traced = |end| name.strip_suffix(end).is_some_and(file);
            PFNMAPS.contains(&name) || traced(".traced_start") || traced(".traced_end")
        }
    }
}

impl StateDir {
    /// Reads the state files next to a trace. `path` is the trace or its folder.
    ///
    /// # Errors
    /// Fails if a file exists but cannot be read, decompressed or parsed.
    pub fn beside(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let folder = folder_of(path.as_ref());
        let prefix = format!("{}/", folder.display());
        Self::parse(&prefix, Self::collect(folder)?)
    }

    /// Parses the files attached to a trace. Ignores attachments with other names.
    ///
    /// # Errors
    /// Fails on the first attachment that cannot be parsed.
    pub fn from_attachments(attachments: &Attachments) -> Result<Self, TraceError> {
        Self::parse("", attachments.clone())
    }

    /// Reads and decompresses the files next to a trace, under the names above, ready to be
    /// attached. `path` is the trace or its folder.
    ///
    /// # Errors
    /// Fails if a file exists but cannot be read or decompressed.
    pub fn collect(path: impl AsRef<Path>) -> Result<Attachments, TraceError> {
        let folder = folder_of(path.as_ref());
        let mut found = Attachments::new();
        let (mut texts, mut maps) = (Used::default(), Used::default());
        let names =
            ["before/", "after/"].into_iter().flat_map(|at| FILES.map(|f| format!("{at}{f}")));
        let traced = [".traced_start", ".traced_end"].into_iter();
        let traced = traced.flat_map(|at| FILES.map(|f| format!("{f}{at}")));
        for name in names.chain(traced).chain(PFNMAPS.map(str::to_owned)) {
            let (bound, most, used) = if PFNMAPS.contains(&name.as_str()) {
                (bound::MAP, MAX_MAP, &mut maps)
            } else {
                (bound::TEXT, MAX_TEXT, &mut texts)
            };
            if let Some(data) = read(folder, &name, bound, most, used)? {
                found.insert(name, data);
            }
        }
        Ok(found)
    }

    fn parse(prefix: &str, mut files: Attachments) -> Result<Self, TraceError> {
        let snapshot = |before: &str, behind: &str| {
            Snapshot::parse(&files, &|file| format!("{before}{file}{behind}"), prefix)
        };
        let (before, after) = (snapshot("before/", "")?, snapshot("after/", "")?);
        let traced_start = snapshot("", ".traced_start")?;
        let traced_end = snapshot("", ".traced_end")?;
        // Maps are large, so move them instead of copying.
        let [pfnmap_before, pfnmap_after] = PFNMAPS.map(|name| files.take(name).map(PfnMap::new));
        Ok(StateDir { before, traced_start, traced_end, after, pfnmap_before, pfnmap_after })
    }
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
            files.get(&name).map(|data| parser(&format!("{prefix}{name}"), data)).transpose()
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
        let fail = |fault| TraceError::new(&path.to_string_lossy(), Position::Whole, fault);
        match regular(&path).and_then(|file| read_at_most(file, most)) {
            Ok(data) => return decompress_all(data, bound, used, most).map(Some).map_err(fail),
            Err(error) if missing(&error) => {}
            Err(error) => return Err(fail(Fault::Io(error))),
        }
    }
    Ok(None)
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
