//! A recording as a workload: one task per recorded CPU repeats that CPU's requests and frees in
//! their order, on the corresponding CPU.
//!
//! A CPU waits for another one only where a page passes between them: freeing a block that another
//! CPU allocated comes after that request. Everything else runs freely, so times and lock holds are
//! those of this policy and machine, not of the recorded one. *Measured*: every request with its
//! order and flags, every free with its CPU, and which frees were made as a list (from their
//! batched events). *Derived*: a page that is freed without a recorded allocation existed before
//! the recording; it is allocated, as movable memory, before the run. *Assumed*: no time passes
//! between two events (`pace=none`), or as much as was recorded (`pace=recorded`). A block that was
//! freed in pieces is freed whole with the last piece. Failed requests are left out.
//!
//! Two metrics show how many events the recording has lost. `unknown` counts frees of pages that
//! were not allocated (excluding those from before the recording). `again` counts requests that
//! returned a page that had not been freed.

use std::collections::HashMap;
use std::sync::Mutex;

use pageyard::{CpuId, Gfp, MAX_ORDER, Order};
use pageyard_trace::{Event, Kind, Options, Record, TraceReader};

use super::actor::{Actor, Block, Measure, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::metrics::percent;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::result::Better;

/// A CPU that is ahead of the recording by less than this, in nanoseconds, does not wait.
const EARLY: u64 = 10_000;
/// Maximum number of pages in a list: two of the kernel's gatherings.
const LIST: usize = 1024;

pub(super) const RECIPE: Recipe = Recipe {
    name: "trace",
    summary: "a recording: one task per recorded CPU repeats its requests and frees",
    params: &[
        param("trace", "", "file name, of any trace that `pageyard replay` reads"),
        param("events", "all", "number of page events, from the first; all"),
        param("pace", "none", "none: back to back; recorded: no event before its recorded time"),
    ],
    score: Score::Time,
    plan,
};

/// The longest recording that is replayed at its own pace. A simulated clock counts twice as long.
const LONGEST_NS: u64 = 100 * 24 * 3600 * 1_000_000_000;

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let most = params.number_or_all("events", 1..=u64::MAX)?;
    let paced = params.choice("pace", &["none", "recorded"])? == 1;
    let path = params.text("trace");
    if path.is_empty() {
        return Err(params.wrong("trace", "the name of a recording, such as samples/kbuild.pgy"));
    }
    let wrong = |e: pageyard_trace::TraceError| {
        // A workload has no such option.
        let e = e.to_string().replace("use --lenient", "import it with trace import --lenient");
        params.wrong("trace", format!("a recording: {e}"))
    };
    let reader = TraceReader::open(path, Options::default()).map_err(wrong)?;
    let mut program = Program::default();
    for record in reader {
        let Record::Event(event) = record.map_err(wrong)? else { continue };
        program.add(&event);
        if program.events == most {
            break;
        }
    }
    if program.cpus.is_empty() {
        return Err(params.wrong("trace", "a recording that has page events"));
    }
    if paced && program.takes_ns > LONGEST_NS {
        return Err(params.wrong("pace", "none: the recording takes more than 100 days"));
    }
    program.number();
    let plan = Recorded { program, paced, cpus: site.cpus.len(), left: Mutex::default() };
    Ok(vec![(String::new(), Box::new(plan))])
}

/// Where a block is between its request and its free.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In this slot of the CPU that allocated it.
    Own(u32),
    /// Passed between the CPU that requested it and the CPU that frees it. Each names the other, and
    /// the block's number among those that pass that way, in the order of their requests. While a
    /// recording is read, the number is the index of the request among the steps of its CPU.
    Sent(u16, u32),
    /// Allocated before the recording: this CPU's `n`th such block.
    Before(u32),
}

#[derive(Clone, Copy, Debug)]
enum What {
    Alloc(Order, u32, Place),
    /// The flag is whether it is part of a list.
    Free(Place, bool),
}

/// The program of one CPU.
#[derive(Default, Debug)]
struct Part {
    /// Its steps, and their times in nanoseconds since the recording began.
    steps: Vec<(u64, What)>,
    /// Orders of the blocks allocated before the recording.
    before: Vec<Order>,
    slots: u32,
}

/// A block that is in use in the recording.
#[derive(Clone, Copy)]
struct Live {
    cpu: u16,
    /// The index of its request among the steps of that CPU.
    step: u32,
    order: u8,
    /// Number of its pages that were freed individually.
    freed: u32,
}

