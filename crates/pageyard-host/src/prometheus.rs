//! Statistics as text for Prometheus.

use std::fmt::{self, Write};

use crate::pressure::Level;
use crate::stats::{YardStats, ZoneStatus};

/// A family of metrics of a yard: name, kind, help and value; no value is no line.
type Family = (&'static str, &'static str, &'static str, fn(&YardStats) -> Option<u64>);
/// The same for each zone.
type OfZone = (&'static str, &'static str, &'static str, fn(&ZoneStatus) -> u64);

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

const FAMILIES: [Family; 22] = [
    ("size_bytes", GAUGE, "Size of the yard.", |s| Some(bytes(s.pages))),
    ("usable_bytes", GAUGE, "Memory that ordinary requests can have.", |s| Some(bytes(s.usable))),
    ("used_bytes", GAUGE, "Memory in use.", |s| Some(bytes(s.used))),
    ("owned_bytes", GAUGE, "Memory in use that callers hold.", |s| Some(bytes(s.owned))),
    ("hard_limit_bytes", GAUGE, "Hard limit of the memory in use.", |s| s.hard_limit.map(bytes)),
    ("soft_limit_bytes", GAUGE, "Soft limit of the memory in use.", |s| s.soft_limit.map(bytes)),
    ("resident_bytes", GAUGE, "Resident memory.", |s| Some(bytes(s.resident))),
    ("in_pieces_bytes", GAUGE, "Free resident memory in pageblocks partly in use.", |s| {
        Some(bytes(s.in_pieces))
    }),
    ("kept_bytes", GAUGE, "Memory withheld by the hard limit.", |s| Some(bytes(s.kept))),
    ("pressure_level", GAUGE, "0 calm, 1 moderate, 2 critical.", |s| {
        let level = Level::ALL.iter().position(|level| level.to_string() == s.level);
        Some(level.unwrap_or(0) as u64)
    }),
    ("given_back_bytes_total", COUNTER, "Memory returned to the system.", |s| {
        Some(bytes(s.given_back))
    }),
    ("fetched_bytes_total", COUNTER, "Memory returned to the system and faulted in again.", |s| {
        Some(bytes(s.fetched))
    }),
    ("thread_cache_bytes", GAUGE, "Memory in use that threads keep cached.", |s| {
        Some(bytes(s.thread_cache.pages))
    }),
    ("thread_cache_threads", GAUGE, "Threads with a cache.", |s| {
        Some(s.thread_cache.threads as u64)
    }),
    ("thread_cache_pressed", GAUGE, "1 while threads must not cache.", |s| {
        Some(s.thread_cache.pressed.into())
    }),
    ("thread_cache_hits_total", COUNTER, "Requests served by thread caches.", |s| {
        Some(s.thread_cache.hits)
    }),
    ("thread_cache_refills_total", COUNTER, "Refills of thread caches.", |s| {
        Some(s.thread_cache.refills)
    }),
    ("thread_cache_flushes_total", COUNTER, "Flushes of full thread caches.", |s| {
        Some(s.thread_cache.flushes)
    }),
    ("thread_cache_drains_total", COUNTER, "Drains of thread caches.", |s| {
        Some(s.thread_cache.drains)
    }),
    ("shrunk_bytes_total", COUNTER, "Memory freed by shrinkers.", |s| Some(bytes(s.shrunk))),
    ("failed_requests_total", COUNTER, "Requests that failed for want of memory.", |s| {
        Some(s.failed)
    }),
    ("moved_blocks_total", COUNTER, "Blocks moved by compaction.", |s| Some(s.moved)),
];

const OF_ZONES: [OfZone; 5] = [
    ("zone_free_bytes", GAUGE, "Free memory of a zone.", |z| bytes(z.free)),
    ("zone_cached_bytes", GAUGE, "Memory on per-CPU lists.", |z| bytes(z.cached)),
    ("zone_lock_holds_total", COUNTER, "Acquisitions of the zone lock.", |z| z.lock_holds),
    ("zone_bypasses_total", COUNTER, "Operations that bypassed a busy per-CPU list.", |z| {
        z.bypasses
    }),
    ("zone_failures_total", COUNTER, "Failed attempts, of requests and of a hard limit.", |z| {
        z.failures
    }),
];

/// Another process may have published any number.
fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(pageyard::PAGE_SIZE)
}

impl YardStats {
    /// Writes the statistics in the Prometheus text format: gauges in bytes, and counters, one line
    /// per zone and order. For a process with several yards: [`write_prometheus`].
    ///
    /// # Errors
    /// Only errors of `out`.
    pub fn write_prometheus(&self, out: &mut impl Write) -> fmt::Result {
        write(&[(None, self)], out)
    }
}

/// Writes the statistics of several yards in the Prometheus text format, each metric with a label
/// `yard` that has the yard's name.
///
/// ```
/// use pageyard_host::{Builder, write_prometheus};
///
/// let [index, data] = [Builder::new(16 << 20).build()?, Builder::new(16 << 20).build()?];
/// let mut page = String::new();
/// write_prometheus(&[("index", &index.stats()), ("data", &data.stats())], &mut page)?;
/// assert!(page.contains("pageyard_size_bytes{yard=\"index\"} 16777216\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Only errors of `out`.
pub fn write_prometheus(yards: &[(&str, &YardStats)], out: &mut impl Write) -> fmt::Result {
    let yards: Vec<_> = yards.iter().map(|&(name, stats)| (Some(name), stats)).collect();
    write(&yards, out)
}

fn write(yards: &[(Option<&str>, &YardStats)], out: &mut impl Write) -> fmt::Result {
    let yards: Vec<(Labels, &YardStats)> =
        yards.iter().map(|&(name, stats)| (Labels::of(name), stats)).collect();
    for (name, kind, help, value) in FAMILIES {
        family(out, name, kind, help)?;
        for (labels, stats) in &yards {
            if let Some(value) = value(stats) {
                writeln!(out, "pageyard_{name}{labels} {value}")?;
            }
        }
    }
    for (name, help, of) in [
        (
            "allocs_total",
            "Blocks that callers allocated, by order.",
            (|s| &s.allocs) as fn(&YardStats) -> &[u64],
        ),
        ("frees_total", "Blocks that callers freed, by order.", |s| &s.frees),
    ] {
        family(out, name, COUNTER, help)?;
        for (labels, stats) in &yards {
            for (order, n) in of(stats).iter().enumerate() {
                writeln!(out, "pageyard_{name}{} {n}", labels.with("order", order))?;
            }
        }
    }
    for (name, kind, help, of) in OF_ZONES {
        family(out, name, kind, help)?;
        for (labels, z) in zones(&yards) {
            writeln!(out, "pageyard_{name}{labels} {}", of(z))?;
        }
    }
    family(out, "free_blocks", GAUGE, "Free blocks of a zone by order.")?;
    for (labels, z) in zones(&yards) {
        for (order, n) in z.free_blocks.iter().enumerate() {
            writeln!(out, "pageyard_free_blocks{} {n}", labels.with("order", order))?;
        }
    }
    Ok(())
}

/// The zones of all yards, with their labels.
fn zones<'y>(
    yards: &'y [(Labels, &'y YardStats)],
) -> impl Iterator<Item = (Labels, &'y ZoneStatus)> {
    yards.iter().flat_map(|(labels, stats)| {
        stats.zones.iter().map(|z| (labels.with("node", z.node).with("zone", &z.kind), z))
    })
}

