//! The cost of lines for a CPU: the latency from where they are, and waiting behind other requests.
//!
//! A line of memory waits behind everything queued at its node's memory, and a line of another
//! socket at the link from there. The wait is bounded, because a core has at most `lines_in_flight`
//! lines in flight. By Little's law a line arrives at the latest when all lines that the active
//! cores can have in flight have been moved. Whole pages and work wait longer; each active core
//! gets its share of the rate.

use pageyard::{Order, Pfn};

use crate::cache::{LINE, Level, Line, between};
use crate::channels::Passage;
use crate::cpu::Spent;
use crate::spec::Place;
use crate::state::State;

/// How a page's contents are accessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// All of it is read or written, line by line.
    Use,
    /// All of it is zeroed.
    Clear,
}

impl State {
    /// Reads and writes a frame's descriptor. This is free if it lies in the same line as the
    /// previous one, costs a line of a chain in the next line, and the full latency elsewhere.
    #[inline]
    pub(crate) fn access(&mut self, pfn: u64) {
        let line = self.caches.line_of(pfn);
        let (level, passage) = self.look(Line::Descriptor(pfn), LINE);
        let cpu = &mut self.cpus[self.cpu as usize];
        cpu.lines[level.index()] += 1;
        let away = cpu.last_line.abs_diff(line);
        cpu.last_line = line;
        let latency = level.latency(&self.costs);
        let mut cost = match away {
            0 if level == Level::Private => 0,
            0 | 1 => level.walk(&self.costs),
            _ => latency,
        };
        if let Some(passage) = passage {
            let wait = self.wait_of_a_line(passage, self.clock(), latency);
            // The lines of a chain overlap, as many as the CPU can have in flight.
            let loaded =
                if away <= 1 { (latency + wait) / self.own_lines() } else { latency + wait };
            self.channels.waited += loaded.saturating_sub(cost);
            cost = cost.max(loaded);
        }
        self.charge(Spent::Alloc, cost);
    }

    pub(crate) fn touch_pages(&mut self, pfn: Pfn, order: Order, how: Touch) {
        for i in 0..u64::from(order.pages()) {
            self.touch_lines(Pfn(pfn.0 + i), pageyard::PAGE_SIZE / LINE, how);
        }
    }

    pub(crate) fn touch_lines(&mut self, pfn: Pfn, lines: u64, how: Touch) {
        let (level, passage) = self.look(Line::Contents(pfn.0), lines * LINE);
        self.cpus[self.cpu as usize].lines[level.index()] += lines;
        let line = match how {
            Touch::Use => level.stream(&self.costs),
            Touch::Clear if level.is_miss() => self.costs.clear_miss,
            Touch::Clear if level == Level::Private => self.costs.clear_hit,
            Touch::Clear => self.costs.clear_last_level,
        };
        let mut cost = line * lines;
        if let Some(passage) = passage {
            let (now, cores) = (self.clock(), self.threads.active_cores());
            let mut loaded = 0;
            for channel in self.channels.of(passage) {
                // Meanwhile the other cores move as much, each.
                let wait = channel.queued(now).min(lines * cores * channel.line);
                channel.request(lines);
                loaded = loaded.max(wait + lines * channel.line);
            }
            self.channels.waited += loaded.saturating_sub(cost);
            cost = cost.max(loaded);
        }
        self.charge(Spent::Touch, cost);
    }

