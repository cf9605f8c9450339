/*
 * A kernel that does nothing but use the allocator: boots four CPUs, has all of them allocate and
 * free while timer interrupts do the same, then accounts for every page. docs/kernels.md walks
 * through it; the Rust kernel beside it is the same program.
 *
 * -DPACKED boots on the packed engine. -DOWN_LOCK uses a core that was built for this machine: it
 * has the lock and finds the number of the CPU itself. -DBROKEN_LOCK and -DBROKEN_TRY_LOCK make mistakes, which it
 * must detect.
 */
#include <pageyard_core.h>
#include <stdarg.h>

#include "machine.h"

enum {
    ROUNDS = 100000,            /* requests of a CPU */
    HELD = 256,                 /* blocks that a CPU holds at most */
    KEPT = 8,                   /* blocks that an interrupt handler holds */
#ifdef OWN_LOCK                 /* instructions of a hot pair (docs/kernels.md has the measured numbers) */
    MOST_INSTRUCTIONS = 235, MOST_OF_PAGES = 160
#else
    MOST_INSTRUCTIONS = 340, MOST_OF_PAGES = 300
#endif
};
static const uint64_t MAPPED = 8ull << 30;     /* the boot code maps this much */

/* This kernel reclaims nothing, so no request may try: without DIRECT_RECLAIM a request fails at
   once where reclaim would start. */
static const uint32_t FLAGS[4] = {
    (PAGEYARD_KERNEL & ~PAGEYARD_DIRECT_RECLAIM) | PAGEYARD_NOWARN,
    (PAGEYARD_HIGHUSER_MOVABLE & ~PAGEYARD_DIRECT_RECLAIM) | PAGEYARD_NOWARN,
    PAGEYARD_NOWAIT | PAGEYARD_RECLAIMABLE,
    PAGEYARD_NOWAIT | PAGEYARD_DMA32,
};

/* A block in use, as one number: serial number (32 bits), frame (24), order (4), owner (4). The
   number is also the block's tag: it stands in the first and the last eight bytes of the block
   until the block is freed. No two allocations have the same. 0 is none. */
typedef uint64_t block;

static pageyard_core *yard;
static uint32_t cpus, running, hammering, freeing; /* CPUs that there are, run, hammer, free all */
static block held[CPUS][HELD], mail[CPUS][HELD], kept[CPUS][KEPT];
static uint64_t interrupts[CPUS], requests, failures, mailed;
static uint64_t pages; /* of the allocator */

/* ---- What C needs, and text. ---- */

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
void *memcpy(void *to, const void *from, size_t bytes) {
    void *t = to;
    __asm__ volatile("rep movsb" : "+D"(t), "+S"(from), "+c"(bytes) : : "memory");
    return to;
}
void *memset(void *to, int value, size_t bytes) {
    void *t = to;
    __asm__ volatile("rep stosb" : "+D"(t), "+c"(bytes) : "a"(value) : "memory");
    return to;
}

static void print_number(uint64_t n, uint64_t base) {
    if (n >= base) print_number(n / base, base);
    put("0123456789abcdef"[n % base]);
}

/* %u and %x take a uint64_t, %s a string. */
static void print_list(const char *format, va_list list) {
    for (; *format != 0; format++) {
        if (*format != '%') {
            put(*format);
        } else if (*++format == 's') {
            for (const char *s = va_arg(list, const char *); *s != 0; s++) put(*s);
        } else {
            print_number(va_arg(list, uint64_t), *format == 'x' ? 16 : 10);
        }
    }
}

static void print(const char *format, ...) {
    va_list list;
    va_start(list, format);
    print_list(format, list);
    va_end(list);
}

/* Prints what went wrong and ends QEMU. Only the first CPU that fails prints. */
_Noreturn void fail(const char *format, ...) {
    static uint32_t failed;
    va_list list;
    irq_save();
    while (__atomic_exchange_n(&failed, 1, __ATOMIC_ACQ_REL)) __asm__ volatile("hlt");
    print("\nfailed: CPU %u: ", (uint64_t)this_cpu());
    va_start(list, format);
    print_list(format, list);
    va_end(list);
    print("\n");
    stop(0);
}

static void check(pageyard_status status, const char *what) {
    if (status != PAGEYARD_OK) fail("%s: %s", what, pageyard_strerror(status));
}

/* ---- The allocator's platform. ---- */

static uint64_t platform_now(void *context) {
    (void)context;
    return __atomic_load_n(&interrupts[0], __ATOMIC_RELAXED) * 1000000;
}

