//! Frees that wait for all CPUs to flush their TLBs.

use crate::common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use common::{Machine, Y, o};
use pageyard::{
    BatchError, CpuId, Epoch, Epochs, EpochsRef, FreeError, Gfp, Order, Pfn, ShootdownBatch,
    ShootdownError, ZoneKind,
};

const GFP: Gfp = Gfp::KERNEL;
const NONE: (Pfn, Order) = (Pfn(0), Order::ZERO);
const NORMAL: ZoneKind = ZoneKind::Normal;

fn free_pages(y: &Y<'_>) -> u64 {
    y.drain_all(None);
    y.zone_info(NORMAL).unwrap().free_exact
}

fn page(y: &Y<'_>) -> Pfn {
    y.alloc(Order::ZERO, GFP).unwrap()
}

#[test]
fn an_epoch_passes_when_every_cpu_has_acknowledged_it() {
    let epochs: Epochs<3> = Epochs::new();
    let first = epochs.begin();
    assert!(epochs.lagging(first).eq([0, 1, 2].map(CpuId)));
    assert!(epochs.acknowledge(CpuId(1), || ()) && epochs.acknowledge(CpuId(0), || ()));
    assert!(!epochs.has_passed(first) && epochs.lagging(first).eq([CpuId(2)]));
    // An epoch that begins during a flush is not acknowledged by it.
    let mut second = None;
    epochs.acknowledge(CpuId(2), || second = Some(epochs.begin()));
    let second = second.unwrap();
    assert!(epochs.has_passed(first) && epochs.lagging(second).count() == 3);
    // A flush in an interrupt of another flush.
    epochs.acknowledge(CpuId(2), || _ = epochs.acknowledge(CpuId(2), || ()));
    assert!(epochs.lagging(second).eq([0, 1].map(CpuId)));
    // Offline CPUs are not waited for. A CPU that comes online is, until it has flushed.
    assert!(epochs.offline(CpuId(0)) && epochs.acknowledge(CpuId(1), || ()));
    assert!(epochs.has_passed(second));
    let third = epochs.begin();
    epochs.acknowledge(CpuId(1), || ());
    epochs.acknowledge(CpuId(2), || ());
    assert!(epochs.has_passed(third));
    epochs.online(CpuId(0), || assert!(!epochs.has_passed(third), "not flushed yet"));
    assert!(epochs.has_passed(third));
    let fourth = epochs.begin();
    assert!(epochs.lagging(fourth).any(|cpu| cpu == CpuId(0)));
    for cpu in [3, u32::MAX].map(CpuId) {
        assert!(!epochs.acknowledge(cpu, || unreachable!()) && !epochs.offline(cpu));
        assert!(!epochs.online(cpu, || unreachable!()));
    }
    // A flush that panics acknowledges nothing.
    let flush = std::panic::AssertUnwindSafe(|| {
        epochs.acknowledge(CpuId(0), || std::panic::resume_unwind(Box::new(())))
    });
    assert!(std::panic::catch_unwind(flush).is_err());
    assert!(epochs.lagging(fourth).any(|cpu| cpu == CpuId(0)));
}

#[test]
fn blocks_are_freed_once_and_only_after_their_epoch() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let (all, epochs) = (free_pages(y), Epochs::<1>::new());
        let mut room = [NONE; 3];
        let mut batch = ShootdownBatch::new(&mut room);
        let (one, two) = (page(y), y.alloc(o(3), GFP).unwrap());
        batch.add(y, one, Order::ZERO).unwrap();
        let wrong = ShootdownError::Free(FreeError::WrongOrder { allocated: o(3) });
        assert_eq!(batch.add(y, two, o(2)), Err(wrong));
        batch.add(y, two, o(3)).unwrap();
        assert_eq!(batch.free(y, &epochs), Err(ShootdownError::NotBegun));
        batch.begin(&epochs);
        assert_eq!(batch.add(y, one, Order::ZERO), Err(ShootdownError::Waiting));
        assert_eq!(batch.free(y, &epochs), Err(ShootdownError::Pending));
        assert_eq!((free_pages(y), batch.len()), (all - 9, 2));
        epochs.acknowledge(CpuId(0), || ());
        assert_eq!(batch.free(y, &epochs), Ok(2));
        assert_eq!((free_pages(y), batch.is_empty()), (all, true));
        assert_eq!(batch.free(y, &epochs), Err(ShootdownError::NotBegun), "the batch is used up");
        // Reuse the batch, up to its last entry.
        (0..3).for_each(|_| batch.add(y, page(y), Order::ZERO).unwrap());
        let more = page(y);
        assert_eq!(batch.add(y, more, Order::ZERO), Err(ShootdownError::Full));
        y.free(more, Order::ZERO).unwrap();
        batch.begin(&epochs);
        assert_eq!(
            batch.free(y, &epochs),
            Err(ShootdownError::Pending),
            "the new epoch is pending"
        );
        epochs.acknowledge(CpuId(0), || ());
        assert_eq!(batch.free(y, &epochs), Ok(3));
        assert_eq!(free_pages(y), all);
        y.validate().unwrap();
    });
}

