//! A yard beside its model: every step runs on both, and the yard's answers are checked against the
//! rules.

use std::collections::BTreeSet;
use std::ops::Range;

use pageyard::policy::{Engine, Policy};
use pageyard::{
    AllocError, CpuId, Gfp, HotplugError, KNOBS, MigrateType, NodeChoice, NodeId, NodeMask, Order,
    PAGEBLOCK_PAGES, Pfn, Place, Record, SECTION_PAGES, Yard, ZoneId, ZoneInfo,
};

use super::ops::{GFPS, Op, TYPES};
use super::port::{Lie, Port};
use super::reach::reached;
use super::table::{Block, Where};
use super::world::{Mood, World, Y};
use crate::common::view::{Seen, list_order};
use crate::common::{self, Machine, Stage, all_records, o, records};

/// The state of the zones before a request.
struct Before {
    zones: Vec<ZoneInfo>,
    labels: Vec<Option<MigrateType>>,
    freed: u64,
    guards: u64,
}

/// Where a case comes from, and when it compares the yard with its model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// Random values. `validate` after every step; all frames after every refusal, every 8 steps and at
    /// the end.
    Random,
    /// A fuzzer's bytes, checked as often.
    Thorough,
    /// A fuzzer's bytes, checked every 20 steps and at the end.
    Quick,
}

impl Mode {
    /// Steps between two checks of all frames.
    pub(super) fn every(self) -> usize {
        if self == Mode::Quick { 20 } else { 8 }
    }
}

pub(super) struct Session<'m, 'y, P: Policy> {
    y: &'y Y<'y, P>,
    world: &'y World<'y, P>,
    policy: P,
    port: Port<'y, P>,
    machine: &'m Machine,
    mode: Mode,
}

impl<'m, 'y, P: Policy> Session<'m, 'y, P> {
    pub(super) fn new(
        y: &'y Y<'y, P>,
        world: &'y World<'y, P>,
        policy: P,
        machine: &'m Machine,
        lie: Lie,
        mode: Mode,
    ) -> Self {
        Session { y, world, policy, port: Port::new(y, lie), machine, mode }
    }

    fn is_packed(&self) -> bool {
        self.policy.rules().engine == Engine::Packed
    }

    // The rules.

    /// Asserts that the yard and the model agree, frame by frame, and that the yard is valid.
    pub(super) fn check(&self) {
        self.y.validate().unwrap_or_else(|e| panic!("{e}"));
        let t = self.world.table.borrow();
        assert_eq!(t.complaint, None);
        let mut seen = vec![Where::Nowhere; t.frames().len()];
        let mut blocks = BTreeSet::new();
        for zone in self.y.zone_ids() {
            let (mut free, mut out) = (0, BTreeSet::new());
            let mut mark = |pfn: Pfn, order: u8, what| {
                for s in &mut seen[pfn.0 as usize..][..1 << order] {
                    assert_eq!(*s, Where::Nowhere, "{zone}: a frame of {pfn} is in two places");
                    *s = what;
                }
            };
            self.y.snapshot(zone, |record| match record {
                Record::Free { pfn, order, migrate_type } => {
                    mark(pfn, order.get(), Where::Idle);
                    if migrate_type != MigrateType::Isolate {
                        free += u64::from(order.pages());
                    }
                }
                Record::Cached { list, pfn, .. } => mark(pfn, list_order(list), Where::Idle),
                Record::Guard { pfn, order } => mark(pfn, order.get(), Where::Idle),
                Record::Allocated { pfn, order, movable } => {
                    mark(pfn, order.get(), Where::Owned);
                    let b = t.blocks.get(&pfn.0).map(|b| (b.order, b.movable));
                    // On the packed engine a block requested as movable is movable until its owner
                    // says otherwise.
                    let movable = movable && (!self.is_packed() || b.is_some_and(|b| b.1));
                    assert_eq!(
                        b,
                        Some((order.get(), movable)),
                        "{zone}: the block in use at {pfn}"
                    );
                }
                Record::Block { pfn, migrate_type } => {
                    let block = pfn.0 >> 9;
                    assert!(
                        blocks.insert((zone, block, migrate_type)),
                        "{zone}: pageblock {block:#x} comes twice"
                    );
                    let isolated =
                        migrate_type != MigrateType::Isolate || t.isolated.contains(&block);
                    assert!(isolated, "{zone}: pageblock {block:#x} is isolated");
                }
                Record::Bad { pfn, .. } | Record::Poisoned { pfn } => {
                    assert!(out.insert(pfn), "{zone}: {pfn} is out of use twice");
                }
                Record::Zone(_) | Record::Cpu(_) => {}
            });
            let info = self.port.info(zone);
            assert_eq!(info.free_exact, free, "{zone}: the free counter");
            let at =
                self.machine.zones.iter().position(|z| (z.node, z.kind) == (info.node, info.kind));
            assert_eq!(info.managed, t.managed[at.unwrap()], "{zone}: managed pages");
        }
        for (pfn, (&is, &seen)) in t.frames().iter().zip(&seen).enumerate() {
            let is = if is == Where::Faulty { Where::Nowhere } else { is };
            assert_eq!(seen, is, "frame {pfn:#x}: the allocator's view, and the model's");
        }
        for &block in &t.isolated {
            let label = self.y.block_type(Pfn(block << 9));
            assert_eq!(label, Some(MigrateType::Isolate), "pageblock {block:#x}");
        }
    }

