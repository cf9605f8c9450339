//! Collects the cases of a recording or of a run.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use pageyard::MigrateType;

use super::case::{Case, Effort, Happened, How, Lack, Place, Slow, TypeAt, User};
use crate::replay::machine::Machine;
use crate::replay::names::Names;
use crate::replay::pages::{Page, Pages, Use};
use crate::replay::start::Start;

/// Cases that are kept; further ones are only counted.
pub(super) const KEPT: usize = 1 << 17;
/// Users of a place, and types of a pageblock, that are kept.
const USERS: usize = 6;
const TYPES: usize = 6;
/// Pageblocks looked at in all searches for what stood in the way. Later cases lack that part.
const BUDGET: u64 = 1 << 27;
/// What a look at all pages of a pageblock counts.
const PAGES_WEIGH: u64 = 128;

/// The request that is at work.
#[derive(Clone, Copy, Debug)]
pub(in crate::replay) struct Asked {
    pub(in crate::replay) t_ns: u64,
    pub(in crate::replay) cpu: u32,
    /// The trace's number of the task; `None` if no event shows the request.
    pub(in crate::replay) task: Option<u32>,
    pub(in crate::replay) gfp: Option<u32>,
    pub(in crate::replay) order: u8,
    pub(in crate::replay) wanted: u8,
}

/// A pageblock's type over time.
#[derive(Clone, Debug)]
struct History {
    types: Vec<TypeAt>,
    more: u32,
}

/// All cases so far, and the state that explains the next one.
#[derive(Debug)]
pub(in crate::replay) struct Collector {
    pub(in crate::replay) pages: Pages,
    pub(super) names: Arc<Names>,
    pub(super) cases: Vec<Case>,
    /// Cases that are not kept.
    pub(super) left_out: u64,
    pub(super) totals: super::totals::Totals,
    /// Types of pageblocks at the start, by [`Machine::block_of`].
    first_types: Vec<MigrateType>,
    /// Pageblocks whose type changed.
    changed: HashMap<usize, History>,
    first_ns: u64,
    offset: usize,
    /// Number of the lowest frame's pageblock.
    base_block: usize,
    marks: Vec<u64>,
    budget: u64,
    /// Whether cases are kept; else only pages and types are followed.
    explains: bool,
}

impl Collector {
    pub(in crate::replay) fn new(
        machine: &Machine,
        start: &Start,
        names: &Arc<Names>,
        first_ns: u64,
        explains: bool,
    ) -> Collector {
        Collector {
            pages: Pages::new(machine, start, first_ns),
            names: names.clone(),
            cases: Vec::new(),
            left_out: 0,
            totals: super::totals::Totals::default(),
            first_types: start.block_types.clone(),
            changed: HashMap::new(),
            first_ns,
            offset: (machine.base() & 511) as usize,
            base_block: (machine.base() >> 9) as usize,
            marks: machine.zones.iter().map(|z| z.watermarks[0]).collect(),
            budget: BUDGET,
            explains,
        }
    }

    fn block(&self, frame: u32) -> usize {
        (frame as usize + self.offset) >> 9
    }

    /// Returns the last known type of a frame's pageblock.
    pub(in crate::replay) fn type_of(&self, frame: u32) -> MigrateType {
        self.type_of_block(self.block(frame))
    }

    fn type_of_block(&self, block: usize) -> MigrateType {
        let last = self.changed.get(&block).and_then(|h| h.types.last());
        match last {
            Some(at) => MigrateType::from_number(at.migratetype),
            None => self.first_types.get(block).copied(),
        }
        .unwrap_or(MigrateType::Movable)
    }

    /// Sets the type with which a pageblock began.
    pub(in crate::replay) fn began_as(&mut self, block: usize, migratetype: u8) {
        let first = self.first_types.get_mut(block);
        if let Some((first, t)) = first.zip(MigrateType::from_number(migratetype)) {
            *first = t;
            self.touch(block);
        }
    }

    fn touch(&mut self, block: usize) {
        self.pages.touch((block << 9).saturating_sub(self.offset) as u32);
    }

    /// Notes that a pageblock has a type.
    pub(in crate::replay) fn typed(&mut self, frame: u32, t_ns: u64, migratetype: u8) {
        if self.type_of(frame) as u8 != migratetype {
            self.change(self.block(frame), TypeAt { t_ns, migratetype, how: How::Shown });
        }
    }

    fn change(&mut self, block: usize, to: TypeAt) {
        self.touch(block);
        let (first_ns, first) = (self.first_ns, self.first_types.get(block).copied());
        let migratetype = first.unwrap_or(MigrateType::Movable) as u8;
        let start = TypeAt { t_ns: first_ns, migratetype, how: How::Start };
        let history = self.changed.entry(block).or_insert(History { types: vec![start], more: 0 });
        history.types.push(to);
        if history.types.len() > TYPES {
            history.types.remove(0);
            history.more += 1;
        }
    }

