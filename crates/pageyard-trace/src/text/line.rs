//! Parser of one text line: task, CPU, time and event.
//!
//! ```text
//!           run.sh-1     [001]    25.190487028: mm_page_alloc:        page=… pfn=…
//!              cc1-246     (    246) [002] d..1.    49.488692: mm_page_free: page=… pfn=…
//!      cc1-246     2d..1.    49.488692: mm_page_free: page=… pfn=…
//! ```
//!
//! The last is the latency format (`trace-cmd report -l`), whose names are cut to 8 bytes. The
//! module `perf` parses the lines of `perf script`.
//!
//! A command name may contain spaces, dashes, brackets and colons, up to 15 bytes. Tracers print it
//! right-aligned, so the dash before the pid is at byte 16. The parser tries that dash first, then
//! every dash from the left. Only then does it try other forms of lines, since a name may begin
//! with `#`.

use memchr::memchr_iter;

use super::cursor::{Cursor, Form, Line, MAX_COMM, cpu_number};
use super::perf;
use crate::check::{MAX_CPUS, at_most};
use crate::error::{Fault, excerpt};
use crate::number::parse_decimal;
use crate::release;

/// Column of the dash between command and pid, as tracers print it.
const DASH_COLUMN: usize = 16;
/// A line with an event of a second buffer, or of one that is not the top one.
const INSTANCE: Fault = Fault::Unusable {
    what: "the line begins with the name of a tracing instance, whose events the text may hold twice",
    fix: "import the trace.dat itself, record page events in one buffer only, or use --lenient to skip \
          these lines",
};

/// Parses a line.
pub(super) fn parse(line: &[u8]) -> Result<Form<'_>, Fault> {
    if let Some(dash) = line.get(DASH_COLUMN)
        && *dash == b'-'
        && let Ok(found) = at_dash(line, DASH_COLUMN)
    {
        return Ok(Form::Event(found));
    }
    let mut best = (0, Fault::NotALine("no `task-pid [cpu] seconds: event:`"));
    // Names with a dash may look like the start of another form, so that of `perf` is tried first.
    if let Some(found) = perf::parse(line) {
        return found;
    }
    for dash in memchr_iter(b'-', line) {
        match at_dash(line, dash) {
            Ok(found) => return Ok(Form::Event(found)),
            // Keep the fault of the attempt that got furthest.
            Err(miss) if miss.0 > best.0 => best = miss,
            Err(_) => {}
        }
    }
    not_an_event(line).unwrap_or(Err(best.1))
}

/// Parses a line that is not an event.
fn not_an_event(line: &[u8]) -> Option<Result<Form<'_>, Fault>> {
    let line = line.trim_ascii();
    if line.is_empty() || line[0] == b'#' {
        return Some(heading(line));
    }
    if let Some(count) = line.strip_prefix(b"cpus=") {
        return Some(match parse_decimal(count) {
            Some(n) => at_most("cpus", n, u64::from(MAX_CPUS)).map(|()| Form::Cpus(n)),
            None => Err(Fault::BadNumber { field: "cpus", text: excerpt(count) }),
        });
    }
    if let Some(version) = line.strip_prefix(b"version = ") {
        return parse_decimal(version).map(|_| Ok(Form::Nothing));
    }
    // "CPU 3 is empty", "CPU:2 [LOST 17 EVENTS]", "CPU:2 [17 EVENTS DROPPED]"
    if let Some(rest) = line.strip_prefix(b"CPU") {
        let digits = rest.get(1..)?.iter().take_while(|b| b.is_ascii_digit()).count();
        let says = rest.get(1 + digits..)?.trim_ascii();
        if digits > 0 && says == b"is empty" {
            return Some(Ok(Form::Nothing));
        }
        if digits > 0 {
            return lost(says).map(|n| Ok(Form::Lost(n)));
        }
    }
    lost(line).map(|n| Ok(Form::Lost(n)))
}

/// Parses an empty line or one that begins with `#`.
fn heading(line: &[u8]) -> Result<Form<'_>, Fault> {
    if let Some((events, cpus)) = overwritten(line) {
        at_most("cpus", cpus, MAX_CPUS.into())?;
        return Ok(Form::Overwritten { events, cpus: cpus as u16 });
    }
    Ok(kernel(line).map_or(Form::Nothing, Form::Kernel))
}

