//! The state from which every policy starts: the use of each frame when recording began.

use pageyard::MigrateType;
use pageyard_trace::state::PfnMap;
use serde::Serialize;

use super::lists::{LISTS, list_order};
use super::machine::Machine;
use super::mirror::{KNOWN, KNOWN_FREE, Mirror, SEEN, Slot};

/// Frame state: free in the zone.
pub(super) const FREE: u8 = 0x80;
/// Frame state: head of a block in use; the order is in the low four bits.
pub(super) const LIVE: u8 = 0x40;
/// With [`LIVE`]: the block can be migrated.
pub(super) const MOVABLE: u8 = 0x20;
/// Frame state: part of a cached block, or a tail frame of a block in use.
const TAKEN: u8 = 0x10;
pub(super) const ORDER: u8 = 0x0f;

/// Pages that left a list without any event.
pub(super) struct Gone {
    /// The operation before which they left.
    pub(super) op: u64,
    /// The slot whose list 0 they left.
    pub(super) slot: usize,
    pub(super) pages: usize,
}

/// How well the starting state is known. Counts are in pages unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StartFigures {
    /// Pages on per-CPU lists.
    pub cached: u64,
    /// Of these, pages that never appear in the trace.
    pub cached_unseen: u64,
    /// Free pages in the zones.
    pub free: u64,
    /// Free pages according to zoneinfo, just after recording began.
    pub free_recorded: Option<u64>,
    /// Blocks that could not be placed because their frames were already occupied.
    pub conflicts: u64,
    /// Whether the frames in use come from a recorded map.
    pub frame_map: bool,
    /// Blocks that compaction moved, later, to frames that were free.
    pub arrived: u64,
}

/// The state at the start. Frames are counted from the machine's lowest frame.
pub(super) struct Start {
    /// Per frame: [`FREE`], [`LIVE`], or permanently in use.
    pub(super) frames: Vec<u8>,
    pub(super) block_types: Vec<MigrateType>,
    /// Per slot and list: the blocks on the list, from head to tail.
    pub(super) cached: Vec<[Vec<u32>; LISTS]>,
    pub(super) gone: Vec<Gone>,
    pub(super) figures: StartFigures,
    /// Blocks on lists that never appear in the trace: slot, list and frame.
    unseen: Vec<(usize, usize, u32)>,
}

/// Lists that may hold pages that never appear in the trace, in order of preference.
const UNSEEN_LISTS: [usize; 6] = [2, 11, 5, 8, 0, 1];

/// Returns the unseen blocks per list of a slot, and how many pages left list 0 silently (rules 8
/// and 9).
fn unseen(slot: &Slot, at_start: Option<i64>, at_end: Option<i64>) -> ([usize; LISTS], usize) {
    let mut extra = [0; LISTS];
    let pages = |l: usize| ((slot.heads[l].len() + slot.tails[l].len()) as i64) << list_order(l);
    let known: i64 = (0..LISTS).map(pages).sum();
    let Some(at_start) = at_start else { return (extra, 0) };
    let mut rest = at_start - slot.net_start - known;
    let rest_end = at_end.map_or(rest, |n| n - slot.net_end - known);
    if rest <= 0 {
        return (extra, 0);
    }
    let open = |l: &usize| slot.closed >> l & 1 == 0;
    let mut gone = 0;
    if !open(&0) {
        gone = if (0..12).any(|l| open(&l)) { (rest - rest_end.max(0)).max(0) } else { rest };
        extra[0] = gone as usize;
        rest -= gone;
    }
    if let Some(l) = UNSEEN_LISTS.into_iter().find(open) {
        extra[l] += rest as usize >> list_order(l);
    }
    (extra, gone as usize)
}

