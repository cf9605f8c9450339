//! Sweeps of small workloads and of the sample trace.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use pageyard_machine::Stop;
use pageyard_sweep::{
    CELLS, CellResult, Done, Plan, Store, SweepError, finish, fronts, html, parquet, run, text,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use tempfile::TempDir;

const SMALL: &str = r#"
policies = ["Base", "Linux612"]
seeds = [1, 2, 3]
[knobs]
high = [50, 400]
[[workload]]
name = "micro"
machines = ["desktop"]
memory = "256M"
set = { orders = 1, rounds = 3, blocks = 16 }
"#;

fn described(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("sweep.toml");
    fs::write(&path, text).unwrap();
    path
}

fn plan(text: &str) -> (TempDir, Plan) {
    let folder = TempDir::new().unwrap();
    let plan = Plan::read(&described(folder.path(), text)).unwrap();
    (folder, plan)
}

fn all(plan: &Plan, folder: &Path, jobs: usize) -> (Done, Vec<CellResult>) {
    let store = Store::open(&folder.join(CELLS)).unwrap();
    run(plan, &store, "program", jobs, u64::MAX, &Stop::default(), &|_| {}).unwrap()
}

fn wrong(text: &str) -> String {
    let folder = TempDir::new().unwrap();
    Plan::read(&described(folder.path(), text)).unwrap_err().to_string()
}

#[test]
fn cells_are_all_combinations_and_have_distinct_keys() {
    let (_folder, plan) = plan(SMALL);
    assert_eq!(plan.cells.len(), 2 * 2 * 3);
    let keys: HashSet<String> = plan.cells.iter().map(|cell| cell.key("program")).collect();
    assert_eq!(keys.len(), 12);
    assert!(!keys.contains(&plan.cells[0].key("another program")));
    assert_eq!(
        plan.cells[0].name(),
        "micro blocks=16 orders=1 rounds=3 (memory=256M) on desktop, Base+high=50, seed 1"
    );
}

/// As on the command line, a policy's own setting stays.
#[test]
fn knobs_leave_a_policys_own_setting() {
    let text = SMALL.replace("policies = [", "policies = [\"Step5+high=7\", ");
    let (_folder, plan) = plan(&text);
    let of_it = plan.cells.iter().filter(|cell| cell.name().contains("Step5"));
    let names: HashSet<String> = of_it.map(|cell| cell.name()).collect();
    assert!(names.iter().all(|name| name.contains(" Step5+high=7, seed ")), "{names:?}");
    assert_eq!(names.len(), 3, "one for each seed");
}

#[test]
fn works_that_differ_in_any_option_have_distinct_names() {
    let folder = TempDir::new().unwrap();
    for (name, pfn) in [("one", 1), ("two", 2)] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let event = format!("a-1 [000] 1.0: mm_page_free: page=0x1 pfn={pfn} order=0\n");
        fs::write(folder.path().join(name).join("a.txt"), event).unwrap();
    }
    let mut text = "policies = [\"Base\"]\n".to_owned();
    for options in
        ["", "memory = \"256M\"", "memory = \"257M\"", "descriptor = 64", "iterations = 2"]
    {
        text += "[[workload]]\nname = \"micro\"\nmachines = [\"desktop\"]\n";
        text += &format!("{options}\n");
    }
    for options in ["", "memory = \"1G\"", "cpus = 2", "lenient = true", "tick_phase = \"0.5\""] {
        text += &format!("[[trace]]\nfile = \"one/a.txt\"\n{options}\n");
    }
    text += "[[trace]]\nfile = \"two/a.txt\"\n";
    let plan = Plan::read(&described(folder.path(), &text)).unwrap();
    let names: Vec<String> = plan.cells.iter().map(|cell| cell.input()).collect();
    assert_eq!(names.iter().collect::<HashSet<_>>().len(), 11, "{names:?}");
    let one = folder.path().join("one/a.txt");
    assert!(names.contains(&format!("{} (memory=1G)", one.display())), "{names:?}");
    assert!(names.contains(&"micro (descriptor=64)".to_owned()), "{names:?}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let (folder, plan) = plan(SMALL);
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let (_, first) = all(&plan, &one, 1);
    let (_, second) = all(&plan, &two, 4);
    assert_eq!(first, second);
    finish("sweep", &one, &first).unwrap();
    finish("sweep", &two, &second).unwrap();
    for file in ["results.parquet", "index.html"] {
        assert_eq!(fs::read(one.join(file)).unwrap(), fs::read(two.join(file)).unwrap(), "{file}");
    }
}

#[test]
fn finished_cells_are_not_computed_again() {
    let (folder, plan) = plan(SMALL);
    let (done, first) = all(&plan, folder.path(), 2);
    assert_eq!(done, Done { cells: 12, cached: 0, computed: 12 });
    let (done, second) = all(&plan, folder.path(), 2);
    assert_eq!(done, Done { cells: 12, cached: 12, computed: 0 });
    assert_eq!(first, second);
    // One more seed: only its cells are new.
    let more = SMALL.replace("[1, 2, 3]", "[1, 2, 3, 4]");
    let more = Plan::read(&described(folder.path(), &more)).unwrap();
    assert_eq!(all(&more, folder.path(), 2).0, Done { cells: 16, cached: 12, computed: 4 });
}

#[test]
fn a_damaged_or_foreign_file_is_not_a_result() {
    let (folder, plan) = plan(SMALL);
    let (_, results) = all(&plan, folder.path(), 2);
    let file = |n: usize| folder.path().join(CELLS).join(format!("{}.json", results[n].key));
    fs::write(file(0), "{").unwrap();
    fs::copy(file(2), file(1)).unwrap();
    let (done, again) = all(&plan, folder.path(), 2);
    assert_eq!((done.cached, done.computed), (10, 2));
    assert_eq!(again, results);
}

#[test]
fn a_stopped_sweep_keeps_what_is_finished_and_continues() {
    let (folder, plan) = plan(SMALL);
    let store = Store::open(&folder.path().join(CELLS)).unwrap();
    let stop = Stop::default();
    let last = Mutex::new(Done::default());
    let stopped = run(&plan, &store, "program", 2, u64::MAX, &stop, &|done| {
        *last.lock().unwrap() = done;
        if done.computed >= 3 {
            stop.request();
        }
    });
    assert!(matches!(stopped, Err(SweepError::Stopped)));
    let kept = fs::read_dir(folder.path().join(CELLS)).unwrap().count();
    assert!((3..12).contains(&kept), "{kept}");
    // What a killed process leaves is removed, that of a running one is not.
    let cells = folder.path().join(CELLS);
    let [dead, alive, other] = partials(&cells, "k.json");
    let (done, results) = all(&plan, folder.path(), 2);
    assert_eq!((done.cached, done.computed), (kept, 12 - kept));
    assert!(!dead.exists() && alive.exists() && other.exists());
    let whole = TempDir::new().unwrap();
    assert_eq!(results, all(&plan, whole.path(), 1).1);
}

#[test]
fn a_cell_without_a_number_is_not_computed_again() {
    let (folder, plan) = plan(SMALL);
    let (_, mut results) = all(&plan, folder.path(), 2);
    let store = Store::open(&folder.path().join(CELLS)).unwrap();
    results[0].values[0].value = None;
    store.put(&results[0]).unwrap();
    let (done, again) = all(&plan, folder.path(), 2);
    assert_eq!((done.computed, &again), (0, &results));
    // The table has its row, without a value.
    let bytes = parquet(&results).unwrap();
    let path = folder.path().join("table.parquet");
    fs::write(&path, bytes).unwrap();
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut rows = reader.get_row_iter(None).unwrap();
    assert!(rows.next().unwrap().unwrap().get_double(8).is_err());
    assert_eq!(rows.next().unwrap().unwrap().get_double(8).ok(), results[0].values[1].value);
}

#[test]
fn what_an_interrupted_finish_left_is_removed() {
    let (folder, plan) = plan(SMALL);
    let (_, results) = all(&plan, folder.path(), 2);
    let left = ["results.parquet", "index.html"].map(|name| partials(folder.path(), name));
    finish("sweep", folder.path(), &results).unwrap();
    for [dead, alive, other] in left {
        assert!(!dead.exists() && alive.exists() && other.exists());
    }
}

/// Partial files of a process that has ended, of this one, and of a process of another container,
/// which may run although none here has its number.
fn partials(folder: &Path, name: &str) -> [PathBuf; 3] {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let space = fs::read_link("/proc/self/ns/pid").unwrap();
    let space = space.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
    let here = format!("{}-{space}", boot.trim());
    let processes = [
        format!("{here}-999999999"),
        format!("{here}-{}", std::process::id()),
        format!("{here}0-999999999"),
    ];
    processes.map(|process| {
        let path = folder.join(format!("{name}.{process}-7.partial"));
        fs::write(&path, "{").unwrap();
        path
    })
}

#[test]
fn a_cell_larger_than_the_memory_runs_alone() {
    let (folder, plan) = plan(SMALL);
    let store = Store::open(&folder.path().join(CELLS)).unwrap();
    assert!(plan.cells[0].memory() > 1);
    let (done, _) = run(&plan, &store, "p", 4, 1, &Stop::default(), &|_| {}).unwrap();
    assert_eq!(done.computed, 12);
}

#[test]
fn a_trace_is_known_by_its_content() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy");
    let folder = TempDir::new().unwrap();
    fs::copy(sample, folder.path().join("a.pgy")).unwrap();
    fs::copy(sample, folder.path().join("b.pgy")).unwrap();
    let of = |name: &str| {
        let text = format!("policies = [\"Base\"]\n[[trace]]\nfile = \"{name}\"\n");
        Plan::read(&described(folder.path(), &text)).unwrap()
    };
    let (a, b) = (of("a.pgy"), of("b.pgy"));
    assert_eq!(a.cells[0].key("p"), b.cells[0].key("p"));
    let (done, results) = all(&a, folder.path(), 1);
    assert_eq!(done.computed, 1);
    let zone_pages = results[0].values.iter().find(|v| v.metric == "zone_pages").unwrap();
    assert_eq!(zone_pages.value, Some(109_920.0), "the README's table");
    let (done, renamed) = all(&b, folder.path(), 1);
    assert_eq!((done.cached, renamed[0].cell.input().as_str()), (1, "b.pgy"));
    // One byte more is another trace.
    let mut bytes = fs::read(sample).unwrap();
    bytes.push(0);
    fs::write(folder.path().join("b.pgy"), bytes).unwrap();
    assert_ne!(of("b.pgy").cells[0].key("p"), a.cells[0].key("p"));
}

