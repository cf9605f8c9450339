//! Spec §9.1, §9.4: files printed by real kernels are reproduced by our writers, also through an
//! allocator restored to the recorded state; and states of the oracle print the recorded figures.
//!
//! The files are in this repository. `PAGEYARD_SHARED=DIR` names a folder with more: every trace
//! folder in `DIR/traces` and every recording in `DIR/oracle` is tested as well.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use pageyard::tuning::{Limits, Tuning};
use pageyard::{
    CpuId, CpuRecord, Hooked, Knobs, Layout, MigrateType, NodeId, Order, Pfn, Record, Yard, ZoneId,
    ZoneKind, ZoneRecord, ZoneSpec,
};
use pageyard_lab::show::{Form, Moment, ShowError, When, show, snapshot_text, yard_text};
use pageyard_lab::{Lock, Memory};
use pageyard_report::text::Extra;
use pageyard_trace::state::{
    BuddyInfo, Counters, PageTypeInfo, Snapshot, StateDir, Zone, ZoneInfo,
};
use pageyard_trace::{Attachments, Options, TraceReader};
use serde_json::Value;

use crate::{repository, sample};

fn shared() -> Option<PathBuf> {
    std::env::var_os("PAGEYARD_SHARED").map(PathBuf::from)
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut all: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

/// State files by trace: those of the sample, then those of the shared folder.
fn traces() -> Vec<(String, Attachments)> {
    let trace = sample("kbuild.pgy");
    let reader = TraceReader::open(&trace, Options::default()).unwrap();
    let mut all = vec![("kbuild.pgy".to_owned(), reader.attachments().clone())];
    if let Some(shared) = shared() {
        for folder in sorted(&shared.join("traces")).into_iter().filter(|p| p.is_dir()) {
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            all.push((name, StateDir::collect(&folder).unwrap().0));
        }
    }
    all
}

/// The state files of a machine with two nodes, as a kernel printed them at one moment.
fn two_nodes() -> (String, Attachments) {
    let data = repository().join("crates/pageyard-trace/tests/data");
    let mut files = Attachments::new();
    for name in ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"] {
        let data = fs::read(data.join(format!("{name}-two-nodes"))).unwrap();
        files.insert(format!("before/{name}"), data);
    }
    ("two nodes".to_owned(), files)
}

/// Recordings of the oracle.
fn recordings() -> Vec<PathBuf> {
    let mut all = sorted(&sample("oracle"));
    if let Some(shared) = shared() {
        all.extend(sorted(&shared.join("oracle")));
    }
    all.retain(|p| p.extension().is_some_and(|e| e == "zst"));
    all
}

/// Whether a text is reproduced exactly. `None` for a file of another kind.
fn comes_back(name: &str, data: &[u8]) -> Option<bool> {
    let mut s = Snapshot::default();
    let form = if name.contains("zoneinfo") {
        s.zoneinfo = Some(ZoneInfo::parse(name, data).unwrap());
        Form::Zoneinfo
    } else if name.contains("buddyinfo") {
        s.buddyinfo = Some(BuddyInfo::parse(name, data).unwrap());
        Form::Buddyinfo
    } else if name.contains("pagetypeinfo") {
        s.pagetypeinfo = Some(PageTypeInfo::parse(name, data).unwrap());
        Form::Pagetypeinfo
    } else if name.contains("vmstat") {
        s.vmstat = Some(Counters::parse(name, data).unwrap());
        Form::Vmstat
    } else {
        return None;
    };
    Some(snapshot_text(&s, form).unwrap().as_bytes() == data)
}

#[test]
fn s9_4_files_of_real_kernels_are_reproduced() {
    for (trace, files) in traces() {
        let mut compared = 0;
        for file in files.iter() {
            if let Some(same) = comes_back(&file.name, &file.data) {
                assert!(same, "{trace}: {}", file.name);
                compared += 1;
            }
        }
        assert!(compared >= 8, "{trace}: only {compared} files");
        println!("{trace}: {compared} files, identical");
    }
}

