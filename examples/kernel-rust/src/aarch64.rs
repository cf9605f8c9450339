//! The machine: QEMU's `virt` on aarch64, with a GIC of version 2, CPUs started by PSCI.
//!
//! The addresses of devices are those of that machine; memory and CPUs come from the device tree.

use core::arch::{asm, global_asm};
use core::ops::Range;

use pageyard::ZoneKind;

use crate::memory::Memory;
use crate::{CPUS, Stacks, stop, tree};

global_asm!(include_str!("../../boot/aarch64.s"));

unsafe extern "C" {
    static ap_start: u8;
}

/// The boundaries of the zones, by address: memory begins at 1 GiB.
pub const ZONES: &[(ZoneKind, Range<u64>)] =
    &[(ZoneKind::Dma32, 0..4 << 30), (ZoneKind::Normal, 4 << 30..MAPPED)];
/// The boot code maps this much, address by address; a tag of the hammer has room for 64 GiB.
const MAPPED: u64 = 64 << 30;
const DISTRIBUTOR: u64 = 0x0800_0000;
const CPU_INTERFACE: u64 = 0x0801_0000;
const SERIAL: u64 = 0x0900_0000;
/// The interrupt of the virtual timer.
const TIMER: u32 = 27;

#[unsafe(no_mangle)]
static stack_size: u32 = size_of::<Stacks>() as u32 / CPUS as u32;

/// Adds the memory, and reserves what is in use.
pub fn memory(at: usize, memory: &mut Memory) {
    tree::memory(at, MAPPED, memory);
}

/// Finds the CPUs in the device tree. Stores their numbers for PSCI, that of the boot CPU first,
/// and returns how many there are.
pub fn cpus(at: usize, ids: &mut [u64; CPUS]) -> usize {
    let boot: u64;
    // SAFETY: reads this CPU's number.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) boot, options(nomem, nostack)) };
    tree::cpus(at, boot & 0xff_00ff_ffff, ids)
}

/// Prepares the CPU that runs this: its number and its interrupt controller.
pub fn init_cpu(cpu: usize) {
    // SAFETY: the register is used for the CPU's number only (`cpu`).
    unsafe { asm!("msr tpidr_el1, {}", in(reg) cpu, options(nostack)) };
    if cpu == 0 {
        write(DISTRIBUTOR, 1);
    }
    write(DISTRIBUTOR + 0x100, 1 << TIMER);
    write(CPU_INTERFACE + 4, 0xff);
    write(CPU_INTERFACE, 1);
}

/// Starts a CPU, which calls `kernel_start`.
pub fn start_cpu(cpu: usize, id: u64) {
    let result: i64;
    // SAFETY: PSCI's CPU_ON starts the CPU at `ap_start` with `cpu` as its argument. The call keeps
    // all registers but the first four.
    unsafe {
        asm!("hvc #0", inout("x0") 0xc400_0003u64 => result, inout("x1") id => _,
            inout("x2") &raw const ap_start as u64 => _, inout("x3") cpu as u64 => _,
            clobber_abi("C"), options(nostack));
    }
    assert!(result == 0, "CPU_ON of CPU {cpu}: {result}");
}

fn read(register: u64) -> u32 {
    // SAFETY: a register of one of the devices above, which are mapped.
    unsafe { (register as *const u32).read_volatile() }
}

fn write(register: u64, value: u32) {
    // SAFETY: as `read`; the registers written here change no memory.
    unsafe { (register as *mut u32).write_volatile(value) };
}

fn frequency() -> u64 {
    let frequency;
    // SAFETY: reads a constant.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack)) };
    frequency
}

/// Starts this CPU's timer: an interrupt in about a millisecond, and so on from the end of each.
pub fn start_timer() {
    // SAFETY: arms the virtual timer, whose interrupt `timer_interrupt` handles.
    unsafe {
        asm!("msr cntv_tval_el0, {}", "msr cntv_ctl_el0, {}", in(reg) frequency() / 1000, in(reg) 1u64,
            options(nostack));
    }
}

