//! Compaction: moves movable blocks together, so that the frames they leave merge into larger free
//! blocks (spec §7.4–7.8).
//!
//! Two scanners work towards each other. One ascends from the zone's start and collects blocks that
//! their owners can move ([`Yard::set_movable`]). The other descends from the zone's end and takes
//! free blocks to move them to. When the two meet, the zone is compacted. The embedder moves a
//! block in [`Reclaim::relocate`](crate::Reclaim::relocate), which is called without any lock.
//!
//! A run terminates whatever that hook returns, because each scanner moves in one direction only.
//!
//! | file | content |
//! |---|---|
//! | `pass` | one pass of both scanners over a zone |
//! | `sources`, `targets` | the two scanners |
//! | `sort` | further passes that free as many pageblocks as possible |
//! | `suitable` | whether a pass is worthwhile, and when it has done enough (§7.5) |
//! | `defer` | deferral after failures, and its end after a success (§7.6) |
//! | `capture` | a freed block goes straight to the compacting request (§7.7) |
//! | `direct` | on behalf of a request, or on the embedder's call |
//! | `daemon`, `proactive` | in the background (§7.8) |
//! | `packed` | on the packed engine: one scanner, which empties sparse pageblocks |
//! | `runs` | on the packed engine: makes one block of an order out of parts of pageblocks |

mod capture;
mod collected;
mod daemon;
mod defer;
mod direct;
mod packed;
mod pass;
mod proactive;
mod runs;
mod sort;
mod sources;
mod suitable;
mod targets;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::NIL;
use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, NodeId, Order, ZoneId, ZoneKind};
use crate::embedder::config::Config;
use crate::zone::compaction_state::Count;
use crate::zone::state::Zone;

pub use crate::embedder::compact_events::{CompactEvent, CompactResult, Deferral, Mode, Priority};
pub use crate::request::compact_retry::{MOST_RETRIES, Retries, should_retry};
pub use daemon::Background;
pub use direct::Compacted;
pub use proactive::{node_score, start_above, stop_at, zone_score};

/// Pages moved at once, and frames scanned under one hold of the zone lock (`COMPACT_CLUSTER_MAX`,
/// §1.1).
pub(crate) const CLUSTER: u32 = 32;

/// Parameters of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The order of the wanted block; `None`: compact as far as possible.
    pub(crate) order: Option<Order>,
    pub(crate) migrate_type: MigrateType,
    pub(crate) highest: ZoneKind,
    pub(crate) flags: AllocFlags,
    pub(crate) mode: Mode,
    /// On behalf of a waiting request, which may capture a block that becomes free.
    pub(crate) direct: bool,
    /// Scan the whole zone, not from where the last run stopped.
    pub(crate) whole: bool,
    pub(crate) ignore_skips: bool,
    /// Move into pageblocks of any type, however much of them is free.
    pub(crate) any_target: bool,
    /// Stop when the zone's score is low enough (§7.8).
    pub(crate) proactive: bool,
    /// Run by the background compaction thread.
    pub(crate) background: bool,
}

impl Job {
    /// Compacts a zone as far as possible (`compact_memory`, §10).
    pub(crate) const ALL: Job = Job {
        order: None,
        migrate_type: MigrateType::Movable,
        highest: ZoneKind::Movable,
        flags: AllocFlags::WMARK_MIN,
        mode: Mode::Sync,
        direct: false,
        whole: true,
        ignore_skips: true,
        any_target: false,
        proactive: false,
        background: false,
    };

    /// Compacts for a block of an order that movable pages may use.
    fn of(order: Order, priority: Priority) -> Job {
        let full = priority == Priority::SyncFull;
        Job {
            order: Some(order),
            mode: if priority == Priority::Async { Mode::Async } else { Mode::SyncLight },
            whole: full,
            ignore_skips: full,
            any_target: full,
            ..Job::ALL
        }
    }
}

/// Compaction's counters (§9.1), summed over all zones.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// yard.compact_all();
/// let stats: CompactStats = yard.compact_stats();
/// assert_eq!((stats.moved, stats.stall), (0, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStats {
    /// `compact_stall`: requests that compacted a zone themselves.
    pub stall: u64,
    /// `compact_fail`: of these, how many were not served afterwards.
    pub fail: u64,
    /// `compact_success`: of these, how many were served afterwards.
    pub success: u64,
    /// `compact_migrate_scanned`: frames that the ascending scanner inspected.
    pub migrate_scanned: u64,
    /// `compact_free_scanned`: frames that the descending scanner inspected.
    pub free_scanned: u64,
    /// `compact_isolated`: pages collected to be moved, plus free pages taken to move them to.
    pub isolated: u64,
    /// `compact_daemon_wake`: how often background compaction found work.
    pub daemon_wake: u64,
    /// `compact_daemon_migrate_scanned`: background compaction's share of `migrate_scanned`.
    pub daemon_migrate_scanned: u64,
    /// `compact_daemon_free_scanned`: background compaction's share of `free_scanned`.
    pub daemon_free_scanned: u64,
    /// `pgmigrate_success`: pages that were moved.
    pub moved: u64,
    /// `pgmigrate_fail`: pages not moved, because the owner refused or there was no free block to
    /// move them to.
    pub not_moved: u64,
}

impl<R: RawMutex> Zone<'_, R> {
    /// Makes the next run begin at the zone's ends.
    fn reset_cursors(&self) {
        let c = &self.compaction;
        c.free_at.store(NIL, Relaxed);
        c.impatient_at.store(0, Relaxed);
        c.migrate_at.iter().for_each(|m| m.store(0, Relaxed));
    }

    /// Clears the skip hints of earlier runs.
    fn forget_skips(&self) {
        self.compaction.flush.store(false, Relaxed);
        self.map.clear_skips();
        self.reset_cursors();
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Returns compaction's counters (§9.1) of all zones since the start.
    pub fn compact_stats(&self) -> CompactStats {
        let mut s = CompactStats::default();
        for z in self.zones {
            let c = &z.compaction;
            s.stall += c.get(Count::Stall);
            s.fail += c.get(Count::Fail);
            s.success += c.get(Count::Success);
            s.migrate_scanned += c.get(Count::MigrateScanned);
            s.free_scanned += c.get(Count::FreeScanned);
            s.isolated += c.get(Count::Isolated);
            s.daemon_wake += c.get(Count::DaemonWake);
            s.daemon_migrate_scanned += c.get(Count::DaemonMigrateScanned);
            s.daemon_free_scanned += c.get(Count::DaemonFreeScanned);
            s.moved += c.get(Count::Moved);
            s.not_moved += c.get(Count::NotMoved);
        }
        s
    }

    /// Returns how far compaction of a zone is deferred after failures (§7.6), or `None` if there
    /// is no such zone.
    pub fn deferral(&self, zone: impl Into<ZoneId>) -> Option<Deferral> {
        Some(self.zone(zone)?.compaction.deferral.get())
    }

    /// Call it when a node's background reclaim is about to sleep (§7.2). If a request's compaction
    /// has scanned a whole zone since the last call, the next one scans every pageblock again
    /// (§7.4).
    pub fn forget_skip_hints(&self, node: NodeId) {
        for z in self.zones_of(node).filter(|z| z.compaction.flush.load(Relaxed)) {
            z.forget_skips();
        }
    }

    fn zones_of(
        &self,
        node: NodeId,
    ) -> impl Iterator<Item = &'a Zone<'a, C::Lock>> + Clone + use<'a, C> {
        self.node(node).map_or(&[][..], |n| n.zones).iter()
    }
}
