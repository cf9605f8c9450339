//! SCTP_STREAM_MANY of netperf (spec A.4): pairs of a sender and a receiver on loopback.
//!
//! A message of 10 KiB becomes one buffer of its own: a block of order 2 (derived there from the
//! code). The sender allocates and fills it. The receiver, on another CPU, reads and frees it. A
//! socket's buffer holds 17 (derived). Small objects of the message come from slabs and do not
//! reach the page allocator. The scheduler moves each task to another CPU of the pair's node after
//! 10 to 100 ms (stated). The other costs of a message are assumed ([`costs`](super::costs)).

use super::actor::{Actor, PipeId, Plan, Stage};
use super::costs::SCTP;
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::Seats;
use crate::hygiene::build::{gfp, order};

use pageyard::NodeId;

/// Bytes of a message (stated).
const MESSAGE: u64 = 10 << 10;
/// Maximum number of blocks that wait for their receiver (derived).
const DEPTH: usize = 17;
/// Flags of a socket buffer, as recorded in `6.12-unix`.
pub(super) const BUFFER: u32 = 0x0044_28c0;
/// A task stays on its CPU for 10 to 100 ms (stated).
const STAY: (u64, u64) = (10_000_000, 100_000_000);

pub(super) const RECIPE: Recipe = Recipe {
    name: "sctp",
    summary: "netperf SCTP_STREAM_MANY: messages of 10 KiB, each a block of order 2 freed on \
              another CPU",
    params: &[
        param("pairs", "64", "senders, each with a receiver"),
        param("messages", "20000", "messages per sender, after a fifth as many for warm-up"),
    ],
    score: Score::Rate("messages/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let nodes = Nodes::of(site);
    let pairs = params.number("pairs", 1..=nodes.most_pairs())?;
    let messages = params.number("messages", 1..=1 << 32)?;
    let seats = nodes.seats();
    Ok(vec![(String::new(), Box::new(Sctp { nodes, seats, pairs: pairs as usize, messages }))])
}

/// The CPUs of each node. Pairs are assigned to the nodes in turn, both tasks to the same node.
/// Assumed: the scheduler places a task near the task that wakes it.
#[derive(Debug)]
pub(super) struct Nodes(Vec<Vec<pageyard::CpuId>>);

impl Nodes {
    pub(super) fn of(site: &Site) -> Nodes {
        let nodes = (0..site.nodes).map(|n| site.cpus_of(NodeId(n)));
        Nodes(nodes.filter(|cpus| cpus.len() > 1).collect())
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

/// Returns the time until which a task stays on its CPU.
pub(super) fn stay(actor: &dyn Actor<'_>) -> u64 {
    actor.now() + STAY.0 + actor.random(STAY.1 - STAY.0)
}

#[derive(Debug)]
struct Sctp {
    nodes: Nodes,
    seats: Vec<Seats>,
    pairs: usize,
    messages: u64,
}

impl Sctp {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, messages: u64, first: usize) {
        for pair in 0..self.pairs {
            let (node, sender, receiver) = self.nodes.places(pair);
            let seats = &self.seats[node];
            let pipe = PipeId(first + pair);
            stage.spawn(
                seats.cpu(sender),
                Box::new(move |actor| {
                    let mut until = stay(actor);
                    for _ in 0..messages {
                        if actor.now() >= until {
                            seats.swap(actor, sender);
                            until = stay(actor);
                        }
                        seats.sit(actor, sender);
                        actor.think(SCTP);
                        let Some(block) = actor.alloc(order(2), gfp(BUFFER)) else { continue };
                        actor.touch(block, MESSAGE);
                        actor.send(pipe, vec![block]);
                    }
                    actor.close(pipe);
                }),
            );
            stage.spawn(
                seats.cpu(receiver),
                Box::new(move |actor| {
                    let mut until = stay(actor);
                    while let Some(parcel) = actor.receive(pipe) {
                        if actor.now() >= until {
                            seats.swap(actor, receiver);
                            until = stay(actor);
                        }
                        seats.sit(actor, receiver);
                        for block in parcel {
                            actor.think(SCTP);
                            actor.touch(block, MESSAGE);
                            actor.free(block);
                        }
                        actor.done(1);
                    }
                }),
            );
        }
    }
}

impl Plan for Sctp {
    fn pipes(&self) -> Vec<usize> {
        vec![DEPTH; 2 * self.pairs]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.messages.div_ceil(5), 0);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.messages, self.pairs);
    }
}
