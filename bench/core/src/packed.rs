//! The packed engine: with a lock per CPU, with that and frees by owners, and pinned.

// Only for the pinned form; this crate is not part of the library.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;

use pageyard::packed::{OwnedStorage, Pinned, Region};
use pageyard::{CpuId, MigrateType, Order, Pfn};
use spin::mutex::SpinMutex;

use crate::contestants::{CPUS, Contestant, FIRST, FRAMES};

type Lock = SpinMutex<()>;

fn region() -> &'static Region<'static, Lock> {
    // Kept until the program ends, as in a kernel.
    let storage = OwnedStorage::new(FRAMES as u32, CPUS as u32, CPUS as u32).expect("a size");
    let storage: &'static OwnedStorage<Lock> = Box::leak(Box::new(storage));
    let region = storage.region(Pfn(FIRST)).expect("the storage is new");
    region.add(Pfn(FIRST)..Pfn(FIRST + FRAMES as u64)).expect("frames of the region");
    Box::leak(Box::new(region))
}

#[inline(always)]
fn order(order: u8) -> Order {
    Order::new(order).expect("an order")
}

/// The packed engine; a lock per CPU that each request takes.
#[derive(Debug)]
pub struct Packed(&'static Region<'static, Lock>);

impl Contestant for Packed {
    const NAME: &'static str = "packed";

    fn new() -> Self {
        Packed(region())
    }

    #[inline(always)]
    fn alloc(&self, o: u8) -> usize {
        let pfn = self.0.alloc(CpuId(crate::cpu()), order(o), MigrateType::Movable);
        pfn.expect("free memory").0 as usize
    }

    #[inline(always)]
    fn free(&self, block: usize, o: u8) {
        let freed = self.0.free(CpuId(crate::cpu()), Pfn(block as u64), order(o));
        freed.expect("an allocated block");
    }
}

/// The packed engine; each thread keeps its CPU, which takes no lock.
#[derive(Debug)]
pub struct PackedPinned([UnsafeCell<Pinned<'static, 'static, Lock>>; CPUS]);

// SAFETY: each thread uses the CPU that it simulates, and no two simulate the same one at once.
unsafe impl Sync for PackedPinned {}

impl PackedPinned {
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    fn mine(&self) -> &mut Pinned<'static, 'static, Lock> {
        // SAFETY: as for `Sync`; the reference does not outlive the call.
        unsafe { &mut *self.0[crate::cpu() as usize].get() }
    }
}

impl Contestant for PackedPinned {
    const NAME: &'static str = "packed-pinned";

    fn new() -> Self {
        let region = region();
        let pin = |cpu| UnsafeCell::new(region.pin(CpuId(cpu as u32)).expect("the CPU is free"));
        PackedPinned(std::array::from_fn(pin))
    }

    #[inline(always)]
    fn alloc(&self, o: u8) -> usize {
        let pfn = self.mine().alloc(order(o), MigrateType::Movable);
        pfn.expect("free memory").0 as usize
    }

    #[inline(always)]
    fn free(&self, block: usize, o: u8) {
        self.mine().free(Pfn(block as u64), order(o)).expect("an allocated block");
    }
}

/// The pinned form with `free_owned`.
#[derive(Debug)]
pub struct PackedOwned(PackedPinned);

impl Contestant for PackedOwned {
    const NAME: &'static str = "packed-pinned-owned";

    fn new() -> Self {
        PackedOwned(PackedPinned::new())
    }

    #[inline(always)]
    fn alloc(&self, o: u8) -> usize {
        self.0.alloc(o)
    }

    #[inline(always)]
    fn free(&self, block: usize, o: u8) {
        let freed = self.0.mine().free_owned(Pfn(block as u64), order(o));
        freed.expect("an allocated block");
    }
}
