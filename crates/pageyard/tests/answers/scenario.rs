//! One scenario: a machine, and random calls of the yard with their answers logged.

use std::fmt::Debug;

use pageyard::tuning::CacheSlice;
use pageyard::{
    Context, CpuId, Cpuset, Gfp, MigrateType, NodeChoice, NodeId, NodeMask, Order, Pfn, Place,
    Priority, ReclaimTask, SECTION_PAGES, TaskFlags, ZoneId,
};

use crate::actor::{Actor, Mood, Y};
use crate::common::{Chosen, Machine, all_records, leaked, o};

/// What a step does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Alloc,
    AllocMany,
    Free,
    FreeMany,
    /// A free by one of the other functions.
    FreeOther,
    Split,
    Batch,
    Bulk,
    Cpu,
    Tick,
    Drain,
    Mood,
    Context,
    Knob,
    CompactKnob,
    Highatomic,
    Kswapd,
    CpuHotplug,
    CompactFor,
    CompactZone,
    CompactAll,
    Background,
    ForgetHints,
    Isolate,
    Cma,
    Contig,
    Place,
    Poison,
    Release,
    Online,
    Offline,
    ReportFree,
    CacheSlice,
    /// Allocates all memory and frees pieces of it.
    Fragment,
}

pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) machine: Machine,
    pub(crate) rules: Chosen,
    /// The steps, by weight.
    pub(crate) acts: &'static [(u32, Act)],
    pub(crate) steps: u32,
    /// Percent of memory that is in use at the start.
    pub(crate) full: u64,
}

impl Scenario {
    /// Runs the scenario. Returns its line of the file.
    pub(crate) fn run(&self, name: &str) -> String {
        let actor: &'static Actor = Box::leak(Box::new(Actor::new(self.seed + 1)));
        let y: &'static Y = leaked(&self.machine, actor, self.rules);
        assert!(actor.yard.set(y).is_ok());
        let run = Run { y, a: actor, machine: &self.machine };
        run.fill(self.full);
        let total: u32 = self.acts.iter().map(|(weight, _)| weight).sum();
        let (mut hash, mut log) = (Hash::new(), String::new());
        let keep = std::env::var_os("PAGEYARD_LOG");
        for step in 0..self.steps {
            let mut at = run.below(total as usize) as u32;
            let act = self.acts.iter().find(|(weight, _)| match at.checked_sub(*weight) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let act = act.unwrap().1;
            run.act(act);
            if step % 16 == 15 || step + 1 == self.steps {
                run.snapshot();
            }
            let text = std::mem::take(&mut actor.state().log);
            hash.add(text.as_bytes());
            if keep.is_some() {
                log += &format!("# {step} {act:?}\n{text}");
            }
        }
        if let Some(directory) = keep {
            let path = std::path::Path::new(&directory).join(format!("{name}-{}", self.seed));
            std::fs::write(path, log).unwrap();
        }
        y.validate().unwrap_or_else(|e| panic!("{name} {}: {e}", self.seed));
        let events = y.vm_events();
        let count = |name| events.by_name(name).unwrap_or(0);
        format!(
            "{}: {} freed, {} compactions, {:016x}",
            self.seed,
            count("pgfree"),
            count("compact_stall"),
            hash.0
        )
    }
}

/// FNV-1a.
struct Hash(u64);

impl Hash {
    fn new() -> Hash {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

struct Run<'r> {
    y: &'static Y,
    a: &'static Actor,
    machine: &'r Machine,
}

const ORDERS: [u8; 16] = [0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 8, 9, 10];

const BASES: [Gfp; 8] = [
    Gfp::KERNEL,
    Gfp::KERNEL.union(Gfp::RECLAIMABLE),
    Gfp::HIGHUSER_MOVABLE,
    Gfp::HIGHUSER_MOVABLE,
    Gfp::ATOMIC,
    Gfp::NOWAIT,
    Gfp::NOFS,
    Gfp::KERNEL.union(Gfp::DMA32),
];

const EXTRAS: [Gfp; 12] = [
    Gfp::NORETRY,
    Gfp::NOFAIL,
    Gfp::RETRY_MAYFAIL,
    Gfp::MEMALLOC,
    Gfp::NOMEMALLOC,
    Gfp::THISNODE,
    Gfp::HARDWALL,
    Gfp::WRITE,
    Gfp::HIGH,
    Gfp::DMA,
    Gfp::NOWARN,
    Gfp::COMP,
];

const PRIORITIES: [Priority; 3] = [Priority::Async, Priority::SyncLight, Priority::SyncFull];

const TYPES: [MigrateType; 4] =
    [MigrateType::Movable, MigrateType::Unmovable, MigrateType::Reclaimable, MigrateType::Cma];

impl Run<'_> {
    fn below(&self, n: usize) -> usize {
        self.a.below(n)
    }

    fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn choose<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn log(&self, what: &str, answer: impl Debug) {
        self.a.log(format_args!("{what} = {answer:?}"));
    }

    fn order(&self) -> Order {
        o(self.choose(&ORDERS))
    }

    fn gfp(&self) -> Gfp {
        let mut gfp = self.choose(&BASES);
        for _ in 0..self.below(3) {
            gfp |= self.choose(&EXTRAS);
        }
        gfp
    }

    /// A node that may not exist.
    fn node(&self) -> NodeId {
        if self.one_in(8) {
            return NodeId(self.below(4) as u16);
        }
        let zones = &self.machine.zones;
        zones[self.below(zones.len())].node
    }

    fn zone(&self) -> ZoneId {
        let ids: Vec<ZoneId> = self.y.zone_ids().collect();
        self.choose(&ids)
    }

    /// A frame of a zone.
    fn frame(&self) -> u64 {
        let zones = &self.machine.zones;
        let span = &zones[self.below(zones.len())].span;
        span.start.0 + self.below((span.end.0 - span.start.0) as usize) as u64
    }

    /// A range of pageblocks or of other aligned frames.
    fn range(&self, least: u64, most: usize) -> std::ops::Range<Pfn> {
        let start = self.frame() / least * least;
        Pfn(start)..Pfn(start + least * (1 + self.below(most) as u64))
    }

    fn own(&self, pfn: Pfn, order: Order) {
        assert!(self.a.state().owned.insert(pfn, order).is_none(), "{pfn} has an owner");
    }

    /// Records an owner of the block, which may be able to move it.
    fn took(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let often = if gfp.contains(Gfp::MOVABLE) { 8 } else { 2 };
        if self.below(10) < often {
            self.y.set_movable(pfn, order, true).unwrap();
        }
        self.own(pfn, order);
    }

    fn alloc_one(&self, order: Order, gfp: Gfp) -> bool {
        let got = match self.below(8) {
            0 => self.y.alloc_on(self.node(), order, gfp),
            1 => self.y.alloc_rest(NodeChoice::LOCAL, order, gfp),
            2 => {
                let allowed = NodeMask::only(self.node()).with(self.node());
                self.y.alloc_on(NodeChoice { preferred: None, allowed }, order, gfp)
            }
            _ => self.y.alloc(order, gfp),
        };
        self.log("alloc", (order, gfp.bits(), got));
        if let Ok(pfn) = got {
            self.took(pfn, order, gfp);
        }
        got.is_ok()
    }

    fn many(&self, order: Order, gfp: Gfp, n: usize) {
        for _ in 0..n {
            let Ok(pfn) = self.y.alloc(order, gfp) else { break };
            self.took(pfn, order, gfp);
        }
    }

    fn free_many(&self, n: usize) {
        for _ in 0..n {
            let Some((pfn, order)) = self.a.pick() else { break };
            self.y.free(pfn, order).unwrap();
        }
    }

    /// Allocates this percentage of memory.
    fn fill(&self, percent: u64) {
        if percent == 0 {
            return;
        }
        let managed: u64 = self.y.zone_ids().map(|z| self.y.zone_info(z).unwrap().managed).sum();
        let wanted = managed * percent / 100;
        let small = managed < 1 << 15;
        let mut pages = 0;
        while pages < wanted {
            let order = match self.below(16) {
                _ if !small => o(5 + self.below(6) as u8),
                0..12 => o(0),
                _ => self.order(),
            };
            let gfp = self.choose(&BASES[..4]) | Gfp::MEMALLOC | Gfp::NOWARN;
            match self.y.alloc(order, gfp) {
                Ok(pfn) => self.took(pfn, order, gfp),
                Err(_) if order == o(0) => break,
                Err(_) => continue,
            }
            pages += u64::from(order.pages());
        }
        self.a.state().log.clear();
    }

