//! The order in which requests try the zones, as computed by the core.

use std::ops::Range;

use pageyard::{Hooked, InitError, Knobs, Layout, NodeId, Pfn, Yard, ZoneId, ZoneKind, ZoneSpec};

use super::machine::Topology;
use crate::{Lock, Memory};

/// Pages of a zone that suffice for it to appear in zonelists.
const ENOUGH: u64 = pageyard::PAGEBLOCK_PAGES as u64;

impl Topology {
    /// Returns, for each node, the zones that a request from there may use with suitable flags, in
    /// the order in which it tries them (§2.5).
    ///
    /// Builds an allocator of the same nodes, distances and CPUs in which each zone has at most one
    /// pageblock. The order does not depend on sizes, and the maps of a large machine take
    /// gigabytes.
    ///
    /// # Errors
    /// Fails if the core rejects the machine.
    pub fn zonelists(&self) -> Result<Vec<Vec<ZoneId>>, InitError> {
        let mut usable: Vec<Range<Pfn>> = Vec::new();
        let mut zones: Vec<ZoneSpec> = Vec::new();
        for zone in &self.zones {
            let inside = self.usable.iter().map(|r| {
                let (start, end) = (r.start.max(zone.span.start), r.end.min(zone.span.end));
                start..end.min(Pfn(start.0.saturating_add(ENOUGH)))
            });
            let span = match inside.into_iter().find(|r| r.start < r.end) {
                Some(piece) => {
                    usable.push(piece.clone());
                    piece
                }
                None => zone.span.start..zone.span.end.min(Pfn(zone.span.start.0 + ENOUGH)),
            };
            zones.push(ZoneSpec { span, ..zone.clone() });
        }
        usable.sort_by_key(|r| r.start);
        let layout = Layout {
            zones: &zones,
            usable: &usable,
            reserved: &[],
            cpus: &self.cpus,
            distances: &self.distances,
            knobs: Knobs::default(),
        };
        let memory = Memory::for_layout(&layout)?;
        let mut rooms = memory.rooms();
        let storage = memory.storage(&mut rooms);
        let yard: Yard<'_, Hooked<Lock, ()>> = Yard::new(&layout, storage, ())?;
        let from = |node| yard.zonelist(NodeId(node as u16), ZoneKind::Movable).collect();
        Ok((0..self.nodes).map(from).collect())
    }
}
