//! Regressions found by a reviewer's programs: calls and hooks within their contracts that lost a
//! page, or gave one page two owners.

#![allow(clippy::single_range_in_vec_init)] // the lists hold ranges

use crate::common;

use std::cell::Cell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::any::{AnyHooks, On};
use common::{Chosen, LINUX612, Lock, Machine, Reused, Stage, frames, o};
use pageyard::policy::{Linux612, Packed, Poisoned, Rules, StaticPolicy};
use pageyard::tuning::Limits;
use pageyard::{
    CmaArea, CpuId, Defences, Event, Gfp, Hooked, HotplugError, InitError, MigrateType, NodeId,
    Observer, Order, Pfn, Platform, Priority, Reclaim, Record, Relocation, SECTION_PAGES, Yard,
    ZONE_KINDS, ZoneId, ZoneKind, ZoneRecord,
};

const NORMAL: ZoneKind = ZoneKind::Normal;
const MOVABLE: Gfp = Gfp::KERNEL.union(Gfp::MOVABLE);
const S: u64 = SECTION_PAGES;

/// What [`Hooks`] do after a block was asked to move.
#[derive(Clone, Copy, Default)]
enum Then {
    /// Filling free memory panics.
    #[default]
    Panics,
    /// `cpu` returns a CPU that the yard does not know.
    Wanders,
}

#[derive(Default)]
struct Hooks {
    answer: Cell<Option<Relocation>>,
    then: Cell<Then>,
    relocated: Cell<bool>,
}

impl Platform for Hooks {
    fn cpu(&self) -> CpuId {
        let wanders = matches!(self.then.get(), Then::Wanders);
        CpuId(if self.relocated.get() && wanders { 99 } else { 0 })
    }
}

impl Reclaim for Hooks {
    fn relocate(&self, _: Pfn, _: Pfn, _: Order) -> Relocation {
        self.relocated.set(true);
        self.answer.get().expect("the answer is set before blocks move")
    }
}

impl Observer for Hooks {}

impl Defences for Hooks {
    fn poison(&self, _: Pfn, _: Order) {
        let panics = matches!(self.then.get(), Then::Panics);
        assert!(!(self.relocated.get() && panics), "planted");
    }
}

type Y = On<'static, Hooks>;

/// Moves a page and ends with two pages in use: the movable one, in its old or its new place, and
/// an immovable one.
fn page_moves(rules: Chosen, answer: Relocation, then: Then, moves: impl Fn(&Y, Pfn)) {
    let all = Reused::under(rules, Machine::normal(16384).cpus(&[0]));
    let y = Y::new(Hooks::default(), |hooks| all.next(hooks));
    let page = y.alloc(o(0), MOVABLE).unwrap();
    y.set_movable(page, o(0), true).unwrap();
    // An immovable page, far away.
    y.alloc_at(Pfn(8192 + 5), o(0), Gfp::KERNEL).unwrap();
    y.hooks().answer.set(Some(answer));
    y.hooks().then.set(then);
    let ended = catch_unwind(AssertUnwindSafe(|| moves(&y, page)));
    assert!(y.hooks().relocated.replace(false), "no block was asked to move");
    assert_eq!(ended.is_err(), matches!(then, Then::Panics));
    y.drain_all(None);
    y.validate().unwrap();
    let (info, out) = (y.zone_info(NORMAL).unwrap(), y.out_of_use(NORMAL).unwrap());
    assert_eq!(
        info.managed - info.free_exact - out.pages(),
        2,
        "only the owners' pages are in use: {out:?}"
    );
}

/// Spec §7.4: a migration target that was not used is free, or out of use.
#[test]
fn compaction_loses_no_target_if_the_fill_hook_panics() {
    page_moves(&<Poisoned>::RULES, Relocation::Refused, Then::Panics, |y, _| {
        _ = y.compact_zone(NORMAL, None, Priority::SyncFull);
    });
}

