/* The needs of embedders (docs/needs.md) in C: many pages at once, frees that wait for a TLB shootdown,
 * memory lent to a hypervisor, contiguous blocks above the largest order, first touch per node and requests
 * that spread over nodes, interrupts that no lock can mask. With
 * -DPLANT and the linker's --wrap, one function does nothing: the program has to notice. */
#include <pageyard_core.h>

#include <string.h>

#include "expect.h"

#ifdef PLANT
#define GLUE(a, b) a##b
#define INSTEAD(name) GLUE(__wrap_, name)
pageyard_status INSTEAD(PLANT)(void);
pageyard_status INSTEAD(PLANT)(void) {
    return PAGEYARD_OK;
}
#endif

enum { FIRST = 1 << 20, PAGES = 1 << 15, FAR = FIRST + 2 * PAGES, ALL = PAGEYARD_ATOMIC | PAGEYARD_MEMALLOC |
       PAGEYARD_MOVABLE | PAGEYARD_NOWARN };

static uint32_t this_cpu;

static uint32_t cpu(void *context) {
    (void)context;
    return this_cpu;
}

/* What runs, once, wherever a lock is about to be released: an interrupt that locks cannot mask. */
static void (*interrupt)(void);
static int interrupted;

static void lock(struct pageyard_lock *lock) {
    EXPECT(!interrupted && lock->words[0] == 0);
    lock->words[0] = 1;
}

static int32_t try_lock(struct pageyard_lock *lock) {
    if (lock->words[0] != 0) return 0;
    lock->words[0] = 1;
    return 1;
}

static void unlock(struct pageyard_lock *lock) {
    if (interrupt != NULL && !interrupted) {
        interrupted = 1;
        interrupt();
        interrupted = 0;
    }
    lock->words[0] = 0;
}

/* One node with a zone, or two; a CPU for each of two nodes. */
static pageyard_core *make(size_t nodes, const pageyard_hooks *hooks, void **room) {
    static const pageyard_zone zones[2] = {{{FIRST, FIRST + PAGES}, 0, PAGEYARD_ZONE_NORMAL},
                                           {{FAR, FAR + PAGES}, 1, PAGEYARD_ZONE_NORMAL}};
    static const pageyard_range usable[2] = {{FIRST, FIRST + PAGES}, {FAR, FAR + PAGES}};
    static const uint16_t near[2] = {0, 0}, apart[2] = {0, 1};
    pageyard_layout layout;
    pageyard_platform machine;
    pageyard_core *yard = NULL;
    size_t bytes = 0;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = zones;
    layout.zone_count = nodes;
    layout.usable = usable;
    layout.usable_count = nodes;
    layout.cpus = nodes == 2 ? apart : near;
    layout.cpu_count = 2;
    layout.engine = ENGINE;
    memset(&machine, 0, sizeof machine);
    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.cpu = cpu;
    machine.lock = lock;
    machine.try_lock = try_lock;
    machine.unlock = unlock;
    machine.hooks = hooks;
    OK(pageyard_core_room(&layout, &bytes));
    *room = malloc(bytes);
    OK(pageyard_core_create(&layout, &machine, *room, bytes, &yard, NULL, 0));
    return yard;
}

static pageyard_stats stats_of(pageyard_core *yard) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_core_drain(yard));
    OK(pageyard_core_stats(yard, &stats));
    EXPECT(stats.cached == 0 && stats.managed == stats.free + stats.alloc_pages - stats.free_pages);
    return stats;
}

static uint64_t free_pages(pageyard_core *yard) {
    return stats_of(yard).free;
}

/* Nothing is lost, every invariant holds. */
static void end(pageyard_core *yard, void *room) {
    char why[200];
    pageyard_stats stats = stats_of(yard);
    EXPECT(stats.free == stats.managed && stats.alloc_pages == stats.free_pages);
    EXPECT_STATUS(pageyard_core_validate(yard, why, sizeof why), PAGEYARD_OK);
    OK(pageyard_core_destroy(yard));
    free(room);
}

/* Whether the test holds each page. */
static uint8_t owned[PAGES];

static void mark(uint64_t pfn, uint64_t pages, uint8_t mine) {
    uint64_t i;
    EXPECT(pfn >= FIRST && pfn + pages <= FIRST + PAGES);
    for (i = pfn - FIRST; i < pfn - FIRST + pages; i++) {
        EXPECT(owned[i] != mine);
        owned[i] = mine;
    }
}

