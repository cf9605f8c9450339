use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::sync::Mutex;

use pageyard::{Gfp, Order, PAGE_SIZE, Pfn};

use super::*;
use crate::block::Block;
use crate::signals::Watching;
use crate::yard::HostYard;
use crate::{Builder, HugePages, ThreadCache, read_stats};

#[path = "../../tests/all/service/group.rs"]
mod group;
use group::Group;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1000 * MS;
/// Does not wake the worker.
const QUIETLY: Gfp = Gfp::KERNEL.union(Gfp::NOWARN).difference(Gfp::RECLAIM);

/// A yard without a worker, all of whose memory is in zones and on the lists of one CPU.
fn bare(size: u64) -> Builder {
    let cpu = cpu::allowed().unwrap()[0];
    Builder::new(size)
        .cpus([cpu])
        .huge_pages(HugePages::Never)
        .system(SystemFiles::none())
        .thread_cache(ThreadCache::Off)
        .give_back(None)
        .tick(None)
}

fn take(yard: &HostYard, order: u8, n: usize) -> Vec<Block<'_>> {
    let order = Order::new(order).unwrap();
    (0..n).map(|_| yard.alloc(order, QUIETLY).unwrap()).collect()
}

/// Takes all blocks of an order and frees every other one, so that no larger one is free.
fn every_other(yard: &HostYard, order: u8) -> Vec<Block<'_>> {
    let order = Order::new(order).unwrap();
    // With the reserves.
    let all = || yard.alloc(order, QUIETLY | Gfp::MEMALLOC).ok();
    let mut blocks: Vec<_> = std::iter::from_fn(all).collect();
    let mut n = 0;
    blocks.retain(|_| {
        n += 1;
        n % 2 == 0
    });
    yard.drain();
    blocks
}

/// A worker for the first node only.
fn one_node(yard: &HostYard) -> Worker<'_> {
    let mut worker = yard.worker().unwrap();
    worker.nodes.truncate(1);
    worker
}

fn cached(yard: &HostYard) -> u64 {
    yard.zones().map(|z| yard.zone_info(z).unwrap().cached).sum()
}

/// With proactive compaction off, there is nothing to do until a request asks for compaction.
#[test]
fn compaction_sleeps_until_woken() {
    let yard = Builder::new(16 << 20).tick(None).build().unwrap();
    let _movable = yard.alloc_movable(Order::ZERO, Gfp::KERNEL).unwrap();
    yard.set_knob("compaction_proactiveness", "0").unwrap();
    let mut worker = yard.worker().unwrap();
    let _ = worker.step();
    assert!(worker.nodes.iter().all(|n| n.compact == Some(UNTIL_WOKEN)), "{:?}", worker.nodes);
    // Turned on again, it is woken.
    yard.set_knob("compaction_proactiveness", "20").unwrap();
    let _ = worker.step();
    assert!(worker.nodes.iter().all(|n| n.compact.is_some_and(|at| at < UNTIL_WOKEN)));
}

#[test]
fn compaction_is_due_at_its_time_while_blocks_are_movable() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = one_node(&yard);
    worker.compact(1000);
    assert_eq!(worker.nodes[0].compact, None);
    let movable = yard.alloc_movable(Order::ZERO, Gfp::KERNEL).unwrap();
    worker.compact(1000);
    // The node's fragmentation is checked every half a second.
    let at = worker.nodes[0].compact.unwrap();
    assert!((1001..=1000 + SECOND / 2).contains(&at), "{at}");
    worker.compact(at - 1);
    assert_eq!(worker.nodes[0].compact, Some(at), "not yet");
    worker.compact(at);
    assert!(worker.nodes[0].compact.unwrap() > at);
    drop(movable);
    worker.compact(at + 1);
    assert_eq!(worker.nodes[0].compact, None);
}

