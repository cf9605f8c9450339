//! A cache server's network traffic, as measured in a kernel: memcached under memtier on 8 CPUs.
//!
//! Buffers of order 2 and 3, in a ratio of 61 to 39 (measured: 342,884 and 221,238 in 180 s),
//! arrive at random times, 3,100 per second (measured), from four pairs of tasks. One task of a
//! pair fills them. The other, on another CPU, reads and frees them in order. The few requests of
//! other orders are left out. The scheduler moves tasks as in [`sctp`](super::sctp). The load is
//! low; the relevant results are how many pages the lists hold meanwhile, and how often requests go
//! to the zone.

use super::actor::{PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::Seats;
use super::socket::{Nodes, bytes_of, sitter};
use crate::hygiene::build::{flags, gfp, order};

/// Buffers of order 2 in a thousand (measured).
const ORDER_2: u64 = 608;
/// Maximum number of buffers that wait for their reader, from the size of a socket's buffer.
const DEPTH: usize = 17;
/// Reading or writing a request's data, without its bytes. Assumed: two system calls.
const REQUEST: u64 = 2_000;

pub(super) const RECIPE: Recipe = Recipe {
    name: "memcached",
    summary: "a cache server's buffers: orders 2 and 3, 3,100 per second, freed on another CPU",
    params: &[
        param("pairs", "4", "producers of buffers, each with a consumer that frees them"),
        param("rate", "3100", "buffers per second, of all pairs"),
        param("seconds", "20", "duration, after two seconds of warm-up"),
    ],
    score: Score::Rate("buffers/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let nodes = Nodes::of(site);
    let pairs = params.number("pairs", 1..=nodes.most_pairs())?;
    let rate = params.number("rate", 1..=1_000_000_000)?;
    let seconds = params.number("seconds", 1..=100_000)?;
    let seats = nodes.seats();
    let gap = 1_000_000_000 * pairs / rate;
    let each = (seconds * rate).div_ceil(pairs);
    let warm = (2 * rate).div_ceil(pairs);
    let pairs = pairs as usize;
    Ok(vec![(String::new(), Box::new(Memcached { nodes, seats, pairs, gap, each, warm }))])
}

#[derive(Debug)]
struct Memcached {
    nodes: Nodes,
    seats: Vec<Seats>,
    pairs: usize,
    /// The mean time between two buffers of a pair.
    gap: u64,
    each: u64,
    warm: u64,
}

impl Memcached {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, buffers: u64, first: usize) {
        for pair in 0..self.pairs {
            let (node, writer, reader) = self.nodes.places(pair);
            let seats = &self.seats[node];
            let pipe = PipeId(first + pair);
            stage.spawn(
                seats.cpu(writer),
                Box::new(move |actor| {
                    let mut sit = sitter(actor, seats, writer);
                    let mut at = actor.now();
                    for _ in 0..buffers {
                        at += actor.random_exponential(self.gap);
                        actor.sleep_until(at);
                        sit(actor);
                        let o = if actor.random(1000) < ORDER_2 { 2 } else { 3 };
                        actor.think(REQUEST);
                        let Some(block) = actor.alloc(order(o), gfp(flags::BUFFER)) else {
                            continue;
                        };
                        actor.touch(block, bytes_of(block.1));
                        actor.send(pipe, vec![block]);
                    }
                    actor.close(pipe);
                }),
            );
            stage.spawn(
                seats.cpu(reader),
                Box::new(move |actor| {
                    let mut sit = sitter(actor, seats, reader);
                    while let Some(parcel) = actor.receive(pipe) {
                        sit(actor);
                        for block in parcel {
                            actor.think(REQUEST);
                            actor.touch(block, bytes_of(block.1));
                            actor.free(block);
                            actor.done(1);
                        }
                    }
                }),
            );
        }
    }
}

impl Plan for Memcached {
    fn pipes(&self) -> Vec<usize> {
        vec![DEPTH; 2 * self.pairs]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.warm, 0);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.each, self.pairs);
    }
}
