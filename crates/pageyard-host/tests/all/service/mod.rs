//! The work of a yard beside requests: memory goes back when it is idle, shrinkers and relocators are
//! called, limits hold, pressure is reported. Tests that wait do so for a state, for a minute at most.

mod group;
mod idle;
mod movable;
mod sections;
mod shrinkers;
mod system;
mod worker;

use std::time::{Duration, Instant};

use pageyard::{Gfp, Order};
use pageyard_host::{Block, Builder, HostYard, HugePages, SystemFiles};

const MIB: u64 = 1 << 20;
const QUIET: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);

fn order(n: u8) -> Order {
    Order::new(n).unwrap()
}

fn builder(size: u64) -> Builder {
    Builder::new(size).huge_pages(HugePages::Never).system(SystemFiles::none())
}

/// Until it holds; whether it did within a minute.
fn until(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// A yard that lives as long as the process, as shrinkers that keep its blocks want it.
fn forever(builder: Builder) -> &'static HostYard {
    Box::leak(Box::new(builder.build().unwrap()))
}

fn fill(yard: &HostYard, pages: u64) -> Vec<Block<'_>> {
    let one = |_| {
        let mut block = yard.alloc(order(0), QUIET).unwrap();
        block[0] = 1;
        block
    };
    (0..pages).map(one).collect()
}
