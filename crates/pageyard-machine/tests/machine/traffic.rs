//! Bandwidth, links and threads of a core, compared with sums computed by hand.

use pageyard::{CpuId, NodeId, Order, Pfn};
use pageyard_machine::{
    Costs, Machine, MachineSpec, Options, SimLock, Task, Touch, spec::Description,
};

fn spec(lines: &str) -> MachineSpec {
    let text = format!(
        "sockets = 2\ncores = 4\nthreads = 2\nclock_mhz = 1000\nlast_level = '32K'\n\
         private = '8K'\nmemory = '64M'\ndistances = [[10, 21], [21, 10]]\n{lines}"
    );
    Description::from_toml("test", &text).unwrap().check().unwrap()
}

fn machine(lines: &str) -> Machine {
    Machine::new(&spec(lines), Options { look_ahead_ns: 0, ..Options::default() })
}

/// Runs one task on each of these CPUs.
fn run(machine: &Machine, cpus: &[u32], program: impl Fn(&Task<'_, '_>) + Copy) {
    machine
        .run(|s| cpus.iter().for_each(|&c| s.spawn(CpuId(c), move |task| program(task))))
        .unwrap();
}

/// The time that this takes on a new machine, in nanoseconds.
fn elapsed(lines: &str, cpus: &[u32], program: impl Fn(&Task<'_, '_>) + Copy) -> u64 {
    let machine = machine(lines);
    run(&machine, cpus, program);
    machine.stats().elapsed_ns
}

/// Nanoseconds; long enough that the first windows do not matter.
const LONG: u64 = 1_000_000;
/// Bytes that 1 GiB/s moves in that time.
const GIB: u64 = LONG * (1 << 30) / 1_000_000_000;
const FOUR: [u32; 4] = [0, 1, 2, 3];

#[test]
fn work_beyond_memory_bandwidth_takes_longer() {
    // 4 GiB/s, and four CPUs that request 2 GiB/s each: half as fast.
    let slow = machine("bandwidth = '4G'");
    run(&slow, &FOUR, |task| task.work(LONG, 2 * GIB, NodeId(0)));
    let stats = slow.stats();
    let (took, share) = (stats.elapsed_ns, stats.memory_wait_share());
    assert!((LONG * 19 / 10..LONG * 21 / 10).contains(&took), "{took}");
    assert!((470_000..530_000).contains(&share), "{share}");
    assert_eq!(stats.memory_wait, stats.total().think - 4 * LONG * 1000);
    // Three quarters of the bandwidth in total, or no traffic at all, slows nothing down.
    let one = |task: &Task<'_, '_>| task.work(LONG, 3 * GIB / 4, NodeId(0));
    assert_eq!(elapsed("bandwidth = '4G'", &FOUR, one), LONG);
    let none = |task: &Task<'_, '_>| task.work(LONG, 0, NodeId(0));
    assert_eq!(elapsed("bandwidth = '4G'", &FOUR, none), LONG);
    // Without a bandwidth, memory traffic costs no more than other work.
    let free = machine("");
    run(&free, &FOUR, |task| task.work(LONG, 2 * GIB, NodeId(1)));
    assert_eq!((free.stats().elapsed_ns, free.stats().memory_wait), (LONG, 0));
    assert_eq!(free.stats().total().think, 4 * LONG * 1000);
}

#[test]
fn one_core_is_limited_by_lines_in_flight() {
    // 16 lines of 96.4 ns each: 64 bytes in 6,025 ps.
    let lines = 200 * LONG / 1000;
    let took = elapsed("bandwidth = '100G'", &[0], |t| t.work(LONG, lines * 64, NodeId(0)));
    assert!(took.abs_diff(lines * 6_025 / 1000) <= 100, "{took}");
    // Two threads of a core share them.
    let took = elapsed("bandwidth = '100G'", &[0, 8], |t| t.work(LONG, lines * 64, NodeId(0)));
    assert!(took.abs_diff(lines * 12_050 / 1000) <= 200, "{took}");
}

