//! A folder with inputs, which is removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::PROGRAM;

/// The folder.
pub(crate) struct Folder(pub(crate) PathBuf);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The inputs, made once.
static INPUTS: OnceLock<Vec<(&str, Vec<u8>)>> = OnceLock::new();

impl Folder {
    /// A folder with `trace.txt` (the first events of the sample), `results.json`, `again.json`,
    /// `sweep.toml` and `long.toml`.
    pub(crate) fn new() -> Folder {
        let folder = Folder::empty();
        for (name, bytes) in INPUTS.get_or_init(|| Folder::empty().made()) {
            fs::write(folder.0.join(name), bytes).unwrap();
        }
        // One cell that takes seconds, and one that takes hours.
        for (name, rounds) in [("sweep.toml", 3), ("long.toml", 1_000_000)] {
            let text = format!(
                "policies = [\"Base\"]\n[[workload]]\nname = \"micro\"\nmachines = [\"desktop\"]\n\
                 memory = \"1G\"\nset = {{ rounds = {rounds} }}\n"
            );
            fs::write(folder.0.join(name), text).unwrap();
        }
        folder
    }

    /// A folder without inputs.
    pub(crate) fn bare() -> Folder {
        Folder::empty()
    }

    fn empty() -> Folder {
        let n = NUMBER.fetch_add(1, Relaxed);
        let name = format!("pageyard-failures-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn made(self) -> Vec<(&'static str, Vec<u8>)> {
        let lines = format!("'{PROGRAM}' trace export '{}' | head -3000 > trace.txt", sample());
        assert!(self.command("sh").args(["-c", &lines]).status().unwrap().success());
        for (name, policies) in [("results.json", "Base,Step3"), ("again.json", "Base")] {
            let run = "run unix --on machine:desktop --memory 1G --set pairs=2 --set writes=200 \
                       --iterations 4 --record --policy";
            let mut run: Vec<&str> = run.split_whitespace().collect();
            run.extend([policies, "-o", name]);
            assert!(self.command(PROGRAM).args(run).status().unwrap().success());
        }
        let read = |name| (name, fs::read(self.0.join(name)).unwrap());
        ["trace.txt", "results.json", "again.json"].map(read).into()
    }

    /// A command that runs in the folder. Resets ignored signals, so that they act as on a program
    /// that a user starts, even if the tests run in the background or under nohup.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]).current_dir(&self.0);
        command
    }

    /// The names and lengths of all files here.
    pub(crate) fn listing(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        list(&self.0, &mut all);
        all.sort();
        all
    }
}

fn list(folder: &Path, all: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        // Temporary files may end meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        match metadata {
            m if m.is_dir() => list(&entry.path(), all),
            m => all.push((entry.path().display().to_string(), m.len())),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The sample trace, with state files.
pub(crate) fn sample() -> String {
    samples("kbuild.pgy")
}

/// A file in `samples`.
pub(crate) fn samples(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(name);
    path.display().to_string()
}

/// The words of a line; `SAMPLE` is the sample trace.
pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace()
        .map(|w| match w {
            "SAMPLE" => sample(),
            "ORACLE" => samples("oracle/batch_free-1.jsonl.zst"),
            w => w.to_owned(),
        })
        .collect()
}
