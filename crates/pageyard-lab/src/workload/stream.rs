//! TCP streams as of iperf3: each sends fragments, blocks of order 3 (stated for TCP).
//!
//! The sender fills the socket's window, then waits. A writer is woken when a third of its window is
//! free (the kernel's rule). Fragments are freed on the CPU of the acknowledgement, in the order in
//! which they were sent:
//!
//! - With a card (`card`, in Gbit/s) the other end is another machine. All streams share the card's
//!   wire. A fragment is freed a round trip after it has left.
//! - Without one the other end is on this machine, and frees a fragment when it has read it.
//!
//! With `ack=same` that CPU is the sender's: a wake-up pulls the task to the interrupt's CPU, or both
//! ends share one. So this CPU allocates and frees the same bursts repeatedly, and a rule for CPUs
//! that mostly free may mistake it for such a CPU. With `ack=node0` it is a CPU of the card's node,
//! one for each stream, which only frees. Senders are on the cores of all nodes in turn.
//!
//! The window is assumed: 1 MiB, between iperf3's write of 128 KiB and the 4 to 6 MiB up to which the
//! kernel lets socket buffers grow. It decides which rules apply to the stream, so it is a parameter.
//! The cost of a fragment other than copying is assumed to be that of a write to a UNIX socket, and
//! the cost of an acknowledgement a quarter of it.

use std::collections::VecDeque;
use std::sync::Mutex;

use pageyard::{CpuId, NodeId};

use super::actor::{Actor, PipeId, Plan, Stage};
use super::costs::UNIX;
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use super::socket::bytes_of;
use crate::hygiene::build::{flags, gfp, order};

/// Size of a fragment in KiB.
const FRAGMENT: u64 = 32;
/// Fragments in a MiB.
const MIB: u64 = 1024 / FRAGMENT;
/// From a fragment's last byte on the wire until its acknowledgement arrives, in nanoseconds.
/// Assumed: two interrupts and two passes through the network stacks.
const ROUND_TRIP: u64 = 20_000;

pub(super) const RECIPE: Recipe = Recipe {
    name: "stream",
    summary: "TCP streams: bursts of order 3, freed on the CPU of the acknowledgement",
    params: &[
        param("streams", "1", "senders, each with its stream; comma-separated for several points"),
        param(
            "window",
            "1024",
            "window: maximum KiB in flight, in fragments of 32; comma-separated \
             for several points",
        ),
        param(
            "card",
            "0",
            "Gbit/s of the network card that all streams share; 0: both ends on this machine",
        ),
        param(
            "ack",
            "same",
            "CPU on which a fragment is freed: same, the sender's, or node0, another one, of node 0",
        ),
        param("mib", "4096", "MiB sent by each sender, after a fifth as many for warm-up"),
    ],
    score: Score::Rate("MiB/s"),
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let mut senders: Vec<CpuId> = (0..).take(site.cpus.len()).map(CpuId).collect();
    let cores = site.spread(&mut senders);
    let mut acks = site.cpus_of(NodeId(0));
    let on_node = site.spread(&mut acks);
    // The last cores: senders are on the first ones.
    acks[..on_node].reverse();

    let streams = params.list("streams", 1..=cores as u64, cores as u64)?;
    let windows = params.list("window", FRAGMENT..=64 << 10, 64 << 10)?;
    let card = params.number("card", 0..=1 << 20)?;
    let same = params.choice("ack", &["same", "node0"])? == 0;
    let mib = params.number("mib", 1..=1 << 30)?;
    let mut points = Vec::new();
    for &streams in &streams {
        for &window in &windows {
            let cpus = senders.iter().zip(acks.iter().cycle());
            let cpus = cpus.map(|(&from, &ack)| (from, if same { from } else { ack }));
            let label = [(streams, params.is_list("streams")), (window, params.is_list("window"))];
            let label = label.iter().filter(|l| l.1).map(|l| l.0.to_string());
            let plan = Streams {
                cpus: cpus.take(streams as usize).collect(),
                window: window / FRAGMENT,
                card,
                mib,
                due: (0..streams).map(|_| Mutex::default()).collect(),
                wire: Mutex::default(),
            };
            points.push((label.collect::<Vec<_>>().join("-"), Box::new(plan) as Box<dyn Plan>));
        }
    }
    Ok(points)
}

#[derive(Debug)]
struct Streams {
    /// For each stream the CPU of its sender and that of the acknowledgements.
    cpus: Vec<(CpuId, CpuId)>,
    /// Window size in fragments.
    window: u64,
    card: u64,
    mib: u64,
    /// When each stream's fragments in flight are acknowledged.
    due: Vec<Mutex<VecDeque<u64>>>,
    /// When the card's wire is free.
    wire: Mutex<u64>,
}

impl Streams {
    /// Fragments for which a sender waits before it goes on.
    fn third(&self) -> u64 {
        (self.window / 3).max(1)
    }

    /// Puts a fragment on the wire, behind those of all streams.
    fn transmit(&self, actor: &dyn Actor<'_>, stream: usize) {
        let Some(takes) = (FRAGMENT << 13).checked_div(self.card) else { return };
        actor.sync();
        let mut wire = lock(&self.wire);
        *wire = actor.now().max(*wire) + takes;
        lock(&self.due[stream]).push_back(*wire + ROUND_TRIP);
    }

    fn send(&self, actor: &dyn Actor<'_>, stream: usize, mib: u64, pipes: [PipeId; 2]) {
        let [fragments, space] = pipes;
        let mut room = self.window;
        for _ in 0..mib * MIB {
            if room == 0 {
                actor.receive(space);
                room = self.third();
            }
            actor.think(UNIX);
            let Some(block) = actor.alloc(order(3), gfp(flags::BUFFER)) else { continue };
            actor.touch(block, bytes_of(block.1));
            self.transmit(actor, stream);
            room -= 1;
            actor.send(fragments, vec![block]);
        }
        actor.close(fragments);
    }

    fn acknowledge(&self, actor: &dyn Actor<'_>, stream: usize, pipes: [PipeId; 2]) {
        let [fragments, space] = pipes;
        for n in 1.. {
            let Some(parcel) = actor.receive(fragments) else { break };
            let due = lock(&self.due[stream]).pop_front();
            due.inspect(|&due| actor.sleep_until(due));
            for block in parcel {
                if due.is_some() {
                    actor.think(UNIX / 4);
                } else {
                    actor.think(UNIX);
                    actor.touch(block, bytes_of(block.1));
                }
                actor.free(block);
            }
            if n % self.third() == 0 {
                actor.send(space, Vec::new());
            }
            actor.done(u64::from(n % MIB == 0));
        }
    }

    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, mib: u64, first: usize) {
        for (stream, &(sender, ack)) in self.cpus.iter().enumerate() {
            let pipes = [first + 2 * stream, first + 2 * stream + 1].map(PipeId);
            stage.spawn(sender, Box::new(move |actor| self.send(actor, stream, mib, pipes)));
            stage.spawn(ack, Box::new(move |actor| self.acknowledge(actor, stream, pipes)));
        }
    }
}

impl Plan for Streams {
    /// Of each stream the fragments in flight and the news of free space, which the sender does not
    /// await at its end.
    fn pipes(&self) -> Vec<usize> {
        vec![self.window as usize + 1; 4 * self.cpus.len()]
    }

    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.mib.div_ceil(5), 0);
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.mib, 2 * self.cpus.len());
    }
}
