//! All state files of a recording, from the folder around it or from its attachments.

use std::fs;
use std::io;
use std::path::Path;

use super::{BuddyInfo, Counters, CpuCaches, PageTypeInfo, PfnMap, Settings, ZoneInfo};
use crate::attachment::Attachments;
use crate::error::{Fault, Position, TraceError};
use crate::input::decompress_all;

/// The state of a machine at one moment, as far as files tell.
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

/// The state files of a recording. They lie beside it under these names (and may be compressed,
/// with `.xz`, `.gz` or `.zst` behind the name):
///
/// - `before/FILE` and `after/FILE`: around the recording;
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
/// A byte a frame: this is 4 TiB of memory.
const MAX_FILE: usize = 1 << 30;

impl StateDir {
    /// Reads what lies beside a trace: `path` is the trace or the folder.
    ///
    /// # Errors
    /// A file that is there but cannot be read, decompressed or parsed.
    pub fn beside(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let folder = folder_of(path.as_ref());
        let prefix = format!("{}/", folder.display());
        Self::parse(&prefix, &Self::collect(folder)?)
    }

    /// Parses what is attached to a trace; attachments of other names are passed over.
    ///
    /// # Errors
    /// The first attachment that cannot be parsed.
    pub fn from_attachments(attachments: &Attachments) -> Result<Self, TraceError> {
        Self::parse("", attachments)
    }

    /// The files that lie beside a trace, decompressed, under the names above, ready to be
    /// attached: `path` is the trace or the folder.
    ///
    /// # Errors
    /// A file that is there but cannot be read or decompressed.
    pub fn collect(path: impl AsRef<Path>) -> Result<Attachments, TraceError> {
        let folder = folder_of(path.as_ref());
        let mut found = Attachments::new();
        let names =
            ["before/", "after/"].into_iter().flat_map(|at| FILES.map(|f| format!("{at}{f}")));
        let traced = [".traced_start", ".traced_end"].into_iter();
        let traced = traced.flat_map(|at| FILES.map(|f| format!("{f}{at}")));
        for name in names.chain(traced).chain(PFNMAPS.map(str::to_owned)) {
            if let Some(data) = read(folder, &name)? {
                found.insert(name, data);
            }
        }
        Ok(found)
    }

    fn parse(prefix: &str, files: &Attachments) -> Result<Self, TraceError> {
        let pfnmap = |name| files.get(name).map(|data| PfnMap::new(data.to_vec()));
        let snapshot = |before: &str, behind: &str| {
            Snapshot::parse(files, &|file| format!("{before}{file}{behind}"), prefix)
        };
        Ok(StateDir {
            before: snapshot("before/", "")?,
            traced_start: snapshot("", ".traced_start")?,
            traced_end: snapshot("", ".traced_end")?,
            after: snapshot("after/", "")?,
            pfnmap_before: pfnmap(PFNMAPS[0]),
            pfnmap_after: pfnmap(PFNMAPS[1]),
        })
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

/// The file of this name in the folder, compressed or not; `None` if there is none.
fn read(folder: &Path, name: &str) -> Result<Option<Vec<u8>>, TraceError> {
    for suffix in SUFFIXES {
        let path = folder.join(format!("{name}{suffix}"));
        let fail = |fault| TraceError::new(&path.to_string_lossy(), Position::Whole, fault);
        match fs::read(&path) {
            Ok(data) => {
                let data = decompress_all(data, MAX_FILE)
                    .map_err(|(compression, e)| fail(Fault::Compression(compression, e)))?;
                return Ok(Some(data));
            }
            Err(error) if missing(&error) => {}
            Err(error) => return Err(fail(Fault::Io(error))),
        }
    }
    Ok(None)
}

fn missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
