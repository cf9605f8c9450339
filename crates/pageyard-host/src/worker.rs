//! The background work of a yard: statistics, reclaim, compaction, limits, returning idle memory.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pageyard::policy::{Packed, Policy};
use pageyard::{
    CpuId, Gfp, Hooked, Kswapd, NodeId, NodeMask, Order, ReclaimJob, ReclaimTask, ZoneId, ZoneKind,
};

use crate::callback::guarded;
use crate::clock;
use crate::cpu;
use crate::give_back::{GiveBack, Idle, Sample, whole_blocks};
use crate::latch::{Causes, System};
use crate::limits::Limits;
use crate::lock::HostLock;
use crate::page::Page;
use crate::pieces::Pieces;
use crate::platform::HostPlatform;
use crate::pressure::{Level, PressureEvent};
use crate::raw_yard::RawYard;
use crate::service::States;
use crate::signals::{Signals, SystemFiles};
use crate::stats::YardStats;
use crate::thread_cache::ThreadCacheStats;
use crate::trace_events::Reported;
use crate::usage::Usage;

const MS: u64 = 1_000_000;
/// Nanoseconds between two steps: while something changes, while nothing does, and while nothing is
/// left to return to the system either.
const BUSY: u64 = 100 * MS;
const QUIET: u64 = 250 * MS;
const ASLEEP: u64 = 500 * MS;
/// Nanoseconds between two publications of statistics.
const PUBLISH: u64 = 450 * MS;
/// Per-CPU lists unused by their CPU for this many nanoseconds are drained.
const UNUSED: u64 = 400 * MS;
/// Nanoseconds between two attempts of background reclaim that has given up.
const AGAIN: u64 = 1000 * MS;
/// Maximum number of reclaim jobs of a node in one step; the rest follows in the next step.
const RECLAIMS: u32 = 64;

/// Work that the worker does for its yard. It may run with the thread bound to a CPU.
pub(crate) type Chore = Box<dyn Fn() + Send + Sync>;

/// Configuration of a worker.
pub(crate) struct Plan {
    /// Interval and function of the statistics tick.
    pub(crate) every: Duration,
    pub(crate) tick: Chore,
    /// Drains the threads' magazines and the per-CPU lists, under pressure.
    pub(crate) drain: Chore,
    /// Returns the statistics of the thread cache.
    pub(crate) thread_caches: Box<dyn Fn() -> ThreadCacheStats + Send + Sync>,
    pub(crate) give_back: Option<GiveBack>,
    /// Why idle memory is not returned, if `give_back` is `None`.
    pub(crate) keeps: Option<String>,
    pub(crate) system: SystemFiles,
    pub(crate) page: Option<Page>,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { every, give_back, system, .. } = self;
        f.debug_struct("Plan")
            .field("every", every)
            .field("give_back", give_back)
            .field("system", system)
            .finish_non_exhaustive()
    }
}

/// A time that does not come.
const UNTIL_WOKEN: u64 = u64::MAX;

type Reclaimer<'y, P> = Kswapd<'y, 'y, Hooked<HostLock, HostPlatform, P>>;

/// Background reclaim and compaction of a node.
#[derive(Debug)]
struct NodeWork<'y, P: Policy> {
    node: NodeId,
    kswapd: Reclaimer<'y, P>,
    /// Napping until this time.
    nap: Option<u64>,
    /// If reclaim has given up, not tried again before this time.
    again: u64,
    /// When compaction is due; `None`: in the next step; [`UNTIL_WOKEN`].
    compact: Option<u64>,
}

/// When a CPU's lists were last seen in use.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    requests: u64,
    since: u64,
    drained: bool,
}

