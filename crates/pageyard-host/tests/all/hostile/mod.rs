//! Calls every public function with invalid and extreme arguments: the extremes of all numbers,
//! each flag alone and all at once, frames and ranges that do not exist. Each call succeeds or
//! returns an error, and afterwards the yard is valid and empty. Each row runs in its own process
//! with little memory, so that a function that aborts or hangs is named.

#![allow(unsafe_code)] // allocators, a relocator, and blocks by number

mod arguments;
mod calls;
mod parts;

use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../../../pageyard/tests/all/common/public.rs"]
mod public;

use public::{functions, functions_under};

/// A row: functions, and code that calls them.
type Row = (&'static [&'static str], fn());

const ROWS: &[Row] = &[
    (&["HugeSize::bytes"], calls::sizes),
    (
        &[
            "Builder::new",
            "Builder::of_available",
            "Builder::backing",
            "Builder::fallback",
            "Builder::hard_limit",
            "Builder::soft_limit",
            "Builder::give_back",
            "Builder::system",
            "Builder::publish",
            "Builder::nodes",
            "Builder::cpus",
            "Builder::huge_pages",
            "Builder::prefault",
            "Builder::pinned",
            "Builder::deferred",
            "Builder::knobs",
            "Builder::tick",
            "Builder::thread_cache",
            "Builder::region",
            "Builder::build_raw",
            "Builder::build_on",
            "Builder::build",
            "Builder::build_with",
            "Builder::build_with_policy",
        ],
        calls::builder,
    ),
    (
        &[
            "HostYard::alloc",
            "HostYard::alloc_on",
            "Block::pfn",
            "Block::order",
            "Block::as_ptr",
            "Block::into_raw",
            "HostYard::offset",
            "HostYard::holds",
            "HostYard::from_raw",
        ],
        calls::blocks,
    ),
    (&["HostYard::alloc_bulk", "HostYard::free_bulk"], calls::bulk),
    (
        &[
            "HostYard::alloc_aligned",
            "HostYard::alloc_range",
            "PageRange::frames",
            "PageRange::as_ptr",
            "PageRange::offset",
        ],
        calls::places,
    ),
    (
        &[
            "HostYard::alloc_owned",
            "HostYard::alloc_range_owned",
            "Block::into_owned",
            "PageRange::into_owned",
            "OwnedBlock::yard",
            "OwnedBlock::pfn",
            "OwnedBlock::order",
            "OwnedBlock::as_ptr",
            "OwnedBlock::into_block",
            "OwnedRange::yard",
            "OwnedRange::frames",
            "OwnedRange::as_ptr",
            "OwnedRange::offset",
            "OwnedRange::into_range",
        ],
        calls::owned,
    ),
    (&["FragmentCache::new", "FragmentCache::alloc"], calls::fragments),
    (&["HostYard::free_raw", "HostYard::core"], calls::frees),
    (
        &["HostYard::alloc_movable", "Movable::lock", "Movable::order", "Pinned::pfn"],
        calls::movable,
    ),
    (
        &[
            "HostYard::register_relocator",
            "HostYard::register_shrinker",
            "HostYard::on_pressure",
            "Registration::keep",
            "HostYard::compact",
            "Moving::from",
            "Moving::to",
            "Moving::order",
            "Moving::old",
            "Moving::new_place",
            "Moving::copy",
        ],
        calls::registrations,
    ),
    (
        &[
            "HostYard::limits",
            "HostYard::set_limits",
            "HostYard::pressure",
            "HostYard::usable",
            "HostYard::usable_bytes",
            "Limits::of_bytes",
            "Limits::hard_bytes",
            "Limits::soft_bytes",
        ],
        calls::limits,
    ),
    (&["HostYard::knobs", "HostYard::set_knob"], calls::knobs),
    (&["HostYard::offline", "HostYard::online"], calls::sections),
    (
        &["HostYard::poison_frame", "HostYard::unpoison_frame", "HostYard::out_of_use"],
        calls::poison,
    ),
    (
        &[
            "HostYard::zones",
            "HostYard::zone_info",
            "HostYard::zone_stats",
            "HostYard::cpu_stats",
            "HostYard::cpus",
            "HostYard::stats",
            "HostYard::status",
            "HostYard::thread_cache_stats",
            "HostYard::thread_cache_threads",
            "HostYard::resident",
            "HostYard::buddyinfo",
            "HostYard::pagetypeinfo",
            "HostYard::zoneinfo",
            "HostYard::vmstat",
            "HostYard::validate",
            "HostYard::drain",
            "HostYard::tick",
            "HostYard::fd",
            "HostYard::is_here",
            "HostYard::is_pinned",
            "HostYard::memory",
        ],
        calls::looks,
    ),
    (
        &[
            "HostYard::worker",
            "HostYard::wake_worker",
            "Worker::step",
            "Worker::wait",
            "Worker::run",
        ],
        calls::worker,
    ),
    (
        &[
            "RawYard::alloc",
            "RawYard::alloc_on",
            "RawYard::free",
            "RawYard::free_owned",
            "RawYard::free_batch",
            "RawYard::free_batch_owned",
            "RawYard::words",
            "RawYard::core",
            "RawYard::region",
            "RawYard::cpus",
            "RawYard::map_bytes",
            "RawYard::tick",
            "RawYard::into_region",
            "RawYard::watch_zone_locks",
            "Words::all",
            "Words::touch",
            "HostPlatform::embedder",
        ],
        parts::raw,
    ),
    (
        &[
            "Region::new",
            "Region::backed",
            "Region::backing",
            "Region::fd",
            "Region::first",
            "Region::pages",
            "Region::frames",
            "Region::address",
            "Region::frame",
            "Region::set_huge_pages",
            "Region::populate",
            "Region::prefer_node",
            "Region::resident",
            "Region::is_pinned",
            "Region::memory",
        ],
        parts::region,
    ),
    (
        &["PageAlloc::new", "PageAlloc::install", "PageAlloc::is_of_yard", "InYard::new"],
        parts::allocators,
    ),
    (
        &[
            "cpu::current",
            "cpu::is_registered",
            "cpu::allowed",
            "cpu::bind",
            "clock::now",
            "clock::thread",
            "HostLock::new",
            "held::report_locks",
        ],
        parts::machine,
    ),
    (
        &[
            "topology::list",
            "topology::available_memory",
            "Topology::detect",
            "Topology::detect_in",
            "Topology::node_of",
            "Topology::distance",
            "SystemFiles::detect",
            "SystemFiles::none",
            "GroupMemory::read",
            "page::publishers",
            "page::read_stats",
        ],
        parts::system,
    ),
];

