//! The memory that CPUs share on the packed engine, and its locks (feature `lines`).

use crate::allocator::yard::Yard;
use crate::base::lines::{Part, Piece, Shared};
use crate::base::units::{CpuId, ZoneId};
use crate::embedder::config::Config;

impl<C: Config> Yard<'_, C> {
    /// Calls `each` with the memory of a yard on the packed engine that CPUs share, apart from the
    /// zones' counters of rare events. Nothing for a yard on the exact engine.
    pub fn for_each_shared(&self, mut each: impl FnMut(Shared)) {
        for zone in self.zone_ids() {
            let Some((z, region)) = self.zone(zone).and_then(|z| Some((z, z.region()?))) else {
                continue;
            };
            let mut each = |Piece { part, bytes, element, first }| {
                each(Shared { zone, part, bytes, element, first });
            };
            region.for_each_shared(&mut each);
            each(Piece::one(Part::FreeCounter, &*z.nr_free, 0));
        }
    }

    /// Takes the lock of a zone and releases it, so that a simulator can name it.
    pub fn pass_zone_lock(&self, zone: impl Into<ZoneId>) {
        if let Some(z) = self.zone(zone) {
            drop(z.lock.lock());
        }
    }

    /// Takes the lock of a CPU's part of a zone on the packed engine and releases it, so that a
    /// simulator can name it.
    pub fn pass_cpu_lock(&self, zone: impl Into<ZoneId>, cpu: CpuId) {
        if let Some(region) = self.zone(zone).and_then(|z| z.region())
            && let Some(part) = region.cpus.get(cpu.0 as usize)
        {
            drop(part.own.lock());
        }
    }
}
