//! Fragments of pages, for buffers smaller than a page such as network packets (§6.4).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};

use pageyard::policy::{Packed, Policy};
use pageyard::{AllocError, Gfp, Order, PAGE_SIZE};

use crate::owned::{OwnedBlock, YardRef};
use crate::yard::HostYard;

/// The order of a chunk; 0 if there is no such block.
const CHUNK: Order = Order::new(3).expect("an order of a block");
/// Most bytes of a fragment.
const MOST: usize = (PAGE_SIZE as usize) << CHUNK.get();
/// Single pages after a request for a larger block failed, which takes many times as long as one for a
/// page and, while memory is in pieces, would fail again.
const PAGES: u32 = 64;
/// References of a new chunk that its cache holds: one for each fragment that it can have, of a byte
/// each, and one more, so that fragments never drop the last one while the cache uses the chunk.
const CHARGE: usize = MOST + 1;

/// Why there is no fragment.
///
/// ```
/// use std::sync::Arc;
/// use pageyard::Gfp;
/// use pageyard_host::{Builder, FragmentCache, FragmentError};
///
/// let yard = Arc::new(Builder::new(16 << 20).build()?);
/// let mut cache = FragmentCache::new(&yard, Gfp::ATOMIC);
/// assert_eq!(cache.alloc(40_000, 1).unwrap_err(), FragmentError::Size(40_000));
/// # Ok::<(), pageyard_host::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FragmentError {
    /// The size is 0 or exceeds 32 KiB.
    #[error("fragment: {0} bytes; expected 1 to 32768")]
    Size(usize),
    /// The alignment is not a power of two up to a page.
    #[error("fragment: aligned to {0} bytes; expected a power of two up to 4096")]
    Align(usize),
    /// There is no memory. For more than a page, there is no block of 32 KiB.
    #[error(transparent)]
    Alloc(#[from] AllocError),
}

/// A block that fragments are cut from.
///
/// Invariant: `references` is the number of fragments that exist, plus those that the cache holds in
/// advance while it uses the chunk. The one that takes it to 0 owns the chunk.
struct Chunk<P: Policy> {
    references: AtomicUsize,
    block: OwnedBlock<P>,
}

impl<P: Policy> Chunk<P> {
    /// Gives up references. Returns whether they were the last ones, so that the chunk belongs to
    /// the caller.
    ///
    /// # Safety
    /// The chunk exists, and the caller holds that many references, which are gone then.
    unsafe fn give_up(chunk: NonNull<Chunk<P>>, references: usize) -> bool {
        // What frees or reuses the chunk comes after all accesses by other fragments' owners.
        // SAFETY: the caller's references keep it alive until the subtraction
        // (`fragments_are_freed_on_other_threads`).
        unsafe { chunk.as_ref() }.references.fetch_sub(references, AcqRel) == references
    }

    /// # Safety
    /// The chunk belongs to the caller alone: [`give_up`](Chunk::give_up) returned `true`.
    unsafe fn free(chunk: NonNull<Chunk<P>>) {
        // SAFETY: `FragmentCache::chunk` made it of a box, and nothing else refers to it
        // (`fragments_are_freed_on_other_threads`).
        drop(unsafe { Box::from_raw(chunk.as_ptr()) });
    }
}

/// The chunk that a cache uses.
struct Open<P: Policy> {
    chunk: NonNull<Chunk<P>>,
    /// References held in advance; at least 1.
    charge: usize,
    /// Bytes before the last fragment: fragments are cut from the end.
    left: usize,
}

