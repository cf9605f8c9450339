//! Helpers shared by the tests: machines to run a yard on, states built by hand, views of a
//! snapshot, and the invariants that hold while no thread is inside the allocator.

// Other packages and the fuzz targets include this file; each uses a part of it.
#![allow(dead_code)]

pub(crate) mod any;
pub(crate) mod by_thread;
pub(crate) mod check;
pub(crate) mod interpose;
pub(crate) mod ops;
pub(crate) mod owners;
pub(crate) mod random;
pub(crate) mod state;
pub(crate) mod view;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use lock_api::RawMutex;
use pageyard::policy::{Linux612, Policy, Rules, StaticPolicy};
use pageyard::{
    Config, CpuId, Defences, Event, Frame, Hooked, Hooks, InitError, Knobs, Layout, Needs, NodeId,
    Observer, Order, OwnedStorage, Pageblock, Pfn, Platform, Reclaim, Record, Storage, Yard,
    ZoneId, ZoneKind, ZoneSpec,
};

/// The lock of most tests.
pub(crate) type Lock = spin::mutex::SpinMutex<()>;

/// The policy of most tests. As its rules are a value, all policies share one instance of the
/// allocator's code, instead of one compiled for each.
pub(crate) type Chosen = &'static Rules;

/// The rules of most tests.
pub(crate) const LINUX612: Chosen = &Linux612::RULES;

/// The yard of most tests.
pub(crate) type Y<'a, P = Chosen> = Yard<'a, Hooked<Lock, Stage, P>>;

/// A platform that is told which CPU runs, and records the calls it receives.
#[derive(Debug, Default)]
pub(crate) struct Stage {
    cpu: AtomicU32,
    watching: AtomicBool,
    events: Mutex<Vec<(CpuId, Event)>>,
    wakes: Mutex<Vec<(Order, ZoneKind)>>,
    prepared: Mutex<Vec<Pfn>>,
}

impl Stage {
    /// Executes on this CPU from now on.
    pub(crate) fn on(&self, cpu: u32) -> &Self {
        self.cpu.store(cpu, Relaxed);
        self
    }

    /// Starts recording events and forgets earlier ones.
    pub(crate) fn watch(&self) {
        self.watching.store(true, Relaxed);
        self.events.lock().unwrap().clear();
        self.prepared.lock().unwrap().clear();
    }

    /// The events since [`watch`](Stage::watch) or the last call.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.events.lock().unwrap().drain(..).map(|(_, e)| e).collect()
    }

    /// Reclaim's wake-ups since the last call.
    pub(crate) fn wakes(&self) -> Vec<(Order, ZoneKind)> {
        std::mem::take(&mut self.wakes.lock().unwrap())
    }

    /// Blocks handed to `prepare` since [`watch`](Stage::watch).
    pub(crate) fn prepared(&self) -> Vec<Pfn> {
        std::mem::take(&mut self.prepared.lock().unwrap())
    }
}

impl Platform for Stage {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }

    fn prepare(&self, pfn: Pfn, _: Order, _: pageyard::Gfp) {
        if self.watching.load(Relaxed) {
            self.prepared.lock().unwrap().push(pfn);
        }
    }
}

impl Reclaim for Stage {
    fn wake_reclaim(&self, _: NodeId, order: Order, highest: ZoneKind) {
        self.wakes.lock().unwrap().push((order, highest));
    }
}

impl Observer for Stage {
    fn event(&self, cpu: CpuId, event: Event) {
        if self.watching.load(Relaxed) {
            self.events.lock().unwrap().push((cpu, event));
        }
    }
}

impl Defences for Stage {}

/// Returns 1 if `PAGEYARD_EVERY_CALL` is set, else `usual`, which skips calls to save time.
pub(crate) fn step(usual: usize) -> usize {
    if std::env::var_os("PAGEYARD_EVERY_CALL").is_some() { 1 } else { usual }
}

/// A block's order.
pub(crate) fn o(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A range of frames.
pub(crate) fn frames(r: Range<u64>) -> Range<Pfn> {
    Pfn(r.start)..Pfn(r.end)
}

/// A layout that owns its parts.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) zones: Vec<ZoneSpec>,
    pub(crate) usable: Vec<Range<Pfn>>,
    pub(crate) reserved: Vec<Range<Pfn>>,
    pub(crate) cpus: Vec<NodeId>,
    pub(crate) distances: Vec<u8>,
    pub(crate) knobs: Knobs,
}

