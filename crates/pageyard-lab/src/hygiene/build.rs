//! A kernel build as the allocator sees it: short processes, one per CPU, that fault in memory,
//! read and write files, leave some slab behind, and free everything else at once when they exit.
//!
//! *Measured* below means counted in the recording `6.12-build` (two builds of two C projects each,
//! `make -j4`): 593 processes, 358,771 requests.

use pageyard::{Gfp, Order};

use super::blocks::Block;
use super::heap::Heap;
use super::options::Options;
use crate::record::Sink;
use crate::rng::Rng;

/// Processes of one kind. A round runs all of them: the recording is one round.
pub(crate) struct Class {
    /// Number of processes per round (measured).
    count: u32,
    /// Number of anonymous pages at the 10th, 50th and 90th percentile and at the maximum
    /// (measured).
    pub(crate) pages: [f64; 4],
    /// Pages of page cache that a process adds (measured, mean).
    pub(crate) files: f64,
}

pub(crate) const CLASSES: [Class; 5] = [
    // cc1
    Class { count: 124, pages: [925.0, 1835.0, 3430.0, 9925.0], files: 59.5 },
    // as
    Class { count: 122, pages: [199.0, 242.0, 350.0, 403.0], files: 7.5 },
    // gcc
    Class { count: 134, pages: [40.0, 41.0, 48.0, 57.0], files: 2.3 },
    // ld
    Class { count: 10, pages: [1644.0, 1820.0, 2967.0, 2967.0], files: 67.5 },
    // cat, tee, sed, configure, collect2, make, cp, rm and similar programs
    Class { count: 203, pages: [8.0, 30.0, 62.0, 505.0], files: 26.1 },
];

/// Page tables of a process: `TABLES`, plus one per `PAGES_PER_TABLE` pages. Derived from a
/// straight line through cc1, as and gcc of the recording, which it matches within one table.
pub(crate) const TABLES: usize = 14;
pub(crate) const PAGES_PER_TABLE: usize = 55;
/// Pages of a kernel stack: a bulk request, which has no event (docs/replay.md).
pub(crate) const STACK: usize = 4;
/// The share of anonymous pages that were copied on write (measured: 27,475 of 327,981).
pub(crate) const COPIED: f64 = 0.084;
/// The share of file pages that were written, not read (measured: 3,940 of 14,569). Of these, the
/// share whose file is removed at the end of the round (measured: 2,456 of 3,940).
pub(crate) const WRITTEN: f64 = 0.27;
const TEMPORARY: f64 = 0.62;
/// Factor by which file pages are scaled. Derived from A.3: the published builds, without and with
/// the patches, reclaimed 196,935 and 292,237 pages each in a steady state, so as many were added.
/// The recorded builds, of small C projects, add 14,569.
const FILE_SCALE: f64 = (196_935.0 + 292_237.0) / 2.0 / 14_569.0;
/// Slab pages per process: unmovable (measured: 384 in 593) and reclaimable (237 in 593).
pub(crate) const SLABS: f64 = 0.65;
pub(crate) const RECLAIMABLE_SLABS: f64 = 0.40;
/// Factor by which unmovable slab pages are scaled. Assumed, as
/// [`Assumed::slab_scale`](super::options::Assumed) for the reclaimable ones.
const SLAB_SCALE: f64 = 10.0;
/// Mean lifetime of an unmovable slab page in rounds. Assumed, together with the scale factors:
/// most of that memory is allocated and freed with processes.
const SLAB_ROUNDS: f64 = 0.05;
/// Probability that a process moves to another CPU before a slice. Builds are stated to do 5% of
/// their work elsewhere; in the recording 8% of the pages are freed on another CPU.
const MIGRATES: f64 = 0.002;
/// Pages that an exiting process gathers before it frees them (assumed). Each gathering needs one page
/// of its own as a list (measured: 3,256 short-lived pages, one per 100 of the others).
pub(crate) const GATHER: usize = 500;

pub(crate) fn gfp(bits: u32) -> Gfp {
    Gfp::from_bits_retain(bits)
}

