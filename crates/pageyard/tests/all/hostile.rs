//! Calls every public function of the core with invalid and extreme arguments: the extremes of all
//! numbers, each flag alone and all at once, frames, ranges, nodes and CPUs that do not exist. No
//! call panics, loops for ever or overflows, and afterwards the yard is valid and empty.
//!
//! The functions are in `verify/calls/core/table.rs`; `scripts/no-panic.sh` checks their machine code.

use std::path::Path;

use crate::common;
use common::any::{AnyHooks, any_hooks};
use common::by_thread::CPU;
use common::{Chosen, LINUX612, Lock, o, records};
use pageyard::compact::CompactResult as Result_;
use pageyard::{
    Defences, Hooked, Observer, PageFlags, Platform, Reclaim, Relocation, Yard, packed,
};

#[path = "common/calls.rs"]
#[macro_use]
mod calls;
#[path = "common/public.rs"]
mod public;

use calls::{Hostile, MOVABLE, SECTION, WIDTH, is_called, leak, machine};
use public::{functions, functions_under};

type Y<'y, P> = Yard<'y, Hooked<Lock, AnyHooks<'static>, P>>;

/// Moves some blocks, asks for free page reports, and names any CPU as the current one.
struct Mover;

impl Platform for Mover {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

impl Reclaim for Mover {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        [Relocation::Moved, Relocation::Busy, Relocation::Refused][(from.0 % 3) as usize]
    }
}

impl Observer for Mover {}
impl Defences for Mover {}

/// A row: a function's name, and code that calls it with each of its arguments.
type Row = (&'static str, fn(&Y<'_, Chosen>, &mut dyn FnMut()));

include!("../../../../verify/calls/core/table.rs");

fn ranges() -> Vec<Range<Pfn>> {
    let some = [
        (MOVABLE, MOVABLE + 512),
        (0, u64::MAX),
        (u64::MAX, 0),
        (MOVABLE, MOVABLE + SECTION),
        (4096, 5120),
        (7, 7),
        (4095, 4097),
        (1 << 63, u64::MAX),
        (20_000, MOVABLE + 3),
    ];
    let all = Pfn::values();
    let every = all.iter().flat_map(|&a| all.iter().map(move |&b| a..b));
    some.into_iter().map(|(a, b)| Pfn(a)..Pfn(b)).chain(every).collect()
}

fn gfps() -> Vec<Gfp> {
    let some = [
        Gfp::KERNEL.bits(),
        u32::MAX,
        0,
        Gfp::ATOMIC.bits(),
        Gfp::KERNEL.bits() | 1 << 31,
        (Gfp::KERNEL | Gfp::MOVABLE | Gfp::COMP).bits(),
        (Gfp::KERNEL | Gfp::NOFAIL | Gfp::THISNODE).bits(),
        !(Gfp::DMA | Gfp::DMA32 | Gfp::HIGHMEM | Gfp::MOVABLE | Gfp::RECLAIMABLE).bits(),
    ];
    let bits = (0..32).map(|n| 1u32 << n).flat_map(|bit| [bit, bit | Gfp::KERNEL.bits(), !bit]);
    some.into_iter().chain(bits).map(Gfp::from_bits_retain).collect()
}

/// Settings at their limits, one at a time.
fn some_knobs() -> Vec<Knobs> {
    fn of(n: u64) -> [Knobs; 5] {
        let k = Knobs::default();
        [
            Knobs { min_free_kbytes: n, user_min_free_kbytes: Some(n), ..k },
            Knobs { watermark_scale_factor: n, watermark_boost_factor: n, ..k },
            Knobs { lowmem_reserve_ratio: [n; 5], ..k },
            Knobs { percpu_pagelist_high_fraction: n as u32, ..k },
            Knobs { compaction_proactiveness: n, extfrag_threshold: n, stat_interval: n, ..k },
        ]
    }
    u64::values().into_iter().flat_map(of).collect()
}

/// Extreme values that a snapshot may have for a pageset.
fn tunings() -> Vec<Tuning> {
    fn of(n: i32) -> [Tuning; 4] {
        let limits = Limits { batch: n.min(tuning::MAX_BATCH), high_min: n, high_max: n };
        let wide = Limits { high_min: 0, high_max: tuning::MAX_PAGES, ..limits };
        let factor = |most: i32| n.min(most) as u8;
        let (alloc_factor, free_factor) = (factor(6), factor(14));
        [
            Tuning { count: n, limits: wide, alloc_factor, ..Tuning::default() },
            Tuning { high: n, limits, free_factor, ..Tuning::default() },
            Tuning { flags: factor(3), alloc_factor, free_factor, ..Tuning::default() },
            Tuning { free_count: n, count_min: n, high: n, limits: wide, ..Tuning::default() },
        ]
    }
    [0, tuning::MAX_PAGES, 1, 63, tuning::MAX_BATCH, tuning::MAX_PAGES - 1]
        .into_iter()
        .flat_map(of)
        .collect()
}

