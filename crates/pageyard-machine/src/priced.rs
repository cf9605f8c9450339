//! The accesses of the packed engine to lines that CPUs share: what each costs, and when.

use pageyard::lines::{Access, Hook, Part, set_hook};

use crate::cache::{LINE, Level, Line, between};
use crate::channels::Passage;
use crate::cpu::Spent;
use crate::fiber;
use crate::lines::{COPIES, Found, Holders, is_private};
use crate::shared;
use crate::state::State;

impl State {
    /// Prices one access. Returns whether the task must suspend itself first, and try again.
    #[inline]
    pub(crate) fn reach(&mut self, address: usize, access: Access) -> bool {
        let Some(found) = self.lines.find(address) else { return false };
        let core = self.cpus[self.cpu as usize].place.core;
        let here = self.lines.is_here(found.line, core, access.writes());
        let strict = !here || (access.writes() && !is_private(found.part));
        if strict && !self.is_in_order(0) {
            self.yield_cpu();
            return true;
        }
        self.lines.parts[found.part as usize].accesses += 1;
        if here {
            self.use_line(found, access)
        } else {
            self.move_line(found, access)
        }
        false
    }

    /// An access to a line that the core has.
    fn use_line(&mut self, found: Found, access: Access) {
        let (cpu, place) = (self.cpu, self.cpus[self.cpu as usize].place);
        let (line, near) = (found.line, self.lines.copies(place.core).is_nearest(found.line));
        let mut cost = 0;
        if !near && self.lines.holders(line).last() == Some(place.core) {
            cost = match self.caches.touch(&self.spec, place, Line::Shared(line), LINE) {
                Some((level, _)) => level.latency(&self.costs),
                None => self.memory_latency(found, self.clock()),
            };
        } else if !near {
            cost = self.costs.private_hit;
        }
        let (fetched, arrives) = *self.lines.fetched(cpu);
        if fetched == line {
            *self.lines.fetched(cpu) = (u32::MAX, 0);
            cost = cost.max(arrives.saturating_sub(self.clock()));
        }
        cost += self.atomic(found.part, access);
        self.charge(Spent::Alloc, cost);
    }

    /// An access to a line that another core has, or that is in memory.
    fn move_line(&mut self, found: Found, access: Access) {
        let Found { line, part, .. } = found;
        let (cpu, now) = (self.cpu, self.clock());
        let me = self.cpus[cpu as usize].place;
        let at = line as usize;
        let queued = self.lines.free_at[at].saturating_sub(now);
        let holders = self.lines.holders(line);
        let looked = self.caches.touch(&self.spec, me, Line::Shared(line), LINE);
        // A core that wants to write a line of which another core has a copy waits for that one.
        let other = holders.other().filter(|_| access.writes() && holders.last() == Some(me.core));
        let looked = match other {
            Some(other) => {
                let them = self.caches.place_of(other);
                Some((between(&self.spec, them, me), them.socket))
            }
            None => looked,
        };
        let (latency, theirs) = match looked {
            Some((level, from)) => {
                let theirs = matches!(level, Level::Complex | Level::Socket | Level::Remote(_));
                let mut latency = self.stepped(found, level);
                if matches!(level, Level::Remote(_)) {
                    let link = self.channels.link(from, me.socket);
                    let passage = Passage { memory: None, link };
                    let wait = self.wait_of_a_line(passage, now + queued, latency);
                    self.channels.waited += wait;
                    latency += wait;
                }
                (latency, theirs)
            }
            None => (self.memory_latency(found, now + queued), false),
        };
        let atomic = self.atomic(part, access);
        let writes = holders.writes();
        let mine = u32::from(me.core) + 1;
        let next = if access.writes() {
            self.lines.free_at[at] = now + queued + latency + atomic;
            Holders::of(mine, 0, writes.wrapping_add(1))
        } else {
            let other = holders.last().filter(|_| theirs).map_or(0, |c| u32::from(c) + 1);
            Holders::of(mine, other, writes)
        };
        self.lines.holders[at] = next.0;
        let copies = self.lines.copies(me.core);
        copies.valid[at % COPIES] = (line, next.writes());
        copies.is_nearest(line);
        if access == Access::Fetch {
            *self.lines.fetched(cpu) = (line, now + queued + latency);
            return;
        }
        let waits = if theirs { latency } else { 0 };
        let stats = &mut self.lines.parts[part as usize];
        stats.moved += u64::from(theirs);
        stats.queued += queued;
        stats.moving += waits;
        stats.longest = stats.longest.max(queued + waits);
        self.lines.waited[at] += queued + waits;
        self.charge(Spent::LineWait, queued + waits);
        self.charge(Spent::Alloc, latency - waits + atomic);
    }

