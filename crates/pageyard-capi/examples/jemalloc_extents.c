/*
 * jemalloc with its extents from a yard, for unmodified programs.
 *
 *     cc -shared -fPIC -o extents.so jemalloc_extents.c $(pkg-config --cflags --libs pageyard) -ljemalloc
 *     MALLOC_CONF=oversize_threshold:0 LD_PRELOAD=libjemalloc.so.2:./extents.so program
 *
 * (jemalloc's malloc must precede libc's, so it is named first. Without the setting, requests of 8
 * MiB and more go to an arena of their own, which does not use the hooks.)
 *
 * jemalloc allocates extents, ranges of pages, through a table of hooks. Here they come from a yard
 * of the bare core on memory that this library maps: a core-level yard needs no heap, so malloc can
 * be built on it. Extents of up to 4 MiB are blocks, larger ones contiguous ranges; to the yard all
 * are single pages, since jemalloc splits and merges extents freely. Extents from before the
 * program started, and those that the yard cannot provide, stay with jemalloc's own hooks.
 *
 * PAGEYARD_EXTENTS_MIB sets the size of the yard (default 1024); PAGEYARD_EXTENTS_STATS prints
 * statistics at exit.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#include <jemalloc/jemalloc.h>
#include <pageyard_core.h>

enum { PAGE = PAGEYARD_PAGE_SIZE, MOST_CPUS = 1024 };
static const size_t LARGEST = (size_t)PAGE << PAGEYARD_MAX_ORDER;

static pageyard_core *yard;
static uint64_t first, last; /* the yard's frames: addresses in pages */
static uint32_t cpus;
static uint64_t extents, bytes_given, refused;
static extent_hooks_t *own[4096];

static bool is_ours(const void *address) {
    uint64_t pfn = (uintptr_t)address / PAGE;
    return pfn >= first && pfn < last;
}

/* ---- Hooks of the core. ---- */

static uint32_t cpu(void *context) {
    int here = sched_getcpu();
    (void)context;
    return here < 0 ? 0 : (uint32_t)here % cpus;
}

static uint64_t now(void *context) {
    struct timespec time;
    (void)context;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void pause_a_tick(void *context) {
    (void)context;
    usleep(1000);
}

/* Holds are short, but the holder may be preempted. */
static void lock(struct pageyard_lock *lock) {
    int looks = 0;
    while (__atomic_exchange_n(&lock->words[0], 1, __ATOMIC_ACQUIRE) != 0)
        if (++looks % 100 == 0) sched_yield();
}
static int32_t try_lock(struct pageyard_lock *lock) {
    return __atomic_exchange_n(&lock->words[0], 1, __ATOMIC_ACQUIRE) == 0;
}
static void unlock(struct pageyard_lock *lock) {
    __atomic_store_n(&lock->words[0], 0, __ATOMIC_RELEASE);
}

/* ---- Hooks of jemalloc; jemalloc(3) says what each must do. ---- */

static void *take(size_t bytes, size_t alignment) {
    uint64_t pages = bytes / PAGE, pfn;
    if (bytes <= LARGEST && alignment <= LARGEST) {
        uint32_t order = 0;
        while (((size_t)PAGE << order) < bytes || ((size_t)PAGE << order) < alignment) order++;
        if (pageyard_core_alloc(yard, order, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &pfn) != PAGEYARD_OK)
            return NULL;
        if (pageyard_core_split(yard, pfn, order, 0) != PAGEYARD_OK) abort();
        if (pages < (uint64_t)1 << order
            && pageyard_core_free_contig(yard, pfn + pages, pfn + ((uint64_t)1 << order))
                   != PAGEYARD_OK)
            abort();
    } else if (pageyard_core_alloc_contig_pages(yard, pages, alignment / PAGE, PAGEYARD_TYPE_MOVABLE,
                                                PAGEYARD_KERNEL | PAGEYARD_NOWARN, &pfn)
               != PAGEYARD_OK) {
        return NULL;
    }
    return (void *)(uintptr_t)(pfn * PAGE);
}

static void *extent_alloc(extent_hooks_t *hooks, void *wanted, size_t bytes, size_t alignment,
                          bool *zero, bool *commit, unsigned arena) {
    void *extent = NULL;
    if (wanted == NULL) extent = take(bytes, alignment < PAGE ? PAGE : alignment);
    if (extent == NULL) {
        if (wanted == NULL) __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
        return own[arena]->alloc(hooks, wanted, bytes, alignment, zero, commit, arena);
    }
    __atomic_fetch_add(&extents, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&bytes_given, bytes, __ATOMIC_RELAXED);
    /* Freed pages were also returned to the system, so they are zero. */
    *zero = true;
    *commit = true;
    return extent;
}

static bool extent_dalloc(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed,
                          unsigned arena) {
    uint64_t pfn = (uintptr_t)extent / PAGE;
    if (!is_ours(extent))
        return own[arena]->dalloc == NULL
            || own[arena]->dalloc(hooks, extent, bytes, committed, arena);
    if (madvise(extent, bytes, MADV_DONTNEED) != 0) return true;
    if (pageyard_core_free_contig(yard, pfn, pfn + bytes / PAGE) != PAGEYARD_OK) abort();
    return false;
}

static void extent_destroy(extent_hooks_t *hooks, void *extent, size_t bytes, bool committed,
                           unsigned arena) {
    if (!is_ours(extent)) {
        if (own[arena]->destroy != NULL)
            own[arena]->destroy(hooks, extent, bytes, committed, arena);
    } else if (extent_dalloc(hooks, extent, bytes, committed, arena)) {
        abort();
    }
}

static bool extent_purge(extent_hooks_t *hooks, void *extent, size_t bytes, size_t offset,
                         size_t length, unsigned arena) {
    (void)hooks;
    (void)bytes;
    (void)arena;
    return madvise((char *)extent + offset, length, MADV_DONTNEED) != 0;
}

static bool extent_split(extent_hooks_t *hooks, void *extent, size_t bytes, size_t a, size_t b,
                         bool committed, unsigned arena) {
    if (is_ours(extent)) return false;
    return own[arena]->split == NULL
        || own[arena]->split(hooks, extent, bytes, a, b, committed, arena);
}

static bool extent_merge(extent_hooks_t *hooks, void *a, size_t a_bytes, void *b, size_t b_bytes,
                         bool committed, unsigned arena) {
    if (is_ours(a) != is_ours(b)) return true;
    if (is_ours(a)) return false;
    return own[arena]->merge == NULL
        || own[arena]->merge(hooks, a, a_bytes, b, b_bytes, committed, arena);
}

/* (Memory is always committed; lazy purging would leave nonzero pages.) */
static extent_hooks_t hooks = {
    extent_alloc, extent_dalloc, extent_destroy, NULL,         NULL,
    NULL,         extent_purge,  extent_split,   extent_merge,
};

/* ---- Start and exit. ---- */

/* Some programs close standard error before they exit. */
static int report_to;

static void report(void) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    if (pageyard_core_stats(yard, &stats) == PAGEYARD_OK)
        dprintf(report_to, "pageyard: %llu extents of %llu MiB, %llu asked of jemalloc; %llu of %llu pages in use\n",
                (unsigned long long)extents, (unsigned long long)(bytes_given >> 20),
                (unsigned long long)refused,
                (unsigned long long)(stats.managed - stats.free - stats.cached),
                (unsigned long long)stats.managed);
}

