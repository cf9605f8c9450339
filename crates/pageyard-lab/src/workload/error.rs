//! Errors of workloads.

use pageyard::InitError;
use pageyard_host::BuildError;
use pageyard_machine::Stuck;
use pageyard_trace::printable;

use crate::format::size;
use crate::settings::SettingError;

/// Why a workload could not run. The program exits with code 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// There is no workload of this name.
    #[error("unknown workload {name}; expected one of {known}")]
    UnknownWorkload {
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// The workload has no parameter of this name.
    #[error("{workload}: unknown parameter {name}; expected one of {known}")]
    UnknownParameter {
        /// The workload.
        workload: &'static str,
        /// The requested name.
        name: String,
        /// All names.
        known: String,
    },
    /// A parameter has an invalid value.
    #[error("{workload}: {name}={value}: expected {want}")]
    BadParameter {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// The valid values.
        want: String,
    },
    /// A policy has a setting of the per-CPU lists' limits, and so has each point of the workload.
    #[error(
        "{workload}: policy {}: the workload sets the lists' limits itself; remove {}",
        printable(.policy),
        printable(.setting)
    )]
    SetByWorkload {
        /// The workload.
        workload: &'static str,
        /// The policy, with its settings.
        policy: String,
        /// The setting.
        setting: String,
    },
    /// The machine's memory is unsuitable for an allocator.
    #[error("machine's memory: {0}")]
    Init(#[from] InitError),
    /// This host's memory is unsuitable for an allocator.
    #[error("this host: {0}")]
    Host(#[from] BuildError),
    /// The policy runs only on simulated machines: it is not compiled for hosts.
    #[error(
        "policy {} runs only on simulated machines; use --on machine:NAME, or one of {}",
        printable(.name),
        known
    )]
    MachineOnly {
        /// The policy's name.
        name: String,
        /// The names of the policies that are compiled for hosts.
        known: String,
    },
    /// A setting is invalid for this memory.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// This host does not have enough memory.
    #[error(
        "memory {}: only {} available on this host; reduce --memory",
        size(*wanted),
        size(*available)
    )]
    Memory {
        /// Bytes requested, including descriptors.
        wanted: u64,
        /// Bytes available.
        available: u64,
    },
    /// The simulated machine has less memory than its nodes need.
    #[error(
        "memory {}: a machine of {nodes} node(s) has at least {}; increase --memory",
        size(*wanted),
        size(*least)
    )]
    LittleMemory {
        /// Bytes requested.
        wanted: u64,
        /// Minimum number of bytes.
        least: u64,
        /// Nodes of the machine.
        nodes: u16,
    },
    /// The simulated machine has more memory than can be simulated.
    #[error("memory {}: a simulated machine has at most {}; reduce --memory", size(*wanted), size(*most))]
    MachineMemory {
        /// Bytes requested.
        wanted: u64,
        /// Maximum number of bytes.
        most: u64,
    },
    /// A thread could not be created or bound to its CPU.
    #[error("this host's threads: {0}")]
    Thread(#[from] std::io::Error),
    /// The workload did not terminate, which is a bug in it.
    #[error("the workload did not terminate: {0}")]
    Stuck(#[source] Stuck),
    /// The run was [stopped](pageyard_machine::Stop).
    #[error("stopped on request")]
    Stopped,
    /// Pages are missing after everything was freed, which is a bug in the workload or in the
    /// allocator.
    #[error("{missing} pages are missing after the run, {in_use} of them still allocated")]
    Leak {
        /// Pages that were free before the run but not after it.
        missing: i64,
        /// Pages that the workload allocated and did not free.
        in_use: i64,
    },
}

impl From<Stuck> for WorkloadError {
    fn from(e: Stuck) -> Self {
        if e.is_stop() { WorkloadError::Stopped } else { WorkloadError::Stuck(e) }
    }
}
