//! A phase: its yards and threads, determined by the seed and the phase's number alone.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use pageyard::policy::{Engine, Linux612, Packed, Rules, StaticPolicy};
use pageyard::{Order, PAGE_SIZE, SECTION_PAGES};
use pageyard_host::{Backing, BuildError, Builder, GiveBack, HugePages, ThreadCache};

use crate::Plan;
use crate::yards::HostYard;

/// Bytes of the smallest yard: one block of the largest order.
pub const LEAST_OF_A_YARD: u64 = 4 << 20;
/// Bytes of the smallest yard in a storm.
const STORM: u64 = 16 << 20;
/// Bytes of a section, the unit in which memory goes offline.
const SECTION: u64 = SECTION_PAGES * PAGE_SIZE;
/// Operations, besides ticks, that a dedicated thread repeats in some phases.
const BUSY: &[&str] = &["drain", "set_limits", "compact"];

/// The worker of a yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Upkeep {
    /// The yard's own thread, with this tick.
    Own(Duration),
    /// A thread of the soak that calls `worker`.
    Steps,
    /// None, except calls of `tick`.
    Calls,
}

/// The parameters of a yard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The rules of the policy, which name the engine.
    rules: &'static Rules,
    pub(crate) size: u64,
    front: ThreadCache,
    pub(crate) upkeep: Upkeep,
    backing: Backing,
    give_back: Option<GiveBack>,
    /// Whether the yard starts with only its first section.
    pub(crate) deferred: bool,
}

/// The work of a thread that allocates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// Operations of every kind.
    Mixed,
    /// Allocates at most this many single pages, and frees them.
    Burst(usize),
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Mixed => f.write_str("mixed"),
            Work::Burst(pages) => write!(f, "in bursts of {pages}"),
        }
    }
}

/// The yards and threads of a phase.
#[derive(Clone, Debug)]
pub struct Phase {
    /// The seed of the soak.
    pub seed: u64,
    /// Index of the phase in the soak.
    pub number: u64,
    pub(crate) yards: Vec<Shape>,
    pub(crate) workers: Vec<Work>,
    /// Length in percent of a whole phase ([`Plan::length`]).
    pub(crate) length: u64,
    /// Threads that repeat one operation each.
    pub(crate) busy: Vec<&'static str>,
    /// Number of threads that allocate most of a yard and free it.
    pub(crate) swings: usize,
    /// Whether one thread runs the operations of the table that neither allocate nor free.
    pub(crate) others: bool,
    /// Whether pages carry patterns, which slows the threads down.
    pub(crate) patterns: bool,
    /// The most that all threads of mixed work together try to hold, in percent of the memory.
    pub(crate) most_held_percent: u64,
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

impl Shape {
    fn draw(rng: &mut Rng, rules: &'static Rules, size: u64) -> Shape {
        let front = match rng.u8(0..16) {
            0 => ThreadCache::Off,
            1..4 => ThreadCache::Auto,
            4..10 => {
                ThreadCache::Blocks { pages: 126, larger: rng.u32(0..=8), huge: rng.u32(0..=1) }
            }
            _ => ThreadCache::Blocks {
                pages: rng.u32(1..=126),
                larger: rng.u32(0..=40),
                huge: rng.u32(0..=4),
            },
        };
        let upkeep = match rng.u8(0..4) {
            0 => Upkeep::Own(Duration::from_millis(rng.u64(1..=50))),
            1..3 => Upkeep::Steps,
            _ => Upkeep::Calls,
        };
        let backing = one_of(rng, &[Backing::Anonymous, Backing::Anonymous, Backing::Memfd]);
        let after = Duration::from_millis(rng.u64(0..=100));
        let lazily = backing == Backing::Anonymous && rng.u8(0..4) == 0;
        let pieces = backing == Backing::Anonymous && rng.bool();
        let least = if pieces { Order::new(rng.u8(0..3)).unwrap_or_default() } else { Order::HUGE };
        let how = GiveBack { after, lazily, least, ..GiveBack::default() };
        let give_back = rng.bool().then_some(how);
        Shape { rules, size, front, upkeep, backing, give_back, deferred: false }
    }

