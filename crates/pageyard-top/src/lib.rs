//! The view of `pageyard top`: the yards of another process, from its published statistics
//! ([`pageyard_host::read_stats`]). Drawing is separate from the terminal, so that it can be tested
//! without one.

#![forbid(unsafe_code)]

mod draw;
mod screen;

pub use draw::{View, draw};
pub use screen::{leave, watch};
