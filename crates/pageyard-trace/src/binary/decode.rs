//! Decodes raw records by the descriptions of their events.
//!
//! A record yields what the text of the same record yields to the text parser: flags, zones and
//! outcomes are translated by their names in the description, and a failed request has no frame.

use super::bytes::Layout;
use super::format::{EventFormat, Field, Fields};
use super::print_fmt::names_of;
use super::translate::{Conversion, Flags, recorded_names};
use crate::check::{MAX_ORDER, MAX_PFN, MAX_TYPE, at_most};
use crate::compaction::Compaction;
use crate::compaction_layout::{MOST, POINTS, key};
use crate::error::Fault;
use crate::event::Kind;
use crate::text::{Name, point_of};

/// The events of a recording, by number.
pub(crate) struct EventTable {
    layout: Layout,
    events: Vec<Option<Event>>,
}

/// `common_type` of every record.
const NUMBER: Field = Field { offset: 0, size: 2, signed: false, dynamic: false };

enum Event {
    /// `common_pid`, and what a record yields.
    Known(Field, Plan),
    /// An event that this crate does not use, by name.
    Other(Box<str>),
}

/// What a record of an event yields.
enum Plan {
    Page(Name, Box<PageFields>),
    Point(usize, Vec<(Field, Conversion)>),
    Print { ip: Field, text: Field },
    Comm { event: &'static str, pid: Field, comm: Field },
}

/// A raw record, decoded.
pub(crate) struct Decoded<'a> {
    /// Process that was running; 0 for an event that this crate does not use.
    pub(crate) pid: u32,
    /// What happened.
    pub(crate) what: What<'a>,
}

