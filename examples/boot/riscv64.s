// The start of a kernel on RISC-V: from the firmware (OpenSBI, which QEMU loads too) or SBI's hart_start to C or Rust.
//
// The kernel provides what x86_64.s lists.

.section .text.boot, "ax"
.globl start
// Every CPU enters here, in supervisor mode. a0 is its number for SBI. On CPU 0, which may be any of them, a1 is the
// address of the device tree. Translation is off, and stays off: every address is that of memory or of a device.
//
// CPU 0 passes the others nothing, and no entry of their own: OpenSBI 1.1 stores hart_start's arguments after it marks
// the CPU as started, so one that was about to wait still has those of CPU 0.
start:
    fence                               // what CPU 0 wrote before it had this CPU started is visible
    lw s0, starting_cpu
    bnez s0, 1f
    sd a0, boot_hart, t0
    j 2f
1:  li a1, 0
2:  csrw sie, zero
    la t0, trap_entry
    csrw stvec, t0
    lw t0, stack_size
    la t1, stacks
    mul t2, t0, s0
    add t1, t1, t2
    add sp, t1, t0
    li t2, 0x7061676579617264           // what the kernel finds in stack that was never used
1:  sd t2, (t1)
    addi t1, t1, 8
    bne t1, sp, 1b
    mv a0, s0
    call kernel_start
    unimp

// The timer's interrupt, the only one enabled, or an exception. Saves what a call may change; the target has no FP
// registers. SEPC and SSTATUS stay: interrupts do not nest.
.balign 4
trap_entry:
    addi sp, sp, -128
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd t3, 32(sp)
    sd t4, 40(sp)
    sd t5, 48(sp)
    sd t6, 56(sp)
    sd a0, 64(sp)
    sd a1, 72(sp)
    sd a2, 80(sp)
    sd a3, 88(sp)
    sd a4, 96(sp)
    sd a5, 104(sp)
    sd a6, 112(sp)
    sd a7, 120(sp)
    csrr a0, scause
    bgez a0, 1f                         // the highest bit is set for interrupts
    call timer_interrupt
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld t3, 32(sp)
    ld t4, 40(sp)
    ld t5, 48(sp)
    ld t6, 56(sp)
    ld a0, 64(sp)
    ld a1, 72(sp)
    ld a2, 80(sp)
    ld a3, 88(sp)
    ld a4, 96(sp)
    ld a5, 104(sp)
    ld a6, 112(sp)
    ld a7, 120(sp)
    sc.d zero, ra, (sp)                 // ends a reservation of the interrupted code's, whose own SC now fails
    addi sp, sp, 128
    sret
1:  csrr a1, sepc
    csrr a2, stval
    call exception
    unimp

.section .data.boot, "aw"
.globl boot_hart
.balign 8
boot_hart:
    .quad 0
