//! Machines as data: the meaning of a description, and the errors in one.

use pageyard::{Hooked, Knobs, NodeId, Pfn, Yard, ZoneKind};
use pageyard_lab::topology::{Cache, Description, Node, SHIPPED, Topology, Zone};
use pageyard_lab::{Lock, Memory};
use serde_json::json;

fn wrong(d: Description) -> String {
    d.check().unwrap_err().to_string()
}

fn machine() -> Description {
    Description::new("machine.toml")
}

fn toml(text: &str) -> Result<Topology, String> {
    Description::from_toml("machine.toml", text).and_then(|d| d.check()).map_err(|e| e.to_string())
}

#[test]
fn built_in_topologies_are_correct() {
    for (name, text) in SHIPPED {
        let t = Description::from_toml(name, text).unwrap().check().unwrap();
        assert_eq!(t.distances().len(), t.nodes() * t.nodes());
        assert_eq!(t.caches().len(), t.cpus().len());
        assert!(t.to_string().starts_with(&format!("{name}: {} node", t.nodes())), "{t}");
    }
    let big = Topology::open("eight-sockets".as_ref()).unwrap();
    assert_eq!((big.nodes(), big.cpus().len()), (8, 1024));
    assert_eq!(big.caches()[1023].last_level, 4 << 20);
    let four = Topology::open("four-nodes".as_ref()).unwrap();
    assert!(!four.cpus().contains(&NodeId(3)), "a node without CPUs");
    assert!(!four.zones().iter().any(|z| z.node == NodeId(2)), "a node without memory");
}

#[test]
fn s1_2_memory_is_divided_into_the_zones_of_x86() {
    let t = machine()
        .node(Node::new().memory("1M..3G").memory("4G..8G").movable("1G").cpus("0"))
        .check()
        .unwrap();
    let zones: Vec<_> = t.zones().iter().map(|z| (z.kind, z.span.clone())).collect();
    assert_eq!(
        zones,
        [
            (ZoneKind::Dma, Pfn(256)..Pfn(4096)),
            (ZoneKind::Dma32, Pfn(4096)..Pfn(0xc0000)),
            (ZoneKind::Normal, Pfn(0x100000)..Pfn(0x1c0000)),
            (ZoneKind::Movable, Pfn(0x1c0000)..Pfn(0x200000)),
        ]
    );
}

#[test]
fn a_yard_is_created_from_a_topology() {
    let t = machine()
        .node(Node::new().memory("1M..64M").reserved("1M..2M").cpus("0-1"))
        .cache(Cache::new("0-1", "8M"))
        .check()
        .unwrap();
    let layout = t.layout(Knobs::default());
    let memory = Memory::for_layout(&layout).unwrap();
    let mut rooms = memory.rooms();
    let yard: Yard<'_, Hooked<Lock, ()>> =
        Yard::new(&layout, memory.storage(&mut rooms), ()).unwrap();
    assert_eq!(yard.cpus(), 2);
    let info = yard.zone_info(ZoneKind::Dma).unwrap();
    assert_eq!((info.present, info.managed), (15 * 256, 14 * 256));
    assert!(yard.set_cache_slice(pageyard::CpuId(1), t.caches()[1]));
}

/// Sums and orders computed by hand.
#[test]
fn a_topology_as_json() {
    let t = machine()
        .node(Node::new().memory("1M..3G").memory("4G..8G").reserved("1M..2M").cpus("0-1"))
        .node(Node::new().memory("8G..9G").movable("512M").cpus("2"))
        .node(Node::new().cpus("3"))
        .cache(Cache::new("0-1", "8M"))
        .check()
        .unwrap();
    let zone = |zone: &str, from: u64, to: u64, memory: u64| json!({ "zone": zone, "from": from << 20, "to": to << 20, "memory_bytes": memory << 20 });
    let cpu = |cpu: u32, node: u16, bytes: Option<u64>| {
        json!({
            "cpu": cpu, "node": node, "last_level_bytes": bytes, "all_levels_bytes": bytes,
        })
    };
    let range = |from: u64, to: u64| json!({ "from": from << 20, "to": to << 20 });
    let id = |node: u16, zone: &str| json!({ "node": node, "zone": zone });
    let near = [id(0, "Normal"), id(0, "DMA32"), id(0, "DMA")];
    let far = [id(1, "Movable"), id(1, "Normal")];
    let (from_0, from_1) = ([&near[..], &far].concat(), [&far[..], &near].concat());
    // Both are equally far, and equally often second; the first one precedes (§2.5).
    let from_2 = from_0.clone();
    assert_eq!(
        t.json(),
        json!({
            "name": "machine.toml",
            "clock_mhz": null,
            "nodes": [
                {
                    "node": 0,
                    "cpus": [0, 1],
                    "zones": [
                        zone("DMA", 1, 16, 15),
                        zone("DMA32", 16, 3072, 3056),
                        zone("Normal", 4096, 8192, 4096),
                    ],
                },
                {
                    "node": 1,
                    "cpus": [2],
                    "zones": [zone("Normal", 8192, 8704, 512), zone("Movable", 8704, 9216, 512)],
                },
                { "node": 2, "cpus": [3], "zones": [] },
            ],
            "cpus": [
                cpu(0, 0, Some(4 << 20)),
                cpu(1, 0, Some(4 << 20)),
                cpu(2, 1, None),
                cpu(3, 2, None),
            ],
            "distances": [[10, 20, 20], [20, 10, 20], [20, 20, 10]],
            "zonelists": [from_0, from_1, from_2],
            "zonelists_error": null,
            "usable": [
                range(1, 16),
                range(16, 3072),
                range(4096, 8192),
                range(8192, 8704),
                range(8704, 9216),
            ],
            "reserved": [range(1, 2)],
        })
    );
}

