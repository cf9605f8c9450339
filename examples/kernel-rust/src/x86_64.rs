//! The machine: a PC as QEMU's, started by PVH.

use core::arch::{asm, global_asm};
use core::ops::Range;
use core::ptr;

use pageyard::ZoneKind;

use crate::memory::Memory;
use crate::{CPUS, Stacks, println, stop};

global_asm!(include_str!("../../boot/x86_64.s"), options(att_syntax));

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
    static ap_trampoline: u8;
    static ap_trampoline_end: u8;
    static exception_entries: u8;
    static timer_entry: u8;
    static spurious_entry: u8;
}

/// The boot code maps this much, address by address.
const MAPPED: u64 = 8 << 30;
/// Where other CPUs start: below 1 MiB, at a page whose number is the start-up interrupt's vector.
const TRAMPOLINE: u64 = 0x8000;
const LOCAL_APIC: u64 = 0xfee0_0000;
const TIMER_VECTOR: u8 = 32;
const SPURIOUS_VECTOR: u8 = 63;

/// The number of the CPU that the boot code starts next.
#[unsafe(no_mangle)]
static mut starting_cpu: u32 = 0;
#[unsafe(no_mangle)]
static stack_size: u32 = size_of::<Stacks>() as u32 / CPUS as u32;
/// Each CPU's GS base points at its own number.
static NUMBERS: [u32; CPUS] = [0, 1, 2, 3, 4, 5, 6, 7];
static mut IDT: [[u64; 2]; 64] = [[0; 2]; 64];

/// The start info of PVH, version 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_entries: u32,
    reserved: u32,
}

/// Reads a value of the firmware's or the loader's tables.
fn table<T: Copy>(address: u64) -> T {
    assert!(address != 0 && address < MAPPED - 4096, "the table at {address:#x} is not mapped");
    // SAFETY: the address is mapped (just checked), the tables hold plain integers, and the
    // loader's and the firmware's memory is never written while the kernel reads them.
    unsafe { ptr::read_unaligned(address as *const T) }
}

fn start_info(at: usize) -> StartInfo {
    let info: StartInfo = table(at as u64);
    assert!(info.magic == 0x336e_c578 && info.version >= 1, "no start info of PVH, version 1");
    info
}

/// Adds the memory map with its holes, and reserves what is in use: all below 1 MiB (start info,
/// trampoline), the image, and the modules.
pub fn memory(at: usize, memory: &mut Memory) {
    let info = start_info(at);
    for i in 0..u64::from(info.memory_entries) {
        let [start, size, kind] = table(info.memory_map + 24 * i);
        if kind as u32 == 1 {
            memory.add(start..(start + size).min(MAPPED));
        }
        println!("memory {start:#x}..{:#x} type {}", start + size, kind as u32);
    }
    memory.reserve(0..1 << 20);
    memory.reserve(&raw const image_start as u64..&raw const image_end as u64);
    for i in 0..u64::from(info.modules) {
        let [start, size]: [u64; 2] = table(info.module_list + 32 * i);
        memory.reserve(start..start + size);
    }
}

/// Finds the CPUs in ACPI's table of interrupt controllers (MADT). Stores their APIC numbers, that
/// of the boot CPU first, and returns how many there are.
pub fn cpus(at: usize, ids: &mut [u64; CPUS]) -> usize {
    let rsdp = start_info(at).rsdp;
    // Revision 0 has 32-bit pointers to the other tables, later ones have 64-bit ones.
    let wide = table::<u8>(rsdp + 15) > 0;
    let root = if wide { table::<u64>(rsdp + 24) } else { table::<u32>(rsdp + 16).into() };
    let size = if wide { 8 } else { 4 };
    let tables = (root + 36..root + u64::from(table::<u32>(root + 4))).step_by(size);
    let tables = tables.map(|at| if wide { table(at) } else { table::<u32>(at).into() });
    let boot = apic_read(0x20) >> 24;
    ids[0] = boot.into();
    let mut n = 1;
    for madt in tables.filter(|&at| table::<[u8; 4]>(at) == *b"APIC") {
        let end = madt + u64::from(table::<u32>(madt + 4));
        let mut at = madt + 44;
        while at < end {
            let [kind, length, _, id, enabled] = table::<[u8; 5]>(at);
            if kind == 0 && enabled & 1 != 0 && u32::from(id) != boot && n < CPUS {
                ids[n] = id.into();
                n += 1;
            }
            at += u64::from(length).max(2);
        }
    }
    n
}

