//! State files beside a trace and in it: which count, and what is wrong with those that do not.

use std::fs;
use std::process::{Output, Stdio};

use crate::failures::folder::Folder;
use crate::{PROGRAM, err, out, sample};

fn pageyard(folder: &Folder, args: &[&str]) -> Output {
    folder.command(PROGRAM).args(args).output().unwrap()
}

fn succeeds(folder: &Folder, args: &[&str]) -> Output {
    let o = pageyard(folder, args);
    assert_eq!(o.status.code(), Some(0), "{args:?}: {}", err(&o));
    o
}

/// The command fails and says this.
fn fails(folder: &Folder, args: &[&str], says: &str) {
    let o = pageyard(folder, args);
    assert_eq!(o.status.code(), Some(2), "{args:?}: {}", out(&o));
    assert!(err(&o).contains(says), "{args:?}: {}", err(&o));
}

/// A folder with `trace.txt` and the sample's state files in `state/`.
fn with_state() -> Folder {
    let folder = Folder::new();
    let sample = sample("kbuild.pgy");
    succeeds(&folder, &["trace", "export", sample.to_str().unwrap(), "--state", "state"]);
    folder
}

#[test]
fn zoneinfo_of_before_the_recording_is_enough_for_a_machine() {
    let folder = with_state();
    fs::rename(folder.0.join("state/before/zoneinfo"), folder.0.join("zoneinfo")).unwrap();
    let o = succeeds(&folder, &["replay", "trace.txt", "--policy", "Linux612", "--seeds", "1"]);
    assert!(out(&o).contains("zoneinfo is used as before/zoneinfo"), "{}", out(&o));
}

#[test]
fn a_folder_of_state_files_must_exist() {
    let folder = with_state();
    for args in [
        &["trace", "import", "trace.txt", "new.pgy", "--state", "stat"][..],
        &["replay", "trace.txt", "--state", "stat"],
        &["show", "trace.txt", "--as", "page_owner", "--state", "stat"],
    ] {
        fails(&folder, args, "stat: No such file or directory");
    }
    assert!(!folder.0.join("new.pgy").exists());
}

#[test]
fn a_frame_map_that_is_cut_off_is_refused() {
    let folder = with_state();
    let map = folder.0.join("state/pfnmap.before");
    let frames = fs::read(&map).unwrap();
    fs::write(&map, &frames[..100_000]).unwrap();
    let replay = ["replay", "trace.txt", "--state", "state", "--policy", "Linux612"];
    fails(&folder, &replay, "pfnmap.before has 100000 frames, but the zones end at frame");
    // An empty one is none.
    fs::write(&map, "").unwrap();
    let text = out(&succeeds(&folder, &replay));
    assert!(text.contains("pfnmap.before is not used: it is empty"), "{text}");
    assert!(text.contains("frames in use guessed"), "{text}");
}

#[test]
fn only_state_files_that_can_be_read_later_are_imported() {
    let folder = with_state();
    let import = ["trace", "import", "trace.txt", "new.pgy", "--state", "state"];
    fs::write(folder.0.join("state/before/pagetypeinfo"), "").unwrap();
    let o = succeeds(&folder, &import);
    assert!(err(&o).contains("before/pagetypeinfo is not used: it is empty"), "{}", err(&o));
    fs::remove_file(folder.0.join("new.pgy")).unwrap();
    fs::write(folder.0.join("state/before/vmstat"), "garbage\n").unwrap();
    fails(&folder, &import, "before/vmstat: line 1");
    assert!(!folder.0.join("new.pgy").exists());
}

#[test]
fn a_trace_keeps_its_state_files_unless_others_are_named() {
    let folder = with_state();
    succeeds(&folder, &["trace", "import", "trace.txt", "a.pgy", "--state", "state"]);
    // Of another machine, beside the trace.
    let zoneinfo = fs::read_to_string(folder.0.join("state/zoneinfo.traced_start")).unwrap();
    let other = zoneinfo.replacen("boost    0", "boost    1", 1);
    assert_ne!(zoneinfo, other);
    fs::write(folder.0.join("zoneinfo.traced_start"), &other).unwrap();
    let o = succeeds(&folder, &["trace", "import", "a.pgy", "b.pgy"]);
    assert!(err(&o).contains("not used, since the trace has state files attached"), "{}", err(&o));
    succeeds(&folder, &["trace", "import", "a.pgy", "c.pgy", "--state", "."]);
    for (trace, expected) in [("b", &zoneinfo), ("c", &other)] {
        succeeds(&folder, &["trace", "export", &format!("{trace}.pgy"), "--state", trace]);
        let kept = fs::read_to_string(folder.0.join(trace).join("zoneinfo.traced_start")).unwrap();
        assert_eq!(kept, *expected, "{trace}");
    }
}

#[test]
fn all_state_files_are_extracted_though_nobody_reads_the_list() {
    let folder = Folder::new();
    let sample = sample("kbuild.pgy");
    let mut command = folder.command(PROGRAM);
    command.args(["trace", "export", sample.to_str().unwrap(), "--state", "read"]);
    let whole = out(&command.output().unwrap()).lines().count();
    let mut command = folder.command(PROGRAM);
    command.args(["trace", "export", sample.to_str().unwrap(), "--state", "unread"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    let below = |name: &str| {
        let all = folder.listing();
        all.iter().filter(|(path, _)| path.contains(&format!("/{name}/"))).count()
    };
    assert_eq!((below("read"), below("unread")), (whole, whole));
}
