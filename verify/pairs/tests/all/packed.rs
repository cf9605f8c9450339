//! Every ordered pair of the packed engine's operations, in several states of a region. Cases are
//! named and replayed like those of the exact engine: `full/Packed/free-6/alloc-3@p17`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pageyard::packed::{IsolateError, OwnedStorage, Region};
use pageyard::{CpuId, MigrateType, Order, Pfn};
use pageyard_pairs_atomics::Fault;

use crate::common::o;
use crate::explore::{Extent, Tally, worth};
use crate::pairs::{close, extent};
use crate::schedule::{Bug, Lock, Plan, Point, run};

type R<'a> = Region<'a, Lock>;

const BLOCKS: u64 = 6;
const PAGES: u64 = BLOCKS * 512;
/// The CPU that prepares the states; the actors are CPUs 0 and 1.
const BEFORE: CpuId = CpuId(2);

use MigrateType::{Movable, Reclaimable, Unmovable};

/// The blocks in use.
#[derive(Default)]
struct Table {
    blocks: BTreeMap<Pfn, Order>,
    /// A block that all actors free, and how many frees succeeded.
    same: Option<(Pfn, Order)>,
    same_freed: u32,
}

impl Table {
    fn own(&mut self, pfn: Pfn, order: Order) {
        let end = Pfn(pfn.0 + u64::from(order.pages()));
        let before = self.blocks.range(..end).next_back();
        let apart = before.is_none_or(|(p, o)| p.0 + u64::from(o.pages()) <= pfn.0);
        assert!(apart, "the block at {pfn} was handed out, and is part of {before:?}");
        self.blocks.insert(pfn, order);
    }

    /// Removes a block of this order from the table, for its owner to free.
    fn pick(&mut self, order: u8) -> Option<(Pfn, Order)> {
        let (&pfn, &order) = self.blocks.iter().find(|(_, o)| o.get() == order)?;
        self.blocks.remove(&pfn);
        Some((pfn, order))
    }
}

/// An actor's view.
struct Hand<'h> {
    region: &'h R<'h>,
    table: &'h Mutex<Table>,
    cpu: CpuId,
    picked: Option<(Pfn, Order)>,
}

impl Hand<'_> {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc(&self, order: u8, t: MigrateType) {
        if let Some(pfn) = self.region.alloc(self.cpu, o(order), t) {
            self.table().own(pfn, o(order));
        }
    }

    fn free(&self) {
        let (pfn, order) = self.picked.expect("the operation picks a block");
        self.region.free(self.cpu, pfn, order).unwrap();
    }
}

/// Which block an operation removes from the table before it runs.
#[derive(Clone, Copy)]
enum Pick {
    Nothing,
    Block(u8),
    /// The same block as the other actor.
    Same,
}

struct Op {
    name: &'static str,
    pick: Pick,
    run: fn(&Hand<'_>),
}

const fn op(name: &'static str, pick: Pick, run: fn(&Hand<'_>)) -> Op {
    Op { name, pick, run }
}

const OPS: [Op; 24] = [
    op("alloc-0", Pick::Nothing, |h| h.alloc(0, Movable)),
    op("alloc-0-unmovable", Pick::Nothing, |h| h.alloc(0, Unmovable)),
    op("alloc-3", Pick::Nothing, |h| h.alloc(3, Movable)),
    op("alloc-6", Pick::Nothing, |h| h.alloc(6, Movable)),
    op("alloc-8-reclaimable", Pick::Nothing, |h| h.alloc(8, Reclaimable)),
    op("alloc-9", Pick::Nothing, |h| h.alloc(9, Movable)),
    op("alloc-10", Pick::Nothing, |h| h.alloc(10, Movable)),
    op("free-0", Pick::Block(0), |h| h.free()),
    op("free-3", Pick::Block(3), |h| h.free()),
    op("free-6", Pick::Block(6), |h| h.free()),
    op("free-8", Pick::Block(8), |h| h.free()),
    op("free-9", Pick::Block(9), |h| h.free()),
    op("free-10", Pick::Block(10), |h| h.free()),
    op("free-same", Pick::Same, |h| {
        let (pfn, order) = h.picked.expect("the operation picks a block");
        let freed = h.region.free(h.cpu, pfn, order).is_ok();
        h.table().same_freed += u32::from(freed);
    }),
    op("split-6", Pick::Block(6), |h| split(h, 4)),
    op("split-9", Pick::Block(9), |h| split(h, 6)),
    op("isolate", Pick::Nothing, |h| _ = h.region.isolate(Pfn(0))),
    op("unisolate", Pick::Nothing, |h| _ = h.region.unisolate(Pfn(0))),
    op("drain-other", Pick::Nothing, |h| _ = h.region.drain(CpuId(1 - h.cpu.0))),
    op("drain-all", Pick::Nothing, |h| _ = h.region.drain_all()),
    op("tick", Pick::Nothing, |h| h.region.tick()),
    op("set-block-type", Pick::Nothing, |h| _ = h.region.set_block_type(Pfn(0), Reclaimable)),
    op("add", Pick::Nothing, |h| _ = h.region.add(Pfn(PAGES)..Pfn(PAGES + 512))),
    op("add-allocated", Pick::Nothing, |h| {
        if h.region.add_allocated(Pfn(PAGES), o(9), Movable).is_ok() {
            h.table().own(Pfn(PAGES), o(9));
        }
    }),
];

