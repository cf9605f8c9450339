//! The owners of blocks (spec §9.7), in the kernel's format and as sums.

use std::cell::Cell;

use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, NodeId, Observer, Order, PageFlags, Pfn, Platform,
    Reclaim, Yard, ZoneKind,
};
use pageyard_lab::Lock;
use pageyard_lab::owner::{By, Place, groups, text};
use pageyard_report::{OwnerRecord, PageOwner, Task};

use crate::with_yard;

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

fn o(order: u8) -> Order {
    Order::new(order).unwrap()
}

fn run(f: impl FnOnce(&Yard<'_, Hooked<Lock, &Machine<'_>>>, &Machine<'_>)) {
    let records: Vec<OwnerRecord> = (0..PAGES).map(|_| OwnerRecord::default()).collect();
    let machine = Machine {
        owner: PageOwner::new(Pfn(FIRST), &records),
        task: Cell::new(task("init", 1)),
        stack: Cell::new(0),
        clock: Cell::new(1000),
    };
    with_yard(FIRST..FIRST + PAGES, &machine, |y| f(y, &machine));
}

#[test]
fn s9_7_an_owner_prints_in_the_kernels_format() {
    run(|y, m| {
        m.task.set(task("a-very-long-name", 41));
        m.clock.set(123_456_789);
        let p = y.alloc(o(2), Gfp::KERNEL | Gfp::ZERO).unwrap();
        let owner = m.owner.get(p).unwrap();
        let place = Place {
            block_type: y.block_type(p).unwrap(),
            flags: PageFlags::LRU | PageFlags::ACTIVE,
            node: NodeId(0),
            zone: ZoneKind::Normal,
        };
        let (pfn, block) = (p.0, p.0 >> 9);
        assert_eq!(
            text(&owner, &place),
            format!(
                "Page allocated via order 2, mask 0xdc0(GFP_KERNEL|__GFP_ZERO), pid 42, tgid 41 \
                 (a-very-long-name), ts 123456789 ns\n\
                 PFN {pfn:#x} type Unmovable Block {block} type Unmovable Flags \
                 0x6(lru|active|node=0|zone=2)\n"
            )
        );
        y.free(p, o(2)).unwrap();
        assert_eq!(m.owner.get(p), None);
    });
}

#[test]
fn s9_7_owners_are_grouped_and_sorted_by_pages() {
    run(|y, m| {
        for (name, tgid, stack, order, n) in
            [("small", 10, 1, 0, 9), ("large", 20, 2, 4, 1), ("large", 21, 1, 3, 1)]
        {
            m.task.set(task(name, tgid));
            m.stack.set(stack);
            for _ in 0..n {
                y.alloc(o(order), Gfp::KERNEL).unwrap();
            }
        }
        let lines =
            |by| groups(m.owner.owners(), by).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            lines(By::Process),
            [
                "1 times, 16 pages: large (tgid 20)",
                "9 times, 9 pages: small (tgid 10)",
                "1 times, 8 pages: large (tgid 21)",
            ]
        );
        assert_eq!(
            lines(By::Stack),
            ["10 times, 17 pages: stack 0x1", "1 times, 16 pages: stack 0x2"]
        );
        assert_eq!(lines(By::Request)[1], "9 times, 9 pages: order 0, mask 0xcc0(GFP_KERNEL)");
    });
}