impl Machine {
    /// A machine with one CPU and no memory.
    pub(crate) fn new() -> Self {
        Machine {
            zones: Vec::new(),
            usable: Vec::new(),
            reserved: Vec::new(),
            cpus: vec![NodeId(0)],
            distances: Vec::new(),
            knobs: Knobs { huge_pages: false, ..Knobs::default() },
        }
    }

    /// A machine with a NORMAL zone of `pages` pages from frame 0.
    pub(crate) fn normal(pages: u64) -> Self {
        Machine::new().zone(ZoneKind::Normal, 0..pages)
    }

    /// Adds a zone, all of it memory.
    pub(crate) fn zone(self, kind: ZoneKind, span: Range<u64>) -> Self {
        self.span(kind, span.clone()).usable(span)
    }

    /// Adds a zone without memory.
    pub(crate) fn span(mut self, kind: ZoneKind, span: Range<u64>) -> Self {
        self.zones.push(ZoneSpec { kind, node: NodeId(0), span: frames(span) });
        self
    }

    /// Adds a zone of this node, all of it memory.
    pub(crate) fn zone_on(mut self, node: u16, kind: ZoneKind, span: Range<u64>) -> Self {
        self.zones.push(ZoneSpec { kind, node: NodeId(node), span: frames(span.clone()) });
        self.usable(span)
    }

    /// Sets the distances between the nodes, row by row.
    pub(crate) fn distances(mut self, rows: &[u8]) -> Self {
        self.distances = rows.to_vec();
        self
    }

    /// Adds usable memory.
    pub(crate) fn usable(mut self, r: Range<u64>) -> Self {
        self.usable.push(frames(r));
        self
    }

    /// Adds memory that is in use from the start.
    pub(crate) fn reserved(mut self, r: Range<u64>) -> Self {
        self.reserved.push(frames(r));
        self
    }

    /// Sets the CPUs, each by its node.
    pub(crate) fn cpus(mut self, nodes: &[u16]) -> Self {
        self.cpus = nodes.iter().map(|&n| NodeId(n)).collect();
        self
    }

    pub(crate) fn knobs(mut self, change: impl FnOnce(&mut Knobs)) -> Self {
        change(&mut self.knobs);
        self
    }