#[test]
fn remote_work_uses_the_link() {
    let lines = "bandwidth = '100G'\nlink = '4G'";
    let near = |task: &Task<'_, '_>| task.work(LONG, 2 * GIB, NodeId(0));
    let far = |task: &Task<'_, '_>| task.work(LONG, 2 * GIB, NodeId(1));
    assert_eq!(elapsed(lines, &FOUR, near), LONG);
    let took = elapsed(lines, &FOUR, far);
    assert!((LONG * 19 / 10..LONG * 21 / 10).contains(&took), "{took}");
    // Each direction has its own bandwidth: two CPUs of each socket, 3 GiB/s each way.
    let both = |task: &Task<'_, '_>| {
        task.work(LONG, 3 * GIB / 2, NodeId(u16::from(task.cpu().0 < 4)));
    };
    assert_eq!(elapsed(lines, &[0, 1, 4, 5], both), LONG);
}

#[test]
fn a_page_of_another_socket_uses_the_link() {
    // 2 GiB/s: a line in 29,803 ps, a page in 1,907,392.
    let machine = machine("bandwidth = '100G'\nlink = '2G'");
    let far = machine.memory_layout().zones().last().unwrap().span.start;
    let page = 64 * 29_803;
    run(&machine, &[0], |task| task.touch(far, Order::ZERO, Touch::Use));
    assert_eq!(machine.stats().total().touch, page);
    // From the first socket's caches to the second's: the other direction, equally slow.
    run(&machine, &[4], |task| task.touch(far, Order::ZERO, Touch::Use));
    assert_eq!(machine.stats().total().touch, 2 * page);
    let near = 64 * Costs::default().stream_remote;
    assert_eq!(machine.stats().memory_wait, 2 * (page - near));
}

#[test]
fn smt_threads_slow_each_other_down() {
    // CPUs 0 and 8 are one core.
    let c = Costs::default();
    let think = |lines: &str, cpus: &[u32]| elapsed(lines, cpus, |task| task.think(10_000));
    assert_eq!(think("siblings = true", &[0]), 10_000);
    assert_eq!(think("siblings = true", &[0, 1]), 10_000);
    assert_eq!(think("siblings = true", &[0, 8]), 10_000 * c.smt_work / 1000);
    assert_eq!(think("", &[0, 8]), 10_000);
    // The price is recomputed per part: most of this runs alone.
    let took = elapsed("siblings = true", &[0, 8], |task| {
        task.think(if task.cpu().0 == 0 { 4_000_000 } else { 1_000_000 });
    });
    // CPU 8 is done after 1.6 ms; CPU 0 has done 1 ms of work by then.
    assert!(took.abs_diff(4_600_000) <= 50_000, "{took}");
    // The cost of memory accesses does not depend on the core's other thread.
    let touched = |lines: &str| {
        elapsed(lines, &[0, 8], |task| {
            task.touch(Pfn(u64::from(task.cpu().0)), Order::ZERO, Touch::Use);
        })
    };
    assert_eq!(touched("siblings = true"), touched(""));
}

#[test]
fn a_spinning_thread_yields_the_core() {
    // CPU 8, on the same core as CPU 0, waits for the lock that CPU 0 holds.
    let machine = machine("siblings = true");
    let lock = lock_api::Mutex::<SimLock, ()>::new(());
    machine
        .run(|s| {
            for cpu in [0, 8] {
                let lock = &lock;
                s.spawn(CpuId(cpu), move |task| {
                    task.sleep(1_000 + u64::from(cpu) * 1_000);
                    let held = lock.lock();
                    task.think(if cpu == 0 { 100_000 } else { 0 });
                    drop(held);
                });
            }
        })
        .unwrap();
    let held = machine.stats().locks[0].held / 1000;
    // In parts of 67.109 us: CPU 8 starts in the first one and spins in the second.
    let c = Costs::default();
    let wanted = 67_109 + (100_000 - 67_109) * c.smt_spin / 1000;
    assert!(held.abs_diff(wanted) <= 5, "{held} {wanted}");
}

#[test]
fn machines_without_bandwidth_keys_are_noted() {
    let plain = spec("");
    assert_eq!((plain.link(), plain.siblings(), plain.bandwidth()), (None, false, None));
    let shipped = MachineSpec::shipped("2x56").unwrap();
    assert_eq!((shipped.link(), shipped.siblings()), (Some(119 << 30), true));
}
