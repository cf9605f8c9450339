//! The machine of a trace: zones, CPUs, watermarks and caches. They come from the state files next
//! to the trace, or from options.

use std::collections::HashMap;

use pageyard::tuning::{self, CacheSlice};
use pageyard::watermark;
use pageyard::{Gfp, Knobs, NodeId, TYPES, ZONE_KINDS, ZoneId, ZoneKind, stat_threshold};
use pageyard_trace::Release;
use pageyard_trace::state::{CpuCaches, PfnMap, Snapshot, StateDir, ZoneInfo};
use serde::Serialize;

use super::error::ReplayError;
use super::kernel::Kernel;
use crate::format;

/// Machine parameters for what the trace does not record.
#[derive(Clone, Copy, Debug, Default)]
pub struct MachineOptions {
    /// Memory in bytes, from address 0. Default: up to the highest frame in the trace, rounded up
    /// to 128 MiB. If zoneinfo defines the memory, this option only permits a machine of up to this
    /// size whose tables would exceed what the trace's length allows.
    pub memory: Option<u64>,
    /// Number of CPUs. Default: the number that the trace names.
    pub cpus: Option<u32>,
    /// Bytes of last-level cache per CPU. Default: the size in the state files, else 4 MiB, which
    /// is above the threshold of every step.
    pub cache_slice: Option<u64>,
    /// The kernel that recorded the trace, for a trace that does not say it, or says it wrongly.
    pub kernel: Option<Release>,
}

/// Default bytes of last-level cache per CPU.
pub const DEFAULT_CACHE_SLICE: u64 = 4 << 20;

/// A zone of the machine. Counts are in pages.
#[derive(Clone, Debug, Serialize)]
pub struct MachineZone {
    /// The zone's kind, by its kernel name.
    #[serde(serialize_with = "kind_name")]
    pub kind: ZoneKind,
    /// The zone's node.
    pub node: u16,
    /// The zone's first frame.
    pub start: u64,
    /// Pages from the first to the last, holes included.
    pub spanned: u64,
    /// Pages that are backed by memory.
    pub present: u64,
    /// Pages that the allocator manages.
    pub managed: u64,
    /// Free pages when the state was recorded; `None` if that was not recorded.
    pub free: Option<u64>,
    /// The watermarks MIN, LOW, HIGH and PROMO, without the boost.
    pub watermarks: [u64; 4],
    /// Pages reserved against requests for higher zones.
    pub lowmem_reserve: [u64; ZONE_KINDS],
    /// Batch size of the per-CPU lists.
    pub batch: i32,
    /// Threshold of the per-CPU counter deltas.
    pub stat_threshold: u32,
    /// Per CPU: pages on the lists, and `high`, in the snapshot just after recording began.
    pub at_start: Vec<Option<(i64, i64)>>,
    /// Per CPU: pages on the lists in the snapshot just before recording ended.
    pub at_end: Vec<Option<i64>>,
}

fn kind_name<S: serde::Serializer>(kind: &ZoneKind, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(kind)
}

fn cache_pairs<S: serde::Serializer>(caches: &[CacheSlice], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(caches.iter().map(|c| (c.last_level, c.all_levels)))
}

impl MachineZone {
    /// Returns the frame after the last one.
    pub fn end(&self) -> u64 {
        self.start + self.spanned
    }
}

pub(super) fn id_of(zone: &MachineZone) -> ZoneId {
    ZoneId { node: NodeId(zone.node), kind: zone.kind }
}

/// The machine on which a trace is replayed.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Populated zones, in ascending order of first frame.
    pub zones: Vec<MachineZone>,
    /// The node of each CPU.
    pub cpus: Vec<u16>,
    /// Per CPU: bytes of last-level cache, and of all cache levels.
    #[serde(serialize_with = "cache_pairs")]
    pub caches: Vec<CacheSlice>,
    /// The kernel that recorded the trace.
    pub kernel: Kernel,
    /// `percpu_pagelist_high_fraction`.
    pub high_fraction: u32,
    /// Seconds between ticks.
    pub stat_interval_s: u64,
    /// The source of each part, for display.
    pub sources: Vec<String>,
}