#ifndef OWN_LOCK
static const uint64_t PATIENCE = 12000000000;  /* ticks, about 4 s: then a lock is never released */

static uint32_t platform_cpu(void *context) {
    (void)context;
    return this_cpu();
}

/* A lock is held with interrupts disabled: otherwise a handler could wait forever for the code that
   it interrupted. words[0]: 0: free; 2: held; 3: held, and interrupts were enabled before. */
static int32_t try_lock(struct pageyard_lock *lock) {
#if defined(BROKEN_LOCK)
    (void)lock;
    return 1;
#else
    uint64_t free = 0;
#if defined(BROKEN_TRY_LOCK)
    uint64_t enabled = 0;
#else
    uint64_t enabled = irq_save();
#endif
    if (__atomic_compare_exchange_n(&lock->words[0], &free, 2 | enabled, 0, __ATOMIC_ACQUIRE,
                                    __ATOMIC_RELAXED))
        return 1;
    irq_restore(enabled);
    return 0;
#endif
}

/* Holders need microseconds; what runs the CPUs may stop one for much longer. */
static void lock(struct pageyard_lock *lock) {
    uint64_t start = read_clock();
    while (!try_lock(lock)) {
        if (read_clock() - start > PATIENCE)
            fail("a lock is never released: the holder waits for this CPU, or was interrupted by it");
        __asm__ volatile("pause");
    }
}

static void unlock(struct pageyard_lock *lock) {
    uint64_t enabled = lock->words[0] & 1;
    __atomic_store_n(&lock->words[0], 0, __ATOMIC_RELEASE);
    irq_restore(enabled);
}
#endif

/* ---- The start. ---- */

/* Pages that the allocator has. */
static uint64_t managed_pages(void) {
    static pageyard_stats stats;
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    check(pageyard_core_stats(yard, &stats), "stats");
    return stats.managed;
}

/* The allocator has all usable pages but those reserved and those of its maps, which are few. */
static void check_pages(const memory_entry *map, size_t entries) {
    uint64_t bytes = 0, least;
    for (size_t i = 0; i < entries; i++)
        if (map[i].kind == PAGEYARD_MEMORY_USABLE && map[i].start >= 1 << 20 && map[i].start < MAPPED)
            bytes += map[i].size;
    bytes -= (uint64_t)(image_end - image_start);
    least = (bytes - bytes / 50) / PAGEYARD_PAGE_SIZE;
    if (pages < least || pages * PAGEYARD_PAGE_SIZE >= bytes)
        fail("%u pages of %u bytes of free memory", pages, bytes);
}

/* Creates the allocator from the boot loader's memory map, with only this CPU online. */
static void create(uintptr_t info) {
    static pageyard_platform machine;
    static char why[160];
    const pageyard_addresses reserved[] = {
        {0, 1 << 20}, /* start info, trampoline */
        {(uintptr_t)image_start, (uintptr_t)image_end},
    };
    const memory_entry *map; /* with the fields of pageyard_memory */
    size_t entries = memory_map(info, &map);
    pageyard_status status;

    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.now = platform_now;
#ifndef OWN_LOCK
    machine.cpu = platform_cpu;
    machine.lock = lock;
    machine.try_lock = try_lock;
    machine.unlock = unlock;
#endif
    machine.mapped = MAPPED;
#ifdef PACKED
    machine.engine = PAGEYARD_ENGINE_PACKED; /* in a core that was installed with --packed */
#endif
    status = pageyard_kernel_init((const pageyard_memory *)map, entries, reserved, 2, cpus, &machine,
                                  &yard, why, sizeof why);
    if (status != PAGEYARD_OK) fail("%s: %s", pageyard_strerror(status), why);
    pages = managed_pages();
    check_pages(map, entries);
}

/* ---- The test. ---- */

static volatile block *end_of(block b, int last) {
    uint64_t first = (b >> 8 & 0xffffff) * PAGEYARD_PAGE_SIZE, order = b >> 4 & 15;
    return (volatile block *)(last ? first + ((uint64_t)PAGEYARD_PAGE_SIZE << order) - 8 : first);
}

static block mark(uint64_t pfn, uint32_t order, uint32_t owner, uint32_t serial) {
    block b = (uint64_t)serial << 32 | pfn << 8 | order << 4 | owner;
    *end_of(b, 0) = *end_of(b, 1) = b;
    return b;
}

