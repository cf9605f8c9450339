//! Guest memory: from a yard, or mapped by `vm-memory` itself. Each has two regions with a hole
//! between them, like a PC's below 4 GiB.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

use pageyard::Gfp;
use pageyard_host::{HostYard, PageRange};
use vhost::VhostUserMemoryRegionInfo;
use vm_memory::guest_memory::Result as GuestResult;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryMmap,
    GuestMemoryRegion, GuestMemoryRegionBytes, GuestRegionCollection, MemoryRegionAddress,
    VolatileSlice,
};

use crate::{PAGE, Result};

/// Guest address of the second region.
pub(crate) const HIGH: u64 = 4 << 30;
/// Alignment of a region in pages, so that huge pages fit.
const ALIGN: u64 = 512;

/// A region of guest memory that owns pages of a yard; they are freed when the region is dropped.
///
/// It is used instead of a second mapping of the yard's file by `vm-memory`. Pages cannot be freed
/// while a region is in use. One mapping means one set of page tables. The yard's huge pages and
/// nodes apply to it. A device in another process needs `file_offset` to map it.
#[derive(Debug)]
pub(crate) struct YardRegion<'y> {
    range: PageRange<'y>,
    start: GuestAddress,
    file: FileOffset,
}

impl GuestMemoryRegion for YardRegion<'_> {
    type B = ();

    fn len(&self) -> u64 {
        let frames = self.range.frames();
        (frames.end.0 - frames.start.0) * PAGE as u64
    }

    fn start_addr(&self) -> GuestAddress {
        self.start
    }

    fn bitmap(&self) {}

    fn get_host_address(&self, address: MemoryRegionAddress) -> GuestResult<*mut u8> {
        let inside = self.check_address(address).ok_or(GuestMemoryError::InvalidBackendAddress)?;
        Ok(self.range.as_ptr().as_ptr().wrapping_add(inside.0 as usize))
    }

    fn file_offset(&self) -> Option<&FileOffset> {
        Some(&self.file)
    }

    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> GuestResult<VolatileSlice<'_>> {
        let end = offset.0.checked_add(count as u64);
        if end.is_none_or(|end| end > self.len()) {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        // SAFETY: the offset is inside the range.
        let start = unsafe { self.range.as_ptr().add(offset.0 as usize) };
        // SAFETY: the bytes are mapped as long as the range is borrowed. The guest and the device
        // use them at the same time, and this process only through such slices: the range is never
        // borrowed as bytes.
        Ok(unsafe { VolatileSlice::new(start.as_ptr(), count) })
    }
}

impl GuestMemoryRegionBytes for YardRegion<'_> {}

/// The memory of a guest from a yard.
pub(crate) type YardMemory<'y> = GuestRegionCollection<YardRegion<'y>>;

/// Returns the file of a yard, for regions and devices.
pub(crate) fn file_of(yard: &HostYard) -> Result<Arc<File>> {
    // SAFETY: guests and devices write to the file only in ranges that regions own, and nothing
    // borrows those as bytes.
    let fd = unsafe { yard.fd() }.ok_or("the yard is no file")?;
    Ok(Arc::new(File::from(fd.try_clone_to_owned()?)))
}

/// Allocates `pages` pages from a yard in two regions, zeroed with `zero`.
pub(crate) fn from_yard<'y>(
    yard: &'y HostYard,
    file: &Arc<File>,
    pages: u64,
    zero: bool,
) -> Result<YardMemory<'y>> {
    let gfp = if zero { Gfp::KERNEL | Gfp::ZERO } else { Gfp::KERNEL };
    let region = |pages, start| -> Result<YardRegion<'y>> {
        let range = yard.alloc_range(pages, ALIGN, gfp)?;
        let file = FileOffset::from_arc(file.clone(), range.offset());
        Ok(YardRegion { range, start: GuestAddress(start), file })
    };
    let low = pages / 2;
    Ok(GuestRegionCollection::from_regions(vec![region(low, 0)?, region(pages - low, HIGH)?])?)
}

/// Returns how many frames a guest's memory shares with other ranges.
pub(crate) fn overlap(memory: &YardMemory<'_>, others: &[(u64, u64)]) -> u64 {
    let of = |(start, end): (u64, u64)| {
        let shared = others.iter().map(|o| end.min(o.1).saturating_sub(start.max(o.0)));
        shared.sum::<u64>()
    };
    frames(memory).into_iter().map(of).sum()
}

/// Returns the frame ranges of a guest's memory.
pub(crate) fn frames(memory: &YardMemory<'_>) -> Vec<(u64, u64)> {
    memory.iter().map(|r| (r.range.frames().start.0, r.range.frames().end.0)).collect()
}

/// Maps `pages` pages by `vm-memory`, from a file of the guest's own.
pub(crate) fn from_memfd(pages: u64, huge: bool) -> Result<GuestMemoryMmap> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"guest".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let file = Arc::new(unsafe { File::from_raw_fd(fd) });
    let (size, low) = (pages as usize * PAGE, (pages / 2) as usize * PAGE);
    file.set_len(size as u64)?;
    let at = |offset| Some(FileOffset::from_arc(file.clone(), offset));
    let memory = GuestMemoryMmap::from_ranges_with_files([
        (GuestAddress(0), low, at(0)),
        (GuestAddress(HIGH), size - low, at(low as u64)),
    ])?;
    for region in memory.iter().filter(|_| huge) {
        let start = region.get_host_address(MemoryRegionAddress(0))?;
        // SAFETY: the addresses are the region's. The advice changes no contents; if it is refused,
        // pages stay small.
        unsafe { libc::madvise(start.cast(), region.len() as usize, libc::MADV_HUGEPAGE) };
    }
    Ok(memory)
}

/// Returns the description of guest memory that a vhost-user device needs, for either mapping.
pub(crate) fn table<M: GuestMemoryBackend>(memory: &M) -> Result<Vec<VhostUserMemoryRegionInfo>> {
    let region = |region: &M::R| -> Result<VhostUserMemoryRegionInfo> {
        let file = region.file_offset().ok_or("memory that cannot be shared")?;
        Ok(VhostUserMemoryRegionInfo {
            guest_phys_addr: region.start_addr().0,
            memory_size: region.len(),
            userspace_addr: region.get_host_address(MemoryRegionAddress(0))?.addr() as u64,
            mmap_offset: file.start(),
            mmap_handle: file.file().as_raw_fd(),
        })
    };
    memory.iter().map(region).collect()
}
