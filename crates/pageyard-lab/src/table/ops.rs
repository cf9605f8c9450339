//! A machine's counters during a run, as the rows of mmtests' Ops table (docs/tables.md, mmtests'
//! figures).

use std::collections::BTreeMap;

use super::error::{TableError, wrong};
use crate::result::{Better, Metric};

/// Two copies of `/proc/vmstat`, the kernel's or a yard's own.
struct Counters {
    before: BTreeMap<String, u64>,
    after: BTreeMap<String, u64>,
}

/// Returns the Ops rows of a run of `seconds` seconds, from `/proc/vmstat` before and after:
/// metrics named `Ops …` with one sample each, in mmtests' order. Rows whose counters the machine
/// lacks are left out. So are mmtests' "Fragmentation stalls", for which vmstat has no counter.
///
/// # Errors
/// Fails if a line is not a name and a number, if a counter decreased, or if `seconds` is not
/// positive.
pub fn ops(before: &str, after: &str, seconds: f64) -> Result<Vec<Metric>, TableError> {
    if !(seconds.is_finite() && seconds > 0.0) {
        let what = format!("run of {seconds} seconds");
        return wrong("vmstat", what, "pass the duration of the run in seconds");
    }
    let c =
        Counters { before: read("vmstat before", before)?, after: read("vmstat after", after)? };
    for (name, &after) in &c.after {
        let before = c.before.get(name).copied().unwrap_or(0);
        // Names that begin with nr_ are levels, which may fall.
        if after < before && !name.starts_with("nr_") {
            let what = format!("{name} fell from {before} to {after}");
            return wrong("vmstat after", what, "use two copies of the same boot");
        }
    }
    Ok(c.rows(seconds))
}

fn read(place: &str, text: &str) -> Result<BTreeMap<String, u64>, TableError> {
    let mut counters = BTreeMap::new();
    for (i, line) in text.lines().enumerate() {
        let value = line.split_once(' ').and_then(|(k, v)| Some((k, v.trim().parse().ok()?)));
        let Some((name, value)) = value else {
            let what = format!("\"{line}\" is not a name and a number");
            return wrong(format!("{place}: line {}", i + 1), what, "use a copy of /proc/vmstat");
        };
        counters.insert(name.to_owned(), value);
    }
    Ok(counters)
}

impl Counters {
    /// Returns the difference between the two copies; `None` if the counter does not exist.
    fn get(&self, name: &str) -> Option<f64> {
        let after = *self.after.get(name)?;
        let before = self.before.get(name).copied().unwrap_or(0);
        Some(after.saturating_sub(before) as f64)
    }

    fn sum(&self, prefix: &str) -> Option<f64> {
        let names: Vec<&String> = self.after.keys().filter(|k| k.starts_with(prefix)).collect();
        (!names.is_empty()).then(|| names.iter().filter_map(|k| self.get(k)).sum())
    }

