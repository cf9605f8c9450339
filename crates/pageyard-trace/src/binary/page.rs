//! Sub-buffers of the kernel's ring buffer ("pages"): their head, and the records in them.
//!
//! A sub-buffer begins with a timestamp and the commit word: the number of bytes of records, and
//! flags in bits 30 and 31 that say whether events were lost before it. Records follow. Each
//! begins with 32 bits: 5 bits of type or length, 27 bits of time since the record before. The
//! kernel describes this in `events/header_page` and `events/header_event`.

use std::ops::Range;

use super::bytes::Layout;
use super::format::{Field, Fields};
use crate::error::{Fault, excerpt};
use crate::number::parse_decimal;

/// Layout of all sub-buffers of a recording.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLayout {
    layout: Layout,
    timestamp: Field,
    commit: Field,
    /// Offset of the first record.
    data: usize,
    /// Size of a sub-buffer in bytes, its head included.
    pub(crate) size: usize,
}

/// In the commit word: events were lost before this sub-buffer.
const MISSED: u64 = 1 << 31;
/// In the commit word: their number follows the records, as a `long`.
const MISSED_STORED: u64 = 1 << 30;
/// In the commit word: bytes of records.
const COMMITTED: u64 = (1 << 27) - 1;

/// Types of records: bytes that hold no event; 32 more bits of time difference; absolute time.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;
/// Bits of a time difference.
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time. The others are those of the time before.
const STAMP_BITS: u32 = DELTA_BITS + 32;

/// What `header_event` must say: a word, and the number on its line.
const EXPECTED: [(&str, u64); 6] = [
    ("type_len", 5),
    ("time_delta", DELTA_BITS as u64),
    ("array", 32),
    ("padding", PADDING as u64),
    ("time_extend", TIME_EXTEND as u64),
    ("data max type_len", 28),
];

impl PageLayout {
    /// Parses `header_page` and checks `header_event`. Returns also the kernel's layout of
    /// numbers: its `long` has the size of the commit word.
    ///
    /// # Errors
    /// Fails with [`Fault::Format`] if a field is missing or a record's head has another form.
    pub(crate) fn parse(
        header_page: &[u8],
        header_event: &[u8],
        big_endian: bool,
    ) -> Result<(Self, Layout), Fault> {
        let bad = |text: &[u8]| Fault::Format { part: excerpt(text.trim_ascii()) };
        let text = str::from_utf8(header_page).map_err(|_| bad(header_page))?;
        let fields = Fields::parse(text)?;
        let field = |name| fields.get(name).ok_or_else(|| bad(header_page));
        let (timestamp, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        if timestamp.size != 8 || !matches!(commit.size, 4 | 8) {
            return Err(bad(header_page));
        }
        let event = str::from_utf8(header_event).map_err(|_| bad(header_event))?;
        for (word, number) in EXPECTED {
            let line = event.lines().find_map(|line| line.trim().strip_prefix(word));
            let digits = line
                .and_then(|line| line.split(|c: char| !c.is_ascii_digit()).find(|d| !d.is_empty()));
            if digits.and_then(|digits| parse_decimal(digits.as_bytes())) != Some(number) {
                return Err(bad(header_event));
            }
        }
        let layout = Layout { big_endian, long: commit.size };
        let pages = PageLayout { layout, timestamp, commit, data: data.offset, size: 0 };
        Ok((pages.of_size(data.offset + data.size)?, layout))
    }

    /// Returns the same layout with sub-buffers of another size in bytes.
    ///
    /// # Errors
    /// Fails with [`Fault::Record`] if they have no room for records.
    pub(crate) fn of_size(self, size: usize) -> Result<Self, Fault> {
        if size <= self.data {
            return Err(Fault::Record("sub-buffers without room for records"));
        }
        Ok(PageLayout { size, ..self })
    }

    /// Returns the layout of numbers.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Begins to read a sub-buffer. `bytes` may be shorter than a sub-buffer if it holds all
    /// records.
    ///
    /// # Errors
    /// Fails with [`Fault::Record`] if the records extend past the end.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Page, Fault> {
        let number = |field: Field| self.layout.at(bytes, field.offset, field.size);
        let head = number(self.timestamp).zip(number(self.commit));
        let (t, commit) = head.ok_or(Fault::Record("a sub-buffer ends in its head"))?;
        let end = self.data + (commit & COMMITTED) as usize;
        if end > bytes.len() {
            return Err(Fault::Record("a sub-buffer with more records than its size allows"));
        }
        let lost = if commit & MISSED == 0 {
            0
        } else if commit & MISSED_STORED == 0 {
            1
        } else {
            let count = self.layout.at(bytes, end, self.layout.long);
            count.ok_or(Fault::Record("a sub-buffer without its count of lost events"))?.max(1)
        };
        Ok(Page { layout: self.layout, t, at: self.data, end, lost })
    }
}

