//! Statistics of a live yard, for people and programs outside it: one value that is published,
//! printed and exported.

use pageyard::policy::{Engine, Policy};
use pageyard::tuning::Tuning;
use pageyard::{CpuId, MAX_ORDER, MigrateType, Order, PAGEBLOCK_PAGES, Pfn, TYPES};
use serde::{Deserialize, Serialize};

use crate::limits::pages as pages_of;
use crate::lock::HostLock;
use crate::raw_yard::RawYard;
use crate::requests::BackendCounts;
use crate::thread_cache::ThreadCacheStats;
use crate::usable::Usable;
use crate::usage::Usage;

/// Maximum number of places of a zone that the map shows.
const MAP: u64 = 64;
/// Orders for which the unusable share of free memory is reported.
const ORDERS: [u8; 3] = [3, 9, 10];

/// Statistics of a yard at one moment, in pages unless stated otherwise. Counters start with the
/// yard.
///
/// ```
/// use pageyard_host::{Builder, YardStats};
///
/// let yard = Builder::new(16 << 20).build()?;
/// let stats: YardStats = yard.stats();
/// println!("process {}: {} of {} pages in use", stats.pid, stats.used, stats.pages);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct YardStats {
    /// Process ID.
    pub pid: u32,
    /// Time of the sample, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Pressure level: `calm`, `moderate`, `critical`.
    pub level: String,
    /// Size of the yard.
    pub pages: u64,
    /// Pages in use.
    pub used: u64,
    /// Pages of these that callers hold: all but what thread caches keep and what is out of use.
    #[serde(default)]
    pub owned: u64,
    /// Pages that ordinary requests can have at once ([`Usable::bytes`](crate::Usable::bytes)).
    #[serde(default)]
    pub usable: u64,
    /// Pages that the system backs, as far as the allocator knows.
    pub resident: u64,
    /// Pages of these that are free in pageblocks of which other pages are in use, or on per-CPU lists.
    #[serde(default)]
    pub in_pieces: u64,
    /// Pages that are to stay resident at the moment.
    pub target: u64,
    /// Pages kept out of circulation by the hard limit.
    pub kept: u64,
    /// The hard and the soft limit; `None` if there is none.
    pub hard_limit: Option<u64>,
    /// See `hard_limit`.
    pub soft_limit: Option<u64>,
    /// Pages returned to the system, and pages of those that requests took again, beside those returned in
    /// blocks of less than 2 MiB.
    pub given_back: u64,
    /// See `given_back`.
    pub fetched: u64,
    /// Pages freed by shrinkers, for the worker and for requests.
    pub shrunk: u64,
    /// Blocks that compaction moved.
    pub moved: u64,
    /// Requests that failed for want of memory. A range that finds no place is none.
    #[serde(default)]
    pub failed: u64,
    /// Blocks that callers allocated and freed, by order, including those that the thread cache
    /// served, and blocks that the hard limit takes out of circulation. A range counts as single
    /// pages. A block that compaction moves counts as freed, on the packed engine also as
    /// allocated. Empty if the process publishes none, because its pageyard-host is older.
    #[serde(default)]
    pub allocs: Vec<u64>,
    /// See `allocs`.
    #[serde(default)]
    pub frees: Vec<u64>,
    /// The thread cache. Its pages are part of `used`.
    #[serde(default)]
    pub thread_cache: ThreadCacheStats,
    /// The zones, node by node.
    pub zones: Vec<ZoneStatus>,
}

/// Statistics of a zone, in pages unless stated otherwise.
///
/// ```
/// use pageyard_host::Builder;
///
/// let stats = Builder::new(16 << 20).build()?.stats();
/// for zone in &stats.zones {
///     println!("node {}: {} of {} pages free", zone.node, zone.free, zone.managed);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ZoneStatus {
    /// Node of the zone.
    pub node: u16,
    /// Kind of the zone.
    pub kind: String,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Free pages.
    pub free: u64,
    /// Pages on per-CPU lists.
    pub cached: u64,
    /// MIN, LOW and HIGH watermarks, and the boost added to them at the moment.
    pub watermarks: [u64; 3],
    /// See `watermarks`.
    pub boost: u64,
    /// Free blocks by order (buddyinfo).
    pub free_blocks: Vec<u64>,
    /// Pageblocks by type: unmovable, movable, reclaimable, highatomic, contiguous, isolated.
    pub pageblocks: Vec<u64>,
    /// Order, and the share of the free memory, in thousandths, that cannot serve it (§9.6).
    pub unusable: Vec<(u8, u32)>,
    /// Types of evenly spaced pageblocks from the first to the last: `U`, `M`, `R`, `H`, `C`, `I`.
    pub map: String,
    /// Number of times the zone lock was taken.
    pub lock_holds: u64,
    /// Allocations and frees that found their per-CPU list busy.
    pub bypasses: u64,
    /// Attempts that failed: a caller's request may make several, and a hard limit that is not met
    /// makes some at each step of the worker.
    pub failures: u64,
    /// Blocks stolen from another type (§4.5).
    pub steals: u64,
    /// Per-CPU lists.
    pub cpus: Vec<CpuStatus>,
}

