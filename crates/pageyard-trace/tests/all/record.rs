//! Recording: from a tree of files as tracefs has them, and on this machine where it can trace.
//!
//! `tracefs.tar.xz` holds what a 6.18 kernel had in tracefs, `/proc` and `/sys`, with the raw
//! buffers of two CPUs; `tracefs.txt.xz` is the text that the kernel made of the same events.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pageyard_trace::record::{RecordError, RecordOptions, Recorder};
use pageyard_trace::state::{PfnMap, StateDir};
use pageyard_trace::{Decompressed, Kind, Options, Record, TraceReader};
use tempfile::TempDir;

use crate::common::read;

fn data(name: &str) -> Decompressed {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "data", name].iter().collect();
    Decompressed::new(File::open(path).unwrap()).unwrap()
}

/// Unpacks the tree.
fn tree() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-x", "-C"]).arg(folder.path()).stdin(Stdio::piped());
    let mut tar = tar.spawn().unwrap();
    io::copy(&mut data("tracefs.tar.xz"), &mut tar.stdin.take().unwrap()).unwrap();
    assert!(tar.wait().unwrap().success());
    folder
}

fn options(tree: &Path) -> RecordOptions {
    RecordOptions {
        tracefs: Some(tree.join("tracefs")),
        proc: tree.join("proc"),
        sys: tree.join("sys"),
        instance: Some("ci".into()),
        ..RecordOptions::default()
    }
}

fn start(options: &RecordOptions) -> Result<Recorder, RecordError> {
    Recorder::start(options, &mut tempfile::tempfile)
}

/// What starting fails with.
fn refused(options: &RecordOptions) -> RecordError {
    start(options).err().expect("it starts")
}

fn records(reader: &mut TraceReader) -> Vec<Record> {
    reader.by_ref().map(Result::unwrap).collect()
}

/// A record without its time and task.
fn bare(record: &Record) -> (u64, u16, String) {
    match record {
        Record::Event(e) => (e.t_ns, e.cpu, format!("{:?}", e.kind)),
        Record::Compaction { t_ns, cpu, what, .. } => (*t_ns, *cpu, format!("{what:?}")),
        Record::Mark { t_ns, cpu, text } => (*t_ns, *cpu, text.clone()),
    }
}

#[test]
fn the_events_of_a_tree_equal_the_kernels_text() {
    let tree = tree();
    let mut reader = start(&options(tree.path())).unwrap().finish().unwrap().into_reader().unwrap();
    let got = records(&mut reader);
    let mut text = Vec::new();
    data("tracefs.txt.xz").read_to_end(&mut text).unwrap();
    let (expected, of_text) = read(&text, Options::default()).unwrap();
    assert!(expected.len() > 3900);
    assert_eq!(got.len(), expected.len());
    for (n, (a, b)) in got.iter().zip(&expected).enumerate() {
        let ((t_a, cpu_a, a), (t_b, cpu_b, b)) = (bare(a), bare(b));
        assert_eq!((cpu_a, a), (cpu_b, b), "record {n}");
        // The text has microseconds, rounded.
        assert!(t_a.abs_diff(t_b) <= 1000, "record {n}: {t_a} {t_b}");
    }
    let pids = |records: &[Record], reader: &TraceReader| -> Vec<u32> {
        let pid = |r: &Record| match r {
            Record::Event(e) => Some(reader.tasks()[e.task].pid),
            _ => None,
        };
        records.iter().filter_map(pid).collect()
    };
    assert_eq!(pids(&got, &reader), pids(&expected, &of_text));
}

#[test]
fn a_task_has_the_name_of_the_moment() {
    let tree = tree();
    let mut reader = start(&options(tree.path())).unwrap().finish().unwrap().into_reader().unwrap();
    records(&mut reader);
    // The script forked, and its child became /bin/true.
    let named = |name: &str| reader.tasks().iter().find(|t| t.comm == name).map(|t| t.pid);
    let pid = named("true").expect("the child has its name");
    let names: Vec<_> =
        reader.tasks().iter().filter(|t| t.pid == pid).map(|t| t.comm.as_str()).collect();
    assert_eq!(names, ["python3", "true"]);
}

