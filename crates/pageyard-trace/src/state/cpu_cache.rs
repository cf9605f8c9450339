//! Parser of CPU caches, as `grep . cpu*/cache/index*/*` prints them in `/sys/devices/system/cpu`.

use std::collections::BTreeMap;

use super::lines::Lines;
use crate::check::MAX_CPUS;
use crate::error::TraceError;
use crate::number::parse_decimal;

/// One cache, as seen by one CPU. Attributes absent from the file are `None` or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    /// The CPU.
    pub cpu: u16,
    /// Number of the cache within this CPU.
    pub index: u8,
    /// Level; 1 is the nearest.
    pub level: Option<u8>,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: Option<String>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// CPUs that share the cache, in ascending order.
    pub shared_cpus: Vec<u16>,
    /// All other attributes by name.
    pub other: Vec<(String, String)>,
}

/// The caches of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCaches {
    /// Caches, ordered by CPU, then index.
    pub caches: Vec<Cache>,
}

impl CpuCaches {
    /// Parses lines of the form `cpu0/cache/index3/size:16384K`.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut found: BTreeMap<(u16, u8), Cache> = BTreeMap::new();
        let mut lines = Lines::new(name, bytes);
        let mut sharers = 0;
        while let Some(line) = lines.next()? {
            let bad = || lines.expected("`cpuN/cache/indexN/name:value`", line);
            let (path, value) = line.split_once(':').ok_or_else(bad)?;
            let mut parts = path.trim_start_matches("./").split('/');
            let cpu = parts.next().and_then(|part| part.strip_prefix("cpu"));
            let cache = parts.next();
            let index = parts.next().and_then(|part| part.strip_prefix("index"));
            let (Some(cpu), Some("cache"), Some(index), Some(attribute), None) =
                (cpu, cache, index, parts.next(), parts.next())
            else {
                return Err(bad());
            };
            let cpu = small(cpu, u64::from(MAX_CPUS) - 1).ok_or_else(bad)? as u16;
            let index = small(index, 255).ok_or_else(bad)? as u8;
            let cache = found.entry((cpu, index)).or_insert_with(|| Cache {
                cpu,
                index,
                ..Cache::default()
            });
            let value = value.trim();
            match attribute {
                "level" => cache.level = Some(small(value, 255).ok_or_else(bad)? as u8),
                "type" => cache.kind = Some(value.to_owned()),
                "size" => cache.size = Some(size(value).ok_or_else(bad)?),
                "shared_cpu_list" => {
                    cache.shared_cpus = cpu_list(value).ok_or_else(bad)?;
                    sharers += cache.shared_cpus.len();
                    if sharers > MOST_SHARERS {
                        return Err(lines.expected("at most 16777216 sharers of caches", line));
                    }
                }
                _ => cache.other.push((attribute.to_owned(), value.to_owned())),
            }
        }
        Ok(CpuCaches { caches: found.into_values().collect() })
    }

    /// Returns the caches of this CPU.
    pub fn of(&self, cpu: u16) -> &[Cache] {
        let from = self.caches.partition_point(|cache| cache.cpu < cpu);
        let to = self.caches.partition_point(|cache| cache.cpu <= cpu);
        &self.caches[from..to]
    }

    /// Returns this CPU's data or unified cache of the highest level.
    pub fn last_level(&self, cpu: u16) -> Option<&Cache> {
        let holds_data = |cache: &&Cache| matches!(cache.kind.as_deref(), Some("Data" | "Unified"));
        self.of(cpu).iter().filter(holds_data).max_by_key(|cache| cache.level)
    }

    /// Returns this CPU's share of its last-level cache in bytes (spec §5.13).
    pub fn data_slice(&self, cpu: u16) -> Option<u64> {
        let cache = self.last_level(cpu)?;
        Some(cache.size? / cache.shared_cpus.len().max(1) as u64)
    }
}

fn small(text: &str, limit: u64) -> Option<u64> {
    parse_decimal(text.as_bytes()).filter(|&n| n <= limit)
}

/// Parses a size like `16384K` to bytes.
fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    parse_decimal(digits.as_bytes())?.checked_mul(unit)
}

/// Maximum number of sharers of all caches together: one cache shared by all CPUs, seen by each.
const MOST_SHARERS: usize = 1 << 24;

/// Parses a list like `0-3,8` to single CPUs.
fn cpu_list(text: &str) -> Option<Vec<u16>> {
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let limit = u64::from(MAX_CPUS) - 1;
        let (first, last) = (small(first, limit)? as u16, small(last, limit)? as u16);
        if first > last {
            return None;
        }
        ranges.push((first, last));
    }
    ranges.sort_unstable();
    let mut cpus: Vec<u16> = Vec::new();
    for (first, last) in ranges {
        let next = cpus.last().map_or(0, |&cpu| cpu + 1);
        cpus.extend(first.max(next)..=last);
    }
    Some(cpus)
}
