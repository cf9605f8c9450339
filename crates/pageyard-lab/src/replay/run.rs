//! One policy, one seed: the plan on the real allocator.

use std::cell::{Cell, RefCell};

use pageyard::policy::{Growth, Policy};
use pageyard::tuning::{Limits, Tuning, high_size};
use pageyard::{
    AllocError, CpuId, CpuRecord, CpuStats, DrainReason, Event, Gfp, InitError, Knobs, Layout,
    NodeId, Order, Pfn, Platform, Record, Yard, ZoneId, ZoneKind, ZoneRecord, ZoneSpec,
    unusable_index,
};

use super::counts::{Holds, Idle};
use super::course::Course;
use super::error::ReplayError;
use super::explain::{Explained, Notes};
use super::figures::{Figures, Matching};
use super::lists::{LISTS, is_cached, list_order};
use super::machine::{Kernel, Machine, MachineZone};
use super::map::{FrameMap, Taken};
use super::owners::{Held, Requests, held};
use super::plan::{Op, OpKind, Plan, ZONE_BITS, unpack_gfp};
use super::start::{FREE, LIVE, MOVABLE, ORDER, Start};
use super::tick::{PhaseSource, Ticks, ticks_between};
use crate::memory::{Lock, Memory};
use crate::track::Track;

/// What all runs share.
pub(super) struct Setting<'a> {
    pub(super) machine: &'a Machine,
    pub(super) start: &'a Start,
    pub(super) plan: &'a Plan,
    pub(super) phase: &'a PhaseSource,
    /// Time of the first record, and of the first snapshot.
    pub(super) first_ns: u64,
    pub(super) snapshot_ns: u64,
    /// Who asked for what, where that is wanted.
    pub(super) requests: Option<&'a Requests>,
    /// Whether tracks are recorded.
    pub(super) record: bool,
}

/// Counts what the allocator tells.
struct Observer {
    cpu: Cell<u32>,
    holds: RefCell<Holds>,
    /// Pages that came to the lists less pages that the lists gave back, since last asked.
    cached: Cell<i64>,
    tick_pages: Cell<u64>,
    /// The trace's time.
    now: Cell<u64>,
    notes: Notes,
    course: Course,
}

/// What a run found.
pub(super) struct Outcome {
    pub(super) figures: Figures,
    pub(super) explained: Vec<Explained>,
    pub(super) held: Option<Held>,
    pub(super) track: Option<Track>,
}

impl Platform for Observer {
    const SEES_TUNING: bool = true;

    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }

    #[inline(always)]
    fn event(&self, cpu: CpuId, event: Event) {
        match event {
            Event::Refill { order, blocks, .. } if blocks > 0 => {
                let pages = u64::from(blocks) << order.get();
                self.cached.set(self.cached.get() + pages as i64);
                self.holds.borrow_mut().refill(cpu.0 as usize, pages);
            }
            Event::BulkFree { reason, pages, .. } => {
                self.cached.set(self.cached.get() - i64::from(pages));
                self.holds.borrow_mut().drain(cpu.0 as usize, pages.into());
                if matches!(reason, DrainReason::Decay | DrainReason::Expire) {
                    self.tick_pages.set(self.tick_pages.get() + u64::from(pages));
                }
            }
            Event::Alloc { pfn: Some(pfn), order, .. } => self.course.usage(pfn, order.pages(), 1),
            Event::Free { pfn, order } => self.course.usage(pfn, order.pages(), -1),
            _ => self.notes.note(self.now.get(), cpu, &event),
        }
    }
}

