//! Cases: which operations run in which state, and where each stops for the next one.
//!
//! A case has a name: `state/policy/first/second@point`. With a third operation, which runs where
//! the second one stops, it is `state/policy/first/second/third@point@point`. The name alone
//! determines the outcome.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use pageyard::policy::StaticPolicy;

use crate::ops::{Op, ops};
use crate::schedule::{Bug, Plan, Point, run};
use crate::states::{State, settle, states, with_yard};
use crate::world::CPU;

/// Up to this many visits, a place in the source is always a stop; after that only at powers of two
/// and at the last visit.
const FEW: u64 = 6;

/// The set of cases to explore.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) seed: u64,
    /// Only cases with this text in their name.
    pub(crate) part: String,
    /// Explore one in this many pairs or triples.
    pub(crate) one_in: u64,
    /// The most points per operation.
    pub(crate) points: usize,
    /// Whether plain loads and stores are points too.
    pub(crate) plain: bool,
    pub(crate) bug: Bug,
}

impl Extent {
    pub(crate) fn all() -> Extent {
        Extent {
            seed: 0,
            part: String::new(),
            one_in: 1,
            points: usize::MAX,
            plain: false,
            bug: Bug::None,
        }
    }

    pub(crate) fn plan(&self, stops: &[u64]) -> Plan {
        Plan { stops: stops.to_vec(), plain: self.plain, bug: self.bug }
    }

    /// Returns whether the sequence of this name is in the sample.
    pub(crate) fn has(&self, name: &str) -> bool {
        name.contains(&self.part) && hash(&(self.seed, name)).is_multiple_of(self.one_in)
    }
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// What was explored, and what failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Number of sequences of operations.
    pub(crate) sequences: u64,
    pub(crate) interleavings: u64,
    /// Sequences with an operation that does not apply in the state.
    pub(crate) meaningless: u64,
    /// Points that repeat earlier ones of the same operation at the same place in the source.
    pub(crate) repeated: u64,
    /// Points outside the sample.
    pub(crate) left_out: u64,
    /// By failure and place, without numbers: how often it occurred, the first case and its
    /// message.
    pub(crate) failed: BTreeMap<String, (u64, String)>,
}

impl Tally {
    pub(crate) fn fail(&mut self, sequence: &str, case: &str, why: String) {
        let words = why.split(" (stopped before").next().unwrap_or(&why);
        let kind = format!("{sequence} {words}").replace(|c: char| c.is_ascii_hexdigit(), "");
        let first = format!("{why}\n    replay with PAGEYARD_CASE={case}");
        self.failed.entry(kind).or_insert((0, first)).0 += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { sequences, interleavings, meaningless, repeated, left_out, failed } = self;
        write!(
            f,
            "{interleavings} interleavings of {sequences} sequences; skipped: {meaningless} sequences \
             that mean nothing in their state, {repeated} points that repeat others, {left_out} \
             points outside the sample"
        )?;
        for (times, first) in failed.values() {
            write!(f, "\n{times} times: {first}")?;
        }
        Ok(())
    }
}

/// Runs the first `actors` operations as the actors of a schedule, and returns the points of each.
/// `None` if one of them does not apply in this state.
fn case<P: StaticPolicy + Sync>(
    state: &State<P>,
    all: &[&Op<P>],
    actors: usize,
    plan: &Plan,
) -> Option<Result<Vec<Vec<Point>>, String>> {
    with_yard(state, |h| {
        for (me, op) in all.iter().enumerate() {
            CPU.set(me as u32);
            if !(op.setup)(&h.acting_as(me)) {
                return None;
            }
        }
        let actor = |(me, op): (usize, &&Op<P>)| {
            let (hand, run) = (h.acting_as(me), op.run);
            Box::new(move || {
                CPU.set(me as u32);
                run(&hand);
            }) as Box<dyn FnOnce() + Send + '_>
        };
        let actors = all.iter().enumerate().take(actors).map(actor).collect();
        Some(run(plan, actors).and_then(|points| settle(h).map(|()| points)))
    })
}

