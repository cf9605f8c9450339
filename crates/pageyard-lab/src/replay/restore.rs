//! The recorded machine's memory, and the restoration of its state in an allocator.

use pageyard::policy::{Growth, Policy, Rules};
use pageyard::tuning::{Limits, Tuning, high_size};
use pageyard::{
    Config, CpuId, CpuRecord, InitError, Knobs, Layout, NodeId, Order, Pfn, Record, Yard, ZoneKind,
    ZoneRecord, ZoneSpec,
};

use super::error::ReplayError;
use super::lists::{LISTS, list_order};
use super::machine::{Machine, MachineZone, id_of};
use super::setting::Setting;
use super::start::{FREE, LIVE, MOVABLE, ORDER};
use super::tick::ticks_between;

/// Zones, and the node of each CPU.
pub(super) struct Parts {
    pub(super) zones: Vec<ZoneSpec>,
    cpus: Vec<NodeId>,
    knobs: Knobs,
}

impl Parts {
    pub(super) fn of(machine: &Machine) -> Parts {
        Parts {
            zones: machine.zones.iter().map(spec).collect(),
            cpus: machine.cpus.iter().map(|&n| NodeId(n)).collect(),
            knobs: Knobs {
                // A replay has no reclaim, so nothing would reset a boost (spec §3.4).
                watermark_boost_factor: 0,
                percpu_pagelist_high_fraction: machine.high_fraction,
                stat_interval: machine.stat_interval_s,
                ..Knobs::default()
            },
        }
    }

    pub(super) fn layout(&self) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &[],
            reserved: &[],
            cpus: &self.cpus,
            distances: &[],
            knobs: self.knobs,
        }
    }
}

/// Restores the state in which the recording began.
pub(super) fn restore<C: Config>(
    yard: &mut Yard<'_, C>,
    setting: &Setting<'_>,
    phases: &[f64],
) -> Result<(), ReplayError> {
    let machine = setting.machine;
    let policy = yard.policy();
    for (number, zone) in machine.zones.iter().enumerate() {
        yard.restore(id_of(zone), records(setting, policy.rules(), number, phases)).map_err(
            |e| {
                let what = format!("node {} zone {}: {e}", zone.node, zone.kind);
                ReplayError::machine(what, "check that the state files belong to this trace")
            },
        )?;
    }
    for (cpu, &slice) in machine.caches.iter().enumerate() {
        yard.set_cache_slice(CpuId(cpu as u32), slice);
    }
    Ok(())
}

pub(super) fn refused(e: InitError) -> ReplayError {
    ReplayError::machine(e.to_string(), "check that the state files belong to this trace")
}

fn spec(zone: &MachineZone) -> ZoneSpec {
    ZoneSpec { kind: zone.kind, node: NodeId(zone.node), span: Pfn(zone.start)..Pfn(zone.end()) }
}

/// Returns the limits that a policy sets for a zone's lists (spec §5.4), from the recorded batch.
fn limits(rules: &Rules, machine: &Machine, zone: &MachineZone) -> Limits {
    let low = zone.watermarks[1];
    let size =
        |fraction| high_size(zone.managed, low, machine.cpus_of(zone.node), fraction, zone.batch);
    let fraction = machine.high_fraction;
    let high_min = size(fraction);
    let fixed = fraction != 0 || matches!(rules.pcp.growth, Growth::Fixed);
    Limits { batch: zone.batch, high_min, high_max: if fixed { high_min } else { size(8) } }
}

/// Rule 10: returns `high` when recording began, by undoing the ticks up to the snapshot.
fn first_high(setting: &Setting<'_>, limits: Limits, high: i64, count: i64, phase: f64) -> i32 {
    let machine = setting.machine;
    let mut high = high;
    if machine.kernel.tuned {
        if high > limits.high_min.into() {
            let (from, to) = (setting.first_ns, setting.snapshot_ns.max(setting.first_ns));
            for _ in 0..ticks_between(phase, from, to, machine.stat_interval_s) {
                high = (high * 8 / 7).min(1 << 28);
            }
        }
        high = high.max(count + 1);
    }
    high.clamp(0, limits.high_max.max(limits.high_min).into()) as i32
}

