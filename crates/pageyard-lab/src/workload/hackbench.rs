//! hackbench: groups of 20 senders and 20 receivers over pipes. Each sender writes 100 bytes to
//! each receiver, 100 times (stated).
//!
//! A parent forks the group's 40 processes, which exit when all messages are delivered: a burst of
//! allocations on one CPU, then a burst of frees on forty. A pipe holds 16 pages (stated). Writes
//! that fit into the last page are merged into it, so a message needs a new page one time in
//! `merge` (assumed). A process is one of the small ones of [`process`](super::process), with 30
//! pages (measured).

use std::sync::Mutex;

use pageyard::{CpuId, Order};

use super::actor::{Actor, PipeId, Plan, Stage};
use super::error::WorkloadError;
use super::params::{Params, param};
use super::process::{Memory, Process};
use super::recipe::{Point, Recipe, Score, Site};
use super::seats::lock;
use crate::hygiene::build::{flags, gfp};

/// Senders of a group; also the number of receivers (stated).
const HALF: usize = 20;
/// Maximum number of pages in a pipe (stated).
const DEPTH: usize = 16;
/// Bytes of a message (stated).
const MESSAGE: u64 = 100;
/// A write or a read of a message. Assumed: a system call.
const CALL: u64 = 400;
/// Anonymous pages of a process (measured in `6.12-build`: the median of small processes).
const PAGES: usize = 30;

pub(super) const RECIPE: Recipe = Recipe {
    name: "hackbench",
    summary: "groups of 20 senders and 20 receivers: bursts of forks and exits, pipes in between",
    params: &[
        param("groups", "8", "groups of 40 processes"),
        param("loops", "100", "messages from each sender to each receiver"),
        param("merge", "16", "messages per page of a pipe"),
    ],
    score: Score::Time,
    plan,
};

fn plan(params: &Params, site: &Site) -> Result<Vec<Point>, WorkloadError> {
    let groups = params.number("groups", 1..=10_000)? as usize;
    let loops = params.number("loops", 1..=1 << 20)?;
    let merge = params.number("merge", 1..=40)?;
    let senders = (0..groups).map(|_| Mutex::new(HALF)).collect();
    let cpus = site.cpus.len();
    Ok(vec![(String::new(), Box::new(Hackbench { cpus, groups, loops, merge, senders }))])
}

#[derive(Debug)]
struct Hackbench {
    cpus: usize,
    groups: usize,
    loops: u64,
    merge: u64,
    /// Senders of each group that are not done.
    senders: Vec<Mutex<usize>>,
}

impl Hackbench {
    fn send(&self, actor: &dyn Actor<'_>, group: usize, sender: usize) {
        let pipes = (group * HALF..).take(HALF).map(PipeId);
        for n in 0..self.loops {
            let takes_page = (n + sender as u64).is_multiple_of(self.merge);
            for pipe in pipes.clone() {
                actor.think(CALL);
                if !takes_page {
                    continue;
                }
                if let Some(page) = actor.alloc(Order::ZERO, gfp(flags::SLAB)) {
                    actor.touch(page, MESSAGE * self.merge);
                    actor.send(pipe, vec![page]);
                }
            }
        }
        actor.sync();
        let last = {
            let mut left = lock(&self.senders[group]);
            *left -= 1;
            *left == 0
        };
        if last {
            pipes.for_each(|pipe| actor.close(pipe));
        }
    }

    fn receive(&self, actor: &dyn Actor<'_>, group: usize, receiver: usize) {
        while let Some(parcel) = actor.receive(PipeId(group * HALF + receiver)) {
            for page in parcel {
                actor.think(CALL * self.merge);
                actor.touch(page, MESSAGE * self.merge);
                actor.free(page);
                actor.done(self.merge);
            }
        }
    }
}

impl Plan for Hackbench {
    fn pipes(&self) -> Vec<usize> {
        vec![DEPTH; self.groups * HALF]
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        for group in 0..self.groups {
            let cpu = move |child| CpuId(((group * 2 * HALF + child) % self.cpus) as u32);
            stage.spawn(
                cpu(0),
                Box::new(move |actor| {
                    for child in 0..2 * HALF {
                        let mut process = Process::fork(actor, Memory::Local);
                        let job = move |actor: &dyn Actor<'env>| {
                            (0..PAGES).for_each(|_| process.fault(actor));
                            if child < HALF {
                                self.send(actor, group, child);
                            } else {
                                self.receive(actor, group, child - HALF);
                            }
                            process.exit(actor, |_| {});
                        };
                        actor.spawn(cpu(child), Box::new(job));
                    }
                }),
            );
        }
    }
}
