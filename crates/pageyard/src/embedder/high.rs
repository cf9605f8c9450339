//! Why `high` of the per-CPU lists changes (spec §5.4, §5.8, §5.10, §5.14).

/// Why `high` changed.
///
/// ```
/// use pageyard::HighReason;
///
/// let names: Vec<_> = HighReason::ALL.iter().map(|r| r.name()).collect();
/// assert_eq!(names[..3], ["limits", "refill", "free"]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HighReason {
    /// `high` follows its limits: a knob, the watermarks or the boost moved them, or the lists were
    /// disabled or enabled (§5.4, §5.5).
    Limits = 0,
    /// A refill makes room for the pages it adds (§5.8).
    Refill = 1,
    /// More was freed in a row than fits: makes room for the next time (§5.10).
    Free = 2,
    /// A run of high-order frees (§5.10).
    FreeHigh = 3,
    /// Background reclaim is active (§5.10).
    Reclaim = 4,
    /// The zone is below its high watermark (§5.10).
    BelowHigh = 5,
    /// A tick of the statistics worker (§5.14).
    Decay = 6,
}

/// Number of reasons.
pub(crate) const HIGH_REASONS: usize = 7;

impl HighReason {
    /// All reasons.
    pub const ALL: [HighReason; HIGH_REASONS] = [
        HighReason::Limits,
        HighReason::Refill,
        HighReason::Free,
        HighReason::FreeHigh,
        HighReason::Reclaim,
        HighReason::BelowHigh,
        HighReason::Decay,
    ];

    /// Returns the name of the reason.
    pub const fn name(self) -> &'static str {
        match self {
            HighReason::Limits => "limits",
            HighReason::Refill => "refill",
            HighReason::Free => "free",
            HighReason::FreeHigh => "free_high",
            HighReason::Reclaim => "reclaim",
            HighReason::BelowHigh => "below_high",
            HighReason::Decay => "decay",
        }
    }
}

/// One change of `high`, with the state around it. Counts are base pages.
///
/// ```
/// use pageyard::{CpuId, Event, HighChange, Observer};
///
/// struct Log;
/// impl Observer for Log {
///     const SEES_TUNING: bool = true;
///     fn event(&self, cpu: CpuId, event: Event) {
///         if let Event::High { change: HighChange { from, to, reason, .. }, .. } = event {
///             // Log that the CPU's `high` went from `from` to `to`.
///         }
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HighChange {
    /// The old value.
    pub from: i32,
    /// The new value.
    pub to: i32,
    /// Pages on the lists at this moment. A refill's pages are not included yet.
    pub count: i32,
    /// Refills of this CPU's lists of this zone so far.
    pub refills: u64,
    /// Bulk frees by this CPU in this zone so far.
    pub drains: u64,
    /// The reason for the change.
    pub reason: HighReason,
}
