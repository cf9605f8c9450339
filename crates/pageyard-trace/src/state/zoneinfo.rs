//! Parser of `/proc/zoneinfo` (spec §9.4) of 6.1, 6.12 and 6.18 kernels.

use super::counters::Counters;
use super::lines::Lines;
use crate::check::MAX_CPUS;
use crate::error::TraceError;

/// Contents of `/proc/zoneinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZoneInfo {
    /// Counters of nodes that have populated zones.
    pub nodes: Vec<NodeStats>,
    /// All zones in the order of the file, unpopulated ones included.
    pub zones: Vec<Zone>,
}

/// Counters of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStats {
    /// The node.
    pub node: u16,
    /// Its counters.
    pub counters: Counters,
}

/// Watermarks of a zone in pages (spec §3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Temporary boost.
    pub boost: u64,
    /// Min watermark.
    pub min: u64,
    /// Low watermark.
    pub low: u64,
    /// High watermark.
    pub high: u64,
    /// Promo watermark; absent in 6.1.
    pub promo: Option<u64>,
}

/// One zone. Counts are in pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Its node.
    pub node: u16,
    /// Its name, such as `DMA32`.
    pub name: String,
    /// Free pages.
    pub free: u64,
    /// Watermarks.
    pub watermarks: Watermarks,
    /// Pages from first to last, holes included.
    pub spanned: u64,
    /// Pages without holes; 0 for an unpopulated zone.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Pages of CMA areas.
    pub cma: u64,
    /// Lowmem reserve against requests for each higher zone (spec §3.5).
    pub protection: Vec<u64>,
    /// Counters; empty for an unpopulated zone.
    pub counters: Counters,
    /// Per-CPU lists, one entry per online CPU; empty for an unpopulated zone.
    pub pagesets: Vec<Pageset>,
    /// Whether reclaim has given up on the node.
    pub node_unreclaimable: bool,
    /// First frame; `None` for an unpopulated zone.
    pub start_pfn: Option<u64>,
}

impl Zone {
    /// Returns whether the zone has pages.
    pub fn is_populated(&self) -> bool {
        self.present != 0
    }
}

/// Per-CPU lists of a zone (spec §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pageset {
    /// The CPU.
    pub cpu: u16,
    /// Pages on the lists.
    pub count: u64,
    /// Number of pages at which a drain begins.
    pub high: u64,
    /// Pages moved per refill or drain.
    pub batch: u64,
    /// Lower limit of `high`; present in 6.18.
    pub high_min: Option<u64>,
    /// Upper limit of `high`; present in 6.18.
    pub high_max: Option<u64>,
    /// Threshold of the per-CPU counter deltas (spec §9.3).
    pub stat_threshold: Option<u64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Section {
    Node,
    Sizes,
    Counters,
    Pagesets,
}

impl ZoneInfo {
    /// Parses the file.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form, or if a populated zone is truncated.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut info = ZoneInfo::default();
        let mut section = Section::Sizes;
        let mut lines = Lines::new(name, bytes);
        while let Some(line) = lines.next()? {
            if line.starts_with("Node ") {
                check_whole(&lines, info.zones.last())?;
                let (node, name, _) = lines.node_zone(line)?;
                info.zones.push(Zone { node, name: name.to_owned(), ..Zone::default() });
                section = Section::Sizes;
                continue;
            }
            let Some(zone) = info.zones.last_mut() else {
                return Err(lines.expected("`Node N, zone NAME`", line));
            };
            match line {
                "per-node stats" => {
                    section = Section::Node;
                    info.nodes.push(NodeStats { node: zone.node, counters: Counters::default() });
                    continue;
                }
                "pagesets" => {
                    section = Section::Pagesets;
                    continue;
                }
                _ => {}
            }
            if let Some(free) = line.strip_prefix("pages free") {
                zone.free = lines.number("the number of free pages", free.trim())?;
                section = Section::Sizes;
            } else if let Some(list) = line.strip_prefix("protection:") {
                zone.protection = protection(&lines, list)?;
                section = Section::Counters;
            } else {
                match section {
                    Section::Node => {
                        let node = info.nodes.last_mut().expect("the section opened with it");
                        node.counters.line(&lines, line)?;
                    }
                    Section::Counters => zone.counters.line(&lines, line)?,
                    Section::Sizes => size(&lines, line, zone)?,
                    Section::Pagesets => pageset(&lines, line, zone)?,
                }
            }
        }
        check_whole(&lines, info.zones.last())?;
        Ok(info)
    }

    /// Returns the zone of this node and name.
    pub fn zone(&self, node: u16, name: &str) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.node == node && zone.name == name)
    }

    /// Returns the zones that have pages.
    pub fn populated(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(|zone| zone.is_populated())
    }
}

