//! Detects this machine from `/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::hardware::{LOCAL, MOST_CPUS, MachineSpec, Place, SpecError};
use super::size::size;

/// The clock in MHz if `/proc/cpuinfo` does not state one. It affects only printed output.
const ANY_CLOCK: u32 = 2000;

fn error(entry: &Path, what: impl Into<String>) -> SpecError {
    SpecError {
        file: "detected".into(),
        entry: entry.display().to_string(),
        what: what.into() + "; describe the machine in a TOML file instead",
    }
}

fn read(path: &Path) -> Result<String, SpecError> {
    fs::read_to_string(path).map(|t| t.trim().to_owned()).map_err(|e| error(path, e.to_string()))
}

/// Parses a list of numbers such as `0-3,8`.
fn numbers(path: &Path) -> Result<Vec<usize>, SpecError> {
    let text = read(path)?;
    let wrong = || error(path, format!("`{text}` is not a list of numbers"));
    let mut out = Vec::new();
    for part in text.split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last || last >= MOST_CPUS as usize {
            return Err(error(path, format!("{part}: expected CPU numbers below {MOST_CPUS}")));
        }
        out.extend(first..=last);
    }
    Ok(out)
}

/// Assigns small numbers to names, in order of appearance.
#[derive(Default)]
struct Numbered(BTreeMap<(usize, String), u16>);

impl Numbered {
    fn of(&mut self, socket: usize, name: String) -> u16 {
        let next = self.0.len() as u16;
        *self.0.entry((socket, name)).or_insert(next)
    }
}

/// Returns the size and the sharers of a CPU's last-level cache, and the total size of its other
/// caches. If there is only one level, it counts as both.
fn caches(cpu: &Path) -> Result<(u64, String, u64), SpecError> {
    let mut last = (0, 0, String::new());
    let mut all = 0;
    for index in 0..16 {
        let dir = cpu.join(format!("cache/index{index}"));
        if !dir.exists() {
            break;
        }
        if read(&dir.join("type"))? == "Instruction" {
            continue;
        }
        let path = dir.join("size");
        let bytes = size(&read(&path)?).map_err(|e| error(&path, e))?;
        let path = dir.join("level");
        let level: u32 = read(&path)?.parse().map_err(|_| error(&path, "not a number"))?;
        all += bytes;
        if level >= last.0 {
            last = (level, bytes, read(&dir.join("shared_cpu_list"))?);
        }
    }
    if last.0 == 0 {
        return Err(error(&cpu.join("cache"), "no caches described"));
    }
    let private = if all > last.1 { all - last.1 } else { all };
    Ok((last.1, last.2, private))
}

/// Detects the machine. `system` is `/sys/devices/system` or a copy of it.
pub(super) fn detect(system: &Path, cpuinfo: &Path) -> Result<MachineSpec, SpecError> {
    let online = numbers(&system.join("cpu/online"))?;
    let mut nodes = numbers(&system.join("node/online")).unwrap_or_else(|_| vec![0]);
    let mut node_of = BTreeMap::new();
    let mut memory = 0;
    // Nodes without CPUs, such as memory expanders, are left out.
    nodes.retain(|n| {
        let list = numbers(&system.join(format!("node/node{n}/cpulist"))).unwrap_or_default();
        !list.is_empty() || !system.join("node/online").exists()
    });
    for (i, n) in nodes.iter().enumerate() {
        let dir = system.join(format!("node/node{n}"));
        for cpu in numbers(&dir.join("cpulist")).unwrap_or_default() {
            node_of.insert(cpu, i as u16);
        }
        let text = fs::read_to_string(dir.join("meminfo")).unwrap_or_default();
        let total = text.lines().find(|l| l.contains("MemTotal:"));
        let kib = total.and_then(|l| l.split_whitespace().rev().nth(1)?.parse::<u64>().ok());
        memory += kib.unwrap_or(0) << 10;
    }
    let mut distances = Vec::new();
    for (i, n) in nodes.iter().enumerate() {
        let path = system.join(format!("node/node{n}/distance"));
        let row: Vec<u8> = fs::read_to_string(&path)
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|d| d.parse().ok())
            .collect();
        for (j, m) in nodes.iter().enumerate() {
            let d = row.get(*m).copied();
            distances.push(if i == j { LOCAL } else { d.unwrap_or(20).max(LOCAL + 1) });
        }
    }
    let (mut sockets, mut cores, mut complexes) =
        (Numbered::default(), Numbered::default(), Numbered::default());
    let mut cpus = Vec::new();
    let (mut last_level, mut private) = (0, 0);
    for cpu in online {
        let dir = system.join(format!("cpu/cpu{cpu}"));
        let package = read(&dir.join("topology/physical_package_id"))?;
        let socket = sockets.of(0, package);
        let core = read(&dir.join("topology/thread_siblings_list"))?;
        let (size, sharers, own) = caches(&dir)?;
        last_level = size;
        private = own;
        cpus.push(Place {
            socket,
            node: node_of.get(&cpu).copied().unwrap_or(0),
            complex: complexes.of(socket.into(), sharers),
            core: cores.of(socket.into(), core),
        });
    }
    let clock = fs::read_to_string(cpuinfo).unwrap_or_default();
    let clock = clock.lines().find_map(|l| l.strip_prefix("cpu MHz")?.split_once(':'));
    let clock = clock.and_then(|(_, mhz)| mhz.trim().split('.').next()?.parse().ok());
    Ok(MachineSpec {
        name: "detected".into(),
        clock_mhz: clock.unwrap_or(ANY_CLOCK),
        cpus,
        nodes: nodes.len().max(1) as u16,
        distances,
        last_level,
        private,
        memory: memory.max(1 << 30),
        bandwidth: None,
        link: None,
        siblings: false,
        in_effect: last_level,
    })
}
