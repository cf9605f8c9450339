//! Replays of small traces with outcomes computed by hand, and of a real trace.

use pageyard::policy::MODIFIERS;
use pageyard_lab::replay::{
    Input, MachineOptions, Options, ReplayError, Report, Stage, TickPhase, by_name, by_names,
    policies, replay,
};

use pageyard_lab::show::{Form, When, show};
use pageyard_lab::table::{Options as TableOptions, Report as TableReport, Source, align};
use pageyard_trace::{
    Attachments, Event, Kind, Record, Summary, Tasks, TraceReader, TraceWriter, WriterOptions,
};

use crate::replay_trace::{F, Trace, drain, frees, options};
use crate::sample;

#[test]
fn a_refill_takes_a_batch() {
    let t = Trace::new().locked(F, 0, 0).locked(F + 1, 0, 0).locked(F + 2, 0, 0);
    let r = t.alloc(F, 0, 0).alloc(F + 1, 0, 0).alloc(F + 2, 0, 0).replay("Linux612");
    assert_eq!(r.machine.zones[1].batch, 3);
    let ours = r.policies[0].figures;
    assert_eq!(ours.moved, r.recorded.moved);
    assert_eq!((ours.moved.refill_pages, ours.moved.refill_holds), (3, 1));
    assert_eq!((ours.alloc_blocks, ours.alloc_pages, ours.zone_pages), (3, 3, 3));
    assert_eq!((r.recorded.idle_peak, ours.idle_peak), (3, 2), "before and after the request");
    assert_eq!(r.start.cached, 0);
}

#[test]
fn skipped_pages_count_as_taken_silently() {
    let t = Trace::new().locked(F, 0, 0).locked(F + 1, 0, 0).locked(F + 2, 0, 0);
    let r = t.alloc(F + 2, 0, 0).free(F, 0).replay("Linux612");
    assert_eq!(r.understanding.silent_pages, 2);
    let ours = r.policies[0].figures;
    assert_eq!((ours.alloc_blocks, ours.moved.refill_pages), (1, 3));
    assert_eq!(ours.matching.unwrap().unmatched, 0, "the free finds the silent page");
    assert_eq!(r.understanding.live_before, 0);
}

#[test]
fn a_page_freed_while_on_its_list_was_taken_silently() {
    let r = Trace::new().free(F, 0).free(F, 0).replay("Linux612");
    assert_eq!((r.understanding.silent_pages, r.understanding.live_before), (1, 1));
    let m = r.policies[0].figures.matching.unwrap();
    assert_eq!((m.frees, m.unmatched), (2, 0));
}

#[test]
fn lists_contain_the_pages_they_supplied() {
    // Allocated without a refill, so both were on the list, in this order. Drained from its tail.
    let t = Trace::new().alloc(F, 0, 0).alloc(F + 1, 0, 0).drain(F + 3, 0, 0).drain(F + 2, 0, 0);
    let r = t.replay("Linux612");
    assert_eq!((r.start.cached, r.start.conflicts), (4, 0));
    assert_eq!(r.policies[0].figures.moved.refill_pages, 0, "they are taken from the list");
    assert_eq!(r.policies[0].figures.idle_mean, 3.0, "four, three, two, for a microsecond each");
}

#[test]
fn batched_frees_happen_once_and_late() {
    let t = Trace::new().free(F, 0).free(F + 1, 0).batched(F).batched(F + 1);
    let r = t.replay("Linux612");
    assert_eq!((r.recorded.free_blocks, r.policies[0].figures.free_blocks), (2, 2));
    assert_eq!(r.understanding.live_before, 2);
    assert_eq!(r.understanding.bypassing_frees, 0);
}

#[test]
fn a_free_inside_a_batch_bypasses_the_lists() {
    // The task is between the two frees of its batch and so holds the lock of this CPU's lists.
    let t = Trace::new().free(F, 0).free(F + 1, 0).batched(F).free(F + 9, 0).batched(F + 1);
    let r = t.replay("Linux612");
    assert_eq!(r.understanding.bypassing_frees, 1);
    let ours = r.policies[0].figures;
    assert_eq!((ours.free_blocks, ours.lock_holds), (3, Some(1)), "one goes to the zone");
}

