//! Many nodes (spec §1.2, §2.5, §2.7, §2.8, §9.1).

use crate::common;

use std::cell::Cell;

use common::any::On;
use common::{Chosen, LINUX612, Machine, Y, o};
use pageyard::{
    AllocError, Context, CpuId, Cpuset, Defences, Gfp, Hooked, Hooks, Interleave, NodeCaches,
    NodeChoice, NodeId, NodeMask, NodeReclaim, NodeReclaimJob, Observer, Order, Pfn, Platform,
    Reclaim, TaskFlags, Yard, ZoneId, ZoneKind,
};

const PAGES: u64 = 1 << 13;

/// `n` nodes with a NORMAL zone each and one CPU each.
fn nodes(n: u16) -> Machine {
    let cpus: Vec<u16> = (0..n).collect();
    (0..n).fold(Machine::new().cpus(&cpus), |m, i| {
        let start = u64::from(i) * PAGES;
        m.zone_on(i, ZoneKind::Normal, start..start + PAGES)
    })
}

fn order_of(y: &Y<'_>, node: u16) -> Vec<u16> {
    y.zonelist(NodeId(node), ZoneKind::Normal).map(|z| z.node.0).collect()
}

fn node_of<E: Hooks>(y: &Yard<'_, Hooked<common::Lock, E, Chosen>>, pfn: Pfn) -> u16 {
    y.zone_of(pfn).unwrap().node.0
}

/// Allocates everything that requests bound to a node get.
fn exhaust<E: Hooks>(y: &Yard<'_, Hooked<common::Lock, E, Chosen>>, node: u16) -> Vec<Pfn> {
    let gfp = Gfp::THISNODE | Gfp::MEMALLOC | Gfp::NOWARN;
    std::iter::from_fn(|| y.alloc_on(NodeId(node), Order::ZERO, gfp).ok()).collect()
}

#[test]
fn s2_5_equally_near_nodes_alternate_as_second_choice() {
    nodes(4).run(|y| {
        assert_eq!(order_of(y, 0), [0, 1, 2, 3]);
        assert_eq!(order_of(y, 1), [1, 2, 3, 0]);
        assert_eq!(order_of(y, 2), [2, 3, 0, 1]);
        assert_eq!(order_of(y, 3), [3, 0, 1, 2]);
    });
}

#[test]
fn s2_5_nearer_nodes_come_first() {
    #[rustfmt::skip]
    let rows = [
        10, 30, 20, 30,
        30, 10, 30, 20,
        20, 30, 10, 30,
        30, 20, 30, 10,
    ];
    nodes(4).distances(&rows).run(|y| {
        assert_eq!(order_of(y, 0), [0, 2, 1, 3]);
        assert_eq!(order_of(y, 1)[..2], [1, 3]);
        assert_eq!(order_of(y, 3)[..2], [3, 1]);
        assert_eq!(y.distance(NodeId(0), NodeId(2)), Some(20));
        assert_eq!(y.distance(NodeId(0), NodeId(4)), None);
    });
}

#[test]
fn s2_5_a_node_without_cpus_is_the_better_second_choice() {
    nodes(3).cpus(&[0, 1]).run(|y| {
        assert_eq!(order_of(y, 0), [0, 2, 1], "node 2 has no CPUs");
    });
}

#[test]
fn s2_5_within_a_node_the_highest_zone_comes_first() {
    let m = Machine::new()
        .cpus(&[0, 1])
        .zone(ZoneKind::Dma32, 0..PAGES)
        .zone(ZoneKind::Normal, PAGES..2 * PAGES)
        .zone_on(1, ZoneKind::Normal, 2 * PAGES..3 * PAGES)
        .zone_on(1, ZoneKind::Movable, 3 * PAGES..4 * PAGES);
    m.run(|y| {
        let list = |highest| -> Vec<(u16, ZoneKind)> {
            y.zonelist(NodeId(0), highest).map(|z| (z.node.0, z.kind)).collect()
        };
        use ZoneKind::{Dma32, Movable, Normal};
        assert_eq!(list(Movable), [(0, Normal), (0, Dma32), (1, Movable), (1, Normal)]);
        assert_eq!(list(Dma32), [(0, Dma32)]);
        // Lowmem reserve counts only the zones above on the same node (§3.5).
        let dma32 = y.zone_info(Dma32).unwrap();
        assert_eq!(dma32.lowmem_reserve, [0, 0, PAGES / 256, PAGES / 256, PAGES / 256]);
    });
}