    /// Works for `ps` picoseconds while `bytes` bytes arrive from a node's memory, at most
    /// [`PART`](crate::channel::PART) at a time. These lines are not counted as touched, as the
    /// cache hits of work are not either.
    pub(crate) fn work(&mut self, ps: u64, bytes: u64, node: u16) {
        let ps = self.own(ps);
        let me = self.cpus[self.cpu as usize].place;
        let passage = self.channels.passage(node, me.socket);
        let level = self.memory_level(me, node);
        let (now, lines) = (self.clock(), bytes.div_ceil(LINE));
        let latency = level.latency(&self.costs);
        let mut wait = 0;
        let most = self.threads.active_cores() * self.costs.lines_in_flight;
        for channel in self.channels.of(passage) {
            let most = (most * channel.line).saturating_sub(latency);
            wait = wait.max(channel.queued(now).min(most));
        }
        // The work cannot end before its lines have arrived, with as many in flight as possible.
        let lasts = ps.max((lines * (latency + wait)).checked_div(self.own_lines()).unwrap_or(ps));
        for channel in self.channels.of(passage) {
            channel.request_evenly(now, lasts, bytes);
        }
        if passage.memory.is_none() && passage.link.is_none() {
            return self.charge(Spent::Think, ps);
        }
        self.channels.waited += lasts - ps;
        self.charge(Spent::Think, lasts);
    }

    /// Returns the cost of a single line that is in the cache of CPU `from` and needed by CPU `to`.
    #[inline]
    pub(crate) fn fetch(&mut self, from: u32, to: u32, now: u64) -> u64 {
        let way = self.way(from, to);
        let latency = way.latency(&self.costs);
        if !matches!(way, Level::Remote(_)) {
            return latency;
        }
        let (from, socket) =
            (self.cpus[from as usize].place.socket, self.cpus[to as usize].place.socket);
        let link = self.channels.link(from, socket);
        let wait = self.wait_of_a_line(Passage { memory: None, link }, now, latency);
        self.channels.waited += wait;
        latency + wait
    }

    /// Returns how long a line with this uncontended latency waits behind others.
    pub(crate) fn wait_of_a_line(&mut self, passage: Passage, now: u64, latency: u64) -> u64 {
        let most = self.threads.active_cores() * self.costs.lines_in_flight;
        let mut wait = 0;
        for channel in self.channels.of(passage) {
            let most = (most * channel.line).saturating_sub(latency);
            wait = wait.max(channel.queued(now).min(most));
            channel.request(1);
        }
        wait
    }

    /// Returns the number of lines that the running CPU can have in flight: its share of its
    /// core's.
    fn own_lines(&self) -> u64 {
        let core = self.cpus[self.cpu as usize].place.core;
        (self.costs.lines_in_flight / self.threads.busy_threads(core)).max(1)
    }

    /// Returns where a line or a page is and which channels it passes, and records that it is here
    /// now.
    #[inline]
    fn look(&mut self, line: Line, bytes: u64) -> (Level, Option<Passage>) {
        let me = self.cpus[self.cpu as usize].place;
        match self.caches.touch(&self.spec, me, line, bytes) {
            Some((Level::Remote(d), from)) => {
                let link = self.channels.link(from, me.socket);
                (Level::Remote(d), link.map(|l| Passage { memory: None, link: Some(l) }))
            }
            Some((level, _)) => (level, None),
            None => {
                let node = match line {
                    Line::Contents(pfn) | Line::Descriptor(pfn) => self.node_of_frame(pfn),
                    Line::Shared(_) => me.node,
                };
                let passage = self.channels.passage(node, me.socket);
                (self.memory_level(me, node), Some(passage))
            }
        }
    }

    pub(crate) fn memory_level(&self, me: Place, node: u16) -> Level {
        if node == me.node {
            Level::Memory
        } else {
            Level::MemoryRemote(self.spec.distance(me.node, node))
        }
    }

    /// Returns the node of a frame: the last one that does not begin above it.
    pub(crate) fn node_of_frame(&self, pfn: u64) -> u16 {
        self.homes.iter().rev().find(|h| h.0 <= pfn).map_or(0, |h| h.1)
    }

    /// Returns the level that a line comes from, between two CPUs.
    pub(crate) fn way(&self, from: u32, to: u32) -> Level {
        let place = |cpu: u32| self.cpus[cpu as usize].place;
        between(&self.spec, place(from), place(to))
    }
}
