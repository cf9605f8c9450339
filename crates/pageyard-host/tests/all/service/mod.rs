//! A yard's work besides requests: idle memory is returned to the system, shrinkers and relocators
//! are called, limits hold, pressure is reported. Tests wait for states, for at most a minute.

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

/// Waits until the condition holds. Returns whether it did within a minute.
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

/// A yard that lives as long as the process, for shrinkers that keep its blocks.
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
