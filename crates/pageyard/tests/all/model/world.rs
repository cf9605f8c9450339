//! The platform under the model: hooks that work, refuse, or answer falsely.

use std::cell::{Cell, OnceCell, RefCell};
use std::mem::ManuallyDrop;

use pageyard::policy::Policy;
use pageyard::{
    CpuId, Defences, Hooked, Observer, Order, Pfn, Platform, Reclaim, ReclaimJob, Relocation, Yard,
    ZoneId,
};

use super::reach::reached;
use super::table::Table;
use crate::common::any::{AnyHooks, any_hooks};
use crate::common::{Lock, Machine, o};

/// A yard that its own hooks can call.
pub(super) type Y<'y, P> = Yard<'y, Hooked<Lock, AnyHooks<'y>, P>>;

/// How a hook behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mood {
    /// Does what it is asked.
    Willing,
    /// Not now.
    Busy,
    /// Never.
    Refusing,
    /// By turns.
    Moody,
}

pub(super) const MOODS: [Mood; 4] = [Mood::Willing, Mood::Busy, Mood::Refusing, Mood::Moody];

/// The owners of frames, and the answers of the hooks.
pub(super) struct World<'y, P: Policy> {
    pub(super) table: RefCell<Table>,
    pub(super) cpu: Cell<u32>,
    pub(super) clock: Cell<u64>,
    pub(super) relocate: Cell<Mood>,
    pub(super) reclaim: Cell<Mood>,
    /// Pages that hooks have freed.
    pub(super) freed: Cell<u64>,
    calls: Cell<u64>,
    yard: OnceCell<&'y Y<'y, P>>,
}

impl<P: Policy> World<'_, P> {
    fn next(&self) -> u64 {
        self.calls.set(self.calls.get() + 1);
        self.calls.get()
    }

    /// Frees a movable block, as a reclaimer would. Returns its pages.
    fn reclaim_one(&self) -> Option<u64> {
        let yard = self.yard.get()?;
        let (pfn, block) = {
            let t = self.table.borrow();
            let n = t.blocks.iter().filter(|(_, b)| b.movable).count();
            let pick = (self.next() as usize).checked_rem(n)?;
            let (&pfn, &block) = t.blocks.iter().filter(|(_, b)| b.movable).nth(pick)?;
            (pfn, block)
        };
        let freed = yard.free(Pfn(pfn), o(block.order));
        let mut t = self.table.borrow_mut();
        if let Err(e) = freed {
            t.complaint = Some(format!("reclaim's free of {pfn:#x} was refused: {e}"));
        }
        t.give(pfn, block.order);
        reached("a page reclaimed");
        let pages = 1 << block.order;
        self.freed.set(self.freed.get() + pages);
        Some(pages)
    }
}

impl<P: Policy> Platform for World<'_, P> {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }

    fn now(&self) -> u64 {
        self.clock.set(self.clock.get() + 1000);
        self.clock.get()
    }
}

impl<P: Policy> Reclaim for World<'_, P> {
    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        let mood = match self.relocate.get() {
            Mood::Moody if self.next().is_multiple_of(3) => Mood::Busy,
            Mood::Moody => Mood::Willing,
            mood => mood,
        };
        match mood {
            Mood::Busy => return Relocation::Busy,
            Mood::Refusing => return Relocation::Refused,
            _ => {}
        }
        let mut t = self.table.borrow_mut();
        match t.blocks.get(&from.0) {
            Some(b) if b.order == order.get() && b.movable => {}
            _ => return Relocation::Refused,
        }
        if let Err(e) = t.moved(from.0, to.0, order.get()) {
            t.complaint = Some(format!("moved from {from}: {e}"));
        }
        reached("a block moved");
        Relocation::Moved
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        match self.reclaim.get() {
            Mood::Refusing => 0,
            // Reports pages as freed without freeing any.
            Mood::Busy => job.pages,
            Mood::Moody if self.next().is_multiple_of(2) => 0,
            _ => {
                let mut done = 0;
                while done < job.pages
                    && let Some(n) = self.reclaim_one()
                {
                    done += n;
                }
                done
            }
        }
    }

    fn reclaimable(&self, _: ZoneId) -> u64 {
        match self.reclaim.get() {
            Mood::Refusing => 0,
            Mood::Busy => 1 << 20,
            _ => self.table.borrow().blocks.values().filter(|b| b.movable).count() as u64,
        }
    }
}

impl<P: Policy> Observer for World<'_, P> {}
impl<P: Policy> Defences for World<'_, P> {}

/// A yard over a machine, and the model of it.
pub(super) fn with_yard<P: Policy>(
    policy: P,
    machine: &Machine,
    f: impl for<'y> FnOnce(&'y Y<'y, P>, &'y World<'y, P>),
) {
    let mut maps = machine.maps(policy.rules());
    let world = World {
        table: RefCell::new(Table::new(machine)),
        cpu: Cell::new(0),
        clock: Cell::new(0),
        relocate: Cell::new(Mood::Willing),
        reclaim: Cell::new(Mood::Refusing),
        freed: Cell::new(0),
        calls: Cell::new(0),
        yard: OnceCell::new(),
    };
    // Dropping the pointer to the hooks, which refer to the yard, could touch the yard.
    let yard = ManuallyDrop::new(machine.yard(any_hooks(&world), policy, &mut maps));
    assert!(world.yard.set(&yard).is_ok());
    f(&yard, &world);
}
