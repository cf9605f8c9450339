//! Spec §9.1, §9.4, §9.8: the texts of a live allocator, byte for byte. The lab's tests show on
//! recorded files that they equal the kernel's.

use crate::common;

use common::state::State;
use common::{Machine, Y, o};
use pageyard::{CpuId, Gfp, MigrateType, NodeId, ReclaimTask, VmEvent, ZoneKind};
use pageyard_report::text::{
    self, CMA_EVENTS, EVENTS, Extra, MACHINE_STATS, NODE_STATS, NUMA_STATS, ZONE_STATS,
};

/// A NORMAL zone of four pageblocks and two CPUs, with nonzero values on every line.
fn state() -> State {
    State::new(2048)
        .label(0, MigrateType::Unmovable)
        .label(1, MigrateType::HighAtomic)
        .free(8, 3)
        .free(16, 3)
        .free(600, 2)
        .free(1024, 10)
        .cpus(&[0, 0])
        .limits(63, 100, 400)
        .cached(1, 0, &[5, 6, 7])
        .cpu(1, |c| c.threshold = 18)
        .set(|z| {
            z.managed = 2000;
            z.watermarks = [10, 20, 30, 40];
            z.boost = 512;
            z.lowmem_reserve = [0, 0, 0, 7, 8];
            z.reserved_highatomic = 512;
        })
}

fn absent(zone: &str, marks: u64) -> String {
    format!(
        "Node 0, zone {zone}
  pages free     0
        boost    0
        min      {marks}
        low      {marks}
        high     {marks}
        promo    {marks}
        spanned  0
        present  0
        managed  0
        cma      0
        protection: (0, 0, 0, 0, 0)
"
    )
}

#[test]
fn s9_4_zoneinfo_has_every_zone_and_every_line() {
    let stats = |names: &[&str]| -> String {
        names
            .iter()
            .map(|n| format!("      {n:<12} {}\n", if *n == "nr_free_pages" { 1044 } else { 0 }))
            .collect()
    };
    let expected = absent("     DMA", 0)
        + &absent("   DMA32", 0)
        + "Node 0, zone   Normal\n  per-node stats\n"
        + &stats(&NODE_STATS)
        + "  pages free     1044
        boost    512
        min      522
        low      532
        high     542
        promo    552
        spanned  2048
        present  2048
        managed  2000
        cma      0
        protection: (0, 0, 0, 7, 8)
" + &stats(&ZONE_STATS)
        + &stats(&NUMA_STATS)
        + "  pagesets
    cpu: 0
              count: 0
              high:  100
              batch: 63
  vm stats threshold: 0
    cpu: 1
              count: 3
              high:  100
              batch: 63
  vm stats threshold: 18
  node_unreclaimable:  0
  start_pfn:           0
" + &absent(" Movable", 32)
        + &absent("  Device", 0);
    state().run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &()).unwrap();
        assert_eq!(text, expected);
    });
}

/// An embedder with figures of its own.
struct Kernel;

impl Extra for Kernel {
    fn node_stat(&self, node: NodeId, name: &str) -> u64 {
        assert_eq!(node, NodeId(0));
        if name == "nr_shmem" { 21 } else { 0 }
    }

    fn zone_stat(&self, _: NodeId, zone: ZoneKind, name: &str) -> u64 {
        assert!(!name.starts_with("nr_free"), "the allocator knows {name} itself");
        if (zone, name) == (ZoneKind::Normal, "nr_zone_active_file") { 3 } else { 0 }
    }

    fn machine_stat(&self, name: &str) -> u64 {
        match name {
            "pgfault" => 99,
            "pgalloc_normal" => 1000,
            "nr_memmap_pages" => 4,
            _ => 0,
        }
    }

    fn is_unreclaimable(&self, _: NodeId) -> bool {
        true
    }
}

#[test]
fn s9_4_zoneinfo_lists_the_cpus_that_are_online() {
    Machine::normal(65536).cpus(&[0, 0]).run(|y: &Y<'_>| {
        assert!(y.cpu_dead(CpuId(1)));
        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &()).unwrap();
        assert!(text.contains("cpu: 0") && !text.contains("cpu: 1"), "{text}");
    });
}

#[test]
fn s9_4_zoneinfo_says_that_reclaim_gave_up() {
    Machine::normal(16_384).run(|y: &Y<'_>| {
        while y.alloc(o(0), Gfp::KERNEL | Gfp::MEMALLOC).is_ok() {}
        let mut kswapd = y.kswapd(NodeId(0)).unwrap();
        assert!(y.alloc(o(0), Gfp::KERNEL).is_err());
        while kswapd.next(0) != ReclaimTask::Sleep {}
        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &()).unwrap();
        assert!(text.contains("node_unreclaimable:  1"), "{text}");
    });
}