/// Spec §4.12.
#[test]
fn a_contiguous_range_loses_no_source_or_target() {
    for answer in [Relocation::Refused, Relocation::Moved] {
        page_moves(&<Poisoned>::RULES, answer, Then::Panics, contig);
        page_moves(LINUX612, answer, Then::Wanders, contig);
        page_moves(&Packed::RULES, answer, Then::Wanders, contig);
    }
}

fn contig(y: &Y, page: Pfn) {
    let block = page.0 & !511;
    let range = frames(block..block + 512);
    if y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL).is_ok() {
        let relocated = y.hooks().relocated.replace(false);
        y.free_contig(range).unwrap();
        y.hooks().relocated.set(relocated);
    }
}

/// Records of one whole section, free.
fn section(start: u64) -> Vec<Record> {
    let zone = ZoneRecord {
        present: S,
        managed: S,
        watermarks: [0, 1, 2, 3],
        boost: 0,
        flags: 0,
        reserved_highatomic: 0,
        isolated_blocks: 0,
        lowmem_reserve: [0; ZONE_KINDS],
        nr_free: S as i64,
        limits: Limits { batch: 1, high_min: 0, high_max: 0 },
        nofragment: false,
        grouping_disabled: false,
    };
    let t = MigrateType::Movable;
    let block = |pfn| Record::Block { pfn: Pfn(pfn), migrate_type: t };
    let free = |pfn| Record::Free { pfn: Pfn(pfn), order: Order::MAX, migrate_type: t };
    let blocks = (start..start + S).step_by(512).map(block);
    let free = (start..start + S).step_by(1024).map(free);
    [Record::Zone(zone)].into_iter().chain(blocks).chain(free).collect()
}

fn blank() -> Reused {
    Reused::new(Machine::normal(2 * S).cpus(&[0]))
}

/// Spec §8.4: `online` treats frames without a record as holes.
#[test]
fn a_restored_block_lies_in_a_pageblock_with_a_record() {
    let all = blank();
    let mut y: common::Y<'_> = all.next_blank(Stage::default());
    let stray = Record::Allocated { pfn: Pfn(S + 7), order: o(0), movable: false };
    let refused = y.restore(NORMAL, section(0).into_iter().chain([stray])).unwrap_err();
    assert!(refused.to_string().contains("a pageblock that has no record"), "{refused}");
    y.restore(NORMAL, section(0)).unwrap();
}

#[test]
fn a_restored_zone_manages_the_pages_of_its_blocks() {
    let all = blank();
    let mut y: common::Y<'_> = all.next_blank(Stage::default());
    let mut records = section(0);
    let Record::Zone(zone) = &mut records[0] else { unreachable!("the zone's record is first") };
    (zone.present, zone.managed) = (1, 1);
    let refused = y.restore(NORMAL, records).unwrap_err();
    assert!(refused.to_string().contains("more pages in blocks than managed"), "{refused}");
}

/// Spec §2.5: a node that has memory again serves requests again.
#[test]
fn an_emptied_and_restored_zone_serves_its_node() {
    let machine = Machine::new().zone_on(0, NORMAL, 0..S).zone_on(1, NORMAL, S..2 * S).cpus(&[1]);
    let mut y: common::Y<'_> = Reused::new(machine).next(Stage::default());
    y.offline(frames(S..2 * S)).unwrap();
    assert!(y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE).is_err(), "the node is empty");
    y.restore(ZoneId { node: NodeId(1), kind: NORMAL }, section(S)).unwrap();
    let page = y.alloc(o(0), Gfp::KERNEL | Gfp::THISNODE).unwrap();
    assert!(page.0 >= S, "{page}");
    y.validate().unwrap();
}

