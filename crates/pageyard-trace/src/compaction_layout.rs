//! Table of the fields of compaction and reclaim tracepoints. Text and `.pgy` are read and written
//! by it. The formats are those that kernels 6.1 and 6.12 store in a `trace.dat`.

use crate::check::{MAX_ORDER, MAX_PFN, at_most};
use crate::compaction::{
    Compaction, Deferral, Isolated, STATUSES, Scanners, VMSCAN, Wake, Wanted, ZONES,
};
use crate::error::Fault;

/// Maximum number of fields of a tracepoint.
pub(crate) const MOST: usize = 6;

/// Values of a tracepoint's fields, in order; unused ones are 0.
pub(crate) type Values = [u64; MOST];

/// A tracepoint.
pub(crate) struct Point {
    pub(crate) name: &'static str,
    /// The text before each value, and the form of the value.
    pub(crate) fields: &'static [(&'static str, Form)],
}

/// Form of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A frame number.
    Frame,
    /// A number.
    Count,
    /// A power of two, recorded as its logarithm.
    Limit,
    /// An order plus 1; 0 means -1.
    Order,
    /// An order from 0 to the maximum order plus 1.
    OrderFailed,
    Node,
    Zone,
    Mode,
    Status,
    Flags,
    Priority,
}

/// Returns the value of a [`Form::Limit`] that was recorded.
pub(crate) fn power(field: &'static str, logarithm: u64) -> Result<u64, Fault> {
    at_most(field, logarithm, 63).map(|()| 1 << logarithm)
}

/// Names of runs that do not wait and that do.
pub(crate) const MODES: [&str; 2] = ["async", "sync"];

/// Prefix of the names of compaction tracepoints.
const PREFIX: &str = "mm_compaction_";