#[test]
fn blocks_are_split_when_freed_in_parts() {
    let mut t = Trace::new().alloc(F, 2, 1).free(F + 2, 1);
    for f in [F, F + 1] {
        t = t.free(f, 0);
    }
    let r = t.replay("Linux612");
    let ours = r.policies[0].figures;
    assert_eq!((ours.free_blocks, ours.free_pages), (3, 4));
    assert_eq!(ours.matching.unwrap().percent(), 0.0);
}

#[test]
fn unmatched_frees_are_counted() {
    // Allocated as single pages, freed as pairs.
    let r = Trace::new().alloc(F, 0, 1).alloc(F + 8, 0, 1).free(F, 1).free(F + 8, 0).replay("Base");
    let m = r.policies[0].figures.matching.unwrap();
    assert_eq!((m.frees, m.unmatched), (2, 1));
    assert_eq!(m.percent(), 50.0);
    assert!(r.to_string().contains("frees    50.00% of 2 could not be matched"), "{r}");
}

#[test]
fn another_cpus_drain_was_requested() {
    let t = Trace::new().free(F, 0).free(F + 1, 0);
    let t = t.line(1, "b-2", 10_000_010, &drain(F, 0, 1)).line(
        1,
        "b-2",
        10_000_011,
        &drain(F + 1, 0, 1),
    );
    let r = t.replay("Linux612");
    assert_eq!(r.understanding.requested_drains, 1);
    let ours = r.policies[0].figures;
    assert_eq!(ours.moved, r.recorded.moved);
    assert_eq!((ours.moved.drain_pages, ours.moved.drain_holds), (2, 1));
}

#[test]
fn base_drains_growing_batches() {
    // high = 12: 3 pages go at the 12th free, 6 at the 15th, then high - batch = 9 at the 21st.
    let r = frees().replay("Base");
    let ours = r.policies[0].figures;
    assert_eq!((ours.moved.drain_pages, ours.moved.drain_holds), (18, 3));
    assert_eq!(ours.idle_peak, 11);
    assert_eq!(r.recorded.moved.drain_pages, 0, "this is not the recording machine");
    assert_eq!(r.understanding.live_before, 21);
}

#[test]
fn linux_612_drains_what_was_freed_and_raises_high() {
    // At the 12th free: free_count 12, so high becomes 15, and min(12, 12 - 3) pages go.
    let ours = frees().replay("Linux612").policies[0].figures;
    assert_eq!((ours.moved.drain_pages, ours.moved.drain_holds), (9, 1));
    // Without a list for order 1, blocks of it go straight to the zone.
    let two = Trace::new().free(F, 1).free(F + 2, 1);
    assert_eq!(two.replay("NoHighOrder").policies[0].figures.lock_holds, Some(2));
    assert_eq!(two.replay("Linux612").policies[0].figures.lock_holds, Some(0));
}

#[test]
fn contradicting_events_are_skipped_or_rejected() {
    let bad = Trace::new().alloc(F, 0, 0).free(0x40_0000, 0).free(F, 0);
    let e = replay(bad.input(), &options("Base"), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(e, ReplayError::Inconsistent { record: 2, .. }), "{e}");
    assert!(e.to_string().starts_with("test: record 2: frame 0x400000 (order 0) is outside"));
    let lenient = Options { lenient: true, ..options("Base") };
    let r = replay(bad.input(), &lenient, &mut |_, _, _| {}).unwrap();
    assert_eq!((r.reading.events, r.reading.inconsistent), (3, 1));
    assert_eq!(r.policies[0].figures.free_blocks, 1);
    assert!(r.to_string().contains("1 events contradict the machine"), "{r}");

    let misaligned = Trace::new().free(F + 1, 1);
    assert!(replay(misaligned.input(), &options("Base"), &mut |_, _, _| {}).is_err());
    let cpu = Trace::new().line(64, "a-1", 1, &drain(F, 0, 0));
    assert!(replay(cpu.input(), &options("Base"), &mut |_, _, _| {}).is_err());
    let broken = Trace("nonsense\n".into());
    let e = replay(broken.input(), &options("Base"), &mut |_, _, _| {}).unwrap_err();
    assert!(e.to_string().contains("line 1"), "{e}");
    let none = Trace("cpus=1\n".into());
    let e = replay(none.input(), &options("Base"), &mut |_, _, _| {}).unwrap_err();
    assert!(matches!(e, ReplayError::NoEvents { .. }), "{e}");
}

