//! The error type; an error ends the run with its text.

pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
