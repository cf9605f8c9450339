/* A PC as QEMU's: PVH's tables, ACPI's list of CPUs, interrupts, other CPUs, the serial line. */
#include "machine.h"

enum {
    TRAMPOLINE = 0x8000, /* where other CPUs start; the start-up interrupt's vector is its page */
    LOCAL_APIC = 0xfee00000,
    TIMER_VECTOR = 32,
    SPURIOUS_VECTOR = 63
};
#define UNUSED 0x7061676579617264 /* what the boot code fills stacks with */

typedef struct {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, memory_map;
    uint32_t memory_entries, reserved;
} start_info;

extern uint8_t ap_trampoline[], ap_trampoline_end[], exception_entries[], timer_entry[],
    spurious_entry[]; /* x86_64.s */

uint64_t stacks[CPUS][STACK / 8] __attribute__((aligned(16)));
const uint32_t stack_size = STACK;
volatile uint32_t starting_cpu; /* the number of the CPU that the boot code starts next */
static const uint32_t numbers[CPUS] = {0, 1, 2, 3, 4, 5, 6, 7};
static uint64_t idt[64][2];

static void out(uint16_t port, uint8_t value) {
    __asm__ volatile("outb %0, %1" : : "a"(value), "Nd"(port));
}

static uint8_t in(uint16_t port) {
    uint8_t value;
    __asm__ volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
    return value;
}

static volatile uint32_t *apic(uint32_t at) {
    return (volatile uint32_t *)(uintptr_t)(LOCAL_APIC + at);
}

static const start_info *info_at(uintptr_t address) {
    const start_info *info = (const start_info *)address;
    if (info->magic != 0x336ec578 || info->version < 1) fail("no start info of PVH, version 1");
    return info;
}

size_t memory_map(uintptr_t address, const memory_entry **entries) {
    const start_info *info = info_at(address);
    if (info->modules != 0) fail("this kernel takes no modules");
    *entries = (const memory_entry *)(uintptr_t)info->memory_map;
    return info->memory_entries;
}

static uint32_t u32(uintptr_t at) {
    uint32_t value;
    __builtin_memcpy(&value, (const void *)at, sizeof value);
    return value;
}

/* The CPUs in ACPI's table of interrupt controllers (MADT), the boot CPU first. */
size_t find_cpus(uintptr_t address, uint32_t ids[CPUS]) {
    uintptr_t rsdp = info_at(address)->rsdp, root, at, madt, entry;
    size_t n = 1;
    /* Revision 0 has 32-bit pointers to the other tables, later ones have 64-bit ones. */
    int wide = *(uint8_t *)(rsdp + 15) > 0;
    root = wide ? u32(rsdp + 24) | (uint64_t)u32(rsdp + 28) << 32 : u32(rsdp + 16);
    ids[0] = *apic(0x20) >> 24;
    for (at = root + 36; at < root + u32(root + 4); at += wide ? 8 : 4) {
        madt = wide ? u32(at) | (uint64_t)u32(at + 4) << 32 : u32(at);
        if (u32(madt) != 0x43495041) continue; /* "APIC" */
        for (entry = madt + 44; entry < madt + u32(madt + 4);) {
            const uint8_t *e = (const uint8_t *)entry;
            if (e[0] == 0 && (e[4] & 1) && e[3] != ids[0] && n < CPUS) ids[n++] = e[3];
            entry += e[1] < 2 ? 2 : e[1];
        }
    }
    return n;
}

/* An interrupt gate disables interrupts on entry. */
static void set_gate(uint32_t vector, const uint8_t *entry) {
    uint64_t to = (uintptr_t)entry;
    idt[vector][0] = (to & 0xffff) | 0x08ull << 16 | 0x8e00ull << 32 | (to >> 16 & 0xffff) << 48;
    idt[vector][1] = to >> 32;
}

void init_cpu(uint32_t cpu) {
    struct __attribute__((packed)) {
        uint16_t limit;
        uint64_t base;
    } pointer = {sizeof idt - 1, (uintptr_t)idt};
    uint64_t base = (uintptr_t)&numbers[cpu];
    __asm__ volatile("wrmsr" : : "c"(0xc0000101), "a"((uint32_t)base), "d"(base >> 32));
    if (cpu == 0) {
        for (uint32_t i = 0; i < 32; i++) set_gate(i, exception_entries + 16 * i);
        set_gate(TIMER_VECTOR, timer_entry);
        set_gate(SPURIOUS_VECTOR, spurious_entry);
        out(0x21, 0xff); /* the old interrupt controllers stay silent */
        out(0xa1, 0xff);
    }
    __asm__ volatile("lidt %0" : : "m"(pointer), "m"(idt));
    *apic(0xf0) = 0x100 | SPURIOUS_VECTOR;
}

/* One CPU at a time: the boot code reads starting_cpu. */
void start_cpu(uint32_t cpu, uint32_t id) {
    static const struct {
        uint32_t command, microseconds;
    } steps[] = {{0x4500, 10000}, {0x4600 | TRAMPOLINE >> 12, 200}, {0x4600 | TRAMPOLINE >> 12, 200}};
    volatile uint8_t *to = (volatile uint8_t *)TRAMPOLINE;
    for (const uint8_t *from = ap_trampoline; from < ap_trampoline_end;) *to++ = *from++;
    starting_cpu = cpu;
    for (size_t i = 0; i < 3; i++) {
        *apic(0x310) = id << 24;
        *apic(0x300) = steps[i].command;
        for (uint32_t n = 0; n < steps[i].microseconds; n++) in(0x80); /* about a microsecond */
    }
}

/* An interrupt in about a millisecond; each handler starts the next. (A periodic timer leaves no time
   for anything else where handlers take longer than its period.) */
void start_timer(void) {
    *apic(0x3e0) = 0xb;
    *apic(0x320) = TIMER_VECTOR;
    *apic(0x380) = 1000000;
}

void stop_timer(void) { *apic(0x320) = 0x10000; }

void end_of_interrupt(void) { *apic(0xb0) = 0; }

void exception(uint64_t vector, uint64_t code, uint64_t rip, uint64_t address);
void exception(uint64_t vector, uint64_t code, uint64_t rip, uint64_t address) {
    fail("exception %u, code %x, at %x, address %x", vector, code, rip, address);
}

void put(char c) {
    while (!(in(0x3fd) & 0x20)) {}
    out(0x3f8, (uint8_t)c);
}

/* Ends QEMU (isa-debug-exit) with status 33 if passed, else 35. */
_Noreturn void stop(int passed) {
    out(0xf4, passed ? 16 : 17);
    for (;;) __asm__ volatile("hlt");
}

/* How many bytes of a CPU's stack were ever used. */
uint64_t stack_used(uint32_t cpu) {
    const volatile uint64_t *word = stacks[cpu];
    uint64_t unused = 0;
    while (unused < STACK / 8 && word[unused] == UNUSED) unused++;
    return STACK - unused * 8;
}
