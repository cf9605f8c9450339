//! The second pass: a mirror of the recorded per-CPU lists. It follows every page on and off its
//! list. From that it derives what no event shows: the initial contents of the lists, the pages
//! that left a list without an event, and the list on which each free lands. Rule numbers in
//! comments refer to the list in `docs/replay.md`.

mod events;

use std::collections::HashSet;

use pageyard::PAGEBLOCK_ORDER;
use pageyard_trace::Event;
use serde::Serialize;

use crate::replay::counts::{Holds, Idle};
use crate::replay::error::ReplayError;
use crate::replay::figures::Figures;
use crate::replay::follow::Follow;
use crate::replay::lists::{LISTS, Lists, is_cached, list_index, list_order, list_type};
use crate::replay::machine::Machine;
use crate::replay::migrations::MigrationSource;
use crate::replay::names::Names;
use crate::replay::plan::{Op, OpKind, Origin, Plan, PlanWriter, pack_gfp};
use crate::replay::requests::Requests;
use crate::replay::scan::Scan;

/// Frame flag: the frame appears in the trace.
pub(super) const SEEN: u8 = 1;
/// Frame flag: an earlier operation already used the frame.
const TOUCHED: u8 = 2;
/// Frame flag: the trace shows whether the frame was free at the start.
pub(super) const KNOWN: u8 = 4;
/// Frame flag: the frame was free at the start.
pub(super) const KNOWN_FREE: u8 = 8;

/// One CPU's lists in one zone.
pub(super) struct Slot {
    /// Per list: frames that were on it at the start and left it at the head, in order.
    pub(super) heads: [Vec<u32>; LISTS],
    /// Per list: frames that were on it at the start and left it at the tail, in order.
    pub(super) tails: [Vec<u32>; LISTS],
    /// One bit per list: the list has been empty since the start, so its initial contents are
    /// known.
    pub(super) closed: u16,
    /// Number of the operation before which list 0 was closed.
    pub(super) closed_0_at: u64,
    /// Pages added to the lists minus pages removed.
    net: i64,
    /// `net` at the first snapshot, and at the second.
    pub(super) net_start: i64,
    pub(super) net_end: i64,
    last_op: u64,
}

/// State of a CPU.
#[derive(Clone, Copy, Default)]
struct Cpu {
    /// The list that is being refilled, plus one.
    refill: usize,
    /// The slot and list that are being drained, plus one.
    drain: usize,
    /// The task whose batch is being freed here, plus one. It holds the lists' lock.
    commit: u32,
    /// The frame that the zone supplies directly to a request, plus one.
    direct: u32,
    /// Whether a direct reclaim or a compaction ended here since this CPU's last page event other
    /// than a drain.
    ended: bool,
    /// Number of the current run of drains. Any other page event, and the end of a direct reclaim or
    /// a compaction, begins another one.
    run: u64,
}

/// How well the trace could be reconstructed. Counts are in blocks unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Understanding {
    /// Pages that left their list without an event.
    pub silent_pages: u64,
    /// Frees that bypassed the lists because the lists were locked.
    pub bypassing_frees: u64,
    /// Requests that took their block from the zone because the lists were locked.
    pub bypassing_allocs: u64,
    /// Blocks that the trace frees without having allocated them: they were in use at its start.
    pub live_before: u64,
    /// Requests served from a list that should not have contained the block.
    pub unexplained_allocs: u64,
    /// Drains of blocks that were on no list.
    pub unexplained_drains: u64,
    /// Blocks that the mirror still had on a list when the zone supplied them. Their free had
    /// bypassed the lists.
    pub unexplained_refills: u64,
    /// Explicitly requested drains of all CPUs' lists.
    pub requested_drains: u64,
    /// Blocks that compaction moved to other frames, which no event shows.
    pub migrated: u64,
    /// How these are known.
    pub migrations: MigrationSource,
    /// Requests that got a block which compaction had just made.
    pub captured: u64,
}