    fn fragment(&self) {
        // Without reclaim, which would free as fast as this allocates.
        let gfp = Gfp::MOVABLE | Gfp::HIGHMEM | Gfp::MEMALLOC | Gfp::NOWARN;
        let most = self.choose(&[1, 1, 2, 4]);
        while let Ok(pfn) = self.y.alloc(o(0), gfp) {
            self.took(pfn, o(0), gfp);
            let order = o(self.below(most) as u8);
            if let Ok(pfn) = self.y.alloc(order, gfp) {
                self.took(pfn, order, gfp);
            }
        }
        // Some places become emptier than others.
        let percent: Vec<usize> = (0..64).map(|_| self.choose(&[0, 10, 30, 50, 90])).collect();
        let all: Vec<(Pfn, Order)> = {
            let state = self.a.state();
            state.owned.iter().map(|(&p, &o)| (p, o)).collect()
        };
        for (pfn, order) in all {
            if self.below(100) < percent[(pfn.0 / 300 % 64) as usize] {
                self.a.state().owned.remove(&pfn);
                self.y.free(pfn, order).unwrap();
            }
        }
        if !self.one_in(3) {
            self.y.drain_all(None);
        }
        self.a.state().log.clear();
    }

    fn act(&self, act: Act) {
        let (y, a) = (self.y, self.a);
        match act {
            Act::Alloc => drop(self.alloc_one(self.order(), self.gfp())),
            Act::AllocMany => {
                let order = self.order();
                self.many(order, self.gfp(), (self.below(200) >> (order.get() / 2)) + 1);
            }
            Act::Free => self.free_many(1),
            Act::FreeMany => self.free_many(self.below(200)),
            Act::FreeOther => self.free_other(),
            Act::Split => {
                let Some((pfn, order)) = a.pick() else { return };
                let into = o(self.below(usize::from(order.get()) + 1) as u8);
                self.log("split", (pfn, order, y.split(pfn, order, into)));
                for p in (pfn.0..pfn.0 + u64::from(order.pages())).step_by(1 << into.get()) {
                    self.own(Pfn(p), into);
                }
            }
            Act::Batch => self.batch(),
            Act::Bulk => {
                let gfp = self.gfp();
                let mut slots = vec![None; self.below(150)];
                self.log("bulk", (gfp.bits(), y.alloc_bulk(gfp, &mut slots)));
                for pfn in slots.into_iter().flatten() {
                    self.log("slot", pfn);
                    self.took(pfn, o(0), gfp);
                }
            }
            Act::Cpu => {
                let cpu = self.below(y.cpus() as usize) as u32;
                if y.is_up(CpuId(cpu)) {
                    a.state().cpu = cpu;
                }
            }
            Act::Tick => {
                a.state().clock += 1_000_000_000;
                let cpu = CpuId(self.below(y.cpus() as usize) as u32);
                self.log("tick", y.tick(cpu));
            }
            Act::Drain => {
                let zone = (!self.one_in(3)).then(|| self.zone());
                y.drain_cpu(CpuId(self.below(y.cpus() as usize) as u32), zone);
                if self.one_in(2) {
                    y.drain_all(zone);
                }
            }
            Act::Mood => {
                let mood = Mood {
                    frees: self.choose(&[0, 0, 1, 8, 64, 400]),
                    claims: self.choose(&[0, 0, 0, 1, 32]),
                    reclaimable: self.choose(&[0, 0, 100, 10_000]),
                    stays: self.choose(&[0, 0, 3, 10, 40]),
                    unevictable: self.choose(&[0, 0, 3]),
                    patience: self.below(3) as u32,
                    dirty: self.choose(&[0, 0, 1, 2, 7]),
                    bad: self.choose(&[0, 0, 0, 900]),
                    removes: self.one_in(4),
                    poisons: false,
                    plain: self.one_in(2),
                };
                a.state().mood = mood;
            }
            Act::Context => {
                let allowed = NodeMask::only(self.node()).with(self.node());
                let context = Context {
                    flags: TaskFlags::from_bits_truncate(if self.one_in(2) {
                        0
                    } else {
                        1 << self.below(6)
                    }),
                    without: self.choose(&[
                        Gfp::empty(),
                        Gfp::empty(),
                        Gfp::FS,
                        Gfp::IO,
                        Gfp::MOVABLE,
                    ]),
                    cpuset: self
                        .one_in(2)
                        .then(|| Cpuset { allowed, hardwall: allowed.with(self.node()) }),
                    cookie: self.below(100) as u64,
                };
                a.state().context = context;
            }
            Act::Knob => self.knob(&[
                ("min_free_kbytes", 6000),
                ("watermark_scale_factor", 300),
                ("watermark_boost_factor", 20_000),
                ("percpu_pagelist_high_fraction", 40),
                ("zone_reclaim_mode", 8),
                ("extfrag_threshold", 1000),
            ]),
            Act::CompactKnob => self.knob(&[
                ("extfrag_threshold", 1000),
                ("compact_unevictable_allowed", 2),
                ("compaction_proactiveness", 101),
                ("min_free_kbytes", 2000),
            ]),
            Act::Highatomic => {
                if self.one_in(2) {
                    for _ in 0..4 {
                        self.alloc_one(o(1 + self.below(3) as u8), Gfp::ATOMIC);
                    }
                } else {
                    let t = self.choose(&TYPES[..3]);
                    self.log("unreserve", y.unreserve_highatomic(t, self.one_in(2)));
                }
            }
            Act::Kswapd => self.kswapd(),
            Act::CpuHotplug => {
                let cpu = CpuId(self.below(y.cpus() as usize) as u32);
                if y.is_up(cpu) && cpu.0 != a.state().cpu {
                    self.log("cpu_dead", y.cpu_dead(cpu));
                } else {
                    self.log("cpu_up", y.cpu_up(cpu));
                }
            }
            Act::CompactFor => {
                let (order, gfp) = (self.order(), self.gfp());
                let done = y.compact_for(order, gfp, self.choose(&PRIORITIES));
                self.log("compact_for", (order, gfp.bits(), done));
                if let Some(pfn) = done.ok().and_then(|done| done.captured) {
                    self.took(pfn, order, gfp);
                }
            }
            Act::CompactZone => {
                let (order, zone) = (self.order(), self.zone());
                let order = (!self.one_in(3)).then_some(order);
                let done = y.compact_zone(zone, order, self.choose(&PRIORITIES));
                self.log("compact_zone", (zone, order, done));
            }
            Act::CompactAll => {
                if self.one_in(2) {
                    y.compact_all();
                } else {
                    y.compact_node(self.node());
                }
            }
            Act::Background => self.background(),
            Act::ForgetHints => y.forget_skip_hints(self.node()),
            Act::Isolate => {
                let (range, t) = (self.range(512, 3), self.choose(&TYPES));
                self.log("isolate", (&range, y.isolate(range.clone(), t)));
                if !self.one_in(4) {
                    self.log("unisolate", y.unisolate(range, t));
                }
            }
            Act::Cma => self.log("make_cma", y.make_cma(self.range(512, 2))),
            Act::Contig => {
                let (range, t) = (self.range(self.choose(&[1, 8, 512]), 300), self.choose(&TYPES));
                if range.end.0 - range.start.0 > 2048 {
                    return;
                }
                let got = y.alloc_contig(range.clone(), t, Gfp::KERNEL);
                self.log("alloc_contig", (&range, t, got));
                if got.is_ok() {
                    if self.one_in(2) {
                        self.log("free_contig", y.free_contig(range));
                    } else {
                        (range.start.0..range.end.0).for_each(|p| self.own(Pfn(p), o(0)));
                    }
                }
            }
            Act::Place => {
                let (order, gfp) = (self.order(), self.choose(&BASES));
                let pfn = Pfn(self.frame() >> order.get() << order.get());
                let got = if self.one_in(2) {
                    y.alloc_at(pfn, order, gfp).map(|()| pfn)
                } else {
                    let align = 1 << self.below(12);
                    let below = self.one_in(2).then(|| Pfn(self.frame()));
                    y.alloc_with(order, gfp, Place { align, below })
                };
                self.log("place", (pfn, order, got));
                if let Ok(pfn) = got {
                    self.took(pfn, order, gfp);
                }
            }
            Act::Poison => {
                let pfn = Pfn(self.frame());
                self.log("poison", y.poison_frame(pfn));
                if self.one_in(2) {
                    self.log("unpoison", y.unpoison_frame(pfn));
                }
            }
            Act::Release => {
                // Pages in use are not released.
                let range = self.range(64, 4);
                self.log("release", (&range, y.release(range.clone())));
            }
            Act::ReportFree => {
                a.state().clock += 2_000_000_000;
                self.log("report_free_blocks", y.report_free_blocks());
                self.log("reported", y.reported(self.zone()));
                self.log("lowest", y.take_lowest_free(self.zone()));
            }
            Act::Fragment => self.fragment(),
            Act::CacheSlice => {
                let bytes = self.below(1 << 20) as u64;
                let slice = CacheSlice { last_level: bytes, all_levels: 2 * bytes };
                y.set_cache_slice(CpuId(self.below(y.cpus() as usize) as u32), slice);
            }
            Act::Online | Act::Offline => {
                let range = self.range(SECTION_PAGES, 2);
                if matches!(act, Act::Online) {
                    self.log("online", (&range, y.online(range.clone())));
                } else {
                    self.log("offline", (&range, y.offline(range.clone())));
                }
            }
        }
    }

