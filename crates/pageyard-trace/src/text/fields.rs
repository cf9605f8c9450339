//! Parser of the fields of page events (spec §9.5), in any order.

use crate::check::{MAX_ORDER, MAX_PFN, MAX_TYPE, at_most};
use crate::error::{Fault, excerpt};
use crate::event::Kind;
use crate::gfp;
use crate::number::parse_number;
use crate::summary::PAGE_EVENTS;

/// Name of a page event, in the order of [`PAGE_EVENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Alloc,
    Free,
    FreeBatched,
    ZoneLocked,
    Drain,
    ExtFrag,
}

impl Name {
    /// Returns the page event of this name.
    pub(crate) fn of(event: &[u8]) -> Option<Self> {
        Some(match event.strip_prefix(b"mm_page_")? {
            b"alloc" => Name::Alloc,
            b"free" => Name::Free,
            b"free_batched" => Name::FreeBatched,
            b"alloc_zone_locked" => Name::ZoneLocked,
            b"pcpu_drain" => Name::Drain,
            b"alloc_extfrag" => Name::ExtFrag,
            _ => return None,
        })
    }

    pub(crate) fn as_str(self) -> &'static str {
        PAGE_EVENTS[self as usize]
    }
}

/// Field values as in the line. `pageblock_order` is not included because it is constant for a
/// machine. `fragmenting` is not included because it follows from `pageblock_order` and
/// `fallback_order` (and trace-cmd prints it incorrectly).
#[derive(Default)]
struct Values<'a> {
    page: Option<&'a [u8]>,
    pfn: Option<&'a [u8]>,
    order: Option<&'a [u8]>,
    migratetype: Option<&'a [u8]>,
    gfp_flags: Option<&'a [u8]>,
    percpu_refill: Option<&'a [u8]>,
    alloc_order: Option<&'a [u8]>,
    fallback_order: Option<&'a [u8]>,
    alloc_migratetype: Option<&'a [u8]>,
    fallback_migratetype: Option<&'a [u8]>,
    change_ownership: Option<&'a [u8]>,
}

impl<'a> Values<'a> {
    fn collect(text: &'a [u8]) -> Self {
        let mut values = Values::default();
        for word in text.split(|&b| b == b' ') {
            let Some(equals) = word.iter().position(|&b| b == b'=') else { continue };
            let value = Some(&word[equals + 1..]);
            match &word[..equals] {
                b"page" => values.page = value,
                b"pfn" => values.pfn = value,
                b"order" => values.order = value,
                b"migratetype" => values.migratetype = value,
                b"gfp_flags" => values.gfp_flags = value,
                b"percpu_refill" => values.percpu_refill = value,
                b"alloc_order" => values.alloc_order = value,
                b"fallback_order" => values.fallback_order = value,
                b"alloc_migratetype" => values.alloc_migratetype = value,
                b"fallback_migratetype" => values.fallback_migratetype = value,
                b"change_ownership" => values.change_ownership = value,
                _ => {}
            }
        }
        values
    }
}

/// Parses the fields of events, and caches the flag texts, of which a trace has few.
#[derive(Default)]
pub(super) struct FieldParser {
    flags: Vec<(Box<[u8]>, u32)>,
}

/// Maximum number of cached flag texts.
const REMEMBERED: usize = 32;

