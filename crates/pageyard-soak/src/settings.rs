//! Values of every setting that can be changed while a yard is in use.

/// Names and values; the default comes first.
pub(crate) const SETTINGS: &[(&str, &[&str])] = &[
    ("min_free_kbytes", &["4096", "0", "512", "20000"]),
    ("watermark_scale_factor", &["10", "1", "300", "1000"]),
    ("watermark_boost_factor", &["15000", "0", "40000"]),
    ("lowmem_reserve_ratio", &["256 256 32 0 0", "0 0 0 0 0", "8 8 8 8 8"]),
    ("percpu_pagelist_high_fraction", &["0", "8", "64", "100000"]),
    ("numa_zonelist_order", &["Node"]),
    ("zone_reclaim_mode", &["0", "1", "7"]),
    ("min_unmapped_ratio", &["1", "0", "100"]),
    ("min_slab_ratio", &["5", "0", "100"]),
    ("compaction_proactiveness", &["20", "0", "100"]),
    ("extfrag_threshold", &["500", "0", "1000"]),
    ("compact_unevictable_allowed", &["1", "0"]),
    ("compact_memory", &["1"]),
    ("stat_interval", &["1", "10"]),
    ("numa_stat", &["1", "0"]),
    ("pcp_autotune", &["1", "0"]),
    ("memory_tiering", &["0", "1"]),
];

#[cfg(test)]
mod tests {
    use pageyard::{Access, KNOBS};

    use super::SETTINGS;

    #[test]
    fn every_setting_changes() {
        let moves = |a: Access| matches!(a, Access::RunTime | Access::WriteOnly);
        let all: Vec<&str> = KNOBS.iter().filter(|k| moves(k.access)).map(|k| k.name).collect();
        let ours: Vec<&str> = SETTINGS.iter().map(|&(name, _)| name).collect();
        assert_eq!(ours, all);
    }
}