/// Limit of the machine's size: 1 TiB. The replay's tables take a few bytes per frame.
const MOST_FRAMES: u64 = 1 << 28;

impl Machine {
    /// Builds the machine that recorded the trace, from the state files or else from options.
    ///
    /// `release` is the kernel's, if the trace itself says it. `seen` returns the highest frame in the trace and the number of CPUs that the trace names.
    /// It is called only if the state files have no zoneinfo.
    ///
    /// # Errors
    /// Fails if the machine is inconsistent or larger than 1 TiB.
    pub(super) fn new(
        state: &StateDir,
        options: &MachineOptions,
        release: Option<&str>,
        seen: impl FnOnce() -> Result<(u64, u32), ReplayError>,
    ) -> Result<Machine, ReplayError> {
        let snapshots = [&state.traced_start, &state.before, &state.traced_end, &state.after];
        let names = ["traced_start", "before", "traced_end", "after"];
        let with_zones = |s: &&Snapshot| s.zoneinfo.is_some();
        let found = snapshots.into_iter().position(|s| with_zones(&s));
        let mut sources = Vec::new();
        let settings = snapshots.iter().find_map(|s| s.sys_vm.as_ref());
        let number = |name: &str| settings.and_then(|s| s.number(name));
        let (mut zones, cpu_count) = match found {
            Some(at) => {
                let info = snapshots[at].zoneinfo.as_ref().expect("it was found by that");
                sources
                    .push(format!("zones, watermarks, batch and CPUs: zoneinfo ({})", names[at]));
                from_zoneinfo(info, state)?
            }
            None => {
                let (zones, cpus, text) = from_options(options, seen)?;
                sources.push(text);
                (zones, cpus)
            }
        };
        zones.sort_by_key(|z| z.start);
        check(&zones)?;
        if let Some(cpus) = options.cpus.filter(|&cpus| found.is_some() && cpus != cpu_count) {
            return Err(ReplayError::machine(
                format!("--cpus {cpus}, but zoneinfo has {cpu_count} CPUs"),
                "remove --cpus, which applies without zoneinfo only",
            ));
        }
        // More confirms the size of a large machine (`Room::allow`).
        let frames = zones.last().map_or(0, MachineZone::end).saturating_sub(zones[0].start);
        let span = frames.saturating_mul(4096);
        if let Some(memory) = options.memory.filter(|&memory| found.is_some() && memory < span) {
            return Err(ReplayError::machine(
                format!(
                    "--memory {}, but zoneinfo has zones of {}",
                    format::size(memory),
                    format::size(span)
                ),
                "remove --memory, or name at least that much",
            ));
        }
        if !(1..=4096).contains(&cpu_count) {
            let fix = "use --cpus 1 to 4096, or check the zoneinfo file";
            return Err(ReplayError::machine(format!("{cpu_count} CPUs"), fix));
        }
        let mut nodes: Vec<u16> = zones.iter().map(|z| z.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let cpus: Vec<u16> =
            (0..cpu_count).map(|c| nodes[c as usize * nodes.len() / cpu_count as usize]).collect();
        if nodes.len() > 1 {
            sources.push(format!(
                "nodes of the CPUs: not recorded; assumed to be {} in order",
                nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            ));
        }
        let caches_file = snapshots.iter().find_map(|s| s.cpu_cache.as_ref());
        let caches = (0..cpu_count).map(|cpu| slice(options, caches_file, cpu as u16)).collect();
        sources.push(match (options.cache_slice, caches_file) {
            (Some(bytes), _) => format!("last-level cache per CPU: {bytes} bytes (option)"),
            (None, Some(_)) => "last-level cache per CPU: cpu_cache".into(),
            (None, None) => format!(
                "last-level cache per CPU: {DEFAULT_CACHE_SLICE} bytes (default; --cache-slice)"
            ),
        });
        Ok(Machine {
            zones,
            cpus,
            caches,
            kernel: Kernel::find(options.kernel, release, state),
            high_fraction: number("percpu_pagelist_high_fraction")
                .and_then(|n| u32::try_from(n).ok())
                .filter(|n| *n == 0 || *n >= 8)
                .unwrap_or(0),
            stat_interval_s: number("stat_interval")
                .and_then(|n| u64::try_from(n).ok())
                .unwrap_or(1)
                .max(1),
            sources,
        })
    }

    /// Returns the lowest frame. Tables are indexed from it.
    pub(super) fn base(&self) -> u64 {
        self.zones.first().map_or(0, |z| z.start)
    }

    /// Returns the number of frames from the lowest to the highest, holes included.
    pub(super) fn frames(&self) -> usize {
        (self.zones.last().map_or(0, MachineZone::end) - self.base()) as usize
    }

    /// Returns the index of the zone that contains a frame.
    #[inline(always)]
    pub(super) fn zone_of(&self, pfn: u64) -> Option<usize> {
        let holds = |z: &MachineZone| pfn.wrapping_sub(z.start) < z.spanned;
        // Fast path: nearly all machines have few zones.
        if self.zones.len() <= 8 {
            return self.zones.iter().position(holds);
        }
        let at = self.zones.partition_point(|z| z.start <= pfn).checked_sub(1)?;
        holds(&self.zones[at]).then_some(at)
    }

    /// Returns the pageblock of a frame. Both are counted from the lowest frame.
    #[inline(always)]
    pub(super) fn block_of(&self, frame: u32) -> usize {
        (frame as usize + (self.base() as usize & 511)) >> 9
    }

    /// Returns the first frame of the block of this order that contains a frame; `None` if it is
    /// below the lowest frame.
    #[inline(always)]
    pub(super) fn align_down(&self, frame: u32, order: u8) -> Option<u32> {
        let pfn = self.base() + u64::from(frame);
        ((pfn >> order) << order).checked_sub(self.base()).map(|f| f as u32)
    }

    /// Returns the highest zone that a request with these flags may use on its CPU's node.
    pub(super) fn zone_for(&self, cpu: u16, gfp: u32) -> Option<usize> {
        let node = *self.cpus.get(usize::from(cpu))?;
        let kind = Gfp::from_bits_retain(gfp).highest_zone();
        let zones = self.zones.iter().enumerate();
        let usable = zones.filter(|(_, z)| z.node == node && Some(z.kind) <= kind);
        usable.max_by_key(|(_, z)| z.kind).map(|(number, _)| number)
    }

    /// Returns the number of CPUs of a node, or of all CPUs if the node has none.
    pub(super) fn cpus_of(&self, node: u16) -> u32 {
        match self.cpus.iter().filter(|&&n| n == node).count() {
            0 => self.cpus.len() as u32,
            n => n as u32,
        }
    }

    /// Checks that a frame map has all frames: beyond its end all would be holes.
    pub(super) fn check_map(&self, map: &PfnMap) -> Result<(), ReplayError> {
        let (end, has) = (self.base() + self.frames() as u64, map.len() as u64);
        if has >= end {
            return Ok(());
        }
        let what = format!("pfnmap.before has {has} frames, but the zones end at frame {end}");
        Err(ReplayError::machine(what, "it is cut off, or of another machine: remove it"))
    }

    /// Returns whether mobility grouping is disabled for lack of memory (spec §2.4).
    pub(super) fn grouping_disabled(&self) -> bool {
        let above: u64 = self.zones.iter().map(|z| z.managed.saturating_sub(z.watermarks[2])).sum();
        above < TYPES as u64 * 512
    }
}

fn check(zones: &[MachineZone]) -> Result<(), ReplayError> {
    let fix = "copy the zoneinfo file from the machine again, or remove it";
    let (Some(first), Some(last)) = (zones.first(), zones.last()) else {
        return Err(ReplayError::machine("no zone has memory", fix));
    };
    for z in zones {
        let sane = z.start <= 1 << 52 && (1..=1 << 52).contains(&z.spanned);
        if !sane || z.present > z.spanned || z.managed > z.present || z.managed == 0 {
            let what =
                format!("the sizes of node {} zone {} contradict each other", z.node, z.kind);
            return Err(ReplayError::machine(what, fix));
        }
        if !z.watermarks.is_sorted() || z.watermarks[3] >= 1 << 52 {
            let what = format!("the watermarks of node {} zone {} do not ascend", z.node, z.kind);
            return Err(ReplayError::machine(what, fix));
        }
    }
    if zones.windows(2).any(|w| w[0].end() > w[1].start) {
        return Err(ReplayError::machine("two zones overlap", fix));
    }
    if last.end() - first.start > MOST_FRAMES {
        let what = "it spans more than 1 TiB, the limit of this program";
        return Err(ReplayError::machine(what, "replay a trace of a smaller machine"));
    }
    Ok(())
}

fn from_zoneinfo(
    info: &ZoneInfo,
    state: &StateDir,
) -> Result<(Vec<MachineZone>, u32), ReplayError> {
    let fix = "copy the zoneinfo file from the machine again, or remove it";
    let cpus = info
        .populated()
        .flat_map(|z| z.pagesets.iter().map(|p| u32::from(p.cpu) + 1))
        .max()
        .ok_or_else(|| ReplayError::machine("no CPUs in zoneinfo", fix))?;
    let [starts, ends] = [&state.traced_start, &state.traced_end].map(by_name);
    let mut zones = Vec::new();
    for z in info.populated().filter(|z| z.managed > 0) {
        let kind = ZoneKind::ALL.into_iter().find(|k| k.name() == z.name).ok_or_else(|| {
            let what = format!("zone {} is of a kind that pageyard does not have", z.name);
            ReplayError::machine(what, "replay a trace of a 64-bit machine")
        })?;
        let w = &z.watermarks;
        if w.boost > w.min {
            let (node, name, boost, min) = (z.node, &z.name, w.boost, w.min);
            let what =
                format!("node {node} zone {name}: its min of {min} is below its boost of {boost}");
            return Err(ReplayError::machine(what, fix));
        }
        let promo = w.promo.unwrap_or(w.high.saturating_add(w.high.saturating_sub(w.low)));
        let name = (z.node, z.name.as_str());
        let (start, end) = (starts.get(&name).copied(), ends.get(&name).copied());
        let counts = |of: Option<&pageyard_trace::state::Zone>| {
            let mut counts = vec![None; cpus as usize];
            for set in of.map_or(&[][..], |z| &z.pagesets) {
                if let Some(at) = counts.get_mut(usize::from(set.cpu)) {
                    *at = Some((set.count.min(1 << 28) as i64, set.high.min(1 << 28) as i64));
                }
            }
            counts
        };
        let batch = z.pagesets.first().map_or(0, |p| p.batch).min(1 << 14) as i32;
        zones.push(MachineZone {
            kind,
            node: z.node,
            start: z.start_pfn.unwrap_or(0),
            spanned: z.spanned,
            present: z.present,
            managed: z.managed,
            free: start.map(|s| s.free),
            // The kernel prints the marks as in force, with the boost (spec §3.3).
            watermarks: [w.min, w.low, w.high, promo].map(|mark| mark.saturating_sub(w.boost)),
            lowmem_reserve: std::array::from_fn(|k| {
                z.protection.get(k).copied().unwrap_or(0).min((1 << 52) - 1)
            }),
            batch: if batch > 0 { batch } else { tuning::batch(z.managed) },
            stat_threshold: z
                .pagesets
                .first()
                .and_then(|p| p.stat_threshold)
                .map_or_else(|| stat_threshold(cpus, z.managed), |t| t.min(125) as u32),
            at_start: counts(start),
            at_end: counts(end).into_iter().map(|c| c.map(|(count, _)| count)).collect(),
        });
    }
    Ok((zones, cpus))
}

/// Indexes the zones of a snapshot by node and name.
fn by_name(of: &Snapshot) -> HashMap<(u16, &str), &pageyard_trace::state::Zone> {
    let zones = of.zoneinfo.iter().flat_map(|info| &info.zones);
    zones.map(|z| ((z.node, z.name.as_str()), z)).collect()
}

/// Builds zones by address as on x86. All memory is managed.
fn from_options(
    options: &MachineOptions,
    seen: impl FnOnce() -> Result<(u64, u32), ReplayError>,
) -> Result<(Vec<MachineZone>, u32, String), ReplayError> {
    const STEP: u64 = (128 << 20) / 4096;
    let (highest, named) = seen()?;
    let pages = options.memory.map_or((highest / STEP + 1) * STEP, |bytes| bytes / 4096);
    if !(1024..=MOST_FRAMES).contains(&pages) {
        let what = format!("{} of memory", format::pages(pages));
        return Err(ReplayError::machine(what, "use --memory between 4M and 1T"));
    }
    let cpus = options.cpus.unwrap_or(named.max(1));
    // The caller checks the number. This only bounds absurd values.
    let cpus = cpus.min(1 << 16);
    let edges =
        [(ZoneKind::Dma, 1 << 12), (ZoneKind::Dma32, 1 << 20), (ZoneKind::Normal, u64::MAX)];
    let mut zones = Vec::new();
    let mut start = 0;
    for (kind, edge) in edges {
        let end = pages.min(edge);
        if end > start {
            zones.push(MachineZone {
                kind,
                node: 0,
                start,
                spanned: end - start,
                present: end - start,
                managed: end - start,
                free: None,
                watermarks: [0; 4],
                lowmem_reserve: [0; ZONE_KINDS],
                batch: tuning::batch(end - start),
                stat_threshold: stat_threshold(cpus, end - start),
                at_start: vec![None; cpus as usize],
                at_end: vec![None; cpus as usize],
            });
            start = end;
        }
    }
    set_marks(&mut zones, pages, &Knobs::default());
    let text = format!(
        "zones by address, {} ({}), {cpus} CPUs ({}), watermarks by the kernel's defaults",
        format::pages(pages),
        if options.memory.is_some() { "option" } else { "from the highest frame; --memory" },
        if options.cpus.is_some() { "option" } else { "from the trace; --cpus" },
    );
    Ok((zones, cpus, text))
}

/// Sets watermarks and lowmem reserves as a booting kernel does (spec §3, §8.3).
fn set_marks(zones: &mut [MachineZone], pages: u64, knobs: &Knobs) {
    let mut managed = [0; ZONE_KINDS];
    for z in &*zones {
        managed[z.kind as usize] = z.managed;
    }
    let apply = |zones: &mut [MachineZone], kb: u64| {
        for z in zones {
            let scale = knobs.watermark_scale_factor;
            z.watermarks = watermark::zone_marks(z.kind, z.managed, pages, kb, scale);
        }
    };
    let kb = watermark::min_free_kbytes(pages * 4);
    apply(zones, kb);
    let above: u64 = zones.iter().map(|z| z.managed.saturating_sub(z.watermarks[2])).sum();
    let floor = watermark::huge_page_floor(zones.len() as u64, above);
    if floor > kb {
        apply(zones, floor);
    }
    for z in zones {
        let ratio = &knobs.lowmem_reserve_ratio;
        z.lowmem_reserve = watermark::lowmem_reserve(z.kind as usize, &managed, ratio);
    }
}

fn slice(options: &MachineOptions, file: Option<&CpuCaches>, cpu: u16) -> CacheSlice {
    if let Some(bytes) = options.cache_slice {
        return CacheSlice { last_level: bytes, all_levels: bytes };
    }
    let Some(file) = file else {
        return CacheSlice { last_level: DEFAULT_CACHE_SLICE, all_levels: DEFAULT_CACHE_SLICE };
    };
    let all = file
        .of(cpu)
        .iter()
        .filter(|c| matches!(c.kind.as_deref(), Some("Data" | "Unified")))
        .map(|c| c.size.unwrap_or(0) / c.shared_cpus.len().max(1) as u64)
        .fold(0, u64::saturating_add);
    CacheSlice { last_level: file.data_slice(cpu).unwrap_or(0), all_levels: all }
}