#[test]
fn the_instance_is_set_up_and_left_as_it_was() {
    let tree = tree();
    let ci = |file: &str| {
        fs::read_to_string(tree.path().join("tracefs/instances/ci").join(file)).unwrap()
    };
    fs::write(tree.path().join("tracefs/instances/ci/tracing_on"), "0").unwrap();
    fs::write(tree.path().join("proc/meminfo"), "MemTotal:         262144 kB\n").unwrap();
    let recorder = start(&options(tree.path())).unwrap();
    // A sixteenth of the memory, for two CPUs.
    assert_eq!((ci("trace_clock"), ci("buffer_size_kb")), ("mono".into(), "8192".into()));
    assert_eq!(ci("tracing_on"), "1");
    assert_eq!(ci("events/kmem/mm_page_alloc/enable"), "1");
    assert_eq!(ci("events/vmscan/mm_vmscan_kswapd_wake/enable"), "1");
    assert!(recorder.absent().is_empty());
    drop(recorder.finish().unwrap());
    assert_eq!(ci("tracing_on"), "0");
    assert_eq!(ci("events/kmem/mm_page_alloc/enable"), "0");
    let marks = "TRACE_ON\nSNAPSHOT_FRAMES\nSNAPSHOT_LISTS\nWORKLOAD_START\nWORKLOAD_END\n\
                 SNAPSHOT_LISTS\nTRACE_OFF\n";
    assert_eq!(ci("trace_marker"), marks);

    // Also if the recording is abandoned.
    drop(start(&options(tree.path())).unwrap());
    assert_eq!(ci("tracing_on"), "0");
}

#[test]
fn a_mark_that_cannot_be_written_is_told() {
    let tree = tree();
    let marker = tree.path().join("tracefs/instances/ci/trace_marker");
    fs::remove_file(&marker).unwrap();
    std::os::unix::fs::symlink("/dev/full", &marker).unwrap();
    let notes = start(&options(tree.path())).unwrap().take_notes();
    let told = |mark: &str| {
        notes.iter().any(|n| n.starts_with(&format!("not recorded: the mark {mark}:")))
    };
    assert!(
        ["TRACE_ON", "SNAPSHOT_FRAMES", "SNAPSHOT_LISTS", "WORKLOAD_START"].into_iter().all(told),
        "{notes:?}"
    );
}

/// A kernel was seen to trace a frame number with its highest bit set (`fast_isolate_freepages`).
#[test]
fn an_event_that_cannot_be_read_does_not_lose_the_recording() {
    let tree = tree();
    let pipe = tree.path().join("tracefs/instances/ci/per_cpu/cpu0/trace_pipe_raw");
    let whole = fs::read(&pipe).unwrap();
    let mut unread = 0;
    for at in (256..4096).step_by(64) {
        let mut damaged = whole.clone();
        damaged[at..at + 8].fill(0xff);
        fs::write(&pipe, &damaged).unwrap();
        let recording = start(&options(tree.path())).unwrap().finish().unwrap();
        let mut reader = recording.into_reader().unwrap();
        assert!(records(&mut reader).len() > 1000, "byte {at}");
        unread += reader.summary().malformed.count;
    }
    assert!(unread > 0);
}

/// A recording in an instance that another program uses leaves that program's settings as they were.
#[test]
fn an_instance_gets_back_what_it_had() {
    let tree = tree();
    let ci = tree.path().join("tracefs/instances/ci");
    let (enabled, clock) = ("events/kmem/mm_page_alloc/enable", "trace_clock");
    let had = [
        ("tracing_on", "1\n", "1"),
        (enabled, "1\n", "1"),
        ("events/kmem/mm_page_free/enable", "0\n", "0"),
        (clock, "[local] global mono\n", "local"),
        ("buffer_size_kb", "7 (expanded: 1408)\n", "1408"),
    ];
    for is_finished in [true, false] {
        had.iter().for_each(|(file, before, _)| fs::write(ci.join(file), before).unwrap());
        let recorder = start(&options(tree.path())).unwrap();
        let content = |file: &str| fs::read_to_string(ci.join(file)).unwrap();
        assert_eq!((content(enabled), content(clock)), ("1".into(), "mono".into()));
        if is_finished {
            drop(recorder.finish().unwrap());
        } else {
            drop(recorder);
        }
        for (file, _, after) in had {
            assert_eq!(content(file).trim(), after, "{file}");
        }
    }
    // Buffers of different sizes.
    fs::write(ci.join("buffer_size_kb"), "X\n").unwrap();
    let of_cpu = |cpu: u32| ci.join(format!("per_cpu/cpu{cpu}/buffer_size_kb"));
    fs::write(of_cpu(0), "100\n").unwrap();
    fs::write(of_cpu(1), "200\n").unwrap();
    let recorder = start(&options(tree.path())).unwrap();
    (0..2).for_each(|cpu| fs::write(of_cpu(cpu), "4096\n").unwrap());
    drop(recorder);
    let sizes = [0, 1].map(|cpu| fs::read_to_string(of_cpu(cpu)).unwrap());
    assert_eq!(sizes, ["100", "200"]);
}