#[test]
fn a_machine_is_derived_from_the_trace() {
    let plain = Options { machine: MachineOptions::default(), ..options("Linux612") };
    let t = Trace::new().alloc(0x12345, 0, 1).line(6, "b-2", 20_000_000, &drain(F, 0, 1));
    let r = replay(t.input(), &plain, &mut |_, _, _| {}).unwrap();
    assert_eq!(r.machine.cpus.len(), 7);
    assert_eq!(r.machine.zones.last().unwrap().end(), 0x18000, "up to the next 128 MiB");
    assert!(r.machine.kernel.is_unknown() && r.machine.kernel.policy == "Linux612");
}

/// An import attaches the kernel's release whenever it knows it.
#[test]
fn state_files_beside_a_trace_are_used_where_only_the_release_is_attached() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pgy");
    let mut writer = TraceWriter::new(Vec::new(), WriterOptions::default()).unwrap();
    let mut files = Attachments::new();
    files.set_kernel_release("6.12.30");
    writer.attach_all(&files).unwrap();
    let mut tasks = Tasks::new();
    let task = tasks.intern(1, "a");
    let event = Event { t_ns: 1, cpu: 0, task, kind: Kind::Free { pfn: 0x12345, order: 0 } };
    writer.write(&tasks, &Record::Event(event)).unwrap();
    std::fs::write(&path, writer.finish(&tasks, &Summary::default()).unwrap()).unwrap();
    let reader = TraceReader::open(sample("kbuild.pgy"), pageyard_trace::Options::default());
    let reader = reader.unwrap();
    let zoneinfo = reader.attachments().get("zoneinfo.traced_start").unwrap();
    std::fs::write(folder.path().join("zoneinfo.traced_start"), zoneinfo).unwrap();

    let plain = Options { machine: MachineOptions::default(), ..options("Linux612") };
    let r = replay(Input::Path(path.clone()), &plain, &mut |_, _, _| {}).unwrap();
    assert!(r.machine.sources[0].ends_with("zoneinfo (traced_start)"), "{:?}", r.machine.sources);
    assert_eq!(r.machine.kernel.release.as_deref(), Some("6.12.30"));
    let shown = show(&path, Form::Zoneinfo, When::default()).unwrap();
    assert_eq!(shown.state, "traced_start");
}

/// The kernel prints the marks as in force, with the boost of that moment.
#[test]
fn s3_3_a_recorded_boost_is_no_part_of_the_watermarks() {
    let reader = TraceReader::open(sample("kbuild.pgy"), pageyard_trace::Options::default());
    let reader = reader.unwrap();
    let plain = std::str::from_utf8(reader.attachments().get("zoneinfo.traced_start").unwrap());
    let replayed = |zoneinfo: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zoneinfo.traced_start"), zoneinfo).unwrap();
        let trace = folder.path().join("trace.txt");
        std::fs::write(&trace, Trace::new().free(0x12345, 0).0).unwrap();
        let options = Options { machine: MachineOptions::default(), ..options("Linux612") };
        replay(Input::Path(trace), &options, &mut |_, _, _| {})
    };
    let marks = |zoneinfo: &str| {
        let machine = replayed(zoneinfo).unwrap().machine;
        machine.zones.iter().map(|z| z.watermarks).collect::<Vec<_>>()
    };
    let boosted = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [name @ ("boost" | "min" | "low" | "high" | "promo"), n] => {
            format!("        {name:<9}{}\n", n.parse::<u64>().unwrap() + 50)
        }
        _ => format!("{line}\n"),
    };
    let plain = plain.unwrap();
    let all = marks(plain);
    assert_eq!(all[1], [11_192, 13_990, 16_788, 19_586]);
    assert_eq!(marks(&plain.lines().map(boosted).collect::<String>()), all);
    let wrong = plain.replacen("        boost    0", "        boost    72", 1);
    let error = replayed(&wrong).unwrap_err().to_string();
    assert!(error.contains("node 0 zone DMA: its min of 71 is below its boost of 72"), "{error}");
}

