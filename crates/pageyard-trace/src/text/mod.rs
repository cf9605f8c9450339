//! ftrace text: what `trace-cmd report` prints and what the kernel's `trace` files hold.

mod compaction;
mod fields;
mod line;
mod reader;
mod writer;

pub(crate) use reader::TextBody;
pub use writer::TextWriter;
