//! A platform whose hooks all do something, randomly but repeatably, and which logs every call.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock};

use pageyard::{
    Context, CpuId, Defences, Event, Gfp, Hooked, NodeCaches, NodeId, NodeReclaim, NodeReclaimJob,
    Observer, Oom, Order, PageState, Pfn, Platform, Reclaim, ReclaimJob, Relocation, Report,
    SECTION_PAGES, Throttle, Yard, ZoneId, ZoneKind,
};

use crate::common::owners::Random;
use crate::common::{Chosen, Lock};

/// The yard of these tests.
pub(crate) type Y = Yard<'static, Hooked<Lock, &'static Actor, Chosen>>;

/// How the hooks answer.
#[derive(Clone, Copy, Default)]
pub(crate) struct Mood {
    /// Pages that a reclaim frees.
    pub(crate) frees: usize,
    /// Pages that it claims beyond that.
    pub(crate) claims: u64,
    pub(crate) reclaimable: u64,
    /// One in this many blocks refuses to move, one is busy; 0: none.
    pub(crate) stays: u64,
    /// One in this many blocks must be left alone; 0: none.
    pub(crate) unevictable: u64,
    /// Attempts of a request that must not fail.
    pub(crate) patience: u32,
    /// Bit mask of nodes that accept no more dirty pages.
    pub(crate) dirty: u64,
    /// One in this many pages is found bad by the policies that check pages; 0: none.
    pub(crate) bad: u64,
    /// Whether the hook that free blocks are reported to tries to remove their memory.
    pub(crate) removes: bool,
    /// Whether the next block that moves loses a frame of the place for the one after it.
    pub(crate) poisons: bool,
    /// Whether requests need no context.
    pub(crate) plain: bool,
}

pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) owned: BTreeMap<Pfn, Order>,
    pub(crate) mood: Mood,
    pub(crate) context: Context,
    pub(crate) cpu: u32,
    pub(crate) clock: u64,
    pub(crate) log: String,
}

