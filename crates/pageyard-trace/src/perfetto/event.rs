//! The events of Perfetto's ftrace data source, by the numbers of the published schema
//! (`FtraceEvent` and its messages).

use super::fields::{Fields, Value};
use crate::check::{MAX_ORDER, MAX_PFN, MAX_TYPE, at_most};
use crate::compaction::Compaction;
use crate::compaction_layout::{Form, MOST, POINTS, power};
use crate::error::Fault;
use crate::event::Kind;
use crate::text::Name;

/// Numbers of events.
mod number {
    pub(super) const PRINT: u64 = 3;
    pub(super) const SCHED_SWITCH: u64 = 4;
    pub(super) const NEW_TASK: u64 = 235;
    pub(super) const RENAME: u64 = 236;
    pub(super) const ALLOC: u64 = 307;
    pub(super) const EXTFRAG: u64 = 308;
    pub(super) const ZONE_LOCKED: u64 = 309;
    pub(super) const FREE: u64 = 310;
    pub(super) const FREE_BATCHED: u64 = 311;
    pub(super) const DRAIN: u64 = 312;
    pub(super) const GENERIC: u64 = 327;
}

/// What an event says.
pub(super) enum Said<'a> {
    Page(Kind),
    Compaction(Box<Compaction>),
    Mark(&'a [u8]),
    /// Names of threads.
    Names(Vec<(u32, &'a [u8])>),
    /// An event that is not used.
    Other(String),
}

/// Events of compaction and reclaim: number, index in [`POINTS`], and the message's field for each
/// field there. A second field is the one of newer kernels.
#[rustfmt::skip]
const EVENTS: [(u64, usize, &[&[u64]]); 18] = [
    (46, 18, &[&[1], &[3]]),
    (47, 19, &[&[1]]),
    (48, 16, &[&[1], &[2]]),
    (49, 15, &[&[1]]),
    (99, 1, &[&[1], &[2], &[3], &[4], &[5]]),
    (100, 10, &[&[1], &[2], &[3], &[6], &[4], &[5]]),
    (101, 9, &[&[1], &[2], &[3], &[6], &[4], &[5]]),
    (102, 11, &[&[1], &[2], &[3], &[6], &[4], &[5]]),
    (103, 2, &[&[1], &[2], &[3], &[4], &[5], &[6]]),
    (104, 7, &[&[1], &[2], &[3], &[4]]),
    (105, 4, &[&[1], &[2], &[3], &[4]]),
    (106, 3, &[&[1], &[2], &[3], &[4]]),
    (107, 12, &[&[1]]),
    (108, 14, &[&[1], &[2], &[3, 4]]),
    (109, 6, &[&[1], &[2]]),
    (110, 8, &[&[1], &[2], &[3], &[4]]),
    (111, 0, &[&[1], &[2], &[4]]),
    (112, 13, &[&[1], &[2], &[3, 4]]),
];

/// Number of fields of a message that are kept; those of the events used have up to seven.
const KEPT: usize = 8;

/// The fields of a message, by number. A message without a field has 0 there, as protobuf says.
struct Message<'a>([Option<Value<'a>>; KEPT]);

impl<'a> Message<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Fault> {
        let mut fields = [None; KEPT];
        for field in Fields::new(bytes) {
            let (number, value) = field?;
            if let Some(slot) = fields.get_mut(number as usize) {
                *slot = Some(value);
            }
        }
        Ok(Message(fields))
    }

    fn number(&self, field: u64) -> u64 {
        self.0[field as usize].map_or(0, Value::number)
    }

    fn bytes(&self, field: u64) -> &'a [u8] {
        self.0[field as usize].map_or(&[], Value::bytes)
    }
}