/// Statistics of a CPU's lists in a zone.
///
/// ```
/// use pageyard_host::Builder;
///
/// let stats = Builder::new(16 << 20).build()?.stats();
/// for cpu in stats.zones.iter().flat_map(|zone| &zone.cpus) {
///     println!("CPU {}: {} pages on its lists, at most {}", cpu.cpu, cpu.count, cpu.high);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CpuStatus {
    /// CPU number.
    pub cpu: u32,
    /// Pages on its lists.
    pub count: i32,
    /// Threshold above which the lists drain, and the range in which it is tuned (§5.4). This and the
    /// following are 0 on the packed engine, whose magazines have a fixed size.
    pub high: i32,
    /// See `high`.
    pub high_min: i32,
    /// See `high`.
    pub high_max: i32,
    /// Pages moved at once, and the number of doublings of it that recent requests earned.
    pub batch: i32,
    /// See `batch`.
    pub alloc_factor: u8,
    /// Blocks that its lists and the zone behind them allocated and freed. A thread cache in front of
    /// the lists hides most requests from them: see [`YardStats::allocs`].
    pub allocs: u64,
    /// See `allocs`.
    pub frees: u64,
    /// Of these allocations, those served from a list.
    pub hits: u64,
    /// Refills and drains of the lists.
    pub refills: u64,
    /// See `refills`.
    pub drains: u64,
}

fn letter(t: MigrateType) -> char {
    let at = MigrateType::ALL.iter().position(|&a| a == t).unwrap_or(TYPES - 1);
    "UMRHCI".chars().nth(at).unwrap_or('?')
}

impl YardStats {
    /// Collects the statistics. `thread_cache` reads those of the thread cache.
    pub(crate) fn of<P: Policy>(
        raw: &RawYard<P, HostLock>,
        thread_cache: impl FnOnce() -> ThreadCacheStats,
    ) -> YardStats {
        let core = raw.core();
        let mut backend = BackendCounts::default();
        for zone in core.zone_ids() {
            let cpus = raw.cpus().iter().filter_map(|&cpu| core.cpu_stats(zone, CpuId(cpu)));
            cpus.for_each(|stats| backend.add(&stats));
        }
        // In this order: see `Requests`.
        let thread_cache = thread_cache();
        let [allocs, frees] = raw.service().requests.report(backend, &thread_cache);
        let service = raw.service();
        let usage = Usage::of(raw);
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        let limits = service.balloon.limits();
        let resident = usage.resident(raw);
        let usable = Usable::of(raw, thread_cache.pages);
        let pages = raw.region().pages();
        let is_tuned = core.policy().rules().engine == Engine::Exact;
        let zone = |id| {
            let info = core.zone_info(id)?;
            let stats = core.zone_stats(id)?;
            let cpu = |&cpu: &u32| {
                let set = core.pageset(id, CpuId(cpu))?;
                let tuning = if is_tuned { set } else { Tuning::default() };
                let stats = core.cpu_stats(id, CpuId(cpu))?;
                Some(CpuStatus {
                    cpu,
                    count: set.count,
                    high: tuning.high,
                    high_min: tuning.limits.high_min,
                    high_max: tuning.limits.high_max,
                    batch: tuning.limits.batch,
                    alloc_factor: tuning.alloc_factor,
                    allocs: stats.allocs.blocks(),
                    frees: stats.frees.blocks(),
                    hits: stats.hits(),
                    refills: stats.refills,
                    drains: stats.all_drains(),
                })
            };
            let block = u64::from(PAGEBLOCK_PAGES);
            let blocks = info.spanned / block;
            let place = |i: u64| Pfn(info.start.0 + i * blocks / MAP.min(blocks) * block);
            let map = (0..MAP.min(blocks)).filter_map(|i| core.block_type(place(i)));
            let unusable = |o| Some((o, core.unusable_index(id, Order::new(o)?)?));
            Some(ZoneStatus {
                node: info.node.0,
                kind: format!("{:?}", info.kind),
                managed: info.managed,
                free: info.free_exact,
                cached: info.cached,
                watermarks: [info.watermarks[0], info.watermarks[1], info.watermarks[2]],
                boost: info.boost,
                free_blocks: core.free_blocks(id)?[..=usize::from(MAX_ORDER)].to_vec(),
                pageblocks: core.pageblocks(id)?.to_vec(),
                unusable: ORDERS.into_iter().filter_map(unusable).collect(),
                map: map.map(letter).collect(),
                lock_holds: stats.lock_holds,
                bypasses: stats.bypasses,
                failures: stats.failures,
                steals: stats.steals,
                cpus: raw.cpus().iter().filter_map(cpu).collect(),
            })
        };
        YardStats {
            pid: std::process::id(),
            at_ns: crate::clock::now(),
            level: service.level().to_string(),
            pages,
            used: usage.used,
            owned: usage.owned(thread_cache.pages, pages_of(usable.out_of_use)),
            usable: pages_of(usable.bytes),
            resident,
            in_pieces: usage.in_pieces(raw, resident),
            target: service.target.load(relaxed).min(pages),
            kept: service.balloon.pages(),
            hard_limit: limits.hard,
            soft_limit: limits.soft,
            given_back: service.given_back.load(relaxed),
            fetched: usage.retaken,
            shrunk: service.shrunk.load(relaxed) + service.shrunk_directly.load(relaxed),
            moved: service.moved.load(relaxed),
            failed: service.requests.failed(),
            allocs,
            frees,
            thread_cache,
            zones: core.zone_ids().filter_map(zone).collect(),
        }
    }
}
