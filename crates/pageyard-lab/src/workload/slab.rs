//! Kernel objects of processes, in slabs: blocks that the page allocator sees when a slab is created
//! and when an empty one is given back.
//!
//! Objects and their sizes are measured: `/proc/slabinfo` of a Linux 6.18 (2 CPUs) before, while and
//! after 300 processes of `cc1`, and of `cat`, waited for input. A slab's order follows the kernel's
//! rule: the smallest up to 3 that holds `4 * (fls(CPUs) + 1)` objects, else 3. So slabs of a machine
//! of 224 CPUs are of higher orders than those of a small one.
//!
//! Objects of a process are taken on its parent's CPU and given back on the CPU where it exits.
//! A CPU takes objects from its active slab, then from its own partial slabs, then from the shared
//! ones, then from a new slab. A full slab that gets an object back goes to the partial slabs of the
//! CPU that frees it. When these are too many, all of them go to the shared ones at once, except
//! empty slabs beyond [`MIN_PARTIAL`], which are freed, one after another. Numbers of partial slabs
//! are measured (`/sys/kernel/slab`); that one counts as half full is assumed.

use std::sync::Mutex;

use pageyard::{CpuId, Order};

use super::actor::{Actor, Block};
use super::process::Memory;
use super::seats::lock;
use crate::hygiene::build::{flags, order};

/// Objects of one size.
struct Kind {
    /// Bytes of an object in its slab.
    size: u32,
    /// Objects of a compiler, and of another process.
    objects: [u32; 2],
}

const fn kind(size: u32, compiler: u32, other: u32) -> Kind {
    Kind { size, objects: [compiler, other] }
}

/// Objects that a process takes and gives back when it exits (measured).
const KINDS: [Kind; 14] = [
    kind(192, 64, 34), // vm_area_struct
    kind(4288, 1, 1),  // task_struct
    kind(192, 15, 18), // filp
    kind(2112, 1, 1),  // sighand_cache
    kind(104, 18, 8),  // anon_vma
    kind(64, 29, 12),  // anon_vma_chain
    kind(256, 7, 5),   // maple_node
    kind(2048, 1, 1),  // kmalloc-cg-2k
    kind(1600, 1, 1),  // mm_struct
    kind(1152, 1, 1),  // signal_cache
    kind(192, 4, 2),   // kmalloc-192
    kind(704, 1, 1),   // files_cache
    kind(192, 3, 2),   // pid
    kind(24, 16, 18),  // lsm_file_cache
];
/// Size of a directory entry, most of the reclaimable slab (measured).
pub(super) const DENTRY: u32 = 192;
/// Empty slabs are kept while there are fewer shared partial slabs (measured).
const MIN_PARTIAL: usize = 5;

/// Returns the order of a slab of objects of this size.
pub(super) fn slab_order(size: u32, cpus: u32) -> Order {
    let least = 4 * (u32::BITS - cpus.leading_zeros() + 1);
    order((0..3).find(|&o| (4096 << o) / size >= least).unwrap_or(3))
}

/// Number of objects on the partial slabs of a CPU, if each is half full (measured).
const fn partial_objects(size: u32) -> u32 {
    match size {
        4096.. => 6,
        1024.. => 24,
        256.. => 52,
        _ => 120,
    }
}

/// Where a slab is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Full,
    Active,
    OfCpu,
    Shared,
    Freed,
}

#[derive(Debug)]
struct Slab {
    block: Block,
    free: u32,
    place: Place,
}

/// The slabs of one kind.
#[derive(Debug)]
struct Cache {
    order: Order,
    per_slab: u32,
    /// Most partial slabs of a CPU.
    of_cpu: usize,
    slabs: Vec<Slab>,
    /// Indices of freed slabs.
    unused: Vec<usize>,
    /// The active slab and the partial slabs of each CPU.
    cpus: Vec<(Option<usize>, Vec<usize>)>,
    shared: Vec<usize>,
}

impl Cache {
    fn new(size: u32, cpus: u32) -> Cache {
        let order = slab_order(size, cpus);
        let per_slab = 4096 * order.pages() / size;
        Cache {
            order,
            per_slab,
            of_cpu: (2 * partial_objects(size)).div_ceil(per_slab) as usize,
            slabs: Vec::new(),
            unused: Vec::new(),
            cpus: vec![(None, Vec::new()); cpus as usize],
            shared: Vec::new(),
        }
    }

