//! Hardware as data: shipped machines, errors in descriptions, and detection.

use std::fs;
use std::path::Path;

use pageyard::tuning::CacheSlice;
use pageyard::{CpuId, Gfp, NodeId, Order, ZoneKind};
use pageyard_machine::spec::{Description, SHIPPED};
use pageyard_machine::{Machine, MachineSpec, Options};

use crate::common::{P, with_yard};

#[test]
fn every_shipped_machine_builds_a_yard_and_runs() {
    let cpus = [4, 56, 72, 80, 128, 224, 256, 384, 1024];
    assert_eq!(SHIPPED.len(), cpus.len());
    for ((name, _), cpus) in SHIPPED.iter().zip(cpus) {
        let spec = MachineSpec::shipped(name).unwrap();
        assert_eq!(spec.cpus().len(), cpus, "{name}");
        let machine = Machine::new(&spec, Options { memory: Some(1 << 30), ..Options::default() });
        with_yard::<P, (), _>(&machine, (), |yard| {
            assert_eq!(yard.cpus() as usize, cpus, "{name}");
            let machine = &machine;
            machine
                .run(|s| {
                    for cpu in 0..cpus as u32 {
                        s.spawn(CpuId(cpu), move |task| {
                            assert_eq!(yard.node_of(task.cpu()), machine.node_of(task.cpu()));
                            let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                            let node = yard.zone_of(pfn).unwrap().node;
                            assert_eq!(Some(node), yard.node_of(task.cpu()), "near memory");
                            yard.free(pfn, Order::ZERO).unwrap();
                        });
                    }
                })
                .unwrap();
        });
    }
}

#[test]
fn cpus_are_numbered_threads_last() {
    let spec = MachineSpec::shipped("2x64").unwrap();
    let places = spec.cpus();
    let of = |cpu: usize| {
        let p = places[cpu];
        (p.socket, p.node, p.complex, p.core)
    };
    assert_eq!(of(0), (0, 0, 0, 0));
    assert_eq!(of(9), (0, 0, 1, 9));
    assert_eq!(of(64), (1, 1, 8, 64));
    assert_eq!(of(128), of(0));
    assert_eq!(spec.cpus_of(NodeId(1)).next(), Some(CpuId(64)));
    assert_eq!(spec.cpus_of(NodeId(1)).count(), 128);
}

#[test]
fn s5_13_the_share_of_the_last_level_reaches_the_allocator() {
    // .9375 MB per thread, as the seed states for this machine (A.4).
    let spec = MachineSpec::shipped("2x56").unwrap();
    let slice = spec.cache_slice(CpuId(0)).unwrap();
    assert_eq!(slice, CacheSlice { last_level: 983_040, all_levels: 983_040 + (1048 << 10) });
    let spec = MachineSpec::shipped("1x36").unwrap();
    assert_eq!(spec.cache_slice(CpuId(0)).unwrap().last_level, 786_432);
}

#[test]
fn s1_2_the_first_node_has_the_low_zones() {
    let spec = MachineSpec::shipped("2x20").unwrap();
    let zones = |memory| {
        let machine = Machine::new(&spec, Options { memory: Some(memory), ..Options::default() });
        let layout = machine.memory_layout();
        let of = |z: &pageyard::ZoneSpec| (z.node.0, z.kind, z.span.end.0 - z.span.start.0);
        layout.zones().iter().map(of).collect::<Vec<_>>()
    };
    use ZoneKind::{Dma, Dma32, Normal};
    let gib = 1 << 18;
    assert_eq!(
        zones(16 << 30),
        [(0, Dma, 3840), (0, Dma32, 2 * gib - 4096), (0, Normal, 6 * gib), (1, Normal, 8 * gib)]
    );
    assert_eq!(zones(1 << 30), [(0, Normal, gib / 2), (1, Normal, gib / 2)]);
}

