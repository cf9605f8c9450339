//! Memory of the system's, mapped: the pages that a yard hands out, and room for its maps.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use pageyard::{MAX_ORDER, NodeId, PAGE_SIZE, PAGEBLOCK_PAGES, Pfn};

use crate::backing::{Backing, HugePages};
#[cfg(miri)]
use crate::miri as libc;

/// Bytes of the largest block, to a multiple of which a region is aligned: then a block that is
/// aligned by its frame number is aligned in memory too, and huge pages fit.
pub(crate) const LARGEST: u64 = PAGE_SIZE << MAX_ORDER;

/// How often a place is looked for that no other thread takes in between.
const PLACES: u32 = 10;

/// How often advice is given that the system asks to give again.
const ADVICES: u32 = 1000;

/// Addresses that are this process's; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// What of it is not ours any more, in bytes from the start.
    lost: Range<usize>,
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
        Ok(Mapping { start, bytes, lost: 0..0 })
    }

    /// Makes so many bytes of it readable and writable.
    fn open(&self, place: Range<usize>) -> io::Result<()> {
        if place.start > place.end || place.end > self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the place lies within the mapping, which is ours and not in use
        // (`memory_is_taken_when_it_is_populated`).
        let done = unsafe {
            libc::mprotect(self.start.add(place.start).as_ptr().cast(), place.len(), access)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Lets a file lie there, in the place of so many bytes of it.
    ///
    /// # Errors
    /// The system's. Then the place is given up: it is free for others, or has been taken by one of
    /// them in between (`AlreadyExists`). What lies over a mapping instead (`MAP_FIXED` alone) may be
    /// refused before or after the system has taken away what was there, and nobody can tell.
    fn lay(&mut self, place: Range<usize>, file: &OwnedFd, flags: libc::c_int) -> io::Result<()> {
        if place.start > place.end || place.end > self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the place lies within the mapping (`addresses_lost_to_a_refusal_are_left_alone`).
        let start = unsafe { self.start.add(place.start).as_ptr() };
        // SAFETY: it is ours and not in use (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`).
        if unsafe { libc::munmap(start.cast(), place.len()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.lost = place.clone();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | flags;
        // SAFETY: nothing that exists changes, as nothing is replaced
        // (`addresses_lost_to_a_refusal_are_left_alone`).
        let at =
            unsafe { libc::mmap(start.cast(), place.len(), access, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if at != start.cast() {
            // Linux before 4.17 takes the place for a wish.
            // SAFETY: it was mapped just now.
            unsafe { libc::munmap(at, place.len()) };
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.lost = 0..0;
        Ok(())
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
        for part in [0..self.lost.start, self.lost.end..self.bytes] {
            if !part.is_empty() {
                // SAFETY: the addresses are ours, and a borrow of what is there borrows the mapping's
                // owner, so there is none any more (`addresses_lost_to_a_refusal_are_left_alone`).
                unsafe { libc::munmap(self.start.add(part.start).as_ptr().cast(), part.len()) };
            }
        }
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
    backing: Backing,
    file: Option<OwnedFd>,
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
        Region::backed(pages, Backing::Anonymous)
    }

    /// The same, of a certain kind. Pages of hugetlbfs are reserved at once.
    ///
    /// # Errors
    /// As [`new`](Region::new); the kind is not to be had, or the size no multiple of its pages.
    pub fn backed(pages: u64, backing: Backing) -> io::Result<Region> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let unit = backing.unit();
        let align = LARGEST.max(unit);
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|&b| b > 0).ok_or_else(too_large)?;
        if bytes % unit != 0 {
            let what = format!("{bytes} bytes are no multiple of the pages of {unit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let all = bytes.checked_add(2 * align).ok_or_else(too_large)?;
        let all = usize::try_from(all).map_err(|_| too_large())?;
        let file = backing.file(bytes)?;
        let placed = |n| match Region::place(all, align, bytes, backing, file.as_ref()) {
            // Another thread was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < PLACES => None,
            other => Some(other),
        };
        let placed = (1..=PLACES).find_map(placed);
        let placed = placed.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()));
        let (mapping, start) = placed.map_err(|e| backing.explain(e, bytes))?;
        Ok(Region { start, pages, first: Self::FIRST, backing, file, _mapping: mapping })
    }

    /// Addresses for all of it, and where in them the memory lies: so many bytes of it.
    fn place(
        all: usize,
        align: u64,
        bytes: u64,
        backing: Backing,
        file: Option<&OwnedFd>,
    ) -> io::Result<(Mapping, NonNull<u8>)> {
        let mut mapping = Mapping::new(all, false)?;
        // Past at least a page of guard. What is left behind the end is no less than that.
        let skip = mapping.start().as_ptr().addr() as u64 + PAGE_SIZE;
        let skip = skip.next_multiple_of(align) - (skip - PAGE_SIZE);
        // SAFETY: the distance is below the length of the mapping, by what the caller added
        // (`frames_and_addresses`).
        let start = unsafe { mapping.start().add(skip as usize) };
        let place = skip as usize..(skip + bytes) as usize;
        match (file, backing) {
            (None, _) => mapping.open(place)?,
            (Some(file), Backing::HugeTlb(_)) => mapping.lay(place, file, 0)?,
            (Some(file), _) => mapping.lay(place, file, libc::MAP_NORESERVE)?,
        }
        Ok((mapping, start))
    }

    /// What its memory is.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// The file that holds its memory, from its first frame on; `None` where there is none.
    ///
    /// # Safety
    /// Whoever writes to the file, or maps it and writes there, in this process or another one,
    /// leaves alone what somebody here borrows as bytes.
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
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
        // SAFETY: the page lies within the mapping (`frames_and_addresses`).
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
        let mut tries = 0;
        loop {
            // SAFETY: the range is ours. Advice that changes contents is given by `discard` alone,
            // for frames that are not in use (`what_is_discarded_is_zero_again`, and for frames in use
            // tests/all/service.rs, where what is written stays).
            let done = unsafe {
                libc::madvise(start.as_ptr().cast(), (pages * PAGE_SIZE) as usize, advice)
            };
            if done == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            let again = [libc::EINTR, libc::EAGAIN].contains(&error.raw_os_error().unwrap_or(0));
            tries += 1;
            if !again || tries == ADVICES {
                return Err(error);
            }
        }
    }

    /// Says how all of it is to be backed. [`Collapse`](HugePages::Collapse) is for memory that is
    /// populated. Where the system knows no huge pages, that is no error unless they are insisted on.
    ///
    /// # Errors
    /// The system's.
    pub fn set_huge_pages(&self, huge: HugePages) -> io::Result<()> {
        let advice = match huge {
            _ if matches!(self.backing, Backing::HugeTlb(_)) => return Ok(()),
            HugePages::System => return Ok(()),
            HugePages::Advise => libc::MADV_HUGEPAGE,
            HugePages::Never => libc::MADV_NOHUGEPAGE,
            HugePages::Collapse => {
                let block = u64::from(PAGEBLOCK_PAGES);
                let Range { start: Pfn(start), end: Pfn(end) } = self.frames();
                let whole = Pfn(start)..Pfn(end - (end - start) % block);
                return self.advise(&whole, MADV_COLLAPSE);
            }
        };
        match self.advise(&self.frames(), advice) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(()),
            other => other,
        }
    }

    /// Gives the memory of frames back to the system: what is in them is lost, and the next touch
    /// takes memory again. `lazily`: when the system needs it; until then what was in them may still
    /// be there. For frames that nobody uses.
    ///
    /// # Errors
    /// The system's; `Unsupported` for pages of hugetlbfs, which would not be anybody else's.
    pub(crate) fn discard(&self, pfn: Pfn, pages: u64, lazily: bool) -> io::Result<()> {
        let advice = match self.backing {
            Backing::Anonymous if lazily => libc::MADV_FREE,
            Backing::Anonymous => libc::MADV_DONTNEED,
            Backing::Memfd => libc::MADV_REMOVE,
            Backing::HugeTlb(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        self.advise(&(pfn..Pfn(pfn.0.saturating_add(pages))), advice)
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
                    // nothing writes, and leaves what is there, whatever else uses it. (Old kernels
                    // alone come here; no test does.)
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
        // system wants it (`nodes_beyond_the_mask_are_refused`).
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
            // SAFETY: the range is ours, and the vector has a byte for each of its pages
            // (`resident_pages_are_counted_step_by_step`).
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

/// Makes huge pages now; not in the library for every target.
const MADV_COLLAPSE: libc::c_int = 25;

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
    fn resident_pages_are_counted_step_by_step() {
        // More than one step, the last one of some pages.
        let pages = (1 << 18) + 100;
        let region = Region::new(pages).unwrap();
        region.set_huge_pages(HugePages::Never).unwrap();
        let page = |n| Pfn(region.first().0 + n);
        for part in [page(5)..page(10), page(pages - 120)..page(pages)] {
            region.populate(&part).unwrap();
        }
        assert_eq!(region.resident().unwrap(), 125);
    }

    #[test]
    fn nodes_beyond_the_mask_are_refused() {
        let region = Region::new(1024).unwrap();
        for node in [1024, u16::MAX] {
            let error = region.prefer_node(&region.frames(), NodeId(node)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "node {node}");
        }
        // The last one of the mask, which no machine here has.
        assert!(region.prefer_node(&region.frames(), NodeId(1023)).is_err());
    }

    #[test]
    fn what_is_discarded_is_zero_again() {
        for backing in [Backing::Anonymous, Backing::Memfd] {
            let region = Region::backed(2048, backing).unwrap();
            region.set_huge_pages(HugePages::Never).unwrap();
            region.populate(&region.frames()).unwrap();
            let page = region.address(region.first(), 1).unwrap().cast::<u64>();
            // SAFETY: the page is mapped, and nobody else uses it.
            unsafe { page.write(7) };
            region.discard(region.first(), 1024, false).unwrap();
            assert_eq!(region.resident().unwrap(), 1024, "{backing:?}");
            // SAFETY: as above.
            assert_eq!(unsafe { page.read() }, 0);
            assert!(region.discard(Pfn(0), 1, false).is_err());
        }
    }

    #[test]
    fn a_file_can_be_mapped_elsewhere_and_keeps_its_size() {
        use std::os::unix::fs::FileExt;
        let region = Region::backed(1024, Backing::Memfd).unwrap();
        let page = region.address(Pfn(region.first().0 + 3), 1).unwrap().cast::<u64>();
        // SAFETY: the page is mapped, and nobody else uses it.
        unsafe { page.write(0x1122) };
        // SAFETY: it is written to where nobody borrows it.
        let fd = unsafe { region.fd() }.unwrap();
        let file = std::fs::File::from(fd.try_clone_to_owned().unwrap());
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 3 * 4096).unwrap();
        assert_eq!(u64::from_ne_bytes(word), 0x1122);
        assert!(file.set_len(4096).is_err(), "who holds it must not shrink it");
        let other = Region::new(1).unwrap();
        // SAFETY: nothing is written.
        assert!(unsafe { other.fd() }.is_none());
    }

    #[test]
    fn huge_pages_that_are_not_there_are_an_error_that_says_so() {
        use crate::backing::HugeSize;
        let told = |pages, size| match Region::backed(pages, Backing::HugeTlb(size)) {
            Ok(region) => {
                assert_eq!(
                    region.address(region.first(), 1).unwrap().addr().get() as u64 % size.bytes(),
                    0
                );
                None
            }
            Err(e) => Some(e.to_string()),
        };
        assert!(told(513, HugeSize::M2).unwrap().contains("no multiple"));
        for size in [HugeSize::M2, HugeSize::G1] {
            // More than there are, wherever this runs.
            let wanted = told((1 << 45) / PAGE_SIZE, size).unwrap();
            assert!(wanted.contains("huge pages of"), "{wanted}");
            let one = told(size.bytes() / PAGE_SIZE, size);
            assert!(one.is_none_or(|e| e.contains("huge pages of")));
        }
    }

    /// What the system has taken away before it refused a file is not taken from whoever has it now.
    #[test]
    fn addresses_lost_to_a_refusal_are_left_alone() {
        let page = system_page() as usize;
        let mut mapping = Mapping::new(16 * page, false).unwrap();
        let place = 4 * page..12 * page;
        // A file that may not be written.
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert!(mapping.lay(0..17 * page, &file, 0).is_err());
        assert!(mapping.lay(place.clone(), &file, 0).is_err());
        // SAFETY: nobody uses the place, which was this test's.
        let others = unsafe {
            let start = mapping.start().add(place.start).as_ptr().cast();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(start, place.len(), libc::PROT_READ, flags, -1, 0)
        };
        assert_ne!(others, libc::MAP_FAILED);
        let start = mapping.start().as_ptr();
        drop(mapping);
        let is_mapped = |page_at: usize| {
            let mut seen = [0u8; 1];
            let at = start.wrapping_add(page_at * page).cast();
            // SAFETY: one page, one byte for it; what is there is not touched.
            unsafe { libc::mincore(at, page, seen.as_mut_ptr()) == 0 }
        };
        assert!((4..12).all(is_mapped));
        // SAFETY: it was mapped above.
        unsafe { libc::munmap(others, place.len()) };
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(Region::new(0).is_err());
        assert!(Region::new(u64::MAX / PAGE_SIZE).is_err());
        assert!(Region::new(u64::MAX).is_err());
    }
}