    /// Takes an object from a slab that exists and returns the slab.
    fn take(&mut self, cpu: usize) -> Option<usize> {
        let (active, partial) = &mut self.cpus[cpu];
        let at = active.take().or_else(|| partial.pop()).or_else(|| self.shared.pop())?;
        let slab = &mut self.slabs[at];
        slab.free -= 1;
        slab.place = if slab.free == 0 { Place::Full } else { Place::Active };
        if slab.place == Place::Active {
            *active = Some(at);
        }
        Some(at)
    }

    /// Adds a new slab, to the CPU's partial slabs.
    fn add(&mut self, cpu: usize, block: Block) {
        let slab = Slab { block, free: self.per_slab, place: Place::OfCpu };
        let at = self.unused.pop().unwrap_or(self.slabs.len());
        if at == self.slabs.len() {
            self.slabs.push(slab);
        } else {
            self.slabs[at] = slab;
        }
        self.cpus[cpu].1.push(at);
    }

    /// Gives an object back; adds slabs to be freed to `freed`.
    fn give(&mut self, cpu: usize, at: usize, freed: &mut Vec<Block>) {
        let slab = &mut self.slabs[at];
        slab.free += 1;
        match slab.place {
            Place::Full => {
                slab.place = Place::OfCpu;
                self.cpus[cpu].1.push(at);
                if self.cpus[cpu].1.len() > self.of_cpu {
                    for at in std::mem::take(&mut self.cpus[cpu].1) {
                        self.share(at, freed);
                    }
                }
            }
            Place::Shared if slab.free == self.per_slab && self.shared.len() > MIN_PARTIAL => {
                self.shared.retain(|&s| s != at);
                self.share(at, freed);
            }
            _ => {}
        }
    }

    /// Makes a slab a shared one, or frees it if it is empty and there are enough.
    fn share(&mut self, at: usize, freed: &mut Vec<Block>) {
        let slab = &mut self.slabs[at];
        if slab.free == self.per_slab && self.shared.len() >= MIN_PARTIAL {
            slab.place = Place::Freed;
            freed.push(slab.block);
            self.unused.push(at);
        } else {
            slab.place = Place::Shared;
            self.shared.push(at);
        }
    }
}

/// The objects of one process: for each kind, the slabs they are in.
#[derive(Debug)]
pub(super) struct Objects(Vec<Vec<usize>>);

/// The slabs of all processes.
#[derive(Debug)]
pub(super) struct Slabs(Vec<Mutex<Cache>>);

impl Slabs {
    pub(super) fn new(cpus: u32) -> Slabs {
        Slabs(KINDS.iter().map(|kind| Mutex::new(Cache::new(kind.size, cpus))).collect())
    }

    /// Allocates the objects of a new process from the slabs of the parent's CPU. New slabs are
    /// allocated on the actor's CPU: the actor stands for the parent too.
    pub(super) fn fork(
        &self,
        actor: &dyn Actor<'_>,
        memory: &mut Memory,
        parent: CpuId,
        is_compiler: bool,
    ) -> Objects {
        let cpu = parent.0 as usize;
        let mut all = Vec::new();
        for (cache, kind) in self.0.iter().zip(&KINDS) {
            let mut objects = Vec::new();
            actor.sync();
            for _ in 0..kind.objects[usize::from(!is_compiler)] {
                let found = lock(cache).take(cpu);
                let found = found.or_else(|| {
                    let order = lock(cache).order;
                    let block = memory.take(actor, order, flags::SLAB)?;
                    // Other actors may have run.
                    actor.sync();
                    let mut cache = lock(cache);
                    cache.add(cpu, block);
                    cache.take(cpu)
                });
                objects.extend(found);
            }
            all.push(objects);
        }
        Objects(all)
    }

    /// Gives the objects of a process back.
    pub(super) fn exit(&self, actor: &dyn Actor<'_>, objects: Objects) {
        let cpu = actor.cpu().0 as usize;
        for (cache, objects) in self.0.iter().zip(objects.0) {
            let mut freed = Vec::new();
            actor.sync();
            {
                let mut cache = lock(cache);
                objects.into_iter().for_each(|at| cache.give(cpu, at, &mut freed));
            }
            freed.into_iter().for_each(|block| actor.free(block));
        }
    }

    /// Removes all slabs, after the last process, and returns their blocks.
    pub(super) fn take_all(&self) -> Vec<Block> {
        let blocks = |cache: &Mutex<Cache>| {
            let mut cache = lock(cache);
            let (order, cpus) = (cache.order, cache.cpus.len());
            let slabs = std::mem::take(&mut cache.slabs);
            cache.unused.clear();
            cache.shared.clear();
            cache.cpus = vec![(None, Vec::new()); cpus];
            debug_assert!(slabs.iter().all(|s| s.block.1 == order));
            slabs.into_iter().filter(|s| s.place != Place::Freed).map(|s| s.block)
        };
        self.0.iter().flat_map(blocks).collect()
    }
}

