//! Machine topology, as the system describes it in `/sys` and `/proc`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use pageyard::NodeId;
use pageyard::tuning::CacheSlice;

/// A file in `/sys` that cannot be read or parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopologyError {
    /// Path of the file.
    pub file: PathBuf,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for TopologyError {}

/// An online CPU.
///
/// ```
/// use pageyard_host::Topology;
///
/// for cpu in Topology::detect()?.cpus {
///     println!("CPU {}: {} bytes of last-level cache", cpu.number, cpu.slice.last_level);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpu {
    /// CPU number.
    pub number: u32,
    /// Number of its node.
    pub node: u16,
    /// Its share of the caches (§5.13); 0 if the system reports none.
    pub slice: CacheSlice,
}

/// A node with memory or CPUs.
///
/// ```
/// use pageyard_host::Topology;
///
/// for node in Topology::detect()?.nodes {
///     println!("node {}: {} of {} bytes free", node.number, node.free, node.memory);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Node number.
    pub number: u16,
    /// Total and free memory in bytes.
    pub memory: u64,
    /// See `memory`.
    pub free: u64,
    /// Distances to all online nodes, in their order.
    pub distances: Vec<u8>,
}

/// CPUs and nodes of a machine.
///
/// ```
/// use pageyard_host::Topology;
///
/// let machine = Topology::detect()?;
/// println!("{} CPUs, {} nodes", machine.cpus.len(), machine.nodes.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topology {
    /// Online CPUs, ascending.
    pub cpus: Vec<Cpu>,
    /// Online nodes, ascending; a single node if the system reports none.
    pub nodes: Vec<Node>,
}

/// Parses a list of numbers in the kernel's format: `0-3,8`.
pub(crate) fn numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last > u16::MAX.into() {
            return None;
        }
        all.extend(first..=last);
    }
    Some(all)
}

/// Formats a list of numbers in the kernel's format.
pub fn list(numbers: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for n in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(n) => *last = n,
            _ => runs.push((n, n)),
        }
    }
    let text = |&(a, b): &(u32, u32)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

fn read_numbers(path: &Path) -> Result<Vec<u32>, TopologyError> {
    let error = |what: String| TopologyError { file: path.to_owned(), what };
    let text = fs::read_to_string(path).map_err(|e| error(e.to_string()))?;
    numbers(&text).ok_or_else(|| error(format!("`{}` is not a list of numbers", text.trim())))
}

/// Parses a size such as `32K`, the kernel's format for cache sizes.
fn kib(text: &str) -> Option<u64> {
    text.trim().strip_suffix('K')?.parse::<u64>().ok().map(|k| k << 10)
}

/// Reads a CPU's share of the caches; caches that are not described count as 0.
fn slice(cpu: &Path) -> CacheSlice {
    let mut last = (0, 0);
    let mut all = 0;
    for index in 0..16 {
        let dir = cpu.join(format!("cache/index{index}"));
        let text = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
        let Some(bytes) = kib(&text("size")) else { continue };
        if text("type").trim() == "Instruction" {
            continue;
        }
        let sharers = numbers(&text("shared_cpu_list")).map_or(1, |s| s.len().max(1)) as u64;
        let level: u32 = text("level").trim().parse().unwrap_or(0);
        all += bytes / sharers;
        if level >= last.0 {
            last = (level, bytes / sharers);
        }
    }
    CacheSlice { last_level: last.1, all_levels: all }
}

/// Reads a line of `/proc/meminfo` or of a node's `meminfo`, in bytes.
fn meminfo(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|l| l.split_whitespace().any(|w| w == name))?;
    let kib: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

impl Topology {
    /// Detects this machine.
    ///
    /// # Errors
    /// A file in `/sys` that cannot be read or parsed.
    pub fn detect() -> Result<Self, TopologyError> {
        Self::detect_in(Path::new("/sys/devices/system"), Path::new("/proc/meminfo"))
    }

    /// Reads the topology from copies of `/sys/devices/system` and `/proc/meminfo`.
    ///
    /// # Errors
    /// As [`detect`](Topology::detect).
    pub fn detect_in(system: &Path, memory: &Path) -> Result<Self, TopologyError> {
        let online = read_numbers(&system.join("cpu/online"))?;
        let known = system.join("node/online");
        let numbered = if known.exists() { read_numbers(&known)? } else { Vec::new() };
        let mut nodes = Vec::new();
        let mut node_of = BTreeMap::new();
        for &n in &numbered {
            let dir = system.join(format!("node/node{n}"));
            for cpu in read_numbers(&dir.join("cpulist"))? {
                node_of.insert(cpu, n as u16);
            }
            let text = fs::read_to_string(dir.join("meminfo")).unwrap_or_default();
            let distances = fs::read_to_string(dir.join("distance")).unwrap_or_default();
            nodes.push(Node {
                number: n as u16,
                memory: meminfo(&text, "MemTotal:").unwrap_or(0),
                free: meminfo(&text, "MemFree:").unwrap_or(0),
                distances: distances.split_whitespace().filter_map(|d| d.parse().ok()).collect(),
            });
        }
        if nodes.is_empty() {
            let text = fs::read_to_string(memory).unwrap_or_default();
            nodes.push(Node {
                number: 0,
                memory: meminfo(&text, "MemTotal:").unwrap_or(0),
                free: meminfo(&text, "MemFree:").unwrap_or(0),
                distances: vec![10],
            });
        }
        let first = nodes[0].number;
        let cpus = online.iter().map(|&number| Cpu {
            number,
            node: node_of.get(&number).copied().unwrap_or(first),
            slice: slice(&system.join(format!("cpu/cpu{number}"))),
        });
        Ok(Topology { cpus: cpus.collect(), nodes })
    }

