//! Errors of building a yard.

use std::io;

use pageyard::InitError;

/// An invalid option, or an error of the system. Each names the option.
///
/// ```
/// use pageyard_host::{BuildError, Builder};
///
/// let error = Builder::new(16 << 20).cpus([]).build().unwrap_err();
/// assert!(matches!(error, BuildError::NoCpus));
/// println!("{error}"); // cpus: name at least one
/// ```
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The size is out of range.
    #[error("size {given} bytes: expected at least {least} for {nodes} node(s), at most {most}")]
    Size {
        /// Requested size in bytes.
        given: u64,
        /// Minimum in bytes: the largest block for each node.
        least: u64,
        /// Maximum in bytes.
        most: u64,
        /// Number of nodes.
        nodes: usize,
    },
    /// A requested CPU is not online.
    #[error("cpus: CPU {cpu} is not online; online are {online}")]
    Cpu {
        /// CPU number.
        cpu: u32,
        /// CPUs online.
        online: String,
    },
    /// No CPU was given.
    #[error("cpus: name at least one")]
    NoCpus,
    /// A requested node does not exist or has no memory.
    #[error("nodes: node {node} has no memory; nodes with memory are {known}")]
    Node {
        /// Node number.
        node: u16,
        /// Nodes with memory.
        known: String,
    },
    /// No node was given, or one was given twice.
    #[error("nodes: name at least one, and each once")]
    Nodes,
    /// Invalid limits.
    #[error(transparent)]
    Limits(#[from] crate::limits::LimitError),
    /// The value of one option is out of range.
    #[error("{0}")]
    Value(&'static str),
    /// Options that contradict each other.
    #[error("{0}")]
    Together(&'static str),
    /// The interval of the tick is zero.
    #[error("tick: the interval is 0; use a longer one, or none to tick manually")]
    Tick,
    /// The thread cache is too large.
    #[error("thread_cache: more than 126 blocks of one kind")]
    ThreadCache,
    /// The core allocator rejects its layout or knobs.
    #[error("knobs: {0}")]
    Init(#[from] InitError),
    /// The machine's topology in `/sys` cannot be read or parsed.
    #[error("topology: {0}")]
    Topology(#[from] crate::topology::TopologyError),
    /// The system's page size is not 4 KiB.
    #[error("the system's page size is {0} bytes; this crate requires 4096")]
    SystemPage(u64),
    /// The system refused a request.
    #[error("{option}: {error}")]
    System {
        /// Option that caused the request.
        option: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

/// Attributes an error of the system to an option.
pub(crate) fn of<T>(option: &'static str, result: io::Result<T>) -> Result<T, BuildError> {
    result.map_err(|error| BuildError::System { option, error })
}
