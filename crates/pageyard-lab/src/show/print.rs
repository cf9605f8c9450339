//! Prints recorded figures with the writers of `pageyard-report`.

use std::fmt::{self, Write};

use pageyard::{BlockSupply, CpuId, MigrateType, NodeId, Pfn};
use pageyard_report::text::{
    FreeCount, PagesetText, ZoneReport, ZoneText, write_block_heading, write_block_row,
    write_buddyinfo_row, write_counters, write_free_row, write_node_stats,
    write_pagetypeinfo_heading, write_supply_row,
};
use pageyard_trace::state::{BlockRow, BuddyInfo, PageTypeInfo, Pageset, Snapshot, Zone, ZoneInfo};

use super::form::Form;

/// Prints recorded figures. Returns `None` if the snapshot does not have the figures of the text. A
/// file from a kernel is reproduced exactly.
pub fn text(snapshot: &Snapshot, form: Form) -> Option<String> {
    let mut out = String::new();
    match form {
        Form::Zoneinfo => zoneinfo(&mut out, snapshot.zoneinfo.as_ref()?),
        Form::Buddyinfo => buddyinfo(&mut out, snapshot.buddyinfo.as_ref()?),
        Form::Pagetypeinfo => pagetypeinfo(&mut out, snapshot.pagetypeinfo.as_ref()?),
        Form::Vmstat => write_counters(&mut out, snapshot.vmstat.as_ref()?.iter()),
        Form::ShowMem => show_mem(&mut out, &reports(snapshot)?),
    }
    .expect("a string takes any text");
    Some(out)
}

fn zoneinfo(out: &mut String, info: &ZoneInfo) -> fmt::Result {
    let mut shown = None;
    for zone in &info.zones {
        let marks = &zone.watermarks;
        let text = ZoneText {
            node: NodeId(zone.node),
            zone: &zone.name,
            free: zone.free,
            boost: marks.boost,
            marks: [marks.min, marks.low, marks.high],
            promo: marks.promo,
            spanned: zone.spanned,
            present: zone.present,
            managed: zone.managed,
            cma: zone.cma,
            protection: &zone.protection,
            unreclaimable: zone.node_unreclaimable,
            start: Pfn(zone.start_pfn.unwrap_or(0)),
        };
        text.write_heading(out)?;
        if zone.is_populated() && shown != Some(zone.node) {
            shown = Some(zone.node);
            if let Some(node) = info.nodes.iter().find(|n| n.node == zone.node) {
                write_node_stats(out, node.counters.iter())?;
            }
        }
        text.write_body(out, zone.counters.iter(), zone.pagesets.iter().map(pageset))?;
    }
    Ok(())
}

fn pageset(set: &Pageset) -> PagesetText {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    PagesetText {
        cpu: CpuId(set.cpu.into()),
        count: signed(set.count),
        high: signed(set.high),
        batch: signed(set.batch),
        limits: set.high_min.zip(set.high_max).map(|(min, max)| [signed(min), signed(max)]),
        threshold: set.stat_threshold,
    }
}

fn buddyinfo(out: &mut String, info: &BuddyInfo) -> fmt::Result {
    info.rows.iter().try_for_each(|row| {
        write_buddyinfo_row(out, NodeId(row.node), &row.zone, row.free.iter().copied())
    })
}

fn pagetypeinfo(out: &mut String, info: &PageTypeInfo) -> fmt::Result {
    let mut nodes: Vec<u16> = info.free.iter().map(|row| row.node).collect();
    nodes.dedup();
    for node in nodes {
        let free = || info.free.iter().filter(|row| row.node == node);
        let orders = free().next().map_or(0, |row| row.counts.len());
        write_pagetypeinfo_heading(out, info.block_order, info.pages_per_block, orders)?;
        for row in free() {
            let counts =
                row.counts.iter().map(|n| FreeCount { blocks: n.blocks, at_least: n.at_least });
            write_free_row(out, NodeId(node), &row.zone, &row.migratetype, counts)?;
        }
        block_rows(out, "Number of blocks type", &info.blocks, node)?;
        block_rows(out, "Number of mixed blocks", &info.mixed, node)?;
    }
    Ok(())
}