/// Allocates fragments: buffers of 1 byte to 32 KiB, many of which share a block of 32 KiB, or a page
/// if there is no such block.
///
/// A fragment costs a subtraction, and one atomic operation when it is dropped: references are
/// counted in advance. A block whose fragments are all free when it is used up is used again. A
/// single long-lived fragment keeps its whole block.
///
/// A cache is for one thread at a time; fragments may be dropped on any thread, and outlive the cache.
///
/// ```
/// use std::sync::Arc;
/// use pageyard::Gfp;
/// use pageyard_host::{Builder, Fragment, FragmentCache};
///
/// let yard = Arc::new(Builder::new(16 << 20).build()?);
/// let mut cache = FragmentCache::new(&yard, Gfp::ATOMIC);
/// let mut packet: Fragment = cache.alloc(1500, 64)?;
/// packet[..4].copy_from_slice(b"data");
/// assert_eq!((packet.len(), packet.as_ptr().addr() % 64), (1500, 0));
/// std::thread::spawn(move || drop(packet)).join().unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FragmentCache<P: Policy = Packed> {
    yard: YardRef<P>,
    gfp: Gfp,
    open: Option<Open<P>>,
    /// Chunks that are to be single pages, after there was no larger block.
    pages: u32,
}

// SAFETY: it owns its references to the chunk, whose owner may be any thread if the yard's may
// (`fragments_are_freed_on_other_threads`).
unsafe impl<P: Policy> Send for FragmentCache<P> where OwnedBlock<P>: Send + Sync {}
// SAFETY: a shared cache gives out nothing.
unsafe impl<P: Policy> Sync for FragmentCache<P> where OwnedBlock<P>: Send + Sync {}

impl<P: Policy> FragmentCache<P> {
    /// Creates a cache of fragments of a yard. `gfp`: flags of its requests for blocks; with
    /// [`ZERO`](Gfp::ZERO), each fragment is zeroed.
    pub fn new(yard: &Arc<HostYard<P>>, gfp: Gfp) -> FragmentCache<P> {
        FragmentCache { yard: YardRef::new(yard.clone()), gfp, open: None, pages: 0 }
    }

    /// Allocates a fragment of `bytes` bytes, 1 to 32,768, whose address is a multiple of `align`
    /// bytes, a power of two up to 4,096. Its contents are arbitrary old data, unless the cache's
    /// flags contain [`ZERO`](Gfp::ZERO).
    ///
    /// # Errors
    /// [`FragmentError`].
    pub fn alloc(&mut self, bytes: usize, align: usize) -> Result<Fragment<P>, FragmentError> {
        if !(1..=MOST).contains(&bytes) {
            return Err(FragmentError::Size(bytes));
        }
        if !align.is_power_of_two() || align > PAGE_SIZE as usize {
            return Err(FragmentError::Align(align));
        }
        // The child of a fork has copies of the counts, not of the memory, which may be shared.
        if !self.yard.is_here() {
            return Err(AllocError::NoMemory.into());
        }
        let fits = |open: &Open<P>| open.left >= bytes;
        if !self.open.as_ref().is_some_and(fits) {
            self.reuse();
        }
        if !self.open.as_ref().is_some_and(fits) {
            self.close();
            self.open = Some(self.chunk(bytes)?);
        }
        let Some(open) = &mut self.open else { return Err(AllocError::NoMemory.into()) };
        let at = (open.left - bytes) & !(align - 1);
        open.left = at;
        // A chunk has fewer fragments than bytes.
        open.charge -= 1;
        // SAFETY: the cache's references keep the chunk alive; only shared references to it exist.
        let start = unsafe { open.chunk.as_ref() }.block.as_ptr();
        // SAFETY: the bytes lie within the block, below the last fragment
        // (`fragments_are_disjoint_and_aligned`).
        let start = unsafe { start.add(at) };
        let mut fragment = Fragment { start, bytes, chunk: open.chunk };
        if self.gfp.contains(Gfp::ZERO) {
            fragment.fill(0);
        }
        Ok(fragment)
    }

    /// Starts again with the chunk in use if all its fragments are free.
    fn reuse(&mut self) {
        let Some(open) = self.open.take() else { return };
        // SAFETY: the chunk exists, and the cache held these references; it has none left now.
        if unsafe { Chunk::give_up(open.chunk, open.charge) } {
            // SAFETY: the chunk belongs to this cache alone.
            let chunk = unsafe { open.chunk.as_ref() };
            chunk.references.store(CHARGE, Relaxed);
            self.open = Some(Open { charge: CHARGE, left: chunk.block.len(), ..open });
        }
    }

