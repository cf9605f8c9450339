//! The workload `kbuild` on the simulated machine: where its memory comes from, its warm-up, its
//! locks, and what its builds have in common.

use pageyard_lab::replay;
use pageyard_lab::workload::{self, Options};
use pageyard_machine::MachineSpec;

use crate::workload::{is, options, run, value};

#[test]
fn growing_lists_reduce_zone_accesses_of_a_build() {
    let results = run("kbuild", &options("kbuild", &["Base", "Step7"]));
    is(&results[0], "zone_pages", 34_629.0);
    is(&results[1], "zone_pages", 2_202.0);
}

/// A build on a machine of two nodes.
fn build_of_two_nodes(set: &[(&str, &str)]) -> Options {
    let mut options = options("kbuild", &["Base"]);
    options.machine = MachineSpec::shipped("2x20").unwrap();
    options.set.extend(set.iter().map(|&(name, n)| (name.to_owned(), n.to_owned())));
    options
}

/// Memory is bound independently of CPUs, as with `numactl -m 1`.
#[test]
fn memory_comes_from_the_given_node_wherever_processes_run() {
    let of = |memory| {
        let options = build_of_two_nodes(&[("jobs", "4"), ("memory", memory)]);
        let result = &run("kbuild", &options)[0];
        assert_eq!(value(result, "failed"), 0.0, "{memory}");
        ["zone_pages-node0", "zone_pages-node1"].map(|name| value(result, name))
    };
    let [first, second] = of("node:1");
    assert!(first == 0.0 && second > 10_000.0, "{first} {second}");
    let [first, second] = of("node:0");
    assert!(second == 0.0 && first > 10_000.0, "{first} {second}");
    for memory in ["local", "other", "interleave"] {
        // Two of the four jobs run on each node.
        let [first, second] = of(memory);
        assert!(first.min(second) > 0.2 * first.max(second), "{memory}: {first} {second}");
    }
}

/// The packed engine counts what leaves a zone elsewhere.
#[test]
fn pages_from_each_node_add_up_on_both_engines() {
    for policy in ["Linux612", "Packed"] {
        let mut options = build_of_two_nodes(&[("jobs", "4"), ("memory", "local")]);
        options.policies = replay::columns(policy).unwrap();
        let result = &run("kbuild", &options)[0];
        let nodes = ["zone_pages-node0", "zone_pages-node1"].map(|name| value(result, name));
        assert!(nodes.iter().all(|&pages| pages > 0.0), "{policy}: {nodes:?}");
        assert_eq!(nodes[0] + nodes[1], value(result, "zone_pages"), "{policy}");
    }
}

/// On 80 CPUs, objects of processes are in slabs of orders 1 to 3. Empty ones are freed one after
/// another, which drains lists even under Step1, where a single high-order free does not.
#[test]
fn slabs_of_a_large_machine_drain_lists_in_a_row() {
    let mut options = build_of_two_nodes(&[("jobs", "40"), ("objects", "2")]);
    options.policies = replay::columns("Base,Step1").unwrap();
    let results = run("kbuild", &options);
    let [base, step_1] = [0, 1].map(|i| value(&results[i], "free_high"));
    assert!(0.0 < step_1 && step_1 < base, "{base} {step_1}");
}

/// Memory outside the zones is larger at its peak than at rest, and tuned lists give theirs back.
#[test]
fn memory_returns_when_the_machine_idles() {
    let of = |idle: &str| {
        let mut options = options("kbuild", &["Base", "Step7"]);
        options.set.extend([("idle", idle), ("warm", "4")].map(|(n, v)| (n.into(), v.into())));
        let results = run("kbuild", &options);
        // The idle phase is no part of the build.
        assert!(results.iter().all(|r| value(r, "time") < 2.0), "{results:?}");
        let of = |metric: &str| [value(&results[0], metric), value(&results[1], metric)];
        (of("peak_memory"), of("idle_memory"))
    };
    let (peak, after) = of("0");
    assert!(peak[0] < peak[1] && after[0] < after[1], "tuned lists keep more: {peak:?} {after:?}");
    assert!(after.iter().zip(peak).all(|(after, peak)| *after < peak), "{peak:?} {after:?}");
    let (same, rest) = of("60");
    assert_eq!(peak, same, "the idle phase comes after the build");
    // At rest each list has at most what a fixed one may have.
    let more = |pages: [f64; 2]| pages[1] - pages[0];
    assert!(more(rest) < 0.1 * more(after), "{after:?} {rest:?}");
}

/// The lock of an LRU list serves a node, or a node and a group.
#[test]
fn groups_do_not_share_the_lru_lock() {
    let of = |set: &[(&str, &str)]| {
        let mut options = build_of_two_nodes(&[("jobs", "40"), ("memory", "node:1")]);
        options.set.extend(set.iter().map(|&(name, n)| (name.to_owned(), n.to_owned())));
        run("kbuild", &options).remove(0)
    };
    let [one, eight, newer] = [&[("groups", "1")], &[("groups", "8")], &[("lru", "31")]]
        .map(|set| value(&of(set), "lru_lock"));
    assert!(one > 0.0 && eight < 0.5 * one, "{one} {eight}");
    assert!(newer < one, "fewer holds of twice the length: {one} {newer}");
    let mut without = options("kbuild", &["Base"]);
    without.set.push(("lru".into(), "0".into()));
    let none = &run("kbuild", &without)[0];
    assert!(none.metrics.iter().all(|m| m.name != "lru_lock"));
}

