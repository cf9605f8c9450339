//! Frees that wait for a TLB shootdown: pages that were unmapped stay out of the allocator until no CPU
//! can reach them through a stale translation.
//!
//! The spec does not define these types. A free is one of §6.2.

use core::fmt;
use core::mem;

use crate::allocator::yard::Yard;
use crate::base::free_error::FreeError;
use crate::base::sync::AtomicU64;
use crate::base::sync::Ordering::{Release, SeqCst};
use crate::base::units::{CpuId, Order, Pfn};
use crate::embedder::config::Config;
use crate::request::free::BatchError;

/// What an offline CPU has acknowledged: everything.
const OFFLINE: u64 = u64::MAX;

/// A point in time of an [`Epochs`]: all translations removed before it are gone once every CPU has
/// acknowledged it.
///
/// ```
/// use pageyard::{CpuId, Epoch, Epochs};
///
/// let epochs: Epochs<1> = Epochs::new();
/// let epoch: Epoch = epochs.begin();
/// assert!(!epochs.has_passed(epoch));
/// epochs.acknowledge(CpuId(0), || ());
/// assert!(epochs.has_passed(epoch));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Returns the epoch of a [number](Self::number).
    pub const fn from_number(number: u64) -> Self {
        Epoch(number)
    }

    /// Returns the epoch's number: 1 for the first.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Which translations each of `CPUS` CPUs has flushed from its TLB. All CPUs are online at first.
///
/// Needs no heap and no lock. The thread that unmaps pages calls [`begin`](Self::begin), then
/// interrupts the [lagging](Self::lagging) CPUs; each calls [`acknowledge`](Self::acknowledge), at the
/// latest at its next tick or context switch.
///
/// ```
/// use pageyard::{CpuId, Epochs};
///
/// static EPOCHS: Epochs<2> = Epochs::new();
/// let epoch = EPOCHS.begin();
/// EPOCHS.acknowledge(CpuId(1), || { /* flush the TLB */ });
/// assert!(EPOCHS.lagging(epoch).eq([CpuId(0)]));
/// ```
#[derive(Debug)]
pub struct Epochs<const CPUS: usize> {
    now: AtomicU64,
    acknowledged: [AtomicU64; CPUS],
}

impl<const CPUS: usize> Epochs<CPUS> {
    /// Creates epochs of which none has begun.
    pub const fn new() -> Self {
        Epochs { now: AtomicU64::new(0), acknowledged: [const { AtomicU64::new(0) }; CPUS] }
    }

    /// Begins an epoch, as [`EpochsRef::begin`].
    pub fn begin(&self) -> Epoch {
        EpochsRef::from(self).begin()
    }

    /// Flushes a CPU's TLB and acknowledges all epochs that had begun before, as
    /// [`EpochsRef::acknowledge`].
    pub fn acknowledge(&self, cpu: CpuId, flush: impl FnOnce()) -> bool {
        EpochsRef::from(self).acknowledge(cpu, flush)
    }

    /// Declares that a CPU uses no translations any more, as [`EpochsRef::offline`].
    pub fn offline(&self, cpu: CpuId) -> bool {
        EpochsRef::from(self).offline(cpu)
    }

    /// Declares that a CPU is about to use translations again, as [`EpochsRef::online`].
    pub fn online(&self, cpu: CpuId, flush: impl FnOnce()) -> bool {
        EpochsRef::from(self).online(cpu, flush)
    }

    /// Returns whether every CPU has acknowledged the epoch.
    pub fn has_passed(&self, epoch: Epoch) -> bool {
        EpochsRef::from(self).has_passed(epoch)
    }

    /// Iterates over the CPUs that have not acknowledged the epoch: those to interrupt.
    pub fn lagging(&self, epoch: Epoch) -> impl Iterator<Item = CpuId> + '_ {
        EpochsRef::from(self).lagging(epoch)
    }
}

impl<const CPUS: usize> Default for Epochs<CPUS> {
    fn default() -> Self {
        Self::new()
    }
}

/// [`Epochs`] whose numbers lie in memory of the caller's, for a number of CPUs that is not known when
/// the program is compiled. All zero at first.
///
/// ```
/// use pageyard::{CpuId, EpochsRef};
/// use std::sync::atomic::AtomicU64;
///
/// let now = AtomicU64::new(0);
/// let cpus: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
/// let epochs = EpochsRef::new(&now, &cpus);
/// let epoch = epochs.begin();
/// epochs.acknowledge(CpuId(1), || { /* flush the TLB */ });
/// assert!(epochs.lagging(epoch).eq([CpuId(0), CpuId(2)]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct EpochsRef<'e> {
    now: &'e AtomicU64,
    acknowledged: &'e [AtomicU64],
}