/// The background worker of a yard, run step by step
/// ([`HostYard::worker`](crate::HostYard::worker)). A yard has at most one worker at a time. A
/// worker that is forgotten ([`mem::forget`](std::mem::forget)) leaves the yard without one for
/// good.
///
/// ```
/// use pageyard_host::{Builder, Worker};
///
/// // Without a thread of its own.
/// let yard = Builder::new(16 << 20).tick(None).build()?;
/// let mut worker: Worker<'_> = yard.worker().expect("the yard has no other");
/// let rest = worker.step();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Worker<'y, P: Policy = Packed> {
    raw: &'y RawYard<P, HostLock>,
    plan: &'y Plan,
    nodes: Vec<NodeWork<'y, P>>,
    zones: Vec<ZoneId>,
    idle: Option<Idle>,
    pieces: Option<Pieces>,
    signals: Signals,
    causes: Causes,
    seen: Vec<Seen>,
    /// No CPU has used its lists since the last drain of all.
    drained: bool,
    tick_at: u64,
    used: u64,
    draw: u64,
    /// When statistics are published next.
    publish_at: u64,
    reported: Reported,
    /// Dropped last: another worker may begin only after all of this one is gone.
    _working: Working,
}

/// Returns how many pages the shrinkers are asked for when the system or the control group is
/// short: a share of the pages in use.
fn share_for_system(used: u64, group: Option<bool>, stalled: bool) -> u64 {
    match group {
        Some(true) => used / 16,
        Some(false) => used / 64,
        None if stalled => used / 64,
        None => 0,
    }
}

/// Returns whether enough memory above the target is resident that idle memory will be returned
/// soon.
fn has_spare(resident: u64, target: u64, used: u64) -> bool {
    resident > target + used / 64 + 1024
}

impl<'y, P: Policy> Worker<'y, P> {
    /// Creates the worker; `None` if the yard has one.
    pub(crate) fn new(raw: &'y RawYard<P, HostLock>, plan: &'y Plan) -> Option<Self> {
        let working = Working::begin(&raw.service().working)?;
        Some(Worker::begin(raw, plan, working))
    }

    fn begin(raw: &'y RawYard<P, HostLock>, plan: &'y Plan, working: Working) -> Self {
        let service = raw.service();
        let now = clock::now();
        let core = raw.core();
        let zones: Vec<ZoneId> = core.zone_ids().collect();
        let mut nodes: Vec<NodeId> =
            zones.iter().filter_map(|&z| Some(core.zone_info(z)?.node)).collect();
        nodes.dedup();
        let behind = |node| {
            let kswapd = core.kswapd(node)?;
            Some(NodeWork { node, kswapd, nap: None, again: 0, compact: None })
        };
        let signals = Signals::open(&plan.system);
        service.set_states(states(&signals, plan));
        service.events.began(&signals.psi_state, &signals.group_state, plan.keeps.as_deref());
        service.lazily.store(plan.give_back.is_some_and(|g| g.lazily), Relaxed);
        let pages = raw.region().pages();
        Worker {
            raw,
            plan,
            nodes: nodes.into_iter().filter_map(behind).collect(),
            zones,
            idle: plan.give_back.map(|how| Idle::new(&how, pages, now)),
            pieces: plan.give_back.filter(GiveBack::returns_pieces).map(|_| Pieces::default()),
            signals,
            causes: Causes::default(),
            seen: vec![Seen::default(); core.cpus() as usize],
            drained: false,
            tick_at: now.saturating_add(nanos(plan.every)),
            used: 0,
            draw: now | 1,
            publish_at: now,
            reported: Reported::default(),
            _working: working,
        }
    }

