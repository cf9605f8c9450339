//! Page owner tracking (spec §9.7): a record of every block's last allocation and last free.
//!
//! It is fed from [`Observer::event`](pageyard::Observer::event) and needs nothing from the allocator.
//! An embedder that does not use it has no trace of it in its types and no cost:
//!
//! ```
//! use pageyard::{CpuId, Event, Observer, Pfn};
//! use pageyard_report::{OwnerRecord, PageOwner, Task};
//!
//! struct Watch<'a> { owner: PageOwner<'a> }
//! impl Observer for Watch<'_> {
//!     const SEES_EVERY_BLOCK: bool = true;
//!     fn event(&self, _: CpuId, event: Event) {
//!         let task = Task { pid: 1, tgid: 1, comm: *b"init\0\0\0\0\0\0\0\0\0\0\0\0" };
//!         self.owner.note(&event, 0, &task, 0); // the time, the task, no stack
//!     }
//! }
//! let records: Vec<OwnerRecord> = (0..4096).map(|_| OwnerRecord::default()).collect();
//! let watch = Watch { owner: PageOwner::new(Pfn(0x100000), &records) };
//! # let _ = watch;
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use pageyard::{
    Config, Event, Gfp, MAX_ORDER, MigrateType, Order, PAGEBLOCK_PAGES, Pfn, TYPES, Yard, ZoneId,
};

/// The task that makes a request, in the embedder's terms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Task {
    /// The thread id.
    pub pid: u32,
    /// The process id.
    pub tgid: u32,
    /// The name, padded with zero bytes.
    pub comm: [u8; 16],
}

/// One frame's record. The embedder provides the memory for the records. Only the record of a
/// block's first frame is used.
///
/// Written by the thread that allocates or frees the block, and readable by any thread. A reader
/// may see a half-written record, as in the kernel.
#[derive(Debug, Default)]
pub struct OwnerRecord {
    /// Order, whether allocated, and the reason of the last move.
    state: AtomicU32,
    gfp: AtomicU32,
    pid: AtomicU32,
    tgid: AtomicU32,
    comm: [AtomicU64; 2],
    since: AtomicU64,
    stack: AtomicU64,
    free_pid: AtomicU32,
    free_tgid: AtomicU32,
    free_at: AtomicU64,
    free_stack: AtomicU64,
}

const ORDER: u32 = 0xf;
const ALLOCATED: u32 = 1 << 4;
const MOVED: u32 = 1 << 5;
const REASON_SHIFT: u32 = 8;

/// The contents of a block's record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    /// Its first frame.
    pub pfn: Pfn,
    /// Its order.
    pub order: Order,
    /// The request's flags.
    pub gfp: Gfp,
    /// The task that allocated it.
    pub task: Task,
    /// The time of the allocation, by [`Platform::now`](pageyard::Platform::now).
    pub since: u64,
    /// The embedder's handle of the call stack.
    pub stack: u64,
    /// The reason of the last move as the embedder's number, if the block was moved.
    pub moved: Option<u8>,
    /// The last free before this allocation: time, stack handle, thread, process. All 0 if there
    /// was none.
    pub freed: (u64, u64, u32, u32),
}

/// The records of a range of frames.
#[derive(Clone, Copy, Debug)]
pub struct PageOwner<'a> {
    first: Pfn,
    records: &'a [OwnerRecord],
}

impl<'a> PageOwner<'a> {
    /// Creates records for the frames from `first` on, one each. Frames beyond them are ignored.
    pub const fn new(first: Pfn, records: &'a [OwnerRecord]) -> Self {
        PageOwner { first, records }
    }

