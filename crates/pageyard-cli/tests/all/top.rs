//! `pageyard top` reads this process.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use pageyard::{Gfp, Order};
use pageyard_host::Builder;

fn top(args: &[&str]) -> Output {
    Command::new(crate::PROGRAM).arg("top").args(args).output().unwrap()
}

#[test]
fn a_live_yard_in_another_process() {
    let _turn = crate::publishing();
    let yard = Builder::new(64 << 20).hard_limit(32 << 20).build().unwrap();
    let blocks: Vec<_> = (0..500).map(|_| yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap()).collect();
    let pid = std::process::id().to_string();
    let end = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        let out = top(&[&pid, "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        if json[0]["used"].as_u64() >= Some(500) {
            break json;
        }
        assert!(Instant::now() < end, "{}", String::from_utf8_lossy(&out.stderr));
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(seen[0]["pid"].as_u64().unwrap().to_string(), pid);
    assert_eq!(seen[0]["hard_limit"], 8192);
    // Most of them never reached the per-CPU lists.
    let hits = seen[0]["thread_cache"]["hits"].as_u64().unwrap();
    assert_eq!((&seen[0]["allocs"][0], &seen[0]["frees"][0]), (&500.into(), &0.into()));
    assert_eq!(hits + seen[0]["thread_cache"]["refills"].as_u64().unwrap(), 500);
    let cpus = seen[0]["zones"][0]["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), yard.cpus().len());
    // Without a terminal the picture is text.
    for args in [&[pid.as_str()][..], &[&pid, "--once"]] {
        let out = top(args);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.starts_with(&format!("process {pid}, pressure calm\n")), "{text}");
        assert!(text.contains("hard 32 MiB") && text.contains("CPU 0: count"), "{text}");
        assert!(text.contains("\n  blocks allocated order 0: 500,"), "{text}");
        assert!(text.contains("\n  thread cache: 1 thread, "), "{text}");
    }
    let another = Builder::new(8 << 20).build().unwrap();
    let text = loop {
        let text = String::from_utf8(top(&[&pid, "--once"]).stdout).unwrap();
        // Its worker publishes.
        if text.contains(" of 2, ") {
            break text;
        }
        assert!(Instant::now() < end, "{text}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for n in 1..=2 {
        assert!(text.contains(&format!("process {pid}, yard {n} of 2, pressure calm\n")), "{text}");
    }
    drop(another);
    // Without a PID: this process among all that have yards.
    let list: serde_json::Value = serde_json::from_slice(&top(&["--json"]).stdout).unwrap();
    let processes = list["processes"].as_array().unwrap();
    let this = processes.iter().find(|p| p["pid"].as_u64() == pid.parse().ok()).unwrap();
    assert_eq!((&this["yards"], &this["pages"]), (&1.into(), &16384.into()));
    let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(this["name"], comm.trim_end());
    let text = String::from_utf8(top(&[]).stdout).unwrap();
    assert!(text.trim_start().starts_with("PID  name"), "{text}");
    let line = text.lines().find(|l| l.split_whitespace().next() == Some(&pid)).unwrap();
    assert!(line.contains("  64 MiB  ") && line.ends_with("  calm"), "{line}");
    drop(blocks);
}

/// Its page must not end the list of the other processes.
#[test]
fn a_process_with_an_invalid_page_is_listed_with_its_error() {
    use crate::failures::hostile::Publisher;
    let publisher = Publisher::new("{\"level\":\"\\u001b[2J\"", 1);
    let text = String::from_utf8(top(&[]).stdout).unwrap();
    let line = text.lines().find(|l| l.contains(&publisher.pid())).unwrap();
    assert!(line.contains("/proc/") && line.contains("EOF while parsing"), "{line}");
    let list: serde_json::Value = serde_json::from_slice(&top(&["--json"]).stdout).unwrap();
    let processes = list["processes"].as_array().unwrap();
    let this =
        processes.iter().find(|p| p["pid"].as_u64() == publisher.pid().parse().ok()).unwrap();
    assert!(this["yards"] == 0 && this["error"].is_string(), "{this}");
}

#[test]
fn a_process_without_a_yard_is_an_error() {
    for (pid, wanted) in [("4294967295", "process 4294967295: "), ("1", "process 1")] {
        let out = top(&[pid, "--once"]);
        assert_eq!(out.status.code(), Some(2));
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(text.starts_with(&format!("pageyard: {wanted}")), "{text}");
    }
}
