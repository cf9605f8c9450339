//! Requests and frees that never wait (spec B.2): for callers that may have interrupted a holder of
//! any of the allocator's locks, as a non-maskable interrupt or a tracing program does.

use crate::allocator::yard::Yard;
use crate::base::free_error::FreeError;
use crate::base::gfp::{AllocFlags, Gfp};
use crate::base::node_mask::NodeChoice;
use crate::base::sync::Ordering::Relaxed;
use crate::base::units::{Order, Pfn};
use crate::base::unwind::Rollback;
use crate::embedder::config::Config;
use crate::embedder::hooks::Defences;
use crate::pcp::pageset::is_cached_order;
use crate::request::alloc::AllocError;
use crate::zone::at::At;

impl<'a, C: Config> Yard<'a, C> {
    /// Allocates a block without waiting for a lock and without reclaim (spec B.2).
    ///
    /// Makes one attempt, down to the MIN watermark, and only for the orders that per-CPU lists keep
    /// (§5.2). A zone whose lock is taken is passed over. Flags that allow reclaim, wake reclaim or give
    /// access to reserves are ignored. Fails where [`alloc`](Yard::alloc) may succeed, so its caller needs
    /// an answer to that.
    ///
    /// It may interrupt any other call on the same CPU, if the hooks that it calls may:
    /// [`cpu`](crate::Platform::cpu), [`prepare`](crate::Platform::prepare),
    /// [`is_plain`](crate::Reclaim::is_plain), [`context`](crate::Reclaim::context),
    /// [`fail`](crate::Defences::fail), the observer's events, the checks that the policy asks for with
    /// their reports, and [`now`](crate::Platform::now) for these and where lock times are measured.
    /// [`free_nowait`](Yard::free_nowait) calls [`now`](crate::Platform::now) also where free blocks are
    /// reported.
    ///
    /// ```
    /// # use pageyard::*;
    /// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
    /// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
    /// // In an interrupt that no lock can mask:
    /// if let Ok(page) = yard.try_alloc(Order::ZERO, Gfp::empty()) {
    ///     yard.free_nowait(page, Order::ZERO)?;
    /// }
    /// # Ok::<(), FreeError>(())
    /// ```
    ///
    /// # Errors
    /// As [`alloc`](Yard::alloc). [`AllocError::NoMemory`] also means that a lock was taken, that the
    /// order is on no per-CPU list, or on the packed engine, for an order above 0, that the few pageblocks
    /// looked at have no such block.
    #[inline(never)]
    pub fn try_alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.try_alloc_on(NodeChoice::LOCAL, order, gfp)
    }

    /// Like [`try_alloc`](Yard::try_alloc), with a preferred node, a set of allowed nodes, or both.
    ///
    /// # Errors
    /// As [`try_alloc`](Yard::try_alloc); also [`AllocError::UnknownNode`].
    pub fn try_alloc_on(
        &self,
        nodes: impl Into<NodeChoice>,
        order: Order,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        let kept = Gfp::MOVABLE
            | Gfp::RECLAIMABLE
            | Gfp::DMA
            | Gfp::DMA32
            | Gfp::HIGHMEM
            | Gfp::ZERO
            | Gfp::COMP
            | Gfp::THISNODE;
        let gfp = gfp.intersection(kept) | Gfp::NOWARN | Gfp::NOMEMALLOC;
        let req = self.request(order, gfp, nodes.into())?;
        if !is_cached_order(self.rules(), order.get()) || self.hooks.fail(order, gfp) {
            return Err(AllocError::NoMemory);
        }
        let mut flags = AllocFlags::of(gfp, req.migrate_type);
        if self.is_packed() {
            // Such requests take no CMA pages there, so they must not count as available.
            flags.remove(AllocFlags::CMA);
        }
        flags |= AllocFlags::WMARK_MIN | AllocFlags::NO_WAIT;
        let pfn = self.attempt(&req, flags).ok_or(AllocError::NoMemory)?;
        let undelivered = Rollback::new(|| self.return_unprepared_for(pfn, order, flags));
        self.report_and_prepare(req.cpu, pfn, order, req.migrate_type, gfp);
        undelivered.disarm();
        Ok(pfn)
    }

    /// Frees what [`free_nowait`](Yard::free_nowait) queued.
    pub(crate) fn flush_queues(&self) {
        for zone in self.zones.iter().filter(|zone| !zone.queue.is_empty()) {
            if let Some(at) = self.at_any(zone) {
                at.flush_queue();
            }
        }
    }

    /// Frees a block without waiting for a lock (spec B.2), from where [`try_alloc`](Yard::try_alloc) may
    /// be called.
    ///
    /// The block goes to this CPU's list, however long that is; else to the zone; else, if both locks are
    /// taken, to a queue. A list that exceeds its `high` shrinks with later calls of [`free`](Yard::free),
    /// by a few batches each, and under policies whose `high` decays by ticks. On a CPU that only calls this
    /// function, empty it by [`drain_cpu`](Yard::drain_cpu).
    ///
    /// The queue is emptied by the next request, free, drain or [tick](Yard::tick) that takes the zone
    /// lock, by a request that lacks memory, and by background reclaim. Until then the block is neither
    /// allocated nor free.
    ///
    /// # Errors
    /// As [`free`](Yard::free).
    #[inline(never)]
    pub fn free_nowait(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        if self.is_packed() {
            // The packed engine has a way past every lock.
            return self.free_rest_packed(pfn, order);
        }
        let (at, idx) = self.begin_free(pfn, order)?;
        if at.prepare_free(idx, order.get()) && !at.list_nowait(idx, order.get()) {
            match at.try_lock() {
                Some(zone) => zone.take_back(idx, order.get()),
                None => at.zone.queue.push(&at.zone.map, idx),
            }
        }
        Ok(())
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Puts a block that is being freed on this CPU's list, or that of its pageblock's owner, however
    /// long the list is. Returns whether the list takes it.
    fn list_nowait(&self, idx: u32, order: u8) -> bool {
        if !is_cached_order(self.rules(), order) {
            return false;
        }
        let owner = self.at_owner(idx);
        let at = owner.as_ref().unwrap_or(self);
        let Some(mut pageset) = at.slot.pageset.try_lock() else {
            self.zone.bypasses.fetch_add(1, Relaxed);
            return false;
        };
        // Disabled lists stay empty (§5.5).
        let is_open = pageset.tuning.limits.high_max > 0 && at.takes_frees();
        let Some(t) = self.zone.map.cached_type(idx, order).filter(|_| is_open) else {
            return false;
        };
        pageset.push(at, idx, self.zone.map.frame(idx), order, t);
        pageset.tuning.count += 1 << order;
        true
    }
}
