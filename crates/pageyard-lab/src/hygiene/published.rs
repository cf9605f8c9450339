//! The series published with the hygiene patches of 2024 (spec A.3): the counters of each of 50
//! kernel builds, on the author's machine.

/// One round as published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Fallbacks before the patches, "steals" in the mail.
    pub vanilla_steals: u64,
    /// Fallbacks with the patches.
    pub patched_steals: u64,
    /// Type mismatches before the patches.
    pub vanilla_mismatches: u64,
    /// Type mismatches with the patches.
    pub patched_mismatches: u64,
}

/// The published rounds.
pub const PUBLISHED: [Published; 50] = [
    row(1504, 227, 182602, 268),
    row(1557, 6, 135794, 20),
    row(1391, 13, 88619, 19),
    row(1080, 26, 95973, 0),
    row(1057, 40, 129590, 0),
    row(1156, 6, 129298, 0),
    row(805, 46, 147134, 0),
    row(736, 20, 230854, 0),
    row(1747, 2, 239709, 0),
    row(1699, 34, 137670, 0),
    row(1269, 13, 132430, 0),
    row(1858, 12, 65712, 0),
    row(907, 4, 57901, 0),
    row(727, 2, 67506, 0),
    row(563, 2, 63565, 4),
    row(3094, 2, 34806, 0),
    row(10211, 3, 42962, 0),
    row(2621, 1, 32406, 0),
    row(5508, 2, 38668, 0),
    row(1060, 2, 61356, 0),
    row(538, 3, 57800, 0),
    row(5773, 2, 41435, 0),
    row(2199, 0, 83456, 0),
    row(3781, 2, 65048, 0),
    row(1387, 1, 28955, 0),
    row(4977, 0, 47597, 0),
    row(2865, 1, 75117, 0),
    row(1814, 1, 55564, 0),
    row(3739, 1, 38280, 0),
    row(6857, 0, 52404, 0),
    row(382, 0, 26264, 0),
    row(407, 1, 37538, 0),
    row(3784, 0, 19671, 0),
    row(297, 0, 30936, 0),
    row(298, 0, 26933, 0),
    row(6636, 0, 16962, 0),
    row(4188, 0, 44554, 0),
    row(242, 0, 46352, 0),
    row(9960, 0, 24995, 0),
    row(5816, 0, 35152, 0),
    row(354, 0, 12823, 0),
    row(287, 0, 21583, 0),
    row(261, 0, 18129, 0),
    row(140, 1, 31693, 0),
    row(2065, 0, 28745, 0),
    row(312, 0, 33308, 0),
    row(331, 0, 31114, 0),
    row(164, 0, 35034, 0),
    row(465, 1, 12111, 0),
    row(219, 0, 24885, 0),
];

const fn row(v: u64, p: u64, vm: u64, pm: u64) -> Published {
    Published {
        vanilla_steals: v,
        patched_steals: p,
        vanilla_mismatches: vm,
        patched_mismatches: pm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the aggregates of spec A.3.
    #[test]
    fn the_series_has_its_published_aggregates() {
        let mean = |f: fn(&Published) -> u64| PUBLISHED.iter().map(f).sum::<u64>() as f64 / 50.0;
        assert!((mean(|p| p.vanilla_steals) - 2221.76).abs() < 0.01);
        assert!((mean(|p| p.patched_steals) - 9.54).abs() < 0.01);
        assert!((mean(|p| p.vanilla_mismatches) - 64379.86).abs() < 0.01);
        assert!(PUBLISHED[13..].iter().all(|p| p.patched_steals <= 3));
        assert_eq!(PUBLISHED[20..].iter().filter(|p| p.patched_steals == 0).count(), 20);
        let nonzero = PUBLISHED.iter().enumerate().filter(|(_, p)| p.patched_mismatches > 0);
        assert_eq!(nonzero.map(|(i, _)| i + 1).collect::<Vec<_>>(), [1, 2, 3, 15]);
    }
}