/// Spec §8.5: a CPU that is down has no lists. §5.5: disabled lists are empty.
#[test]
fn lists_are_restored_only_if_usable() {
    let all = Reused::new(Machine::normal(2 * S).cpus(&[0, 0]));
    let mut y: common::Y<'_> = all.next_blank(Stage::default());
    let limits = Limits { batch: 4, high_min: 8, high_max: 8 };
    let mut lists = common::state::cpu(1);
    let with = |lists| section(0).into_iter().chain([Record::Cpu(lists)]);
    assert!(y.cpu_dead(CpuId(1)));
    lists.tuning.limits = limits;
    let refused = y.restore(NORMAL, with(lists)).unwrap_err();
    assert!(refused.to_string().contains("the CPU is down"), "{refused}");
    y.restore(NORMAL, with(common::state::cpu(1))).unwrap();
    y.validate().unwrap();
    let mut y: common::Y<'_> = all.next_blank(Stage::default());
    std::mem::forget(y.disable_pcp(NORMAL).unwrap());
    let refused = y.restore(NORMAL, section(0)).unwrap_err();
    assert!(refused.to_string().contains("lists are disabled"), "{refused}");
}

/// Spec §11: a faulty frame is never allocated, whatever a snapshot says.
#[test]
fn a_restored_zone_excludes_poisoned_frames() {
    const MOVABLE: ZoneKind = ZoneKind::Movable;
    let second: Range<Pfn> = frames(S..2 * S);
    let machine = Machine::new().zone(NORMAL, 0..S).zone(MOVABLE, S..2 * S).cpus(&[0]);
    let mut y: common::Y<'_> = Reused::new(machine).next(Stage::default());
    let page = Pfn(S + 7);
    y.poison_frame(page).unwrap();
    y.offline(second.clone()).unwrap();
    let refused = y.restore(MOVABLE, section(S)).unwrap_err();
    assert!(refused.to_string().contains("faulty"), "{refused}");
    assert_eq!(y.is_poisoned(page), Some(true));
    y.online(second.clone()).unwrap();
    assert!(y.alloc_at(page, o(0), Gfp::KERNEL).is_err(), "a faulty frame was allocated");
    y.validate().unwrap();
}

/// Hooks that call the yard.
#[derive(Default)]
struct Calls {
    yard: Cell<Option<&'static Y2>>,
    frees_target: Cell<bool>,
    nested: Cell<Option<HotplugError>>,
    asked: Cell<u32>,
    inside: Cell<bool>,
    task: Cell<Option<u64>>,
}

type Y2 = On<'static, Calls>;

impl Platform for Calls {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn pause(&self) {
        assert!(!self.inside.get(), "the hook waits for its own operation");
    }
}

impl Reclaim for Calls {
    fn task(&self) -> Option<u64> {
        self.task.get()
    }

    fn relocate(&self, _: Pfn, to: Pfn, order: Order) -> Relocation {
        self.asked.set(self.asked.get() + 1);
        let yard = self.yard.get().expect("the yard is set before blocks move");
        if self.frees_target.get() {
            yard.free(to, order).unwrap();
        } else {
            self.inside.set(true);
            self.nested.set(yard.online(frames(0..S)).err());
            self.inside.set(false);
        }
        Relocation::Refused
    }
}

impl Observer for Calls {}
impl Defences for Calls {}

fn calls(machine: Machine) -> &'static Y2 {
    let yard = Y2::new(Calls::default(), |hooks| Reused::new(machine).next(hooks)).leak();
    yard.hooks().yard.set(Some(yard));
    yard
}

/// Spec §8.4: only one hotplug call runs at a time, and its hooks cannot make another.
#[test]
fn onlining_from_a_hook_during_offlining_is_rejected() {
    let y = calls(Machine::normal(4 * S).cpus(&[0]));
    let page = y.alloc(o(0), MOVABLE).unwrap();
    y.set_movable(page, o(0), true).unwrap();
    let section = page.0 & !(S - 1);
    let range = frames(section..section + S);
    for task in [None, Some(0), Some(7), Some(u64::MAX)] {
        y.hooks().task.set(task);
        y.hooks().nested.set(None);
        let refused = y.offline(range.clone()).unwrap_err();
        assert!(matches!(refused, HotplugError::Refused(_)), "the page stays: {refused}");
        assert_eq!(y.hooks().nested.take(), Some(HotplugError::Nested), "task {task:?}");
    }
    y.free(page, o(0)).unwrap();
    y.offline(range.clone()).unwrap();
    y.online(range).unwrap();
    y.validate().unwrap();
}