/// The flags of the recordings, as numbers: the core passes the kernel's own bits through. Of
/// `6.12-build` unless noted.
pub(crate) mod flags {
    pub(crate) const ANON: u32 = 0x140dca;
    pub(crate) const COPY: u32 = 0x140cca;
    pub(crate) const TABLE: u32 = 0x440dc0;
    pub(crate) const PGD: u32 = 0x400dc0;
    pub(crate) const GATHER: u32 = 0x2800;
    pub(crate) const READ: u32 = 0x152c4a;
    pub(crate) const WRITE: u32 = 0x141cca;
    pub(crate) const SLAB: u32 = 0x52cc0;
    pub(crate) const RECLAIMABLE: u32 = 0x52cd0;
    /// A socket buffer (`6.12-unix`).
    pub(crate) const BUFFER: u32 = 0x4428c0;
    /// A huge page (`6.12-frag`).
    pub(crate) const HUGE: u32 = 0x3d20ca;
}

/// Pages that a process maps at once: one slice of its run.
pub(super) const SLICE: usize = 32;

struct Process {
    cpu: u32,
    wanted: usize,
    mapped: usize,
    files: f64,
    files_due: f64,
    slabs: f64,
    slabs_due: f64,
    pages: Vec<Block>,
    /// Page tables, their root, and the kernel stack.
    kernel: Vec<Block>,
}

/// A slab page and when it is freed, in nanoseconds.
struct Slab {
    until: u64,
    block: Option<Block>,
}

/// The builds of consecutive rounds.
pub(super) struct Build {
    rng: Rng,
    /// Processes still to be started, by class.
    queue: Vec<u8>,
    /// The running process of each CPU.
    running: Vec<Option<Process>>,
    slabs: Vec<Slab>,
    /// Slab pages per process, and the share of them that is reclaimable.
    slabs_scaled: f64,
    reclaimable_part: f64,
    round_ns: f64,
}

impl Build {
    pub(super) fn new(options: &Options, round_ns: f64) -> Build {
        let mut running = Vec::new();
        running.resize_with(options.cpus as usize, || None);
        let reclaimable = RECLAIMABLE_SLABS * options.assumed.slab_scale;
        let slabs_scaled = SLABS * SLAB_SCALE + reclaimable;
        Build {
            rng: Rng::new(options.seed ^ 0xb01d),
            queue: Vec::new(),
            running,
            slabs: Vec::new(),
            slabs_scaled,
            reclaimable_part: reclaimable / slabs_scaled,
            round_ns,
        }
    }

