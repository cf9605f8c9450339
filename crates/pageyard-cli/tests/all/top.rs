//! `pageyard top` reads this process.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use pageyard::{Gfp, Order};
use pageyard_host::{Builder, HostYard};
use serde_json::Value;

fn top(args: &[&str]) -> Output {
    Command::new(crate::PROGRAM).arg("top").args(args).output().unwrap()
}

fn text(args: &[&str]) -> String {
    String::from_utf8(top(args).stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&top(args).stdout).unwrap_or_default()
}

/// Runs `read` until it returns something: a yard's worker publishes at intervals.
fn wait<T>(mut read: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = read() {
            return found;
        }
        assert!(Instant::now() < end, "nothing was published in a minute");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Calls `test` with a yard of which `top` shows 500 blocks in use, and with this process's id.
fn with_live_yard(test: impl FnOnce(&HostYard, &str)) {
    let _turn = crate::publishing();
    let yard = Builder::new(64 << 20).hard_limit(32 << 20).build().unwrap();
    let blocks: Vec<_> = (0..500).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    let pid = std::process::id().to_string();
    wait(|| (json(&[&pid, "--json"])[0]["used"].as_u64() >= Some(500)).then_some(()));
    test(&yard, &pid);
    drop(blocks);
}

#[test]
fn json_has_the_figures_of_a_yard_in_another_process() {
    with_live_yard(|yard, pid| {
        let seen = &json(&[pid, "--json"])[0];
        assert_eq!(seen["pid"].as_u64().unwrap().to_string(), pid);
        assert_eq!(seen["hard_limit"], 8192);
        // Most of them never reached the per-CPU lists.
        let hits = seen["thread_cache"]["hits"].as_u64().unwrap();
        assert_eq!((&seen["allocs"][0], &seen["frees"][0]), (&500.into(), &0.into()));
        assert_eq!(hits + seen["thread_cache"]["refills"].as_u64().unwrap(), 500);
        let cpus = seen["zones"][0]["cpus"].as_array().unwrap();
        assert_eq!(cpus.len(), yard.cpus().len());
    });
}

#[test]
fn without_a_terminal_the_picture_is_text() {
    with_live_yard(|_, pid| {
        for args in [&[pid][..], &[pid, "--once"]] {
            let text = text(args);
            assert!(text.starts_with(&format!("process {pid}, pressure calm")), "{text}");
            assert!(text.contains("hard 32 MiB") && text.contains("CPU 0: count"), "{text}");
            assert!(text.contains("\n  blocks allocated order 0: 500,"), "{text}");
            assert!(text.contains("\n  thread cache: 1 thread, "), "{text}");
        }
    });
}

#[test]
fn yards_of_one_process_are_numbered() {
    with_live_yard(|_, pid| {
        let _another = Builder::new(8 << 20).build().unwrap();
        let text = wait(|| Some(text(&[pid, "--once"])).filter(|t| t.contains(" of 2, ")));
        for n in 1..=2 {
            assert!(
                text.contains(&format!("process {pid}, yard {n} of 2, pressure calm")),
                "{text}"
            );
        }
    });
}

#[test]
fn without_a_pid_all_processes_that_have_yards_are_listed() {
    with_live_yard(|_, pid| {
        let list = json(&["--json"]);
        let processes = list["processes"].as_array().unwrap();
        let this = processes.iter().find(|p| p["pid"].as_u64() == pid.parse().ok()).unwrap();
        assert_eq!((&this["yards"], &this["pages"]), (&1.into(), &16384.into()));
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(this["name"], comm.trim_end());
        let text = text(&[]);
        assert!(text.trim_start().starts_with("PID  name"), "{text}");
        let line = text.lines().find(|l| l.split_whitespace().next() == Some(pid)).unwrap();
        assert!(line.contains("  64 MiB  ") && line.contains("  calm"), "{line}");
    });
}

/// A process that is stopped, or whose worker is, does not update its page.
#[test]
fn old_figures_are_marked_with_their_age() {
    use crate::failures::hostile::{Publisher, statistics};
    let publisher = Publisher::new(&statistics("calm", ""), 1);
    let pid = publisher.pid();
    assert!(text(&[&pid, "--once"]).contains(", pressure calm, figures "));
    let list = text(&[]);
    let line = list.lines().find(|l| l.split_whitespace().next() == Some(&pid)).unwrap();
    assert!(line.contains("  calm, figures ") && line.ends_with(" s old"), "{line}");
    let list = json(&["--json"]);
    let processes = list["processes"].as_array().unwrap();
    let this = processes.iter().find(|p| p["pid"].as_u64() == pid.parse().ok()).unwrap();
    assert_eq!(this["at_ns"], 0);
}

/// Its page must not end the list of the other processes.
#[test]
fn a_process_with_an_invalid_page_is_listed_with_its_error() {
    use crate::failures::hostile::Publisher;
    let publisher = Publisher::new("{\"level\":\"\\u001b[2J\"", 1);
    let text = text(&[]);
    let line = text.lines().find(|l| l.contains(&publisher.pid())).unwrap();
    assert!(line.contains("/proc/") && line.contains("EOF while parsing"), "{line}");
    let list = json(&["--json"]);
    let processes = list["processes"].as_array().unwrap();
    let this =
        processes.iter().find(|p| p["pid"].as_u64() == publisher.pid().parse().ok()).unwrap();
    assert!(this["yards"] == 0 && this["error"].is_string(), "{this}");
}

#[test]
fn a_process_without_a_yard_is_an_error() {
    for (pid, wanted) in [
        ("4294967295", "process 4294967295: no such process; name a running one"),
        ("1", "process 1"),
    ] {
        let out = top(&[pid, "--once"]);
        assert_eq!(out.status.code(), Some(2));
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(text.starts_with(&format!("pageyard: {wanted}")), "{text}");
    }
}
