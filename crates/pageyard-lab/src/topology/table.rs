//! A topology as tables.

use std::fmt;
use std::ops::Range;

use pageyard::{PAGE_SIZE, Pfn};
use pageyard_machine::format::{exact_size, many};
use pageyard_trace::printable;

use super::machine::Topology;
use super::text::list;

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |ranges: &[Range<Pfn>]| {
            ranges.iter().map(|r| r.end.0 - r.start.0).sum::<u64>() * PAGE_SIZE
        };
        write!(
            f,
            "{}: {}, {}, {} of memory",
            printable(&self.name),
            many(self.nodes as u64, "node"),
            many(self.cpus.len() as u64, "CPU"),
            exact_size(of(&self.usable))
        )?;
        if let Some(mhz) = self.clock_mhz {
            write!(f, ", {mhz} MHz")?;
        }
        writeln!(f, "\n")?;
        writeln!(
            f,
            "{:>4} {:9} {:>12} {:>12} {:>12}  CPUs",
            "node", "zone", "from", "to", "memory"
        )?;
        for n in 0..self.nodes {
            let on = |&(_, node): &(usize, &pageyard::NodeId)| usize::from(node.0) == n;
            let cpus = self.cpus.iter().enumerate().filter(on);
            let cpus: Vec<u32> = cpus.map(|(cpu, _)| cpu as u32).collect();
            let mut cpus = if cpus.is_empty() { "none".into() } else { list(&cpus) };
            let zones: Vec<_> = self.zones.iter().filter(|z| usize::from(z.node.0) == n).collect();
            if zones.is_empty() {
                writeln!(f, "{n:4} {:9} {:>12} {:>12} {:>12}  {cpus}", "none", "", "", "0")?;
            }
            for z in zones {
                writeln!(
                    f,
                    "{n:4} {:9} {:>12} {:>12} {:>12}  {cpus}",
                    z.kind,
                    exact_size(z.span.start.0 * PAGE_SIZE),
                    exact_size(z.span.end.0 * PAGE_SIZE),
                    exact_size(self.memory(&z.span))
                )?;
                cpus = String::new();
            }
        }
        if self.nodes > 1 {
            write!(f, "\ndistance")?;
            (0..self.nodes).try_for_each(|n| write!(f, " {n:>4}"))?;
            writeln!(f)?;
            for (n, row) in self.distances.chunks(self.nodes).enumerate() {
                write!(f, "{n:>8}")?;
                row.iter().try_for_each(|d| write!(f, " {d:>4}"))?;
                writeln!(f)?;
            }
        }
        self.zonelist_table(f)?;
        self.cache_table(f)
    }
}

impl Topology {
    /// Returns the bytes of memory within a span.
    pub(super) fn memory(&self, span: &Range<Pfn>) -> u64 {
        let inside =
            |r: &Range<Pfn>| r.end.min(span.end).0.saturating_sub(r.start.max(span.start).0);
        self.usable.iter().map(inside).sum::<u64>() * PAGE_SIZE
    }

    /// Writes the zonelists of all nodes.
    fn zonelist_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nzones in the order in which requests try them: node and zone")?;
        let lists = match self.zonelists() {
            Ok(lists) => lists,
            Err(why) => return writeln!(f, "  not known: {why}"),
        };
        for (node, list) in lists.iter().enumerate() {
            let zones: Vec<_> = list.iter().map(|z| format!("{} {}", z.node.0, z.kind)).collect();
            writeln!(f, "  from node {node}: {}", zones.join(", "))?;
        }
        Ok(())
    }

    /// Writes the cache shares, with CPUs of equal shares together.
    fn cache_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: Vec<(pageyard::tuning::CacheSlice, Vec<u32>)> = Vec::new();
        for (cpu, &slice) in self.caches.iter().enumerate() {
            match kinds.iter_mut().find(|k| k.0 == slice) {
                Some(kind) => kind.1.push(cpu as u32),
                None => kinds.push((slice, vec![cpu as u32])),
            }
        }
        writeln!(f, "\ncache per CPU: last level, all levels")?;
        for (slice, cpus) in kinds {
            if slice.all_levels == 0 {
                writeln!(f, "  CPUs {}: unknown", list(&cpus))?;
            } else {
                let (last, all) = (exact_size(slice.last_level), exact_size(slice.all_levels));
                writeln!(f, "  CPUs {}: {last}, {all}", list(&cpus))?;
            }
        }
        Ok(())
    }
}
