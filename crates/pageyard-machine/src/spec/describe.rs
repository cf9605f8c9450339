//! A machine description as written in a file, and its constraints.

use serde::Deserialize;

use super::file::parse;
use super::hardware::{LOCAL, MOST_CPUS, MachineSpec, Place, SpecError};
use super::size::size;

/// Default distance to another node (ACPI).
const REMOTE: u8 = 20;
/// The core allocator's limit.
const MOST_NODES: u32 = pageyard::MAX_NODES as u32;

/// A machine description; [`check`](Description::check) turns it into a [`MachineSpec`].
///
/// ```
/// use pageyard_machine::spec::Description;
///
/// let text = "sockets = 1\ncores = 4\nclock_mhz = 3000\nlast_level = '8M'\nprivate = '288K'\n\
///             memory = '8G'";
/// let spec = Description::from_toml("small", text)?.check()?;
/// assert_eq!(spec.cpus().len(), 4);
/// # Ok::<(), pageyard_machine::spec::SpecError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The name used in errors.
    #[serde(skip)]
    pub name: String,
    /// Clock of the CPUs in MHz.
    pub clock_mhz: u32,
    /// Sockets.
    pub sockets: u32,
    /// Cores of a socket.
    pub cores: u32,
    /// Hardware threads of a core; default 1.
    pub threads: Option<u32>,
    /// Cores that share a last-level cache; default all of a socket.
    pub complex: Option<u32>,
    /// Size of each last-level cache, such as `"32M"`.
    pub last_level: String,
    /// Total size of each core's other data and unified caches.
    pub private: String,
    /// Nodes; default one per socket.
    pub nodes: Option<u32>,
    /// Memory of the whole machine.
    pub memory: String,
    /// Bandwidth of each node's memory in bytes per second; default unlimited.
    pub bandwidth: Option<String>,
    /// Bandwidth of the link between two sockets in bytes per second, each way; default unlimited.
    pub link: Option<String>,
    /// Whether the threads of a core slow each other down; default false.
    pub siblings: Option<bool>,
    /// Distance from each node to each, row by row; default 10 and 20.
    #[serde(default)]
    pub distances: Vec<Vec<u8>>,
}

/// Least bandwidth, in bytes per second. With less, the times of large loads exceed a simulated clock, which
/// counts picoseconds for 213 days.
const SLOWEST: u64 = 1_000_000;

