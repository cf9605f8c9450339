//! Memory nodes: their zones, their distances, and the order in which a node's requests try the
//! nodes (spec §1.2, §2.5).

use lock_api::RawMutex;

use crate::base::node_mask::{MAX_NODES, NodeMask};
use crate::base::sync::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use crate::base::units::{CpuId, NodeId, ZoneKind};
use crate::base::wakeups::Wakeups;
use crate::packed;
use crate::zone::state::{PerCpu, Zone};

/// The distance of a node to itself. The firmware gives all other distances relative to it.
pub const LOCAL_DISTANCE: u8 = 10;

/// The distance between two nodes if the layout does not give one.
pub const REMOTE_DISTANCE: u8 = 20;

/// One node. The embedder provides the memory; [`Node::new`] returns an empty node.
///
/// ```
/// use pageyard::Node;
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// // Room for one node, as part of a `Storage`.
/// let room: [Node<'_, Lock>; 1] = [const { Node::new() }; 1];
/// ```
#[derive(Debug)]
pub struct Node<'a, R: RawMutex> {
    pub(crate) id: NodeId,
    /// Zones, from the highest kind down.
    pub(crate) zones: &'a [Zone<'a, R>],
    /// Number of online CPUs.
    pub(crate) cpus: AtomicU32,
    distances: [u8; MAX_NODES],
    /// The nodes whose zones this node's requests try, nearest first; `reach` is their number.
    /// Rewritten when a node gains its first memory or loses its last.
    order: [AtomicU8; MAX_NODES],
    reach: AtomicU32,
    pub(crate) wakeups: Wakeups,
}

impl<R: RawMutex> Node<'_, R> {
    /// Returns a node without memory and CPUs.
    pub const fn new() -> Self {
        Node {
            id: NodeId(0),
            zones: &[],
            cpus: AtomicU32::new(0),
            distances: [REMOTE_DISTANCE; MAX_NODES],
            order: [const { AtomicU8::new(0) }; MAX_NODES],
            reach: AtomicU32::new(0),
            wakeups: Wakeups::new(),
        }
    }
}

impl<R: RawMutex> Default for Node<'_, R> {
    fn default() -> Self {
        Node::new()
    }
}

impl<'a, R: RawMutex> Node<'a, R> {
    pub(crate) fn set(&mut self, id: NodeId, zones: &'a [Zone<'a, R>], distances: &[u8]) {
        self.id = id;
        self.zones = zones;
        for (n, d) in self.distances.iter_mut().enumerate() {
            let local = n == usize::from(id.0);
            let unsaid = if local { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
            *d = distances.get(n).copied().unwrap_or(unsaid);
        }
    }

    /// Returns the distance to another node.
    pub(crate) fn distance(&self, to: NodeId) -> u8 {
        self.distances.get(usize::from(to.0)).copied().unwrap_or(u8::MAX)
    }

    /// Returns the node's zones that a request may use, best first. The caller must skip zones
    /// without memory.
    pub(crate) fn zones_up_to(&self, highest: ZoneKind) -> &'a [Zone<'a, R>] {
        let first = self.zones.iter().take_while(|z| z.kind > highest).count();
        self.zones.get(first..).unwrap_or(&[])
    }

    /// Returns the nodes that this node's requests try, nearest first.
    pub(crate) fn order(&self) -> impl Iterator<Item = NodeId> + '_ {
        let reach = self.reach.load(Relaxed) as usize;
        self.order.iter().take(reach).map(|n| NodeId(n.load(Relaxed).into()))
    }
}