/// Returns the numbers of the points worth a stop. For each place in the source these are the first
/// few visits, those at powers of two, and the last.
pub(crate) fn worth(points: &[Point]) -> Vec<u64> {
    let mut seen: HashMap<Point, (u64, u64)> = HashMap::new();
    let mut numbers = Vec::new();
    for (number, &point) in (1..).zip(points) {
        let (times, last) = seen.entry(point).or_default();
        (*times, *last) = (*times + 1, number);
        if *times <= FEW || times.is_power_of_two() {
            numbers.push(number);
        }
    }
    numbers.extend(seen.values().map(|&(_, last)| last));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// A sequence of operations in one state.
struct Sequence<'s, P: StaticPolicy> {
    state: &'s State<P>,
    ops: Vec<&'s Op<P>>,
    name: String,
    extent: &'s Extent,
}

impl<P: StaticPolicy + Sync> Sequence<'_, P> {
    fn case_name(&self, stops: &[u64]) -> String {
        let mark = if self.extent.plain { "@p" } else { "@" };
        stops.iter().fold(self.name.clone(), |name, n| format!("{name}{mark}{n}"))
    }

    /// Explores every stop of the last actor but one; `stops` are those of the actors before it.
    fn explore(&self, stops: &[u64], tally: &mut Tally) {
        let stopping = stops.len();
        let plan = self.extent.plan(stops);
        let points = match case(self.state, &self.ops, stopping + 1, &plan) {
            None => return tally.meaningless += 1,
            Some(Err(why)) => return tally.fail(&self.name, &self.case_name(stops), why),
            Some(Ok(mut points)) => points.swap_remove(stopping),
        };
        let mut numbers = worth(&points);
        tally.repeated += (points.len() - numbers.len()) as u64;
        if numbers.len() > self.extent.points {
            tally.left_out += (numbers.len() - self.extent.points) as u64;
            numbers.sort_by_key(|n| {
                hash(&(self.extent.seed, self.case_name(&[stops, &[*n]].concat())))
            });
            numbers.truncate(self.extent.points);
        }
        for number in numbers {
            let stops = [stops, &[number]].concat();
            if stops.len() + 1 < self.ops.len() {
                self.explore(&stops, tally);
                continue;
            }
            tally.interleavings += 1;
            let plan = self.extent.plan(&stops);
            if let Some(Err(why)) = case(self.state, &self.ops, self.ops.len(), &plan) {
                let at = points[number as usize - 1];
                let why = format!("{why} (stopped before {at})");
                tally.fail(&self.name, &self.case_name(&stops), why);
            }
        }
    }
}

/// Explores the extent's sequences of `length` operations, limited to the states and operations
/// that `wanted` accepts.
pub(crate) fn explore<P: StaticPolicy + Sync>(
    ops: &[Op<P>],
    length: usize,
    wanted: impl Fn(&str, &str) -> bool,
    extent: &Extent,
    tally: &mut Tally,
) {
    for state in states::<P>() {
        let ops: Vec<&Op<P>> = ops.iter().filter(|op| wanted(state.name, op.name)).collect();
        for number in 0..ops.len().pow(length as u32) {
            let digits = (0..length as u32).rev().map(|d| number / ops.len().pow(d) % ops.len());
            let ops: Vec<&Op<P>> = digits.map(|i| ops[i]).collect();
            let names: Vec<&str> = ops.iter().map(|op| op.name).collect();
            let name = format!("{}/{}/{}", state.name, P::NAME, names.join("/"));
            if extent.has(&name) {
                tally.sequences += 1;
                Sequence { state: &state, ops, name, extent }.explore(&[], tally);
            }
        }
    }
}

/// Replays one case and returns its outcome, or `None` if it belongs to another policy.
pub(crate) fn replay<P: StaticPolicy + Sync>(name: &str) -> Option<Result<(), String>> {
    let mut parts = name.split('@');
    let names: Vec<&str> = parts.next()?.split('/').collect();
    let [state, policy, names @ ..] = &names[..] else { panic!("{name}: no such case") };
    if *policy != P::NAME {
        return None;
    }
    let numbers: Vec<&str> = parts.collect();
    let plain = numbers.iter().any(|n| n.starts_with('p'));
    let number = |n: &&str| n.trim_start_matches('p').parse().expect("the number of a point");
    let plan = Plan { stops: numbers.iter().map(number).collect(), plain, bug: Bug::None };
    let (states, ops) = (states::<P>(), ops::<P>());
    let state = states.iter().find(|s| s.name == *state).expect("the name of a state");
    let op =
        |name: &&str| ops.iter().find(|op| op.name == *name).expect("the name of an operation");
    let chosen: Vec<&Op<P>> = names.iter().map(op).collect();
    let outcome =
        case(state, &chosen, chosen.len(), &plan).expect("operations that mean something");
    Some(outcome.map(|_| ()))
}
