//! `pageyard record`, on a tree of files as tracefs has them.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Unpacks the tree.
fn tree() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../pageyard-trace/tests/data/tracefs.tar.xz");
    let mut plain = pageyard_trace::Decompressed::new(File::open(path).unwrap()).unwrap();
    let mut tar = Command::new("tar");
    tar.args(["-x", "-C"]).arg(folder.path()).stdin(Stdio::piped());
    let mut tar = tar.spawn().unwrap();
    io::copy(&mut plain, &mut tar.stdin.take().unwrap()).unwrap();
    assert!(tar.wait().unwrap().success());
    folder
}

/// `pageyard record` from the tree to `recording.pgy` in it.
fn record(tree: &Path) -> Command {
    // A test that runs in the background may have been started with ignored signals, which stay so.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_pageyard")]);
    command.current_dir(tree).arg("record").args(["--instance", "ci"]);
    for root in ["tracefs", "proc", "sys"] {
        command.arg(format!("--{root}")).arg(tree.join(root));
    }
    command
}

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn pageyard(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pageyard"));
    let output = command.current_dir(folder).args(args).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_is_described_and_the_commands_status_passed_on() {
    let tree = tree();
    let output = record(tree.path()).args(["--", "sh", "-c", "echo hi; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    assert_eq!(output.stdout, b"hi\n");
    let told = told(&output);
    assert!(told.contains("recording.pgy: ") && told.contains("0 lost"), "{told}");
    let info = pageyard(tree.path(), &["trace", "info", "recording.pgy", "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert!(info["events_total"].as_u64().unwrap() > 3900, "{info}");
    assert_eq!(info["kernel_release"], "6.18.44-fc-v782");
    assert!(info["state_files"]["zoneinfo.traced_start"].as_u64().unwrap() > 1000);
    let left: Vec<_> = fs::read_dir(tree.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn a_recording_replays() {
    let tree = tree();
    let output = record(tree.path()).args(["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", told(&output));
    let args = ["replay", "recording.pgy", "--policy", "Linux612", "--seeds", "1", "--json"];
    let report: serde_json::Value = serde_json::from_str(&pageyard(tree.path(), &args)).unwrap();
    assert!(report.to_string().contains("6.18.44-fc-v782"));
}

#[test]
fn a_signal_ends_the_recording_and_keeps_it() {
    for command in [&["--", "sleep", "1000"][..], &[]] {
        let tree = tree();
        // What the instance gets back.
        let on = tree.path().join("tracefs/instances/ci/tracing_on");
        fs::write(&on, "0").unwrap();
        let mut recorder = record(tree.path());
        let recorder = recorder.args(command).stderr(Stdio::piped()).spawn().unwrap();
        // The mark is written when the command is about to start.
        let marker = tree.path().join("tracefs/instances/ci/trace_marker");
        while !fs::read_to_string(&marker).unwrap().contains("WORKLOAD_START") {
            std::thread::yield_now();
        }
        let pid = Pid::from_raw(recorder.id() as i32).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let output = recorder.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", told(&output));
        assert!(told(&output).contains("recording.pgy: "), "{}", told(&output));
        pageyard(tree.path(), &["trace", "info", "recording.pgy"]);
        assert_eq!(fs::read_to_string(on).unwrap(), "0");
    }
}

#[test]
fn a_duration_ends_the_recording_but_not_the_command() {
    let tree = tree();
    let script = "while [ ! -s recording.pgy ]; do sleep 0.01; done; exit 3";
    let mut command = record(tree.path());
    let output =
        command.args(["--json", "--duration", "0.01", "--", "sh", "-c", script]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["lost"], 0);
    assert!(report["events"].as_u64().unwrap() > 3900);
}

#[test]
fn a_recording_that_cannot_be_written_leaves_its_command_alone() {
    let tree = tree();
    let mut command = record(tree.path());
    let script = "sleep 0.5; echo ended > ended";
    let args = ["--duration", "0.01", "-o", "/dev/full", "--", "sh", "-c", script];
    let output = command.args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("/dev/full: No space left on device"), "{}", told(&output));
    assert!(tree.path().join("ended").exists(), "its end is waited for");
}

#[test]
fn a_signal_ends_the_command_of_a_recording_that_fails() {
    let tree = tree();
    let mut command = record(tree.path());
    let script = "echo $$ > started; mv started pid; exec sleep 1000 2> /dev/null";
    command.args(["--", "sh", "-c", script]).stderr(Stdio::piped());
    let recorder = command.spawn().unwrap();
    let pid = loop {
        if let Ok(pid) = fs::read_to_string(tree.path().join("pid")) {
            break Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        }
        std::thread::yield_now();
    };
    // The end of the recording cannot be written there.
    let on = tree.path().join("tracefs/instances/ci/tracing_on");
    fs::remove_file(&on).unwrap();
    fs::create_dir(&on).unwrap();
    kill_process(Pid::from_raw(recorder.id() as i32).unwrap(), Signal::INT).unwrap();
    let output = recorder.wait_with_output().unwrap();
    let is_left = kill_process(pid, Signal::KILL).is_ok();
    assert!(!is_left, "the command is ended: {}", told(&output));
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("tracing_on: "), "{}", told(&output));
}

#[test]
fn what_is_missing_at_the_end_of_a_recording_is_said() {
    let tree = tree();
    // There when the recording begins, not when it ends.
    fs::write(tree.path().join("proc/kpageflags"), [0; 64]).unwrap();
    let output = record(tree.path()).args(["--", "rm", "proc/kpageflags"]).output().unwrap();
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("not recorded: ") && told.contains("proc/kpageflags: "), "{told}");
}

#[test]
fn what_prevents_a_recording_is_explained() {
    let tree = tree();
    let failed = |args: &[&str], what: &str| {
        let output = record(tree.path()).args(args).output().unwrap();
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains(what), "{args:?}: {told}");
    };
    failed(&["--", "/nonexistent"], "/nonexistent: No such file or directory; check");
    failed(&["-o", "none/x.pgy", "--", "true"], "none: No such file or directory");
    failed(&["-o", ".", "--", "true"], "is a folder");
    for size in ["4T", "0", "15K"] {
        let expected = "'--buffer <SIZE>': expected a size from 16K to below 4T";
        failed(&["--buffer", size, "--", "true"], expected);
    }
    failed(&["--duration", "0", "--", "true"], "not a positive number of seconds");
    fs::remove_dir_all(tree.path().join("tracefs/events")).unwrap();
    failed(&["--", "true"], "mount -t tracefs nodev");
    assert!(!tree.path().join("recording.pgy").exists());
}
