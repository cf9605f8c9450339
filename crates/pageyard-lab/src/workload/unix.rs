//! bw_unix of lmbench (spec A.4): pairs of a writer and a reader on a UNIX socket.
//!
//! A write of 64 KiB becomes two buffers (derived there from the code): one whose paged part is a
//! block of order 3, and one of 28,992 bytes whose seven pages are blocks of order 2, 1 and 0. The
//! small linear parts are slab. The writer allocates and fills them. The reader, on another CPU,
//! reads and frees them in order. At most five buffers wait (stated). Pairs stay on their CPUs: on
//! all nodes in turn, or on one node, whose zone they share then. Where the published ones were is not
//! known. The other costs of a buffer are derived ([`costs`](super::costs)).

use super::actor::{PipeId, Plan, Stage};
use super::costs::UNIX;
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::socket::{CPUS, Nodes, bytes_of};
use crate::hygiene::build::{flags, gfp, order};

/// Maximum number of buffers that wait for the reader (stated).
const DEPTH: usize = 5;
/// The blocks of the two buffers, and the number of bytes in them (derived).
const BUFFERS: [(&[u8], u64); 2] = [(&[3], 32 << 10), (&[2, 1, 0], 7 << 12)];

pub(super) const RECIPE: Recipe = Recipe {
    name: "unix",
    summary: "lmbench bw_unix: writes of 64 KiB, blocks of orders 0 to 3, freed on another CPU",
    params: &[
        param("pairs", "16", "writers, each with a reader"),
        CPUS,
        param("writes", "20000", "writes per writer, after a fifth as many for warm-up"),
    ],
    score: Score::Rate("writes/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let nodes = Nodes::parse(params, site)?;
    let pairs = params.number("pairs", 1..=nodes.most_pairs())? as usize;
    let writes = params.number("writes", 1..=1 << 32)?;
    let seats = nodes.seats();
    let cpus = (0..pairs).map(|pair| {
        let (node, writer, reader) = nodes.places(pair);
        (seats[node].cpu(writer), seats[node].cpu(reader))
    });
    Ok(vec![(String::new(), Box::new(Unix { cpus: cpus.collect(), writes }))])
}

#[derive(Debug)]
struct Unix {
    cpus: Vec<(pageyard::CpuId, pageyard::CpuId)>,
    writes: u64,
}

impl Unix {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, writes: u64, first: usize) {
        for (pair, &(writer, reader)) in self.cpus.iter().enumerate() {
            let pipe = PipeId(first + pair);
            stage.spawn(
                writer,
                Box::new(move |actor| {
                    for (orders, bytes) in (0..writes).flat_map(|_| BUFFERS) {
                        actor.think(UNIX);
                        let mut parcel = Vec::with_capacity(orders.len());
                        let mut left = bytes;
                        for &o in orders {
                            let Some(block) = actor.alloc(order(o), gfp(flags::BUFFER)) else {
                                continue;
                            };
                            let part = left.min(bytes_of(block.1));
                            actor.touch(block, part);
                            left -= part;
                            parcel.push(block);
                        }
                        actor.send(pipe, parcel);
                    }
                    actor.close(pipe);
                }),
            );
            stage.spawn(
                reader,
                Box::new(move |actor| {
                    let mut buffers = 0;
                    while let Some(parcel) = actor.receive(pipe) {
                        actor.think(UNIX);
                        for block in parcel {
                            actor.touch(block, bytes_of(block.1));
                            actor.free(block);
                        }
                        buffers += 1;
                        actor.done(u64::from(buffers % BUFFERS.len() == 0));
                    }
                }),
            );
        }
    }
}

impl Plan for Unix {
    fn pipes(&self) -> Vec<usize> {
        vec![DEPTH; 2 * self.cpus.len()]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.writes.div_ceil(5), 0);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.writes, self.cpus.len());
    }
}
