//! How well the engine packs: after rounds of frees and allocations, the share of whole pageblocks
//! among those that the free memory could form.

use crate::*;

const FRAMES: u32 = 1 << 18;

/// Orders, roughly as often as programs request them.
const MIXED: [u8; 10] = [0, 1, 0, 0, 2, 0, 0, 1, 0, 3];

/// Fills memory, frees half of it at random, then in each round frees a tenth and allocates it
/// again. Returns the share of possible whole pageblocks.
fn pack(cpus: usize, orders: &[u8], types: usize, rounds: u32) -> f64 {
    let storage = Storage::new(FRAMES, cpus as u32, cpus as u32).unwrap();
    let region = full(&storage, FRAMES);
    let mut numbers = Numbers(7);
    let mut blocks = vec![];
    let alloc = |numbers: &mut Numbers, blocks: &mut Vec<(Pfn, Order, usize)>, order: Order| {
        let t = TYPES[numbers.below(types) * (types - 1).min(1) + usize::from(types == 1)];
        let on = numbers.below(cpus);
        let pfn = region.alloc(cpu(on), order, t);
        blocks.extend(pfn.map(|pfn| (pfn, order, on)));
        pfn.is_some()
    };
    while {
        let order = o(orders[blocks.len() % orders.len()]);
        alloc(&mut numbers, &mut blocks, order)
    } {}
    let free = |numbers: &mut Numbers, blocks: &mut Vec<(Pfn, Order, usize)>| {
        let (pfn, order, on) = blocks.swap_remove(numbers.below(blocks.len()));
        region.free(cpu(on), pfn, order).unwrap();
        order
    };
    for _ in 0..blocks.len() / 2 {
        free(&mut numbers, &mut blocks);
    }
    for _ in 0..rounds {
        let freed: Vec<_> =
            (0..blocks.len() / 10).map(|_| free(&mut numbers, &mut blocks)).collect();
        for order in freed {
            assert!(alloc(&mut numbers, &mut blocks, order));
        }
        region.tick();
    }
    assert!(region.drain_all());
    region.validate().unwrap();
    let used: u64 = blocks.iter().map(|(_, order, _)| u64::from(order.pages())).sum();
    let possible = (u64::from(FRAMES) - used) / 512;
    region.whole_blocks() as f64 / possible as f64
}

#[test]
fn single_pages_are_packed() {
    for cpus in [1, 4] {
        let share = pack(cpus, &[0], 1, 100);
        println!("order 0, {cpus} CPUs: {share:.3}");
        assert!(share >= 0.97, "{share:.3} on {cpus} CPUs");
    }
}

#[test]
fn mixed_orders_are_packed() {
    for cpus in [1, 4] {
        let share = pack(cpus, &MIXED, 1, 100);
        println!("orders 0 to 3, {cpus} CPUs: {share:.3}");
        assert!(share >= 0.88, "{share:.3} on {cpus} CPUs");
    }
}

#[test]
fn mixed_types_are_packed() {
    for cpus in [1, 4] {
        let share = pack(cpus, &MIXED, 3, 100);
        println!("three types, {cpus} CPUs: {share:.3}");
        assert!(share >= 0.85, "{share:.3} on {cpus} CPUs");
    }
}

#[test]
fn the_type_of_a_pageblock_without_free_frames_can_be_set() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = full(&storage, 4096);
    let pages: Vec<Pfn> =
        (0..1200).map(|_| region.alloc(CpuId(0), o(0), MigrateType::Movable).unwrap()).collect();
    region.drain_all();
    let free = |pfn: &&Pfn| region.free_in_block(**pfn).unwrap();
    let block = *pages.iter().find(|pfn| free(pfn) == 0).unwrap();
    for t in TYPES {
        assert!(region.set_block_type(block, t));
        assert_eq!(region.block_type(block), Some(t));
    }
    let partly_free = *pages.iter().find(|pfn| free(pfn) > 0).unwrap();
    let whole = region.alloc(CpuId(0), o(9), MigrateType::Movable).unwrap();
    assert!(!region.set_block_type(block, MigrateType::Isolate));
    for other in [partly_free, whole, Pfn(5000)] {
        let before = region.block_type(other);
        assert!(!region.set_block_type(other, MigrateType::Unmovable), "{other}");
        assert_eq!(region.block_type(other), before);
    }
}

#[test]
fn the_type_of_each_pageblock_is_its_own() {
    let storage = Storage::new(4096, 1, 1).unwrap();
    let region = storage.region(Pfn(1 << 20)).unwrap();
    let types = || [0, 1, 2, 7].map(|b| region.block_type(Pfn((1 << 20) + b * 512 + 511)).unwrap());
    let (m, u) = (MigrateType::Movable, MigrateType::Unmovable);
    assert_eq!(types(), [m; 4]);
    assert!(region.set_block_type(Pfn((1 << 20) + 2 * 512 + 5), u));
    assert_eq!(types(), [m, m, u, m]);
}

/// Requests that look at all pageblocks for a block each do not all begin with those that have none.
#[test]
fn a_search_of_all_pageblocks_goes_on_where_the_last_one_ended() {
    let storage = Storage::new(64 * 512, 1, 1).unwrap();
    let region = full(&storage, 64 * 512);
    while region.alloc(CpuId(0), o(0), MigrateType::Movable).is_some() {}
    // All have as many free frames, so none is preferred.
    let runs = |block| if [20, 30, 40].contains(&block) { 16 } else { 0 };
    for block in 0..64_u64 {
        let frames = (0..512).filter(|&n| n < runs(block) || n >= runs(block) * 2 && n % 2 == 1);
        frames.for_each(|n| region.free(CpuId(0), Pfn(block * 512 + n), o(0)).unwrap());
    }
    let held: Vec<Pfn> = (0..8)
        .map(|n| {
            region.drain_all();
            let pfn = region.alloc(CpuId(0), o(3), MigrateType::Movable);
            if n == 2 {
                // The next one is sought behind it, not here.
                region.free(CpuId(0), Pfn(20 * 512), o(3)).unwrap();
            }
            pfn.unwrap_or(Pfn(u64::MAX))
        })
        .collect();
    let places: Vec<u64> = held.iter().map(|pfn| pfn.0 / 512).take(7).collect();
    assert_eq!(places, [20, 20, 30, 30, 40, 40, 20]);
    assert_eq!(held[7], Pfn(u64::MAX), "no other is there");
}