/// Writes the head of a family of metrics.
fn family(out: &mut impl Write, name: &str, kind: &str, help: &str) -> fmt::Result {
    writeln!(out, "# HELP pageyard_{name} {help}\n# TYPE pageyard_{name} {kind}")
}

/// The labels of a line, without braces.
#[derive(Clone, Default)]
struct Labels(String);

impl Labels {
    fn of(yard: Option<&str>) -> Labels {
        yard.map_or_else(Labels::default, |name| Labels::default().with("yard", name))
    }

    fn with(&self, name: &str, value: impl fmt::Display) -> Labels {
        let value = value.to_string();
        let value = value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
        let comma = if self.0.is_empty() { "" } else { "," };
        Labels(format!("{}{comma}{name}=\"{value}\"", self.0))
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "{{{}}}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page is another process's.
    #[test]
    fn any_published_number_can_be_written() {
        let zone = ZoneStatus { free: u64::MAX, cached: u64::MAX, ..ZoneStatus::default() };
        let stats = YardStats { pages: u64::MAX, zones: vec![zone], ..YardStats::default() };
        let mut text = String::new();
        stats.write_prometheus(&mut text).unwrap();
        assert!(text.contains("pageyard_size_bytes 18446744073709551615\n"), "{text}");
    }

    /// Each family has one head, whatever the number of yards, and each line a yard of its own.
    #[test]
    fn yards_share_families_and_have_labels() {
        let zone =
            ZoneStatus { kind: "Normal".into(), free_blocks: vec![3], ..ZoneStatus::default() };
        let stats = YardStats { allocs: vec![1, 2], zones: vec![zone], ..YardStats::default() };
        let limited = YardStats { hard_limit: Some(2), ..stats.clone() };
        let mut text = String::new();
        write_prometheus(&[("a", &stats), ("\"b\\\n", &limited)], &mut text).unwrap();
        for line in [
            "pageyard_hard_limit_bytes{yard=\"\\\"b\\\\\\n\"} 8192",
            "pageyard_allocs_total{yard=\"a\",order=\"1\"} 2",
            "pageyard_zone_free_bytes{yard=\"a\",node=\"0\",zone=\"Normal\"} 0",
            "pageyard_free_blocks{yard=\"a\",node=\"0\",zone=\"Normal\",order=\"0\"} 3",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
            assert!(seen.insert(series), "twice: {line}");
        }
        let limits = text.lines().filter(|l| l.starts_with("pageyard_hard_limit_bytes"));
        assert_eq!(limits.count(), 1, "a yard without a limit has no line");
    }
}
