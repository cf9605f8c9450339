//! Builds an allocator in a recorded state.

use pageyard::{Hooked, Hooks, Knobs, Layout, NodeId, Pfn, Yard, ZoneId, ZoneSpec};

use super::state::{State, States};
use crate::memory::{Lock, Memory};

/// Maximum pages that a zone spans: 16 GiB. A few bytes of a recording could request any amount.
const MOST_PAGES: u64 = 1 << 22;
/// Limit of CPU numbers, exclusive.
const MOST_CPUS: usize = 4096;
/// Limit of frame numbers, exclusive: addresses have at most 52 bits.
const MOST_PFN: u64 = 1 << 40;

/// The machine of a state: its zones, with the upper one first, and its CPUs.
pub(super) struct Start {
    zones: Vec<ZoneSpec>,
    cpus: Vec<NodeId>,
    knobs: Knobs,
}

impl Start {
    pub(super) fn new(states: &States) -> Result<Start, String> {
        let specs = states.zones.iter().map(spec).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = states.zones.first() else {
            return Err("no zone; expected one or two".into());
        };
        for (above, below) in specs.iter().zip(specs.iter().skip(1)) {
            if above.node != below.node || above.kind <= below.kind {
                return Err(format!(
                    "zone {} of node {} comes before {} of node {}; expected two zones of one \
                     node, the upper one first",
                    above.kind, above.node.0, below.kind, below.node.0
                ));
            }
        }
        let cpus = |s: &State| s.pcp.iter().map(|p| (p.cpu, p.node)).collect::<Vec<_>>();
        let common = |s: &State| (s.request_zone, s.lowmem_managed, cpus(s));
        if states.zones.iter().any(|s| common(s) != common(first)) {
            return Err("the zones differ in request_zone, lowmem_managed or the CPUs; expected \
                        the same in both"
                .into());
        }
        if first.pcp.len() > MOST_CPUS {
            let cpus = first.pcp.len();
            return Err(format!("{cpus} CPUs; expected at most {MOST_CPUS}"));
        }
        let managed = states.zones.iter().fold(0u64, |n, s| n.saturating_add(s.managed));
        // Each zone's MIN is rounded down, so the largest of the minimum values fits all zones.
        let min_free_kbytes = states.zones.iter().map(State::min_free_kbytes).max().unwrap_or(0);
        Ok(Start {
            zones: specs,
            cpus: first.pcp.iter().map(|p| NodeId(p.node)).collect(),
            knobs: Knobs {
                foreign_lowmem: first.lowmem_managed.saturating_sub(managed),
                min_free_kbytes,
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

    /// Restores the recorded zones.
    pub(super) fn restore<E: Hooks>(
        &self,
        yard: &mut Yard<'_, Hooked<Lock, E>>,
        states: &States,
    ) -> Result<(), String> {
        for (i, (spec, state)) in self.zones.iter().zip(&states.zones).enumerate() {
            let zone = ZoneId { node: spec.node, kind: spec.kind };
            yard.restore(zone, state.records(i > 0)?).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

fn spec(state: &State) -> Result<ZoneSpec, String> {
    let kind = state.kind()?;
    let (first, pages) = (state.start_pfn, state.spanned);
    if pages > MOST_PAGES || first > MOST_PFN - pages {
        return Err(format!(
            "the zone spans {pages} pages from frame {first}; expected at most {MOST_PAGES}, below \
             frame {MOST_PFN}"
        ));
    }
    Ok(ZoneSpec { kind, node: NodeId(state.node), span: Pfn(first)..Pfn(first + pages) })
}

/// Calls `then` with an allocator in a recorded state.
///
/// # Errors
/// Returns what is inconsistent in the state.
pub(crate) fn with_yard<E: Hooks, T>(
    states: &States,
    platform: E,
    then: impl FnOnce(&Yard<'_, Hooked<Lock, E>>) -> T,
) -> Result<T, String> {
    let start = Start::new(states)?;
    let layout = start.layout();
    let memory = Memory::for_layout(&layout).map_err(|e| e.to_string())?;
    let mut rooms = memory.rooms();
    let storage = memory.storage(&mut rooms);
    let mut yard = Yard::blank(&layout, storage, platform).map_err(|e| e.to_string())?;
    start.restore(&mut yard, states)?;
    Ok(then(&yard))
}
