//! Memory of the system's, mapped: the pages that a yard hands out, and room for its maps.

use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

use pageyard::{MAX_ORDER, NodeId, PAGE_SIZE, Pfn};

/// Bytes of the largest block, to a multiple of which a region is aligned: then a block that is
/// aligned by its frame number is aligned in memory too, and huge pages fit.
pub(crate) const LARGEST: u64 = PAGE_SIZE << MAX_ORDER;

/// Whether the system backs memory with huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// Where the system can (`MADV_HUGEPAGE`).
    #[default]
    Advise,
    /// As the system does by itself.
    System,
    /// Never (`MADV_NOHUGEPAGE`).
    Never,
}

/// Addresses that are this process's; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping is addresses; what may be done with what is there, its users say.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Addresses for so many bytes, zeroed and readable and writable or, without `access`, neither.
    /// They take memory when they are first written.
    pub(crate) fn new(bytes: usize, access: bool) -> io::Result<Mapping> {
        let protection = if access { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: asks for new addresses, wherever the system likes; nothing that exists changes.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Asks for huge pages, where the system has any: fewer address translations are missed.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: the addresses are ours; the advice changes no contents. Where it is refused, pages
        // stay as they are.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the addresses are ours, and whoever borrows what is there borrows the mapping's
        // owner, so nobody does any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Pages of memory with frame numbers: from [`first`](Region::first) on, in the order of their
/// addresses. Before and behind it are addresses that fault.
#[derive(Debug)]
pub struct Region {
    /// Where the pages are; a guard of a page or more on both sides.
    start: NonNull<u8>,
    pages: u64,
    first: Pfn,
    _mapping: Mapping,
}

// SAFETY: a region is addresses and numbers. It gives out pointers, whose users say what may be
// done with them.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Frame number of the first page of every region: that of 4 GiB, where the large zone of a
    /// machine begins.
    pub const FIRST: Pfn = Pfn((4 << 30) / PAGE_SIZE);

    /// So many pages, none of which takes memory yet.
    ///
    /// # Errors
    /// The system's: there are not so many addresses, or they may not be used.
    pub fn new(pages: u64) -> io::Result<Region> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|&b| b > 0).ok_or_else(too_large)?;
        let all = bytes.checked_add(2 * LARGEST).ok_or_else(too_large)?;
        let all = usize::try_from(all).map_err(|_| too_large())?;
        let mapping = Mapping::new(all, false)?;
        // Past at least a page of guard. What is left behind the end is no less than that.
        let skip = mapping.start().as_ptr().addr() as u64 + PAGE_SIZE;
        let skip = skip.next_multiple_of(LARGEST) - (skip - PAGE_SIZE);
        // SAFETY: the distance is below the length of the mapping, by the sizes added above.
        let start = unsafe { mapping.start().add(skip as usize) };
        let region = Region { start, pages, first: Self::FIRST, _mapping: mapping };
        // SAFETY: the range lies within the mapping, which is ours and not in use.
        let done = unsafe {
            libc::mprotect(
                start.as_ptr().cast(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if done == 0 { Ok(region) } else { Err(io::Error::last_os_error()) }
    }

    /// Its first frame.
    pub fn first(&self) -> Pfn {
        self.first
    }

    /// How many pages it has.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// All its frames.
    pub fn frames(&self) -> Range<Pfn> {
        self.first..Pfn(self.first.0 + self.pages)
    }

    /// Where so many pages from this frame on lie; `None` where they are not all inside.
    #[inline]
    pub fn address(&self, pfn: Pfn, pages: u64) -> Option<NonNull<u8>> {
        let at = pfn.0.wrapping_sub(self.first.0);
        if at >= self.pages || pages > self.pages - at {
            return None;
        }
        // SAFETY: the page lies within the mapping.
        Some(unsafe { self.start.add((at * PAGE_SIZE) as usize) })
    }

    /// The frame that holds an address; `None` outside.
    #[inline]
    pub fn frame(&self, address: *const u8) -> Option<Pfn> {
        let at = (address.addr() as u64).wrapping_sub(self.start.as_ptr().addr() as u64);
        (at / PAGE_SIZE < self.pages).then(|| Pfn(self.first.0 + at / PAGE_SIZE))
    }

    fn advise(&self, frames: &Range<Pfn>, advice: libc::c_int) -> io::Result<()> {
        let pages = frames.end.0.saturating_sub(frames.start.0);
        let start = self.address(frames.start, pages).ok_or(io::ErrorKind::InvalidInput)?;
        loop {
            // SAFETY: the range is ours. No advice that is given here changes contents.
            let done = unsafe {
                libc::madvise(start.as_ptr().cast(), (pages * PAGE_SIZE) as usize, advice)
            };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            let again = [libc::EINTR, libc::EAGAIN].contains(&error.raw_os_error().unwrap_or(0));
            if !again {
                return Err(error);
            }
        }
    }

    /// Says how all of it is to be backed. Where the system knows no huge pages, that is no error
    /// unless they are asked for.
    ///
    /// # Errors
    /// The system's.
    pub fn set_huge_pages(&self, huge: HugePages) -> io::Result<()> {
        match huge {
            HugePages::Advise => self.advise(&self.frames(), libc::MADV_HUGEPAGE),
            HugePages::Never => match self.advise(&self.frames(), libc::MADV_NOHUGEPAGE) {
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
                other => other,
            },
            HugePages::System => Ok(()),
        }
    }

    /// Makes frames take memory now rather than when they are first written.
    ///
    /// # Errors
    /// The system's: there is not so much memory.
    pub fn populate(&self, frames: &Range<Pfn>) -> io::Result<()> {
        match self.advise(frames, libc::MADV_POPULATE_WRITE) {
            // Before Linux 5.14.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                for pfn in frames.start.0..frames.end.0 {
                    let page = self.address(Pfn(pfn), 1).ok_or(io::ErrorKind::InvalidInput)?;
                    // SAFETY: the word is the page's own, aligned and inside. An atomic addition of
                    // nothing writes, and leaves what is there, whoever else uses it.
                    unsafe {
                        std::sync::atomic::AtomicU64::from_ptr(page.as_ptr().cast())
                            .fetch_add(0, std::sync::atomic::Ordering::Relaxed);
                    }
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Wants frames on a node's memory, or elsewhere where that is full. Those that take memory
    /// already stay where they are.
    ///
    /// # Errors
    /// The system's: there is no such node, or it may not be used.
    pub fn prefer_node(&self, frames: &Range<Pfn>, node: NodeId) -> io::Result<()> {
        let pages = frames.end.0.saturating_sub(frames.start.0);
        let start = self.address(frames.start, pages).ok_or(io::ErrorKind::InvalidInput)?;
        let mut mask = [0u64; 16];
        let word = mask.get_mut(usize::from(node.0) / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node.0 % 64);
        // SAFETY: the range is ours; the mask is as long as said, in bits, and one more as the
        // system wants it.
        let done = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start.as_ptr(),
                pages * PAGE_SIZE,
                libc::MPOL_PREFERRED,
                mask.as_ptr(),
                mask.len() * 64 + 1,
                0,
            )
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// How many of its pages take memory at the moment.
    ///
    /// # Errors
    /// The system's.
    pub fn resident(&self) -> io::Result<u64> {
        const STEP: u64 = 1 << 18;
        let mut seen = vec![0u8; STEP.min(self.pages) as usize];
        let mut sum = 0;
        for at in (0..self.pages).step_by(STEP as usize) {
            let pages = STEP.min(self.pages - at);
            let start = self.address(Pfn(self.first.0 + at), pages);
            let start = start.ok_or(io::ErrorKind::InvalidInput)?.as_ptr();
            // SAFETY: the range is ours, and the vector has a byte for each of its pages.
            let done = unsafe {
                libc::mincore(start.cast(), (pages * PAGE_SIZE) as usize, seen.as_mut_ptr())
            };
            if done != 0 {
                return Err(io::Error::last_os_error());
            }
            sum += seen[..pages as usize].iter().filter(|&&b| b & 1 != 0).count() as u64;
        }
        Ok(sum)
    }
}

/// Bytes of the system's pages.
pub(crate) fn system_page() -> u64 {
    // SAFETY: takes a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_and_addresses() {
        let region = Region::new(3000).unwrap();
        let first = region.first();
        assert_eq!(region.frames(), first..Pfn(first.0 + 3000));
        let start = region.address(first, 3000).unwrap();
        assert_eq!(start.as_ptr().addr() as u64 % LARGEST, 0);
        assert!(region.address(first, 3001).is_none());
        assert!(region.address(Pfn(first.0 - 1), 1).is_none());
        assert!(region.address(Pfn(first.0 + 3000), 1).is_none());
        assert!(region.address(Pfn(u64::MAX), 1).is_none());
        let last = region.address(Pfn(first.0 + 2999), 1).unwrap().as_ptr();
        assert_eq!(region.frame(last), Some(Pfn(first.0 + 2999)));
        assert_eq!(region.frame(last.wrapping_add(4095)), Some(Pfn(first.0 + 2999)));
        assert_eq!(region.frame(last.wrapping_add(4096)), None);
        assert_eq!(region.frame(start.as_ptr().wrapping_sub(1)), None);
    }

    #[test]
    fn memory_is_taken_when_it_is_populated() {
        let region = Region::new(1024).unwrap();
        region.set_huge_pages(HugePages::Never).unwrap();
        assert_eq!(region.resident().unwrap(), 0);
        let part = Pfn(region.first().0 + 10)..Pfn(region.first().0 + 110);
        region.populate(&part).unwrap();
        assert_eq!(region.resident().unwrap(), 100);
        let page = region.address(part.start, 1).unwrap();
        // SAFETY: the page is mapped, and nobody else uses it.
        assert_eq!(unsafe { page.cast::<u64>().read() }, 0);
        assert!(region.populate(&(Pfn(0)..Pfn(1))).is_err());
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(Region::new(0).is_err());
        assert!(Region::new(u64::MAX / PAGE_SIZE).is_err());
        assert!(Region::new(u64::MAX).is_err());
    }
}
