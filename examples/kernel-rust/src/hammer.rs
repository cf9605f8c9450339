//! The test: every CPU allocates and frees, in threads and in interrupt handlers, and checks that
//! no block has two owners.

use core::fmt;
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use pageyard::{FreeError, MAX_ORDER, Order, Pfn};

use crate::engine::{Cpu, Engine};
use crate::memory::Memory;
use crate::{CPUS, ENGINE, arch, println};

/// Allocations per CPU.
const ROUNDS: u32 = 100_000;
/// Blocks that a CPU holds at most.
const HELD: usize = 256;

/// A block in use, as one number: serial number (32 bits), frame (24), order (4), owner (4). The
/// number is also the block's tag: it stands in the first and the last eight bytes of the block
/// until the block is freed. No two allocations have the same.
#[derive(Clone, Copy, PartialEq)]
struct Block(u64);

impl Block {
    const NONE: Block = Block(0);

    fn new(pfn: Pfn, order: Order, owner: usize, serial: u32) -> Block {
        assert!(pfn.0 < 1 << 24);
        let block =
            u64::from(serial) << 32 | pfn.0 << 8 | u64::from(order.get()) << 4 | owner as u64;
        Block(block).mark()
    }

    fn pfn(self) -> Pfn {
        Pfn(self.0 >> 8 & 0xff_ffff)
    }

    fn order(self) -> Order {
        Order::new((self.0 >> 4 & 15) as u8).unwrap_or_default()
    }

    fn ends(self) -> [*mut u64; 2] {
        let first = self.pfn().address();
        let last = first + u64::from(self.order().pages()) * pageyard::PAGE_SIZE - 8;
        [first as *mut u64, last as *mut u64]
    }

    fn mark(self) -> Block {
        for end in self.ends() {
            // SAFETY: the allocator gave this block to this CPU alone, and all memory is mapped.
            unsafe { end.write_volatile(self.0) };
        }
        self
    }

    /// Checks that the block is still this owner's and removes the tag. Then it may be freed.
    fn unmark(self) -> (Pfn, Order) {
        for end in self.ends() {
            // SAFETY: as in `mark`; the block was not freed since.
            let found = Block(unsafe { ptr::replace(end, 0) });
            assert!(found == self, "two owners of a block: {self}, and {found}");
        }
        (self.pfn(), self.order())
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, serial) = (self.0 & 15, self.0 >> 32);
        write!(f, "frame {} of order {} ({serial} of CPU {owner})", self.pfn(), self.order().get())
    }
}

fn freed(result: Result<(), FreeError>, pfn: Pfn, order: Order) {
    if let Err(error) = result {
        panic!("free of frame {pfn} of order {}: {error}", order.get());
    }
}

/// Blocks on their way to a CPU that frees them; 0 is an empty place.
static MAIL: [[AtomicU64; HELD]; CPUS] = [const { [const { AtomicU64::new(0) }; HELD] }; CPUS];
/// Blocks that each CPU's interrupt handler holds.
static KEPT: [[AtomicU64; 8]; CPUS] = [const { [const { AtomicU64::new(0) }; 8] }; CPUS];
/// Interrupts of each CPU.
static INTERRUPTS: [AtomicU64; CPUS] = [const { AtomicU64::new(0) }; CPUS];
static TOTALS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// Milliseconds since CPU 0 started its timer.
pub fn milliseconds() -> u64 {
    INTERRUPTS[0].load(Relaxed)
}

/// The timer's interrupt handler: frees the oldest of eight blocks and allocates another; every
/// fourth time, ticks.
pub fn timer(cpu: usize) {
    let Some(engine) = ENGINE.get() else { return };
    let n = INTERRUPTS[cpu].fetch_add(1, Relaxed);
    let place = &KEPT[cpu][n as usize % 8];
    free_kept(engine, cpu, Block(place.load(Relaxed)));
    let order = if n.is_multiple_of(16) {
        Order::for_bytes(16 << 10).unwrap_or_default()
    } else {
        Order::ZERO
    };
    let block =
        engine.interrupt_alloc(cpu, order).map(|pfn| Block::new(pfn, order, cpu + CPUS, n as u32));
    place.store(block.unwrap_or(Block::NONE).0, Relaxed);
    if n.is_multiple_of(4) {
        engine.tick(cpu);
    }
}

fn free_kept(engine: &Engine, cpu: usize, block: Block) {
    if block != Block::NONE {
        let (pfn, order) = block.unmark();
        freed(engine.interrupt_free(cpu, pfn, order), pfn, order);
    }
}

/// One CPU's part of the test.
pub struct Hammer {
    cpu: usize,
    random: u64,
    held: [Block; HELD],
    serial: u32,
    failed: u64,
    mailed: u64,
}

impl Hammer {
    pub fn new(cpu: usize) -> Hammer {
        let random = 0x9e37_79b9_7f4a_7c15 * (cpu as u64 + 1);
        Hammer { cpu, random, held: [Block::NONE; HELD], serial: 0, failed: 0, mailed: 0 }
    }

    /// Fills and empties places at random: orders 0 to 10, each half as often as the one below,
    /// four kinds of flags.
    pub fn run(&mut self, own: &mut Cpu) {
        while self.serial < ROUNDS {
            // xorshift
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let place = self.random as usize % HELD;
            let block = self.held[place];
            if block != Block::NONE {
                self.held[place] = Block::NONE;
                self.part_with(own, block);
            } else {
                let order = (self.random >> 8 | 1 << MAX_ORDER).trailing_zeros() as u8;
                let order = Order::new(order).unwrap_or_default();
                self.serial += 1;
                match own.alloc(order, (self.random >> 24) as usize % 4) {
                    Some(pfn) => self.held[place] = Block::new(pfn, order, self.cpu, self.serial),
                    None => self.failed += 1,
                }
            }
            self.receive(own, place);
            if place == 0 {
                own.poll();
            }
        }
        for (total, own) in TOTALS.iter().zip([self.serial.into(), self.failed, self.mailed]) {
            total.fetch_add(own, Relaxed);
        }
    }

