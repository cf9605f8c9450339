//! Refuses each system call that a yard makes, in turn. The builder reports what it could not get,
//! or does without it; no memory is lost, nothing is left behind, and nothing crashes.
//!
//! Each scenario runs with its first call refused, then its second, and so on until none is. It
//! runs in its own process, so that a crash is reported as such.
//!
//! `PAGEYARD_REFUSE_ALL=1` tries more errors, and every file.
//!
//! A program of its own: its global allocator makes no system calls, and it filters the system
//! calls of its process.

#![allow(unsafe_code)] // a filter for system calls, and a heap without any

mod heap;
mod refuse;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pageyard::policy::Linux612;
use pageyard::{Gfp, NodeId, Order, ZoneId};
use pageyard_host::{
    Backing, BuildError, Builder, GiveBack, HostYard, HugePages, HugeSize, Limits, RawYard, Region,
    SystemFiles, Topology, cpu,
};

use refuse::{CALLS, POLL, Refuser, name};

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

const MIB: u64 = 1 << 20;
const QUIET: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
/// More calls than any scenario makes.
const MOST: u64 = 5000;
/// The option that an error begins with.
const OPTIONS: [&str; 9] =
    ["size", "backing", "huge_pages", "nodes", "prefault", "tick", "publish", "worker", "topology"];
/// The output of a child that cannot refuse calls.
const NO_FILTERS: &str = "no filters here";
const VARIABLE: &str = "PAGEYARD_REFUSE";

type Yard = HostYard;
/// Runs a scenario, which calls `calm` to end the refusals.
type Scenario = fn(&dyn Fn()) -> Result<(), BuildError>;

const SCENARIOS: &[(&str, Scenario)] = &[
    ("plain", |calm| {
        let at_once = GiveBack { after: Duration::ZERO, ..GiveBack::default() };
        with(Builder::new(16 * MIB).huge_pages(HugePages::Never).give_back(Some(at_once)), calm)
    }),
    // The barrier is registered once per process, hence a process of its own.
    ("no barrier", |calm| {
        let yard: Yard = Builder::new(16 * MIB).tick(None).build()?;
        assert!(!yard.thread_cache_stats().on, "no thread cache without a barrier");
        use_it(&yard);
        calm();
        Ok(())
    }),
    // glibc aborts if a thread cannot register. This scenario tells glibc not to register threads.
    ("no rseq", |calm| {
        assert!(!cpu::is_registered());
        with(Builder::new(16 * MIB), calm)
    }),
    ("memfd", |calm| with(Builder::new(16 * MIB).backing(Backing::Memfd), calm)),
    ("prefault", |calm| {
        let b = Builder::new(8 * MIB).prefault(true).huge_pages(HugePages::Collapse);
        with(b.fallback(true), calm)
    }),
    ("hugetlb", |calm| {
        let b = Builder::new(8 * MIB).backing(Backing::HugeTlb(HugeSize::M2)).fallback(true);
        with(b, calm)
    }),
    ("worker thread", |calm| {
        let b = Builder::new(16 * MIB).system(SystemFiles::none()).tick(Some(Duration::MAX));
        let yard: Yard = b.huge_pages(HugePages::Never).build()?;
        calm();
        use_it(&yard);
        drop(yard);
        Ok(())
    }),
    ("topology", |calm| {
        let found = Topology::detect();
        calm();
        Ok(found.map(drop)?)
    }),
    ("frames", |calm| {
        let b = Builder::new(16 * MIB).deferred(true).huge_pages(HugePages::Advise);
        let yard: RawYard<Linux612> = b.build_raw(())?;
        let got: Vec<_> = (0..50).filter_map(|_| yard.alloc(Order::ZERO, QUIET).ok()).collect();
        got.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        let region: Region = yard.into_region();
        let _ = region.prefer_node(&region.frames(), NodeId(0));
        let _ = region.resident();
        calm();
        Ok(())
    }),
];