#[test]
fn reclaim_naps_until_its_time() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = one_node(&yard);
    worker.reclaim(false, 1000);
    assert_eq!(worker.nodes[0].nap, None, "it was not woken");
    let wakes = Gfp::NOWAIT | Gfp::NOWARN;
    drop(std::iter::from_fn(|| yard.alloc(Order::ZERO, wakes).ok()).collect::<Vec<_>>());
    yard.drain();
    // There is enough memory again, so it only naps, for a tenth of a second.
    worker.reclaim(false, 1000);
    let until = 1000 + SECOND / 10;
    assert_eq!(worker.nodes[0].nap, Some(until));
    worker.reclaim(false, until - 1);
    assert_eq!(worker.nodes[0].nap, Some(until));
    worker.reclaim(false, until);
    assert_eq!(worker.nodes[0].nap, None, "it sleeps until it is woken");
}

/// A shrinker has pages again, but no request may wait for it.
#[test]
fn reclaim_that_gave_up_is_tried_again_once_a_second() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = one_node(&yard);
    let node = worker.nodes[0].node;
    let wakes = Gfp::NOWAIT | Gfp::NOWARN;
    let _blocks: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, wakes).ok()).collect();
    let gave_up = || yard.raw().core().is_hopeless(node);
    let mut now = SECOND;
    while !gave_up() {
        worker.reclaim(false, now);
        now += SECOND;
    }
    let asked = Asked::default();
    yard.register_shrinker(asked.clone()).keep();
    let mut asks = |low, at| {
        assert!(yard.alloc(Order::ZERO, wakes).is_err());
        worker.reclaim(low, at);
        !asked.take().0.is_empty()
    };
    assert!(!asks(false, now), "memory is not low");
    assert!(asks(true, now) && gave_up());
    assert!(!asks(true, now + SECOND - 1), "within a second");
    assert!(asks(true, now + SECOND));
}

#[test]
fn a_shrinker_that_claims_too_much_does_not_keep_the_worker_busy() {
    let yard: &HostYard = Box::leak(Box::new(bare(64 * MIB).build().unwrap()));
    let mut worker = one_node(yard);
    let wakes = Gfp::NOWAIT | Gfp::NOWARN;
    let fill = || std::iter::from_fn(|| yard.alloc(Order::ZERO, wakes).ok()).collect::<Vec<_>>();
    let blocks = fill();
    let lie = yard.register_shrinker(|job: &ReclaimJob| job.pages);
    worker.reclaim(false, SECOND);
    assert_eq!(worker.nodes[0].nap, Some(SECOND + BUSY));
    drop(lie);
    // One whose pages become free is called again at once, as long as they do not suffice.
    let kept = Mutex::new(blocks);
    let honest = move |_: &ReclaimJob| u64::from(kept.lock().unwrap().pop().is_some());
    yard.register_shrinker(honest).keep();
    worker.reclaim(false, 2 * SECOND);
    assert_eq!(worker.nodes[0].nap, Some(2 * SECOND));
}

/// Takes a step of the worker while it is asked to move a block.
struct Steps(Mutex<Worker<'static>>);

// SAFETY: it moves nothing.
unsafe impl crate::relocate::Relocator for Steps {
    fn relocate(&self, _: &crate::relocate::Moving) -> pageyard::Relocation {
        self.0.lock().unwrap().step();
        pageyard::Relocation::Refused
    }
}

/// The free pages of a section that goes offline are not in use.
#[test]
fn memory_that_is_being_isolated_is_not_above_a_limit() {
    let yard: &HostYard =
        Box::leak(Box::new(bare(512 * MIB).soft_limit(64 * MIB).build().unwrap()));
    let block = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.raw().core().set_movable(block.pfn(), Order::ZERO, true).unwrap();
    yard.drain();
    let mut worker = yard.worker().unwrap();
    worker.step();
    let asked = Asked::default();
    yard.register_shrinker(asked.clone()).keep();
    yard.register_relocator(Steps(Mutex::new(worker))).keep();
    const SECTION: u64 = 1 << 15;
    let zone = yard.zone_info(yard.zones().next().unwrap()).unwrap();
    let first = zone.start.0;
    let start = Pfn(first + (block.pfn().0 - first) / SECTION * SECTION);
    assert!(yard.offline(start..Pfn(start.0 + SECTION)).is_err());
    assert_eq!(asked.take().0, [0; 0], "shrinkers were called");
}

#[test]
fn lists_of_a_cpu_are_drained_once_it_has_not_used_them_for_a_while() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = yard.worker().unwrap();
    let one = || yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    // Allocations alone count as use. They fill the list.
    let mut blocks = vec![one()];
    while cached(&yard) == 0 {
        blocks.push(one());
    }
    let start = SECOND;
    worker.drain_unused(start);
    assert!(cached(&yard) > 0);
    drop(blocks);
    worker.drain_unused(start + 1);
    // As many blocks are freed as are allocated.
    drop(one());
    worker.drain_unused(start + UNUSED + 1);
    assert!(cached(&yard) > 0, "used in the meantime");
    worker.drain_unused(start + 2 * UNUSED);
    assert!(cached(&yard) > 0, "not long enough");
    worker.drain_unused(start + 2 * UNUSED + 1);
    assert_eq!(cached(&yard), 0);
}