/// The programs of all CPUs.
#[derive(Default)]
struct Program {
    cpus: Vec<Part>,
    start: Option<u64>,
    /// Time from the first event to the latest.
    takes_ns: u64,
    live: HashMap<u64, Live>,
    /// Frames that were freed and not allocated since, with the CPU and step of frees that may
    /// still turn out to be part of a list.
    freed: HashMap<u64, Option<(u16, u32)>>,
    events: u64,
    unknown: u64,
    again: u64,
}

impl Program {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        let at = event.t_ns.saturating_sub(*self.start.get_or_insert(event.t_ns));
        self.takes_ns = self.takes_ns.max(at);
        let cpu = usize::from(event.cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, Part::default);
        }
        match event.kind {
            Kind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                self.alloc(at, event.cpu, pfn, order, gfp)
            }
            Kind::Free { pfn, order } => self.free(at, event.cpu, pfn, order),
            Kind::FreeBatched { pfn } => {
                let announced = self.freed.get_mut(&pfn).and_then(Option::take);
                let Some((cpu, step)) = announced else { return };
                let step = &mut self.cpus[usize::from(cpu)].steps[step as usize];
                if let What::Free(_, list) = &mut step.1 {
                    *list = true;
                }
            }
            _ => {}
        }
    }

    fn alloc(&mut self, at: u64, cpu: u16, pfn: u64, order: u8, gfp: u32) {
        let Some(size) = Order::new(order) else { return };
        self.freed.remove(&pfn);
        let part = &mut self.cpus[usize::from(cpu)];
        let step = part.steps.len() as u32;
        // The destination is known only when the block is freed; until then it is this CPU's own.
        part.steps.push((at, What::Alloc(size, gfp, Place::Own(part.slots))));
        part.slots += 1;
        if self.live.insert(pfn, Live { cpu, step, order, freed: 0 }).is_some() {
            self.again += 1;
        }
    }

    /// Returns the first frame of the block in use that contains a frame.
    fn holder(&self, pfn: u64) -> Option<u64> {
        let mut heads = (0..=MAX_ORDER).map(|o| (o, pfn & !((1 << o) - 1)));
        heads.find(|(o, head)| self.live.get(head).is_some_and(|l| l.order >= *o)).map(|h| h.1)
    }

    fn free(&mut self, at: u64, cpu: u16, pfn: u64, order: u8) {
        let Some(size) = Order::new(order) else { return };
        let place = match self.holder(pfn) {
            Some(head) => {
                let Some(live) = self.live.get_mut(&head) else { return };
                live.freed += size.pages();
                if live.freed < 1 << live.order {
                    return;
                }
                let live = *live;
                self.live.remove(&head);
                self.place(live, cpu)
            }
            None => {
                // Already freed; the request after that free is missing.
                if self.freed.contains_key(&pfn) {
                    self.unknown += 1;
                    return;
                }
                let part = &mut self.cpus[usize::from(cpu)];
                part.before.push(size);
                Place::Before(part.before.len() as u32 - 1)
            }
        };
        let part = &mut self.cpus[usize::from(cpu)];
        self.freed.insert(pfn, Some((cpu, part.steps.len() as u32)));
        part.steps.push((at, What::Free(place, false)));
    }

    /// Returns where this CPU finds a block that it frees.
    fn place(&mut self, live: Live, cpu: u16) -> Place {
        let What::Alloc(_, _, place) = self.request(live.cpu, live.step) else {
            return Place::Own(0);
        };
        if live.cpu == cpu {
            return *place;
        }
        *place = Place::Sent(cpu, live.step);
        Place::Sent(live.cpu, live.step)
    }

    fn request(&mut self, cpu: u16, step: u32) -> &mut What {
        &mut self.cpus[usize::from(cpu)].steps[step as usize].1
    }

    /// Numbers the blocks that are passed between CPUs, once all are known: a block that is requested
    /// first is sent first, even if it is freed last.
    fn number(&mut self) {
        for part in &mut self.cpus {
            let mut sent: HashMap<u16, u32> = HashMap::new();
            for (_, what) in &mut part.steps {
                if let What::Alloc(_, _, Place::Sent(to, n)) = what {
                    let next = sent.entry(*to).or_default();
                    *n = *next;
                    *next += 1;
                }
            }
        }
        for me in 0..self.cpus.len() {
            let mut steps = std::mem::take(&mut self.cpus[me].steps);
            for (_, what) in &mut steps {
                if let What::Free(Place::Sent(from, n), _) = what
                    && let What::Alloc(_, _, Place::Sent(_, number)) = self.request(*from, *n)
                {
                    *n = *number;
                }
            }
            self.cpus[me].steps = steps;
        }
    }
}