#[test]
fn a_trace_that_changes_after_the_plan_gives_no_result() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy");
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("a.txt");
    let line = |pfn: u32| format!("a-1 [000] 1.0: mm_page_free: page=0x1 pfn={pfn:#x} order=0\n");
    fs::write(&trace, line(0x100)).unwrap();
    let text = "policies = [\"Base\"]\n[[trace]]\nfile = \"a.txt\"\n";
    let plan = Plan::read(&described(folder.path(), text)).unwrap();
    let store = Store::open(&folder.path().join(CELLS)).unwrap();
    // A valid trace. The cell's key has the hash of the first one.
    fs::copy(sample, &trace).unwrap();
    let changed = run(&plan, &store, "p", 1, u64::MAX, &Stop::default(), &|_| {}).unwrap_err();
    assert!(changed.to_string().contains("a.txt: its content is not"), "{changed}");
    assert_eq!(fs::read_dir(folder.path().join(CELLS)).unwrap().count(), 0);
}

#[test]
fn an_unreadable_trace_is_reported_before_anything_runs() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy");
    let folder = TempDir::new().unwrap();
    let trace = folder.path().join("cut.pgy");
    let bytes = fs::read(sample).unwrap();
    let text = format!("{SMALL}[[trace]]\nfile = \"cut.pgy\"\n");
    // Its head is whole, so only reading on shows that the rest is missing. The text lacks the size
    // of the memory; no replay can begin.
    let free = b"a-1 [000] 1.0: mm_page_alloc: page=0x1 pfn=0x100 order=0\n";
    for content in [&bytes[..bytes.len() / 2], free] {
        fs::write(&trace, content).unwrap();
        let plan = Plan::read(&described(folder.path(), &text)).unwrap();
        let store = Store::open(&folder.path().join(CELLS)).unwrap();
        let said = run(&plan, &store, "p", 2, u64::MAX, &Stop::default(), &|_| {}).unwrap_err();
        assert!(said.to_string().starts_with(&format!("{}: ", trace.display())), "{said}");
        assert_eq!(fs::read_dir(folder.path().join(CELLS)).unwrap().count(), 0, "{said}");
    }
    // The whole recording with less memory than it has.
    fs::write(&trace, &bytes).unwrap();
    let plan = Plan::read(&described(folder.path(), &format!("{text}memory = \"64M\"\n"))).unwrap();
    let store = Store::open(&folder.path().join(CELLS)).unwrap();
    let said = run(&plan, &store, "p", 2, u64::MAX, &Stop::default(), &|_| {}).unwrap_err();
    assert!(said.to_string().starts_with(&format!("{}: machine: ", trace.display())), "{said}");
}

