//! Random operations on a yard, beside a naive model of which blocks callers own.

use pageyard::policy::Policy;
use pageyard::tuning::CacheSlice;
use pageyard::{CpuId, FreeError, Gfp, MigrateType, NodeChoice, Order, Pfn, ZoneId, ZoneKind};
use proptest::prelude::*;

use super::check::{Owned, check};
use super::{Machine, Y, o};

/// Cases per test, unless `PROPTEST_CASES` says otherwise.
const CASES: u32 = 12;

/// The number of cases.
pub(crate) fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(CASES),
        // A failure becomes a named test, so no regression file is kept.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Machines of different shapes; some so small that grouping by mobility is disabled (§2.4).
pub(crate) fn machine() -> impl Strategy<Value = Machine> {
    let shape = prop_oneof![
        Just(Machine::normal(8192)),
        Just(Machine::normal(49152)),
        Just(Machine::normal(1000)),
        // An odd start, an odd end, holes, memory in use.
        (1u64..1500, 1u64..1500).prop_map(|(a, b)| Machine::new()
            .span(ZoneKind::Normal, 4096 + a..24576 - b)
            .usable(4096 + a..9000)
            .usable(10000..24576 - b)
            .reserved(8000..8005)
            .reserved(12001..13333)),
        // Four zones, one of them without memory at its start, one not aligned to the largest
        // order.
        Just(
            Machine::new()
                .zone(ZoneKind::Dma, 0..4096)
                .zone(ZoneKind::Dma32, 4096..12544)
                .span(ZoneKind::Normal, 12544..28672)
                .usable(13000..28672)
                .zone(ZoneKind::Movable, 28672..36864)
                .reserved(1..17)
        ),
        // The allocator does not manage device memory; the movable zone serves movable requests
        // only.
        Just(
            Machine::new()
                .zone(ZoneKind::Movable, 1 << 30..(1 << 30) + 8192)
                .zone(ZoneKind::Device, 0..1024)
        ),
    ];
    let cpus = prop::sample::select(vec![vec![0u16], vec![0, 0], vec![0, 0, 1], vec![7, 7]]);
    (shape, cpus, any::<bool>())
        .prop_map(|(m, cpus, huge_pages)| m.cpus(&cpus).knobs(|k| k.huge_pages = huge_pages))
}

/// One operation; numbers choose among the blocks and frames that exist at the time.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alloc { order: u8, gfp: usize },
    AllocMany { order: u8, gfp: usize, n: u8 },
    Free(usize),
    FreeMany { from: usize, n: u8 },
    FreeDirect(usize),
    FreeShared(usize),
    Split { pick: usize, into: u8 },
    SetMovable { pick: usize, movable: bool },
    Bulk { gfp: usize, n: u8, holes: u64 },
    BulkEach { gfp: usize, n: u8 },
    Batch { from: usize, n: u8 },
    BadFree { pfn: u64, order: u8 },
    Cpu(u32),
    Tick(u32),
    DrainCpu(u32, Option<ZoneId>),
    DrainAll(Option<ZoneId>),
    Disabled { order: u8, gfp: usize, pick: usize },
    Reclaim(bool),
    CacheSlice { cpu: u32, bytes: u64 },
    Unreserve { t: usize, force: bool },
    MinFree(u64),
    Scale(u64),
    Boost(u64),
    Ratio(u64),
    Fraction(u32),
    Check,
}

/// The flags that random requests carry.
pub(crate) const GFPS: [Gfp; 12] = [
    Gfp::KERNEL,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::ATOMIC,
    Gfp::ATOMIC.union(Gfp::MOVABLE).union(Gfp::HIGHMEM),
    Gfp::NOWAIT,
    Gfp::empty(),
    Gfp::ATOMIC.union(Gfp::MEMALLOC),
    Gfp::KERNEL.union(Gfp::DMA),
    Gfp::KERNEL.union(Gfp::DMA32).union(Gfp::MOVABLE),
    Gfp::ATOMIC.union(Gfp::NOMEMALLOC),
];

const SMALL: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 8, 9, 10];

fn order() -> impl Strategy<Value = u8> {
    prop::sample::select(&SMALL[..])
}

fn gfp() -> impl Strategy<Value = usize> {
    0..GFPS.len()
}