/// The blocks that one CPU holds during the run.
struct Hands {
    own: Vec<Option<Block>>,
    before: Vec<Option<Block>>,
    /// Received blocks, by sending CPU.
    got: Vec<Vec<Option<Block>>>,
}

struct Recorded {
    program: Program,
    paced: bool,
    /// Number of CPUs in this world; recorded CPUs beyond it share them.
    cpus: usize,
    /// Blocks that the run does not use: those from before the recording, by CPU, and after the run
    /// those that were never freed.
    left: Mutex<Vec<Vec<Option<Block>>>>,
}

impl Recorded {
    fn cpu(&self, recorded: usize) -> CpuId {
        CpuId((recorded % self.cpus) as u32)
    }

    fn pipe(&self, from: usize, to: usize) -> PipeId {
        PipeId(from * self.program.cpus.len() + to)
    }

    fn find(
        &self,
        actor: &dyn Actor<'_>,
        me: usize,
        hands: &mut Hands,
        place: Place,
    ) -> Option<Block> {
        match place {
            Place::Own(slot) => hands.own[slot as usize].take(),
            Place::Before(n) => hands.before[n as usize].take(),
            Place::Sent(from, n) => {
                let got = &mut hands.got[usize::from(from)];
                while got.len() <= n as usize {
                    // A CPU whose request failed sends an empty parcel.
                    let parcel = actor.receive(self.pipe(from.into(), me))?;
                    got.push(parcel.first().copied());
                }
                got[n as usize].take()
            }
        }
    }

    fn play(&self, actor: &dyn Actor<'_>, me: usize) {
        let part = &self.program.cpus[me];
        let mut hands = Hands {
            own: vec![None; part.slots as usize],
            before: std::mem::take(&mut lock(&self.left)[me]),
            got: vec![Vec::new(); self.program.cpus.len()],
        };
        let start = actor.now();
        let mut list: Vec<Block> = Vec::new();
        for &(at, what) in &part.steps {
            if self.paced && start + at > actor.now() + EARLY {
                actor.sleep_until(start + at);
            }
            let of_list = matches!(what, What::Free(_, true));
            if !list.is_empty() && (!of_list || list.len() >= LIST) {
                actor.free_list(&list);
                list.clear();
            }
            match what {
                What::Alloc(order, gfp, place) => {
                    let block = actor.alloc(order, Gfp::from_bits_retain(gfp));
                    match place {
                        Place::Sent(to, _) => {
                            let pipe = self.pipe(me, to.into());
                            actor.send(pipe, block.into_iter().collect());
                        }
                        Place::Own(slot) | Place::Before(slot) => hands.own[slot as usize] = block,
                    }
                }
                What::Free(place, of_list) => {
                    let Some(block) = self.find(actor, me, &mut hands, place) else { continue };
                    if of_list {
                        list.push(block);
                    } else {
                        actor.free(block);
                    }
                }
            }
            actor.done(1);
        }
        actor.free_list(&list);
        lock(&self.left)[me] = hands.own;
    }
}

impl Plan for Recorded {
    fn pipes(&self) -> Vec<usize> {
        // Pipes are unbounded: an allocating CPU never waits for the CPU that frees.
        vec![usize::MAX; self.program.cpus.len() * self.program.cpus.len()]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        lock(&self.left).resize_with(self.program.cpus.len(), Vec::new);
        for (me, part) in self.program.cpus.iter().enumerate() {
            stage.spawn(
                self.cpu(me),
                Box::new(move |actor| {
                    let alloc = |&order| actor.alloc(order, Gfp::HIGHUSER_MOVABLE);
                    let blocks = part.before.iter().map(alloc).collect();
                    lock(&self.left)[me] = blocks;
                }),
            );
        }
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        for me in 0..self.program.cpus.len() {
            stage.spawn(self.cpu(me), Box::new(move |actor| self.play(actor, me)));
        }
    }