/// Zones are stored from the highest kind down, and printed from the lowest up. A zone without
/// memory appears only in `zoneinfo`.
#[test]
fn s9_4_rows_are_ordered_by_node_then_by_kind() {
    let machine = Machine::new()
        .zone(ZoneKind::Dma, 0..4096)
        .zone(ZoneKind::Normal, 4096..20_480)
        .span(ZoneKind::Movable, 1 << 20..(1 << 20) + 32_768)
        .zone_on(1, ZoneKind::Normal, 1 << 30..(1 << 30) + 4096)
        .cpus(&[0, 1]);
    machine.run(|y: &Y<'_>| {
        let rows = |text: &str| -> Vec<String> {
            let row = |line: &str| Some(line.strip_prefix("Node ")?.get(..17)?.to_owned());
            text.lines().filter_map(row).collect()
        };
        let mut text = String::new();
        text::write_buddyinfo(&mut text, y).unwrap();
        assert_eq!(rows(&text), ["0, zone      DMA ", "0, zone   Normal ", "1, zone   Normal "]);
        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &()).unwrap();
        assert_eq!(text.matches("zone  Movable").count(), 2, "{text}");
        assert_eq!(text.matches("  per-node stats\n").count(), 2, "{text}");
        let mut text = String::new();
        text::write_pagetypeinfo(&mut text, y).unwrap();
        assert_eq!(text.matches("Page block order: 9\n").count(), 2, "{text}");
    });
}

#[test]
fn the_embedder_supplies_unknown_counters() {
    state().run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &Kernel).unwrap();
        for line in
            ["      nr_shmem     21", "      nr_zone_active_file 3", "  node_unreclaimable:  1"]
        {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let mut text = String::new();
        text::write_vmstat(&mut text, y, &Kernel).unwrap();
        for line in [
            "nr_shmem 21",
            "nr_zone_active_file 3",
            "nr_free_pages 1044",
            "pgfault 99",
            "nr_memmap_pages 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    });
}

#[test]
fn s9_4_buddyinfo_and_pagetypeinfo() {
    state().run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_buddyinfo(&mut text, y).unwrap();
        let row = "Node 0, zone   Normal      0      0      1      2      0      0      0      0      0      0      1 \n";
        assert_eq!(text, row);
        let mut text = String::new();
        text::write_pagetypeinfo(&mut text, y).unwrap();
        assert_eq!(
            text,
            "Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2      3      4      5      6      7      8      9     10 
Node    0, zone   Normal, type    Unmovable      0      0      0      2      0      0      0      0      0      0      0 
Node    0, zone   Normal, type      Movable      0      0      0      0      0      0      0      0      0      0      1 
Node    0, zone   Normal, type  Reclaimable      0      0      0      0      0      0      0      0      0      0      0 
Node    0, zone   Normal, type   HighAtomic      0      0      1      0      0      0      0      0      0      0      0 
Node    0, zone   Normal, type      Isolate      0      0      0      0      0      0      0      0      0      0      0 

Number of blocks type     Unmovable      Movable  Reclaimable   HighAtomic      Isolate 
Node 0, zone   Normal            1            2            0            1            0 
"
        );
    });
}

#[test]
fn cma_rows_appear_only_with_cma_memory() {
    let s = State::new(1024).label(1, MigrateType::Cma).free(512, 0);
    s.run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_pagetypeinfo(&mut text, y).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let row = "Node    0, zone   Normal, type          CMA      1      0      0 ";
        assert!(lines[8].starts_with(row), "{text}");
        let types = "Unmovable      Movable  Reclaimable   HighAtomic          CMA      Isolate ";
        assert!(lines[11].ends_with(types), "{text}");
        assert!(
            lines[12].ends_with(" 1            0            0            1            0 "),
            "{text}"
        );

        let mut text = String::new();
        text::write_zoneinfo(&mut text, y, &()).unwrap();
        assert!(text.contains("        cma      512\n"), "{text}");
        assert!(text.contains("      nr_free_cma  1\n"), "{text}");

        let mut text = String::new();
        text::write_vmstat(&mut text, y, &()).unwrap();
        let at = text.find("cma_alloc_success 0\ncma_alloc_fail 0\nunevictable_pgs_culled 0\n");
        assert!(at.is_some(), "{text}");
    });
}

#[test]
fn s9_4_counting_a_free_list_stops_at_100000() {
    for (blocks, shown) in [(99_999, " 99999 "), (100_000, ">100000 "), (100_001, ">100000 ")] {
        let mut s = State::new(1 << 18);
        for i in 0..blocks {
            s = s.free(2 * i, 0);
        }
        s.run(|y: &Y<'_>| {
            let mut text = String::new();
            text::write_pagetypeinfo(&mut text, y).unwrap();
            assert!(text.contains(&format!("type      Movable {shown}     0 ")), "{text}");
        });
    }
}