    /// Returns the latency of a line from this level. A step to the next line of states or of a
    /// magazine is one of a chain, as with descriptors.
    fn stepped(&mut self, found: Found, level: Level) -> u64 {
        let cpu = &mut self.cpus[self.cpu as usize];
        if !matches!(found.part, Part::States | Part::Magazines) {
            return level.latency(&self.costs);
        }
        let away = cpu.last_line.abs_diff(found.line.into());
        cpu.last_line = found.line.into();
        if away <= 1 { level.walk(&self.costs) } else { level.latency(&self.costs) }
    }

    fn memory_latency(&mut self, found: Found, now: u64) -> u64 {
        let me = self.cpus[self.cpu as usize].place;
        let level = self.memory_level(me, found.node);
        let passage = self.channels.passage(found.node, me.socket);
        let latency = self.stepped(found, level);
        let wait = self.wait_of_a_line(passage, now, latency);
        self.channels.waited += wait;
        latency + wait
    }

    /// Returns the cost of an atomic operation on a line that is here. That of a frame's state is
    /// part of the path of a free.
    fn atomic(&self, part: Part, access: Access) -> u64 {
        let is = access == Access::Update && part != Part::States;
        if is { self.costs.lock } else { 0 }
    }
}

fn on_access(address: usize, access: Access) {
    while shared::with_running(|state| state.reach(address, access)) == Some(true) {
        fiber::suspend();
    }
}

/// Guard that restores a thread's hook.
pub(crate) struct Hooked(Option<Hook>);

impl Hooked {
    /// Prices accesses from now on, or stops that.
    pub(crate) fn set(priced: bool) -> Hooked {
        Hooked(set_hook(if priced { Some(on_access) } else { None }))
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        set_hook(self.0);
    }
}

/// Calls `f`, whose accesses to shared lines cost nothing: an observer's.
pub fn unpriced<T>(f: impl FnOnce() -> T) -> T {
    let _hooked = Hooked::set(false);
    f()
}

#[cfg(test)]
mod tests {
    use pageyard::lines::Shared;
    use pageyard::{NodeId, ZoneId, ZoneKind};

    use super::*;
    use crate::costs::Costs;
    use crate::options::Options;
    use crate::spec::Description;

    const WORDS: usize = 0x10000;
    const STATES: usize = 0x20000;
    const COST: Costs = Costs {
        lock: 10_000,
        private_hit: 1_000,
        transfer_complex: 50_000,
        transfer_remote: 100_000,
        memory: 70_000,
        walk_memory: 7_000,
        ..Costs::DEFAULT
    };

    /// Two sockets of two cores each, and a piece of words and of states.
    fn state() -> State {
        let text = "sockets = 2\ncores = 2\nclock_mhz = 1000\nlast_level = '32K'\nprivate = '8K'\n\
                    memory = '1G'\ndistances = [[10, 21], [21, 10]]";
        let spec = Description::from_toml("test", text).unwrap().check().unwrap();
        let options = Options { costs: COST, ..Options::default() };
        let mut state = State::new(1, &spec, &options, vec![(0, 0)], 64);
        let zone = ZoneId { node: NodeId(0), kind: ZoneKind::Normal };
        let memory = |part, start: usize, element| Shared {
            zone,
            part,
            bytes: start..start + 0x1000,
            element,
            first: 0,
        };
        state.lines.add(memory(Part::States, STATES, 1));
        state.lines.add(memory(Part::Words, WORDS, 64));
        state.lines.grow();
        state.caches.share(state.lines.len());
        state
    }

    /// Returns how long an access of a CPU takes that begins at `now`.
    fn access(state: &mut State, cpu: u32, now: u64, address: usize, access: Access) -> u64 {
        state.cpu = cpu;
        state.cpus[cpu as usize].clock = now;
        assert!(!state.reach(address, access));
        state.clock() - now
    }