    fn record(&self, pfn: Pfn) -> Option<&'a OwnerRecord> {
        self.records.get(usize::try_from(pfn.0.checked_sub(self.first.0)?).ok()?)
    }

    /// Records an allocation or a free: the current task, and the embedder's handle of its call
    /// stack.
    pub fn note(&self, event: &Event, now: u64, task: &Task, stack: u64) {
        match *event {
            Event::Alloc { pfn: Some(pfn), order, gfp, .. } => {
                if let Some(r) = self.record(pfn) {
                    r.allocated(order, gfp, now, task, stack);
                }
            }
            Event::Free { pfn, order } => self.freed(pfn, order, now, task, stack),
            _ => {}
        }
    }

    fn freed(&self, pfn: Pfn, order: Order, now: u64, task: &Task, stack: u64) {
        let Some(r) = self.record(pfn) else { return };
        if r.state.load(Relaxed) & ALLOCATED == 0 {
            // The upper half of a block whose first page stays in use (§6.3).
            let head = self.record(Pfn(pfn.0 & !u64::from(order.pages())));
            let whole = ALLOCATED | (u32::from(order.get()) + 1);
            if let Some(h) = head.filter(|h| h.state.load(Relaxed) & (ALLOCATED | ORDER) == whole) {
                h.state.fetch_sub(1, Relaxed);
            }
        }
        r.state.fetch_and(!ALLOCATED, Relaxed);
        r.free_at.store(now, Relaxed);
        r.free_stack.store(stack, Relaxed);
        r.free_pid.store(task.pid, Relaxed);
        r.free_tgid.store(task.tgid, Relaxed);
    }

    /// Records a split; call it with [`Yard::split`]. Each part keeps the block's owner.
    pub fn split(&self, pfn: Pfn, into: Order) {
        let Some(owner) = self.get(pfn) else { return };
        for offset in (0..owner.order.pages()).step_by(into.pages() as usize) {
            let part = pfn.0.checked_add(offset.into()).map(Pfn);
            if let Some(r) = part.and_then(|part| self.record(part)) {
                r.allocated(into, owner.gfp, owner.since, &owner.task, owner.stack);
            }
        }
    }

    /// Records that a block's contents moved. The new place gets the owner of the old one and the
    /// reason, a number of the embedder's choice.
    pub fn moved(&self, from: Pfn, to: Pfn, reason: u8) {
        let (Some(owner), Some(r)) = (self.get(from), self.record(to)) else { return };
        r.allocated(owner.order, owner.gfp, owner.since, &owner.task, owner.stack);
        r.state.fetch_or(MOVED | u32::from(reason) << REASON_SHIFT, Relaxed);
    }

    /// Returns the owner of the block that begins at a frame, or `None` if no allocated block does.
    pub fn get(&self, pfn: Pfn) -> Option<Owner> {
        let r = self.record(pfn)?;
        let state = r.state.load(Relaxed);
        if state & ALLOCATED == 0 {
            return None;
        }
        let mut comm = [0; 16];
        let words = r.comm.iter().flat_map(|c| c.load(Relaxed).to_le_bytes());
        comm.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        Some(Owner {
            pfn,
            order: Order::new((state & ORDER) as u8).unwrap_or_default(),
            gfp: Gfp::from_bits_retain(r.gfp.load(Relaxed)),
            task: Task { pid: r.pid.load(Relaxed), tgid: r.tgid.load(Relaxed), comm },
            since: r.since.load(Relaxed),
            stack: r.stack.load(Relaxed),
            moved: (state & MOVED != 0).then_some((state >> REASON_SHIFT) as u8),
            freed: (
                r.free_at.load(Relaxed),
                r.free_stack.load(Relaxed),
                r.free_pid.load(Relaxed),
                r.free_tgid.load(Relaxed),
            ),
        })
    }

    /// Returns the owners of all allocated blocks, ascending.
    pub fn owners(&self) -> impl Iterator<Item = Owner> + use<'a> {
        let this = *self;
        let mut next = 0u64;
        core::iter::from_fn(move || {
            while next < this.records.len() as u64 {
                let pfn = Pfn(this.first.0.wrapping_add(next));
                match this.get(pfn) {
                    Some(owner) => {
                        next += u64::from(owner.order.pages());
                        return Some(owner);
                    }
                    None => next += 1,
                }
            }
            None
        })
    }

    /// Returns how many pageblocks of each type hold a page of another type (pagetypeinfo's *mixed
    /// blocks*, §9.4). A page's type is that of its request. [`Cma`](MigrateType::Cma) pageblocks
    /// count as movable ones. `None` if there is no such zone.
    pub fn mixed_blocks<C: Config>(
        &self,
        yard: &Yard<'_, C>,
        zone: impl Into<ZoneId>,
    ) -> Option<[u64; TYPES]> {
        let zone = yard.zone_info(zone)?;
        let type_of = |o: &Owner| {
            let t = if zone.grouping_disabled { None } else { o.gfp.migrate_type() };
            t.unwrap_or(MigrateType::Unmovable)
        };
        let mut counts = [0; TYPES];
        let end = zone.start.0.saturating_add(zone.spanned);
        let mut pfn = zone.start;
        while pfn.0 < end {
            let t = yard.block_type(pfn)?;
            let first = Pfn(pfn.0 & !(u64::from(PAGEBLOCK_PAGES) - 1));
            if self.pages_from(first).any(|o| type_of(&o) != t) {
                let counted = if t == MigrateType::Cma { MigrateType::Movable } else { t };
                counts[counted as usize] += 1;
            }
            pfn = Pfn(first.0.saturating_add(PAGEBLOCK_PAGES.into()));
        }
        Some(counts)
    }

    /// Iterates over the owners of pages in the pageblock that begins at `first`.
    fn pages_from(&self, first: Pfn) -> impl Iterator<Item = Owner> + '_ {
        // A block of the largest order covers two pageblocks.
        let above = Pfn(first.0 & !((1 << MAX_ORDER) - 1));
        let above = self.get(above).filter(|o| above != first && o.order == Order::MAX);
        let mut pfn = first;
        let inside = core::iter::from_fn(move || {
            while pfn.0 < first.0.saturating_add(PAGEBLOCK_PAGES.into()) {
                let owner = self.get(pfn);
                pfn = Pfn(pfn.0 + owner.map_or(1, |o| u64::from(o.order.pages())));
                if owner.is_some() {
                    return owner;
                }
            }
            None
        });
        above.into_iter().chain(inside)
    }
}

impl OwnerRecord {
    fn allocated(&self, order: Order, gfp: Gfp, now: u64, task: &Task, stack: u64) {
        self.state.store(u32::from(order.get()) | ALLOCATED, Relaxed);
        self.gfp.store(gfp.bits(), Relaxed);
        self.pid.store(task.pid, Relaxed);
        self.tgid.store(task.tgid, Relaxed);
        let half = |at: usize| {
            task.comm.iter().skip(at).take(8).rev().fold(0u64, |w, &b| w << 8 | u64::from(b))
        };
        self.comm[0].store(half(0), Relaxed);
        self.comm[1].store(half(8), Relaxed);
        self.since.store(now, Relaxed);
        self.stack.store(stack, Relaxed);
    }
}