pub(super) struct Mirror<'m, 's> {
    machine: &'m Machine,
    scan: &'s Scan<'m>,
    /// The record before which the map of all frames was read; `u64::MAX` without a map.
    map_at: u64,
    lists: Lists,
    pub(super) slots: Vec<Slot>,
    cpus: Vec<Cpu>,
    /// Per task: blocks of its batch that are announced but not yet freed.
    pending: Vec<i32>,
    /// Tasks that compact. What they free, they have moved.
    compacting: HashSet<u32>,
    /// Per frame: the order of its last free.
    orders: Vec<u8>,
    pub(super) flags: Vec<u8>,
    /// Per frame: order plus one of a block that was in use at the start and begins there.
    pub(super) live: Vec<u8>,
    block_types: Vec<u8>,
    /// Per zone: the CPU, and its run of drains, of the last requested drain of all lists.
    requested: Vec<Option<(usize, u64)>>,
    plan: PlanWriter,
    pub(super) holds: Holds,
    pub(super) idle: Idle,
    /// What single events count; the other figures are added at the end.
    pub(super) recorded: Figures,
    pub(super) understanding: Understanding,
    snapshots: u8,
    /// Per CPU: the frame of an EXTFRAG event just before, plus one.
    claimed: Vec<u32>,
    /// Number of background reclaim starts and ends processed so far.
    transitions: usize,
    t_ns: u64,
    origin: Origin,
    /// The origin of each request, if it is needed.
    pub(super) requests: Option<Requests>,
    /// The names of all tasks, if they are needed.
    pub(super) names: Option<Names>,
    /// What follows the recorded state, in a pass after the one that finds its start.
    pub(super) follower: Option<&'s mut dyn Follow>,
}

impl<'m, 's> Mirror<'m, 's> {
    pub(super) fn new(
        machine: &'m Machine,
        scan: &'s Scan<'m>,
        plan: PlanWriter,
        has_frame_map: bool,
    ) -> Mirror<'m, 's> {
        let frames = machine.frames();
        let slots = machine.zones.len() * machine.cpus.len();
        Mirror {
            machine,
            scan,
            map_at: if has_frame_map { scan.frame_map } else { u64::MAX },
            lists: Lists::new(frames, slots),
            slots: (0..slots)
                .map(|_| Slot {
                    heads: Default::default(),
                    tails: Default::default(),
                    closed: 0,
                    closed_0_at: 0,
                    net: 0,
                    net_start: 0,
                    net_end: 0,
                    last_op: 0,
                })
                .collect(),
            cpus: vec![Cpu::default(); machine.cpus.len()],
            pending: Vec::new(),
            compacting: HashSet::new(),
            orders: vec![0; frames],
            flags: vec![0; frames],
            live: vec![0; frames],
            block_types: scan.block_types.iter().map(|t| t.saturating_sub(1)).collect(),
            requested: vec![None; machine.zones.len()],
            plan,
            holds: Holds::new(machine.cpus.len()),
            idle: Idle::default(),
            recorded: Figures::default(),
            understanding: Understanding::default(),
            snapshots: 0,
            claimed: vec![0; machine.cpus.len()],
            transitions: 0,
            t_ns: 0,
            origin: Origin::default(),
            requests: None,
            names: None,
            follower: None,
        }
    }

    /// Returns, per pageblock, the first type that the trace shows.
    pub(super) fn first_types(&self) -> impl Iterator<Item = Option<u8>> {
        self.scan.block_types.iter().map(|t| t.checked_sub(1))
    }

    /// Ends the pass and takes the snapshots still due.
    pub(super) fn finish(&mut self) {
        self.take_snapshots(u64::MAX);
    }

    /// Returns the finished plan and drops all other state.
    pub(super) fn into_plan(self) -> Result<Plan, ReplayError> {
        self.plan.finish()
    }

    fn take_snapshots(&mut self, record: u64) {
        if self.snapshots == 0 && record >= self.scan.snapshot_start {
            self.slots.iter_mut().for_each(|s| s.net_start = s.net);
            self.snapshots = 1;
        }
        if self.snapshots == 1 && record >= self.scan.snapshot_end.unwrap_or(u64::MAX) {
            self.slots.iter_mut().for_each(|s| s.net_end = s.net);
            self.snapshots = 2;
        }
    }