impl<'e, const CPUS: usize> From<&'e Epochs<CPUS>> for EpochsRef<'e> {
    fn from(epochs: &'e Epochs<CPUS>) -> Self {
        EpochsRef { now: &epochs.now, acknowledged: &epochs.acknowledged }
    }
}

impl<'e> EpochsRef<'e> {
    /// Uses the number of the last epoch, and for each CPU the last one that it acknowledged.
    pub const fn new(now: &'e AtomicU64, acknowledged: &'e [AtomicU64]) -> Self {
        EpochsRef { now, acknowledged }
    }

    /// Begins an epoch. The caller must have removed the translations before.
    pub fn begin(self) -> Epoch {
        Epoch(self.now.fetch_add(1, SeqCst).wrapping_add(1))
    }

    /// Flushes a CPU's TLB and acknowledges all epochs that had begun before. `flush` runs on that CPU,
    /// and one call for a CPU does not overlap another, other than by interrupting it. If `flush`
    /// panics, nothing is acknowledged. Returns `false` for an unknown CPU.
    pub fn acknowledge(self, cpu: CpuId, flush: impl FnOnce()) -> bool {
        let Some(own) = self.acknowledged.get(cpu.0 as usize) else { return false };
        // Before the flush: what is unmapped during it is not covered.
        let seen = self.now.load(SeqCst);
        flush();
        own.fetch_max(seen, Release);
        true
    }

    /// Declares that a CPU uses no translations any more: no epoch waits for it. Returns `false` for an
    /// unknown CPU.
    pub fn offline(self, cpu: CpuId) -> bool {
        let own = self.acknowledged.get(cpu.0 as usize);
        own.map(|own| own.store(OFFLINE, Release)).is_some()
    }

    /// Declares that a CPU that was [offline](Self::offline) is about to use translations again, and
    /// flushes its TLB. Returns `false` for an unknown CPU.
    pub fn online(self, cpu: CpuId, flush: impl FnOnce()) -> bool {
        let Some(own) = self.acknowledged.get(cpu.0 as usize) else { return false };
        // A check that still finds this CPU offline comes first: then the epoch that it checks, and all
        // that was unmapped before it, is visible here.
        own.store(0, SeqCst);
        self.acknowledge(cpu, flush)
    }

    /// Returns whether every CPU has acknowledged the epoch.
    pub fn has_passed(self, epoch: Epoch) -> bool {
        self.acknowledged.iter().all(|cpu| cpu.load(SeqCst) >= epoch.0)
    }

    /// Iterates over the CPUs that have not acknowledged the epoch: those to interrupt.
    pub fn lagging(self, epoch: Epoch) -> impl Iterator<Item = CpuId> + 'e {
        let all = (0..).zip(self.acknowledged);
        all.filter(move |(_, cpu)| cpu.load(SeqCst) < epoch.0).map(|(cpu, _)| CpuId(cpu))
    }
}

/// Why a [`ShootdownBatch`] did not take or free a block.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// let mut none = [];
/// let mut batch = ShootdownBatch::new(&mut none);
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
/// assert_eq!(batch.add(&yard, page, Order::ZERO), Err(ShootdownError::Full));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShootdownError {
    /// The batch has no room for another block.
    Full,
    /// The batch waits for its epoch: it takes no block until it is freed.
    Waiting,
    /// No epoch was [begun](ShootdownBatch::begin) for the batch.
    NotBegun,
    /// Some CPU has not acknowledged the batch's epoch.
    Pending,
    /// The block is not allocated at this order.
    Free(FreeError),
    /// A block of the batch is free or twice in it. The block leaves the batch; nothing was freed.
    Batch(BatchError),
}

impl fmt::Display for ShootdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShootdownError::Full => f.write_str("the batch has no room for another block"),
            ShootdownError::Waiting => f.write_str("the batch waits for its epoch; free it first"),
            ShootdownError::NotBegun => f.write_str("no epoch was begun for the batch"),
            ShootdownError::Pending => f.write_str("a CPU has not acknowledged the batch's epoch"),
            ShootdownError::Free(e) => e.fmt(f),
            ShootdownError::Batch(e) => e.fmt(f),
        }
    }
}

impl core::error::Error for ShootdownError {}