/// Position in a sub-buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    layout: Layout,
    /// Time of the record before.
    t: u64,
    at: usize,
    end: usize,
    /// Number of events that were lost before this sub-buffer; 1 for an unknown number.
    pub(crate) lost: u64,
}

impl Page {
    /// Returns the next record of an event: its time by the trace's clock, and its bytes. `bytes`
    /// must be those of the sub-buffer.
    ///
    /// # Errors
    /// Fails with [`Fault::Record`] if a record extends past the end of the records. The rest of
    /// the sub-buffer is then skipped.
    pub(crate) fn next(&mut self, bytes: &[u8]) -> Result<Option<(u64, Range<usize>)>, Fault> {
        let found = self.find(bytes);
        if found.is_err() {
            self.at = self.end;
        }
        found
    }

    fn find(&mut self, bytes: &[u8]) -> Result<Option<(u64, Range<usize>)>, Fault> {
        const PAST: Fault = Fault::Record("a record extends past the end of its sub-buffer");
        let word = |at: usize| {
            let word = self.layout.u32(bytes, at).filter(|_| at + 4 <= self.end);
            word.ok_or(PAST)
        };
        let mut at = self.at;
        while at < self.end {
            let head = word(at)?;
            let (kind, delta) = if self.layout.big_endian {
                (head >> DELTA_BITS, head & ((1 << DELTA_BITS) - 1))
            } else {
                (head & 31, head >> 5)
            };
            match kind {
                PADDING if delta == 0 => break,
                PADDING => {
                    // A discarded event. Later times count from its own.
                    self.t = self.t.wrapping_add(delta.into());
                    at = at.saturating_add(4).saturating_add((word(at + 4)? as usize).max(4));
                }
                TIME_EXTEND => {
                    let more = u64::from(word(at + 4)?) << DELTA_BITS;
                    self.t = self.t.wrapping_add(more + u64::from(delta));
                    at += 8;
                }
                TIME_STAMP => {
                    let low = u64::from(word(at + 4)?) << DELTA_BITS | u64::from(delta);
                    let t = self.t >> STAMP_BITS << STAMP_BITS | low;
                    // The low bits may have wrapped since.
                    self.t = if t < self.t { t.wrapping_add(1 << STAMP_BITS) } else { t };
                    at += 8;
                }
                length => {
                    // A length of 0: the length in bytes follows, and counts itself.
                    let (from, length) = if length == 0 {
                        let length = word(at + 4)? as usize;
                        (at + 8, length.checked_sub(4).ok_or(PAST)?)
                    } else {
                        (at + 4, 4 * length as usize)
                    };
                    let to = from.checked_add(length).filter(|&to| to <= self.end).ok_or(PAST)?;
                    self.t = self.t.wrapping_add(delta.into());
                    self.at = to.next_multiple_of(4);
                    return Ok(Some((self.t, from..to)));
                }
            }
            if at > self.end {
                return Err(PAST);
            }
        }
        self.at = self.end;
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