/* Allocates single pages until there are none. */
static uint64_t pages[2 * PAGES];
static size_t take_all(pageyard_core *yard, uint32_t flags) {
    size_t n = 0;
    while (pageyard_core_alloc(yard, 0, flags, &pages[n]) == PAGEYARD_OK) n++;
    return n;
}

static uint64_t marked(const pageyard_range *ranges, size_t n) {
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        EXPECT(ranges[i].start < ranges[i].end);
        mark(ranges[i].start, ranges[i].end - ranges[i].start, 1);
        sum += ranges[i].end - ranges[i].start;
    }
    return sum;
}

static void give_back(pageyard_core *yard, const pageyard_range *ranges, size_t n) {
    size_t i;
    for (i = 0; i < n; i++) {
        mark(ranges[i].start, ranges[i].end - ranges[i].start, 0);
        OK(pageyard_core_free_contig(yard, ranges[i].start, ranges[i].end));
        EXPECT_STATUS(pageyard_core_free_contig(yard, ranges[i].start, ranges[i].end),
                      PAGEYARD_ERR_DOUBLE_FREE);
    }
}

/* Many pages at once. */
static void scatter(void) {
    static pageyard_range ranges[400];
    void *room;
    pageyard_core *yard = make(1, NULL, &room);
    size_t got = 99, n, i;
    uint64_t left;

    /* All memory is free: one range, up to the largest block and above it. */
    OK(pageyard_core_alloc_range_or_scatter(yard, 300, PAGEYARD_KERNEL, ranges, 8, &got));
    EXPECT(got == 1 && marked(ranges, got) == 300 && free_pages(yard) == PAGES - 300);
    give_back(yard, ranges, got);
    OK(pageyard_core_alloc_range_or_scatter(yard, 5000, PAGEYARD_KERNEL, ranges, 8, &got));
    EXPECT(got == 1 && marked(ranges, got) == 5000 && free_pages(yard) == PAGES - 5000);
    give_back(yard, ranges, got);
    OK(pageyard_core_alloc_range_or_scatter(yard, 0, PAGEYARD_KERNEL, NULL, 0, &got));
    EXPECT(got == 0 && free_pages(yard) == PAGES);

    /* Only every other page is free. */
    n = take_all(yard, ALL);
    EXPECT(n == PAGES);
    memset(owned, 1, sizeof owned);
    for (i = 0; i < n; i++)
        if (pages[i] % 2 == 0) {
            OK(pageyard_core_free(yard, pages[i], 0));
            owned[pages[i] - FIRST] = 0;
        }
    left = free_pages(yard);
    EXPECT(left == PAGES / 2);
    got = 99;
    EXPECT_STATUS(pageyard_core_alloc_range_or_scatter(yard, 300, PAGEYARD_KERNEL, ranges, 299, &got),
                  PAGEYARD_ERR_FULL);
    EXPECT(got == 99 && free_pages(yard) == left);
    OK(pageyard_core_alloc_range_or_scatter(yard, 300, PAGEYARD_KERNEL, ranges, 400, &got));
    EXPECT(got == 300 && marked(ranges, got) == 300 && free_pages(yard) == left - 300);
    give_back(yard, ranges, got);
    /* More than there is: all or none. */
    EXPECT_STATUS(pageyard_core_alloc_range_or_scatter(yard, PAGES, ALL, (pageyard_range *)pages, PAGES,
                                                       &got), PAGEYARD_ERR_NO_MEMORY);
    EXPECT(free_pages(yard) == left);
    EXPECT_STATUS(pageyard_core_alloc_range_or_scatter(yard, 3, PAGEYARD_KERNEL, NULL, 3, &got),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_alloc_range_or_scatter(yard, 3, PAGEYARD_KERNEL, ranges, 0, &got),
                  PAGEYARD_ERR_FULL);
    EXPECT_STATUS(pageyard_core_alloc_range_or_scatter(yard, 3, PAGEYARD_MOVABLE | PAGEYARD_RECLAIMABLE,
                                                       ranges, 3, &got), PAGEYARD_ERR_FLAGS);
    for (i = 0; i < PAGES; i++)
        if (owned[i]) OK(pageyard_core_free(yard, FIRST + i, 0));
    memset(owned, 0, sizeof owned);
    end(yard, room);
}