    /// Removes the files of the previous build and queues a new one.
    pub(super) fn start<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>) {
        heap.host.run_on(0);
        heap.host.remove_temporary_files();
        for (class, c) in CLASSES.iter().enumerate() {
            self.queue.extend(std::iter::repeat_n(class as u8, c.count as usize));
        }
        self.rng.shuffle(&mut self.queue);
    }

    /// Whether all processes have exited.
    pub(super) fn is_done(&self) -> bool {
        self.queue.is_empty() && self.running.iter().all(Option::is_none)
    }

    /// Runs one slice on a CPU: a process starts, continues, or exits. Returns the number of pages
    /// mapped.
    pub(super) fn slice<O: Sink>(
        &mut self,
        heap: &mut Heap<'_, '_, '_, O>,
        cpu: u32,
        now: u64,
    ) -> usize {
        self.expire(heap, cpu, now);
        heap.host.run_on(cpu);
        let slot = cpu as usize;
        let Some(mut process) = self.running[slot].take() else {
            self.running[slot] = self.queue.pop().map(|class| self.fork(heap, class, cpu));
            return 0;
        };
        if self.rng.happens(MIGRATES) {
            process.cpu = self.rng.below(self.running.len()) as u32;
        }
        heap.host.run_on(process.cpu);
        if process.mapped >= process.wanted {
            exit(heap, &process);
            return 0;
        }
        let pages = SLICE.min(process.wanted - process.mapped);
        for _ in 0..pages {
            self.touch(heap, &mut process, now);
        }
        self.running[slot] = Some(process);
        pages
    }

    fn fork<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, class: u8, cpu: u32) -> Process {
        let class = &CLASSES[class as usize];
        let mut kernel = Vec::new();
        let mut take = |order, bits| {
            kernel.extend(heap.request(order, gfp(bits)));
        };
        take(order(1), flags::PGD);
        for _ in 0..STACK {
            take(Order::ZERO, flags::SLAB);
        }
        for _ in 0..TABLES {
            take(Order::ZERO, flags::TABLE);
        }
        Process {
            cpu,
            wanted: (quantile(&class.pages, self.rng.unit()) as usize).max(1),
            mapped: 0,
            files: FILE_SCALE * self.rng.exponential(class.files),
            files_due: 0.0,
            slabs: self.slabs_scaled,
            slabs_due: self.rng.unit(),
            pages: Vec::new(),
            kernel,
        }
    }

    /// Faults in one page of a process, along with the page tables, file pages and slab that it
    /// needs.
    fn touch<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, process: &mut Process, now: u64) {
        let bits = if self.rng.happens(COPIED) { flags::COPY } else { flags::ANON };
        process.pages.extend(heap.request(Order::ZERO, gfp(bits)));
        process.mapped += 1;
        if process.mapped.is_multiple_of(PAGES_PER_TABLE) {
            process.kernel.extend(heap.request(Order::ZERO, gfp(flags::TABLE)));
        }
        process.files_due += process.files / process.wanted as f64;
        while process.files_due >= 1.0 {
            process.files_due -= 1.0;
            self.file_page(heap);
        }
        process.slabs_due += process.slabs / process.wanted as f64;
        while process.slabs_due >= 1.0 {
            process.slabs_due -= 1.0;
            self.slab_page(heap, now);
        }
    }

    fn file_page<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>) {
        if !self.rng.happens(WRITTEN) {
            heap.file_page(gfp(flags::READ), false);
        } else {
            heap.file_page(gfp(flags::WRITE), self.rng.happens(TEMPORARY));
        }
    }

    /// Orders as measured: of 237 reclaimable slabs 34 were of order 3 and 23 of order 2; of 384
    /// other slabs 25 were of order 3.
    fn slab_page<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, now: u64) {
        let draw = self.rng.unit();
        if self.rng.happens(self.reclaimable_part) {
            let o = if draw < 0.14 {
                3
            } else if draw < 0.24 {
                2
            } else {
                0
            };
            heap.reclaimable_slab(order(o), gfp(flags::RECLAIMABLE));
        } else {
            let o = order(if draw < 0.065 { 3 } else { 0 });
            let life = self.rng.exponential(SLAB_ROUNDS * self.round_ns);
            let block = heap.request(o, gfp(flags::SLAB));
            self.slabs.push(Slab { until: now + life as u64, block });
        }
    }

    /// Frees expired slab pages on this CPU.
    fn expire<O: Sink>(&mut self, heap: &mut Heap<'_, '_, '_, O>, cpu: u32, now: u64) {
        // Checks a few random pages per call: expiry need not be exact.
        for _ in 0..4 {
            let at = self.rng.below(self.slabs.len());
            if self.slabs.get(at).is_some_and(|s| s.until <= now) {
                heap.host.run_on(cpu);
                if let Some(block) = self.slabs.swap_remove(at).block {
                    heap.free(block);
                }
            }
        }
    }
}

/// Frees everything that a process holds: its pages in allocation order, one gathering at a time,
/// then its page tables, their root and its stack.
fn exit<O: Sink>(heap: &mut Heap<'_, '_, '_, O>, process: &Process) {
    for chunk in process.pages.chunks(GATHER) {
        let note = heap.request(Order::ZERO, gfp(flags::GATHER));
        heap.free_all(chunk);
        if let Some(note) = note {
            heap.free(note);
        }
    }
    heap.free_all(&process.kernel);
}

pub(crate) fn order(o: u8) -> Order {
    Order::new(o).unwrap_or_default()
}

/// Interpolates linearly between the quantiles 0, 0.1, 0.5, 0.9 and 1. The minimum is assumed to be
/// as far below the first quantile as the median is above it, but at least a third of the first.
pub(crate) fn quantile(at: &[f64; 4], u: f64) -> f64 {
    let [a, b, c, d] = *at;
    let low = (2.0 * a - b).max(a / 3.0);
    let line = |from: f64, to: f64, u0: f64, u1: f64| from + (to - from) * (u - u0) / (u1 - u0);
    match u {
        u if u < 0.1 => line(low, a, 0.0, 0.1),
        u if u < 0.5 => line(a, b, 0.1, 0.5),
        u if u < 0.9 => line(b, c, 0.5, 0.9),
        _ => line(c, d, 0.9, 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_has_the_recorded_size() {
        let mut rng = Rng::new(1);
        let mut pages = 0.0;
        let mut processes = 0;
        for c in &CLASSES {
            for _ in 0..c.count * 20 {
                pages += quantile(&c.pages, rng.unit());
            }
            processes += c.count;
        }
        assert_eq!(processes, 593);
        // Measured: 327,981 anonymous pages.
        assert!((0.85..1.15).contains(&(pages / 20.0 / 327_981.0)), "{}", pages / 20.0);
    }
}
