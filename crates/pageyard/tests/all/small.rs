//! Small machines without reclaim: how many pages requests get, with the default settings and with
//! [`Knobs::small`], and what the drain before a failure adds.

use crate::common;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use common::any::{AnyHooks, SharedHooks, any_hooks, shared_hooks};
use common::by_thread::CPU;
use common::{Chosen, LINUX612, Lock, Machine, frames};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    CpuId, Defences, Gfp, Hooked, Knobs, Observer, Order, Pfn, Platform, Reclaim, Yard, ZoneKind,
};

const MIB: u64 = 256;
const PACKED: Chosen = &<Packed>::RULES;

/// A machine whose threads set their CPU, and which may drain before a request fails.
#[derive(Default)]
struct NoReclaim {
    drains: AtomicBool,
}

impl Platform for NoReclaim {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
    fn drain_on_failure(&self) -> bool {
        self.drains.load(Relaxed)
    }
}
impl Reclaim for NoReclaim {}
impl Observer for NoReclaim {}
impl Defences for NoReclaim {}

type Y<'y, 'm> = Yard<'y, Hooked<Lock, AnyHooks<'m>, Chosen>>;
type SharedYard<'y, 'm> = Yard<'y, Hooked<Lock, SharedHooks<'m>, Chosen>>;

/// Allocates single pages until a request fails.
fn all_pages(y: &Y<'_, '_>, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| y.alloc(Order::ZERO, gfp | Gfp::NOWARN).ok()).collect()
}

/// How many pages ordinary and urgent requests get, with a DMA zone as a PC has it if `dma`.
fn pages_had(mib: u64, dma: bool, knobs: Knobs) -> [usize; 3] {
    let machine = if dma {
        Machine::new().zone(ZoneKind::Dma, 0..16 * MIB).zone(ZoneKind::Dma32, 16 * MIB..mib * MIB)
    } else {
        Machine::new().zone(ZoneKind::Dma32, 0..mib * MIB)
    };
    let machine = machine.knobs(|k| *k = knobs);
    let hooks = NoReclaim::default();
    [Gfp::KERNEL, Gfp::ATOMIC, Gfp::ATOMIC | Gfp::MEMALLOC].map(|gfp| {
        machine.run_on_under(any_hooks(&hooks), LINUX612, |y: &Y<'_, '_>| all_pages(y, gfp).len())
    })
}

#[test]
fn small_machines_get_more_pages_with_the_profile() {
    let had = [(222, false), (222, true), (40, false)]
        .map(|(mib, dma)| [Knobs::DEFAULT, Knobs::small()].map(|knobs| pages_had(mib, dma, knobs)));
    let pages = [
        [[53_746, 55_666, 56_832], [56_146, 56_626, 56_832]],
        [[53_586, 55_154, 56_832], [55_666, 56_178, 56_832]],
        [[9_728, 10_048, 10_240], [10_016, 10_144, 10_240]],
    ];
    assert_eq!(had, pages);
}

/// Without a drain, a request for the last reserves fails while pages are on the lists of other CPUs.
#[test]
fn pages_on_other_cpus_lists_are_had_after_a_drain() {
    let machine = Machine::normal(64 * MIB).cpus(&[0; 4]);
    let hooks = NoReclaim::default();
    machine.run_on_under(any_hooks(&hooks), LINUX612, |y: &Y<'_, '_>| {
        // Each CPU frees pages that stay on its lists.
        let mut pages = all_pages(y, Gfp::ATOMIC | Gfp::MEMALLOC);
        let all = pages.len();
        for cpu in 1..4 {
            CPU.set(cpu);
            pages.drain(..30).for_each(|p| y.free(p, Order::ZERO).unwrap());
        }
        CPU.set(0);
        let cached = || y.zone_info(ZoneKind::Normal).unwrap().cached;
        assert_eq!((all as u64, cached()), (64 * MIB, 90));
        for gfp in [Gfp::KERNEL, Gfp::ATOMIC, Gfp::ATOMIC | Gfp::MEMALLOC] {
            assert!(all_pages(y, gfp).is_empty(), "requests fail as in Linux");
        }
        assert_eq!(cached(), 90);
        hooks.drains.store(true, Relaxed);
        // Ordinary requests fail their watermark even after the drain.
        assert!(all_pages(y, Gfp::KERNEL).is_empty());
        assert_eq!(cached(), 0, "one drain for each failed request");
        let last = all_pages(y, Gfp::ATOMIC | Gfp::MEMALLOC);
        assert_eq!(last.len(), 90);
        pages.into_iter().chain(last).for_each(|p| y.free(p, Order::ZERO).unwrap());
        assert_eq!(y.validate(), Ok(()));
        let range = frames(0..64 * MIB);
        assert_eq!(range.end.0 - range.start.0, all as u64);
    });
}

/// The drain finds a block for a large order as well: pages on lists keep their buddies from merging.
#[test]
fn a_large_block_is_had_after_a_drain() {
    let machine = Machine::normal(1024).cpus(&[0; 2]);
    let hooks = NoReclaim::default();
    machine.run_on_under(any_hooks(&hooks), LINUX612, |y: &Y<'_, '_>| {
        let gfp = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
        CPU.set(1);
        let page = y.alloc(Order::ZERO, gfp).unwrap();
        y.free(page, Order::ZERO).unwrap();
        CPU.set(0);
        assert!(y.alloc(Order::MAX, gfp).is_err());
        hooks.drains.store(true, Relaxed);
        assert_eq!(y.alloc(Order::MAX, gfp), Ok(Pfn(0)));
    });
}

/// A drain that another CPU is in may have passed the CPU that has the pages. The request waits for it
/// and drains again.
#[test]
fn a_drain_by_another_cpu_is_no_reason_to_fail() {
    let gfp = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
    let hooks = NoReclaim::default();
    hooks.drains.store(true, Relaxed);
    let machine = Machine::normal(4096).cpus(&[0; 4]);
    for policy in [LINUX612, PACKED] {
        machine.run_on_under(shared_hooks(&hooks), policy, |y: &SharedYard<'_, '_>| {
            let all = || std::iter::from_fn(|| y.alloc(Order::ZERO, gfp).ok());
            let mut pages: Vec<Pfn> = all().collect();
            let over = AtomicBool::new(false);
            std::thread::scope(|s| {
                s.spawn(|| {
                    CPU.set(1);
                    while !over.load(Relaxed) {
                        y.drain_all(None);
                    }
                });
                for _ in 0..3000 {
                    CPU.set(3);
                    let freed = pages.split_off(pages.len() - 10);
                    freed.into_iter().for_each(|p| y.free(p, Order::ZERO).unwrap());
                    CPU.set(0);
                    pages.extend(all().take(10));
                }
                over.store(true, Relaxed);
            });
            assert_eq!(pages.len(), 4096);
        });
    }
}