/* Contiguous blocks above the largest order, again and again. */
static void large_blocks(void) {
    void *room;
    pageyard_core *yard = make(1, NULL, &room);
    pageyard_cursor cursor = {0, 0}, other = {0, 0};
    pageyard_range within = {FIRST + 4096, FIRST + PAGES}, none = {FIRST, FIRST + 4095};
    uint64_t pfn[4] = {0}, again = 0;
    int i;
    for (i = 0; i < 4; i++) {
        OK(pageyard_core_alloc_contig_pages_from(yard, &cursor, 4096, 512, &within, PAGEYARD_TYPE_MOVABLE,
                                                 PAGEYARD_KERNEL, &pfn[i]));
        EXPECT(pfn[i] == FIRST + 4096 + (uint64_t)i * 4096);
        mark(pfn[i], 4096, 1);
    }
    /* Eight pageblocks each: none was looked at twice. */
    EXPECT(cursor.looks == 4 * 8 && cursor.next == pfn[3] + 4096);
    EXPECT(free_pages(yard) == PAGES - 4 * 4096);
    /* A range that was freed before the cursor is used last. */
    OK(pageyard_core_free_contig(yard, pfn[0], pfn[0] + 4096));
    mark(pfn[0], 4096, 0);
    OK(pageyard_core_alloc_contig_pages_from(yard, &cursor, 4096, 512, &within, PAGEYARD_TYPE_MOVABLE,
                                             PAGEYARD_KERNEL, &again));
    EXPECT(again == pfn[3] + 4096);
    OK(pageyard_core_free_contig(yard, again, again + 4096));
    cursor.next = FIRST + PAGES - 100;
    OK(pageyard_core_alloc_contig_pages_from(yard, &cursor, 4096, 512, &within, PAGEYARD_TYPE_MOVABLE,
                                             PAGEYARD_KERNEL, &pfn[0]));
    EXPECT(pfn[0] == FIRST + 4096);
    mark(pfn[0], 4096, 1);
    /* Not outside of the range; anywhere without one. */
    EXPECT_STATUS(pageyard_core_alloc_contig_pages_from(yard, &other, 4096, 512, &none,
                                                        PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &again),
                  PAGEYARD_ERR_NO_MEMORY);
    OK(pageyard_core_alloc_contig_pages_from(yard, &other, 4096, 512, NULL, PAGEYARD_TYPE_MOVABLE,
                                             PAGEYARD_KERNEL, &again));
    EXPECT(again == FIRST);
    OK(pageyard_core_free_contig(yard, again, again + 4096));
    EXPECT_STATUS(pageyard_core_alloc_contig_pages_from(yard, &other, 4096, 3, NULL, PAGEYARD_TYPE_MOVABLE,
                                                        PAGEYARD_KERNEL, &again), PAGEYARD_ERR_RANGE);
    EXPECT_STATUS(pageyard_core_alloc_contig_pages_from(yard, &other, 4096, 512, NULL, 3, PAGEYARD_KERNEL,
                                                        &again), PAGEYARD_ERR_ARGUMENT);
    for (i = 0; i < 4; i++) {
        mark(pfn[i], 4096, 0);
        OK(pageyard_core_free_contig(yard, pfn[i], pfn[i] + 4096));
    }
    end(yard, room);
}

/* Frees that wait for a TLB shootdown. */
enum { ROOM = 4 };
static uint64_t acknowledged[2];
static pageyard_epochs epochs = {sizeof epochs, PAGEYARD_VERSION, 0, acknowledged, 2};
static pageyard_shootdown_block blocks[ROOM], more_blocks[ROOM];
static pageyard_shootdown batch = {sizeof batch, PAGEYARD_VERSION, &epochs, blocks, ROOM, 0, 0, 0};
static pageyard_shootdown more = {sizeof more, PAGEYARD_VERSION, &epochs, more_blocks, ROOM, 0, 0, 0};
static uint64_t flushes, more_epoch;

static void flush(void *context) {
    ++*(uint64_t *)context;
}

/* An epoch that begins during a flush is not acknowledged by it. */
static void flush_during_begin(void *context) {
    OK(pageyard_core_shootdown_begin(&more, &more_epoch));
    flush(context);
}

static uint32_t lagging(uint64_t epoch, uint32_t from) {
    uint32_t cpu = 99;
    OK(pageyard_core_epochs_lagging(&epochs, epoch, from, &cpu));
    return cpu;
}

/* Until it has flushed, a CPU that comes online does not hold up what began before. */
static void flush_of_the_first(void *context) {
    EXPECT(lagging(more_epoch, 0) == 0);
    flush(context);
}

