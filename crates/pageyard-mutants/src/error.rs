//! Errors end the run with their text.

pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