/// The bugs that must be found.
const PLANTED: [(&str, Scenario); 2] = [
    // If the advice is refused, the addresses are leaked.
    ("planted leak", |calm| {
        let region = std::mem::ManuallyDrop::new(Builder::new(16 * MIB).region()?);
        if region.set_huge_pages(HugePages::Never).is_ok() {
            drop(std::mem::ManuallyDrop::into_inner(region));
        }
        calm();
        Ok(())
    }),
    ("planted hang", |calm| {
        let region = Builder::new(16 * MIB).huge_pages(HugePages::System).region()?;
        while let Err(e) = region.set_huge_pages(HugePages::Never)
            && e.raw_os_error() == Some(libc::EAGAIN)
        {}
        calm();
        Ok(())
    }),
];

/// A yard with this thread as its worker.
fn with(builder: Builder, calm: &dyn Fn()) -> Result<(), BuildError> {
    let yard: Yard = builder.tick(None).build()?;
    use_it(&yard);
    yard.drain();
    let mut worker = yard.worker().expect("the yard has no other worker");
    for _ in 0..4 {
        let _ = worker.step();
    }
    drop(worker);
    let _ = (yard.resident(), yard.status(), yard.stats());
    calm();
    // No call is refused any more: all memory is there and usable.
    use_it(&yard);
    yard.tick();
    yard.drain();
    let zones: Vec<ZoneId> = yard.zones().collect();
    for z in zones {
        let info = yard.zone_info(z).unwrap();
        assert_eq!((info.free_exact, info.cached), (info.managed, 0), "pages were lost");
    }
    Ok(())
}

/// Allocates and frees blocks, alone and with another thread. A yard that was built has memory for
/// them, whatever is refused meanwhile.
fn use_it(yard: &Yard) {
    let fill = |n: usize| {
        let one = |_| {
            let mut block =
                yard.alloc(Order::ZERO, QUIET).expect("a yard that was built can be used");
            assert!(block.iter().all(|&b| b == 0 || b == 7), "bytes of another owner");
            block.fill(7);
            block
        };
        (0..n).map(one).collect::<Vec<_>>()
    };
    let kept = fill(300);
    let huge = yard.alloc(Order::HUGE, QUIET | Gfp::ZERO).expect("2 MiB of a new yard's memory");
    assert!(huge.iter().all(|&b| b == 0));
    std::thread::scope(|s| {
        // Starting the thread may fail.
        let _ = std::thread::Builder::new().spawn_scoped(s, || drop(fill(100)));
    });
    assert!(kept.iter().all(|b| b.iter().all(|&b| b == 7)), "a page had two owners");
}

/// The resources of this process: mapped bytes by name, descriptors, threads.
fn belongings() -> BTreeMap<String, u64> {
    let count = |dir: &str| fs::read_dir(dir).unwrap().count() as u64;
    // Threads first: one that disappears after its memory was counted would be missed.
    let mut all: BTreeMap<String, u64> = [("threads", "task"), ("descriptors", "fd")]
        .map(|(of, dir)| (of.into(), count(&format!("/proc/self/{dir}"))))
        .into();
    for line in fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let mut words = line.split_ascii_whitespace();
        let (range, name) = (words.next().unwrap(), words.nth(4).unwrap_or("nameless"));
        let (start, end) = range.split_once('-').unwrap();
        let number = |n| u64::from_str_radix(n, 16).unwrap();
        // The stack and the heap grow on their own.
        if name != "[stack]" && name != "[heap]" {
            *all.entry(format!("bytes of {name}")).or_default() += number(end) - number(start);
        }
    }
    all
}

