//! `zoneinfo`: size, watermarks, counters and per-CPU lists of every zone.

use core::fmt::{self, Write};

use pageyard::put::put;
use pageyard::watermark::zone_marks;
use pageyard::{Config, CpuId, NodeId, Pfn, Yard, ZONE_KINDS, ZoneId, ZoneKind};

use super::{Extra, NODE_STATS, NUMA_STATS, ZONE_STATS, cma_pages, nodes, zone_stat};
use crate::pad::{Left, Right};

/// One zone. Counts are pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneText<'t> {
    /// Its node.
    pub node: NodeId,
    /// Its name, such as `DMA32`.
    pub zone: &'t str,
    /// Free pages.
    pub free: u64,
    /// The watermark boost.
    pub boost: u64,
    /// MIN, LOW and HIGH as in force, with the boost (§3.3).
    pub marks: [u64; 3],
    /// PROMO, with the boost. `None` omits the line, as before 6.2.
    pub promo: Option<u64>,
    /// Pages from first to last, including holes.
    pub spanned: u64,
    /// Pages backed by memory. If 0, nothing follows the zone's protection.
    pub present: u64,
    /// Pages managed by the allocator.
    pub managed: u64,
    /// Pages of CMA pageblocks.
    pub cma: u64,
    /// The reserve against requests for each higher zone (§3.5).
    pub protection: &'t [u64],
    /// Whether reclaim has given up on the node.
    pub unreclaimable: bool,
    /// The first frame.
    pub start: Pfn,
}

/// One CPU's lists in a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PagesetText {
    /// The CPU.
    pub cpu: CpuId,
    /// Pages on the lists.
    pub count: i64,
    /// Number of pages at which a drain begins.
    pub high: i64,
    /// Pages moved per refill or drain.
    pub batch: i64,
    /// The lower and upper limit of `high`, which 6.18 prints, in wider columns. `None`: the 6.12
    /// form.
    pub limits: Option<[i64; 2]>,
    /// The CPU's delta of a counter is folded above this. `None` omits the line.
    pub threshold: Option<u64>,
}

/// Writes the section of a node's counters. It belongs in the first zone of a node that has memory,
/// after the zone's heading.
///
/// # Errors
/// The errors of `out`.
pub fn write_node_stats<N: AsRef<str>>(
    out: &mut impl Write,
    stats: impl IntoIterator<Item = (N, u64)>,
) -> fmt::Result {
    out.write_str("  per-node stats\n")?;
    write_stats(out, stats)
}

fn write_stats<N: AsRef<str>>(
    out: &mut impl Write,
    stats: impl IntoIterator<Item = (N, u64)>,
) -> fmt::Result {
    stats
        .into_iter()
        .try_for_each(|(name, n)| put!(out, "      ", Left(name.as_ref(), 12), ' ', n, '\n'))
}

impl ZoneText<'_> {
    /// Writes the zone's first line.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_heading(&self, out: &mut impl Write) -> fmt::Result {
        put!(out, "Node ", self.node.0, ", zone ", Right(self.zone, 8), '\n')
    }

    /// Writes everything after the heading and the node's counters. A zone without memory has
    /// neither counters nor per-CPU lists; they are not read.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write_body<N: AsRef<str>>(
        &self,
        out: &mut impl Write,
        stats: impl IntoIterator<Item = (N, u64)>,
        pagesets: impl IntoIterator<Item = PagesetText>,
    ) -> fmt::Result {
        put!(out, "  pages free     ", self.free, '\n')?;
        let [min, low, high] = self.marks;
        let mut size = |label, n| put!(out, "        ", Left(label, 9), n, '\n');
        size("boost", self.boost)?;
        size("min", min)?;
        size("low", low)?;
        size("high", high)?;
        if let Some(promo) = self.promo {
            size("promo", promo)?;
        }
        size("spanned", self.spanned)?;
        size("present", self.present)?;
        size("managed", self.managed)?;
        size("cma", self.cma)?;
        out.write_str("        protection: (")?;
        for (i, &n) in self.protection.iter().enumerate() {
            put!(out, if i > 0 { ", " } else { "" }, n)?;
        }
        out.write_str(")\n")?;
        if self.present == 0 {
            return Ok(());
        }
        write_stats(out, stats)?;
        out.write_str("  pagesets\n")?;
        pagesets.into_iter().try_for_each(|p| p.write(out))?;
        put!(out, "  node_unreclaimable:  ", u8::from(self.unreclaimable), '\n')?;
        put!(out, "  start_pfn:           ", self.start.0, '\n')
    }
}

