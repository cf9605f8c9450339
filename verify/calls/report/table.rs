// Calls each public function of the crate in a function of its own that cannot itself panic. Files
// that include this one declare the macro `calls` and the types `Lock` and `Y`.
// `main.rs` compiles the functions for `scripts/no-panic.sh`; the crate's `tests/all/hostile.rs` calls
// them with its own arguments instead of these.

use std::fmt::{self, Write};

use lock_api::Mutex;
use pageyard::policy::Policy;
use pageyard::{BlockSupply, CpuId, Event, HighChange, HighReason, NodeId, Order, Pfn, ZoneId, ZoneKind};
use pageyard_report::text::{self, FreeCount, PagesetText, ZoneReport, ZoneText};
use pageyard_report::{CpuSample, Finding, History, Interval, PageOwner, Ring, Task};

/// A writer that accepts any text.
struct Paper;

impl fmt::Write for Paper {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        std::hint::black_box(s);
        Ok(())
    }
}

const ZONE: ZoneId = ZoneId { node: NodeId(0), kind: ZoneKind::Normal };
const BLOCKS: [u64; 11] = [7; 11];
const REPORT: ZoneReport<'_> = ZoneReport {
    node: NodeId(0),
    zone: "Normal",
    free: 7,
    boost: 7,
    marks: [7; 3],
    reserved_highatomic: 7,
    free_highatomic: 7,
    present: 7,
    managed: 7,
    free_pcp: 7,
    local_pcp: 7,
    free_cma: 7,
    protection: &[7; 5],
};
const ZONE_TEXT: ZoneText<'_> = ZoneText {
    node: NodeId(0),
    zone: "Normal",
    free: 7,
    boost: 7,
    marks: [7; 3],
    promo: Some(7),
    spanned: 7,
    present: 7,
    managed: 7,
    cma: 7,
    protection: &[7; 5],
    unreclaimable: false,
    start: Pfn(7),
};
const PAGESET_TEXT: PagesetText = PagesetText {
    cpu: CpuId(0),
    count: 7,
    high: 7,
    batch: 7,
    limits: Some([7; 2]),
    threshold: Some(7),
};

/// A change of `high`, for a history.
const HIGH: HighChange =
    HighChange { from: 0, to: 1, count: 0, refills: 0, drains: 0, reason: HighReason::Decay };

/// An event, for a history.
const CHANGE: Event = Event::High { zone: ZONE, change: HIGH };

