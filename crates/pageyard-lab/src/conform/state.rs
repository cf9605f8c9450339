//! The recorded form of a zone's state, its conversion to the allocator's records, and the
//! difference of two states.

use std::fmt;

use pageyard::tuning::{Limits, Tuning};
use pageyard::{
    CpuId, CpuRecord, MAX_ORDER, MigrateType, NodeId, Order, PAGEBLOCK_ORDER, PCP_LISTS, Pfn,
    Record, ZoneKind, ZoneRecord,
};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// The state in a line: one zone, or a list of two with the upper one first.
#[derive(Clone, Debug)]
pub(crate) struct States {
    pub(super) zones: Vec<State>,
    /// Whether it was written as a list. Answers then name their zone.
    pub(super) listed: bool,
}

/// Number of zones in a list.
const LISTED: usize = 2;

impl<'de> Deserialize<'de> for States {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = States;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the state of a zone, {…}, or of two, [{…},{…}], the upper one first")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<States, A::Error> {
                let zone = State::deserialize(MapAccessDeserializer::new(map))?;
                Ok(States { zones: vec![zone], listed: false })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<States, A::Error> {
                let mut zones = Vec::new();
                while let Some(zone) = list.next_element()? {
                    zones.push(zone);
                    if zones.len() > LISTED {
                        break; // do not read a long list to its end
                    }
                }
                if zones.len() != LISTED {
                    return Err(serde::de::Error::invalid_length(zones.len(), &self));
                }
                Ok(States { zones, listed: true })
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl States {
    /// Fails unless these are states of the zones with which the recording began.
    pub(super) fn same_zones(&self, first: &States) -> Result<(), String> {
        let places = |s: &States| {
            s.zones.iter().map(|z| (z.zone.clone(), z.node, z.start_pfn)).collect::<Vec<_>>()
        };
        if self.listed == first.listed && places(self) == places(first) {
            return Ok(());
        }
        let names = |s: &States| s.zones.iter().map(State::place).collect::<Vec<_>>().join(", ");
        Err(format!("the state is of {}; expected {}", names(self), names(first)))
    }
}

/// One dump of a zone. Frame numbers are relative to the zone's first frame.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct State {
    pub(super) zone: String,
    pub(super) start_pfn: u64,
    pub(super) spanned: u64,
    present: u64,
    pub(super) managed: u64,
    wmark: [u64; 3],
    boost: u64,
    flags: u32,
    reserved_highatomic: u64,
    nr_free_highatomic: u64,
    isolated_blocks: u64,
    lowmem_reserve: [u64; 5],
    pub(super) request_zone: u8,
    nofragment: u8,
    pub(super) node: u16,
    pub(super) lowmem_managed: u64,
    pageset_batch: i32,
    pageset_high_min: i32,
    pageset_high_max: i32,
    nr_free: i64,
    free: Vec<Area>,
    blocks: String,
    pub(super) pcp: Vec<Pcp>,
}

#[derive(Clone, Debug, Deserialize)]
struct Area {
    order: u8,
    nr: u64,
    lists: Vec<Vec<u64>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pcp {
    pub(super) cpu: u32,
    count: i32,
    high: i32,
    high_min: i32,
    high_max: i32,
    batch: i32,
    flags: u8,
    alloc_factor: u8,
    free_count: i32,
    pub(super) node: u16,
    expire: u8,
    diff: i32,
    stat_threshold: u32,
    lists: Vec<Vec<u64>>,
}

/// Types of a dump's lists and digits, in its numbering. The dump has no CMA.
const TYPES: [MigrateType; 5] = [
    MigrateType::Unmovable,
    MigrateType::Movable,
    MigrateType::Reclaimable,
    MigrateType::HighAtomic,
    MigrateType::Isolate,
];

fn digit(t: MigrateType) -> char {
    match TYPES.iter().position(|&x| x == t) {
        Some(i) => char::from(b'0' + i as u8),
        None => '?',
    }
}

impl State {
    /// Returns the zone's name, node and first frame, for messages.
    fn place(&self) -> String {
        format!("zone {} of node {} from frame {}", self.zone, self.node, self.start_pfn)
    }

    pub(super) fn kind(&self) -> Result<ZoneKind, String> {
        ZoneKind::ALL
            .into_iter()
            .find(|k| k.name() == self.zone)
            .ok_or_else(|| format!("unknown zone \"{}\"; expected DMA, DMA32 or Normal", self.zone))
    }

    /// Returns the smallest `min_free_kbytes` that yields the recorded MIN (§3.2). The dump does
    /// not have the value itself.
    pub(super) fn min_free_kbytes(&self) -> u64 {
        let pages = u128::from(self.wmark[0]) * u128::from(self.lowmem_managed);
        u64::try_from(pages.div_ceil(u128::from(self.managed.max(1))))
            .unwrap_or(0)
            .saturating_mul(4)
    }

    /// Returns the frame at this place in the zone.
    fn frame(&self, place: u64) -> Result<Pfn, String> {
        if place >= self.spanned {
            return Err(format!("frame {place} does not exist; the zone spans {}", self.spanned));
        }
        Ok(Pfn(self.start_pfn + place))
    }