fn kind() -> impl Strategy<Value = Option<ZoneId>> {
    prop::option::of(prop::sample::select(&ZoneKind::ALL[..]).prop_map(ZoneId::from))
}

/// Any operation, requests and frees most often.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (order(), gfp()).prop_map(|(order, gfp)| Op::Alloc { order, gfp }),
        8 => (order(), gfp(), any::<u8>())
            .prop_map(|(order, gfp, n)| Op::AllocMany { order, gfp, n }),
        6 => any::<usize>().prop_map(Op::Free),
        8 => (any::<usize>(), any::<u8>()).prop_map(|(from, n)| Op::FreeMany { from, n }),
        2 => any::<usize>().prop_map(Op::FreeDirect),
        2 => any::<usize>().prop_map(Op::FreeShared),
        2 => (any::<usize>(), order()).prop_map(|(pick, into)| Op::Split { pick, into }),
        3 => (any::<usize>(), any::<bool>())
            .prop_map(|(pick, movable)| Op::SetMovable { pick, movable }),
        3 => (gfp(), any::<u8>(), any::<u64>())
            .prop_map(|(gfp, n, holes)| Op::Bulk { gfp, n, holes }),
        2 => (gfp(), any::<u8>()).prop_map(|(gfp, n)| Op::BulkEach { gfp, n }),
        3 => (any::<usize>(), any::<u8>()).prop_map(|(from, n)| Op::Batch { from, n }),
        3 => (any::<u64>(), order()).prop_map(|(pfn, order)| Op::BadFree { pfn, order }),
        4 => any::<u32>().prop_map(Op::Cpu),
        3 => any::<u32>().prop_map(Op::Tick),
        1 => (any::<u32>(), kind()).prop_map(|(cpu, kind)| Op::DrainCpu(cpu, kind)),
        1 => kind().prop_map(Op::DrainAll),
        1 => (order(), gfp(), any::<usize>())
            .prop_map(|(order, gfp, pick)| Op::Disabled { order, gfp, pick }),
        1 => any::<bool>().prop_map(Op::Reclaim),
        1 => (any::<u32>(), 0..1u64 << 20)
            .prop_map(|(cpu, bytes)| Op::CacheSlice { cpu, bytes }),
        1 => (0..3usize, any::<bool>()).prop_map(|(t, force)| Op::Unreserve { t, force }),
        1 => (0..20_000u64).prop_map(Op::MinFree),
        1 => (0..4000u64).prop_map(Op::Scale),
        1 => (0..30_000u64).prop_map(Op::Boost),
        1 => (0..300u64).prop_map(Op::Ratio),
        1 => (0..20u32).prop_map(Op::Fraction),
        2 => Just(Op::Check),
    ]
}

/// A yard, and what its callers own.
pub(crate) struct Session<'s, 'y, P: Policy> {
    pub(crate) y: &'s Y<'y, P>,
    machine: &'s Machine,
    pub(crate) owned: Owned,
    /// The answers so far, to compare two yards.
    pub(crate) answers: Vec<Option<Pfn>>,
    batch: Vec<(Pfn, Order)>,
    /// Bypass the fast path, even in the common case.
    pub(crate) whole_way: bool,
}

impl<'s, 'y, P: Policy> Session<'s, 'y, P> {
    pub(crate) fn new(y: &'s Y<'y, P>, machine: &'s Machine) -> Self {
        Session {
            y,
            machine,
            owned: Owned::new(),
            answers: Vec::new(),
            batch: Vec::new(),
            whole_way: false,
        }
    }

    /// Checks the invariants against the model, see `check`.
    pub(crate) fn check(&self) {
        check(self.y, self.machine, &self.owned);
    }

    fn pick(&self, n: usize) -> Option<(Pfn, Order)> {
        let n = n.checked_rem(self.owned.len())?;
        self.owned.iter().nth(n).map(|(&p, &o)| (p, o))
    }

