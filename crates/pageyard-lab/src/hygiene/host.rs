//! The machine under the heap: the running CPU, the time, the owner of each block, and the memory
//! that reclaim may free.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use pageyard::policy::Rules;
use pageyard::{
    CpuId, Defences, Event, Hooked, NodeId, Order, Pfn, Platform, Reclaim, ReclaimJob, Relocation,
    Yard, ZoneId, ZoneKind,
};

use super::blocks::{Block, Blocks};
use super::options::Options;
use crate::Lock;
use crate::record::Sink;
use crate::rng::Rng;

/// The probability that a page at the old end of the page cache was used in the meantime and is
/// kept for another round. Assumed; it keeps reclaim from freeing memory in the order in which it
/// was filled.
const REFERENCED: f64 = 0.25;

/// Frees blocks; implemented by the yard, independent of its policy.
pub(super) trait Free {
    fn free_all(&self, blocks: &[(Pfn, Order)]);
}

impl<O: Sink> Free for Yard<'_, Hooked<Lock, &Host<'_, '_, O>, &Rules>> {
    fn free_all(&self, blocks: &[(Pfn, Order)]) {
        self.free_batch(blocks).expect("the workload frees what it owns");
    }
}

/// One CPU runs at a time; the workload selects it. Hooks are called from inside requests, so
/// nothing here may stay borrowed while the yard is called.
pub(super) struct Host<'y, 'o, O> {
    cpu: Cell<u32>,
    now: Cell<u64>,
    reclaim_woken: Cell<bool>,
    compaction_woken: Cell<bool>,
    observer: &'o O,
    pub(super) blocks: Blocks,
    reclaimable: RefCell<Reclaimable>,
    /// Pages that direct reclaim freed.
    pub(super) direct: Cell<u64>,
    yard: Cell<Option<&'y dyn Free>>,
}

/// The memory that reclaim may free.
struct Reclaimable {
    /// Page cache from the oldest page, and whether the page's file is temporary.
    cache: VecDeque<(Block, bool)>,
    /// Slab pages whose objects can be dropped.
    slabs: Vec<Block>,
    slabs_due: f64,
    /// [`Assumed::slab_pressure`](super::options::Assumed).
    slab_pressure: f64,
    /// Random numbers for reclaim alone, so that the workload's requests do not depend on it.
    rng: Rng,
}

impl<'y, 'o, O: Sink> Host<'y, 'o, O> {
    pub(super) fn new(observer: &'o O, base: Pfn, pages: u64, options: &Options) -> Self {
        Host {
            cpu: Cell::new(0),
            now: Cell::new(0),
            reclaim_woken: Cell::new(false),
            compaction_woken: Cell::new(false),
            observer,
            blocks: Blocks::new(base, pages),
            reclaimable: RefCell::new(Reclaimable {
                cache: VecDeque::new(),
                slabs: Vec::new(),
                slabs_due: 0.0,
                slab_pressure: options.assumed.slab_pressure,
                rng: Rng::new(options.seed ^ 0x5ec1_a1e0),
            }),
            direct: Cell::new(0),
            yard: Cell::new(None),
        }
    }

    /// Attaches the yard of this machine, to which reclaim frees.
    pub(super) fn attach(&self, yard: &'y dyn Free) {
        self.yard.set(Some(yard));
    }

    pub(super) fn run_on(&self, cpu: u32) {
        self.cpu.set(cpu);
    }

    /// Advances the time to `ns`, in nanoseconds, unless it is already later.
    pub(super) fn advance_to(&self, ns: u64) {
        self.now.set(self.now.get().max(ns));
    }

    /// Returns whether background reclaim was woken since the last call.
    pub(super) fn take_reclaim_wake(&self) -> bool {
        self.reclaim_woken.take()
    }

    /// Returns whether background compaction was woken since the last call.
    pub(super) fn take_compaction_wake(&self) -> bool {
        self.compaction_woken.take()
    }

    /// Adds a page that was read or written to the young end of the page cache.
    pub(super) fn cache_page(&self, block: Block, temporary: bool) {
        self.reclaimable.borrow_mut().cache.push_back((block, temporary));
    }

    /// Removes temporary files and frees their cached pages.
    pub(super) fn remove_temporary_files(&self) {
        let mut pages = Vec::new();
        self.reclaimable.borrow_mut().cache.retain(|&(block, temporary)| {
            if temporary {
                pages.push(block);
            }
            !temporary
        });
        self.free_all(&pages);
    }

    /// Adds a slab page that reclaim may free.
    pub(super) fn reclaimable_slab(&self, block: Block) {
        self.reclaimable.borrow_mut().slabs.push(block);
    }

    /// Returns the number of pages in the page cache.
    pub(super) fn cached(&self) -> u64 {
        self.reclaimable.borrow().cache.len() as u64
    }

    /// Frees about `pages` of the oldest pages of the cache, and slabs in proportion. Returns the
    /// number of pages freed.
    pub(super) fn free_oldest(&self, pages: u64) -> u64 {
        let picked = self.reclaimable.borrow_mut().pick(pages as usize);
        self.free_all(&picked)
    }

    /// Frees blocks one list at a time, as at the end of a process or of a file (§6.2). Returns the
    /// number of pages freed.
    pub(super) fn free_all(&self, blocks: &[Block]) -> u64 {
        let Some(yard) = self.yard.get() else { return 0 };
        let places: Vec<_> = blocks.iter().map(|&b| self.blocks.remove(b)).collect();
        yard.free_all(&places);
        places.iter().map(|b| u64::from(b.1.pages())).sum()
    }
}

impl Reclaimable {
    fn pick(&mut self, pages: usize) -> Vec<Block> {
        let slabs_per_page = self.slabs.len() as f64 / self.cache.len().max(1) as f64;
        let mut batch = Vec::with_capacity(pages.min(self.cache.len()));
        let mut looked_at = self.cache.len();
        while batch.len() < pages && looked_at > 0 {
            let Some(page) = self.cache.pop_front() else { break };
            looked_at -= 1;
            if self.rng.happens(REFERENCED) {
                self.cache.push_back(page);
            } else {
                batch.push(page.0);
            }
        }
        self.slabs_due += self.slab_pressure * batch.len() as f64 * slabs_per_page;
        while self.slabs_due >= 1.0 && !self.slabs.is_empty() {
            self.slabs_due -= 1.0;
            let at = self.rng.below(self.slabs.len());
            batch.push(self.slabs.swap_remove(at));
        }
        batch
    }
}

impl<O: Sink> Platform for Host<'_, '_, O> {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }

    fn now(&self) -> u64 {
        self.now.get()
    }
}

impl<O: Sink> Reclaim for Host<'_, '_, O> {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.blocks.relocate(from, to, order)
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        let freed = self.free_oldest(job.pages);
        self.direct.set(self.direct.get() + freed);
        freed
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        self.cached()
    }

    fn wake_reclaim(&self, _: NodeId, _: Order, _: ZoneKind) {
        self.reclaim_woken.set(true);
    }

    fn wake_compaction(&self, _: NodeId) {
        self.compaction_woken.set(true);
    }
}

impl<O: Sink> pageyard::Observer for Host<'_, '_, O> {
    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        if O::ACTIVE {
            // Nothing takes time here, but no two events may have the same timestamp.
            self.now.set(self.now.get() + 1);
            self.observer.observe(self.now.get(), cpu, event);
        }
    }
}

impl<O: Sink> Defences for Host<'_, '_, O> {}
