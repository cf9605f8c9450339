//! The head of a file: places of the events, the records and the features.

use super::attr::{Attrs, MIN_SIZE};
use super::records::Records;
use crate::binary::Layout;
use crate::error::Fault;
use crate::release;
use crate::trace_dat::Store;

/// First bytes of a file, by byte order.
pub(crate) const MAGICS: [[u8; 8]; 2] = [*b"PERFILE2", *b"2ELIFREP"];

/// Size of the head of a pipe's output in bytes, and of a file's.
const PIPE: u64 = 16;
const FILE: u64 = 104;
/// Longest text of a feature that is read, in bytes.
const MAX_TEXT: u64 = 4096;

/// What the head says.
pub(super) struct Parts {
    pub(super) layout: Layout,
    pub(super) records: Records,
    pub(super) attrs: Attrs,
    /// The descriptions of the events, and where they begin in the file.
    pub(super) tracing_data: Option<(u64, Vec<u8>)>,
    pub(super) release: Option<String>,
}

/// A part of the file.
#[derive(Clone, Copy)]
struct Section {
    at: u64,
    size: u64,
}

/// Reads the head. `at` is where the part begins that is being read, for errors.
pub(super) fn read(store: &mut Store, at: &mut u64) -> Result<Parts, Fault> {
    const WHAT: &str = "the head of the perf.data";
    let mut head = Vec::new();
    store.read(0, PIPE, &mut head, WHAT)?;
    let layout = Layout { big_endian: head.starts_with(&MAGICS[1]), long: 8 };
    let size = layout.number(&head[8..]);
    let mut parts = Parts {
        layout,
        records: Records::new(PIPE, store.length()),
        attrs: Attrs::default(),
        tracing_data: None,
        release: None,
    };
    if size == PIPE {
        return Ok(parts);
    }
    if size != FILE {
        return Err(Fault::Unusable {
            what: "a perf.data of an unknown version",
            fix: "convert it: perf script > trace.txt",
        });
    }
    store.read(0, FILE, &mut head, WHAT)?;
    store.claim(0, FILE, WHAT)?;
    let number = |at: usize| layout.number(&head[at..at + 8]);
    let section = |at: usize| Section { at: number(at), size: number(at + 8) };
    let (attr_size, attrs, data) = (number(16), section(24), section(40));
    let features: Vec<u64> = (0..256)
        .filter(|bit| number(72 + bit / 64 * 8) >> (bit % 64) & 1 == 1)
        .map(|bit| bit as u64)
        .collect();

    *at = attrs.at;
    read_attrs(store, layout, attr_size, attrs, &mut parts.attrs)?;
    *at = data.at;
    // An unfinished recording has no size, and no features.
    let finished = data.size > 0;
    let size = if finished { data.size } else { store.length().saturating_sub(data.at) };
    store.claim(data.at, size, "the records")?;
    let end = data.at + size;
    parts.records = Records::new(data.at, end);
    if !finished {
        return Ok(parts);
    }
    let mut table = Vec::new();
    *at = end;
    store.claim(end, features.len() as u64 * 16, "the table of features")?;
    store.read(end, features.len() as u64 * 16, &mut table, "the table of features")?;
    for (feature, place) in features.into_iter().zip(table.chunks_exact(16)) {
        let section = Section { at: layout.number(place), size: layout.number(&place[8..]) };
        if !matches!(feature, feature::TRACING_DATA | feature::OS_RELEASE) {
            continue;
        }
        *at = section.at;
        let mut bytes = Vec::new();
        let is_text = feature == feature::OS_RELEASE;
        let size = if is_text { section.size.min(MAX_TEXT) } else { section.size };
        store.claim(section.at, size, "a feature")?;
        store.read(section.at, size, &mut bytes, "a feature")?;
        if is_text {
            parts.release = string(layout, &bytes);
        } else {
            parts.tracing_data = Some((section.at, bytes));
        }
    }
    Ok(parts)
}

/// Reads the events and their identifiers.
fn read_attrs(
    store: &mut Store,
    layout: Layout,
    each: u64,
    section: Section,
    attrs: &mut Attrs,
) -> Result<(), Fault> {
    const WHAT: &str = "the recorded events";
    // The description, then the place of its identifiers.
    if each < MIN_SIZE as u64 + 16 || each > section.size.max(1) {
        return Err(Fault::Record("events of an impossible size"));
    }
    store.claim(section.at, section.size, WHAT)?;
    let mut bytes = Vec::new();
    store.read(section.at, section.size, &mut bytes, WHAT)?;
    let mut ids = Vec::new();
    for attr in bytes.chunks_exact(each as usize) {
        let (attr, place) = attr.split_at(attr.len() - 16);
        attrs.add(layout, attr)?;
        let section = Section { at: layout.number(place), size: layout.number(&place[8..]) };
        store.claim(section.at, section.size, WHAT)?;
        store.read(section.at, section.size, &mut ids, WHAT)?;
        ids.chunks_exact(8).for_each(|id| attrs.add_id(layout.number(id)));
    }
    Ok(())
}

/// Parses the release in a feature: a length, then text up to a zero byte.
pub(super) fn string(layout: Layout, bytes: &[u8]) -> Option<String> {
    let length = layout.u32(bytes, 0)? as usize;
    let text = bytes.get(4..)?;
    let text = &text[..length.min(text.len())];
    release::find(text.split(|&b| b == 0).next().unwrap_or_default()).map(str::to_owned)
}

/// Numbers of features.
pub(super) mod feature {
    pub(crate) const TRACING_DATA: u64 = 1;
    pub(crate) const OS_RELEASE: u64 = 4;
}