    /// Records a block that was handed out. None of its frames may have an owner.
    fn own(&mut self, pfn: Pfn, order: Order) {
        let end = pfn.0 + u64::from(order.pages());
        assert_eq!(pfn.0 % u64::from(order.pages()), 0, "{pfn} is not aligned");
        if let Some((p, o)) = self.owned.range(..Pfn(end)).next_back() {
            assert!(p.0 + u64::from(o.pages()) <= pfn.0, "{pfn} was handed out twice");
        }
        assert!((pfn.0..end).all(|p| self.machine.may_own(Pfn(p))), "{pfn} is not memory");
        self.owned.insert(pfn, order);
        self.answers.push(Some(pfn));
    }

    pub(crate) fn alloc(&mut self, order: u8, gfp: usize) -> bool {
        let answer = if self.whole_way {
            self.y.alloc_rest(NodeChoice::LOCAL, o(order), GFPS[gfp])
        } else {
            self.y.alloc(o(order), GFPS[gfp])
        };
        match answer {
            Ok(pfn) => self.own(pfn, o(order)),
            Err(_) => self.answers.push(None),
        }
        self.answers.last().is_some_and(Option::is_some)
    }

    pub(crate) fn free(&mut self, pfn: Pfn, order: Order) {
        if self.whole_way {
            self.y.free_rest(pfn, order).unwrap();
        } else {
            self.y.free(pfn, order).unwrap();
        }
        self.owned.remove(&pfn);
    }

    fn free_some(&mut self, from: usize, n: u8) {
        for i in 0..usize::from(n) {
            // Stride 1 frees neighbours, stride 7 blocks that lie apart.
            let stride = if from & 1 == 0 { 1 } else { 7 };
            if let Some((pfn, order)) = self.pick(from.wrapping_add(i * stride)) {
                self.free(pfn, order);
            }
        }
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        let y = self.y;
        let cpu = |n: u32| CpuId(n % y.cpus());
        match *op {
            Op::Alloc { order, gfp } => {
                self.alloc(order, gfp);
            }
            Op::AllocMany { order, gfp, n } => {
                // Fewer large blocks, so that they do not use everything up at once.
                for _ in 0..(u32::from(n) >> (order / 2)) + 1 {
                    if !self.alloc(order, gfp) {
                        break;
                    }
                }
            }
            Op::Free(pick) => {
                if let Some((pfn, order)) = self.pick(pick) {
                    self.free(pfn, order);
                }
            }
            Op::FreeMany { from, n } => self.free_some(from, n),
            Op::FreeDirect(pick) => {
                if let Some((pfn, order)) = self.pick(pick) {
                    y.free_direct(pfn, order).unwrap();
                    self.owned.remove(&pfn);
                }
            }
            Op::FreeShared(pick) => {
                if let Some((pfn, order)) = self.pick(pick) {
                    y.free_shared(pfn, order).unwrap();
                    self.owned.insert(pfn, Order::ZERO);
                }
            }
            Op::Split { pick, into } => self.split(pick, into),
            Op::SetMovable { pick, movable } => {
                if let Some((pfn, order)) = self.pick(pick) {
                    y.set_movable(pfn, order, movable).unwrap();
                }
            }
            Op::Bulk { gfp, n, holes } => self.bulk(gfp, n, holes),
            Op::BulkEach { gfp, n } => {
                let mut got = Vec::new();
                let n = y.alloc_bulk_each(n.into(), GFPS[gfp], |p| got.push(p)).unwrap();
                assert_eq!(n, got.len());
                got.into_iter().for_each(|p| self.own(p, Order::ZERO));
            }
            Op::Batch { from, n } => self.free_batch(from, n),
            Op::BadFree { pfn, order } => self.bad_free(pfn, order),
            Op::Cpu(n) => {
                y.hooks().on(cpu(n).0);
            }
            Op::Tick(n) => {
                y.tick(cpu(n));
            }
            Op::DrainCpu(n, kind) => y.drain_cpu(cpu(n), kind),
            Op::DrainAll(kind) => y.drain_all(kind),
            Op::Disabled { order, gfp, pick } => self.while_disabled(order, gfp, pick),
            Op::Reclaim(active) => {
                for k in ZoneKind::ALL {
                    y.set_reclaim_active(k, active);
                }
            }
            Op::CacheSlice { cpu: n, bytes } => {
                y.set_cache_slice(cpu(n), CacheSlice { last_level: bytes, all_levels: bytes });
            }
            Op::Unreserve { t, force } => {
                y.unreserve_highatomic(MigrateType::ALL[t], force);
            }
            // Values out of range are refused and change nothing.
            Op::MinFree(kb) => y.set_min_free_kbytes(kb).unwrap(),
            Op::Scale(n) => drop(y.set_watermark_scale_factor(n)),
            Op::Boost(n) => y.set_watermark_boost_factor(n).unwrap(),
            Op::Ratio(n) => y.set_lowmem_reserve_ratio([n; 5]),
            Op::Fraction(n) => drop(y.set_percpu_pagelist_high_fraction(n)),
            Op::Check => self.check(),
        }
    }