#[test]
fn lists_of_an_unused_cpu_are_drained_while_another_is_used() {
    let allowed = cpu::allowed().unwrap();
    let &[used, unused, ..] = &allowed[..] else { return };
    let yard: HostYard = bare(64 * MIB).cpus([used, unused]).build().unwrap();
    let mut worker = yard.worker().unwrap();
    cpu::bind(&[unused]).unwrap();
    drop(take(&yard, 0, 100));
    let of_unused = cached(&yard);
    worker.drain_unused(SECOND);
    cpu::bind(&[used]).unwrap();
    drop(take(&yard, 0, 100));
    let all = cached(&yard);
    assert!(of_unused > 0 && all > of_unused);
    worker.drain_unused(SECOND + UNUSED);
    assert_eq!(cached(&yard), all - of_unused);
}

/// Blocks in the depots of the packed engine belong to no CPU. They keep pageblocks in pieces, which
/// cannot be returned to the system.
#[test]
fn depots_are_drained_once_no_cpu_has_used_its_lists_for_a_while() {
    let yard: HostYard = bare(64 * MIB).build().unwrap();
    let returnable = || Usage::of(yard.raw()).waiting;
    let all = returnable();
    let mut worker = yard.worker().unwrap();
    drop(take(&yard, 0, 8192));
    worker.drain_unused(SECOND);
    worker.drain_unused(SECOND + UNUSED - 1);
    assert!(returnable() < all, "not long enough");
    worker.drain_unused(SECOND + UNUSED);
    assert_eq!(returnable(), all);
}

/// The rest depends on activity in the yard, and varies by a quarter both ways.
#[test]
fn the_rest_after_a_step_depends_on_what_changes() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = yard.worker().unwrap();
    worker.tick_at = u64::MAX;
    let mut rest = || worker.step().as_nanos() as u64;
    let about = |whole: u64| whole - whole / 4..whole + whole / 4;
    let blocks = take(&yard, 0, 10);
    let busy = rest();
    assert!(about(BUSY).contains(&busy), "use changed: {busy}");
    // Memory waits to be returned to the system, should that be switched on.
    let quiet: Vec<u64> = (0..64).map(|_| rest()).collect();
    assert!(quiet.iter().all(|rest| about(QUIET).contains(rest)), "{quiet:?}");
    let (least, most) = (*quiet.iter().min().unwrap(), *quiet.iter().max().unwrap());
    assert!(least < QUIET && most > QUIET && most - least > QUIET / 8, "{quiet:?}");
    // Above the soft limit, the worker is busy even if nothing changes.
    yard.set_limits(Limits { hard: None, soft: Some(5) }).unwrap();
    let busy = rest();
    assert!(about(BUSY).contains(&busy), "{busy}");
    yard.set_limits(Limits::default()).unwrap();
    drop(blocks);
    // Nothing is free in blocks that could be returned.
    let _blocks = every_other(&yard, 0);
    rest();
    assert_eq!(yard.pressure(), Level::Calm);
    let asleep = rest();
    assert!(about(ASLEEP).contains(&asleep), "{asleep}");
    yard.set_limits(Limits { hard: None, soft: Some(4000) }).unwrap();
    let quiet = rest();
    assert!(about(QUIET).contains(&quiet), "use may exceed the soft limit: {quiet}");
}

