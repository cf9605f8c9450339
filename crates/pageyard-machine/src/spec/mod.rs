//! Hardware as data: sockets, cores and their threads, caches, nodes and their distances.
//!
//! ```toml
//! clock_mhz = 2000
//! sockets = 2
//! cores = 56              # per socket
//! threads = 2             # per core; default 1
//! complex = 8             # cores that share a last-level cache; default: all of a socket
//! last_level = "32M"      # of each complex
//! private = "544K"        # other data and unified caches of each core, together
//! nodes = 2               # default: one per socket
//! memory = "512G"         # of the whole machine, in equal parts on all nodes
//! bandwidth = "152G"      # of each node's memory, in bytes a second; default: as much as is asked
//! link = "119G"           # of each link between two sockets, each way; default: as much as is asked
//! siblings = true         # the threads of a core slow each other down (costs.rs); default: they do not
//! distances = [[10, 21], [21, 10]]  # from each node to each; default: 10 and 20
//! ```
//!
//! CPUs are numbered as Linux numbers them on most servers: the first threads of all cores, socket
//! by socket, then the second threads.

mod describe;
mod detect;
mod file;
mod hardware;
mod size;

use std::path::Path;

pub use describe::Description;
pub use file::{description, parse, prefix, read_text};
pub use hardware::{MOST_CPUS, MachineSpec, Place, SpecError};
pub use size::size;

/// The machines that are included in the crate: name and TOML.
pub const SHIPPED: [(&str, &str); 9] = [
    ("desktop", include_str!("../../machines/desktop.toml")),
    ("1x28", include_str!("../../machines/1x28.toml")),
    ("1x36", include_str!("../../machines/1x36.toml")),
    ("2x20", include_str!("../../machines/2x20.toml")),
    ("2x32", include_str!("../../machines/2x32.toml")),
    ("2x56", include_str!("../../machines/2x56.toml")),
    ("2x64", include_str!("../../machines/2x64.toml")),
    ("2x96", include_str!("../../machines/2x96.toml")),
    ("8x64", include_str!("../../machines/8x64.toml")),
];

impl MachineSpec {
    /// Opens a machine: one of the [`SHIPPED`] by name, `detected` for this machine, or a TOML
    /// file. An existing file of that name takes precedence.
    ///
    /// # Errors
    /// Fails if the file cannot be read or describes an impossible machine.
    pub fn open(path: &Path) -> Result<Self, SpecError> {
        let name = path.to_string_lossy();
        if name == "detected" && !path.exists() {
            return Self::detect();
        }
        let text = description(path, &SHIPPED, ", `detected`,").map_err(|what| SpecError {
            file: name.to_string(),
            entry: String::new(),
            what,
        })?;
        Description::from_toml(&name, &text)?.check()
    }

    /// Returns one of the [`SHIPPED`] machines, whatever files there are.
    ///
    /// # Errors
    /// Fails if there is no machine of that name.
    pub fn shipped(name: &str) -> Result<Self, SpecError> {
        let text = SHIPPED.iter().find(|s| s.0 == name).ok_or_else(|| SpecError {
            file: name.into(),
            entry: "the name".into(),
            what: "is none of the shipped machines".into(),
        })?;
        Description::from_toml(name, text.1)?.check()
    }

    /// Describes this machine, as reported by `/sys`.
    ///
    /// # Errors
    /// Fails if `/sys` cannot be read or parsed.
    pub fn detect() -> Result<Self, SpecError> {
        Self::detect_in(Path::new("/sys/devices/system"), Path::new("/proc/cpuinfo"))
    }

    /// Describes the machine that copies of `/sys/devices/system` and `/proc/cpuinfo` report.
    ///
    /// # Errors
    /// Fails like [`detect`](MachineSpec::detect).
    pub fn detect_in(system: &Path, cpuinfo: &Path) -> Result<Self, SpecError> {
        detect::detect(system, cpuinfo)
    }
}