/// Returns the number of overwritten events and of CPUs in the heading of the kernel's file `trace`:
/// `# entries-in-buffer/entries-written: 3/250280   #P:4`.
fn overwritten(line: &[u8]) -> Option<(u64, u64)> {
    let mut at =
        Cursor { text: line.strip_prefix(b"# entries-in-buffer/entries-written: ")?, at: 0 };
    let in_buffer = parse_decimal(at.digits()?)?;
    at.byte(b'/')?;
    let written = parse_decimal(at.digits()?)?;
    at.blanks();
    let cpus = at.text[at.at..].strip_prefix(b"#P:").and_then(parse_decimal)?;
    Some((written.checked_sub(in_buffer)?, cpus))
}

/// Returns the release in `# os release : 6.12.30` (`perf script --header`) or in
/// `# nop latency trace v1.1.5 on 6.12.30` (the file `trace` with the option latency-format).
fn kernel(line: &[u8]) -> Option<&str> {
    let text = line.strip_prefix(b"# ")?;
    let release = match text.strip_prefix(b"os release :") {
        Some(release) => release,
        None => {
            let at = memchr::memmem::find(text, b" latency trace v")?;
            let on = memchr::memmem::find(&text[at..], b" on ")?;
            &text[at + on + 4..]
        }
    };
    release::find(release)
}

/// Returns the number in `[LOST n EVENTS]` or `[n EVENTS DROPPED]`, 0 without one.
fn lost(text: &[u8]) -> Option<u64> {
    if text == b"LOST EVENTS" {
        return Some(0);
    }
    let text = text.strip_prefix(b"[")?.strip_suffix(b"]")?.trim_ascii();
    let count = match text.strip_prefix(b"LOST") {
        Some(rest) => rest.strip_suffix(b"EVENTS")?,
        None => text.strip_suffix(b"EVENTS DROPPED")?,
    }
    .trim_ascii();
    if count.is_empty() { Some(0) } else { parse_decimal(count) }
}

/// Parses the line as if its command ended before `dash`. A failure includes how far it got.
fn at_dash(line: &[u8], dash: usize) -> Result<Line<'_>, (u8, Fault)> {
    let mut at = Cursor { text: line, at: dash + 1 };
    let pid = at.digits().ok_or((1, Fault::NotALine("no pid after the dash")))?;
    let pid = parse_decimal(pid)
        .filter(|&pid| pid <= u64::from(u32::MAX))
        .ok_or_else(|| (2, Fault::BadNumber { field: "pid", text: excerpt(pid) }))?;
    at.blanks();
    if at.peek() == Some(b'(') {
        // The thread group, printed with the option record-tgid.
        at.skip_past(b')').ok_or((3, Fault::NotALine("`(` without `)`")))?;
        at.blanks();
    }
    let latency = at.peek().is_some_and(|b| b.is_ascii_digit());
    if !latency {
        at.byte(b'[').ok_or((3, Fault::NotALine("no [cpu] after the pid")))?;
    }
    let cpu = at.digits().ok_or((4, Fault::NotALine("no number in [cpu]")))?;
    if !latency {
        at.byte(b']').ok_or((4, Fault::NotALine("`[cpu` without `]`")))?;
        at.blanks();
    }
    let cpu = cpu_number(cpu).map_err(|fault| (5, fault))?;
    if latency || !at.peek().is_some_and(|b| b.is_ascii_digit()) {
        // Interrupt and preemption state, like `d..1.`. In the latency format it follows the CPU's
        // number directly.
        if at.word().is_empty() && latency {
            return Err((3, Fault::NotALine("no [cpu] after the pid")));
        }
        at.blanks();
    }
    if latency && at.is_relative() {
        return Err((6, Fault::NotALine("the time is relative, in microseconds")));
    }
    let t_ns = at.time().map_err(|fault| (6, fault))?;
    at.byte(b':').ok_or((7, Fault::NotALine("no colon after the time")))?;
    at.blanks();
    let event = at.name();
    if event.is_empty() {
        return Err((8, Fault::NotALine("no event after the time")));
    }
    at.byte(b':');
    at.blanks();
    let comm = line[..dash].trim_ascii_start();
    // `trace-cmd report` prints the instance's name before a task that is right-aligned to 16 bytes.
    if comm.len() > DASH_COLUMN && memchr::memmem::find(comm, b":  ").is_some() {
        return Err((8, INSTANCE));
    }
    if comm.len() > MAX_COMM {
        return Err((8, Fault::NotALine("a command name of more than 127 bytes")));
    }
    Ok(Line { comm, pid: pid as u32, cpu, t_ns, event, rest: &line[at.at..] })
}
