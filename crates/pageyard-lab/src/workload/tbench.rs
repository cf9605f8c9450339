//! tbench: clients of a file server over TCP, one request at a time.
//!
//! Each side writes its messages into a fragment, a block of order 3 that several messages share
//! (stated). The reader of the last message frees the block. A message has 2 KiB (assumed), so that
//! 16 share a fragment. Everything else is slab and does not reach the page allocator. The other
//! costs of a message are assumed.

use pageyard::CpuId;

use super::actor::{Actor, Block, Parcel, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::socket::{Nodes, bytes_of};
use crate::hygiene::build::{flags, gfp, order};

/// Bytes of a message (assumed).
const MESSAGE: u64 = 2 << 10;
/// Sending or receiving a message, and processing it. Assumed: TCP on loopback, about 10 us for a
/// round trip.
const WORK: u64 = 2_500;

pub(super) const RECIPE: Recipe = Recipe {
    name: "tbench",
    summary: "clients and servers, one request at a time: fragments of order 3, freed on another \
              CPU",
    params: &[
        param("clients", "all", "clients, each with a server; all: half the CPUs"),
        param("requests", "10000", "requests per client, after a fifth as many for warm-up"),
    ],
    score: Score::Rate("requests/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let nodes = Nodes::of(site);
    let most = nodes.most_pairs();
    if most == 0 {
        return Err(params.wrong("clients", "a machine with two CPUs on one node at least"));
    }
    let clients = params.number_or_all("clients", 1..=most)?;
    let requests = params.number("requests", 1..=1 << 32)?;
    let seats = nodes.seats();
    let cpus = (0..clients as usize).map(|pair| {
        let (node, client, server) = nodes.places(pair);
        (seats[node].cpu(client), seats[node].cpu(server))
    });
    Ok(vec![(String::new(), Box::new(Tbench { cpus: cpus.collect(), requests }))])
}

#[derive(Debug)]
struct Tbench {
    cpus: Vec<(CpuId, CpuId)>,
    requests: u64,
}

/// The fragment that one side writes into, and the number of bytes written.
#[derive(Default)]
struct Fragment(Option<Block>, u64);

impl Fragment {
    /// Writes one more message. The block is sent with the last message that fits into it.
    fn write(&mut self, actor: &dyn Actor<'_>) -> Parcel {
        actor.think(WORK);
        if self.0.is_none() {
            *self = Fragment(actor.alloc(order(3), gfp(flags::BUFFER)), 0);
        }
        let Some(block) = self.0 else { return Parcel::new() };
        actor.touch(block, MESSAGE);
        self.1 += MESSAGE;
        if self.1 < bytes_of(block.1) {
            return Parcel::new();
        }
        self.0 = None;
        vec![block]
    }
}

fn read(actor: &dyn Actor<'_>, parcel: Parcel) {
    actor.think(WORK);
    for block in parcel {
        actor.touch(block, bytes_of(block.1));
        actor.free(block);
    }
}

impl Tbench {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, requests: u64, first: usize) {
        for (pair, &(client, server)) in self.cpus.iter().enumerate() {
            let (there, back) = (PipeId(first + 2 * pair), PipeId(first + 2 * pair + 1));
            stage.spawn(
                client,
                Box::new(move |actor| {
                    let mut fragment = Fragment::default();
                    for _ in 0..requests {
                        let request = fragment.write(actor);
                        actor.send(there, request);
                        let Some(answer) = actor.receive(back) else { break };
                        read(actor, answer);
                        actor.done(1);
                    }
                    actor.close(there);
                    fragment.0.into_iter().for_each(|block| actor.free(block));
                }),
            );
            stage.spawn(
                server,
                Box::new(move |actor| {
                    let mut fragment = Fragment::default();
                    while let Some(request) = actor.receive(there) {
                        read(actor, request);
                        let answer = fragment.write(actor);
                        actor.send(back, answer);
                    }
                    fragment.0.into_iter().for_each(|block| actor.free(block));
                }),
            );
        }
    }
}

impl Plan for Tbench {
    fn pipes(&self) -> Vec<usize> {
        vec![1; 4 * self.cpus.len()]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.requests.div_ceil(5), 0);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.requests, 2 * self.cpus.len());
    }
}
