//! Text: the output of `trace-cmd report` and `perf script`, and the contents of the kernel's `trace`
//! files.

mod compaction;
mod cursor;
mod fields;
mod line;
mod perf;
mod reader;
mod writer;

pub(crate) use compaction::point_of;
pub(crate) use cursor::MAX_COMM;
pub(crate) use fields::Name;
pub(crate) use reader::{TextBody, mark_text};
pub use writer::TextWriter;
