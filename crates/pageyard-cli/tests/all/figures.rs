//! Figures in documents that a command prints within seconds equal its current output.
//!
//! A document marks them: `<!-- checked: pageyard ARGUMENTS -->` precedes a code block, and the
//! command must print each line of the block, in that order (spaces are ignored). Other figures are
//! in tables here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{err, out};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// Runs the program in the repository's root. Paths that start with `samples/` may contain a `*`.
fn printed(args: &[&str]) -> String {
    let mut real = Vec::new();
    for arg in args {
        match arg.strip_prefix("samples/") {
            Some(pattern) => real.extend(samples(pattern)),
            None => real.push((*arg).to_owned()),
        }
    }
    let o = Command::new(crate::PROGRAM).args(real).current_dir(root()).output().unwrap();
    assert!(o.status.success(), "{args:?}: {}", err(&o));
    out(&o)
}

fn samples(pattern: &str) -> Vec<String> {
    let Some((before, after)) = pattern.split_once('*') else {
        return vec![format!("samples/{pattern}")];
    };
    let (folder, before) = before.rsplit_once('/').unwrap_or(("", before));
    let names = fs::read_dir(root().join("samples").join(folder)).unwrap();
    let names = names.map(|e| e.unwrap().file_name().into_string().unwrap());
    let fits = names.filter(|name| name.starts_with(before) && name.ends_with(after));
    let mut found: Vec<_> = fits.map(|name| format!("samples/{folder}/{name}")).collect();
    found.sort();
    found
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The first line of `block` that `output` does not have after the previous ones.
fn lacks<'b>(output: &str, block: &'b str) -> Option<&'b str> {
    let mut lines = output.lines().map(squeezed);
    block
        .lines()
        .filter(|l| !l.trim().is_empty())
        .find(|&wanted| !lines.any(|l| l == squeezed(wanted)))
}

/// The marked blocks of a document: the command's arguments and the block.
fn marked(document: &str) -> Vec<(Vec<&str>, &str)> {
    let marks = document.split("<!-- checked: pageyard ").skip(1);
    marks
        .map(|rest| {
            let (command, rest) = rest.split_once(" -->").expect("the mark ends");
            let (_, rest) = rest.split_once("```text\n").expect("a code block follows the mark");
            let (block, _) = rest.split_once("```").expect("the block ends");
            (command.split(' ').collect(), block)
        })
        .collect()
}

#[test]
fn marked_blocks_match_command_output() {
    let mut documents = vec!["README.md".to_owned()];
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            documents.push(format!("docs/{name}"));
        }
    }
    let mut checked = 0;
    for document in &documents {
        let text = read(document);
        for (command, block) in marked(&text) {
            let missing = lacks(&printed(&command), block);
            assert_eq!(missing, None, "{document}: not printed by pageyard {}", command.join(" "));
            checked += 1;
        }
    }
    assert!(checked > 0, "no document has a marked block");
}

#[test]
fn a_changed_figure_is_detected() {
    let output = "taken   5  7\n  refills   1\n";
    assert_eq!(lacks(output, "taken 5 7\n\n  refills 1\n"), None);
    assert_eq!(lacks(output, "taken 5 8\n"), Some("taken 5 8"));
    assert_eq!(lacks(output, "refills 1\ntaken 5 7\n"), Some("taken 5 7"));
    let marked = marked("<!-- checked: pageyard a b -->\n```text\nx\n```\n");
    assert_eq!(marked, [(vec!["a", "b"], "x\n")]);
}

/// A document, a sentence in it, a command, and its output.
const SENTENCES: [(&str, &str, &[&str], &str); 1] = [(
    "README.md",
    "compares 121,427 answers and 600 complete states",
    &["conform", "samples/oracle/*.zst"],
    "121 427/121 427 answers, 600/600 states identical",
)];

#[test]
fn figures_in_sentences_match_command_output() {
    for (document, said, command, shown) in SENTENCES {
        assert!(squeezed(&read(document)).contains(said), "{document} no longer says: {said}");
        let printed = printed(command);
        assert!(printed.contains(shown), "{document}: {command:?} prints\n{printed}");
    }
}

#[test]
fn the_picture_matches_its_command() {
    let made = std::env::temp_dir().join(format!("pageyard-lists-{}.svg", std::process::id()));
    let path = made.to_str().unwrap();
    let policies = ["--policy", "Base,Linux612"];
    printed(&[
        "replay",
        "samples/kbuild.pgy",
        policies[0],
        policies[1],
        "--svg",
        path,
        "--plot",
        "lists",
    ]);
    let svg = fs::read_to_string(&made).unwrap();
    fs::remove_file(&made).unwrap();
    assert!(
        svg == read("docs/pictures/kbuild-lists.svg"),
        "make docs/pictures/kbuild-lists.svg anew"
    );
}
