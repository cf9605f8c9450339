//! The packed engine over the largest range of memory, with each CPU pinned: its lists need no
//! lock.

use core::ops::Range;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use lock_api::{GuardNoSend, RawMutex};
use pageyard::packed::{Needs, Pinned, Region};
use pageyard::{CpuId, FreeError, MigrateType, Order, Pfn};
use pageyard_carve::{Carver, region_storage};

use crate::memory::Memory;
use crate::println;

/// The lock of a CPU's part. It must leave interrupts alone: a pinned CPU holds it for good. An
/// interrupt handler finds it held, and its requests go to the zone, which has no lock.
pub struct Claim(AtomicBool);

// SAFETY: the exchange lets one caller in at a time until `unlock`.
unsafe impl RawMutex for Claim {
    #[allow(clippy::declare_interior_mutable_const)] // the trait's way
    const INIT: Self = Claim(AtomicBool::new(false));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        while !self.try_lock() {
            core::hint::spin_loop();
        }
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Release);
    }
}

const TYPES: [MigrateType; 4] = [
    MigrateType::Unmovable,
    MigrateType::Movable,
    MigrateType::Reclaimable,
    MigrateType::Unmovable,
];

pub struct Engine(Region<'static, Claim>);

/// A CPU with its lists.
pub struct Cpu(Pinned<'static, 'static, Claim>);

impl Engine {
    pub const NAME: &'static str = "pinned CPUs";
    /// What a hot pair may take at most (docs/kernels.md has the measured numbers).
    /// A compare-and-exchange of one byte is a loop on RISC-V.
    pub const MOST_INSTRUCTIONS: u64 = if cfg!(target_arch = "riscv64") { 80 } else { 70 };

    /// Creates the region, with its maps at the end of the largest range of memory.
    pub fn start(memory: &mut Memory, cpus: usize) -> &'static Engine {
        let range = memory.largest();
        let frames = (range.end.0 - range.start.0) as u32;
        let needs = Needs::of(range.start, frames, cpus as u32, cpus as u32);
        let needs = needs.unwrap_or_else(|e| panic!("{e}"));
        // Each of the eleven slices may begin up to a cache line or two later.
        let bytes = needs.bytes::<Claim>() + size_of::<Engine>() + 11 * 128;
        let mut carver = Carver::new(memory.take(bytes));
        let storage = region_storage(&mut carver, &needs).expect("room was taken for it");
        let region = Region::new(range.start, frames, cpus as u32, storage);
        let mut region = Some(region.unwrap_or_else(|e| panic!("{e}")));
        let engine = carver.slice(1, |_| Engine(region.take().expect("one engine")));
        let [engine] = engine.expect("room was taken for it") else { unreachable!() };
        memory.free_parts(range.clone(), |part: Range<Pfn>| {
            engine.0.add(part).unwrap_or_else(|e| panic!("{e}"));
        });
        // The other ranges stay unused: a region is one.
        memory.keep_only(range);
        engine
    }

    /// Gives the calling CPU its lists.
    pub fn enter(&'static self, cpu: usize) -> Cpu {
        Cpu(self.0.pin(CpuId(cpu as u32)).expect("each CPU enters once"))
    }

    /// Allocates in an interrupt handler: from the zone, as the CPU is pinned.
    pub fn interrupt_alloc(&self, cpu: usize, order: Order) -> Option<Pfn> {
        self.0.alloc(CpuId(cpu as u32), order, MigrateType::Unmovable)
    }

    /// Frees in an interrupt handler.
    pub fn interrupt_free(&self, cpu: usize, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.0.free(CpuId(cpu as u32), pfn, order)
    }

    /// Runs the tick, which is one for all CPUs here.
    pub fn tick(&self, cpu: usize) {
        if cpu == 0 {
            self.0.tick();
        }
    }

    /// Drains and checks the region when no CPU uses it. Returns the number of free pages.
    pub fn finish(&self) -> u64 {
        assert!(self.0.drain_all(), "a CPU is still pinned");
        let census = self.0.validate().unwrap_or_else(|broken| panic!("{broken:?}"));
        println!("{census:?}");
        assert_eq!((census.allocated, census.cpus, census.depots), (0, 0, 0));
        assert_eq!(census.present, self.0.free_frames());
        census.present
    }
}

impl Cpu {
    /// Allocates a block; one of four kinds.
    pub fn alloc(&mut self, order: Order, kind: usize) -> Option<Pfn> {
        self.0.alloc(order, TYPES[kind])
    }

    pub fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.0.free(pfn, order)
    }

    /// A hot pair: order and type are constants.
    #[inline(always)]
    pub fn pair(&mut self) -> bool {
        let page = self.0.alloc(Order::ZERO, MigrateType::Unmovable);
        page.is_some_and(|page| self.0.free(page, Order::ZERO).is_ok())
    }

    /// Drains the lists if another CPU asked for it.
    pub fn poll(&mut self) {
        self.0.poll();
    }
}