impl Description {
    /// Parses TOML; `name` is used in errors.
    ///
    /// # Errors
    /// Fails with the line that cannot be parsed.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, SpecError> {
        let description: Description =
            parse(text).map_err(|(entry, what)| SpecError { file: name.into(), entry, what })?;
        Ok(Description { name: name.into(), ..description })
    }

    fn error(&self, entry: &str, what: impl Into<String>) -> SpecError {
        SpecError { file: self.name.clone(), entry: entry.into(), what: what.into() }
    }

    fn positive(&self, entry: &str, n: u32) -> Result<u32, SpecError> {
        if n == 0 { Err(self.error(entry, "is 0; expected at least 1")) } else { Ok(n) }
    }

    fn bytes(&self, entry: &str, text: &str) -> Result<u64, SpecError> {
        match size(text) {
            Ok(0) => Err(self.error(entry, "is 0; expected a size such as 32M")),
            Ok(n) => Ok(n),
            Err(what) => Err(self.error(entry, what)),
        }
    }

    fn rate(&self, entry: &str, text: Option<&str>) -> Result<Option<u64>, SpecError> {
        let rate = text.map(|text| self.bytes(entry, text)).transpose()?;
        match rate {
            Some(bytes) if bytes < SLOWEST => {
                Err(self.error(entry, format!("must be at least {SLOWEST} bytes per second")))
            }
            _ => Ok(rate),
        }
    }

    fn link(&self, sockets: u32) -> Result<Option<u64>, SpecError> {
        if self.link.is_some() && sockets == 1 {
            return Err(self.error("link", "does not apply to one socket; remove it"));
        }
        self.rate("link", self.link.as_deref())
    }

    fn siblings(&self, threads: u32) -> Result<bool, SpecError> {
        let siblings = self.siblings.unwrap_or(false);
        if siblings && threads == 1 {
            let what = "does not apply to one thread per core; remove it, or set threads = 2";
            return Err(self.error("siblings", what));
        }
        Ok(siblings)
    }

    /// Checks the description and converts it into a machine.
    ///
    /// # Errors
    /// Fails with the first invalid entry, and how to fix it.
    pub fn check(&self) -> Result<MachineSpec, SpecError> {
        let sockets = self.positive("sockets", self.sockets)?;
        let cores = self.positive("cores", self.cores)?;
        let threads = self.positive("threads", self.threads.unwrap_or(1))?;
        let complex = self.positive("complex", self.complex.unwrap_or(cores))?;
        let nodes = self.positive("nodes", self.nodes.unwrap_or(sockets))?;
        self.positive("clock_mhz", self.clock_mhz)?;
        let cpus = u64::from(sockets) * u64::from(cores) * u64::from(threads);
        if cpus > MOST_CPUS.into() {
            let what =
                format!("{sockets} sockets of {cores} cores of {threads} threads are {cpus}");
            return Err(self.error("cores", format!("{what} CPUs; expected at most {MOST_CPUS}")));
        }
        if !cores.is_multiple_of(complex) {
            let what = format!("{complex} does not divide the {cores} cores of a socket");
            return Err(self.error("complex", what));
        }
        if nodes > MOST_NODES {
            return Err(self.error("nodes", format!("{nodes}; expected at most {MOST_NODES}")));
        }
        if !nodes.is_multiple_of(sockets) || !cores.is_multiple_of(nodes / sockets) {
            let what =
                format!("{nodes} nodes do not divide {sockets} sockets of {cores} cores evenly");
            return Err(self.error("nodes", what));
        }
        let per_node = cores / (nodes / sockets);
        let mut places = Vec::new();
        for _ in 0..threads {
            for socket in 0..sockets {
                for core in 0..cores {
                    places.push(Place {
                        socket: socket as u16,
                        node: (socket * (nodes / sockets) + core / per_node) as u16,
                        complex: (socket * (cores / complex) + core / complex) as u16,
                        core: (socket * cores + core) as u16,
                    });
                }
            }
        }
        let last_level = self.bytes("last_level", &self.last_level)?;
        Ok(MachineSpec {
            name: self.name.clone(),
            clock_mhz: self.clock_mhz,
            cpus: places,
            nodes: nodes as u16,
            distances: self.table(nodes as usize)?,
            last_level,
            in_effect: last_level,
            private: self.bytes("private", &self.private)?,
            memory: self.bytes("memory", &self.memory)?,
            bandwidth: self.rate("bandwidth", self.bandwidth.as_deref())?,
            link: self.link(sockets)?,
            siblings: self.siblings(threads)?,
        })
    }

    fn table(&self, nodes: usize) -> Result<Vec<u8>, SpecError> {
        if self.distances.is_empty() {
            let of = |i: usize| if i / nodes == i % nodes { LOCAL } else { REMOTE };
            return Ok((0..nodes * nodes).map(of).collect());
        }
        if self.distances.len() != nodes || self.distances.iter().any(|row| row.len() != nodes) {
            let what = format!("expected {nodes} rows of {nodes} numbers, or none");
            return Err(self.error("distances", what));
        }
        for (from, row) in self.distances.iter().enumerate() {
            for (to, &d) in row.iter().enumerate() {
                if (d == LOCAL) != (from == to) || d < LOCAL {
                    let wanted = if from == to { "10" } else { "above 10" };
                    let what = format!("from node {from} to node {to}: {d}; expected {wanted}");
                    return Err(self.error("distances", what));
                }
            }
        }
        Ok(self.distances.concat())
    }
}