impl Start {
    pub(super) fn new(machine: &Machine, mirror: &Mirror<'_, '_>, map: Option<&PfnMap>) -> Start {
        let mut types: Vec<MigrateType> = Vec::new();
        types.extend(mirror.first_types().map(|t| match t {
            Some(0) => MigrateType::Unmovable,
            Some(2) => MigrateType::Reclaimable,
            _ => MigrateType::Movable,
        }));
        let mut start = Start {
            frames: vec![0; machine.frames()],
            block_types: types,
            cached: Vec::new(),
            gone: Vec::new(),
            figures: StartFigures { frame_map: map.is_some(), ..StartFigures::default() },
            unseen: Vec::new(),
        };
        start.mark_free(machine, mirror, map);
        start.fill_lists(machine, mirror, map);
        start.place_live(machine, mirror, map);
        if map.is_none() {
            start.guess_use(machine, &mirror.flags);
        }
        (0..machine.zones.len()).for_each(|zone| start.fit(machine, zone));
        start.figures.free = start.frames.iter().filter(|&&f| f & FREE != 0).count() as u64;
        let recorded: Vec<u64> = machine.zones.iter().filter_map(|z| z.free).collect();
        if recorded.len() == machine.zones.len() {
            start.figures.free_recorded = Some(recorded.iter().sum());
        }
        start.gone.sort_by_key(|g| g.op);
        start
    }

    /// Returns a start at which every page is in use.
    #[cfg(test)]
    pub(super) fn all_in_use(machine: &Machine) -> Start {
        Start {
            frames: vec![0; machine.frames()],
            block_types: vec![MigrateType::Movable; (machine.frames() >> 9) + 2],
            cached: Vec::new(),
            gone: Vec::new(),
            figures: StartFigures::default(),
            unseen: Vec::new(),
        }
    }

    /// Returns the frames of a zone, counted from the lowest.
    fn zone_frames(machine: &Machine, zone: usize) -> std::ops::Range<usize> {
        let z = &machine.zones[zone];
        (z.start - machine.base()) as usize..(z.end() - machine.base()) as usize
    }

    fn mark_free(&mut self, machine: &Machine, mirror: &Mirror<'_, '_>, map: Option<&PfnMap>) {
        for zone in 0..machine.zones.len() {
            for f in Self::zone_frames(machine, zone) {
                let flags = mirror.flags[f];
                let free = match map {
                    _ if flags & KNOWN != 0 => flags & KNOWN_FREE != 0,
                    Some(map) => map.is_free(machine.base() + f as u64),
                    None => true,
                };
                self.frames[f] = if free { FREE } else { 0 };
            }
        }
    }

    fn fill_lists(&mut self, machine: &Machine, mirror: &Mirror<'_, '_>, map: Option<&PfnMap>) {
        let cpus = machine.cpus.len();
        for (number, slot) in mirror.slots.iter().enumerate() {
            let zone = &machine.zones[number / cpus];
            let cpu = number % cpus;
            let at_start = zone.at_start.get(cpu).copied().flatten().map(|(count, _)| count);
            let at_end = zone.at_end.get(cpu).copied().flatten();
            let (extra, gone) = unseen(slot, at_start, at_end);
            if gone > 0 {
                self.gone.push(Gone { op: slot.closed_0_at, slot: number, pages: gone });
            }
            let mut lists: [Vec<u32>; LISTS] = Default::default();
            let mut spare = Self::zone_frames(machine, number / cpus).end;
            for (l, list) in lists.iter_mut().enumerate() {
                let order = list_order(l);
                let add = |start: &mut Start, list: &mut Vec<u32>, frame: u32| {
                    if start.claim(frame, order, TAKEN) {
                        list.push(frame);
                        start.figures.cached += 1 << order;
                    }
                };
                slot.heads[l].iter().for_each(|&f| add(self, list, f));
                for _ in 0..extra[l] {
                    let within = Self::zone_frames(machine, number / cpus).start..spare;
                    let Some(f) = self.spare(machine, mirror, map, within, order) else { break };
                    spare = f as usize;
                    add(self, list, f);
                    self.unseen.push((number, l, f));
                    self.figures.cached_unseen += 1 << order;
                }
                slot.tails[l].iter().rev().for_each(|&f| add(self, list, f));
            }
            self.cached.push(lists);
        }
    }

    /// Returns the highest block in this range whose frames were in use and never appear in the
    /// trace.
    fn spare(
        &self,
        machine: &Machine,
        mirror: &Mirror<'_, '_>,
        map: Option<&PfnMap>,
        within: std::ops::Range<usize>,
        order: u8,
    ) -> Option<u32> {
        let usable = |f: usize| {
            let pfn = machine.base() + f as u64;
            let in_use = match map {
                Some(map) => self.frames[f] == 0 && map.get(pfn) & PfnMap::NO_PAGE == 0,
                None => self.frames[f] & TAKEN == 0,
            };
            in_use && mirror.flags[f] & SEEN == 0
        };
        let mut f = within.end;
        while f >= within.start + (1 << order) {
            f -= 1;
            let pages = 1 << order;
            if usable(f) {
                let head = machine.align_down(f as u32, order)?;
                let head = head as usize;
                if head + pages == f + 1 && head >= within.start && (head..=f).all(usable) {
                    return Some(head as u32);
                }
            }
        }
        None
    }

