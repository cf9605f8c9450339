//! Version 7: sections, compressed or not. Chains of options name the places of the others.

use super::head::{Buffer, CpuData, Head, clock_name, cpus};
use super::inflate::Inflate;
use super::store::{Items, Store};
use crate::check::{MAX_CPUS, at_most};
use crate::error::Fault;

/// Section of options.
const OPTIONS: u16 = 0;
/// Option: place of the next section of options, 0 at the end.
const DONE: u16 = 0;
/// Option: sub-buffers of an instance; also their section.
const BUFFER: u16 = 3;
/// Option: text of an instance.
const BUFFER_TEXT: u16 = 22;
/// Options with the place of a section of the same number.
const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const KALLSYMS: u16 = 19;
const PRINTK: u16 = 20;
const CMDLINES: u16 = 21;

/// Size of a section's head in bytes: number, flags, description, size of the rest.
const SECTION_HEAD: u64 = 16;
/// Flag of a compressed section.
const COMPRESSED: u16 = 1;

/// Reads the head, from the options at `at` on.
pub(super) fn read(
    head: &mut Head,
    store: &mut Store,
    inflate: &mut Inflate,
    mut at: u64,
) -> Result<(), Fault> {
    let mut sections = Vec::new();
    let mut buffers = Vec::new();
    while at != 0 {
        head.at = at;
        let options = section(store, inflate, head, at, OPTIONS)?;
        let mut items = Items::of_section(&options, head.layout, "a section of options");
        at = loop {
            let (id, size) = (items.u16()?, items.u32()?);
            let data = items.bytes(size.into())?;
            let mut option = Items::of_section(&data, head.layout, "an option");
            match id {
                DONE => break option.u64()?,
                BUFFER => buffers.push(data),
                BUFFER_TEXT => return Err(Fault::Foreign("a trace.dat with latency text")),
                HEADER_INFO..=CMDLINES => sections.push((id, option.u64()?)),
                _ => head.option(id, &data)?,
            }
            if items.is_at_end() {
                break 0;
            }
        };
    }
    // Records are decoded by the layout in the header, whatever the order of the options.
    sections.sort_by_key(|&(id, _)| id);
    for (id, at) in sections {
        head.at = at;
        let plain = section(store, inflate, head, at, id)?;
        let mut items = Items::of_section(&plain, head.layout, "a section");
        match id {
            HEADER_INFO => head.header_info(&mut items)?,
            FTRACE_EVENTS => head.descriptions(&mut items)?,
            EVENT_FORMATS => head.systems(&mut items)?,
            KALLSYMS => head.kallsyms(&mut items)?,
            PRINTK => {}
            _ => head.cmdlines(&mut items)?,
        }
    }
    for data in buffers {
        let buffer = buffer(head, store, &data)?;
        head.buffers.push(buffer);
    }
    Ok(())
}

/// Reads a section's head. Returns its flags and the size of the rest.
fn section_head(head: &Head, store: &Store, at: u64, id: u16) -> Result<(u16, u64), Fault> {
    let mut items = Items::of_file(store, at, head.layout, "the head of a section");
    let (found, flags) = (items.u16()?, items.u16()?);
    items.u32()?;
    let size = items.u64()?;
    if found != id {
        return Err(Fault::Record("another section than the options state"));
    }
    Ok((flags, size))
}

/// Reads the section with this number, decompressed.
fn section(
    store: &mut Store,
    inflate: &mut Inflate,
    head: &Head,
    at: u64,
    id: u16,
) -> Result<Vec<u8>, Fault> {
    let (flags, size) = section_head(head, store, at, id)?;
    let what = "a section";
    store.claim(at, size.saturating_add(SECTION_HEAD), what)?;
    let mut items = Items::of_file(store, at + SECTION_HEAD, head.layout, what);
    if flags & COMPRESSED == 0 {
        return items.bytes(size);
    }
    let (stored, plain) = (items.u32()?, items.u32()?);
    if u64::from(stored) + 8 > size {
        return Err(Fault::Record("compressed data larger than their section"));
    }
    inflate.inflate(&items.bytes(stored.into())?, plain)
}

/// Reads the option of an instance's sub-buffers.
fn buffer(head: &mut Head, store: &mut Store, data: &[u8]) -> Result<Buffer, Fault> {
    let mut items = Items::of_section(data, head.layout, "the option of a buffer");
    let at = items.u64()?;
    head.at = at;
    let (flags, _) = section_head(head, store, at, BUFFER)?;
    let is_compressed = flags & COMPRESSED != 0;
    let (_name, clock) = (items.string()?, items.string()?);
    let clock = Some(clock_name(&clock)).filter(|name| !name.is_empty());
    let clock = clock.unwrap_or_else(|| head.clock.name().to_owned());
    let page_size = items.u32()?;
    let mut found = Vec::new();
    for _ in 0..cpus(items.u32()?)? {
        let (cpu, at, mut size) = (items.u32()?, items.u64()?, items.u64()?);
        if is_compressed && size > 0 {
            // The size that is stated does not include the number of chunks.
            size = size.saturating_add(4);
        }
        at_most("cpu", cpu.into(), u64::from(MAX_CPUS) - 1)?;
        store.claim(at, size, "the sub-buffers of a CPU")?;
        found.push(CpuData { cpu: cpu as u16, at, size });
    }
    let page_size = Some(page_size).filter(|&size| size > 0);
    Ok(Buffer { clock, page_size, is_compressed, cpus: found })
}
