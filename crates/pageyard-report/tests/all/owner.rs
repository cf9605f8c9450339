//! Spec §9.7, §9.4: the owner of every block, and how many pageblocks are mixed.

use std::cell::Cell;

use crate::common;
use common::{Lock, o};
use pageyard::policy::Linux612;
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, MigrateType, Observer, Order, Pfn, Platform, Reclaim,
    Yard, ZoneKind,
};
use pageyard_report::{OwnerRecord, PageOwner, Task};

const FIRST: u64 = 1 << 16;
const PAGES: u64 = 8192;

struct Machine<'a> {
    owner: PageOwner<'a>,
    task: Cell<Task>,
    stack: Cell<u64>,
    clock: Cell<u64>,
}

impl Platform for Machine<'_> {
    fn now(&self) -> u64 {
        self.clock.get()
    }
}

impl Reclaim for Machine<'_> {}

impl Observer for Machine<'_> {
    const SEES_EVERY_BLOCK: bool = true;

    fn event(&self, _: CpuId, event: Event) {
        let task = self.task.get();
        self.owner.note(&event, self.now(), &task, self.stack.get());
    }
}

impl Defences for Machine<'_> {}

fn task(name: &str, tgid: u32) -> Task {
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name.as_bytes());
    Task { pid: tgid + 1, tgid, comm }
}

fn run(f: impl FnOnce(&Yard<'_, Hooked<Lock, &Machine<'_>, Linux612>>, &Machine<'_>)) {
    let records: Vec<OwnerRecord> = (0..PAGES).map(|_| OwnerRecord::default()).collect();
    let machine = Machine {
        owner: PageOwner::new(Pfn(FIRST), &records),
        task: Cell::new(task("init", 1)),
        stack: Cell::new(0),
        clock: Cell::new(1000),
    };
    common::Machine::new()
        .zone(ZoneKind::Normal, FIRST..FIRST + PAGES)
        .knobs(|knobs| knobs.huge_pages = true)
        .run_on(&machine, |y: &Yard<'_, Hooked<Lock, &Machine<'_>, Linux612>>| f(y, &machine));
}

/// Every allocated page has an owner, whichever function allocated it (§6.1), and whatever happened
/// to its block since.
#[test]
fn s9_7_every_page_in_use_has_an_owner() {
    run(|y, m| {
        let held = || m.owner.owners().map(|b| (b.pfn.0, b.order.get())).collect::<Vec<_>>();
        let mut slots = [None; 5];
        let got = y.alloc_bulk(Gfp::KERNEL, &mut slots).unwrap();
        assert_eq!(got, 1, "one page per call while owners are recorded");
        assert_eq!(held(), [(slots[0].unwrap().0, 0)]);
        y.free(slots[0].unwrap(), Order::ZERO).unwrap();
        assert_eq!(y.alloc_bulk_each(5, Gfp::KERNEL, |p| y.free(p, Order::ZERO).unwrap()), Ok(1));
        assert_eq!(held(), []);

        m.stack.set(77);
        let p = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.free_shared(p, o(3)).unwrap();
        assert_eq!(held(), [(p.0, 0)], "the first page stays");
        assert_eq!(m.owner.get(p).unwrap().stack, 77);
        y.free(p, Order::ZERO).unwrap();

        let p = y.alloc(o(3), Gfp::KERNEL).unwrap();
        y.split(p, o(3), o(1)).unwrap();
        m.owner.split(p, o(1));
        assert_eq!(held(), [0, 2, 4, 6].map(|i| (p.0 + i, 1)));
        y.free_batch(&[0, 2, 4, 6].map(|i| (Pfn(p.0 + i), o(1)))).unwrap();
        assert_eq!(held(), []);
    });
}

#[test]
fn s9_7_a_record_keeps_moves_and_the_previous_free() {
    run(|y, m| {
        m.stack.set(5);
        let p = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        m.clock.set(2000);
        y.free(p, Order::ZERO).unwrap();
        m.task.set(task("later", 9));
        let q = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert_eq!(p, q);
        assert_eq!(m.owner.get(q).unwrap().freed, (2000, 5, 2, 1));
        let r = y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        m.owner.moved(q, r, 3);
        let moved = m.owner.get(r).unwrap();
        assert_eq!((moved.task.tgid, moved.moved, moved.gfp), (9, Some(3), Gfp::KERNEL));
        assert_eq!(m.owner.get(q).unwrap().moved, None);
    });
}

#[test]
fn s9_4_a_pageblock_with_a_page_of_another_type_is_mixed() {
    run(|y, m| {
        let mixed = || m.owner.mixed_blocks(y, ZoneKind::Normal).unwrap();
        assert_eq!(mixed(), [0; 6]);
        // Only pages of their own block's type.
        let a = y.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(y.block_type(a), Some(MigrateType::Movable));
        let b = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        assert_eq!(y.block_type(b), Some(MigrateType::Unmovable));
        assert_eq!(mixed(), [0; 6]);
        // Memory runs out, so types mix. Every block with a page of another type counts once, under
        // its own type.
        while y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::RECLAIMABLE | Gfp::MEMALLOC).is_ok() {}
        let mut want = [0; 6];
        for block in (FIRST..FIRST + PAGES).step_by(512) {
            let t = y.block_type(Pfn(block)).unwrap();
            let stranger = m
                .owner
                .owners()
                .any(|w| w.pfn.0 & !511 == block && w.gfp.migrate_type() != Some(t));
            want[t as usize] += u64::from(stranger);
        }
        assert_eq!(mixed(), want);
        assert!(
            want.iter().sum::<u64>() > 0,
            "the two pages above are in blocks of another type now"
        );
    });
    // A block of the largest order is in two pageblocks.
    run(|y, m| {
        let p = y.alloc(Order::MAX, Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_eq!(m.owner.mixed_blocks(y, ZoneKind::Normal).unwrap(), [0; 6]);
        let gfp = Gfp::KERNEL;
        let event = Event::Alloc {
            pfn: Some(p),
            order: Order::MAX,
            migrate_type: MigrateType::Unmovable,
            gfp,
        };
        m.owner.note(&event, 0, &Task::default(), 0);
        assert_eq!(m.owner.mixed_blocks(y, ZoneKind::Normal).unwrap()[1], 2);
    });
}

/// Records up to the highest frame number.
#[test]
fn owners_are_split_up_to_the_last_frame_number() {
    let records = <[OwnerRecord; 8]>::default();
    let first = Pfn(u64::MAX - 7);
    let owners = PageOwner::new(first, &records);
    let (migrate_type, gfp) = (MigrateType::Unmovable, Gfp::KERNEL);
    let event = Event::Alloc { pfn: Some(first), order: o(3), migrate_type, gfp };
    owners.note(&event, 1, &Task::default(), 0);
    owners.split(first, o(1));
    let parts: Vec<_> = owners.owners().map(|owner| (owner.pfn.0 - first.0, owner.order)).collect();
    assert_eq!(parts, [(0, o(1)), (2, o(1)), (4, o(1)), (6, o(1))]);
}
