//! Helpers shared by the parsers: numbered lines and faults with line numbers.

use crate::error::{Fault, Position, TraceError, excerpt};
use crate::number::parse_decimal;

/// Lines of a file, trimmed of blanks, and the number of the current line.
pub(super) struct Lines<'a> {
    name: &'a str,
    rest: &'a [u8],
    number: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Lines { name, rest: bytes, number: 0 }
    }

    /// Returns the next line that is not blank; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<&'a str>, TraceError> {
        while !self.rest.is_empty() {
            let end = memchr::memchr(b'\n', self.rest);
            let (line, rest) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = rest;
            self.number += 1;
            let line = line.trim_ascii();
            if !line.is_empty() {
                return match str::from_utf8(line) {
                    Ok(text) => Ok(Some(text)),
                    Err(_) => Err(self.at(Fault::State { expected: "text", found: excerpt(line) })),
                };
            }
        }
        Ok(None)
    }

    /// Returns an error at the current line.
    pub(super) fn expected(&self, expected: &'static str, found: &str) -> TraceError {
        self.at(Fault::State { expected, found: excerpt(found.as_bytes()) })
    }

    pub(super) fn number(&self, expected: &'static str, text: &str) -> Result<u64, TraceError> {
        parse_decimal(text.as_bytes()).ok_or_else(|| self.expected(expected, text))
    }

    /// Parses `Node N, zone NAME` and returns the node, the zone and the rest of the line.
    pub(super) fn node_zone<'t>(
        &self,
        line: &'t str,
    ) -> Result<(u16, &'t str, &'t str), TraceError> {
        const FORM: &str = "`Node N, zone NAME`";
        let parts = line.strip_prefix("Node").and_then(|rest| {
            let (node, rest) = rest.trim_start().split_once(',')?;
            let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
            let end = rest.find([' ', ',']).unwrap_or(rest.len());
            let node = parse_decimal(node.as_bytes()).and_then(|n| u16::try_from(n).ok())?;
            (end > 0).then(|| (node, &rest[..end], rest[end..].trim_start()))
        });
        parts.ok_or_else(|| self.expected(FORM, line))
    }

    fn at(&self, fault: Fault) -> TraceError {
        TraceError::new(self.name, Position::Line(self.number), fault)
    }
}