    /// Does the work that is due. Returns how long there is nothing more to do, unless the yard's
    /// wake event is signalled; [`wait`](Worker::wait) waits for either.
    ///
    /// It calls shrinkers, relocators and listeners. When a tick is due, the calling thread runs on
    /// each of the yard's CPUs in turn and then returns to its own. In a child after a fork it does
    /// nothing.
    pub fn step(&mut self) -> Duration {
        if !self.is_here() {
            return Duration::from_nanos(ASLEEP);
        }
        let mut now = clock::now();
        if now >= self.tick_at {
            self.tick_at = now.saturating_add(nanos(self.plan.every));
            self.tick();
            now = clock::now();
        }
        let service = self.raw.service();
        self.raw.adjust_balloon();
        if !self.signals.refresh(now) {
            service.set_states(states(&self.signals, self.plan));
        }
        let is_isolating = || service.isolating.load(SeqCst) > 0;
        let before = is_isolating();
        let mut usage = Usage::of(self.raw);
        if before || is_isolating() {
            // Free pages of isolated pageblocks look as if they were in use.
            usage.used = usage.used.min(self.used);
        }
        let limits = service.balloon.limits();
        let level = self.judge(&usage, limits, now);
        self.reclaim(usage.low, now);
        self.compact(now);
        if !self.is_here() {
            // A callback forked.
            return Duration::from_nanos(ASLEEP);
        }
        self.drain_unused(now);
        let spare = self.give_back(level >= Level::Moderate && self.system_is_short(now), now);

        let shrunk = service.shrunk_directly.load(Relaxed);
        service.events.requests(&mut self.reported, now, shrunk, || (self.plan.thread_caches)());

        if let Some(page) = self.plan.page.as_ref().filter(|_| now >= self.publish_at) {
            self.publish_at = now + PUBLISH;
            page.write(&YardStats::of(self.raw, || (self.plan.thread_caches)()));
        }

        let changes = usage.used != self.used;
        self.used = usage.used;
        let interval = match () {
            () if changes || level > Level::Calm || spare => BUSY,
            () if usage.waiting > 0 || limits.soft.is_some() => QUIET,
            () => ASLEEP,
        };
        // Randomised, to avoid running in step with a periodic load.
        self.draw = self.draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let interval = interval - interval / 4 + (self.draw >> 33) % (interval / 2);
        let naps = self.nodes.iter().flat_map(|n| [n.nap, n.compact]).flatten();
        let due = naps.chain([self.tick_at]).min().unwrap_or(self.tick_at);
        Duration::from_nanos(due.saturating_sub(now).min(interval))
    }

    fn is_here(&self) -> bool {
        self.raw.service().born.is_here()
    }

    /// Sleeps until the wake event is signalled, the system reports a stall, or `most` has passed. In
    /// a child after a fork, which shares the event, it only sleeps.
    pub fn wait(&mut self, most: Duration) {
        if !self.is_here() {
            return thread::sleep(most);
        }
        let service = self.raw.service();
        let heard = service.wake_event.wait(&self.signals.files(), most);
        let now = clock::now();
        for (fd, revents) in heard {
            if !self.signals.handle_event(fd, revents, now) {
                service.set_states(states(&self.signals, self.plan));
            }
        }
    }

