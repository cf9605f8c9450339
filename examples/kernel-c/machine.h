/* The machine under the kernel: a PC as QEMU's, started by PVH. */
#ifndef MACHINE_H
#define MACHINE_H

#include <stddef.h>
#include <stdint.h>

enum { CPUS = 8, STACK = 4096 }; /* the most CPUs; bytes of stack of each, interrupts included */

typedef struct {
    uint64_t start, size;
    uint32_t kind, reserved;
} memory_entry;

/* kernel.c */
void kernel_start(uint32_t cpu, uintptr_t info);
void timer_interrupt(void);
_Noreturn void fail(const char *format, ...);

/* machine.c */
void init_cpu(uint32_t cpu);
size_t memory_map(uintptr_t info, const memory_entry **entries);
size_t find_cpus(uintptr_t info, uint32_t ids[CPUS]);
void start_cpu(uint32_t cpu, uint32_t id);
void start_timer(void);
void stop_timer(void);
void end_of_interrupt(void);
void put(char c);
_Noreturn void stop(int passed);
uint64_t stack_used(uint32_t cpu);
extern uint8_t image_start[], image_end[]; /* x86_64.ld */

/* GS points at the CPU's number. Threads of this kernel stay on their CPU. */
static inline uint32_t this_cpu(void) {
    uint32_t cpu;
    __asm__("mov %%gs:0, %0" : "=r"(cpu));
    return cpu;
}

/* Disables interrupts. Returns 1 if they were enabled. */
static inline uint64_t irq_save(void) {
    uint64_t flags;
    __asm__ volatile("pushfq; pop %0; cli" : "=r"(flags) : : "memory");
    return flags >> 9 & 1;
}

static inline void irq_restore(uint64_t enabled) {
    if (enabled) __asm__ volatile("sti" : : : "memory");
}

/* The time-stamp counter. Under `-icount shift=0` it counts instructions. */
static inline uint64_t read_clock(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

#endif
