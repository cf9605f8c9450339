//! What a yard says is usable is what ordinary requests get.

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{Gfp, Order, PAGE_SIZE};
use pageyard_host::{Builder, HostYard, HugePages, Limits, SystemFiles, ThreadCache};

const MIB: u64 = 1 << 20;
/// Pages by which the counters that all CPUs share may be behind, with one refill of a CPU's lists,
/// which may begin above the MIN mark and end below it.
const BEHIND: u64 = 64;
const REFILL: u64 = 512;

fn builder(size: u64) -> Builder {
    Builder::new(size).huge_pages(HugePages::Never).system(SystemFiles::none()).tick(None)
}

fn holds<P: StaticPolicy + Send + Sync + 'static>(yard: &HostYard<P>, most: u64) {
    holds_beside(yard, 0, most);
}

/// `held` pages are in use already.
fn holds_beside<P: StaticPolicy + Send + Sync + 'static>(yard: &HostYard<P>, held: u64, most: u64) {
    let usable = yard.usable();
    let parts = [usable.absent, usable.out_of_use, usable.above_limit, usable.min];
    let sum = parts.iter().sum::<u64>() + usable.highatomic + usable.bytes;
    assert_eq!((sum, usable.bytes), (usable.size, yard.usable_bytes()), "{usable:?}");
    let one = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::NOWARN).ok();
    let all: Vec<_> = std::iter::from_fn(one).collect();
    // Lists of other CPUs, on which the test may have run before.
    let got = held + all.len() as u64 + yard.usable().cached / PAGE_SIZE;
    assert!(got.abs_diff(usable.bytes / PAGE_SIZE) <= most, "{got} pages: {usable:?}");
}

fn usable_is_what_requests_get<P: StaticPolicy + Send + Sync + 'static>(most: u64) {
    for cache in [ThreadCache::Auto, ThreadCache::Off] {
        let of = |builder: Builder| builder.thread_cache(cache).build_with::<P>().unwrap();
        holds(&of(builder(32 * MIB)), most);
        let limited = of(builder(256 * MIB).hard_limit(96 * MIB));
        holds(&limited, most);
        limited.drain();
        limited.set_limits(Limits::of_bytes(Some(128 * MIB), None)).unwrap();
        holds(&limited, most);
        limited.drain();
        limited.set_knob("min_free_kbytes", "2048").unwrap();
        holds(&limited, most);
    }
}

#[test]
fn usable_bytes_are_what_ordinary_requests_get() {
    usable_is_what_requests_get::<Packed>(BEHIND);
}

#[test]
fn usable_bytes_are_what_ordinary_requests_get_on_the_exact_engine() {
    usable_is_what_requests_get::<Linux612>(BEHIND + REFILL);
}

/// 96 MiB of 256 MiB: the watermarks of the whole size are within the limit.
#[test]
fn the_reserves_within_a_hard_limit_are_explained() {
    let yard = builder(256 * MIB).hard_limit(96 * MIB).build().unwrap();
    let usable = yard.usable();
    assert_eq!((usable.above_limit, usable.bytes), (160 * MIB, 96 * MIB - usable.min));
    assert!(usable.min > 10 * MIB, "{usable:?}");
    let text = usable.to_string();
    assert!(text.contains("of 262144 KiB usable") && text.contains("163840 KiB above"), "{text}");
    // With a lower mark nearly all of it.
    yard.set_knob("min_free_kbytes", "1024").unwrap();
    assert!(yard.usable_bytes() > 94 * MIB, "{}", yard.usable());
    yard.set_limits(Limits::default()).unwrap();
    let frame = pageyard_host::Region::FIRST;
    yard.poison_frame(frame).unwrap();
    assert_eq!(yard.usable().out_of_use, PAGE_SIZE);
    yard.unpoison_frame(frame).unwrap();
}

/// A request that takes a pageblock of another type boosts the watermarks (§3.4) where the knob
/// lets it. Only background reclaim ends a boost, and here nothing runs it.
fn no_boost_refuses_requests<P: StaticPolicy + Send + Sync + 'static>(most: u64) {
    let yard = builder(128 * MIB).build_with::<P>().unwrap();
    let one = || yard.alloc(Order::ZERO, Gfp::KERNEL | Gfp::MOVABLE | Gfp::NOWARN).ok();
    let movable: Vec<_> = std::iter::from_fn(one).collect();
    // Every other page is returned: no pageblock is free as a whole.
    let kept: Vec<_> = movable.into_iter().step_by(2).collect();
    holds_beside(&yard, kept.len() as u64, most);
}

#[test]
fn requests_are_not_refused_by_a_boost_of_the_watermarks() {
    no_boost_refuses_requests::<Packed>(BEHIND);
    no_boost_refuses_requests::<Linux612>(BEHIND + REFILL);
}

/// A program that leaks, or has too little memory, sees it in its statistics.
#[test]
fn statistics_say_what_callers_hold_and_what_failed() {
    let yard = builder(32 * MIB).build().unwrap();
    let order = |n| Order::new(n).unwrap();
    let blocks = [0, 0, 2, 9].map(|n| yard.alloc(order(n), Gfp::KERNEL).unwrap());
    drop(yard.alloc(order(3), Gfp::KERNEL).unwrap());
    let seen = || (yard.status().owned, yard.stats().owned, yard.stats().failed);
    assert_eq!(seen(), (518, 518, 0));
    assert!(yard.stats().used > 518, "the thread's cache has more");
    assert_eq!(yard.stats().usable * PAGE_SIZE, yard.usable_bytes());
    assert!(yard.alloc(order(10), Gfp::KERNEL | Gfp::NOWARN).is_ok());
    let held: Vec<_> = std::iter::from_fn(|| yard.alloc(order(10), Gfp::KERNEL).ok()).collect();
    assert_eq!(seen(), (518 + 1024 * held.len() as u64, 518 + 1024 * held.len() as u64, 1));
    drop((blocks, held));
    assert_eq!(seen().0, 0);
    let status = yard.status();
    assert!(status.used > 0 && status.owned == 0, "{status:?}");
}
