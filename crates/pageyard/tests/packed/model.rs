//! One thread on several CPUs, against a map of owners.

use crate::*;

/// A region, and the expected state of its frames.
struct Model<'a> {
    region: &'a R<'a>,
    /// The block that each frame belongs to, by the number of its first frame; `None`: free.
    owner: Vec<Option<u64>>,
    blocks: Vec<(Pfn, Order)>,
}

impl<'a> Model<'a> {
    fn new(region: &'a R<'a>, frames: u32) -> Self {
        Model { region, owner: vec![None; frames as usize], blocks: vec![] }
    }

    fn alloc(&mut self, on: usize, order: Order, t: MigrateType) -> bool {
        let Some(pfn) = self.region.alloc(cpu(on), order, t) else { return false };
        assert_eq!(pfn.0 % u64::from(order.pages()), 0, "aligned to its size");
        for frame in pfn.0..pfn.0 + u64::from(order.pages()) {
            let was = self.owner[frame as usize].replace(pfn.0);
            assert_eq!(was, None, "frame {frame} has two owners");
        }
        assert_eq!(self.region.allocated(pfn), Some(order));
        self.blocks.push((pfn, order));
        true
    }

    fn free(&mut self, on: usize, index: usize, owned: bool) {
        let (pfn, order) = self.blocks.swap_remove(index);
        for frame in pfn.0..pfn.0 + u64::from(order.pages()) {
            assert_eq!(self.owner[frame as usize].take(), Some(pfn.0));
        }
        let freed = match owned {
            true => self.region.free_owned(cpu(on), pfn, order),
            false => self.region.free(cpu(on), pfn, order),
        };
        freed.unwrap();
        assert_eq!(self.region.allocated(pfn), None);
    }

    fn allocated(&self) -> u64 {
        self.owner.iter().flatten().count() as u64
    }
}

#[test]
fn random_operations_agree_with_a_map_of_owners() {
    for run in 0..12 {
        agrees(run, 64 * 512, 60_000);
    }
}

/// The same, shortened for mutation testing: smaller regions, and fewer operations.
#[test]
fn a_few_random_operations_agree_with_a_map_of_owners() {
    for run in 0..8 {
        agrees(run, 4 * 512, 4000);
    }
}

fn agrees(run: u32, frames: u32, steps: u32) {
    let storage = Storage::new(frames, 4, 1 + run % 4).unwrap();
    let region = full(&storage, frames);
    let mut model = Model::new(&region, frames);
    let mut numbers = Numbers(seed() + u64::from(run));
    let mut isolated = vec![];
    // Memory is nearly exhausted most of the time in every other run.
    let limit = if run.is_multiple_of(2) { frames as u64 } else { frames as u64 / 2 };
    for step in 0..steps {
        let on = numbers.below(4);
        let grow = (step / (steps / 7)).is_multiple_of(2);
        match numbers.below(1000) {
            0 => _ = region.drain(cpu(on)),
            1 => region.tick(),
            2 => assert!(region.drain_all()),
            3 => {
                let pfn = Pfn(numbers.below(frames as usize) as u64 & !511);
                if region.isolate(pfn).is_ok() {
                    isolated.push(pfn);
                }
            }
            4 if !isolated.is_empty() => {
                let pfn = isolated.swap_remove(numbers.below(isolated.len()));
                region.unisolate(pfn).unwrap();
            }
            n if n < if grow { 650 } else { 350 } && model.allocated() < limit => {
                let order = o(numbers.order());
                _ = model.alloc(on, order, TYPES[numbers.below(3)]);
            }
            n if !model.blocks.is_empty() => {
                let index = numbers.below(model.blocks.len());
                model.free(on, index, n % 2 == 0);
            }
            _ => {}
        }
        if step % (steps / 12) == 0 {
            let census = region.validate().unwrap();
            assert_eq!(census.allocated, model.allocated());
        }
    }
    while !model.blocks.is_empty() {
        model.free(0, model.blocks.len() - 1, false);
    }
    for pfn in isolated {
        region.unisolate(pfn).unwrap();
    }
    assert_empty(&region, frames);
}

