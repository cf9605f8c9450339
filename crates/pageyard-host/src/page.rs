//! The statistics page: an anonymous file (memfd) of the process that other processes read through
//! `/proc/PID/fd`. It disappears with its process, so a page is never stale.
//!
//! It consists of 64-bit words in native byte order:
//!
//! - 0: magic number
//! - 1: version
//! - 2: length of the file in bytes
//! - 3: sequence number, odd while the rest is being written
//! - 4: length of the text in bytes
//! - from 5: the text, a [`YardStats`] as JSON
//!
//! The version counts changes of this layout and changes of the text that an older reader would
//! misunderstand. A new field of the text is none: a reader ignores fields that it does not know and
//! has defaults for those that it misses, so programs and readers of different versions work
//! together (`other_versions_of_the_text_are_read`).
//!
//! A reader copies the file with `read`. The copy is consistent if the sequence number was the same
//! even value before and after.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;
use std::ptr::NonNull;

use crate::backing::memfd;
use crate::seqlock::{HEAD, length, publish, snapshot};
use crate::stats::YardStats;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// "pgyrdtop".
const MAGIC: u64 = 0x7067_7972_6474_6f70;
const VERSION: u64 = 1;
/// Bytes of text that a reader accepts from all pages of a process together, because any process
/// may publish a fake page. Parsed, a text takes up to eight times as much memory.
const MOST: u64 = 16 << 20;
/// Maximum number of page descriptors that a reader examines.
const MOST_PAGES: usize = 1024;
/// Seals that fix the length of a page.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
/// Name that `/proc/PID/fd` shows.
const NAME: &str = "/memfd:pageyard-stats";

/// A statistics page that this process publishes.
#[derive(Debug)]
pub(crate) struct Page {
    // Kept open: other processes find the page by this descriptor.
    _file: OwnedFd,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics and stay mapped as long as the page lives, on any thread
// (`a_reader_never_sees_a_torn_text` writes on another one).
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// Creates a page with room for a text of `room` bytes.
    pub(crate) fn new(room: usize) -> io::Result<Page> {
        let bytes = (room.min(MOST as usize) + HEAD * 8).next_multiple_of(4096);
        let file = memfd(c"pageyard-stats", 0, bytes as u64)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the mapping is new, at an address that the system chooses, so nothing existing
        // changes. It is as long as the file, which is sealed (`a_page_keeps_its_length`).
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let words = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let page = Page { _file: file, words, count: bytes / 8 };
        for (at, value) in [(2, bytes as u64), (1, VERSION), (0, MAGIC)] {
            page.words()[at].store(value, Relaxed);
        }
        Ok(page)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the words stay mapped until `drop`, aligned and `count` long. The file is sealed
        // against shrinking, so that no access faults (`a_page_keeps_its_length`). All accesses are
        // atomic.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Replaces the text. One writer at a time.
    pub(crate) fn write(&self, stats: &YardStats) {
        let words = self.words();
        let room = (words.len() - HEAD) * 8;
        let mut text = serde_json::to_vec(stats).unwrap_or_default();
        if text.len() > room {
            // The per-CPU lists are the long part of the text.
            let mut short = stats.clone();
            short.zones.iter_mut().for_each(|z| z.cpus.clear());
            text = serde_json::to_vec(&short).unwrap_or_default();
        }
        if text.is_empty() || text.len() > room {
            return;
        }
        publish(words, &text);
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, of this length, and was borrowed through `self` only.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * 8) };
    }
}

/// Why a statistics page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The process does not exist, or access to it is denied.
    #[error("process {pid}: {}", no_access(.error))]
    Process {
        /// Process ID.
        pid: u32,
        /// Error of the system.
        error: io::Error,
    },
    /// The process publishes no statistics page.
    #[error(
        "process {0} has no yard that publishes statistics; name a process that uses pageyard-host \
         with a worker and Builder::publish"
    )]
    NoYard(u32),
    /// The page is malformed.
    #[error("{file}: {what}")]
    Wrong {
        /// Name of the file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Returns why `/proc/PID/fd` cannot be read, and the fix.
fn no_access(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such process; name a running one".into(),
        _ => format!("{error}; run as its user or as root"),
    }
}

