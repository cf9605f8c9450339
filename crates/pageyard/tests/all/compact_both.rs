//! Both engines compact the same random layouts for the same requests. Checks of answers cannot see that a
//! request failed which another engine would have served.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::common::any::{AnyHooks, On};
use crate::common::random::Random;
use crate::common::{Chosen, LINUX612, Lock, Machine, o};
use pageyard::policy::{Packed, StaticPolicy};
use pageyard::{
    Defences, Gfp, Observer, Order, OwnedStorage, Pfn, Platform, Reclaim, Relocation, Yard,
    ZoneKind,
};

const PACKED: Chosen = &<Packed as StaticPolicy>::RULES;

/// Keeps the owners of movable blocks: moves them all.
#[derive(Default)]
struct Owners {
    blocks: RefCell<BTreeMap<Pfn, Order>>,
    moved: Cell<u64>,
}

impl Platform for Owners {}
impl Observer for Owners {}
impl Defences for Owners {}
impl Reclaim for Owners {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let mut blocks = self.blocks.borrow_mut();
        assert_eq!(blocks.remove(&from), Some(order), "{from} has no owner");
        assert_eq!(blocks.insert(to, order), None, "{to} has two owners");
        self.moved.set(self.moved.get() + u64::from(order.pages()));
        Relocation::Moved
    }
}

/// A block in use at a place. `movable`: its owner lets it move.
struct Block {
    pfn: Pfn,
    order: Order,
    movable: bool,
}

/// A zone's layout and a request.
struct Case {
    machine: Machine,
    blocks: Vec<Block>,
    order: Order,
    gfp: Gfp,
}

impl Case {
    /// Pageblocks of one density or of several, single pages or blocks of several orders, some of which do
    /// not move. An eighth of the zone and room for the request stay free.
    fn new(random: &mut Random) -> Case {
        let pages: u64 = [2048, 4096, 8192, 16384][random.below(4)];
        let base = [0, 0, 0, 333][random.below(4)];
        let order = o(1 + random.below(10) as u8);
        let style = random.below(5);
        let (largest, unmovable) =
            ([0, 0, 1, 3, 5, 8][random.below(6)], [0, 0, 1, 10, 30][random.below(5)]);
        let mut free = pages;
        let (mut pfn, mut density): (u64, _) = (base, 0);
        let mut blocks = Vec::new();
        while pfn < base + pages {
            if (pfn - base) % 512 == 0 {
                density = match style {
                    0 => 50,
                    1 => 80,
                    2 => [10, 90, 100][random.below(3)],
                    3 => 30 + random.below(60),
                    _ => random.below(101),
                };
            }
            let mut n = if random.below(3) == 0 { random.below(largest + 1) as u32 } else { 0 };
            n = n.min(pfn.trailing_zeros()).min((base + pages - pfn).ilog2());
            let kept = pages / 8 + (2 << order.get());
            if random.below(100) < density && free >= kept + (1 << n) {
                let movable = random.below(1000) >= unmovable;
                blocks.push(Block { pfn: Pfn(pfn), order: o(n as u8), movable });
                free -= 1 << n;
                pfn += 1 << n;
            } else {
                pfn += 1;
            }
        }
        let patient = if order.get() > 3 { Gfp::RETRY_MAYFAIL } else { Gfp::NORETRY };
        let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE][random.below(2)] | patient | Gfp::NOWARN;
        Case {
            machine: Machine::new().zone(ZoneKind::Normal, base..base + pages),
            blocks,
            order,
            gfp,
        }
    }

    /// Returns whether the request is served, and the pages that moved for it.
    fn run(&self, rules: Chosen) -> (bool, u64) {
        let make = |hooks| {
            let layout = self.machine.layout();
            let mut y = Yard::with_policy(hooks, rules);
            let needs = layout.needs_on::<Lock>(rules.engine).unwrap();
            y.init(&layout, OwnedStorage::for_needs(&needs).unwrap().leak()).unwrap();
            y
        };
        let y = On::<Owners, AnyHooks<'static>, Lock, Chosen>::new(Owners::default(), make);
        for &Block { pfn, order, movable } in &self.blocks {
            let gfp = if movable { Gfp::HIGHUSER_MOVABLE } else { Gfp::KERNEL };
            y.alloc_at(pfn, order, gfp | Gfp::MEMALLOC | Gfp::NOWARN).unwrap();
            y.set_movable(pfn, order, movable).unwrap();
            if movable {
                y.hooks().blocks.borrow_mut().insert(pfn, order);
            }
        }
        y.drain_all(None);
        let served = y.alloc(self.order, self.gfp);
        y.validate().unwrap();
        // Whatever moved, nothing is lost.
        let unmovable = self.blocks.iter().filter(|b| !b.movable).map(|b| (b.pfn, b.order));
        let owned = y.hooks().blocks.take().into_iter().chain(unmovable);
        let all: Vec<_> = owned.chain(served.ok().map(|pfn| (pfn, self.order))).collect();
        y.free_batch(&all).unwrap();
        y.drain_all(None);
        let info = y.zone_info(ZoneKind::Normal).unwrap();
        assert_eq!(info.free_exact, info.managed);
        (served.is_ok(), y.hooks().moved.get())
    }
}

#[test]
fn s7_4_the_packed_engine_serves_what_the_exact_one_does() {
    let (mut exact_only, mut packed_only) = (Vec::new(), 0);
    let mut moved = [0, 0];
    for seed in 0..300 {
        let case = Case::new(&mut Random(seed));
        let ((packed, by_packed), (exact, by_exact)) = (case.run(PACKED), case.run(LINUX612));
        match (packed, exact) {
            (true, true) => moved = [moved[0] + by_packed, moved[1] + by_exact],
            (false, true) => exact_only.push((seed, case.order)),
            (true, false) => packed_only += 1,
            (false, false) => {}
        }
    }
    println!("exact alone: {exact_only:?}, packed alone: {packed_only}; pages moved: {moved:?}");
    assert!(exact_only.is_empty() && packed_only > 0);
    assert!(moved[0] < moved[1] && moved[1] > 0, "{moved:?}");
}
