//! Pinned answers: what a yard does in random scenarios, down to every event, hook call and list,
//! compared with `expected/*.txt`. One CPU acts at a time, so the scenario's number determines the
//! result.
//!
//! These tests state no rule. They find changes of behaviour that no test of a rule covers, so an
//! intended change makes them fail too. `PAGEYARD_RENEW=1` writes the expected digests again, and
//! `PAGEYARD_LOG=DIR` writes the log of each scenario, so that two versions of the code can be
//! compared by `diff`.

use std::path::Path;

use pageyard::ZoneKind;
use pageyard::policy::{MODIFIERS, POLICIES, Packed, Rules, StaticPolicy};

use crate::common::{Chosen, LINUX612, Machine};
use crate::scenario::{Act, Scenario};

/// Runs scenarios and compares their digests with those of the file.
fn pinned(name: &str, scenarios: &[Scenario]) {
    let lines: Vec<String> = scenarios.iter().map(|s| s.run(name)).collect();
    let text = lines.join("\n") + "\n";
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/answers/expected/{name}.txt"));
    if std::env::var_os("PAGEYARD_RENEW").is_some() {
        return std::fs::write(path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap();
    assert_eq!(
        text,
        want,
        "answers differ from {}; the module says how to compare",
        path.display()
    );
}

fn numbered(n: u64, make: impl Fn(u64) -> Scenario) -> Vec<Scenario> {
    (0..n).map(|seed| Scenario { seed, ..make(seed) }).collect()
}

/// Complete policies, modifiers, and both that came later. A scenario's number is its seed, so a new
/// policy is added at the end.
const POLICY_NAMES: [&str; 10] =
    ["Linux612", "Base", "Step1", "Step3", "Step5", "Step7", "Step8", "Step9", "Step10", "Linux61"];
const MODIFIER_NAMES: [&str; 15] = [
    "LargestFirst",
    "Vanilla",
    "TwoPassBulkFree",
    "BlockByBlock",
    "NoHighOrder",
    "EarlyLimits",
    "LateFreeHigh",
    "ChunkedDrain",
    "SixBatches",
    "TypeChecked",
    "PageChecked",
    "Poisoned",
    "InitOnAlloc",
    "InitOnFree",
    "Unmapped",
];
const LATER_NAMES: [&str; 6] =
    ["Linux618", "Linux619", "IsolateBit", "DefragMode", "Steered", "OwnedBlocks"];

fn all_names() -> Vec<&'static str> {
    [&POLICY_NAMES[..], &MODIFIER_NAMES, &LATER_NAMES].concat()
}

/// The rules of the policy with this name; of a modifier, those that it makes of `of`.
fn rules(name: &str, of: &Rules) -> Chosen {
    if let Some(policy) = POLICIES.iter().find(|p| p.name == name) {
        return policy.makes;
    }
    let modifier = MODIFIERS.iter().find(|m| m.name == name).unwrap();
    Box::leak(Box::new((modifier.makes)(*of)))
}

#[test]
fn every_policy_is_pinned() {
    let names = POLICIES.iter().map(|p| p.name).chain(MODIFIERS.iter().map(|m| m.name));
    let left: Vec<_> = names.filter(|name| !all_names().contains(name)).collect();
    assert_eq!(left, [""; 0], "add them to the end of LATER_NAMES");
}

fn normal() -> Machine {
    Machine::normal(8192).cpus(&[0, 0])
}

fn zones() -> Machine {
    Machine::new()
        .zone(ZoneKind::Dma, 0..4096)
        .zone(ZoneKind::Normal, 4096..12_288)
        .zone(ZoneKind::Movable, 12_288..16_384)
        .reserved(5000..5017)
        .cpus(&[0, 0, 0])
}

fn nodes() -> Machine {
    Machine::new()
        .cpus(&[0, 1])
        .zone(ZoneKind::Dma32, 0..4096)
        .zone(ZoneKind::Normal, 4096..8192)
        .zone_on(1, ZoneKind::Normal, 8192..12_288)
        .zone_on(1, ZoneKind::Movable, 12_288..14_336)
        .zone_on(2, ZoneKind::Normal, 16_384..19_000)
        .distances(&[10, 20, 40, 20, 10, 30, 40, 30, 10])
}

/// An unaligned zone with holes.
fn odd() -> Machine {
    Machine::new()
        .span(ZoneKind::Normal, 700..9_900)
        .usable(700..6_000)
        .usable(6_777..9_877)
        .reserved(3_000..3_010)
        .cpus(&[0, 0])
}

fn scenario(machine: Machine, acts: &'static [(u32, Act)], steps: u32) -> Scenario {
    Scenario { seed: 0, machine, rules: LINUX612, acts, steps, full: 0 }
}

const REQUESTS: &[(u32, Act)] = &[
    (12, Act::Alloc),
    (6, Act::AllocMany),
    (6, Act::Free),
    (6, Act::FreeMany),
    (2, Act::FreeOther),
    (1, Act::Split),
    (2, Act::Batch),
    (2, Act::Bulk),
    (2, Act::Cpu),
    (3, Act::Tick),
    (1, Act::Drain),
    (2, Act::Mood),
    (1, Act::Context),
    (1, Act::Knob),
    (1, Act::Highatomic),
    (1, Act::Kswapd),
    (1, Act::CpuHotplug),
    (1, Act::CacheSlice),
];

const COMPACTION: &[(u32, Act)] = &[
    (6, Act::Fragment),
    (16, Act::CompactFor),
    (8, Act::CompactZone),
    (1, Act::CompactAll),
    (12, Act::Background),
    (2, Act::ForgetHints),
    (3, Act::AllocMany),
    (3, Act::FreeMany),
    (6, Act::Alloc),
    (1, Act::Tick),
    (1, Act::Isolate),
    (1, Act::Cma),
    (1, Act::Mood),
    (1, Act::Cpu),
    (1, Act::CompactKnob),
    (1, Act::Drain),
];

const RANGES: &[(u32, Act)] = &[
    (3, Act::AllocMany),
    (3, Act::FreeMany),
    (3, Act::Isolate),
    (4, Act::Contig),
    (1, Act::Cma),
    (3, Act::Place),
    (2, Act::Poison),
    (1, Act::Release),
    (1, Act::Drain),
    (1, Act::Mood),
    (1, Act::CompactZone),
];

const MEMORY: &[(u32, Act)] = &[
    (3, Act::AllocMany),
    (2, Act::FreeMany),
    (5, Act::Online),
    (6, Act::Offline),
    (1, Act::Poison),
    (1, Act::Drain),
    (1, Act::Contig),
    (1, Act::Mood),
    (1, Act::Highatomic),
    (2, Act::ReportFree),
    (2, Act::Alloc),
];

#[test]
fn requests_of_one_zone() {
    pinned("requests", &numbered(8, |_| scenario(normal(), REQUESTS, 150)));
}

#[test]
fn requests_of_one_full_zone() {
    pinned("full", &numbered(8, |_| Scenario { full: 97, ..scenario(normal(), REQUESTS, 120) }));
}

#[test]
fn requests_of_three_zones() {
    pinned("zones", &numbered(8, |_| Scenario { full: 80, ..scenario(zones(), REQUESTS, 150) }));
}

#[test]
fn requests_of_three_nodes() {
    pinned("nodes", &numbered(12, |_| Scenario { full: 90, ..scenario(nodes(), REQUESTS, 150) }));
}

#[test]
fn requests_under_each_policy() {
    let make = |seed| Scenario {
        rules: rules(all_names()[seed as usize], LINUX612),
        full: 60,
        ..scenario(normal(), REQUESTS, 100)
    };
    pinned("policies", &numbered(all_names().len() as u64, make));
}

#[test]
fn requests_under_older_policies_with_a_change() {
    const FIRST: usize = 24;
    let is_modifier = |name: &&str| MODIFIERS.iter().any(|m| m.name == *name);
    let later: Vec<&str> = LATER_NAMES.into_iter().filter(is_modifier).collect();
    let make = |seed: u64| {
        let n = seed as usize;
        let older = rules(POLICY_NAMES[n % POLICY_NAMES.len()], LINUX612);
        let older = rules("Vanilla", older);
        let newer = n.checked_sub(FIRST).map(|n| later[n]);
        let modifier = newer.unwrap_or(MODIFIER_NAMES[n % MODIFIER_NAMES.len()]);
        Scenario { rules: rules(modifier, older), full: 60, ..scenario(normal(), REQUESTS, 100) }
    };
    pinned("older", &numbered((FIRST + later.len()) as u64, make));
}

#[test]
fn compaction_of_one_zone() {
    pinned(
        "compaction",
        &numbered(5, |_| Scenario { full: 90, ..scenario(normal(), COMPACTION, 80) }),
    );
}

#[test]
fn compaction_of_other_zones() {
    let machines = [odd, nodes, zones];
    let make = |seed| {
        let machine = machines[seed as usize % 3]();
        Scenario { full: 90, ..scenario(machine, COMPACTION, 80) }
    };
    pinned("compaction_zones", &numbered(6, make));
}

#[test]
fn ranges() {
    let machines = [normal, odd, zones];
    let make = |seed| {
        let machine = machines[seed as usize % 3]();
        Scenario { full: 50, ..scenario(machine, RANGES, 80) }
    };
    pinned("ranges", &numbered(9, make));
}

fn hotplug(seed: u64) -> Scenario {
    const SECTION: u64 = pageyard::SECTION_PAGES;
    let machine = Machine::new()
        .zone(ZoneKind::Normal, 0..SECTION)
        .span(ZoneKind::Movable, SECTION..4 * SECTION)
        .usable(SECTION..2 * SECTION)
        .cpus(&[0, 0]);
    let machine = if seed % 2 == 1 {
        machine.zone_on(1, ZoneKind::Normal, 4 * SECTION..5 * SECTION)
    } else {
        machine
    };
    Scenario { full: 30, ..scenario(machine, MEMORY, 30) }
}

#[test]
fn memory_hotplug() {
    pinned("hotplug", &numbered(6, hotplug));
}

/// Runs scenarios on the packed engine, on these machines in turn. Its answers are not Linux's.
fn pinned_on_packed(
    name: &str,
    n: u64,
    machines: &[fn() -> Machine],
    make: impl Fn(u64, Machine) -> Scenario,
) {
    let machine = |seed| machines[seed as usize % machines.len()]();
    let make = |seed| Scenario { rules: &Packed::RULES, ..make(seed, machine(seed)) };
    pinned(name, &numbered(n, make));
}

#[test]
fn requests_on_the_packed_engine() {
    let full = |seed: u64| [0, 60, 80, 97][seed as usize / 4 % 4];
    pinned_on_packed("packed", 16, &[normal, zones, nodes, odd], |seed, machine| Scenario {
        full: full(seed),
        ..scenario(machine, REQUESTS, 200)
    });
}

#[test]
fn compaction_on_the_packed_engine() {
    pinned_on_packed("packed_compaction", 8, &[normal, odd, nodes, zones], |_, machine| Scenario {
        full: 90,
        ..scenario(machine, COMPACTION, 40)
    });
}

#[test]
fn ranges_on_the_packed_engine() {
    pinned_on_packed("packed_ranges", 12, &[normal, odd, zones], |_, machine| Scenario {
        full: 50,
        ..scenario(machine, RANGES, 100)
    });
}

#[test]
fn memory_hotplug_on_the_packed_engine() {
    let make = |seed| Scenario { rules: &Packed::RULES, ..hotplug(seed) };
    pinned("packed_hotplug", &numbered(6, make));
}

/// Zones and nodes that get their first memory and lose their last.
#[test]
fn zones_that_come_and_go() {
    const SECTION: u64 = pageyard::SECTION_PAGES;
    let make = |_| {
        let machine = Machine::new()
            .zone(ZoneKind::Dma32, 0..4096)
            .span(ZoneKind::Normal, 4096..2 * SECTION)
            .usable(4096..6000)
            .span(ZoneKind::Movable, 2 * SECTION..3 * SECTION)
            .zone_on(1, ZoneKind::Normal, 3 * SECTION..3 * SECTION + 4096)
            .cpus(&[0, 1]);
        let mut machine = machine;
        machine.zones.push(pageyard::ZoneSpec {
            kind: ZoneKind::Movable,
            node: pageyard::NodeId(1),
            span: crate::common::frames(4 * SECTION..5 * SECTION),
        });
        scenario(machine, MEMORY, 40)
    };
    pinned("first_memory", &numbered(6, make));
}
