//! What the parsers of text lines share: the parts of a line, and a cursor over its bytes.

use crate::check::{MAX_CPUS, at_most};
use crate::error::{Fault, excerpt};
use crate::number::parse_decimal;

/// Maximum length of the short words between the dash and the time: thread group and interrupt
/// state. The search for their ends is bounded because every dash of a line may be tried.
const MOST_WORD: usize = 32;
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
    /// The heading counts events that the buffers have overwritten, and the CPUs.
    Overwritten {
        events: u64,
        cpus: u16,
    },
    /// The heading names the kernel's release.
    Kernel(&'a str),
    /// Another comment, heading or empty line.
    Nothing,
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
    pub(super) fn is_relative(&self) -> bool {
        let rest = &self.text[self.at..];
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        digits > 0 && rest[digits..].starts_with(b"us")
    }

    pub(super) fn while_true(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let from = self.at;
        while self.at < self.text.len() && accept(self.text[self.at]) {
            self.at += 1;
        }
        &self.text[from..self.at]
    }

    pub(super) fn blanks(&mut self) {
        self.while_true(|b| b == b' ' || b == b'\t');
    }

    pub(super) fn word(&mut self) -> &'a [u8] {
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

    pub(super) fn skip_past(&mut self, byte: u8) -> Option<()> {
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
