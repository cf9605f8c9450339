//! The machine's statistics, in virtual time.

use std::fmt;

use pageyard::lines::Part;

use crate::cache::LEVELS;
use crate::cpu::{CpuState, SPENTS, Spent};
use crate::histogram::Histogram;
use crate::lines::{LineName, LineStats, PartStats, part_name};
use crate::lock_state::{LockName, LockState};
use crate::state::State;

/// How one CPU spent its time, in picoseconds. The parts add up to the elapsed time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuTimes {
    /// The tasks' own work.
    pub think: u64,
    /// Reading, writing and zeroing pages.
    pub touch: u64,
    /// In the allocator, including uncontended locks.
    pub alloc: u64,
    /// Spinning on zone locks.
    pub zone_wait: u64,
    /// Spinning on other locks.
    pub other_wait: u64,
    /// Waiting for lines that other cores have, on the packed engine.
    pub line_wait: u64,
    /// Stalled with a lock held.
    pub stall: u64,
    /// Switching tasks, and waking up.
    pub switch: u64,
    /// Idle.
    pub idle: u64,
}

impl CpuTimes {
    fn of(spent: &[u64; SPENTS]) -> Self {
        let of = |what: Spent| spent[what as usize];
        CpuTimes {
            think: of(Spent::Think),
            touch: of(Spent::Touch),
            alloc: of(Spent::Alloc),
            zone_wait: of(Spent::ZoneWait),
            other_wait: of(Spent::OtherWait),
            line_wait: of(Spent::LineWait),
            stall: of(Spent::Stall),
            switch: of(Spent::Switch),
            idle: of(Spent::Idle),
        }
    }

    /// Returns the sum of everything but idle time.
    pub fn busy(&self) -> u64 {
        self.think
            + self.touch
            + self.alloc
            + self.zone_wait
            + self.other_wait
            + self.line_wait
            + self.stall
            + self.switch
    }

    fn add(&mut self, o: &CpuTimes) {
        self.think += o.think;
        self.touch += o.touch;
        self.alloc += o.alloc;
        self.zone_wait += o.zone_wait;
        self.other_wait += o.other_wait;
        self.line_wait += o.line_wait;
        self.stall += o.stall;
        self.switch += o.switch;
        self.idle += o.idle;
    }
}

/// The statistics of one lock; times in picoseconds, histograms in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockStats {
    /// Which lock.
    pub name: LockName,
    /// How often it was taken.
    pub acquired: u64,
    /// How often a task had to wait for it.
    pub contended: u64,
    /// How often a try-lock failed.
    pub refused: u64,
    /// Total time spent waiting.
    pub waited: u64,
    /// The longest wait.
    pub longest_wait: u64,
    /// Total time held.
    pub held: u64,
    /// The longest hold.
    pub longest_held: u64,
    /// How often it came from another CPU, by the distance of that CPU ([`Level::index`]).
    ///
    /// [`Level::index`]: crate::Level::index
    pub passed: [u64; LEVELS],
    /// Durations of waits.
    pub waits: Histogram,
    /// Durations of holds; of zone locks only.
    pub holds: Histogram,
    /// Of these, holds in which blocks left the zone, mainly refills.
    pub alloc_holds: Histogram,
    /// Total duration of these.
    pub held_alloc: u64,
    /// Of the holds, the others: those in which blocks returned to the zone, mainly bulk frees, and the few in
    /// which none moved, as a tick's. They cost as much as returning one block past the lists, from which
    /// nothing tells them apart.
    pub free_holds: Histogram,
    /// Total duration of these.
    pub held_free: u64,
}