    fn finish<'env>(&'env self, stage: &dyn Stage<'env>) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                let left: Vec<Block> =
                    lock(&self.left).iter_mut().flat_map(std::mem::take).flatten().collect();
                actor.free_list(&left);
            }),
        );
    }

    fn measures(&self) -> Vec<Measure> {
        let row = |name: &str, n| Measure {
            name: name.to_owned(),
            unit: "%",
            better: Better::Lower,
            value: percent(n, self.program.events),
        };
        vec![row("unknown", self.program.unknown), row("again", self.program.again)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(cpu: u16, kind: Kind) -> Event {
        Event { t_ns: 100, cpu, task: 0, kind }
    }

    fn alloc(cpu: u16, pfn: u64, order: u8) -> Event {
        event(cpu, Kind::Alloc { pfn: Some(pfn), order, migratetype: 0, gfp: 0xcc0 })
    }

    fn free(cpu: u16, pfn: u64, order: u8) -> Event {
        event(cpu, Kind::Free { pfn, order })
    }

    fn program(events: &[Event]) -> Program {
        let mut program = Program::default();
        events.iter().for_each(|e| program.add(e));
        program.number();
        program
    }

    fn steps(program: &Program, cpu: usize) -> String {
        let text = program.cpus[cpu].steps.iter().map(|(_, what)| match what {
            What::Alloc(order, _, place) => format!("alloc {order} {place:?}"),
            What::Free(place, list) => {
                format!("free {place:?}{}", if *list { " list" } else { "" })
            }
        });
        text.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn blocks_stay_on_their_cpu_or_are_sent() {
        let p = program(&[alloc(0, 8, 0), alloc(0, 9, 0), free(0, 8, 0), free(1, 9, 0)]);
        assert_eq!(steps(&p, 0), "alloc 0 Own(0); alloc 0 Sent(1, 0); free Own(0)");
        assert_eq!(steps(&p, 1), "free Sent(0, 0)");
        assert_eq!((p.unknown, p.again), (0, 0));
    }

    #[test]
    fn blocks_are_received_in_the_order_of_their_requests_not_of_their_frees() {
        let p = program(&[alloc(0, 8, 0), alloc(0, 16, 3), free(1, 16, 3), free(1, 8, 0)]);
        assert_eq!(steps(&p, 0), "alloc 0 Sent(1, 0); alloc 3 Sent(1, 1)");
        assert_eq!(steps(&p, 1), "free Sent(0, 1); free Sent(0, 0)");
    }

    #[test]
    fn each_receiver_counts_the_blocks_of_each_sender() {
        let p = program(&[
            alloc(0, 8, 0),
            alloc(0, 9, 0),
            alloc(1, 10, 0),
            free(2, 9, 0),
            free(2, 10, 0),
            free(1, 8, 0),
            alloc(0, 8, 0),
            free(2, 8, 0),
        ]);
        assert_eq!(steps(&p, 0), "alloc 0 Sent(1, 0); alloc 0 Sent(2, 0); alloc 0 Sent(2, 1)");
        assert_eq!(steps(&p, 1), "alloc 0 Sent(2, 0); free Sent(0, 0)");
        assert_eq!(steps(&p, 2), "free Sent(0, 0); free Sent(1, 0); free Sent(0, 1)");
    }

    #[test]
    fn frees_with_a_batched_event_belong_to_a_list() {
        let batched = |pfn| event(0, Kind::FreeBatched { pfn });
        let p =
            program(&[alloc(0, 8, 0), alloc(0, 9, 0), free(0, 8, 0), free(0, 9, 0), batched(8)]);
        assert!(steps(&p, 0).ends_with("free Own(0) list; free Own(1)"), "{}", steps(&p, 0));
    }

    #[test]
    fn frees_of_earlier_blocks_and_missing_frees() {
        // 5 was allocated before. The second free of 5: its request is missing. 8 twice: its free
        // is missing.
        let p = program(&[free(0, 5, 1), free(0, 5, 1), alloc(0, 8, 0), alloc(0, 8, 0)]);
        assert_eq!(p.cpus[0].before, [Order::new(1).unwrap()]);
        assert_eq!((p.unknown, p.again, p.events), (1, 1, 4));
        assert!(steps(&p, 0).starts_with("free Before(0); alloc"), "{}", steps(&p, 0));
    }

    #[test]
    fn a_block_freed_in_pieces_is_freed_with_the_last() {
        let p = program(&[alloc(0, 8, 2), free(0, 8, 0), free(0, 10, 1), free(1, 9, 0)]);
        assert_eq!(steps(&p, 0), "alloc 2 Sent(1, 0)");
        assert_eq!(steps(&p, 1), "free Sent(0, 0)");
        assert_eq!(p.unknown, 0);
    }
}
