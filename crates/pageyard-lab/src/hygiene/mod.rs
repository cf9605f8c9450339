//! `pageyard run hygiene`: measures whether memory of different mobility stays apart over many
//! rounds.
//!
//! A kernel build, a cache server and bursts of requests for huge pages share one heap for many
//! rounds (spec A.3), once under each of two policies. Every list operation is checked (spec §4.8).
//! Both policies see the same requests, drawn from one seed; only the page cache's reclaim depends
//! on the allocator's free memory. The machine is simulated: one CPU runs at a time, memory has no
//! contents, and the recipe determines the time.
//!
//! The workload's numbers are constants next to what they govern, each with its source: *measured*
//! in a recording, *derived* from one, *stated* where the load was published, or *assumed*.

mod blocks;
pub(crate) mod build;
mod heap;
mod host;
mod load;
mod options;
mod published;
mod table;

use pageyard::policy::{Rules, StaticPolicy, TypeChecked, Vanilla};
use pageyard::{Hooked, InitError, Knobs, Layout, NodeId, Order, PAGE_SIZE, Pfn, Yard, ZoneSpec};
use serde::Serialize;

use self::build::{Build, SLICE, flags, gfp};
use self::heap::{Heap, ZONE};
use self::host::Host;
use self::load::{Network, Prober, Server};
use crate::record::Sink;
use crate::{Lock, Memory};

pub use options::{Assumed, Options};
pub use published::{PUBLISHED, Published};
pub use table::{Claim, Summary};

/// Duration of a round in seconds on the recorded machine: the mean of the published builds (A.3).
const ROUND_SECONDS: f64 = 310.24;
/// Pages that the build maps in a round (measured in `6.12-build`).
const ROUND_PAGES: f64 = 327_981.0;
/// The share of memory that the kernel itself holds from the start: unmovable (measured in
/// `6.12-build`: 4,055 slab pages and 1,344 stack pages of 480,000) and reclaimable (362).
const KERNEL: f64 = 0.011;
const KERNEL_RECLAIMABLE: f64 = 0.00075;

/// Counters of one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Round {
    /// Blocks taken from another type's list whose pageblock kept its type (§4.5).
    pub steals: u64,
    /// Pageblocks that changed their type for a request (§4.4).
    pub claims: u64,
    /// Blocks that left a list, or were stolen, for a request whose type differed from the
    /// pageblock's (§4.10).
    pub mismatches: u64,
    /// Allocated blocks whose pageblock type differed from the request's, including those from
    /// per-CPU lists that were filled before the pageblock changed its type.
    pub mixed: u64,
    /// List operations in which the types of block and list differed (§4.8).
    pub type_check_failures: u64,
    /// Requests made.
    pub requests: u64,
    /// Requests that failed, except those for huge pages.
    pub failed: u64,
    /// Huge pages allocated.
    pub huge: u64,
    /// Requests for huge pages that failed.
    pub huge_missed: u64,
    /// Pages that background reclaim freed.
    pub reclaimed: u64,
    /// Pages that direct reclaim freed.
    pub reclaimed_directly: u64,
}

impl Round {
    /// Requests served from another type's block, claimed or stolen: the events that the kernel
    /// reports as `mm_page_alloc_extfrag` (§4.10).
    pub fn fallbacks(&self) -> u64 {
        self.steals + self.claims
    }

    fn since(&self, before: &Round) -> Round {
        Round {
            steals: self.steals - before.steals,
            claims: self.claims - before.claims,
            mismatches: self.mismatches - before.mismatches,
            mixed: self.mixed - before.mixed,
            type_check_failures: self.type_check_failures - before.type_check_failures,
            requests: self.requests - before.requests,
            failed: self.failed - before.failed,
            huge: self.huge - before.huge,
            huge_missed: self.huge_missed - before.huge_missed,
            reclaimed: self.reclaimed - before.reclaimed,
            reclaimed_directly: self.reclaimed_directly - before.reclaimed_directly,
        }
    }
}

/// All rounds under one policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Series {
    /// The policy's name.
    pub policy: &'static str,
    /// Counters of filling the heap, before the first round.
    pub start: Round,
    /// Counters of each round.
    pub rounds: Vec<Round>,
    /// Pageblocks by type at the end: unmovable, movable, reclaimable.
    pub pageblocks: [u64; 3],
}

/// The series of both policies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Size of the heap in bytes.
    pub memory: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// Under the policy from before the hygiene patches.
    pub vanilla: Series,
    /// Under the policy with the hygiene patches.
    pub linux612: Series,
}

/// Why the workload cannot run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HygieneError {
    /// The heap is too small or too large for the workload.
    #[error(
        "heap of {}: the workload needs 256 MiB to 1 TiB; use --memory 512M, for example",
        crate::format::size(*.0)
    )]
    Memory(u64),
    /// The number of rounds is zero.
    #[error("no rounds to run; use --rounds 1 or more")]
    NoRounds,
    /// Huge pages are held for less than a second, or until the next ones are requested.
    #[error("huge pages held for {0} s: hold them for 1 to 9 s")]
    Held(u64),
    /// The heap could not be initialised.
    #[error(transparent)]
    Init(#[from] InitError),
}

/// Runs both policies concurrently. `linux612` receives every event of the `Linux612` policy.
///
/// # Errors
/// Returns [`HygieneError`] if an option is out of range.
pub fn run(options: &Options, linux612: &impl Sink) -> Result<Report, HygieneError> {
    let (vanilla, linux612) = std::thread::scope(|scope| {
        let vanilla = scope.spawn(|| soak(options, "Vanilla", &<TypeChecked<Vanilla>>::RULES, &()));
        let linux612 = soak(options, "Linux612", &<TypeChecked>::RULES, linux612);
        (vanilla.join(), linux612)
    });
    let vanilla = vanilla.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let Options { seed, memory, cpus, .. } = *options;
    Ok(Report { seed, memory, cpus, vanilla, linux612: linux612? })
}

