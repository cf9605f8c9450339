//! An allocator without a heap: its maps and the allocator itself are statics, as in a kernel.
//!
//!     cargo run -p pageyard --example statics
//!
//! Only `main` uses the standard library, to print. `cargo test -p pageyard` also runs this as a
//! test.

#![cfg_attr(not(test), no_std)]

#[cfg(not(test))]
extern crate std;

use lock_api::{Mutex, MutexGuard};
use pageyard::{
    AllocError, Bare, CpuId, CpuZones, Frame, FreeError, Gfp, InitError, Knobs, Layout, Node,
    NodeId, Order, PAGEBLOCK_PAGES, Pageblock, PerCpu, Pfn, Platform, Storage, Yard, Zone,
    ZoneKind, ZoneSpec,
};

type Lock = spin::mutex::SpinMutex<()>;

/// 64 MiB at 4 GiB. The zone starts at a multiple of 4 MiB, so its maps start with its first frame.
const MEMORY: core::ops::Range<Pfn> = Pfn(0x100000)..Pfn(0x100000 + PAGES as u64);
const PAGES: usize = 16384;
/// The kernel's image.
const RESERVED: core::ops::Range<Pfn> = Pfn(0x100000)..Pfn(0x100100);

// The large maps are shared and all zero bytes, so they take no room in the kernel's image.
static FRAMES: [Frame; PAGES] = [const { Frame::new() }; PAGES];
static BLOCKS: [Pageblock; PAGES.div_ceil(PAGEBLOCK_PAGES as usize)] =
    [const { Pageblock::new() }; PAGES.div_ceil(PAGEBLOCK_PAGES as usize)];
// The small maps are taken once, mutably: one zone, one node, two CPUs and thus two slots.
static ZONES: Mutex<Lock, [Zone<'static, Lock>; 1]> = Mutex::new([Zone::new()]);
static NODES: Mutex<Lock, [Node<'static, Lock>; 1]> = Mutex::new([Node::new()]);
static SLOTS: Mutex<Lock, [PerCpu<Lock>; 2]> = Mutex::new([const { PerCpu::new() }; 2]);
static CPU_ZONES: Mutex<Lock, [CpuZones<'static, Lock>; 2]> =
    Mutex::new([const { CpuZones::new() }; 2]);
/// The allocator, after [`boot`].
static YARD: spin::Once<Yard<'static, Bare<Lock, Machine>>> = spin::Once::new();

struct Machine;

impl Platform for Machine {
    fn cpu(&self) -> CpuId {
        CpuId(0) // a kernel reads a register here
    }
}

/// Takes a static's value until the program ends; `None` if it is already taken. Never releases the
/// lock.
fn take<T: ?Sized>(place: &'static Mutex<Lock, T>) -> Option<&'static mut T> {
    place.try_lock().map(MutexGuard::leak)
}

/// Returns the maps; `None` if they are already taken.
fn storage() -> Option<Storage<'static, Lock>> {
    Some(Storage {
        frames: &FRAMES,
        blocks: &BLOCKS,
        zones: take(&ZONES)?,
        slots: take(&SLOTS)?,
        nodes: take(&NODES)?,
        cpu_zones: take(&CPU_ZONES)?,
        packed: pageyard::packed::YardStorage::EMPTY,
    })
}

/// Creates the allocator, or returns it if it already exists.
fn boot() -> Result<&'static Yard<'static, Bare<Lock, Machine>>, InitError> {
    YARD.try_call_once(|| {
        let layout = Layout {
            zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: MEMORY }],
            usable: &[MEMORY],
            reserved: &[RESERVED],
            cpus: &[NodeId(0); 2],
            distances: &[],
            knobs: Knobs::default(),
        };
        // Also the error if the maps are already taken.
        let storage = storage().ok_or(InitError::NoZones)?;
        Yard::new(&layout, storage, Machine)
    })
}

/// Uses the allocator like a kernel. Returns the number of managed pages.
fn work(yard: &'static Yard<'static, Bare<Lock, Machine>>) -> Result<u64, AllocError> {
    let managed = yard.zone_info(ZoneKind::Normal).map_or(0, |zone| zone.managed);
    assert_eq!(managed, PAGES as u64 - 0x100);

    let order = Order::for_bytes(32 << 10).unwrap_or_default();
    let block = yard.alloc(order, Gfp::KERNEL)?;
    assert!(RESERVED.end <= block && block < MEMORY.end);
    assert_eq!(yard.free(block, order), Ok(()));
    assert_eq!(yard.free(block, order), Err(FreeError::DoubleFree));

    // Allocates every page that ordinary requests may have, then frees them all. A kernel would
    // link the pages through their contents; here each is recorded by its number.
    let mut taken = [false; PAGES];
    while let Ok(page) = yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN) {
        let taken = &mut taken[(page.0 - MEMORY.start.0) as usize];
        assert!(!*taken, "{page} has two owners");
        *taken = true;
    }
    for (pfn, _) in (MEMORY.start.0..).zip(taken).filter(|&(_, taken)| taken) {
        assert_eq!(yard.free(Pfn(pfn), Order::ZERO), Ok(()));
    }
    yard.drain_all(None);
    let free = yard.zone_info(ZoneKind::Normal).map(|zone| zone.free_exact);
    assert_eq!(free, Some(managed));
    Ok(managed)
}

fn main() {
    let yard = boot().expect("the statics are as large as the layout needs");
    let pages = work(yard).expect("64 MiB hold 32 KiB");
    assert!(boot().is_ok_and(|again| core::ptr::eq(again, yard)));
    assert!(storage().is_none(), "the maps are taken");
    std::println!("{pages} pages, {} KiB, and no heap", pages * 4);
}

#[test]
fn a_yard_in_statics_allocates_and_frees_every_page() {
    main();
}