fn split(h: &Hand<'_>, into: u8) {
    let (pfn, order) = h.picked.expect("the operation picks a block");
    h.region.split(pfn, order, o(into)).unwrap();
    for part in (pfn.0..pfn.0 + u64::from(order.pages())).step_by(1 << into) {
        h.table().own(Pfn(part), o(into));
    }
}

type State = fn(&Hand<'_>);

/// Allocates all memory as blocks of order 6.
fn full(h: &Hand<'_>) {
    while let Some(pfn) = h.region.alloc(BEFORE, o(6), Movable) {
        h.table().own(pfn, o(6));
    }
}

fn free_at(h: &Hand<'_>, frame: u64) {
    let order = h.table().blocks.remove(&Pfn(frame)).expect("it is in use");
    h.region.free(BEFORE, Pfn(frame), order).unwrap();
}

const STATES: [(&str, State); 7] = [
    ("fresh", |h| {
        // One block of each order in use.
        [0, 3, 6, 8, 9].into_iter().for_each(|order| h.alloc(order, Movable));
    }),
    ("large", |h| h.alloc(10, Movable)),
    ("full", full),
    ("last-word", |h| {
        full(h);
        free_at(h, 64);
    }),
    ("nearly-whole", |h| {
        full(h);
        (1..8).for_each(|word| free_at(h, word * 64));
    }),
    ("pieces", |h| {
        full(h);
        // Every second block of order 6 is free; in one block, every second group of 8 frames.
        (0..BLOCKS * 8).filter(|n| n % 2 == 0).for_each(|n| free_at(h, n * 64));
        (0..8).for_each(|_| h.alloc(3, Movable));
        (0..4).for_each(|_| h.alloc(0, Movable));
        (0..8).for_each(|_| h.alloc(0, Unmovable));
        let heads = h.table().blocks.iter().filter(|b| b.1.get() == 3).map(|b| b.0.0).collect();
        let heads: Vec<u64> = heads;
        heads.into_iter().step_by(2).for_each(|head| free_at(h, head));
    }),
    ("isolated", |h| {
        full(h);
        free_at(h, 0);
        h.region.drain_all();
        h.region.isolate(Pfn(0)).unwrap();
        free_at(h, 512);
    }),
];

/// Runs the actors in one state, then frees everything and checks. Returns `None` if an operation
/// does not apply in this state.
fn case(state: State, ops: &[&Op], plan: &Plan) -> Option<Result<Vec<Vec<Point>>, String>> {
    // One pageblock more than the states use, for operations that add frames.
    let storage = OwnedStorage::<Lock>::new(PAGES as u32 + 512, 3, 3).unwrap();
    let region = storage.region(Pfn(0)).unwrap();
    region.add(Pfn(0)..Pfn(PAGES)).unwrap();
    let table = Mutex::default();
    let hand = |cpu, picked| Hand { region: &region, table: &table, cpu, picked };
    state(&hand(BEFORE, None));
    let mut hands = Vec::new();
    for (cpu, op) in (0..).map(CpuId).zip(ops) {
        let mut table = table.lock().unwrap();
        let picked = match op.pick {
            Pick::Nothing => None,
            Pick::Block(order) => Some(table.pick(order)?),
            Pick::Same => {
                if table.same.is_none() {
                    table.same = Some(table.pick(6)?);
                }
                table.same
            }
        };
        drop(table);
        hands.push(hand(cpu, picked));
    }
    let actors = hands.iter().zip(ops).map(|(hand, op)| {
        let run = op.run;
        Box::new(move || run(hand)) as Box<dyn FnOnce() + Send + '_>
    });
    Some(run(plan, actors.collect()).and_then(|points| settle(&region, &table).map(|()| points)))
}

fn settle(region: &R<'_>, table: &Mutex<Table>) -> Result<(), String> {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    region.validate().map_err(|e| format!("after the operations: {e}"))?;
    if table.same.is_some() && table.same_freed != 1 {
        return Err(format!("{} frees of one block succeeded", table.same_freed));
    }
    let heads = (0..=BLOCKS).map(|block| Pfn(block * 512));
    let isolated: Vec<Pfn> = heads
        .filter(|&pfn| match region.isolate(pfn) {
            Err(e) => e == IsolateError::Isolated,
            Ok(()) => region.unisolate(pfn).is_err(),
        })
        .collect();
    // Everything left can be allocated, except in isolated pageblocks, and has one owner.
    for order in [10, 9, 6, 0] {
        while let Some(pfn) = region.alloc(BEFORE, o(order), Movable) {
            if isolated.iter().any(|head| head.0 <= pfn.0 && pfn.0 < head.0 + 512) {
                return Err(format!("{pfn} was handed out of an isolated pageblock"));
            }
            table.own(pfn, o(order));
        }
    }
    for pfn in isolated {
        region.unisolate(pfn).map_err(|e| format!("the isolation of {pfn}: {e}"))?;
    }
    while let Some((pfn, order)) = table.blocks.pop_first() {
        region.free(BEFORE, pfn, order).map_err(|e| format!("the block at {pfn}: {e}"))?;
    }
    region.drain_all();
    region.validate().map_err(|e| format!("with everything free: {e}"))?;
    let added =
        region.allocated(Pfn(PAGES)).is_none() && region.free_in_block(Pfn(PAGES)) != Some(0);
    let blocks = BLOCKS + u64::from(added);
    match region.whole_blocks() {
        whole if whole == blocks => Ok(()),
        whole => Err(format!("{whole} whole pageblocks of {blocks}: frames are lost")),
    }
}

/// Explores the pairs of these operations in these states.
fn explore(wanted: impl Fn(&str, &str) -> bool, extent: &Extent, tally: &mut Tally) {
    for (name, state) in STATES {
        let ops = || OPS.iter().filter(|op| wanted(name, op.name));
        for (first, second) in ops().flat_map(|a| ops().map(move |b| (a, b))) {
            let sequence = format!("{name}/Packed/{}/{}", first.name, second.name);
            if !extent.has(&sequence) {
                continue;
            }
            tally.sequences += 1;
            let points = match case(state, &[first], &extent.plan(&[])) {
                None => {
                    tally.meaningless += 1;
                    continue;
                }
                Some(Err(why)) => {
                    tally.fail(&sequence, &sequence, why);
                    continue;
                }
                Some(Ok(mut points)) => points.swap_remove(0),
            };
            let numbers = worth(&points);
            tally.repeated += (points.len() - numbers.len()) as u64;
            for number in numbers {
                match case(state, &[first, second], &extent.plan(&[number])) {
                    None => {
                        tally.meaningless += 1;
                        break;
                    }
                    Some(Ok(_)) => tally.interleavings += 1,
                    Some(Err(why)) => {
                        tally.interleavings += 1;
                        let at = points[number as usize - 1];
                        let case = format!("{sequence}@p{number}");
                        tally.fail(&sequence, &case, format!("{why} (stopped before {at})"));
                    }
                }
            }
        }
    }
}

/// Replays one case.
fn replay(name: &str) {
    let (names, point) = name.split_once("@p").expect("a case of the packed engine: …@pNUMBER");
    let [state, _, first, second] = names.split('/').collect::<Vec<_>>()[..] else {
        panic!("{name}: no such case")
    };
    let state = STATES.iter().find(|s| s.0 == state).expect("the name of a state").1;
    let op = |name| OPS.iter().find(|op| op.name == name).expect("the name of an operation");
    let stops = vec![point.parse().expect("the number of a point")];
    let plan = Plan { stops, plain: true, bug: Bug::None };
    if let Some(Err(why)) = case(state, &[op(first), op(second)], &plan) {
        panic!("{name}: {why}");
    }
}

#[test]
fn pairs_of_the_packed_engine() {
    // The engine's protocols include plain loads and stores.
    let (mut extent, mut tally) = (Extent { plain: true, ..extent(20, 0) }, Tally::default());
    match std::env::var("PAGEYARD_CASE") {
        Ok(name) if name.contains("/Packed/") && name.contains('@') => return replay(&name),
        Ok(part) => extent = Extent { part, plain: true, ..Extent::all() },
        Err(_) => {}
    }
    explore(|_, _| true, &extent, &mut tally);
    close("Packed", &extent, &tally);
}

/// Planted bugs: atomic operations that take two steps.
#[test]
fn torn_operations_of_the_packed_engine_are_detected() {
    let (torn, forced) = (Fault::Torn, Fault::Forced);
    let planted: [(Fault, &str, &[&str], &str); 3] = [
        (torn("packed/storage.rs"), "full", &["free-same"], "2 frees of one block succeeded"),
        (forced("packed/set.rs"), "fresh", &["alloc-9", "alloc-8-reclaimable"], "was handed out"),
        (torn("packed/blocks/take.rs"), "pieces", &["alloc-3", "free-6", "alloc-6"], "times:"),
    ];
    for (fault, state, names, words) in planted {
        let found = |bug| {
            let mut tally = Tally::default();
            let wanted = |s: &str, op: &str| s == state && names.contains(&op);
            explore(wanted, &Extent { bug, plain: true, ..Extent::all() }, &mut tally);
            tally.to_string()
        };
        let broken = found(Bug::Atomics(fault));
        assert!(broken.contains(words), "{fault:?}: {broken}");
        assert!(!found(Bug::None).contains("times:"), "{}", found(Bug::None));
    }
}