/// Reads one page from its file. The text may be at most `room` bytes long, and its length is
/// subtracted from `room`. Returns `None` if there is no text yet, or if it was being written all
/// the time.
fn read_page(file: &File, name: &str, room: &mut u64) -> Result<Option<YardStats>, PageError> {
    let wrong = |what: String| PageError::Wrong { file: name.into(), what };
    let bytes = file.metadata().map_err(|e| wrong(e.to_string()))?.len();
    let Some(most) = bytes.checked_sub((HEAD * 8) as u64) else {
        return Err(wrong(format!("{bytes} bytes are not a statistics page")));
    };
    let copy =
        |at, to: &mut [u8]| file.read_exact_at(to, at as u64).map_err(|e| wrong(e.to_string()));
    let length = |head: &[u64; HEAD]| {
        if head[0] != MAGIC {
            return Err(wrong("not a statistics page".into()));
        }
        if head[1] != VERSION {
            let (has, knows) = (head[1], VERSION);
            return Err(wrong(format!("version {has}; this program reads version {knows}")));
        }
        let length = length(head);
        if length > most {
            return Err(wrong(format!("text of {length} bytes in a page of {bytes} bytes")));
        }
        if length > *room {
            let what = "the statistics of the process are longer than 16 MiB";
            return Err(wrong(what.into()));
        }
        Ok(length as usize)
    };
    let Some(text) = snapshot(copy, length)? else { return Ok(None) };
    *room -= text.len() as u64;
    serde_json::from_slice(&text).map(Some).map_err(|e| wrong(e.to_string()))
}

/// Opens a descriptor of another process if it is a page: a memfd of fixed length. Returns `None`
/// if it is something else with such a name, or gone. It opens no other file: a FIFO would block,
/// and a device might act on the open.
fn open_page(path: &Path) -> Option<File> {
    let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let place = open(path, libc::O_PATH).ok()?;
    if !place.metadata().ok()?.is_file() {
        return None;
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let file = open(again.as_ref(), libc::O_NONBLOCK | libc::O_NOCTTY).ok()?;
    // SAFETY: the descriptor is open, and the call takes numbers only
    // (`only_a_sealed_memfd_is_opened`).
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    // An error is -1, in which all bits are set.
    (seals >= 0 && seals & SEALS == SEALS).then_some(file)
}

/// Processes that publish statistics ([`publishers`]).
///
/// ```
/// let found: pageyard_host::Publishers = pageyard_host::publishers()?;
/// println!("{} processes have yards, {} were not examined", found.pids.len(), found.denied);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Publishers {
    /// Their process IDs, in ascending order.
    pub pids: Vec<u32>,
    /// Number of processes whose descriptors this one may not read.
    pub denied: usize,
}

/// Returns whether a descriptor, a link in `/proc/PID/fd`, has the name of a statistics page.
/// Descriptors may be closed in the meantime.
fn has_name(path: &Path) -> bool {
    fs::read_link(path).is_ok_and(|link| link.to_string_lossy().starts_with(NAME))
}

/// Finds the processes that have a descriptor with the name of a statistics page. [`read_stats`]
/// reads them; it fails for a process that only uses the name.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn publishers() -> io::Result<Publishers> {
    let mut found = Publishers::default();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(mut files) => {
                if files.any(|file| file.is_ok_and(|file| has_name(&file.path()))) {
                    found.pids.push(pid);
                }
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => found.denied += 1,
            // It has ended.
            Err(_) => {}
        }
    }
    found.pids.sort_unstable();
    Ok(found)
}