impl FieldParser {
    /// Parses the event of this name with the fields in `text`.
    pub(super) fn parse(&mut self, name: Name, text: &[u8]) -> Result<Kind, Fault> {
        let v = Values::collect(text);
        let read = Reading { event: name.as_str() };
        let pfn = read.frame(v.page, v.pfn)?;
        let some = || pfn.ok_or(Fault::NoFrame { event: name.as_str() });
        Ok(match name {
            Name::Alloc => Kind::Alloc {
                pfn,
                order: read.order("order", v.order)?,
                migratetype: read.migratetype("migratetype", v.migratetype)?,
                gfp: self.gfp(read.present("gfp_flags", v.gfp_flags)?)?,
            },
            Name::Free => Kind::Free { pfn: some()?, order: read.order("order", v.order)? },
            Name::FreeBatched => {
                // The kernel always prints `order=0`; any other value is damage.
                if v.order.is_some() {
                    at_most("order", read.number("order", v.order)?, 0)?;
                }
                Kind::FreeBatched { pfn: some()? }
            }
            Name::ZoneLocked => Kind::ZoneLocked {
                pfn,
                order: read.order("order", v.order)?,
                migratetype: read.migratetype("migratetype", v.migratetype)?,
                refill: read.flag("percpu_refill", v.percpu_refill)?,
            },
            Name::Drain => Kind::Drain {
                pfn: some()?,
                order: read.order("order", v.order)?,
                migratetype: read.migratetype("migratetype", v.migratetype)?,
            },
            Name::ExtFrag => Kind::ExtFrag {
                pfn: some()?,
                alloc_order: read.order("alloc_order", v.alloc_order)?,
                fallback_order: read.order("fallback_order", v.fallback_order)?,
                alloc_type: read.migratetype("alloc_migratetype", v.alloc_migratetype)?,
                fallback_type: read.migratetype("fallback_migratetype", v.fallback_migratetype)?,
                change_ownership: read.flag("change_ownership", v.change_ownership)?,
            },
        })
    }

    fn gfp(&mut self, text: &[u8]) -> Result<u32, Fault> {
        if let Some(known) = self.flags.iter().position(|(seen, _)| **seen == *text) {
            // Frequent texts move to the front.
            if known > 0 {
                self.flags.swap(known, known / 2);
            }
            return Ok(self.flags[known / 2].1);
        }
        let unknown = |part: &[u8]| Fault::UnknownGfp { name: excerpt(part) };
        let names = str::from_utf8(text).map_err(|_| unknown(text))?;
        let flags = gfp::parse(names).map_err(|part| unknown(part.as_bytes()))?;
        if self.flags.len() == REMEMBERED {
            self.flags.pop();
        }
        self.flags.push((text.into(), flags));
        Ok(flags)
    }
}

/// Parses single values of an event, whose name is used in errors.
struct Reading {
    event: &'static str,
}

impl Reading {
    fn present<'a>(&self, field: &'static str, value: Option<&'a [u8]>) -> Result<&'a [u8], Fault> {
        value.ok_or(Fault::MissingField { event: self.event, field })
    }

    fn number(&self, field: &'static str, value: Option<&[u8]>) -> Result<u64, Fault> {
        let text = self.present(field, value)?;
        parse_number(text).ok_or_else(|| Fault::BadNumber { field, text: excerpt(text) })
    }

    fn order(&self, field: &'static str, value: Option<&[u8]>) -> Result<u8, Fault> {
        let order = self.number(field, value)?;
        at_most(field, order, u64::from(MAX_ORDER))?;
        Ok(order as u8)
    }

    fn migratetype(&self, field: &'static str, value: Option<&[u8]>) -> Result<u8, Fault> {
        let migratetype = self.number(field, value)?;
        at_most(field, migratetype, u64::from(MAX_TYPE))?;
        Ok(migratetype as u8)
    }

    fn flag(&self, field: &'static str, value: Option<&[u8]>) -> Result<bool, Fault> {
        let flag = self.number(field, value)?;
        at_most(field, flag, 1)?;
        Ok(flag == 1)
    }

    /// Returns the frame; `None` for a nil page with frame number 0, or for the number -1.
    fn frame(&self, page: Option<&[u8]>, pfn: Option<&[u8]>) -> Result<Option<u64>, Fault> {
        let pfn_text = self.present("pfn", pfn)?;
        if pfn_text == b"-1" {
            return Ok(None);
        }
        let pfn = self.number("pfn", pfn)?;
        if pfn == u64::MAX {
            return Ok(None);
        }
        at_most("pfn", pfn, MAX_PFN)?;
        let nil = match page {
            None => pfn == 0,
            Some(page) => is_nil(page),
        };
        match (nil, pfn) {
            (true, 0) => Ok(None),
            (true, pfn) => Err(Fault::NilPage { event: self.event, pfn }),
            (false, pfn) => Ok(Some(pfn)),
        }
    }
}

/// Returns whether the page is `(nil)`, `(null)` or a zero pointer.
fn is_nil(page: &[u8]) -> bool {
    match page {
        b"(nil)" | b"(null)" => true,
        _ => {
            let digits = page.strip_prefix(b"0x").unwrap_or(page);
            !digits.is_empty() && digits.iter().all(|&b| b == b'0')
        }
    }
}