    /// Leaves the chunk in use to its fragments.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        // SAFETY: the chunk exists, and the cache held these references; it has none left now.
        if unsafe { Chunk::give_up(open.chunk, open.charge) } {
            // SAFETY: the last references were this cache's.
            unsafe { Chunk::free(open.chunk) };
        }
    }

    /// Allocates a chunk for a fragment of `bytes` bytes.
    fn chunk(&mut self, bytes: usize) -> Result<Open<P>, AllocError> {
        let gfp = self.gfp.difference(Gfp::ZERO);
        let fits = bytes <= PAGE_SIZE as usize;
        // A page will do, so the larger block is not worth reclaim.
        let eager = gfp.difference(Gfp::DIRECT_RECLAIM).union(Gfp::NOWARN | Gfp::NORETRY);
        let block = if fits && self.pages > 0 {
            self.pages -= 1;
            self.yard.alloc_owned(Order::ZERO, gfp)
        } else {
            match self.yard.alloc_owned(CHUNK, eager) {
                Err(AllocError::NoMemory) if fits => {
                    self.pages = PAGES;
                    self.yard.alloc_owned(Order::ZERO, gfp)
                }
                Err(AllocError::NoMemory) => self.yard.alloc_owned(CHUNK, gfp),
                answer => answer,
            }
        }?;
        let left = block.len();
        let chunk = Box::new(Chunk { references: AtomicUsize::new(CHARGE), block });
        // A box is not null.
        let chunk = NonNull::from(Box::leak(chunk));
        Ok(Open { chunk, charge: CHARGE, left })
    }
}

impl<P: Policy> Drop for FragmentCache<P> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<P: Policy> fmt::Debug for FragmentCache<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.open.as_ref().map(|open| open.left);
        f.debug_struct("FragmentCache").field("gfp", &self.gfp).field("left", &left).finish()
    }
}

/// A part of a block, accessible as bytes and freed on drop. Allocated by [`FragmentCache::alloc`].
/// It keeps its block and the yard alive; the notes at [`OwnedBlock`] apply to its drop.
///
/// ```
/// use std::sync::Arc;
/// use pageyard::Gfp;
/// use pageyard_host::{Builder, Fragment, FragmentCache};
///
/// let yard = Arc::new(Builder::new(16 << 20).build()?);
/// let mut fragment: Fragment = FragmentCache::new(&yard, Gfp::KERNEL).alloc(100, 8)?;
/// fragment.fill(7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Fragment<P: Policy = Packed> {
    start: NonNull<u8>,
    bytes: usize,
    chunk: NonNull<Chunk<P>>,
}

// SAFETY: a fragment owns its bytes exclusively, like a box, and a reference to the chunk, which the
// last one drops on its thread (`fragments_are_freed_on_other_threads`).
unsafe impl<P: Policy> Send for Fragment<P> where OwnedBlock<P>: Send + Sync {}
// SAFETY: a shared fragment gives out shared bytes only.
unsafe impl<P: Policy> Sync for Fragment<P> where OwnedBlock<P>: Send + Sync {}

impl<P: Policy> Deref for Fragment<P> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are those of a block, which the reference to the chunk keeps, and belong
        // to this fragment alone (`fragments_are_disjoint_and_aligned`).
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl<P: Policy> DerefMut for Fragment<P> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and the fragment is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl<P: Policy> Drop for Fragment<P> {
    fn drop(&mut self) {
        // SAFETY: the chunk exists, and this fragment's reference is not used again.
        if unsafe { Chunk::give_up(self.chunk, 1) } {
            // SAFETY: the last reference was this fragment's.
            unsafe { Chunk::free(self.chunk) };
        }
    }
}

impl<P: Policy> fmt::Debug for Fragment<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fragment").field("start", &self.start).field("bytes", &self.bytes).finish()
    }
}