fn counts(n: u64) -> BlockCounts {
    BlockCounts(BlockCounts::default().0.map(|row| row.map(|_| n)))
}

fn cpu_stats(n: u64) -> CpuStats {
    let none = CpuStats::default();
    CpuStats {
        allocs: counts(n),
        frees: counts(n),
        direct_allocs: n,
        direct_frees: n,
        direct_alloc_pages: n,
        direct_free_pages: n,
        refills: n,
        refilled_pages: n,
        empty_refills: n,
        drains: none.drains.map(|_| n),
        drained_pages: none.drained_pages.map(|_| n),
        ticks: n,
    }
}

#[test]
fn sums_of_public_fields_saturate() {
    let all = OutOfUse { bad: u64::MAX, poisoned: u64::MAX, guards: 1 };
    assert_eq!(all.pages(), u64::MAX);
    let most = packed::Needs { blocks: usize::MAX, cpus: 1, ..packed::Needs::NONE };
    assert_eq!(most.bytes::<Lock>(), usize::MAX);
}

fn page_states() -> Vec<PageState> {
    let link = pageyard::Link::Tail(Pfn(u64::MAX));
    vec![
        PageState::UNUSED,
        PageState { mapcount: i32::MIN, refcount: u32::MAX, ..PageState::UNUSED },
        PageState { flags: PageFlags::from_bits_retain(u32::MAX), link, ..PageState::UNUSED },
    ]
}

fn words() -> Vec<&'static str> {
    let long: &str = leak("9".repeat(1 << 16));
    let mut all =
        vec!["", "\u{1b}[2J", long, "18446744073709551616", "-1", "%s%n", "9 9 9 9 9 9 9"];
    all.extend(["0", "18446744073709551615", "\n1\n", "é", "0x10"]);
    all.extend(pageyard::KNOBS.iter().map(|k| k.name));
    all
}

fn slots(n: usize) -> &'static mut [Option<Pfn>] {
    vec![None; n].leak()
}