#[test]
fn s9_4_files_of_linux_6_1_and_6_18_and_of_two_nodes_are_reproduced() {
    let data = repository().join("crates/pageyard-trace/tests/data");
    let mut compared = 0;
    for file in sorted(&data).into_iter().filter(|file| file.is_file()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(same) = comes_back(&name, &fs::read(&file).unwrap()) {
            assert!(same, "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 7);
}

fn number(v: &Value) -> u64 {
    v.as_u64().unwrap_or_else(|| panic!("{v} is no number"))
}

fn numbers(v: &Value) -> Vec<u64> {
    v.as_array().unwrap().iter().map(number).collect()
}

/// The states of a recording that are compared, with their lines: up to 12 of them.
fn states(path: &Path) -> Vec<(u64, Value)> {
    let input = zstd::Decoder::new(fs::File::open(path).unwrap()).unwrap();
    let text = std::io::read_to_string(input).unwrap();
    let with_state = (1..).zip(text.lines()).filter(|(_, l)| l.contains("\"state\""));
    let all: Vec<(u64, &str)> = with_state.collect();
    let step = all.len().div_ceil(12);
    let parse = |l: &str| serde_json::from_str::<Value>(l).unwrap()["state"].take();
    all.iter().step_by(step).map(|&(n, l)| (n, parse(l))).collect()
}

#[test]
fn states_of_the_oracle_print_the_recorded_figures() {
    for path in recordings() {
        let states = states(&path);
        // Each text reads the recording from its beginning.
        let some = states.iter().step_by(states.len().div_ceil(8)).chain(states.last());
        some.for_each(|(line, state)| compare(&path, *line, state));
    }
}

/// Compares every zone of a state with the text that is shown for it.
fn compare(path: &Path, line: u64, state: &Value) {
    let states = state.as_array().map_or(std::slice::from_ref(state), Vec::as_slice);
    let shown = |form| show(path, form, When { line: Some(line), ..When::default() }).unwrap();
    // The kernel prints zones from the lowest up.
    let rows = states.iter().rev().map(|state| {
        let orders = state["free"].as_array().unwrap();
        let counts: String = orders.iter().map(|o| format!("{:>6} ", number(&o["nr"]))).collect();
        let zone = state["zone"].as_str().unwrap();
        format!("Node {}, zone {zone:>8} {counts}\n", number(&state["node"]))
    });
    assert_eq!(shown(Form::Buddyinfo).text, rows.collect::<String>(), "{}", path.display());
    states.iter().for_each(|state| compare_zone(path, line, state));
}

fn compare_zone(path: &Path, line: u64, state: &Value) {
    let shown = |form| show(path, form, When { line: Some(line), ..When::default() }).unwrap();
    let place = format!("{}, line {line}", path.display());
    let (zone, node) = (state["zone"].as_str().unwrap(), number(&state["node"]));

    let z = shown(Form::Zoneinfo);
    assert_eq!(z.state, format!("line {line}"));
    let zones = z.json["zones"].as_array().unwrap();
    assert_eq!(zones.len(), 5, "{place}");
    let z = zones.iter().find(|z| z["zone"] == zone).unwrap();
    assert_eq!(number(&z["node"]), node, "{place}");
    let free = state["nr_free"].as_i64().unwrap().max(0);
    assert_eq!(z["free"], free, "{place}");
    assert_eq!(z["counters"]["nr_free_pages"], free, "{place}");
    let boost = number(&state["boost"]);
    for (name, mark) in ["min", "low", "high"].iter().zip(numbers(&state["wmark"])) {
        assert_eq!(z[*name], mark + boost, "{place}: {name}");
    }
    for name in ["boost", "spanned", "present", "managed", "start_pfn"] {
        assert_eq!(z[name], state[name], "{place}: {name}");
    }
    assert_eq!(z["protection"], state["lowmem_reserve"], "{place}");
    let (got, expected) = (z["pagesets"].as_array().unwrap(), state["pcp"].as_array().unwrap());
    assert_eq!(got.len(), expected.len(), "{place}");
    for (p, e) in got.iter().zip(expected) {
        for name in ["cpu", "count", "high", "batch"] {
            assert_eq!(p[name], e[name], "{place}: {name}");
        }
        assert_eq!(p["vm_stats_threshold"], e["stat_threshold"], "{place}");
    }

    let orders = state["free"].as_array().unwrap();
    let types = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate"];
    let p = shown(Form::Pagetypeinfo).json;
    let rows: Vec<_> = p["free"].as_array().unwrap().iter().filter(|r| r["zone"] == zone).collect();
    assert_eq!(rows.len(), 5, "{place}");
    for (t, (row, name)) in rows.iter().zip(types).enumerate() {
        let lists = orders.iter().map(|o| o["lists"][t].as_array().unwrap().len() as u64);
        assert_eq!(row["type"], name, "{place}");
        assert_eq!(numbers(&row["free_blocks"]), lists.collect::<Vec<_>>(), "{place}: {name}");
    }
    let labels = state["blocks"].as_str().unwrap();
    for (digit, name) in "01234".chars().zip(types) {
        let blocks = labels.chars().filter(|&c| c == digit).count();
        let row = p["blocks"].as_array().unwrap().iter().find(|r| r["zone"] == zone).unwrap();
        assert_eq!(row["blocks"][name], blocks, "{place}: {name}");
    }

    let report = shown(Form::ShowMem).text;
    let cached: u64 = expected.iter().map(|e| number(&e["count"])).sum();
    let pages: u64 = (0..).zip(orders).map(|(o, v)| number(&v["nr"]) << o).sum();
    for part in [
        format!("Node {node} {zone} free:{}kB boost:{}kB ", free * 4, boost * 4),
        format!(" reserved_highatomic:{}KB ", number(&state["reserved_highatomic"]) * 4),
        format!(" free_highatomic:{}KB ", number(&state["nr_free_highatomic"]) * 4),
        format!(" free_pcp:{}kB ", cached * 4),
        format!(" = {}kB\n", pages * 4),
    ] {
        assert!(report.contains(&part), "{place}: {part}: {report}");
    }
}

/// The figures of two recorded files that do not come from the allocator.
struct Recorded<'s> {
    zoneinfo: &'s ZoneInfo,
    vmstat: Option<&'s Counters>,
}

impl Extra for Recorded<'_> {
    fn node_stat(&self, node: NodeId, name: &str) -> u64 {
        match self.vmstat {
            Some(sums) if node == NodeId(0) => sums.get(name).unwrap(),
            Some(_) => 0,
            None => {
                let node = self.zoneinfo.nodes.iter().find(|n| n.node == node.0).unwrap();
                node.counters.get(name).unwrap()
            }
        }
    }

    fn zone_stat(&self, node: NodeId, zone: ZoneKind, name: &str) -> u64 {
        match self.vmstat {
            Some(sums) if zone == ZoneKind::Dma => sums.get(name).unwrap(),
            Some(_) => 0,
            None => self.zoneinfo.zone(node.0, zone.name()).unwrap().counters.get(name).unwrap(),
        }
    }

    fn machine_stat(&self, name: &str) -> u64 {
        self.vmstat.unwrap().get(name).unwrap()
    }
}

/// A zone with the recorded numbers of free blocks, pageblocks and cached pages. Their addresses
/// are not recorded and do not matter here.
fn records(zone: &Zone, types: &PageTypeInfo, cpus: &[NodeId]) -> Vec<Record> {
    let marks = &zone.watermarks;
    assert_eq!(marks.boost, 0);
    let mut records = vec![Record::Zone(ZoneRecord {
        present: zone.present,
        managed: zone.managed,
        watermarks: [marks.min, marks.low, marks.high, marks.promo.unwrap()],
        boost: 0,
        flags: 0,
        reserved_highatomic: 0,
        isolated_blocks: 0,
        lowmem_reserve: zone.protection.clone().try_into().unwrap(),
        nr_free: zone.free as i64,
        limits: Limits { batch: zone.pagesets[0].batch as i32, high_min: 0, high_max: 0 },
        nofragment: false,
        grouping_disabled: false,
    })];
    let start = zone.start_pfn.unwrap();
    let kind = |name: &str| MigrateType::ALL.into_iter().find(|t| t.name() == name).unwrap();
    let here = |node: u16, name: &str| node == zone.node && name == zone.name;

    // Pageblocks for the largest free blocks, in pairs, and single ones.
    let free: Vec<_> = types.free.iter().filter(|r| here(r.node, &r.zone)).collect();
    let row = types.blocks.iter().find(|r| here(r.node, &r.zone)).unwrap();
    let (mut single, mut paired) = (Vec::new(), Vec::new());
    for (name, blocks) in &row.counts {
        let of_type = free.iter().find(|r| r.migratetype == *name).unwrap();
        let pairs = of_type.counts[10].blocks;
        single.extend(std::iter::repeat_n(kind(name), (blocks - 2 * pairs) as usize));
        paired.extend(std::iter::repeat_n(kind(name), 2 * pairs as usize));
    }
    // A pair is aligned and inside the zone, so some single pageblocks may have to follow it.
    let (first, end) = (start >> 9, start + zone.spanned);
    let least = usize::from(end % 512 != 0);
    if least > 0 {
        // Unmovable ones, of which there are enough, so that little is lost at the zone's end.
        single.rotate_left(2);
    }
    let aligned = |behind: &usize| (first + (single.len() - behind) as u64).is_multiple_of(2);
    let behind = (least..).find(aligned).unwrap();
    let (before, behind) = single.split_at(single.len() - behind);
    let pairs_at = first + before.len() as u64;
    let behind_at = pairs_at + paired.len() as u64;
    for (i, &migrate_type) in (first..).zip(before.iter().chain(&paired).chain(behind)) {
        records.push(Record::Block { pfn: Pfn((i << 9).max(start)), migrate_type });
    }

    // From the largest order down, each free block lies right below the previous one, and so is
    // aligned.
    let mut room: Vec<(MigrateType, u64, u64)> = Vec::new();
    for (i, &t) in (first..).zip(before).chain((behind_at..).zip(behind)) {
        // At the zone's end, only up to a pageblock boundary.
        let to = if (i + 1) << 9 > end { i << 9 } else { (i + 1) << 9 };
        room.push((t, (i << 9).max(start), to));
    }
    let mut pair = pairs_at << 9;
    for row in &free {
        let t = kind(&row.migratetype);
        for order in (0..=10).rev() {
            for _ in 0..row.counts[order].blocks {
                let pfn = if order == 10 {
                    pair += 1024;
                    pair - 1024
                } else {
                    let fits =
                        |r: &&mut (MigrateType, u64, u64)| r.0 == t && r.2 - r.1 >= 1 << order;
                    let place = room.iter_mut().find(fits).unwrap_or_else(|| {
                        panic!("no room for a {t} block of order {order} in {}", zone.name)
                    });
                    place.2 -= 1 << order;
                    place.2
                };
                let order = Order::new(order as u8).unwrap();
                records.push(Record::Free { pfn: Pfn(pfn), order, migrate_type: t });
            }
        }
    }
    let mut spare = room.iter().flat_map(|&(_, from, to)| from..to);
    for set in &zone.pagesets {
        let cpu = CpuId(set.cpu.into());
        records.push(Record::Cpu(CpuRecord {
            cpu,
            node: cpus[usize::from(set.cpu)],
            tuning: Tuning {
                count: set.count as i32,
                high: set.high as i32,
                limits: Limits { batch: set.batch as i32, high_min: 0, high_max: 0 },
                ..Tuning::default()
            },
            expire: 0,
            diff: 0,
            cma_diff: 0,
            threshold: set.stat_threshold.unwrap() as u32,
        }));
        for _ in 0..set.count {
            let pfn = Pfn(spare.next().expect("room for a cached page"));
            records.push(Record::Cached { cpu, list: 1, pfn });
        }
    }
    records
}

/// Compares recorded files with those of an allocator restored to that state.
fn allocator_prints(place: &str, s: &Snapshot, files: [&str; 2]) {
    let (info, types) = (s.zoneinfo.as_ref().unwrap(), s.pagetypeinfo.as_ref().unwrap());
    let kind = |name: &str| ZoneKind::ALL.into_iter().find(|k| k.name() == name).unwrap();
    let zones: Vec<_> = info
        .populated()
        .map(|z| {
            let start = z.start_pfn.unwrap();
            let span = Pfn(start)..Pfn(start + z.spanned);
            ZoneSpec { kind: kind(&z.name), node: NodeId(z.node), span }
        })
        .collect();
    // The node of each CPU is not recorded and does not show in these texts.
    let (cpus, nodes) = (info.populated().next().unwrap().pagesets.len(), info.nodes.len());
    let cpus: Vec<_> = (0..cpus).map(|c| NodeId(info.nodes[c * nodes / cpus].node)).collect();
    let layout = Layout {
        zones: &zones,
        usable: &[],
        reserved: &[],
        cpus: &cpus,
        distances: &[],
        knobs: Knobs::default(),
    };
    let memory = Memory::for_layout(&layout).unwrap();
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard: Yard<'_, Hooked<Lock, ()>> = Yard::blank(&layout, storage, ()).unwrap();
    for zone in info.populated() {
        let id = ZoneId { node: NodeId(zone.node), kind: kind(&zone.name) };
        yard.restore(id, records(zone, types, &cpus)).unwrap();
    }
    let [zoneinfo, pagetypeinfo] = files;
    let extra = Recorded { zoneinfo: info, vmstat: None };
    assert_eq!(yard_text(&yard, Form::Zoneinfo, &extra), zoneinfo, "{place}");
    assert_eq!(yard_text(&yard, Form::Pagetypeinfo, &extra), pagetypeinfo, "{place}");

    // The kernel's files are read one after the other, so buddyinfo and vmstat may have other free
    // blocks than these two, and may differ only by that.
    let buddyinfo = yard_text(&yard, Form::Buddyinfo, &extra);
    let summed = BuddyInfo::parse("ours", buddyinfo.as_bytes()).unwrap();
    for row in &summed.rows {
        let mut sums = vec![0; 11];
        for r in types.free.iter().filter(|r| r.node == row.node && r.zone == row.zone) {
            sums.iter_mut().zip(&r.counts).for_each(|(sum, n)| *sum += n.blocks);
        }
        assert_eq!(row.free, sums, "{place}: {}", row.zone);
    }
    let vmstat = s.vmstat.as_ref().unwrap();
    let extra = Recorded { zoneinfo: info, vmstat: Some(vmstat) };
    let free: u64 = info.populated().map(|z| z.free).sum();
    let expected: String = vmstat
        .iter()
        .map(|(name, n)| format!("{name} {}\n", if name == "nr_free_pages" { free } else { n }))
        .collect();
    assert_eq!(yard_text(&yard, Form::Vmstat, &extra), expected, "{place}");
}

#[test]
fn an_allocator_in_a_recorded_state_prints_the_recorded_files() {
    let mut compared = BTreeMap::new();
    for (trace, files) in traces().into_iter().chain([two_nodes()]) {
        let states = StateDir::from_attachments(&files).unwrap();
        for (at, s) in [("before", &states.before), ("after", &states.after)] {
            let Some(info) = &s.zoneinfo else { continue };
            let is_6_12 = info.zones[0].watermarks.promo.is_some();
            if !is_6_12 {
                continue;
            }
            let text = |file| {
                let data = files.get(&format!("{at}/{file}")).unwrap();
                std::str::from_utf8(data).unwrap()
            };
            let files = [text("zoneinfo"), text("pagetypeinfo")];
            allocator_prints(&format!("{trace}, {at}"), s, files);
            *compared.entry(info.nodes.len()).or_insert(0) += 1;
        }
    }
    assert!(compared[&1] >= 2 && compared[&2] >= 1);
    println!("states by number of nodes: {compared:?}");
}

#[test]
fn show_mem_of_a_trace_is_made_from_its_files() {
    let trace = sample("kbuild.pgy");
    let report = show(&trace, Form::ShowMem, When::default()).unwrap();
    assert_eq!(report.state, "before");
    let lines: Vec<_> = report.text.lines().collect();
    assert_eq!(lines.len(), 6, "{}", report.text);
    let info = show(&trace, Form::Zoneinfo, When::default()).unwrap().json;
    let dma32 = info["zones"].as_array().unwrap().iter().find(|z| z["zone"] == "DMA32").unwrap();
    let start = format!("Node 0 DMA32 free:{}kB boost:0kB ", number(&dma32["free"]) * 4);
    assert!(lines[2].starts_with(&start), "{}", report.text);
    assert!(lines[4].starts_with("Node 0 DMA: 0*4kB 0*8kB "), "{}", report.text);
    assert!(lines[4].contains("3*4096kB (M) = "), "{}", report.text);
    // The types are unknown without a pagetypeinfo.
    let at = When { at: Some(Moment::TracedStart), ..When::default() };
    let report = show(&trace, Form::ShowMem, at).unwrap();
    assert!(report.text.contains(" 3*4096kB = "), "{}", report.text);
}

#[test]
fn missing_states_are_named() {
    let trace = sample("kbuild.pgy");
    let at = |at| When { at: Some(at), ..When::default() };
    let e = show(&trace, Form::Vmstat, at(Moment::TracedEnd)).unwrap_err();
    assert!(matches!(e, ShowError::Missing { .. }));
    let e = e.to_string();
    assert!(e.contains("no vmstat at \"traced_end\"") && e.ends_with("before, after"), "{e}");
    let e = show(&trace, Form::Vmstat, When { line: Some(1), ..When::default() }).unwrap_err();
    assert!(e.to_string().contains("use --at"), "{e}");

    let recording = sample("oracle/reserves-1.jsonl.zst");
    let e = show(&recording, Form::Vmstat, at(Moment::Before)).unwrap_err();
    assert!(e.to_string().contains("use --line"), "{e}");

    let e = show(Path::new("no/such"), Form::Vmstat, When::default()).unwrap_err();
    assert!(matches!(e, ShowError::Io { .. }) && e.to_string().contains("no/such"), "{e}");

    let folder = tempfile::tempdir().unwrap();
    let e = show(folder.path(), Form::Vmstat, When::default()).unwrap_err();
    assert!(e.to_string().contains("no state files are in this folder"), "{e}");
    let file = folder.path().join("x.bin");
    for content in [&b"\0\x01\x02"[..], b"", b"{\"op\":\"c 1\"}\n", &[0x28, 0xb5, 0x2f, 0xfd, 7]] {
        fs::write(&file, content).unwrap();
        let e = show(&file, Form::Zoneinfo, When::default()).unwrap_err().to_string();
        assert!(e.contains("x.bin"), "{content:?}: {e}");
    }
    fs::create_dir(folder.path().join("after")).unwrap();
    fs::write(folder.path().join("after/buddyinfo"), "Node 0, zone      DMA      1 \n").unwrap();
    let text = show(folder.path(), Form::Buddyinfo, When::default()).unwrap().text;
    assert_eq!(text, "Node 0, zone      DMA      1 \n");
    let e = show(folder.path(), Form::ShowMem, When::default()).unwrap_err();
    assert!(e.to_string().contains("zoneinfo and buddyinfo"), "{e}");
}