/// Replaces the mood for hooks that free pages or let others free them: returns the number of pages
/// to free, by the hook's name.
pub(crate) type Script = fn(&Actor, &'static str) -> Option<usize>;

pub(crate) struct Actor {
    pub(crate) yard: OnceLock<&'static Y>,
    state: Mutex<State>,
    pub(crate) script: Mutex<Option<Script>>,
    /// The block whose unmapping from the direct map panics, and its move.
    panics: AtomicU64,
}

impl Actor {
    pub(crate) fn new(seed: u64) -> Self {
        let state = State {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            owned: BTreeMap::new(),
            mood: Mood::default(),
            context: Context::default(),
            cpu: 0,
            clock: 1,
            log: String::new(),
        };
        Actor {
            yard: OnceLock::new(),
            state: Mutex::new(state),
            script: Mutex::new(None),
            panics: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(crate) fn below(&self, n: usize) -> usize {
        self.state().random.below(n)
    }

    pub(crate) fn log(&self, line: std::fmt::Arguments<'_>) {
        let mut state = self.state();
        assert!(state.log.len() < 1 << 26, "the call does not terminate");
        let _ = state.log.write_fmt(line);
        state.log.push('\n');
    }

    /// Removes a random block from its owner.
    pub(crate) fn pick(&self) -> Option<(Pfn, Order)> {
        let mut state = self.state();
        let n = state.owned.len();
        if n == 0 {
            return None;
        }
        let end = state.owned.last_key_value().map_or(0, |(p, _)| p.0 as usize + 1);
        let from = Pfn(state.random.below(end) as u64);
        let (pfn, order) = state.owned.range(from..).next().map(|(&p, &o)| (p, o))?;
        state.owned.remove(&pfn);
        Some((pfn, order))
    }

    /// Starts the log, and the script for the hooks.
    pub(crate) fn begin(&self, script: Script) {
        self.state().log.clear();
        *self.script.lock().unwrap() = Some(script);
    }

    pub(crate) fn panic_at(&self, pfn: Pfn) {
        self.panics.store(pfn.0, Relaxed);
    }

    fn scripted(&self, hook: &'static str) -> Option<u64> {
        let script = (*self.script.lock().unwrap())?;
        Some(self.free(script(self, hook)?))
    }

    pub(crate) fn free(&self, n: usize) -> u64 {
        let Some(yard) = self.yard.get() else { return 0 };
        let mut freed = 0;
        for _ in 0..n {
            let Some((pfn, order)) = self.pick() else { break };
            yard.free(pfn, order).unwrap();
            freed += u64::from(order.pages());
        }
        freed
    }
}

impl Platform for Actor {
    fn cpu(&self) -> CpuId {
        CpuId(self.state().cpu)
    }

    fn now(&self) -> u64 {
        self.state().clock
    }

    fn pause(&self) {
        self.state().log.push_str("pause\n");
    }

    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        self.log(format_args!("prepare {} {order} {:x}", pfn.0, gfp.bits()));
    }
}

impl Reclaim for Actor {
    const REPORT_ORDER: Option<Order> = Order::new(6);

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        self.log(format_args!("report_free {blocks:?}"));
        let section = |pfn: u64| Pfn(pfn / SECTION_PAGES * SECTION_PAGES);
        if self.state().mood.removes
            && let (Some(yard), Some((pfn, _))) = (self.yard.get(), blocks.first())
        {
            let left = yard.offline(section(pfn.0)..section(pfn.0 + SECTION_PAGES));
            self.log(format_args!("offline {left:?}"));
        }
        self.below(4) != 0
    }

    fn is_plain(&self, _: Gfp) -> bool {
        self.state().mood.plain
    }

    fn context(&self) -> Context {
        self.scripted("context");
        self.state().context
    }

    fn dirty_ok(&self, node: NodeId) -> bool {
        let ok = self.state().mood.dirty >> node.0 & 1 == 0;
        self.log(format_args!("dirty_ok {} {ok}", node.0));
        ok
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        self.log(format_args!("reclaim {job:?}"));
        if let Some(freed) = self.scripted("reclaim") {
            return freed;
        }
        let mood = self.state().mood;
        self.free(mood.frees) + mood.claims
    }

    fn reclaimable(&self, zone: ZoneId) -> u64 {
        self.log(format_args!("reclaimable {zone:?}"));
        self.state().mood.reclaimable
    }

    fn node_reclaim(&self, job: &NodeReclaimJob) -> NodeReclaim {
        self.log(format_args!("node_reclaim {job:?}"));
        match self.below(4) {
            0 => NodeReclaim::NoScan,
            1 => NodeReclaim::Full,
            2 => NodeReclaim::Some,
            _ => {
                self.free(40);
                NodeReclaim::Success
            }
        }
    }

    fn node_caches(&self, job: &NodeReclaimJob) -> Option<NodeCaches> {
        let n = self.below(4000) as u64;
        (job.pages != 0 && n < 3000).then_some(NodeCaches { unmapped: n, slab: n / 2 })
    }

    fn throttle(&self, node: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        self.log(format_args!("throttle {} {most_ns:?} {}", node.0, enough()));
        if self.scripted("throttle").is_some() {
            return Throttle::Done;
        }
        if self.below(8) == 0 { Throttle::Killed } else { Throttle::Done }
    }

    fn out_of_memory(&self, job: &ReclaimJob) -> Oom {
        self.log(format_args!("out_of_memory {job:?}"));
        if let Some(freed) = self.scripted("out_of_memory") {
            return if freed > 0 { Oom::Progress } else { Oom::Nothing };
        }
        let lies = self.below(8) == 0;
        let n = self.below(3) * 40;
        if self.free(n) > 0 || lies { Oom::Progress } else { Oom::Nothing }
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        self.log(format_args!("keep_trying {order} {tries}"));
        tries <= self.state().mood.patience
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest: ZoneKind) {
        self.log(format_args!("wake_reclaim {} {order} {highest:?}", node.0));
    }

    fn wake_compaction(&self, node: NodeId) {
        self.log(format_args!("wake_compaction {}", node.0));
    }

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        assert_ne!(self.panics.load(Relaxed), from.0, "planned");
        if std::mem::take(&mut self.state().mood.poisons) {
            for next in [to.0 - 1, to.0 + u64::from(order.pages())] {
                let _ = self.yard.get().unwrap().poison_frame(Pfn(next));
            }
        }
        let mut state = self.state();
        let stays = state.mood.stays;
        let answer = match state.random.below(stays.max(1) as usize) {
            _ if state.owned.get(&from) != Some(&order) => Relocation::Refused,
            0 if stays != 0 => Relocation::Busy,
            _ if stays != 0 && from.0.is_multiple_of(stays) => Relocation::Refused,
            _ => Relocation::Moved,
        };
        if answer == Relocation::Moved {
            state.owned.remove(&from);
            assert!(state.owned.insert(to, order).is_none(), "{to} has an owner");
        }
        let _ = writeln!(state.log, "relocate {} {} {order} {answer:?}", from.0, to.0);
        answer
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        let n = self.state().mood.unevictable;
        n != 0 && pfn.0.is_multiple_of(n)
    }
}

impl Observer for Actor {
    const SEES_TUNING: bool = true;
    const SEES_TOUCHES: bool = true;

    fn touch(&self, pfn: Pfn) {
        self.log(format_args!("touch {}", pfn.0));
    }

    fn event(&self, cpu: CpuId, event: Event) {
        self.log(format_args!("{} {event:?}", cpu.0));
    }

    fn report(&self, report: Report) {
        self.log(format_args!("report {report:?}"));
    }

    fn warn(&self, order: Order, gfp: Gfp) {
        self.log(format_args!("warn {order} {:x}", gfp.bits()));
    }
}

impl Defences for Actor {
    fn page_state(&self, pfn: Pfn) -> PageState {
        let n = self.state().mood.bad;
        PageState { refcount: u32::from(n != 0 && pfn.0 % n == 7), ..PageState::UNUSED }
    }

    fn zero(&self, pfn: Pfn, order: Order) -> bool {
        self.log(format_args!("zero {} {order}", pfn.0));
        true
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        self.log(format_args!("poison {} {order}", pfn.0));
    }

    fn unmap(&self, pfn: Pfn, order: Order) {
        self.log(format_args!("unmap {} {order}", pfn.0));
        assert_ne!(self.panics.load(Relaxed), pfn.0, "planned");
    }

    fn map(&self, pfn: Pfn, order: Order) {
        self.log(format_args!("map {} {order}", pfn.0));
    }
}