hostile! {
    NodeMask: [1, u64::MAX, 0, 2, 1 << 63, 3].map(NodeMask);
    policy::Engine: [policy::Engine::Exact, policy::Engine::Packed];
    Gfp: gfps();
    Range<Pfn>: ranges();
    Place: u64::values().into_iter().take(12).flat_map(|align| {
        [None, Some(Pfn(0)), Some(Pfn(u64::MAX)), Some(Pfn(7))].map(|below| Place { align, below })
    });
    Priority: [Priority::SyncFull, Priority::SyncLight, Priority::Async];
    Result_: [Result_::NotSuitableZone, Result_::Deferred, Result_::Complete, Result_::Success];
    ContigError: [ContigError::Busy(Pfn(u64::MAX)), ContigError::BadAlign(u64::MAX), ContigError::NoPlace];
    IsolateError: [IsolateError::OutsideZone(Pfn(u64::MAX)), IsolateError::UnknownCpu(CpuId(u32::MAX))];
    InitError: [InitError::ZonesOverlap(usize::MAX, 0), InitError::TooManyNodes(NodeId(u16::MAX))];
    VmEvent: VmEvent::ALL.iter().copied();
    CacheSlice: u64::values().into_iter().flat_map(|n| {
        [CacheSlice { last_level: n, all_levels: 0 }, CacheSlice { last_level: n, all_levels: n }]
    });
    Limits: i32::values().into_iter().map(|n| Limits { batch: n, high_min: n, high_max: n });
    Pressure: [false, true].map(|on| Pressure { reclaim_active: on, below_high: on });
    Room: i32::values().into_iter().map(|n| Room { pages: n, free_count: n });
    PageState: page_states();
    Knobs: some_knobs();
    &'static str: words();
    &'static mut [Option<Pfn>]: [slots(7), slots(0), slots(1), slots(3000)];
    &'static mut [(Pfn, Order)]: [0, 1, 3].map(|n| &mut *vec![(Pfn(u64::MAX), o(10)); n].leak());
    &'static mut [Lent]: [0, 1, 3].map(|n| &mut *vec![Lent::NONE; n].leak());
    &'static mut [Range<Pfn>]: [0, 1, 3000].map(|n| &mut *vec![Pfn(0)..Pfn(0); n].leak());
    &'static [Pfn]: [&[][..], leak([Pfn(u64::MAX); 70]), leak([Pfn(7); 3])];
    &'static [(Pfn, Order)]: [&[][..], leak([(Pfn(u64::MAX), o(10)); 70]), leak([(Pfn(4096), o(0)); 3])];
    &'static [AtomicU64]: [&[][..], leak([const { AtomicU64::new(u64::MAX) }; 16]),
        leak([const { AtomicU64::new(0) }; 16]), leak([const { AtomicU64::new(0) }; 1])];
    &'static [u8]: [&[][..], &[0xff; 99], &[poison::POISON_BYTE; 1]];
    &'static mut [u8]: [vec![].leak(), vec![0; 99].leak()];
    &'static [Record]: [&[][..], leak([Record::Allocated { pfn: Pfn(u64::MAX), order: o(10), movable: true }; 2])];
    &'static [(u64, u64)]: [&[][..], leak([(u64::MAX, u64::MAX); 3]), leak([(0, 0); 3])];
    &'static [u64; 11]: [&BLOCKS, leak([u64::MAX; 11]), leak([0; 11]), leak([1 << 63; 11])];
    &'static [u64; 5]: [&*leak([7; 5]), leak([u64::MAX; 5]), leak([0; 5]), leak([1 << 63; 5])];
    &'static Interleave: [1, u64::MAX, 0, 2].map(|n| &*leak(Interleave::new(NodeMask(n))));
    &'static Faults: [FaultPlan::NONE, FaultPlan { per_mille: u32::MAX, interval: u64::MAX, ..FaultPlan::NONE },
        FaultPlan { per_mille: 1, interval: 0, times: u64::MAX, space: u64::MAX, ..FaultPlan::NONE }]
        .map(|plan| &*leak(Faults::new(plan)));
    &'static BlockCounts: u64::values().into_iter().map(|n| &*leak(counts(n)));
    &'static CpuStats: u64::values().into_iter().map(|n| &*leak(cpu_stats(n)));
    &'static mut CpuStats: u64::values().into_iter().map(|n| leak(cpu_stats(n)));
    &'static Tuning: tunings().into_iter().map(|t| &*leak(t));
    &'static mut Tuning: tunings().into_iter().map(leak);
    &'static Deferral: u8::values().into_iter().map(|n| {
        &*leak(Deferral { considered: n, shift: n, order_failed: n })
    });
    &'static mut Deferral: u8::values().into_iter().map(|n| {
        leak(Deferral { considered: n, shift: n, order_failed: n })
    });
    &'static Layout<'static>: layouts();
    &'static Needs: usize::values().into_iter().flat_map(|n| {
        [NEEDS, Needs { frames: n, ..NEEDS }, Needs { slots: n, cpu_zones: n, ..NEEDS }].map(|n| &*leak(n))
    });
}

/// Layouts of spans and counts that are invalid, or that need more memory than exists.
fn layouts() -> Vec<&'static Layout<'static>> {
    let of = |r: Range<Pfn>| {
        let zones: &'static [ZoneSpec] =
            leak([ZoneSpec { kind: KIND, node: NodeId(0), span: r.clone() }]);
        let far: &'static [ZoneSpec] =
            leak([ZoneSpec { kind: KIND, node: NodeId(u16::MAX), span: r.clone() }]);
        let usable: &'static [Range<Pfn>] = leak([r.clone(), r]);
        let cpus: &'static [NodeId] = &[NodeId(0)];
        let plain = layout();
        [
            Layout { zones, usable, ..plain },
            Layout { zones: far, usable, ..plain },
            Layout { usable, ..plain },
            Layout { reserved: usable, ..plain },
            Layout { zones, cpus: &[], ..plain },
            Layout { zones, cpus, distances: &[0; 3], ..plain },
        ]
    };
    let plain: &'static Layout<'static> = leak(layout());
    let all = ranges().into_iter().take(1000).flat_map(of).map(|l| &*leak(l));
    std::iter::once(plain).chain(all).collect()
}

