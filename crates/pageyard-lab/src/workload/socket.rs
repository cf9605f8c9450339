//! What workloads of sockets share: buffers, and the CPUs of pairs of tasks.

use std::ops::Range;

use pageyard::{CpuId, NodeId, Order, PAGE_SIZE};

use super::actor::Actor;
use super::error::WorkloadError;
use super::params::{Param, Params, param};
use super::recipe::Site;
use super::seats::Seats;

/// A task stays on its CPU for 10 to 100 ms (stated).
const STAY: (u64, u64) = (10_000_000, 100_000_000);

/// Returns the bytes of a block.
pub(super) fn bytes_of(order: Order) -> u64 {
    u64::from(order.pages()) * PAGE_SIZE
}

/// Returns the function that puts a task on the CPU of its seat before each of its steps, and on
/// another one when its stay there is over.
pub(super) fn sitter(
    actor: &dyn Actor<'_>,
    seats: &Seats,
    seat: usize,
) -> impl FnMut(&dyn Actor<'_>) {
    let stay = |actor: &dyn Actor<'_>| actor.now() + STAY.0 + actor.random(STAY.1 - STAY.0);
    let mut until = stay(actor);
    move |actor| {
        if actor.now() >= until {
            seats.swap(actor, seat, actor.random(1 << 32));
            until = stay(actor);
        }
        seats.sit(actor, seat);
    }
}

/// The parameter that [`Nodes::parse`] reads.
pub(super) const CPUS: Param = param(
    "cpus",
    "all",
    "CPUs of the pairs: all (pairs on the nodes in turn, a task on each core first) or the number \
     of a node",
);

/// The CPUs of each node. Pairs are assigned to the nodes in turn, both tasks to the same node.
/// Assumed: the scheduler places a task near the task that wakes it.
#[derive(Debug)]
pub(super) struct Nodes(Vec<Vec<CpuId>>);

impl Nodes {
    pub(super) fn of(site: &Site) -> Nodes {
        Nodes::among(site, 0..site.nodes)
    }

    /// Reads [`CPUS`]: all nodes or one.
    pub(super) fn parse(params: &Params, site: &Site) -> Result<Nodes, WorkloadError> {
        let all = Nodes::of(site);
        if params.text(CPUS.name) == CPUS.default {
            return Ok(all);
        }
        let node = params.text(CPUS.name).parse().ok().filter(|&node| node < site.nodes);
        let one = node.map(|node| Nodes::among(site, node..node + 1));
        one.filter(|nodes| !nodes.0.is_empty()).ok_or_else(|| {
            params.wrong(CPUS.name, "all, or the number of a node that has two CPUs or more")
        })
    }

    fn among(site: &Site, nodes: Range<u16>) -> Nodes {
        let cpus = nodes.map(|n| {
            let mut cpus = site.cpus_of(NodeId(n));
            site.spread(&mut cpus);
            cpus
        });
        Nodes(cpus.filter(|cpus| cpus.len() > 1).collect())
    }

    /// Returns the maximum number of pairs for which every node has room.
    pub(super) fn most_pairs(&self) -> u64 {
        let least = self.0.iter().map(|cpus| cpus.len() / 2).min().unwrap_or(0);
        (least * self.0.len()) as u64
    }

    pub(super) fn seats(&self) -> Vec<Seats> {
        self.0.iter().map(|cpus| Seats::new(cpus.iter().copied())).collect()
    }

    /// Returns the node of a pair, and the seats of its sender and receiver there.
    pub(super) fn places(&self, pair: usize) -> (usize, usize, usize) {
        let nodes = self.0.len();
        let place = pair / nodes * 2;
        (pair % nodes, place, place + 1)
    }
}