/// The relative distance in percent.
fn off(ours: u64, recorded: u64) -> f64 {
    (ours as f64 / recorded as f64 - 1.0).abs() * 100.0
}

/// Simulating a machine, with locks, coroutines and prices, changes no answer.
#[test]
fn a_recorded_build_on_a_machine_has_the_same_counters() {
    let path = sample("kbuild.pgy");
    let plain = Options {
        policies: by_names("Linux612,Packed").unwrap(),
        machine: MachineOptions::default(),
        seeds: 1,
        ..options("Linux612")
    };
    let desktop = pageyard_machine::MachineSpec::shipped("desktop").unwrap();
    let priced = Options { on: Some(desktop), ..plain.clone() };
    let run = |o| replay(Input::Path(path.clone()), o, &mut |_, _, _| {}).unwrap();
    let (plain, priced) = (run(&plain), run(&priced));
    for (plain, priced) in plain.policies.iter().zip(&priced.policies) {
        assert_eq!(plain.figures, priced.figures, "{}", plain.policy);
        assert!(priced.price.unwrap().operation_ns > Some(10.0), "{:?}", priced.price);
    }
    assert_eq!((plain.on, priced.on.as_deref()), (None, Some("desktop")));
    assert_eq!(plain.policies[0].price, None);
    let price = priced.policies[0].price.unwrap();
    assert!(price.operation_ns > Some(10.0) && price.hold_ns > Some(10.0), "{price:?}");
    assert!(price.held_percent.is_some_and(|p| (0.0..100.0).contains(&p)), "{price:?}");
    let text = priced.to_string();
    assert!(text.contains("simulated on desktop"), "{text}");
}

/// What the lab reads of the allocator's state to report it costs no simulated time, however much there is.
#[test]
fn what_is_reported_has_no_price() {
    let desktop = pageyard_machine::MachineSpec::shipped("desktop").unwrap();
    let price = |memory: u64| {
        let mut o = Options { on: Some(desktop.clone()), ..options("Packed") };
        (o.machine.memory, o.machine.cpus) = (Some(memory), Some(4));
        let r = replay(Trace::new().alloc(F, 0, 0).free(F, 0).input(), &o, &mut |_, _, _| {});
        r.unwrap().policies[0].price.unwrap().operation_ns.unwrap()
    };
    let (small, large) = (price(1 << 30), price(4 << 30));
    assert!(small < 2000.0 && large < 1.5 * small, "{small} {large}");
}

/// A setting changes how often CPUs tick.
#[test]
fn ticks_follow_the_setting() {
    let path = sample("kbuild.pgy");
    let o = Options {
        machine: MachineOptions::default(),
        seeds: 1,
        policies: by_names("Linux612,Linux612+stat_interval=1000").unwrap(),
        ..options("Linux612")
    };
    let r = replay(Input::Path(path), &o, &mut |_, _, _| {}).unwrap();
    let drained: Vec<_> = r.policies.iter().map(|p| p.figures.tick_pages.unwrap()).collect();
    assert!(drained[0] > 0 && drained[1] == 0, "{drained:?}");
}

