//! Computes the imports between the files of a crate, and the cycles among them.
//!
//! The rule: within a crate, imports between files point one way. A file imports another if its
//! code names an item that the other defines, by `use` or by a path. The importer depends on the
//! file that defines the item, not on files that re-export it. `mod x;` imports nothing. Neither
//! does `pub use x::Y` of an item of the file's own submodule, unless the rest of the file names
//! `Y`. A `mod.rs` is a file like any other: either it imports its children or they import it, but
//! not both.
//!
//! The rule also applies to folders. A module and all its submodules count as one unit, and sibling
//! modules import each other one way.
//!
//! Code under `#[cfg(test)]` is ignored. The analysis does not see method calls, macros called
//! without a path, or the expansion of macros.

mod graph;
mod modules;
mod names;

pub use graph::cycles;
pub use modules::Crate;