#[test]
fn the_machines_state_is_attached() {
    let tree = tree();
    // Frames: free, none, anonymous and mapped.
    let flags: Vec<u8> = [1u64 << 10, 1 << 20, 1 << 5 | 1 << 11 | 1 << 12]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    fs::write(tree.path().join("proc/kpageflags"), &flags).unwrap();
    let mut recorder = start(&options(tree.path())).unwrap();
    assert_eq!(recorder.take_notes(), Vec::<String>::new());
    let reader = recorder.finish().unwrap().into_reader().unwrap();
    let state = StateDir::from_attachments(reader.attachments()).unwrap();
    for moment in [&state.before, &state.traced_start, &state.traced_end, &state.after] {
        assert!(moment.zoneinfo.as_ref().is_some_and(|z| !z.zones.is_empty()));
        assert!(moment.buddyinfo.is_some() && moment.pagetypeinfo.is_some());
        assert!(moment.vmstat.as_ref().is_some_and(|v| v.get("nr_free_pages").is_some()));
    }
    let settings = state.before.sys_vm.unwrap();
    assert_eq!(settings.number("stat_interval"), Some(1));
    assert_eq!(settings.numbers("lowmem_reserve_ratio").map(|n| n.len()), Some(5));
    assert!(state.before.cpu_cache.unwrap().data_slice(1).is_some_and(|bytes| bytes > 0));
    let used = PfnMap::LRU | PfnMap::ANON | PfnMap::MAPPED;
    assert_eq!(state.pfnmap_before.unwrap().frames(), [PfnMap::FREE, PfnMap::NO_PAGE, used]);
    assert!(state.pfnmap_after.is_some());
    assert_eq!(reader.summary().kernel_release.as_deref(), Some("6.18.44-fc-v782"));
    let enabled = state.enabled_events.unwrap();
    assert!(enabled.contains(&"mm_page_pcpu_drain".to_owned()));
}

#[test]
fn state_that_cannot_be_read_is_noted() {
    let tree = tree();
    fs::remove_file(tree.path().join("proc/pagetypeinfo")).unwrap();
    let mut recorder = start(&options(tree.path())).unwrap();
    let notes = recorder.take_notes().join("\n");
    assert!(notes.contains("pagetypeinfo") && notes.contains("kpageflags"), "{notes}");
    let reader = recorder.finish().unwrap().into_reader().unwrap();
    assert!(reader.attachments().get("before/pagetypeinfo").is_none());
    assert!(reader.attachments().get("before/zoneinfo").is_some());
}

#[test]
fn events_that_the_kernel_lacks_are_named() {
    let tree = tree();
    let ci = tree.path().join("tracefs/instances/ci/events");
    fs::remove_dir_all(ci.join("kmem/mm_page_pcpu_drain")).unwrap();
    fs::remove_dir_all(ci.join("vmscan")).unwrap();
    let recorder = start(&options(tree.path())).unwrap();
    assert_eq!(recorder.absent().len(), 6);
    assert_eq!(recorder.absent()[0], "mm_page_pcpu_drain");
    drop(recorder);
    fs::remove_dir_all(ci.join("kmem")).unwrap();
    assert!(refused(&options(tree.path())).what.contains("no page events"));
}

#[test]
fn lost_events_are_counted() {
    let tree = tree();
    let cpu = tree.path().join("tracefs/instances/ci/per_cpu/cpu1");
    let finish = || start(&options(tree.path())).unwrap().finish().unwrap().lost;
    assert_eq!(finish(), 0);
    // The kernel's count.
    fs::write(cpu.join("stats"), "entries: 0\noverrun: 16\ndropped events: 1\n").unwrap();
    assert_eq!(finish(), 17);
    // What is written must say so too, or a replay would not warn.
    let recording = start(&options(tree.path())).unwrap().finish().unwrap();
    let mut reader = recording.into_reader().unwrap();
    records(&mut reader);
    assert_eq!(reader.summary().lost, 17);
    // The head of a sub-buffer: a gap of an unknown number.
    fs::write(cpu.join("stats"), "").unwrap();
    let mut raw = fs::read(cpu.join("trace_pipe_raw")).unwrap();
    raw[11] |= 0x80;
    fs::write(cpu.join("trace_pipe_raw"), raw).unwrap();
    let recording = start(&options(tree.path())).unwrap().finish().unwrap();
    assert_eq!(recording.lost, 1);
    let mut reader = recording.into_reader().unwrap();
    records(&mut reader);
    assert_eq!(reader.summary().lost, 1);
}

