//! What `pageyard top` shows: the yards of another process, as they publish themselves
//! ([`pageyard_host::read_stats`]). Drawing is apart from the terminal, so that it can be tested
//! without one.

#![forbid(unsafe_code)]

mod draw;
mod screen;

pub use draw::{View, draw};
pub use screen::{leave, watch};