    /// Frees a block, or in a quarter of the cases has another CPU free it.
    fn part_with(&mut self, own: &mut Cpu, block: Block) {
        let cpus = RUN_BY.load(Relaxed) as usize;
        if !(self.random >> 32).is_multiple_of(4) || cpus == 1 {
            return free(own, block);
        }
        let other = (self.cpu + 1 + (self.random >> 34) as usize % (cpus - 1)) % cpus;
        // If all places are full, the other CPU is behind: wait, and free this CPU's own mail
        // meanwhile.
        for n in 0.. {
            let place = (self.random >> 40) as usize + n;
            // Release: the other CPU sees the tags.
            let to = &MAIL[other][place % HELD];
            if to.compare_exchange(0, block.0, Release, Relaxed).is_ok() {
                break;
            }
            self.wait_for_mail(own, place);
        }
        self.mailed += 1;
    }

    /// Frees the block in one place of this CPU's mailbox. After all places, lets other CPUs run
    /// until the next interrupt.
    pub fn wait_for_mail(&mut self, own: &mut Cpu, place: usize) {
        self.receive(own, place);
        if place.is_multiple_of(HELD) {
            arch::halt();
        }
    }

    fn receive(&mut self, own: &mut Cpu, place: usize) {
        let mail = &MAIL[self.cpu][place % HELD];
        if mail.load(Relaxed) != 0 {
            free(own, Block(mail.swap(0, Acquire)));
        }
    }

    /// Frees all that this CPU holds, was sent, and keeps for its interrupt handler, and leaves the
    /// allocator. Interrupts are off.
    pub fn free_all(&mut self, engine: &Engine, mut own: Cpu) {
        let mail = MAIL[self.cpu].iter().map(|place| Block(place.swap(0, Acquire)));
        self.held.iter().copied().chain(mail).for_each(|block| free(&mut own, block));
        for place in &KEPT[self.cpu] {
            free_kept(engine, self.cpu, Block(place.swap(0, Relaxed)));
        }
    }
}

fn free(own: &mut Cpu, block: Block) {
    if block != Block::NONE {
        let (pfn, order) = block.unmark();
        freed(own.free(pfn, order), pfn, order);
    }
}

/// Prints what all CPUs did.
pub fn print_totals() {
    let [pairs, failed, mailed] = [0, 1, 2].map(|i| TOTALS[i].load(Relaxed));
    let interrupts: u64 = INTERRUPTS.iter().map(|n| n.load(Relaxed)).sum();
    println!(
        "{pairs} requests, {failed} without memory, {mailed} freed on another CPU, {interrupts} interrupts"
    );
    let all_mailed = mailed > (pairs - failed) / 5 || RUN_BY.load(Relaxed) == 1;
    assert!(pairs - failed > pairs / 2 && interrupts > 0 && all_mailed, "the test did too little");
}

/// Returns the pages that the allocator should have: usable and not reserved.
pub fn free_pages(memory: &Memory) -> u64 {
    let mut pages = 0;
    for range in memory.usable.get() {
        memory.free_parts(range.clone(), |part| pages += part.end.0 - part.start.0);
    }
    pages
}

/// Measures a hot pair, alone on CPU 0 with interrupts disabled. Returns its instructions if the
/// machine's clock counts instructions, as under `-icount shift=0`; else 0.
pub fn measure(engine: &'static Engine) -> u64 {
    const PAIRS: u64 = 10_000;
    const KNOWN: u64 = 1_000_000;
    let mut own = engine.enter(0);
    let counted = |ticks| ticks * arch::instructions_per_tick();
    let start = arch::clock();
    arch::two_instructions(KNOWN);
    // No real clock comes this close.
    let counts = counted(arch::clock() - start).abs_diff(2 * KNOWN) < 100;
    (0..64).for_each(|_| assert!(own.pair()));
    let start = arch::clock();
    for _ in 0..PAIRS {
        assert!(own.pair());
    }
    let instructions = (counted(arch::clock() - start) + PAIRS / 2) / PAIRS;
    if !counts {
        return 0;
    }
    let most = Engine::MOST_INSTRUCTIONS;
    assert!(instructions <= most, "a hot pair takes {instructions} instructions, more than {most}");
    instructions
}

/// A place where all CPUs wait for each other, once.
pub struct Barrier(AtomicU64);

/// The number of CPUs.
static RUN_BY: AtomicU64 = AtomicU64::new(0);

impl Barrier {
    pub const fn new() -> Barrier {
        Barrier(AtomicU64::new(0))
    }

    /// Sets how many CPUs must come.
    pub fn expect(&self, cpus: usize) {
        self.0.store(cpus as u64, Relaxed);
        RUN_BY.store(cpus as u64, Relaxed);
    }

    /// Waits until all have come, and calls `meanwhile` with rising numbers until then. What they
    /// did before is visible then.
    pub fn wait(&self, mut meanwhile: impl FnMut(usize)) {
        self.0.fetch_sub(1, AcqRel);
        for n in 0.. {
            if self.0.load(Acquire) == 0 {
                break;
            }
            meanwhile(n);
            arch::relax();
        }
    }
}
