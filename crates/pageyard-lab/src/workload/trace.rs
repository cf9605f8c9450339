//! A recording as a workload: the requests and frees of each recorded CPU by a
//! task on the corresponding CPU, in their order there.
//!
//! What one CPU does waits for another one only where a page passes between them: a free of what
//! another CPU allocated comes after that request. All else runs as it may, so times and holds of
//! locks are of this policy and place, not of the recorded machine. *Measured*: every request with
//! its order and flags, every free with its CPU, and which frees were given back as a list (their
//! batched events). *Derived*: a page that is freed without having been allocated was there before;
//! it is taken, as movable memory, before the run. *Assumed*: between two events nothing is done
//! (`pace=none`), or what was done took as long as it was recorded (`pace=recorded`). A block that
//! was freed in pieces goes back whole with the last of them. Requests that failed are left out.
//!
//! Two parts of the events say what the recording has lost: `unknown`, frees of pages that nobody
//! took (beside those from before it began), and `again`, requests that were answered by a page
//! that was not given back.

use std::collections::HashMap;
use std::sync::Mutex;

use pageyard::{CpuId, Gfp, MAX_ORDER, Order};
use pageyard_trace::{Event, Kind, Options, Record, TraceReader};

use super::actor::{Actor, Block, Measure, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::result::Better;

/// Who is ahead of the recording by less than this, in nanoseconds, does not wait for it.
const EARLY: u64 = 10_000;
/// Pages of a list at most: two of the kernel's gatherings.
const LIST: usize = 1024;

pub(super) const RECIPE: Recipe = Recipe {
    name: "trace",
    summary: "a recording: each recorded CPU's requests and frees by a task on its CPU",
    params: &[
        param("trace", "", "the recording: a file that `pageyard replay` reads"),
        param("events", "all", "page events of it, from the first; all"),
        param("pace", "none", "none: back to back; recorded: no event before its time"),
    ],
    score: Score::Time,
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let most = params.number_or_all("events", 1..=u64::MAX)?;
    let paced = params.choice("pace", &["none", "recorded"])? == 1;
    let path = params.text("trace");
    if path.is_empty() {
        return Err(params.wrong("trace", "a recording, such as samples/kbuild.pgy"));
    }
    let wrong = |e: pageyard_trace::TraceError| params.wrong("trace", format!("a recording: {e}"));
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
        return Err(params.wrong("trace", "a recording with page events"));
    }
    let plan = Recorded { program, paced, cpus: site.cpus.len(), left: Mutex::default() };
    Ok(vec![(String::new(), Box::new(plan))])
}

/// Where a block is between its request and its free.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// With the CPU that has it, in this slot.
    Own(u32),
    /// On its way to another CPU, which finds it as this one's `n`th.
    Sent(u16, u32),
    /// It was there before: this CPU's `n`th.
    Before(u32),
}

#[derive(Clone, Copy, Debug)]
enum What {
    Take(Order, u32, Place),
    /// And whether it is one of a list.
    Give(Place, bool),
}

/// One CPU's part.
#[derive(Default, Debug)]
struct Part {
    /// What it does, and when, in nanoseconds since the recording began.
    steps: Vec<(u64, What)>,
    /// Orders of the blocks that were there before.
    before: Vec<Order>,
    slots: u32,
    /// Blocks so far that each CPU sent here.
    sent: Vec<u32>,
}

/// A block that is in use in the recording.
#[derive(Clone, Copy)]
struct Live {
    cpu: u16,
    /// Its request, among the steps of that CPU.
    step: u32,
    order: u8,
    /// Pages of it that were freed by themselves.
    freed: u32,
}

/// What all CPUs do.
#[derive(Default)]
struct Program {
    cpus: Vec<Part>,
    start: Option<u64>,
    live: HashMap<u64, Live>,
    /// Frames that were freed and not taken since; CPU and step of frees that may yet turn out to be
    /// of a list.
    freed: HashMap<u64, Option<(u16, u32)>>,
    events: u64,
    unknown: u64,
    again: u64,
}

impl Program {
    fn add(&mut self, event: &Event) {
        self.events += 1;
        let at = event.t_ns.saturating_sub(*self.start.get_or_insert(event.t_ns));
        let cpu = usize::from(event.cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, Part::default);
        }
        match event.kind {
            Kind::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                self.take(at, event.cpu, pfn, order, gfp)
            }
            Kind::Free { pfn, order } => self.give(at, event.cpu, pfn, order),
            Kind::FreeBatched { pfn } => {
                let announced = self.freed.get_mut(&pfn).and_then(Option::take);
                let Some((cpu, step)) = announced else { return };
                let step = &mut self.cpus[usize::from(cpu)].steps[step as usize];
                if let What::Give(_, list) = &mut step.1 {
                    *list = true;
                }
            }
            _ => {}
        }
    }

    fn take(&mut self, at: u64, cpu: u16, pfn: u64, order: u8, gfp: u32) {
        let Some(size) = Order::new(order) else { return };
        self.freed.remove(&pfn);
        let part = &mut self.cpus[usize::from(cpu)];
        let step = part.steps.len() as u32;
        // Where it goes is known when it is freed; until then it stays here.
        part.steps.push((at, What::Take(size, gfp, Place::Own(part.slots))));
        part.slots += 1;
        if self.live.insert(pfn, Live { cpu, step, order, freed: 0 }).is_some() {
            self.again += 1;
        }
    }

    /// The block in use that holds a frame, by its first one.
    fn holder(&self, pfn: u64) -> Option<u64> {
        let mut heads = (0..=MAX_ORDER).map(|o| (o, pfn & !((1 << o) - 1)));
        heads.find(|(o, head)| self.live.get(head).is_some_and(|l| l.order >= *o)).map(|h| h.1)
    }

    fn give(&mut self, at: u64, cpu: u16, pfn: u64, order: u8) {
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
                // Freed already, and the request after that is missing.
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
        part.steps.push((at, What::Give(place, false)));
    }

    /// Where this CPU finds a block that it frees.
    fn place(&mut self, live: Live, cpu: u16) -> Place {
        let home = usize::from(live.cpu);
        let n = if live.cpu == cpu {
            None
        } else {
            let sent = &mut self.cpus[usize::from(cpu)].sent;
            sent.resize(sent.len().max(home + 1), 0);
            sent[home] += 1;
            Some(sent[home] - 1)
        };
        let What::Take(_, _, place) = &mut self.cpus[home].steps[live.step as usize].1 else {
            return Place::Own(0);
        };
        match n {
            None => *place,
            Some(n) => {
                *place = Place::Sent(cpu, n);
                Place::Sent(live.cpu, n)
            }
        }
    }
}