#[test]
fn all_memory_can_be_allocated_in_every_order_and_type() {
    const FRAMES: u32 = 32 * 512;
    for order in 0..=10 {
        for t in TYPES {
            let storage = Storage::new(FRAMES, 3, 2).unwrap();
            let region = full(&storage, FRAMES);
            let mut model = Model::new(&region, FRAMES);
            while model.alloc(1, o(order), t) {}
            // One CPU gets all memory, including the pageblocks that other CPUs refilled from.
            assert_eq!(model.allocated(), FRAMES.into(), "order {order}, {t:?}");
            // Freed in an order that is neither ascending nor that of the allocations.
            let mut numbers = Numbers(order.into());
            while !model.blocks.is_empty() {
                model.free(numbers.below(3), numbers.below(model.blocks.len()), false);
            }
            assert_empty(&region, FRAMES);
        }
    }
}

#[test]
fn single_pages_of_all_types_use_up_what_others_freed() {
    const FRAMES: u32 = 8 * 512;
    let storage = Storage::new(FRAMES, 1, 1).unwrap();
    let region = full(&storage, FRAMES);
    let mut model = Model::new(&region, FRAMES);
    while model.alloc(0, o(0), MigrateType::Movable) {}
    for _ in 0..FRAMES / 2 {
        model.free(0, 0, false);
    }
    region.drain_all();
    // No whole pageblock is left, so unmovable requests take frames of movable ones.
    let mut taken = 0;
    while model.alloc(0, o(0), MigrateType::Unmovable) {
        taken += 1;
    }
    assert_eq!(taken, FRAMES / 2);
    assert!(region.counts(cpu(0)).unwrap().steals > 0);
}

#[test]
fn requests_of_other_types_and_cpus_fail() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = full(&storage, 4096);
    for t in [MigrateType::HighAtomic, MigrateType::Cma, MigrateType::Isolate] {
        for order in 0..=10 {
            assert_eq!(region.alloc(cpu(0), o(order), t), None);
        }
    }
    assert_eq!(region.alloc(cpu(1), o(0), MigrateType::Movable), None);
    assert_empty(&region, 4096);
}

#[test]
fn regions_with_holes_and_any_start_use_all_their_frames() {
    // Begins and ends inside a pageblock, with a hole of a few frames and one of a pageblock.
    let (start, frames) = (5000u64, 9000u32);
    let needs = pageyard::packed::Needs::of(Pfn(start), frames, 2, 2).unwrap();
    // Storage on the heap begins at a multiple of the largest block; it is as large for this one.
    let storage = Storage::new(frames + (start % 1024) as u32, 2, 2).unwrap();
    let region = storage.region(Pfn(start - start % 1024)).unwrap();
    assert!(needs.states >= frames as usize);
    let parts = [start..5700, 5703..8192, 8704..start + u64::from(frames)];
    for part in &parts {
        region.add(Pfn(part.start)..Pfn(part.end)).unwrap();
    }
    let present: u64 = parts.iter().map(|p| p.end - p.start).sum();
    let mut got = vec![];
    while let Some(pfn) = region.alloc(cpu(got.len() % 2), o(0), MigrateType::Unmovable) {
        assert!(parts.iter().any(|p| p.contains(&pfn.0)), "{pfn} is a hole");
        got.push(pfn);
        if got.len() as u64 + 128 > present {
            region.drain_all();
        }
    }
    got.sort();
    got.dedup();
    assert_eq!(got.len() as u64, present);
    for pfn in got {
        region.free(cpu(0), pfn, o(0)).unwrap();
    }
    region.drain_all();
    assert_eq!(region.validate().unwrap().present, present);
    assert_eq!(region.free_frames(), present);
    // Pageblocks with all their frames become whole, the others do not.
    let whole = (start / 512..=(start + u64::from(frames)) / 512)
        .filter(|b| (b * 512..b * 512 + 512).all(|f| parts.iter().any(|p| p.contains(&f))));
    assert_eq!(region.whole_blocks(), whole.count() as u64);
}

