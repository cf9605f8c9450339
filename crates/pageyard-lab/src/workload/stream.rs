//! One TCP stream over loopback whose two ends share a CPU, like iperf3 with one client.
//!
//! The sender fills the socket's window with fragments, blocks of order 3 (stated for TCP). The
//! receiver, which it wakes and which runs on the same CPU, then reads and frees them; and so on.
//! One CPU therefore allocates and frees the same bursts repeatedly. A rule for CPUs that mostly
//! free may mistake it for such a CPU. The size of a window is assumed: 1 MiB, between iperf3's
//! write of 128 KiB and the 4 to 6 MiB up to which the kernel lets socket buffers grow. It decides
//! which rules apply to the stream, so it is a parameter. The cost of a fragment other than copying
//! is assumed to be that of a write to a UNIX socket.

use pageyard::CpuId;

use super::actor::{Plan, Stage};
use super::costs::UNIX;
use super::error::WorkloadError;
use super::params::{Params, param};
use super::recipe::{Point, Recipe, Score, Site};
use super::sctp::BUFFER;
use super::unix::bytes_of;
use crate::hygiene::build::{gfp, order};

/// Size of a fragment in KiB.
const FRAGMENT: u64 = 32;
/// Passing control to the other end on the same CPU: a task switch (assumed: lmbench, 1 to 2 us).
const SWITCH: u64 = 1_200;

pub(super) const RECIPE: Recipe = Recipe {
    name: "stream",
    summary: "one TCP stream with both ends on one CPU: bursts of order 3, allocated and freed",
    params: &[
        param(
            "window",
            "1024",
            "window: maximum KiB in flight, in fragments of 32; comma-separated \
             for several points",
        ),
        param("mib", "4096", "MiB sent, after a fifth as many for warm-up"),
    ],
    score: Score::Rate("MiB/s"),
    plan,
};

fn plan(params: &Params, _: &Site) -> Result<Vec<Point>, WorkloadError> {
    let windows = params.list("window", FRAGMENT..=64 << 10, 64 << 10)?;
    let mib = params.number("mib", 1..=1 << 30)?;
    let label = |w: u64| if windows.len() > 1 { w.to_string() } else { String::new() };
    Ok(windows
        .iter()
        .map(|&w| (label(w), Box::new(Stream { window: w / FRAGMENT, mib }) as Box<dyn Plan>))
        .collect())
}

#[derive(Debug)]
struct Stream {
    /// Window size in fragments.
    window: u64,
    mib: u64,
}

impl Stream {
    fn spawn<'env>(&'env self, stage: &dyn Stage<'env>, mib: u64) {
        stage.spawn(
            CpuId(0),
            Box::new(move |actor| {
                let mut left = (mib << 10) / FRAGMENT;
                while left > 0 {
                    let burst = self.window.min(left);
                    let mut sent = Vec::with_capacity(burst as usize);
                    for _ in 0..burst {
                        actor.think(UNIX);
                        let Some(block) = actor.alloc(order(3), gfp(BUFFER)) else { continue };
                        actor.touch(block, bytes_of(order(3)));
                        sent.push(block);
                    }
                    actor.think(SWITCH);
                    for block in sent {
                        actor.think(UNIX);
                        actor.touch(block, bytes_of(order(3)));
                        actor.free(block);
                    }
                    actor.think(SWITCH);
                    left -= burst;
                }
                actor.done(mib);
            }),
        );
    }
}

impl Plan for Stream {
    fn setup<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.mib.div_ceil(5));
    }

    fn run<'env>(&'env self, stage: &dyn Stage<'env>) {
        self.spawn(stage, self.mib);
    }
}