/// What a raw record says.
#[derive(Debug, PartialEq)]
pub(crate) enum What<'a> {
    /// A page event.
    Page(Kind),
    /// An event of compaction or reclaim.
    Compaction(Box<Compaction>),
    /// A `print` event: the address of the function that wrote it, and its text without the final
    /// line break. The text is a mark; `trace-cmd` prints the function's name before it.
    Print { ip: u64, text: &'a [u8] },
    /// A task begins or changes its name.
    Comm { event: &'static str, pid: u32, comm: &'a [u8] },
    /// An event that this crate does not use, by name.
    Other(&'a str),
}

/// Events that begin a task or change its name, and their fields with the name.
const COMM_EVENTS: [(&str, &str); 2] = [("task_newtask", "comm"), ("task_rename", "newcomm")];

/// Name for events that the recording does not describe.
const UNKNOWN: &str = "(unknown)";

impl EventTable {
    /// Creates an empty table for recordings of a machine with this layout.
    pub(crate) fn new(layout: Layout) -> Self {
        EventTable { layout, events: Vec::new() }
    }

    /// Adds an event by its description. A later one replaces an earlier one of the same number.
    ///
    /// # Errors
    /// Fails with [`Fault::Format`] if the description cannot be parsed, or
    /// [`Fault::MissingField`] if it lacks a field that this crate needs of a known event.
    pub(crate) fn add(&mut self, description: &[u8]) -> Result<(), Fault> {
        let format = EventFormat::parse(description)?;
        let event = match Plan::of(&format)? {
            Some((pid, plan)) => Event::Known(pid, plan),
            None => Event::Other(format.name.into()),
        };
        let at = usize::from(format.id);
        if self.events.len() <= at {
            self.events.resize_with(at + 1, || None);
        }
        self.events[at] = Some(event);
        Ok(())
    }

    /// Returns the name of the event of this number.
    pub(crate) fn name(&self, id: u16) -> Option<&str> {
        Some(match self.events.get(usize::from(id))?.as_ref()? {
            Event::Other(name) => name,
            Event::Known(_, Plan::Page(name, _)) => name.as_str(),
            Event::Known(_, Plan::Point(point, _)) => POINTS[*point].name,
            Event::Known(_, Plan::Print { .. }) => "print",
            Event::Known(_, Plan::Comm { event, .. }) => event,
        })
    }

    /// Decodes a raw record, which begins with the common fields. Bytes after the last field are
    /// ignored.
    ///
    /// # Errors
    /// Fails with [`Fault::Record`] if the record ends before its fields, and with the text
    /// parser's faults for impossible values.
    pub(crate) fn decode<'a>(&'a self, raw: &'a [u8]) -> Result<Decoded<'a>, Fault> {
        let raw = Raw { bytes: raw, layout: self.layout };
        let event = self.events.get(raw.number(NUMBER)? as usize).and_then(Option::as_ref);
        let (pid, plan) = match event {
            None => return Ok(Decoded { pid: 0, what: What::Other(UNKNOWN) }),
            Some(Event::Other(name)) => return Ok(Decoded { pid: 0, what: What::Other(name) }),
            Some(Event::Known(pid, plan)) => (raw.number(*pid)? as u32, plan),
        };
        let what = match plan {
            Plan::Page(name, fields) => What::Page(fields.decode(*name, &raw)?),
            Plan::Point(point, fields) => {
                let mut values = [0; MOST];
                for (n, (field, conversion)) in fields.iter().enumerate() {
                    let name = POINTS[*point].fields[n].0;
                    values[n] = conversion.convert(key(name), raw.number(*field)?)?;
                }
                match Compaction::from_values(*point, values)? {
                    Some(event) => What::Compaction(Box::new(event)),
                    None => What::Other(UNKNOWN),
                }
            }
            Plan::Comm { event, pid, comm } => {
                let pid = raw.number(*pid)? as u32;
                What::Comm { event, pid, comm: raw.text(*comm)? }
            }
            Plan::Print { ip, text } => {
                What::Print { ip: raw.number(*ip)?, text: raw.text(*text)? }
            }
        };
        Ok(Decoded { pid, what })
    }
}

impl Plan {
    /// Returns `common_pid` and the plan of a known event; `None` for any other.
    fn of(format: &EventFormat<'_>) -> Result<Option<(Field, Self)>, Fault> {
        let (page, point) = (Name::of(format.name.as_bytes()), point_of(format.name.as_bytes()));
        let comm = COMM_EVENTS.iter().find(|(name, _)| *name == format.name);
        let event = match (page, point, comm) {
            (Some(name), ..) => name.as_str(),
            (_, Some(point), _) => POINTS[point].name,
            (.., Some((name, _))) => name,
            _ if format.name == "print" => "print",
            _ => return Ok(None),
        };
        let fields = format.fields()?;
        let needed = |field| fields.get(field).ok_or(Fault::MissingField { event, field });
        let plan = if let Some(name) = page {
            Plan::Page(name, Box::new(PageFields::of(name, &fields, format.print_fmt)?))
        } else if let Some(point) = point {
            let described = POINTS[point].fields.iter().map(|&(before, form)| {
                let names = recorded_names(before);
                let name = names.iter().find(|name| fields.get(name).is_some());
                let name = name.unwrap_or(&names[0]);
                let conversion = Conversion::of(form, names_of(format.print_fmt, name));
                Ok((needed(name)?, conversion))
            });
            Plan::Point(point, described.collect::<Result<_, Fault>>()?)
        } else if let Some(&(event, comm)) = comm {
            // Kernels from 6.15 on leave out the pid of a task that renames itself.
            let pid = fields.get("pid").map_or_else(|| needed("common_pid"), Ok)?;
            Plan::Comm { event, pid, comm: needed(comm)? }
        } else {
            Plan::Print { ip: needed("ip")?, text: needed("buf")? }
        };
        Ok(Some((needed("common_pid")?, plan)))
    }
}

/// A raw record.
struct Raw<'a> {
    bytes: &'a [u8],
    layout: Layout,
}

impl<'a> Raw<'a> {
    /// Returns a field's number, sign-extended if it is signed.
    fn number(&self, field: Field) -> Result<u64, Fault> {
        let value = self.layout.at(self.bytes, field.offset, field.size);
        let value = value.ok_or(Fault::Record("the event ends before its last field"))?;
        let unused = 64 - 8 * field.size.min(8) as u32;
        Ok(if field.signed && unused < 64 {
            ((value << unused) as i64 >> unused) as u64
        } else {
            value
        })
    }

    /// Returns a field's text: up to a zero byte, without the final line break.
    fn text(&self, field: Field) -> Result<&'a [u8], Fault> {
        let short = Fault::Record("the event ends before its text");
        let bytes = if field.dynamic {
            let place = self.number(Field { signed: false, ..field })? as usize;
            let (at, length) = (place & 0xffff, place >> 16 & 0xffff);
            self.bytes.get(at..at + length)
        } else {
            self.bytes.get(field.offset..)
        };
        let bytes = bytes.ok_or(short)?;
        let text = bytes.split(|&b| b == 0).next().unwrap_or(bytes);
        Ok(text.strip_suffix(b"\n").unwrap_or(text))
    }
}

/// Fields of a page event. Those that the event does not have are `None`.
struct PageFields {
    pfn: Field,
    order: Option<Field>,
    migratetype: Option<Field>,
    gfp_flags: Option<Field>,
    flags: Flags,
    percpu_refill: Option<Field>,
    fallback_order: Option<Field>,
    fallback_migratetype: Option<Field>,
    change_ownership: Option<Field>,
}

