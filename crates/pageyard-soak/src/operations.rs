//! The operation table: every public method of a yard, and how a soak uses it.

use std::alloc::Layout;
use std::thread;
use std::time::Duration;

use allocator_api2::alloc::Global;
use fastrand::Rng;
use pageyard::{CpuId, Gfp, NodeId, Order, PAGE_SIZE, SECTION_PAGES};
use pageyard_host::{Limits, Shrinker, cpu};

use crate::actor::Actor;
use crate::found::Found;
use crate::held::{Item, Rows};
use crate::raw::{self, Heap};
use crate::settings::SETTINGS;
use crate::tracked::TrackedYard;
use crate::yards::{Block, InYard};

/// The kind of a row, with its function.
#[derive(Clone, Copy)]
pub(crate) enum Operation {
    /// Allocates an item.
    In(fn(&mut Rng, &'static TrackedYard, Gfp) -> Option<Item>),
    /// Frees a block.
    Out(fn(&'static TrackedYard, Block<'static>) -> Result<(), Found>),
    /// Something else.
    Other(fn(&mut Actor, &'static TrackedYard) -> Result<(), Found>),
}

/// A row of the table.
pub(crate) struct Row {
    /// The method's name, or a name for another operation.
    pub(crate) name: &'static str,
    /// The relative frequency among rows of the same kind.
    pub(crate) weight: u32,
    pub(crate) way: Operation,
}

const fn alloc(
    name: &'static str,
    weight: u32,
    f: fn(&mut Rng, &'static TrackedYard, Gfp) -> Option<Item>,
) -> Row {
    Row { name, weight, way: Operation::In(f) }
}

const fn free(
    name: &'static str,
    weight: u32,
    f: fn(&'static TrackedYard, Block<'static>) -> Result<(), Found>,
) -> Row {
    Row { name, weight, way: Operation::Out(f) }
}

const fn other(
    name: &'static str,
    weight: u32,
    f: fn(&mut Actor, &'static TrackedYard) -> Result<(), Found>,
) -> Row {
    Row { name, weight, way: Operation::Other(f) }
}

/// A row for a method without side effects.
macro_rules! read {
    ($name:ident) => {
        other(stringify!($name), 1, |_, h| {
            let _ = h.yard.$name();
            Ok(())
        })
    };
}

/// All rows.
pub(crate) static TABLE: &[Row] = &[
    alloc("alloc", 40, |rng, h, gfp| Some(Item::Block(h.yard.alloc(order(rng), gfp).ok()?))),
    alloc("alloc_on", 3, |rng, h, gfp| {
        Some(Item::Block(h.yard.alloc_on(NodeId(0), order(rng), gfp).ok()?))
    }),
    alloc("alloc_bulk", 15, |rng, h, gfp| {
        let mut all = Vec::new();
        let got = h.yard.alloc_bulk(rng.usize(1..300), gfp, &mut all).ok()?;
        (got > 0).then_some(Item::Bulk(all))
    }),
    alloc("alloc_aligned", 3, |rng, h, gfp| {
        let align = PAGE_SIZE << rng.u8(0..=11);
        Some(Item::Block(h.yard.alloc_aligned(order(rng), align, gfp).ok()?))
    }),
    alloc("alloc_range", 1, |rng, h, gfp| {
        let gfp = Gfp::KERNEL | Gfp::NOWARN | gfp & Gfp::ZERO;
        Some(Item::Range(h.yard.alloc_range(rng.u64(1..1500), 1, gfp).ok()?))
    }),
    alloc("alloc_owned", 5, |rng, h, gfp| {
        let block = h.yard.alloc_owned(order(rng), gfp).ok()?;
        Some(Item::Block(block.into_block(&h.yard).ok()?))
    }),
    alloc("alloc_range_owned", 1, |rng, h, gfp| {
        let gfp = Gfp::KERNEL | Gfp::NOWARN | gfp & Gfp::ZERO;
        let range = h.yard.alloc_range_owned(rng.u64(1..1500), 1, gfp).ok()?;
        Some(Item::Range(range.into_range(&h.yard).ok()?))
    }),
    alloc("alloc_movable", 15, |rng, h, gfp| {
        Some(Item::Movable(h.yard.alloc_movable(order(rng), gfp).ok()?))
    }),
    alloc("InYard", 5, |rng, h, _| {
        let mut rows = Rows::with_capacity_in(bytes(rng), InYard::new(&h.yard, Global));
        rows.resize(rng.usize(..=rows.capacity()), 0);
        Some(Item::Rows(rows))
    }),
    alloc("PageAlloc", 5, |rng, h, gfp| {
        let layout = Layout::from_size_align(bytes(rng), 1 << rng.u8(0..=16)).ok()?;
        Some(Item::Heap(Heap::new(&h.heap, layout, gfp.contains(Gfp::ZERO))?))
    }),
    free("drop", 60, |_, block| {
        drop(block);
        Ok(())
    }),
    free("free_bulk", 10, |h, block| {
        h.yard.free_bulk([block]);
        Ok(())
    }),
    free("free_raw", 10, |h, block| {
        let pfn = block.pfn();
        match raw::free_raw(&h.yard, block) {
            // A page of it was poisoned meanwhile.
            Ok(()) | Err(pageyard::FreeError::OutOfUse) => Ok(()),
            Err(e) => Err(Found::Wrong(format!("free_raw of {pfn}: {e}"))),
        }
    }),
    free("from_raw", 10, |h, block| {
        drop(raw::through_numbers(&h.yard, block));
        Ok(())
    }),
    free("core", 5, |h, block| {
        if block.order() > Order::ZERO {
            drop(raw::split(&h.yard, block)?);
        }
        Ok(())
    }),
    other("tick", 4, |_, h| {
        let home = cpu::allowed();
        h.yard.tick();
        let _ = home.and_then(|home| cpu::bind(&home));
        Ok(())
    }),
    other("drain", 4, |_, h| {
        h.yard.drain();
        Ok(())
    }),
    other("worker", 4, |actor, h| {
        let Some(mut worker) = h.yard.worker() else { return Ok(()) };
        for _ in 0..20 {
            let pause = worker.step();
            if actor.world.is_done() {
                break;
            }
            worker.wait(pause.min(Duration::from_millis(2)));
        }
        Ok(())
    }),
    read!(wake_worker),
    other("set_limits", 4, |actor, h| {
        let pages = h.pages();
        let hard = actor.rng.bool().then(|| actor.rng.u64(pages / 3..=pages));
        let soft = actor.rng.bool().then(|| hard.unwrap_or(pages) / 2);
        // A limit that is too small for the yard is rejected.
        let _ = h.yard.set_limits(Limits { hard, soft });
        Ok(())
    }),
    other("set_knob", 6, |actor, h| {
        let (name, values) = SETTINGS[actor.rng.usize(..SETTINGS.len())];
        let value = values[actor.rng.usize(..values.len())];
        let done = h.yard.set_knob(name, value);
        done.map_err(|e| Found::Wrong(format!("{name} cannot be set to {value}: {e}")))
    }),
    other("compact", 1, |_, h| {
        h.yard.compact();
        Ok(())
    }),
    other("offline", 2, |actor, h| {
        let sections = h.pages() / SECTION_PAGES;
        if sections > 1 {
            let start = h.owners.frames().start + actor.rng.u64(..sections) * SECTION_PAGES;
            h.offline(start)?;
        }
        Ok(())
    }),
    other("online", 2, |_, h| h.online().map(|_| ())),
    other("init_section", 1, |_, h| {
        raw::init_section(&h.yard);
        Ok(())
    }),
    other("finish_deferred", 1, |_, h| {
        // Another thread may still initialise a section.
        raw::finish_deferred(&h.yard);
        Ok(())
    }),
    other("poison_frame", 2, |actor, h| {
        let frame = actor.rng.u64(h.owners.frames());
        h.poison(frame).map(|_| ())
    }),
    other("unpoison_frame", 2, |_, h| h.unpoison().map(|_| ())),
    other("register_shrinker", 1, |actor, h| {
        let callbacks = actor.world.callbacks(h);
        let added = h.yard.register_shrinker(callbacks.shrinker(actor.world));
        let _ = (callbacks.shrinker(actor.world).count(), added);
        Ok(())
    }),
    other("register_relocator", 8, |actor, h| {
        drop(h.yard.register_relocator(actor.world.callbacks(h).relocator(actor.world, h)));
        actor.exchange_with_pool(h)
    }),
    other("on_pressure", 1, |_, h| {
        drop(h.yard.on_pressure(|event| drop(event.clone())));
        Ok(())
    }),
    other("resize", 8, |actor, _| {
        let bytes = bytes(&mut actor.rng);
        actor.resize(bytes)
    }),
    other("thread", 2, |actor, h| actor.thread(h)),
    other("fork", 1, |actor, h| actor.fork(h)),
    other("Vec", 4, |actor, _| {
        // Uses the program's own allocator, which may also be a yard.
        let bytes = bytes(&mut actor.rng);
        let mut all = vec![0u8; bytes];
        let zeros = all.iter().step_by(4096).all(|&b| b == 0);
        all.iter_mut().step_by(4096).for_each(|b| *b = 1);
        if zeros { Ok(()) } else { Err(Found::Wrong("a zeroed vector is not zero".into())) }
    }),
    other("nap", 4, |actor, _| {
        thread::sleep(Duration::from_micros(actor.rng.u64(..2000)));
        Ok(())
    }),
    read!(is_here),
    read!(resident),
    read!(memory),
    read!(is_pinned),
    read!(cpus),
    read!(zones),
    read!(knobs),
    read!(thread_cache_stats),
    read!(thread_cache_threads),
    read!(pressure),
    read!(limits),
    read!(usable),
    read!(usable_bytes),
    read!(out_of_use),
    read!(status),
    read!(stats),
    read!(buddyinfo),
    read!(pagetypeinfo),
    read!(zoneinfo),
    read!(vmstat),
    other("zone_info", 1, |_, h| {
        h.yard.zones().for_each(|zone| _ = h.yard.zone_info(zone));
        Ok(())
    }),
    other("zone_stats", 1, |_, h| {
        h.yard.zones().for_each(|zone| _ = h.yard.zone_stats(zone));
        Ok(())
    }),
    other("cpu_stats", 1, |_, h| {
        for cpu in h.yard.cpus().iter().map(|&cpu| CpuId(cpu)) {
            h.yard.zones().for_each(|zone| _ = h.yard.cpu_stats(zone, cpu));
        }
        Ok(())
    }),
    other("holds", 1, |actor, h| {
        actor.with_block(h, |block| h.yard.holds(block.as_ptr().as_ptr()) && !h.yard.holds(&0))
    }),
    other("offset", 1, |actor, h| {
        let first = h.owners.frames().start;
        actor.with_block(h, |b| h.yard.offset(b) == (b.pfn().0 - first) * PAGE_SIZE)
    }),
    other("fd", 1, |_, h| {
        let _ = raw::has_file(&h.yard);
        Ok(())
    }),
    other("validate", 1, |_, h| {
        // The result is meaningless while other threads use the yard.
        let _ = h.yard.validate();
        Ok(())
    }),
];

/// The names of all rows.
pub(crate) static NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut n = 0;
    while n < TABLE.len() {
        names[n] = TABLE[n].name;
        n += 1;
    }
    names
};

/// Returns the number of the row with this name.
pub(crate) fn row(name: &str) -> usize {
    TABLE.iter().position(|row| row.name == name).unwrap_or_default()
}

/// Picks a row of a kind at random, by weight.
pub(crate) fn draw(rng: &mut Rng, is_meant: impl Fn(&Operation) -> bool) -> usize {
    let meant = || TABLE.iter().enumerate().filter(|(_, row)| is_meant(&row.way));
    let all: u32 = meant().map(|(_, row)| row.weight).sum();
    let mut at = rng.u32(..all);
    let drawn = meant().find(|(_, row)| match at.checked_sub(row.weight) {
        Some(rest) => {
            at = rest;
            false
        }
        None => true,
    });
    drawn.map_or(0, |(n, _)| n)
}

fn order(rng: &mut Rng) -> Order {
    let order = match rng.u8(0..100) {
        0..60 => 0,
        60..85 => rng.u8(1..=3),
        85..97 => rng.u8(4..=8),
        _ => rng.u8(9..=10),
    };
    Order::new(order).unwrap_or_default()
}

/// Returns the size of a collection: from less than a page to a little more than the largest block.
fn bytes(rng: &mut Rng) -> usize {
    let most = 5 << (12 + rng.u32(0..=8));
    rng.usize(1..=most)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::TABLE;
    use crate::actor::{ALLOC, DROP, FREE_BULK};

    /// Rows whose names are not methods.
    const ELSE: &[&str] = &[
        "InYard",
        "PageAlloc",
        "Vec",
        "drop",
        "finish_deferred",
        "fork",
        "init_section",
        "nap",
        "resize",
        "thread",
    ];

    /// Returns the names of the public methods of `HostYard` in a source file.
    fn methods(source: &str) -> BTreeSet<String> {
        let mut inside = false;
        let mut all = BTreeSet::new();
        for line in source.lines() {
            match line {
                "}" => inside = false,
                _ if line.starts_with("impl") => {
                    inside = line.contains(" HostYard<") && !line.contains(" for ");
                }
                _ => {}
            }
            let line = line.strip_prefix("    pub ").filter(|_| inside).unwrap_or_default();
            let line = line.strip_prefix("unsafe ").unwrap_or(line);
            if let Some((name, _)) = line.strip_prefix("fn ").and_then(|l| l.split_once(['(', '<']))
            {
                all.insert(name.to_owned());
            }
        }
        all
    }

    /// Returns the names of the public methods of `HostYard` in all source files under a folder.
    fn methods_under(folder: &Path) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            all.append(&mut if path.is_dir() {
                methods_under(&path)
            } else {
                methods(&fs::read_to_string(&path).unwrap())
            });
        }
        all
    }

    #[test]
    fn every_public_method_of_a_yard_has_a_row() {
        let all =
            methods_under(concat!(env!("CARGO_MANIFEST_DIR"), "/../pageyard-host/src").as_ref());
        let rows = TABLE.iter().map(|row| row.name.to_owned());
        let rows: BTreeSet<String> = rows.filter(|name| !ELSE.contains(&&**name)).collect();
        assert_eq!(rows, all);
        assert_eq!(rows.len() + ELSE.len(), TABLE.len(), "a row appears twice");
    }

    #[test]
    fn a_method_without_a_row_is_found() {
        let source = "impl<P: Policy> HostYard<P> {\n    pub unsafe fn new_way(&self) {\n    }\n}\n\
                      impl<P: Policy> Block<'_, P> {\n    pub fn other(&self) {\n    }\n}\n";
        assert_eq!(methods(source), BTreeSet::from(["new_way".to_owned()]));
    }

    #[test]
    fn rows_referenced_by_number_are_correct() {
        let names = [ALLOC, DROP, FREE_BULK].map(|n| TABLE[n].name);
        assert_eq!(names, ["alloc", "drop", "free_bulk"]);
    }
}