#[test]
fn debug_texts_show_the_configuration_and_the_thread() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let text = format!("{:?}", yard.worker().unwrap());
    assert!(text.contains("plan: Plan { every: 1s, give_back: None"), "{text}");
    let yard: HostYard = bare(16 * MIB).tick(Some(Duration::from_secs(1))).build().unwrap();
    let text = format!("{yard:?}");
    assert!(text.contains("Keeper { thread: Some(JoinHandle"), "{text}");
}

#[test]
fn a_tick_is_run_when_it_is_due() {
    let yard: HostYard = bare(16 * MIB).build().unwrap();
    let mut worker = yard.worker().unwrap();
    worker.tick_at = u64::MAX;
    worker.step();
    assert_eq!(yard.status().ticks, 0);
    let now = clock::now();
    worker.tick_at = now;
    let rest = worker.step();
    assert_eq!(yard.status().ticks, 1);
    assert!(worker.tick_at >= now + SECOND && rest <= Duration::from_secs(1));
    worker.tick_at = u64::MAX;
    worker.step();
    assert_eq!(yard.status().ticks, 1);
}

#[test]
fn statistics_are_published_when_they_are_due() {
    let yard: HostYard = bare(16 * MIB).soft_limit(1234 * PAGE_SIZE).build().unwrap();
    let mut worker = yard.worker().unwrap();
    let published = || {
        let all = read_stats(std::process::id()).unwrap();
        all.into_iter().find(|s| s.soft_limit == Some(1234)).map(|s| s.used)
    };
    worker.step();
    assert_eq!(published(), Some(0), "the first step publishes");
    let _blocks = take(&yard, 0, 10);
    worker.publish_at = u64::MAX;
    worker.step();
    assert_eq!(published(), Some(0));
    let now = clock::now();
    worker.publish_at = now;
    worker.step();
    assert_eq!(published(), Some(10));
    assert!(worker.publish_at >= now + PUBLISH);
}

/// A control group that was removed: the file that the worker polls is one end of a pipe whose other
/// end is closed.
fn removed_group() -> (Group, io::PipeReader) {
    let (group, (reader, _)) = (Group::new(), io::pipe().unwrap());
    let polled = format!("/proc/self/fd/{}", reader.as_raw_fd());
    symlink(polled, group.path().join("memory.events")).unwrap();
    (group, reader)
}

#[test]
fn a_group_that_is_gone_is_reported_by_a_step_and_a_wait() {
    for by_wait in [true, false] {
        let (group, _reader) = removed_group();
        let yard: HostYard = bare(16 * MIB).system(group.files()).build().unwrap();
        let mut worker = yard.worker().unwrap();
        assert_eq!(yard.status().group, Watching::File(group.path().to_owned()));
        if by_wait {
            worker.wait(Duration::from_secs(3600));
        } else {
            worker.step();
        }
        let group = yard.status().group.to_string();
        assert!(group.ends_with("the control group is gone"), "{group}");
    }
}

/// The amounts that a worker's shrinkers were asked for, and how often `count` was called.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<(Vec<u64>, u64)>>);