    /// Runs until `stop` is set and [the wake event is signalled](crate::HostYard::wake_worker).
    pub fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            let most = self.step();
            if !stop.load(SeqCst) {
                self.wait(most);
            }
        }
    }

    fn tick(&self) {
        // If the system refuses to say, the thread may run anywhere afterwards.
        let home = cpu::allowed().unwrap_or_else(|_| cpu::all());
        (self.plan.tick)();
        // If the old CPUs are not allowed any more, the thread stays where it is.
        let _ = cpu::bind(&home);
        self.raw.service().ticks.fetch_add(1, Relaxed);
    }

    fn system_is_short(&self, now: u64) -> bool {
        self.signals.stalled(now) || self.signals.group_short(now).is_some()
    }

    /// Updates the pressure level and calls the listeners if it changed. Asks the shrinkers for the
    /// pages that keep the pressure on, or for a share of those in use if the system is short.
    fn judge(&mut self, usage: &Usage, limits: Limits, now: u64) -> Level {
        let service = self.raw.service();
        let (group, stalled) = (self.signals.group_short(now), self.signals.stalled(now));
        let (level, causes) = self.causes.update(usage, limits, System { stalled, group }, now);
        let over = self.causes.above_soft(usage.used);
        let before = Level::from_u8(service.level.swap(level as u8, Relaxed));
        if level != before {
            let Limits { hard, soft } = limits;
            let event = PressureEvent { level, before, causes, used: usage.used, soft, hard };
            service.events.pressure(&event);
            service.listeners.all().iter().for_each(|listener| _ = guarded(|| listener(&event)));
        }
        let system = share_for_system(usage.used, group, stalled);
        if system > 0 {
            (self.plan.drain)();
            service.events.drained(level);
        }
        let pages = over.max(system);
        if pages > 0 {
            let freed = service.reclaim_in_background(&self.job(pages));
            service.events.reclaimed(None, Order::ZERO, pages, freed);
        }
        level
    }

    fn job(&self, pages: u64) -> ReclaimJob {
        ReclaimJob {
            node: self.nodes.first().map_or(NodeId(0), |n| n.node),
            allowed: NodeMask::ALL,
            highest: ZoneKind::Normal,
            order: Order::ZERO,
            gfp: Gfp::KERNEL,
            pages,
            priority: ReclaimJob::FIRST_PRIORITY,
            may_write: true,
            may_swap: true,
        }
    }

    /// Reclaims in the background, on nodes that were woken or whose nap is over. `low`: a node is
    /// below its LOW watermark. Then also on nodes whose reclaim has given up, as soon as a shrinker
    /// has pages: no request wakes these.
    fn reclaim(&mut self, low: bool, now: u64) {
        let service = self.raw.service();
        for n in &mut self.nodes {
            let mut woken = service.reclaim.take(n.node);
            if low && now >= n.again && self.raw.core().is_hopeless(n.node) {
                n.again = now + AGAIN;
                woken |= service.reclaimable() > 0;
            }
            if !woken && n.nap.is_none_or(|until| now < until) {
                continue;
            }
            let core = self.raw.core();
            let all_freed = || -> u64 {
                self.zones.iter().filter_map(|&z| core.zone_totals(z)).map(|t| t.free_pages).sum()
            };
            let (before, mut claimed, mut freed) = (all_freed(), 0, 0);
            n.nap = Some(now);
            for _ in 0..RECLAIMS {
                match n.kswapd.next(freed) {
                    ReclaimTask::Reclaim(job) => {
                        freed = service.reclaim_in_background(&job);
                        claimed += freed;
                        service.events.reclaimed(Some(n.node), job.order, job.pages, freed);
                    }
                    ReclaimTask::Nap(ns) => {
                        n.nap = Some(now + ns);
                        break;
                    }
                    ReclaimTask::Sleep => {
                        n.nap = None;
                        break;
                    }
                }
            }
            // A shrinker that claims more pages than were freed would keep this thread busy for ever.
            if n.nap == Some(now) && all_freed().saturating_sub(before) < claimed / 2 {
                n.nap = Some(now + BUSY);
            }
        }
    }

    /// Compacts in the background, as long as there is anything movable.
    fn compact(&mut self, now: u64) {
        let service = self.raw.service();
        let useful = service.can_move() && !self.raw.region().is_pinned();
        for n in &mut self.nodes {
            let woken = service.compaction.take(n.node);
            if !useful {
                n.compact = None;
            } else if woken || n.compact.is_none_or(|at| now >= at) {
                let before = service.moved.load(Relaxed);
                let done = self.raw.core().compact_background(n.node);
                if done.worked {
                    let moved = service.moved.load(Relaxed) - before;
                    service.events.compacted(n.node, moved);
                }
                n.compact = Some(done.sleep.map_or(UNTIL_WOKEN, |ns| now + ns));
            }
        }
    }

    /// Drains the lists of CPUs that have not used them for a while; once no CPU has, also the depots
    /// of the packed engine, which a tick only trims. Their blocks keep pageblocks in pieces.
    fn drain_unused(&mut self, now: u64) {
        let core = self.raw.core();
        let mut unused = true;
        for (cpu, seen) in (0..).map(CpuId).zip(&mut self.seen) {
            let mut requests = 0;
            for &zone in &self.zones {
                let Some(stats) = core.cpu_stats(zone, cpu) else { continue };
                requests += stats.allocs.blocks() + stats.frees.blocks();
            }
            if requests != seen.requests {
                *seen = Seen { requests, since: now, drained: false };
                self.drained = false;
            }
            if now.saturating_sub(seen.since) < UNUSED {
                unused = false;
            } else if !seen.drained {
                core.drain_cpu(cpu, None);
                seen.drained = true;
            }
        }
        if unused && !self.drained {
            core.drain_all(None);
            self.drained = true;
        }
    }

    /// Returns idle memory to the system. Returns whether there is more to return soon.
    fn give_back(&mut self, pressure: bool, now: u64) -> bool {
        let (Some(idle), Some(how)) = (&mut self.idle, self.plan.give_back) else { return false };
        let usage = Usage::of(self.raw);
        let resident = usage.resident(self.raw);
        let Usage { managed, used, .. } = usage;
        let service = self.raw.service();
        let core = self.raw.core();
        let lowest: u64 = self.zones.iter().filter_map(|&z| core.take_lowest_free(z)).sum();
        let peak = managed.saturating_sub(lowest + service.balloon.pages()).max(used);
        let (waiting, retaken) = match &mut self.pieces {
            // All that is free may be returned.
            Some(pieces) => (resident.saturating_sub(used), pieces.note(resident, &usage, peak)),
            None => (usage.waiting, usage.retaken),
        };
        let most = idle.step(&Sample { now, used, peak, resident, waiting, retaken }, pressure);
        service.target.store(idle.target(), Relaxed);
        let least = if pressure || idle.is_quiet() { Order::ZERO } else { Order::MAX };
        let mut given = 0;
        if let Some(pieces) = &mut self.pieces {
            given = pieces.give_back(self.raw, &self.zones, least, how.least, most);
        } else {
            for &zone in &self.zones {
                // The last block is reported as a whole, also if it is larger than what is left.
                let left = whole_blocks(most.saturating_sub(given));
                if left > 0 {
                    given += core.report_free_pages(zone, least, left);
                }
            }
        }
        idle.record_returned(given);
        service.given_back.fetch_add(given, Relaxed);
        if given > 0 {
            service.events.gave_back(given, resident - given.min(resident), idle.target());
        }
        given > 0
            || waiting > 0 && self.pieces.is_none() && has_spare(resident, idle.target(), used)
    }
}