    #[inline(always)]
    fn add(&mut self, slot: usize, pages: i64) {
        self.slots[slot].net += pages;
        self.idle.now += pages;
        if let Some(follower) = &mut self.follower {
            follower.listed(slot, pages);
        }
    }

    fn emit(&mut self, kind: OpKind, slot: usize, frame: u32, order: u8, migratetype: u8, gfp: u8) {
        let cpu = (slot % self.cpus.len()) as u16;
        self.slots[slot].last_op = self.plan.len();
        let (t_ns, origin) = (self.t_ns, self.origin);
        self.plan.push(Op { t_ns, frame, kind, order, migratetype, cpu, gfp, origin });
        if let Some(follower) = &mut self.follower {
            follower.operation(kind, t_ns, frame, order);
        }
        if kind != OpKind::DrainAll {
            self.touch(frame, order, kind);
        }
    }

    /// Emits the starts and ends of background reclaim up to now.
    fn reclaim_until(&mut self, t_ns: u64, cpu: usize) {
        while let Some(turn) =
            self.scan.transitions.get(self.transitions).filter(|turn| turn.t_ns <= t_ns)
        {
            self.transitions += 1;
            let Some(zone) = self.machine.zones.iter().find(|z| z.node == turn.node) else {
                continue;
            };
            self.plan.push(Op {
                t_ns: turn.t_ns,
                frame: (zone.start - self.machine.base()) as u32,
                kind: if turn.begins { OpKind::ReclaimBegins } else { OpKind::ReclaimEnds },
                order: 0,
                migratetype: 0,
                cpu: cpu as u16,
                gfp: 0,
                origin: Origin::default(),
            });
        }
    }

    /// Emits a failed request. Its zone is the highest that it may use on its CPU's node.
    fn refused(&mut self, event: &Event, order: u8, migratetype: u8, gfp: u32) {
        let Some(zone) = self.machine.zone_for(event.cpu, gfp) else { return };
        let zone = &self.machine.zones[zone];
        self.plan.push(Op {
            t_ns: event.t_ns,
            frame: (zone.start - self.machine.base()) as u32,
            kind: OpKind::Refused,
            order,
            migratetype,
            cpu: event.cpu,
            gfp: pack_gfp(gfp),
            origin: self.origin,
        });
    }

    /// Marks the frames of an operation. A frame whose first operation is a free was in use at the
    /// start.
    #[inline(always)]
    fn touch(&mut self, frame: u32, order: u8, kind: OpKind) {
        let at = frame as usize;
        let free = matches!(kind, OpKind::Free | OpKind::FreeDirect | OpKind::Migrated);
        if free && self.flags[at] & TOUCHED == 0 {
            self.live[at] = order + 1;
            self.understanding.live_before += 1;
        }
        for f in &mut self.flags[at..at + (1 << order)] {
            *f |= SEEN | TOUCHED;
        }
    }

    /// Notes that the zone supplied or received these frames. Before the map of all frames was
    /// read, this shows whether they were free at the start.
    #[inline(always)]
    fn zone_event(&mut self, record: u64, frame: u32, order: u8, was_free: bool) {
        let before = record < self.map_at;
        for f in &mut self.flags[frame as usize..frame as usize + (1 << order)] {
            *f |= SEEN;
            if before && *f & KNOWN == 0 {
                *f |= KNOWN | if was_free { KNOWN_FREE } else { 0 };
            }
        }
    }

    /// Emits the removal of a list's head without an event.
    fn silent(&mut self, slot: usize, list: usize, frame: u32) {
        self.lists.remove(frame);
        let order = list_order(list);
        self.add(slot, -(1 << order));
        self.understanding.silent_pages += 1 << order;
        self.emit(OpKind::Silent, slot, frame, order, list_type(list), 0);
        if let Some(requests) = &mut self.requests {
            requests.silent(frame, order);
        }
    }