#[cfg(test)]
mod tests {
    use pageyard::Pfn;

    use super::*;

    /// Sizes and orders of `/proc/slabinfo` on 2 CPUs, and what the rule gives on 224.
    #[test]
    fn the_order_of_a_slab_follows_from_size_and_cpus() {
        let measured = [
            (192, 0),
            (4288, 3),
            (2112, 3),
            (104, 0),
            (256, 0),
            (2048, 3),
            (1600, 3),
            (1152, 2),
            (704, 2),
            (624, 1),
            (24, 0),
        ];
        for (size, is) in measured {
            assert_eq!(slab_order(size, 2), order(is), "{size}");
        }
        let large = [192, 256, 704, 1152].map(|size| slab_order(size, 224));
        assert_eq!(large, [1, 2, 3, 3].map(order));
    }

    #[test]
    fn empty_slabs_go_back_in_a_row() {
        let mut cache = Cache::new(2048, 224);
        let (slabs, cpu) = (40, 3);
        let mut objects = Vec::new();
        for n in 0..slabs {
            cache.add(cpu, (Pfn(8 * n), cache.order));
            objects.extend((0..cache.per_slab).map(|_| cache.take(cpu).unwrap()));
        }
        assert_eq!(cache.take(cpu), None, "all are full");
        let mut freed = Vec::new();
        let mut most = 0;
        for at in objects {
            let before = freed.len();
            cache.give(cpu, at, &mut freed);
            most = most.max(freed.len() - before);
        }
        assert!(most >= 2, "one at a time");
        // Kept: the shared ones, and those of the CPU.
        assert!(freed.len() >= slabs as usize - MIN_PARTIAL - cache.of_cpu - 1, "{}", freed.len());
        let mut pfns: Vec<u64> = freed.iter().map(|b| b.0.0).collect();
        pfns.sort_unstable();
        pfns.dedup();
        assert_eq!(pfns.len(), freed.len(), "a slab was freed twice");
    }

    /// Processes that come and go on all CPUs, each freed on a CPU of its own.
    #[test]
    fn slabs_are_bounded_and_all_are_freed() {
        for (size, cpus) in [(2048, 224), (192, 224), (704, 4)] {
            let mut cache = Cache::new(size, cpus);
            let (mut live, mut most_live, mut made, mut freed) = (Vec::new(), 0, 0, Vec::new());
            let mut rng = crate::rng::Rng::new(5);
            for step in 0..20_000 {
                let cpu = rng.below(cpus as usize);
                // More processes come than go, then fewer.
                if live.is_empty() || rng.below(100) < if step < 10_000 { 52 } else { 45 } {
                    let found = cache.take(cpu).or_else(|| {
                        cache.add(cpu, (Pfn(made), cache.order));
                        made += 1;
                        cache.take(cpu)
                    });
                    live.push(found.unwrap());
                } else {
                    let gone = rng.below(live.len());
                    cache.give(cpu, live.swap_remove(gone), &mut freed);
                }
                most_live = most_live.max(live.len());
                // A new slab is made only if no shared one has room, and none of the CPU's.
                let slabs = made as usize - freed.len();
                let partial = cpus as usize * (cache.of_cpu + 1) + MIN_PARTIAL;
                assert!(
                    slabs <= most_live / cache.per_slab as usize + partial + 1,
                    "{size}: {slabs}"
                );
            }
            while let Some(at) = live.pop() {
                cache.give(rng.below(cpus as usize), at, &mut freed);
            }
            let kept = cache.slabs.iter().filter(|s| s.place != Place::Freed);
            assert!(kept.clone().all(|s| s.free == cache.per_slab), "{size}: objects lost");
            let kept = kept.count();
            assert!(
                kept <= cpus as usize * (cache.of_cpu + 1) + MIN_PARTIAL,
                "{size}: {kept} kept"
            );
            let slabs = Slabs(vec![Mutex::new(cache)]);
            freed.extend(slabs.take_all());
            let mut pfns: Vec<u64> = freed.iter().map(|b| b.0.0).collect();
            pfns.sort_unstable();
            assert_eq!(pfns, (0..made).collect::<Vec<_>>(), "{size}: each slab is freed once");
            assert!(slabs.take_all().is_empty());
        }
    }
}