    /// Notes that a request took a block of another type. Returns the number of the case, if it is
    /// kept.
    pub(in crate::replay) fn fallback(
        &mut self,
        asked: Asked,
        zone: usize,
        frame: u32,
        found: (u8, u8),
        claimed: bool,
    ) -> Option<usize> {
        // Blocks are aligned by their frame numbers, not by their distance from the lowest.
        let count = 1usize << found.0.saturating_sub(9);
        let first = (self.base_block + self.block(frame)) & !(count - 1);
        let blocks = first.saturating_sub(self.base_block)..first + count - self.base_block;
        blocks.clone().for_each(|block| self.was(block, asked.t_ns, found.1));
        let own = self.explains.then(|| self.own(zone, asked.wanted)).flatten();
        let block = self.pages.block_of(frame as usize);
        // The rest of the pageblock, without the pages that the request takes.
        let place = self.place(block, frame as usize..frame as usize + (1 << asked.order));
        if claimed {
            let to = TypeAt {
                t_ns: asked.t_ns,
                migratetype: asked.wanted,
                how: How::Claimed(asked.task),
            };
            blocks.for_each(|block| self.change(block, to));
        }
        let happened = if claimed { Happened::Claim } else { Happened::Steal };
        let case = self.case(happened, asked, zone);
        self.keep(Case { frame: Some(frame), found: Some(found), place: Some(place), own, ..case })
    }

    /// Notes the type of a pageblock that a request takes from. If nothing was known of its type
    /// but a later event, it had this type from the start.
    fn was(&mut self, block: usize, t_ns: u64, migratetype: u8) {
        let of = MigrateType::from_number(migratetype);
        if let Some(first) = self.first_types.get_mut(block)
            && let Some(t) = of.filter(|_| !self.changed.contains_key(&block))
        {
            *first = t;
            self.touch(block);
        } else if self.type_of_block(block) as u8 != migratetype {
            self.change(block, TypeAt { t_ns, migratetype, how: How::Shown });
        }
    }

    /// Returns the number of a zone's pageblocks of a type, and the users of their pages. `None` if
    /// the zone is too large to look at once more.
    fn own(&mut self, zone: usize, wanted: u8) -> Option<(u32, Place)> {
        let span = self.pages.span(zone);
        self.budget = self.budget.checked_sub(((span.end - span.start) >> 9) as u64 + 1)?;
        let mut ranges = Vec::new();
        let mut at = span.start;
        while at < span.end {
            let range = self.pages.block_of(at);
            at = range.end;
            if self.type_of(range.start as u32) as u8 == wanted {
                ranges.push(range);
            }
        }
        let looked = ranges.len() as u64 * PAGES_WEIGH;
        self.budget = self.budget.checked_sub(looked)?;
        Some((ranges.len() as u32, self.users(&ranges, 0..0)))
    }

    /// Notes that a request failed.
    pub(in crate::replay) fn failed(&mut self, asked: Asked, zone: usize, effort: Effort) {
        let (lack, place) = self.lack(zone, asked.order);
        let case = self.case(Happened::Failed(lack), asked, zone);
        self.keep(Case { place, effort, ..case });
    }

    /// Notes that a request waits for later frees.
    pub(in crate::replay) fn waits(&mut self, asked: Asked, zone: usize) -> Option<usize> {
        let (lack, place) = self.lack(zone, asked.order);
        let case = self.case(Happened::Slow(Slow::Waited(lack)), asked, zone);
        self.keep(Case { place, ..case })
    }

    /// Notes that a waiting request was served, at `t_ns`.
    pub(in crate::replay) fn served(&mut self, number: usize, t_ns: u64, frame: u32) {
        self.amend(number, |case| {
            case.took_ns = Some(t_ns.saturating_sub(case.t_ns));
            case.frame = Some(frame);
        });
    }

    /// Notes that a waiting request was given up.
    pub(in crate::replay) fn given_up(&mut self, number: usize) {
        self.amend(number, |case| {
            if let Happened::Slow(Slow::Waited(lack)) = case.happened {
                case.happened = Happened::Failed(lack);
            }
        });
    }

    /// Notes that a request was served from below the MIN watermark.
    pub(in crate::replay) fn below_min(&mut self, asked: Asked, zone: usize, frame: u32) {
        let taken = frame as usize..frame as usize + (1 << asked.order);
        let place = self.place(self.pages.block_of(frame as usize), taken);
        let case = self.case(Happened::Slow(Slow::BelowMin), asked, zone);
        self.keep(Case { frame: Some(frame), place: Some(place), ..case });
    }

    /// Returns the free pages of a zone, and what is closest to serving a request there.
    pub(in crate::replay) fn look(&mut self, zone: usize, order: u8) -> (u64, Option<Place>) {
        (self.pages.free(zone), self.lack(zone, order).1)
    }