    /// Returns the records from which the allocator restores this zone's state. The recorded
    /// `nofragment` applies to requests that prefer the upper zone, so it is ignored for a `lower`
    /// one.
    pub(super) fn records(&self, lower: bool) -> Result<Vec<Record>, String> {
        let start = self.start_pfn;
        let [min, low, high] = self.wmark;
        let mut records = vec![Record::Zone(ZoneRecord {
            present: self.present,
            managed: self.managed,
            watermarks: [min, low, high, high.saturating_add(high.saturating_sub(low))],
            boost: self.boost,
            flags: self.flags,
            reserved_highatomic: self.reserved_highatomic,
            isolated_blocks: self.isolated_blocks,
            lowmem_reserve: self.lowmem_reserve,
            nr_free: self.nr_free,
            limits: Limits {
                batch: self.pageset_batch,
                high_min: self.pageset_high_min,
                high_max: self.pageset_high_max,
            },
            nofragment: self.nofragment != 0 && !lower,
            grouping_disabled: false,
        })];
        for (i, c) in self.blocks.chars().enumerate() {
            if c == '-' {
                continue;
            }
            let migrate_type = c
                .to_digit(10)
                .and_then(|d| TYPES.get(d as usize).copied())
                .ok_or_else(|| format!("pageblock {i} has type '{c}'; expected 0 to 4, or -"))?;
            let first = ((start >> PAGEBLOCK_ORDER) + i as u64) << PAGEBLOCK_ORDER;
            records.push(Record::Block { pfn: Pfn(first.max(start)), migrate_type });
        }
        for area in &self.free {
            let order = Order::new(area.order)
                .ok_or_else(|| format!("order {} does not exist", area.order))?;
            if area.lists.len() != TYPES.len() {
                return Err(format!("order {order} has {} lists, expected 5", area.lists.len()));
            }
            for (list, migrate_type) in area.lists.iter().zip(TYPES) {
                for &place in list {
                    let pfn = self.frame(place)?;
                    records.push(Record::Free { pfn, order, migrate_type });
                }
            }
        }
        for p in &self.pcp {
            if p.lists.len() != PCP_LISTS {
                return Err(format!("CPU {} has {} lists, expected 14", p.cpu, p.lists.len()));
            }
            let cpu = CpuId(p.cpu);
            records.push(Record::Cpu(CpuRecord {
                cpu,
                node: NodeId(p.node),
                tuning: Tuning {
                    count: p.count,
                    high: p.high,
                    limits: Limits { batch: p.batch, high_min: p.high_min, high_max: p.high_max },
                    flags: p.flags,
                    alloc_factor: p.alloc_factor,
                    free_count: p.free_count,
                    ..Tuning::default()
                },
                expire: p.expire,
                diff: p.diff,
                cma_diff: 0,
                threshold: p.stat_threshold,
            }));
            for (list, pfns) in p.lists.iter().enumerate() {
                for &place in pfns {
                    records.push(Record::Cached { cpu, list, pfn: self.frame(place)? });
                }
            }
        }
        Ok(records)
    }

    /// Returns the same zone in the allocator's present state. Constant fields are copied from
    /// `self`.
    pub(super) fn with_records(&self, records: &[Record]) -> State {
        let mut s = State {
            free: (0..=MAX_ORDER)
                .map(|order| Area { order, nr: 0, lists: vec![Vec::new(); TYPES.len()] })
                .collect(),
            pcp: Vec::new(),
            nr_free_highatomic: 0,
            ..self.clone()
        };
        let mut blocks = vec!['-'; self.blocks.chars().count()];
        let relative = |pfn: Pfn| pfn.0.wrapping_sub(self.start_pfn);
        for r in records {
            match *r {
                Record::Zone(z) => {
                    s.present = z.present;
                    s.managed = z.managed;
                    s.wmark = [z.watermarks[0], z.watermarks[1], z.watermarks[2]];
                    s.boost = z.boost;
                    s.flags = z.flags;
                    s.reserved_highatomic = z.reserved_highatomic;
                    s.isolated_blocks = z.isolated_blocks;
                    s.lowmem_reserve = z.lowmem_reserve;
                    s.nr_free = z.nr_free;
                    s.pageset_batch = z.limits.batch;
                    s.pageset_high_min = z.limits.high_min;
                    s.pageset_high_max = z.limits.high_max;
                }
                Record::Block { pfn, migrate_type } => {
                    let i = (pfn.0 >> PAGEBLOCK_ORDER) - (self.start_pfn >> PAGEBLOCK_ORDER);
                    if let Some(b) = blocks.get_mut(i as usize) {
                        *b = digit(migrate_type);
                    }
                }
                Record::Free { pfn, order, migrate_type } => {
                    let area = &mut s.free[usize::from(order.get())];
                    area.nr += 1;
                    if migrate_type == MigrateType::HighAtomic {
                        s.nr_free_highatomic += u64::from(order.pages());
                    }
                    if let Some(i) = TYPES.iter().position(|&t| t == migrate_type) {
                        area.lists[i].push(relative(pfn));
                    }
                }
                Record::Allocated { .. }
                | Record::Guard { .. }
                | Record::Bad { .. }
                | Record::Poisoned { .. } => {}
                Record::Cpu(c) => s.pcp.push(Pcp {
                    cpu: c.cpu.0,
                    count: c.tuning.count,
                    high: c.tuning.high,
                    high_min: c.tuning.limits.high_min,
                    high_max: c.tuning.limits.high_max,
                    batch: c.tuning.limits.batch,
                    flags: c.tuning.flags,
                    alloc_factor: c.tuning.alloc_factor,
                    free_count: c.tuning.free_count,
                    node: c.node.0,
                    expire: c.expire,
                    diff: c.diff,
                    stat_threshold: c.threshold,
                    lists: vec![Vec::new(); PCP_LISTS],
                }),
                Record::Cached { cpu, list, pfn } => {
                    // Cached records follow their CPU's record.
                    if let Some(p) = s.pcp.iter_mut().rev().find(|p| p.cpu == cpu.0) {
                        p.lists[list].push(relative(pfn));
                    }
                }
            }
        }
        s.blocks = blocks.into_iter().collect();
        s
    }