/// Runs all rounds under one policy.
///
/// # Errors
/// Returns [`HygieneError`] if an option is out of range.
pub fn soak(
    options: &Options,
    name: &'static str,
    rules: &Rules,
    observer: &impl Sink,
) -> Result<Series, HygieneError> {
    if !(Options::LEAST_MEMORY..=Options::MOST_MEMORY).contains(&options.memory) {
        return Err(HygieneError::Memory(options.memory));
    }
    if options.rounds == 0 {
        return Err(HygieneError::NoRounds);
    }
    if !(1..Prober::PERIOD).contains(&options.assumed.held) {
        return Err(HygieneError::Held(options.assumed.held));
    }
    let pages = options.memory / PAGE_SIZE;
    let start = Pfn(1 << 20);
    let span = start..Pfn(start.0 + pages);
    let cpus = vec![NodeId(0); options.cpus as usize];
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZONE, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &cpus,
        distances: &[],
        knobs: Knobs::default(),
    };
    let memory = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let host = Host::new(observer, start, pages, options);
    let mut yard: Yard<'_, Hooked<Lock, _, _>> = Yard::with_policy(&host, rules);
    yard.init(&layout, memory.storage(&mut rooms))?;
    host.attach(&yard);
    let mut soak = Soak {
        heap: Heap::new(&yard, &host, options.cpus, options.seed),
        build: Build::new(options, ROUND_SECONDS * 1e9),
        server: Server::new(options.seed),
        network: Network::new(options.seed),
        prober: Prober::new(options),
        seconds: 0,
    };
    soak.fill(pages as f64);
    let start = soak.count();
    let mut rounds = Vec::new();
    let mut before = start;
    for _ in 0..options.rounds {
        soak.round();
        let now = soak.count();
        rounds.push(now.since(&before));
        before = now;
    }
    let blocks = yard.pageblocks(ZONE).unwrap_or_default();
    Ok(Series { policy: name, start, rounds, pageblocks: [blocks[0], blocks[1], blocks[2]] })
}

/// The workloads that share one heap.
struct Soak<'y, 'a, 'o, O: Sink> {
    heap: Heap<'y, 'a, 'o, O>,
    build: Build,
    server: Server,
    network: Network,
    prober: Prober,
    seconds: u64,
}

impl<O: Sink> Soak<'_, '_, '_, O> {
    /// Fills memory before the first round: the kernel's own pages, the server's pages, and file
    /// pages until memory is short for the first time, as on a machine that has been up for a while
    /// (assumed).
    fn fill(&mut self, pages: f64) {
        let heap = &mut self.heap;
        for _ in 0..(pages * KERNEL) as u64 {
            heap.request(Order::ZERO, gfp(flags::SLAB));
        }
        for _ in 0..(pages * KERNEL_RECLAIMABLE) as u64 {
            heap.reclaimable_slab(Order::ZERO, gfp(flags::RECLAIMABLE));
        }
        self.server.start(heap, (pages * Server::SHARE) as usize);
        let mut read = 0;
        while !heap.host.take_reclaim_wake() && read < pages as u64 {
            heap.host.run_on((read / 64) as u32 % heap.cpus);
            heap.file_page(gfp(flags::READ), false);
            read += 1;
        }
    }

    /// Runs one build and the other workloads beside it.
    fn round(&mut self) {
        self.build.start(&mut self.heap);
        while !self.build.is_done() {
            self.second();
        }
    }

    fn second(&mut self) {
        let heap = &mut self.heap;
        let cpus = heap.cpus;
        let start_ns = self.seconds * 1_000_000_000;
        heap.host.advance_to(start_ns);
        for cpu in 0..cpus {
            heap.host.run_on(cpu);
            heap.yard.tick(pageyard::CpuId(cpu));
        }
        self.prober.second(heap, self.seconds);
        heap.background();
        self.server.second(heap);
        self.network.second(cpus);
        // Each CPU maps its share of the build's pages per second, one slice at a time.
        let share = ROUND_PAGES / ROUND_SECONDS / 4.0;
        let slices = (share / SLICE as f64).round().max(1.0) as u64;
        for slice in 0..slices {
            heap.host.advance_to(start_ns + slice * 1_000_000_000 / slices);
            for cpu in 0..cpus {
                let mut mapped = 0;
                // Process starts and exits take no time of their own.
                for _ in 0..8 {
                    mapped += self.build.slice(heap, cpu, start_ns);
                    if mapped >= SLICE / 2 {
                        break;
                    }
                }
                heap.background();
            }
            self.network.run(heap, 1.0 / slices as f64);
            heap.background();
        }
        self.seconds += 1;
    }

    fn count(&self) -> Round {
        let Some(z) = self.heap.yard.zone_stats(ZONE) else { return Round::default() };
        let t = self.heap.tally;
        Round {
            steals: z.steals,
            claims: z.claims_whole + z.claims_part,
            mismatches: z.mismatches,
            mixed: t.mixed,
            type_check_failures: z.type_check_failures,
            requests: t.requests,
            failed: t.failed,
            huge: self.prober.got,
            huge_missed: self.prober.missed,
            reclaimed: t.background,
            reclaimed_directly: self.heap.host.direct.get(),
        }
    }
}