/// Calls `look` until its result is `wanted`, for at most a second. Returns the last result.
fn until<T>(look: impl Fn() -> T, wanted: impl Fn(&T) -> bool) -> T {
    for _ in 0..200 {
        let seen = look();
        if wanted(&seen) {
            return seen;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    look()
}

/// Asserts that this process has the same resources as before. A joined thread may take a moment to
/// disappear, and the next thread then gets another stack, which glibc keeps.
fn nothing_is_left_behind(before: &BTreeMap<String, u64>) {
    const STACK: u64 = (2 << 20) + 4096;
    const KEPT: u64 = 8;
    let name = "bytes of nameless";
    let look = || {
        let mut now = belongings();
        let more = now[name].wrapping_sub(before[name]);
        if more.is_multiple_of(STACK) && more / STACK <= KEPT {
            now.insert(name.into(), before[name]);
        }
        now
    };
    assert_eq!(until(look, |now| now == before), *before, "left behind");
}

fn looks_longer() -> bool {
    std::env::var_os("PAGEYARD_REFUSE_ALL").is_some()
}

fn errors() -> Vec<i32> {
    let mut all = vec![libc::ENOMEM, libc::EPERM, libc::EAGAIN];
    if looks_longer() {
        all.extend([libc::EINVAL, libc::ENOSYS, libc::EMFILE, libc::EINTR]);
    }
    all
}

/// Calls that std repeats while they fail with EINTR. The kernel returns that only after a signal,
/// so a single refusal is tested, but not an endless one.
const AGAIN: [i64; 3] = [libc::SYS_openat, libc::SYS_read, libc::SYS_pread64];

/// Runs one scenario with all its refusals. In a process of its own.
fn child(wanted: &str) {
    let (_, scenario) =
        SCENARIOS.iter().chain(&PLANTED).find(|s| s.0 == wanted).expect("the name of a scenario");
    // All scenarios read files in the same way, so refuse those calls only in some.
    let (plain, without_barrier) = (wanted == "plain", wanted == "no barrier");
    let files = wanted == "topology" || plain && looks_longer();
    let Some(refuser) = Refuser::install(files) else {
        println!("{NO_FILTERS}");
        return;
    };
    // Count threads before any scenario: a joined thread may take a moment to disappear.
    let threads = belongings()["threads"];
    if without_barrier {
        refuser.arm_always(libc::SYS_membarrier, libc::EPERM);
        scenario(&|| _ = refuser.disarm()).unwrap();
    }
    if plain {
        let yard: Yard = Builder::new(16 * MIB).tick(None).build().unwrap();
        let mut worker = yard.worker().unwrap();
        let home = cpu::allowed().unwrap();
        refuser.arm_always(libc::SYS_sched_getaffinity, libc::EPERM);
        while yard.status().ticks == 0 {
            let most = worker.step();
            worker.wait(most);
        }
        refuser.disarm();
        assert_eq!(cpu::allowed().unwrap(), home, "the thread stayed where it ticked last");
        // A worker that cannot wait for events still sleeps.
        refuser.arm_always(POLL, libc::EPERM);
        let (began, most) = (Instant::now(), Duration::from_millis(30));
        worker.wait(most);
        assert_eq!(refuser.disarm(), Some(POLL));
        assert!(began.elapsed() >= most, "the worker would run without a pause");
        // As for locked memory: it stays, and the status says why.
        let half = Limits { hard: Some(2048), soft: None };
        refuser.arm_always(libc::SYS_madvise, libc::EINVAL);
        yard.set_limits(half).unwrap();
        assert_eq!(refuser.disarm(), Some(libc::SYS_madvise));
        assert!(yard.status().keeps.is_some_and(|why| why.contains("locked")));
        for limits in [Limits::default(), half] {
            yard.set_limits(limits).unwrap();
        }
        assert_eq!(yard.status().keeps, None);
    }
    if wanted == "hugetlb" {
        // As where the kernel has no such pages. The backing's file is the first one.
        let created = (1..MOST).find_map(|k| {
            refuser.arm(k, libc::EINVAL);
            let built = scenario(&|| ());
            (refuser.disarm() == Some(libc::SYS_memfd_create)).then_some(built)
        });
        created.expect("a file was refused").expect("the fallback is used");
    }
    // Twice, for resources that are created once and kept, such as thread stacks.
    for _ in 0..2 {
        scenario(&|| ()).unwrap();
    }
    let before = until(belongings, |now| now["threads"] == threads);
    let mut by_call: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    // Returns whether a call was refused.
    let mut run = |what: &str, errno: i32| {
        let refused = std::cell::Cell::new(None);
        let result = scenario(&|| refused.set(refuser.disarm()));
        let Some(call) = refuser.disarm().or(refused.get()) else { return false };
        // The parent process reads this if the child crashes.
        let error = std::io::Error::from_raw_os_error(errno);
        let _ = writeln!(std::io::stderr(), "{what}: {}: {error}", name(call));
        let (refusals, failures) = by_call.entry(name(call)).or_default();
        *refusals += 1;
        if let Err(e) = result {
            *failures += 1;
            let text = e.to_string();
            let option = text.split(':').next().unwrap_or_default();
            if plain && ["memfd_create", "ftruncate"].contains(&name(call)) {
                assert_eq!(option, "publish", "the published file is the only one: {text}");
            }
            assert!(OPTIONS.iter().any(|o| option.starts_with(o)), "names no option: {text}");
        }
        nothing_is_left_behind(&before);
        true
    };
    for errno in errors() {
        for (call, _) in CALLS {
            if errno == libc::EINTR && AGAIN.contains(&call) {
                continue;
            }
            refuser.arm_always(call, errno);
            run("every time", errno);
        }
        for k in 1.. {
            assert!(k < MOST, "the scenario makes too many calls");
            refuser.arm(k, errno);
            if !run(&format!("call {k}"), errno) {
                break;
            }
        }
    }
    println!("refused (and of these, how often there was no yard): {by_call:?}");
    assert!(!by_call.is_empty(), "no call was refused");
}

#[test]
#[ignore = "run by the other test, in a process of its own"]
fn in_a_child() {
    let wanted = std::env::var(VARIABLE).expect("the parent names the scenario");
    child(&wanted);
}

/// Runs one scenario. Returns its summary of refusals, or how it ended.
fn in_a_process(scenario: &str) -> Result<String, String> {
    let rseq = u8::from(scenario != "no rseq");
    let done = pageyard_unmet::command(std::env::current_exe().unwrap())
        .env(
            "GLIBC_TUNABLES",
            // A second arena of 64 MiB would look like a leak.
            format!("glibc.pthread.rseq={rseq}:glibc.malloc.arena_max=1"),
        )
        .args(["--exact", "in_a_child", "--ignored", "--nocapture"])
        .env(VARIABLE, scenario)
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    if !done.status.success() {
        let text = String::from_utf8_lossy(&done.stderr);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines[lines.len().saturating_sub(12)..].join("\n");
        return Err(format!("{scenario}: {}\n{last}", done.status));
    }
    let out = String::from_utf8_lossy(&done.stdout);
    let told = out.lines().filter(|l| l.contains("refused (") || l.contains(NO_FILTERS));
    Ok(told.collect::<Vec<_>>().join(" "))
}

/// Whether this system lacks seccomp filters that notify another thread; the test is then skipped.
fn cannot_refuse(told: &str) -> bool {
    !pageyard_unmet::met("seccomp's SECCOMP_RET_USER_NOTIF", !told.contains(NO_FILTERS))
}

#[test]
fn any_system_call_may_fail() {
    let (waiting, failed) = (Mutex::new(SCENARIOS.iter()), Mutex::new(Vec::new()));
    let next = || waiting.lock().unwrap().next();
    let run = || {
        while let Some((scenario, _)) = next() {
            match in_a_process(scenario) {
                Ok(told) if cannot_refuse(&told) => return,
                Ok(told) => println!("{scenario}: {told}"),
                Err(why) => failed.lock().unwrap().push(why),
            }
        }
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|s| (0..cpus).for_each(|_| _ = s.spawn(run)));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn a_leak_and_a_hang_are_detected() {
    for ((planted, _), says) in PLANTED.iter().zip(["left behind", "asked without end"]) {
        match in_a_process(planted) {
            Ok(told) => assert!(cannot_refuse(&told), "the defect was not found: {told}"),
            Err(why) => assert!(why.contains("madvise") && why.contains(says), "{why}"),
        }
    }
}
