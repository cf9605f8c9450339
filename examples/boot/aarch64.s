// The start of a kernel on aarch64: from QEMU's `-kernel` (an ELF file) or PSCI's CPU_ON to C or Rust.
//
// The kernel provides what x86_64.s lists but `starting_cpu`: PSCI passes the CPU's number.

.section .text.boot, "ax"
.globl start, ap_start
// CPU 0, in EL1 without translation. QEMU puts the device tree at the start of memory.
start:
    mov x19, #0x40000000
    mov x20, #0
    b enter
// Another CPU; x0 is its number.
ap_start:
    mov x19, #0
    mov x20, x0
enter:
    msr daifset, #15
    msr spsel, #1
    adrp x0, page_root
    add x0, x0, :lo12:page_root
    msr ttbr0_el1, x0
    mov x0, #0xff00                     // attribute 0: device; 1: memory, cached
    msr mair_el1, x0
    ldr x0, =0x200803519                // 39 bits, 4 KiB, cached walks, only TTBR0, 40-bit addresses
    msr tcr_el1, x0
    isb
    tlbi vmalle1
    dsb nsh
    isb
    mrs x0, sctlr_el1
    ldr x1, =0x1005                     // translation, data cache, instruction cache
    orr x0, x0, x1
    msr sctlr_el1, x0
    mov x0, #3 << 20                    // FP and SIMD registers: this target's compiler uses them
    msr cpacr_el1, x0
    adrp x0, vectors
    add x0, x0, :lo12:vectors
    msr vbar_el1, x0
    isb
    adrp x0, stack_size
    ldr w0, [x0, :lo12:stack_size]
    adrp x1, stacks
    add x1, x1, :lo12:stacks
    madd x1, x0, x20, x1
    add x2, x1, x0
    ldr x3, =0x7061676579617264         // what the kernel finds in stack that was never used
1:  str x3, [x1], #8
    cmp x1, x2
    b.ne 1b
    mov sp, x2
    mov x29, #0
    mov x0, x20
    mov x1, x19
    bl kernel_start
    brk #0

// An interrupt of this level. Saves what a call may change: x0 to x18, x30, and all SIMD registers (calls keep the
// lower half of eight of them only). ELR and SPSR stay: interrupts do not nest.
irq_entry:
    sub sp, sp, #688
    stp x0, x1, [sp]
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x30, [sp, #144]
    mrs x0, fpcr
    mrs x1, fpsr
    stp x0, x1, [sp, #160]
    add x2, sp, #176
    stp q0, q1, [x2, #0]
    stp q2, q3, [x2, #32]
    stp q4, q5, [x2, #64]
    stp q6, q7, [x2, #96]
    stp q8, q9, [x2, #128]
    stp q10, q11, [x2, #160]
    stp q12, q13, [x2, #192]
    stp q14, q15, [x2, #224]
    stp q16, q17, [x2, #256]
    stp q18, q19, [x2, #288]
    stp q20, q21, [x2, #320]
    stp q22, q23, [x2, #352]
    stp q24, q25, [x2, #384]
    stp q26, q27, [x2, #416]
    stp q28, q29, [x2, #448]
    stp q30, q31, [x2, #480]
    bl timer_interrupt
    add x2, sp, #176
    ldp q0, q1, [x2, #0]
    ldp q2, q3, [x2, #32]
    ldp q4, q5, [x2, #64]
    ldp q6, q7, [x2, #96]
    ldp q8, q9, [x2, #128]
    ldp q10, q11, [x2, #160]
    ldp q12, q13, [x2, #192]
    ldp q14, q15, [x2, #224]
    ldp q16, q17, [x2, #256]
    ldp q18, q19, [x2, #288]
    ldp q20, q21, [x2, #320]
    ldp q22, q23, [x2, #352]
    ldp q24, q25, [x2, #384]
    ldp q26, q27, [x2, #416]
    ldp q28, q29, [x2, #448]
    ldp q30, q31, [x2, #480]
    ldp x0, x1, [sp, #160]
    msr fpcr, x0
    msr fpsr, x1
    ldp x18, x30, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #688
    eret

exception_entry:
    mrs x1, esr_el1
    mrs x2, elr_el1
    mrs x3, far_el1
    bl exception
    brk #0

// 16 vectors of 128 bytes; the sixth is an interrupt of this level, all others are unexpected.
.balign 2048
vectors:
.set vector, 0
.rept 16
    .balign 128
    .if vector == 5
    b irq_entry
    .else
    mov x0, #vector
    b exception_entry
    .endif
    .set vector, vector + 1
.endr

// One entry per GiB: devices in the first (as on QEMU's machine `virt`), then memory.
.section .data.boot, "aw"
.balign 4096
page_root:
    .quad 0x0060000000000401            // block, accessed, attribute 0, never executed
.set gib, 1
.rept 511
    .quad (gib << 30) | 0x705           // block, accessed, shared with all CPUs, attribute 1
    .set gib, gib + 1
.endr
