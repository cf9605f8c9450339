//! The quick tests of the core are a program of this package, so that they can do without optimisation
//! (`Cargo.toml` of the workspace): each of some fifty policies and platforms is the core compiled once more.
