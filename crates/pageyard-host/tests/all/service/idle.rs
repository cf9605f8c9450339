//! Idle memory is returned to the system, and is usable again afterwards.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use pageyard::policy::{Linux612, Packed, Rules, StaticPolicy};
use pageyard::{Gfp, Order, Pfn};
use pageyard_host::{Backing, Block, Builder, GiveBack, HostYard};

use super::{MIB, QUIET, builder, fill, forever, order, until};

#[test]
fn idle_memory_is_returned_and_refaulted() {
    for backing in [Backing::Anonymous, Backing::Memfd] {
        let yard = builder(256 * MIB).backing(backing).build().unwrap();
        let blocks = fill(&yard, 50_000);
        assert!(yard.resident().unwrap() >= 50_000);
        drop(blocks);
        assert!(until(|| yard.resident().unwrap() <= 2500), "95%: {:?}", yard.status());
        assert!(until(|| yard.status().given_back >= 47_500), "{:?}", yard.status());
        let status = yard.status();
        assert!(status.worker && status.keeps.is_none());
        assert!(until(|| yard.status().target < 1000), "{:?}", yard.status());
        // Memory that comes back is zero, and completely usable.
        let blocks = fill(&yard, 50_000);
        assert!(blocks.iter().all(|b| b[0] == 1));
        assert!(yard.status().fetched >= 40_000);
    }
}

/// A buffer pool that keeps one frame in a hundred.
#[test]
fn free_memory_around_frames_in_use_is_returned_if_asked_for() {
    for (rules, prefault, lazily) in [
        (&Packed::RULES, false, false),
        (&Packed::RULES, true, false),
        (&Packed::RULES, false, true),
        (&Linux612::RULES, false, false),
    ] {
        let how = GiveBack { least: Order::ZERO, lazily, ..GiveBack::default() };
        let builder = builder(256 * MIB).prefault(prefault).give_back(Some(how));
        let yard = builder.build_with_policy::<&'static Rules>(rules).unwrap();
        let started = yard.status().resident;
        assert_eq!(started, if prefault { 65_536 } else { 0 });
        let take = |gfp| yard.alloc(Order::ZERO, QUIET | gfp).unwrap();
        let mut blocks: Vec<_> = (0..60_000).map(|_| take(Gfp::from_bits_retain(0))).collect();
        blocks.iter_mut().for_each(|block| block[0] = 1);
        let kept: Vec<_> = blocks.into_iter().step_by(100).collect();
        if !lazily {
            assert!(until(|| yard.resident().unwrap() <= 3000), "{:?}", yard.status());
        }
        assert!(until(|| yard.status().resident < 4000), "{:?}", yard.status());
        // Counted when a step ends.
        assert!(until(|| yard.status().given_back >= 56_000), "{:?}", yard.status());
        let status = yard.status();
        assert_eq!(status.in_pieces, status.resident - status.used, "{status:?}");
        assert!(status.given_back <= 60_000 || prefault, "{status:?}");
        assert!(kept.iter().all(|b| b[0] == 1), "what is in use stays");
        let more: Vec<_> = (0..50_000).map(|_| take(Gfp::ZERO)).collect();
        assert!(more.iter().all(|b| b.iter().all(|&byte| byte == 0)));
        assert!(yard.status().resident >= 50_000);
    }
}

/// Memory that goes offline is the system's again, and the rest stays down to the floor.
#[test]
fn offline_memory_is_not_resident_where_pieces_are_returned() {
    let how = GiveBack { least: Order::ZERO, floor: 96 * MIB, ..GiveBack::default() };
    let builder = builder(512 * MIB).prefault(true).give_back(Some(how));
    let yard = builder.build().unwrap();
    let first = yard.zone_info(yard.zones().next().unwrap()).unwrap().start.0;
    let sections = Pfn(first + 65_536)..Pfn(first + 131_072);
    yard.offline(sections).unwrap();
    assert!(until(|| yard.resident().unwrap() < 30_000), "{:?}", yard.status());
    std::thread::sleep(Duration::from_secs(1));
    let (status, resident) = (yard.status(), yard.resident().unwrap());
    assert_eq!(status.resident, resident, "{status:?}");
    assert!(resident >= (96 * MIB) >> 12, "{resident}");
}