/// On a heap that has been in use, neighbours on free lists are not neighbours in memory, so a hold
/// of the zone lock touches more lines.
#[test]
fn lists_of_an_aged_heap_are_held_longer() {
    let holds = |age| {
        let options = Options { age, descriptor: 64, ..options("kbuild", &["BlockByBlock<Base>"]) };
        let result = &run("kbuild", &options)[0];
        assert_eq!(result.parameters.contains_key("machine.age"), age != 0);
        value(result, "hold_alloc_avg")
    };
    let (fresh, aged) = (holds(0), holds(40));
    assert!(2.0 * fresh < aged, "{fresh} {aged}");
}

/// Lists of a fixed size need no longer warm-up; lists that grow are warmed up until they do not.
#[test]
fn a_build_warms_up_until_high_is_stationary() {
    // With more memory, lists may grow for longer.
    let mut options = Options { memory: Some(16 << 30), ..options("kbuild", &["Base", "Step7"]) };
    options.set.push(("warm".into(), "stationary".into()));
    let results = run("kbuild", &options);
    let of = |metric: &str| [value(&results[0], metric), value(&results[1], metric)];
    let [fixed, tuned] = of("warm_up");
    assert_eq!(fixed, 3.0);
    assert!(fixed < tuned && tuned <= 241.0, "{tuned}");
    let [fixed, tuned] = of("warm_up_change");
    assert!(fixed == 0.0 && (tuned < 2.0 || of("warm_up")[1] == 241.0), "{fixed} {tuned}");
    assert!(of("warm_up_time").iter().all(|&seconds| seconds > 0.0));
    options.set.push(("warm".into(), "5".into()));
    let results = run("kbuild", &options);
    assert!(results.iter().all(|r| value(r, "warm_up") == 5.0));
    // Processes that move use lists of the other node for the first time, round after round.
    let mut two_nodes = build_of_two_nodes(&[("warm", "stationary"), ("jobs", "40")]);
    two_nodes.memory = Some(16 << 30);
    assert_eq!(value(&run("kbuild", &two_nodes)[0], "warm_up"), 3.0);
    options.set.push(("warm".into(), "soon".into()));
    let recipe = workload::by_name("kbuild").unwrap();
    let error = workload::run(&recipe, &options, &mut |_, _| {}).unwrap_err().to_string();
    let expected = "stationary, or a whole number from 1 to 1048576";
    assert_eq!(error, format!("kbuild: warm=soon: expected {expected}"));
}

/// The measured build is the same after any warm-up and under all policies, so that its times compare
/// lists, not objects. (Each object's demand has random numbers of its own.)
#[test]
fn all_policies_build_the_same_objects_after_any_warm_up() {
    let times = |warm: &str| {
        let mut options = build_of_two_nodes(&[("jobs", "8"), ("objects", "3")]);
        options.policies = ["Base", "Step7"].map(|p| replay::by_name(p).unwrap()).to_vec();
        options.set.push(("warm".into(), warm.into()));
        run("kbuild", &options).iter().map(|r| value(r, "time")).collect::<Vec<_>>()
    };
    let all = ["1", "2", "3"].map(times).concat();
    // Other objects take 10 to 30% more or less.
    let most = all.iter().copied().fold(0.0, f64::max);
    assert!(all.iter().all(|time| time / most > 0.985), "{all:?}");
}

/// What follows the last object that is begun is no part of the busy time.
#[test]
fn a_build_is_busy_until_no_object_is_left() {
    let of = |objects: &str| {
        let result = &run("kbuild", &build_of_two_nodes(&[("jobs", "8"), ("objects", objects)]))[0];
        (value(result, "busy_time"), value(result, "time"))
    };
    let [(short, all), (long, _)] = ["4", "8"].map(of);
    assert!(short < all, "{short} of {all}");
    // A build of 8 objects per job begins with those of a build of 4.
    assert!(short < long, "{short} {long}");
}

/// More of the kernel's instructions run under the zone lock than of this allocator's.
#[test]
fn linux_costs_hold_the_lock_longer() {
    let run_at = |costs: pageyard_machine::Costs| {
        let options = Options { costs, ..options("kbuild", &["BlockByBlock<Base>"]) };
        run("kbuild", &options).remove(0)
    };
    let ours = run_at(pageyard_machine::Costs::DEFAULT);
    let linux = run_at(pageyard_machine::Costs::LINUX);
    assert!(!ours.parameters.contains_key("machine.costs"));
    assert!(linux.parameters["machine.costs"].contains("zone_take=24890"), "{linux:?}");
    for metric in ["hold_alloc_avg", "hold_free_avg", "allocator"] {
        assert!(value(&ours, metric) < value(&linux, metric), "{metric}");
    }
}