/// Recomputes every node's order (§2.5). The local node comes first if it has memory, then the
/// nearest. A node with a lower number than the local one counts as 1 farther, and so does a node
/// with CPUs. Among equals, the node that fewer nodes fall back to first wins.
pub(crate) fn rebuild_orders<R: RawMutex>(nodes: &[Node<'_, R>], serves: impl Fn(NodeId) -> bool) {
    let mut load = [0u32; MAX_NODES];
    for local in nodes {
        let mut left = NodeMask::NONE;
        for n in nodes.iter().filter(|n| serves(n.id)) {
            left = left.with(n.id);
        }
        let mut reach = 0;
        let mut previous = local.id;
        while let Some(next) = nearest(local, nodes, left, &load) {
            if local.distance(next) != local.distance(previous)
                && let Some(l) = load.get_mut(usize::from(next.0))
            {
                *l += 1;
            }
            previous = next;
            left = NodeMask(left.0 & !NodeMask::only(next).0);
            if let Some(slot) = local.order.get(reach) {
                slot.store(next.0 as u8, Relaxed);
            }
            reach += 1;
        }
        local.reach.store(reach as u32, Relaxed);
    }
}

fn nearest<R: RawMutex>(
    local: &Node<'_, R>,
    nodes: &[Node<'_, R>],
    left: NodeMask,
    load: &[u32; MAX_NODES],
) -> Option<NodeId> {
    if left.contains(local.id) {
        return Some(local.id);
    }
    let cost = |n: &&Node<'_, R>| {
        let wraps = u32::from(n.id < local.id);
        let busy = u32::from(n.cpus.load(Relaxed) > 0);
        let far = u32::from(local.distance(n.id)) + wraps + busy;
        // The load only breaks ties: it is at most one per node.
        far * 2 * MAX_NODES as u32 + load.get(usize::from(n.id.0)).copied().unwrap_or(0)
    };
    Some(nodes.iter().filter(|n| left.contains(n.id)).min_by_key(cost)?.id)
}

/// The zones that one CPU's requests try first: the lookup of the common case. The embedder
/// provides the memory; [`CpuZones::new`] returns an empty one.
///
/// ```
/// use pageyard::CpuZones;
/// # type Lock = spin::mutex::SpinMutex<()>;
///
/// // Room for 4 CPUs, as part of a `Storage`.
/// let room: [CpuZones<'_, Lock>; 4] = [const { CpuZones::new() }; 4];
/// ```
#[derive(Debug)]
#[repr(align(128))] // found by a shift
pub struct CpuZones<'a, R: RawMutex> {
    pub(crate) node: NodeId,
    pub(crate) up: AtomicBool,
    /// Per highest zone, the zone to try first and this CPU's part of it. Eight entries, so an
    /// index masked to three bits is in range.
    pub(crate) quick: [Option<(&'a Zone<'a, R>, &'a PerCpu<R>)>; 8],
    /// This CPU's part of those zones' regions, on the packed engine.
    pub(crate) packed: [Option<&'a packed::PerCpu<R>>; 8],
}

impl<R: RawMutex> CpuZones<'_, R> {
    /// Returns the entry of a CPU that the yard does not have.
    pub const fn new() -> Self {
        CpuZones {
            node: NodeId(0),
            up: AtomicBool::new(true),
            quick: [const { None }; 8],
            packed: [const { None }; 8],
        }
    }
}

impl<R: RawMutex> Default for CpuZones<'_, R> {
    fn default() -> Self {
        CpuZones::new()
    }
}

impl<'a, R: RawMutex> CpuZones<'a, R> {
    pub(crate) fn set(
        &mut self,
        cpu: CpuId,
        node: NodeId,
        first: impl Fn(ZoneKind) -> Option<&'a Zone<'a, R>>,
    ) {
        self.node = node;
        *self.up.get_mut() = true;
        for kind in ZoneKind::ALL {
            let quick = first(kind).and_then(|zone| Some((zone, zone.slot(cpu)?)));
            self.quick[kind as usize & 7] = quick;
            let region = quick.and_then(|(zone, _)| zone.region());
            self.packed[kind as usize & 7] = region.and_then(|r| r.cpus.get(cpu.0 as usize));
        }
    }
}