/// Prepares the CPU that runs this: its number, its exceptions, its interrupt controller.
pub fn init_cpu(cpu: usize) {
    let base = &raw const NUMBERS[cpu] as u64;
    // SAFETY: GS is used for the CPU's number only (`cpu`), and the static lives forever.
    unsafe {
        asm!("wrmsr", in("ecx") 0xc000_0101u32, in("eax") base as u32, in("edx") (base >> 32) as u32,
            options(nostack));
    }
    if cpu == 0 {
        for vector in 0..32 {
            set_gate(vector, &raw const exception_entries as u64 + 16 * vector as u64);
        }
        set_gate(TIMER_VECTOR.into(), &raw const timer_entry as u64);
        set_gate(SPURIOUS_VECTOR.into(), &raw const spurious_entry as u64);
        // The old interrupt controllers stay silent.
        out(0x21, 0xff);
        out(0xa1, 0xff);
    }
    let pointer: [u16; 5] = {
        let at = &raw const IDT as u64;
        let limit = (size_of::<[[u64; 2]; 64]>() - 1) as u16;
        [limit, at as u16, (at >> 16) as u16, (at >> 32) as u16, (at >> 48) as u16]
    };
    // SAFETY: the table is complete, is a static, and its entries lead to code that saves what it
    // changes. The CPU copies the pointer.
    unsafe { asm!("lidt [{}]", in(reg) &pointer, options(nostack, preserves_flags)) };
    apic_write(0xf0, 0x100 | u32::from(SPURIOUS_VECTOR));
}

/// Sets an interrupt gate, which disables interrupts on entry. Only before the CPU uses the table.
fn set_gate(vector: usize, to: u64) {
    let low = to & 0xffff | 0x08 << 16 | 0x8e00 << 32 | (to >> 16 & 0xffff) << 48;
    // SAFETY: CPU 0 writes the table before it loads it and before another CPU runs.
    unsafe { (&raw mut IDT).cast::<[u64; 2]>().add(vector).write([low, to >> 32]) };
}

/// Starts a CPU, which calls `kernel_start`. One at a time: the boot code reads `starting_cpu`.
pub fn start_cpu(cpu: usize, id: u64) {
    // SAFETY: the trampoline is code that works at any page below 1 MiB; that page is reserved, and
    // the CPU that was started before has left it: it has reported (`start_cpus`).
    unsafe {
        let code = &raw const ap_trampoline;
        let length = &raw const ap_trampoline_end as usize - code as usize;
        ptr::copy_nonoverlapping(code, TRAMPOLINE as *mut u8, length);
        (&raw mut starting_cpu).write_volatile(cpu as u32);
    }
    for (command, microseconds) in [(0x4500, 10_000), (0x4608, 200), (0x4608, 200)] {
        apic_write(0x310, (id as u32) << 24);
        apic_write(0x300, command);
        for _ in 0..microseconds {
            input(0x80); // takes about a microsecond
        }
    }
}

fn apic_read(register: u64) -> u32 {
    // SAFETY: the local APIC is mapped at its reset address; each CPU sees its own.
    unsafe { ((LOCAL_APIC + register) as *const u32).read_volatile() }
}

fn apic_write(register: u64, value: u32) {
    // SAFETY: as `apic_read`; the registers written here change no memory.
    unsafe { ((LOCAL_APIC + register) as *mut u32).write_volatile(value) };
}