    /// Marks a block's frames: the first as `head`, the others as taken. Returns false if any is
    /// taken or in use already.
    fn claim(&mut self, frame: u32, order: u8, head: u8) -> bool {
        let block = &mut self.frames[frame as usize..frame as usize + (1 << order)];
        if block.iter().any(|f| f & (TAKEN | LIVE) != 0) {
            self.figures.conflicts += 1;
            return false;
        }
        block.fill(TAKEN);
        block[0] = head;
        true
    }

    fn place_live(&mut self, machine: &Machine, mirror: &Mirror<'_, '_>, map: Option<&PfnMap>) {
        let movable = |f: usize| {
            let lru = map.is_some_and(|m| m.get(machine.base() + f as u64) & PfnMap::LRU != 0);
            if lru { MOVABLE } else { 0 }
        };
        // A block that is freed first, at a frame that was free, was moved there in between.
        let migrates = mirror.understanding.migrated > 0;
        let known = |f: usize| migrates && (map.is_some() || mirror.flags[f] & KNOWN != 0);
        for (f, order) in mirror.live.iter().enumerate() {
            let Some(order) = order.checked_sub(1) else { continue };
            if known(f) && self.frames[f] & FREE != 0 {
                self.figures.arrived += 1;
            } else {
                self.claim(f as u32, order, LIVE | movable(f) | order);
            }
        }
        // Other movable frames are never freed, but they matter to claims.
        for f in 0..self.frames.len() {
            if self.frames[f] == 0 && movable(f) != 0 {
                self.frames[f] = LIVE | MOVABLE;
            }
        }
    }

    /// Returns how many more pages are free, in use and on lists than a zone manages.
    fn unmanaged(&self, machine: &Machine, zone: usize) -> u64 {
        let frames = &self.frames[Self::zone_frames(machine, zone)];
        let pages = |f: &u8| match f {
            f if f & LIVE != 0 => 1 << (f & ORDER),
            f => u64::from(f & FREE != 0),
        };
        let cpus = machine.cpus.len();
        let on_list = |(l, list): (usize, &Vec<u32>)| (list.len() as u64) << list_order(l);
        let lists = self.cached[zone * cpus..(zone + 1) * cpus].iter();
        let cached: u64 = lists.flat_map(|lists| lists.iter().enumerate().map(on_list)).sum();
        let placed = frames.iter().map(pages).sum::<u64>() + cached;
        placed.saturating_sub(machine.zones[zone].managed)
    }

    /// Removes unseen blocks from the lists until a zone has no more pages than it manages: some of their
    /// frames are the kernel's own, which the frame map does not tell from others in use.
    fn fit(&mut self, machine: &Machine, zone: usize) {
        let cpus = machine.cpus.len();
        let mut surplus = self.unmanaged(machine, zone);
        while surplus > 0 {
            let last = self.unseen.iter().rposition(|(slot, ..)| slot / cpus == zone);
            let Some((slot, l, frame)) = last.map(|at| self.unseen.remove(at)) else { return };
            let block = frame as usize..frame as usize + (1 << list_order(l));
            self.figures.cached -= block.len() as u64;
            self.figures.cached_unseen -= block.len() as u64;
            surplus = surplus.saturating_sub(block.len() as u64);
            self.frames[block].fill(0);
            self.cached[slot][l].retain(|&f| f != frame);
        }
    }