#[test]
fn s9_1_requests_stay_near_and_are_counted() {
    nodes(2).run(|y| {
        let id = |n| ZoneId { node: NodeId(n), kind: ZoneKind::Normal };
        let near = y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, near), 0);
        let far = y.alloc_on(NodeId(1), o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, far), 1);
        let stats = |n| y.zone_stats(id(n)).unwrap().numa;
        assert_eq!((stats(0).hit, stats(0).local, stats(0).other), (1, 1, 0));
        assert_eq!((stats(1).hit, stats(1).local, stats(1).other), (1, 0, 1));

        let taken = exhaust(y, 0);
        assert_eq!(y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE), Err(AllocError::NoMemory));
        let before = stats(1).hit;
        let over = y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, over), 1);
        assert_eq!((stats(0).foreign, stats(1).miss, stats(1).hit), (1, 1, before));
        for pfn in taken.into_iter().chain([near, far, over]) {
            y.free(pfn, o(0)).unwrap();
        }
        y.drain_all(None);
        for n in 0..2 {
            assert_eq!(y.zone_info(id(n)).unwrap().free_exact, PAGES);
        }
    });
}

#[test]
fn masks_select_nodes_and_unknown_nodes_are_rejected() {
    nodes(3).run(|y| {
        let mask = NodeMask::only(NodeId(1)).with(NodeId(2));
        let pfn = y.alloc_on(mask, o(4), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, pfn), 1);
        let choice = NodeChoice { preferred: Some(NodeId(2)), allowed: mask };
        assert_eq!(node_of(y, y.alloc_on(choice, o(4), Gfp::KERNEL).unwrap()), 2);
        let none = y.alloc_on(NodeMask::NONE, o(0), Gfp::KERNEL);
        assert_eq!(none, Err(AllocError::NoMemory));
        let third = y.alloc_on(NodeId(3), o(0), Gfp::KERNEL);
        assert_eq!(third, Err(AllocError::UnknownNode(NodeId(3))));
        assert_eq!(y.node_of(CpuId(2)), Some(NodeId(2)));
        assert_eq!(y.node_of(CpuId(3)), None);
    });
}

#[test]
fn cpus_of_a_node_without_memory_use_the_nearest() {
    let m = Machine::new()
        .cpus(&[0])
        .zone_on(1, ZoneKind::Normal, 0..PAGES)
        .zone_on(2, ZoneKind::Normal, PAGES..2 * PAGES)
        .distances(&[10, 40, 20, 40, 10, 40, 20, 40, 10]);
    m.run(|y| {
        assert_eq!(order_of(y, 0), [2, 1]);
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, pfn), 2);
        y.free(pfn, o(0)).unwrap();
        let here = y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE);
        assert_eq!(here, Err(AllocError::NoMemory), "this node has no memory");
        let bulk = y.alloc_bulk_each(10, Gfp::KERNEL, |p| assert_eq!(node_of(y, p), 2));
        assert_eq!(bulk, Ok(10));
    });
}

#[test]
fn interleaving_alternates_nodes() {
    nodes(3).run(|y| {
        let turns = Interleave::new(NodeMask::only(NodeId(0)).with(NodeId(2)));
        let got: Vec<u16> = (0..5)
            .map(|_| node_of(y, y.alloc_interleaved(&turns, o(0), Gfp::KERNEL).unwrap()))
            .collect();
        assert_eq!(got, [0, 2, 0, 2, 0]);
        let id = |n| ZoneId { node: NodeId(n), kind: ZoneKind::Normal };
        let count = |n| y.zone_stats(id(n)).unwrap().numa.interleave;
        assert_eq!([count(0), count(1), count(2)], [3, 0, 2]);
    });
}

#[test]
fn preferred_nodes_are_used_until_empty() {
    nodes(3).run(|y| {
        let mask = NodeMask::only(NodeId(1));
        let pfn = y.alloc_preferring(mask, o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, pfn), 1);
        exhaust(y, 1);
        let pfn = y.alloc_preferring(mask, o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, pfn), 0);
    });
}

