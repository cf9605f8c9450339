//! Files are written only where the user asked for them, whatever exists there already.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use super::folder::Folder;
use super::hostile::{attachment, pgy};
use crate::PROGRAM;

/// Runs a script in which `$0` is the program.
fn sh(folder: &Folder, script: &str) -> Output {
    folder.command("sh").args(["-c", script, PROGRAM]).output().unwrap()
}

fn said(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

const TEXT: &str = " t-7 [000] 1.000000100: mm_page_free: page=0x1 pfn=0x10 order=1\n";

#[test]
fn a_link_next_to_the_output_is_not_followed() {
    let folder = Folder::bare();
    fs::write(folder.0.join("trace.txt"), TEXT).unwrap();
    fs::write(folder.0.join("precious"), "precious").unwrap();
    // `exec` keeps the process, so the shell knows its number in advance.
    let o = sh(
        &folder,
        "ln -s precious out.$$.part; ln -s precious out.part; \
         exec \"$0\" trace export trace.txt -o out",
    );
    assert_eq!(o.status.code(), Some(0), "{}", said(&o));
    assert_eq!(fs::read_to_string(folder.0.join("precious")).unwrap(), "precious");
    assert!(fs::read_to_string(folder.0.join("out")).unwrap().contains("mm_page_free"));
    assert!(fs::symlink_metadata(folder.0.join("out")).unwrap().is_file());
}

#[test]
fn an_output_link_is_replaced_not_followed() {
    let folder = Folder::bare();
    fs::write(folder.0.join("trace.txt"), TEXT).unwrap();
    fs::write(folder.0.join("precious"), "precious").unwrap();
    symlink("precious", folder.0.join("out")).unwrap();
    let o = sh(&folder, "exec \"$0\" trace export trace.txt -o out");
    assert_eq!(o.status.code(), Some(0), "{}", said(&o));
    assert_eq!(fs::read_to_string(folder.0.join("precious")).unwrap(), "precious");
    assert!(fs::symlink_metadata(folder.0.join("out")).unwrap().is_file());
}

#[test]
fn an_output_has_the_permissions_of_a_new_file() {
    let folder = Folder::bare();
    fs::write(folder.0.join("trace.txt"), TEXT).unwrap();
    for (umask, mode) in [("022", 0o644), ("077", 0o600), ("000", 0o666)] {
        let o =
            sh(&folder, &format!("umask {umask}; exec \"$0\" trace export trace.txt -o {umask}"));
        assert_eq!(o.status.code(), Some(0), "{}", said(&o));
        let found = fs::metadata(folder.0.join(umask)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "umask {umask}");
    }
}

#[test]
fn an_output_may_have_the_longest_file_name() {
    let folder = Folder::bare();
    fs::write(folder.0.join("trace.txt"), TEXT).unwrap();
    let name = "n".repeat(255);
    let o = sh(&folder, &format!("exec \"$0\" trace export trace.txt -o {name}"));
    assert_eq!(o.status.code(), Some(0), "{}", said(&o));
    assert!(folder.0.join(&name).is_file());
    for name in ["..", ".", "/"] {
        let o = sh(&folder, &format!("exec \"$0\" trace export trace.txt -o {name}"));
        assert_eq!(o.status.code(), Some(2));
        assert!(said(&o).starts_with(&format!("pageyard: {name}: ")), "{}", said(&o));
    }
}

#[test]
fn only_state_files_are_extracted() {
    let hook = b"#!/bin/sh\necho owned\n";
    let names = [
        ".git/hooks/post-checkout",
        "../outside",
        "/tmp/outside",
        "before/../../outside",
        "x",
        ".bashrc",
    ];
    for name in names {
        let folder = Folder::bare();
        let good = attachment("before/vmstat", b"a 1\n");
        fs::write(folder.0.join("t.pgy"), pgy(&[attachment(name, hook), good])).unwrap();
        let o = sh(&folder, "exec \"$0\" trace export t.pgy --state in/state");
        assert_eq!(o.status.code(), Some(2), "{name}");
        let wanted = format!(
            "pageyard: t.pgy: chunk 0 at byte 16: the attachment `{name}` is not a state \
             file"
        );
        assert!(said(&o).starts_with(&wanted), "{}", said(&o));
        assert_eq!(folder.listing().len(), 1, "{:?}", folder.listing());
        // Lenient reading skips it.
        let o = sh(&folder, "exec \"$0\" trace export t.pgy --state in/state --lenient");
        assert_eq!(o.status.code(), Some(0), "{}", said(&o));
        let names: Vec<String> = folder.listing().into_iter().map(|(name, _)| name).collect();
        let wanted = ["in/state/before/vmstat", "t.pgy"];
        let wanted = wanted.map(|n| folder.0.join(n).display().to_string());
        assert_eq!(names, wanted);
        assert!(said(&o).contains("1 damaged parts") && said(&o).contains(name), "{}", said(&o));
    }
}

#[test]
fn a_folder_that_is_a_link_is_not_extracted_into() {
    let folder = Folder::bare();
    fs::write(folder.0.join("t.pgy"), pgy(&[attachment("before/vmstat", b"a 1\n")])).unwrap();
    fs::create_dir_all(folder.0.join("outside")).unwrap();
    fs::create_dir_all(folder.0.join("state")).unwrap();
    symlink("../outside", folder.0.join("state/before")).unwrap();
    let o = sh(&folder, "exec \"$0\" trace export t.pgy --state state");
    assert_eq!(o.status.code(), Some(2));
    let wanted = "pageyard: state/before: a symbolic link";
    assert!(said(&o).starts_with(wanted) && said(&o).contains("; remove it"), "{}", said(&o));
    assert!(!folder.0.join("outside/vmstat").exists());
}