/// Parses the message of the event of this number.
///
/// # Errors
/// Fails if the message is damaged, or holds impossible values.
pub(super) fn parse(event: u64, bytes: &[u8]) -> Result<Said<'_>, Fault> {
    let message = Message::parse(bytes)?;
    if let Some(kind) = page(event, &message)? {
        return Ok(Said::Page(kind));
    }
    if let Some(&(_, point, fields)) = EVENTS.iter().find(|(known, ..)| *known == event) {
        return Ok(match compaction(point, fields, &message)? {
            Some(what) => Said::Compaction(Box::new(what)),
            None => Said::Other(POINTS[point].name.to_owned()),
        });
    }
    let tid = |field| message.number(field) as u32;
    Ok(match event {
        number::PRINT => Said::Mark(message.bytes(2)),
        number::SCHED_SWITCH => {
            Said::Names(vec![(tid(2), message.bytes(1)), (tid(6), message.bytes(5))])
        }
        number::NEW_TASK => Said::Names(vec![(tid(1), message.bytes(2))]),
        number::RENAME => Said::Names(vec![(tid(1), message.bytes(3))]),
        number::GENERIC => Said::Other(String::from_utf8_lossy(message.bytes(1)).into_owned()),
        other => Said::Other(format!("ftrace event {other} of Perfetto")),
    })
}

/// Returns the page event of this number.
fn page(event: u64, message: &Message<'_>) -> Result<Option<Kind>, Fault> {
    // The event's name and the field of its frame.
    let (name, frame) = match event {
        number::ALLOC => (Name::Alloc, 5),
        number::EXTFRAG => (Name::ExtFrag, 7),
        number::ZONE_LOCKED => (Name::ZoneLocked, 4),
        number::FREE => (Name::Free, 3),
        number::FREE_BATCHED => (Name::FreeBatched, 3),
        number::DRAIN => (Name::Drain, 4),
        _ => return Ok(None),
    };
    // Kernels before 4.0 recorded the address of the page's descriptor alone.
    let missing = Fault::MissingField { event: name.as_str(), field: "pfn" };
    let pfn = match message.0[frame].ok_or(missing)?.number() {
        u64::MAX => None,
        pfn => Some(pfn),
    };
    at_most("pfn", pfn.unwrap_or(0), MAX_PFN)?;
    let some = || pfn.ok_or(Fault::NoFrame { event: name.as_str() });
    let small = |name, field, limit: u8| {
        let value = message.number(field);
        at_most(name, value, limit.into()).map(|()| value as u8)
    };
    let order = |field| small("order", field, MAX_ORDER);
    let migratetype = |field| small("migratetype", field, MAX_TYPE);
    Ok(Some(match event {
        number::ALLOC => Kind::Alloc {
            pfn,
            order: order(3)?,
            migratetype: migratetype(2)?,
            gfp: {
                at_most("gfp_flags", message.number(1), u32::MAX.into())?;
                message.number(1) as u32
            },
        },
        number::FREE => Kind::Free { pfn: some()?, order: order(1)? },
        number::FREE_BATCHED => Kind::FreeBatched { pfn: some()? },
        number::ZONE_LOCKED => {
            let (order, migratetype) = (order(2)?, migratetype(1)?);
            // Not in the message; the kernel sets it for what its per-CPU lists hold (spec §5.2).
            let refill = matches!(order, 0..=3 | 9) && migratetype < 3;
            Kind::ZoneLocked { pfn, order, migratetype, refill }
        }
        number::DRAIN => {
            Kind::Drain { pfn: some()?, order: order(2)?, migratetype: migratetype(1)? }
        }
        _ => Kind::ExtFrag {
            pfn: some()?,
            alloc_order: order(2)?,
            fallback_order: order(4)?,
            alloc_type: migratetype(1)?,
            fallback_type: migratetype(3)?,
            change_ownership: small("change_ownership", 6, 1)? == 1,
        },
    }))
}

fn compaction(
    point: usize,
    fields: &[&[u64]],
    message: &Message<'_>,
) -> Result<Option<Compaction>, Fault> {
    let mut values = [0; MOST];
    let described = POINTS[point].fields;
    for ((value, from), &(_, form)) in values.iter_mut().zip(fields).zip(described) {
        let field = from.iter().rev().find(|&&field| message.0[field as usize].is_some());
        let number = field.map_or(0, |&field| message.number(field));
        *value = match form {
            // -1, which has all bits set, becomes 0.
            Form::Order => number.wrapping_add(1),
            Form::Limit => power("limit", number)?,
            _ => number,
        };
    }
    Compaction::from_values(point, values)
}