/// A saved replay is read as results, one for each policy, and replays stand side by side.
#[test]
fn saved_replays_are_compared() {
    let one = |policy: &str| {
        let trace = Trace::new().alloc(F, 0, 0).free(F, 0).input();
        let r = replay(trace, &options(policy), &mut |_, _, _| {}).unwrap();
        let source = Source::parse(policy.to_owned(), &serde_json::to_string(&r).unwrap());
        (r, source.unwrap())
    };
    let ((base, first), (_, second)) = (one("Base"), one("Packed"));
    let sets = align(&[first, second]).unwrap();
    assert_eq!(sets.len(), 1);
    assert!(sets[0].simulated());
    let policies: Vec<&str> = sets[0].columns.iter().map(|c| c.policy.as_str()).collect();
    assert_eq!(policies, ["Base", "Packed"]);
    let row = |name: &str| sets[0].metrics.iter().find(|m| m.name == name).unwrap();
    assert_eq!(
        row("refill_pages").samples[0],
        [base.policies[0].figures.moved.refill_pages as f64]
    );
    assert!(row("depot_pages").samples[0].is_empty(), "the exact engine has no depots");
    assert!(
        row("refill_holds").samples[1].is_empty(),
        "the packed engine holds no lock: not 0 holds"
    );
    let text = TableReport::new(&sets, &TableOptions::default()).to_string();
    assert!(text.contains("replay, simulated on the recorded machine ("), "{text}");
    assert!(text.contains("only in Packed: depot_pages"), "{text}");
    // Cut off, as by a full disk.
    let whole = serde_json::to_string(&base).unwrap();
    let cut = Source::parse("cut".into(), &whole[..whole.len() / 2]).unwrap_err().to_string();
    assert!(cut.ends_with("; the file ends too early; save it again"), "{cut}");
}

/// A free alone takes no zone lock, so there is no hold to average over.
#[test]
fn averages_over_nothing_are_absent() {
    let desktop = pageyard_machine::MachineSpec::shipped("desktop").unwrap();
    let mut o = Options { on: Some(desktop), ..options("Linux612") };
    o.machine.cpus = Some(4);
    let r = replay(Trace::new().free(F, 0).input(), &o, &mut |_, _, _| {}).unwrap();
    let price = r.policies[0].price.unwrap();
    assert_eq!((price.hold_ns, price.held_percent), (None, Some(0.0)));
    assert!(price.operation_ns > Some(0.0));
    assert!(serde_json::to_value(price).unwrap()["hold_ns"].is_null());
    let text = r.to_string();
    let cell = |label: &str| text.lines().find(|l| l.trim_start().starts_with(label)).unwrap();
    assert!(cell("zone locks, ns per hold").ends_with(" -"), "{text}");
    assert!(cell("pages per hold").ends_with(" -"), "{text}");
}

#[test]
fn a_machine_that_is_too_small_is_rejected() {
    let desktop = pageyard_machine::MachineSpec::shipped("desktop").unwrap();
    let o = Options { on: Some(desktop), ..options("Linux612") };
    let refused = replay(Trace::new().alloc(F, 0, 0).input(), &o, &mut |_, _, _| {}).unwrap_err();
    assert!(refused.to_string().contains("desktop has 4 CPUs and 1 nodes, but the trace has 64"));
}

#[test]
fn a_figure_whose_event_was_not_recorded_is_absent() {
    let r = Trace::new().alloc(F, 0, 0).free(F, 0).replay("Linux612");
    let text = r.to_string();
    let row = |label: &str| {
        let line = text.lines().find(|l| l.starts_with(label)).unwrap();
        line[label.len()..].split_whitespace().next().unwrap().to_owned()
    };
    assert_eq!(row("pages taken from the zone"), "-");
    assert_eq!(row("  bulk frees (holds)"), "-");
    assert_eq!(row("claims"), "-");
    assert_eq!(row("pages freed"), "1");
    let zone_locked = "not recorded: mm_page_alloc_zone_locked; record it with ";
    assert!(text.lines().any(|l| l.starts_with(zone_locked)), "{text}");
    let drain = "none recorded: mm_page_pcpu_drain; it did not happen, or was not enabled";
    assert!(text.lines().any(|l| l.starts_with(drain)), "{text}");
    let json = serde_json::to_value(&r).unwrap();
    assert!(json["recorded"]["refill_pages"].is_null());
    assert_eq!(json["recorded"]["not_recorded"][0], "mm_page_alloc_zone_locked");
    assert!(json["policies"][0]["figures"]["refill_pages"].is_u64(), "a policy's are counted");
}

