//! Parser of one line of `perf script`:
//!
//! ```text
//!             cc1 13722 [002]   437.169342:             kmem:mm_page_free: page=… pfn=… order=0
//!             cc1 13720/13790 [002]   437.169342440:          1 kmem:mm_page_free: page=… pfn=…
//! ```
//!
//! `perf script -F` chooses the fields, but not their order. The parser needs task, CPU, time, event
//! and trace; it takes the thread if the process is there too, skips the period, and ignores what
//! follows the event's fields.

use memchr::memchr_iter;

use super::cursor::{Cursor, Form, Line, MAX_COMM, cpu_number};
use crate::error::Fault;
use crate::number::parse_decimal;

/// Parses a line. Returns `None` for a line of another form.
pub(super) fn parse(line: &[u8]) -> Option<Result<Form<'_>, Fault>> {
    if is_call(line) {
        return Some(Ok(Form::Nothing));
    }
    memchr_iter(b'[', line).find_map(|bracket| at_bracket(line, bracket))
}

/// Returns whether the line is part of a call chain, which follows an event: an address in a column
/// of 16, and a symbol.
fn is_call(line: &[u8]) -> bool {
    let Some(line) = line.strip_prefix(b"\t") else { return false };
    let Some((address, symbol)) = line.split_at_checked(16) else { return false };
    let digits = address.trim_ascii_start();
    !digits.is_empty()
        && digits.iter().all(u8::is_ascii_hexdigit)
        && symbol.first().is_none_or(|&b| b == b' ')
}

/// Parses the line as if the CPU were in the bracket at this place.
fn at_bracket(line: &[u8], bracket: usize) -> Option<Result<Form<'_>, Fault>> {
    let (comm, pid) = task(&line[..bracket])?;
    let mut at = Cursor { text: line, at: bracket + 1 };
    let cpu = at.digits()?;
    at.byte(b']')?;
    at.blanks();
    let t_ns = at.time().ok()?;
    at.byte(b':')?;
    at.blanks();
    if at.peek().is_some_and(|b| b.is_ascii_digit()) {
        // The period.
        at.digits();
        at.blanks();
    }
    // `kmem:mm_page_free:`, or the name of another event, such as `cycles:P:`.
    let mut event = at.name();
    if event.starts_with(b"PERF_RECORD_LOST") {
        // `PERF_RECORD_LOST lost 12`, from `--show-lost-events`
        let count =
            line[at.at..].trim_ascii().rsplit(|&b| b == b' ').next().and_then(parse_decimal);
        return Some(Ok(Form::Lost(count.unwrap_or(0))));
    }
    at.byte(b':')?;
    if at.peek().is_some_and(|b| b.is_ascii_alphabetic()) {
        event = at.name();
        at.byte(b':')?;
    }
    at.blanks();
    let rest = &line[at.at..];
    let found = cpu_number(cpu).map(|cpu| Form::Event(Line { comm, pid, cpu, t_ns, event, rest }));
    (!event.is_empty()).then_some(found)
}

/// Splits `comm pid` or `comm pid/tid` into the name and the thread.
fn task(text: &[u8]) -> Option<(&[u8], u32)> {
    let text = text.strip_suffix(b" ")?.trim_ascii_end();
    let blank = text.iter().rposition(|&b| b == b' ')?;
    let (comm, ids) = text.split_at(blank);
    let mut ids = ids[1..].split(|&b| b == b'/');
    let (first, second) = (ids.next()?, ids.next());
    if ids.next().is_some() {
        return None;
    }
    // A task that has ended has the number -1.
    let number = |text: &[u8]| match text {
        b"-1" => Some(u32::MAX),
        _ => parse_decimal(text).and_then(|id| u32::try_from(id).ok()),
    };
    let (first, second) = (number(first)?, second.map(number));
    let comm = comm.trim_ascii();
    (comm.len() <= MAX_COMM && !comm.is_empty()).then_some((comm, second.unwrap_or(Some(first))?))
}
