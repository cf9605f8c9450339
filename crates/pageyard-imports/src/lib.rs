//! Which file of a crate imports which, and the cycles among them.
//!
//! The rule: within a crate, imports between files point one way. A file imports another if its code names an item that the
//! other defines, by `use` or by a path. Re-exports on the way do not count: the file that defines the item is imported.
//! `mod x;` imports nothing, and neither does `pub use x::Y` of an item of the file's own submodule, unless the rest of the
//! file names `Y`. A `mod.rs` is a file like any other: it may import its children, or they may import it, not both.
//!
//! The rule holds for folders too. A module and all its submodules count as one, and sibling modules import each other one
//! way.
//!
//! Code under `#[cfg(test)]` is left out. Not seen are calls of methods, macros called without a path, and what a macro
//! expands to.

mod graph;
mod modules;
mod names;

pub use graph::cycles;
pub use modules::Crate;
