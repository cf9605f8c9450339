//! Manual pages, completions, and help that an installed program can keep.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{err, out, pageyard};

/// Returns the arguments that name each command that `help` lists, inner ones too.
fn commands() -> Vec<Vec<String>> {
    let mut found = vec![vec![]];
    let mut next = 0;
    while let Some(outer) = found.get(next).cloned() {
        next += 1;
        let text = help(crate::PROGRAM.as_ref(), Path::new("/"), &outer);
        let Some((_, listed)) = text.split_once("\nCommands:\n") else { continue };
        for line in listed.lines().take_while(|l| !l.is_empty()) {
            // Lines with a deeper indentation continue a description.
            let Some(name) = line.strip_prefix("  ").filter(|l| !l.starts_with(' ')) else {
                continue;
            };
            let name = name.split(' ').next().unwrap();
            if name != "help" {
                found.push([outer.clone(), vec![name.to_owned()]].concat());
            }
        }
    }
    assert!(
        found.len() > 20 && found.contains(&vec!["trace".into(), "export".into()]),
        "{found:?}"
    );
    found
}

fn help(program: &Path, folder: &Path, command: &[String]) -> String {
    let o = Command::new(program).args(command).arg("--help").current_dir(folder).output().unwrap();
    assert!(o.status.success(), "{command:?}: {}", err(&o));
    out(&o)
}

/// Fails if the text names a file of the repository.
fn names_no_file(of: &dyn std::fmt::Debug, text: &str) {
    for name in ["samples/", "docs/", "scripts/", "examples/", "shared/", ".md"] {
        assert!(!text.contains(name), "{of:?} names {name}: {text}");
    }
}

#[test]
fn help_names_no_file_of_the_repository() {
    let elsewhere = tempfile::tempdir().unwrap();
    for command in commands() {
        names_no_file(&command, &help(crate::PROGRAM.as_ref(), elsewhere.path(), &command));
    }
}

#[test]
fn help_names_samples_in_the_repository() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = help(crate::PROGRAM.as_ref(), &repository, &[]);
    assert!(text.contains("pageyard replay samples/kbuild.pgy"), "{text}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    let to = pages.to_str().unwrap();
    let o = pageyard(&["man", to, "--samples", "/opt/share/pageyard/samples"]);
    assert!(o.status.success(), "{}", err(&o));
    let mut expected = BTreeSet::new();
    for command in commands() {
        let name = [vec!["pageyard".to_owned()], command.clone()].concat().join("-");
        let text = fs::read_to_string(pages.join(format!("{name}.1"))).expect(&name);
        let after = text.split_once("\n.SH NAME\n").expect(&name).1.lines().next().unwrap();
        let (said, about) = after.split_once(" \\- ").expect(&name);
        assert_eq!(said.replace("\\-", "-"), name);
        assert!(!about.trim().is_empty(), "{name}: {text}");
        let version = concat!("\"pageyard ", env!("CARGO_PKG_VERSION"), "\"");
        assert!(text.contains(version), "{name}: {text}");
        names_no_file(&name, &text.replace("/opt/share/pageyard/samples/", ""));
        expected.insert(format!("{name}.1"));
    }
    let written = fs::read_dir(&pages).unwrap();
    let written: BTreeSet<_> =
        written.map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(written, expected);
    let replay = fs::read_to_string(pages.join("pageyard-replay.1")).unwrap();
    assert!(replay.contains("/opt/share/pageyard/samples/kbuild.pgy"), "{replay}");
}

#[test]
fn a_folder_for_manual_pages_that_cannot_be_is_named() {
    let o = pageyard(&["man", "/dev/null/pages"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(err(&o).starts_with("pageyard: /dev/null/pages: "), "{}", err(&o));
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish", "elvish"] {
        let o = pageyard(&["completions", shell]);
        assert!(o.status.success(), "{}", err(&o));
        for command in commands().concat() {
            assert!(out(&o).contains(&command), "{shell}: {command}");
        }
    }
}

#[test]
fn bash_completes_commands() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pageyard");
    fs::write(&file, pageyard(&["completions", "bash"]).stdout).unwrap();
    let o = Command::new("bash").arg("-n").arg(&file).output().unwrap();
    assert!(o.status.success(), "{}", err(&o));
    let script = "source $0; COMP_WORDS=(pageyard repl) COMP_CWORD=1
        _pageyard pageyard repl pageyard; echo ${COMPREPLY[@]}";
    let o = Command::new("bash").args(["-c", script]).arg(&file).output().unwrap();
    assert_eq!(out(&o).trim(), "replay", "{}", err(&o));
}