/* Checks that the block is still its owner's, removes the tag and frees the block. */
static void free_block(block b) {
    if (b == 0) return;
    for (int last = 0; last < 2; last++) {
        block found = *end_of(b, last);
        if (found != b) fail("two owners of a block: %x and %x", b, found);
        *end_of(b, last) = 0;
    }
    pageyard_status status = pageyard_core_free(yard, b >> 8 & 0xffffff, b >> 4 & 15);
    if (status != PAGEYARD_OK) fail("free of %x: %s", b, pageyard_strerror(status));
}

/* Frees the oldest of eight blocks and allocates another; every fourth time, ticks. Then starts the
   timer again. */
void timer_interrupt(void) {
    uint32_t cpu = this_cpu();
    uint64_t n = interrupts[cpu]++, pfn;
    uint32_t order = n % 16 == 0 ? 2 : 0;
    free_block(kept[cpu][n % KEPT]);
    kept[cpu][n % KEPT] = 0;
    if (pageyard_core_alloc(yard, order, PAGEYARD_ATOMIC | PAGEYARD_NOWARN, &pfn) == PAGEYARD_OK)
        kept[cpu][n % KEPT] = mark(pfn, order, cpu + CPUS, (uint32_t)n);
    if (n % 4 == 0) check(pageyard_core_tick(yard, cpu), "tick");
    start_timer();
    end_of_interrupt();
}

static void receive(uint32_t cpu, size_t place) {
    if (__atomic_load_n(&mail[cpu][place % HELD], __ATOMIC_RELAXED) != 0)
        free_block(__atomic_exchange_n(&mail[cpu][place % HELD], 0, __ATOMIC_ACQUIRE));
}

/* Frees the block in one place of a CPU's own mailbox. After all places, lets other CPUs run until the
   next interrupt. */
static void wait_for_mail(uint32_t cpu, size_t place) {
    receive(cpu, place);
    if (place % HELD == 0) __asm__ volatile("hlt" : : : "memory");
}

/* Has another CPU free a block. If it is behind, frees this CPU's own mail meanwhile. */
static void send(uint32_t cpu, uint32_t other, size_t place, block b) {
    block none = 0;
    for (; !__atomic_compare_exchange_n(&mail[other][place % HELD], &none, b, 0, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED);
         place++, none = 0)
        wait_for_mail(cpu, place);
}

/* Fills and empties places at random: orders 0 to 10, each half as often as the one below, four kinds
   of flags; a quarter of the frees on another CPU. */
static void hammer(uint32_t cpu) {
    uint64_t random = 0x9e3779b97f4a7c15 * (cpu + 1), failed = 0, sent = 0, pfn;
    for (uint32_t serial = 0; serial < ROUNDS;) {
        random ^= random << 13; /* xorshift */
        random ^= random >> 7;
        random ^= random << 17;
        size_t place = random % HELD;
        block b = held[cpu][place];
        if (b != 0) {
            held[cpu][place] = 0;
            if ((random >> 32) % 4 != 0 || cpus == 1) {
                free_block(b);
            } else {
                send(cpu, (uint32_t)(cpu + 1 + (random >> 34) % (cpus - 1)) % cpus, random >> 40, b);
                sent++;
            }
        } else {
            uint32_t order = (uint32_t)__builtin_ctzll(random >> 8 | 1 << PAGEYARD_MAX_ORDER);
            serial++;
            pageyard_status status = pageyard_core_alloc(yard, order, FLAGS[random >> 24 & 3], &pfn);
            if (status == PAGEYARD_OK)
                held[cpu][place] = mark(pfn, order, cpu, serial);
            else if (status == PAGEYARD_ERR_NO_MEMORY)
                failed++;
            else
                check(status, "alloc");
        }
        receive(cpu, place);
    }
    __atomic_fetch_add(&requests, ROUNDS, __ATOMIC_RELAXED);
    __atomic_fetch_add(&failures, failed, __ATOMIC_RELAXED);
    __atomic_fetch_add(&mailed, sent, __ATOMIC_RELAXED);
}

/* What every CPU does: come online, hammer, free everything. */
static void run(uint32_t cpu) {
    pageyard_status status = pageyard_core_cpu_up(yard, cpu);
    if (cpu != 0) check(status, "cpu_up");
    __atomic_fetch_add(&running, 1, __ATOMIC_ACQ_REL);
    start_timer();
    irq_restore(1);
    hammer(cpu);
    __atomic_fetch_sub(&hammering, 1, __ATOMIC_ACQ_REL);
    for (size_t i = 0; __atomic_load_n(&hammering, __ATOMIC_ACQUIRE) != 0; i++)
        wait_for_mail(cpu, i);
    irq_save();
    stop_timer();
    for (size_t i = 0; i < HELD; i++) {
        free_block(held[cpu][i]);
        receive(cpu, i);
    }
    for (size_t i = 0; i < KEPT; i++) free_block(kept[cpu][i]);
    __atomic_fetch_sub(&freeing, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&freeing, __ATOMIC_ACQUIRE) != 0) __asm__ volatile("pause");
}

