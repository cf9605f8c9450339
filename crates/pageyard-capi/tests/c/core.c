/* Every function of pageyard_core.h, on this program's own memory, locks and CPUs. */
#include <pageyard_core.h>

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "expect.h"

enum { CPUS = 4, FIRST = 1 << 20, PAGES = 1 << 15, SECTION = 32768 };

static __thread uint32_t this_cpu;
static __thread int held;
/* The locks that this thread holds, in order: each is released before those taken earlier, so that
 * a lock may save the interrupt state (docs/capi.md). */
static __thread struct pageyard_lock *stack[8];
static uint64_t lock_calls, zeroed, reclaims, reclaimed_block, clock_ns;

static uint32_t cpu(void *context) {
    EXPECT(context == (void *)&lock_calls);
    return this_cpu;
}
static uint64_t now(void *context) {
    (void)context;
    return __atomic_add_fetch(&clock_ns, 1000, __ATOMIC_RELAXED);
}
static void lock(struct pageyard_lock *lock) {
    while (__atomic_exchange_n(&lock->words[0], 1, __ATOMIC_ACQUIRE) != 0) {}
    lock->words[1] = this_cpu; /* the holder's */
    EXPECT(held < 8);
    stack[held++] = lock;
    __atomic_fetch_add(&lock_calls, 1, __ATOMIC_RELAXED);
}
static int32_t try_lock(struct pageyard_lock *lock) {
    if (__atomic_exchange_n(&lock->words[0], 1, __ATOMIC_ACQUIRE) != 0) return 0;
    lock->words[1] = this_cpu;
    EXPECT(held < 8);
    stack[held++] = lock;
    return 7;
}
static void unlock(struct pageyard_lock *lock) {
    EXPECT(lock->words[1] == this_cpu && held > 0 && stack[held - 1] == lock);
    held--;
    __atomic_store_n(&lock->words[0], 0, __ATOMIC_RELEASE);
}
static void other_unlock(struct pageyard_lock *lock) {
    unlock(lock);
}
static void zero(void *context, uint64_t pfn, uint32_t order) {
    (void)context;
    EXPECT(held == 0 && pfn % ((uint64_t)1 << order) == 0);
    zeroed += (uint64_t)1 << order;
}

static pageyard_core *reclaiming;

/* Frees the only reclaimable block. */
static uint64_t reclaim(void *context, const struct pageyard_reclaim_job *job) {
    (void)context;
    EXPECT(held == 0 && job->pages > 0 && job->node == 0 && job->highest_zone == PAGEYARD_ZONE_NORMAL);
    EXPECT(job->may_write == 1 && job->priority == 12);
    reclaims++;
    if (reclaimed_block == 0) return 0;
    OK(pageyard_core_free(reclaiming, reclaimed_block, 10));
    reclaimed_block = 0;
    return 1024;
}

static pageyard_platform machine(void) {
    pageyard_platform machine;
    memset(&machine, 0, sizeof machine);
    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.context = &lock_calls;
    machine.cpu = cpu;
    machine.now = now;
    machine.lock = lock;
    machine.try_lock = try_lock;
    machine.unlock = unlock;
    machine.zero = zero;
    machine.reclaim = reclaim;
    return machine;
}

struct memory {
    pageyard_layout layout;
    pageyard_zone zones[2];
    pageyard_range usable[2];
    uint16_t cpus[CPUS];
};

static void describe(struct memory *m) {
    memset(m, 0, sizeof *m);
    m->layout.struct_size = sizeof m->layout;
    m->layout.version = PAGEYARD_VERSION;
    m->zones[0].span.start = FIRST;
    m->zones[0].span.end = FIRST + 2 * SECTION;
    m->zones[0].kind = PAGEYARD_ZONE_NORMAL;
    m->layout.zones = m->zones;
    m->layout.zone_count = 1;
    m->usable[0].start = FIRST;
    m->usable[0].end = FIRST + PAGES;
    m->layout.usable = m->usable;
    m->layout.usable_count = 1;
    m->layout.cpus = m->cpus;
    m->layout.cpu_count = CPUS;
    m->layout.engine = ENGINE;
}