fn block_rows(out: &mut String, title: &str, rows: &[BlockRow], node: u16) -> fmt::Result {
    let rows = || rows.iter().filter(|row| row.node == node);
    let Some(first) = rows().next() else { return Ok(()) };
    write_block_heading(out, title, first.counts.iter().map(|(name, _)| name.as_str()))?;
    rows().try_for_each(|row| {
        write_block_row(out, NodeId(node), &row.zone, row.counts.iter().map(|(_, n)| *n))
    })
}

/// A zone of the memory report.
pub(super) struct Report<'s> {
    pub(super) zone: &'s Zone,
    pub(super) reserved_highatomic: u64,
    pub(super) free_highatomic: u64,
    pub(super) blocks: Vec<BlockSupply>,
}

/// Returns the report's zones. The types of free blocks are known only with pagetypeinfo.
pub(super) fn reports(snapshot: &Snapshot) -> Option<Vec<Report<'_>>> {
    let types = snapshot.pagetypeinfo.as_ref();
    if types.is_none() && snapshot.buddyinfo.is_none() {
        return None;
    }
    let zones = snapshot.zoneinfo.as_ref()?.populated();
    Some(zones.map(|zone| report(snapshot, types, zone)).collect())
}

fn report<'s>(snapshot: &Snapshot, types: Option<&PageTypeInfo>, zone: &'s Zone) -> Report<'s> {
    let mut report =
        Report { zone, reserved_highatomic: 0, free_highatomic: 0, blocks: Vec::new() };
    let Some(types) = types else {
        let rows = snapshot.buddyinfo.as_ref().and_then(|b| b.zone(zone.node, &zone.name));
        let blocks = rows.unwrap_or_default().iter();
        report.blocks =
            blocks.map(|&blocks| BlockSupply { blocks, ..Default::default() }).collect();
        return report;
    };
    let highatomic = MigrateType::HighAtomic.name();
    for row in types.free.iter().filter(|r| r.node == zone.node && r.zone == zone.name) {
        report.blocks.resize(row.counts.len().max(report.blocks.len()), BlockSupply::default());
        let number = MigrateType::ALL.iter().position(|t| t.name() == row.migratetype);
        for (order, (into, n)) in report.blocks.iter_mut().zip(&row.counts).enumerate() {
            into.blocks = into.blocks.saturating_add(n.blocks);
            if let Some(any) = number.and_then(|t| into.types.get_mut(t)) {
                *any = n.blocks > 0;
            }
            if row.migratetype == highatomic {
                let pages = n.blocks.saturating_mul(1 << order.min(63));
                report.free_highatomic = report.free_highatomic.saturating_add(pages);
            }
        }
    }
    for row in types.blocks.iter().filter(|r| r.node == zone.node && r.zone == zone.name) {
        let blocks = row.counts.iter().find(|(name, _)| name == highatomic).map_or(0, |(_, n)| *n);
        report.reserved_highatomic = blocks.saturating_mul(types.pages_per_block);
    }
    report
}

impl Report<'_> {
    /// Returns the pages on the lists of all CPUs, and of the first CPU. Which CPU would report is
    /// not recorded.
    pub(super) fn cached(&self) -> (u64, u64) {
        let sets = &self.zone.pagesets;
        let all = sets.iter().fold(0u64, |sum, set| sum.saturating_add(set.count));
        (all, sets.first().map_or(0, |set| set.count))
    }

    pub(super) fn free_cma(&self) -> u64 {
        self.zone.counters.get("nr_free_cma").unwrap_or(0)
    }

    fn row(&self) -> ZoneReport<'_> {
        let Report { zone, reserved_highatomic, free_highatomic, .. } = *self;
        let marks = &zone.watermarks;
        let (free_pcp, local_pcp) = self.cached();
        ZoneReport {
            node: NodeId(zone.node),
            zone: &zone.name,
            free: zone.free,
            boost: marks.boost,
            marks: [marks.min, marks.low, marks.high],
            reserved_highatomic,
            free_highatomic,
            present: zone.present,
            managed: zone.managed,
            free_pcp,
            local_pcp,
            free_cma: self.free_cma(),
            protection: &zone.protection,
        }
    }
}

fn show_mem(out: &mut impl Write, reports: &[Report<'_>]) -> fmt::Result {
    for r in reports {
        r.row().write_sizes(out, |name| r.zone.counters.get(name).unwrap_or(0))?;
    }
    reports.iter().try_for_each(|r| {
        write_supply_row(out, NodeId(r.zone.node), &r.zone.name, r.blocks.iter().copied())
    })
}