/// Frees every allocated block, whether a call allocated it or its relocator left it.
fn free_all(y: &Y<'_, Chosen>) {
    CPU.set(0);
    (0..y.cpus()).for_each(|cpu| _ = y.cpu_up(CpuId(cpu)));
    for zone in y.zone_ids() {
        for record in records(y, zone) {
            if let Record::Allocated { pfn, order, .. } = record {
                y.free(pfn, order).unwrap();
            }
        }
    }
    let blocks = |z: ZoneId| {
        let zone = y.zone_info(z).unwrap();
        (zone.start.0..zone.start.0 + zone.spanned).step_by(512).map(Pfn)
    };
    for pfn in y.zone_ids().flat_map(blocks) {
        if y.block_type(pfn) == Some(MigrateType::Isolate) {
            y.unisolate(pfn..Pfn(pfn.0 + 512), MigrateType::Movable).unwrap();
        }
    }
    y.drain_all(None);
}

fn free(y: &Y<'_, Chosen>) -> (u64, u64) {
    let zones = || y.zone_ids().filter_map(|z| y.zone_info(z));
    (zones().map(|z| z.free_exact).sum(), zones().map(|z| z.managed).sum())
}

/// Functions after which not all memory is free, because they take frames out of use.
const KEEPS: [&str; 1] = ["call_poison_frame"];

/// Runs one row; afterwards the yard is valid and empty.
fn call(name: &str, row: fn(&Y<'_, Chosen>, &mut dyn FnMut()), cpu: u32) {
    machine().run_on_under(any_hooks(Mover), LINUX612, |y: &Y<'_, Chosen>| {
        CPU.set(cpu);
        row(y, &mut || {
            let (free, managed) = free(y);
            if free < managed / 4 * 3 && !KEEPS.contains(&name) {
                free_all(y);
                CPU.set(cpu);
            }
        });
        y.validate().unwrap();
        free_all(y);
        y.validate().unwrap();
        let (free, managed) = free(y);
        assert!(free == managed || KEEPS.contains(&name), "{free} of {managed} pages are free");
    });
}

fn call_all(cpu: u32) {
    let fails = |&&(name, row): &&Row| {
        println!("{name}, CPU {cpu}");
        std::panic::catch_unwind(|| call(name, row, cpu)).is_err()
    };
    let failed: Vec<&str> = ROWS.iter().filter(fails).map(|(name, _)| *name).collect();
    assert_eq!(failed, [""; 0], "CPU {cpu}");
}

#[test]
fn no_argument_makes_a_function_panic_or_lose_memory() {
    call_all(0);
}

#[test]
fn no_argument_panics_on_an_unknown_cpu() {
    call_all(u32::MAX);
}

/// Functions that make a yard; the table omits them. `robustness.rs` makes yards of any layout.
const MAKERS: [&str; 26] = [
    "PerCpu::new",
    "Frame::new",
    "CpuZones::new",
    "Node::new",
    "OwnedStorage::for_needs",
    "OwnedStorage::leak",
    "OwnedStorage::new",
    "OwnedStorage::storage",
    "Parts::defences",
    "Parts::new",
    "Parts::observer",
    "Parts::reclaim",
    "Pageblock::new",
    "Zone::new",
    "Yard::blank",
    "Yard::deferred",
    "Yard::from_memory_map",
    "Yard::init",
    "Yard::init_blank",
    "Yard::init_deferred",
    "Yard::new",
    "Yard::hooks_mut",
    "Yard::restore",
    "Yard::set_policy",
    "Yard::with_policy",
    "Yard::without_memory",
];

/// Functions of the feature `lines`, without which the table is compiled.
const SIMULATORS: [&str; 6] = [
    "Access::writes",
    "Shared::element_at",
    "Yard::for_each_shared",
    "Yard::pass_cpu_lock",
    "Yard::pass_zone_lock",
    "lines::set_hook",
];

#[test]
fn every_public_function_has_a_row() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut declared = functions_under(&root.join("crates/pageyard/src"));
    assert!(declared.len() >= 230, "{}: the form of the sources has changed", declared.len());
    // The packed engine's functions have a table of their own, for `tests/packed/hostile.rs`.
    let table = ["table.rs", "packed.rs"].map(|file| root.join("verify/calls/core").join(file));
    let table = table.map(|path| std::fs::read_to_string(path).unwrap()).concat();
    let missing = |declared: &std::collections::BTreeSet<String>| -> Vec<String> {
        let elsewhere = |f: &str| MAKERS.contains(&f) || SIMULATORS.contains(&f);
        let called = |f: &&String| !is_called(&table, f) && !elsewhere(f);
        declared.iter().filter(called).cloned().collect()
    };
    assert_eq!(missing(&declared), [""; 0]);
    // Functions without one are found.
    let new = "impl<P> Yard<P> {\n    pub fn melt(&self) {}\n}\npub fn fil() {}\n";
    declared.extend(functions("poison", new));
    assert_eq!(missing(&declared), ["Yard::melt", "poison::fil"]);
}