/// Blocks to be freed once every CPU has flushed their translations, in memory of the caller's.
///
/// The blocks stay allocated meanwhile, and belong to the batch: only it frees them, once. Where a batch
/// is dropped or forgotten with blocks in it, they stay allocated for good; no page is handed out
/// twice.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, ()).unwrap();
/// static EPOCHS: Epochs<1> = Epochs::new();
/// let mut room = [(Pfn(0), Order::ZERO); 32];
/// let mut batch = ShootdownBatch::new(&mut room);
///
/// let page = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
/// // Remove the page from the page tables, then:
/// batch.add(&yard, page, Order::ZERO)?;
/// batch.begin(&EPOCHS);
/// assert_eq!(batch.free(&yard, &EPOCHS), Err(ShootdownError::Pending));
/// EPOCHS.acknowledge(CpuId(0), || { /* flush the TLB */ });
/// assert_eq!(batch.free(&yard, &EPOCHS), Ok(1));
/// # Ok::<(), ShootdownError>(())
/// ```
#[derive(Debug)]
#[must_use = "the blocks of a batch stay allocated until it is freed"]
pub struct ShootdownBatch<'s> {
    blocks: &'s mut [(Pfn, Order)],
    len: usize,
    epoch: Option<Epoch>,
}

impl<'s> ShootdownBatch<'s> {
    /// Creates an empty batch with room for as many blocks as the slice has entries.
    pub const fn new(room: &'s mut [(Pfn, Order)]) -> Self {
        ShootdownBatch { blocks: room, len: 0, epoch: None }
    }

    /// Continues with a batch whose parts the caller kept: its room, the number of blocks at the start of
    /// it, and the epoch for which they wait. A batch that is continued twice frees blocks that may have
    /// another owner by then.
    pub fn resume(room: &'s mut [(Pfn, Order)], len: usize, epoch: Option<Epoch>) -> Self {
        let len = len.min(room.len());
        ShootdownBatch { blocks: room, len, epoch }
    }

    /// Returns the epoch for which the batch waits.
    pub const fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// Returns the number of blocks.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the batch has no blocks.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes a block over from its owner.
    ///
    /// # Errors
    /// [`Full`](ShootdownError::Full), [`Waiting`](ShootdownError::Waiting), or
    /// [`Free`](ShootdownError::Free) if it is not allocated at this order. The block is still its
    /// owner's.
    pub fn add<C: Config>(
        &mut self,
        yard: &Yard<'_, C>,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), ShootdownError> {
        if self.epoch.is_some() {
            return Err(ShootdownError::Waiting);
        }
        let slot = self.blocks.get_mut(self.len).ok_or(ShootdownError::Full)?;
        yard.owned(pfn, order).map_err(ShootdownError::Free)?;
        *slot = (pfn, order);
        self.len += 1;
        Ok(())
    }

    /// Begins the epoch for which the batch waits. The caller must have removed the translations of
    /// all its blocks. A second call begins another one.
    pub fn begin<'e>(&mut self, epochs: impl Into<EpochsRef<'e>>) -> Epoch {
        *self.epoch.insert(epochs.into().begin())
    }

    /// Frees all blocks if their epoch has passed, and returns their number. The batch is empty then,
    /// and can be used again. `epochs` must be those of [`begin`](Self::begin).
    ///
    /// If a hook panics, blocks that are not free yet stay allocated for good.
    ///
    /// # Errors
    /// [`NotBegun`](ShootdownError::NotBegun) and [`Pending`](ShootdownError::Pending), with nothing
    /// changed. [`Batch`](ShootdownError::Batch) if a block was freed by another than the batch, or was
    /// added twice: that entry leaves the batch, and another call frees the rest. With
    /// [`FreeError::UnknownCpu`] nothing has changed: the calling CPU is offline.
    pub fn free<'e, C: Config>(
        &mut self,
        yard: &Yard<'_, C>,
        epochs: impl Into<EpochsRef<'e>>,
    ) -> Result<usize, ShootdownError> {
        let epoch = self.epoch.ok_or(ShootdownError::NotBegun)?;
        if !epochs.into().has_passed(epoch) {
            return Err(ShootdownError::Pending);
        }
        // Before the call: after a panic nothing may be freed again.
        let len = mem::take(&mut self.len);
        let blocks = self.blocks.get(..len).unwrap_or(&[]);
        if let Err(e) = yard.free_batch(blocks) {
            self.len = len;
            if !matches!(e.error, FreeError::UnknownCpu(_)) {
                // The last block takes the place of the one at fault.
                self.len = len.saturating_sub(1);
                let last = self.blocks.get(self.len).copied();
                if let (Some(last), Some(slot)) = (last, self.blocks.get_mut(e.index)) {
                    *slot = last;
                }
            }
            return Err(ShootdownError::Batch(e));
        }
        self.epoch = None;
        Ok(len)
    }
}