#[test]
fn isolated_pageblocks_keep_what_is_freed_and_give_nothing() {
    const FRAMES: u32 = 4 * 512;
    let storage = Storage::new(FRAMES, 2, 2).unwrap();
    let region = full(&storage, FRAMES);
    let mut held = vec![];
    while let Some(pfn) = region.alloc(cpu(0), o(0), MigrateType::Movable) {
        held.push(pfn);
    }
    let target = Pfn(512);
    region.drain_all();
    region.isolate(target).unwrap();
    for pfn in held.drain(..) {
        region.free(cpu(1), pfn, o(0)).unwrap();
    }
    region.drain_all();
    assert_eq!(region.free_in_block(target), Some(512));
    assert_eq!(region.whole_blocks(), 3);
    while let Some(pfn) = region.alloc(cpu(0), o(0), MigrateType::Movable) {
        assert!(!(512..1024).contains(&pfn.0));
        held.push(pfn);
    }
    assert_eq!(held.len(), 3 * 512);
    region.unisolate(target).unwrap();
    assert_eq!(region.alloc(cpu(0), o(9), MigrateType::Movable), Some(target));
    region.free(cpu(0), target, o(9)).unwrap();
    for pfn in held {
        region.free(cpu(1), pfn, o(0)).unwrap();
    }
    assert_empty(&region, FRAMES);
}

#[test]
fn a_tick_returns_a_part_of_what_nobody_took_from_depots() {
    const FRAMES: u32 = 32 * 512;
    let storage = Storage::new(FRAMES, 1, 1).unwrap();
    let region = full(&storage, FRAMES);
    let alloc = || region.alloc(cpu(0), o(0), MigrateType::Movable).unwrap();
    let pages: Vec<Pfn> = (0..2000).map(|_| alloc()).collect();
    for page in pages {
        region.free(cpu(0), page, o(0)).unwrap();
    }
    // The domain's depot has 8 magazines of 64 pages, the node's 3: one in 76 pages of memory.
    assert_eq!(region.validate().unwrap().depots, 11 * 64);
    region.tick();
    assert_eq!(region.depot_returned(), 0, "they came a moment ago");
    region.tick();
    assert_eq!((region.depot_returned(), region.validate().unwrap().depots), (128, 9 * 64));
    assert!(region.drain_all());
    assert_eq!(region.depot_returned(), 11 * 64);
    assert_eq!(region.whole_blocks(), 32);
}

#[test]
fn drain_all_tells_that_a_pinned_cpu_keeps_its_frames() {
    let storage = Storage::new(4096, 2, 2).unwrap();
    let region = full(&storage, 4096);
    for pinned in 0..2 {
        let pinned = region.pin(cpu(pinned)).unwrap();
        assert!(!region.drain_all());
        drop(pinned);
        assert!(region.drain_all());
    }
}

#[test]
fn a_call_does_bounded_work_for_its_size() {
    // A free never spills a magazine: whatever the CPU keeps, one call returns at most the pending
    // word, one block, or exchanges one magazine.
    const FRAMES: u32 = 64 * 512;
    let storage = Storage::new(FRAMES, 1, 1).unwrap();
    let region = full(&storage, FRAMES);
    let mut held = vec![];
    while let Some(pfn) = region.alloc(cpu(0), o(0), MigrateType::Movable) {
        held.push(pfn);
    }
    for (pfn, before) in held.into_iter().map(|pfn| (pfn, region.counts(cpu(0)).unwrap())) {
        region.free(cpu(0), pfn, o(0)).unwrap();
        let after = region.counts(cpu(0)).unwrap();
        assert!(after.returned - before.returned <= 64);
        assert!(after.depot_in - before.depot_in <= 64);
    }
}