static pageyard_core *make(struct memory *m, void **room) {
    pageyard_platform table = machine();
    pageyard_core *yard = NULL;
    char why[100] = "x";
    size_t bytes = 0;
    describe(m);
    OK(pageyard_core_room(&m->layout, &bytes));
    *room = malloc(bytes + 1);
    memset(*room, 0xa5, bytes + 1);
    /* The room may have any alignment and any contents. */
    OK(pageyard_core_create(&m->layout, &table, (char *)*room + 1, bytes, &yard, why, sizeof why));
    EXPECT(why[0] == 0);
    return yard;
}

static pageyard_stats stats_of(const pageyard_core *yard) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_core_stats(yard, &stats));
    return stats;
}

static void layouts(void) {
    struct memory m;
    pageyard_platform table = machine();
    pageyard_core *yard = NULL;
    static uint64_t room[1 << 18];
    char why[100], text[100];
    size_t bytes = 0;

    describe(&m);
    OK(pageyard_core_room(&m.layout, &bytes));
    EXPECT(IS_PACKED ? bytes < 4 * 2 * SECTION : bytes > 16 * 2 * SECTION);
    EXPECT(bytes < sizeof room);
    EXPECT_STATUS(pageyard_core_room(NULL, &bytes), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_room(&m.layout, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, bytes - 1, &yard, NULL, 0),
                  PAGEYARD_ERR_ROOM);
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, NULL, bytes, &yard, NULL, 0),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, bytes, NULL, NULL, 0),
                  PAGEYARD_ERR_ARGUMENT);
    m.layout.zone_count = 2;
    m.zones[1] = m.zones[0];
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, bytes, &yard, why, sizeof why),
                  PAGEYARD_ERR_ROOM);
    snprintf(text, sizeof text, "room for %lu bytes for its maps, but the layout requires ",
             (unsigned long)bytes);
    EXPECT(strncmp(why, text, strlen(text)) == 0);
    m.zones[1].span.start = m.zones[0].span.end - 1;
    m.zones[1].span.end = m.zones[0].span.end + 1;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_LAYOUT);
    EXPECT(strcmp(why, "zones 0 and 1 overlap") == 0);
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, 8),
                  PAGEYARD_ERR_LAYOUT);
    EXPECT(strcmp(why, "zones 0") == 0);
    m.layout.zone_count = 1;
    m.usable[0].end = FIRST + 3 * SECTION;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_LAYOUT);
    EXPECT(strcmp(why, "usable range 0 reaches outside the zones") == 0);
    m.zones[0].span.end = 0;
    EXPECT_STATUS(pageyard_core_room(&m.layout, &bytes), PAGEYARD_ERR_LAYOUT);
    describe(&m);
    m.zones[0].kind = 5;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_ARGUMENT);
    describe(&m);
    m.layout.cpus = NULL;
    EXPECT_STATUS(pageyard_core_room(&m.layout, &bytes), PAGEYARD_ERR_ARGUMENT);
    describe(&m);
    m.layout.struct_size = 4;
    EXPECT_STATUS(pageyard_core_room(&m.layout, &bytes), PAGEYARD_ERR_VERSION);
    describe(&m);
    m.layout.engine = 2;
    EXPECT_STATUS(pageyard_core_room(&m.layout, &bytes), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT(strcmp(why, "engine 2; expected one of the PAGEYARD_ENGINE numbers") == 0);
    m.layout.engine = PAGEYARD_ENGINE_LINUX612;
    table.engine = PAGEYARD_ENGINE_PACKED;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT(strcmp(why, "the platform's engine is 1, the layout's 0") == 0);
    /* Older callers do not know the field, so it is not looked at. */
    m.layout.engine = UINT64_MAX;
    m.layout.struct_size = offsetof(pageyard_layout, engine);
    OK(pageyard_core_room(&m.layout, &bytes));
    EXPECT(bytes > 16 * 2 * SECTION);
    describe(&m);
    table = machine();
    table.try_lock = NULL;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, sizeof room, &yard, why, sizeof why),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT(yard == NULL);
}