#[test]
fn the_table_has_a_row_for_every_measurement() {
    let (folder, plan) = plan(SMALL);
    let (_, results) = all(&plan, folder.path(), 2);
    let bytes = parquet(&results).unwrap();
    let path = folder.path().join("table.parquet");
    fs::write(&path, bytes).unwrap();
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut rows = reader.get_row_iter(None).unwrap();
    for result in &results {
        for value in &result.values {
            let row = rows.next().unwrap().unwrap();
            assert_eq!(row.get_string(0).unwrap(), "run");
            assert_eq!(row.get_string(3).unwrap(), &result.cell.policy);
            assert_eq!(row.get_ulong(4).unwrap(), result.cell.seed);
            assert_eq!(row.get_string(5).unwrap(), &value.metric);
            assert_eq!(row.get_double(8).ok(), value.value);
        }
    }
    assert!(rows.next().is_none());
}

#[test]
fn the_page_marks_the_front_and_escapes_names() {
    let (folder, plan) = plan(SMALL);
    let (_, mut results) = all(&plan, folder.path(), 2);
    results[0].cell.policy = "<script>".into();
    let fronts = fronts(&results);
    assert_eq!(fronts.len(), 1);
    assert!(fronts[0].points.iter().any(|p| p.on_front));
    let page = html("a & b", &fronts);
    assert!(page.contains("Sweep a &amp; b") && !page.contains("<script>"));
    assert!(page.contains("class=\"front\"") && page.contains("<circle"));
    assert!(text(&fronts).contains("* "));
}