#[test]
fn the_recording_kernel_has_a_column_unless_policies_are_named() {
    let kernel = "6.6.30".parse().ok();
    let machine = MachineOptions { kernel, ..options("Base").machine };
    let named = Options { machine, ..options("Linux612") };
    let all = Options { add_recording: true, ..named.clone() };
    let t = Trace::new().locked(F, 0, 0).alloc(F, 0, 0);
    let run = |o: &Options| replay(t.input(), o, &mut |_, _, _| {}).unwrap();
    let columns = |r: &Report| r.policies.iter().map(|c| c.policy.clone()).collect::<Vec<_>>();
    let r = run(&all);
    assert_eq!(columns(&r), ["Linux612", "Vanilla<Base>"]);
    let text = r.to_string();
    let says = "kernel   6.6.30 (--kernel); Vanilla<Base> stands for this kernel\n";
    assert!(text.contains(says), "{text}");
    assert!(text.contains("Vanilla<Base> stands for the recording kernel; relative to"), "{text}");
    let r = run(&named);
    assert_eq!(columns(&r), ["Linux612"]);
    assert!(r.to_string().contains("add --policy Vanilla<Base>, which stands for"), "{r}");
}

/// A build on a real 6.12, under the policy that models it.
#[test]
fn a_recorded_build_moves_as_many_pages_as_the_kernel_within_5_percent() {
    let o = Options {
        tick_phase: TickPhase::Inferred,
        machine: MachineOptions::default(),
        ..options("Linux612")
    };
    let r = replay(Input::Path(sample("kbuild.pgy")), &o, &mut |_, _, _| {}).unwrap();
    assert_eq!(r.reading.events, 1_194_220);
    let (ours, recorded) = (r.policies[0].figures, &r.recorded);
    assert_eq!(ours.matching.unwrap().unmatched, 0);
    assert_eq!(ours.alloc_blocks, recorded.alloc_blocks);
    assert_eq!(ours.free_pages, recorded.free_pages);
    for (ours, recorded) in [
        (ours.moved.refill_pages, recorded.moved.refill_pages),
        (ours.moved.refill_holds, recorded.moved.refill_holds),
        (ours.moved.drain_pages, recorded.moved.drain_pages),
        (ours.moved.drain_holds, recorded.moved.drain_holds),
    ] {
        assert!(off(ours, recorded) <= 5.0, "{ours} against {recorded}");
    }
    // The result when this was written; the recording cannot change.
    let m = recorded.moved;
    assert_eq!((m.refill_pages, m.refill_holds), (83_362, 414));
    assert_eq!((m.drain_pages, m.drain_holds), (63_081, 43));
}

#[test]
fn a_recorded_build_gives_the_same_result_from_the_same_seed() {
    let o = Options {
        tick_phase: TickPhase::Inferred,
        machine: MachineOptions::default(),
        ..options("Linux612")
    };
    let json = || {
        let r = replay(Input::Path(sample("kbuild.pgy")), &o, &mut |_, _, _| {}).unwrap();
        serde_json::to_string(&r).unwrap()
    };
    assert_eq!(json(), json());
}

#[test]
fn the_packed_engine_serves_every_request_and_free_of_a_recorded_build() {
    let o = Options {
        policies: vec![by_name("Packed").unwrap()],
        tick_phase: TickPhase::Inferred,
        machine: MachineOptions::default(),
        ..options("Linux612")
    };
    let r = replay(Input::Path(sample("kbuild.pgy")), &o, &mut |_, _, _| {}).unwrap();
    let (ours, recorded) = (r.policies[0].figures, &r.recorded);
    assert_eq!(r.policies[0].policy, "Packed");
    assert_eq!((ours.failed, ours.matching.unwrap().unmatched), (0, 0));
    assert_eq!(ours.alloc_blocks, recorded.alloc_blocks);
    assert_eq!(ours.free_pages, recorded.free_pages);
    assert!(ours.idle_peak < recorded.idle_peak, "{} idle pages", ours.idle_peak);
    assert!(ours.depot_pages > Some(0) && ours.lock_holds == Some(0));
    assert!(r.policies[0].explained.as_ref().is_none_or(Vec::is_empty), "nothing is tuned");
    // The result when this was written (docs/packed.md).
    assert_eq!((ours.moved.refill_pages, ours.idle_peak), (78_838, 9_919));
}