    /// Guesses the frames in use if there is no frame map. Of the frames that never appear, the
    /// lowest are in use. As many are free as zoneinfo says; if it does not say, as many as the zone
    /// manages, less those in use: the other frames are holes or the kernel's own.
    fn guess_use(&mut self, machine: &Machine, flags: &[u8]) {
        for (number, zone) in machine.zones.iter().enumerate() {
            let frames = Self::zone_frames(machine, number);
            let mut surplus = match zone.free {
                None => self.unmanaged(machine, number),
                Some(target) => {
                    let frames = self.frames[frames.clone()].iter();
                    (frames.filter(|&&f| f == FREE).count() as u64).saturating_sub(target)
                }
            };
            for f in frames {
                if surplus > 0 && self.frames[f] == FREE && flags[f] & SEEN == 0 {
                    self.frames[f] = 0;
                    surplus -= 1;
                }
            }
        }
    }

    /// Returns the free frames of a zone as naturally aligned blocks, ascending: frame, order,
    /// type. Blocks of the largest order do not span two types.
    pub(super) fn free_blocks(
        &self,
        machine: &Machine,
        zone: usize,
    ) -> impl Iterator<Item = (usize, u8, MigrateType)> {
        let base = machine.base() as usize;
        let range = Self::zone_frames(machine, zone);
        let offset = base & 511;
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end && self.frames[at] & FREE == 0 {
                at += 1;
            }
            if at >= range.end {
                return None;
            }
            let mut order = 0;
            while order < 10 {
                let (half, size) = (1 << order, 2 << order);
                let fits = (base + at).is_multiple_of(size) && at + size <= range.end;
                if !fits || self.frames[at + half..at + size].iter().any(|f| f & FREE == 0) {
                    break;
                }
                let block = (at + offset) >> 9;
                if order == 9 && self.block_types[block] != self.block_types[block + 1] {
                    break;
                }
                order += 1;
            }
            let found = at;
            at += 1 << order;
            Some((found, order, self.block_types[(found + offset) >> 9]))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::machine::MachineOptions;
    use super::*;

    /// The kernel's own frames are not managed, and the frame map does not tell which they are.
    #[test]
    fn a_zone_has_no_more_pages_than_it_manages() {
        let options =
            MachineOptions { memory: Some(8 << 20), cpus: Some(1), ..MachineOptions::default() };
        let mut machine = Machine::new(&Default::default(), &options, None, || Ok((0, 1))).unwrap();
        let mut start = Start::all_in_use(&machine);
        let mut lists: [Vec<u32>; LISTS] = Default::default();
        lists[0] = vec![5, 7];
        lists[3] = vec![8, 10];
        start.cached = vec![lists];
        start.figures.cached = 6;
        start.figures.cached_unseen = 5;
        start.frames[5..12].fill(TAKEN);
        start.frames[100..110].fill(FREE);
        start.frames[200] = LIVE | 2;
        start.unseen = vec![(0, 0, 7), (0, 3, 8), (0, 3, 10)];
        machine.zones[0].managed = 20;
        start.fit(&machine, 0);
        assert_eq!(start.figures.cached, 6, "10 free, 4 in use, 6 on lists");
        machine.zones[0].managed = 17;
        start.fit(&machine, 0);
        assert_eq!((&*start.cached[0][0], &*start.cached[0][3]), (&[5, 7][..], &[][..]));
        assert_eq!((start.figures.cached, start.figures.cached_unseen), (2, 1));
        assert_eq!((start.frames[8], start.frames[10], start.frames[7]), (0, 0, TAKEN));
    }

    /// zoneinfo of before the recording says how much a zone manages, but not what was free when
    /// recording began.
    #[test]
    fn frames_that_are_not_managed_are_not_free() {
        let options =
            MachineOptions { memory: Some(8 << 20), cpus: Some(1), ..MachineOptions::default() };
        let mut machine = Machine::new(&Default::default(), &options, None, || Ok((0, 1))).unwrap();
        let mut start = Start::all_in_use(&machine);
        start.cached = vec![Default::default()];
        start.frames.fill(FREE);
        start.frames[20..24].fill(TAKEN);
        start.frames[20] = LIVE | 2;
        let mut flags = vec![0; start.frames.len()];
        flags[3] = SEEN;
        machine.zones[0].managed = start.frames.len() as u64 - 10;
        start.guess_use(&machine, &flags);
        let used: Vec<usize> = (0..start.frames.len()).filter(|&f| start.frames[f] == 0).collect();
        assert_eq!(used, [0, 1, 2, 4, 5, 6, 7, 8, 9, 10], "the lowest that never appear");
        assert_eq!(start.unmanaged(&machine, 0), 0);
    }
}