    pub(crate) fn build(&self) -> Result<HostYard, BuildError> {
        let tick = match self.upkeep {
            Upkeep::Own(every) => Some(every),
            Upkeep::Steps | Upkeep::Calls => None,
        };
        let builder = Builder::new(self.size).thread_cache(self.front).backing(self.backing);
        let builder = builder.give_back(self.give_back).deferred(self.deferred);
        let pieces = self.give_back.is_some_and(|how| how.least < Order::HUGE);
        let builder = if pieces { builder.huge_pages(HugePages::Never) } else { builder };
        builder.tick(tick).publish(tick.is_some()).build_with_policy(self.rules)
    }
}

impl Phase {
    pub(crate) fn new(plan: &Plan, number: u64) -> Phase {
        let mut rng = Rng::with_seed(plan.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rng = &mut rng;
        // Half of the phases are storms: memory pressure rises and falls while threads refill and
        // drain their caches of a single yard.
        let storm = rng.bool();
        // With six yards, a thread cannot find all of its caches at once.
        let yards = if storm { 1 } else { one_of(rng, &[1, 1, 2, 6]) };
        let size = if storm { STORM << rng.u32(0..=2) } else { plan.size >> rng.u32(0..=7) };
        let size =
            (size / yards / LEAST_OF_A_YARD * LEAST_OF_A_YARD).max(LEAST_OF_A_YARD).min(plan.size);
        // Every other phase begins with the other engine.
        let both = [&Linux612::RULES, &Packed::RULES];
        let rules = |n| plan.rules.unwrap_or(both[((number + n) % 2) as usize]);
        let yards: Vec<Shape> = (0..yards).map(|n| Shape::draw(rng, rules(n), size)).collect();
        let bursts = if storm { 100 } else { one_of(rng, &[0, 50]) };
        let burst = one_of(rng, &[63, 126, 300]);
        let work = |rng: &mut Rng| match rng.u32(0..100) < bursts {
            true => Work::Burst(burst),
            false => Work::Mixed,
        };
        let workers = (0..plan.threads).map(|_| work(rng)).collect();
        let mut busy = vec!["tick"; rng.usize(usize::from(storm)..=3)];
        busy.extend(BUSY.iter().filter(|_| rng.u8(0..3) == 0));
        if yards.iter().any(|y| y.upkeep == Upkeep::Steps) {
            busy.push("worker");
        }
        let mut phase = Phase {
            seed: plan.seed,
            number,
            workers,
            length: plan.length,
            busy,
            swings: if storm { rng.usize(1..=3) } else { rng.usize(0..=1) },
            others: rng.bool(),
            patterns: rng.u8(0..4) < if storm { 1 } else { 3 },
            most_held_percent: 150,
            yards,
        };
        if !storm && rng.u8(0..3) == 0 && plan.size >= 2 * SECTION {
            phase.move_sections(rng, plan.size);
        }
        phase
    }

    /// Uses one large yard with little in use, whose sections repeatedly go offline and online.
    /// Half of these yards start with one section and initialise the others while threads use them.
    fn move_sections(&mut self, rng: &mut Rng, size: u64) {
        self.yards.truncate(1);
        self.yards[0].size = size;
        if rng.bool() && self.yards[0].rules.engine == Engine::Exact {
            self.yards[0].deferred = true;
            self.busy.push("init_section");
            // This thread finishes the initialisation.
            self.others = true;
        }
        self.workers.iter_mut().for_each(|work| *work = Work::Mixed);
        self.most_held_percent = 3;
        self.swings = 0;
        self.busy.extend(["offline", "online"]);
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} phase {}: yards", self.seed, self.number)?;
        for (n, y) in self.yards.iter().enumerate() {
            let separator = if n == 0 { "" } else { " and" };
            let Shape { rules, size, front, upkeep, .. } = y;
            write!(f, "{separator} {:?} {} MiB, thread cache ", rules.engine, size >> 20)?;
            match front {
                ThreadCache::Blocks { pages, larger, huge } => {
                    write!(f, "{pages}+{larger}+{huge}")?
                }
                ThreadCache::Auto => f.write_str("auto")?,
                ThreadCache::Off => f.write_str("off")?,
            }
            match upkeep {
                Upkeep::Own(every) => write!(f, ", worker every {every:?}")?,
                Upkeep::Steps => f.write_str(", worker called")?,
                Upkeep::Calls => f.write_str(", no worker")?,
            }
            if y.deferred {
                f.write_str(", deferred")?;
            }
            if y.backing == Backing::Memfd {
                f.write_str(", memfd")?;
            }
            if let Some(how) = y.give_back {
                let lazily = if how.lazily { " lazily" } else { "" };
                write!(f, ", gives back after {:?}{lazily}", how.after)?;
                if how.least < Order::HUGE {
                    write!(f, " from order {}", how.least)?;
                }
            }
        }
        let mixed = self.workers.iter().filter(|w| **w == Work::Mixed).count();
        write!(f, "; threads: {mixed} mixed")?;
        if let Some(burst) = self.workers.iter().find(|w| **w != Work::Mixed) {
            write!(f, ", {} {burst}", self.workers.len() - mixed)?;
        }
        write!(f, ", {} swinging", self.swings)?;
        if self.others {
            f.write_str(", 1 of other operations")?;
        }
        self.busy.iter().try_for_each(|name| write!(f, ", {name}"))?;
        f.write_str(if self.patterns { "; patterns" } else { "; owners alone" })?;
        match self.length {
            100 => Ok(()),
            length => write!(f, "; {length}% of a phase"),
        }
    }
}
