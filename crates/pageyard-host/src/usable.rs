//! How much of a yard ordinary requests can use, and what takes the rest.

use std::fmt;

use pageyard::policy::Policy;

use crate::limits::bytes;
use crate::lock::HostLock;
use crate::raw_yard::RawYard;

/// How much of a yard ordinary requests for single pages can use at once, and what takes the rest,
/// in bytes ([`HostYard::usable`](crate::HostYard::usable)). The parts from `absent` to `bytes` add up
/// to `size`.
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
    /// idle CPUs are drained within a second ([`HostYard::drain`](crate::HostYard::drain) drains all).
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

impl Usable {
    /// Calculates the parts of a yard whose threads keep `in_thread_caches` pages.
    pub(crate) fn of<P: Policy>(raw: &RawYard<P, HostLock>, in_thread_caches: u64) -> Usable {
        let core = raw.core();
        let size = raw.region().pages();
        let (mut managed, mut present, mut min, mut highatomic, mut cached) = (0, 0, 0, 0, 0);
        let mut out_of_use = 0;
        for zone in core.zone_ids() {
            let Some(info) = core.zone_info(zone) else { continue };
            managed += info.managed;
            present += info.present;
            min += info.watermarks[0] + info.boost;
            highatomic += info.reserved_highatomic;
            cached += info.cached;
            out_of_use += core.out_of_use(zone).map_or(0, |out| out.pages());
        }
        let hard = raw.service().balloon.limits().hard.unwrap_or(u64::MAX);
        let mut left = managed.min(size);
        let absent = size - left;
        // Each part takes no more than the parts before it leave.
        let mut take = |part: u64| {
            let part = part.min(left);
            left -= part;
            bytes(part)
        };
        let out_of_use = take(out_of_use);
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
            cached: bytes(cached + in_thread_caches),
            maps: raw.map_bytes() as u64,
        }
    }
}