#[test]
fn s2_8_mixing_types_is_preferred_over_remote_memory() {
    // Requests on node 0 start with NOFRAGMENT, since it has a DMA32 zone to fall back to.
    let m = Machine::new()
        .cpus(&[0, 1])
        .zone(ZoneKind::Dma32, 0..PAGES)
        .zone(ZoneKind::Normal, PAGES..2 * PAGES)
        .zone_on(1, ZoneKind::Normal, 2 * PAGES..3 * PAGES)
        .knobs(|k| k.watermark_boost_factor = 0);
    m.run(|y| {
        // On node 0, DMA32 is full, and NORMAL is movable with every other page free.
        let gfp = Gfp::MOVABLE | Gfp::THISNODE | Gfp::MEMALLOC | Gfp::NOWARN;
        let mut taken: Vec<Pfn> = std::iter::from_fn(|| y.alloc(o(0), gfp).ok()).collect();
        taken.sort();
        for &pfn in taken.iter().filter(|p| p.0 >= PAGES && p.0 % 2 == 0) {
            y.free(pfn, o(0)).unwrap();
        }
        y.drain_all(None);
        let pfn = y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(node_of(y, pfn), 0, "node 1 is free, but remote");
    });
}

#[test]
fn s2_7_with_several_nodes_nofragment_needs_a_local_lower_zone() {
    // With other nodes and no local DMA32 zone, requests do not start with NOFRAGMENT.
    let nofragment = |m: Machine, node| {
        m.run(|y| {
            let mut found = None;
            y.snapshot((NodeId(node), ZoneKind::Normal), |r| {
                if let pageyard::Record::Zone(z) = r {
                    found = Some(z.nofragment);
                }
            });
            found.unwrap()
        })
    };
    assert!(nofragment(nodes(1), 0));
    assert!(!nofragment(nodes(2), 0));
    let both = Machine::new()
        .cpus(&[0, 1])
        .zone(ZoneKind::Dma32, 0..PAGES)
        .zone(ZoneKind::Normal, PAGES..2 * PAGES)
        .zone_on(1, ZoneKind::Normal, 2 * PAGES..3 * PAGES);
    assert!(nofragment(both.clone(), 0));
    assert!(!nofragment(both, 1));
}

/// A platform whose task and context the test sets.
#[derive(Default)]
struct Tasks {
    context: Cell<Context>,
    dirty: Cell<u64>,
    asked: Cell<u32>,
    reclaimed: Cell<Option<NodeReclaim>>,
    node_reclaims: Cell<u32>,
    job: Cell<Option<NodeReclaimJob>>,
    caches: Cell<Option<NodeCaches>>,
    fails: Cell<u32>,
}

impl Platform for Tasks {}

impl Reclaim for Tasks {
    fn is_plain(&self, _: Gfp) -> bool {
        self.context.get() == Context::default() && self.dirty.get() == 0
    }

    fn context(&self) -> Context {
        self.context.get()
    }

    fn dirty_ok(&self, node: NodeId) -> bool {
        self.asked.set(self.asked.get() + 1);
        !NodeMask(self.dirty.get()).contains(node)
    }

    fn node_caches(&self, _: &NodeReclaimJob) -> Option<NodeCaches> {
        self.caches.get()
    }

    fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
        self.node_reclaims.set(self.node_reclaims.get() + 1);
        self.job.set(Some(*job));
        self.reclaimed.get().unwrap_or(NodeReclaim::NoScan)
    }
}

impl Observer for Tasks {}
impl Defences for Tasks {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        let left = self.fails.get();
        self.fails.set(left.saturating_sub(1));
        left > 0
    }
}

#[test]
fn s2_7_cpusets_confine_requests() {
    nodes(3).run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
        let only = |n| NodeMask::only(NodeId(n));
        let set = |allowed, hardwall, flags| {
            let cpuset = Some(Cpuset { allowed, hardwall });
            y.hooks().context.set(Context { cpuset, flags, ..Context::default() });
        };
        set(only(1), only(1), TaskFlags::empty());
        assert_eq!(node_of(y, y.alloc(o(0), Gfp::KERNEL).unwrap()), 1);
        exhaust(y, 1);
        assert_eq!(y.alloc(o(0), Gfp::USER | Gfp::NOWARN), Err(AllocError::NoMemory));
        // A larger set around it is hard-walled: kernel memory may come from there.
        set(only(1), only(1).with(NodeId(2)), TaskFlags::empty());
        let got = y.alloc(o(0), Gfp::NOWAIT).unwrap();
        assert_eq!(node_of(y, got), 2);
        assert_eq!(y.alloc(o(0), Gfp::USER | Gfp::NOWARN), Err(AllocError::NoMemory));
        // Interrupts belong to no cpuset.
        set(only(1), only(1), TaskFlags::INTERRUPT);
        assert_eq!(node_of(y, y.alloc(o(0), Gfp::ATOMIC).unwrap()), 0);
    });
}

