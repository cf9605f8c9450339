//! The workloads beside the builds: a cache server that holds much of memory and uses the network,
//! and a prober that repeatedly requests huge pages.

use std::collections::VecDeque;

use pageyard::Order;

use super::blocks::Block;
use super::build::{flags, gfp, order};
use super::heap::Heap;
use super::options::Options;
use crate::record::Sink;
use crate::rng::Rng;

/// The cache server: a resident set of which a small part is continuously replaced at random.
pub(super) struct Server {
    rng: Rng,
    pages: Vec<Option<Block>>,
    due: f64,
}

impl Server {
    /// The share of memory that is its resident set (assumed).
    pub(super) const SHARE: f64 = 0.40;
    /// The part of the set that is replaced per second: 2% a minute (assumed).
    const REPLACED: f64 = 0.02 / 60.0;

    pub(super) fn new(seed: u64) -> Server {
        Server { rng: Rng::new(seed ^ 0x5e7), pages: Vec::new(), due: 0.0 }
    }

    /// Allocates the resident set, on all CPUs in turn.
    pub(super) fn start<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, pages: usize) {
        for i in 0..pages {
            heap.host.run_on((i / 64) as u32 % heap.cpus);
            self.pages.push(heap.request(Order::ZERO, gfp(flags::ANON)));
        }
    }

    /// Runs one second of replacements.
    pub(super) fn second<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>) {
        self.due += self.pages.len() as f64 * Self::REPLACED;
        while self.due >= 1.0 {
            self.due -= 1.0;
            let at = self.rng.below(self.pages.len());
            heap.host.run_on(self.rng.below(heap.cpus as usize) as u32);
            if let Some(page) = self.pages[at].take() {
                heap.free(page);
            }
            self.pages[at] = heap.request(Order::ZERO, gfp(flags::ANON));
        }
    }
}

/// The server's network: buffers that one CPU fills and another frees, first in, first out.
pub(super) struct Network {
    rng: Rng,
    pairs: Vec<Pair>,
    due: f64,
}

struct Pair {
    from: u32,
    to: u32,
    /// The maximum number of waiting blocks in this second.
    depth: usize,
    queue: VecDeque<Block>,
}

impl Network {
    /// Buffers per second and CPU: a published measurement of memcached counted 3,100 a second on 8 CPUs.
    const RATE: f64 = 3100.0 / 8.0;
    /// The share of blocks of order 2; the others are of order 3 (in that measurement 60.7 to 39.1).
    const ORDER_2: f64 = 0.608;
    /// Pairs of a writer and a reader.
    const PAIRS: usize = 4;
    /// Maximum number of blocks that wait for their reader: 17 per connection, from the size
    /// of a socket's buffer; a pair represents five connections (assumed).
    const DEPTH: usize = 5 * 17;

    pub(super) fn new(seed: u64) -> Network {
        let pair = || Pair { from: 0, to: 0, depth: 0, queue: VecDeque::new() };
        Network {
            rng: Rng::new(seed ^ 0x4e7),
            pairs: std::iter::repeat_with(pair).take(Self::PAIRS).collect(),
            due: 0.0,
        }
    }

    /// Begins a second: moves the readers and writers, as the scheduler would.
    pub(super) fn second(&mut self, cpus: u32) {
        for pair in &mut self.pairs {
            pair.from = self.rng.below(cpus as usize) as u32;
            pair.to = self.rng.below(cpus as usize) as u32;
            pair.depth = self.rng.below(Self::DEPTH);
        }
    }

    /// Runs for this part of a second.
    pub(super) fn run<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, seconds: f64) {
        self.due += Self::RATE * f64::from(heap.cpus) * seconds;
        while self.due >= 1.0 {
            self.due -= 1.0;
            let pair = &mut self.pairs[self.rng.below(Self::PAIRS)];
            let o = order(if self.rng.happens(Self::ORDER_2) { 2 } else { 3 });
            heap.host.run_on(pair.from);
            pair.queue.extend(heap.request(o, gfp(flags::BUFFER)));
            while pair.queue.len() > pair.depth
                && let Some(block) = pair.queue.pop_front()
            {
                heap.host.run_on(pair.to);
                heap.free(block);
            }
        }
    }
}

/// Requests many huge pages at once, holds them for a while, and frees them. If a request fails,
/// allocates small pages instead (assumed: the published load's parameters are not public).
pub(super) struct Prober {
    rng: Rng,
    /// This machine's memory relative to the recipe's.
    scale: f64,
    /// Seconds for which huge pages are held.
    held_for: u64,
    held: Vec<Block>,
    /// Huge pages allocated, and requests that failed.
    pub(super) got: u64,
    pub(super) missed: u64,
}

impl Prober {
    /// Seconds between two bursts, and number of huge pages in a burst (assumed; the published rounds
    /// requested 2,168 every ten seconds, A.3).
    pub(super) const PERIOD: u64 = 10;
    const BURST: (f64, f64) = (500.0, 2000.0);

    pub(super) fn new(options: &Options) -> Prober {
        Prober {
            rng: Rng::new(options.seed ^ 0x7b9),
            scale: options.memory as f64 / options.assumed.machine as f64,
            held_for: options.assumed.held,
            held: Vec::new(),
            got: 0,
            missed: 0,
        }
    }

    /// Begins the second with this number.
    pub(super) fn second<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, number: u64) {
        if number % Self::PERIOD == self.held_for {
            heap.free_all(&std::mem::take(&mut self.held));
        }
        if !number.is_multiple_of(Self::PERIOD) {
            return;
        }
        let (least, most) = Self::BURST;
        let wanted = (least + (most - least) * self.rng.unit()) * self.scale;
        let cpu = self.rng.below(heap.cpus as usize) as u32;
        for _ in 0..wanted.ceil() as u64 {
            heap.host.run_on(cpu);
            if let Some(block) = heap.request(order(9), gfp(flags::HUGE)) {
                self.got += 1;
                self.held.push(block);
                continue;
            }
            self.missed += 1;
            for i in 0..512 {
                // Background reclaim runs concurrently.
                if i % 32 == 0 {
                    heap.background();
                    heap.host.run_on(cpu);
                }
                self.held.extend(heap.request(Order::ZERO, gfp(flags::ANON)));
            }
        }
    }
}
