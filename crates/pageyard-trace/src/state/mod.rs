//! Parsers of the `/proc` and `/sys` files that describe the machine of a recording (spec §9.4).
//!
//! Every parser takes the name of the file, for errors, and its bytes. Errors include the line.
//! [`StateDir`] collects the files next to a trace or attached to it; every file is optional.
//!
//! ```
//! use pageyard_trace::state::BuddyInfo;
//!
//! let text = b"Node 0, zone      DMA      0      0      1 \n";
//! let info = BuddyInfo::parse("buddyinfo", text)?;
//! assert_eq!(info.rows[0].zone, "DMA");
//! assert_eq!(info.rows[0].free, [0, 0, 1]);
//! # Ok::<(), pageyard_trace::TraceError>(())
//! ```

mod buddyinfo;
mod counters;
mod cpu_cache;
mod dir;
mod lines;
mod names;
mod near;
mod pagetypeinfo;
mod pfnmap;
mod zoneinfo;

pub use buddyinfo::{BuddyInfo, BuddyRow};
pub use counters::{Counters, Settings};
pub use cpu_cache::{Cache, CpuCaches};
pub use dir::{Snapshot, StateDir};
pub(crate) use names::is_state_file;
pub use pagetypeinfo::{BlockRow, FreeCount, FreeRow, PageTypeInfo};
pub use pfnmap::PfnMap;
pub use zoneinfo::{NodeStats, Pageset, Watermarks, Zone, ZoneInfo};