/// The blocks that one CPU has while it runs.
struct Hands {
    own: Vec<Option<Block>>,
    before: Vec<Option<Block>>,
    /// By the CPU that sent them.
    got: Vec<Vec<Option<Block>>>,
}

struct Recorded {
    program: Program,
    paced: bool,
    /// CPUs of the place; recorded ones beyond share them.
    cpus: usize,
    /// Blocks that are not in use in the run: those that were there before, by CPU, and then those
    /// that nobody freed.
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
                    // One who failed sends an empty parcel.
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
            let of_list = matches!(what, What::Give(_, true));
            if !list.is_empty() && (!of_list || list.len() >= LIST) {
                actor.free_list(&list);
                list.clear();
            }
            match what {
                What::Take(order, gfp, place) => {
                    let block = actor.alloc(order, Gfp::from_bits_retain(gfp));
                    match place {
                        Place::Sent(to, _) => {
                            let pipe = self.pipe(me, to.into());
                            actor.send(pipe, block.into_iter().collect());
                        }
                        Place::Own(slot) | Place::Before(slot) => hands.own[slot as usize] = block,
                    }
                }
                What::Give(place, of_list) => {
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
        // A recording that has gone on does not wait for who has yet to free.
        vec![usize::MAX; self.program.cpus.len() * self.program.cpus.len()]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        lock(&self.left).resize_with(self.program.cpus.len(), Vec::new);
        for (me, part) in self.program.cpus.iter().enumerate() {
            stage.spawn(
                self.cpu(me),
                Box::new(move |actor| {
                    let take = |&order| actor.alloc(order, Gfp::HIGHUSER_MOVABLE);
                    let blocks = part.before.iter().map(take).collect();
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
        let part = |n: u64| 100.0 * n as f64 / self.program.events.max(1) as f64;
        let row = |name: &str, n| Measure {
            name: name.to_owned(),
            unit: "%",
            better: Better::Lower,
            value: part(n),
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
        program
    }

    fn steps(program: &Program, cpu: usize) -> String {
        let text = program.cpus[cpu].steps.iter().map(|(_, what)| match what {
            What::Take(order, _, place) => format!("take {order} {place:?}"),
            What::Give(place, list) => {
                format!("give {place:?}{}", if *list { " list" } else { "" })
            }
        });
        text.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_block_stays_with_its_cpu_or_is_sent() {
        let p = program(&[alloc(0, 8, 0), alloc(0, 9, 0), free(0, 8, 0), free(1, 9, 0)]);
        assert_eq!(steps(&p, 0), "take 0 Own(0); take 0 Sent(1, 0); give Own(0)");
        assert_eq!(steps(&p, 1), "give Sent(0, 0)");
        assert_eq!((p.unknown, p.again), (0, 0));
    }

    #[test]
    fn frees_with_a_batched_event_are_of_a_list() {
        let batched = |pfn| event(0, Kind::FreeBatched { pfn });
        let p =
            program(&[alloc(0, 8, 0), alloc(0, 9, 0), free(0, 8, 0), free(0, 9, 0), batched(8)]);
        assert!(steps(&p, 0).ends_with("give Own(0) list; give Own(1)"), "{}", steps(&p, 0));
    }

    #[test]
    fn what_was_there_before_and_what_is_missing() {
        // 5 was there before. 5 again without a request: its request is missing. 8 twice: its free.
        let p = program(&[free(0, 5, 1), free(0, 5, 1), alloc(0, 8, 0), alloc(0, 8, 0)]);
        assert_eq!(p.cpus[0].before, [Order::new(1).unwrap()]);
        assert_eq!((p.unknown, p.again, p.events), (1, 1, 4));
        assert!(steps(&p, 0).starts_with("give Before(0); take"), "{}", steps(&p, 0));
    }

    #[test]
    fn a_block_that_is_freed_in_pieces_goes_with_the_last() {
        let p = program(&[alloc(0, 8, 2), free(0, 8, 0), free(0, 10, 1), free(1, 9, 0)]);
        assert_eq!(steps(&p, 0), "take 2 Sent(1, 0)");
        assert_eq!(steps(&p, 1), "give Sent(0, 0)");
        assert_eq!(p.unknown, 0);
    }
}
