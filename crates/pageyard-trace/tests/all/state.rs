//! State files of several kernels.

use std::fs;

use pageyard_trace::state::{
    BuddyInfo, Counters, CpuCaches, FreeCount, PageTypeInfo, PfnMap, Settings, StateDir, ZoneInfo,
};
use pageyard_trace::{Attachments, Position};

const ZONEINFO_6_1: &[u8] = include_bytes!("../data/zoneinfo-6.1");
const ZONEINFO_6_12: &[u8] = include_bytes!("../data/zoneinfo-6.12-two-nodes");
const ZONEINFO_6_18: &[u8] = include_bytes!("../data/zoneinfo-6.18");
const BUDDYINFO: &[u8] = include_bytes!("../data/buddyinfo-two-nodes");
const PAGETYPEINFO: &[u8] = include_bytes!("../data/pagetypeinfo-two-nodes");
const CPU_CACHE: &[u8] = include_bytes!("../data/cpu_cache");

#[test]
fn zoneinfo_of_linux_6_1_has_neither_promo_nor_limits_of_high() {
    let info = ZoneInfo::parse("zoneinfo", ZONEINFO_6_1).unwrap();
    assert_eq!(info.zones.len(), 5);
    assert_eq!(info.populated().count(), 2);
    assert_eq!(info.nodes.len(), 1);
    assert_eq!(info.nodes[0].counters.get("nr_inactive_anon"), Some(403));
    let dma32 = info.zone(0, "DMA32").unwrap();
    assert_eq!((dma32.free, dma32.managed, dma32.start_pfn), (484_731, 598_791, Some(4096)));
    let marks = dma32.watermarks;
    assert_eq!((marks.min, marks.low, marks.high, marks.promo), (11_192, 13_990, 16_788, None));
    let set = dma32.pagesets[3];
    assert_eq!((set.cpu, set.count, set.high, set.batch), (3, 1860, 3497, 63));
    assert_eq!((set.stat_threshold, set.high_min), (Some(36), None));
    assert_eq!(info.zones[0].protection, [0, 2339, 2339, 2339, 2339]);
    assert_eq!(dma32.counters.get("numa_hit"), Some(112_475));
    assert_eq!(dma32.counters.get("nothing"), None);
}

#[test]
fn zoneinfo_of_linux_6_12_has_the_zones_of_two_nodes() {
    let info = ZoneInfo::parse("zoneinfo", ZONEINFO_6_12).unwrap();
    assert_eq!(info.zones.len(), 10);
    let populated: Vec<_> = info.populated().map(|z| (z.node, z.name.as_str())).collect();
    assert_eq!(populated, [(0, "DMA"), (0, "DMA32"), (1, "DMA32"), (1, "Normal")]);
    let nodes: Vec<_> = info.nodes.iter().map(|n| (n.node, n.counters.get("nr_mapped"))).collect();
    assert_eq!(nodes, [(0, Some(4)), (1, Some(677))]);
    let normal = info.zone(1, "Normal").unwrap();
    assert_eq!(normal.watermarks.promo, Some(12_565));
    assert_eq!(normal.pagesets[2].count, 4447);
    assert_eq!((normal.start_pfn, normal.node_unreclaimable), (Some(1_048_576), false));
    let movable = info.zone(1, "Movable").unwrap();
    assert_eq!((movable.present, movable.start_pfn, movable.watermarks.low), (0, None, 32));
    assert!(movable.pagesets.is_empty());
}

#[test]
fn zoneinfo_of_linux_6_18_has_limits_of_high() {
    let info = ZoneInfo::parse("zoneinfo", ZONEINFO_6_18).unwrap();
    let dma = info.zone(0, "DMA").unwrap();
    let set = dma.pagesets[1];
    assert_eq!((set.count, set.high, set.batch), (0, 0, 1));
    assert_eq!((set.high_min, set.high_max), (Some(25), Some(240)));
    assert_eq!(dma.managed, 3840);
}

