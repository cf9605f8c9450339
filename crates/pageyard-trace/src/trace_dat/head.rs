//! What a `trace.dat` holds beside its sub-buffers, in the form that both versions share.

use std::collections::HashMap;

use super::store::Items;
use super::symbols::Symbols;
use crate::binary::{EventTable, Layout, PageLayout};
use crate::check::{MAX_CPUS, at_most};
use crate::error::Fault;
use crate::number::parse_decimal;
use crate::printable::name_from_bytes;
use crate::release;
use crate::text::MAX_COMM;

/// The head of a recording.
pub(super) struct Head {
    /// Layout of numbers in the file.
    pub(super) layout: Layout,
    pub(super) pages: Option<PageLayout>,
    pub(super) events: EventTable,
    /// Command names by pid.
    pub(super) comms: HashMap<u32, String>,
    pub(super) symbols: Symbols,
    pub(super) clock: Clock,
    pub(super) buffers: Vec<Buffer>,
    /// Number of CPUs that the recording declares.
    pub(super) cpus: u16,
    /// Release of the kernel that recorded.
    pub(super) kernel_release: Option<String>,
    /// Events that the statistics of all CPUs count as lost.
    pub(super) lost: u64,
    /// Where the part that is being read begins in the file.
    pub(super) at: u64,
    /// Faults that leave the rest readable, and where they are.
    pub(super) faults: Vec<(u64, Fault)>,
}

/// The sub-buffers of one tracing instance.
pub(super) struct Buffer {
    /// Name of its clock; empty if the file does not say it.
    pub(super) clock: String,
    /// Size of a sub-buffer, if the file says so.
    pub(super) page_size: Option<u32>,
    /// Whether the sub-buffers are compressed in chunks.
    pub(super) is_compressed: bool,
    pub(super) cpus: Vec<CpuData>,
}

/// Place of a CPU's sub-buffers in the file.
pub(super) struct CpuData {
    pub(super) cpu: u16,
    pub(super) at: u64,
    pub(super) size: u64,
}

/// How recorded times become nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    name: String,
    /// Multiplier, shift and offset from cycles to nanoseconds.
    cycles: Option<(u32, u32, u64)>,
    offset_ns: i64,
}

/// Clocks that count nanoseconds. Others count events (`counter`), jiffies (`uptime`) or cycles
/// (`x86-tsc`, `ppc-tb`). A file without a clock's name has the kernel's default, `local`.
const NANOSECONDS: [&str; 8] = ["", "local", "global", "perf", "mono", "mono_raw", "boot", "tai"];

impl Clock {
    /// Returns the time in nanoseconds.
    pub(super) fn ns(&self, t: u64) -> u64 {
        let t = match self.cycles {
            None => t,
            Some((multiplier, shift, offset)) => {
                let ns = (u128::from(t) * u128::from(multiplier)) >> shift.min(127);
                (ns as u64).wrapping_add(offset)
            }
        };
        t.wrapping_add_signed(self.offset_ns)
    }

