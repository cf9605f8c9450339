//! Measures, on this machine, the [costs](crate::costs) that can be measured.
//!
//! The results are printed next to the table; they do not change it.

mod lines;
mod paths;

use std::fmt;

use crate::MachineSpec;
use crate::costs::{Costs, TABLE};
use crate::format::{grouped, size};

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measured {
    /// What was measured.
    pub name: String,
    /// The costs of the table that correspond to it; it measures their sum.
    pub beside: &'static [&'static str],
    /// The result in picoseconds.
    pub ps: u64,
}

/// The measurements of the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Calibration {
    /// Measurements of costs.
    pub rows: Vec<Measured>,
    /// Bytes of the last-level cache that were available to a program: less than the hardware has
    /// if others share the host.
    pub last_level: u64,
}

/// Size of a buffer that exceeds every core's private caches and the available last-level cache.
const BEYOND: u64 = 512 << 20;

/// Runs all measurements; takes several seconds.
pub fn calibrate(spec: &MachineSpec) -> Calibration {
    let row = |name: String, beside, ps| Measured { name, beside, ps };
    let (own, shared) = (spec.private() / 8, spec.private() * 2);
    let mut rows = vec![row("lock pair".into(), &["lock", "unlock"] as &[_], lines::lock_pair())];
    let cpus = lines::cpus();
    if let [a, .., b] = cpus[..] {
        let name = format!("line from CPU {a} to {b}");
        rows.push(row(name, &["transfer_complex"], lines::transfer(a, b)));
    }
    for (bytes, [random, chain, run, cleared]) in [
        (own, [&["private_hit"], &["walk_private"], &["stream_private"], &["clear_hit"]]),
        (
            shared,
            [
                &["last_level_hit"],
                &["walk_last_level"],
                &["stream_last_level"],
                &["clear_last_level"],
            ],
        ),
        (BEYOND, [&["memory"], &["walk_memory"], &["stream_memory"], &["clear_miss"]]),
    ] {
        let of = size(bytes);
        rows.push(row(format!("line, random, of {of}"), random, lines::chase(bytes)));
        rows.push(row(format!("line of a chain in order, of {of}"), chain, lines::walk(bytes)));
        rows.push(row(format!("line of a run, of {of}"), run, lines::stream(bytes)));
        rows.push(row(format!("line of a page cleared, of {of}"), cleared, lines::clear(bytes)));
    }
    let costs = apply(&rows, &Costs::default());
    // The mean cost if seven of eight lines hit.
    let near = (7 * costs.clear_last_level + costs.clear_miss) / 8;
    let mut last_level = shared;
    while last_level < spec.last_level() && lines::clear(2 * last_level) < near {
        last_level *= 2;
    }
    if let Some(of) = paths::measure(spec, &costs) {
        for (name, beside, ps) in [
            ("a request", &["alloc_path"], of.alloc_path),
            ("a free", &["free_path"], of.free_path),
            ("a page from the zone", &["zone_take"], of.zone_take),
            ("a page to the zone", &["zone_free"], of.zone_free),
            ("a block on or off a free list", &["link"], of.link),
        ] {
            rows.push(row(format!("instructions, {name}"), beside, ps));
        }
    }
    Calibration { rows, last_level: last_level.min(spec.last_level()) }
}

/// Returns costs with the measurements in place of the table's values. A measured sum of several
/// costs is divided in the table's proportions.
pub fn apply(rows: &[Measured], costs: &Costs) -> Costs {
    let mut applied = costs.clone();
    for row in rows {
        let named = || TABLE.iter().filter(|c| row.beside.contains(&c.name));
        let sum: u64 = named().map(|c| (c.get)(costs)).sum();
        for cost in named().filter(|_| sum > 0) {
            (cost.set)(&mut applied, (cost.get)(costs) * row.ps / sum);
        }
    }
    applied
}

/// Measurements next to the table.
#[derive(Clone, Debug)]
pub struct Report<'c> {
    /// The measurements.
    pub found: Calibration,
    /// The cost table.
    pub costs: &'c Costs,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:34} {:>12} {:>12}  cost", "measured here", "ps", "table, ps")?;
        for row in &self.found.rows {
            let of =
                |name: &&str| TABLE.iter().find(|c| c.name == *name).map(|c| (c.get)(self.costs));
            let table: u64 = row.beside.iter().filter_map(of).sum();
            let names = row.beside.join(" + ");
            let (ps, table) = (grouped(row.ps), grouped(table));
            writeln!(f, "{:34} {ps:>12} {table:>12}  {names}", row.name)?;
        }
        writeln!(f, "effective last-level cache: {}", size(self.found.last_level))
    }
}