#[test]
fn s9_8_show_mem() {
    let s = state();
    s.run(|y: &Y<'_>| {
        y.hooks().on(1);
        let mut text = String::new();
        text::write_show_mem(&mut text, y, &Kernel).unwrap();
        assert_eq!(
            text,
            "Node 0 Normal free:4176kB boost:2048kB min:2088kB low:2128kB high:2168kB \
             reserved_highatomic:2048KB free_highatomic:16KB active_anon:0kB inactive_anon:0kB \
             active_file:12kB inactive_file:0kB unevictable:0kB writepending:0kB present:8192kB \
             managed:8000kB mlocked:0kB bounce:0kB free_pcp:12kB local_pcp:12kB free_cma:0kB\n\
             lowmem_reserve[]: 0 0 0 7 8\n\
             Node 0 Normal: 0*4kB 0*8kB 1*16kB (H) 2*32kB (U) 0*64kB 0*128kB 0*256kB 0*512kB \
             0*1024kB 0*2048kB 1*4096kB (M) = 4176kB\n"
        );
        y.hooks().on(0);
        let mut text = String::new();
        text::write_show_mem(&mut text, y, &()).unwrap();
        assert!(text.contains(" free_pcp:12kB local_pcp:0kB "), "{text}");
    });
    let all = State::new(2048)
        .label(0, MigrateType::Unmovable)
        .label(2, MigrateType::Reclaimable)
        .label(3, MigrateType::Isolate)
        .free(0, 0)
        .free(512, 0)
        .free(1024, 0)
        .free(1536, 0);
    all.run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_show_mem(&mut text, y, &()).unwrap();
        assert!(text.contains("Normal: 4*4kB (UMEI) 0*8kB "), "{text}");
    });
}

#[test]
fn s9_1_events_count_pages_by_zone() {
    let m = Machine::new().zone(ZoneKind::Dma, 0..4096).zone(ZoneKind::Dma32, 4096..16384);
    m.run(|y: &Y<'_>| {
        let a = y.alloc(o(3), Gfp::KERNEL).unwrap();
        let b = y.alloc(o(0), Gfp::KERNEL | Gfp::DMA).unwrap();
        y.alloc(o(9), Gfp::KERNEL).unwrap();
        y.free(a, o(3)).unwrap();
        y.free(b, o(0)).unwrap();
        y.count_event(VmEvent::allocstall(ZoneKind::Normal), 2);
        y.count_event(VmEvent::ThpFaultFallback, 1);
        y.count_event(VmEvent::pgskip(ZoneKind::Dma), 5);

        let e = y.vm_events();
        assert_eq!(e.get(VmEvent::pgalloc(ZoneKind::Dma)), 1);
        assert_eq!(e.get(VmEvent::pgalloc(ZoneKind::Dma32)), 8 + 512);
        assert_eq!(e.get(VmEvent::PgFree), 8 + 1);
        assert_eq!(e.by_name("allocstall_normal"), Some(2));
        assert_eq!(e.by_name("pgskip_dma"), Some(5));
        assert_eq!(e.by_name("pgfault"), None, "not the allocator's");
        assert_eq!(e.iter().map(|(_, n)| n).sum::<u64>(), 1 + 520 + 9 + 2 + 1 + 5);

        let mut text = String::new();
        text::write_vmstat(&mut text, y, &Kernel).unwrap();
        for line in ["pgalloc_dma32 520", "pgalloc_normal 1000", "pgfree 9", "thp_fault_fallback 1"]
        {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    });
}

#[test]
fn s9_1_vmstat_has_every_counter_in_order_and_ends_with_nr_unstable() {
    Machine::normal(4096).run(|y: &Y<'_>| {
        let mut text = String::new();
        text::write_vmstat(&mut text, y, &()).unwrap();
        let names = text.lines().map(|l| l.split_once(' ').unwrap().0);
        let expected = ZONE_STATS
            .into_iter()
            .chain(NUMA_STATS)
            .chain(NODE_STATS)
            .chain(MACHINE_STATS)
            .chain(EVENTS)
            .chain(["nr_unstable"]);
        assert!(names.eq(expected), "{text}");
        assert!(text.ends_with("\nnr_unstable 0\n"), "{text}");
    });
}

#[test]
fn every_event_of_the_allocator_has_a_line() {
    let mut names = EVENTS.iter().chain(&CMA_EVENTS);
    for e in VmEvent::ALL {
        let name = e.name();
        assert!(names.clone().any(|n| *n == name), "{name}");
        // In the order of vmstat, except for the two optional ones.
        assert!(name.starts_with("cma") || names.any(|n| *n == name), "{name} is out of order");
    }
}
