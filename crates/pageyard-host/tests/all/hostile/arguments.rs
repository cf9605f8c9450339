//! Invalid and extreme arguments, and the yards that get them.

use std::ops::Range;

use pageyard::{Gfp, Order, PAGE_SIZE, Pfn};
use pageyard_host::{Backing, Builder, HostYard, Region, ThreadCache};

pub(super) const SIZE: u64 = 16 << 20;

/// Zero, powers of two and their neighbours where behaviour changes, and the extremes of all types.
pub(super) fn numbers() -> Vec<u64> {
    let near = |n: u64| [n.wrapping_sub(1), n, n.wrapping_add(1)];
    let powers = [0, 4, 8, 9, 10, 12, 15, 16, 22, 24, 31, 32, 40, 50, 52, 63].map(|n| 1u64 << n);
    let mut all: Vec<u64> = powers.into_iter().flat_map(near).collect();
    all.extend(near(0));
    all.extend([i64::MAX as u64, u64::from(u32::MAX) - 1, SIZE, SIZE / PAGE_SIZE]);
    all.sort_unstable();
    all.dedup();
    all
}

/// The same numbers, and the ends of a yard's frames.
pub(super) fn frames() -> Vec<Pfn> {
    let (first, pages) = (Region::FIRST.0, SIZE / PAGE_SIZE);
    let near = [first, first + 512, first + pages].into_iter().flat_map(|n| [n - 1, n, n + 1]);
    numbers().into_iter().chain(near).map(Pfn).collect()
}

pub(super) fn ranges() -> Vec<Range<Pfn>> {
    let frames = frames();
    frames.iter().flat_map(|&a| frames.iter().map(move |&b| a..b)).collect()
}

pub(super) fn orders() -> impl Iterator<Item = Order> {
    (0..=u8::MAX).filter_map(Order::new)
}

/// Each flag alone, all flags but one, and all of them.
pub(super) fn gfps() -> Vec<Gfp> {
    let single = (0..32).map(|n| 1u32 << n);
    let plain = Gfp::KERNEL.bits() | Gfp::ZERO.bits();
    let bits = single.clone().flat_map(|bit| [bit, bit | plain, !bit]).chain([0, u32::MAX]);
    bits.map(Gfp::from_bits_retain).collect()
}

/// A few flag sets, for functions with other arguments.
pub(super) fn some_gfps() -> [Gfp; 5] {
    [0, u32::MAX, Gfp::KERNEL.bits(), Gfp::ATOMIC.bits(), 1 << 31 | 0xdc0]
        .map(Gfp::from_bits_retain)
}

pub(super) fn yard() -> HostYard {
    Builder::new(SIZE).backing(Backing::Memfd).tick(None).build().unwrap()
}

/// Yards with and without a thread cache, which has its own paths for known-zero pages.
pub(super) fn yards() -> [HostYard; 3] {
    let caches = [
        ThreadCache::Auto,
        ThreadCache::Off,
        ThreadCache::Blocks { pages: 126, larger: 126, huge: 1 },
    ];
    caches.map(|cache| {
        Builder::new(SIZE).backing(Backing::Memfd).tick(None).thread_cache(cache).build().unwrap()
    })
}

/// Asserts that everything was freed and that the yard is valid.
pub(super) fn whole(yard: &HostYard) {
    yard.drain();
    yard.validate().unwrap();
    for zone in yard.zones().filter_map(|z| yard.zone_info(z)) {
        assert_eq!((zone.free_exact, zone.cached), (zone.managed, 0), "pages were lost");
    }
}
