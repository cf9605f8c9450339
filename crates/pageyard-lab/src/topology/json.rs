//! A topology as data. Addresses and sizes are in bytes. Zones and flags have the kernel's names.

use std::ops::Range;

use pageyard::{PAGE_SIZE, Pfn, ZoneId};
use serde_json::{Value, json};

use super::machine::Topology;

impl Topology {
    /// Returns everything that the topology's text shows: nodes with their CPUs and zones,
    /// distances row by row, zonelists by node (§2.5), memory, and the caches of each CPU. Values
    /// that the description does not have are `null`. If the core rejects the machine, `zonelists`
    /// is `null` and `zonelists_error` has the reason.
    pub fn json(&self) -> Value {
        let rows = self.distances.chunks(self.nodes.max(1));
        let lists = self.zonelists();
        json!({
            "name": self.name,
            "clock_mhz": self.clock_mhz,
            "nodes": (0..self.nodes).map(|n| self.node(n)).collect::<Vec<_>>(),
            "cpus": self.cpus.iter().enumerate().map(|(cpu, node)| {
                let cache = self.caches.get(cpu).filter(|c| c.all_levels > 0);
                json!({
                    "cpu": cpu,
                    "node": node.0,
                    "last_level_bytes": cache.map(|c| c.last_level),
                    "all_levels_bytes": cache.map(|c| c.all_levels),
                })
            }).collect::<Vec<_>>(),
            "distances": rows.collect::<Vec<_>>(),
            "zonelists": lists.as_ref().ok().map(|lists| {
                lists.iter().map(|l| l.iter().map(zone).collect()).collect::<Vec<Vec<_>>>()
            }),
            "zonelists_error": lists.as_ref().err().map(ToString::to_string),
            "usable": ranges(&self.usable),
            "reserved": ranges(&self.reserved),
        })
    }

    fn node(&self, n: usize) -> Value {
        let cpus = self.cpus.iter().enumerate().filter(|(_, node)| usize::from(node.0) == n);
        let zones = self.zones.iter().filter(|z| usize::from(z.node.0) == n);
        json!({
            "node": n,
            "cpus": cpus.map(|(cpu, _)| cpu).collect::<Vec<_>>(),
            "zones": zones.map(|z| json!({
                "zone": z.kind.name(),
                "from": bytes(z.span.start),
                "to": bytes(z.span.end),
                "memory_bytes": self.memory(&z.span),
            })).collect::<Vec<_>>(),
        })
    }
}

fn zone(id: &ZoneId) -> Value {
    json!({ "node": id.node.0, "zone": id.kind.name() })
}

fn bytes(pfn: Pfn) -> u64 {
    pfn.0 * PAGE_SIZE
}

fn ranges(ranges: &[Range<Pfn>]) -> Vec<Value> {
    ranges.iter().map(|r| json!({ "from": bytes(r.start), "to": bytes(r.end) })).collect()
}
