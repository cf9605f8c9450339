//! Binary recordings: event descriptions and raw records, as the kernel's ring buffer has them.
//!
//! [`EventTable`] is the entry point for a reader of a binary format. It takes the descriptions
//! that the recording holds ([`EventTable::add`]) and decodes raw records with them
//! ([`EventTable::decode`]) to the values that the text parser yields.

mod bytes;
mod decode;
mod format;
mod page;
mod print_fmt;
mod translate;

pub(crate) use bytes::Layout;
pub(crate) use decode::{EventTable, What};
pub(crate) use page::{Page, PageLayout};
