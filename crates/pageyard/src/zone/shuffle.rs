//! Shuffled free lists (spec §1.8, §1.11) make the position of the next large block unpredictable.
//! Off unless the layout gives a seed.

use lock_api::RawMutex;

use crate::base::frame::Kind;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{MAX_ORDER, MigrateType};
use crate::embedder::config::Config;
use crate::zone::area::End;
use crate::zone::at::At;
use crate::zone::state::Zone;

/// Attempts to find a partner.
const TRIES: u32 = 10;
/// Blocks after which the zone lock is released for waiters.
const BLOCKS_PER_HOLD: u32 = 100;
const STEP: u32 = 1 << MAX_ORDER;

impl<R: RawMutex> Zone<'_, R> {
    /// Seeds this zone's random number generator.
    pub(crate) fn seed_shuffle(&self, seed: u64) {
        // Zones with the same seed must not produce the same numbers; 0 means off.
        let mixed = (seed ^ self.start.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.shuffle.store(mixed ^ mixed >> 29 | 1, Relaxed);
    }

    /// Returns the next random number (xorshift64*), or `None` if shuffling is off. Zone lock.
    fn random(&self) -> Option<u64> {
        let mut x = self.shuffle.load(Relaxed);
        if x == 0 {
            return None;
        }
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.shuffle.store(x, Relaxed);
        Some(x.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    /// Returns the end of the list where a block of the largest order is inserted (§1.8).
    pub(crate) fn random_end(&self) -> End {
        match self.random() {
            Some(x) if x >> 63 != 0 => End::Tail,
            _ => End::Head,
        }
    }

    /// Returns the type of the list that contains the frame if it is the head of a free block of
    /// the largest order.
    fn largest_at(&self, idx: u32) -> Option<MigrateType> {
        let state = self.map.frame(idx).state();
        state.is(Kind::Free, MAX_ORDER).then(|| state.migrate_type())
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Shuffles the free blocks of the largest order (§1.11). Swaps each with a random block of the
    /// zone on the same list, if one of ten attempts finds one.
    pub(crate) fn shuffle(&self) {
        let map = &self.zone.map;
        let places = map.len() / STEP;
        let mut zone = self.lock();
        let mut done = 0;
        for a in (0..places).map(|i| i * STEP) {
            let Some(t) = zone.zone.largest_at(a) else { continue };
            let partner = (0..TRIES).find_map(|_| {
                let b = (zone.zone.random()? % u64::from(places)) as u32 * STEP;
                (b != a && zone.zone.largest_at(b) == Some(t)).then_some(b)
            });
            if let Some(b) = partner {
                zone.zone.areas.list(MAX_ORDER, t).swap(map, a, b);
            }
            done += 1;
            if done % BLOCKS_PER_HOLD == 0 {
                drop(zone);
                zone = self.lock();
            }
        }
    }
}