    fn free_other(&self) {
        let (y, below) = (self.y, self.below(4));
        let Some((pfn, order)) = self.a.pick() else { return };
        match below {
            0 => y.free_direct(pfn, order).unwrap(),
            1 => y.free_owned(pfn, order).unwrap(),
            2 => y.free_rest(pfn, order).unwrap(),
            _ => {
                self.log("free_shared", (pfn, order, y.free_shared(pfn, order)));
                self.own(pfn, o(0));
            }
        }
    }

    fn batch(&self) {
        let mut all: Vec<(Pfn, Order)> =
            (0..self.below(100)).filter_map(|_| self.a.pick()).collect();
        match self.below(3) {
            0 => self.log("free_batch", self.y.free_batch(&all)),
            1 => self.log("free_batch_owned", self.y.free_batch_owned(&all)),
            _ => {
                let order = all.first().map_or(o(0), |b| b.1);
                let (same, others) = all.drain(..).partition::<Vec<_>, _>(|b| b.1 == order);
                others.into_iter().for_each(|(pfn, order)| self.own(pfn, order));
                let same: Vec<Pfn> = same.into_iter().map(|b| b.0).collect();
                self.log("free_batch_of", self.y.free_batch_of(order, &same));
            }
        }
    }

    fn knob(&self, knobs: &[(&str, usize)]) {
        let (name, most) = self.choose(knobs);
        let value = self.below(most).to_string();
        self.log(name, (&value, self.y.set_knob(name, &value)));
    }

