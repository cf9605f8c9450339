//! Why an allocator could not be created.

use core::fmt::{self, Write};

use crate::allocator::knob_error::KnobError;
#[cfg(feature = "alloc")]
use crate::base::heap::NoRoom;
use crate::base::node_mask::MAX_NODES;
use crate::base::put::put;
use crate::base::units::NodeId;
use crate::embedder::policy::{Engine, Policy};

/// Why an allocator could not be created. Nothing was written.
///
/// ```
/// use pageyard::{InitError, Knobs, Layout};
///
/// let nothing = Layout {
///     zones: &[], usable: &[], reserved: &[], cpus: &[], distances: &[], knobs: Knobs::DEFAULT,
/// };
/// let needs = nothing.needs::<spin::mutex::SpinMutex<()>>();
/// assert_eq!(needs.unwrap_err(), InitError::NoZones);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitError {
    /// The layout has no zone.
    NoZones,
    /// The layout has no CPU.
    NoCpus,
    /// The zone of this index ends before it starts, or is empty.
    EmptyZone(usize),
    /// The zone of this index has more than 2^32 - 4096 frames (2^31 on the packed engine), or frame
    /// numbers of 2^52 or more.
    ZoneTooLarge(usize),
    /// Two zones, by number, overlap.
    ZonesOverlap(usize, usize),
    /// Two zones, by number, have the same kind and node.
    SameKind(usize, usize),
    /// A node's number is not below [`MAX_NODES`].
    TooManyNodes(NodeId),
    /// The number of distances is not the square of a number of nodes that covers every node named by a
    /// zone or a CPU.
    DistanceCount(usize),
    /// The distance from a node to itself is not 10, or the distance to another node is not above
    /// 10.
    BadDistance(NodeId, NodeId),
    /// The usable range of this index is empty or ends before it starts.
    EmptyRange(usize),
    /// Two usable ranges, by number, overlap.
    RangesOverlap(usize, usize),
    /// The usable range of this index is not entirely inside zones.
    OutsideZones(usize),
    /// The reserved range of this index ends before it starts.
    BadReserved(usize),
    /// The maps would exceed the largest object size of this target.
    MapsTooLarge,
    /// A setting is out of its range.
    Knob(KnobError),
    /// A rule of the policy is larger than `most`.
    Rule {
        /// The rule's name.
        name: &'static str,
        /// Its value.
        value: u8,
        /// The largest valid value.
        most: u8,
    },
    /// The allocator has memory already: another memory map's free memory may be its own by now.
    HasMemory,
    /// Another allocator on the packed engine uses the storage, and one of its CPUs is in a request.
    InUse,
    /// The policy's engine is the packed one, which this program was built without (feature
    /// `packed`).
    NoPacked,
    /// The packed engine does not follow this rule of the policy.
    NotOnPacked {
        /// The rule's name.
        name: &'static str,
    },
    /// A slice of the storage is shorter than [`Needs`](crate::Needs) requires, or a region for all
    /// maps is smaller than [`Layout::metadata`](crate::Layout::metadata) requires.
    TooSmall {
        /// Which slice, or `bytes for its maps` for a region.
        what: &'static str,
        /// Entries or bytes needed.
        needed: usize,
        /// Entries or bytes given.
        given: usize,
    },
    /// The heap has no room for a map that the core allocates (feature `alloc`).
    NoMemory {
        /// Which map.
        what: &'static str,
        /// Size of the map in bytes.
        bytes: usize,
    },
}

#[cfg(feature = "alloc")]
impl From<NoRoom> for InitError {
    fn from(NoRoom { what, bytes }: NoRoom) -> Self {
        InitError::NoMemory { what, bytes }
    }
}

impl InitError {
    /// Checks the rules of the embedder's policy.
    pub(crate) fn check<P: Policy>(policy: &P) -> Result<(), InitError> {
        let rules = policy.rules();
        if let Some((name, value, most)) = rules.out_of_range() {
            return Err(InitError::Rule { name, value, most });
        }
        if !P::PROPOSALS
            && let Some(name) = rules.proposal()
        {
            return Err(InitError::Rule { name, value: 1, most: 0 });
        }
        if matches!(rules.engine, Engine::Packed) && cfg!(not(feature = "packed")) {
            return Err(InitError::NoPacked);
        }
        match rules.not_on_packed() {
            Some(name) => Err(InitError::NotOnPacked { name }),
            None => Ok(()),
        }
    }

    /// Writes the same text as [`Display`](fmt::Display), with less stack than `core::fmt` needs.
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_to(&self, out: &mut impl Write) -> fmt::Result {
        match *self {
            InitError::NoZones => put!(out, "the layout has no zone"),
            InitError::NoCpus => put!(out, "the layout has no CPU"),
            InitError::EmptyZone(i) => put!(out, "zone ", i, " has no frames"),
            InitError::ZoneTooLarge(i) => {
                put!(out, "zone ", i, " is too large; expected at most 2^32 - 4096 frames")?;
                put!(out, " (2^31 on the packed engine), below frame 2^52")
            }
            InitError::ZonesOverlap(i, j) => put!(out, "zones ", i, " and ", j, " overlap"),
            InitError::SameKind(i, j) => {
                put!(out, "zones ", i, " and ", j, " are of the same kind and node")
            }
            InitError::TooManyNodes(n) => {
                put!(out, "node ", n.0, "; expected a node from 0 to ", MAX_NODES - 1)
            }
            InitError::DistanceCount(n) => {
                put!(out, n, " distances; expected one for each pair of nodes, or none")
            }
            InitError::BadDistance(a, b) => {
                put!(out, "the distance from node ", a.0, " to node ", b.0, " must be ")?;
                put!(out, if a == b { "10" } else { "above 10" })
            }
            InitError::EmptyRange(i) => put!(out, "usable range ", i, " has no frames"),
            InitError::RangesOverlap(i, j) => {
                put!(out, "usable ranges ", i, " and ", j, " overlap")
            }
            InitError::OutsideZones(i) => {
                put!(out, "usable range ", i, " reaches outside the zones")
            }
            InitError::BadReserved(i) => {
                put!(out, "reserved range ", i, " ends before it starts")
            }
            InitError::MapsTooLarge => {
                put!(out, "the layout's maps exceed this target's address space")
            }
            InitError::Knob(e) => e.write_to(out),
            InitError::Rule { name, value, most } => {
                put!(out, "the policy's ", name, " is ", value, "; at most ", most)
            }
            InitError::HasMemory => put!(out, "the allocator has memory already"),
            InitError::InUse => put!(out, "another allocator uses the storage"),
            InitError::NoPacked => {
                put!(out, "the policy's engine is the packed one; enable the feature `packed`")
            }
            InitError::NotOnPacked { name } => {
                put!(out, "the packed engine does not follow the policy's ", name)?;
                put!(out, "; leave it as in Linux612")
            }
            InitError::TooSmall { what, needed, given } => {
                put!(out, "room for ", given, ' ', what, ", but the layout requires ", needed)
            }
            InitError::NoMemory { what, bytes } => {
                put!(out, what, ": the heap has no room for ", bytes, " bytes")
            }
        }
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_to(f)
    }
}

impl core::error::Error for InitError {}