static void all_flush(void) {
    uint32_t cpu;
    for (cpu = 0; cpu < 2; cpu++)
        OK(pageyard_core_epochs_acknowledge(&epochs, cpu, flush, &flushes));
}

static void shootdown(void) {
    void *room;
    pageyard_core *yard = make(1, NULL, &room);
    uint64_t one = 0, two = 0, epoch = 0, page[ROOM + 1];
    size_t freed = 99, n, i;

    /* Without a CPU, every epoch would have passed. */
    epochs.cpu_count = 0;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_ARGUMENT);
    epochs.cpu_count = 2;
    /* As a call finds the batch that an interrupt handler uses. */
    batch.busy = 1;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_BUSY);
    batch.busy = 0;

    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &one));
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &two));
    OK(pageyard_core_shootdown_add(yard, &batch, one, 0));
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, two, 2), PAGEYARD_ERR_WRONG_ORDER);
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, two, 11), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, 1, 0), PAGEYARD_ERR_FOREIGN);
    OK(pageyard_core_shootdown_add(yard, &batch, two, 3));
    EXPECT(batch.count == 2 && batch.epoch == 0);
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, &freed), PAGEYARD_ERR_PHASE);
    OK(pageyard_core_shootdown_begin(&batch, &epoch));
    EXPECT(epoch == 1 && batch.epoch == 1 && freed == 99);
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, one, 0), PAGEYARD_ERR_PHASE);
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, &freed), PAGEYARD_ERR_PENDING);
    EXPECT(lagging(epoch, 0) == 0 && lagging(epoch, 1) == 1 && lagging(epoch, 2) == UINT32_MAX);
    OK(pageyard_core_epochs_acknowledge(&epochs, 0, flush, &flushes));
    EXPECT(flushes == 1 && lagging(epoch, 0) == 1);
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, NULL), PAGEYARD_ERR_PENDING);

    /* The allocator does not hand out blocks of a waiting batch. */
    EXPECT(free_pages(yard) == PAGES - 9);
    n = take_all(yard, ALL);
    EXPECT(n == PAGES - 9);
    for (i = 0; i < n; i++) EXPECT(pages[i] != one && (pages[i] < two || pages[i] >= two + 8));
    OK(pageyard_core_free_bulk(yard, pages, n, 0, NULL));

    OK(pageyard_core_epochs_acknowledge(&epochs, 1, flush_during_begin, &flushes));
    EXPECT(flushes == 2 && more_epoch == 2 && lagging(epoch, 0) == UINT32_MAX);
    EXPECT(lagging(more_epoch, 0) == 0 && lagging(more_epoch, 1) == 1);
    OK(pageyard_core_shootdown_free(yard, &batch, &freed));
    EXPECT(freed == 2 && batch.count == 0 && batch.epoch == 0 && free_pages(yard) == PAGES);
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, &freed), PAGEYARD_ERR_PHASE);
    EXPECT_STATUS(pageyard_core_free(yard, one, 0), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, two, 3), PAGEYARD_ERR_DOUBLE_FREE);

    /* An empty batch waits too. CPUs that are offline are not waited for, until they are back. */
    OK(pageyard_core_epochs_offline(&epochs, 0));
    EXPECT(lagging(more_epoch, 0) == 1);
    OK(pageyard_core_epochs_acknowledge(&epochs, 1, flush, &flushes));
    OK(pageyard_core_shootdown_free(yard, &more, &freed));
    EXPECT(freed == 0);
    OK(pageyard_core_epochs_online(&epochs, 0, flush_of_the_first, &flushes));
    EXPECT(flushes == 4 && lagging(more_epoch, 0) == UINT32_MAX);
    OK(pageyard_core_shootdown_begin(&more, &more_epoch));
    EXPECT(lagging(more_epoch, 0) == 0 && lagging(more_epoch, 1) == 1);
    all_flush();
    OK(pageyard_core_shootdown_free(yard, &more, NULL));

    /* To the last entry; a batch is used again. */
    for (i = 0; i <= ROOM; i++) OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &page[i]));
    for (i = 0; i < ROOM; i++) OK(pageyard_core_shootdown_add(yard, &batch, page[i], 0));
    EXPECT_STATUS(pageyard_core_shootdown_add(yard, &batch, page[ROOM], 0), PAGEYARD_ERR_FULL);
    OK(pageyard_core_free(yard, page[ROOM], 0));
    OK(pageyard_core_shootdown_begin(&batch, &epoch));
    all_flush();
    OK(pageyard_core_shootdown_free(yard, &batch, &freed));
    EXPECT(freed == ROOM && free_pages(yard) == PAGES);

    /* A block twice in the batch, and one that its former owner freed, leave it; the rest is freed. */
    for (i = 0; i < 3; i++) OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &page[i]));
    for (i = 0; i < 3; i++) OK(pageyard_core_shootdown_add(yard, &batch, page[i], 0));
    OK(pageyard_core_shootdown_add(yard, &batch, page[1], 0));
    OK(pageyard_core_free(yard, page[0], 0));
    OK(pageyard_core_shootdown_begin(&batch, &epoch));
    all_flush();
    freed = 99;
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, &freed), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT(batch.count == 3 && free_pages(yard) == PAGES - 2);
    EXPECT_STATUS(pageyard_core_shootdown_free(yard, &batch, &freed), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT(batch.count == 2 && free_pages(yard) == PAGES - 2 && freed == 99);
    OK(pageyard_core_shootdown_free(yard, &batch, &freed));
    EXPECT(freed == 2 && free_pages(yard) == PAGES);

    /* Structures that are not what they should be. */
    flushes = 0;
    EXPECT_STATUS(pageyard_core_epochs_acknowledge(&epochs, 2, flush, &flushes), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_epochs_online(&epochs, UINT32_MAX, flush, &flushes), PAGEYARD_ERR_CPU);
    EXPECT_STATUS(pageyard_core_epochs_offline(&epochs, 2), PAGEYARD_ERR_CPU);
    EXPECT(flushes == 0);
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &one));
    OK(pageyard_core_shootdown_add(yard, &batch, one, 0));
    blocks[0].order = 11;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_ARGUMENT);
    blocks[0].order = 0;
    batch.count = ROOM + 1;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_ARGUMENT);
    batch.count = 1;
    batch.epochs = NULL;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_ARGUMENT);
    batch.epochs = &epochs;
    batch.version = 2;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_VERSION);
    batch.version = PAGEYARD_VERSION;
    OK(pageyard_core_shootdown_begin(&batch, &epoch));
    all_flush();
    OK(pageyard_core_shootdown_free(yard, &batch, NULL));
    end(yard, room);
}

