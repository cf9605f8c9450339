# The start of a kernel on x86-64: from a PVH boot loader or a start-up interrupt to C or Rust.
#
# The kernel provides
#   void kernel_start(uint32_t cpu, uintptr_t start_info)   one call per CPU, start_info 0 on all but CPU 0
#   void timer_interrupt(void)
#   void exception(uint64_t vector, uint64_t code, uint64_t rip, uint64_t address)   does not return
#   uint8_t stacks[]; uint32_t stack_size                   one stack per CPU, filled with `paint` here
#   uint32_t starting_cpu                                   the number of the CPU that is started next

# The note tells the loader (QEMU's -kernel, Xen, cloud-hypervisor) the 32-bit entry point. QEMU reads eight bytes.
.section .note.pvh, "a", @note
.balign 4
    .long 4, 8, 18                      # length of the name, of the value; XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad start32

.section .text.boot, "ax"
.code32
.globl start32
# CPU 0: 32-bit protected mode without paging; ebx holds the address of the start info.
start32:
    cli
    cld
    mov $page_directories, %edi         # 8 GiB in pages of 2 MiB: present, writable, large
    mov $0x83, %eax
    xor %edx, %edx
    mov $4096, %ecx
1:  mov %eax, (%edi)
    mov %edx, 4(%edi)
    add $0x200000, %eax
    adc $0, %edx
    add $8, %edi
    dec %ecx
    jnz 1b
    mov $page_pointers, %edi
    mov $page_directories + 3, %eax
    mov $8, %ecx
1:  mov %eax, (%edi)
    add $4096, %eax
    add $8, %edi
    dec %ecx
    jnz 1b
    movl $page_pointers + 3, page_root
    mov %ebx, %esi
    jmp long_mode

# Another CPU, in 32-bit protected mode.
ap_start32:
    mov $0x10, %eax
    mov %eax, %ds
    xor %esi, %esi
long_mode:
    mov $page_root, %eax
    mov %eax, %cr3
    mov %cr4, %eax
    or $0x20, %eax                      # PAE
    mov %eax, %cr4
    mov $0xc0000080, %ecx               # EFER.LME
    rdmsr
    or $0x100, %eax
    wrmsr
    mov %cr0, %eax
    or $0x80010001, %eax                # paging, write protection, protected mode
    mov %eax, %cr0
    lgdt gdt_pointer
    ljmp $0x08, $start64

.code64
start64:
    mov $0x10, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    mov starting_cpu(%rip), %r8d
    mov stack_size(%rip), %ecx
    mov %ecx, %eax
    imul %r8d, %eax
    lea stacks(%rip), %rdi
    add %rax, %rdi
    shr $3, %ecx
    movabs $0x7061676579617264, %rax    # `paint`: what the kernel finds in stack that was never used
    rep stosq
    mov %rdi, %rsp                      # stosq has left the stack's end there
    mov %r8d, %edi
    xor %ebp, %ebp
    call kernel_start
    ud2

# Copied to 0x8000, where a start-up interrupt with vector 8 starts a CPU in real mode.
.code16
.globl ap_trampoline, ap_trampoline_end
ap_trampoline:
    cli
    cld
    xor %ax, %ax
    mov %ax, %ds
    lgdtl 0x8000 + ap_gdt_pointer - ap_trampoline
    mov %cr0, %eax
    or $1, %al
    mov %eax, %cr0
    ljmpl $0x18, $ap_start32
ap_gdt_pointer:
    .word gdt_end - gdt - 1
    .long gdt
ap_trampoline_end:

.code64
# The timer's interrupt. The kernel's code uses no SSE registers, so the general ones are all there is to save.
# The CPU aligned the stack to 16 bytes and pushed 40; 72 more align it for the call.
.globl timer_entry, spurious_entry, exception_entries
timer_entry:
    push %rax
    push %rcx
    push %rdx
    push %rsi
    push %rdi
    push %r8
    push %r9
    push %r10
    push %r11
    cld
    call timer_interrupt
    pop %r11
    pop %r10
    pop %r9
    pop %r8
    pop %rdi
    pop %rsi
    pop %rdx
    pop %rcx
    pop %rax
spurious_entry:
    iretq

# The 32 exceptions, 16 bytes each. Those in the mask push an error code themselves.
.balign 16
exception_entries:
.set vector, 0
.rept 32
    .balign 16
    .if ((0x60227d00 >> vector) & 1) == 0
    push $0
    .endif
    push $vector
    jmp exception_common
    .set vector, vector + 1
.endr
exception_common:
    pop %rdi
    pop %rsi
    mov (%rsp), %rdx
    mov %cr2, %rcx
    and $-16, %rsp
    cld
    call exception
    ud2

.section .rodata.boot, "a"
.balign 8
gdt:
    .quad 0
    .quad 0x00af9b000000ffff            # 0x08: 64-bit code
    .quad 0x00cf93000000ffff            # 0x10: data
    .quad 0x00cf9b000000ffff            # 0x18: 32-bit code
gdt_end:
gdt_pointer:
    .word gdt_end - gdt - 1
    .quad gdt

.section .bss.boot, "aw", @nobits
.balign 4096
page_root:
    .skip 4096
page_pointers:
    .skip 4096
page_directories:
    .skip 8 * 4096
