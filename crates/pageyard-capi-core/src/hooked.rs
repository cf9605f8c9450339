//! The hooks of a yard that has [`pageyard_hooks`].

use pageyard::poison::Corruption;
use pageyard::{
    CpuId, Defences, Event, Gfp, Link, Observer, Order, PAGEBLOCK_ORDER, PageFlags, PageState, Pfn,
    Platform, Reclaim, Report,
};

use crate::events;
use crate::hooks::{
    PAGEYARD_LINK_HEAD, PAGEYARD_LINK_SINGLE, PAGEYARD_SEE_EVERY_BLOCK, PAGEYARD_SEE_TUNING,
    pageyard_block, pageyard_corruption, pageyard_hooks, pageyard_page_state,
};
use crate::platform::CPlatform;

/// Blocks in one report.
const BATCH: usize = 32;

/// The platform's hooks and those of [`pageyard_hooks`].
#[derive(Debug)]
pub struct CHooks {
    pub(crate) platform: CPlatform,
    pub(crate) hooks: pageyard_hooks,
}

impl Platform for CHooks {
    const DEFERS: bool = false;
    pageyard::forward_hooks!(platform: cpu now pause prepare drain_on_failure);
}

impl Reclaim for CHooks {
    /// Compiles reporting in; [`report_order`](Reclaim::report_order) decides.
    const REPORT_ORDER: Option<Order> = Some(Order::ZERO);
    const RELOCATES: bool = CPlatform::RELOCATES;

    pageyard::forward_hooks!(platform: task reclaim reclaimable out_of_memory keep_trying
        wake_reclaim wake_compaction relocate);

    #[inline]
    fn report_order(&self) -> Option<Order> {
        self.hooks.report_free?;
        let order = match self.hooks.report_order {
            0 => PAGEBLOCK_ORDER,
            order => order as u8,
        };
        Order::new(order)
    }

    #[inline(never)]
    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        let Some(report_free) = self.hooks.report_free else { return false };
        let mut list = [pageyard_block::default(); BATCH];
        for (to, &(pfn, order)) in list.iter_mut().zip(blocks) {
            (to.pfn, to.order) = (pfn.0, order.get().into());
        }
        let count = blocks.len().min(BATCH);
        // SAFETY: the caller's function, with the context of its own structure and as many blocks as
        // it is told.
        unsafe { report_free(self.hooks.context, list.as_ptr(), count) != 0 }
    }
}

// In all calls below, the function is the caller's and is called as the structure's comments
// promise: with the context of the same structure, and with pointers that live until it returns.
impl CHooks {
    #[cold]
    #[inline(never)]
    fn send(&self, cpu: CpuId, event: &Event) {
        if let Some(send) = self.hooks.event {
            // SAFETY: see above.
            unsafe { send(self.hooks.context, &events::event(cpu, event)) }
        }
    }
}

impl Observer for CHooks {
    const SEES_TUNING: bool = true;
    const SEES_EVERY_BLOCK: bool = true;

    #[inline]
    fn sees_every_block(&self) -> bool {
        self.hooks.event.is_some() && self.hooks.flags & PAGEYARD_SEE_EVERY_BLOCK != 0
    }

    #[inline]
    fn event(&self, cpu: CpuId, event: Event) {
        let tuning = matches!(event, Event::High { .. });
        if self.hooks.event.is_some() && (!tuning || self.hooks.flags & PAGEYARD_SEE_TUNING != 0) {
            self.send(cpu, &event);
        }
    }

    #[inline(never)]
    fn report(&self, report: Report) {
        if let Some(send) = self.hooks.report {
            // SAFETY: see above.
            unsafe { send(self.hooks.context, &events::report(&report)) }
        }
    }

    pageyard::forward_hooks!(platform: warn);
}

impl Defences for CHooks {
    #[inline]
    fn fail(&self, order: Order, gfp: Gfp) -> bool {
        let Some(fail) = self.hooks.fail else { return false };
        // SAFETY: see above.
        unsafe { fail(self.hooks.context, order.get().into(), gfp.bits()) != 0 }
    }

    #[inline(never)]
    fn page_state(&self, pfn: Pfn) -> PageState {
        let Some(page_state) = self.hooks.page_state else { return PageState::UNUSED };
        let mut s = pageyard_page_state {
            mapcount: -1,
            refcount: 0,
            flags: 0,
            mapping: 0,
            charged: 0,
            link: PAGEYARD_LINK_SINGLE,
            head: 0,
        };
        // SAFETY: see above.
        unsafe { page_state(self.hooks.context, pfn.0, &mut s) };
        let link = match s.link {
            PAGEYARD_LINK_SINGLE => Link::Single,
            PAGEYARD_LINK_HEAD => Link::Head,
            _ => Link::Tail(Pfn(s.head)),
        };
        PageState {
            mapcount: s.mapcount,
            mapping: s.mapping != 0,
            refcount: s.refcount,
            charged: s.charged != 0,
            flags: PageFlags::from_bits_retain(s.flags),
            link,
        }
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        if let Some(poison) = self.hooks.poison {
            // SAFETY: see above.
            unsafe { poison(self.hooks.context, pfn.0, order.get().into()) }
        }
    }

    #[inline(never)]
    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        let check = self.hooks.check_poison?;
        let mut damage = pageyard_corruption::default();
        // SAFETY: see above.
        let damaged =
            unsafe { check(self.hooks.context, pfn.0, order.get().into(), &mut damage) != 0 };
        damaged.then_some(Corruption {
            first: damage.first as usize,
            last: damage.last as usize,
            single_bit: damage.single_bit != 0,
        })
    }

    fn unmap(&self, pfn: Pfn, order: Order) {
        if let Some(unmap) = self.hooks.unmap {
            // SAFETY: see above.
            unsafe { unmap(self.hooks.context, pfn.0, order.get().into()) }
        }
    }

    fn map(&self, pfn: Pfn, order: Order) {
        if let Some(map) = self.hooks.map {
            // SAFETY: see above.
            unsafe { map(self.hooks.context, pfn.0, order.get().into()) }
        }
    }
}
