//! The extension module of the Python package `pageyard`: the lab's functions for Python.
//!
//! It holds no logic of its own. [`trace`] gives a trace's columns to NumPy and Arrow without
//! copies, [`lab`] runs the lab, [`allocator`] is an allocator to experiment with, [`wait`] keeps
//! the interpreter responsive meanwhile. The Python side is in `python/pageyard`.

mod allocator;
mod error;
mod lab;
mod names;
mod sweep;
mod trace;
mod wait;

use pyo3::prelude::*;

/// The lab of the pageyard allocator. Use the package `pageyard`, not this module.
#[pymodule]
mod _pageyard {
    #[pymodule_export]
    use super::allocator::PageAllocator;
    #[pymodule_export]
    use super::error::{FreeError, LabError, NoMemoryError};
    #[pymodule_export]
    use super::lab::{Conformance, Replay, Runs, conform, replay, run};
    #[pymodule_export]
    use super::names::{machines, policies, workloads};
    #[pymodule_export]
    use super::sweep::{Sweep, content_hash, run_cell};
    #[pymodule_export]
    use super::trace::{Column, Trace};
    #[pymodule_export]
    use super::wait::_panic;

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