    /// Checks everything after a refusal.
    fn check_refused(&self) {
        if self.mode != Mode::Quick {
            self.check();
        }
    }

    /// Asserts that a refused call changes nothing.
    fn unchanged(&self, call: impl FnOnce()) {
        if self.mode == Mode::Quick {
            return call();
        }
        let before = all_records(self.y);
        call();
        assert!(all_records(self.y) == before, "a call that was refused has changed something");
    }

    fn before(&self) -> Before {
        let zones = self.y.zone_ids().map(|z| self.port.info(z)).collect();
        let blocks = self.len().div_ceil(u64::from(PAGEBLOCK_PAGES));
        let labels = (0..blocks).map(|b| self.y.block_type(Pfn(b << 9))).collect();
        let guards = self.y.zone_ids().map(|z| self.y.out_of_use(z).unwrap().guards).sum();
        Before { zones, labels, freed: self.world.freed.get(), guards }
    }

    /// Records a block returned to a request with these flags.
    fn took(&self, pfn: Pfn, order: Order, gfp: Gfp, before: &Before) {
        let taken = self.world.table.borrow_mut().take(pfn.0, order.get(), false);
        taken.unwrap_or_else(|e| panic!("{e}"));
        let label = before.labels[(pfn.0 >> 9) as usize];
        let movable = gfp.contains(Gfp::MOVABLE);
        let fits = label != Some(MigrateType::Cma) || movable || self.types_mix();
        assert!(fits, "{pfn} is of a CMA block");
        let zone = before.zones.iter().find(|z| Some(id(z)) == self.y.zone_of(pfn)).unwrap();
        let highest = gfp.highest_zone().unwrap();
        assert!(zone.kind <= highest, "{pfn} is of {}, above {highest}", zone.kind);
    }

    /// Whether a request may get a block of another type. Carried types return as they were,
    /// whatever their pageblock has become.
    fn types_mix(&self) -> bool {
        self.policy.rules().carried_types
    }

    /// §3.7: an ordinary request leaves a zone its MIN mark and its reserve. Pages that hooks free
    /// and per-CPU lists drain meanwhile count for the request. On the packed engine CPUs are drained
    /// also for a request that must not wait.
    fn left_enough(&self, pfn: Pfn, order: Order, gfp: Gfp, before: &Before) {
        let reserves = Gfp::HIGH | Gfp::MEMALLOC | Gfp::NOFAIL;
        assert!(!self.y.is_pfmemalloc(pfn) || gfp.intersects(reserves), "{pfn}: all reserves");
        if gfp.intersects(reserves) {
            return;
        }
        let zone = before.zones.iter().find(|z| Some(id(z)) == self.y.zone_of(pfn)).unwrap();
        let mut most = zone.free.max(zone.free_exact);
        let waits = gfp.contains(Gfp::DIRECT_RECLAIM);
        if waits || self.is_packed() {
            most += zone.cached;
        }
        if waits {
            // Guards become free pages when their neighbours are freed.
            most += self.world.freed.get() - before.freed + before.guards;
        }
        let highest = gfp.highest_zone().unwrap();
        let mark = zone.watermarks[0] + zone.boost + zone.lowmem_reserve[highest as usize];
        let left = most as i64 - (i64::from(order.pages()) - 1);
        assert!(
            left > mark as i64,
            "{pfn} of order {order} with {gfp:?}: {left} of {zone:?} against {mark}"
        );
    }

