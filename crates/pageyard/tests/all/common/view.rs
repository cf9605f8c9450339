//! A snapshot, sorted into what tests ask for.

use std::collections::{BTreeMap, BTreeSet};

use pageyard::{Config, CpuRecord, MigrateType, Record, Yard, ZoneId, ZoneKind, ZoneRecord};

/// A zone's state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct View {
    pub(crate) zone: ZoneRecord,
    pub(crate) blocks: BTreeMap<u64, MigrateType>,
    free: BTreeMap<(u8, MigrateType), Vec<u64>>,
    /// Frame → order, movable.
    pub(crate) allocated: BTreeMap<u64, (u8, bool)>,
    /// Frame → order.
    pub(crate) guards: BTreeMap<u64, u8>,
    /// Frame → order.
    pub(crate) bad: BTreeMap<u64, u8>,
    pub(crate) poisoned: BTreeSet<u64>,
    pub(crate) cpus: Vec<CpuRecord>,
    cached: BTreeMap<(u32, usize), Vec<u64>>,
}

impl View {
    pub(crate) fn of(records: &[Record]) -> View {
        let Some(Record::Zone(zone)) = records.first() else { panic!("the zone comes first") };
        let mut v = View {
            zone: *zone,
            blocks: BTreeMap::new(),
            free: BTreeMap::new(),
            allocated: BTreeMap::new(),
            guards: BTreeMap::new(),
            bad: BTreeMap::new(),
            poisoned: BTreeSet::new(),
            cpus: Vec::new(),
            cached: BTreeMap::new(),
        };
        for r in records {
            match *r {
                Record::Zone(_) => {}
                Record::Block { pfn, migrate_type } => {
                    // An isolated one may come twice: its own type, then `Isolate`.
                    let before = v.blocks.insert(pfn.0 >> 9, migrate_type);
                    let isolates = migrate_type == MigrateType::Isolate;
                    assert!(before.is_none_or(|own| isolates && own != migrate_type));
                }
                Record::Free { pfn, order, migrate_type } => {
                    v.free.entry((order.get(), migrate_type)).or_default().push(pfn.0);
                }
                Record::Allocated { pfn, order, movable } => {
                    assert!(v.allocated.insert(pfn.0, (order.get(), movable)).is_none());
                }
                Record::Guard { pfn, order } => {
                    assert!(v.guards.insert(pfn.0, order.get()).is_none());
                }
                Record::Bad { pfn, order } => {
                    assert!(v.bad.insert(pfn.0, order.get()).is_none());
                }
                Record::Poisoned { pfn } => assert!(v.poisoned.insert(pfn.0)),
                Record::Cpu(c) => v.cpus.push(c),
                Record::Cached { cpu, list, pfn } => {
                    v.cached.entry((cpu.0, list)).or_default().push(pfn.0);
                }
            }
        }
        v
    }

    /// A free list, head first.
    pub(crate) fn free(&self, order: u8, t: MigrateType) -> &[u64] {
        self.free.get(&(order, t)).map_or(&[], Vec::as_slice)
    }

    /// One CPU's list, head first.
    pub(crate) fn cached(&self, cpu: u32, list: usize) -> &[u64] {
        self.cached.get(&(cpu, list)).map_or(&[], Vec::as_slice)
    }

    /// The type of the pageblock of a frame.
    pub(crate) fn label(&self, pfn: u64) -> MigrateType {
        self.blocks[&(pfn >> 9)]
    }

    /// All free blocks: frame, order, type of the list.
    pub(crate) fn all_free(&self) -> impl Iterator<Item = (u64, u8, MigrateType)> + '_ {
        self.free.iter().flat_map(|(&(o, t), l)| l.iter().map(move |&p| (p, o, t)))
    }

    /// All cached blocks: frame, CPU, list.
    pub(crate) fn all_cached(&self) -> impl Iterator<Item = (u64, u32, usize)> + '_ {
        self.cached.iter().flat_map(|(&(c, i), l)| l.iter().map(move |&p| (p, c, i)))
    }
}

