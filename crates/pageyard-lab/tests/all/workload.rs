//! Workloads on the simulated machine: the same seed gives the same bytes, everything is freed (a
//! run that loses a page is an error), and each shows the effect it is made for.

use std::collections::BTreeSet;

use pageyard_lab::replay;
use pageyard_lab::result::{EXPLAINING, RunResult, World, is_named};
use pageyard_lab::table::Source;
use pageyard_lab::track::ListTrack;
use pageyard_lab::workload::{self, Options, RECIPES, WorkloadError};
use pageyard_machine::MachineSpec;

use crate::small::small;

pub(crate) fn options(name: &str, policies: &[&str]) -> Options {
    Options {
        machine: MachineSpec::shipped("desktop").unwrap(),
        memory: Some(2 << 30),
        descriptor: 16,
        age: 0,
        policies: policies.iter().map(|p| replay::by_name(p).unwrap()).collect(),
        seed: 7,
        iterations: 1,
        costs: pageyard_machine::Costs::default(),
        limits: None,
        jobs: 1,
        stop: pageyard_machine::Stop::default(),
        set: small(name),
    }
}

pub(crate) fn run(name: &str, options: &Options) -> Vec<RunResult> {
    let recipe = workload::by_name(name).unwrap();
    workload::run(&recipe, options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub(crate) fn value(result: &RunResult, metric: &str) -> f64 {
    let found = result.metrics.iter().find(|m| m.name == metric);
    found.unwrap_or_else(|| panic!("{}: no metric {metric}", result.workload)).samples[0]
        .unwrap_or_else(|| panic!("{metric}: nothing was counted"))
}

/// Asserts a metric's value from when this was written. The machine is deterministic: another value
/// means another behaviour or another price.
#[track_caller]
pub(crate) fn is(result: &RunResult, metric: &str, expected: f64) {
    let found = value(result, metric);
    let digits = (found - expected).abs() <= expected.abs() * 1e-9;
    assert!(digits, "{} under {}: {metric} is {found}", result.workload, result.policy);
}

/// The packed engine is a column like any policy. Its shared lines are priced; the exact engine's
/// are not. A table corrects for the results alone: a metric is a result, or it explains one.
#[test]
fn every_workload_runs_on_the_packed_engine() {
    let mut own = BTreeSet::new();
    for recipe in RECIPES {
        let both = replay::columns("Linux612,Packed").unwrap();
        let options = Options { policies: both, ..options(recipe.name, &[]) };
        let results = run(recipe.name, &options);
        let [exact, packed] = &results[..] else { panic!("{}: two columns", recipe.name) };
        assert_eq!((exact.policy.as_str(), packed.policy.as_str()), ("Linux612", "Packed"));
        assert!(exact.lines.is_none() && packed.lines.is_some(), "{}", recipe.name);
        assert!(packed.metrics.iter().any(|m| m.name.starts_with("line_wait")), "{}", recipe.name);
        let policies = replay::columns("Packed").unwrap();
        let again = run(recipe.name, &Options { policies, ..options });
        assert_eq!(results[1..], again, "{}", recipe.name);
        let names = results.iter().flat_map(|r| &r.metrics).map(|m| m.name.as_str());
        let results = names.filter(|n| !EXPLAINING.iter().any(|name| is_named(n, name)));
        own.extend(results.map(|name| name.split('-').next().unwrap().to_owned()));
    }
    let expected = "again alloc batch busy_time claims claims_median failed free high huge \
                    hugealloc_mean hugealloc_stddev mismatches mismatches_median rate steals \
                    steals_median thp_alloc thp_fail thp_fallback time total unknown";
    assert_eq!(own.into_iter().collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn a_track_of_the_packed_engine_has_its_heap() {
    let policies = replay::columns("Packed").unwrap();
    let options = Options { policies, ..options("kbuild", &[]) };
    let recipe = workload::by_name("kbuild").unwrap();
    let recorded = workload::record(&recipe, &options, &mut |_, _| {}).unwrap();
    let plain = run("kbuild", &options);
    assert_eq!(recorded[0].metrics, plain[0].metrics, "recording takes no virtual time");
    assert!(recorded[0].tracks[0].heap.frames.len() > 1);
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_no_leaks() {
    for recipe in RECIPES {
        let options = options(recipe.name, &["Step7", "Linux612"]);
        let json = |o: &Options| serde_json::to_string(&run(recipe.name, o)).unwrap();
        let first = json(&options);
        assert_eq!(first, json(&options), "{}", recipe.name);
        let other = Options { seed: 8, ..options };
        let drawn = !matches!(
            recipe.name,
            "micro"
                | "trunc"
                | "page_fault1"
                | "batch"
                | "llfree-bulk"
                | "llfree-repeat"
                | "hackbench"
                | "trace"
        );
        if drawn {
            assert_ne!(first, json(&other), "{}: the seed decides nothing", recipe.name);
        }
    }
}

#[test]
fn a_result_describes_its_run() {
    let mut options = options("unix", &["Base"]);
    options.iterations = 2;
    let results = run("unix", &options);
    let [result] = &results[..] else { panic!("one policy, one result") };
    assert_eq!(result.world, World::Simulated("desktop".into()));
    assert_eq!(result.policy, "Base");
    assert_eq!(result.parameters["pairs"], "2");
    assert!(result.metrics.iter().all(|m| m.samples.len() == 2), "{:?}", result.metrics);
    assert_eq!(result.metrics[0].name, "rate");
    // Everything sent has arrived: writes are counted at the receiver.
    assert!(value(result, "rate") > 0.0);
    assert_eq!(value(result, "failed"), 0.0);
}

#[test]
fn policies_get_the_same_work_in_any_set() {
    let both = run("sctp", &options("sctp", &["Base", "Step7"]));
    let alone = run("sctp", &options("sctp", &["Step7"]));
    assert_eq!(both[1], alone[0]);
}

/// A run of a workload on a machine of two nodes with these parameters, with its track.
fn on_two_nodes(name: &str, set: &[(&str, &str)]) -> RunResult {
    let mut options = options(name, &["BlockByBlock<Linux612>"]);
    options.machine = MachineSpec::shipped("2x20").unwrap();
    options.set.extend(set.iter().map(|&(name, n)| (name.to_owned(), n.to_owned())));
    let recipe = workload::by_name(name).unwrap();
    workload::record(&recipe, &options, &mut |_, _| {}).unwrap().remove(0)
}

/// The nodes whose zones, and the CPUs whose lists, returned pages to a zone.
fn drained(result: &RunResult) -> (BTreeSet<u16>, BTreeSet<u32>) {
    let lists = result.tracks.iter().flat_map(|track| &track.lists);
    let lists = lists.filter(|l| l.drains.iter().sum::<u64>() > 0);
    lists.map(|l| (l.node, l.cpu)).unzip()
}

#[test]
fn unix_frees_on_another_cpu() {
    is(&run("unix", &options("unix", &["Linux612"]))[0], "remote", 100.0);
    // A build frees pages on the CPU that allocated them.
    is(&run("kbuild", &options("kbuild", &["Linux612"]))[0], "remote", 0.0);
}

/// Pairs are on the nodes in turn, or all on one, and use its zone.
#[test]
fn pairs_use_the_zones_of_their_nodes() {
    let nodes = |name: &str, cpus: &str| {
        let (nodes, cpus) = drained(&on_two_nodes(name, &[("pairs", "8"), ("cpus", cpus)]));
        // CPUs 0 to 19 and 40 to 59 are of node 0.
        let of_cpus = cpus.iter().map(|cpu| (cpu / 20 % 2) as u16).collect();
        assert_eq!(nodes, of_cpus, "{name}: pages of another node");
        nodes
    };
    for name in ["unix", "sctp"] {
        assert_eq!(nodes(name, "all"), BTreeSet::from([0, 1]), "{name}");
        assert_eq!(nodes(name, "0"), BTreeSet::from([0]), "{name}");
        assert_eq!(nodes(name, "1"), BTreeSet::from([1]), "{name}");
    }
}

/// A task of a pair is on a core of its own while there is one.
#[test]
fn pairs_share_cores_last() {
    let (_, cpus) = drained(&on_two_nodes("unix", &[("pairs", "10"), ("cpus", "0")]));
    assert!(cpus.iter().all(|&cpu| cpu < 20) && cpus.len() == 10, "{cpus:?}");
}

/// Seven chunks of order 2, and a packet of order 4 and one of order 2 that the receiver frees.
#[test]
fn sctp_takes_a_chunk_a_message_and_two_packets_for_seven() {
    let result = &run("sctp", &options("sctp", &["Linux612"]))[0];
    is(result, "block", (7.0 * 4.0 + 16.0 + 4.0) / 9.0);
    // The receiver frees the packets, the sender the chunks.
    is(result, "remote", 200.0 / 9.0);
}

/// A chunk lives until the packets are acknowledged: seven, and both packets, are there at once.
#[test]
fn sctp_chunks_live_until_the_acknowledgement() {
    let set = [("pairs", "1"), ("messages", "700"), ("work", "1000")];
    let result = on_two_nodes("sctp", &set);
    let heap = &result.tracks[0].heap;
    let most = heap.in_use.iter().max().unwrap() - heap.in_use.iter().min().unwrap();
    assert!(most >= 7 * 4 + 16 + 4, "{:?}", heap.in_use);
    let faster = value(&result, "rate");
    let slower = value(&on_two_nodes("sctp", &[set[0], set[1], ("work", "2000")]), "rate");
    assert!(1.3 * slower < faster, "work is most of a message: {slower} {faster}");
}

/// Fragments are freed by the sender's CPU or by CPUs of the card's node, whatever node they are of.
#[test]
fn streams_free_on_the_cpu_of_the_acknowledgement() {
    let of = |ack: &str, card: &str| {
        let set = [("streams", "4"), ("mib", "32"), ("ack", ack), ("card", card)];
        on_two_nodes("stream", &set)
    };
    for card in ["0", "100"] {
        is(&of("same", card), "remote", 0.0);
        let other = of("node0", card);
        is(&other, "remote", 100.0);
        let (nodes, cpus) = drained(&other);
        assert_eq!(nodes, BTreeSet::from([0, 1]), "senders are on both nodes");
        assert_eq!(cpus, BTreeSet::from([16, 17, 18, 19]), "the last cores of node 0");
    }
}

/// All streams share the card's wire, and each waits for its acknowledgements.
#[test]
fn streams_share_the_card() {
    let rate = |streams: &str, window: &str, card: &str| {
        let set = [("streams", streams), ("window", window), ("card", card), ("mib", "64")];
        value(&on_two_nodes("stream", &set), "rate")
    };
    // 10 Gbit/s are 1192 MiB/s.
    for streams in ["2", "8"] {
        let rate = rate(streams, "1024", "10");
        assert!((1150.0..=1192.1).contains(&rate), "{streams}: {rate}");
    }
    // 128 KiB for each round trip of 20 us, and the time for a third of it to be sent.
    let waiting = rate("1", "128", "10000");
    assert!((3000.0..=6100.0).contains(&waiting), "{waiting}");
}

/// The regression of 6.12 (B.3): a window above the batch is drained each time, and other streams
/// take its blocks. The threshold of 6.16 ends that.
#[test]
fn b_3_streams_lose_by_early_drains() {
    let mut options = options(
        "stream",
        &["BlockByBlock<Base>", "BlockByBlock<Linux612>", "LateFreeHigh<BlockByBlock<Linux612>>"],
    );
    options.machine = MachineSpec::shipped("2x20").unwrap();
    options.memory = None;
    let set = [("streams", "16"), ("window", "512"), ("mib", "32")];
    options.set.extend(set.map(|(name, n)| (name.to_owned(), n.to_owned())));
    let results = run("stream", &options);
    let [before, with, patched] = [0, 1, 2].map(|i| value(&results[i], "rate"));
    assert!(with < 0.9 * before, "{before} {with}");
    assert!(patched > 0.99 * before, "{before} {patched}");
    let drains = [0, 1, 2].map(|i| value(&results[i], "free_high"));
    assert!(drains[0] == 0.0 && drains[1] > 1000.0 && drains[2] == 0.0, "{drains:?}");
}

/// A run of forty requests and frees ends with pages on the lists.
#[test]
fn short_runs_have_a_peak_of_cached_pages() {
    let mut options = options("unix", &[]);
    options.set.extend([("pairs", "1"), ("writes", "5")].map(|(n, v)| (n.into(), v.into())));
    options.policies = replay::columns("Linux612,Packed").unwrap();
    for result in run("unix", &options) {
        assert!(value(&result, "peak_pcp") > 0.0, "{}", result.policy);
    }
}

/// Ageing leaves nothing on lists that tune themselves.
#[test]
fn lists_are_at_rest_after_ageing() {
    let peak =
        |age| value(&run("unix", &Options { age, ..options("unix", &["Step10"]) })[0], "peak_pcp");
    let (fresh, aged) = (peak(0), peak(40));
    assert!(aged < 3.0 * fresh, "{fresh} {aged}");
}

#[test]
fn a_unix_write_is_blocks_of_orders_3_2_1_and_0() {
    let result = &run("unix", &options("unix", &["Linux612"]))[0];
    assert_eq!(value(result, "block"), 15.0 / 4.0);
}

#[test]
fn high_order_free_drains_decrease_by_step() {
    let results = run("unix", &options("unix", &["Base", "Step1", "Step3"]));
    for (result, drains) in results.iter().zip([6000.0, 4000.0, 400.0]) {
        is(result, "free_high", drains);
    }
}

#[test]
fn larger_batches_hold_the_lock_longer() {
    // As in the kernel, freeing runs of pages takes less time.
    let result = &run("batch", &options("batch", &["BlockByBlock<Base>"]))[0];
    // Eight times the pages, minus the fixed cost of a hold, in microseconds.
    is(result, "hold_alloc_avg-63", 0.6775629212598424);
    is(result, "hold_alloc_avg-511", 2.3509891640625);
    is(result, "hold_free_avg-63", 2.8199037472959687);
    is(result, "hold_free_avg-511", 16.702260875968992);
}

#[test]
fn trunc_only_frees_in_bulk() {
    let results = run("trunc", &options("trunc", &["TwoPassBulkFree<Base>", "Base"]));
    // Two passes touch the descriptors of freed pages twice (A.1).
    for (result, hold, time) in
        [(&results[0], 6.451175, 0.001024864), (&results[1], 1.26603, 0.00096245)]
    {
        is(result, "zone_pages", 0.0);
        is(result, "hold_free_avg", hold);
        is(result, "time", time);
    }
}

#[test]
fn micro_has_rows_by_order_and_number() {
    let result = &run("micro", &options("micro", &["Linux612"]))[0];
    let total = value(result, "total-odr0-64");
    let parts = value(result, "alloc-odr0-64") + value(result, "free-odr0-64");
    assert!((total - parts).abs() < 1e-9, "{total} {parts}");
    is(result, "total-odr0-64", 27.578125);
    assert!(result.metrics.iter().any(|m| m.name == "total-odr1-8192"));
    assert!(!result.metrics.iter().any(|m| m.name == "total-odr0-32768"), "128 MiB is too much");
}

/// Ageing leaves enough memory for each workload, and all of it comes back (a run that loses a page
/// is an error).
#[test]
fn workloads_run_on_an_aged_heap() {
    for name in ["unix", "page_fault1", "trunc", "deferred"] {
        for policy in ["Linux612", "Packed"] {
            let policies = replay::columns(policy).unwrap();
            let result = &run(name, &Options { policies, age: 10, ..options(name, &[]) })[0];
            assert_eq!(result.parameters["machine.age"], "10%");
        }
    }
}

/// Runs at once do not disturb each other, tracks and shared lines included.
#[test]
fn results_do_not_depend_on_how_many_runs_there_are_at_once() {
    let mut options = Options { iterations: 2, ..options("page_fault1", &[]) };
    options.policies = replay::columns("Base,Linux612,Packed").unwrap();
    let recipe = workload::by_name("page_fault1").unwrap();
    let at_once = |jobs| {
        let options = Options { jobs, ..options.clone() };
        workload::record(&recipe, &options, &mut |_, _| {}).unwrap()
    };
    let alone = at_once(1);
    assert!(alone.iter().all(|r| r.tracks.len() == 2) && alone[2].lines.is_some());
    assert_eq!(alone, at_once(3));
}

#[test]
fn errors_name_the_parameter_and_its_valid_values() {
    let told_all = |name: &str, set: &[(&str, &str)]| {
        let recipe = workload::by_name(name).unwrap();
        let mut options = options(name, &["Base"]);
        options.set.extend(set.iter().map(|s| (s.0.into(), s.1.into())));
        workload::run(&recipe, &options, &mut |_, _| {}).unwrap_err().to_string()
    };
    let told = |name: &str, set| told_all(name, &[set]);
    assert_eq!(
        told("unix", ("pears", "3")),
        "unix: unknown parameter pears; expected one of pairs, cpus, \
         writes"
    );
    assert_eq!(told("unix", ("pairs", "3")), "unix: pairs=3: expected a whole number from 1 to 2");
    assert_eq!(
        told("kbuild", ("memory", "far")),
        "kbuild: memory=far: expected local, other, interleave, or node:N with N from 0 to 0"
    );
    assert_eq!(
        told("trunc", ("pages", "999999")),
        "trunc: files=2: expected fewer or smaller files, filling at most half of memory"
    );
    // Blocks count, not the pages in them.
    assert_eq!(
        told_all("trunc", &[("order", "9"), ("pages", "1"), ("files", "513")]),
        "trunc: files=513: expected fewer or smaller files, filling at most half of memory"
    );
    // A value that is there twice would be one figure with twice the samples.
    assert_eq!(
        told("page_fault1", ("processes", "2,1,2")),
        "page_fault1: processes=2,1,2: expected each number once"
    );
    // A point's batch is in its name.
    let recipe = workload::by_name("batch").unwrap();
    for setting in ["batch=31", "high=400", "percpu_pagelist_high_fraction=8"] {
        let options = options("batch", &[&format!("Base+{setting}")]);
        let told = workload::run(&recipe, &options, &mut |_, _| {}).unwrap_err().to_string();
        let name = setting.split('=').next().unwrap();
        assert_eq!(
            told,
            format!(
                "batch: policy Base+{setting}: the workload sets the lists' limits itself; \
                 remove {name}"
            )
        );
    }
    assert_eq!(
        told_all("llfree-rand", &[("order", "10"), ("pages", "1000")]),
        "llfree-rand: pages=1000: expected a whole number from 1024 to 262144"
    );
    // Memory that the builds do not fit into beside the rest is refused.
    assert_eq!(told("thp", ("jobs", "2")), "thp: jobs=2: expected a whole number from 1 to 1");
    let text = workload::by_name("unis").unwrap_err().to_string();
    assert!(text.starts_with("unknown workload unis; expected one of micro, trunc"), "{text}");
}

/// Of 1,151 MiB the machine has whole sections, and that is what a plan and the result know.
#[test]
fn memory_is_what_the_machine_has() {
    let options = Options { memory: Some(1151 << 20), ..options("micro", &["Base"]) };
    assert_eq!(run("micro", &options)[0].parameters["machine.memory"], (1u64 << 30).to_string());
}

#[test]
fn memcached_has_orders_2_and_3_at_its_rate() {
    let result = &run("memcached", &options("memcached", &["Linux612"]))[0];
    // 0.608 of four pages and 0.392 of eight: 5.57; and 3,000 requests a second.
    is(result, "block", 5.621935483870968);
    is(result, "rate", 2997.8863576306344);
}

#[test]
fn hackbench_frees_on_other_cpus() {
    let result = &run("hackbench", &options("hackbench", &["Linux612"]))[0];
    is(result, "remote", 23.4);
    is(result, "time", 0.004209669);
}

#[test]
fn tbench_uses_order_3_both_ways() {
    let result = &run("tbench", &options("tbench", &["Linux612"]))[0];
    assert_eq!(value(result, "block"), 8.0);
}

#[test]
fn sysbench_frees_on_one_cpu() {
    let result = &run("sysbench", &options("sysbench", &["Linux612"]))[0];
    is(result, "remote", 100.0);
}

/// The cache is full when the measurement begins: a page is freed for each page that is read.
#[test]
fn sysbench_measures_a_full_cache() {
    let mut options = options("sysbench", &["Linux612"]);
    options.set.push(("reads".into(), "100".into()));
    is(&run("sysbench", &options)[0], "remote", 100.0);
}

#[test]
fn a_5_limits_of_one_section_stay_without_recomputation() {
    let policies = ["EarlyLimits<SixBatches<Base>>", "SixBatches<Base>"];
    let results = run("deferred", &options("deferred", &policies));
    let of = |metric: &str| [value(&results[0], metric), value(&results[1], metric)];
    // The figures of the fifth seed itself, and of C.2.
    assert_eq!(of("batch-Normal-0"), [7.0, 63.0]);
    assert_eq!(of("high-Normal-0"), [42.0, 378.0]);
    is(&results[0], "hits", 85.70670826833073);
    is(&results[1], "hits", 98.3652076248713);
}

#[test]
fn huge_pages_are_requested_on_full_memory() {
    let mut options = options("thp", &["Linux612"]);
    options.set.extend([("pages", "300000"), ("jobs", "2")].map(|(n, v)| (n.into(), v.into())));
    let result = &run("thp", &options)[0];
    let asked = value(result, "thp_alloc") + value(result, "thp_fallback");
    assert_eq!(asked, 30.0 + 207.0);
    is(result, "thp_alloc", 30.0);
    // The small pages in place of huge ones replace page cache, and no request fails for them.
    assert_eq!(value(result, "failed"), value(result, "thp_fallback"));
    let fail = 100.0 * value(result, "thp_fallback") / asked;
    assert!((value(result, "thp_fail") - fail).abs() < 1e-9);
    // Two rounds, each with its figures.
    assert!(result.metrics.iter().any(|m| m.name == "steals-2"));
    assert!(!result.metrics.iter().any(|m| m.name == "steals-3"));
    // Network buffers and huge pages are allocated beside single pages.
    is(result, "block", 1.0995968925386186);
}

#[test]
fn a_recording_keeps_its_order_and_its_pace() {
    let mut options = options("trace", &["Linux612"]);
    let fast = &run("trace", &options)[0];
    options.set.push(("pace".into(), "recorded".into()));
    let paced = &run("trace", &options)[0];
    is(fast, "time", 0.000529679);
    is(paced, "time", 6.220225191);
    for result in [fast, paced] {
        assert_eq!(value(result, "failed"), 0.0);
        is(result, "unknown", 0.01);
        is(result, "again", 0.0);
    }
    // The requests come from the recording, at any speed.
    assert_eq!(value(fast, "block"), value(paced, "block"));
    let recipe = workload::by_name("trace").unwrap();
    let mut error = |trace: &str| {
        options.set.push(("trace".into(), trace.into()));
        workload::run(&recipe, &options, &mut |_, _| {}).unwrap_err().to_string()
    };
    let missing = error("/nowhere.pgy");
    assert!(missing.starts_with("trace: trace=/nowhere.pgy: expected a recording: "), "{missing}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no event\n").unwrap();
    let damaged = error(&file.path().to_string_lossy());
    assert!(damaged.ends_with(", or import it with trace import --lenient"), "{damaged}");
}

#[test]
fn random_frees_leave_few_huge_pages() {
    let result = &run("llfree-frag", &options("llfree-frag", &["Linux612"]))[0];
    (0..=3).for_each(|n| is(result, &format!("huge-{n}"), 21.8448673094974));
    // Pages allocated and freed on one CPU stay there.
    let result = &run("llfree-repeat", &options("llfree-repeat", &["Linux612"]))[0];
    assert_eq!(value(result, "remote"), 0.0);
}

/// Recording takes no virtual time, and a track agrees with the run's measurements.
#[test]
fn a_recorded_run_measures_the_same() {
    for name in ["unix", "page_fault1", "memcached"] {
        let options = options(name, &["Base", "Linux612"]);
        let plain = run(name, &options);
        let recipe = workload::by_name(name).unwrap();
        let recorded = workload::record(&recipe, &options, &mut |_, _| {}).unwrap();
        for (plain, recorded) in plain.iter().zip(&recorded) {
            assert_eq!(plain.metrics, recorded.metrics, "{name}");
            let points = if name == "page_fault1" { 2 } else { 1 };
            assert_eq!((plain.tracks.len(), recorded.tracks.len()), (0, points), "{name}");
            for track in &recorded.tracks {
                let samples = track.times_ns.len();
                assert!(samples > 20, "{name}: {samples}");
                assert!(!track.lists.is_empty(), "{name}");
                for list in &track.lists {
                    assert_eq!(list.high.len(), samples);
                    assert!(list.high.iter().all(|&h| h > 0), "{name}: {:?}", list.high);
                }
                // The run samples the lists every 64 calls, so a track may show larger values; no
                // list exceeds its `high` by much.
                let over = |l: &ListTrack| {
                    l.count.iter().max() > l.high.iter().max().map(|h| h + 512).as_ref()
                };
                assert!(!track.lists.iter().any(over), "{name}");
                let metric = if track.point.is_empty() {
                    "peak_pcp".into()
                } else {
                    format!("peak_pcp-{}", track.point)
                };
                let sum = |i: usize| track.lists.iter().map(|l| l.count[i]).sum::<i64>();
                let most = (0..samples).map(sum).max().unwrap() as f64;
                let peak = value(recorded, &metric);
                assert!(most > 0.5 * peak, "{name}: {most} of {peak}");
                let latency = track.latency.as_ref().unwrap();
                assert_eq!(
                    latency.buckets.iter().map(|b| b.requests).sum::<u64>(),
                    latency.requests
                );
                let heap = &track.heap;
                assert!(heap.in_use.iter().max() > Some(&0), "{name}");
                let cells = heap.pageblocks.div_ceil(heap.blocks_per_cell) as usize;
                assert!((0..heap.frames.len()).all(|i| heap.cells(i).len() == cells), "{name}");
                assert_eq!(track.zone_wait.as_ref().unwrap().by_cpu_ns.len(), 4);
            }
            let json = serde_json::to_string(recorded).unwrap();
            let read = Source::parse("saved".into(), &json).unwrap();
            assert!(read.results == [recorded.clone()], "{name}: a result changes when saved");
            assert!(!serde_json::to_string(plain).unwrap().contains("tracks"));
        }
    }
}

/// A stop at an arbitrary moment, from another thread: tasks unwind in the middle of requests, with
/// locks held and parcels under way. A run that did not stop would take hours.
#[test]
fn every_workload_can_be_stopped() {
    for (recipe, policy) in RECIPES.iter().flat_map(|r| [(r, "Linux612"), (r, "Packed")]) {
        let policies = replay::columns(policy).unwrap();
        let options = Options { policies, iterations: 1_000_000, ..options(recipe.name, &[]) };
        let stop = options.stop.clone();
        let (begun, begins) = std::sync::mpsc::channel();
        let stopper = std::thread::spawn(move || {
            begins.recv().unwrap();
            stop.request();
        });
        let progress = &mut |_, _| {
            let _ = begun.send(());
        };
        let error = workload::run(recipe, &options, progress).unwrap_err();
        assert!(matches!(error, WorkloadError::Stopped), "{}: {error}", recipe.name);
        stopper.join().unwrap();
    }
}