impl LockStats {
    fn of(lock: &LockState) -> Self {
        let c = &lock.contention;
        let mut holds = c.alloc_holds.0.clone();
        holds.merge(&c.free_holds.0);
        LockStats {
            name: lock.name,
            acquired: lock.acquired,
            contended: c.contended,
            refused: c.refused,
            waited: c.waited,
            longest_wait: c.longest_wait,
            held: lock.held,
            longest_held: lock.longest_held,
            passed: c.passed,
            waits: c.waits.clone(),
            holds,
            alloc_holds: c.alloc_holds.0.clone(),
            held_alloc: c.alloc_holds.1,
            free_holds: c.free_holds.0.clone(),
            held_free: c.free_holds.1,
        }
    }
}

/// All statistics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stats {
    /// Elapsed virtual time.
    pub elapsed_ns: u64,
    /// Times by CPU.
    pub cpus: Vec<CpuTimes>,
    /// Locks that were taken or tried, by name.
    pub locks: Vec<LockStats>,
    /// Lines that CPUs share on the packed engine, by purpose. Empty for other yards.
    pub parts: Vec<(Part, PartStats)>,
    /// The lines for which CPUs waited longest, the longest first.
    pub busiest: Vec<LineStats>,
    /// Cache lines touched, by where they were found ([`Level::index`]).
    ///
    /// [`Level::index`]: crate::Level::index
    pub lines: [u64; LEVELS],
    /// Additional picoseconds, over all CPUs, that lines and work took because the demand on a
    /// node's memory or a link between sockets exceeded its bandwidth. Included in the think, touch
    /// and allocator times.
    pub memory_wait: u64,
    /// Number of task switches on the host; not a property of the simulated machine.
    pub switches: u64,
}

impl Stats {
    pub(crate) fn of(state: &State) -> Self {
        let mut lines = [0; LEVELS];
        for cpu in &state.cpus {
            for (sum, n) in lines.iter_mut().zip(cpu.lines) {
                *sum += n;
            }
        }
        let used = |l: &&LockState| l.acquired + l.contention.refused > 0;
        let mut locks: Vec<_> = state.locks.iter().filter(used).map(LockStats::of).collect();
        locks.sort_by_key(|l| l.name);
        let now = state.cpus.iter().map(|c: &CpuState| c.clock).max().unwrap_or(0);
        Stats {
            elapsed_ns: (now - state.since) / 1000,
            cpus: state.cpus.iter().map(|c| CpuTimes::of(&c.spent)).collect(),
            locks,
            parts: state.lines.parts(),
            busiest: state.lines.busiest(BUSIEST),
            lines,
            memory_wait: state.channels.waited,
            switches: state.switches,
        }
    }

    /// Returns the sum over all CPUs.
    pub fn total(&self) -> CpuTimes {
        let mut total = CpuTimes::default();
        self.cpus.iter().for_each(|c| total.add(c));
        total
    }

    /// Returns the share of the CPUs' busy time spent spinning on zone locks, in millionths: the
    /// seed's column *zone lock %* (A.4).
    pub fn zone_lock_share(&self) -> u64 {
        let total = self.total();
        share(total.zone_wait, total.busy())
    }

    /// Returns the time spent spinning on the tasks' own locks, in picoseconds, if they took any.
    pub fn task_lock_wait(&self) -> Option<u64> {
        let own = self.locks.iter().filter(|l| matches!(l.name, LockName::Task(_)));
        own.map(|l| l.waited).reduce(|a, b| a + b)
    }

    /// Returns the share of the CPUs' busy time spent spinning on the tasks' own locks, in
    /// millionths, if they took any.
    pub fn task_lock_share(&self) -> Option<u64> {
        Some(share(self.task_lock_wait()?, self.total().busy()))
    }

    /// Returns the share of the CPUs' busy time spent waiting for lines that other cores have, in
    /// millionths.
    pub fn line_share(&self) -> u64 {
        share(self.total().line_wait, self.total().busy())
    }

    /// Returns the line for which CPUs waited longest, and the share of the busy time that took, in
    /// millionths.
    pub fn busiest_line(&self) -> Option<(LineName, u64)> {
        let line = self.busiest.first()?;
        Some((line.name, share(line.waited, self.total().busy())))
    }

