//! Zones in a state built by hand. The spec's examples start from such states, few of which
//! requests alone could reach.

use std::ops::Range;

use pageyard::tuning::{Limits, Tuning};
use pageyard::{CpuId, CpuRecord, MigrateType, NodeId, Pfn, Record, ZoneKind, ZoneRecord};

use super::{Chosen, LINUX612, Machine, Y, o};

/// Builds the records of a NORMAL zone that starts at frame 0.
///
/// Frames that are not mentioned are reserved. At first all pageblocks are movable, watermarks are
/// 0, per-CPU lists keep nothing (limits of §5.5), counters have no CPU parts, and NOFRAGMENT is
/// off, so only what a test sets has an effect.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) zone: ZoneRecord,
    pub(crate) cpus: Vec<CpuRecord>,
    pub(crate) machine: Machine,
    labels: Vec<MigrateType>,
    blocks: Vec<Record>,
}

impl State {
    pub(crate) fn new(pages: u64) -> Self {
        State {
            zone: ZoneRecord {
                present: pages,
                managed: pages,
                watermarks: [0; 4],
                boost: 0,
                flags: 0,
                reserved_highatomic: 0,
                isolated_blocks: 0,
                lowmem_reserve: [0; 5],
                nr_free: 0,
                limits: Limits::DISABLED,
                nofragment: false,
                grouping_disabled: false,
            },
            cpus: vec![cpu(0)],
            machine: Machine::normal(pages),
            labels: vec![MigrateType::Movable; pages.div_ceil(512) as usize],
            blocks: Vec::new(),
        }
    }

    /// The type of pageblock number `block`.
    pub(crate) fn label(mut self, block: usize, t: MigrateType) -> Self {
        self.zone.isolated_blocks += u64::from(t == MigrateType::Isolate);
        self.labels[block] = t;
        self
    }

    /// A free block, last on the list of its pageblock's type.
    pub(crate) fn free(self, pfn: u64, order: u8) -> Self {
        let t = self.labels[(pfn >> 9) as usize];
        self.free_as(pfn, order, t)
    }

    /// A free block, last on the list of any type.
    pub(crate) fn free_as(mut self, pfn: u64, order: u8, migrate_type: MigrateType) -> Self {
        if migrate_type != MigrateType::Isolate {
            self.zone.nr_free += 1 << order;
        }
        self.blocks.push(Record::Free { pfn: Pfn(pfn), order: o(order), migrate_type });
        self
    }

    /// Single pages in use.
    pub(crate) fn used(mut self, pages: Range<u64>, movable: bool) -> Self {
        for pfn in pages {
            self = self.block(pfn, 0, movable);
        }
        self
    }

    /// A block in use.
    pub(crate) fn block(mut self, pfn: u64, order: u8, movable: bool) -> Self {
        self.blocks.push(Record::Allocated { pfn: Pfn(pfn), order: o(order), movable });
        self
    }

    /// Blocks on a CPU's list, head first.
    pub(crate) fn cached(mut self, cpu: u32, list: usize, pfns: &[u64]) -> Self {
        let pages = (pfns.len() as i32) << super::view::list_order(list);
        self.cpus[cpu as usize].tuning.count += pages;
        self.blocks.extend(pfns.iter().map(|&p| Record::Cached {
            cpu: CpuId(cpu),
            list,
            pfn: Pfn(p),
        }));
        self
    }

    /// CPUs on these nodes; the zone is on node 0.
    pub(crate) fn cpus(mut self, nodes: &[u16]) -> Self {
        self.cpus =
            (0..).zip(nodes).map(|(i, &n)| CpuRecord { node: NodeId(n), ..cpu(i) }).collect();
        self.machine = self.machine.cpus(nodes);
        let limits = self.zone.limits;
        self.limits(limits.batch, limits.high_min, limits.high_max)
    }

    /// The limits of all per-CPU lists; `high` starts at its minimum.
    pub(crate) fn limits(mut self, batch: i32, high_min: i32, high_max: i32) -> Self {
        let limits = Limits { batch, high_min, high_max };
        self.zone.limits = limits;
        for c in &mut self.cpus {
            c.tuning.limits = limits;
            c.tuning.high = high_min;
        }
        self
    }

    /// Sets any field of the zone.
    pub(crate) fn set(mut self, change: impl FnOnce(&mut ZoneRecord)) -> Self {
        change(&mut self.zone);
        self
    }

    /// Sets any field of a CPU.
    pub(crate) fn cpu(mut self, cpu: usize, change: impl FnOnce(&mut CpuRecord)) -> Self {
        change(&mut self.cpus[cpu]);
        self
    }

    /// The snapshot that describes this state.
    pub(crate) fn records(&self) -> Vec<Record> {
        let labels = (0..)
            .zip(&self.labels)
            .map(|(i, &migrate_type)| Record::Block { pfn: Pfn(i << 9), migrate_type });
        std::iter::once(Record::Zone(self.zone))
            .chain(labels)
            .chain(self.cpus.iter().map(|&c| Record::Cpu(c)))
            .chain(self.blocks.iter().copied())
            .collect()
    }

    /// A yard in this state.
    pub(crate) fn run<T>(&self, f: impl for<'y> FnOnce(&Y<'y>) -> T) -> T {
        self.run_under(LINUX612, f)
    }

    /// A yard in this state, under any policy.
    pub(crate) fn run_under<T>(&self, rules: Chosen, f: impl for<'y> FnOnce(&Y<'y>) -> T) -> T {
        self.machine.restored(rules, &[(ZoneKind::Normal.into(), self.records())], f)
    }
}

/// A CPU of node 0 with nothing cached.
pub(crate) fn cpu(number: u32) -> CpuRecord {
    CpuRecord {
        cpu: CpuId(number),
        node: NodeId(0),
        tuning: Tuning { limits: Limits::DISABLED, ..Tuning::default() },
        expire: 0,
        diff: 0,
        cma_diff: 0,
        threshold: 0,
    }
}