/// The state of a zone now.
pub(crate) fn view<C: Config>(y: &Yard<'_, C>, zone: impl Into<ZoneId>) -> View {
    View::of(&super::records(y, zone))
}

/// The state of the NORMAL zone now.
pub(crate) fn normal<C: Config>(y: &Yard<'_, C>) -> View {
    view(y, ZoneKind::Normal)
}

/// The order of the blocks on a per-CPU list (§5.2).
pub(crate) fn list_order(list: usize) -> u8 {
    if list < 12 { (list / 3) as u8 } else { 9 }
}

/// What records say, except where idle frames are kept: magazines cannot hold a run, nor frames of
/// a pageblock with a faulty frame. Only pageblocks in use have a type.
pub(crate) struct Seen {
    frames: BTreeMap<u64, &'static str>,
    heads: BTreeMap<u64, (u8, bool)>,
    types: BTreeMap<u64, MigrateType>,
    faulty: BTreeSet<u64>,
    cpus: Vec<CpuRecord>,
    /// Pages that CPUs keep plus the free counter.
    idle: i64,
    zone: ZoneRecord,
}

impl Seen {
    pub(crate) fn of(records: &[Record]) -> Seen {
        let Record::Zone(zone) = records[0] else { panic!("the zone comes first") };
        let mut s = Seen {
            frames: BTreeMap::new(),
            heads: BTreeMap::new(),
            types: BTreeMap::new(),
            faulty: BTreeSet::new(),
            cpus: Vec::new(),
            idle: zone.nr_free,
            zone: ZoneRecord { nr_free: 0, ..zone },
        };
        for r in records {
            let (pfn, order, is) = match *r {
                Record::Block { pfn, migrate_type } => {
                    s.types.insert(pfn.0 >> 9, migrate_type);
                    continue;
                }
                Record::Free { pfn, order, .. } => (pfn, order.get(), "idle"),
                Record::Cached { list, pfn, .. } => (pfn, list_order(list), "idle"),
                Record::Allocated { pfn, order, movable } => {
                    s.heads.insert(pfn.0, (order.get(), movable));
                    (pfn, order.get(), "in use")
                }
                Record::Poisoned { pfn } => {
                    s.faulty.insert(pfn.0);
                    continue;
                }
                Record::Cpu(mut c) => {
                    let (count, part) = (&mut c.tuning.count, &mut c.diff);
                    s.idle += i64::from(std::mem::take(count) + std::mem::take(part));
                    s.cpus.push(c);
                    continue;
                }
                Record::Zone(_) | Record::Guard { .. } | Record::Bad { .. } => continue,
            };
            for frame in pfn.0..pfn.0 + (1 << order) {
                assert_eq!(s.frames.insert(frame, is), None, "{frame:#x} is in two places");
            }
        }
        // A pageblock whose frames are all free has no type once no CPU refills from it.
        let frames = &s.frames;
        let whole =
            |block: u64| (block << 9..(block + 1) << 9).all(|f| frames.get(&f) == Some(&"idle"));
        s.types.retain(|&block, t| *t == MigrateType::Isolate || !whole(block));
        s
    }

    /// Asserts that the restored records say the same as `was`.
    pub(crate) fn expect(self, was: &Seen) {
        let changed = self.frames.iter().find(|(frame, is)| was.frames.get(frame) != Some(is));
        assert_eq!(changed, None, "{:?}", changed.map(|(frame, _)| was.frames.get(frame)));
        assert_eq!(self.frames.len(), was.frames.len());
        assert_eq!((&self.types, &self.heads), (&was.types, &was.heads));
        assert_eq!((&self.faulty, self.idle), (&was.faulty, was.idle));
        assert_eq!((&self.cpus, &self.zone), (&was.cpus, &was.zone));
    }
}
