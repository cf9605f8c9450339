//! All operations at once under random schedules: requests of all kinds, drains, a CPU and a
//! section that go offline and online, isolation, contiguous ranges, compaction, settings. Tasks
//! stall while they hold a lock, and hooks refuse. The schedule also chooses what each task does
//! next.
//!
//! `PAGEYARD_SCHEDULES=10000` explores more, `PAGEYARD_SEED=0x5eed0007` repeats one schedule:
//! `cargo test -p pageyard-machine --test machine mixed`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use pageyard::{
    CpuId, Defences, Gfp, MigrateType, NodeId, Observer, Order, Pfn, Platform, Reclaim, Relocation,
    SECTION_PAGES, ZoneKind,
};
use pageyard_machine::explore::{Explored, Explorer, Failure};
use pageyard_machine::{Machine, MachineSpec, SimYard, Stuck};

use crate::common::{P, free_blocks, with_yard};

const NORMAL: ZoneKind = ZoneKind::Normal;
const FIRST: u64 = 0x5eed_0000;
/// Operations of a task in each phase. Between phases no task is inside the yard.
const OPS: u32 = 10;
const PHASES: u32 = 3;
/// Two sections; the second can go offline.
const BYTES: u64 = 2 * SECTION_PAGES * pageyard::PAGE_SIZE;

/// The blocks in use, and whether they may move.
#[derive(Default)]
struct Blocks(BTreeMap<u64, (u8, bool)>);

impl Blocks {
    fn own(&mut self, pfn: Pfn, order: u8, movable: bool) {
        let end = pfn.0 + (1 << order);
        if let Some((&p, &(o, _))) = self.0.range(..end).next_back() {
            assert!(p + (1 << o) <= pfn.0, "{pfn} was handed out twice");
        }
        self.0.insert(pfn.0, (order, movable));
    }

    fn pages(&self) -> u64 {
        self.0.values().map(|b| 1 << b.0).sum()
    }
}

/// How often each operation that may be refused succeeded.
type Did = RefCell<BTreeMap<&'static str, u64>>;

/// An embedder that records owners, and refuses where the schedule says so.
struct Embedder<'m> {
    machine: &'m Machine,
    did: &'m Did,
    blocks: RefCell<Blocks>,
    /// The planted bug: it moves blocks without updating their owner.
    forgets: bool,
}

impl Embedder<'_> {
    fn did(&self, what: &'static str) {
        *self.did.borrow_mut().entry(what).or_default() += 1;
    }

    fn refuses(&self, one_in: u32) -> bool {
        self.machine.choose(one_in) == 1
    }
}

impl Platform for Embedder<'_> {}

impl Reclaim for Embedder<'_> {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        match self.machine.choose(8) {
            1 => return Relocation::Busy,
            2 => return Relocation::Refused,
            _ => {}
        }
        let mut blocks = self.blocks.borrow_mut();
        if blocks.0.get(&from.0) != Some(&(order.get(), true)) {
            return Relocation::Refused;
        }
        if !self.forgets {
            blocks.0.remove(&from.0);
            blocks.own(to, order.get(), true);
        }
        self.did("moved");
        Relocation::Moved
    }

    fn is_plain(&self, _: Gfp) -> bool {
        !self.refuses(8)
    }

    fn report_free(&self, _: &[(Pfn, Order)]) -> bool {
        !self.refuses(4)
    }
}

impl Observer for Embedder<'_> {}

impl Defences for Embedder<'_> {
    fn fail(&self, _: Order, _: Gfp) -> bool {
        let fails = self.refuses(16);
        if fails {
            self.did("failed");
        }
        fails
    }
}

type Yard<'a, 'm> = SimYard<'a, P, Embedder<'m>>;

/// The view of one task.
struct Actor<'y, 'a, 'm> {
    y: &'y Yard<'a, 'm>,
    e: &'y Embedder<'m>,
    me: u32,
}