/// Returns the records from which a zone of the machine is restored.
fn records<'a>(
    setting: &'a Setting<'a>,
    rules: &'a Rules,
    number: usize,
    phases: &'a [f64],
) -> impl Iterator<Item = Record> + 'a {
    let (machine, start) = (setting.machine, setting.start);
    let zone = &machine.zones[number];
    let limits = limits(rules, machine, zone);
    let base = machine.base();
    let pfn = move |frame: usize| Pfn(base + frame as u64);
    let first = (zone.start - base) as usize;
    let frames = first..first + zone.spanned as usize;
    let free = start.frames[frames.clone()].iter().filter(|&&f| f & FREE != 0).count();
    let dma32 = |z: &MachineZone| z.node == zone.node && z.kind == ZoneKind::Dma32;
    let one_node = machine.zones.iter().all(|z| z.node == zone.node);
    let nofragment = zone.kind == ZoneKind::Normal && (one_node || machine.zones.iter().any(dma32));
    // Blocks on lists that this policy does not have are free in the zone.
    let kept = |list: usize| rules.high_order_lists || list_order(list) == 0;
    let pagesets = &start.cached[number * machine.cpus.len()..][..machine.cpus.len()];
    let homeless = pagesets.iter().flat_map(move |lists| {
        (0..LISTS)
            .filter(move |&l| !kept(l))
            .flat_map(move |l| lists[l].iter().map(move |&f| (f, l)))
    });
    let free = free as i64 + homeless.clone().map(|(_, l)| 1i64 << list_order(l)).sum::<i64>();
    let homeless = homeless.map(move |(frame, list)| Record::Free {
        pfn: pfn(frame as usize),
        order: order_of(list_order(list)),
        migrate_type: start.block_types[machine.block_of(frame)],
    });
    let head = Record::Zone(ZoneRecord {
        present: zone.present,
        managed: zone.managed,
        watermarks: zone.watermarks,
        boost: 0,
        flags: 0,
        reserved_highatomic: 0,
        isolated_blocks: 0,
        lowmem_reserve: zone.lowmem_reserve,
        nr_free: free,
        limits,
        nofragment,
        grouping_disabled: machine.grouping_disabled(),
    });
    let first_block = zone.start >> 9;
    let blocks = (first_block..(zone.end() + 511) >> 9).map(move |block| Record::Block {
        pfn: Pfn((block << 9).max(zone.start)),
        migrate_type: start.block_types[(block - (base >> 9)) as usize],
    });
    let free = start.free_blocks(machine, number).map(move |(frame, order, migrate_type)| {
        Record::Free { pfn: pfn(frame), order: order_of(order), migrate_type }
    });
    let live = frames.filter_map(move |frame| {
        let f = start.frames[frame];
        (f & LIVE != 0).then(|| Record::Allocated {
            pfn: pfn(frame),
            order: order_of(f & ORDER),
            movable: f & MOVABLE != 0,
        })
    });
    let cpus = (0..machine.cpus.len()).flat_map(move |cpu| {
        let lists = &pagesets[cpu];
        let pages = |l: usize| (lists[l].len() as i64) << list_order(l);
        let count: i64 = (0..LISTS).filter(|&l| kept(l)).map(pages).sum();
        let high = zone.at_start.get(cpu).copied().flatten();
        let high = high.map_or(i64::from(limits.high_min), |(_, high)| high);
        let id = CpuId(cpu as u32);
        let record = Record::Cpu(CpuRecord {
            cpu: id,
            node: NodeId(machine.cpus[cpu]),
            tuning: Tuning {
                count: count as i32,
                count_min: count as i32,
                high: first_high(setting, limits, high, count, phases[cpu]),
                limits,
                ..Tuning::default()
            },
            expire: 0,
            diff: 0,
            cma_diff: 0,
            threshold: zone.stat_threshold,
        });
        let cached = lists.iter().enumerate().filter(move |&(l, _)| kept(l));
        let cached = cached.flat_map(move |(list, frames)| {
            let block = move |&f: &u32| Record::Cached { cpu: id, list, pfn: pfn(f as usize) };
            frames.iter().map(block)
        });
        std::iter::once(record).chain(cached)
    });
    std::iter::once(head).chain(blocks).chain(free).chain(homeless).chain(live).chain(cpus)
}

pub(super) fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or_default()
}
