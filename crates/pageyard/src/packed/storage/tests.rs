//! Frame states, sizes, and storage that is used again.

extern crate std;
use std::format;
use std::string::String;

use super::*;
use crate::base::units::{CpuId, MigrateType::*};
use crate::packed::Region;
use crate::packed::owned_storage::Parts;

type Lock = spin::Mutex<()>;

#[test]
fn each_frame_state_looks_like_that_of_the_exact_engine() {
    let frame = FrameState::new();
    let next = |change: &dyn Fn(&FrameState)| {
        change(&frame);
        frame.state()
    };
    assert_eq!(frame.state(), State::RESERVED);
    assert_eq!(next(&FrameState::leave_out), State::RESERVED);
    assert_eq!(next(&FrameState::clear), State::RESERVED);
    assert_eq!(next(&FrameState::reserve), State::RESERVED_MEMORY);
    assert_eq!(next(&|f| assert!(f.begin_add(true))), State::TAIL);
    assert_eq!(next(&FrameState::set_faulty), State::new(Kind::Poisoned, 0, Unmovable));
    assert_eq!(next(&|f| assert!(f.end_faulty())), State::TAIL);
    for order in 0..=MAX_ORDER {
        for t in [Unmovable, Movable, Reclaimable] {
            let used = State::new(Kind::Allocated, order, t).with_movable(t == Movable);
            assert_eq!(next(&|f| f.set_allocated(order, t as usize)), used);
            let leaving = State::new(Kind::BeingFreed, order, t).with_movable(t == Movable);
            assert_eq!(next(&|f| assert!(f.begin_leaving::<false>(order))), leaving);
            assert_eq!(next(&FrameState::stay), used);
            assert!(frame.begin_leaving::<true>(order) && frame.state() == leaving);
            assert_eq!(next(&|f| assert_eq!(f.finish_leaving(), t as usize)), State::TAIL);
        }
    }
}

#[test]
fn only_a_block_that_is_leaving_stays() {
    let frame = FrameState::new();
    let unchanged = || {
        let before = frame.0.load(Relaxed);
        frame.stay();
        assert_eq!(frame.0.load(Relaxed), before);
    };
    unchanged();
    for set in [FrameState::reserve, FrameState::leave_out, FrameState::set_faulty] {
        frame.clear();
        set(&frame);
        unchanged();
    }
    assert!(frame.end_faulty());
    unchanged();
    for order in 0..=MAX_ORDER {
        frame.set_allocated(order, Movable as usize);
        unchanged();
    }
}

#[test]
fn a_block_of_the_last_reserves_stays_one() {
    let frame = FrameState::new();
    frame.set_allocated(3, Movable as usize);
    frame.set_pfmemalloc(2);
    assert!(!frame.is_pfmemalloc(), "another order");
    for _ in 0..2 {
        frame.set_pfmemalloc(3);
        assert!(frame.is_pfmemalloc());
    }
    assert_eq!(frame.begin_free::<false>(3), Some(Movable as usize));
    assert!(!frame.is_pfmemalloc());
}

#[test]
fn needs_follow_from_frames_and_cpus() {
    let all = |needs: Needs| {
        let Needs { states, blocks, index, magazines, cpus, domains, depot_pages } = needs;
        ([states, blocks, index], [magazines, cpus, domains], depot_pages)
    };
    let needs = |first, frames, cpus, per_domain| {
        all(Needs::of(Pfn(first), frames, cpus, per_domain).unwrap())
    };
    // A set of n pageblocks has n / 64 words and a summary of them; there are 50 sets. A CPU has 31
    // magazines, a domain 68, the node one for 32 pages that it may hold.
    assert_eq!(needs(0, 1024, 1, 1), ([1024, 2, 50 * 2], [31 + 68, 1, 2], 13));
    assert_eq!(
        needs(1000, 1 << 20, 10, 4),
        ([2050 * 512, 2050, 50 * 34], [10 * 31 + 3 * 68 + 431, 10, 4], 13_797)
    );
    // The largest region: a stack counts 4,095 magazines.
    assert_eq!(
        needs(0, 1 << 31, 2, 1),
        ([1 << 31, 1 << 22, 50 * 66_560], [2 * 31 + 2 * 68 + 4094, 2, 3], 4094 * 32)
    );
}

#[test]
fn bytes_are_those_of_all_parts() {
    let needs = Needs::of(Pfn(0), 1 << 17, 3, 1).unwrap();
    let parts = Parts::<Lock>::new(&needs).unwrap();
    let s = parts.storage();
    let frames = size_of_val(s.states) + size_of_val(s.words) + size_of_val(s.faulty);
    let blocks = size_of_val(s.labels) + size_of_val(s.routes) + size_of_val(s.index);
    let magazines = size_of_val(s.magazines) + size_of_val(s.links);
    let cpus = size_of_val(s.cpus) + size_of_val(s.domains);
    assert_eq!(needs.bytes::<Lock>(), frames + blocks + magazines + cpus);
}

#[test]
fn a_part_that_is_too_short_is_named() {
    let needs = Needs::of(Pfn(0), 4096, 2, 1).unwrap();
    let parts = Parts::<Lock>::new(&needs).unwrap();
    let storage = parts.storage();
    assert_eq!(storage.shortage(&needs), None);
    assert_eq!(storage.shortage(&Needs { cpus: 3, ..needs }), Some(("CPU parts", 3, 2)));
    assert_eq!(storage.shortage(&Needs { states: 100, cpus: 1, ..needs }), None, "too long");
}

/// The parts that a region expects to be new, as text.
fn texts(s: &Storage<'_, Lock>) -> [String; 8] {
    [
        format!("{:?}", s.states),
        format!("{:?}", s.words),
        format!("{:?}", s.faulty),
        format!("{:?}", s.labels),
        format!("{:?}", s.routes),
        format!("{:?}", s.index),
        format!("{:?}", s.cpus),
        format!("{:?}", s.domains),
    ]
}

#[test]
fn cleared_storage_is_as_new() {
    let frames = 16 * PAGEBLOCK_PAGES;
    let needs = Needs::of(Pfn(0), frames, 2, 1).unwrap();
    let parts = Parts::<Lock>::new(&needs).unwrap();
    let new = texts(&parts.storage());
    let region = Region::new(Pfn(0), frames, 1, parts.storage()).unwrap();
    region.add(region.frames()).unwrap();
    let pages = || region.alloc(CpuId(0), Order::ZERO, MigrateType::Movable).unwrap();
    let pages: [Pfn; 2000] = core::array::from_fn(|_| pages());
    for page in pages {
        region.free(CpuId(0), page, Order::ZERO).unwrap();
    }
    assert!(region.depots.pages() > 0 && region.depots.add_part(0, 3, 5) == 0);
    assert!(region.tick_cpu(0, &mut 2) && region.mark(5000));
    parts.storage().cpus[1].shared.request_drain();
    let used = texts(&parts.storage());
    (0..8).for_each(|part| assert_ne!(used[part], new[part], "part {part} is as new"));

    let held = parts.storage().cpus[1].own.lock();
    let before = texts(&parts.storage());
    assert!(!parts.storage().clear());
    assert_eq!(texts(&parts.storage()), before);
    drop(held);
    assert!(parts.storage().clear());
    assert_eq!(texts(&parts.storage()), new);
    Region::new(Pfn(0), frames, 1, parts.storage()).unwrap();
}
