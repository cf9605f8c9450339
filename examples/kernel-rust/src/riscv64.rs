//! The machine: QEMU's `virt` on RISC-V, with firmware that has SBI (OpenSBI).
//!
//! The addresses of devices are those of that machine; memory and CPUs come from the device tree.

use core::arch::{asm, global_asm};
use core::ops::Range;

use pageyard::ZoneKind;

use crate::memory::Memory;
use crate::{CPUS, Stacks, stop, tree};

global_asm!(include_str!("../../boot/riscv64.s"));

unsafe extern "C" {
    static start: u8;
    static boot_hart: u64;
}

/// The boundaries of the zones, by address: memory begins at 2 GiB.
pub const ZONES: &[(ZoneKind, Range<u64>)] =
    &[(ZoneKind::Dma32, 0..4 << 30), (ZoneKind::Normal, 4 << 30..MOST)];
/// A tag of the hammer has room for this much.
const MOST: u64 = 64 << 30;
const FINISHER: u64 = 0x10_0000;
const SERIAL: u64 = 0x1000_0000;
/// Of `rdtime`, per second.
const TIMER_FREQUENCY: u64 = 10_000_000;
/// Extensions of SBI.
const TIME: usize = 0x5449_4d45;
const HSM: usize = 0x48_534d;

/// The number of the CPU that the boot code starts next.
#[unsafe(no_mangle)]
static mut starting_cpu: u32 = 0;
#[unsafe(no_mangle)]
static stack_size: u32 = size_of::<Stacks>() as u32 / CPUS as u32;

/// Adds the memory, and reserves what is in use.
pub fn memory(at: usize, memory: &mut Memory) {
    tree::memory(at, MOST, memory);
}

/// Finds the CPUs in the device tree. Stores their numbers for SBI, that of the boot CPU first, and
/// returns how many there are.
pub fn cpus(at: usize, ids: &mut [u64; CPUS]) -> usize {
    // SAFETY: the boot code stored it before anything else ran.
    tree::cpus(at, unsafe { boot_hart }, ids)
}

/// Prepares the CPU that runs this: its number.
pub fn init_cpu(cpu: usize) {
    // SAFETY: the register is used for the CPU's number only (`cpu`): nothing here is thread-local.
    unsafe { asm!("mv tp, {}", in(reg) cpu, options(nomem, nostack)) };
}

/// Calls function 0 of an extension.
fn sbi(extension: usize, arguments: [u64; 3]) -> i64 {
    let [a0, a1, a2] = arguments;
    let error;
    // SAFETY: the two functions that this kernel calls start a CPU at `start` and set a timer.
    // SBI keeps all registers but a0 and a1.
    unsafe {
        asm!("ecall", inout("a0") a0 => error, inout("a1") a1 => _, in("a2") a2, in("a6") 0,
            in("a7") extension, options(nostack));
    }
    error
}

/// Starts a CPU, which calls `kernel_start`. One at a time: the boot code reads `starting_cpu`.
pub fn start_cpu(cpu: usize, id: u64) {
    // SAFETY: the CPU that was started before has read it: it has reported (`boot`).
    unsafe { (&raw mut starting_cpu).write_volatile(cpu as u32) };
    let result = sbi(HSM, [id, &raw const start as u64, 0]);
    assert!(result == 0, "hart_start of CPU {cpu}: {result}");
}

/// Starts this CPU's timer: an interrupt in about a millisecond, and so on from the end of each.
pub fn start_timer() {
    let now: u64;
    // SAFETY: reads a counter, and enables the timer's interrupt, which `timer_interrupt` handles.
    unsafe { asm!("rdtime {}", "csrs sie, {}", out(reg) now, in(reg) 1 << 5, options(nostack)) };
    sbi(TIME, [now + TIMER_FREQUENCY / 1000, 0, 0]);
}

