//! The blocks in use at the end of a run, and their owners.

use pageyard::{Config, Gfp, NodeId, Order, PageFlags, Pfn, Yard};
use pageyard_report::Owner;

use super::machine::{Machine, MachineZone, id_of};
use super::map::FrameMap;
use super::requests::Requests;
use crate::owner::Place;

/// A block in use, its owner and its location.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// The request: task, order, flags, and time by the trace's clock.
    pub owner: Owner,
    /// Location under the policy.
    pub place: Place,
}

/// The blocks and pages in use at the end of a run.
pub(super) struct Held {
    pub(super) holders: Vec<Holder>,
    pub(super) in_use: u64,
}

/// Looks up the request behind every recorded block that is still in use.
pub(super) fn held<C: Config>(
    machine: &Machine,
    yard: &Yard<'_, C>,
    map: &FrameMap,
    requests: &Requests,
) -> Held {
    let holder = |(recorded, ours, order): (u32, u32, u8)| {
        let request = requests.find(machine, recorded)?;
        let pfn = Pfn(machine.base() + u64::from(ours));
        let zone = &machine.zones[machine.zone_of(pfn.0)?];
        Some(Holder {
            owner: Owner {
                pfn,
                order: Order::new(order)?,
                gfp: Gfp::from_bits_retain(request.gfp),
                task: requests.tasks.get(request.task as usize).copied().flatten()?,
                since: request.t_ns,
                stack: 0,
                moved: None,
                freed: (0, 0, 0, 0),
            },
            place: Place {
                block_type: yard.block_type(pfn)?,
                flags: PageFlags::empty(),
                node: NodeId(zone.node),
                zone: zone.kind,
            },
        })
    };
    let mut holders: Vec<Holder> = map.blocks().filter_map(holder).collect();
    holders.sort_unstable_by_key(|h| h.owner.pfn);
    let in_use = |z: &MachineZone| {
        let info = yard.zone_info(id_of(z));
        info.map_or(0, |i| i.managed.saturating_sub(i.free_exact + i.cached))
    };
    Held { holders, in_use: machine.zones.iter().map(in_use).sum() }
}
