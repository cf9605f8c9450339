//! From a recorded state to an allocator in that state.

use pageyard::{Knobs, Layout, NodeId, Pfn, Platform, Yard, ZoneId, ZoneSpec};

use super::state::State;
use crate::memory::{Lock, Memory};

/// Zones span at most so many pages here, 16 GiB: a few bytes of a recording ask for that much room.
const MOST_PAGES: u64 = 1 << 22;
/// CPUs are numbered below this.
const MOST_CPUS: usize = 4096;
/// Frames are numbered below this: addresses have at most 52 bits.
const MOST_PFN: u64 = 1 << 40;

/// The machine of a state: its one zone and its CPUs.
pub(super) struct Start {
    pub(super) zone: ZoneId,
    zones: [ZoneSpec; 1],
    cpus: Vec<NodeId>,
    knobs: Knobs,
}

impl Start {
    pub(super) fn new(state: &State) -> Result<Start, String> {
        let kind = state.kind()?;
        let (first, pages, cpus) = (state.start_pfn, state.spanned, state.pcp.len());
        if pages > MOST_PAGES || first > MOST_PFN - pages {
            return Err(format!(
                "the zone spans {pages} pages from frame {first}; expected {MOST_PAGES} at most, \
                 below frame {MOST_PFN}"
            ));
        }
        if cpus > MOST_CPUS {
            return Err(format!("there are {cpus} CPUs; expected {MOST_CPUS} at most"));
        }
        let span = Pfn(first)..Pfn(first + pages);
        Ok(Start {
            zone: ZoneId { node: NodeId(state.node), kind },
            zones: [ZoneSpec { kind, node: NodeId(state.node), span }],
            cpus: state.pcp.iter().map(|p| NodeId(p.node)).collect(),
            knobs: Knobs {
                foreign_lowmem: state.lowmem_managed.saturating_sub(state.managed),
                min_free_kbytes: state.min_free_kbytes(),
                ..Knobs::default()
            },
        })
    }

    pub(super) fn layout(&self) -> Layout<'_> {
        Layout {
            zones: &self.zones,
            usable: &[],
            reserved: &[],
            cpus: &self.cpus,
            distances: &[],
            knobs: self.knobs,
        }
    }
}

/// Calls `then` with an allocator in a recorded state.
///
/// # Errors
/// What in the state makes no sense.
pub(crate) fn with_yard<E: Platform, T>(
    state: &State,
    platform: E,
    then: impl FnOnce(&Yard<'_, Lock, E>) -> T,
) -> Result<T, String> {
    let start = Start::new(state)?;
    let layout = start.layout();
    let memory = Memory::for_layout(&layout).map_err(|e| e.to_string())?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let yard = Yard::blank(&layout, storage, platform).map_err(|e| e.to_string())?;
    yard.restore(start.zone, state.records()?).map_err(|e| e.to_string())?;
    Ok(then(&yard))
}
