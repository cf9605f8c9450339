//! SCTP_STREAM_MANY of netperf (spec A.4): pairs of a sender and a receiver on loopback.
//!
//! A message of 10 KiB becomes a chunk with a buffer of its own: a block of order 2 (derived there from
//! the code). The sender allocates and fills it. When the receiver has room, chunks are copied into
//! packets, at most six into each: one packet of 60 KiB is a block of order 4. The receiver, on another
//! CPU, reads packets and frees them. Chunks live until the packets are acknowledged, and are freed on
//! the sender's CPU. Measured (Linux 6.1.192 in QEMU, two CPUs, 1,000 messages): a chunk each, .29
//! packets each, of which .12 were of order 4; 94% of the chunks were freed on the sender's CPU, in
//! bursts of 7 to 9; the median lived until ten more were there. So the unit here is seven messages, a
//! packet of six and one of one: as many packets.
//!
//! Small objects of the message come from slabs and do not reach the page allocator. The scheduler
//! moves each task to another CPU of the pair's node after 10 to 100 ms (stated).
//!
//! The other costs of a message are a parameter, `work`, by default 3.7 us for each end. Derived: without
//! copying, zeroing and page allocator the kernel takes 5,300 instructions to send a message and 7,600
//! to receive it, and 5,500 each over TCP (counted: Linux 6.1.192 in QEMU, one CPU, instructions
//! counted by the clock). TCP's take .57 ns each (measured: 4.4 and 3.3 us of CPU time on two CPUs of an
//! Intel Xeon, Linux 6.18, which has no SCTP, less 1.4 us that the machine model has for the
//! copies). Assumed: SCTP's take as long.

use super::actor::{Actor, Block, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::Seats;
use super::socket::{CPUS, Nodes, bytes_of, sitter};
use crate::hygiene::build::{flags, gfp, order};

use pageyard::Order;

/// Bytes of a message (stated).
const MESSAGE: u64 = 10 << 10;
/// Messages for which the receiver announces room together (measured: bursts of 7 to 9). Seven are the
/// fewest that exceed the MTU of loopback, 65,536 bytes.
const ROOM: usize = 7;
/// Most chunks in a packet: as many as fit into that MTU (measured, too).
const PACKET: usize = 6;
/// Maximum number of packets that wait for their receiver: those of [`ROOM`] messages. It is reading
/// others. Derived: 10 messages fit into half of a receive buffer of 212,992 bytes.
const DEPTH: usize = ROOM.div_ceil(PACKET);
pub(super) const RECIPE: Recipe = Recipe {
    name: "sctp",
    summary: "netperf SCTP_STREAM_MANY: chunks of order 2, freed when acknowledged, and packets \
              freed on another CPU",
    params: &[
        param("pairs", "64", "senders, each with a receiver"),
        CPUS,
        param(
            "work",
            "3700",
            "a send or a receive of a message without copying and allocating, in ns",
        ),
        param(
            "messages",
            "20000",
            "messages per sender, rounded up to sevens, after a fifth as many for warm-up",
        ),
    ],
    score: Score::Rate("messages/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let nodes = Nodes::parse(params, site)?;
    let pairs = params.number("pairs", 1..=nodes.most_pairs())? as usize;
    let work = params.number("work", 0..=1 << 40)?;
    let messages = params.number("messages", 1..=1 << 32)?;
    let seats = nodes.seats();
    Ok(vec![(String::new(), Box::new(Sctp { nodes, seats, pairs, work, messages }))])
}

/// Sends chunks in one packet, a copy of them.
fn transmit(actor: &dyn Actor<'_>, pipe: PipeId, chunks: &[Block]) {
    let size = (0..).map(order).find(|&size| messages_in(size) >= chunks.len() as u64);
    let Some(packet) = size.and_then(|size| actor.alloc(size, gfp(flags::BUFFER))) else { return };
    chunks.iter().for_each(|&chunk| actor.touch(chunk, MESSAGE));
    actor.touch(packet, MESSAGE * chunks.len() as u64);
    actor.send(pipe, vec![packet]);
}

/// Returns the number of messages in a packet whose buffer has this order.
fn messages_in(size: Order) -> u64 {
    bytes_of(size) / MESSAGE
}

#[derive(Debug)]
struct Sctp {
    nodes: Nodes,
    seats: Vec<Seats>,
    pairs: usize,
    work: u64,
    messages: u64,
}

impl Sctp {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, messages: u64, first: usize) {
        let messages = messages.next_multiple_of(ROOM as u64);
        for pair in 0..self.pairs {
            let (node, sender, receiver) = self.nodes.places(pair);
            let seats = &self.seats[node];
            let pipe = PipeId(first + pair);
            stage.spawn(
                seats.cpu(sender),
                Box::new(move |actor| {
                    let mut sit = sitter(actor, seats, sender);
                    let mut chunks = Vec::with_capacity(ROOM);
                    for n in 1..=messages as usize {
                        sit(actor);
                        actor.think(self.work);
                        if let Some(chunk) = actor.alloc(order(2), gfp(flags::BUFFER)) {
                            actor.touch(chunk, MESSAGE);
                            chunks.push(chunk);
                        }
                        if n.is_multiple_of(ROOM) {
                            chunks.chunks(PACKET).for_each(|part| transmit(actor, pipe, part));
                            // The last packet is acknowledged before the sender goes on.
                            chunks.drain(..).for_each(|chunk| actor.free(chunk));
                        }
                    }
                    actor.close(pipe);
                }),
            );
            stage.spawn(
                seats.cpu(receiver),
                Box::new(move |actor| {
                    let mut sit = sitter(actor, seats, receiver);
                    while let Some(parcel) = actor.receive(pipe) {
                        sit(actor);
                        for (packet, size) in parcel {
                            let messages = messages_in(size);
                            actor.think(self.work * messages);
                            actor.touch((packet, size), MESSAGE * messages);
                            actor.free((packet, size));
                            actor.done(messages);
                        }
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