    /// Returns the node of a CPU.
    pub fn node_of(&self, cpu: u32) -> Option<NodeId> {
        let at = self.cpus.binary_search_by_key(&cpu, |c| c.number).ok()?;
        Some(NodeId(self.cpus[at].node))
    }

    /// Returns the firmware's distance between two nodes.
    pub fn distance(&self, from: u16, to: u16) -> Option<u8> {
        let at = self.nodes.iter().position(|n| n.number == to)?;
        let from = self.nodes.iter().find(|n| n.number == from)?;
        from.distances.get(at).copied()
    }
}

/// Returns how many bytes programs may still take without forcing reclaim: the system's own
/// estimate, limited by the control groups of the process.
pub fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let system = meminfo(&text, "MemAvailable:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| group_room(Path::new("/sys/fs/cgroup"), line));
    Some(limits.fold(system, u64::min))
}

/// Returns what a control group and its ancestors leave; `None` if there is no limit or none can be
/// read.
fn group_room(root: &Path, line: &str) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (controllers, path) = (parts.next()?, parts.next()?);
    let (root, most, used) = match controllers {
        "" => (root.to_owned(), "memory.max", "memory.current"),
        c if c.split(',').any(|c| c == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
        }
        _ => return None,
    };
    let number = |dir: &Path, name| -> Option<u64> {
        fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok()
    };
    let own = root.join(path.trim_start_matches('/'));
    let groups = own.ancestors().take_while(|dir| dir.starts_with(&root));
    groups.filter_map(|d| Some(number(d, most)?.saturating_sub(number(d, used)?))).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        assert_eq!(numbers("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert!(numbers("\n").unwrap().is_empty());
        assert_eq!(numbers("0-x"), None);
        assert_eq!(numbers("0-99999999"), None);
        assert_eq!(list([0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(list([]), "");
    }

    #[test]
    fn this_machine() {
        let topology = Topology::detect().unwrap();
        let allowed = crate::cpu::allowed().unwrap();
        for &cpu in &allowed {
            assert!(topology.node_of(cpu).is_some(), "CPU {cpu}");
        }
        assert!(topology.nodes.iter().map(|n| n.memory).sum::<u64>() > 0);
        assert!(available_memory().unwrap() > 0);
    }

    /// A `/sys` directory of a machine other than this one.
    fn fake() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-1,4\n");
        write("node/online", "0,2\n");
        write("node/node0/cpulist", "0-1\n");
        write("node/node2/cpulist", "4\n");
        write("node/node0/distance", "10 21\n");
        write("node/node2/distance", "21 10\n");
        write("node/node0/meminfo", "Node 0 MemTotal: 100 kB\nNode 0 MemFree: 50 kB\n");
        for (index, level, kind, size, sharers) in [
            (0, 1, "Data", "32K", "0"),
            (1, 1, "Instruction", "64K", "0"),
            (2, 2, "Unified", "1024K", "0-1"),
            (3, 3, "Unified", "8192K", "0-1,4,5"),
        ] {
            let dir = format!("cpu/cpu0/cache/index{index}");
            write(&format!("{dir}/level"), &format!("{level}\n"));
            write(&format!("{dir}/type"), &format!("{kind}\n"));
            write(&format!("{dir}/size"), &format!("{size}\n"));
            write(&format!("{dir}/shared_cpu_list"), &format!("{sharers}\n"));
        }
        dir
    }

    #[test]
    fn another_machine() {
        let dir = fake();
        let topology = Topology::detect_in(dir.path(), Path::new("/nowhere")).unwrap();
        let numbers: Vec<u32> = topology.cpus.iter().map(|c| c.number).collect();
        assert_eq!(numbers, [0, 1, 4]);
        assert_eq!(topology.node_of(4), Some(NodeId(2)));
        assert_eq!(topology.node_of(2), None);
        assert_eq!(topology.nodes[0].memory, 100 << 10);
        assert_eq!(topology.nodes[0].free, 50 << 10);
        assert_eq!(topology.distance(0, 2), Some(21));
        let wanted =
            CacheSlice { last_level: 2 << 20, all_levels: (32 << 10) + (512 << 10) + (2 << 20) };
        assert_eq!(topology.cpus[0].slice, wanted);
        assert_eq!(topology.cpus[1].slice, CacheSlice::default());
        fs::write(dir.path().join("cpu/online"), "some").unwrap();
        let error = Topology::detect_in(dir.path(), Path::new("/nowhere")).unwrap_err();
        assert!(error.to_string().ends_with("cpu/online: `some` is not a list of numbers"));
    }

    #[test]
    fn the_tightest_group_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000\n");
        write("a/memory.current", "100\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "50\n");
        assert_eq!(group_room(dir.path(), "0::/a/b"), Some(900));
        assert_eq!(group_room(dir.path(), "0::/"), None);
        assert_eq!(group_room(dir.path(), "3:cpu:/a"), None);
        write("memory/c/memory.limit_in_bytes", "70\n");
        write("memory/c/memory.usage_in_bytes", "80\n");
        assert_eq!(group_room(dir.path(), "4:memory:/c"), Some(0));
    }
}
