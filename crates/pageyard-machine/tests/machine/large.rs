//! The largest machine.

use pageyard::{CpuId, Gfp, Knobs, Order, Yard};
use pageyard_machine::{Machine, MachineSpec, Memory, Options, SimYard};

use crate::common::P;

/// Resident memory of the process in MiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// 1,024 CPUs and 1 TiB, only a part of which is initialised (§8.2). With every descriptor and
/// every stamp written it would take 6.9 GiB: 16 + 8 + 2 bytes per frame.
#[test]
fn s8_2_1024_cpus_and_1_tib() {
    let spec = MachineSpec::shipped("8x64").unwrap();
    let machine = Machine::new(&spec, Options::default());
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let memory = Memory::for_layout(&layout).unwrap();
    assert!(memory.bytes() > 4 << 30 && memory.bytes() < 5 << 30, "{}", memory.bytes());
    let mut rooms = memory.rooms();
    let yard: SimYard<'_, P> =
        Yard::deferred(&layout, memory.storage(&mut rooms), machine.platform(())).unwrap();
    machine.adopt(&yard);
    machine
        .run(|s| {
            for cpu in (0..1024).map(CpuId) {
                let yard = &yard;
                s.spawn(cpu, move |task| {
                    for _ in 0..4 {
                        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                        task.think(100);
                        yard.free(pfn, Order::ZERO).unwrap();
                    }
                });
            }
        })
        .unwrap();
    let stats = machine.stats();
    assert_eq!(stats.cpus.len(), 1024);
    // Both threads of a core are busy at times.
    assert!(stats.cpus.iter().all(|c| (400_000..=640_000).contains(&c.think)));
    assert!(resident() < 20 << 10, "{} MiB", resident());
}
