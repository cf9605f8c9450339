//! Tracepoints of compaction and reclaim as text. The kernel prints their fields in a fixed order,
//! which the parser requires. It ignores what follows the last field.

use std::io::{self, Write};

use crate::compaction::{Compaction, STATUSES, ZONES};
use crate::compaction_layout::{Form, MODES, MOST, POINTS, key, may_be_point};
use crate::error::{Fault, excerpt};
use crate::gfp;
use crate::number::{parse_decimal, parse_number};

/// Returns the tracepoint of this name.
pub(crate) fn point_of(event: &[u8]) -> Option<usize> {
    if !may_be_point(event) {
        return None;
    }
    POINTS.iter().position(|point| point.name.as_bytes() == event)
}

/// Parses the event of this tracepoint with the fields in `text`.
pub(super) fn parse(point: usize, text: &[u8]) -> Result<Option<Compaction>, Fault> {
    let Some(described) = POINTS.get(point) else { return Ok(None) };
    let mut values = [0; MOST];
    let mut rest = text;
    for (value, &(before, form)) in values.iter_mut().zip(described.fields) {
        let missing = Fault::MissingField { event: described.name, field: key(before) };
        // Zone names are padded.
        let behind = rest.trim_ascii_start().strip_prefix(before.trim_start().as_bytes());
        let Some(behind) = behind else { return Err(missing) };
        let end = behind.iter().position(|b| b" ,)".contains(b)).unwrap_or(behind.len());
        let (word, after) = behind.split_at(end);
        *value = parse_value(key(before), form, word)?;
        rest = after;
    }
    Compaction::from_values(point, values)
}

fn parse_value(field: &'static str, form: Form, word: &[u8]) -> Result<u64, Fault> {
    let one_of = |words: &[&str]| {
        let found = words.iter().position(|known| known.as_bytes() == word);
        found.map(|n| n as u64).ok_or(Fault::UnknownWord { field, word: excerpt(word) })
    };
    let number = |n: Option<u64>| n.ok_or(Fault::BadNumber { field, text: excerpt(word) });
    match form {
        Form::Frame => number(parse_number(word)),
        Form::Order if word == b"-1" => Ok(0),
        // One past the maximum is not a valid order either.
        Form::Order => number(parse_decimal(word)).map(|order| order.saturating_add(1)),
        Form::Count | Form::Limit | Form::OrderFailed | Form::Node | Form::Priority => {
            number(parse_decimal(word))
        }
        Form::Zone => one_of(&ZONES),
        Form::Mode => one_of(&MODES),
        Form::Status => one_of(&STATUSES),
        Form::Flags => {
            let unknown = |part: &[u8]| Fault::UnknownGfp { name: excerpt(part) };
            let names = str::from_utf8(word).map_err(|_| unknown(word))?;
            gfp::parse(names).map(u64::from).map_err(|part| unknown(part.as_bytes()))
        }
    }
}

/// Writes the fields of an event, which must be within its limits.
pub(super) fn write(out: &mut impl Write, event: &Compaction, names: bool) -> io::Result<()> {
    let (point, values) = event.values();
    for (&(before, form), &value) in POINTS[point].fields.iter().zip(&values) {
        out.write_all(before.as_bytes())?;
        let word = |words: &'static [&str]| words.get(value as usize).copied().unwrap_or("?");
        match form {
            Form::Frame => write!(out, "{value:#x}")?,
            Form::Order if value == 0 => out.write_all(b"-1")?,
            Form::Order => write!(out, "{}", value - 1)?,
            Form::Count | Form::Limit | Form::OrderFailed | Form::Node | Form::Priority => {
                write!(out, "{value}")?;
            }
            Form::Zone => write!(out, "{:<8}", word(&ZONES))?,
            Form::Mode => out.write_all(word(&MODES).as_bytes())?,
            Form::Status => out.write_all(word(&STATUSES).as_bytes())?,
            Form::Flags if names => out.write_all(gfp::to_names(value as u32).as_bytes())?,
            Form::Flags => write!(out, "{value:#x}")?,
        }
    }
    out.write_all(b"\n")
}