impl Asked {
    fn take(&self) -> (Vec<u64>, u64) {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl crate::Shrinker for Asked {
    fn count(&self) -> u64 {
        self.0.lock().unwrap().1 += 1;
        u64::MAX
    }

    fn shrink(&self, job: &ReclaimJob) -> u64 {
        self.0.lock().unwrap().0.push(job.pages);
        0
    }
}

#[test]
fn the_level_follows_from_use_and_signals() {
    let dir = tempfile::tempdir().unwrap();
    let pressure = dir.path().join("pressure");
    std::fs::write(&pressure, "").unwrap();
    let files = SystemFiles { pressure: Some(pressure), ..SystemFiles::none() };
    let yard: HostYard = bare(16 * MIB).system(files).build().unwrap();
    let asked = Asked::default();
    yard.register_shrinker(asked.clone()).keep();
    let mut worker = yard.worker().unwrap();
    let soft = Limits { hard: None, soft: Some(100) };
    let usage = |used| Usage { used, ..Usage::default() };
    assert_eq!(worker.judge(&usage(100), soft, 0), Level::Calm);
    assert_eq!(asked.take(), (vec![], 0), "nothing is reclaimed");
    assert_eq!(worker.judge(&usage(101), soft, 0), Level::Moderate);
    assert_eq!(asked.take(), (vec![4], 1), "down to where the pressure ends: 97 pages");
    let hard = Limits { hard: Some(100), soft: None };
    assert_eq!(worker.judge(&usage(103), hard, 0), Level::Moderate);
    assert_eq!(asked.take().0, [6]);
    assert_eq!(worker.judge(&usage(1 << 20), Limits::default(), 0), Level::Calm);
    let low = Usage { low: true, below_high: true, ..usage(1) };
    assert_eq!(worker.judge(&low, soft, 0), Level::Moderate);
    assert_eq!(worker.judge(&Usage { none: true, ..low }, soft, 0), Level::Critical);
    assert!(asked.take().0.is_empty());
    assert!(!worker.system_is_short(0));
    // The lists are drained only when the system is short.
    drop(take(&yard, 0, 1));
    worker.judge(&low, soft, 0);
    assert!(cached(&yard) > 0);
    let fd = worker.signals.files()[0];
    assert!(worker.signals.handle_event(fd, libc::POLLPRI, SECOND));
    assert!(worker.system_is_short(SECOND));
    assert_eq!(worker.judge(&usage(6400), Limits::default(), SECOND), Level::Moderate);
    assert_eq!((asked.take().0, cached(&yard)), (vec![100], 0));
}

#[test]
fn spare_is_above_the_target_a_64th_of_use_and_two_pageblocks() {
    assert!(!has_spare(5000 + 100 + 1024, 5000, 6400));
    assert!(has_spare(5000 + 100 + 1024 + 1, 5000, 6400));
}

#[test]
fn system_pressure_requests_a_16th_or_a_64th() {
    assert_eq!(share_for_system(6400, Some(true), false), 400);
    assert_eq!(share_for_system(6400, Some(true), true), 400);
    assert_eq!(share_for_system(6400, Some(false), true), 100);
    assert_eq!(share_for_system(6400, None, true), 100);
    assert_eq!(share_for_system(6400, None, false), 0);
}

/// A yard whose worker returns idle memory.
fn giving(builder: Builder, how: GiveBack) -> HostYard {
    builder.give_back(Some(how)).build().unwrap()
}

/// Two seconds after the first step of this worker, which takes all memory as in use until
/// then.
fn later<P: Policy>(worker: &mut Worker<'_, P>) -> u64 {
    let now = clock::now() + 3600 * SECOND;
    assert!(!worker.give_back(false, now));
    now + 2 * SECOND
}

#[test]
fn idle_memory_is_returned_at_once_if_the_rate_allows_it() {
    let yard = giving(bare(64 * MIB), GiveBack::default());
    let mut worker = yard.worker().unwrap();
    let now = later(&mut worker);
    assert!(worker.give_back(false, now));
    let given = yard.status().given_back;
    assert!(given > 12 * 1024 && given == 16_384 - yard.status().resident, "{given}");
    assert_eq!(yard.status().target, 0);
}

/// It says whether there is more to return soon.
#[test]
fn memory_above_the_target_is_returned_at_the_rate() {
    let rate = Some(16 * MIB);
    let yard = giving(bare(64 * MIB), GiveBack { rate, ..GiveBack::default() });
    let mut worker = yard.worker().unwrap();
    let now = later(&mut worker);
    let mut give = |now| (worker.give_back(false, now), yard.status().given_back);
    // At most a quarter of a second's worth, in whole blocks.
    let (more, first) = give(now);
    assert!(more && (1024..=2048).contains(&first), "{first}");
    assert_eq!(give(now), (true, first), "more is left");
    let (more, second) = give(now + SECOND);
    assert!(more && (1024..=2048).contains(&(second - first)), "{second}");
}

#[test]
fn nothing_more_is_returned_at_the_target() {
    // Only the floor keeps memory: a block of the largest order is above it.
    let floor = 60 * MIB;
    let yard = giving(bare(64 * MIB), GiveBack { floor, ..GiveBack::default() });
    let mut worker = yard.worker().unwrap();
    let now = later(&mut worker);
    assert!(worker.give_back(false, now));
    assert_eq!((yard.status().given_back, yard.status().target), (1024, 15 * 1024));
    assert!(!worker.give_back(false, now + SECOND));
    assert_eq!(yard.status().given_back, 1024);
}

/// Memory is above the target, but all free blocks are small.
#[test]
fn small_blocks_are_not_waited_for() {
    let yard = giving(bare(64 * MIB), GiveBack::default());
    let blocks = every_other(&yard, 0);
    let mut worker = yard.worker().unwrap();
    let now = later(&mut worker);
    assert!(!worker.give_back(false, now));
    let (status, used) = (yard.status(), blocks.len() as u64);
    assert_eq!((status.given_back, status.used), (0, used));
    assert!(status.target >= used && status.resident > status.target + 2048, "{status:?}");
}

/// While use changes, only the largest blocks are returned, unless the system is short.
#[test]
fn smaller_blocks_are_returned_when_quiet_or_under_pressure() {
    for pressure in [false, true] {
        let yard = giving(bare(64 * MIB), GiveBack::default());
        let mut worker = yard.worker().unwrap();
        let _blocks = every_other(&yard, 9);
        // Use has changed by the first step, and is the same since.
        let quiet = later(&mut worker);
        let mut given = |now, pressure| {
            worker.give_back(pressure, now);
            yard.status().given_back
        };
        if pressure {
            let early = quiet - SECOND - SECOND / 2;
            assert_eq!(given(early, false), 0);
            assert!(given(early, true) > 1024);
        } else {
            assert_eq!(given(quiet - SECOND - 1, false), 0);
            assert!(given(quiet, false) > 1024);
        }
    }
}

/// A yard above its own soft limit keeps what was in use a moment ago; a system that is short
/// gets it.
#[test]
fn only_a_short_system_gets_memory_that_was_just_in_use() {
    let group = Group::new();
    let builder = bare(64 * MIB).system(group.files()).soft_limit(5 * PAGE_SIZE);
    // The test may be slow.
    let after = Duration::from_secs(3600);
    let yard = giving(builder, GiveBack { after, ..GiveBack::default() });
    let mut worker = yard.worker().unwrap();
    let _blocks = take(&yard, 0, 10);
    worker.step();
    assert_eq!((yard.pressure(), yard.status().given_back), (Level::Moderate, 0));
    group.uses(950_000);
    worker.step();
    assert_eq!(yard.pressure(), Level::Moderate);
    assert!(yard.status().given_back > 0);
}

/// Pages that the hard limit keeps were never in use.
#[test]
fn the_peak_does_not_count_what_the_hard_limit_keeps() {
    let yard = giving(bare(64 * MIB).hard_limit(32 * MIB), GiveBack::default());
    let mut worker = yard.worker().unwrap();
    let now = later(&mut worker);
    drop(take(&yard, 9, 8));
    yard.drain();
    worker.give_back(false, now);
    assert_eq!(yard.status().used, 0);
    assert_eq!(yard.status().target, 4096 + 4096 / 8);
}

/// A program that waits for a signal blocks it in its own threads.
#[test]
fn the_yards_own_thread_receives_no_signals_of_the_process() {
    // Threads of other tests, which have the name too, may end meanwhile.
    let of = |thread: &str| {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:"))?;
        u64::from_str_radix(blocked.trim(), 16).ok()
    };
    let before = of("thread-self");
    let yard: HostYard = Builder::new(16 * MIB).build().unwrap();
    assert!(before.is_some() && of("thread-self") == before);
    let named = || {
        let workers = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let task = path.file_name()?.to_string_lossy().into_owned();
            (name.trim() == "pageyard").then(|| of(&format!("self/task/{task}")))?
        });
        workers.collect::<Vec<u64>>()
    };
    // A thread names itself.
    let workers = loop {
        match named() {
            none if none.is_empty() => std::thread::yield_now(),
            some => break some,
        }
    };
    for blocked in workers {
        let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 != 0;
        assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGUSR1), "{blocked:x}");
        assert!(!is_blocked(libc::SIGSEGV) && !is_blocked(libc::SIGBUS), "{blocked:x}");
    }
    drop(yard);
}