    /// Returns whether compaction had just made this block for the request: it comes neither from a
    /// list nor from the zone's.
    fn is_captured(&self, slot: usize, order: u8, migratetype: u8, frame: u32) -> bool {
        order > 0
            && is_cached(order)
            && self.scan.migrations.source() != MigrationSource::None
            && self.lists.list_of(frame).is_none()
            && self.slots[slot].closed >> list_index(order, migratetype) & 1 != 0
    }

    /// Rule 4: a request takes its block from the head of its list. Blocks above it had already
    /// left.
    fn take(&mut self, slot: usize, order: u8, migratetype: u8, frame: u32) {
        let list = list_index(order, migratetype);
        let id = slot * LISTS + list;
        match self.lists.list_of(frame) {
            Some(at) if at == id => {
                while let Some(head) = self.lists.head(id) {
                    if head == frame {
                        break;
                    }
                    self.silent(slot, list, head);
                }
                self.lists.remove(frame);
            }
            Some(_) => {
                self.understanding.unexplained_allocs += 1;
                self.lists.remove(frame);
            }
            None if self.slots[slot].closed >> list & 1 == 0 => {
                while let Some(head) = self.lists.head(id) {
                    self.silent(slot, list, head);
                }
                self.slots[slot].heads[list].push(frame);
            }
            None => self.understanding.unexplained_allocs += 1,
        }
        self.add(slot, -(1 << order));
    }

    /// Rules 2, 3 and 7: frees a block to its list or, if the lists are locked, directly to the
    /// zone.
    fn free(&mut self, event: &Event, frame: u32, zone: usize, locked: bool, in_run: bool) {
        let order = self.orders[frame as usize];
        let slot = zone * self.cpus.len() + usize::from(event.cpu);
        let moved = match self.scan.migrations.source() {
            MigrationSource::Recorded => self.compacting.contains(&event.task),
            MigrationSource::Inferred => in_run,
            MigrationSource::None => false,
        };
        self.understanding.migrated += u64::from(moved);
        let kind = if moved { OpKind::Migrated } else { OpKind::Free };
        if !is_cached(order) {
            return self.emit(kind, slot, frame, order, 0, 0);
        }
        if locked {
            self.understanding.bypassing_frees += 1;
            return self.emit(OpKind::FreeDirect, slot, frame, order, 0, 0);
        }
        if let Some(id) = self.lists.list_of(frame) {
            self.freed_on_list(id, frame);
        }
        let migratetype = self.block_types[self.machine.block_of(frame)];
        let list = slot * LISTS + list_index(order, migratetype);
        self.lists.push_front(list, frame);
        self.add(slot, 1 << order);
        self.emit(kind, slot, frame, order, migratetype & 7, 0);
    }

    /// Handles the free of a page that the mirror has on a list. The page had left the list, with
    /// all pages above it unless it lies too deep.
    #[cold]
    fn freed_on_list(&mut self, id: usize, frame: u32) {
        let (slot, list) = (id / LISTS, id % LISTS);
        if self.lists.is_near_head(id, frame, 64) {
            while let Some(head) = self.lists.head(id).filter(|&head| head != frame) {
                self.silent(slot, list, head);
            }
        }
        self.silent(slot, list, frame);
    }

    /// Rule 5: the zone supplies a block for a per-CPU list. Returns whether it does: a single block
    /// that a request gets at once (`followed`) bypassed the list, which was locked. A refill would have
    /// taken more, except where the zone has no more, as with huge pages.
    fn refill(
        &mut self,
        cpu: usize,
        zone: usize,
        frame: u32,
        order: u8,
        mt: u8,
        followed: bool,
    ) -> bool {
        let first_op = self.plan.len();
        self.unlist(frame, order);
        let slot = zone * self.cpus.len() + cpu;
        let list = list_index(order, mt);
        let id = slot * LISTS + list;
        let running = self.cpus[cpu].refill;
        let single = running == 0 && followed;
        let takes_more = order < PAGEBLOCK_ORDER && self.machine.zones[zone].batch > 1;
        if single && (takes_more || !self.lists.is_empty(id)) {
            self.cpus[cpu].direct = frame + 1;
            self.understanding.bypassing_allocs += 1;
            return false;
        }
        if running != id + 1 {
            while let Some(head) = self.lists.head(id) {
                self.silent(slot, list, head);
            }
            self.close(slot, list, first_op);
            self.cpus[cpu].refill = id + 1;
        }
        self.lists.push_back(id, frame);
        self.add(slot, 1 << order);
        true
    }