#[test]
fn a_missing_tracefs_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &Path| RecordOptions { tracefs: Some(path.into()), ..options(folder.path()) };
    let empty = refused(&at(folder.path())).to_string();
    assert!(empty.contains("not mounted") && empty.contains("mount -t tracefs"), "{empty}");
    let none = refused(&at(&folder.path().join("x"))).to_string();
    assert!(none.contains("no such folder") && none.contains("--tracefs"), "{none}");
    let tree = tree();
    let other = RecordOptions { instance: Some("x".into()), ..options(tree.path()) };
    assert!(refused(&other).to_string().contains("no such tracing instance"));
}

#[test]
fn a_full_disk_ends_the_recording() {
    let tree = tree();
    let mut full = || File::options().write(true).open("/dev/full");
    fs::write(tree.path().join("tracefs/instances/ci/tracing_on"), "0").unwrap();
    let recorder = Recorder::start(&options(tree.path()), &mut full).unwrap();
    let error = recorder.finish().err().expect("it fails").to_string();
    assert!(error.contains("free some space"), "{error}");
    let on = fs::read_to_string(tree.path().join("tracefs/instances/ci/tracing_on")).unwrap();
    assert_eq!(on, "0");
}

#[test]
fn instances_of_ended_recordings_are_removed() {
    let tree = tree();
    let instances = tree.path().join("tracefs/instances");
    let (stale, alive) = (instances.join("pageyard-999999999"), instances.join("pageyard-1"));
    fs::create_dir(&stale).unwrap();
    fs::create_dir(&alive).unwrap();
    let mut recorder = start(&options(tree.path())).unwrap();
    assert!(recorder.take_notes().join("\n").contains("pageyard-999999999"));
    assert!(!stale.exists() && alive.exists());
    drop(recorder);

    // The process may be in another PID namespace: what cannot be removed is left as it is.
    let other = instances.join("pageyard-999999998");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("tracing_on"), "1").unwrap();
    let mut recorder = start(&options(tree.path())).unwrap();
    assert!(recorder.take_notes().join("\n").contains("could not be removed"));
    assert_eq!(fs::read_to_string(other.join("tracing_on")).unwrap(), "1");
    drop(recorder);

    // A new instance has no files in a folder that is not tracefs. What was made is removed.
    let new = RecordOptions { instance: None, ..options(tree.path()) };
    assert!(refused(&new).object.contains("tracing_on"));
    assert!(!instances.join(format!("pageyard-{}", std::process::id())).exists());
}

/// tracefs, mounted for a test if it is not.
struct Mounted {
    path: PathBuf,
    own: Option<TempDir>,
}

impl Mounted {
    fn new() -> Option<Self> {
        let usual = PathBuf::from("/sys/kernel/tracing");
        let (path, own) = if usual.join("events").exists() {
            (usual, None)
        } else {
            let folder = tempfile::tempdir().unwrap();
            let mut mount = Command::new("mount");
            mount.args(["-t", "tracefs", "nodev"]).arg(folder.path()).stderr(Stdio::null());
            mount.status().ok().filter(|status| status.success())?;
            (folder.path().to_owned(), Some(folder))
        };
        let mounted = Mounted { path, own };
        let probe = mounted.path.join("instances/pageyard-probe");
        fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe)).ok()?;
        Some(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let _ = Command::new("umount").arg(own.path()).status();
        }
    }
}

#[test]
fn this_machine_is_recorded() {
    let mounted = Mounted::new();
    if !pageyard_unmet::met("tracefs that this user may trace with (root)", mounted.is_some()) {
        return;
    }
    let mounted = mounted.unwrap();
    let options = RecordOptions { tracefs: Some(mounted.path.clone()), ..Default::default() };
    let recorder = start(&options).unwrap();
    let instance = mounted.path.join(format!("instances/pageyard-{}", std::process::id()));
    assert!(instance.exists());
    for _ in 0..3 {
        assert!(Command::new("true").status().unwrap().success());
    }
    let recording = recorder.finish().unwrap();
    assert!(!instance.exists(), "the instance stays");
    assert_eq!(recording.lost, 0);
    let mut reader = recording.into_reader().unwrap();
    let all = records(&mut reader);
    let of_true = |r: &&Record| {
        matches!(r, Record::Event(e) if reader.tasks()[e.task].comm == "true"
            && matches!(e.kind, Kind::Alloc { .. }))
    };
    assert!(all.iter().filter(of_true).count() > 3, "no allocations of the workload");
    let marks: Vec<_> = all
        .iter()
        .filter_map(|r| match r {
            Record::Mark { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(marks.first(), Some(&"TRACE_ON"));
    assert!(marks.contains(&"WORKLOAD_START") && marks.contains(&"TRACE_OFF"));
    let state = StateDir::from_attachments(reader.attachments()).unwrap();
    assert!(state.traced_start.zoneinfo.is_some() && state.kernel_release.is_some());
}