/* Memory lent to a hypervisor. */
enum { LENT = 8, HUGE = 9 };
static pageyard_lent lent[PAGES >> HUGE];
static pageyard_balloon balloon = {sizeof balloon, PAGEYARD_VERSION, lent, LENT, HUGE, 0};

static void hypervisor(void) {
    void *room;
    pageyard_core *yard = make(1, NULL, &room);
    uint64_t block[PAGES >> HUGE], pfn = 0, asked = 0, other = 0;
    pageyard_stats stats;
    size_t n, i;

    for (i = 0; i < LENT; i++) {
        OK(pageyard_core_balloon_lend(yard, &balloon, PAGEYARD_HIGHUSER_MOVABLE, &block[i]));
        EXPECT(block[i] % (1 << HUGE) == 0);
        mark(block[i], 1 << HUGE, 1);
    }
    EXPECT_STATUS(pageyard_core_balloon_lend(yard, &balloon, PAGEYARD_HIGHUSER_MOVABLE, &pfn),
                  PAGEYARD_ERR_FULL);
    EXPECT(pfn == 0 && free_pages(yard) == PAGES - (LENT << HUGE));
    OK(pageyard_core_balloon_ask(&balloon, &asked));
    OK(pageyard_core_balloon_ask(&balloon, &other));
    EXPECT(asked != other && owned[asked - FIRST] && owned[other - FIRST]);

    /* The yard hands out everything else; once the hypervisor has answered, that block too. */
    n = take_all(yard, ALL);
    EXPECT(n == PAGES - (LENT << HUGE));
    for (i = 0; i < n; i++) mark(pages[i], 1, 1);
    OK(pageyard_core_balloon_acknowledge(yard, &balloon, asked));
    mark(asked, 1 << HUGE, 0);
    EXPECT_STATUS(pageyard_core_balloon_acknowledge(yard, &balloon, asked), PAGEYARD_ERR_NOT_LENT);
    for (i = 0; i < n; i++) {
        mark(pages[i], 1, 0);
        OK(pageyard_core_free(yard, pages[i], 0));
    }
    n = take_all(yard, ALL);
    EXPECT(n == PAGES - ((LENT - 1) << HUGE));
    for (i = 0; i < n; i++) EXPECT(!owned[pages[i] - FIRST]);
    OK(pageyard_core_free_bulk(yard, pages, n, 0, NULL));

    /* An answer without a request, and answers for blocks that are not lent. Another caller freed the block. */
    for (i = 0; block[i] == asked || block[i] == other; i++) {}
    EXPECT_STATUS(pageyard_core_balloon_acknowledge(yard, &balloon, block[i]), PAGEYARD_ERR_PHASE);
    EXPECT_STATUS(pageyard_core_balloon_acknowledge(yard, &balloon, 0), PAGEYARD_ERR_NOT_LENT);
    OK(pageyard_core_free(yard, other, HUGE));
    EXPECT_STATUS(pageyard_core_balloon_acknowledge(yard, &balloon, other), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT_STATUS(pageyard_core_balloon_acknowledge(yard, &balloon, other), PAGEYARD_ERR_NOT_LENT);
    EXPECT(free_pages(yard) == PAGES - ((LENT - 2) << HUGE));
    for (i = 0; i < LENT - 2; i++) {
        OK(pageyard_core_balloon_ask(&balloon, &asked));
        EXPECT(owned[asked - FIRST]);
        OK(pageyard_core_balloon_acknowledge(yard, &balloon, asked));
    }
    OK(pageyard_core_balloon_ask(&balloon, &asked));
    EXPECT(asked == UINT64_MAX && free_pages(yard) == PAGES);
    memset(owned, 0, sizeof owned);

    /* Lending stops at the low watermark. */
    balloon.room = PAGES >> HUGE;
    for (n = 0; pageyard_core_balloon_lend(yard, &balloon, PAGEYARD_HIGHUSER_MOVABLE, &block[n]) ==
                PAGEYARD_OK;)
        EXPECT(++n < PAGES >> HUGE);
    EXPECT_STATUS(pageyard_core_balloon_lend(yard, &balloon, PAGEYARD_KERNEL | PAGEYARD_NOFAIL, &pfn),
                  PAGEYARD_ERR_NO_MEMORY);
    stats = stats_of(yard);
    EXPECT(n > 48 && stats.free == PAGES - (n << HUGE) && stats.free > stats.low);
    for (i = 0; i < n; i++) OK(pageyard_core_balloon_ask(&balloon, &asked));
    for (i = 0; i < n; i++) OK(pageyard_core_balloon_acknowledge(yard, &balloon, block[i]));

    balloon.order = 11;
    EXPECT_STATUS(pageyard_core_balloon_ask(&balloon, &asked), PAGEYARD_ERR_ARGUMENT);
    balloon.order = HUGE;
    balloon.struct_size = 8;
    EXPECT_STATUS(pageyard_core_balloon_ask(&balloon, &asked), PAGEYARD_ERR_VERSION);
    balloon.struct_size = sizeof balloon;
    end(yard, room);
}

/* Hooks that call again with the batch or the balloon on which a call is under way. */
static uint64_t calls;

static void map(void *context, uint64_t pfn, uint32_t order) {
    uint64_t block;
    (void)context;
    (void)pfn;
    if (order != HUGE) return;
    EXPECT_STATUS(pageyard_core_balloon_ask(&balloon, &block), PAGEYARD_ERR_BUSY);
    calls++;
}

static void unmap(void *context, uint64_t pfn, uint32_t order) {
    uint64_t epoch;
    (void)context;
    (void)pfn;
    if (order != 3) return;
    EXPECT_STATUS(pageyard_core_shootdown_begin(&batch, &epoch), PAGEYARD_ERR_BUSY);
    calls++;
}

static void reentry(void) {
    pageyard_hooks hooks;
    void *room;
    pageyard_core *yard;
    uint64_t pfn = 0, epoch = 0;
    memset(&hooks, 0, sizeof hooks);
    hooks.struct_size = sizeof hooks;
    hooks.version = PAGEYARD_VERSION;
    hooks.map = map;
    hooks.unmap = unmap;
    yard = make(1, &hooks, &room);
    calls = 0;
    OK(pageyard_core_balloon_lend(yard, &balloon, PAGEYARD_HIGHUSER_MOVABLE, &pfn));
    EXPECT(calls == 1);
    OK(pageyard_core_balloon_ask(&balloon, &pfn));
    OK(pageyard_core_balloon_acknowledge(yard, &balloon, pfn));
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn));
    OK(pageyard_core_shootdown_add(yard, &batch, pfn, 3));
    OK(pageyard_core_shootdown_begin(&batch, &epoch));
    all_flush();
    OK(pageyard_core_shootdown_free(yard, &batch, NULL));
    EXPECT(calls == 2);
    end(yard, room);
}

