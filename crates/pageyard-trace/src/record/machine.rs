//! The machine's state, from `/proc` and `/sys`, under the names and in the forms of state files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::attachment::Attachments;
use crate::printable::name_from_bytes;
use crate::state::PfnMap;

/// Files of `/proc` that are state files as they are.
const PROC_FILES: [&str; 4] = ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"];

/// Roots of the machine's state.
pub(super) struct Machine {
    pub(super) proc: PathBuf,
    pub(super) sys: PathBuf,
}

impl Machine {
    /// Reads all state files to `name(file)`. Returns those that cannot be read.
    pub(super) fn snapshot(
        &self,
        into: &mut Attachments,
        name: impl Fn(&str) -> String,
    ) -> Vec<(PathBuf, io::Error)> {
        let mut missing = Vec::new();
        for file in PROC_FILES {
            self.file(into, file, name(file), &mut missing);
        }
        let settings = self.settings();
        if !settings.is_empty() {
            into.insert(name("sys_vm"), settings);
        }
        let caches = self.caches();
        if !caches.is_empty() {
            into.insert(name("cpu_cache"), caches);
        }
        missing
    }

    /// Reads one file of `/proc`.
    pub(super) fn file(
        &self,
        into: &mut Attachments,
        file: &str,
        name: String,
        missing: &mut Vec<(PathBuf, io::Error)>,
    ) {
        let path = self.proc.join(file);
        match fs::read(&path) {
            Ok(data) => into.insert(name, data),
            Err(error) => missing.push((path, error)),
        }
    }

    /// Returns the kernel's release.
    pub(super) fn release(&self) -> Option<String> {
        let release = fs::read(self.proc.join("sys/kernel/osrelease")).ok()?;
        Some(name_from_bytes(release.trim_ascii(), None)).filter(|release| !release.is_empty())
    }

    /// Returns the settings in `/proc/sys/vm`: `name:value` on each line, as `grep .` prints them.
    fn settings(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for name in sorted(&self.proc.join("sys/vm"), "") {
            lines(&mut out, &name, &self.proc.join("sys/vm").join(&name));
        }
        out
    }

    /// Returns the caches of all CPUs: `cpuN/cache/indexN/name:value` on each line.
    fn caches(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let root = self.sys.join("devices/system/cpu");
        for cpu in sorted(&root, "cpu") {
            for index in sorted(&root.join(&cpu).join("cache"), "index") {
                let folder = format!("{cpu}/cache/{index}");
                for attribute in sorted(&root.join(&folder), "") {
                    let name = format!("{folder}/{attribute}");
                    lines(&mut out, &name, &root.join(&name));
                }
            }
        }
        out
    }

    /// Reads the use of each frame, from `/proc/kpageflags`.
    pub(super) fn frames(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(self.proc.join("kpageflags"))?;
        let mut frames = Vec::new();
        let mut words = vec![0; 1 << 18];
        let mut held = 0;
        loop {
            let n = match file.read(&mut words[held..]) {
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (whole, rest) = words[..held + n].as_chunks::<8>();
            frames.extend(whole.iter().map(|word| use_of(u64::from_ne_bytes(*word))));
            let (from, left) = (held + n - rest.len(), rest.len());
            words.copy_within(from..from + left, 0);
            held = left;
            if n == 0 {
                return Ok(frames);
            }
        }
    }

    /// Returns the names of all threads by their id.
    pub(super) fn comms(&self) -> HashMap<u32, String> {
        let mut comms = HashMap::new();
        for process in numbers(&self.proc) {
            let tasks = self.proc.join(process.to_string()).join("task");
            for thread in numbers(&tasks) {
                if let Ok(comm) = fs::read(tasks.join(thread.to_string()).join("comm")) {
                    comms.insert(thread, name_from_bytes(comm.trim_ascii(), None));
                }
            }
        }
        comms
    }
}

/// Returns the use of a frame, as bits of [`PfnMap`], by its flags (`pagemap.rst` in the kernel's
/// administration guide).
fn use_of(flags: u64) -> u8 {
    const BITS: [(u32, u8); 9] = [
        (5, PfnMap::LRU),
        (7, PfnMap::SLAB),
        (10, PfnMap::FREE),
        (11, PfnMap::MAPPED),
        (12, PfnMap::ANON),
        (15, PfnMap::COMPOUND),
        (16, PfnMap::COMPOUND),
        (20, PfnMap::NO_PAGE),
        (26, PfnMap::PAGE_TABLE),
    ];
    BITS.iter().filter(|(bit, _)| flags >> bit & 1 == 1).fold(0, |all, (_, bit)| all | bit)
}

/// Appends the lines of a file that are not empty, each after `name:`. Skips folders, and files
/// that cannot be read.
fn lines(out: &mut Vec<u8>, name: &str, path: &Path) {
    let Ok(data) = fs::read(path) else { return };
    for line in data.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
        out.extend([name.as_bytes(), b":", line, b"\n"].concat());
    }
}

/// Returns the names in a folder that are `prefix` and a number, by number; with an empty prefix
/// all names.
fn sorted(folder: &Path, prefix: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let number = |name: &String| name.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok());
    let mut names: Vec<_> = names.filter(|n| prefix.is_empty() || number(n).is_some()).collect();
    names.sort_by(|a, b| (number(a), a).cmp(&(number(b), b)));
    names
}

/// Returns the numbers among the names in a folder.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_uses() {
        assert_eq!(use_of(0), 0);
        assert_eq!(use_of(1 << 10), PfnMap::FREE);
        assert_eq!(use_of(1 << 20), PfnMap::NO_PAGE);
        assert_eq!(use_of(1 << 15), use_of(1 << 16));
        let anonymous = 1 << 5 | 1 << 11 | 1 << 12;
        assert_eq!(use_of(anonymous), PfnMap::LRU | PfnMap::MAPPED | PfnMap::ANON);
        assert_eq!(use_of(1 << 26 | 1 << 3), PfnMap::PAGE_TABLE);
    }
}