impl Actor<'_, '_, '_> {
    fn choose(&self, n: u32) -> u32 {
        self.e.machine.choose(n)
    }

    fn section(&self) -> Range<Pfn> {
        let start = self.y.zone_info(NORMAL).unwrap().start.0 + SECTION_PAGES;
        Pfn(start)..Pfn(start + SECTION_PAGES)
    }

    /// Some pageblocks of the first section.
    fn pageblocks(&self) -> Range<Pfn> {
        let start = self.section().start.0 - SECTION_PAGES + u64::from(self.choose(4)) * 512;
        Pfn(start)..Pfn(start + 512)
    }

    fn take(&self, order: u8) {
        let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC, Gfp::HIGHUSER_MOVABLE];
        let gfp = gfp[self.choose(4) as usize] | Gfp::NOWARN;
        let n = Order::new(order).unwrap();
        let Ok(pfn) = self.y.alloc(n, gfp) else { return };
        let movable = gfp.contains(Gfp::MOVABLE);
        // Record the owner first: the block may move as soon as it is movable.
        self.e.blocks.borrow_mut().own(pfn, order, movable);
        if movable {
            self.y.set_movable(pfn, n, true).unwrap();
        }
    }

    fn disown(&self) -> Option<(Pfn, Order)> {
        let at = self.choose(3) as usize;
        let mut blocks = self.e.blocks.borrow_mut();
        let (&pfn, &(order, _)) = blocks.0.iter().nth(at).or(blocks.0.iter().next())?;
        blocks.0.remove(&pfn);
        Some((Pfn(pfn), Order::new(order).unwrap()))
    }

    fn give(&self) {
        if let Some((pfn, order)) = self.disown() {
            self.y.free(pfn, order).unwrap();
        }
    }

    fn step(&self) {
        let y = self.y;
        match self.choose(20) {
            0..4 => self.take([0, 0, 1, 3][self.choose(4) as usize]),
            4 => self.take([4, 9][self.choose(2) as usize]),
            5..8 => self.give(),
            8 => {
                let own = |p| self.e.blocks.borrow_mut().own(p, 0, false);
                y.alloc_bulk_each(20, Gfp::KERNEL | Gfp::NOWARN, own).unwrap();
            }
            9 => {
                let batch: Vec<_> = (0..10).filter_map(|_| self.disown()).collect();
                y.free_batch(&batch).unwrap();
            }
            10 => y.drain_cpu(CpuId((self.me + 1) % 3), None),
            11 => y.drain_all(None),
            12 => _ = y.tick(CpuId(self.me)),
            13 => drop(y.disable_pcp(NORMAL).unwrap()),
            14 => y.set_min_free_kbytes(400 << self.choose(4)).unwrap(),
            15 => match self.choose(2) {
                0 => y.compact_node(NodeId(0)),
                _ => _ = y.compact_background(NodeId(0)),
            },
            16 => _ = y.unreserve_highatomic(MigrateType::Movable, true),
            _ => self.rare(),
        }
    }

    /// Operations that only one task makes at a time.
    fn rare(&self) {
        let y = self.y;
        match self.me {
            0 => {
                let range = self.pageblocks();
                if y.isolate(range.clone(), MigrateType::Movable).is_ok() {
                    self.e.did("isolated");
                    self.take(0);
                    self.give();
                    y.unisolate(range, MigrateType::Movable).unwrap();
                }
            }
            1 => {
                // No operation runs on a CPU that is down: no task runs on CPU 3.
                if y.cpu_dead(CpuId(3)) {
                    self.e.did("CPU down");
                    assert_eq!(y.pageset(NORMAL, CpuId(3)).unwrap().count, 0);
                }
                self.take(0);
                assert!(y.cpu_up(CpuId(3)));
            }
            _ => match self.choose(2) {
                0 => {
                    if y.offline(self.section()).is_ok() {
                        self.e.did("offline");
                        self.take(0);
                        y.online(self.section()).unwrap();
                    }
                }
                _ => {
                    let range = self.section();
                    let range = range.start..Pfn(range.start.0 + 512);
                    let got = y.alloc_contig(range.clone(), MigrateType::Movable, Gfp::KERNEL);
                    if got.is_ok() {
                        self.e.did("contiguous");
                        y.free_contig(range).unwrap();
                    }
                }
            },
        }
    }
}