    /// A single page cannot be refused where the nearest zone has plenty.
    fn had_none(&self, order: Order, gfp: Gfp, node: NodeId, before: &Before) {
        let Some(highest) = gfp.highest_zone().filter(|_| order == Order::ZERO) else { return };
        let kinds = before.zones.iter().filter(|z| z.node == node && z.kind <= highest);
        for z in kinds {
            // Counters may lag by each CPU's threshold; CMA pages serve movable requests only.
            let cma = before.labels.contains(&Some(MigrateType::Cma));
            let parts = 125 * u64::from(self.y.cpus());
            let kept = z.watermarks[2] + z.boost + z.lowmem_reserve[highest as usize];
            let plenty = z.free > kept + z.free_highatomic + parts;
            assert!(cma || !plenty, "no page for {gfp:?}, but {z:?}");
        }
    }

    // The steps.

    fn len(&self) -> u64 {
        self.world.table.borrow().len()
    }

    /// One of the blocks in use. For fuzzed cases it is the first one at or above a
    /// frame, or else the first one of all, which takes less time than counting blocks.
    fn pick(&self, n: usize) -> Option<(Pfn, Order)> {
        let t = self.world.table.borrow();
        let found = if self.mode == Mode::Random {
            t.blocks.iter().nth(n.checked_rem(t.blocks.len())?)
        } else {
            let from = n as u64 % t.len();
            t.blocks.range(from..).next().or_else(|| t.blocks.first_key_value())
        };
        found.map(|(&p, b)| (Pfn(p), o(b.order)))
    }