    fn close(&mut self, slot: usize, list: usize, before_op: u64) {
        let s = &mut self.slots[slot];
        if s.closed >> list & 1 == 0 {
            s.closed |= 1 << list;
            if list == 0 {
                s.closed_0_at = before_op;
            }
        }
    }

    /// Removes from their lists all blocks that overlap a block from the zone. Their frees had
    /// bypassed the lists.
    fn unlist(&mut self, frame: u32, order: u8) {
        for f in frame..frame + (1 << order) {
            self.unlist_one(f, 0);
        }
        for o in 1..=3 {
            let head = self.machine.align_down(frame, o);
            if let Some(head) = head.filter(|&h| h != frame) {
                self.unlist_one(head, o);
            }
        }
    }

    #[inline(always)]
    fn unlist_one(&mut self, frame: u32, at_least: u8) {
        if let Some(id) = self.lists.list_of(frame) {
            let order = list_order(id % LISTS);
            if order >= at_least {
                self.understanding.unexplained_refills += 1;
                self.lists.remove(frame);
                self.add(id / LISTS, -(1 << order));
            }
        }
    }

    /// Rule 6: a block moves from the tail of a per-CPU list to the zone.
    fn drain(&mut self, cpu: usize, zone: usize, frame: u32, order: u8, mt: u8) {
        let slot = zone * self.cpus.len() + cpu;
        let on = self.lists.list_of(frame);
        let list = on.map_or_else(|| list_index(order, mt), |id| id % LISTS);
        if on.is_none_or(|id| id / LISTS == slot) {
            let was = self.cpus[cpu].drain.checked_sub(1).filter(|id| id / LISTS == slot);
            if let Some(was) = was.map(|id| id % LISTS).filter(|&was| was != list) {
                let passed = if was < list { was..list } else { 0..list };
                let before = self.slots[slot].last_op;
                passed.for_each(|l| self.close(slot, l, before));
            }
        }
        self.cpus[cpu].drain = slot * LISTS + list + 1;
        let owner = on.map_or(slot, |id| id / LISTS);
        match on {
            None if self.slots[slot].closed >> list & 1 == 0 => {
                self.slots[slot].tails[list].push(frame);
            }
            None => self.understanding.unexplained_drains += 1,
            Some(_) => {
                if owner != slot {
                    self.drain_of_all(cpu, zone, slot, frame);
                }
                self.lists.remove(frame);
            }
        }
        self.add(owner, -(1 << order));
    }

    /// Rule 6: a drain of another CPU's list is part of a requested drain of all lists. A task
    /// requests one after its direct reclaim or compaction. Where the ends of these are recorded and
    /// none precedes the drain, the mirror has the page on the wrong list.
    fn drain_of_all(&mut self, cpu: usize, zone: usize, slot: usize, frame: u32) {
        let Cpu { ended, run, .. } = self.cpus[cpu];
        let this = Some((cpu, run));
        if self.requested[zone] != this && (ended || !self.scan.ends_recorded) {
            self.requested[zone] = this;
            self.understanding.requested_drains += 1;
            self.emit(OpKind::DrainAll, slot, frame, 0, 0, 0);
        }
    }

    fn relabel(&mut self, frame: u32, order: u8, migratetype: u8) {
        let blocks = if order >= 9 { 1 << (order - 9) } else { 1 };
        let base = (self.machine.base() >> 9) as usize;
        let first = (base + self.machine.block_of(frame)) & !(blocks - 1);
        let len = self.block_types.len();
        let range = first.saturating_sub(base)..(first + blocks - base).min(len);
        self.block_types[range].fill(migratetype);
    }
}