calls! {
    call_cpu_sample(y, zone: ZoneId = ZONE, cpu: CpuId = CpuId(0)) -> bool { CpuSample::of(y, zone, cpu).is_some() }
    call_verdicts(y, samples: &[CpuSample] = &[CpuSample::default(); 3], zone: ZoneId = ZONE) -> bool {
        pageyard_report::verdicts(y, zone, samples, samples, 1, |v| _ = write!(Paper, "{v}"))
    }
    call_evidence(y, samples: &[CpuSample] = &[CpuSample::default(); 3], zone: ZoneId = ZONE) -> bool {
        pageyard_report::verdicts(y, zone, samples, samples, 1, |v| {
            Finding::evidence(&v.finding, |_, n| _ = std::hint::black_box(n));
        })
    }
    call_history(y, ring: &Mutex<Lock, Ring<3>> = &Mutex::new(Ring::new()), zone: ZoneId = ZONE,
            cpu: CpuId = CpuId(0)) -> bool {
        History::new(&[zone], y.cpus(), std::slice::from_ref(ring)).is_some_and(|h| {
            History::note(&h, 1, cpu, &std::hint::black_box(CHANGE));
            History::read(&h, zone, cpu).is_some_and(|r| Ring::iter(&r).count() > 0)
        })
    }
    call_write_zoneinfo(y, out: &mut Paper = &mut Paper) -> fmt::Result { text::write_zoneinfo(out, y, &()) }
    call_write_buddyinfo(y, out: &mut Paper = &mut Paper) -> fmt::Result { text::write_buddyinfo(out, y) }
    call_write_pagetypeinfo(y, out: &mut Paper = &mut Paper)
        -> fmt::Result { text::write_pagetypeinfo(out, y) }
    call_write_vmstat(y, out: &mut Paper = &mut Paper) -> fmt::Result { text::write_vmstat(out, y, &()) }
    call_write_show_mem(y, out: &mut Paper = &mut Paper) -> fmt::Result { text::write_show_mem(out, y, &()) }
    call_mixed_blocks(y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), zone: ZoneId = ZONE)
        -> bool { PageOwner::mixed_blocks(&owner, y, zone).is_some() }
    call_owner_note(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7),
            order: Order = Order::ZERO)
        -> () { PageOwner::note(&owner, &Event::Free { pfn, order }, 0, &Task::default(), 0) }
    call_owner_split(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7),
            into: Order = Order::ZERO)
        -> () { PageOwner::split(&owner, pfn, into) }
    call_owner_moved(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7))
        -> () { PageOwner::moved(&owner, pfn, Pfn(9), 1) }
    call_owners(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]))
        -> usize { PageOwner::owners(&owner).count() }
    call_owner_get(_y, owner: PageOwner<'_> = PageOwner::new(Pfn(0), &[]), pfn: Pfn = Pfn(7))
        -> bool { PageOwner::get(&owner, pfn).is_some() }
    call_ring_note(_y, ring: &mut Ring<3> = &mut Ring::new(), change: HighChange = HIGH)
        -> () { Ring::note(ring, 1, change) }
    call_ring_noted(_y, ring: &Ring<3> = &Ring::new()) -> u64 { Ring::noted(ring) }
    call_ring_count(_y, ring: &Ring<3> = &Ring::new(), reason: HighReason = HighReason::Free)
        -> u64 { Ring::count(ring, reason) }
    call_buddyinfo_row(_y, node: NodeId = NodeId(0))
        -> fmt::Result { text::write_buddyinfo_row(&mut Paper, node, "DMA", BLOCKS) }
    call_pagetypeinfo_heading(_y, order: u8 = 9, pages: u64 = 512, orders: usize = 11)
        -> fmt::Result { text::write_pagetypeinfo_heading(&mut Paper, order, pages, orders) }
    call_free_row(_y, counts: &[FreeCount] = &[FreeCount { blocks: 1, at_least: true }],
            node: NodeId = NodeId(0)) -> fmt::Result {
        text::write_free_row(&mut Paper, node, "DMA", "Movable", counts.iter().copied())
    }
    call_block_heading(_y, types: &[&str] = &["Movable"])
        -> fmt::Result { text::write_block_heading(&mut Paper, "Number of blocks type", types.iter().copied()) }
    call_block_row(_y, node: NodeId = NodeId(0))
        -> fmt::Result { text::write_block_row(&mut Paper, node, "DMA", BLOCKS) }
    call_write_sizes(_y, zone: ZoneReport<'_> = REPORT)
        -> fmt::Result { ZoneReport::write_sizes(&zone, &mut Paper, |_| 7) }
    call_supply_row(_y, supply: &[BlockSupply] = &[BlockSupply::default(); 11], node: NodeId = NodeId(0))
        -> fmt::Result { text::write_supply_row(&mut Paper, node, "DMA", supply.iter().copied()) }
    call_write_counters(_y, counters: &[(&str, u64)] = &[("pgfree", 1)])
        -> fmt::Result { text::write_counters(&mut Paper, counters.iter().copied()) }
    call_write_node_stats(_y, stats: &[(&str, u64)] = &[("nr_free", 1)])
        -> fmt::Result { text::write_node_stats(&mut Paper, stats.iter().copied()) }
    call_write_heading(_y, zone: ZoneText<'_> = ZONE_TEXT)
        -> fmt::Result { ZoneText::write_heading(&zone, &mut Paper) }
    call_write_body(_y, zone: ZoneText<'_> = ZONE_TEXT, stats: &[(&str, u64)] = &[("nr_free", 1)])
        -> fmt::Result {
        ZoneText::write_body(&zone, &mut Paper, stats.iter().copied(), [PAGESET_TEXT])
    }
    call_interval(y, samples: &[CpuSample] = &[CpuSample::default(); 3], id: ZoneId = ZONE) -> bool {
        y.zone_info(id).is_some_and(|zone| {
            let (knobs, policy) = (y.knobs(), y.policy());
            let rules = policy.rules();
            let interval = Interval { zone: &zone, before: samples, after: samples, ns: 1, knobs: &knobs, rules };
            Interval::verdicts(&interval, |v| _ = std::hint::black_box(Finding::name(&v.finding)));
            true
        })
    }
}
