//! The packed engine in a replay: the plan on one region per zone.
//!
//! The engine has no watermarks yet, so a request fails only if nothing is free. Background reclaim
//! changes nothing in it.

use pageyard::packed::{OwnedStorage, Region};
use pageyard::{CpuId, MigrateType, Order, Pfn};

use super::counts::{Idle, Moved};
use super::error::ReplayError;
use super::figures::{Figures, Matching};
use super::lists::{LISTS, is_cached, list_order};
use super::machine::{Machine, MachineZone};
use super::map::{FrameMap, Taken};
use super::plan::{Op, OpKind, ZONE_BITS, unpack_gfp};
use super::restore::order_of;
use super::setting::{Outcome, Setting};
use super::start::{LIVE, ORDER};
use super::tick::Ticks;
use crate::memory::Lock;

/// Replays the plan on the packed engine.
pub(super) fn run(
    setting: &Setting<'_>,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let machine = setting.machine;
    let storages: Vec<_> =
        machine.zones.iter().map(|z| storage(machine, z)).collect::<Result<_, _>>()?;
    let mut zones = Vec::new();
    for (number, storage) in storages.iter().enumerate() {
        let zone = &machine.zones[number];
        let region = storage.region(first_of(zone)).map_err(|e| refused(zone, &e))?;
        fill(&region, setting, number).map_err(|e| refused(zone, &e))?;
        zones.push(region);
    }
    let phases = setting.phase.of_cpus(machine.cpus.len(), seed);
    let mut driver = Driver {
        machine,
        zones,
        map: FrameMap::new(&setting.start.frames),
        idle: Idle::default(),
        direct: 0,
        ticks: Ticks::new(setting.first_ns, machine.stat_interval_s, &phases, seed),
        figures: Figures::default(),
        matching: Matching::default(),
    };
    setting.plan.for_each(setting.stop, |number, op| {
        driver.perform(op);
        if number & 0xfff == 0 {
            progress(number);
        }
    })?;
    Ok(Outcome {
        figures: driver.finish(),
        explained: Vec::new(),
        held: None,
        cases: None,
        track: None,
        timeline: None,
        price: None,
    })
}

/// A region begins at the largest block, as its storage on the heap does.
fn first_of(zone: &MachineZone) -> Pfn {
    Pfn(zone.start & !u64::from(Order::MAX.pages() - 1))
}

fn storage(machine: &Machine, zone: &MachineZone) -> Result<OwnedStorage<Lock>, ReplayError> {
    let frames = zone.end() - first_of(zone).0;
    let cpus = machine.cpus.len() as u32;
    // The trace does not say which CPUs share a cache: all of them, as on a small machine.
    OwnedStorage::new(frames as u32, cpus, cpus).map_err(|e| refused(zone, &e))
}

fn refused(zone: &MachineZone, why: &dyn std::error::Error) -> ReplayError {
    let what = format!("node {} zone {}: {why}", zone.node, zone.kind);
    ReplayError::machine(what, "check that the state files belong to this trace")
}

/// Restores the state in which the recording began. Pages on the recorded lists are free.
fn fill(
    region: &Region<'_, Lock>,
    setting: &Setting<'_>,
    number: usize,
) -> Result<(), pageyard::packed::AddError> {
    let (machine, start) = (setting.machine, setting.start);
    let zone = &machine.zones[number];
    let base = machine.base();
    let pfn = |frame: usize| Pfn(base + frame as u64);
    let type_of = |frame: usize| start.block_types[machine.block_of(frame as u32)];
    let frames = (zone.start - base) as usize..(zone.end() - base) as usize;
    let mut block = zone.start & !511;
    while block < zone.end() {
        let first = block.max(zone.start);
        region.set_block_type(Pfn(first), type_of((first - base) as usize));
        block += 512;
    }
    for frame in frames.clone().filter(|&f| start.frames[f] & LIVE != 0) {
        let order = order_of(start.frames[frame] & ORDER);
        region.add_allocated(pfn(frame), order, type_of(frame))?;
    }
    let mut free: Vec<(usize, u8)> =
        start.free_blocks(machine, number).map(|b| (b.0, b.1)).collect();
    let lists = &start.cached[number * machine.cpus.len()..][..machine.cpus.len()];
    for lists in lists {
        let blocks =
            (0..LISTS).flat_map(|l| lists[l].iter().map(move |&f| (f as usize, list_order(l))));
        free.extend(blocks);
    }
    free.sort_unstable();
    // Neighbours at once: only a pageblock that is added in one piece begins as whole.
    let mut free = free.into_iter().map(|(frame, order)| frame..frame + (1 << order)).peekable();
    while let Some(mut run) = free.next() {
        while let Some(next) = free.next_if(|next| next.start == run.end) {
            run.end = next.end;
        }
        region.add(pfn(run.start)..pfn(run.end))?;
    }
    Ok(())
}

struct Driver<'s> {
    machine: &'s Machine,
    zones: Vec<Region<'s, Lock>>,
    map: FrameMap,
    /// Pages that CPUs and depots keep, counted from the start.
    idle: Idle,
    /// Pages of blocks of orders that CPUs do not keep.
    direct: u64,
    ticks: Ticks,
    figures: Figures,
    matching: Matching,
}