/* First touch: a page is near the CPU that asks for it. */
static void first_touch(void) {
    void *room;
    pageyard_core *yard = make(2, NULL, &room);
    uint64_t pfn = 0, first, start;
    size_t n, i;
    for (this_cpu = 0; this_cpu < 2; this_cpu++) {
        start = this_cpu == 0 ? FIRST : FAR;
        OK(pageyard_core_alloc(yard, 0, PAGEYARD_HIGHUSER_MOVABLE, &pfn));
        EXPECT(pfn >= start && pfn < start + PAGES);
        OK(pageyard_core_free(yard, pfn, 0));
        /* A task whose node is another one. */
        OK(pageyard_core_alloc_on(yard, 1 - this_cpu, 0, PAGEYARD_HIGHUSER_MOVABLE, &pfn));
        EXPECT(pfn < start || pfn >= start + PAGES);
        OK(pageyard_core_free(yard, pfn, 0));
        /* That node and no other; else the next one. */
        OK(pageyard_core_drain(yard));
        n = take_all(yard, ALL | PAGEYARD_THISNODE);
        EXPECT(n == PAGES);
        for (i = 0; i < n; i++) EXPECT(pages[i] >= start && pages[i] < start + PAGES);
        OK(pageyard_core_alloc(yard, 0, PAGEYARD_HIGHUSER_MOVABLE, &first));
        EXPECT(first < start || first >= start + PAGES);
        OK(pageyard_core_free(yard, first, 0));
        OK(pageyard_core_free_bulk(yard, pages, n, 0, NULL));
    }
    this_cpu = 0;
    end(yard, room);
}