    /// Returns the differences from the expected state, one per line; empty if there are none.
    pub(super) fn differences(&self, expected: &State) -> Vec<String> {
        let mut d = Differences(Vec::new());
        let (a, b) = (self, expected);
        d.field("present", a.present, b.present);
        d.field("managed", a.managed, b.managed);
        d.field("wmark", a.wmark, b.wmark);
        d.field("boost", a.boost, b.boost);
        d.field("flags", a.flags, b.flags);
        d.field("reserved_highatomic", a.reserved_highatomic, b.reserved_highatomic);
        d.field("nr_free_highatomic", a.nr_free_highatomic, b.nr_free_highatomic);
        d.field("isolated_blocks", a.isolated_blocks, b.isolated_blocks);
        d.field("lowmem_reserve", a.lowmem_reserve, b.lowmem_reserve);
        d.field("pageset_batch", a.pageset_batch, b.pageset_batch);
        d.field("pageset_high_min", a.pageset_high_min, b.pageset_high_min);
        d.field("pageset_high_max", a.pageset_high_max, b.pageset_high_max);
        // The dump clamps the counter, as every reader does (§9.2).
        d.field("nr_free", a.nr_free.max(0), b.nr_free);
        for (x, y) in a.free.iter().zip(&b.free) {
            d.field(&format!("free blocks of order {}", y.order), x.nr, y.nr);
            for ((x, y_list), t) in x.lists.iter().zip(&y.lists).zip(TYPES) {
                d.list(&format!("free list, order {}, {t}", y.order), x, y_list);
            }
        }
        d.blocks(&a.blocks, &b.blocks);
        d.field("CPUs", a.pcp.len(), b.pcp.len());
        for (x, y) in a.pcp.iter().zip(&b.pcp) {
            let name = |field: &str| format!("cpu {} {field}", y.cpu);
            d.field(&name("count"), x.count, y.count);
            d.field(&name("high"), x.high, y.high);
            d.field(&name("high_min"), x.high_min, y.high_min);
            d.field(&name("high_max"), x.high_max, y.high_max);
            d.field(&name("batch"), x.batch, y.batch);
            d.field(&name("flags"), x.flags, y.flags);
            d.field(&name("alloc_factor"), x.alloc_factor, y.alloc_factor);
            d.field(&name("free_count"), x.free_count, y.free_count);
            d.field(&name("expire"), x.expire, y.expire);
            d.field(&name("diff"), x.diff, y.diff);
            d.field(&name("stat_threshold"), x.stat_threshold, y.stat_threshold);
            for (i, (x, y)) in x.lists.iter().zip(&y.lists).enumerate() {
                d.list(&name(&format!("list {i}")), x, y);
            }
        }
        d.0
    }
}

struct Differences(Vec<String>);

impl Differences {
    fn field<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, got: T, expected: T) {
        if got != expected {
            self.0.push(format!("{name}: expected {expected:?}, got {got:?}"));
        }
    }

    fn list(&mut self, name: &str, got: &[u64], expected: &[u64]) {
        if got == expected {
            return;
        }
        let same = got.iter().zip(expected).take_while(|(x, y)| x == y).count();
        let from = |l: &[u64]| l.iter().skip(same).take(4).copied().collect::<Vec<_>>();
        self.0.push(format!(
            "{name}: expected {} blocks, got {}; from position {same} on expected {:?}, got {:?}",
            expected.len(),
            got.len(),
            from(expected),
            from(got)
        ));
    }

    fn blocks(&mut self, got: &str, expected: &str) {
        let pairs = got.chars().zip(expected.chars()).enumerate();
        let wrong: Vec<_> = pairs.filter(|(_, (x, y))| x != y).take(6).collect();
        for (i, (x, y)) in wrong {
            self.0.push(format!("pageblock {i}: expected type {y}, got {x}"));
        }
        self.field("pageblocks", got.chars().count(), expected.chars().count());
    }
}
