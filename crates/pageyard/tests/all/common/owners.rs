//! A platform whose blocks have owners and contents, and that can move them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lock_api::RawMutex;
use pageyard::{
    CompactEvent, CpuId, Defences, Event, Gfp, NodeId, Observer, Order, PageState, Pfn, Platform,
    Reclaim, Relocation, ZoneKind,
};

use super::any::Shared;
pub(crate) use super::by_thread::CPU;
use super::check::{Owned, check};
pub(crate) use super::random::Random;
use super::{Lock, Machine, o};

/// A hook's answer to a request to move this block, given before anything moves.
pub(crate) type Answer = fn(Pfn, Order) -> Relocation;

/// Owners: frame to order and name. A page contains its owner's name and its index in the block.
#[derive(Default)]
struct Table {
    blocks: BTreeMap<Pfn, (Order, u64)>,
    contents: Vec<u64>,
}

/// The platform.
pub(crate) struct Owners {
    table: Mutex<Table>,
    pub(crate) answer: Answer,
    unevictable: fn(Pfn) -> bool,
    /// The page that the page check finds in use when freed; `u64::MAX`: none.
    pub(crate) bad: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) moved: AtomicU64,
    names: AtomicU64,
    pub(crate) clock: AtomicU64,
    pub(crate) wakes: Mutex<Vec<NodeId>>,
    pub(crate) events: Mutex<Vec<CompactEvent>>,
}

/// The yard of these tests.
pub(crate) type Y<'a, R = Lock> = Shared<'a, Owners, R>;

impl Owners {
    /// Every block moves when asked.
    pub(crate) fn willing() -> Self {
        Owners::answering(|_, _| Relocation::Moved)
    }

    pub(crate) fn answering(answer: Answer) -> Self {
        Owners {
            table: Mutex::default(),
            answer,
            unevictable: |_| false,
            bad: AtomicU64::new(u64::MAX),
            asked: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            names: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            wakes: Mutex::default(),
            events: Mutex::default(),
        }
    }

    /// Marks blocks as unevictable.
    pub(crate) fn unevictable(self, unevictable: fn(Pfn) -> bool) -> Self {
        Owners { unevictable, ..self }
    }

    fn own(&self, pfn: Pfn, order: Order) {
        let name = self.names.fetch_add(1, Relaxed) + 1;
        let mut t = self.table.lock().unwrap();
        let end = (pfn.0 + u64::from(order.pages())) as usize;
        if t.contents.len() < end {
            t.contents.resize(end, 0);
        }
        for p in 0..order.pages() as usize {
            t.contents[pfn.0 as usize + p] = name << 16 | p as u64;
        }
        assert!(t.blocks.insert(pfn, (order, name)).is_none(), "{pfn} has an owner already");
    }

    /// Removes the block's owner after checking its contents.
    fn disown(&self, pfn: Pfn) -> Option<Order> {
        let mut t = self.table.lock().unwrap();
        let (order, name) = t.blocks.remove(&pfn)?;
        t.verify(pfn, order, name);
        Some(order)
    }

    pub(crate) fn owned(&self) -> Owned {
        let t = self.table.lock().unwrap();
        t.blocks.iter().map(|(&pfn, &(order, _))| (pfn, order)).collect()
    }

    /// Asserts that every page has the contents that its owner wrote.
    pub(crate) fn verify(&self) {
        let t = self.table.lock().unwrap();
        t.blocks.iter().for_each(|(&pfn, &(order, name))| t.verify(pfn, order, name));
    }
}

impl Table {
    fn verify(&self, pfn: Pfn, order: Order, name: u64) {
        for p in 0..order.pages() as usize {
            let found = self.contents[pfn.0 as usize + p];
            assert_eq!(found, name << 16 | p as u64, "page {p} of the block at {pfn}");
        }
    }
}

impl Platform for Owners {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn now(&self) -> u64 {
        self.clock.load(Relaxed)
    }
}