    fn split(&mut self, pick: usize, into: u8) {
        let Some((pfn, order)) = self.pick(pick) else { return };
        let answer = self.y.split(pfn, order, o(into));
        if into > order.get() {
            assert_eq!(answer, Err(FreeError::WrongOrder { allocated: order }));
            return;
        }
        answer.unwrap();
        for p in (pfn.0..pfn.0 + u64::from(order.pages())).step_by(1 << into) {
            self.owned.insert(Pfn(p), o(into));
        }
    }

    fn bulk(&mut self, gfp: usize, n: u8, holes: u64) {
        // A slot that is filled already holds a page that must not be touched.
        let filled = Pfn(u64::MAX);
        let mut slots: Vec<Option<Pfn>> =
            (0..n).map(|i| (holes >> (i % 64) & 1 != 0).then_some(filled)).collect();
        let before = slots.clone();
        let reached = self.y.alloc_bulk(GFPS[gfp], &mut slots).unwrap();
        for (i, (was, is)) in before.iter().zip(&slots).enumerate() {
            match (was, is) {
                (Some(_), _) => assert_eq!(was, is, "slot {i} was filled before"),
                (None, Some(pfn)) => {
                    assert!(i < reached, "slot {i} is filled beyond the index reached");
                    self.own(*pfn, Order::ZERO);
                }
                (None, None) => assert!(i >= reached, "slot {i} was passed over"),
            }
        }
    }

    fn free_batch(&mut self, from: usize, n: u8) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.clear();
        for i in 0..usize::from(n).min(self.owned.len()) {
            batch.extend(self.pick(from.wrapping_add(i)));
        }
        batch.sort_unstable_by_key(|b| std::cmp::Reverse(b.0));
        batch.dedup();
        self.y.free_batch(&batch).unwrap();
        for (pfn, _) in &batch {
            self.owned.remove(pfn);
        }
        self.batch = batch;
    }

    /// A free of a frame that is not allocated at this order is refused, within the zones and just
    /// beyond them.
    fn bad_free(&mut self, pfn: u64, order: u8) {
        let end = self.machine.zones.iter().map(|z| z.span.end.0).max().unwrap_or(0);
        let pfn = Pfn(pfn % (end + 2048));
        if self.owned.get(&pfn) != Some(&o(order)) {
            assert!(self.y.free(pfn, o(order)).is_err());
            assert!(self.y.free_direct(pfn, o(order)).is_err());
            assert!(self.y.free_shared(pfn, o(order)).is_err());
            assert!(self.y.split(pfn, o(order), Order::ZERO).is_err());
            assert!(self.y.set_movable(pfn, o(order), true).is_err());
            assert!(self.y.free_batch(&[(pfn, o(order))]).is_err());
        }
    }

    fn while_disabled(&mut self, order: u8, gfp: usize, pick: usize) {
        let y = self.y;
        let kinds: Vec<ZoneId> = y.zone_ids().collect();
        let guards: Vec<_> = kinds.iter().map(|&k| y.disable_pcp(k).unwrap()).collect();
        let empty = || kinds.iter().all(|&k| y.zone_info(k).unwrap().cached == 0);
        assert!(empty(), "disabled lists are empty");
        self.alloc(order, gfp);
        if let Some((pfn, order)) = self.pick(pick) {
            self.free(pfn, order);
        }
        assert!(empty(), "disabled lists stay empty");
        drop(guards);
    }

    /// Frees everything and drains every list.
    pub(crate) fn finish(&mut self) {
        while let Some((&pfn, &order)) = self.owned.iter().next() {
            self.free(pfn, order);
        }
        self.y.drain_all(None);
        self.check();
    }
}
