//! What a region's memory is: whose pages, of what size, and who else may have it.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use pageyard::PAGE_SIZE;

/// Whether the system backs memory with transparent huge pages. Says nothing about
/// [`Backing::HugeTlb`], which has no other pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Where the system can (`MADV_HUGEPAGE`); where it cannot, with small ones.
    #[default]
    Advise,
    /// All of it at once, or an error (`MADV_COLLAPSE`, Linux 6.1, whatever the system's setting
    /// says). Wants [`prefault`](crate::Builder::prefault).
    Collapse,
    /// As the system does by itself.
    System,
    /// Never (`MADV_NOHUGEPAGE`).
    Never,
}

/// The size of a page of hugetlbfs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugeSize {
    /// 2 MiB.
    M2,
    /// 1 GiB.
    G1,
}

impl HugeSize {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            HugeSize::M2 => 2 << 20,
            HugeSize::G1 => 1 << 30,
        }
    }

    /// How many of them nobody has, and how many may be made besides, now.
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

/// Where a yard's memory comes from ([`Builder::backing`](crate::Builder::backing)).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backing {
    /// Of this process alone. A child that is forked has a copy.
    #[default]
    Anonymous,
    /// A file without a name ([`HostYard::fd`](crate::HostYard::fd)) that another process may map
    /// too: a VMM's guest memory. It is sealed against a change of its size. A child that is forked
    /// shares it.
    Memfd,
    /// Pages of hugetlbfs, which an administrator has reserved; shareable as those of
    /// [`Memfd`](Backing::Memfd). All are reserved for the yard when it is made, and idle ones are
    /// not given back. The size is to be a multiple of theirs.
    HugeTlb(HugeSize),
}

impl Backing {
    /// What its addresses and its size are to be multiples of.
    pub(crate) fn unit(self) -> u64 {
        match self {
            Backing::HugeTlb(size) => size.bytes(),
            _ => PAGE_SIZE,
        }
    }

    /// A file of so many bytes; `None` for memory without one.
    pub(crate) fn file(self, bytes: u64) -> io::Result<Option<OwnedFd>> {
        let huge = match self {
            Backing::Anonymous => return Ok(None),
            Backing::Memfd => 0,
            Backing::HugeTlb(HugeSize::M2) => libc::MFD_HUGETLB | libc::MFD_HUGE_2MB,
            Backing::HugeTlb(HugeSize::G1) => libc::MFD_HUGETLB | libc::MFD_HUGE_1GB,
        };
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING | huge;
        // SAFETY: the name is a C string.
        let fd = unsafe { libc::memfd_create(c"pageyard".as_ptr(), flags) };
        if fd < 0 {
            return Err(self.explain(io::Error::last_os_error(), bytes));
        }
        // SAFETY: the descriptor was returned just now, so nothing else owns it
        // (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`).
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let length = i64::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is ours; nothing is mapped of it yet
        // (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`).
        let done = unsafe {
            libc::ftruncate(fd.as_raw_fd(), length) == 0
                && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
        };
        if done { Ok(Some(fd)) } else { Err(self.explain(io::Error::last_os_error(), bytes)) }
    }

    /// What the system refused, in words that say what to do.
    pub(crate) fn explain(self, error: io::Error, bytes: u64) -> io::Error {
        let Backing::HugeTlb(size) = self else { return error };
        let wanted = bytes / size.bytes();
        let kib = size.bytes() >> 10;
        let what = match size.available() {
            None => format!("this system has no huge pages of {size}"),
            Some(there) => format!(
                "{wanted} huge pages of {size} are wanted and {there} are to be had: reserve them in \
                 /sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages, or allow the fallback"
            ),
        };
        io::Error::new(error.kind(), format!("{what} ({error})"))
    }
}
