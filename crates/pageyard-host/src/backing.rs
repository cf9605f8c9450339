//! The kind of memory behind a region: the size of its pages, and whether other processes can map
//! it.

use std::ffi::CStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use pageyard::PAGE_SIZE;

/// Whether the system backs memory with transparent huge pages. Has no effect on
/// [`Backing::HugeTlb`], which has no other pages.
///
/// ```
/// use pageyard_host::{Builder, HugePages};
///
/// let yard = Builder::new(16 << 20).huge_pages(HugePages::Never).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Uses huge pages where possible (`MADV_HUGEPAGE`), and small pages elsewhere.
    #[default]
    Advise,
    /// Collapses all memory into huge pages at construction, or fails (`MADV_COLLAPSE`, Linux 6.1,
    /// regardless of the system's setting). Requires [`prefault`](crate::Builder::prefault).
    Collapse,
    /// Leaves the choice to the system's setting.
    System,
    /// Never uses huge pages (`MADV_NOHUGEPAGE`).
    Never,
}

/// The size of a page of hugetlbfs.
///
/// ```
/// use pageyard_host::{Backing, HugeSize};
///
/// let backing = Backing::HugeTlb(HugeSize::M2);
/// assert_eq!(HugeSize::G1.bytes(), 1 << 30);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugeSize {
    /// 2 MiB.
    M2,
    /// 1 GiB.
    G1,
}

impl HugeSize {
    /// Returns the size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            HugeSize::M2 => 2 << 20,
            HugeSize::G1 => 1 << 30,
        }
    }

    /// Returns how many of these pages are unreserved or may still be allocated as surplus.
    fn available(self) -> Option<u64> {
        let dir = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", self.bytes() >> 10);
        let number = |name: &str| -> Option<u64> {
            fs::read_to_string(format!("{dir}/{name}")).ok()?.trim().parse().ok()
        };
        let spare = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
        let more = number("nr_overcommit_hugepages")?.saturating_sub(number("surplus_hugepages")?);
        Some(spare + more)
    }
}

impl fmt::Display for HugeSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HugeSize::M2 => "2 MiB",
            HugeSize::G1 => "1 GiB",
        })
    }
}

/// Kind of a yard's memory ([`Builder::backing`](crate::Builder::backing)).
///
/// ```
/// use pageyard_host::{Backing, Builder};
///
/// // Memory that another process can map.
/// let yard = Builder::new(16 << 20).backing(Backing::Memfd).build_raw::<
///     pageyard::policy::Packed, pageyard_host::HostLock, ()>(())?;
/// assert_eq!(yard.region().backing(), Backing::Memfd);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Private memory of this process. A forked child gets a copy.
    #[default]
    Anonymous,
    /// An anonymous file (memfd, [`HostYard::fd`](crate::HostYard::fd)) that another process may
    /// map too, for example as a VMM's guest memory. It is sealed against changes of its size. A
    /// forked child shares it.
    Memfd,
    /// Pages of hugetlbfs, which an administrator has reserved; shareable like
    /// [`Memfd`](Backing::Memfd). All pages are reserved at construction, and idle ones are not
    /// returned to the system. The size must be a multiple of the page size.
    HugeTlb(HugeSize),
}

impl Backing {
    /// Returns the required alignment of addresses and size.
    pub(crate) fn unit(self) -> u64 {
        match self {
            Backing::HugeTlb(size) => size.bytes(),
            _ => PAGE_SIZE,
        }
    }

    /// Creates a file of `bytes` bytes; `None` for anonymous memory.
    pub(crate) fn file(self, bytes: u64) -> io::Result<Option<OwnedFd>> {
        let huge = match self {
            Backing::Anonymous => return Ok(None),
            Backing::Memfd => 0,
            Backing::HugeTlb(HugeSize::M2) => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            Backing::HugeTlb(HugeSize::G1) => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        };
        memfd(c"pageyard", huge, bytes).map(Some).map_err(|error| self.explain(error, bytes))
    }

    /// Adds to an error of the system what is missing and how to fix it.
    pub(crate) fn explain(self, error: io::Error, bytes: u64) -> io::Error {
        let Backing::HugeTlb(size) = self else { return error };
        let wanted = bytes / size.bytes();
        let kib = size.bytes() >> 10;
        let what = match size.available() {
            None => format!("no huge pages of {size} on this system"),
            Some(there) => format!(
                "{wanted} huge pages of {size} required, {there} available: reserve more in \
                 /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages, or allow the \
                 fallback"
            ),
        };
        io::Error::new(error.kind(), format!("{what} ({error})"))
    }
}

/// Returns the largest size of a file that this process may make (`ulimit -f`), in bytes.
fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes a local of that type (`a_file_above_the_size_limit_is_an_error`).
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) };
    limit.rlim_cur
}

/// Creates an anonymous file of `bytes` bytes, whose size no process can change.
pub(crate) fn memfd(name: &CStr, flags: libc::c_uint, bytes: u64) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | flags;
    let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
    // The system would send SIGXFSZ, which ends the program.
    if bytes > file_size_limit() {
        return Err(io::Error::from_raw_os_error(libc::EFBIG));
    }
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just returned, so nothing else owns it
    // (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`, `a_long_text_omits_cpus`).
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is ours, and the file is not mapped yet
    // (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`, `a_page_keeps_its_length`).
    let done = unsafe {
        libc::ftruncate(fd, length) == 0 && libc::fcntl(fd, libc::F_ADD_SEALS, seals) == 0
    };
    if done { Ok(file) } else { Err(io::Error::last_os_error()) }
}