    fn rows(&self, seconds: f64) -> Vec<Metric> {
        use Better::{Higher, Lower};
        let get = |name| self.get(name);
        // A percentage, and the value that mmtests prints if the whole is zero.
        let share = |part: Option<f64>, whole: Option<f64>, none: f64| {
            Some(if whole? == 0.0 { none } else { 100.0 * part? / whole? })
        };
        let [direct, kswapd] = [get("pgscan_direct"), get("pgscan_kswapd")];
        let [direct_got, kswapd_got] = [get("pgsteal_direct"), get("pgsteal_kswapd")];
        let scanned = direct.zip(kswapd).map(|(a, b)| a + b);
        let rate = |n: Option<f64>| Some(n? / seconds);
        let cost = || {
            let cost = 7.0 * get("compact_migrate_scanned")?
                + 19.0 * get("compact_isolated")?
                + 1038.0 * get("pgmigrate_success")?
                + 14.0 * get("pgmigrate_fail")?;
            Some(cost / 1e6)
        };
        let rows = [
            ("Minor Faults", Lower, get("pgfault").zip(get("pgmajfault")).map(|(a, b)| a - b)),
            ("Major Faults", Lower, get("pgmajfault")),
            ("Swap Ins", Lower, get("pswpin")),
            ("Swap Outs", Lower, get("pswpout")),
            ("Allocation stalls", Lower, self.sum("allocstall_")),
            ("DMA allocs", Lower, get("pgalloc_dma")),
            ("DMA32 allocs", Lower, get("pgalloc_dma32")),
            ("Normal allocs", Lower, get("pgalloc_normal")),
            ("Movable allocs", Lower, get("pgalloc_movable")),
            ("Direct pages scanned", Lower, direct),
            ("Kswapd pages scanned", Lower, kswapd),
            ("Kswapd pages reclaimed", Lower, kswapd_got),
            ("Direct pages reclaimed", Lower, direct_got),
            ("Kswapd efficiency %", Higher, share(kswapd_got, kswapd, 100.0)),
            ("Kswapd velocity", Lower, rate(kswapd)),
            ("Direct efficiency %", Higher, share(direct_got, direct, 100.0)),
            ("Direct velocity", Lower, rate(direct)),
            ("Percentage direct scans", Lower, share(direct, scanned, 0.0)),
            ("Page writes by reclaim", Lower, get("nr_vmscan_write")),
            ("Sector Reads", Lower, get("pgpgin")),
            ("Sector Writes", Lower, get("pgpgout")),
            ("Slabs scanned", Lower, get("slabs_scanned")),
            ("THP fault alloc", Higher, get("thp_fault_alloc")),
            ("THP fault fallback", Lower, get("thp_fault_fallback")),
            ("THP collapse alloc", Higher, get("thp_collapse_alloc")),
            ("THP collapse fail", Lower, get("thp_collapse_alloc_failed")),
            ("THP split", Lower, get("thp_split_page")),
            ("THP split failed", Lower, get("thp_split_page_failed")),
            ("Compaction stalls", Lower, get("compact_stall")),
            ("Compaction success", Higher, get("compact_success")),
            ("Compaction failures", Lower, get("compact_fail")),
            (
                "Compaction efficiency",
                Higher,
                share(get("compact_success"), get("compact_stall"), 0.0),
            ),
            ("Page migrate success", Higher, get("pgmigrate_success")),
            ("Page migrate failure", Lower, get("pgmigrate_fail")),
            ("Compaction pages isolated", Lower, get("compact_isolated")),
            ("Compaction migrate scanned", Lower, get("compact_migrate_scanned")),
            ("Compaction free scanned", Lower, get("compact_free_scanned")),
            (
                "Compact scan efficiency",
                Higher,
                share(get("compact_migrate_scanned"), get("compact_free_scanned"), 0.0),
            ),
            ("Compaction cost", Lower, cost()),
            ("Kcompactd wake", Lower, get("compact_daemon_wake")),
            ("Kcompactd migrate scanned", Lower, get("compact_daemon_migrate_scanned")),
            ("Kcompactd free scanned", Lower, get("compact_daemon_free_scanned")),
            ("NUMA alloc hit", Higher, get("numa_hit")),
            ("NUMA alloc miss", Lower, get("numa_miss")),
            ("NUMA interleave hit", Higher, get("numa_interleave")),
            ("NUMA alloc local", Higher, get("numa_local")),
            ("NUMA hint faults", Lower, get("numa_hint_faults")),
            ("NUMA hint local faults", Higher, get("numa_hint_faults_local")),
            ("NUMA pages migrated", Lower, get("numa_pages_migrated")),
        ];
        let metric = |(name, better, value): (&str, Better, Option<f64>)| {
            let name = format!("Ops {name}");
            Some(Metric { name, unit: String::new(), better, samples: vec![Some(value?)] })
        };
        rows.into_iter().filter_map(metric).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(rows: &[Metric], name: &str) -> Option<f64> {
        rows.iter().find(|m| m.name == format!("Ops {name}")).and_then(|m| m.samples[0])
    }

    #[test]
    fn rows_are_differences_and_shares_of_them() {
        let before = "pgfault 100\npgmajfault 10\nallocstall_dma 1\nallocstall_normal 2\n\
                      pgscan_direct 50\npgscan_kswapd 50\npgsteal_direct 5\npgsteal_kswapd 5\n\
                      nr_vmscan_write 9\n";
        let after = "pgfault 1100\npgmajfault 60\nallocstall_dma 4\nallocstall_normal 6\n\
                     pgscan_direct 150\npgscan_kswapd 350\npgsteal_direct 25\npgsteal_kswapd 305\n\
                     nr_vmscan_write 9\n";
        let rows = ops(before, after, 10.0).unwrap();
        let of = |name| value(&rows, name);
        assert_eq!(of("Minor Faults"), Some(950.0));
        assert_eq!(of("Major Faults"), Some(50.0));
        assert_eq!(of("Allocation stalls"), Some(7.0));
        assert_eq!(of("Kswapd efficiency %"), Some(100.0));
        assert_eq!(of("Direct efficiency %"), Some(20.0));
        assert_eq!(of("Kswapd velocity"), Some(30.0));
        assert_eq!(of("Percentage direct scans"), Some(25.0));
        // Rows without counters are not invented.
        assert_eq!(of("Compaction cost"), None);
        // Nothing scanned: 100 %.
        let still = ops(before, before, 10.0).unwrap();
        assert_eq!(value(&still, "Direct efficiency %"), Some(100.0));
        assert_eq!(value(&still, "Percentage direct scans"), Some(0.0));
    }

    #[test]
    fn compaction_has_efficiencies_and_a_cost_in_millions() {
        let after = "compact_stall 8\ncompact_success 2\ncompact_fail 6\npgmigrate_success 3000\n\
                     pgmigrate_fail 500\ncompact_isolated 7000\ncompact_migrate_scanned 100000\n\
                     compact_free_scanned 400000\n";
        let rows = ops("", after, 1.0).unwrap();
        assert_eq!(value(&rows, "Compaction efficiency"), Some(25.0));
        assert_eq!(value(&rows, "Compact scan efficiency"), Some(25.0));
        // 700000 + 133000 + 3114000 + 7000.
        assert_eq!(value(&rows, "Compaction cost"), Some(3.954));
        let names: Vec<&str> = rows.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names[0], "Ops Compaction stalls");
        assert_eq!(names[names.len() - 1], "Ops Compaction cost");
    }

    #[test]
    fn wrong_copies_and_durations_are_rejected() {
        let e = |b, a, s| ops(b, a, s).unwrap_err().to_string();
        assert!(
            e("pgfault 2\n", "pgfault 1\n", 1.0).starts_with("vmstat after: pgfault fell from 2")
        );
        assert!(
            e("", "x 1\npgfault\n", 1.0).starts_with("vmstat after: line 2: \"pgfault\" is not")
        );
        assert!(e("", "", 0.0).starts_with("vmstat: run of 0 seconds"));
        assert!(ops("nr_free_pages 9\n", "nr_free_pages 1\n", 1.0).unwrap().is_empty());
    }
}