/// Starts this CPU's timer: an interrupt in about a millisecond, and so on from the end of each. (A
/// periodic timer leaves no time for anything else where handlers take longer than its period.)
pub fn start_timer() {
    apic_write(0x3e0, 0xb);
    apic_write(0x320, TIMER_VECTOR.into());
    apic_write(0x380, 1_000_000);
}

/// Stops this CPU's timer.
pub fn stop_timer() {
    apic_write(0x320, 0x1_0000);
}

#[unsafe(no_mangle)]
extern "C" fn timer_interrupt() {
    crate::hammer::timer(cpu());
    start_timer();
    apic_write(0xb0, 0);
}

#[unsafe(no_mangle)]
extern "C" fn exception(vector: u64, code: u64, rip: u64, address: u64) -> ! {
    stop(format_args!("exception {vector}, code {code:#x}, at {rip:#x}, address {address:#x}"))
}

/// Returns the number of the CPU that executes the caller. Threads of this kernel stay on their
/// CPU.
#[inline(always)]
pub fn cpu() -> usize {
    let cpu: u32;
    // SAFETY: reads the static that `init_cpu` made GS point at, before anything calls this.
    unsafe {
        asm!("mov {:e}, gs:[0]", out(reg) cpu, options(pure, readonly, nostack, preserves_flags))
    };
    cpu as usize
}

/// Disables interrupts and returns their former state, which is not 0.
#[inline(always)]
pub fn irq_save() -> u32 {
    let flags: u64;
    // SAFETY: changes the interrupt flag only. No `nomem`: accesses must not move above it.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags as u32 // bit 1 is always set
}

/// Enables interrupts if they were enabled in a state that `irq_save` returned.
#[inline(always)]
pub fn irq_restore(state: u32) {
    if state & 0x200 != 0 {
        irq_enable();
    }
}

/// Enables interrupts.
#[inline(always)]
pub fn irq_enable() {
    // SAFETY: every vector that may arrive has a gate. No `nomem`: accesses must not move below.
    unsafe { asm!("sti", options(nostack)) };
}

/// Roughly; the processor's frequency says.
pub const TICKS_PER_SECOND: u64 = 3_000_000_000;

/// Under `-icount shift=0`.
pub fn instructions_per_tick() -> u64 {
    1
}

/// Returns the time-stamp counter. Under `-icount shift=0` it counts instructions.
#[inline(always)]
pub fn clock() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Executes `n` times two instructions.
#[inline(never)]
pub fn two_instructions(n: u64) {
    // SAFETY: counts a register down.
    unsafe { asm!("2: sub {0}, 1", "jnz 2b", inout(reg) n => _, options(nomem, nostack)) };
}

/// Lets other CPUs run while this one waits for them.
pub fn relax() {
    core::hint::spin_loop();
}

/// Waits for an interrupt, or forever.
pub fn halt() {
    // SAFETY: stops the CPU until an interrupt.
    unsafe { asm!("hlt", options(nomem, nostack)) };
}

fn out(port: u16, value: u8) {
    // SAFETY: the ports used here belong to the interrupt controllers, the serial line and QEMU's
    // exit device, none of which writes memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) };
}

fn input(port: u16) -> u8 {
    let value;
    // SAFETY: as `out`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}

/// Writes a byte to the serial line.
pub fn put(byte: u8) {
    while input(0x3fd) & 0x20 == 0 {}
    out(0x3f8, byte);
}

/// Ends QEMU (`isa-debug-exit`) with status 33 if `passed`, else 35.
pub fn exit(passed: bool) -> ! {
    out(0xf4, if passed { 16 } else { 17 });
    loop {
        halt();
    }
}

/// The boundaries of the zones, by address.
pub const ZONES: &[(ZoneKind, Range<u64>)] = &[
    (ZoneKind::Dma, 0..16 << 20),
    (ZoneKind::Dma32, 16 << 20..4 << 30),
    (ZoneKind::Normal, 4 << 30..MAPPED),
];