static int on_node(uint64_t pfn, int node) {
    uint64_t start = node == 0 ? FIRST : FAR;
    return pfn >= start && pfn < start + PAGES;
}

/* Blocks below a limit, at an alignment, at a chosen frame. */
static void place(void) {
    void *room;
    pageyard_core *yard = make(1, NULL, &room);
    uint64_t limit = FIRST + 1024, pfn = 0, last = 0;
    OK(pageyard_core_alloc_with(yard, 2, PAGEYARD_KERNEL, 256, limit, &pfn));
    EXPECT(pfn >= FIRST && pfn + 4 <= limit && pfn % 256 == 0);
    OK(pageyard_core_alloc_at(yard, limit, 3, PAGEYARD_KERNEL));
    EXPECT_STATUS(pageyard_core_free(yard, limit, 2), PAGEYARD_ERR_WRONG_ORDER);
    EXPECT_STATUS(pageyard_core_alloc_at(yard, limit + 4, 2, PAGEYARD_KERNEL), PAGEYARD_ERR_BUSY);
    EXPECT_STATUS(pageyard_core_alloc_at(yard, limit + 1, 3, PAGEYARD_KERNEL),
                  PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_core_alloc_at(yard, FIRST - 8, 3, PAGEYARD_KERNEL), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_core_alloc_with(yard, 0, PAGEYARD_KERNEL, 3, 0, &last),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_core_alloc_with(yard, 0, PAGEYARD_KERNEL, 1, FIRST, &last),
                  PAGEYARD_ERR_NO_MEMORY);
    EXPECT(last == 0);
    OK(pageyard_core_alloc_with(yard, 0, PAGEYARD_KERNEL, 0, 0, &last));
    OK(pageyard_core_free(yard, last, 0));
    OK(pageyard_core_free(yard, limit, 3));
    OK(pageyard_core_free(yard, pfn, 2));
    end(yard, room);
}