    fn kswapd(&self) {
        let Some(mut kswapd) = self.y.kswapd(self.node()) else { return };
        let mut freed = 0;
        for _ in 0..20 {
            let task = kswapd.next(freed);
            self.log("kswapd", task);
            match task {
                ReclaimTask::Reclaim(_) => {
                    let n = self.choose(&[0, 0, 8, 64]);
                    freed = n as u64;
                    self.free_many(n);
                }
                ReclaimTask::Nap(_) => freed = 0,
                ReclaimTask::Sleep => break,
            }
        }
    }

    fn background(&self) {
        let (y, node) = (self.y, self.node());
        match self.below(6) {
            0 => y.trigger_proactive_compaction(),
            1 | 2 => y.request_compaction(node, self.order(), self.zone().kind),
            3 => drop(y.set_reclaim_active(self.zone(), self.one_in(3))),
            _ => {}
        }
        self.a.state().clock += 1_000_000 * self.choose(&[0, 1, 400, 600, 33_000]);
        self.log("score", y.fragmentation_score(node));
        self.log("background", y.compact_background(node));
    }

    /// Logs the state of all zones, except for blocks in use, whose addresses were logged as
    /// answers.
    fn snapshot(&self) {
        let y = self.y;
        for (id, records) in all_records(y) {
            for record in records {
                if !matches!(record, pageyard::Record::Allocated { .. }) {
                    self.log("record", record);
                }
            }
            self.log("info", y.zone_info(id));
            self.log("stats", y.zone_stats(id));
            self.log("deferral", y.deferral(id));
            for cpu in 0..y.cpus() {
                self.log("cpu", y.cpu_stats(id, CpuId(cpu)));
            }
        }
        let movable: u64 = y.zone_ids().filter_map(|z| y.out_of_use(z)).map(|o| o.bad).sum();
        self.log("compact_stats", (y.compact_stats(), movable));
        self.log("vm_events", y.vm_events());
    }
}
