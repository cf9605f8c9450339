//! How much of a yard ordinary requests can use, and what takes the rest.

use std::fmt;

use pageyard::policy::Policy;

use crate::limits::bytes;
use crate::yard::HostYard;

/// How much of a yard ordinary requests for single pages can use at once, and what takes the rest,
/// in bytes ([`HostYard::usable`]). The parts from `absent` to `bytes` add up to `size`.
///
/// ```
/// use pageyard_host::Builder;
///
/// let yard = Builder::new(64 << 20).hard_limit(48 << 20).build()?;
/// let usable = yard.usable();
/// assert_eq!(usable.above_limit, 16 << 20);
/// // The MIN watermarks are a share of the yard's whole size.
/// assert_eq!(usable.bytes, (48 << 20) - usable.min - usable.highatomic);
/// println!("{usable}");
/// # Ok::<(), pageyard_host::BuildError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usable {
    /// All memory of the yard.
    pub size: u64,
    /// Offline, or not initialised yet.
    pub absent: u64,
    /// Faulty, bad, or guard pages.
    pub out_of_use: u64,
    /// Kept out of circulation by the hard limit once it has all that it is to keep.
    pub above_limit: u64,
    /// Below the MIN watermarks with their boost, which only critical requests
    /// ([`HIGH`](pageyard::Gfp::HIGH), [`MEMALLOC`](pageyard::Gfp::MEMALLOC)) may use. They are
    /// calculated from the whole size of the yard, not from the limit (knob `min_free_kbytes`).
    pub min: u64,
    /// Reserved for atomic requests of larger blocks at the moment.
    pub highatomic: u64,
    /// What is left: the most that ordinary requests can have at once.
    pub bytes: u64,
    /// On per-CPU lists and in thread caches at the moment. No part of the sum: thread caches are
    /// drained before a request fails, and requests on a CPU use its lists. Pages on the lists of
    /// idle CPUs are drained within a second ([`HostYard::drain`] drains all).
    pub cached: u64,
    /// Descriptors and tables. No part of the sum: they are not in the yard's memory.
    pub maps: u64,
}

impl fmt::Display for Usable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes| bytes >> 10;
        write!(f, "{} KiB of {} KiB usable by ordinary requests", kib(self.bytes), kib(self.size))?;
        for (bytes, what) in [
            (self.above_limit, "above the hard limit"),
            (self.min, "below the MIN watermarks"),
            (self.highatomic, "reserved for atomic requests"),
            (self.absent, "offline"),
            (self.out_of_use, "out of use"),
        ] {
            if bytes > 0 {
                write!(f, ", {} KiB {what}", kib(bytes))?;
            }
        }
        Ok(())
    }
}

impl<P: Policy> HostYard<P> {
    /// Returns how much ordinary requests for single pages can have at once, and what takes the
    /// rest. In a child after a fork, zeros.
    pub fn usable(&self) -> Usable {
        if !self.is_here() {
            return Usable::default();
        }
        let core = self.raw().core();
        let size = self.raw().region().pages();
        let (mut managed, mut present, mut min, mut highatomic, mut cached) = (0, 0, 0, 0, 0);
        for zone in core.zone_ids().filter_map(|zone| core.zone_info(zone)) {
            managed += zone.managed;
            present += zone.present;
            min += zone.watermarks[0] + zone.boost;
            highatomic += zone.reserved_highatomic;
            cached += zone.cached;
        }
        let hard = self.limits().hard.unwrap_or(u64::MAX);
        let mut left = managed.min(size);
        let absent = size - left;
        // Each part takes no more than the parts before it leave.
        let mut take = |part: u64| {
            let part = part.min(left);
            left -= part;
            bytes(part)
        };
        let out_of_use = take(self.out_of_use());
        let above_limit = take(present.saturating_sub(hard));
        let (min, highatomic) = (take(min), take(highatomic));
        Usable {
            size: bytes(size),
            absent: bytes(absent),
            out_of_use,
            above_limit,
            min,
            highatomic,
            bytes: bytes(left),
            cached: bytes(cached + self.thread_cache_stats().pages),
            maps: self.raw().map_bytes() as u64,
        }
    }

    /// Returns the most bytes that ordinary requests for single pages can have at once, to within a
    /// refill of a CPU's lists ([`Usable::bytes`]).
    pub fn usable_bytes(&self) -> u64 {
        self.usable().bytes
    }
}