    pub(crate) fn layout(&self) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &self.usable,
            reserved: &self.reserved,
            cpus: &self.cpus,
            distances: &self.distances,
            knobs: self.knobs,
        }
    }

    /// Whether a caller may ever own this frame.
    pub(crate) fn may_own(&self, pfn: Pfn) -> bool {
        self.usable.iter().any(|r| r.contains(&pfn))
            && !self.reserved.iter().any(|r| r.contains(&pfn))
            && self.zones.iter().any(|z| z.span.contains(&pfn))
    }

    /// Calls `f` with a yard whose memory is all free.
    pub(crate) fn run<T>(&self, f: impl for<'y> FnOnce(&Y<'y>) -> T) -> T {
        self.run_under(LINUX612, f)
    }

    /// Calls `f` with a yard under these rules whose memory is all free.
    pub(crate) fn run_under<T>(&self, rules: Chosen, f: impl for<'y> FnOnce(&Y<'y>) -> T) -> T {
        self.run_on_under(Stage::default(), rules, f)
    }

    /// Calls `f` with a yard on any platform and lock, with all memory free.
    pub(crate) fn run_on<C: Config<Policy: StaticPolicy>, T>(
        &self,
        platform: C::Hooks,
        f: impl for<'y> FnOnce(&Yard<'y, C>) -> T,
    ) -> T {
        self.run_on_under(platform, C::Policy::POLICY, f)
    }

    /// Calls `f` with a yard on any platform and lock, under any policy, with all memory free.
    pub(crate) fn run_on_under<C: Config, T>(
        &self,
        platform: C::Hooks,
        policy: C::Policy,
        f: impl for<'y> FnOnce(&Yard<'y, C>) -> T,
    ) -> T {
        once(|y| f(y), |f| self.with_yard(platform, policy, f))
    }

    /// Calls `f` with a yard without memory.
    pub(crate) fn blank<T>(&self, f: impl for<'y> FnOnce(&mut Y<'y>) -> T) -> T {
        self.blank_under(LINUX612, f)
    }

    /// Calls `f` with a yard without memory, under these rules.
    pub(crate) fn blank_under<T>(
        &self,
        rules: Chosen,
        f: impl for<'y> FnOnce(&mut Y<'y>) -> T,
    ) -> T {
        once(f, |f| self.with_restored(rules, &[], f))
    }

    /// Calls `f` with a yard whose zones are restored from these snapshots, under any rules.
    pub(crate) fn restored<T>(
        &self,
        rules: Chosen,
        zones: &[(ZoneId, Vec<Record>)],
        f: impl for<'y> FnOnce(&Y<'y>) -> T,
    ) -> T {
        once(|y| f(y), |f| self.with_restored(rules, zones, f))
    }

    fn with_yard<C: Config>(&self, platform: C::Hooks, policy: C::Policy, f: Call<'_, C>) {
        let mut maps = self.maps(policy.rules());
        f(&mut self.yard(platform, policy, &mut maps));
    }

    /// Storage for a yard with these rules.
    pub(crate) fn maps<'s, R: RawMutex>(&self, rules: &Rules) -> OwnedStorage<'s, R> {
        let needs = self.layout().needs_on::<R>(rules.engine).unwrap();
        OwnedStorage::for_needs(&needs).unwrap()
    }

    /// A yard whose memory is all free.
    pub(crate) fn yard<'y, C: Config>(
        &self,
        platform: C::Hooks,
        policy: C::Policy,
        maps: &'y mut OwnedStorage<'y, C::Lock>,
    ) -> Yard<'y, C> {
        let mut y = Yard::with_policy(platform, policy);
        y.init(&self.layout(), maps.storage()).unwrap();
        y
    }

    fn with_restored(
        &self,
        rules: Chosen,
        zones: &[(ZoneId, Vec<Record>)],
        f: Call<'_, Hooked<Lock, Stage, Chosen>>,
    ) {
        let mut maps = self.maps(rules);
        let mut y = Yard::with_policy(Stage::default(), rules);
        y.init_blank(&self.layout(), maps.storage()).unwrap();
        for (kind, records) in zones {
            y.restore(*kind, records.iter().copied()).unwrap();
        }
        f(&mut y);
    }

    /// The error with which this layout is refused, if any.
    pub(crate) fn refusal(&self) -> Option<InitError> {
        self.layout().needs::<Lock>().err()
    }

    /// The same for a yard with these rules.
    pub(crate) fn refusal_of(&self, rules: &Rules) -> Option<InitError> {
        let layout = self.layout();
        let mut maps = OwnedStorage::new(&layout).unwrap();
        Y::<&Rules>::with_policy(Stage::default(), rules).init(&layout, maps.storage()).err()
    }
}

/// What a test does with its yard.
type Call<'f, C> = &'f mut dyn for<'y> FnMut(&mut Yard<'y, C>);

/// Calls `run` with a callback that calls `f`. The code that builds a yard is then compiled once
/// for all tests, not once for each.
fn once<C: Config, T>(
    f: impl for<'y> FnOnce(&mut Yard<'y, C>) -> T,
    run: impl FnOnce(Call<'_, C>),
) -> T {
    let (mut f, mut answer) = (Some(f), None);
    run(&mut |y| answer = f.take().map(|f| f(y)));
    answer.expect("`run` calls the callback")
}

/// The maps of a yard. Yards may borrow them one after the other.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) frames: Vec<Frame>,
    pub(crate) blocks: Vec<Pageblock>,
}

impl Maps {
    pub(crate) fn new(needs: &Needs) -> Self {
        let frames = (0..needs.frames).map(|_| Frame::new()).collect();
        let blocks = (0..needs.blocks).map(|_| Pageblock::new()).collect();
        Maps { frames, blocks }
    }

    /// Storage with these maps, and with fresh memory for the rest.
    pub(crate) fn lend<R: RawMutex, T>(
        &self,
        needs: &Needs,
        f: impl for<'y> FnOnce(Storage<'y, R>) -> T,
    ) -> T {
        let mut rest = rest(needs);
        f(Storage { frames: &self.frames, blocks: &self.blocks, ..rest.storage() })
    }
}

