//! No room for a file: the disk is full, or the file exceeds a size limit. The error names the
//! file, the reason and a fix; existing files are unchanged, and no other file is left.

use std::fs;
use std::process::{Command, Output};

use super::folder::{Folder, words};
use super::{commands, help, slow_too};
use crate::PROGRAM;

/// All commands that write files: `OUT` is a file, `DIR` a folder to write to.
const WRITERS: &[&str] = &[
    "replay trace.txt --seeds 1 --policy Linux612 --html OUT",
    "replay trace.txt --seeds 1 --policy Linux612 --svg OUT",
    "replay trace.txt --seeds 1 --policy Linux612 --perfetto OUT",
    "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200 -o OUT",
    "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200 --html OUT",
    "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200 --svg OUT",
    "run hygiene --rounds 1 --memory 256M --trace OUT",
    "compare results.json again.json --html OUT",
    "compare results.json again.json --svg OUT",
    "trace import trace.txt OUT --level 1",
    "trace export trace.txt -o OUT",
    "trace export SAMPLE --state DIR",
    "sweep sweep.toml -o DIR",
    "judge Step5 --only micro --seeds 1 -o DIR",
];
/// More of them, which take a minute.
const SLOW_WRITERS: &[&str] = &[
    "reproduce bulk-free --small -o OUT",
    "reproduce bulk-free --small --html OUT",
    "reproduce bulk-free --small --svg OUT",
    "run hygiene --rounds 1 --memory 256M -o OUT",
    "run hygiene --rounds 1 --memory 256M --html OUT",
    "run hygiene --rounds 1 --memory 256M --svg OUT",
];
/// Options whose file or folder is read.
const READ: &[&str] = &[
    "judge --trace",
    "record --proc",
    "record --sys",
    "record --tracefs",
    "replay --state",
    "show --state",
    "trace import --state",
];

const OLD: &str = "what was there before\n";

fn writers() -> Vec<&'static str> {
    let slow = SLOW_WRITERS.iter().filter(|_| slow_too());
    WRITERS.iter().chain(slow).copied().collect()
}

/// The name that replaces `OUT`, or the path below `DIR` that is written first.
fn output_of(line: &str) -> &'static str {
    if line.ends_with("DIR") { "out/" } else { "out" }
}

fn filled_in(line: &str) -> Vec<String> {
    words(line)
        .into_iter()
        .map(|w| if w == "OUT" || w == "DIR" { "out".into() } else { w })
        .collect()
}

#[test]
fn every_writing_option_is_covered() {
    let mut missing = Vec::new();
    for command in commands() {
        let name = command.join(" ");
        for line in help(&command).lines().map(str::trim) {
            let names_a_file = line.contains("<FILE>") || line.contains("<DIR>");
            if !line.starts_with('-') || !names_a_file {
                continue;
            }
            let head = line.split('<').next().unwrap();
            let mut options = head.split([',', ' ']).filter(|w| w.starts_with('-'));
            let known = options.clone().any(|o| {
                let writes =
                    |w: &&str| w.starts_with(&format!("{name} ")) && w.contains(&format!(" {o} "));
                READ.contains(&format!("{name} {o}").as_str())
                    || WRITERS.iter().chain(SLOW_WRITERS).any(writes)
            });
            if !known {
                missing.push(format!("{name} {}", options.next().unwrap_or(line)));
            }
        }
    }
    assert!(missing.is_empty(), "say what these write, or that they read: {missing:?}");
}

/// Checks how a command failed.
fn wrong(o: &Output, line: &str, name: &str, fix: &str) -> Result<(), String> {
    let said = String::from_utf8_lossy(&o.stderr);
    if o.status.code() != Some(2) {
        return Err(format!("{line}: {}: {said}", o.status));
    }
    let one =
        said.lines().find(|l| l.starts_with(&format!("pageyard: {name}"))).unwrap_or_default();
    match ["File too large", fix].iter().find(|w| !one.contains(**w)) {
        Some(missing) => Err(format!("{line}: no {missing:?} in: {said}")),
        None => Ok(()),
    }
}