impl Reclaim for Owners {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        self.asked.fetch_add(1, Relaxed);
        let mut t = self.table.lock().unwrap();
        let Some(&(owned, name)) = t.blocks.get(&from) else { return Relocation::Refused };
        if owned != order {
            return Relocation::Refused;
        }
        let answer = (self.answer)(from, order);
        if answer == Relocation::Moved {
            assert_eq!(to.0 % u64::from(order.pages()), 0, "{to} is aligned");
            let end = (to.0 + u64::from(order.pages())) as usize;
            if t.contents.len() < end {
                t.contents.resize(end, 0);
            }
            for p in 0..order.pages() as usize {
                t.contents[to.0 as usize + p] = t.contents[from.0 as usize + p];
                t.contents[from.0 as usize + p] = 0;
            }
            t.blocks.remove(&from);
            assert!(t.blocks.insert(to, (order, name)).is_none(), "{to} has an owner");
            self.moved.fetch_add(u64::from(order.pages()), Relaxed);
        }
        answer
    }

    fn is_unevictable(&self, pfn: Pfn, _: Order) -> bool {
        (self.unevictable)(pfn)
    }

    fn wake_compaction(&self, node: NodeId) {
        self.wakes.lock().unwrap().push(node);
    }
}

impl Observer for Owners {
    fn event(&self, _: CpuId, event: Event) {
        if let Event::Compact(e) = event {
            let mut events = self.events.lock().unwrap();
            if events.len() < 1 << 20 {
                events.push(e);
            }
        }
    }
}

impl Defences for Owners {
    fn page_state(&self, pfn: Pfn) -> PageState {
        let refcount = u32::from(pfn.0 == self.bad.load(Relaxed));
        PageState { refcount, ..PageState::UNUSED }
    }
}

/// Allocates a block with contents. If `movable`, its owner can move it.
pub(crate) fn take<R: RawMutex>(y: &Y<'_, R>, order: u8, gfp: Gfp, movable: bool) -> Option<Pfn> {
    let pfn = y.alloc(o(order), gfp).ok()?;
    if movable {
        y.set_movable(pfn, o(order), true).unwrap();
    }
    y.hooks().own(pfn, o(order));
    Some(pfn)
}

/// Records the owner of a block that the yard captured.
pub(crate) fn took<R: RawMutex>(y: &Y<'_, R>, pfn: Pfn, order: u8) {
    y.hooks().own(pfn, o(order));
}

/// Frees the block that starts at this frame now. Returns whether there was one.
pub(crate) fn put<R: RawMutex>(y: &Y<'_, R>, pfn: Pfn) -> bool {
    let Some(order) = y.hooks().disown(pfn) else { return false };
    y.free(pfn, order).unwrap();
    true
}

/// Frees the first block at or after this frame. Returns whether there was one.
pub(crate) fn put_near<R: RawMutex>(y: &Y<'_, R>, pfn: Pfn) -> bool {
    let found = y.hooks().table.lock().unwrap().blocks.range(pfn..).next().map(|(&p, _)| p);
    // Another thread may have freed it since.
    found.is_some_and(|pfn| put(y, pfn))
}

/// Asserts contents and invariants.
pub(crate) fn all_is_well<R: RawMutex>(y: &Y<'_, R>, m: &Machine) {
    y.hooks().verify();
    check(y, m, &y.hooks().owned());
}

/// Whole pageblocks that are free.
pub(crate) fn huge_free<R: RawMutex>(y: &Y<'_, R>) -> u64 {
    let b = y.free_blocks(ZoneKind::Normal).unwrap();
    b[9] + 2 * b[10]
}

/// Free pages of the NORMAL zone.
pub(crate) fn free_pages<R: RawMutex>(y: &Y<'_, R>) -> u64 {
    let b = y.free_blocks(ZoneKind::Normal).unwrap();
    b.iter().enumerate().map(|(o, n)| n << o).sum()
}

/// Fills the zone with movable blocks of these orders, then frees each with a probability of
/// `percent` percent.
pub(crate) fn fragment<R: RawMutex>(y: &Y<'_, R>, seed: u64, orders: &[u8], percent: usize) {
    let mut random = Random(seed);
    let gfp = Gfp::HIGHUSER_MOVABLE | Gfp::MEMALLOC;
    let mut blocks = Vec::new();
    while let Some(pfn) = take(y, orders[random.below(orders.len())], gfp, true) {
        blocks.push(pfn);
    }
    while let Some(pfn) = take(y, 0, gfp, true) {
        blocks.push(pfn);
    }
    for pfn in blocks {
        if random.below(100) < percent {
            assert!(put(y, pfn));
        }
    }
    y.drain_all(None);
}
