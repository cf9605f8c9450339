//! Reads, stores and writes page events, compaction events and the machine state around them.
//!
//! - [`TraceReader`] reads recordings: `trace.dat`, `perf.data` and Perfetto files, the output of
//!   `trace-cmd report` and `perf script`, the contents of the kernel's `trace` and `trace_pipe`
//!   files, and the compact `.pgy` format. Input may be plain or compressed with zstd, xz or gzip,
//!   from a file or any [`std::io::Read`]. Memory is bounded, or in proportion to the input
//!   (`docs/trace-format.md`).
//! - [`TraceWriter`] writes `.pgy` files (`docs/trace-format.md`). [`TextWriter`] writes ftrace
//!   text that the reader reads back unchanged.
//! - [`state`] reads the `/proc` and `/sys` files that were saved next to a recording.
//!
//! Input is validated. By default (strict mode), the first line or chunk that is truncated, damaged
//! or impossible ends reading with an error. The error names the input, the position, the fault and
//! the fix. With [`Options::lenient`], faults are counted, the first few are kept in
//! [`Summary::malformed`], and reading continues where it can. Neither mode drops anything
//! silently.
//!
//! ```
//! use pageyard_trace::{Kind, Options, Record, TraceReader};
//!
//! let text = "cc1-246 [002] 49.488692: mm_page_free: page=0x1 pfn=0x392e8 order=0\n";
//! let mut reader = TraceReader::from_reader("demo", text.as_bytes(), Options::default())?;
//! let Some(Record::Event(event)) = reader.next().transpose()? else { panic!("no event") };
//! assert_eq!(event.kind, Kind::Free { pfn: 0x392e8, order: 0 });
//! assert_eq!(reader.tasks()[event.task].comm, "cc1");
//! # Ok::<(), pageyard_trace::TraceError>(())
//! ```

#![forbid(unsafe_code)]

mod attachment;
mod binary;
mod check;
pub mod compaction;
mod compaction_layout;
mod compression;
mod error;
mod event;
pub mod gfp;
mod input;
mod merge;
mod number;
mod perf_data;
mod perfetto;
mod pgy;
mod printable;
mod reader;
pub mod record;
mod release;
mod shared;
pub mod state;
mod summary;
mod tasks;
mod text;
mod trace_dat;

pub use attachment::{Attachment, Attachments};
pub use check::{MAX_BACKWARD_NS, MAX_CPUS, MAX_ORDER, MAX_PFN, MAX_TYPE, check_event};
pub use compaction::Compaction;
pub use compaction_layout::check_compaction;
pub use compression::Compression;
pub use error::{Fault, Position, TraceError};
pub use event::{Event, Kind, Record};
pub use input::{Decompressed, Progress};
pub use pgy::{TraceWriter, WriterOptions};
pub use printable::{is_active, printable};
pub use reader::{Format, Options, TraceReader};
pub use release::{NotARelease, Release};
pub use summary::{CompactionCounts, Ignored, KindCounts, Malformed, Summary};
pub use tasks::{Task, Tasks};
pub use text::TextWriter;
