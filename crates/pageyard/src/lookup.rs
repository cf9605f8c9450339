//! From a request's flags to its zone and type, by a table or, as the policy has it, by the ways that
//! came before it ([`FastPath`](crate::policy::FastPath), spec §2.3, §2.4, A.2).

use core::hint::black_box;

use crate::gfp::Gfp;
use crate::policy::Rules;
use crate::units::{MigrateType, ZoneKind};

/// Where a request goes: the highest zone it may use, and its type. One look-up in a table over
/// the bits that decide (§2.3, §2.4); `None` where they contradict each other.
#[inline]
pub(crate) const fn route(rules: &Rules, gfp: Gfp) -> Option<(ZoneKind, MigrateType)> {
    const TABLE: [Option<(ZoneKind, MigrateType)>; 32] = {
        let mut table = [None; 32];
        let mut bits = 0;
        while bits < 32 {
            let gfp = Gfp::from_bits_retain(bits as u32);
            if let (Some(zone), Some(t)) = (gfp.highest_zone(), gfp.migrate_type()) {
                table[bits] = Some((zone, t));
            }
            bits += 1;
        }
        table
    };
    if rules.fast_path.zone_table {
        return TABLE[(gfp.bits() & 31) as usize];
    }
    // The type was never found by branches.
    const TYPES: [Option<MigrateType>; 4] = [
        Some(MigrateType::Unmovable),
        Some(MigrateType::Movable),
        Some(MigrateType::Reclaimable),
        None,
    ];
    match (highest_zone(rules, gfp), TYPES[(gfp.bits() >> 3 & 3) as usize]) {
        (Some(zone), Some(t)) => Some((zone, t)),
        _ => None,
    }
}

/// The highest zone alone (§2.3).
#[inline]
pub(crate) const fn highest_zone(rules: &Rules, gfp: Gfp) -> Option<ZoneKind> {
    if rules.fast_path.zone_table {
        return gfp.highest_zone();
    }
    let zones = gfp.bits() & (Gfp::DMA.bits() | Gfp::HIGHMEM.bits() | Gfp::DMA32.bits());
    if zones & zones.wrapping_sub(1) != 0 {
        return None;
    }
    Some(by_branches(gfp))
}

/// The zone of flags that do not contradict each other.
#[inline]
const fn by_branches(gfp: Gfp) -> ZoneKind {
    if gfp.contains(Gfp::DMA) {
        return ZoneKind::Dma;
    }
    if gfp.contains(Gfp::DMA32) {
        return ZoneKind::Dma32;
    }
    if gfp.contains(Gfp::HIGHMEM.union(Gfp::MOVABLE)) {
        return ZoneKind::Movable;
    }
    ZoneKind::Normal
}

/// The highest zone where it is used once more, of flags that have been found to mean something.
#[inline(always)]
pub(crate) fn zone_again(rules: &Rules, gfp: Gfp, known: ZoneKind) -> ZoneKind {
    const TABLE: [ZoneKind; 16] = {
        let mut table = [ZoneKind::Normal; 16];
        let mut bits = 0;
        while bits < 16 {
            if let Some(zone) = Gfp::from_bits_retain(bits as u32).highest_zone() {
                table[bits] = zone;
            }
            bits += 1;
        }
        table
    };
    if rules.fast_path.flags_once {
        return known;
    }
    let gfp = black_box(gfp);
    if rules.fast_path.zone_table { TABLE[(gfp.bits() & 15) as usize] } else { by_branches(gfp) }
}

/// The type where it is used once more, of flags that have been found to mean something.
#[inline(always)]
pub(crate) fn type_again(rules: &Rules, gfp: Gfp, known: MigrateType) -> MigrateType {
    const TABLE: [MigrateType; 4] = [
        MigrateType::Unmovable,
        MigrateType::Movable,
        MigrateType::Reclaimable,
        MigrateType::Unmovable, // both bits: refused before
    ];
    if rules.fast_path.flags_once {
        return known;
    }
    TABLE[(black_box(gfp).bits() >> 3 & 3) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{FlagsAgain, Linux612, StaticPolicy, ZoneByBranches};

    #[test]
    fn all_ways_lead_to_the_same() {
        for bits in 0..64 {
            let gfp = Gfp::from_bits_retain(bits | Gfp::FS.bits());
            let route = super::route(&Linux612::RULES, gfp);
            assert_eq!(super::route(&<ZoneByBranches>::RULES, gfp), route, "{bits:#x}");
            assert_eq!(
                highest_zone(&<ZoneByBranches>::RULES, gfp),
                gfp.highest_zone(),
                "{bits:#x}"
            );
            let Some((zone, t)) = route else { continue };
            // What is known is not looked at.
            let wrong = (ZoneKind::Device, MigrateType::Isolate);
            type Both = ZoneByBranches<FlagsAgain>;
            assert_eq!(zone_again(&<FlagsAgain>::RULES, gfp, wrong.0), zone, "{bits:#x}");
            assert_eq!(zone_again(&Both::RULES, gfp, wrong.0), zone, "{bits:#x}");
            assert_eq!(type_again(&<FlagsAgain>::RULES, gfp, wrong.1), t, "{bits:#x}");
            assert_eq!(zone_again(&Linux612::RULES, gfp, wrong.0), wrong.0);
        }
    }
}