/// A block that is in the batch twice, or that another caller freed, is removed from the batch; the
/// rest is freed.
#[test]
fn a_block_at_fault_leaves_the_batch() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let (all, epochs) = (free_pages(y), Epochs::<0>::new());
        let mut room = [NONE; 5];
        let mut batch = ShootdownBatch::new(&mut room);
        let pages = [page(y), page(y), page(y)];
        for at in [0, 1, 1, 2] {
            batch.add(y, pages[at], Order::ZERO).unwrap();
        }
        y.free(pages[0], Order::ZERO).unwrap();
        batch.begin(&epochs);
        let fault =
            |index| Err(ShootdownError::Batch(BatchError { index, error: FreeError::DoubleFree }));
        assert_eq!(batch.free(y, &epochs), fault(0));
        assert_eq!(free_pages(y), all - 2, "no other block was freed");
        let twice = batch.free(y, &epochs);
        assert!((0..3).any(|n| twice == fault(n)), "{twice:?}");
        assert_eq!(batch.free(y, &epochs), Ok(2));
        assert_eq!(free_pages(y), all);
        y.validate().unwrap();
    });
}

/// A batch whose parts lie in a structure of C's, with epochs for a number of CPUs that only it knows.
#[test]
fn a_batch_is_resumed_from_its_parts() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let (now, cpus) = (AtomicU64::new(7), [const { AtomicU64::new(7) }; 2]);
        let epochs = EpochsRef::new(&now, &cpus);
        let (all, mut room) = (free_pages(y), [NONE; 3]);
        let mut batch = ShootdownBatch::resume(&mut room, 0, None);
        batch.add(y, page(y), Order::ZERO).unwrap();
        let epoch = batch.begin(epochs);
        assert_eq!((batch.epoch(), epoch.number(), now.load(SeqCst)), (Some(epoch), 8, 8));
        let (len, epoch) = (batch.len(), Epoch::from_number(8));
        let mut batch = ShootdownBatch::resume(&mut room, len, Some(epoch));
        assert_eq!(batch.add(y, page(y), Order::ZERO), Err(ShootdownError::Waiting));
        epochs.acknowledge(CpuId(1), || ());
        assert_eq!(batch.free(y, epochs), Err(ShootdownError::Pending));
        assert!(epochs.lagging(epoch).eq([CpuId(0)]) && cpus[0].load(SeqCst) == 7);
        epochs.acknowledge(CpuId(0), || ());
        assert_eq!(batch.free(y, epochs), Ok(1));
        assert_eq!((batch.epoch(), free_pages(y)), (None, all - 1));
        // No more blocks than there is room for.
        assert_eq!(ShootdownBatch::resume(&mut room, 4, None).len(), 3);
    });
}

#[test]
fn the_blocks_of_a_forgotten_batch_are_never_handed_out() {
    Machine::normal(8192).run(|y: &Y<'_>| {
        let mut room = [NONE; 4];
        let pages: Vec<Pfn> = (0..4).map(|_| page(y)).collect();
        {
            let mut batch = ShootdownBatch::new(&mut room);
            pages.iter().for_each(|&p| batch.add(y, p, Order::ZERO).unwrap());
            batch.begin(&Epochs::<0>::new());
        }
        let rights = Gfp::ATOMIC | Gfp::MEMALLOC | Gfp::NOWARN;
        let rest: Vec<Pfn> = std::iter::from_fn(|| y.alloc(Order::ZERO, rights).ok()).collect();
        assert_eq!(rest.len(), 8192 - 4);
        assert!(rest.iter().all(|p| !pages.contains(p)));
    });
}

/// Stops the threads, even if the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Two CPUs read a page through translations that they keep until they flush. The frame of a kept
/// translation never has another owner.
#[test]
fn no_page_is_handed_out_while_a_cpu_can_reach_it() {
    const STEPS: u64 = 500;
    Machine::normal(8192).cpus(&[0, 0, 0]).run(|y: &Y<'_>| {
        let (epochs, done) = (Epochs::<2>::new(), AtomicBool::new(false));
        // The current use of each frame; 0: none.
        let uses: Vec<AtomicU64> = (0..8192).map(|_| AtomicU64::new(0)).collect();
        // The page table: one entry, as use and frame.
        let mapped = AtomicU64::new(0);
        let map = |n: u64| {
            let pfn = page(y);
            assert_eq!(uses[pfn.0 as usize].swap(n, SeqCst), 0, "{pfn} has two owners");
            mapped.store(n << 32 | pfn.0, SeqCst);
            pfn
        };
        let (mut old, start) = (map(1), Barrier::new(3));
        std::thread::scope(|s| {
            for cpu in 0..2 {
                let (epochs, done, uses, mapped) = (&epochs, &done, &uses, &mapped);
                let start = &start;
                s.spawn(move || {
                    start.wait();
                    while !done.load(SeqCst) {
                        let tlb = mapped.load(SeqCst);
                        let (n, pfn) = (tlb >> 32, tlb & 0xffff_ffff);
                        // Read it several times, so that other CPUs run in between.
                        for _ in 0..4 {
                            let seen = uses[pfn as usize].load(SeqCst);
                            if seen != n {
                                done.store(true, SeqCst);
                                panic!("CPU {cpu} reaches frame {pfn} of use {n}, now {seen}");
                            }
                            std::thread::yield_now();
                        }
                        epochs.acknowledge(CpuId(cpu), || ());
                    }
                });
            }
            let _stop = Stop(&done);
            start.wait();
            let mut room = [NONE; 1];
            let mut batch = ShootdownBatch::new(&mut room);
            for n in 2..STEPS {
                std::thread::yield_now();
                let new = map(n);
                batch.add(y, old, Order::ZERO).unwrap();
                batch.begin(&epochs);
                while !done.load(SeqCst) {
                    match batch.free(y, &epochs) {
                        Ok(1) => {
                            uses[old.0 as usize].store(0, SeqCst);
                            break;
                        }
                        Err(ShootdownError::Pending) => std::thread::yield_now(),
                        other => panic!("{other:?}"),
                    }
                }
                old = new;
            }
        });
    });
}