#[test]
fn a_file_equals_the_same_description_in_code() {
    let built = Description::new("machine.toml")
        .node(Node::new().memory("1M..1G").cpus("0").distances(&[10, 20]))
        .node(Node::new().zoned("1G..2G", Zone::Movable).distances(&[20, 10]))
        .cache(Cache::new("0", "8M"))
        .check()
        .unwrap();
    let read = toml(
        r#"
        [[node]]
        memory = ["1M..1G"]
        cpus = "0"
        distances = [10, 20]
        [[node]]
        memory = [{ range = "1G..2G", zone = "movable" }]
        distances = [20, 10]
        [[cache]]
        cpus = "0"
        last_level = "8M"
        "#,
    );
    assert_eq!(read, Ok(built));
}

#[test]
fn errors_name_file_entry_and_fix() {
    let node = || Node::new().memory("1M..1G").cpus("0");
    let far = |d: &[u8]| Node::new().memory("1G..2G").distances(d);
    let near = || node().distances(&[10, 20]);
    for (description, text) in [
        (machine(), "the machine: has no node; add a [[node]]"),
        (
            machine().node(near()).node(far(&[5, 10])),
            "node 1: distance to node 0 is 5; it must be more than 10, the distance to itself",
        ),
        (
            machine().node(near()).node(far(&[20, 11])),
            "node 1: distance to itself is 11; it must be 10",
        ),
        (
            machine().node(near()).node(far(&[20])),
            "node 1: 1 distances for 2 nodes; give one for each node, itself included, or none \
             anywhere",
        ),
        (
            machine().node(node()).node(Node::new().memory("512M..2G")),
            "node 1: memory 512M..2G overlaps memory 1M..1G of node 0; give each address to one \
             of them",
        ),
        (
            machine().node(node()).node(Node::new().memory("1G..2G").cpus("0")),
            "node 1: CPU 0 is already on node 0",
        ),
        (
            machine().node(Node::new().memory("1M..1G").cpus("0,2")),
            "CPU 1: not on any node, but CPU 2 exists; number CPUs from 0 without gaps",
        ),
        (
            machine().node(Node::new().cpus("0")),
            "the machine: no node has memory; give one memory = [\"1M..2G\"]",
        ),
        (
            machine().node(Node::new().memory("1M..1G")),
            "the machine: no node has CPUs; give one cpus = \"0-3\"",
        ),
        (
            machine().node(Node::new().memory("1000..1G").cpus("0")),
            "node 0: memory 1000..1G: 1000 is not a multiple of 4K",
        ),
        (
            machine().hotplug().node(node()),
            "node 0: memory 1M..1G: 1M is not a multiple of 128M (the section size of hotplug)",
        ),
        (machine().node(node().movable("2G")), "node 0: movable = 2G: the node has only 1023M"),
        (
            machine().node(node().reserved("2G..3G")),
            "node 0: reserved 2G..3G: not within the node's memory",
        ),
        (
            machine().node(node()).cache(Cache::new("0-1", "8M")),
            "cache 0: CPU 1 is not on any node",
        ),
        (
            machine()
                .node(Node::new().memory("4G..8G").memory("12G..16G").cpus("0"))
                .node(Node::new().memory("8G..12G")),
            "node 1: its zone Normal is inside zone Normal of node 0; zones must not be \
             interleaved",
        ),
    ] {
        assert_eq!(wrong(description), format!("machine.toml: {text}"));
    }
}

#[test]
fn errors_in_a_file_name_the_line() {
    let unknown = toml("[[node]]\nmemory = [\"1M..1G\"]\ncpu = \"0\"\n").unwrap_err();
    assert!(unknown.starts_with("machine.toml: line 3: unknown field `cpu`"), "{unknown}");
    let broken = toml("[[node]\n").unwrap_err();
    assert!(broken.starts_with("machine.toml: line 1: "), "{broken}");
}