/// Spec §7.4: if a hook frees the target of a refused move, compaction does not free it again.
#[test]
fn compaction_skips_a_block_that_its_hook_freed() {
    let y = calls(Machine::normal(16384).cpus(&[0]));
    let page = y.alloc(o(0), MOVABLE).unwrap();
    y.set_movable(page, o(0), true).unwrap();
    // An immovable page, far away.
    y.alloc_at(Pfn(8192 + 5), o(0), Gfp::KERNEL).unwrap();
    y.hooks().frees_target.set(true);
    y.compact_zone(NORMAL, None, Priority::SyncFull);
    assert!(y.hooks().asked.get() > 0, "no block was asked to move");
    y.drain_all(None);
    y.validate().unwrap();
    let info = y.zone_info(NORMAL).unwrap();
    assert_eq!(info.managed - info.free_exact, 2, "the owners' pages");
}

/// Hooks of which one call panics.
#[derive(Default)]
struct Once {
    frees: Cell<u32>,
    prepares: Cell<u32>,
}

impl Once {
    fn count(left: &Cell<u32>) {
        let now = left.get();
        left.set(now.saturating_sub(1));
        assert!(now != 1, "planted");
    }
}

impl Platform for Once {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn prepare(&self, _: Pfn, _: Order, _: Gfp) {
        Once::count(&self.prepares);
    }
}

impl Reclaim for Once {}

impl Observer for Once {
    fn event(&self, _: CpuId, event: Event) {
        if let Event::Free { .. } = event {
            Once::count(&self.frees);
        }
    }
}

impl Defences for Once {}

fn once() -> On<'static, Once> {
    let all = Reused::new(Machine::normal(16384).cpus(&[0]));
    On::new(Once::default(), |hooks| all.next(hooks))
}

/// Spec §4.12: after a panic, pages already freed belong to the area, the others to their owner.
#[test]
fn an_area_keeps_pages_freed_before_a_hook_panicked() {
    let y = once();
    let words: Vec<_> = (0..8).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let area: CmaArea<'_, Lock> = CmaArea::new(&y, frames(512..1024), o(0), &words).unwrap();
    let first = area.alloc(&y, 8, 1, Gfp::KERNEL).unwrap();
    y.hooks().frees.set(4);
    catch_unwind(AssertUnwindSafe(|| area.free(&y, first, 8))).unwrap_err();
    assert_eq!(area.stats().used, 5);
    area.free(&y, Pfn(first.0 + 3), 5).unwrap();
    assert_eq!(area.stats().used, 0);
    assert_eq!(area.alloc(&y, 8, 1, Gfp::KERNEL).unwrap(), first);
}

/// Spec §6.1: a slot is filled only after its page was prepared.
#[test]
fn a_bulk_request_fills_no_slot_whose_page_was_not_prepared() {
    let y = once();
    y.hooks().prepares.set(3);
    let mut slots = [None; 8];
    catch_unwind(AssertUnwindSafe(|| y.alloc_bulk(Gfp::KERNEL, &mut slots))).unwrap_err();
    assert_eq!(slots.iter().flatten().count(), 2, "{slots:?}");
    for page in slots.iter().flatten() {
        y.free(*page, o(0)).unwrap();
    }
    y.drain_all(None);
    y.validate().unwrap();
    let info = y.zone_info(NORMAL).unwrap();
    assert_eq!(info.managed, info.free_exact);
}

