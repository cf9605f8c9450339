//! One request that failed, was slow, or took a block of another type, and what blocked it.

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::replay) enum Happened {
    Failed(Lack),
    Slow(Slow),
    /// It took a block of another type, whose pageblock then became the request's type.
    Claim,
    /// It took a block of another type, whose pageblock kept its type.
    Steal,
}

/// Why the free pages of a zone did not serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::replay) enum Lack {
    /// A block of the order is free, but the watermark keeps it in reserve.
    Watermark,
    /// Enough pages are free, but no block of the order.
    Fragmented,
    /// Too few pages are free.
    Exhausted,
}

/// How a request was slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::replay) enum Slow {
    /// It reclaimed or compacted memory itself, by the trace's events.
    Effort,
    /// It was served from the pages below the MIN watermark.
    BelowMin,
    /// It waited for a later free, for lack of a block.
    Waited(Lack),
}

/// A request's own reclaim and compaction, by the trace's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::replay) struct Effort {
    pub(in crate::replay) reclaims: u32,
    pub(in crate::replay) reclaim_ns: u64,
    pub(in crate::replay) reclaimed: u64,
    pub(in crate::replay) compactions: u32,
}

/// One case.
#[derive(Clone, Debug)]
pub(in crate::replay) struct Case {
    pub(super) happened: Happened,
    pub(super) t_ns: u64,
    pub(super) cpu: u32,
    /// The trace's number of the task; `None` if no event shows the request.
    pub(super) task: Option<u32>,
    pub(super) gfp: Option<u32>,
    pub(super) order: u8,
    pub(super) wanted: u8,
    pub(super) zone: usize,
    /// The first frame of the block that the request got.
    pub(super) frame: Option<u32>,
    /// Order and type of the block that it took from another type.
    pub(super) found: Option<(u8, u8)>,
    /// How long it took: a wait in a replay, or since the request's own reclaim began.
    pub(super) took_ns: Option<u64>,
    pub(super) effort: Effort,
    /// Of a claim or a steal: the number of the zone's pageblocks of the request's own type, and
    /// the users of their pages.
    pub(super) own: Option<(u32, Place)>,
    /// Free pages of the zone, and its MIN watermark.
    pub(super) free: u64,
    pub(super) min: u64,
    /// The pageblock of `frame`, or the range of frames that was closest to serving the request.
    pub(super) place: Option<Place>,
}

/// A range of frames: its type over time and its users.
#[derive(Clone, Debug, Default)]
pub(in crate::replay) struct Place {
    pub(super) first: u32,
    pub(super) pages: u32,
    pub(super) types: Vec<TypeAt>,
    /// Earlier changes that are not in `types`.
    pub(super) more_types: u32,
    pub(super) free: u32,
    pub(super) listed: u32,
    pub(super) users: Vec<User>,
    /// Groups and pages of the users that are not in `users`.
    pub(super) more_users: (u32, u32),
}

/// A type that a pageblock got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replay) struct TypeAt {
    pub(super) t_ns: u64,
    pub(super) migratetype: u8,
    pub(super) how: How,
}

/// How a pageblock's type became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replay) enum How {
    /// It was so when recording began.
    Start,
    /// A request of this task claimed it.
    Claimed(Option<u32>),
    /// A later event shows it; no claim was recorded.
    Shown,
}

/// Pages in use with the same task's name, flags and kind of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::replay) struct User {
    /// The number of the task's name and the flags; `None` if no request is known.
    pub(super) request: Option<(u32, u32)>,
    /// Whether the pages left a list without an event.
    pub(super) silent: bool,
    pub(super) pages: u32,
    /// Number of processes, and one of them.
    pub(super) tasks: u32,
    pub(super) pid: u32,
    /// When the first and the last of the pages were allocated.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}