    /// Notes that a request reclaimed or compacted before it was served. `before` is what
    /// [`look`](Collector::look) returned when that began.
    pub(in crate::replay) fn effort(
        &mut self,
        asked: Asked,
        zone: usize,
        frame: u32,
        effort: Effort,
        took_ns: u64,
        before: (u64, Option<Place>),
    ) {
        let case = self.case(Happened::Slow(Slow::Effort), asked, zone);
        let (free, place) = before;
        let (frame, took_ns) = (Some(frame), Some(took_ns));
        self.keep(Case { frame, took_ns, effort, free, place, ..case });
    }

    /// Adds the flags of a request to its case.
    pub(in crate::replay) fn flags(&mut self, number: usize, gfp: u32) {
        self.amend(number, |case| case.gfp = Some(gfp));
    }

    /// Changes a kept case.
    fn amend(&mut self, number: usize, with: impl FnOnce(&mut Case)) {
        if let Some(case) = self.cases.get_mut(number) {
            self.totals.remove(case, &self.names);
            with(case);
            self.totals.add(case, &self.names);
        }
    }

    fn case(&self, happened: Happened, asked: Asked, zone: usize) -> Case {
        Case {
            happened,
            t_ns: asked.t_ns,
            cpu: asked.cpu,
            task: asked.task,
            gfp: asked.gfp,
            order: asked.order,
            wanted: asked.wanted,
            zone,
            frame: None,
            found: None,
            took_ns: None,
            effort: Effort::default(),
            own: None,
            free: self.pages.free(zone),
            min: self.marks[zone],
            place: None,
        }
    }

    fn keep(&mut self, case: Case) -> Option<usize> {
        if !self.explains {
            return None;
        }
        self.totals.add(&case, &self.names);
        if self.cases.len() < KEPT {
            self.cases.push(case);
            return Some(self.cases.len() - 1);
        }
        self.left_out += 1;
        None
    }

    /// Returns why a zone cannot serve a request, and the range closest to serving it.
    fn lack(&mut self, zone: usize, order: u8) -> (Lack, Option<Place>) {
        if !self.explains {
            return (Lack::Exhausted, None);
        }
        let free = self.pages.free(zone);
        let nearest = self.pages.nearest(zone, order, &mut self.budget);
        let place = nearest.map(|range| self.place(range, 0..0));
        let whole = place.as_ref().is_some_and(|p| p.free == p.pages);
        let lack = match whole {
            true => Lack::Watermark,
            false if free > self.marks[zone] + (1 << order) => Lack::Fragmented,
            false => Lack::Exhausted,
        };
        // A free block blocks nothing.
        (lack, place.filter(|_| !whole))
    }

    /// Describes a range of frames of a pageblock, without those taken by the request itself.
    pub(super) fn place(&self, range: Range<usize>, taken: Range<usize>) -> Place {
        let block = self.block(range.start as u32);
        let mut place = self.users(std::slice::from_ref(&range), taken);
        place.first = range.start as u32;
        match self.changed.get(&block) {
            Some(history) => {
                place.types.clone_from(&history.types);
                place.more_types = history.more;
            }
            None => {
                let first = self.first_types.get(block).copied().unwrap_or(MigrateType::Movable);
                let (t_ns, migratetype) = (self.first_ns, first as u8);
                place.types.push(TypeAt { t_ns, migratetype, how: How::Start });
            }
        }
        place
    }

    /// Returns the users of ranges of frames.
    fn users(&self, ranges: &[Range<usize>], taken: Range<usize>) -> Place {
        let pages = ranges.iter().map(ExactSizeIterator::len).sum::<usize>() as u32;
        let mut place = Place { pages, ..Place::default() };
        // Sorted so that equal ones are neighbours: kind, name, flags, task.
        let mut users: Vec<((Use, u32, u32), u32, u64)> = Vec::new();
        let frames = ranges.iter().flat_map(|r| r.clone().zip(self.pages.within(r.clone())));
        for (at, page) in frames {
            let &Page { used, origin, since } = page;
            match used {
                _ if taken.contains(&at) => {}
                Use::Free => place.free += 1,
                Use::Listed => place.listed += 1,
                Use::Requested => {
                    let key = (used, self.names.number(origin.task), origin.gfp);
                    users.push((key, origin.task, since));
                }
                Use::Before | Use::Silent => users.push(((used, 0, 0), 0, since)),
            }
        }
        users.sort_unstable();
        let mut all: Vec<User> = users
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| {
                let ((used, name, gfp), task, _) = same[0];
                let times = || same.iter().map(|u| u.2);
                User {
                    request: (used == Use::Requested).then_some((name, gfp)),
                    silent: used == Use::Silent,
                    pages: same.len() as u32,
                    tasks: same.chunk_by(|a, b| a.1 == b.1).count() as u32,
                    pid: self.names.pid(task),
                    first_ns: times().min().unwrap_or(0),
                    last_ns: times().max().unwrap_or(0),
                }
            })
            .collect();
        all.sort_by_key(|u| std::cmp::Reverse(u.pages));
        let rest = &all[all.len().min(USERS)..];
        place.more_users = (rest.len() as u32, rest.iter().map(|u| u.pages).sum());
        all.truncate(USERS);
        place.users = all;
        place
    }
}
