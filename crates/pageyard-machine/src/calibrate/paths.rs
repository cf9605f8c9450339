//! The cost of the allocator's own instructions. The same requests are timed on the host and on a
//! machine on which these instructions take no time. The difference is their cost.
//!
//! Two policies separate the cost of links from the rest of a free: one puts each page on a free
//! list and merges it there, the other handles a run of pages at a time.

use std::time::Instant;

use pageyard::policy::{BlockByBlock, Linux612, StaticPolicy};
use pageyard::tuning::Limits;
use pageyard::{Bare, Config, CpuId, Gfp, InitError, Knobs, Order, Pfn, Platform, Yard};

use crate::{Costs, Machine, MachineSpec, Memory, Options};

type Lock = spin::mutex::SpinMutex<()>;

const BYTES: u64 = 256 << 20;
/// The descriptors of these pages take a quarter of a MiB, which fits into a core's private caches.
const PAGES: usize = 16 << 10;
/// Few enough pages to stay on the CPU's list.
const FEW: usize = 32;
const LIMITS: Limits = Limits { batch: 63, high_min: 126, high_max: 126 };
const ROUNDS: u32 = 20;

/// Costs in picoseconds per page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paths {
    /// A request served by the CPU's list.
    pub(super) alloc: u64,
    /// A free to the CPU's list.
    pub(super) free: u64,
    /// Additional time of a page that comes from the zone.
    pub(super) take: u64,
    /// Additional time of a page that goes on to the zone.
    pub(super) give: u64,
}

/// Instruction costs, in picoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instructions {
    pub(super) alloc_path: u64,
    pub(super) free_path: u64,
    pub(super) zone_take: u64,
    pub(super) zone_free: u64,
    pub(super) link: u64,
}

struct ThisHost;

impl Platform for ThisHost {
    fn cpu(&self) -> CpuId {
        CpuId(0)
    }
}

/// Makes `n` requests, then `n` frees. Returns the elapsed time of each phase.
fn round<C: Config>(
    yard: &Yard<'_, C>,
    pages: &mut Vec<Pfn>,
    n: usize,
    now: &dyn Fn() -> u64,
) -> (u64, u64) {
    let begin = now();
    pages.extend((0..n).map_while(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).ok()));
    let between = now();
    for page in pages.drain(..) {
        // The page was just allocated, so the free cannot fail.
        let _ = yard.free(page, Order::ZERO);
    }
    ((between - begin), (now() - between))
}

/// Returns the best time of each path.
fn paths<C: Config>(yard: &Yard<'_, C>, now: &dyn Fn() -> u64) -> Paths {
    for zone in yard.zone_ids() {
        yard.set_pcp_limits(zone, LIMITS);
    }
    let mut pages = Vec::with_capacity(PAGES);
    let (mut few, mut many) = ((u64::MAX, u64::MAX), (u64::MAX, u64::MAX));
    for _ in 0..ROUNDS {
        let mut sum = (0, 0);
        for _ in 0..PAGES / FEW {
            let one = round(yard, &mut pages, FEW, now);
            sum = (sum.0 + one.0, sum.1 + one.1);
        }
        few = (few.0.min(sum.0), few.1.min(sum.1));
        let all = round(yard, &mut pages, PAGES, now);
        many = (many.0.min(all.0), many.1.min(all.1));
    }
    let each = |ns: u64| ns * 1000 / PAGES as u64;
    let (alloc, free) = (each(few.0), each(few.1));
    Paths {
        alloc,
        free,
        take: each(many.0).saturating_sub(alloc),
        give: each(many.1).saturating_sub(free),
    }
}

/// Returns the time of reading the clock, which is included once in every `FEW` requests on the
/// host.
fn clock(start: Instant) -> u64 {
    let reads: Vec<_> = (0..10_000).map(|_| start.elapsed().as_nanos() as u64).collect();
    (reads[reads.len() - 1] - reads[0]) * 1000 / (reads.len() as u64 - 1)
}

fn real<P: StaticPolicy>(machine: &Machine) -> Result<Paths, InitError> {
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let memory: Memory<Lock> = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let yard: Yard<'_, Bare<Lock, ThisHost, P>> =
        Yard::new(&layout, memory.storage(&mut rooms), ThisHost)?;
    let start = Instant::now();
    let of_clock = clock(start) / FEW as u64;
    let paths = paths(&yard, &|| start.elapsed().as_nanos() as u64);
    Ok(Paths {
        alloc: paths.alloc.saturating_sub(of_clock),
        free: paths.free.saturating_sub(of_clock),
        ..paths
    })
}

fn simulated<P: StaticPolicy>(spec: &MachineSpec, costs: Costs) -> Result<Paths, InitError> {
    let machine = machine(spec, costs);
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let memory = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let yard = machine.yard::<P, ()>(&layout, memory.storage(&mut rooms), ())?;
    let found = std::cell::Cell::new(None);
    let ran = machine.run(|s| {
        let (yard, found) = (&yard, &found);
        s.spawn(CpuId(0), move |task| found.set(Some(paths(yard, &|| task.now()))));
    });
    debug_assert!(ran.is_ok(), "a single task cannot be stuck");
    Ok(found.get().unwrap_or(Paths { alloc: 0, free: 0, take: 0, give: 0 }))
}

fn machine(spec: &MachineSpec, costs: Costs) -> Machine {
    Machine::new(spec, Options { memory: Some(BYTES), costs, ..Options::default() })
}

/// Measures the instructions alone, with `costs` for everything else. Returns `None` if there is
/// not enough memory.
pub(super) fn measure(spec: &MachineSpec, costs: &Costs) -> Option<Instructions> {
    // Rounding to nanoseconds would hide a link cost of one picosecond in a round.
    const LINK: u64 = 10_000;
    let none = Costs {
        alloc_path: 0,
        bulk_page: 0,
        free_path: 0,
        zone_take: 0,
        zone_free: 0,
        link: 0,
        ..costs.clone()
    };
    let links = Costs { link: LINK, ..none.clone() };
    let host = machine(spec, none.clone());
    let runs = real::<Linux612>(&host).ok()?;
    let rest = simulated::<Linux612>(spec, none.clone()).ok()?;
    let linked = simulated::<Linux612>(spec, links.clone()).ok()?;
    let singly = real::<BlockByBlock<Linux612>>(&host).ok()?;
    let singly_rest = simulated::<BlockByBlock<Linux612>>(spec, none).ok()?;
    let singly_linked = simulated::<BlockByBlock<Linux612>>(spec, links).ok()?;

    let left = |host: u64, rest: u64| host as i64 - rest as i64;
    // Number of links per page, in thousandths.
    let links = |linked: u64, rest: u64| left(linked, rest) * 1000 / LINK as i64;
    let more = links(singly_linked.give, singly_rest.give) - links(linked.give, rest.give);
    let longer = left(singly.give, singly_rest.give) - left(runs.give, rest.give);
    let link = (longer * 1000).checked_div(more).unwrap_or(0).max(0);
    let of_links = |linked: u64, rest: u64| link * links(linked, rest) / 1000;
    let cost = |ps: i64| ps.max(0) as u64;
    Some(Instructions {
        alloc_path: cost(left(runs.alloc, rest.alloc)),
        free_path: cost(left(runs.free, rest.free)),
        zone_take: cost(left(runs.take, rest.take) - of_links(linked.take, rest.take)),
        zone_free: cost(left(runs.give, rest.give) - of_links(linked.give, rest.give)),
        link: cost(link),
    })
}