/// Returns whether a tracepoint of this name could be in the table.
pub(crate) fn may_be_point(name: &[u8]) -> bool {
    [PREFIX, VMSCAN].iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

const SCANNERS: [(&str, Form); 5] = [
    ("zone_start=", Form::Frame),
    (" migrate_pfn=", Form::Frame),
    (" free_pfn=", Form::Frame),
    (" zone_end=", Form::Frame),
    (", mode=", Form::Mode),
];
const END: [(&str, Form); 6] =
    [SCANNERS[0], SCANNERS[1], SCANNERS[2], SCANNERS[3], SCANNERS[4], (" status=", Form::Status)];
const ISOLATED: [(&str, Form); 4] = [
    ("range=(", Form::Frame),
    (" ~ ", Form::Frame),
    (") nr_scanned=", Form::Count),
    (" nr_taken=", Form::Count),
];
const ASKED: [(&str, Form); 4] = [
    ("node=", Form::Node),
    (" zone=", Form::Zone),
    (" order=", Form::Order),
    (" ret=", Form::Status),
];
const DEFERRAL: [(&str, Form); 6] = [
    ASKED[0],
    ASKED[1],
    ASKED[2],
    (" order_failed=", Form::OrderFailed),
    (" consider=", Form::Count),
    (" limit=", Form::Limit),
];
const WAKE: [(&str, Form); 3] =
    [("nid=", Form::Node), (" order=", Form::Order), (" classzone_idx=", Form::Zone)];

/// All tracepoints. A `.pgy` file stores the indices, so new ones must be appended.
pub(crate) const POINTS: [Point; 20] = [
    Point {
        name: "mm_compaction_try_to_compact_pages",
        fields: &[
            ("order=", Form::Order),
            (" gfp_mask=", Form::Flags),
            (" priority=", Form::Priority),
        ],
    },
    Point { name: "mm_compaction_begin", fields: &SCANNERS },
    Point { name: "mm_compaction_end", fields: &END },
    Point { name: "mm_compaction_isolate_migratepages", fields: &ISOLATED },
    Point { name: "mm_compaction_isolate_freepages", fields: &ISOLATED },
    Point { name: "mm_compaction_fast_isolate_freepages", fields: &ISOLATED },
    Point {
        name: "mm_compaction_migratepages",
        fields: &[("nr_migrated=", Form::Count), (" nr_failed=", Form::Count)],
    },
    Point { name: "mm_compaction_finished", fields: &ASKED },
    Point { name: "mm_compaction_suitable", fields: &ASKED },
    Point { name: "mm_compaction_deferred", fields: &DEFERRAL },
    Point { name: "mm_compaction_defer_compaction", fields: &DEFERRAL },
    Point { name: "mm_compaction_defer_reset", fields: &DEFERRAL },
    Point { name: "mm_compaction_kcompactd_sleep", fields: &[("nid=", Form::Node)] },
    Point { name: "mm_compaction_wakeup_kcompactd", fields: &WAKE },
    Point { name: "mm_compaction_kcompactd_wake", fields: &WAKE },
    Point { name: "mm_vmscan_kswapd_sleep", fields: &[("nid=", Form::Node)] },
    Point { name: "mm_vmscan_kswapd_wake", fields: &[WAKE[0], WAKE[1]] },
    Point {
        name: "mm_vmscan_wakeup_kswapd",
        fields: &[WAKE[0], WAKE[1], (" gfp_flags=", Form::Flags)],
    },
    Point {
        name: "mm_vmscan_direct_reclaim_begin",
        fields: &[("order=", Form::Order), (" gfp_flags=", Form::Flags)],
    },
    Point { name: "mm_vmscan_direct_reclaim_end", fields: &[("nr_reclaimed=", Form::Count)] },
];

/// Extracts a field's name from the text before its value.
pub(crate) fn key(before: &'static str) -> &'static str {
    match before.trim_matches(|c: char| !c.is_ascii_alphanumeric()) {
        // The second field of the range.
        "" => "range",
        key => key,
    }
}

impl Compaction {
    /// Returns the tracepoint's index in [`POINTS`] and its values.
    pub(crate) fn values(&self) -> (usize, Values) {
        match *self {
            Compaction::TryToCompactPages { order, gfp, priority } => {
                (0, [order_value(order), gfp.into(), priority.into(), 0, 0, 0])
            }
            Compaction::Begin(s) => (1, scanners(s, 0)),
            Compaction::End { scanners: s, status } => (2, scanners(s, status)),
            Compaction::IsolateMigratepages(i) => (3, isolated(i)),
            Compaction::IsolateFreepages(i) => (4, isolated(i)),
            Compaction::FastIsolateFreepages(i) => (5, isolated(i)),
            Compaction::Migratepages { migrated, failed } => (6, [migrated, failed, 0, 0, 0, 0]),
            Compaction::Finished { wanted, status } => (7, asked(wanted, [status.into(), 0, 0])),
            Compaction::Suitable { wanted, status } => (8, asked(wanted, [status.into(), 0, 0])),
            Compaction::Deferred(d) => (9, deferral(d)),
            Compaction::DeferCompaction(d) => (10, deferral(d)),
            Compaction::DeferReset(d) => (11, deferral(d)),
            Compaction::KcompactdSleep { node } => (12, [node.into(), 0, 0, 0, 0, 0]),
            Compaction::WakeupKcompactd(w) => (13, wake(w)),
            Compaction::KcompactdWake(w) => (14, wake(w)),
            Compaction::KswapdSleep { node } => (15, [node.into(), 0, 0, 0, 0, 0]),
            Compaction::KswapdWake { node, order } => {
                (16, [node.into(), order_value(order), 0, 0, 0, 0])
            }
            Compaction::WakeupKswapd { node, order, gfp } => {
                (17, [node.into(), order_value(order), gfp.into(), 0, 0, 0])
            }
            Compaction::DirectReclaimBegin { order, gfp } => {
                (18, [order_value(order), gfp.into(), 0, 0, 0, 0])
            }
            Compaction::DirectReclaimEnd { reclaimed } => (19, [reclaimed, 0, 0, 0, 0, 0]),
        }
    }

    /// Builds the tracepoint of this index from its values.
    ///
    /// # Errors
    /// Fails if a value exceeds its limit.
    pub(crate) fn from_values(point: usize, v: Values) -> Result<Option<Self>, Fault> {
        check(point, &v)?;
        // The limits make the casts below exact.
        let order = |v: u64| v.checked_sub(1).map(|order| order as u8);
        let scanners = Scanners {
            zone_start: v[0],
            migrate: v[1],
            free: v[2],
            zone_end: v[3],
            sync: v[4] == 1,
        };
        let isolated = Isolated { start: v[0], end: v[1], scanned: v[2], taken: v[3] };
        let wanted = Wanted { node: v[0] as u16, zone: v[1] as u8, order: order(v[2]) };
        let deferral = Deferral { wanted, order_failed: v[3] as u8, considered: v[4], limit: v[5] };
        let wake = Wake { node: v[0] as u16, order: order(v[1]), highest: v[2] as u8 };
        Ok(Some(match point {
            0 => Compaction::TryToCompactPages {
                order: order(v[0]),
                gfp: v[1] as u32,
                priority: v[2] as u8,
            },
            1 => Compaction::Begin(scanners),
            2 => Compaction::End { scanners, status: v[5] as u8 },
            3 => Compaction::IsolateMigratepages(isolated),
            4 => Compaction::IsolateFreepages(isolated),
            5 => Compaction::FastIsolateFreepages(isolated),
            6 => Compaction::Migratepages { migrated: v[0], failed: v[1] },
            7 => Compaction::Finished { wanted, status: v[3] as u8 },
            8 => Compaction::Suitable { wanted, status: v[3] as u8 },
            9 => Compaction::Deferred(deferral),
            10 => Compaction::DeferCompaction(deferral),
            11 => Compaction::DeferReset(deferral),
            12 => Compaction::KcompactdSleep { node: v[0] as u16 },
            13 => Compaction::WakeupKcompactd(wake),
            14 => Compaction::KcompactdWake(wake),
            15 => Compaction::KswapdSleep { node: v[0] as u16 },
            16 => Compaction::KswapdWake { node: v[0] as u16, order: order(v[1]) },
            17 => {
                Compaction::WakeupKswapd { node: v[0] as u16, order: order(v[1]), gfp: v[2] as u32 }
            }
            18 => Compaction::DirectReclaimBegin { order: order(v[0]), gfp: v[1] as u32 },
            19 => Compaction::DirectReclaimEnd { reclaimed: v[0] },
            _ => return Ok(None),
        }))
    }
}

/// Checks an event against the limits of its fields.
///
/// # Errors
/// Fails with [`Fault::OutOfRange`], which contains the name of the field and its limit.
pub fn check_compaction(event: &Compaction) -> Result<(), Fault> {
    let (point, values) = event.values();
    check(point, &values)
}

fn check(point: usize, values: &Values) -> Result<(), Fault> {
    let fields = POINTS.get(point).map_or(&[][..], |point| point.fields);
    fields.iter().zip(values).try_for_each(|(&(before, form), &value)| {
        let limit = match form {
            Form::Frame => MAX_PFN,
            Form::Count | Form::Limit => u64::MAX,
            Form::Order if value == 0 => return Ok(()),
            Form::Order => return at_most(key(before), value - 1, MAX_ORDER.into()),
            Form::OrderFailed => u64::from(MAX_ORDER) + 1,
            Form::Node => u16::MAX.into(),
            Form::Zone => ZONES.len() as u64 - 1,
            Form::Mode => MODES.len() as u64 - 1,
            Form::Status => STATUSES.len() as u64 - 1,
            Form::Flags => u32::MAX.into(),
            Form::Priority => 2,
        };
        at_most(key(before), value, limit)
    })
}

fn order_value(order: Option<u8>) -> u64 {
    order.map_or(0, |order| u64::from(order) + 1)
}

fn scanners(s: Scanners, status: u8) -> Values {
    [s.zone_start, s.migrate, s.free, s.zone_end, s.sync.into(), status.into()]
}

fn isolated(i: Isolated) -> Values {
    [i.start, i.end, i.scanned, i.taken, 0, 0]
}

fn asked(w: Wanted, [a, b, c]: [u64; 3]) -> Values {
    [w.node.into(), w.zone.into(), order_value(w.order), a, b, c]
}

fn deferral(d: Deferral) -> Values {
    asked(d.wanted, [d.order_failed.into(), d.considered, d.limit])
}

fn wake(w: Wake) -> Values {
    [w.node.into(), order_value(w.order), w.highest.into(), 0, 0, 0]
}