#[test]
fn invalid_descriptions_are_named_with_a_fix() {
    let good = "sockets = 2\ncores = 4\nclock_mhz = 1000\nlast_level = '8M'\nprivate = '1M'\n\
                memory = '1G'\n";
    let error = |text: &str| {
        let description = Description::from_toml("m.toml", text);
        description.and_then(|d| d.check()).unwrap_err().to_string()
    };
    let with = |line: &str| {
        let key = line.split(' ').next().unwrap();
        let rest: String =
            good.lines().filter(|l| !l.starts_with(key)).map(|l| format!("{l}\n")).collect();
        error(&(rest + line))
    };
    assert_eq!(with("cores = 0"), "m.toml: cores: is 0; expected at least 1");
    assert_eq!(
        with("cores = 600"),
        "m.toml: cores: 2 sockets of 600 cores of 1 threads are 1200 CPUs; expected at most 1024"
    );
    assert_eq!(with("complex = 3"), "m.toml: complex: 3 does not divide the 4 cores of a socket");
    assert_eq!(
        with("last_level = 'big'"),
        "m.toml: last_level: `big` is not a size; expected bytes, or 512K, 2M, 1.5G, 1T, or 64 MiB"
    );
    assert_eq!(with("bandwidth = '0'"), "m.toml: bandwidth: is 0; expected a size such as 32M");
    assert_eq!(with("link = '0'"), "m.toml: link: is 0; expected a size such as 32M");
    assert_eq!(
        with("sockets = 1\nlink = '1G'"),
        "m.toml: link: does not apply to one socket; \
         remove it"
    );
    assert_eq!(
        with("siblings = true"),
        "m.toml: siblings: does not apply to one thread per core; remove it, or set threads = 2"
    );
    assert_eq!(with("memory = '0'"), "m.toml: memory: is 0; expected a size such as 32M");
    assert_eq!(
        with("nodes = 3"),
        "m.toml: nodes: 3 nodes do not divide 2 sockets of 4 cores \
         evenly"
    );
    assert_eq!(
        with("distances = [[10, 21]]"),
        "m.toml: distances: expected 2 rows of 2 numbers, or none"
    );
    assert_eq!(
        with("distances = [[10, 10], [21, 10]]"),
        "m.toml: distances: from node 0 to node 1: 10; expected above 10"
    );
    assert!(error("sockets = 1\nwheels = 4\n").starts_with("m.toml: line 2: unknown field"));
    let missing = MachineSpec::open(Path::new("no-such")).unwrap_err().to_string();
    assert!(missing.starts_with("no-such: No such file") && missing.contains("2x56"), "{missing}");
}

#[test]
fn the_current_machine_is_detected() {
    // Succeeds if the host's /sys has enough information; otherwise the error says what is missing.
    match MachineSpec::detect() {
        Ok(spec) => {
            assert!(!spec.cpus().is_empty() && spec.last_level() > 0 && spec.memory() > 0);
            assert_eq!(spec.distances().len(), usize::from(spec.nodes()).pow(2));
            let machine =
                Machine::new(&spec, Options { memory: Some(64 << 20), ..Options::default() });
            with_yard::<P, (), _>(&machine, (), |yard| {
                assert_eq!(yard.cpus() as usize, spec.cpus().len());
            });
        }
        Err(e) => assert!(e.to_string().contains("TOML file instead"), "{e}"),
    }
}

#[test]
fn a_copy_of_sys_is_parsed() {
    let root = std::env::temp_dir().join(format!("pageyard-sys-{}", std::process::id()));
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    };
    put("cpu/online", "0-7");
    put("node/online", "0-1,4");
    for (n, cpus, row) in [(0, "0-1,4-5", "10 21 40"), (1, "2-3,6-7", "21 10 40")] {
        put(&format!("node/node{n}/cpulist"), cpus);
        put(&format!("node/node{n}/distance"), row);
        put(&format!("node/node{n}/meminfo"), &format!("Node {n} MemTotal:  8388608 kB"));
    }
    put("node/node4/cpulist", "");
    for cpu in 0..8u32 {
        let (socket, core) = (cpu % 4 / 2, cpu % 4);
        let dir = format!("cpu/cpu{cpu}");
        put(&format!("{dir}/topology/physical_package_id"), &socket.to_string());
        let siblings = format!("{core},{}", core + 4);
        put(&format!("{dir}/topology/thread_siblings_list"), &siblings);
        let shared = ["0-1,4-5", "2-3,6-7"][socket as usize];
        for (index, kind, level, size, sharers) in [
            (0, "Data", "1", "32K", &*siblings),
            (1, "Instruction", "1", "32K", &*siblings),
            (2, "Unified", "2", "512K", &*siblings),
            (3, "Unified", "3", "16384K", shared),
        ] {
            let cache = format!("{dir}/cache/index{index}");
            put(&format!("{cache}/type"), kind);
            put(&format!("{cache}/level"), level);
            put(&format!("{cache}/size"), size);
            put(&format!("{cache}/shared_cpu_list"), sharers);
        }
    }
    put("cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2399.998");
    let spec = MachineSpec::detect_in(&root, &root.join("cpuinfo"));
    fs::remove_dir_all(&root).unwrap();
    let spec = spec.unwrap();
    assert_eq!((spec.clock_mhz(), spec.nodes(), spec.memory()), (2399, 2, 16 << 30));
    assert_eq!((spec.last_level(), spec.private()), (16 << 20, 544 << 10));
    assert_eq!(spec.distances(), [10, 21, 21, 10]);
    let places: Vec<_> =
        spec.cpus().iter().map(|p| (p.socket, p.node, p.complex, p.core)).collect();
    assert_eq!(places[..4], [(0, 0, 0, 0), (0, 0, 0, 1), (1, 1, 1, 2), (1, 1, 1, 3)]);
    assert_eq!(places[..4], places[4..]);
}
