//! The memory of a region on the heap (feature `alloc`).

use heap::boxed::Box;
use lock_api::RawMutex;

use crate::base::units::Pfn;
use crate::packed::blocks::{Label, Route, Words};
use crate::packed::cpu::PerCpu;
use crate::packed::domain::{Domain, Link, Magazine};
use crate::packed::region::Region;
use crate::packed::set::IndexWord;
use crate::packed::storage::{FrameState, Needs, RegionError, Storage};

/// The memory of a region on the heap. It serves one region.
///
/// ```
/// use pageyard::Pfn;
/// use pageyard::packed::OwnedStorage;
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 16, 2, 2)?;
/// let region = storage.region(Pfn(0))?;
/// assert_eq!(region.free_frames(), 0, "no frame was added yet");
/// # Ok::<(), pageyard::packed::RegionError>(())
/// ```
#[derive(Debug)]
pub struct OwnedStorage<R: RawMutex> {
    frames: u32,
    cpus_per_domain: u32,
    states: Box<[FrameState]>,
    words: Box<[Words]>,
    faulty: Box<[Words]>,
    labels: Box<[Label]>,
    routes: Box<[Route]>,
    index: Box<[IndexWord]>,
    magazines: Box<[Magazine]>,
    links: Box<[Link]>,
    cpus: Box<[PerCpu<R>]>,
    domains: Box<[Domain]>,
}

impl<R: RawMutex> OwnedStorage<R> {
    /// Allocates the storage of a region of `frames` frames that begins at a multiple of 1,024, for `cpus`
    /// CPUs of which `cpus_per_domain` share a cache.
    ///
    /// # Errors
    /// [`RegionError`] if the numbers are out of range.
    pub fn new(frames: u32, cpus: u32, cpus_per_domain: u32) -> Result<Self, RegionError> {
        fn many<T: Default>(n: usize) -> Box<[T]> {
            (0..n).map(|_| T::default()).collect()
        }
        let needs = Needs::of(Pfn(0), frames, cpus, cpus_per_domain)?;
        Ok(OwnedStorage {
            frames,
            cpus_per_domain,
            states: many(needs.states),
            words: many(needs.blocks),
            faulty: many(needs.blocks),
            labels: many(needs.blocks),
            routes: many(needs.blocks),
            index: many(needs.index),
            magazines: many(needs.magazines),
            links: many(needs.magazines),
            cpus: many(needs.cpus),
            domains: many(needs.domains),
        })
    }

    /// Creates the region, from `first` on.
    ///
    /// # Errors
    /// [`RegionError::InUse`] if the storage served a region before; [`RegionError::Storage`] if
    /// `first` is no multiple of 1,024 and the storage is too small for that.
    pub fn region(&self, first: Pfn) -> Result<Region<'_, R>, RegionError> {
        let storage = Storage {
            states: &self.states,
            words: &self.words,
            faulty: &self.faulty,
            labels: &self.labels,
            routes: &self.routes,
            index: &self.index,
            magazines: &self.magazines,
            links: &self.links,
            cpus: &self.cpus,
            domains: &self.domains,
        };
        Region::new(first, self.frames, self.cpus_per_domain, storage)
    }
}