/// Reads the statistics that the yards of a process publish, in the order of their descriptors. A
/// page open on several descriptors counts once. The process need not be trusted: memory use is
/// bounded by the total length of its texts, 16 MiB.
///
/// # Errors
/// The process does not exist, access is denied, it publishes nothing, or a page is malformed.
pub fn read_stats(pid: u32) -> Result<Vec<YardStats>, PageError> {
    let error = |error| PageError::Process { pid, error };
    let dir = format!("/proc/{pid}/fd");
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        if has_name(&path) {
            let number = path.file_name().and_then(|n| n.to_str()?.parse::<u32>().ok());
            found.push((number.unwrap_or(0), path));
            if found.len() > MOST_PAGES {
                let what = format!("more than {MOST_PAGES} statistics pages");
                return Err(PageError::Wrong { file: dir, what });
            }
        }
    }
    found.sort_unstable();
    let (mut all, mut seen, mut room) = (Vec::new(), HashSet::new(), MOST);
    for (_, path) in found {
        let Some(file) = open_page(&path) else { continue };
        let Ok(of) = file.metadata() else { continue };
        if seen.insert((of.dev(), of.ino())) {
            all.extend(read_page(&file, &path.to_string_lossy(), &mut room)?);
        }
    }
    if all.is_empty() { Err(PageError::NoYard(pid)) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(page: &Page) -> File {
        File::from(page._file.try_clone().unwrap())
    }

    fn read(file: &File) -> Result<Option<YardStats>, PageError> {
        read_page(file, "page", &mut 100_000)
    }

    /// A page of this process, recognisable by its `used` value.
    fn published(used: u64) -> Page {
        let page = Page::new(16 << 10).unwrap();
        page.write(&YardStats { used, ..YardStats::default() });
        page
    }

    fn seen(used: u64) -> usize {
        let all = read_stats(std::process::id()).unwrap();
        all.iter().filter(|s| s.used == used).count()
    }

    #[test]
    fn a_page_on_many_descriptors_counts_once() {
        let (one, two) = (published(0x1234_5678), published(0x1234_5678));
        assert_eq!(seen(0x1234_5678), 2);
        let more: Vec<_> = (0..20).map(|_| file(&one)).collect();
        assert_eq!(seen(0x1234_5678), 2);
        drop((two, more));
        assert_eq!(seen(0x1234_5678), 1);
    }

    #[test]
    fn total_text_size_of_a_process_is_bounded() {
        let page = published(1);
        let length = page.words()[4].load(Relaxed);
        let mut room = 2 * length + 1;
        let mut again = || read_page(&file(&page), "page", &mut room);
        assert!(again().unwrap().is_some() && again().unwrap().is_some());
        let told = again().unwrap_err().to_string();
        assert_eq!(told, "page: the statistics of the process are longer than 16 MiB");
        assert_eq!(room, 1);
        // A page that only claims a long text costs nothing: 64 MiB, none of them allocated.
        let long = Page::new(64 << 20).unwrap();
        assert_eq!(long.count as u64 * 8, MOST + 4096);
        long.words()[4].store(MOST, Relaxed);
        assert!(read(&file(&long)).unwrap_err().to_string().ends_with("16 MiB"));
    }

    #[test]
    fn reading_a_constantly_changing_page_gives_up() {
        let page = published(1);
        let mut copies = 0;
        let copy = |at: usize, to: &mut [u8]| {
            let seq = &page.words()[3];
            if at > 0 {
                copies += 1;
                seq.store(seq.load(Relaxed) + 2, Relaxed);
            }
            file(&page).read_exact_at(to, at as u64)
        };
        let text = snapshot(copy, |head| Ok(length(head) as usize)).unwrap();
        assert_eq!((text, copies), (None, crate::seqlock::COPIES));
    }

    #[test]
    fn only_a_sealed_memfd_is_opened() {
        use std::ffi::CString;
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        fs::write(&plain, [0; 4096]).unwrap();
        assert!(open_page(&plain).is_none());
        let fifo = dir.path().join("fifo");
        let name = CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: the name is a C string that lives until the call returns.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // If this opened the FIFO for reading, it would block, and the writer below would succeed.
        let reads = std::thread::spawn({
            let fifo = fifo.clone();
            move || open_page(&fifo).is_none()
        });
        let write = || {
            let mut how = OpenOptions::new();
            how.write(true).custom_flags(libc::O_NONBLOCK).open(&fifo)
        };
        let mut opened = 0;
        while !reads.is_finished() {
            opened += u32::from(write().is_ok());
        }
        assert!(reads.join().unwrap());
        assert_eq!(opened, 0, "it was opened for reading");
        assert!(open_page(dir.path()).is_none() && open_page("/dev/null".as_ref()).is_none());
        let page = published(1);
        let own = format!("/proc/self/fd/{}", page._file.as_raw_fd());
        assert!(open_page(own.as_ref()).is_some());
    }

    #[test]
    fn a_page_keeps_its_length() {
        let page = published(1);
        assert!(file(&page).set_len(4096).is_err() && file(&page).set_len(1 << 20).is_err());
    }

    #[test]
    fn a_reader_never_sees_a_torn_text() {
        let page = Page::new(16 << 10).unwrap();
        assert_eq!(read(&file(&page)).unwrap(), None);
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut n = 0;
                while !stop.load(Relaxed) {
                    n += 1;
                    let level = "x".repeat(n as usize % 3000);
                    let text = YardStats { used: n, resident: n, level, ..YardStats::default() };
                    page.write(&text);
                }
            });
            let other = file(&page);
            let mut seen = 0;
            while seen < 300 {
                if let Some(s) = read(&other).unwrap() {
                    assert_eq!((s.used, s.used as usize % 3000), (s.resident, s.level.len()));
                    seen += 1;
                }
            }
            stop.store(true, Relaxed);
        });
    }

    #[test]
    fn an_invalid_page_is_a_named_error() {
        let told = |words: &[u64]| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("page");
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            fs::write(&path, bytes).unwrap();
            read(&File::open(&path).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(told(&[1]), "page: 8 bytes are not a statistics page");
        assert_eq!(told(&[1, 1, 48, 0, 0, 0]), "page: not a statistics page");
        assert_eq!(told(&[MAGIC, 9, 48, 0, 0, 0]), "page: version 9; this program reads version 1");
        let long = told(&[MAGIC, VERSION, 48, 0, 100, 0]);
        assert_eq!(long, "page: text of 100 bytes in a page of 48 bytes");
        assert!(told(&[MAGIC, VERSION, 48, 0, 8, 0]).starts_with("page: "));
        assert!(read_stats(u32::MAX).unwrap_err().to_string().starts_with("process 4294967295: "));
    }

    /// The text as version 0.1.0 published it before the thread cache was part of it, and one of a
    /// later version.
    #[test]
    fn other_versions_of_the_text_are_read() {
        let page = Page::new(16 << 10).unwrap();
        let old = r#"{"pid":7,"at_ns":1,"level":"calm","pages":4096,"used":3,"resident":4,
            "target":5,"kept":0,"hard_limit":null,"soft_limit":null,"given_back":0,"fetched":0,
            "shrunk":0,"moved":0,"zones":[]}"#;
        publish(page.words(), old.as_bytes());
        let seen = read(&file(&page)).unwrap().unwrap();
        assert_eq!((seen.pid, seen.used, seen.allocs.len(), seen.frees.len()), (7, 3, 0, 0));
        assert_eq!(seen.thread_cache, crate::thread_cache::ThreadCacheStats::default());
        let new = old.replacen('{', r#"{"later":[1],"thread_cache":{"hits":9,"later":2},"#, 1);
        publish(page.words(), new.as_bytes());
        let seen = read(&file(&page)).unwrap().unwrap();
        assert_eq!((seen.pid, seen.thread_cache.hits), (7, 9));
    }

    #[test]
    fn publishers_are_found_by_their_page() {
        let page = published(1);
        assert!(publishers().unwrap().pids.contains(&std::process::id()));
        let own = format!("/proc/self/fd/{}", page._file.as_raw_fd());
        assert!(has_name(own.as_ref()));
        assert!(!has_name("/proc/self/exe".as_ref()) && !has_name("/nowhere".as_ref()));
    }

    #[test]
    fn a_long_text_omits_cpus() {
        let page = Page::new(2000).unwrap();
        let cpus = vec![crate::stats::CpuStatus::default(); 500];
        let zone = crate::stats::ZoneStatus { cpus, ..Default::default() };
        page.write(&YardStats { zones: vec![zone], used: 7, ..YardStats::default() });
        let seen = read(&file(&page)).unwrap().unwrap();
        assert_eq!((seen.used, seen.zones[0].cpus.len()), (7, 0));
    }
}