/// Public functions without a row, and why.
const EXEMPT: [(&str, &str); 2] = [
    ("YardStats::write_prometheus", "of a feature; its one argument is a writer"),
    ("prometheus::write_prometheus", "of a feature; names are escaped (its own test)"),
];

#[test]
fn every_public_function_has_a_row() {
    let mut declared = functions_under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(declared.len() > 130, "{}: the form of the sources has changed", declared.len());
    let rows: BTreeSet<String> = ROWS.iter().flat_map(|r| r.0).map(|f| f.to_string()).collect();
    let exempt: BTreeSet<String> = EXEMPT.iter().map(|(f, _)| f.to_string()).collect();
    let all: BTreeSet<String> = rows.union(&exempt).cloned().collect();
    let missing = |declared: &BTreeSet<String>| -> Vec<String> {
        declared.difference(&all).cloned().collect()
    };
    assert_eq!(missing(&declared), [""; 0], "functions without a row");
    assert_eq!(all.difference(&declared).collect::<Vec<_>>(), [""; 0], "rows without a function");
    // Functions without one are found.
    let new =
        "impl<P: StaticPolicy> HostYard<P> {\n    pub fn melt(&self) {}\n}\npub fn melted() {}\n";
    declared.extend(functions("cpu", new));
    assert_eq!(missing(&declared), ["HostYard::melt", "cpu::melted"]);
}

const ROW: &str = "PAGEYARD_HOSTILE_ROW";

/// Runs one row in this process, with little memory and time.
#[test]
fn a_row() {
    let Some(row) = std::env::var(ROW).ok().and_then(|n| n.parse::<usize>().ok()) else { return };
    let limit = |what, n| {
        let most = libc::rlimit { rlim_cur: n, rlim_max: n };
        // SAFETY: the structure lives until the call returns.
        assert_eq!(unsafe { libc::setrlimit(what, &raw const most) }, 0);
    };
    limit(libc::RLIMIT_AS, 1 << 30);
    limit(libc::RLIMIT_CPU, 300);
    // Not a measurement: ends a row that waits for ever. SAFETY: the signal ends the process.
    unsafe { libc::alarm(900) };
    ROWS[row].1();
    println!("done with row {row}");
}

fn run_row(row: usize) -> Result<(), String> {
    let mut command = pageyard_unmet::command(std::env::current_exe().unwrap());
    command.args(["--exact", "hostile::a_row", "--nocapture"]).env(ROW, row.to_string());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.contains(&format!("done with row {row}")) {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?}: {}\n{said}\n{error}", ROWS[row].0, output.status))
}

#[test]
fn invalid_and_extreme_arguments_are_errors_or_served() {
    let failed: Vec<String> = (0..ROWS.len()).filter_map(|row| run_row(row).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
