//! A CPU that has one owner for many requests.

use lock_api::{MutexGuard, RawMutex};

use crate::base::free_error::FreeError;
use crate::base::units::{CpuId, MigrateType, Order, Pfn};
use crate::packed::cpu::Cpu;
use crate::packed::region::Region;

/// A CPU that one owner has for longer than a request: it takes no lock per request.
///
/// The owner is whatever cannot run twice on the CPU: a kernel with preemption disabled, a thread
/// that stands for a CPU. Other CPUs cannot drain a pinned CPU. [`Region::drain`] asks its owner
/// instead, who drains at its next refill or [`poll`](Pinned::poll). Requests for the CPU by number
/// go to the zone meanwhile.
///
/// Dropping it gives up the CPU; its frames stay in its magazines unless another CPU asked for a
/// drain.
///
/// ```
/// use pageyard::packed::OwnedStorage;
/// use pageyard::{CpuId, MigrateType, Order, Pfn};
///
/// let storage = OwnedStorage::<spin::Mutex<()>>::new(1 << 16, 2, 2)?;
/// let region = storage.region(Pfn(0))?;
/// region.add(Pfn(0)..Pfn(1 << 16))?;
///
/// let mut cpu = region.pin(CpuId(0)).expect("no other thread has pinned this CPU");
/// let page = cpu.alloc(Order::ZERO, MigrateType::Movable).expect("memory is plentiful");
/// cpu.free(page, Order::ZERO)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pinned<'r, 'a, R: RawMutex> {
    region: &'r Region<'a, R>,
    guard: MutexGuard<'r, R, Cpu>,
}

impl<'a, R: RawMutex> Region<'a, R> {
    /// Gives a CPU to the caller until the result is dropped. `None` if the CPU does not exist, is
    /// pinned, or another CPU drains it at this moment.
    pub fn pin(&self, cpu: CpuId) -> Option<Pinned<'_, 'a, R>> {
        let guard = self.cpus.get(cpu.0 as usize)?.own.try_lock()?;
        Some(Pinned { region: self, guard })
    }
}

impl<'r, 'a, R: RawMutex> Pinned<'r, 'a, R> {
    /// Returns the CPU's number.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.guard.number)
    }

    /// Allocates a block; see [`Region::alloc`].
    #[inline(always)]
    pub fn alloc(&mut self, order: Order, t: MigrateType) -> Option<Pfn> {
        self.region.alloc_on(&mut self.guard, order, t)
    }

    /// Frees a block; see [`Region::free`].
    ///
    /// # Errors
    /// As [`Region::free`].
    #[inline(always)]
    pub fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.region.free_on::<false>(&mut self.guard, pfn, order)
    }

    /// Frees a block that no other thread can free concurrently; see [`Region::free_owned`].
    ///
    /// # Errors
    /// As [`Region::free`].
    #[inline(always)]
    pub fn free_owned(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.region.free_on::<true>(&mut self.guard, pfn, order)
    }

    /// Drains the CPU if another CPU asked for it. Call it from a tick. Returns whether it drained.
    pub fn poll(&mut self) -> bool {
        self.region.poll(&mut self.guard)
    }

    /// Returns all of the CPU's frames to the zone.
    pub fn drain(&mut self) {
        self.region.drain_cpu(&mut self.guard);
    }
}

impl<R: RawMutex> Drop for Pinned<'_, '_, R> {
    fn drop(&mut self) {
        self.poll();
    }
}

impl<R: RawMutex> core::fmt::Debug for Pinned<'_, '_, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pinned").field("cpu", &self.guard.number).finish_non_exhaustive()
    }
}