/// Stops this CPU's timer.
pub fn stop_timer() {
    // SAFETY: disarms the virtual timer.
    unsafe { asm!("msr cntv_ctl_el0, xzr", options(nostack)) };
}

#[unsafe(no_mangle)]
extern "C" fn timer_interrupt() {
    let acknowledged = read(CPU_INTERFACE + 0xc);
    if acknowledged & 0x3ff == TIMER {
        crate::hammer::timer(cpu());
        start_timer();
    }
    // A spurious interrupt has no end.
    if acknowledged & 0x3ff < 1020 {
        write(CPU_INTERFACE + 0x10, acknowledged);
    }
}

#[unsafe(no_mangle)]
extern "C" fn exception(vector: u64, syndrome: u64, at: u64, address: u64) -> ! {
    stop(format_args!(
        "exception {vector}, syndrome {syndrome:#x}, at {at:#x}, address {address:#x}"
    ))
}

/// Returns the number of the CPU that executes the caller. Threads of this kernel stay on their
/// CPU.
#[inline(always)]
pub fn cpu() -> usize {
    let cpu;
    // SAFETY: reads the register that `init_cpu` set before anything calls this.
    unsafe {
        asm!("mrs {}, tpidr_el1", out(reg) cpu, options(pure, nomem, nostack, preserves_flags))
    };
    cpu
}

/// Disables interrupts and returns their former state, which is not 0.
#[inline(always)]
pub fn irq_save() -> u32 {
    let masks: u64;
    // SAFETY: masks interrupts. No `nomem`: accesses must not move above it.
    unsafe { asm!("mrs {}, daif", "msr daifset, #2", out(reg) masks, options(nostack)) };
    masks as u32 | 1
}

/// Enables interrupts if they were enabled in a state that `irq_save` returned.
#[inline(always)]
pub fn irq_restore(state: u32) {
    if state & 0x80 == 0 {
        irq_enable();
    }
}

/// Enables interrupts.
#[inline(always)]
pub fn irq_enable() {
    // SAFETY: the vectors are set. No `nomem`: accesses must not move below.
    unsafe { asm!("msr daifclr, #2", options(nostack)) };
}

/// Roughly; `frequency` says.
pub const TICKS_PER_SECOND: u64 = 62_500_000;

/// Under `-icount shift=0`: an instruction takes a nanosecond of the timer.
pub fn instructions_per_tick() -> u64 {
    1_000_000_000 / frequency()
}

/// Returns the virtual timer's counter.
#[inline(always)]
pub fn clock() -> u64 {
    let ticks;
    // SAFETY: reads a counter.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
    ticks
}

/// Executes `n` times two instructions.
#[inline(never)]
pub fn two_instructions(n: u64) {
    // SAFETY: counts a register down.
    unsafe { asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) n => _, options(nomem, nostack)) };
}

/// Lets other CPUs run while this one waits for them. QEMU with one thread for all CPUs (`-icount`)
/// heeds this hint, not the one of `core::hint::spin_loop`.
pub fn relax() {
    // SAFETY: a hint.
    unsafe { asm!("yield", options(nomem, nostack)) };
}

/// Waits for an interrupt, or forever.
pub fn halt() {
    // SAFETY: stops the CPU until an interrupt.
    unsafe { asm!("wfi", options(nomem, nostack)) };
}

/// Writes a byte to the serial line.
pub fn put(byte: u8) {
    while read(SERIAL + 0x18) & 1 << 5 != 0 {}
    write(SERIAL, byte.into());
}

/// Ends QEMU (semihosting) with status 33 if `passed`, else 35.
pub fn exit(passed: bool) -> ! {
    let why: [u64; 2] = [0x2_0026, if passed { 33 } else { 35 }];
    loop {
        // SAFETY: QEMU reads the two numbers and ends.
        unsafe { asm!("hlt #0xf000", in("x0") 0x18u64, in("x1") &why, options(nostack)) };
    }
}