impl Driver<'_> {
    fn perform(&mut self, op: &Op) {
        self.idle.until(op.t_ns);
        let missed = self.ticks.since(op.cpu.into(), op.t_ns);
        if missed > 0 && op.cpu == 0 {
            // The engine's tick is the region's, not each CPU's.
            self.zones.iter().for_each(|zone| (0..missed).for_each(|_| zone.tick()));
        }
        match op.kind {
            OpKind::Alloc | OpKind::Silent => self.alloc(op),
            OpKind::Free | OpKind::FreeDirect => self.free(op),
            OpKind::DrainAll => _ = self.zones[self.zone_of(op.frame)].drain_all(),
            OpKind::ReclaimBegins | OpKind::ReclaimEnds => return,
            OpKind::Refused => self.refused(op),
        }
        self.count_idle();
    }

    fn zone_of(&self, frame: u32) -> usize {
        self.machine.zone_of(self.machine.base() + u64::from(frame)).unwrap_or(0)
    }

    fn pfn(&self, frame: u32) -> Pfn {
        Pfn(self.machine.base() + u64::from(frame))
    }

    /// Allocates from the recorded zone, or another one of its node if the request allows that.
    fn block_for(&mut self, op: &Op) -> Option<Pfn> {
        let (cpu, order) = (CpuId(op.cpu.into()), order_of(op.order));
        let t = match op.migratetype {
            0 => MigrateType::Unmovable,
            2 => MigrateType::Reclaimable,
            _ => MigrateType::Movable,
        };
        let first = self.zone_of(op.frame);
        let any = op.kind == OpKind::Silent || unpack_gfp(op.gfp) & ZONE_BITS == 0;
        let node = self.machine.zones[first].node;
        let others = (0..self.zones.len())
            .rev()
            .filter(|&z| any && z != first && self.machine.zones[z].node == node);
        let pfn = std::iter::once(first)
            .chain(others)
            .find_map(|zone| self.zones[zone].alloc(cpu, order, t))?;
        self.moved(op.order, false);
        Some(pfn)
    }

    /// Notes pages that went to or came from an owner.
    fn moved(&mut self, order: u8, freed: bool) {
        let pages = 1i64 << order;
        if is_cached(order) {
            self.idle.now += if freed { pages } else { -pages };
        } else if !freed {
            self.direct += 1 << order;
        }
    }

    fn give_back(&mut self, cpu: u16, frame: u32, order: u8) -> bool {
        let pfn = self.pfn(frame);
        let zone = &self.zones[self.zone_of(frame)];
        let freed = zone.free(CpuId(cpu.into()), pfn, order_of(order)).is_ok();
        if freed {
            self.moved(order, true);
        }
        freed
    }

    fn alloc(&mut self, op: &Op) {
        let Some(pfn) = self.block_for(op) else {
            self.figures.failed += 1;
            let old = self.map.put_failed(op.frame);
            return self.replaced(op.cpu, old);
        };
        if op.kind == OpKind::Alloc {
            self.figures.alloc_blocks += 1;
            self.figures.alloc_pages += 1 << op.order;
        }
        let ours = (pfn.0 - self.machine.base()) as u32;
        let old = self.map.put(op.frame, ours, op.order);
        self.replaced(op.cpu, old);
    }

    /// Frees the previous block of a recorded frame that the trace allocates again without a free.
    fn replaced(&mut self, cpu: u16, old: Option<(u32, u8)>) {
        if let Some((frame, order)) = old {
            self.matching.replaced += 1;
            self.give_back(cpu, frame, order);
        }
    }

    /// Repeats a request that failed in the kernel. The trace has no owner for its block.
    fn refused(&mut self, op: &Op) {
        match self.block_for(op) {
            Some(pfn) => {
                let frame = (pfn.0 - self.machine.base()) as u32;
                self.give_back(op.cpu, frame, op.order);
            }
            None => self.figures.failed += 1,
        }
    }

    fn free(&mut self, op: &Op) {
        self.matching.frees += 1;
        let (machine, zones) = (self.machine, &self.zones);
        let taken = self.map.take(machine, op.frame, op.order, |frame, from, into| {
            let zone = machine.zone_of(machine.base() + u64::from(frame)).unwrap_or(0);
            let pfn = Pfn(machine.base() + u64::from(frame));
            let _ = zones[zone].split(pfn, order_of(from), order_of(into));
        });
        match taken {
            Taken::Failed => self.matching.of_failed += 1,
            Taken::Block(frame) if self.give_back(op.cpu, frame, op.order) => {
                self.figures.free_blocks += 1;
                self.figures.free_pages += 1 << op.order;
            }
            Taken::Block(_) | Taken::Unknown => self.matching.unmatched += 1,
        }
    }

    /// Accounts for what moved between zones and CPUs.
    fn count_idle(&mut self) {
        let now = self.totals();
        let was = std::mem::replace(&mut self.figures.moved, now);
        let net = |m: Moved| m.refill_pages as i64 - m.drain_pages as i64;
        self.idle.now += net(now) - net(was);
    }

    fn totals(&self) -> Moved {
        let mut moved = Moved::default();
        for zone in &self.zones {
            for cpu in 0..zone.cpus() {
                let counts = zone.counts(CpuId(cpu)).unwrap_or_default();
                moved.refill_pages += counts.taken;
                moved.drain_pages += counts.returned;
            }
            moved.drain_pages += zone.depot_returned();
        }
        moved
    }

    fn finish(self) -> Figures {
        let mut f = self.figures;
        (f.idle_peak, f.idle_mean) = self.idle.figures(0);
        f.matching = Some(self.matching);
        f.zone_pages = f.moved.refill_pages + self.direct;
        let (mut free, mut whole, mut depot) = (0, 0, 0);
        for zone in &self.zones {
            for cpu in 0..zone.cpus() {
                let counts = zone.counts(CpuId(cpu)).unwrap_or_default();
                f.claims += counts.claims;
                f.steals += counts.steals;
                depot += counts.depot_in + counts.depot_out;
            }
            free += zone.free_frames();
            whole += zone.whole_blocks() * 512;
        }
        f.depot_pages = Some(depot);
        f.unusable_9 = (free > 0).then(|| ((free - whole) * 1000 / free) as u32);
        f
    }
}