    #[test]
    fn a_line_moves_to_the_cpu_that_updates_it() {
        let mut s = state();
        let update = |s: &mut State, cpu, now| access(s, cpu, now, WORDS, Access::Update);
        assert_eq!(update(&mut s, 0, 0), COST.memory + COST.lock);
        // One CPU pays the operation alone.
        for turn in 1..100 {
            assert_eq!(update(&mut s, 0, turn * 1_000_000), COST.lock);
        }
        // CPUs that take turns pay the way of the line each time.
        for turn in 100..200 {
            let (cpu, way) = [(1, COST.transfer_complex), (0, COST.transfer_complex)][turn % 2];
            assert_eq!(update(&mut s, cpu, turn as u64 * 1_000_000), way + COST.lock);
        }
        assert_eq!(update(&mut s, 2, 300_000_000), COST.transfer_remote + COST.lock);
        let (_, words) = s.lines.parts()[0];
        assert_eq!((words.accesses, words.moved, words.queued), (201, 101, 0));
        assert_eq!(words.moving, 100 * COST.transfer_complex + COST.transfer_remote);
        assert_eq!(
            s.cpus.iter().map(|c| c.spent[Spent::LineWait as usize]).sum::<u64>(),
            words.moving
        );
    }

    #[test]
    fn updates_of_one_line_queue() {
        let mut s = state();
        let update = |s: &mut State, cpu, now| access(s, cpu, now, WORDS, Access::Update);
        update(&mut s, 0, 0);
        // Both ask at the same time: the second waits until the first has the line and is done.
        let first = update(&mut s, 1, 1_000_000);
        let second = update(&mut s, 0, 1_000_000);
        assert_eq!(first, COST.transfer_complex + COST.lock);
        assert_eq!(second, first + COST.transfer_complex + COST.lock);
        let (_, words) = s.lines.parts()[0];
        assert_eq!((words.queued, words.longest), (first, first + COST.transfer_complex));
    }

    #[test]
    fn copies_are_read_until_the_next_write() {
        let mut s = state();
        let mut at = 0;
        let mut go = |cpu, kind| {
            at += 1_000_000;
            access(&mut s, cpu, at, WORDS, kind)
        };
        go(0, Access::Store);
        assert_eq!(go(1, Access::Load), COST.transfer_complex);
        assert_eq!((go(1, Access::Load), go(0, Access::Load)), (0, 0), "both have it");
        assert_eq!(go(0, Access::Store), COST.transfer_complex, "the other copy goes");
        assert_eq!(go(0, Access::Store), 0);
        assert_eq!(go(1, Access::Load), COST.transfer_complex);
    }

    #[test]
    fn a_fetched_line_is_waited_for_when_it_is_used() {
        let mut s = state();
        assert_eq!(access(&mut s, 0, 0, WORDS, Access::Fetch), 0);
        assert_eq!(access(&mut s, 0, 20_000, WORDS, Access::Load), COST.memory - 20_000);
        assert_eq!(access(&mut s, 0, 90_000, WORDS, Access::Load), 0);
        assert_eq!(access(&mut s, 0, 100_000, WORDS + 64, Access::Fetch), 0);
        assert_eq!(access(&mut s, 0, 900_000, WORDS + 64, Access::Update), COST.lock);
    }

    #[test]
    fn states_are_a_chain_and_their_exchange_is_part_of_a_free() {
        let mut s = state();
        assert_eq!(access(&mut s, 0, 0, STATES + 640, Access::Update), COST.memory);
        assert_eq!(access(&mut s, 0, 0, STATES + 641, Access::Update), 0, "the same line");
        assert_eq!(access(&mut s, 0, 0, STATES + 704, Access::Store), COST.walk_memory);
    }

    #[test]
    fn other_addresses_cost_nothing() {
        let mut s = state();
        assert_eq!(access(&mut s, 0, 0, WORDS + 0x1000, Access::Update), 0);
        assert_eq!(access(&mut s, 0, 0, 1, Access::Update), 0);
        assert!(s.lines.parts().is_empty() && s.lines.busiest(1).is_empty());
    }

    #[test]
    fn the_busiest_line_is_named() {
        let mut s = state();
        for turn in 0..40u64 {
            let cpu = (turn % 4) as u32;
            access(&mut s, cpu, turn * 1_000_000, WORDS + 3 * 64, Access::Update);
            let quiet = WORDS + 64 * (turn as usize % 19);
            access(&mut s, cpu, turn * 1_000_000 + 500_000, quiet, Access::Update);
        }
        let busiest = s.lines.busiest(2);
        assert_eq!(busiest[0].name.to_string(), "words of pageblock 3 of node 0 Normal");
        assert!(busiest[0].waited > 5 * busiest[1].waited, "{busiest:?}");
    }
}