#[test]
fn another_program_is_not_installed() {
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-program.sh");
    for (program, says) in [("/bin/true", "is not pageyard"), ("/etc/passwd", "is no program")] {
        let mut install = Command::new(&script);
        install.args(["--program", program, "--destdir"]).arg(folder.path()).arg("/opt/yard");
        let o = install.output().unwrap();
        assert_eq!(o.status.code(), Some(2));
        assert!(err(&o).contains(&format!("--program {program} {says}")), "{}", err(&o));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn options_of_a_build_are_refused_for_a_program_that_is_built() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-program.sh");
    for option in [&["--profile", "dev"][..], &["--system-libraries"]] {
        let mut install = Command::new(&script);
        let o = install.args(option).args(["--program", crate::PROGRAM, "/opt/yard"]).output();
        let o = o.unwrap();
        assert_eq!(o.status.code(), Some(2));
        assert!(err(&o).contains(&format!("{} is for", option[0])), "{}", err(&o));
    }
}

/// A link may lead to the target folder of a checkout, or out of the prefix.
#[test]
fn an_installation_replaces_links_and_running_programs() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, elsewhere) = (folder.path().join("opt/yard"), folder.path().join("elsewhere"));
    let link = |to: &str, at: &Path| {
        std::os::unix::fs::symlink(folder.path().join(to), at).unwrap();
    };
    for name in ["opt/yard", "bin", "share", "pages/man1"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    link("bin", &prefix.join("bin"));
    link("share", &prefix.join("share"));
    link("pages", &prefix.join("share/man"));
    fs::write(folder.path().join("page"), "another page").unwrap();
    link("page", &folder.path().join("pages/man1/pageyard.1"));
    // By another process: a child of a test beside this one would inherit a file that is open for
    // writing here, and keep it busy.
    assert!(Command::new("cp").arg(crate::PROGRAM).arg(&elsewhere).status().unwrap().success());
    link("elsewhere", &prefix.join("bin/pageyard"));
    let length = fs::metadata(&elsewhere).unwrap().len();
    let mut running = Command::new(prefix.join("bin/pageyard"));
    running.args(["trace", "info", "-"]).stdin(std::process::Stdio::piped());
    let mut running = running.stderr(std::process::Stdio::null()).spawn().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-program.sh");
    for _ in 0..2 {
        let mut install = Command::new(&script);
        install.args(["--program", crate::PROGRAM, "--destdir"]).arg(folder.path());
        let o = install.arg("/opt/yard").output().unwrap();
        assert!(o.status.success(), "{}", err(&o));
    }
    drop(running.stdin.take());
    running.wait().unwrap();
    assert!(!prefix.join("bin/pageyard").is_symlink());
    assert_eq!(fs::metadata(&elsewhere).unwrap().len(), length);
    for name in ["bin", "share", "share/man"] {
        assert!(prefix.join(name).is_symlink(), "{name}: a link to a folder is followed");
    }
    assert!(!folder.path().join("pages/man1/pageyard.1").is_symlink());
    assert_eq!(fs::read_to_string(folder.path().join("page")).unwrap(), "another page");
    assert_eq!(fs::read_dir(prefix.join("bin")).unwrap().count(), 1);
}

#[test]
fn everything_that_help_names_is_installed() {
    let folder = tempfile::tempdir().unwrap();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let o = Command::new(repository.join("scripts/install-program.sh"))
        .args(["--program", crate::PROGRAM, "--destdir"])
        .arg(folder.path())
        .arg("/opt/yard")
        .output()
        .unwrap();
    assert!(o.status.success(), "{}", err(&o));
    let prefix = folder.path().join("opt/yard");
    for file in [
        "share/bash-completion/completions/pageyard",
        "share/zsh/site-functions/_pageyard",
        "share/fish/vendor_completions.d/pageyard.fish",
        "share/doc/pageyard/LICENSE-MIT",
        "share/doc/pageyard/LICENSE-APACHE",
        "share/doc/pageyard/docs/replay.md",
        "share/man/man1/pageyard-trace-export.1",
    ] {
        assert!(fs::metadata(prefix.join(file)).is_ok_and(|m| m.len() > 0), "{file}");
    }
    let samples = prefix.join("share/pageyard/samples");
    let installed = samples.to_str().unwrap();
    let mut named = BTreeSet::new();
    for command in commands() {
        // Even in the repository, an installed program names what is installed with it.
        let text = help(&prefix.join("bin/pageyard"), &repository, &command);
        for word in text.split_whitespace().filter_map(|w| Some(w.split_once(installed)?.1)) {
            named.insert(word.trim_start_matches('/').replace("*.zst", "drains-1.jsonl.zst"));
        }
        names_no_file(&command, &text.replace(installed, ""));
    }
    for name in &named {
        assert!(samples.join(name).exists(), "{name}");
    }
    assert!(named.contains("kbuild.pgy") && named.contains("sweep.toml"), "{named:?}");
    let book = prefix.join("share/doc/pageyard");
    let mut pages = vec![book.join("README.md")];
    pages.extend(fs::read_dir(book.join("docs")).unwrap().map(|file| file.unwrap().path()));
    let mut links = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|e| e == "md")) {
        let text = fs::read_to_string(page).unwrap();
        for link in text.split("](").skip(1).filter_map(|l| l.split([')', '#']).next()) {
            if !link.is_empty() && !link.contains("://") {
                links += 1;
                assert!(page.with_file_name(link).exists(), "{}: {link}", page.display());
            }
        }
    }
    assert!(links > 100, "{links} links");
    // The manual names the place of use, not that of the package.
    let page = fs::read_to_string(prefix.join("share/man/man1/pageyard-replay.1")).unwrap();
    assert!(page.contains("/opt/yard/share/pageyard/samples/kbuild.pgy"), "{page}");
    assert!(!page.contains(folder.path().to_str().unwrap()), "{page}");
}