#[test]
fn errors_name_the_entry_and_the_fix() {
    for (text, says) in [
        ("", "sweep.toml: "),
        ("policies = [\"Base\"]", "sweep.toml: nothing to do; add a [[trace]]"),
        (
            "policies = []\n[[workload]]\nname=\"micro\"\nmachines=[\"desktop\"]",
            "policies: the list is empty",
        ),
        ("policies = [\"Bas\"]", "policies: unknown policy Bas; expected one of"),
        ("policies = [\"Base\"]\nseed = 1", "unknown field `seed`"),
        ("policies = [\"Base\"]\n[knobs]\nnope = [1]", "policies: unknown knob"),
        ("policies = [\"Base\"]\n[knobs]\nhigh = []", "knob high has no values"),
        ("policies = [\"Base\"]\n[[trace]]\nfile = \"a.pgy\"", "[[trace]] 1: "),
        (
            "policies = [\"Base\"]\n[[workload]]\nname=\"nope\"\nmachines=[\"desktop\"]",
            "[[workload]] 1: unknown workload nope",
        ),
        (
            "policies = [\"Base\"]\n[[workload]]\nname=\"micro\"\nmachines=[\"nope\"]",
            "[[workload]] 1: machine nope: No such file",
        ),
        (
            "policies = [\"Base\"]\n[[workload]]\nname=\"micro\"\nmachines=[\"detected\"]",
            "does not depend on the host",
        ),
        (
            "policies = [\"Base\"]\n[[workload]]\nname=\"micro\"\nmachines=[\"desktop\"]\nset={x=1}",
            "unknown parameter x; expected one of",
        ),
        (
            "policies = [\"Base\", \"base\"]\n[[workload]]\nname=\"micro\"\nmachines=[\"desktop\"]",
            "occurs twice",
        ),
    ] {
        let said = wrong(text);
        assert!(said.contains(says), "{text}: {said}");
    }
}

/// The key of the description, not the option of other commands.
#[test]
fn a_damaged_trace_is_read_with_a_key() {
    let folder = TempDir::new().unwrap();
    let mut pgy =
        fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../samples/kbuild.pgy")).unwrap();
    pgy[3000] ^= 0xff;
    fs::write(folder.path().join("a.pgy"), pgy).unwrap();
    let text = "policies = [\"Base\"]\n[[trace]]\nfile = \"a.pgy\"\n";
    let said = Plan::read(&described(folder.path(), text)).unwrap_err().to_string();
    assert!(said.contains("or set lenient = true in this [[trace]] to skip"), "{said}");
}

#[test]
fn state_files_beside_a_trace_are_not_ignored_silently() {
    let folder = TempDir::new().unwrap();
    let trace = "a-1 [000] 1.0: mm_page_free: page=0x1 pfn=0x100 order=0\n";
    fs::write(folder.path().join("a.txt"), trace).unwrap();
    fs::write(folder.path().join("buddyinfo.traced_end"), "Node 0, zone   Normal      1      0      0      0      0      0      0      0      0      0      0 \n").unwrap();
    let text = "policies = [\"Base\"]\n[[trace]]\nfile = \"a.txt\"\n";
    let said = || Plan::read(&described(folder.path(), text)).unwrap_err().to_string();
    assert!(said().contains("would be ignored"), "{}", said());
    assert!(said().contains("pageyard trace import a.txt a.with-state.pgy"), "{}", said());
    fs::write(folder.path().join("buddyinfo.traced_end"), "broken\n").unwrap();
    assert!(said().contains("buddyinfo.traced_end: line 1: expected"), "{}", said());
}
