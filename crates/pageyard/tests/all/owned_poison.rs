//! Policy `OwnedBlocks`: a frame is poisoned while its block merges on the owner's lists, where it has no
//! head for a moment, and neither the zone lock nor a mark says so.
#![allow(unsafe_code)] // a lock

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use lock_api::RawMutex;
use pageyard::policy::{OwnedBlocks, StaticPolicy};
use pageyard::{
    CpuId, Defences, Event, Gfp, Hooked, Observer, OwnedStorage, Pfn, Platform, Poisoned, Reclaim,
    Yard,
};

use crate::common::{Chosen, Machine, o};

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// What has happened so far. Each step is taken by one thread, which then waits for the next one.
static STEP: AtomicU32 = AtomicU32::new(0);
/// The poisoner has emptied the lists, but for those of its own CPU.
const DRAINED: u32 = 1;
/// The other thread merges the frame's block with its buddy.
const MERGING: u32 = 2;
/// The poisoner has looked at the frame, and has returned or waits for the lists.
const LOOKED: u32 = 3;

fn come_to(step: u32) {
    STEP.store(step, SeqCst);
}

fn wait_for(step: u32) {
    while STEP.load(SeqCst) < step {
        std::thread::yield_now();
    }
}

/// A lock that takes a wait of the poisoner, once the blocks merge, for its next step.
struct Tells(spin::mutex::SpinMutex<()>);

// SAFETY: exclusion is the inner lock's, to which every operation is forwarded.
unsafe impl RawMutex for Tells {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Tells(spin::mutex::SpinMutex::new(()));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            if CPU.get() == 1 && STEP.load(SeqCst) == MERGING {
                come_to(LOOKED);
            }
            std::thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        RawMutex::try_lock(&self.0)
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock, so the inner one is held.
        unsafe { RawMutex::unlock(&self.0) };
    }
}

/// The first frame of the pageblock that CPU 0 owns.
static BASE: AtomicU64 = AtomicU64::new(0);
/// Of two blocks of order 3 in it that merge, the upper one.
const UPPER: u64 = 104;
static DRAINS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// Delays threads, to make the order of events certain.
#[derive(Debug)]
struct Delays;

impl Platform for Delays {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}
impl Reclaim for Delays {}
impl Defences for Delays {}
impl Observer for Delays {
    const SEES_TOUCHES: bool = true;

    fn event(&self, _: CpuId, event: Event) {
        let drains = CPU.get() == 1 && STEP.load(SeqCst) == 0;
        if drains && matches!(event, Event::BulkFree { .. }) && DRAINS.fetch_add(1, SeqCst) == 1 {
            // CPU 0 was drained, and now CPU 1 is: CPU 0 refills and drains again.
            come_to(DRAINED);
            wait_for(MERGING);
        }
    }

    fn touch(&self, pfn: Pfn) {
        let offset = pfn.0.wrapping_sub(BASE.load(SeqCst));
        let last = LAST.swap(offset, SeqCst);
        let merged = last == UPPER - 8 && offset == UPPER + 8;
        if STEP.load(SeqCst) == DRAINED && CPU.get() == 0 && merged {
            // The two blocks are one now, and it has no head yet.
            come_to(MERGING);
            wait_for(LOOKED);
        }
    }
}

type Y = Yard<'static, Hooked<Tells, Delays, Chosen>>;

#[test]
fn s11_3_a_frame_that_is_poisoned_while_its_block_merges_goes_out_of_use() {
    let machine = Machine::normal(1 << 18).cpus(&[0, 0]);
    let layout = machine.layout();
    let rules = &<OwnedBlocks>::RULES;
    let needs = layout.needs_on::<Tells>(rules.engine).unwrap();
    let y: &'static mut Y = Box::leak(Box::new(Yard::with_policy(Delays, rules)));
    let maps = Box::leak(Box::new(OwnedStorage::for_needs(&needs).unwrap()));
    y.init(&layout, maps.storage()).unwrap();
    let y: &Y = y;
    for cpu in [1, 0] {
        CPU.set(cpu);
        let page = y.alloc(o(0), Gfp::KERNEL).unwrap();
        BASE.store(page.0 & !511, SeqCst);
    }
    let frame = Pfn(BASE.load(SeqCst) + UPPER + 1);
    let poisoner = std::thread::spawn(move || {
        CPU.set(1);
        let answer = y.poison_frame(frame);
        come_to(LOOKED);
        answer
    });
    wait_for(DRAINED);
    y.alloc(o(0), Gfp::KERNEL).unwrap();
    y.drain_cpu(CpuId(0), None);
    assert_eq!(STEP.load(SeqCst), LOOKED, "other blocks merge than the test expects");
    assert_eq!(poisoner.join().unwrap(), Ok(Poisoned::Removed));
    y.validate().unwrap_or_else(|e| panic!("{e}"));
    let mut pages = std::iter::from_fn(|| y.alloc(o(0), Gfp::KERNEL | Gfp::NOWARN).ok());
    assert!(pages.all(|page| page != frame), "a request got the faulty frame");
}