    /// Returns the share of the CPUs' busy time spent waiting for the bandwidth of memory and
    /// links, in millionths.
    pub fn memory_wait_share(&self) -> u64 {
        share(self.memory_wait, self.total().busy())
    }

    /// Returns the share of touched lines that no cache of the CPU's complex held, in millionths; `None`
    /// if none was touched.
    pub fn miss_share(&self) -> Option<u64> {
        let missed = self.lines[crate::cache::Level::Socket.index()..].iter().sum();
        let touched = self.lines.iter().sum();
        (touched > 0).then(|| share(missed, touched))
    }

    /// Returns the zone locks.
    pub fn zone_locks(&self) -> impl Iterator<Item = &LockStats> {
        self.locks.iter().filter(|l| matches!(l.name, LockName::Zone(_)))
    }
}

/// Lines that [`Stats::busiest`] names.
const BUSIEST: usize = 8;

fn share(part: u64, whole: u64) -> u64 {
    (u128::from(part) * 1_000_000).checked_div(whole.into()).unwrap_or(0) as u64
}

impl Stats {
    /// Formats what CPUs waited for lines, if there are any.
    fn fmt_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts.is_empty() {
            return Ok(());
        }
        let busy = self.total().busy();
        let percent = |part: u64| {
            let p = share(part, busy);
            format!("{}.{:03}%", p / 10_000, p / 10 % 1000)
        };
        writeln!(
            f,
            "  waiting for shared lines, of busy time: {}",
            percent(self.total().line_wait)
        )?;
        writeln!(
            f,
            "{:28} {:>10} {:>10} {:>9} {:>9} {:>9}",
            "shared lines", "accesses", "moved", "queued", "moving", "max, ns"
        )?;
        for (part, s) in &self.parts {
            writeln!(
                f,
                "{:28} {:>10} {:>10} {:>9} {:>9} {:>9}",
                format!("  {}", part_name(*part)),
                s.accesses,
                s.moved,
                percent(s.queued),
                percent(s.moving),
                s.longest / 1000
            )?;
        }
        for line in &self.busiest {
            writeln!(f, "  {} {}", percent(line.waited), line.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let of = |part: u64| share(part, total.busy() + total.idle);
        let percent = |p: u64| format!("{}.{:02}%", p / 10_000, p / 100 % 100);
        writeln!(f, "simulated: {} ns on {} CPUs", self.elapsed_ns, self.cpus.len())?;
        for (name, part) in [
            ("think", total.think),
            ("touch", total.touch),
            ("allocator", total.alloc),
            ("zone lock wait", total.zone_wait),
            ("other lock wait", total.other_wait),
            ("stalled", total.stall),
            ("switch", total.switch),
            ("idle", total.idle),
        ] {
            writeln!(f, "  {name:16} {:>8}", percent(of(part)))?;
        }
        writeln!(f, "  zone lock, of busy time: {}", percent(self.zone_lock_share()))?;
        writeln!(
            f,
            "  waiting for memory or links, of busy time: {}",
            percent(self.memory_wait_share())
        )?;
        let missed = self.miss_share().map_or_else(|| "-".to_owned(), percent);
        writeln!(f, "  lines missed: {missed}")?;
        writeln!(
            f,
            "{:28} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "zone lock, ns",
            "acquired",
            "contended",
            "wait avg",
            "wait p99",
            "hold avg",
            "hold p99",
            "hold max"
        )?;
        for lock in self.zone_locks() {
            let LockName::Zone(zone) = lock.name else { continue };
            let average = |sum: u64, n: u64| (sum / 1000).checked_div(n).unwrap_or(0);
            writeln!(
                f,
                "{:28} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
                format!("  node {} {}", zone.node.0, zone.kind),
                lock.acquired,
                lock.contended,
                average(lock.waited, lock.contended),
                lock.waits.quantile(990),
                average(lock.held, lock.acquired),
                lock.holds.quantile(990),
                lock.longest_held / 1000
            )?;
        }
        self.fmt_lines(f)
    }
}
