//! The statistics page: a nameless file of the process that others read through
//! `/proc/PID/fd`. It goes when its process goes, so none is ever stale.
//!
//! Words of 64 bits, as the machine orders them: 0 the magic number, 1 the version, 2 the length of
//! the file in bytes, 3 a sequence number, odd while the rest is being written, 4 the length of the
//! text in bytes, then the text: a [`YardStats`] as JSON. A reader copies the file by reading it, and
//! has one whole text where the sequence number was the same even one before and after.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr;
use std::ptr::NonNull;

use crate::seqlock::{HEAD, length, publish, snapshot};
use crate::stats::YardStats;
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// "pgyrdtop".
const MAGIC: u64 = 0x7067_7972_6474_6f70;
const VERSION: u64 = 1;
/// The longest page that a reader takes for one.
const MOST: u64 = 64 << 20;
/// The name that `/proc/PID/fd` shows.
const NAME: &str = "/memfd:pageyard-stats";

/// A page that this process publishes.
#[derive(Debug)]
pub(crate) struct Page {
    // Kept open: it is by this that others find it.
    _file: OwnedFd,
    words: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the words are atomics, mapped as long as the page lives.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    /// With room for a text of so many bytes.
    pub(crate) fn new(room: usize) -> io::Result<Page> {
        let bytes = (room + HEAD * 8).next_multiple_of(4096);
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"pageyard-stats".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else has it.
        let file = unsafe { OwnedFd::from_raw_fd(fd) };
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is ours, and the addresses are wherever the system likes.
        let start = unsafe {
            if libc::ftruncate(fd, bytes as i64) != 0
                || libc::fcntl(fd, libc::F_ADD_SEALS, seals) != 0
            {
                return Err(io::Error::last_os_error());
            }
            let access = libc::PROT_READ | libc::PROT_WRITE;
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
        // SAFETY: mapped, aligned, as many as said, and sealed against shrinking; all uses of them
        // are atomic.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.count) }
    }

    /// Replaces the text. One writer at a time.
    pub(crate) fn write(&self, stats: &YardStats) {
        let words = self.words();
        let room = (words.len() - HEAD) * 8;
        let mut text = serde_json::to_vec(stats).unwrap_or_default();
        if text.len() > room {
            // Its lists by CPU are the long part.
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
        // SAFETY: the mapping is ours, and nobody borrows from it any more.
        unsafe { libc::munmap(self.words.as_ptr().cast(), self.count * 8) };
    }
}

/// Why a page cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no such process, or we may not look at it.
    #[error("process {pid}: {error}; name a running process of yours")]
    Process {
        /// Which.
        pid: u32,
        /// What the system said.
        error: io::Error,
    },
    /// It has no yard.
    #[error(
        "process {0} has no yard that publishes statistics (to fix: give a process that uses \
         pageyard-host, with a worker and Builder::publish on)"
    )]
    NoYard(u32),
    /// It is not as it should be.
    #[error("{file}: {what}")]
    Wrong {
        /// Which file.
        file: String,
        /// What is wrong.
        what: String,
    },
}

/// Reads one page from its file; `None` where it had no text yet, or was being written all the
/// time.
fn read_page(file: &File, name: &str) -> Result<Option<YardStats>, PageError> {
    let wrong = |what: String| PageError::Wrong { file: name.into(), what };
    let bytes = file.metadata().map_err(|e| wrong(e.to_string()))?.len();
    if !((HEAD * 8) as u64..=MOST).contains(&bytes) {
        return Err(wrong(format!("{bytes} bytes are no statistics page")));
    }
    let copy =
        |at, to: &mut [u8]| file.read_exact_at(to, at as u64).map_err(|e| wrong(e.to_string()));
    let length = |head: &[u64; HEAD]| {
        if head[0] != MAGIC {
            return Err(wrong("no statistics page".into()));
        }
        if head[1] != VERSION {
            let (has, knows) = (head[1], VERSION);
            return Err(wrong(format!("version {has}; this program knows {knows}")));
        }
        let length = length(head);
        if length > bytes - (HEAD * 8) as u64 {
            return Err(wrong(format!("a text of {length} bytes in a page of {bytes}")));
        }
        Ok(length as usize)
    };
    let text = snapshot(copy, length)?;
    text.map(|t| serde_json::from_slice(&t).map_err(|e| wrong(e.to_string()))).transpose()
}

/// What the yards of a process publish, in the order of their descriptors.
///
/// # Errors
/// There is no such process, it may not be looked at, it publishes nothing, or something is wrong
/// with a page.
pub fn read_stats(pid: u32) -> Result<Vec<YardStats>, PageError> {
    let error = |error| PageError::Process { pid, error };
    let dir = format!("/proc/{pid}/fd");
    let mut found = Vec::new();
    for entry in fs::read_dir(&dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        // Descriptors come and go meanwhile.
        let Ok(link) = fs::read_link(&path) else { continue };
        if link.to_string_lossy().starts_with(NAME) {
            let number = path.file_name().and_then(|n| n.to_str()?.parse::<u32>().ok());
            found.push((number.unwrap_or(0), path));
        }
    }
    found.sort_unstable();
    let mut all = Vec::new();
    for (_, path) in found {
        let Ok(file) = File::open(&path) else { continue };
        all.extend(read_page(&file, &path.to_string_lossy())?);
    }
    if all.is_empty() { Err(PageError::NoYard(pid)) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(page: &Page) -> File {
        File::from(page._file.try_clone().unwrap())
    }

    #[test]
    fn a_reader_never_sees_half_of_a_text() {
        let page = Page::new(16 << 10).unwrap();
        assert_eq!(read_page(&file(&page), "page").unwrap(), None);
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
                if let Some(s) = read_page(&other, "page").unwrap() {
                    assert_eq!((s.used, s.used as usize % 3000), (s.resident, s.level.len()));
                    seen += 1;
                }
            }
            stop.store(true, Relaxed);
        });
    }

    #[test]
    fn what_is_no_page_is_an_error_that_names_it() {
        let told = |words: &[u64]| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("page");
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            fs::write(&path, bytes).unwrap();
            read_page(&File::open(&path).unwrap(), "page").unwrap_err().to_string()
        };
        assert_eq!(told(&[1]), "page: 8 bytes are no statistics page");
        assert_eq!(told(&[1, 1, 48, 0, 0, 0]), "page: no statistics page");
        assert_eq!(told(&[MAGIC, 9, 48, 0, 0, 0]), "page: version 9; this program knows 1");
        let long = told(&[MAGIC, VERSION, 48, 0, 100, 0]);
        assert_eq!(long, "page: a text of 100 bytes in a page of 48");
        assert!(told(&[MAGIC, VERSION, 48, 0, 8, 0]).starts_with("page: "));
        assert!(read_stats(u32::MAX).unwrap_err().to_string().starts_with("process 4294967295: "));
    }

    #[test]
    fn a_long_text_does_without_its_cpus() {
        let page = Page::new(2000).unwrap();
        let cpus = vec![crate::stats::CpuStatus::default(); 500];
        let zone = crate::stats::ZoneStatus { cpus, ..Default::default() };
        page.write(&YardStats { zones: vec![zone], used: 7, ..YardStats::default() });
        let seen = read_page(&file(&page), "page").unwrap().unwrap();
        assert_eq!((seen.used, seen.zones[0].cpus.len()), (7, 0));
    }
}
