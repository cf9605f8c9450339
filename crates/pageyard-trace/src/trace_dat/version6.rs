//! Version 6: one part after the other, uncompressed; then the sub-buffers, whose places a table
//! at the end of the head states.

use super::head::{Buffer, CpuData, Head, cpus};
use super::store::{Items, Store};
use crate::error::Fault;

/// Option: place and name of another tracing instance's table.
const BUFFER: u16 = 3;

/// Reads a part of the head.
type Part = fn(&mut Head, &mut Items<'_>) -> Result<(), Fault>;

/// Reads the head, from the first part on.
pub(super) fn read(head: &mut Head, store: &mut Store, at: u64) -> Result<(), Fault> {
    let mut items = Items::of_file(store, at, head.layout, "the head of the trace.dat");
    let parts: [Part; 6] = [
        Head::header_info,
        Head::descriptions,
        Head::systems,
        Head::kallsyms,
        Head::printk,
        Head::cmdlines,
    ];
    for part in parts {
        head.at = items.at;
        part(head, &mut items)?;
    }
    head.at = items.at;
    head.cpus = cpus(items.u32()?)?;
    let count = head.cpus;
    let mut instances = Vec::new();
    let mut tables = vec![];
    let cpus = table(head, &mut items, count, &mut instances)?;
    let top = head.clock.name().to_owned();
    tables.push((cpus, top.clone()));
    let end = items.at;
    for at in instances {
        head.at = at;
        let mut items = Items::of_file(store, at, head.layout, "the table of a buffer");
        head.clock.set_name(top.clone());
        let cpus = table(head, &mut items, count, &mut Vec::new())?;
        tables.push((cpus, head.clock.name().to_owned()));
        let end = items.at;
        store.claim(at, end - at, "the table of a buffer")?;
    }
    store.claim(0, end, "the head of the trace.dat")?;
    for (cpus, clock) in tables {
        for data in &cpus {
            store.claim(data.at, data.size, "the sub-buffers of a CPU")?;
        }
        head.buffers.push(Buffer { clock, page_size: None, is_compressed: false, cpus });
    }
    Ok(())
}

/// Reads options, then the places of all CPUs' sub-buffers. Adds the places of other tables to
/// `instances`.
fn table(
    head: &mut Head,
    items: &mut Items<'_>,
    cpus: u16,
    instances: &mut Vec<u64>,
) -> Result<Vec<CpuData>, Fault> {
    loop {
        match &items.bytes(10)?[..] {
            b"options  \0" => loop {
                let id = items.u16()?;
                if id == 0 {
                    break;
                }
                let size = items.u32()?;
                let data = items.bytes(size.into())?;
                if id == BUFFER {
                    instances.push(Items::of_section(&data, head.layout, "an option").u64()?);
                } else {
                    head.option(id, &data)?;
                }
            },
            b"flyrecord\0" => {
                let one = |cpu| Ok(CpuData { cpu, at: items.u64()?, size: items.u64()? });
                return (0..cpus).map(one).collect();
            }
            b"latency  \0" => return Err(Fault::Foreign("a trace.dat with latency text")),
            _ => return Err(Fault::Record("no table of sub-buffers after the head")),
        }
    }
}