static void requests(void) {
    struct memory m;
    void *room;
    pageyard_core *yard = make(&m, &room);
    pageyard_platform table = machine();
    static uint64_t other_room[1 << 18];
    pageyard_core *other = NULL;
    pageyard_stats stats;
    uint64_t pfn = 0, pfns[100], sleep_ns = 0;
    size_t got = 0, done = 0;
    char text[8192];

    /* A program has one kind of lock. */
    table.unlock = other_unlock;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, other_room, sizeof other_room, &other,
                                       NULL, 0), PAGEYARD_ERR_LOCKS);
    table = machine();
    OK(pageyard_core_create(&m.layout, &table, other_room, sizeof other_room, &other, NULL, 0));
    OK(pageyard_core_destroy(other));
    EXPECT_STATUS(pageyard_core_destroy(other), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_core_drain(other), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_core_drain(NULL), PAGEYARD_ERR_HANDLE);

    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL | PAGEYARD_ZERO, &pfn));
    EXPECT(zeroed == 8 && pfn >= FIRST && pfn < FIRST + PAGES && pfn % 8 == 0);
    EXPECT_STATUS(pageyard_core_alloc(yard, 11, PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_alloc(yard, 0, PAGEYARD_MOVABLE | PAGEYARD_RECLAIMABLE, &pfn),
                  PAGEYARD_ERR_FLAGS);
    EXPECT_STATUS(pageyard_core_alloc_on(yard, 1, 0, PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_NODE);
    this_cpu = CPUS;
    EXPECT_STATUS(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfns[0]), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_free(yard, pfn, 3), PAGEYARD_ERR_CPU);
    this_cpu = 0;
    OK(pageyard_core_alloc_on(yard, 0, 0, PAGEYARD_KERNEL | PAGEYARD_THISNODE, &pfns[0]));
    OK(pageyard_core_free(yard, pfns[0], 0));
    EXPECT_STATUS(pageyard_core_free(yard, 1, 0), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_core_free(yard, FIRST + PAGES, 0), PAGEYARD_ERR_RESERVED);
    EXPECT_STATUS(pageyard_core_free(yard, pfn + 1, 1), PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_core_split(yard, pfn, 3, 4), PAGEYARD_ERR_WRONG_ORDER);
    OK(pageyard_core_set_movable(yard, pfn, 3, 1));
    OK(pageyard_core_free(yard, pfn, 3));
    EXPECT_STATUS(pageyard_core_set_movable(yard, pfn, 3, 1), PAGEYARD_ERR_DOUBLE_FREE);

    OK(pageyard_core_alloc_bulk(yard, PAGEYARD_KERNEL, pfns, 100, &got));
    EXPECT(got == 100);
    OK(pageyard_core_free(yard, pfns[70], 0));
    EXPECT_STATUS(pageyard_core_free_bulk(yard, pfns, 100, 0, &done), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT(done == 70);
    OK(pageyard_core_free_bulk(yard, pfns + 71, 29, 0, &done));
    EXPECT(done == 29);
    EXPECT_STATUS(pageyard_core_alloc_bulk(yard, PAGEYARD_KERNEL, NULL, 1, &got),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_free_bulk(yard, NULL, 1, 0, NULL), PAGEYARD_ERR_ARGUMENT);

    OK(pageyard_core_alloc_contig(yard, FIRST + 1000, FIRST + 3000, PAGEYARD_TYPE_MOVABLE,
                                  PAGEYARD_KERNEL));
    EXPECT_STATUS(pageyard_core_alloc_contig(yard, FIRST + 1000, FIRST + 1001, PAGEYARD_TYPE_MOVABLE,
                                             PAGEYARD_KERNEL), PAGEYARD_ERR_BUSY);
    EXPECT_STATUS(pageyard_core_alloc_contig(yard, FIRST, FIRST, PAGEYARD_TYPE_MOVABLE,
                                             PAGEYARD_KERNEL), PAGEYARD_ERR_RANGE);
    EXPECT_STATUS(pageyard_core_alloc_contig(yard, FIRST, FIRST + 1, 3, PAGEYARD_KERNEL),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_free_contig(yard, FIRST + 3000, FIRST + 1000),
                  PAGEYARD_ERR_RANGE);
    OK(pageyard_core_free_contig(yard, FIRST + 1000, FIRST + 1000));
    OK(pageyard_core_free_contig(yard, FIRST + 1000, FIRST + 3000));
    EXPECT_STATUS(pageyard_core_free_contig(yard, FIRST + 1000, FIRST + 3000),
                  PAGEYARD_ERR_DOUBLE_FREE);

    OK(pageyard_core_alloc_contig_pages(yard, 5000, 2048, PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL,
                                        &pfn));
    EXPECT(pfn % 2048 == 0 && pfn >= FIRST && pfn + 5000 <= FIRST + PAGES);
    OK(pageyard_core_free_contig(yard, pfn, pfn + 5000));
    EXPECT_STATUS(pageyard_core_alloc_contig_pages(yard, PAGES + 1, 1, PAGEYARD_TYPE_MOVABLE,
                                                   PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_NO_MEMORY);
    EXPECT_STATUS(pageyard_core_alloc_contig_pages(yard, 1, 3, PAGEYARD_TYPE_MOVABLE,
                                                   PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_RANGE);
    EXPECT_STATUS(pageyard_core_alloc_contig_pages(yard, 0, 1, PAGEYARD_TYPE_MOVABLE,
                                                   PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_RANGE);
    EXPECT_STATUS(pageyard_core_alloc_contig_pages(yard, 1, 1, PAGEYARD_TYPE_MOVABLE,
                                                   PAGEYARD_KERNEL, NULL), PAGEYARD_ERR_ARGUMENT);

    OK(pageyard_core_tick(yard, 3));
    EXPECT_STATUS(pageyard_core_tick(yard, CPUS), PAGEYARD_ERR_CPU);
    OK(pageyard_core_fold(yard, 3));
    EXPECT_STATUS(pageyard_core_fold(yard, CPUS), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_cpu_up(yard, 3), PAGEYARD_ERR_CPU);
    OK(pageyard_core_cpu_dead(yard, 3));
    EXPECT_STATUS(pageyard_core_cpu_dead(yard, 3), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_tick(yard, 3), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_fold(yard, 3), PAGEYARD_ERR_CPU);
    OK(pageyard_core_cpu_up(yard, 3));
    OK(pageyard_core_compact(yard));
    OK(pageyard_core_compact_background(yard, 0, &sleep_ns));
    EXPECT(sleep_ns == 500000000);
    EXPECT_STATUS(pageyard_core_compact_background(yard, 1, &sleep_ns), PAGEYARD_ERR_NODE);
    EXPECT_STATUS(pageyard_core_compact_background(yard, 0, NULL), PAGEYARD_ERR_ARGUMENT);

    /* A second section goes online and offline. */
    EXPECT_STATUS(pageyard_core_online(yard, FIRST, FIRST + SECTION), PAGEYARD_ERR_RANGE);
    OK(pageyard_core_online(yard, FIRST + SECTION, FIRST + 2 * SECTION));
    EXPECT(stats_of(yard).managed == PAGES + SECTION);
    OK(pageyard_core_offline(yard, FIRST + SECTION, FIRST + 2 * SECTION));
    EXPECT_STATUS(pageyard_core_offline(yard, FIRST + SECTION, FIRST + 2 * SECTION),
                  PAGEYARD_ERR_RANGE);

    OK(pageyard_core_drain(yard));
    stats = stats_of(yard);
    EXPECT(stats.managed == PAGES && stats.free == PAGES && stats.cached == 0);
    OK(pageyard_core_zone_stats(yard, 0, &stats));
    EXPECT(stats.allocs == stats_of(yard).allocs);
    EXPECT_STATUS(pageyard_core_zone_stats(yard, 1, &stats), PAGEYARD_ERR_NODE);
    OK(pageyard_core_text(yard, PAGEYARD_TEXT_ZONEINFO, text, sizeof text, NULL));
    EXPECT(strstr(text, "min") != NULL);
    OK(pageyard_core_set_knob(yard, "min_free_kbytes", "4096"));
    OK(pageyard_core_knob(yard, "min_free_kbytes", text, sizeof text, NULL));
    EXPECT(atoi(text) == 4096 && stats_of(yard).min == 1024);
    EXPECT_STATUS(pageyard_core_set_knob(yard, "min_free_kbytes", "x"), PAGEYARD_ERR_KNOB);
    EXPECT_STATUS(pageyard_core_knob(yard, "nothing", text, sizeof text, NULL), PAGEYARD_ERR_KNOB);
    EXPECT(lock_calls > 0 && held == 0);
    OK(pageyard_core_destroy(yard));
    free(room);
}

/* Boot memory is released, and the pages in use add up. */
static void boot_memory(void) {
    struct memory m;
    pageyard_range reserved[2] = {{FIRST + 100, FIRST + 3000}, {FIRST + SECTION, FIRST + SECTION + 9}};
    pageyard_core *yard = NULL;
    pageyard_platform table = machine();
    pageyard_stats stats;
    size_t bytes = 0;
    char *room, why[200];
    uint64_t pfn = 0, start;

    describe(&m);
    m.layout.reserved = reserved;
    m.layout.reserved_count = 2;
    OK(pageyard_core_room(&m.layout, &bytes));
    room = (char *)malloc(bytes);
    OK(pageyard_core_create(&m.layout, &table, room, bytes, &yard, NULL, 0));
    EXPECT(stats_of(yard).managed == PAGES - 2900);
    EXPECT_STATUS(pageyard_core_release(yard, FIRST + 99, FIRST + 3000, why, sizeof why),
                  PAGEYARD_ERR_NOT_RESERVED);
    EXPECT(strcmp(why, "frame 0x100063 was not reserved at the start") == 0);
    EXPECT_STATUS(pageyard_core_release(yard, FIRST + SECTION, FIRST + SECTION + 1, why, sizeof why),
                  PAGEYARD_ERR_RANGE);
    EXPECT(strcmp(why, "no memory at frame 0x108000") == 0);
    EXPECT_STATUS(pageyard_core_release(yard, 5, 6, why, 8), PAGEYARD_ERR_FOREIGN);
    EXPECT(strcmp(why, "frame 0") == 0);
    EXPECT_STATUS(pageyard_core_release(yard, 6, 6, NULL, 0), PAGEYARD_ERR_RANGE);
    OK(pageyard_core_release(yard, FIRST + 100, FIRST + 2000, why, sizeof why));
    EXPECT(why[0] == 0 && stats_of(yard).managed == PAGES - 1000);
    EXPECT_STATUS(pageyard_core_release(yard, FIRST + 1999, FIRST + 3000, why, sizeof why),
                  IS_PACKED ? PAGEYARD_ERR_NOT_RESERVED : PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT(strcmp(why, IS_PACKED ? "frame 0x1007cf was not reserved at the start"
                                 : "frame 0x1007cf was released before") == 0);
    OK(pageyard_core_release(yard, FIRST + 2000, FIRST + 3000, NULL, 0));

    OK(pageyard_core_alloc(yard, 4, PAGEYARD_KERNEL, &pfn));
    OK(pageyard_core_split(yard, pfn, 4, 0));
    OK(pageyard_core_free(yard, pfn, 0));
    /* A range that excludes the parts of that block. */
    start = pfn < FIRST + 4096 ? FIRST + 8292 : FIRST + 100;
    OK(pageyard_core_alloc_contig(yard, start, start + 2900, PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL));
    stats = stats_of(yard);
    EXPECT(stats.managed == PAGES && stats.managed - stats.free - stats.cached == 15 + 2900);
    EXPECT(stats.alloc_pages - stats.free_pages == 15 + 2900);
    OK(pageyard_core_free_contig(yard, start, start + 2900));
    OK(pageyard_core_free_contig(yard, pfn + 1, pfn + 16));
    stats = stats_of(yard);
    EXPECT(stats.free + stats.cached == PAGES && stats.alloc_pages == stats.free_pages);

    OK(pageyard_core_validate(yard, why, sizeof why));
    EXPECT(why[0] == 0);
    /* A stray write over descriptors or states of the first section, which the maps end with. */
    memset(room + bytes - (IS_PACKED ? 48 << 10 : 600 << 10), 0, 64);
    EXPECT_STATUS(pageyard_core_validate(yard, why, sizeof why), PAGEYARD_ERR_INVALID);
    EXPECT(strncmp(why, "Normal of node 0: ", 18) == 0);
    EXPECT_STATUS(pageyard_core_validate(yard, NULL, 0), PAGEYARD_ERR_INVALID);
    OK(pageyard_core_destroy(yard));
    free(room);
}

/* A small machine whose kernel does not reclaim. */
static size_t small_machine(uint32_t profile, uint64_t flags) {
    static uint64_t pfns[PAGES];
    static pageyard_range usable = {FIRST, FIRST + (40 << 8)};
    struct memory m;
    pageyard_knobs knobs;
    pageyard_platform table = machine();
    pageyard_core *yard = NULL;
    size_t bytes = 0, n = 0, had, i;
    void *room;
    char why[100];

    describe(&m);
    m.layout.usable = &usable;
    knobs.struct_size = sizeof knobs;
    knobs.version = PAGEYARD_VERSION;
    OK(pageyard_core_knobs(profile, &knobs));
    EXPECT(knobs.huge_pages == (profile == PAGEYARD_KNOBS_DEFAULT) && knobs.stat_interval == 1);
    m.layout.knobs = &knobs;
    OK(pageyard_core_room(&m.layout, &bytes));
    room = malloc(bytes);
    table.reclaim = NULL;
    table.flags = 2;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, bytes, &yard, NULL, 0),
                  PAGEYARD_ERR_ARGUMENT);
    table.flags = flags;
    knobs.watermark_scale_factor = 0;
    EXPECT_STATUS(pageyard_core_create(&m.layout, &table, room, bytes, &yard, why, sizeof why),
                  PAGEYARD_ERR_LAYOUT);
    EXPECT(strstr(why, "watermark_scale_factor") != NULL);
    knobs.watermark_scale_factor = 10;
    OK(pageyard_core_create(&m.layout, &table, room, bytes, &yard, NULL, 0));
    while (pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfns[n]) == PAGEYARD_OK) n++;
    had = n;
    /* All remaining pages, with the last reserves; then some pages on another CPU's lists. */
    while (pageyard_core_alloc(yard, 0, PAGEYARD_MEMALLOC, &pfns[n]) == PAGEYARD_OK) n++;
    EXPECT(n == 40 << 8);
    this_cpu = 1;
    for (i = 0; i < 20; i++) OK(pageyard_core_free(yard, pfns[--n], 0));
    this_cpu = 0;
    while (pageyard_core_alloc(yard, 0, PAGEYARD_MEMALLOC, &pfns[n]) == PAGEYARD_OK) n++;
    /* The packed engine drains other CPUs for a request that lacks what they keep. */
    EXPECT(n == (40 << 8) - (flags == 0 && !IS_PACKED ? 20 : 0));
    OK(pageyard_core_destroy(yard));
    free(room);
    return had;
}

/* A request that finds no memory calls reclaim. */
static void shortage(void) {
    struct memory m;
    void *room;
    static uint64_t blocks[PAGES / 1024 + 1];
    size_t n = 0, i;
    pageyard_status status;
    reclaiming = make(&m, &room);
    do status = pageyard_core_alloc(reclaiming, 10, PAGEYARD_ATOMIC, &blocks[n]);
    while (status == PAGEYARD_OK && ++n < PAGES / 1024);
    EXPECT(n > 8 && reclaims == 0);
    do status = pageyard_core_alloc(reclaiming, 0, PAGEYARD_NOWAIT, &blocks[n]);
    while (status == PAGEYARD_OK);
    EXPECT(reclaims == 0);
    EXPECT_STATUS(status, PAGEYARD_ERR_NO_MEMORY);
    reclaimed_block = blocks[--n];
    OK(pageyard_core_alloc(reclaiming, 0, PAGEYARD_KERNEL, &blocks[n]));
    EXPECT(reclaims == 1 && reclaimed_block == 0);
    for (i = 0; i < n; i++) OK(pageyard_core_free(reclaiming, blocks[i], 10));
    OK(pageyard_core_destroy(reclaiming));
    free(room);
}

/* A free page at address 0 does not make requests for other pages fail. */
static void page_at_null(int has_hooks) {
    struct memory m;
    pageyard_platform table = machine();
    pageyard_hooks hooks;
    pageyard_core *yard = NULL;
    static void *pages[PAGES];
    uint64_t pfn, more = 0, nulls = 0, n = 0, i;
    size_t bytes = 0;
    void *room;
    describe(&m);
    memset(&hooks, 0, sizeof hooks);
    hooks.struct_size = sizeof hooks;
    hooks.version = PAGEYARD_VERSION;
    table.hooks = has_hooks ? &hooks : NULL;
    table.direct_map = (void *)(uintptr_t)-((uint64_t)FIRST * 4096);
    OK(pageyard_core_room(&m.layout, &bytes));
    room = malloc(bytes);
    OK(pageyard_core_create(&m.layout, &table, room, bytes, &yard, NULL, 0));
    while (n < PAGES && (pages[n] = pageyard_page(yard)) != NULL) n++;
    while (pageyard_core_alloc(yard, 0, PAGEYARD_ATOMIC | PAGEYARD_MEMALLOC, &pfn) == PAGEYARD_OK) {
        nulls += pfn == FIRST;
        more++;
    }
    /* All but the reserves, and none is lost. */
    EXPECT(nulls == 1 && n > PAGES - PAGES / 16);
    EXPECT(n + more == PAGES);
    OK(pageyard_core_free(yard, FIRST, 0));
    EXPECT(pageyard_page(yard) == NULL);
    for (i = 0; i < n; i++) OK(pageyard_page_free(yard, pages[i]));
    OK(pageyard_core_destroy(yard));
    free(room);
}

/* Four CPUs concurrently: no frame has two owners. */
static pageyard_core *shared;
static uint8_t owned[PAGES];

/* Makes this thread the owner of each page of the block, or removes it as the owner. */
static void mark(uint64_t pfn, uint32_t order, uint8_t mine) {
    uint64_t i;
    for (i = 0; i < (uint64_t)1 << order; i++)
        EXPECT(__atomic_exchange_n(&owned[pfn - FIRST + i], mine, __ATOMIC_RELAXED) != mine);
}

static void *traffic(void *argument) {
    enum { KEEP = 200, ROUNDS = 40000 };
    uint64_t pfns[KEEP] = {0}, n;
    uint32_t orders[KEEP] = {0};
    this_cpu = (uint32_t)(uintptr_t)argument;
    for (n = 0; n < ROUNDS + KEEP; n++) {
        uint64_t at = n < ROUNDS ? n * 2654435761u % KEEP : n - ROUNDS;
        if (pfns[at] != 0) {
            mark(pfns[at], orders[at], 0);
            OK(pageyard_core_free(shared, pfns[at], orders[at]));
        }
        if (n >= ROUNDS) continue;
        orders[at] = (uint32_t)(n % 4);
        OK(pageyard_core_alloc(shared, orders[at], PAGEYARD_KERNEL, &pfns[at]));
        mark(pfns[at], orders[at], 1);
    }
    EXPECT(held == 0);
    return NULL;
}

static void threads(void) {
    struct memory m;
    void *room;
    pthread_t workers[CPUS];
    uintptr_t i;
    shared = make(&m, &room);
    for (i = 0; i < CPUS; i++) EXPECT(pthread_create(&workers[i], NULL, traffic, (void *)i) == 0);
    for (i = 0; i < CPUS; i++) EXPECT(pthread_join(workers[i], NULL) == 0);
    OK(pageyard_core_drain(shared));
    EXPECT(stats_of(shared).free == PAGES);
    OK(pageyard_core_destroy(shared));
    free(room);
}

int main(void) {
    layouts();
    requests();
    boot_memory();
    EXPECT(small_machine(PAGEYARD_KNOBS_DEFAULT, 0) + 200 <
           small_machine(PAGEYARD_KNOBS_SMALL, PAGEYARD_DRAIN_ON_FAILURE));
    shortage();
    page_at_null(0);
    page_at_null(1);
    threads();
    puts("pageyard_core.h: all is well");
    return 0;
}