/// Fresh storage for all but the maps. Kept apart from its callers, so that each test does not get
/// a copy.
fn rest<'y, R: RawMutex>(needs: &Needs) -> OwnedStorage<'y, R> {
    OwnedStorage::for_needs(&Needs { frames: 0, blocks: 0, ..*needs }).unwrap()
}

/// A zone's snapshot as a list.
pub(crate) fn records<C: Config>(y: &Yard<'_, C>, zone: impl Into<ZoneId>) -> Vec<Record> {
    let mut all = Vec::new();
    assert!(y.snapshot(zone, |r| all.push(r)), "the zone does not exist");
    all
}

/// The snapshots of all zones.
pub(crate) fn all_records<C: Config>(y: &Yard<'_, C>) -> Vec<(ZoneId, Vec<Record>)> {
    y.zone_ids().map(|k| (k, records(y, k))).collect()
}

/// A yard that lives as long as the test program, so that its platform can refer to it.
pub(crate) fn leaked<E: Hooks>(
    machine: &Machine,
    platform: E,
    rules: Chosen,
) -> &'static Yard<'static, Hooked<Lock, E, Chosen>> {
    let layout = machine.layout();
    let y = Box::leak(Box::new(Yard::with_policy(platform, rules)));
    let needs = layout.needs_on::<Lock>(rules.engine).unwrap();
    y.init(&layout, OwnedStorage::for_needs(&needs).unwrap().leak()).unwrap();
    y
}

/// A machine for yards that live one after the other and share the large maps.
#[derive(Debug)]
pub(crate) struct Reused {
    rules: Chosen,
    machine: &'static Machine,
    maps: &'static Maps,
}

impl Reused {
    pub(crate) fn new(machine: Machine) -> Self {
        Reused::under(LINUX612, machine)
    }

    pub(crate) fn under(rules: Chosen, machine: Machine) -> Self {
        let machine: &'static Machine = Box::leak(Box::new(machine));
        let needs = machine.layout().needs_on::<Lock>(rules.engine).unwrap();
        Reused { rules, machine, maps: Box::leak(Box::new(Maps::new(&needs))) }
    }

    /// The next yard, with everything free.
    pub(crate) fn next<R: RawMutex, E: Hooks>(
        &self,
        platform: E,
    ) -> Yard<'static, Hooked<R, E, Chosen>> {
        let mut y = Yard::with_policy(platform, self.rules);
        y.init(&self.machine.layout(), self.storage()).unwrap();
        y
    }

    /// The next yard, most of which is initialised later (§8.2).
    pub(crate) fn next_deferred<R: RawMutex, E: Hooks>(
        &self,
        platform: E,
    ) -> Yard<'static, Hooked<R, E, Chosen>> {
        // Building a blank yard resets the frames.
        drop(self.next_blank::<R, _>(any::any_hooks(())));
        let mut y = Yard::with_policy(platform, self.rules);
        y.init_deferred(&self.machine.layout(), self.storage()).unwrap();
        y
    }

    /// The next yard, without memory.
    pub(crate) fn next_blank<R: RawMutex, E: Hooks>(
        &self,
        platform: E,
    ) -> Yard<'static, Hooked<R, E, Chosen>> {
        let mut y = Yard::with_policy(platform, self.rules);
        y.init_blank(&self.machine.layout(), self.storage()).unwrap();
        y
    }

    fn storage<R: RawMutex>(&self) -> Storage<'static, R> {
        let needs = self.machine.layout().needs_on::<R>(self.rules.engine).unwrap();
        Storage { frames: &self.maps.frames, blocks: &self.maps.blocks, ..rest(&needs).leak() }
    }
}

/// A yard most of which is initialised later (§8.2).
pub(crate) fn deferred<E: Hooks>(
    machine: &Machine,
    platform: E,
    rules: Chosen,
) -> &'static Yard<'static, Hooked<Lock, E, Chosen>> {
    let machine: &'static Machine = Box::leak(Box::new(machine.clone()));
    let layout = machine.layout();
    let y = Box::leak(Box::new(Yard::with_policy(platform, rules)));
    y.init_deferred(&layout, OwnedStorage::new(&layout).unwrap().leak()).unwrap();
    y
}
