//! The packed engine: three CPUs that allocate, free each other's blocks, drain, tick and isolate.

use pageyard::packed::{OwnedStorage, Region};
use pageyard::{CpuId, MigrateType, Order, Pfn};
use shuttle::sync::atomic::{AtomicU32, Ordering::SeqCst};
use shuttle::thread;

use crate::common::o;
use crate::schedules::{explore, find};
use crate::stage::{Stage, Turns};

const BLOCKS: u32 = 4;

type R<'a> = Region<'a, Turns>;
type Part = fn(&R<'_>, &Stage, CpuId);

/// Runs three parts on three CPUs, then frees what is left: every pageblock must be whole again.
fn scenario(parts: [Part; 3]) -> impl Fn() + Send + Sync {
    move || {
        let storage = OwnedStorage::<Turns>::new(BLOCKS * 512, 3, 3).unwrap();
        let region = &storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(u64::from(BLOCKS) * 512)).unwrap();
        let owners = &Stage::default();
        thread::scope(|s| {
            for (cpu, part) in (0..).map(CpuId).zip(parts) {
                s.spawn(move || part(region, owners, cpu));
            }
        });
        region.validate().unwrap();
        while let Some((pfn, order)) = owners.disown() {
            region.free(CpuId(0), pfn, order).unwrap();
        }
        assert!(region.drain_all(), "drain_all fails only while a CPU is in a request");
        region.validate().unwrap();
        assert_eq!(region.whole_blocks(), u64::from(BLOCKS), "frames are lost");
    }
}

fn take(region: &R<'_>, owners: &Stage, cpu: CpuId, order: u8, t: MigrateType) {
    if let Some(pfn) = region.alloc(cpu, o(order), t) {
        owners.own(pfn, o(order));
    }
}

/// Frees the lowest block in use, whichever CPU allocated it.
fn free_one(region: &R<'_>, owners: &Stage, cpu: CpuId) {
    if let Some((pfn, order)) = owners.disown() {
        region.free(cpu, pfn, order).unwrap();
    }
}

/// Allocates blocks of several orders and two types, and frees half of them.
fn requests(region: &R<'_>, owners: &Stage, cpu: CpuId) {
    let t = [MigrateType::Movable, MigrateType::Unmovable][cpu.0 as usize % 2];
    for order in [0, 3, 0, 6, 9, 1] {
        take(region, owners, cpu, order, t);
        if order != 0 {
            free_one(region, owners, cpu);
        }
    }
}

fn upkeep(region: &R<'_>, owners: &Stage, cpu: CpuId) {
    take(region, owners, cpu, 0, MigrateType::Movable);
    region.tick();
    region.drain(CpuId(0));
    free_one(region, owners, cpu);
    region.drain_all();
}

fn isolation(region: &R<'_>, owners: &Stage, cpu: CpuId) {
    for block in [0, 512] {
        if region.isolate(Pfn(block)).is_ok() {
            free_one(region, owners, cpu);
            region.unisolate(Pfn(block)).unwrap();
        }
    }
}

#[test]
fn requests_of_the_packed_engine() {
    explore("packed: requests", 200, scenario([requests; 3]));
    explore("packed: drains", 200, scenario([requests, upkeep, requests]));
    explore("packed: isolation", 200, scenario([requests, isolation, requests]));
    explore("packed: everything", 200, scenario([requests, isolation, upkeep]));
}

/// Allocates all memory in pieces of 64 pages. A CPU that takes the last frames returns those it
/// cannot use.
#[test]
fn the_last_blocks_of_the_packed_engine() {
    let exhaust: Part = |region, owners, cpu| {
        for _ in 0..12 {
            take(region, owners, cpu, 6 + (cpu.0 % 3) as u8, MigrateType::Movable);
        }
        free_one(region, owners, cpu);
        take(region, owners, cpu, 5, MigrateType::Reclaimable);
    };
    explore("packed: the last blocks", 200, scenario([exhaust; 3]));
}

/// How a thread frees a block that the other threads free too.
type Way = fn(&R<'_>, CpuId, Pfn, Order) -> bool;

/// Three threads free the same blocks: exactly one free of each block succeeds.
fn everybody_frees(way: Way) -> impl Fn() + Send + Sync {
    move || {
        let storage = OwnedStorage::<Turns>::new(BLOCKS * 512, 3, 3).unwrap();
        let region = &storage.region(Pfn(0)).unwrap();
        region.add(Pfn(0)..Pfn(u64::from(BLOCKS) * 512)).unwrap();
        let blocks = [0, 4, 0, 9].map(|order| {
            let pfn = region.alloc(CpuId(0), o(order), MigrateType::Movable).unwrap();
            (pfn, o(order), AtomicU32::new(0))
        });
        thread::scope(|s| {
            for cpu in (0..3).map(CpuId) {
                let blocks = &blocks;
                s.spawn(move || {
                    for (pfn, order, freed) in blocks {
                        if way(region, cpu, *pfn, *order) {
                            freed.fetch_add(1, SeqCst);
                        }
                    }
                });
            }
        });
        for (pfn, order, freed) in &blocks {
            assert_eq!(freed.load(SeqCst), 1, "{pfn} of order {} was freed", order.get());
        }
        region.drain_all();
        region.validate().unwrap();
        assert_eq!(region.whole_blocks(), u64::from(BLOCKS), "frames are lost");
    }
}

#[test]
fn frees_of_the_same_blocks_of_the_packed_engine() {
    let free: Way = |region, cpu, pfn, order| region.free(cpu, pfn, order).is_ok();
    explore("packed: the same blocks", 200, everybody_frees(free));
}

/// The planted bug: `free_owned` by threads that free the same block concurrently.
#[test]
fn false_owners_in_the_packed_engine_are_detected() {
    let owned: Way = |region, cpu, pfn, order| region.free_owned(cpu, pfn, order).is_ok();
    let found = find(200, everybody_frees(owned)).expect_err("a block is freed twice");
    // Two of the three, or all.
    let several = ["left: 2", "left: 3"].iter().any(|n| found.why.contains(n));
    assert!(found.why.contains("was freed") && several, "{}", found.why);
}