/* Pairs of a request and a free, whose arguments are constants. */
enum { PAIRS = 10000 };

static void pairs(void) {
    uint64_t pfn = 0;
    for (int i = 0; i < PAIRS; i++)
        if (pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfn) != PAGEYARD_OK
            || pageyard_core_free(yard, pfn, 0) != PAGEYARD_OK)
            fail("a hot pair failed");
}

static void page_pairs(void) {
    for (int i = 0; i < PAIRS; i++) {
        void *page = pageyard_page(yard);
        if (page == 0 || pageyard_page_free(yard, page) != PAGEYARD_OK) fail("a hot pair failed");
    }
}

/* Returns the instructions of a hot pair, with interrupts disabled, if the clock counts
   instructions, as under -icount shift=0; else 0. */
static uint64_t measure(void (*run)(void), uint64_t most) {
    enum { KNOWN = 1000000 };
    uint64_t start = read_clock(), n = KNOWN, ticks, instructions;
    __asm__ volatile("1: sub $1, %0; jnz 1b" : "+r"(n));
    ticks = read_clock() - start;
    run();
    start = read_clock();
    run();
    instructions = (read_clock() - start) / PAIRS;
    /* No real clock comes this close. */
    if (ticks + 100 < 2 * KNOWN || ticks > 2 * KNOWN + 100) return 0;
    if (instructions > most) fail("a hot pair takes %u instructions", instructions);
    return instructions;
}

/* Drains and checks the allocator when no CPU uses it. Returns the number of free pages. */
static uint64_t finish(void) {
    static char text[2048];
    static pageyard_stats stats;
    uint64_t free = 0;
    check(pageyard_core_drain(yard), "drain");
    if (pageyard_core_validate(yard, text, sizeof text) != PAGEYARD_OK) fail("%s", text);
    check(pageyard_core_text(yard, PAGEYARD_TEXT_BUDDYINFO, text, sizeof text, NULL), "text");
    print("%s", text);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    for (size_t i = 0; pageyard_core_zone_stats(yard, i, &stats) == PAGEYARD_OK; i++) {
        if (stats.managed != stats.free || stats.cached != 0)
            fail("zone %u has %u of %u pages", (uint64_t)i, stats.free, stats.managed);
        free += stats.free;
    }
    if (free != pages) fail("%u pages free, not %u", free, pages);
    return free;
}

/* Called by the boot code on every CPU, one after the other, with interrupts disabled. */
void kernel_start(uint32_t cpu, uintptr_t info) {
    static uint32_t ids[CPUS];
    uint64_t pair, page_pair, free, most = 0;
    init_cpu(cpu);
    if (cpu != 0) {
        run(cpu);
        for (;;) __asm__ volatile("hlt");
    }
    cpus = hammering = freeing = (uint32_t)find_cpus(info, ids);
    create(info);
#ifdef PACKED
    print("%u CPUs, the packed engine, %u pages\n", (uint64_t)cpus, pages);
#else
    print("%u CPUs, %u pages\n", (uint64_t)cpus, pages);
#endif
    pair = measure(pairs, MOST_INSTRUCTIONS);
    page_pair = measure(page_pairs, MOST_OF_PAGES);
    for (uint32_t other = 1; other < cpus; other++) {
        __atomic_store_n(&running, other, __ATOMIC_RELEASE);
        start_cpu(other, ids[other]);
        while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) == other) __asm__ volatile("pause");
    }
    print("all CPUs run; the hammer starts\n");
    run(0);
    free = finish();
    for (uint32_t i = 0; i < cpus; i++) {
        uint64_t used = stack_used(i);
        if (used > most) most = used;
    }
    if (most == STACK) fail("a stack overflowed");
    for (uint32_t i = 1; i < cpus; i++) interrupts[0] += interrupts[i];
    print("%u requests, %u without memory, %u freed on another CPU, %u interrupts\n", requests,
          failures, mailed, interrupts[0]);
    if (requests - failures <= requests / 2 || interrupts[0] == 0
        || (cpus > 1 && mailed <= (requests - failures) / 5))
        fail("the test did too little");
    print("passed: %u pages free, %u instructions per pair, %u by address, %u of %u bytes of stack\n",
          free, pair, page_pair, most, (uint64_t)STACK);
    stop(1);
}