impl PagesetText {
    fn write(&self, out: &mut impl Write) -> fmt::Result {
        put!(out, "    cpu: ", self.cpu.0, '\n')?;
        let wide = if self.limits.is_some() { "   " } else { "" };
        let mut row = |label, wide, n: i64| put!(out, "              ", label, wide, n, '\n');
        row("count: ", wide, self.count)?;
        row("high:  ", wide, self.high)?;
        row("batch: ", wide, self.batch)?;
        if let Some([min, max]) = self.limits {
            row("high_min: ", "", min)?;
            row("high_max: ", "", max)?;
        }
        match self.threshold {
            Some(n) => put!(out, "  vm stats threshold: ", n, '\n'),
            None => Ok(()),
        }
    }
}

/// Writes `zoneinfo` (§9.4): all five kinds of zones of every node, in 6.12's form. `extra`
/// supplies what the allocator does not count itself.
///
/// # Errors
/// The errors of `out`.
#[inline(never)]
pub fn write_zoneinfo<C: Config>(
    out: &mut impl Write,
    yard: &Yard<'_, C>,
    extra: &impl Extra,
) -> fmt::Result {
    for node in nodes(yard) {
        let mut node_shown = false;
        for kind in ZoneKind::ALL {
            let zone = ZoneId { node, kind };
            let Some(info) = yard.zone_info(zone) else {
                write_absent(out, node, kind)?;
                continue;
            };
            let [min, low, high, promo] = info.watermarks.map(|n| n.saturating_add(info.boost));
            let text = ZoneText {
                node,
                zone: kind.name(),
                free: info.free,
                boost: info.boost,
                marks: [min, low, high],
                promo: Some(promo),
                spanned: info.spanned,
                present: info.present,
                managed: info.managed,
                cma: cma_pages(yard, zone),
                protection: &info.lowmem_reserve,
                unreclaimable: yard.is_hopeless(node) || extra.is_unreclaimable(node),
                start: info.start,
            };
            text.write_heading(out)?;
            if text.present > 0 && !node_shown {
                node_shown = true;
                let stats = NODE_STATS.iter().map(|&n| (n, extra.node_stat(node, n)));
                write_node_stats(out, stats)?;
            }
            let names = ZONE_STATS.iter().chain(&NUMA_STATS);
            let stats = names.map(|&name| (name, zone_stat(yard, zone, name, extra)));
            let up = (0..yard.cpus()).map(CpuId).filter(|&cpu| yard.is_up(cpu));
            text.write_body(out, stats, up.filter_map(|cpu| pageset(yard, zone, cpu)))?;
        }
    }
    Ok(())
}

/// Returns one CPU's lists in a zone.
fn pageset<C: Config>(yard: &Yard<'_, C>, zone: ZoneId, cpu: CpuId) -> Option<PagesetText> {
    let tuning = yard.pageset(zone, cpu)?;
    Some(PagesetText {
        cpu,
        count: tuning.count.into(),
        high: tuning.high.into(),
        batch: tuning.limits.batch.into(),
        limits: None,
        threshold: Some(yard.stat_threshold(zone, cpu)?.into()),
    })
}

/// Writes a zone that the layout does not have: watermarks as computed for 0 pages (§3.2), else
/// zeros.
fn write_absent(out: &mut impl Write, node: NodeId, kind: ZoneKind) -> fmt::Result {
    let [min, low, high, promo] = zone_marks(kind, 0, 0, 0, 0);
    let text = ZoneText {
        node,
        zone: kind.name(),
        free: 0,
        boost: 0,
        marks: [min, low, high],
        promo: Some(promo),
        spanned: 0,
        present: 0,
        managed: 0,
        cma: 0,
        protection: &[0; ZONE_KINDS],
        unreclaimable: false,
        start: Pfn(0),
    };
    text.write_heading(out)?;
    text.write_body(out, [("", 0); 0], [])
}