#[test]
fn the_lists_of_a_recorded_build_are_explained_with_evidence() {
    let path = sample("kbuild.pgy");
    let o = Options {
        policies: vec![by_name("Base").unwrap(), by_name("Linux612").unwrap()],
        machine: MachineOptions::default(),
        explain: true,
        ..options("Linux612")
    };
    let r = replay(Input::Path(path), &o, &mut |_, _, _| {}).unwrap();
    for c in &r.policies {
        let explained = c.explained.as_ref().unwrap();
        assert_eq!(explained.len(), 4, "four CPUs, all at work in one zone: {explained:#?}");
        for e in explained {
            assert!(!e.verdicts.is_empty() && e.last.len() as u64 <= e.changes.values().sum());
            assert!(
                e.verdicts.iter().all(|v| !v.evidence.is_empty() && v.text.starts_with("CPU "))
            );
            if let Some(last) = e.last.last() {
                assert_eq!(last.to, e.high.1, "the last change led to what it is");
            }
        }
    }
    let changes = |i: usize, reason: &str| -> u64 {
        let explained = r.policies[i].explained.as_ref().unwrap();
        explained.iter().filter_map(|e| e.changes.get(reason)).sum()
    };
    assert_eq!(changes(0, "refill"), 0, "Base does not tune");
    assert!(changes(1, "refill") > 0 && changes(1, "decay") > 0);
    let text = r.to_string();
    assert!(text.contains("The per-CPU lists under Linux612, over the whole trace:\n  node 0 "));
}

/// Includes policies that keep no high-order blocks on lists where the kernel had some at the
/// start.
#[test]
fn every_policy_replays_a_recorded_build() {
    let path = sample("kbuild.pgy");
    let whole = policies().map(|p| p.name.to_owned());
    let around = MODIFIERS.iter().map(|m| format!("{}<Step10>", m.name));
    let more = ["TwoPassBulkFree<NoHighOrder<Base>>", "Guarded<2, Vanilla>"].map(str::to_owned);
    let names: Vec<String> = whole.chain(around).chain(more).collect();
    let o = Options {
        policies: by_names(&names.join(",")).unwrap(),
        seeds: 1,
        machine: MachineOptions::default(),
        ..options("Linux612")
    };
    let r = replay(Input::Path(path), &o, &mut |_, _, _| {}).unwrap();
    assert_eq!(r.policies.iter().map(|c| c.policy.clone()).collect::<Vec<_>>(), names);
    for c in &r.policies {
        assert_eq!(c.figures.alloc_pages, r.recorded.alloc_pages, "{}", c.policy);
        assert_eq!(c.figures.free_pages, r.recorded.free_pages, "{}", c.policy);
        assert_eq!(c.figures.matching.unwrap().unmatched, 0, "{}", c.policy);
    }
}

/// A track's steps add up to the run's totals, and recording changes nothing.
#[test]
fn a_recorded_replay_counts_the_same() {
    let path = sample("kbuild.pgy");
    let policies = ["Base", "Linux612"].map(|p| by_name(p).unwrap()).to_vec();
    let machine = MachineOptions::default();
    let o = Options { policies, machine, ..options("Linux612") };
    let plain = replay(Input::Path(path.clone()), &o, &mut |_, _, _| {}).unwrap();
    let recorded = Options { record: true, ..o };
    let report = replay(Input::Path(path), &recorded, &mut |_, _, _| {}).unwrap();
    for (plain, column) in plain.policies.iter().zip(&report.policies) {
        assert_eq!(format!("{:?}", plain.figures), format!("{:?}", column.figures));
        assert!(plain.track.is_none());
        let track = column.track.as_ref().unwrap();
        assert!(track.zone_wait.is_none() && track.latency.is_none());
        assert_eq!(track.lists_left_out, 0);
        let drains: u64 = track.lists.iter().flat_map(|l| &l.drains).sum();
        let moved = column.figures.moved;
        assert!(drains >= moved.drain_holds, "{drains} {}", moved.drain_holds);
        let heap = &track.heap;
        // Pages in use change by the pages allocated minus the pages freed.
        let change = *heap.in_use.last().unwrap() as i64 - heap.in_use[0] as i64;
        let counted = column.figures.alloc_pages as i64 - column.figures.free_pages as i64;
        let silent = report.understanding.silent_pages as i64;
        assert!((change - counted).abs() <= 2 * silent + 64, "{change} {counted} {silent}");
    }
}