static void *map(size_t bytes) {
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room == MAP_FAILED ? NULL : room;
}

static int make_yard(uint64_t bytes) {
    static uint16_t node_of_cpu[MOST_CPUS];
    static char why[160];
    pageyard_layout layout;
    pageyard_platform machine;
    pageyard_range all;
    pageyard_zone zone;
    pageyard_status status;
    char *memory = (char *)map(bytes + LARGEST);
    size_t room_bytes;
    void *room;

    if (memory == NULL) return 0;
    cpus = (uint32_t)get_nprocs_conf();
    if (cpus > MOST_CPUS) cpus = MOST_CPUS;
    all.start = ((uintptr_t)memory + LARGEST - 1) / LARGEST * LARGEST / PAGE;
    all.end = all.start + bytes / PAGE;
    zone.span = all;
    zone.node = 0;
    zone.kind = PAGEYARD_ZONE_NORMAL;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &all;
    layout.usable_count = 1;
    layout.cpus = node_of_cpu;
    layout.cpu_count = cpus;
    memset(&machine, 0, sizeof machine);
    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.cpu = cpu;
    machine.now = now;
    machine.pause = pause_a_tick;
    machine.lock = lock;
    machine.try_lock = try_lock;
    machine.unlock = unlock;
    if (pageyard_core_room(&layout, &room_bytes) != PAGEYARD_OK) return 0;
    room = map(room_bytes);
    if (room == NULL) return 0;
    status = pageyard_core_create(&layout, &machine, room, room_bytes, &yard, why, sizeof why);
    if (status != PAGEYARD_OK) {
        fprintf(stderr, "pageyard: %s: %s\n", pageyard_strerror(status), why);
        return 0;
    }
    first = all.start;
    last = all.end;
    return 1;
}

__attribute__((constructor)) static void begin(void) {
    const char *mib = getenv("PAGEYARD_EXTENTS_MIB");
    unsigned arenas = 0, i;
    size_t size = sizeof arenas;
    if (mallctl("opt.narenas", &arenas, &size, NULL, 0) != 0) {
        fputs("pageyard: this is not jemalloc\n", stderr);
        return;
    }
    if (!make_yard((mib != NULL ? strtoull(mib, NULL, 10) : 1024) << 20)) {
        fputs("pageyard: there is no yard; jemalloc keeps its own extents\n", stderr);
        return;
    }
    for (i = 0; i < arenas && i < sizeof own / sizeof *own; i++) {
        extent_hooks_t *with = &hooks;
        char name[64];
        snprintf(name, sizeof name, "arena.%u.extent_hooks", i);
        size = sizeof own[i];
        /* Save the old hooks first: the new ones may be called before the call that sets them
         * returns. */
        if (mallctl(name, &own[i], &size, NULL, 0) == 0)
            mallctl(name, NULL, NULL, &with, sizeof with);
    }
    if (getenv("PAGEYARD_EXTENTS_STATS") != NULL) {
        report_to = dup(STDERR_FILENO);
        atexit(report);
    }
}