#[test]
fn zoneinfo_errors_name_the_line() {
    let cut = ZONEINFO_6_1.windows(9).position(|w| w == b"start_pfn").unwrap();
    let error = ZoneInfo::parse("z", &ZONEINFO_6_1[..cut]).unwrap_err();
    assert!(error.to_string().contains("start_pfn"), "{error}");
    let text = b"Node 0, zone DMA\n  pages free 7\n        min x\n";
    let error = ZoneInfo::parse("z", text).unwrap_err();
    assert_eq!(error.position, Position::Line(3));
    assert!(error.to_string().starts_with("z: line 3: expected "), "{error}");
    for text in ["hello", "Node x, zone DMA", "Node 0, zone DMA\n pagesets\n count: 1", "Node 0"] {
        assert!(ZoneInfo::parse("z", text.as_bytes()).is_err(), "{text}");
    }
    for file in [ZONEINFO_6_1, ZONEINFO_6_12, ZONEINFO_6_18] {
        for end in 0..file.len() {
            let _ = ZoneInfo::parse("z", &file[..end]);
        }
    }
}

#[test]
fn buddyinfo() {
    let info = BuddyInfo::parse("buddyinfo", BUDDYINFO).unwrap();
    assert_eq!(info.rows.len(), 4);
    assert_eq!(info.zone(1, "Normal").unwrap(), [19, 13, 4, 3, 0, 2, 3, 2, 2, 1, 278]);
    assert_eq!(info.zone(2, "Normal"), None);
    for text in
        ["Node 0, zone DMA", "Node 0, zone DMA 1 x", "Node 0, zone DMA 1\nNode 0, zone N 1 2"]
    {
        assert!(BuddyInfo::parse("b", text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn pagetypeinfo() {
    let info = PageTypeInfo::parse("pagetypeinfo", PAGETYPEINFO).unwrap();
    assert_eq!((info.block_order, info.pages_per_block), (9, 512));
    assert_eq!((info.free.len(), info.blocks.len(), info.mixed.len()), (20, 4, 0));
    let row = &info.free[6];
    assert_eq!((row.node, row.zone.as_str(), row.migratetype.as_str()), (0, "DMA32", "Movable"));
    assert_eq!(row.counts[10], FreeCount { blocks: 479, at_least: false });
    let blocks = &info.blocks[3];
    assert_eq!((blocks.node, blocks.zone.as_str()), (1, "Normal"));
    assert_eq!(blocks.counts[0], ("Unmovable".to_owned(), 134));
    assert_eq!(blocks.counts.len(), 5);

    let more = "Free pages count per migrate type at order       0      1
Node    0, zone      DMA, type    Unmovable >100000      2
Number of mixed blocks    Unmovable      Movable
Node 0, zone      DMA            3            4
";
    let info = PageTypeInfo::parse("pagetypeinfo", more.as_bytes()).unwrap();
    assert_eq!(info.free[0].counts[0], FreeCount { blocks: 100_000, at_least: true });
    assert_eq!(info.mixed[0].counts[1], ("Movable".to_owned(), 4));
    for end in 0..more.len() {
        let _ = PageTypeInfo::parse("p", &more.as_bytes()[..end]);
    }
    assert!(PageTypeInfo::parse("p", &more.as_bytes()[..105]).is_err());
}

#[test]
fn counters_and_settings() {
    let counters = Counters::parse("vmstat", b"nr_free_pages 12\npgalloc_dma 0\n").unwrap();
    assert_eq!((counters.get("nr_free_pages"), counters.len()), (Some(12), 2));
    assert!(Counters::parse("vmstat", b"a 1\nb\n").is_err());
    let text =
        b"lowmem_reserve_ratio:256\t256\t32\t0\t0\nnuma_zonelist_order:Node\nswappiness:60\n";
    let settings = Settings::parse("sys_vm", text).unwrap();
    assert_eq!(settings.number("swappiness"), Some(60));
    assert_eq!(settings.get("numa_zonelist_order"), Some("Node"));
    assert_eq!(settings.numbers("lowmem_reserve_ratio"), Some(vec![256, 256, 32, 0, 0]));
    assert!(Settings::parse("sys_vm", b"no colon").is_err());
    // `grep . /proc/sys/vm/*` prints the folder.
    let settings = Settings::parse("sys_vm", b"/proc/sys/vm/stat_interval:5\n").unwrap();
    assert_eq!(settings.number("stat_interval"), Some(5));
    for wrong in [&b"stat_interval:\n"[..], b"/proc/sys/vm/percpu_pagelist_high_fraction:8 %\n"] {
        let error = Settings::parse("sys_vm", wrong).unwrap_err().to_string();
        assert!(error.starts_with("sys_vm: line 1: expected a number after"), "{error}");
    }
}

#[test]
fn cpu_caches() {
    let caches = CpuCaches::parse("cpu_cache", CPU_CACHE).unwrap();
    assert_eq!(caches.caches.len(), 12);
    let last = caches.last_level(3).unwrap();
    assert_eq!((last.index, last.level, last.size), (3, Some(3), Some(16 << 20)));
    assert_eq!(last.shared_cpus, [1, 3]);
    assert_eq!(caches.data_slice(3), Some(8 << 20));
    assert_eq!(caches.data_slice(4), None);
    let caches = CpuCaches::parse("c", b"cpu0/cache/index0/shared_cpu_list:0-2,7\n").unwrap();
    assert_eq!(caches.caches[0].shared_cpus, [0, 1, 2, 7]);
    for text in
        ["cpu0/cache/index0/size", "cpux/cache/index0/size:1K", "a:b", "cpu0/cache/index0/size:-1"]
    {
        assert!(CpuCaches::parse("c", text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn frames() {
    let map = PfnMap::new(vec![PfnMap::FREE, PfnMap::NO_PAGE, PfnMap::LRU | PfnMap::MAPPED]);
    assert!(map.is_free(0) && !map.is_free(2));
    assert_eq!((map.get(2), map.get(3)), (PfnMap::LRU | PfnMap::MAPPED, PfnMap::NO_PAGE));
    assert_eq!((map.len(), map.get(u64::MAX)), (3, PfnMap::NO_PAGE));
}

#[test]
fn sharers_are_bounded() {
    let mut text = String::new();
    for line in 0..5000 {
        text += &format!("cpu{}/cache/index{}/shared_cpu_list:0-4095\n", line % 4096, line / 4096);
    }
    let error = CpuCaches::parse("c", text.as_bytes()).unwrap_err();
    assert_eq!(error.position, Position::Line(4097), "{error}");
    let caches =
        CpuCaches::parse("c", b"cpu0/cache/index0/shared_cpu_list:5-6,1-3,2-4,6\n").unwrap();
    assert_eq!(caches.caches[0].shared_cpus, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn lists_of_a_zone_are_in_the_order_of_their_cpus() {
    let good = str::from_utf8(ZONEINFO_6_1).unwrap();
    for cpu in ["cpu: 0", "cpu: 4096"] {
        let text = good.replacen("cpu: 1\n", &format!("{cpu}\n"), 1);
        assert_ne!(text, good);
        let error = ZoneInfo::parse("zoneinfo", text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("expected CPUs below 4096 in ascending order"), "{error}");
    }
}

#[test]
fn decompression_bombs_in_state_files_are_rejected() {
    let folder = std::env::temp_dir().join(format!("pageyard-expands-{}", std::process::id()));
    fs::create_dir_all(folder.join("before")).unwrap();
    let packed = zstd::bulk::compress(&vec![b'\n'; 5 << 20], 3).unwrap();
    // Each file is within the limit, all of them together are not.
    for name in ["before/vmstat.zst", "before/sys_vm.zst"] {
        fs::write(folder.join(name), &packed).unwrap();
    }
    let error = StateDir::beside(&folder).unwrap_err().to_string();
    let says = "before/sys_vm.zst: the state files: ";
    assert!(error.contains(says) && error.contains("decompress it first"), "{error}");
    // Uncompressed files do not count against that limit.
    fs::remove_file(folder.join("before/sys_vm.zst")).unwrap();
    fs::write(folder.join("before/sys_vm"), vec![b'\n'; 5 << 20]).unwrap();
    StateDir::beside(&folder).unwrap();

    fs::write(folder.join("before/sys_vm"), vec![b'\n'; (64 << 20) + 1]).unwrap();
    let error = StateDir::beside(&folder).unwrap_err().to_string();
    assert!(error.contains("before/sys_vm: more than 67108864 bytes"), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_pipe_as_a_state_file_is_not_read() {
    let folder = std::env::temp_dir().join(format!("pageyard-fifo-{}", std::process::id()));
    fs::create_dir_all(folder.join("before")).unwrap();
    let fifo = folder.join("before/vmstat");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let error = StateDir::beside(&folder).unwrap_err().to_string();
    assert!(error.contains("before/vmstat: not a regular file"), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_folder_of_state_files() {
    let folder = std::env::temp_dir().join(format!("pageyard-state-{}", std::process::id()));
    fs::create_dir_all(folder.join("before")).unwrap();
    fs::write(folder.join("before/buddyinfo"), BUDDYINFO).unwrap();
    fs::write(folder.join("before/unrelated"), "x").unwrap();
    fs::write(folder.join("zoneinfo.traced_start"), ZONEINFO_6_12).unwrap();
    let packed = zstd::bulk::compress(&[PfnMap::FREE; 100], 3).unwrap();
    fs::write(folder.join("pfnmap.after.zst"), packed).unwrap();
    fs::write(folder.join("trace.txt"), "").unwrap();

    let state = StateDir::beside(folder.join("trace.txt")).unwrap();
    assert_eq!(state, StateDir::beside(&folder).unwrap());
    assert_eq!(state.before.buddyinfo.as_ref().unwrap().rows.len(), 4);
    assert_eq!(state.traced_start.zoneinfo.as_ref().unwrap().zones.len(), 10);
    assert_eq!(state.pfnmap_after.as_ref().unwrap().len(), 100);
    assert!(state.after.vmstat.is_none() && state.pfnmap_before.is_none());

    let (files, _) = StateDir::collect(&folder).unwrap();
    let names: Vec<_> = files.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["before/buddyinfo", "zoneinfo.traced_start", "pfnmap.after"]);
    assert_eq!(StateDir::from_attachments(&files).unwrap(), state);

    fs::write(folder.join("before/vmstat"), "a 1\nb b b\n").unwrap();
    let read = StateDir::beside(&folder).map(drop);
    for error in [read, StateDir::collect(&folder).map(drop)].map(Result::unwrap_err) {
        assert!(error.input.ends_with("before/vmstat"), "{error}");
        assert_eq!(error.position, Position::Line(2));
    }
    fs::write(folder.join("before/vmstat"), b"\x28\xb5\x2f\xfd").unwrap();
    assert!(StateDir::beside(&folder).is_err());
    fs::remove_dir_all(&folder).unwrap();
    let error = StateDir::beside(&folder).unwrap_err();
    assert_eq!((error.position, &*error.input), (Position::Whole, &*folder.to_string_lossy()));
    assert_eq!(StateDir::from_attachments(&Attachments::new()).unwrap(), StateDir::default());
}

/// Files in a folder of this test alone, and what is read from it for the trace `build.txt`.
fn beside(test: &str, files: &[(&str, &[u8])]) -> StateDir {
    let folder = std::env::temp_dir().join(format!("pageyard-{test}-{}", std::process::id()));
    for (name, data) in files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }
    std::fs::write(folder.join("build.txt"), "").unwrap();
    let state = StateDir::beside(folder.join("build.txt")).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    state
}

const ONE_ZONE: &[u8] = b"Node 0, zone      DMA      1      0      2 \n";

#[test]
fn a_state_file_with_a_similar_name_is_used_or_named() {
    let state = beside(
        "near",
        &[
            ("build.txt", b""),
            ("build.buddyinfo", ONE_ZONE),
            ("vmstat-after.txt", b"nr_free_pages 7\n"),
            ("vmstat.old", b"nr_free_pages 7\n"),
            ("sys_vm", b"no setting\n"),
        ],
    );
    assert_eq!(state.before.buddyinfo.unwrap().rows[0].free, [1, 0, 2]);
    assert_eq!(state.after.vmstat.unwrap().get("nr_free_pages"), Some(7));
    assert!(state.before.sys_vm.is_none() && state.before.vmstat.is_none());
    let notes = state.notes;
    assert_eq!(notes[0], "build.buddyinfo is used as before/buddyinfo");
    assert!(
        notes[1].starts_with("sys_vm is not used: before/sys_vm: line 1: expected"),
        "{notes:?}"
    );
    assert_eq!(notes[2], "vmstat-after.txt is used as after/vmstat");
    assert!(notes[3].starts_with("vmstat.old is not used: the names of"), "{notes:?}");
}

#[test]
fn two_files_for_one_name_are_named_and_not_used() {
    let state =
        beside("two", &[("buddyinfo", ONE_ZONE), ("buddyinfo.txt", ONE_ZONE), ("uname", b"x")]);
    assert!(state.before.buddyinfo.is_none() && state.is_empty());
    assert_eq!(state.notes.len(), 2);
    assert!(state.notes[0].starts_with("buddyinfo is not used: another file may be"));
    // The expected name precedes any other.
    let state = beside("both", &[("buddyinfo", b"?"), ("before/buddyinfo", ONE_ZONE)]);
    assert!(state.before.buddyinfo.is_some());
    assert_eq!(state.notes, ["buddyinfo is not used: before/buddyinfo is there too"]);
}

#[test]
fn state_files_beside_a_trace_are_used_unless_others_are_attached() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, data: &[u8]| fs::write(folder.path().join(name), data).unwrap();
    write("buddyinfo.traced_end", ONE_ZONE);
    write("kernel_release", b"6.1.1\n");
    let of = |files: &Attachments| StateDir::of_trace(files, Some(folder.path())).unwrap();
    // Every import may add these two, so they are no state.
    let mut files = Attachments::new();
    files.set_kernel_release("6.12.30");
    files.set_enabled_events(&["mm_page_free".to_owned()]);
    let state = of(&files);
    assert!(state.traced_end.buddyinfo.is_some() && state.notes.is_empty());
    assert_eq!(state.kernel_release.as_deref(), Some("6.12.30"));
    assert_eq!(state.enabled_events.unwrap(), ["mm_page_free"]);
    assert_eq!(of(&Attachments::new()).kernel_release.as_deref(), Some("6.1.1"));
    assert!(StateDir::of_trace(&files, None).unwrap().traced_end.buddyinfo.is_none());

    files.insert("before/buddyinfo", ONE_ZONE.to_vec());
    let state = of(&files);
    assert!(state.before.buddyinfo.is_some() && state.traced_end.buddyinfo.is_none());
    assert_eq!(
        state.notes,
        [
            "not used, since the trace has state files attached: buddyinfo.traced_end, kernel_release"
        ]
    );
    // Files that are attached too are no news.
    files.insert("buddyinfo.traced_end", ONE_ZONE.to_vec());
    files.set_kernel_release("6.1.1");
    assert!(of(&files).notes.is_empty());
}

#[test]
fn the_release_of_the_kernel_is_read_from_files() {
    let of = |name, data: &[u8]| beside("release", &[(name, data)]).kernel_release;
    assert_eq!(of("kernel_release", b"6.12.30\n").as_deref(), Some("6.12.30"));
    assert_eq!(
        of("before/uname", b"Linux h 6.1.0-56-amd64 #1\n").as_deref(),
        Some("6.1.0-56-amd64")
    );
    assert_eq!(of("version", b"Linux version 6.6.2 (x)\n").as_deref(), Some("6.6.2"));
    assert_eq!(of("version", b"1.0 of something\n"), None);
    let mut files = Attachments::new();
    files.insert("kernel_release", b"six\n".to_vec());
    let error = StateDir::from_attachments(&files).unwrap_err().to_string();
    assert!(error.starts_with("kernel_release: line 1: expected a kernel release"), "{error}");
}