/// Replays the plan under a policy.
pub(super) fn run<P: Policy>(
    setting: &Setting<'_>,
    seed: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, ReplayError> {
    let machine = setting.machine;
    let phases = setting.phase.of_cpus(machine.cpus.len(), seed);
    let observer = Observer {
        cpu: Cell::new(0),
        holds: RefCell::new(Holds::new(machine.cpus.len())),
        cached: Cell::new(0),
        tick_pages: Cell::new(0),
        now: Cell::new(setting.first_ns),
        notes: Notes::new(machine),
        course: Course::new(),
    };
    let cpus: Vec<NodeId> = machine.cpus.iter().map(|&n| NodeId(n)).collect();
    let zones: Vec<ZoneSpec> = machine.zones.iter().map(spec).collect();
    let layout = Layout {
        zones: &zones,
        usable: &[],
        reserved: &[],
        cpus: &cpus,
        distances: &[],
        knobs: Knobs {
            // Nobody reclaims here, so nobody would take a boost back (spec §3.4).
            watermark_boost_factor: 0,
            percpu_pagelist_high_fraction: machine.high_fraction,
            ..Knobs::default()
        },
    };
    let memory = Memory::for_layout(&layout).map_err(refused)?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let yard: Yard<'_, Lock, &Observer, P> =
        Yard::blank(&layout, storage, &observer).map_err(refused)?;
    for (number, zone) in machine.zones.iter().enumerate() {
        yard.restore(id_of(zone), records::<P>(setting, number, &phases)).map_err(|e| {
            let what = format!("node {} zone {}: {e}", zone.node, zone.kind);
            ReplayError::machine(what, "check that the state files belong to this trace")
        })?;
    }
    for (cpu, &slice) in machine.caches.iter().enumerate() {
        yard.set_cache_slice(CpuId(cpu as u32), slice);
    }
    let mut driver = Driver {
        machine,
        yard: &yard,
        gfp: machine.zones.iter().map(|z| zone_flags(z.kind)).collect(),
        observer: &observer,
        map: FrameMap::new(&setting.start.frames),
        silents: Vec::new(),
        silent: None,
        idle: Idle::default(),
        ticks: Ticks::new(setting.first_ns, machine.stat_interval_s, &phases, seed),
        figures: Figures::default(),
        matching: Matching::default(),
    };
    driver.count_idle();
    let before = observer.notes.sample(&yard);
    if setting.record {
        observer.course.begin(setting.first_ns, &yard);
    }
    let mut gone = setting.start.gone.iter().peekable();
    setting.plan.for_each(|number, op| {
        while let Some(g) = gone.next_if(|g| g.op <= number) {
            driver.vanish(g.slot, g.pages);
        }
        driver.perform(op);
        if number & 0xfff == 0 {
            driver.count_idle();
            progress(number);
        }
    })?;
    driver.flush();
    let held = setting.requests.map(|r| held(machine, &yard, &driver.map, r));
    let figures = driver.finish();
    let track = observer.course.end(observer.now.get(), &yard);
    let ns = observer.now.get().saturating_sub(setting.first_ns);
    Ok(Outcome { figures, explained: observer.notes.explain(&before, ns, &yard), held, track })
}

fn refused(e: InitError) -> ReplayError {
    ReplayError::machine(e.to_string(), "check that the state files belong to this trace")
}

fn id_of(zone: &MachineZone) -> ZoneId {
    ZoneId { node: NodeId(zone.node), kind: zone.kind }
}

fn spec(zone: &MachineZone) -> ZoneSpec {
    ZoneSpec { kind: zone.kind, node: NodeId(zone.node), span: Pfn(zone.start)..Pfn(zone.end()) }
}

/// Flags by type that make a zone the first that a request tries (spec §2.3).
fn zone_flags(kind: ZoneKind) -> [Gfp; 3] {
    let zone = match kind {
        ZoneKind::Dma => Gfp::DMA,
        ZoneKind::Dma32 => Gfp::DMA32,
        ZoneKind::Normal => Gfp::empty(),
        ZoneKind::Movable | ZoneKind::Device => {
            return [Gfp::THISNODE | Gfp::HIGHMEM | Gfp::MOVABLE; 3];
        }
    };
    let zone = zone | Gfp::THISNODE;
    [zone, zone | Gfp::MOVABLE, zone | Gfp::RECLAIMABLE]
}

/// The limits that a policy gives a zone's lists (spec §5.4), from the recorded batch.
fn limits<P: Policy>(machine: &Machine, zone: &MachineZone) -> Limits {
    let low = zone.watermarks[1] + zone.boost;
    let size =
        |fraction| high_size(zone.managed, low, machine.cpus_of(zone.node), fraction, zone.batch);
    let fraction = machine.high_fraction;
    let high_min = size(fraction);
    let fixed = fraction != 0 || matches!(P::RULES.pcp.growth, Growth::Fixed);
    Limits { batch: zone.batch, high_min, high_max: if fixed { high_min } else { size(8) } }
}

/// Rule 10: `high` when recording began. What ticks took from it until the snapshot is undone.
fn first_high(setting: &Setting<'_>, limits: Limits, high: i64, count: i64, phase: f64) -> i32 {
    let machine = setting.machine;
    let mut high = high;
    if machine.kernel == Kernel::Linux612 {
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

/// The records from which a zone of the machine is restored.
fn records<'a, P: Policy>(
    setting: &'a Setting<'a>,
    number: usize,
    phases: &'a [f64],
) -> impl Iterator<Item = Record> + 'a {
    let (machine, start) = (setting.machine, setting.start);
    let zone = &machine.zones[number];
    let limits = limits::<P>(machine, zone);
    let base = machine.base();
    let pfn = move |frame: usize| Pfn(base + frame as u64);
    let first = (zone.start - base) as usize;
    let frames = first..first + zone.spanned as usize;
    let free = start.frames[frames.clone()].iter().filter(|&&f| f & FREE != 0).count();
    let dma32 = |z: &MachineZone| z.node == zone.node && z.kind == ZoneKind::Dma32;
    let one_node = machine.zones.iter().all(|z| z.node == zone.node);
    let nofragment = zone.kind == ZoneKind::Normal && (one_node || machine.zones.iter().any(dma32));
    // What the kernel held on lists that this policy does not have is free in the zone.
    let kept = |list: usize| P::RULES.high_order_lists || list_order(list) == 0;
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
        boost: zone.boost,
        flags: 0,
        reserved_highatomic: 0,
        isolated_blocks: 0,
        lowmem_reserve: zone.lowmem_reserve,
        nr_free: free,
        limits,
        nofragment,
        ungrouped: machine.ungrouped(),
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

fn order_of(order: u8) -> Order {
    Order::new(order).unwrap_or_default()
}

/// Drives the allocator through the plan.
struct Driver<'y, 'a, P> {
    machine: &'y Machine,
    yard: &'y Yard<'a, Lock, &'a Observer, P>,
    gfp: Vec<[Gfp; 3]>,
    observer: &'y Observer,
    map: FrameMap,
    /// Frames of a run of silent pages, and the CPU, zone and type of the run.
    silents: Vec<u32>,
    silent: Option<(u16, usize, u8)>,
    idle: Idle,
    ticks: Ticks,
    figures: Figures,
    matching: Matching,
}

impl<P: Policy> Driver<'_, '_, P> {
    /// Whether this policy keeps blocks of this order on its lists.
    fn caches(order: u8) -> bool {
        order == 0 || P::RULES.high_order_lists && is_cached(order)
    }

    fn zone_of(&self, frame: u32) -> usize {
        self.machine.zone_of(self.machine.base() + u64::from(frame)).unwrap_or(0)
    }

    fn flags(&self, zone: usize, migratetype: u8, gfp: u8) -> Gfp {
        let by_type = &self.gfp[zone];
        let kind = by_type.get(usize::from(migratetype)).copied().unwrap_or(by_type[1]);
        kind | Gfp::from_bits_retain(unpack_gfp(gfp) & !ZONE_BITS)
    }

    #[inline(always)]
    fn perform(&mut self, op: &Op) {
        let zone = self.zone_of(op.frame);
        if self.silent.is_some() {
            let run = op.kind == OpKind::Silent
                && op.order == 0
                && self.silent == Some((op.cpu, zone, op.migratetype));
            if run {
                return self.silents.push(op.frame);
            }
            self.flush();
        }
        self.idle.until(op.t_ns);
        self.observer.now.set(op.t_ns);
        if self.observer.course.is_due(op.t_ns) {
            self.observer.course.sample(op.t_ns, self.yard);
        }
        let missed = self.ticks.since(op.cpu.into(), op.t_ns);
        self.observer.cpu.set(op.cpu.into());
        if missed > 0 {
            self.tick(op.cpu, missed);
        }
        match op.kind {
            OpKind::Alloc => {
                self.alloc(zone, op);
                self.observer.holds.borrow_mut().other(op.cpu.into());
            }
            OpKind::Free | OpKind::FreeDirect => {
                self.observer.holds.borrow_mut().other(op.cpu.into());
                self.free(op);
            }
            OpKind::Silent if op.order == 0 => {
                self.silent = Some((op.cpu, zone, op.migratetype));
                self.silents.push(op.frame);
            }
            OpKind::Silent => self.alloc(zone, op),
            OpKind::DrainAll => {
                self.yard.drain_all(Some(id_of(&self.machine.zones[zone])));
            }
        }
        self.idle.now += self.observer.cached.take();
    }

    #[cold]
    fn tick(&mut self, cpu: u16, times: i64) {
        for _ in 0..times {
            self.yard.tick(CpuId(cpu.into()));
        }
    }

    #[inline(always)]
    fn alloc(&mut self, zone: usize, op: &Op) {
        let yard = self.yard;
        let order = order_of(op.order);
        let silent = op.kind == OpKind::Silent;
        let extra = if silent { SILENT_GFP } else { op.gfp };
        let flags = self.flags(zone, op.migratetype, extra);
        match self
            .alloc_in(zone, order, flags)
            .or_else(|e| self.elsewhere(zone, op, flags).ok_or(e))
        {
            Ok(pfn) => {
                if op.migratetype == 1 {
                    // It goes to a user, so it is on a reclaim list and can be moved.
                    let _ = yard.set_movable(pfn, order, true);
                }
                if Self::caches(op.order) {
                    self.idle.now -= 1 << op.order;
                }
                if !silent {
                    self.figures.alloc_blocks += 1;
                    self.figures.alloc_pages += 1 << op.order;
                }
                let ours = (pfn.0 - self.machine.base()) as u32;
                if let Some((old, order)) = self.map.put(op.frame, ours, op.order) {
                    // The trace never freed what it had here before.
                    self.matching.replaced += 1;
                    let pfn = Pfn(self.machine.base() + u64::from(old));
                    let _ = yard.free_direct(pfn, order_of(order));
                }
            }
            Err(_) => {
                self.figures.failed += 1;
                self.map.put_failed(op.frame);
            }
        }
    }

    /// The recorded zone has nothing left under this policy: another of the node may, where the
    /// request was free to use it.
    #[cold]
    fn elsewhere(&self, zone: usize, op: &Op, flags: Gfp) -> Option<Pfn> {
        let asked = op.kind == OpKind::Silent || unpack_gfp(op.gfp) & ZONE_BITS == 0;
        let flags = flags.difference(Gfp::DMA | Gfp::DMA32);
        if asked { self.alloc_in(zone, order_of(op.order), flags).ok() } else { None }
    }

    /// From the recorded zone's node, whatever CPU asks.
    #[inline(always)]
    fn alloc_in(&self, zone: usize, order: Order, flags: Gfp) -> Result<Pfn, AllocError> {
        let node = NodeId(self.machine.zones[zone].node);
        if self.machine.cpus[self.observer.cpu.get() as usize] == node.0 {
            self.yard.alloc(order, flags)
        } else {
            self.yard.alloc_on(node, order, flags)
        }
    }

    #[inline(always)]
    fn free(&mut self, op: &Op) {
        let yard = self.yard;
        let base = self.machine.base();
        self.matching.frees += 1;
        let taken = self.map.take(self.machine, op.frame, op.order, |frame, from, into| {
            let _ = yard.split(Pfn(base + u64::from(frame)), order_of(from), order_of(into));
        });
        let ours = match taken {
            Taken::Block(frame) => Pfn(base + u64::from(frame)),
            Taken::Failed => return self.matching.of_failed += 1,
            Taken::Unknown => return self.matching.unmatched += 1,
        };
        let order = order_of(op.order);
        let direct = op.kind == OpKind::FreeDirect;
        let done = if direct { yard.free_direct(ours, order) } else { yard.free(ours, order) };
        if done.is_err() {
            return self.matching.unmatched += 1;
        }
        self.figures.free_blocks += 1;
        self.figures.free_pages += 1 << op.order;
        if !direct && Self::caches(op.order) {
            self.idle.now += 1 << op.order;
        }
    }

    /// Performs a run of silent pages: a bulk request (spec §6.1).
    #[cold]
    fn flush(&mut self) {
        let Some((cpu, zone, migratetype)) = self.silent.take() else { return };
        self.observer.cpu.set(cpu.into());
        let frames = std::mem::take(&mut self.silents);
        let got = self.bulk(zone, migratetype, frames.len(), |driver, i, ours| {
            if let Some((old, order)) = driver.map.put(frames[i], ours, 0) {
                driver.matching.replaced += 1;
                let pfn = Pfn(driver.machine.base() + u64::from(old));
                let _ = driver.yard.free_direct(pfn, order_of(order));
            }
        });
        for &frame in &frames[got..] {
            self.figures.failed += 1;
            self.map.put_failed(frame);
        }
        self.silents = frames;
        self.silents.clear();
    }

    /// Pages that the trace never shows leave a list.
    #[cold]
    fn vanish(&mut self, slot: usize, pages: usize) {
        self.flush();
        let cpus = self.machine.cpus.len();
        self.observer.cpu.set((slot % cpus) as u32);
        self.bulk(slot / cpus, 0, pages, |_, _, _| {});
    }

    /// So many single pages as bulk requests; how many there were.
    fn bulk(
        &mut self,
        zone: usize,
        migratetype: u8,
        n: usize,
        mut each: impl FnMut(&mut Self, usize, u32),
    ) -> usize {
        let yard = self.yard;
        let flags = self.flags(zone, migratetype, SILENT_GFP);
        let mut got: Vec<u32> = Vec::with_capacity(n);
        let base = self.machine.base();
        while got.len() < n {
            let before = got.len();
            let node = NodeId(self.machine.zones[zone].node);
            let _ =
                yard.alloc_bulk_each_on(node, n - before, flags, |p| got.push((p.0 - base) as u32));
            if got.len() == before {
                break;
            }
        }
        self.idle.now -= got.len() as i64;
        self.idle.now += self.observer.cached.take();
        for (i, &ours) in got.iter().enumerate() {
            if migratetype == 1 {
                let _ = yard.set_movable(Pfn(base + u64::from(ours)), Order::ZERO, true);
            }
            each(self, i, ours);
        }
        got.len()
    }

    /// Counts the pages on all lists anew: what went past them was not noticed.
    fn count_idle(&mut self) {
        let mut pages = 0;
        for zone in &self.machine.zones {
            for cpu in 0..self.machine.cpus.len() {
                let set = self.yard.pageset(id_of(zone), CpuId(cpu as u32));
                pages += set.map_or(0, |t| i64::from(t.count));
            }
        }
        self.idle.now = pages;
    }

    fn finish(self) -> Figures {
        let mut f = self.figures;
        (f.idle_peak, f.idle_mean) = self.idle.figures(0);
        f.moved = self.observer.holds.borrow().moved;
        f.matching = Some(self.matching);
        f.tick_pages = Some(self.observer.tick_pages.get());
        let mut blocks = [0; 11];
        let (mut holds, mut mismatches, mut free_high) = (0, 0, (0, 0));
        let yard = self.yard;
        for zone in self.machine.zones.iter().map(id_of) {
            let Some(s) = yard.zone_stats(zone) else { continue };
            f.zone_pages += s.pages_taken;
            f.claims += s.claims_whole + s.claims_part;
            f.steals += s.steals;
            holds += s.lock_holds;
            mismatches += s.mismatches;
            let mut sum = CpuStats::default();
            for cpu in 0..self.machine.cpus.len() {
                if let Some(c) = yard.cpu_stats(zone, CpuId(cpu as u32)) {
                    sum.add(&c);
                }
            }
            free_high.0 += sum.drains[DrainReason::FreeHigh as usize];
            free_high.1 += sum.drained_pages[DrainReason::FreeHigh as usize];
            for (o, n) in yard.free_blocks(zone).unwrap_or_default().into_iter().enumerate() {
                blocks[o] += n;
            }
        }
        f.lock_holds = Some(holds);
        f.mismatches = Some(mismatches);
        f.free_high_drains = Some(free_high.0);
        f.free_high_pages = Some(free_high.1);
        f.unusable_9 = Some(unusable_index(&blocks, Order::HUGE));
        f
    }
}

/// KSWAPD_RECLAIM and DIRECT_RECLAIM: what silent requests are taken to be (kernel stacks).
const SILENT_GFP: u8 = 2 | 4;
