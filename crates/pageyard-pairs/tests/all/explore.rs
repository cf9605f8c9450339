//! Cases, by name: `state/policy/first/second@point`, or with a third operation and a point of the
//! second one's: `state/policy/first/second/third@point@point`.
//!
//! `cargo test -p pageyard-pairs` tries a sample of the cases, from a seed.
//! `PAGEYARD_PAIRS=all` tries all; `PAGEYARD_POINTS=all` stops at plain loads and stores too;
//! `PAGEYARD_SEED=7` takes another sample; `PAGEYARD_CASE=NAME` replays one case.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use pageyard::policy::*;

use crate::ops::{Op, ops};
use crate::schedule::{Bug, Plan, Point, run};
use crate::states::{State, settle, states, with_yard};
use crate::world::CPU;

/// One case's name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Name {
    state: String,
    policy: String,
    ops: Vec<String>,
    /// The points are numbered with plain loads and stores among them.
    plain: bool,
    stops: Vec<u64>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.state, self.policy, self.ops.join("/"))?;
        let mark = if self.plain { "@p" } else { "@" };
        self.stops.iter().try_for_each(|n| write!(f, "{mark}{n}"))
    }
}

impl Name {
    fn parse(text: &str) -> Option<Name> {
        let mut parts = text.split('@');
        let mut names = parts.next()?.split('/').map(str::to_owned);
        let stops: Vec<&str> = parts.collect();
        let plain = stops.iter().any(|s| s.starts_with('p'));
        Some(Name {
            state: names.next()?,
            policy: names.next()?,
            ops: names.collect(),
            plain,
            stops: stops
                .iter()
                .map(|s| s.trim_start_matches('p').parse().ok())
                .collect::<Option<_>>()?,
        })
    }
}

/// How much is tried.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    pub(crate) seed: u64,
    /// One pair in so many, and of its points at most so many.
    pub(crate) one_in: u64,
    pub(crate) points: usize,
    pub(crate) plain: bool,
    pub(crate) bug: Bug,
}

/// What was tried, and what failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) interleavings: u64,
    /// Pairs of which an operation means nothing in the state.
    pub(crate) meaningless: u64,
    /// Points that repeat earlier ones of the same operation, at the same place in the source.
    pub(crate) repeated: u64,
    /// Points beyond the sample.
    pub(crate) beyond: u64,
    pub(crate) failed: Vec<(String, String)>,
}

fn hash(parts: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Runs operations as the actors of a schedule, the first `actors` of them; the points of the first
/// one. `None`: one of them means nothing in this state.
pub(crate) fn case<P: Policy + Sync>(
    state: &State<P>,
    all: &[&Op<P>],
    actors: usize,
    plan: &Plan,
) -> Option<Result<Vec<Point>, String>> {
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

/// The numbers of the points worth a stop: of those at one place in the source, the first few, those
/// at powers of two, and the last.
fn worth(points: &[Point]) -> Vec<u64> {
    let mut seen: HashMap<Point, (u64, u64)> = HashMap::new();
    let mut numbers = Vec::new();
    for (number, &point) in (1..).zip(points) {
        let (times, last) = seen.entry(point).or_default();
        *times += 1;
        *last = number;
        if *times <= 6 || times.is_power_of_two() {
            numbers.push(number);
        }
    }
    numbers.extend(seen.values().map(|&(_, last)| last));
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Tries the pairs of one state.
pub(crate) fn explore<P: Policy + Sync>(state: &State<P>, extent: &Extent, tally: &mut Tally) {
    let ops = ops::<P>();
    for first in &ops {
        for second in &ops {
            let chosen = hash(&(extent.seed, state.name, P::NAME, first.name, second.name));
            if chosen % extent.one_in == 0 {
                pair(state, first, second, extent, tally);
            }
        }
    }
}

fn pair<P: Policy + Sync>(
    state: &State<P>,
    first: &Op<P>,
    second: &Op<P>,
    extent: &Extent,
    tally: &mut Tally,
) {
    let name = |stop| Name {
        state: state.name.into(),
        policy: P::NAME.into(),
        ops: vec![first.name.into(), second.name.into()],
        plain: extent.plain,
        stops: vec![stop],
    };
    let plan = |stop| Plan { stops: vec![stop], plain: extent.plain, bug: extent.bug };
    let points = match case(state, &[first, second], 1, &plan(0)) {
        None => return tally.meaningless += 1,
        Some(Err(why)) => return tally.failed.push((name(0).to_string(), why)),
        Some(Ok(points)) => points,
    };
    tally.pairs += 1;
    let mut numbers = worth(&points);
    tally.repeated += (points.len() - numbers.len()) as u64;
    if numbers.len() > extent.points {
        tally.beyond += (numbers.len() - extent.points) as u64;
        numbers.sort_by_key(|n| hash(&(extent.seed, name(*n))));
        numbers.truncate(extent.points);
    }
    for stop in numbers {
        tally.interleavings += 1;
        if let Some(Err(why)) = case(state, &[first, second], 2, &plan(stop)) {
            let point = points[stop as usize - 1];
            tally.failed.push((name(stop).to_string(), format!("{why} (stopped before {point})")));
        }
    }
}

#[test]
fn first() {
    let mut tally = Tally::default();
    let env = |name: &str| std::env::var(name).ok().and_then(|s| s.parse().ok());
    let extent = Extent {
        seed: 1,
        one_in: env("ONE_IN").unwrap_or(10),
        points: env("POINTS").unwrap_or(1000) as usize,
        plain: false,
        bug: Bug::None,
    };
    for state in states::<Linux612>() {
        if let Ok(only) = std::env::var("STATE")
            && only != state.name
        {
            continue;
        }
        let t = std::time::Instant::now();
        explore(&state, &extent, &mut tally);
        println!("{}: {} in {:?}", state.name, tally.interleavings, t.elapsed());
    }
    println!(
        "{} pairs, {} interleavings, {} meaningless, {} repeated, {} beyond, {} failed",
        tally.pairs,
        tally.interleavings,
        tally.meaningless,
        tally.repeated,
        tally.beyond,
        tally.failed.len()
    );
    let mut kinds: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for (name, why) in &tally.failed {
        let kind: String = format!(
            "{} {}",
            name.split('@').next().unwrap(),
            why.split(" (stopped").next().unwrap()
        )
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect();
        kinds.entry(kind).or_insert((format!("{name}: {why}"), 0)).1 += 1;
    }
    for (what, n) in kinds.values() {
        println!("{n}x {what}");
    }
}
