//! What can go wrong with a workload.

use pageyard::InitError;
use pageyard_host::BuildError;
use pageyard_machine::Stuck;
use pageyard_trace::printable;

use crate::settings::SettingError;

/// Why a workload could not be run. The program's exit code is 2 for these.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// There is no workload of this name.
    #[error("no workload {name}; there are {known}")]
    UnknownWorkload {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// The workload has no parameter of this name.
    #[error("{workload} has no parameter {name}; it has {known}")]
    UnknownParameter {
        /// The workload.
        workload: &'static str,
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A parameter has a value that it cannot have.
    #[error("{workload}: {name}={value}: give {want}")]
    BadParameter {
        /// The workload.
        workload: &'static str,
        /// The parameter.
        name: String,
        /// Its value.
        value: String,
        /// What it can be.
        want: String,
    },
    /// The machine's memory cannot be that of an allocator.
    #[error("the machine's memory: {0}")]
    Init(#[from] InitError),
    /// This host's memory cannot be that of an allocator.
    #[error("this host: {0}")]
    Host(#[from] BuildError),
    /// The policy runs on simulated machines alone: it is not compiled for hosts.
    #[error(
        "policy {} runs on simulated machines only; take --on machine:NAME, or one of {}",
        printable(.name),
        known
    )]
    MachineOnly {
        /// Its name.
        name: String,
        /// The names of those that are.
        known: String,
    },
    /// A setting that this memory does not allow.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// There is not as much memory on this host.
    #[error(
        "memory {}: this host has {} to give; take less, by --memory",
        in_mib(*wanted),
        in_mib(*available)
    )]
    Memory {
        /// Bytes that are wanted, with what describes them.
        wanted: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// A thread could not be had, or not where it was to run.
    #[error("this host's threads: {0}")]
    Thread(#[from] std::io::Error),
    /// The workload came to no end, which is a mistake in it.
    #[error("the workload came to no end: {0}")]
    Stuck(#[from] Stuck),
    /// Memory is missing when all is given back, which is a mistake in the workload or the
    /// allocator.
    #[error("{missing} pages are missing after the run, {in_use} of them not given back")]
    Leak {
        /// Pages that were free before the run and are not after it.
        missing: i64,
        /// Pages that the workload has allocated and not freed.
        in_use: i64,
    },
}

fn in_mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
