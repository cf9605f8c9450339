//! Memory mapped from the system: the pages of a yard and room for its maps.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use pageyard::{MAX_ORDER, NodeId, PAGE_SIZE, PAGEBLOCK_PAGES, Pfn};

use crate::backing::{Backing, HugePages};
#[cfg(miri)]
use crate::miri as libc;

/// Bytes of the largest block. Regions are aligned to a multiple of it, so that a block aligned by
/// frame number is aligned in memory too and huge pages fit.
pub(crate) const LARGEST: u64 = PAGE_SIZE << MAX_ORDER;

/// Attempts to find addresses that no other thread maps in between.
const PLACES: u32 = 10;

/// Attempts at an `madvise` call that fails with `EINTR` or `EAGAIN`.
const ADVICES: u32 = 1000;

/// An address range of this process; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// The part that no longer belongs to this mapping, in bytes from the start.
    lost: Range<usize>,
}

// SAFETY: a mapping is an address range; code that accesses the memory states its own conditions.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` bytes of zeroed memory: readable and writable with `access`, inaccessible
    /// without. Memory is allocated on first write.
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

    /// Makes a part of the mapping readable and writable.
    fn open(&self, place: Range<usize>) -> io::Result<()> {
        if place.start > place.end || place.end > self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the range lies within the mapping, which this object owns and nothing uses yet
        // (`memory_is_resident_after_population`).
        let done = unsafe {
            libc::mprotect(self.start.add(place.start).as_ptr().cast(), place.len(), access)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Maps a file over a part of the mapping.
    ///
    /// # Errors
    /// The system's error. The range is then unmapped: it is free for other mappings, or another
    /// thread has mapped it in between (`AlreadyExists`). A plain `MAP_FIXED` over the old mapping
    /// is no alternative: if it fails, the old mapping may or may not be gone.
    fn lay(&mut self, place: Range<usize>, file: &OwnedFd, flags: libc::c_int) -> io::Result<()> {
        if place.start > place.end || place.end > self.bytes {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies within the mapping
        // (`addresses_lost_to_a_failed_map_are_not_unmapped`).
        let start = unsafe { self.start.add(place.start).as_ptr() };
        // SAFETY: the range is ours and unused
        // (`a_file_can_be_mapped_elsewhere_and_keeps_its_size`).
        if unsafe { libc::munmap(start.cast(), place.len()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.lost = place.clone();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE | flags;
        // SAFETY: `MAP_FIXED_NOREPLACE` replaces no existing mapping
        // (`addresses_lost_to_a_failed_map_are_not_unmapped`).
        let at =
            unsafe { libc::mmap(start.cast(), place.len(), access, flags, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        if at != start.cast() {
            // Linux before 4.17 treats the address as a hint.
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

    /// Asks for transparent huge pages, to reduce TLB misses.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: the addresses are ours, and the advice changes no contents. If it is refused, the
        // pages stay as they are.
        unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for part in [0..self.lost.start, self.lost.end..self.bytes] {
            if !part.is_empty() {
                // SAFETY: the addresses are ours. A borrow of the memory borrows the mapping's
                // owner, so no borrow is left (`addresses_lost_to_a_failed_map_are_not_unmapped`).
                unsafe { libc::munmap(self.start.add(part.start).as_ptr().cast(), part.len()) };
            }
        }
    }
}

/// Pages of memory with frame numbers: from [`first`](Region::first) on, in address order. Guard
/// addresses before and after it fault.
///
/// ```
/// use pageyard_host::Region;
///
/// let region = Region::new(1024)?;
/// let address = region.address(region.first(), 1).unwrap();
/// assert_eq!(region.frame(address.as_ptr()), Some(region.first()));
/// assert_eq!(region.resident()?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Region {
    /// Start of the pages; at least one guard page lies on each side.
    start: NonNull<u8>,
    pages: u64,
    first: Pfn,
    backing: Backing,
    file: Option<OwnedFd>,
    /// Set once: then the pages stay ([`Builder::pinned`](crate::Builder::pinned)).
    pinned: bool,
    _mapping: Mapping,
}

// SAFETY: a region is addresses and numbers. It returns pointers; code that dereferences them
// states its own conditions.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Frame number of the first page of every region: that of 4 GiB, where the Normal zone of a
    /// machine begins.
    pub const FIRST: Pfn = Pfn((4 << 30) / PAGE_SIZE);

    /// Maps `pages` pages. None of them takes memory yet.
    ///
    /// # Errors
    /// The system's error: too few addresses, or mapping is not permitted.
    pub fn new(pages: u64) -> io::Result<Region> {
        Region::backed(pages, Backing::Anonymous)
    }

    /// Like [`new`](Region::new), with the given backing. Pages of hugetlbfs are reserved at once.
    ///
    /// # Errors
    /// As [`new`](Region::new); also fails if the backing is not available, or if the size is not a
    /// multiple of its page size.
    pub fn backed(pages: u64, backing: Backing) -> io::Result<Region> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let unit = backing.unit();
        let align = LARGEST.max(unit);
        let bytes = pages.checked_mul(PAGE_SIZE).filter(|&b| b > 0).ok_or_else(too_large)?;
        if bytes % unit != 0 {
            let what = format!("{bytes} bytes are not a multiple of the page size, {unit} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let all = bytes.checked_add(2 * align).ok_or_else(too_large)?;
        let all = usize::try_from(all).map_err(|_| too_large())?;
        let file = backing.file(bytes)?;
        let placed = |n| match Region::place(all, align, bytes, backing, file.as_ref()) {
            // Another thread mapped the range first.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < PLACES => None,
            other => Some(other),
        };
        let placed = (1..=PLACES).find_map(placed);
        let placed = placed.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()));
        let (mapping, start) = placed.map_err(|e| backing.explain(e, bytes))?;
        let (first, pinned) = (Self::FIRST, false);
        Ok(Region { start, pages, first, backing, file, pinned, _mapping: mapping })
    }

    /// Maps `all` bytes of addresses and places `bytes` bytes of memory inside them. Returns the
    /// mapping and the start of the memory.
    fn place(
        all: usize,
        align: u64,
        bytes: u64,
        backing: Backing,
        file: Option<&OwnedFd>,
    ) -> io::Result<(Mapping, NonNull<u8>)> {
        let mut mapping = Mapping::new(all, false)?;
        // Leaves at least one guard page in front. The rest behind the end is no smaller.
        let skip = mapping.start().as_ptr().addr() as u64 + PAGE_SIZE;
        let skip = skip.next_multiple_of(align) - (skip - PAGE_SIZE);
        // SAFETY: the distance is less than the length of the mapping, because the caller added the
        // room for it (`frames_and_addresses`).
        let start = unsafe { mapping.start().add(skip as usize) };
        let place = skip as usize..(skip + bytes) as usize;
        match (file, backing) {
            (None, _) => mapping.open(place)?,
            (Some(file), Backing::HugeTlb(_)) => mapping.lay(place, file, 0)?,
            (Some(file), _) => mapping.lay(place, file, libc::MAP_NORESERVE)?,
        }
        Ok((mapping, start))
    }

    /// Returns the kind of memory.
    pub fn backing(&self) -> Backing {
        self.backing
    }

    /// Returns the file that holds the memory, from the first frame on; `None` if there is no file.
    ///
    /// # Safety
    /// Nothing writes to the file, or to a mapping of it, where code in this process borrows bytes.
    /// That includes writes by other processes.
    pub unsafe fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Keeps each page where it is from now on: none is discarded or replaced as long as the region
    /// lives.
    ///
    /// A fork would share private pages with the child until one of the two writes, and that write
    /// may give this process another page. So the child gets pages of zeros of its own
    /// (`MADV_WIPEONFORK`). A file is shared with the child for good.
    ///
    /// # Errors
    /// The system's error: Linux before 4.14 has no such advice.
    pub(crate) fn pin(&mut self) -> io::Result<()> {
        if self.backing == Backing::Anonymous {
            self.advise(&self.frames(), libc::MADV_WIPEONFORK)?;
        }
        self.pinned = true;
        Ok(())
    }

    /// Returns whether the pages stay where they are ([`Builder::pinned`](crate::Builder::pinned)).
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Returns the address and the length in bytes of all pages.
    pub fn memory(&self) -> NonNull<[u8]> {
        NonNull::slice_from_raw_parts(self.start, (self.pages * PAGE_SIZE) as usize)
    }

    /// Returns the first frame.
    pub fn first(&self) -> Pfn {
        self.first
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the range of all frames.
    pub fn frames(&self) -> Range<Pfn> {
        self.first..Pfn(self.first.0 + self.pages)
    }

    /// Returns the address of `pages` pages from this frame on; `None` unless all of them are
    /// inside.
    #[inline]
    pub fn address(&self, pfn: Pfn, pages: u64) -> Option<NonNull<u8>> {
        let at = pfn.0.wrapping_sub(self.first.0);
        if at >= self.pages || pages > self.pages - at {
            return None;
        }
        // SAFETY: the page lies within the mapping (`frames_and_addresses`).
        Some(unsafe { self.start.add((at * PAGE_SIZE) as usize) })
    }

    /// Returns the frame that holds an address; `None` outside.
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
            // SAFETY: the range is ours. Only `discard` gives advice that changes contents, and
            // only for frames that are not in use (`discarded_memory_is_zero`; for frames in
            // use, tests/all/service.rs, where written data stays).
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

    /// Sets the huge page mode of the whole region. [`Collapse`](HugePages::Collapse) requires
    /// populated memory. A system without huge pages is an error only for `Collapse`.
    ///
    /// # Errors
    /// The system's error. `Unsupported` for `Collapse` in a [pinned](Region::is_pinned) region.
    pub fn set_huge_pages(&self, huge: HugePages) -> io::Result<()> {
        let advice = match huge {
            _ if matches!(self.backing, Backing::HugeTlb(_)) => return Ok(()),
            HugePages::System => return Ok(()),
            HugePages::Advise => libc::MADV_HUGEPAGE,
            HugePages::Never => libc::MADV_NOHUGEPAGE,
            // Collapsing copies small pages to a huge one.
            HugePages::Collapse if self.pinned => return Err(io::ErrorKind::Unsupported.into()),
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

    /// Returns the memory of unused frames to the system. Their contents are lost, and the next
    /// access allocates memory again. With `lazily`, the system takes the memory when it needs it;
    /// until then the contents may still be there.
    ///
    /// # Errors
    /// The system's error; `Unsupported` for pinned memory, and for pages of hugetlbfs, which
    /// nothing else could use.
    // The only call of the crate by which an address loses its page while it is mapped.
    pub(crate) fn discard(&self, pfn: Pfn, pages: u64, lazily: bool) -> io::Result<()> {
        let advice = self.discarding(lazily).ok_or(io::ErrorKind::Unsupported)?;
        self.advise(&(pfn..Pfn(pfn.0.saturating_add(pages))), advice)
    }

    /// Returns the advice that discards memory; `None` if it cannot be returned to the system.
    pub(crate) fn discarding(&self, lazily: bool) -> Option<libc::c_int> {
        match self.backing {
            _ if self.pinned => None,
            Backing::Anonymous if lazily => Some(libc::MADV_FREE),
            Backing::Anonymous => Some(libc::MADV_DONTNEED),
            Backing::Memfd => Some(libc::MADV_REMOVE),
            Backing::HugeTlb(_) => None,
        }
    }

    /// Allocates memory for frames now rather than on first write.
    ///
    /// # Errors
    /// The system's error: there is not enough memory.
    pub fn populate(&self, frames: &Range<Pfn>) -> io::Result<()> {
        match self.advise(frames, libc::MADV_POPULATE_WRITE) {
            // Linux before 5.14 has no `MADV_POPULATE_WRITE`.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                for pfn in frames.start.0..frames.end.0 {
                    let page = self.address(Pfn(pfn), 1).ok_or(io::ErrorKind::InvalidInput)?;
                    // SAFETY: the word is aligned and inside the page. An atomic addition of 0
                    // writes and keeps the contents, whatever else uses them. (Only old kernels
                    // reach this; no test does.)
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

    /// Requests memory of a node for frames, with fallback to other nodes if it is full. Frames
    /// that already have memory stay where they are.
    ///
    /// # Errors
    /// The system's error: the node does not exist or is not allowed.
    pub fn prefer_node(&self, frames: &Range<Pfn>, node: NodeId) -> io::Result<()> {
        let pages = frames.end.0.saturating_sub(frames.start.0);
        let start = self.address(frames.start, pages).ok_or(io::ErrorKind::InvalidInput)?;
        let mut mask = [0u64; 16];
        let word = mask.get_mut(usize::from(node.0) / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (node.0 % 64);
        // SAFETY: the range is ours. The length given is that of the mask in bits plus one, as the
        // system expects (`nodes_beyond_the_mask_are_rejected`).
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

    /// Returns the number of pages that take memory at the moment.
    ///
    /// # Errors
    /// The system's error.
    pub fn resident(&self) -> io::Result<u64> {
        const STEP: u64 = 1 << 18;
        let mut seen = vec![0u8; STEP.min(self.pages) as usize];
        let mut sum = 0;
        for at in (0..self.pages).step_by(STEP as usize) {
            let pages = STEP.min(self.pages - at);
            let start = self.address(Pfn(self.first.0 + at), pages);
            let start = start.ok_or(io::ErrorKind::InvalidInput)?.as_ptr();
            // SAFETY: the range is ours, and the vector has a byte for each of its pages
            // (`resident_pages_are_counted_in_steps`).
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

/// Collapses into huge pages synchronously; the `libc` crate lacks it for some targets.
const MADV_COLLAPSE: libc::c_int = 25;

/// Returns the system's page size in bytes.
pub(crate) fn system_page() -> u64 {
    // SAFETY: `sysconf` takes a number.
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
    fn memory_is_resident_after_population() {
        let region = Region::new(1024).unwrap();
        region.set_huge_pages(HugePages::Never).unwrap();
        assert_eq!(region.resident().unwrap(), 0);
        let part = Pfn(region.first().0 + 10)..Pfn(region.first().0 + 110);
        region.populate(&part).unwrap();
        assert_eq!(region.resident().unwrap(), 100);
        let page = region.address(part.start, 1).unwrap();
        // SAFETY: the page is mapped, and nothing else uses it.
        assert_eq!(unsafe { page.cast::<u64>().read() }, 0);
        assert!(region.populate(&(Pfn(0)..Pfn(1))).is_err());
    }

    #[test]
    fn resident_pages_are_counted_in_steps() {
        // More than one step, with a short last one.
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
    fn nodes_beyond_the_mask_are_rejected() {
        let region = Region::new(1024).unwrap();
        for node in [1024, u16::MAX] {
            let error = region.prefer_node(&region.frames(), NodeId(node)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "node {node}");
        }
        // The last node of the mask, which no test machine has.
        assert!(region.prefer_node(&region.frames(), NodeId(1023)).is_err());
    }

    #[test]
    fn discarded_memory_is_zero() {
        for backing in [Backing::Anonymous, Backing::Memfd] {
            let region = Region::backed(2048, backing).unwrap();
            region.set_huge_pages(HugePages::Never).unwrap();
            region.populate(&region.frames()).unwrap();
            let page = region.address(region.first(), 1).unwrap().cast::<u64>();
            // SAFETY: the page is mapped, and nothing else uses it.
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
        // SAFETY: the page is mapped, and nothing else uses it.
        unsafe { page.write(0x1122) };
        // SAFETY: nothing borrows the bytes that are written.
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
    fn missing_huge_pages_are_a_specific_error() {
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
        assert!(told(513, HugeSize::M2).unwrap().contains("not a multiple"));
        for size in [HugeSize::M2, HugeSize::G1] {
            // More than any test machine has.
            let wanted = told((1 << 45) / PAGE_SIZE, size).unwrap();
            assert!(wanted.contains("huge pages of"), "{wanted}");
            let one = told(size.bytes() / PAGE_SIZE, size);
            assert!(one.is_none_or(|e| e.contains("huge pages of")));
        }
    }

    /// Addresses that the system unmapped before it refused a file may belong to another mapping by
    /// now; drop must not unmap them.
    #[test]
    fn addresses_lost_to_a_failed_map_are_not_unmapped() {
        let page = system_page() as usize;
        let mut mapping = Mapping::new(16 * page, false).unwrap();
        let place = 4 * page..12 * page;
        // A file that may not be written.
        let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        assert!(mapping.lay(0..17 * page, &file, 0).is_err());
        assert!(mapping.lay(place.clone(), &file, 0).is_err());
        // SAFETY: the range belonged to this test, and nothing uses it.
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
            // SAFETY: one page and one byte for it; the memory itself is not accessed.
            unsafe { libc::mincore(at, page, seen.as_mut_ptr()) == 0 }
        };
        assert!((4..12).all(is_mapped));
        // SAFETY: it was mapped above.
        unsafe { libc::munmap(others, place.len()) };
    }

    #[test]
    fn zero_and_oversized_regions_are_rejected() {
        assert!(Region::new(0).is_err());
        assert!(Region::new(u64::MAX / PAGE_SIZE).is_err());
        assert!(Region::new(u64::MAX).is_err());
    }
}
