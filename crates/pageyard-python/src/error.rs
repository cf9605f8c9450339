//! Errors of the libraries as Python exceptions with the same text.

use std::fmt::Display;

use pageyard_trace::printable;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

pyo3::create_exception!(
    pageyard,
    LabError,
    PyException,
    "An input or option that the lab rejects. The text names the object, what is wrong, and the fix."
);
pyo3::create_exception!(
    pageyard,
    NoMemoryError,
    LabError,
    "A request that the allocator could not serve."
);
pyo3::create_exception!(
    pageyard,
    FreeError,
    LabError,
    "A free that the allocator rejected; nothing has changed."
);

/// Converts an error of the lab. One line, whatever the text quotes from files.
pub(crate) fn lab(e: impl Display) -> PyErr {
    LabError::new_err(printable(&e.to_string()).into_owned())
}

/// Converts the payload of a panic, which is a bug: Python continues.
pub(crate) fn panicked(payload: &(dyn std::any::Any + Send)) -> PyErr {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    PyRuntimeError::new_err(format!("internal error, please report it: {}", printable(text)))
}