#[test]
fn impossible_rules_are_rejected() {
    let refusal = |change: fn(&mut Rules)| {
        let mut rules = Linux612::RULES;
        change(&mut rules);
        Machine::normal(16384).refusal_of(&rules).expect("the rules are bad")
    };
    let refused = refusal(|r| r.pcp.scale_max = 40);
    assert_eq!(refused, InitError::Rule { name: "scale_max", value: 40, most: 6 });
    assert_eq!(refused.to_string(), "the policy's scale_max is 40; at most 6");
    let refused = refusal(|r| r.safety.guard_min_order = 11);
    assert_eq!(refused, InitError::Rule { name: "guard_min_order", value: 11, most: 5 });
}

/// Rules that change under an allocator in use give pages twice.
#[test]
fn an_allocator_in_use_keeps_its_rules() {
    let rules = &Linux612::RULES;
    let yard: Yard<'_, Hooked<Lock, (), &Rules>> = Yard::with_policy((), rules);
    let mut yard = yard;
    assert!(yard.set_policy(rules), "it has no memory yet");
    let map = [0x1_0000_0000..0x1_0400_0000];
    let mut yard = Yard::<Hooked<Lock, (), Linux612>>::from_memory_map(&map, &[], 1, ()).unwrap();
    assert!(!yard.set_policy(Linux612));
}

/// A hook that is asked to move a block asks for ranges and for compaction. It is not called from within
/// itself.
#[derive(Default)]
struct Nested {
    depth: Cell<u32>,
    deepest: Cell<u32>,
    calls: Cell<u32>,
    again: Cell<Option<&'static dyn Fn()>>,
}

impl Platform for Nested {}
impl Observer for Nested {}
impl Defences for Nested {}
impl Reclaim for Nested {
    fn relocate(&self, _: Pfn, _: Pfn, _: Order) -> Relocation {
        self.depth.set(self.depth.get() + 1);
        self.deepest.set(self.deepest.get().max(self.depth.get()));
        self.calls.set(self.calls.get() + 1);
        if self.depth.get() < 20
            && let Some(again) = self.again.get()
        {
            again();
        }
        self.depth.set(self.depth.get() - 1);
        Relocation::Refused
    }
}

fn relocation_is_not_nested<P: StaticPolicy + 'static>() {
    type Y<P> = On<'static, Nested, AnyHooks<'static>, Lock, P>;
    type Way<P> = fn(&Y<P>);
    let ways: [Way<P>; 4] = [
        |yard| yard.compact_all(),
        |yard| yard.compact_node(NodeId(0)),
        |yard| {
            let half = Pfn(0x10_0000)..Pfn(0x10_0000 + (8 << 8));
            let _ = yard.alloc_contig(half, MigrateType::Movable, Gfp::KERNEL | Gfp::NOWARN);
        },
        |yard| {
            let (t, gfp) = (MigrateType::Movable, Gfp::KERNEL | Gfp::NOWARN);
            let _ = yard.alloc_contig_pages(2048, 1, Pfn(0)..Pfn(u64::MAX), t, gfp);
        },
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let map = [0x1_0000_0000..0x1_0100_0000];
        let make = |hooks| Yard::from_memory_map(&map, &[], 1, hooks).unwrap();
        let yard = Y::<P>::new(Nested::default(), make).leak();
        let take = || yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN).ok();
        let pages: Vec<Pfn> = std::iter::from_fn(take).collect();
        for (i, &page) in pages.iter().enumerate() {
            match i % 2 {
                0 => yard.free(page, Order::ZERO).unwrap(),
                _ => assert!(yard.set_movable(page, Order::ZERO, true).is_ok()),
            }
        }
        yard.hooks().again.set(Some(Box::leak(Box::new(move || way(yard)))));
        way(yard);
        let hooks = yard.hooks();
        assert!(hooks.calls.get() > 0, "{n}: nothing was to be moved");
        assert_eq!(hooks.deepest.get(), 1, "{n}");
        yard.validate().unwrap();
    }
}

#[test]
fn a_hook_that_moves_a_block_moves_no_others() {
    relocation_is_not_nested::<Linux612>();
    relocation_is_not_nested::<Packed>();
}
