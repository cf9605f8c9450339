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

use super::perf;
use crate::check::{MAX_CPUS, at_most};
use crate::error::{Fault, excerpt};
use crate::number::parse_decimal;
use crate::release;

/// Maximum length of the short words between the dash and the time: thread group and interrupt
/// state. The search for their ends is bounded because every dash of a line may be tried.
const MOST_WORD: usize = 32;
/// Column of the dash between command and pid, as tracers print it.
const DASH_COLUMN: usize = 16;
/// Maximum length of a command name. The kernel's have 15 bytes, those of its workers up to 63.
pub(crate) const MAX_COMM: usize = 127;

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: u32,
    pub(super) cpu: u16,
    pub(super) t_ns: u64,
    pub(super) event: &'a [u8],
    /// What follows the event's name, without leading blanks.
    pub(super) rest: &'a [u8],
}

/// Kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form<'a> {
    Event(Line<'a>),
    /// `cpus=N`.
    Cpus(u64),
    /// The recorder lost this many events; 0 means an unknown number.
    Lost(u64),
    /// The heading names the kernel's release.
    Kernel(&'a str),
    /// Another comment, heading or empty line.
    Nothing,
}

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
        return Some(Ok(heading(line).map_or(Form::Nothing, Form::Kernel)));
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

/// Returns the release in `# os release : 6.12.30` (`perf script --header`) or in
/// `# nop latency trace v1.1.5 on 6.12.30` (the file `trace` with the option latency-format).
fn heading(line: &[u8]) -> Option<&str> {
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
    if comm.len() > MAX_COMM {
        return Err((8, Fault::NotALine("a command name of more than 127 bytes")));
    }
    Ok(Line { comm, pid: pid as u32, cpu, t_ns, event, rest: &line[at.at..] })
}

/// Parses the number of a CPU.
pub(super) fn cpu_number(digits: &[u8]) -> Result<u16, Fault> {
    let cpu = parse_decimal(digits);
    let cpu = cpu.ok_or_else(|| Fault::BadNumber { field: "cpu", text: excerpt(digits) })?;
    at_most("cpu", cpu, u64::from(MAX_CPUS - 1)).map(|()| cpu as u16)
}

pub(super) struct Cursor<'a> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    pub(super) fn byte(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.at += 1)
    }

    /// Returns whether a time like `12us` follows.
    fn is_relative(&self) -> bool {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0 && rest[digits..].starts_with(b"us")
    }

    fn while_true(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let from = self.at;
        while self.at < self.text.len() && accept(self.text[self.at]) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    pub(super) fn blanks(&mut self) {
        self.while_true(|b| b == b' ' || b == b'\t');
    }

    fn word(&mut self) -> &'a [u8] {
        let from = self.at;
        let rest = &self.text[from..];
        let rest = &rest[..rest.len().min(MOST_WORD)];
        self.at += rest.iter().position(|&b| b == b' ').unwrap_or(rest.len());
        &self.text[from..self.at]
    }

    pub(super) fn name(&mut self) -> &'a [u8] {
        self.while_true(|b| b != b' ' && b != b':')
    }

    pub(super) fn digits(&mut self) -> Option<&'a [u8]> {
        let digits = self.while_true(|b| b.is_ascii_digit());
        (!digits.is_empty()).then_some(digits)
    }

    fn skip_past(&mut self, byte: u8) -> Option<()> {
        let rest = &self.text[self.at..];
        self.at += memchr::memchr(byte, &rest[..rest.len().min(MOST_WORD)])? + 1;
        Some(())
    }

    /// Parses `seconds.fraction` to nanoseconds; the fraction has up to nine digits.
    pub(super) fn time(&mut self) -> Result<u64, Fault> {
        const BAD: Fault = Fault::NotALine("no time of the form seconds.fraction");
        let from = self.at;
        let secs = self.digits().ok_or(BAD)?;
        self.byte(b'.').ok_or(BAD)?;
        let fraction = self.digits().filter(|f| f.len() <= 9).ok_or(BAD)?;
        let scale = 10u64.pow(9 - fraction.len() as u32);
        parse_decimal(secs)
            .and_then(|s| s.checked_mul(1_000_000_000))
            .and_then(|ns| ns.checked_add(parse_decimal(fraction)? * scale))
            .ok_or_else(|| Fault::BadNumber {
                field: "time",
                text: excerpt(&self.text[from..self.at]),
            })
    }
}