impl PageFields {
    fn of(name: Name, fields: &Fields<'_>, print_fmt: &str) -> Result<Self, Fault> {
        let needed: &[&'static str] = match name {
            Name::Alloc => &["order", "migratetype", "gfp_flags"],
            Name::Free => &["order"],
            Name::FreeBatched => &[],
            // Before 5.19, `percpu_refill` was not recorded; text had whether the order is 0.
            Name::ZoneLocked | Name::Drain => &["order", "migratetype"],
            Name::ExtFrag => &[
                "alloc_order",
                "fallback_order",
                "alloc_migratetype",
                "fallback_migratetype",
                "change_ownership",
            ],
        };
        let field = |name: &str| fields.get(name);
        let has = |wanted: &'static str| {
            field(wanted).ok_or(Fault::MissingField { event: name.as_str(), field: wanted })
        };
        // Before 4.0, events had the address of the page's descriptor instead.
        let pfn = has("pfn")?;
        for &wanted in needed {
            has(wanted)?;
        }
        let (order, migratetype) = match name {
            Name::ExtFrag => ("alloc_order", "alloc_migratetype"),
            _ => ("order", "migratetype"),
        };
        Ok(PageFields {
            pfn,
            order: field(order),
            migratetype: field(migratetype),
            gfp_flags: field("gfp_flags"),
            flags: Flags::of(names_of(print_fmt, "gfp_flags")),
            percpu_refill: field("percpu_refill"),
            fallback_order: field("fallback_order"),
            fallback_migratetype: field("fallback_migratetype"),
            change_ownership: field("change_ownership"),
        })
    }

    fn decode(&self, event: Name, raw: &Raw<'_>) -> Result<Kind, Fault> {
        let number = |name, field: Option<Field>, limit: u64| {
            let missing = Fault::MissingField { event: event.as_str(), field: name };
            let value = raw.number(field.ok_or(missing)?)?;
            at_most(name, value, limit).map(|()| value)
        };
        let order = |name, field| number(name, field, MAX_ORDER.into()).map(|n| n as u8);
        let migratetype = |name, field| number(name, field, MAX_TYPE.into()).map(|n| n as u8);
        let flag = |name, field| number(name, field, 1).map(|n| n == 1);
        let pfn = self.frame(raw)?;
        let some = || pfn.ok_or(Fault::NoFrame { event: event.as_str() });
        Ok(match event {
            Name::Alloc => Kind::Alloc {
                pfn,
                order: order("order", self.order)?,
                migratetype: migratetype("migratetype", self.migratetype)?,
                gfp: {
                    let recorded = number("gfp_flags", self.gfp_flags, u32::MAX.into())?;
                    self.flags.translate(recorded as u32)
                },
            },
            Name::Free => Kind::Free { pfn: some()?, order: order("order", self.order)? },
            Name::FreeBatched => Kind::FreeBatched { pfn: some()? },
            Name::ZoneLocked => {
                let order = order("order", self.order)?;
                let refill = match self.percpu_refill {
                    None => order == 0,
                    field => flag("percpu_refill", field)?,
                };
                let migratetype = migratetype("migratetype", self.migratetype)?;
                Kind::ZoneLocked { pfn, order, migratetype, refill }
            }
            Name::Drain => Kind::Drain {
                pfn: some()?,
                order: order("order", self.order)?,
                migratetype: migratetype("migratetype", self.migratetype)?,
            },
            Name::ExtFrag => Kind::ExtFrag {
                pfn: some()?,
                alloc_order: order("alloc_order", self.order)?,
                fallback_order: order("fallback_order", self.fallback_order)?,
                alloc_type: migratetype("alloc_migratetype", self.migratetype)?,
                fallback_type: migratetype("fallback_migratetype", self.fallback_migratetype)?,
                change_ownership: flag("change_ownership", self.change_ownership)?,
            },
        })
    }

    /// Returns the frame; `None` for -1, which is recorded for a request that failed.
    fn frame(&self, raw: &Raw<'_>) -> Result<Option<u64>, Fault> {
        let none = if self.pfn.size >= 8 { u64::MAX } else { (1 << (8 * self.pfn.size)) - 1 };
        let pfn = raw.number(Field { signed: false, ..self.pfn })?;
        if pfn == none {
            return Ok(None);
        }
        at_most("pfn", pfn, MAX_PFN).map(|()| Some(pfn))
    }
}

#[cfg(test)]
mod tests;