/// Most of a large yard was never in use: that is not what the rate is for.
#[test]
fn pieces_are_returned_from_a_yard_of_which_little_was_in_use() {
    let how = GiveBack { least: Order::ZERO, rate: Some(64 * MIB), ..GiveBack::default() };
    let yard = builder(16 << 30).give_back(Some(how)).build().unwrap();
    let blocks = fill(&yard, 16_384);
    let kept: Vec<_> = blocks.into_iter().step_by(100).collect();
    assert_eq!(yard.status().resident, 16_384);
    // A block of 4 MiB above the target is left alone.
    assert!(until(|| yard.status().resident < 1800), "{:?}", yard.status());
    assert!(until(|| yard.status().given_back >= 14_000), "{:?}", yard.status());
    let status = yard.status();
    assert!(status.given_back < 16_384, "{status:?}");
    assert_eq!(status.in_pieces, status.resident - status.used, "{status:?}");
    assert!(kept.iter().all(|b| b[0] == 1));
}

/// The status says what it is that stays.
#[test]
fn free_memory_around_frames_in_use_stays_by_default() {
    let yard = builder(256 * MIB).build().unwrap();
    let blocks = fill(&yard, 60_000);
    let kept: Vec<_> = blocks.into_iter().step_by(100).collect();
    assert!(until(|| yard.status().resident < 61_000), "the rest of the yard is returned");
    let status = yard.status();
    assert!(status.in_pieces > 50_000 && yard.resident().unwrap() > 50_000, "{status:?}");
    assert_eq!(yard.stats().in_pieces, status.in_pieces);
    drop(kept);
    assert!(until(|| yard.status().in_pieces < 1000), "{:?}", yard.status());
}

#[test]
fn memory_in_use_is_never_returned() {
    for least in [Order::HUGE, Order::ZERO] {
        in_use_is_never_returned(least);
    }
}

fn in_use_is_never_returned(least: Order) {
    let how = GiveBack { after: Duration::from_millis(1), least, ..GiveBack::default() };
    let yard: HostYard = builder(128 * MIB)
        .give_back(Some(how))
        .tick(Some(Duration::from_millis(5)))
        .build()
        .unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for thread in 1..=2u64 {
            let (yard, stop) = (&yard, &stop);
            s.spawn(move || {
                let mut held: Vec<(Block<'_>, u64)> = Vec::new();
                let mut draw = thread;
                while !stop.load(SeqCst) {
                    draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let n = (draw >> 40) as u8 % 11;
                    if let Ok(mut block) = yard.alloc(order(n), QUIET) {
                        let at = (draw >> 20) as usize % (block.len() / 8) * 8;
                        block[at..at + 8].copy_from_slice(&draw.to_le_bytes());
                        held.push((block, draw));
                    }
                    while held.len() > (draw >> 50) as usize % 12 {
                        let (block, draw) = held.swap_remove(0);
                        let at = (draw >> 20) as usize % (block.len() / 8) * 8;
                        assert_eq!(block[at..at + 8], draw.to_le_bytes());
                    }
                }
            });
        }
        let worked = until(|| {
            yard.wake_worker();
            let status = yard.status();
            status.given_back > 200_000 && (status.fetched > 1000 || least < Order::HUGE)
        });
        stop.store(true, SeqCst);
        assert!(worked, "{:?}", yard.status());
    });
}

/// Only blocks of 4 MiB are free, and one and a half of them are above the floor.
#[test]
fn no_block_is_returned_that_reaches_below_the_floor() {
    let (size, floor) = (64 * MIB, 58 * MIB);
    let how = GiveBack { floor, ..GiveBack::default() };
    let yard = builder(size).give_back(Some(how)).build().unwrap();
    assert!(until(|| yard.status().given_back > 0), "{:?}", yard.status());
    let status = yard.status();
    assert_eq!((status.target, status.resident), (floor >> 12, (size - 4 * MIB) >> 12));
}

