//! What each event of the recording changes in the mirror.

use pageyard_trace::{Compaction, Event, Kind, Tasks};

use super::Mirror;
use crate::replay::input::{Refused, Visitor};
use crate::replay::lists::is_cached;
use crate::replay::plan::{OpKind, Origin, pack_gfp};
use crate::replay::reclaim::ends_work;
use crate::replay::scan::place;

impl Visitor for Mirror<'_, '_> {
    fn event(&mut self, record: u64, event: &Event, tasks: &Tasks) -> Result<(), Refused> {
        let place = place(self.machine, event)?;
        self.take_snapshots(record);
        let cpu = usize::from(event.cpu);
        self.reclaim_until(event.t_ns, cpu);
        self.t_ns = event.t_ns;
        if let Some(names) = &mut self.names {
            names.see(event.task, tasks);
        }
        let gfp = if let Kind::Alloc { gfp, .. } = event.kind { gfp } else { 0 };
        self.origin = Origin { task: event.task, gfp };
        if let Some(follower) = &mut self.follower {
            follower.event(event, place);
        }
        self.idle.until(event.t_ns);
        if !matches!(event.kind, Kind::Drain { .. }) {
            let at = &mut self.cpus[cpu];
            (at.drain, at.ended, at.run) = (0, false, at.run + 1);
        }
        let claimed = std::mem::take(&mut self.claimed[cpu]);
        if !matches!(event.kind, Kind::ZoneLocked { .. } | Kind::ExtFrag { .. }) {
            self.cpus[cpu].refill = 0;
        }
        let Some((frame, zone)) = place else {
            self.holds.other(cpu);
            if let Kind::Alloc { order, migratetype, .. } = event.kind {
                self.recorded.failed += 1;
                self.refused(event, order, migratetype, gfp);
            }
            return Ok(());
        };
        let at = At { record, cpu, zone, frame };
        match event.kind {
            Kind::Alloc { order, migratetype, .. } => {
                self.on_alloc(at, order, migratetype);
                if let Some(requests) = &mut self.requests {
                    requests.note_request(frame, order, gfp, event.t_ns, event.task, tasks);
                }
            }
            Kind::Free { order, .. } => self.on_free(at, event, order),
            Kind::FreeBatched { .. } => self.on_batched_free(at, event),
            Kind::ZoneLocked { order, migratetype, .. } => {
                self.on_zone_locked(at, order, migratetype, claimed == frame + 1);
            }
            Kind::ExtFrag { alloc_order, fallback_order, alloc_type, change_ownership, .. } => {
                if change_ownership {
                    self.relabel(frame, fallback_order, alloc_type);
                    self.recorded.claims += 1;
                } else {
                    self.recorded.steals += 1;
                }
                self.on_fallback(at, alloc_order, alloc_type);
            }
            Kind::Drain { order, migratetype, .. } => self.on_drain(at, order, migratetype),
        }
        Ok(())
    }

    fn mark(&mut self, record: u64, _: u64, _: &str) {
        self.take_snapshots(record);
    }

    fn point(&mut self, t_ns: u64, cpu: u16, task: u32, what: &Compaction) {
        if let Some(at) = self.cpus.get_mut(usize::from(cpu)).filter(|_| ends_work(what)) {
            (at.ended, at.run) = (true, at.run + 1);
        }
        match what {
            Compaction::Begin(_) => _ = self.compacting.insert(task),
            Compaction::End { .. } => _ = self.compacting.remove(&task),
            _ => {}
        }
        if let Some(follower) = &mut self.follower {
            follower.point(t_ns, cpu, task, what);
        }
    }
}

/// Where an event is in the recording, and on the machine.
#[derive(Clone, Copy)]
struct At {
    record: u64,
    cpu: usize,
    zone: usize,
    /// First frame of the block.
    frame: u32,
}

impl Mirror<'_, '_> {
    fn on_alloc(&mut self, at: At, order: u8, migratetype: u8) {
        let At { cpu, zone, frame, .. } = at;
        self.holds.other(cpu);
        self.recorded.alloc_blocks += 1;
        self.recorded.alloc_pages += 1 << order;
        let slot = zone * self.cpus.len() + cpu;
        let direct = std::mem::take(&mut self.cpus[cpu].direct) == frame + 1;
        let captured = !direct && self.is_captured(slot, order, migratetype, frame);
        if is_cached(order) && !direct && !captured {
            self.take(slot, order, migratetype, frame);
        }
        self.understanding.captured += u64::from(captured);
        let kind = if captured { OpKind::Captured } else { OpKind::Alloc };
        self.emit(kind, slot, frame, order, migratetype, pack_gfp(self.origin.gfp));
    }

    fn on_free(&mut self, at: At, event: &Event, order: u8) {
        let At { record, cpu, zone, frame } = at;
        self.holds.other(cpu);
        self.recorded.free_blocks += 1;
        self.recorded.free_pages += 1 << order;
        self.orders[frame as usize] = order;
        let task = event.task as usize;
        if self.scan.followed.get(record) {
            if self.pending.len() <= task {
                self.pending.resize(task + 1, 0);
            }
            self.pending[task] += 1;
            self.cpus[cpu].commit = 0;
        } else {
            let locked = self.cpus[cpu].commit == event.task + 1;
            let in_run = self.scan.migrations.is_in_run(record);
            self.free(event, frame, zone, locked, in_run);
        }
    }

    fn on_batched_free(&mut self, at: At, event: &Event) {
        self.holds.other(at.cpu);
        let left = self.pending.get_mut(event.task as usize).map_or(0, |n| {
            *n -= 1;
            *n
        });
        self.cpus[at.cpu].commit = if left > 0 { event.task + 1 } else { 0 };
        self.free(event, at.frame, at.zone, false, false);
    }

    /// The zone supplies a block. `counted`: with the fallback before this event.
    fn on_zone_locked(&mut self, at: At, order: u8, migratetype: u8, counted: bool) {
        let At { record, cpu, zone, frame } = at;
        self.zone_event(record, frame, order, true);
        let block = self.machine.block_of(frame);
        self.block_types[block] = migratetype;
        if !counted {
            self.recorded.zone_pages += 1 << order;
        }
        if is_cached(order) {
            let followed = self.scan.followed.get(record);
            let refills = self.refill(cpu, zone, frame, order, migratetype, followed);
            if refills && !counted {
                self.holds.refill(cpu, 1 << order);
            }
        } else {
            self.holds.other(cpu);
            self.unlist(frame, order);
        }
    }

    /// The zone supplies a block from the lists of another type.
    fn on_fallback(&mut self, at: At, order: u8, migratetype: u8) {
        let At { record, cpu, zone, frame } = at;
        self.recorded.zone_pages += 1 << order;
        if is_cached(order) {
            self.holds.refill(cpu, 1 << order);
        }
        self.claimed[cpu] = frame + 1;
        // Otherwise an event of the zone follows, for the same block.
        if !self.scan.followed.get(record) {
            self.zone_event(record, frame, order, true);
            if is_cached(order) {
                self.refill(cpu, zone, frame, order, migratetype, false);
            }
        }
    }

    fn on_drain(&mut self, at: At, order: u8, migratetype: u8) {
        let At { record, cpu, zone, frame } = at;
        self.zone_event(record, frame, order, false);
        self.holds.drain(cpu, 1 << order);
        if !self.machine.kernel.types_carried {
            let block = self.machine.block_of(frame);
            self.block_types[block] = migratetype;
        }
        self.drain(cpu, zone, frame, order, migratetype);
    }
}
