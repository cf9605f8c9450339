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
    let cpus = seen[0]["zones"][0]["cpus"].as_array().unwrap();
    assert_eq!(cpus.len(), yard.cpus().len());
    // Without a terminal the picture is text.
    for args in [&[pid.as_str()][..], &[&pid, "--once"]] {
        let out = top(args);
        let text = String::from_utf8(out.stdout).unwrap();
        assert!(text.starts_with(&format!("process {pid}, pressure calm\n")), "{text}");
        assert!(text.contains("hard 32.0 MiB") && text.contains("CPU 0: count"), "{text}");
    }
    drop(blocks);
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