#[test]
fn the_floor_is_kept_and_a_disabled_give_back_is_reported() {
    let how = GiveBack { floor: 32 * MIB, ..GiveBack::default() };
    let yard = builder(128 * MIB).give_back(Some(how)).prefault(true).build().unwrap();
    assert!(until(|| yard.resident().unwrap() <= 8192 + 1024));
    for _ in 0..5 {
        yard.wake_worker();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(yard.resident().unwrap() >= 8192);
    let keeps = |b: Builder| {
        let yard = b.build().unwrap();
        let says = || yard.status().keeps.unwrap();
        assert!(until(|| says() != "no worker has looked yet"));
        says()
    };
    assert_eq!(keeps(builder(16 * MIB).give_back(None)), "disabled");
    assert_eq!(keeps(builder(16 * MIB).prefault(true)), "all memory is prefaulted");
}

/// Pages that the system may take at any time (`LazyFree`) in the mapping of this address.
fn lazy_pages(address: *const u8) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let range = |line: &str| {
        let (from, to) = line.split_once(' ')?.0.split_once('-')?;
        let hex = |n| usize::from_str_radix(n, 16).ok();
        Some(hex(from)?..hex(to)?)
    };
    let holds = |line: &&str| range(line).is_some_and(|r| r.contains(&address.addr()));
    let lines = text.lines().skip_while(|line| !holds(line));
    let mut sizes = lines.filter_map(|line| line.strip_prefix("LazyFree:")?.strip_suffix(" kB"));
    sizes.next().unwrap().trim().parse::<u64>().unwrap() / 4
}

#[test]
fn lazily_freed_pages_are_reclaimed_before_allocation() {
    type Held = Box<dyn std::any::Any>;
    fn blocks(yard: &'static HostYard, n: u8, count: usize) -> Held {
        Box::new((0..count).map(|_| yard.alloc(order(n), QUIET).unwrap()).collect::<Vec<_>>())
    }
    fn bulk(yard: &'static HostYard) -> Held {
        let mut blocks = Vec::new();
        assert_eq!(yard.alloc_bulk(12_000, QUIET, &mut blocks), Ok(12_000));
        Box::new(blocks)
    }
    fn range(yard: &'static HostYard) -> Held {
        Box::new(yard.alloc_range(10_000, 1, QUIET).unwrap())
    }
    let how = GiveBack { lazily: true, after: Duration::ZERO, ..GiveBack::default() };
    let yard = forever(builder(64 * MIB).give_back(Some(how)).tick(None));
    let mut worker = yard.worker().unwrap();
    let mut give_back = || {
        let blocks = fill(yard, 12_000);
        let at = blocks[0].as_ptr().as_ptr();
        drop(blocks);
        yard.drain();
        let mut given = || {
            worker.step();
            lazy_pages(at) > 8000
        };
        assert!(until(&mut given), "{:?}", yard.status());
        at
    };
    // Allocate in every way, without writing to any page.
    let ways: [(u64, &dyn Fn() -> Held); 4] = [
        (12_000, &|| blocks(yard, 0, 12_000)),
        (12 << 10, &|| blocks(yard, 10, 12)),
        (12_000, &|| bulk(yard)),
        (10_000, &|| range(yard)),
    ];
    for (n, (pages, take)) in ways.into_iter().enumerate() {
        let at = give_back();
        let held = take();
        let (left, free) = (lazy_pages(at), 16_384 - pages);
        assert!(
            left <= free,
            "way {n}: the system may take {left} pages, but only {free} are free"
        );
        drop(held);
    }
    // Memory requested as zeroed is zero.
    give_back();
    let zeros = QUIET | Gfp::ZERO;
    let blocks: Vec<_> = (0..10_000).map(|_| yard.alloc(order(0), zeros).unwrap()).collect();
    assert!(blocks.iter().all(|b| b.iter().all(|&byte| byte == 0)));
}