/// Marks the yard as having a worker, until dropped.
#[derive(Debug)]
struct Working(Arc<AtomicBool>);

impl Working {
    fn begin(working: &Arc<AtomicBool>) -> Option<Self> {
        (!working.swap(true, SeqCst)).then(|| Working(working.clone()))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.store(false, SeqCst);
    }
}

/// Returns what is watched and why not, and why idle memory is not returned.
fn states(signals: &Signals, plan: &Plan) -> States {
    (signals.psi_state.clone(), signals.group_state.clone(), plan.keeps.clone())
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `f` with all signals blocked except those that an instruction of the thread causes. A thread
/// that `f` starts inherits this mask, so it takes no signal of the process from a program that waits
/// for it (`sigwait`, `signalfd`) and blocks it in all threads of its own.
fn signals_blocked<T>(f: impl FnOnce() -> T) -> T {
    if cfg!(miri) {
        return f();
    }
    const OWN: [libc::c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: the sets are locals, which `sigfillset` and `pthread_sigmask` initialise
    // (`the_yards_own_thread_receives_no_signals_of_the_process`).
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        OWN.iter().for_each(|&signal| _ = libc::sigdelset(&mut all, signal));
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let done = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        done
    }
}

thread_local! {
    /// Set on a yard's worker thread.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Handle of a yard's own worker thread, which ends when the handle is dropped.
pub(crate) struct Keeper {
    stop: Arc<AtomicBool>,
    signal: Box<dyn Fn() + Send + Sync>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("thread", &self.thread).finish_non_exhaustive()
    }
}

impl Keeper {
    pub(crate) fn start<P: Policy + Send + Sync + 'static>(
        raw: Arc<RawYard<P, HostLock>>,
        plan: Arc<Plan>,
    ) -> io::Result<Keeper> {
        // Claimed here, not in the thread: until the thread runs, `HostYard::worker` could claim
        // it.
        let working = Working::begin(&raw.service().working)
            .ok_or_else(|| io::Error::other("the yard has a worker already"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, own) = (stop.clone(), raw.clone());
        let run = move || {
            IS_WORKER.set(true);
            Worker::begin(&*own, &plan, working).run(&seen);
        };
        let thread = signals_blocked(|| thread::Builder::new().name("pageyard".into()).spawn(run))?;
        let signal = Box::new(move || raw.service().wake_event.signal());
        Ok(Keeper { stop, signal, thread: Some(thread) })
    }

    /// Lets the thread end by itself when the handle is dropped.
    pub(crate) fn detach(&mut self) {
        self.thread = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop.store(true, SeqCst);
        (self.signal)();
        // A callback that drops its own yard would wait for itself. Callbacks of two workers that
        // drop each other's yards would wait for each other. The thread holds references to what it
        // needs.
        if let Some(thread) = self.thread.take()
            && !IS_WORKER.get()
        {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