/// Asserts, while no task is inside the yard, that all memory is free, cached or owned.
fn quiet(y: &Yard<'_, '_>, e: &Embedder<'_>) {
    for zone in y.zone_ids() {
        let info = y.zone_info(zone).unwrap();
        let blocks = y.free_blocks(zone).unwrap();
        let free: u64 = blocks.iter().enumerate().map(|(o, n)| n << o).sum();
        assert_eq!(free, info.free_exact, "{zone:?}: counter and lists");
        let sum = info.free_exact + info.cached + e.blocks.borrow().pages();
        assert_eq!(sum, info.managed, "{zone:?}: free, cached and in use");
        assert_eq!(y.zone_stats(zone).unwrap().type_check_failures, 0);
    }
}

fn mixed(machine: &Machine, did: &Did, forgets: bool) -> Result<(), Stuck> {
    let embedder = Embedder { machine, did, blocks: RefCell::default(), forgets };
    with_yard::<P, Embedder<'_>, _>(machine, embedder, |y| {
        let e = y.hooks().embedder();
        let start = free_blocks(y);
        for _ in 0..PHASES {
            machine.run(|s| {
                for me in 0..3 {
                    s.spawn(CpuId(me), move |task| {
                        let actor = Actor { y, e, me };
                        for _ in 0..OPS {
                            task.sync();
                            actor.step();
                        }
                    });
                }
            })?;
            quiet(y, e);
        }
        machine.run(|s| {
            s.spawn(CpuId(0), move |_| {
                let left = std::mem::take(&mut e.blocks.borrow_mut().0);
                for (pfn, (order, _)) in left {
                    y.free(Pfn(pfn), Order::new(order).unwrap()).unwrap();
                }
                y.unreserve_highatomic(MigrateType::Movable, true);
            });
        })?;
        y.drain_all(None);
        quiet(y, e);
        let pages = |all: &[[u64; 11]]| -> u64 {
            all.iter().flat_map(|b| b.iter().enumerate()).map(|(o, n)| n << o).sum()
        };
        assert_eq!(pages(&free_blocks(y)), pages(&start));
        Ok(())
    })
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    Some(parsed.unwrap_or_else(|e| panic!("{name}={text}: {e}; give a number, as 7 or 0x7")))
}

fn random(seed: u64, schedules: u64, forgets: bool, did: &Did) -> Result<Explored, Failure> {
    let spec = MachineSpec::shipped("desktop").unwrap();
    Explorer::random(seed, schedules).memory(BYTES).run(&spec, |m| mixed(m, did, forgets))
}

#[test]
fn all_operations_run_concurrently() {
    let (seed, schedules) = match number("PAGEYARD_SEED") {
        Some(seed) => (seed, 1),
        None => (FIRST, number("PAGEYARD_SCHEDULES").unwrap_or(100)),
    };
    let did = Did::default();
    match random(seed, schedules, false, &did) {
        Ok(explored) => {
            println!("everything at once: {} schedules, {did:?}", explored.schedules);
            let all = did.borrow().len();
            assert!(all == 6 || schedules < 100, "some of it was always refused");
        }
        Err(found) => {
            let seed = found.seed.unwrap_or(seed);
            panic!("{}\nrepeat with PAGEYARD_SEED={seed:#x}", found.why)
        }
    }
}

#[test]
fn an_unreported_migration_is_detected() {
    let found = random(FIRST, 500, true, &Did::default()).expect_err("a block has two places");
    let seed = found.seed.expect("it was drawn");
    println!("found with {seed:#x}: {}", found.why);
    // It frees the block at its old place, which is free by now or has another owner.
    assert!(["DoubleFree", "was handed out twice"].iter().any(|w| found.why.contains(w)));
    assert_eq!(
        random(seed, 1, true, &Did::default()).expect_err("the seed repeats it").why,
        found.why
    );
}