#[test]
fn a_request_that_prefers_nodes_is_made_to_fail_once() {
    nodes(2).run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
        y.hooks().fails.set(1);
        let mask = NodeMask::only(NodeId(1));
        assert_eq!(y.alloc_preferring(mask, o(0), Gfp::KERNEL), Err(AllocError::NoMemory));
        assert!(y.alloc_preferring(mask, o(0), Gfp::KERNEL).is_ok());
    });
}

#[test]
fn s2_7_scopes_clear_flags() {
    nodes(1).run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
        let without = Gfp::MOVABLE;
        y.hooks().context.set(Context { without, ..Context::default() });
        let pfn = y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(y.block_type(pfn), Some(pageyard::MigrateType::Unmovable), "pinned for long");
    });
}

#[test]
fn s2_8_dirty_pages_are_spread() {
    nodes(2).run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
        y.hooks().dirty.set(1);
        let write = Gfp::HIGHUSER_MOVABLE | Gfp::WRITE;
        assert_eq!(node_of(y, y.alloc(o(0), write).unwrap()), 1);
        assert_eq!(node_of(y, y.alloc(o(0), Gfp::HIGHUSER_MOVABLE).unwrap()), 0);
        // If every node is at its limit, the slow path ignores the limits.
        y.hooks().dirty.set(3);
        assert_eq!(node_of(y, y.alloc(o(0), write).unwrap()), 0);
    });
}

#[test]
fn s2_8_a_node_reclaims_before_a_farther_one_is_used() {
    let m = nodes(2).distances(&[10, 31, 31, 10]);
    for mode in [0, 1] {
        let m = m.clone().knobs(|k| k.zone_reclaim_mode = mode);
        m.run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
            exhaust(y, 0);
            y.hooks().node_reclaims.set(0);
            assert_eq!(node_of(y, y.alloc(o(0), Gfp::KERNEL).unwrap()), 1);
            assert_eq!(y.hooks().node_reclaims.get(), mode);
        });
    }
}

#[test]
fn a_node_is_reclaimed_up_to_a_distance_of_30() {
    for (distance, asked) in [(30, 2), (31, 1)] {
        #[rustfmt::skip]
        let rows = [
            10, distance, 90,
            distance, 10, 90,
            90, 90, 10,
        ];
        let m = nodes(3).distances(&rows).knobs(|k| k.zone_reclaim_mode = 1);
        m.run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
            exhaust(y, 0);
            exhaust(y, 1);
            y.hooks().node_reclaims.set(0);
            assert_eq!(node_of(y, y.alloc(o(0), Gfp::KERNEL).unwrap()), 2);
            // The local node is reclaimed, and the other full one if it is near.
            assert_eq!(y.hooks().node_reclaims.get(), asked, "at {distance}");
        });
    }
}

#[test]
fn types_are_mixed_locally_before_using_another_node() {
    let m = Machine::new()
        .cpus(&[0, 1])
        .zone(ZoneKind::Dma32, 0..PAGES)
        .zone(ZoneKind::Normal, PAGES..2 * PAGES)
        .zone_on(1, ZoneKind::Normal, 2 * PAGES..3 * PAGES);
    m.run(|y| {
        // Node 0 has movable pageblocks, half of each free, so unmovable requests must mix types.
        let movable = Gfp::HIGHUSER_MOVABLE | Gfp::THISNODE | Gfp::MEMALLOC | Gfp::NOWARN;
        let halves: Vec<Pfn> =
            std::iter::from_fn(|| y.alloc_on(NodeId(0), o(8), movable).ok()).collect();
        assert!(halves.len() as u64 >= PAGES / 256);
        for &pfn in halves.iter().filter(|p| p.0 / 256 % 2 == 0) {
            y.free(pfn, o(8)).unwrap();
        }
        for order in [0, 3, 6] {
            let pfn = y.alloc(o(order), Gfp::KERNEL).unwrap();
            assert_eq!(node_of(y, pfn), 0, "order {order}: node 1 is free, but remote");
        }
    });
}

