//! The memory of a region on the heap (feature `alloc`).

use core::fmt;

use heap::vec::Vec;
use lock_api::RawMutex;

use crate::base::heap::{NoRoom, reserve};
use crate::base::units::Pfn;
use crate::packed::blocks::Words;
use crate::packed::cpu::PerCpu;
use crate::packed::domain::Domain;
use crate::packed::label::Label;
use crate::packed::region::Region;
use crate::packed::route::Route;
use crate::packed::set::IndexWord;
use crate::packed::stack::{Link, Magazine};
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
    parts: Parts<R>,
}

impl<R: RawMutex> OwnedStorage<R> {
    /// Allocates the storage of a region of `frames` frames that begins at a multiple of 1,024, for `cpus`
    /// CPUs of which `cpus_per_domain` share a cache.
    ///
    /// # Errors
    /// [`RegionError`] if the numbers are out of range; [`RegionError::NoMemory`] if the heap has no
    /// room.
    pub fn new(frames: u32, cpus: u32, cpus_per_domain: u32) -> Result<Self, RegionError> {
        let needs = Needs::of(Pfn(0), frames, cpus, cpus_per_domain)?;
        Ok(OwnedStorage { frames, cpus_per_domain, parts: Parts::new(&needs)? })
    }

    /// Creates the region, from `first` on.
    ///
    /// # Errors
    /// [`RegionError::InUse`] if the storage served a region before; [`RegionError::Storage`] if
    /// `first` is no multiple of 1,024 and the storage is too small for that.
    pub fn region(&self, first: Pfn) -> Result<Region<'_, R>, RegionError> {
        Region::new(first, self.frames, self.cpus_per_domain, self.parts.storage())
    }
}

/// The parts of a [`Storage`] on the heap.
pub(crate) struct Parts<R: RawMutex> {
    states: Vec<FrameState>,
    words: Vec<Words>,
    faulty: Vec<Words>,
    labels: Vec<Label>,
    routes: Vec<Route>,
    index: Vec<IndexWord>,
    magazines: Vec<Magazine>,
    links: Vec<Link>,
    cpus: Vec<PerCpu<R>>,
    domains: Vec<Domain>,
}

impl<R: RawMutex> Parts<R> {
    pub(crate) fn new(needs: &Needs) -> Result<Self, NoRoom> {
        fn many<T: Default>(what: &'static str, n: usize) -> Result<Vec<T>, NoRoom> {
            let mut all = reserve(what, n)?;
            all.resize_with(n, T::default);
            Ok(all)
        }
        Ok(Parts {
            states: many("frame states", needs.states)?,
            words: many("words of free frames", needs.blocks)?,
            faulty: many("marks of faulty frames", needs.blocks)?,
            labels: many("pageblock labels", needs.blocks)?,
            routes: many("pageblock routes", needs.blocks)?,
            index: many("index words", needs.index)?,
            magazines: many("magazines", needs.magazines)?,
            links: many("links of magazines", needs.magazines)?,
            cpus: many("magazines of CPUs", needs.cpus)?,
            domains: many("depots", needs.domains)?,
        })
    }

    pub(crate) fn storage(&self) -> Storage<'_, R> {
        Storage {
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
        }
    }

    pub(crate) fn leak<'a>(self) -> Storage<'a, R> {
        Storage {
            states: self.states.leak(),
            words: self.words.leak(),
            faulty: self.faulty.leak(),
            labels: self.labels.leak(),
            routes: self.routes.leak(),
            index: self.index.leak(),
            magazines: self.magazines.leak(),
            links: self.links.leak(),
            cpus: self.cpus.leak(),
            domains: self.domains.leak(),
        }
    }
}

impl<R: RawMutex> fmt::Debug for Parts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts").field("states", &self.states.len()).finish_non_exhaustive()
    }
}