/* Nodes in turn, and a set of nodes before all others. */
static void spread(void) {
    void *room;
    pageyard_core *yard = make(2, NULL, &room);
    uint64_t pfn = 0;
    uint32_t turn = 0;
    size_t n;
    int i;
    for (i = 0; i < 6; i++) {
        OK(pageyard_core_alloc_interleaved(yard, 3, &turn, 2, PAGEYARD_KERNEL, &pfn));
        EXPECT(on_node(pfn, i % 2));
        OK(pageyard_core_free(yard, pfn, 2));
    }
    for (i = 0; i < 3; i++) {
        OK(pageyard_core_alloc_interleaved(yard, 2, &turn, 0, PAGEYARD_KERNEL, &pfn));
        EXPECT(on_node(pfn, 1));
        OK(pageyard_core_free(yard, pfn, 0));
        OK(pageyard_core_alloc_interleaved(yard, 0, &turn, 0, PAGEYARD_KERNEL, &pfn));
        EXPECT(on_node(pfn, 0));
        OK(pageyard_core_free(yard, pfn, 0));
        OK(pageyard_core_alloc_preferring(yard, 2, 0, PAGEYARD_KERNEL, &pfn));
        EXPECT(on_node(pfn, 1));
        OK(pageyard_core_free(yard, pfn, 0));
    }
    pfn = 5;
    EXPECT_STATUS(pageyard_core_alloc_interleaved(yard, 4, &turn, 0, PAGEYARD_KERNEL, &pfn),
                  PAGEYARD_ERR_NODE);
    EXPECT_STATUS(pageyard_core_alloc_interleaved(yard, 3, (uint32_t *)((char *)&turn + 1), 0,
                                                  PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_ARGUMENT);
    EXPECT(pfn == 5);
    this_cpu = 1;
    n = take_all(yard, ALL | PAGEYARD_THISNODE);
    this_cpu = 0;
    OK(pageyard_core_alloc_preferring(yard, 2, 0, PAGEYARD_KERNEL, &pfn));
    EXPECT(on_node(pfn, 0));
    OK(pageyard_core_free(yard, pfn, 0));
    OK(pageyard_core_free_bulk(yard, pages, n, 0, NULL));
    end(yard, room);
}

/* The yard of the interrupt, blocks that it frees, and what became of its requests. */
static pageyard_core *nmi_yard;
static size_t nmi_frees, nmi_served, nmi_refused;

static void nmi(void) {
    uint64_t pfn = 0;
    pageyard_status got = pageyard_core_try_alloc(nmi_yard, 0, PAGEYARD_KERNEL, &pfn);
    if (got == PAGEYARD_OK) {
        mark(pfn, 1, 1);
        mark(pfn, 1, 0);
        OK(pageyard_core_free_nowait(nmi_yard, pfn, 0));
        nmi_served++;
    } else {
        EXPECT(got == PAGEYARD_ERR_NO_MEMORY);
        nmi_refused++;
    }
    if (nmi_frees > 0) {
        nmi_frees--;
        mark(pages[nmi_frees], 1, 0);
        OK(pageyard_core_free_nowait(nmi_yard, pages[nmi_frees], 0));
    }
}

/* Interrupts in every critical section: none waits, nothing is lost or served twice. */
static void never_waiting(void) {
    enum { HELD = 400, ROUNDS = 300 };
    static uint64_t mine[ROUNDS];
    void *room;
    uint64_t pfn = 0;
    size_t i, round;
    nmi_yard = make(1, NULL, &room);
    OK(pageyard_core_try_alloc(nmi_yard, 1, PAGEYARD_KERNEL, &pfn));
    EXPECT(pfn >= FIRST && pfn + 2 <= FIRST + PAGES);
    EXPECT_STATUS(pageyard_core_try_alloc(nmi_yard, 10, PAGEYARD_KERNEL, &pfn), PAGEYARD_ERR_NO_MEMORY);
    OK(pageyard_core_free_nowait(nmi_yard, pfn, 1));
    EXPECT_STATUS(pageyard_core_free_nowait(nmi_yard, pfn, 1), PAGEYARD_ERR_DOUBLE_FREE);
    for (round = 0; round < 4; round++) {
        for (nmi_frees = 0; nmi_frees < HELD; nmi_frees++) {
            OK(pageyard_core_alloc(nmi_yard, 0, PAGEYARD_KERNEL, &pages[nmi_frees]));
            mark(pages[nmi_frees], 1, 1);
        }
        interrupt = nmi;
        for (i = 0; i < ROUNDS; i++) {
            OK(pageyard_core_alloc(nmi_yard, 0, PAGEYARD_KERNEL, &mine[i]));
            mark(mine[i], 1, 1);
        }
        for (i = 0; i < ROUNDS; i++) {
            mark(mine[i], 1, 0);
            OK(pageyard_core_free(nmi_yard, mine[i], 0));
        }
        OK(pageyard_core_drain(nmi_yard));
        interrupt = NULL;
        EXPECT(nmi_frees == 0);
    }
    EXPECT(nmi_served > 0 && nmi_refused > 0);
    end(nmi_yard, room);
}

int main(void) {
    scatter();
    large_blocks();
    shootdown();
    hypervisor();
    if (!IS_PACKED) reentry();
    first_touch();
    spread();
    place();
    never_waiting();
    puts("needs: all is well");
    return 0;
}