#[test]
fn s10_node_reclaim_keeps_the_configured_share() {
    let m = nodes(2).knobs(|k| {
        k.zone_reclaim_mode = 1 | 4;
        k.min_unmapped_ratio = 3;
        k.min_slab_ratio = 7;
    });
    m.run_with(Tasks::default(), LINUX612, |y: &On<'_, Tasks>| {
        exhaust(y, 0);
        let asked = |caches: Option<(u64, u64)>| {
            let p = y.hooks();
            p.caches.set(caches.map(|(unmapped, slab)| NodeCaches { unmapped, slab }));
            p.job.set(None);
            assert_eq!(node_of(y, y.alloc(o(2), Gfp::KERNEL).unwrap()), 1);
            p.job.take()
        };
        let job = asked(None).expect("with unknown caches reclaim is asked");
        assert_eq!((job.node, job.order, job.gfp), (NodeId(0), o(2), Gfp::KERNEL));
        assert_eq!((job.pages, job.may_write, job.may_unmap), (32, false, true));
        let (unmapped, slab) = (PAGES * 3 / 100, PAGES * 7 / 100);
        assert_eq!((job.min_unmapped, job.min_slab), (unmapped, slab));
        assert_eq!(asked(Some((unmapped, slab))), None, "no more than the configured share");
        assert_eq!(asked(Some((unmapped + 1, slab))), Some(job));
        assert_eq!(asked(Some((unmapped, slab + 1))), Some(job));
        // The current settings apply.
        y.set_knob("min_unmapped_ratio", "100").unwrap();
        assert_eq!(asked(Some((unmapped + 1, slab))), None);
        y.set_knob("min_slab_ratio", "0").unwrap();
        y.set_knob("zone_reclaim_mode", "2").unwrap();
        let job = asked(Some((0, 1))).unwrap();
        assert_eq!((job.min_unmapped, job.min_slab), (PAGES, 0));
        assert!(job.may_write && !job.may_unmap);
    });
}

#[test]
fn s9_1_s10_events_do_not_change_without_numa_stat() {
    let id = |n| ZoneId { node: NodeId(n), kind: ZoneKind::Normal };
    nodes(2).run(|y| {
        let stats = || [0, 1].map(|n| y.zone_stats(id(n)).unwrap().numa);
        let turns = Interleave::new(NodeMask::only(NodeId(1)));
        // Causes at least one event of each kind.
        let some_of_each = || {
            let mut all = exhaust(y, 0);
            all.push(y.alloc(o(0), Gfp::KERNEL).unwrap());
            all.push(y.alloc_interleaved(&turns, o(0), Gfp::KERNEL).unwrap());
            all.into_iter().for_each(|p| y.free(p, o(0)).unwrap());
        };
        let events = || {
            let [near, far] = stats();
            [near.hit, near.local, near.foreign, far.miss, far.other, far.interleave]
        };
        some_of_each();
        let (before, counted) = (stats(), events());
        assert!(counted.iter().all(|&n| n > 0), "{counted:?}");
        for off in ["0", "0"] {
            y.set_knob("numa_stat", off).unwrap();
            assert_eq!(stats(), before, "turning it off keeps the counts");
            some_of_each();
            assert_eq!(stats(), before);
        }
        for on in ["1", "1"] {
            let before = events();
            y.set_knob("numa_stat", on).unwrap();
            assert_eq!(events(), before, "uncounted events are not added later");
            some_of_each();
            let more = events();
            assert!(before.iter().zip(&more).all(|(b, m)| b < m), "{before:?} {more:?}");
        }
    });
    nodes(2).knobs(|k| k.numa_stat = false).run(|y| {
        let hits = || y.zone_stats(id(0)).unwrap().numa.hit;
        y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(hits(), 0, "off from the start");
        y.set_knob("numa_stat", "1").unwrap();
        y.alloc(o(0), Gfp::KERNEL).unwrap();
        assert_eq!(hits(), 1);
    });
}
