//! Compaction: movable blocks are moved together, so that what they leave behind merges into
//! larger free blocks (spec §7.4–7.8).
//!
//! Two scanners work towards each other. One ascends from the zone's start and collects blocks that
//! their owners can move ([`Yard::set_movable`]); the other descends from the zone's end and takes
//! free blocks as their new places. Where the two meet, the zone is compacted. Moving a block is
//! the embedder's part: [`Reclaim::relocate`](crate::Reclaim::relocate), called without any lock.
//!
//! A run ends whatever that hook answers: the scanners only ever go one way.
//!
//! | file | what |
//! |---|---|
//! | `pass` | one pass of both scanners over a zone |
//! | `sources`, `targets` | the two scanners |
//! | `sort` | further passes where all that can be had is wanted |
//! | `suitable` | whether a pass is worth it, and when it has done enough (§7.5) |
//! | `defer` | who has failed waits; who was not served tries harder (§7.6) |
//! | `capture` | a freed block goes straight to the one who compacts (§7.7) |
//! | `direct` | on behalf of a request, or because somebody asks |
//! | `daemon`, `proactive` | in the background (§7.8) |

mod capture;
mod collected;
mod daemon;
mod defer;
mod direct;
mod pass;
mod proactive;
mod sort;
mod sources;
mod suitable;
mod targets;

use lock_api::RawMutex;

use crate::allocator::yard::Yard;
use crate::base::frame::NIL;
use crate::base::gfp::AllocFlags;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MigrateType, NodeId, Order, PAGEBLOCK_PAGES, ZoneId, ZoneKind};
use crate::embedder::config::Config;
use crate::zone::compaction_state::Count;
use crate::zone::state::Zone;

pub use crate::embedder::compact_events::{CompactEvent, CompactResult, Deferral, Mode, Priority};
pub use crate::request::compact_retry::{MOST_RETRIES, Retries, should_retry};
pub use daemon::Background;
pub use direct::Compacted;
pub use proactive::{node_score, start_above, stop_at, zone_score};

/// Pages that are moved at once, and frames that are looked at under one hold of the zone lock
/// (`COMPACT_CLUSTER_MAX`, §1.1).
pub(crate) const CLUSTER: u32 = 32;

/// What one run is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// A block of this order is wanted; `None`: all that can be had.
    pub(crate) order: Option<Order>,
    pub(crate) migrate_type: MigrateType,
    pub(crate) highest: ZoneKind,
    pub(crate) flags: AllocFlags,
    pub(crate) mode: Mode,
    /// On behalf of a request that waits, which may take a block that becomes free.
    pub(crate) direct: bool,
    /// From one end of the zone to the other, not from where the last run stopped.
    pub(crate) whole: bool,
    pub(crate) ignore_skips: bool,
    /// Into blocks of any type, however much of them is free.
    pub(crate) any_target: bool,
    /// Until the zone's score is low enough (§7.8).
    pub(crate) proactive: bool,
    /// By the background's thread.
    pub(crate) background: bool,
}

impl Job {
    /// Everything that can be had of a zone (`compact_memory`, §10).
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
}

/// Compaction's counters (§9.1) of all zones together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactStats {
    /// `compact_stall`: requests that compacted a zone themselves.
    pub stall: u64,
    /// `compact_fail`: of these, how many were not served then.
    pub fail: u64,
    /// `compact_success`: of these, how many were.
    pub success: u64,
    /// `compact_migrate_scanned`: frames that the ascending scanner looked at.
    pub migrate_scanned: u64,
    /// `compact_free_scanned`: frames that the descending scanner looked at.
    pub free_scanned: u64,
    /// `compact_isolated`: pages collected to be moved, and free pages taken to move them to.
    pub isolated: u64,
    /// `compact_daemon_wake`: times that background compaction found work.
    pub daemon_wake: u64,
    /// `compact_daemon_migrate_scanned`: the background's part of `migrate_scanned`.
    pub daemon_migrate_scanned: u64,
    /// `compact_daemon_free_scanned`: the background's part of `free_scanned`.
    pub daemon_free_scanned: u64,
    /// `pgmigrate_success`: pages that were moved.
    pub moved: u64,
    /// `pgmigrate_fail`: pages that their owners, or want of a place, kept where they are.
    pub not_moved: u64,
}

/// The first index of a pageblock.
pub(crate) const fn block_start(idx: u32) -> u32 {
    idx & !(PAGEBLOCK_PAGES - 1)
}

/// One past the last index of a pageblock. No map reaches so far up that this could wrap.
pub(crate) const fn block_end(idx: u32) -> u32 {
    block_start(idx).saturating_add(PAGEBLOCK_PAGES)
}

impl<R: RawMutex> Zone<'_, R> {
    /// The next run begins at the zone's ends.
    fn reset_cursors(&self) {
        let c = &self.compaction;
        c.free_at.store(NIL, Relaxed);
        c.migrate_at.iter().for_each(|m| m.store(0, Relaxed));
    }

    /// Forgets what earlier runs found.
    fn forget_skips(&self) {
        self.compaction.flush.store(false, Relaxed);
        self.map.clear_skips();
        self.reset_cursors();
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Compaction's counters (§9.1), of all zones since the start.
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

    /// How far compaction of a zone is deferred after failures (§7.6); `None` where there is no
    /// such zone.
    pub fn deferral(&self, zone: impl Into<ZoneId>) -> Option<Deferral> {
        Some(self.zone(zone)?.compaction.deferral.get())
    }

    /// Background reclaim of a node is about to sleep (§7.2): where a request's compaction went
    /// through a whole zone since, the next one is to look everywhere again (§7.4).
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
