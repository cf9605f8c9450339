//! The label of a pageblock: its type, its place in the index, and whether an operation has it.

use crate::base::shared::AtomicU32;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::MigrateType;

/// Buckets of the index: bucket k holds pageblocks with 64(k − 1) < free frames ≤ 64k.
pub(crate) const BUCKETS: u32 = 8;

/// Returns the bucket of a pageblock with this many free frames.
pub(super) const fn bucket_of(free: u32) -> u32 {
    free.div_ceil(64)
}

/// A pageblock's type and place in the index. The embedder provides the memory.
///
/// ```
/// use pageyard::packed::Label;
///
/// static PART: [Label; 128] = [const { Label::new() }; 128];
/// assert_eq!(PART.len(), 128);
/// ```
#[derive(Debug)]
pub struct Label(AtomicU32);

impl Label {
    /// Returns the label of a movable pageblock without free frames.
    pub const fn new() -> Self {
        Label(AtomicU32::new(Meta::of(MigrateType::Movable, 0).0))
    }

    pub(super) fn word(&self) -> &AtomicU32 {
        &self.0
    }

    pub(crate) fn clear(&self) {
        self.0.store(Meta::of(MigrateType::Movable, 0).0, Relaxed);
    }
}

impl Default for Label {
    fn default() -> Self {
        Label::new()
    }
}

/// The value of a [`Label`]: bits 0 to 2 the type, 8 to 11 the bucket (0: in no index), then
/// [`ACTIVE`](Meta::ACTIVE), [`ISOLATED`](Meta::ISOLATED), the pages that are
/// [`WITHHELD`](Meta::WITHHELD), [`COMPACTED`](Meta::COMPACTED) and [`HELD`](Meta::HELD).
///
/// Who has a pageblock, and which functions change that:
///
/// | from | to | functions of `Blocks` |
/// |---|---|---|
/// | in the index, or without free frames | active | `adopt`; `activate` for one operation, or a block of this size |
/// | whole | active | `claim` and `claim_at` take its bit from the set, then `open` makes bits of its frames, or `activate_as_whole` a block |
/// | active | in the index, whole, or without free frames | `release`; `deactivate` without a look at the frames |
/// | in the index | another bucket | `reindex` |
/// | any but active | isolated | `isolate`, for a whole one by its bit in the set |
/// | isolated | active, then as `release` does | `unisolate` |
/// | isolated, allocated as a whole | isolated | `deactivate_isolated` |
/// | any | set apart, which is active for good | `set_apart.rs` |
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u32);

impl Meta {
    /// The pageblock belongs to one operation or CPU: a CPU refills from it, or it is whole (free or
    /// allocated as such). It is in no index.
    pub(super) const ACTIVE: u32 = 1 << 12;
    /// Nothing is allocated from the pageblock.
    pub(super) const ISOLATED: u32 = 1 << 16;
    /// Free pages that the zone does not count while the pageblock is isolated.
    pub(super) const WITHHELD: u32 = 0x3ff << 17;
    /// Compaction isolated the pageblock.
    pub(super) const COMPACTED: u32 = 1 << 28;
    /// While the region is restored: a CPU or a caller has the pageblock as a whole.
    pub(super) const HELD: u32 = 1 << 29;
    const BUCKET: u32 = 0xf00;
    const TYPE: u32 = 7;

    pub(super) const fn of(t: MigrateType, bucket: u32) -> Meta {
        Meta(t as u32 | bucket << 8)
    }

    pub(super) fn migrate_type(self) -> MigrateType {
        MigrateType::from_bits(self.0 & Meta::TYPE)
    }

    pub(super) fn bucket(self) -> u32 {
        (self.0 & Meta::BUCKET) >> 8
    }

    pub(super) fn is_taken(self) -> bool {
        self.0 & (Meta::ACTIVE | Meta::ISOLATED) != 0
    }

    /// The label of a pageblock that is set apart with type `t`.
    pub(super) const fn set_apart(t: MigrateType) -> Meta {
        Meta(Meta::of(t, 0).0 | Meta::ACTIVE)
    }

    /// Returns whether the pageblock is set apart for some requests, or was until it was isolated.
    pub(super) fn is_set_apart(self) -> bool {
        self.migrate_type().is_set_apart()
    }

    /// Returns whether a block at a given place may be taken from the pageblock for a request of type `t`.
    pub(super) fn is_open_to(self, t: MigrateType) -> bool {
        self.is_open() || t == MigrateType::Movable && self == Meta::set_apart(MigrateType::Cma)
    }

    /// Returns whether every request of a suitable type may take frames from the pageblock.
    pub(super) fn is_open(self) -> bool {
        !self.is_isolated() && !self.is_set_apart()
    }

    pub(super) fn is_isolated(self) -> bool {
        self.0 & Meta::ISOLATED != 0
    }

    pub(super) fn with_bucket(self, bucket: u32) -> Meta {
        Meta(self.0 & !Meta::BUCKET | bucket << 8)
    }
}
