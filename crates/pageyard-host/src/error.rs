//! Why a yard could not be made.

use std::io;

use pageyard::InitError;

/// An option that cannot be, or that the system refuses. Each names the option.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The size.
    #[error("size {given} bytes: give at least {least} for {nodes} node(s), at most {most}")]
    Size {
        /// What was asked for.
        given: u64,
        /// The least there can be: the largest block for each node.
        least: u64,
        /// The most there can be.
        most: u64,
        /// How many nodes share it.
        nodes: usize,
    },
    /// A CPU that lists are to be kept for is not there.
    #[error("cpus: CPU {cpu} is not online; there are {online}")]
    Cpu {
        /// Which.
        cpu: u32,
        /// Those that are.
        online: String,
    },
    /// No CPU is to have lists.
    #[error("cpus: name at least one")]
    NoCpus,
    /// A node that memory is to come from is not there, or has none.
    #[error("nodes: node {node} has no memory; there are {known}")]
    Node {
        /// Which.
        node: u16,
        /// Those that have memory.
        known: String,
    },
    /// No node is to have memory, or one twice.
    #[error("nodes: name at least one, and each once")]
    Nodes,
    /// The limits.
    #[error(transparent)]
    Limits(#[from] crate::limits::LimitError),
    /// Two options that do not go together.
    #[error("{0}")]
    Together(&'static str),
    /// The interval of the tick.
    #[error("tick: an interval of no time; give one above 0, or none to do it yourself")]
    Tick,
    /// How many blocks each thread keeps.
    #[error("thread_cache: at most 126 blocks of each kind")]
    ThreadCache,
    /// A setting of the allocator's.
    #[error("knobs: {0}")]
    Init(#[from] InitError),
    /// What `/sys` says of the machine is not understood.
    #[error("topology: {0}")]
    Topology(#[from] crate::topology::TopologyError),
    /// The system's pages are not of 4 KiB.
    #[error("the system's pages are of {0} bytes; this crate is for 4096")]
    SystemPage(u64),
    /// The system refused.
    #[error("{option}: {error}")]
    System {
        /// The option that asked for it.
        option: &'static str,
        /// What it said.
        error: io::Error,
    },
}

/// Names the option that made a request of the system.
pub(crate) fn of<T>(option: &'static str, result: io::Result<T>) -> Result<T, BuildError> {
    result.map_err(|error| BuildError::System { option, error })
}
