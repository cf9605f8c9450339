//! A kernel that does nothing but use the allocator: boots four CPUs, has all of them allocate and
//! free while timer interrupts do the same, then accounts for every page. docs/kernels.md walks
//! through it.
//!
//! What a kernel takes from here: `lock.rs` (locks that keep interrupts out), `memory.rs` (the boot
//! loader's memory map as zones), `yard.rs` (the allocator on it) or `packed.rs` (the packed
//! engine). `x86_64.rs`, `aarch64.rs` and `riscv64.rs` are the machines, `tree.rs` reads the device tree
//! of the latter two, `hammer.rs` is the test.

#![no_std]
#![no_main]
// What only another variant uses.
#![cfg_attr(
    any(feature = "pinned", feature = "broken-lock", feature = "broken-try-lock"),
    allow(dead_code, unused_imports)
)]

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod arch;
#[cfg(target_arch = "riscv64")]
#[path = "riscv64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
#[cfg(feature = "pinned")]
#[path = "packed.rs"]
mod engine;
#[cfg(not(feature = "pinned"))]
#[path = "yard.rs"]
mod engine;
mod hammer;
mod lock;
mod memory;
#[cfg(not(target_arch = "x86_64"))]
mod tree;

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicUsize};

use engine::Engine;
use hammer::Barrier;
use memory::Memory;

/// The most CPUs that this kernel starts.
pub const CPUS: usize = 8;
const STACK: usize = 16384;

/// The CPUs' stacks, which the boot code fills with [`UNUSED`].
#[repr(C, align(16))]
pub struct Stacks([[u64; STACK / 8]; CPUS]);
#[unsafe(no_mangle)]
static mut stacks: Stacks = Stacks([[0; STACK / 8]; CPUS]);
const UNUSED: u64 = 0x7061_6765_7961_7264;

static ENGINE: spin::Once<&'static Engine> = spin::Once::new();
/// CPUs that run. CPU 0 starts the next one when this has grown.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
static HAMMERED: Barrier = Barrier::new();
static FREED: Barrier = Barrier::new();

/// Called by the boot code on every CPU, one after the other, with interrupts disabled. `info` is
/// the boot loader's address of its tables on CPU 0 and 0 on the others.
#[unsafe(no_mangle)]
extern "C" fn kernel_start(cpu: u32, info: usize) -> ! {
    let cpu = cpu as usize;
    arch::init_cpu(cpu);
    if cpu == 0 {
        boot(info)
    }
    let engine = *ENGINE.get().expect("CPU 0 publishes the allocator before it starts another");
    run(engine, cpu);
    loop {
        arch::halt();
    }
}

fn boot(info: usize) -> ! {
    let mut memory = Memory::default();
    let mut ids = [0; CPUS];
    arch::memory(info, &mut memory);
    let cpus = arch::cpus(info, &mut ids);
    let engine = *ENGINE.call_once(|| Engine::start(&mut memory, cpus));
    println!("{cpus} CPUs, {}, {} pages", Engine::NAME, hammer::free_pages(&memory));
    HAMMERED.expect(cpus);
    FREED.expect(cpus);
    let instructions = hammer::measure(engine);
    for (cpu, &id) in ids.iter().enumerate().take(cpus).skip(1) {
        RUNNING.store(cpu, Release);
        arch::start_cpu(cpu, id);
        while RUNNING.load(Acquire) == cpu {
            arch::relax();
        }
    }
    println!("all CPUs run; the hammer starts");
    run(engine, 0);
    let free = engine.finish();
    assert_eq!(free, hammer::free_pages(&memory), "pages are missing");
    let most = (0..cpus).map(stack_used).max().unwrap_or(0);
    assert!(most < STACK, "a stack overflowed");
    hammer::print_totals();
    println!(
        "passed: {free} pages free, {instructions} instructions per pair, {most} of {STACK} bytes of stack"
    );
    arch::exit(true)
}

/// What every CPU does: enter the allocator, hammer it, free everything, leave.
fn run(engine: &'static Engine, cpu: usize) {
    let mut own = engine.enter(cpu);
    RUNNING.fetch_add(1, AcqRel);
    let mut hammer = hammer::Hammer::new(cpu);
    arch::start_timer();
    arch::irq_enable();
    hammer.run(&mut own);
    HAMMERED.wait(|place| hammer.wait_for_mail(&mut own, place));
    arch::irq_save();
    arch::stop_timer();
    hammer.free_all(engine, own);
    FREED.wait(|_| ());
}

/// Returns how many bytes of a stack were ever used.
fn stack_used(cpu: usize) -> usize {
    let stack = (&raw const stacks).cast::<u64>().wrapping_add(cpu * STACK / 8);
    let words = 0..STACK / 8;
    // SAFETY: the words lie in the static. That of a running CPU may change meanwhile: hence
    // volatile reads.
    let unused = words.take_while(|&i| unsafe { stack.add(i).read_volatile() } == UNUSED);
    STACK - unused.count() * 8
}

/// The serial line.
pub struct Serial;

impl Write for Serial {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        s.bytes().for_each(arch::put);
        Ok(())
    }
}

/// Prints a line on the serial line.
#[macro_export]
macro_rules! println {
    ($($arg:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::Serial, $($arg)*);
    }};
}

/// Prints what went wrong and ends QEMU. Only the first CPU that fails prints.
pub fn stop(why: fmt::Arguments<'_>) -> ! {
    static STOPPED: AtomicBool = AtomicBool::new(false);
    arch::irq_save();
    if STOPPED.swap(true, AcqRel) {
        loop {
            arch::halt();
        }
    }
    println!("\nfailed: CPU {}: {why}", arch::cpu());
    arch::exit(false)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => stop(format_args!("{} ({}:{})", info.message(), at.file(), at.line())),
        None => stop(format_args!("{}", info.message())),
    }
}