/// Fails if the zone is truncated. The last line of a populated zone is its first frame.
fn check_whole(lines: &Lines<'_>, zone: Option<&Zone>) -> Result<(), TraceError> {
    match zone {
        Some(zone) if zone.protection.is_empty() => {
            Err(lines.expected("`protection:` in the zone before", "the zone's end"))
        }
        Some(zone) if zone.is_populated() && zone.start_pfn.is_none() => {
            Err(lines.expected("`start_pfn:` in the zone before", "the zone's end"))
        }
        _ => Ok(()),
    }
}

/// Parses a line like `managed  3840`.
fn size(lines: &Lines<'_>, line: &str, zone: &mut Zone) -> Result<(), TraceError> {
    const FORM: &str = "a watermark or size of the zone";
    let (name, value) = line.split_once(' ').ok_or_else(|| lines.expected(FORM, line))?;
    let value = lines.number(FORM, value.trim())?;
    match name {
        "boost" => zone.watermarks.boost = value,
        "min" => zone.watermarks.min = value,
        "low" => zone.watermarks.low = value,
        "high" => zone.watermarks.high = value,
        "promo" => zone.watermarks.promo = Some(value),
        "spanned" => zone.spanned = value,
        "present" => zone.present = value,
        "managed" => zone.managed = value,
        "cma" => zone.cma = value,
        _ => return Err(lines.expected(FORM, line)),
    }
    Ok(())
}

/// Parses `(0, 2150, 2150)`.
fn protection(lines: &Lines<'_>, list: &str) -> Result<Vec<u64>, TraceError> {
    const FORM: &str = "`(number, ...)`";
    let inner = list.trim().strip_prefix('(').and_then(|list| list.strip_suffix(')'));
    let inner = inner.ok_or_else(|| lines.expected(FORM, list))?;
    inner.split(',').map(|number| lines.number(FORM, number.trim())).collect()
}

/// Parses a line of the per-CPU part or after it, like `count: 823`.
fn pageset(lines: &Lines<'_>, line: &str, zone: &mut Zone) -> Result<(), TraceError> {
    const FORM: &str = "a line of the per-CPU lists";
    let (name, value) = line.split_once(':').ok_or_else(|| lines.expected(FORM, line))?;
    let value = lines.number(FORM, value.trim())?;
    match name {
        "node_unreclaimable" => zone.node_unreclaimable = value != 0,
        "start_pfn" => zone.start_pfn = Some(value),
        "cpu" => {
            const ORDER: &str = "CPUs below 4096 in ascending order";
            let cpu = u16::try_from(value).ok().filter(|&cpu| {
                cpu < MAX_CPUS && zone.pagesets.last().is_none_or(|last| last.cpu < cpu)
            });
            let cpu = cpu.ok_or_else(|| lines.expected(ORDER, line))?;
            zone.pagesets.push(Pageset { cpu, ..Pageset::default() });
        }
        _ => {
            let set = zone.pagesets.last_mut().ok_or_else(|| lines.expected("`cpu:`", line))?;
            match name {
                "count" => set.count = value,
                "high" => set.high = value,
                "batch" => set.batch = value,
                "high_min" => set.high_min = Some(value),
                "high_max" => set.high_max = Some(value),
                "vm stats threshold" => set.stat_threshold = Some(value),
                _ => return Err(lines.expected(FORM, line)),
            }
        }
    }
    Ok(())
}