/// Stops this CPU's timer.
pub fn stop_timer() {
    // SAFETY: disables the timer's interrupt.
    unsafe { asm!("csrc sie, {}", in(reg) 1 << 5, options(nostack)) };
}

#[unsafe(no_mangle)]
extern "C" fn timer_interrupt() {
    crate::hammer::timer(cpu());
    start_timer();
}

#[unsafe(no_mangle)]
extern "C" fn exception(cause: u64, at: u64, value: u64) -> ! {
    stop(format_args!("exception {cause} at {at:#x}, value {value:#x}"))
}

/// Returns the number of the CPU that executes the caller. Threads of this kernel stay on their
/// CPU.
#[inline(always)]
pub fn cpu() -> usize {
    let cpu;
    // SAFETY: reads the register that `init_cpu` set before anything calls this.
    unsafe { asm!("mv {}, tp", out(reg) cpu, options(pure, nomem, nostack)) };
    cpu
}

/// Disables interrupts and returns their former state, which is not 0.
#[inline(always)]
pub fn irq_save() -> u32 {
    let status: u64;
    // SAFETY: disables interrupts. No `nomem`: accesses must not move above it.
    unsafe { asm!("csrrci {}, sstatus, 2", out(reg) status, options(nostack)) };
    status as u32 | 1
}

/// Enables interrupts if they were enabled in a state that `irq_save` returned.
#[inline(always)]
pub fn irq_restore(state: u32) {
    if state & 2 != 0 {
        irq_enable();
    }
}

/// Enables interrupts.
#[inline(always)]
pub fn irq_enable() {
    // SAFETY: the boot code set the handler. No `nomem`: accesses must not move below.
    unsafe { asm!("csrsi sstatus, 2", options(nostack)) };
}

/// Roughly: without `-icount` QEMU has the host's clock where RISC-V counts instructions.
pub const TICKS_PER_SECOND: u64 = 3_000_000_000;

/// Under `-icount shift=0`.
pub fn instructions_per_tick() -> u64 {
    1
}

/// Returns the counter of executed instructions. (`rdtime` has ticks of 100.)
#[inline(always)]
pub fn clock() -> u64 {
    let count;
    // SAFETY: reads a counter.
    unsafe { asm!("rdinstret {}", out(reg) count, options(nomem, nostack)) };
    count
}

/// Executes `n` times two instructions.
#[inline(never)]
pub fn two_instructions(n: u64) {
    // SAFETY: counts a register down.
    unsafe {
        asm!("2: addi {0}, {0}, -1", "bnez {0}, 2b", inout(reg) n => _, options(nomem, nostack))
    };
}

/// Lets other CPUs run while this one waits for them. QEMU with one thread for all CPUs (`-icount`)
/// heeds `wfi`, not `pause`. A software interrupt, pending and not taken, ends it at once.
pub fn relax() {
    let before = irq_save();
    // SAFETY: interrupts are disabled, and that of software is not enabled afterwards.
    unsafe {
        asm!("csrsi sip, 2", "csrsi sie, 2", "wfi", "csrci sie, 2", options(nomem, nostack));
    }
    irq_restore(before);
}

/// Waits for an interrupt, or forever.
pub fn halt() {
    // SAFETY: stops the CPU until an interrupt.
    unsafe { asm!("wfi", options(nomem, nostack)) };
}

/// Writes a byte to the serial line.
pub fn put(byte: u8) {
    let line = SERIAL as *mut u8;
    // SAFETY: registers of a 16550, whose bit 5 of register 5 says that register 0 takes a byte.
    unsafe {
        while line.add(5).read_volatile() & 1 << 5 == 0 {}
        line.write_volatile(byte);
    }
}

/// Ends QEMU (SiFive's test device) with status 33 if `passed`, else 35.
pub fn exit(passed: bool) -> ! {
    let status = if passed { 33 } else { 35 };
    loop {
        // SAFETY: QEMU ends.
        unsafe { (FINISHER as *mut u32).write_volatile(status << 16 | 0x3333) };
    }
}