/// Each CPU has its own clock: a track over time tolerates a clock that is behind.
#[test]
fn time_may_go_back_slightly() {
    let event = |pfn| drain(pfn, 0, 0);
    let t = Trace::new().line(0, "a-1", 2_000_000, &event(0x1000)).line(
        1,
        "a-1",
        1_999_000,
        &event(0x1001),
    );
    let recorded = Options { record: true, ..options("Linux612") };
    let r = replay(t.input(), &recorded, &mut |_, _, _| {}).unwrap();
    assert_eq!(r.reading.events, 2);
}

#[test]
fn an_impossible_time_is_rejected() {
    let t = Trace::new().alloc(0x1000, 0, 0).line(
        0,
        "a-1",
        10_000_000_000_000_000,
        &drain(0x1000, 0, 0),
    );
    let e = replay(t.input(), &options("Linux612"), &mut |_, _, _| {}).unwrap_err().to_string();
    assert!(e.contains("timestamp of 10000000000 seconds"), "{e}");
}

/// Settings apply to their column only, and change the allocator's behaviour there.
#[test]
fn settings_apply_to_their_column() {
    let path = sample("kbuild.pgy");
    let run = |policies: &str| {
        let policies = by_names(policies).unwrap();
        let machine = MachineOptions::default();
        let o = Options { policies, seeds: 1, machine, ..options("Linux612") };
        replay(Input::Path(path.clone()), &o, &mut |_, _, _| {})
    };
    let r = run("Linux612,Linux612+high=0,Linux612+high=4000,Base+high=4000").unwrap();
    let names: Vec<&str> = r.policies.iter().map(|c| c.policy.as_str()).collect();
    assert_eq!(names, ["Linux612", "Linux612+high=0", "Linux612+high=4000", "Base+high=4000"]);
    let peaks: Vec<u64> = r.policies.iter().map(|c| c.figures.idle_peak).collect();
    assert!(peaks[1] < peaks[0] && peaks[0] < peaks[2], "{peaks:?}");
    let alone = run("Linux612").unwrap();
    assert_eq!(r.policies[0].figures, alone.policies[0].figures);
    let wrong = run("Linux612,Linux612+high_min=9000000").unwrap_err().to_string();
    assert!(wrong.contains("high_min = 9000000 is above high_max = "), "{wrong}");
}

#[test]
fn a_replay_can_be_stopped_in_every_stage() {
    // More operations than are performed between two looks at the request.
    let mut t = Trace::new();
    for n in 0..40_000 {
        let (page, us) = (format!("page=0x1 pfn={:#x} order=0", F + n % 64), 10_000_000 + 2 * n);
        let alloc = format!("mm_page_alloc: {page} migratetype=0 gfp_flags=0xcc0");
        t = t.line(0, "a-1", us, &alloc).line(0, "a-1", us + 1, &format!("mm_page_free: {page}"));
    }
    for stage in [Stage::Import, Stage::Scan, Stage::Mirror, Stage::Replay] {
        let options = Options { seeds: 8, ..options("Linux612") };
        let mut seen = false;
        let result = replay(t.input(), &options, &mut |now, _, _| {
            if now == stage {
                seen = true;
                options.stop.request();
            }
        });
        assert!(seen, "{stage:?}");
        assert!(matches!(result, Err(ReplayError::Stopped)), "{stage:?}: {result:?}");
    }
}