/// Runs the command where files may not exceed a kilobyte, or half of that.
fn with_short_files(folder: &Folder, program: &str, line: &str) -> Result<(), String> {
    let is_file = !line.ends_with("DIR");
    let _ = fs::remove_file(folder.0.join("out"));
    if is_file {
        fs::write(folder.0.join("out"), OLD).unwrap();
    }
    let before = folder.listing();
    let o = folder
        .command("sh")
        .args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", program])
        .args(filled_in(line))
        .output()
        .unwrap();
    // The first files of a replay are temporary ones.
    let (name, fix) = match line.starts_with("replay") {
        true => ("temporary file in /", "set TMPDIR"),
        false => (output_of(line), "ulimit -f"),
    };
    wrong(&o, line, name, fix)?;
    // Of several files, those that are complete and short enough remain.
    let after = folder.listing();
    let new = after.iter().filter(|f| !before.contains(f));
    if is_file && after != before || new.clone().any(|(name, _)| name.ends_with(".part")) {
        return Err(format!("{line}: {:?} is left behind", new.collect::<Vec<_>>()));
    }
    if is_file && fs::read_to_string(folder.0.join("out")).unwrap_or_default() != OLD {
        return Err(format!("{line}: the old file is not what it was"));
    }
    let _ = fs::remove_dir_all(folder.0.join("out"));
    Ok(())
}

#[test]
fn the_file_size_limit_is_reported() {
    let folder = Folder::new();
    let failed: Vec<_> =
        writers().iter().filter_map(|l| with_short_files(&folder, PROGRAM, l).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Runs the command in a name space with a mounted file system of two pages, one of them in use.
/// Returns `None` if the system does not permit that.
fn with_a_full_disk(folder: &Folder, program: &str, line: &str) -> Option<Result<(), String>> {
    let script = "
        mkdir -p full && mount -t tmpfs -o size=8k none full || exit 77
        if [ \"$OUT\" = file ]; then echo 'what was there before' > full/out; else echo x > full/x; fi
        ls -A full > before
        cd full && ( cd .. && \"$0\" \"$@\" ); code=$?
        cd .. && ls -A full > after
        cat full/out > old 2> /dev/null
        exit $code";
    let is_file = !line.ends_with("DIR");
    let words = filled_in(line).into_iter().map(|w| if w == "out" { "full/out".into() } else { w });
    let o = folder
        .command("unshare")
        .args(["-rm", "sh", "-c", script, program])
        .args(words)
        .env("OUT", if is_file { "file" } else { "folder" })
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&o.stderr);
    if o.status.code() == Some(77) || said.starts_with("unshare:") {
        return None;
    }
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap_or_default();
    let checks = || {
        if o.status.code() != Some(2) {
            return Err(format!("{line}: {}: {said}", o.status));
        }
        for wanted in ["pageyard: full/out", "No space left", "free space"] {
            if !said.contains(wanted) {
                return Err(format!("{line}: no {wanted:?} in: {said}"));
            }
        }
        if is_file && (read("before") != read("after") || read("old") != OLD) {
            return Err(format!("{line}: left {:?} with {:?}", read("after"), read("old")));
        }
        if read("after").contains(".part") {
            return Err(format!("{line}: left {:?}", read("after")));
        }
        Ok(())
    };
    Some(checks())
}

#[test]
fn a_full_disk_is_reported() {
    let folder = Folder::new();
    let mut failed = Vec::new();
    for line in writers() {
        match with_a_full_disk(&folder, PROGRAM, line) {
            Some(Ok(())) => {}
            Some(Err(why)) => failed.push(why),
            None => {
                let _ = pageyard_unmet::met(
                    "a name space of its own, to mount in (unshare -rm)",
                    false,
                );
                return;
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_full_device_is_named() {
    let folder = Folder::new();
    for line in WRITERS.iter().filter(|l| !l.ends_with("DIR") && !l.contains("hygiene")) {
        let words =
            words(line).into_iter().map(|w| if w == "OUT" { "/dev/full".into() } else { w });
        let o = folder.command(PROGRAM).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert_eq!(o.status.code(), Some(2), "{line}: {said}");
        let wanted = "pageyard: /dev/full: No space left on device; free space";
        assert!(said.contains(wanted), "{line}: {said}");
    }
}

#[test]
fn writing_in_place_is_detected() {
    let folder = Folder::new();
    let plant = folder.0.join("plant");
    // Prints the expected error, but leaves an incomplete file.
    let script = "#!/bin/sh
        trap '' XFSZ
        for at; do :; done
        head -c 100000 trace.txt > \"$at\" 2> /dev/null && exit 0
        echo \"pageyard: $at: File too large, No space left; make room, ulimit -f\" >&2; exit 2";
    fs::write(&plant, script).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&plant).status().unwrap().success());
    let plant = plant.display().to_string();
    let found = with_short_files(&folder, &plant, "trace export trace.txt -o OUT");
    assert!(found.as_ref().is_err_and(|e| e.contains("left behind")), "{found:?}");
    let found = with_a_full_disk(&folder, &plant, "trace export trace.txt -o OUT");
    assert!(found.as_ref().is_none_or(|f| f.is_err()), "{found:?}");
}