    /// Blocks in use, at a fixed distance from each other.
    fn picks(&self, from: usize, n: u8) -> impl Iterator<Item = (Pfn, Order)> + '_ {
        let stride = if from & 1 == 0 { 1 } else { 7 };
        (0..usize::from(n)).map_while(move |i| self.pick(from.wrapping_add(i * stride)))
    }

    fn alloc(&self, nodes: NodeChoice, order: Order, gfp: Gfp) -> bool {
        let before = self.before();
        let here = self.y.node_of(CpuId(self.world.cpu.get())).unwrap();
        let wanted = nodes.preferred.unwrap_or(here);
        match self.port.alloc(nodes, order, gfp) {
            Ok(pfn) => {
                self.took(pfn, order, gfp, &before);
                self.left_enough(pfn, order, gfp, &before);
                let node = self.y.zone_of(pfn).unwrap().node;
                if node != here {
                    reached("a request served by another node");
                }
                // §2.10: requests that may use reserves, or are urgent, are not bound to their
                // nodes.
                let urgent = gfp.contains(Gfp::HIGH) && !gfp.contains(Gfp::DIRECT_RECLAIM);
                let free = urgent || gfp.contains(Gfp::MEMALLOC);
                assert!(free || nodes.allowed.contains(node), "{pfn} of node {node:?}");
                let bound = gfp.contains(Gfp::THISNODE);
                assert!(!bound || node == wanted, "{pfn} of node {node:?}, not {wanted:?}");
                true
            }
            Err(AllocError::UnknownNode(n)) => {
                assert!(usize::from(n.0) >= self.y.nodes());
                false
            }
            Err(e) => {
                assert_eq!(e, AllocError::NoMemory);
                reached("a request refused");
                if nodes.allowed.contains(wanted) {
                    self.had_none(order, gfp, wanted, &before);
                }
                self.check_refused();
                false
            }
        }
    }

    fn give(&self, pfn: Pfn, order: Order) {
        self.world.table.borrow_mut().give(pfn.0, order.get());
    }

    pub(super) fn apply(&self, op: &Op) {
        let (y, world) = (self.y, self.world);
        match *op {
            Op::Alloc { order, gfp, node, n } => {
                let nodes = node.map_or(NodeChoice::LOCAL, |n| NodeId(n).into());
                for _ in 0..(u32::from(n) >> (order / 2 + 1)) + 1 {
                    if !self.alloc(nodes, o(order), GFPS[gfp]) {
                        break;
                    }
                }
            }
            Op::AllocWithin { order, gfp, mask } => {
                self.alloc(NodeMask(mask).into(), o(order), GFPS[gfp]);
            }
            Op::Free { pick, n, how } => {
                for (pfn, order) in self.picks(pick, n) {
                    match how {
                        0 => {
                            y.free_shared(pfn, order).unwrap();
                            self.keep_first(pfn, order);
                            continue;
                        }
                        1 => y.free_direct(pfn, order).unwrap(),
                        _ => self.port.free(pfn, order).unwrap(),
                    }
                    self.give(pfn, order);
                }
            }
            Op::FreeBatch { pick, n } => {
                let mut batch: Vec<_> = self.picks(pick, n).collect();
                batch.sort_unstable();
                batch.dedup();
                y.free_batch(&batch).unwrap();
                batch.iter().for_each(|&(pfn, order)| self.give(pfn, order));
            }
            Op::BadFree { pfn, order } => self.bad_free(Pfn(pfn % (self.len() + 2048)), o(order)),
            Op::Split { pick, into } => {
                let Some((pfn, order)) = self.pick(pick) else { return };
                if o(into) > order {
                    return self.unchanged(|| assert!(y.split(pfn, order, o(into)).is_err()));
                }
                y.split(pfn, order, o(into)).unwrap();
                let mut t = world.table.borrow_mut();
                let b = t.blocks[&pfn.0];
                for p in (pfn.0..pfn.0 + u64::from(order.pages())).step_by(1 << into) {
                    t.blocks.insert(p, Block { order: into, ..b });
                }
            }
            Op::SetMovable { pick, n, movable } => {
                for (pfn, order) in self.picks(pick, n) {
                    self.port.set_movable(pfn, order, movable).unwrap();
                    let mut t = world.table.borrow_mut();
                    t.blocks.get_mut(&pfn.0).unwrap().movable = movable;
                }
            }
            Op::Bulk { gfp, n, node } => self.bulk(GFPS[gfp], n, node),
            Op::AllocAt { pfn, order, gfp } => {
                let pfn = Pfn((pfn % self.len()) & !((1 << order) - 1));
                self.alloc_at(pfn, o(order), GFPS[gfp]);
            }
            Op::AllocWith { order, gfp, align, below } => {
                let below = below.map(|b| Pfn(b % (self.len() + 1)));
                let place = Place { align: 1 << align, below };
                let before = self.before();
                let Ok(pfn) = y.alloc_with(o(order), GFPS[gfp], place) else {
                    return self.check_refused();
                };
                self.took(pfn, o(order), GFPS[gfp], &before);
                assert!(pfn.0.is_multiple_of(place.align), "{pfn} for {place:?}");
                let end = Pfn(pfn.0 + u64::from(o(order).pages()));
                assert!(below.is_none_or(|b| end <= b), "{pfn} for {place:?}");
            }
            Op::Contig { pfn, pages, t, block } => self.contig(pfn, pages, TYPES[t], block),
            Op::ContigPages { pages, align, t } => {
                let all = Pfn(0)..Pfn(self.len());
                let got =
                    y.alloc_contig_pages(pages.into(), 1 << align, all, TYPES[t], Gfp::KERNEL);
                self.labels_changed();
                let Ok(pfn) = got else { return self.check_refused() };
                assert!(pfn.0.is_multiple_of(1 << align));
                self.own_range(pfn.0..pfn.0 + u64::from(pages));
            }
            Op::Isolate { pfn, pages, t } => self.isolate(pfn, pages, TYPES[t]),
            Op::Unisolate { pick, t } => {
                let block = {
                    let t = world.table.borrow();
                    let Some(n) = pick.checked_rem(t.isolated.len()) else { return };
                    *t.isolated.iter().nth(n).unwrap()
                };
                let pfn = Pfn(block << 9);
                let cma = self.is_packed() && TYPES[t] == MigrateType::Cma;
                let label = if cma { MigrateType::Movable } else { TYPES[t] };
                y.unisolate(pfn..Pfn(pfn.0 + 1), label).unwrap();
                world.table.borrow_mut().isolated.remove(&block);
            }
            Op::Cma { block } => {
                let block = block % self.len().div_ceil(512);
                if y.make_cma(Pfn(block << 9)..Pfn((block + 1) << 9)).is_ok() {
                    reached("a CMA block");
                }
            }
            Op::Online { section } => self.online(section),
            Op::Offline { section } => self.offline(section),
            Op::Cpu(n) => {
                let up: Vec<u32> = (0..y.cpus()).filter(|&c| y.is_up(CpuId(c))).collect();
                world.cpu.set(up[n as usize % up.len()]);
            }
            Op::CpuUp(n) => {
                let cpu = CpuId(n % y.cpus());
                let down = !y.is_up(cpu);
                assert_eq!(y.cpu_up(cpu), down);
                assert!(y.is_up(cpu));
            }
            Op::CpuDead(n) => {
                let cpu = CpuId(n % y.cpus());
                if cpu.0 != world.cpu.get() {
                    let up = y.is_up(cpu);
                    assert_eq!(y.cpu_dead(cpu), up);
                    assert!(!y.is_up(cpu));
                }
            }
            Op::OnDeadCpu(gfp) => {
                let Some(cpu) = (0..y.cpus()).find(|&c| !y.is_up(CpuId(c))) else { return };
                let here = world.cpu.replace(cpu);
                self.unchanged(|| {
                    assert_eq!(y.alloc(o(0), GFPS[gfp]), Err(AllocError::UnknownCpu(CpuId(cpu))));
                    if let Some((pfn, order)) = self.pick(gfp) {
                        assert!(y.free(pfn, order).is_err());
                    }
                });
                world.cpu.set(here);
            }
            Op::Tick(n) => _ = y.tick(CpuId(n % y.cpus())),
            Op::DrainCpu(n) => y.drain_cpu(CpuId(n % y.cpus()), None),
            Op::DrainAll => y.drain_all(None),
            Op::Poison { pfn } => self.poison(Pfn(pfn % self.len())),
            Op::Unpoison { pick } => {
                let pfn = {
                    let t = world.table.borrow();
                    let Some(n) = pick.checked_rem(t.poisoned.len()) else { return };
                    *t.poisoned.iter().nth(n).unwrap()
                };
                y.unpoison_frame(Pfn(pfn)).unwrap();
                let mut t = world.table.borrow_mut();
                t.poisoned.remove(&pfn);
                if t.frame(pfn) == Where::Faulty {
                    t.set(pfn..pfn + 1, Where::Idle);
                }
            }
            Op::Compact => y.compact_all(),
            Op::Unreserve { t } => _ = y.unreserve_highatomic(TYPES[t], true),
            Op::Relocate(mood) => world.relocate.set(mood),
            Op::Reclaim(mood) => world.reclaim.set(mood),
            Op::Knob { which, value } => {
                let name = KNOBS[which].name;
                if y.set_knob(name, &value.to_string()).is_ok() {
                    reached("a setting changed");
                } else {
                    self.unchanged(|| assert!(y.set_knob(name, &value.to_string()).is_err()));
                }
            }
        }
        if self.mode != Mode::Quick {
            self.y.validate().unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// Frees a block except for its first page.
    fn keep_first(&self, pfn: Pfn, order: Order) {
        let mut t = self.world.table.borrow_mut();
        let movable = t.blocks[&pfn.0].movable;
        t.give(pfn.0, order.get());
        t.set(pfn.0..pfn.0 + 1, Where::Owned);
        t.blocks.insert(pfn.0, Block { order: 0, movable });
    }

    fn bad_free(&self, pfn: Pfn, order: Order) {
        let t = self.world.table.borrow();
        if t.blocks.get(&pfn.0).is_some_and(|b| b.order == order.get()) {
            return;
        }
        drop(t);
        let y = self.y;
        self.unchanged(|| {
            assert!(self.port.free_wrongly(pfn, order).is_err());
            assert!(y.free_direct(pfn, order).is_err());
            assert!(y.free_shared(pfn, order).is_err());
            assert!(y.split(pfn, order, Order::ZERO).is_err());
            assert!(y.set_movable(pfn, order, true).is_err());
            let good = self.pick(0);
            let batch: Vec<_> = good.into_iter().chain([(pfn, order)]).collect();
            assert!(y.free_batch(&batch).is_err());
        });
    }

    fn bulk(&self, gfp: Gfp, n: u8, node: Option<u16>) {
        let nodes = node.map_or(NodeChoice::LOCAL, |n| NodeId(n).into());
        let before = self.before();
        let mut got = Vec::new();
        match self.y.alloc_bulk_each_on(nodes, n.into(), gfp, |p| got.push(p)) {
            Ok(count) => assert_eq!(count, got.len()),
            Err(_) => assert!(got.is_empty()),
        }
        for &pfn in &got {
            self.took(pfn, Order::ZERO, gfp, &before);
        }
        // A bulk request takes its pages from one zone, whose free pages exceed LOW plus all
        // requested pages.
        if let [first, _, ..] = got[..] {
            reached("many pages at once");
            let zone = self.y.zone_of(first).unwrap();
            assert!(got.iter().all(|&p| self.y.zone_of(p) == Some(zone)));
            let z = before.zones.iter().find(|z| id(z) == zone).unwrap();
            let mark = z.watermarks[1] + z.boost + u64::from(n);
            assert!(z.free > mark, "{} pages of {z:?}", got.len());
        }
    }

    fn alloc_at(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let before = self.before();
        let all = pfn.0..pfn.0 + u64::from(order.pages());
        let idle = {
            let t = self.world.table.borrow();
            all.clone().all(|p| t.frame(p) == Where::Idle)
        };
        if self.port.alloc_at(pfn, order, gfp).is_err() {
            return self.check_refused();
        }
        assert!(idle, "{pfn} of order {order} was not idle");
        reached("a chosen place");
        // The frame determines the zone, whatever the flags say.
        let taken = self.world.table.borrow_mut().take(pfn.0, order.get(), false);
        taken.unwrap_or_else(|e| panic!("{e}"));
        let z = before.zones.iter().find(|z| Some(id(z)) == self.y.zone_of(pfn)).unwrap();
        let most = z.free.max(z.free_exact) + z.cached;
        let left = most.saturating_sub(u64::from(order.pages()));
        assert!(left > z.watermarks[0], "{pfn} of order {order}: {left} left of {z:?}");
        self.check_refused();
    }

    /// Records the frames of a range as single pages of a caller.
    fn own_range(&self, range: Range<u64>) {
        let mut t = self.world.table.borrow_mut();
        for p in range {
            t.take(p, 0, false).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// Updates the isolated pageblocks: a range call leaves its pageblocks with a type.
    fn labels_changed(&self) {
        // Per-CPU lists keep pages of pageblocks whose type has changed.
        self.y.drain_all(None);
        let mut t = self.world.table.borrow_mut();
        let isolated = |b: &u64| self.y.block_type(Pfn(*b << 9)) == Some(MigrateType::Isolate);
        t.isolated.retain(isolated);
    }

    fn contig(&self, pfn: u64, pages: u16, label: MigrateType, block: bool) {
        let pages =
            if block { u64::from(pages).next_power_of_two().min(1024) } else { pages.into() };
        let start = pfn % self.len();
        let start = if block { start & !(pages - 1) } else { start };
        let range = Pfn(start)..Pfn(start + pages);
        let gfp = if block { Gfp::KERNEL | Gfp::COMP } else { Gfp::KERNEL };
        let got = self.y.alloc_contig(range, label, gfp);
        self.labels_changed();
        if got.is_err() {
            return self.check_refused();
        }
        reached(if block { "a contiguous block" } else { "a contiguous range" });
        if block {
            let order = pages.trailing_zeros() as u8;
            let taken = self.world.table.borrow_mut().take(start, order, false);
            taken.unwrap_or_else(|e| panic!("{e}"));
        } else {
            self.own_range(start..start + pages);
        }
    }

    fn isolate(&self, pfn: u64, pages: u16, label: MigrateType) {
        let start = pfn % self.len();
        let range = start..start + u64::from(pages);
        let (first, end) = (start >> 9, range.end.div_ceil(512));
        let answer = self.port.isolate(Pfn(range.start)..Pfn(range.end), label);
        // Cached pages of the range may still be allocated; after the drain none can be.
        self.y.drain_all(None);
        if answer.is_err() {
            return self.check_refused();
        }
        reached("an isolated range");
        self.world.table.borrow_mut().isolated.extend(first..end);
    }

    fn section(&self, n: u64) -> (Range<u64>, Range<Pfn>, bool, bool) {
        let range = n * SECTION_PAGES..(n + 1) * SECTION_PAGES;
        let t = self.world.table.borrow();
        let inside = range.start.min(t.len()) as usize..range.end.min(t.len()) as usize;
        let there = t.frames()[inside].iter().filter(|&&w| w != Where::Nowhere).count() as u64;
        (range.clone(), Pfn(range.start)..Pfn(range.end), there == 0, there == SECTION_PAGES)
    }

    fn online(&self, n: u64) {
        let (frames, range, absent, _) = self.section(n);
        match self.port.online(range.clone()) {
            Ok(()) => {
                assert!(absent, "section {n} was there");
                assert!(self.y.zone_of(range.start).is_some(), "section {n} is of no zone");
                reached("memory that comes");
                self.world.table.borrow_mut().plug(frames, true);
            }
            Err(HotplugError::Refused(_)) => {
                let zone = |p| self.y.zone_of(Pfn(p));
                let inside = zone(frames.start).is_some();
                assert!(!inside || zone(frames.start) != zone(frames.end - 1), "section {n}");
            }
            Err(_) => assert!(!absent, "section {n} may come"),
        }
        self.check_refused();
    }

    fn offline(&self, n: u64) {
        let (frames, range, _, whole) = self.section(n);
        let blocks = frames.start >> 9..frames.end >> 9;
        if self.y.offline(range).is_ok() {
            assert!(whole, "section {n} was not all there");
            reached("memory that goes");
            let mut t = self.world.table.borrow_mut();
            for p in frames.clone() {
                assert!(t.frame(p) != Where::Owned, "frame {p:#x} is in use, and gone");
            }
            t.plug(frames, false);
            t.isolated.retain(|b| !blocks.contains(b));
        }
        self.labels_changed();
        self.check_refused();
    }

    /// Restores this yard's state into a blank yard (§1.3).
    fn restore(&self) {
        let y = self.y;
        let populated = |(_, all): &(ZoneId, Vec<Record>)| matches!(all.first(), Some(Record::Zone(z)) if z.present > 0);
        let zones: Vec<_> = all_records(y).into_iter().filter(populated).collect();
        // A part above a lowered threshold is not restored.
        let within = |r: &Record| match r {
            Record::Cpu(c) => c.diff.unsigned_abs() <= c.threshold,
            _ => true,
        };
        if !zones.iter().all(|(_, all)| all.iter().all(within)) {
            return;
        }
        let twin = Machine { knobs: y.knobs(), ..self.machine.clone() };
        let mut maps = twin.maps(self.policy.rules());
        let mut z: common::Y<'_, P> = Yard::with_policy(Stage::default(), self.policy);
        z.init_blank(&twin.layout(), maps.storage()).unwrap();
        for (zone, before) in &zones {
            z.restore(*zone, before.iter().copied()).unwrap_or_else(|e| panic!("{zone}: {e}"));
            let after = records(&z, *zone);
            if self.is_packed() {
                Seen::of(&after).expect(&Seen::of(before));
            } else {
                assert!(after == *before, "{zone}: not restored as it was");
            }
        }
        z.validate().unwrap_or_else(|e| panic!("restored: {e}"));
        reached("a snapshot restored");
    }

    fn poison(&self, pfn: Pfn) {
        let y = self.y;
        let was = self.world.table.borrow().frame(pfn.0);
        let known = self.world.table.borrow().poisoned.contains(&pfn.0);
        if was == Where::Nowhere || known {
            return self.unchanged(|| assert!(y.poison_frame(pfn).is_err()));
        }
        self.port.poison(pfn).unwrap();
        let mut t = self.world.table.borrow_mut();
        t.poisoned.insert(pfn.0);
        if was == Where::Owned {
            reached("a faulty frame in use");
        }
        if was == Where::Idle {
            t.set(pfn.0..pfn.0 + 1, Where::Faulty);
        }
    }

    /// Restores the state into a blank yard, then frees everything: all frames that are not faulty
    /// are free, in the largest possible blocks.
    pub(super) fn finish(&self) {
        self.check();
        if self.mode != Mode::Quick {
            self.restore();
        }
        let y = self.y;
        self.world.reclaim.set(Mood::Refusing);
        while let Some((pfn, order)) = self.pick(0) {
            self.port.free(pfn, order).unwrap();
            self.give(pfn, order);
        }
        let blocks: Vec<u64> = self.world.table.borrow().isolated.iter().copied().collect();
        for b in blocks {
            y.unisolate(Pfn(b << 9)..Pfn((b << 9) + 1), MigrateType::Movable).unwrap();
        }
        self.world.table.borrow_mut().isolated.clear();
        y.drain_all(None);
        self.check();
        for zone in y.zone_ids() {
            assert_eq!(self.port.info(zone).cached, 0, "{zone}: drained");
        }
    }
}

/// The zone described by `z`.
fn id(z: &ZoneInfo) -> ZoneId {
    ZoneId { node: z.node, kind: z.kind }
}