    /// Fails if the clock of this name does not count nanoseconds, and the file does not convert it.
    pub(super) fn check(&self, name: &str) -> Result<(), Fault> {
        if self.cycles.is_none() && !NANOSECONDS.contains(&name) {
            return Err(Fault::Clock { name: name.into() });
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn set_name(&mut self, name: String) {
        self.name = name;
    }
}

/// Options that both versions have in the same form.
mod option {
    pub(super) const DATE: u16 = 1;
    pub(super) const CPUSTAT: u16 = 2;
    pub(super) const TRACECLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const OFFSET: u16 = 7;
    pub(super) const CPUCOUNT: u16 = 8;
    pub(super) const TSC2NSEC: u16 = 14;
}

impl Head {
    /// Creates the head of a file whose numbers have this layout.
    pub(super) fn new(layout: Layout) -> Self {
        Head {
            layout,
            pages: None,
            events: EventTable::new(layout),
            comms: HashMap::new(),
            symbols: Symbols::default(),
            clock: Clock::default(),
            buffers: Vec::new(),
            cpus: 0,
            kernel_release: None,
            lost: 0,
            at: 0,
            faults: Vec::new(),
        }
    }

    /// Sets the byte order of the file.
    pub(super) fn set_big_endian(&mut self, big_endian: bool) {
        self.layout.big_endian = big_endian;
        self.events = EventTable::new(self.layout);
    }

    /// Reads `header_page` and `header_event`.
    pub(super) fn header_info(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        let mut one = |name: &[u8]| {
            if items.string()? != name {
                return Err(Fault::Record("no header_page and header_event where they belong"));
            }
            let size = items.u64()?;
            items.bytes(size)
        };
        let (page, event) = (one(b"header_page")?, one(b"header_event")?);
        let (pages, layout) = PageLayout::parse(&page, &event, self.layout.big_endian)?;
        self.pages = Some(pages);
        // Records have the kernel's layout, the file has that of the program that wrote it.
        self.events = EventTable::new(layout);
        Ok(())
    }

    /// Reads a number of event descriptions. One that cannot be used is a fault of its own.
    pub(super) fn descriptions(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        for _ in 0..items.u32()? {
            let size = items.u64()?;
            if let Err(fault) = self.events.add(&items.bytes(size)?) {
                self.faults.push((self.at, fault));
            }
        }
        Ok(())
    }

    /// Reads the event descriptions of all systems.
    pub(super) fn systems(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        for _ in 0..items.u32()? {
            items.string()?;
            self.descriptions(items)?;
        }
        Ok(())
    }

    /// Reads the symbol table.
    pub(super) fn kallsyms(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        let size = items.u32()?;
        self.symbols = Symbols::new(items.bytes(size.into())?);
        Ok(())
    }

    /// Skips the formats of `trace_printk`, which page events do not use.
    pub(super) fn printk(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        let size = items.u32()?;
        items.bytes(size.into()).map(drop)
    }

    /// Reads the command names: `pid name` on each line.
    pub(super) fn cmdlines(&mut self, items: &mut Items<'_>) -> Result<(), Fault> {
        let size = items.u64()?;
        for line in items.bytes(size)?.split(|&b| b == b'\n') {
            let Some(blank) = line.iter().position(|&b| b == b' ') else { continue };
            let pid = parse_decimal(&line[..blank]).and_then(|pid| u32::try_from(pid).ok());
            if let Some(pid) = pid {
                // As in text, where blanks before a name cannot be told from padding.
                let comm = line[blank + 1..].trim_ascii_start();
                let comm = &comm[..comm.len().min(MAX_COMM)];
                self.comms.entry(pid).or_insert_with(|| name_from_bytes(comm, None));
            }
        }
        Ok(())
    }

    /// Takes an option that both versions have in the same form. Ignores unknown ones.
    pub(super) fn option(&mut self, id: u16, data: &[u8]) -> Result<(), Fault> {
        let text = data.split(|&b| b == 0).next().unwrap_or_default();
        match id {
            option::CPUSTAT => self.lost = self.lost.saturating_add(lost(text)),
            option::TRACECLOCK => self.clock.name = clock_name(text),
            // `Linux host 6.12.117+deb12-cloud-amd64 x86_64`
            option::UNAME => self.kernel_release = release::find(text).map(str::to_owned),
            option::DATE => {
                let us = offset(text)?;
                self.clock.offset_ns = self.clock.offset_ns.wrapping_add(us.wrapping_mul(1000));
            }
            option::OFFSET => {
                self.clock.offset_ns = self.clock.offset_ns.wrapping_add(offset(text)?);
            }
            option::CPUCOUNT => {
                let count = Items::of_section(data, self.layout, "an option").u32()?;
                self.cpus = cpus(count)?;
            }
            option::TSC2NSEC => {
                let mut items = Items::of_section(data, self.layout, "an option");
                self.clock.cycles = Some((items.u32()?, items.u32()?, items.u64()?));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns how many events the kernel's statistics of a CPU count as lost.
fn lost(stats: &[u8]) -> u64 {
    let of_line = |line: &[u8]| {
        let (name, number) = line.split_at(line.iter().position(|&b| b == b':')?);
        let is_lost = matches!(name, b"overrun" | b"commit overrun" | b"dropped events");
        is_lost.then(|| parse_decimal(number[1..].trim_ascii())).flatten()
    };
    stats.split(|&b| b == b'\n').filter_map(of_line).fold(0, u64::saturating_add)
}

/// Checks a number of CPUs.
pub(super) fn cpus(count: u32) -> Result<u16, Fault> {
    at_most("cpus", count.into(), MAX_CPUS.into()).map(|()| count as u16)
}

/// Returns the clock in brackets of a line such as `local global [mono] boot`; without brackets
/// the whole line.
pub(super) fn clock_name(text: &[u8]) -> String {
    let text = name_from_bytes(text.trim_ascii(), None);
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text.as_str(), |(name, _)| name).to_owned()
}

/// Parses an offset: decimal or hexadecimal, with or without a sign.
fn offset(text: &[u8]) -> Result<i64, Fault> {
    let text = text.trim_ascii();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let number = crate::number::parse_number(digits).and_then(|n| i64::try_from(n).ok());
    let number = number.ok_or(Fault::Record("a time offset that is not a number"))?;
    Ok(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_nanoseconds() {
        let mut clock = Clock { name: "mono".into(), ..Clock::default() };
        assert_eq!(clock.ns(5), 5);
        clock.offset_ns = -3;
        assert_eq!(clock.ns(5), 2);
        clock.cycles = Some((1 << 20, 21, 7));
        assert_eq!(clock.ns(100), 50 + 7 - 3);
        assert_eq!(clock.ns(u64::MAX), u64::MAX / 2 + 7 - 3);
        assert_eq!(offset(b"-0x10").unwrap(), -16);
        assert_eq!(offset(b"25\n").unwrap(), 25);
        assert!(offset(b"now").is_err());
    }

    #[test]
    fn clocks_in_other_units_are_rejected() {
        let clock = Clock::default();
        assert!(NANOSECONDS.iter().all(|name| clock.check(name).is_ok()));
        for name in ["counter", "uptime", "x86-tsc", "ppc-tb", "s390-tod", "unknown"] {
            assert!(matches!(clock.check(name), Err(Fault::Clock { .. })));
        }
        let converted = Clock { cycles: Some((1, 0, 0)), ..Clock::default() };
        assert!(converted.check("x86-tsc").is_ok());
        assert_eq!(clock_name(b"local global [mono] tai\n"), "mono");
        assert_eq!(clock_name(b"mono"), "mono");
    }
}
