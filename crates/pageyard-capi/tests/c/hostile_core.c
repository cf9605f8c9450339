/* Every function of pageyard_core.h with invalid and extreme numbers: each call succeeds or returns
 * an error, and afterwards the yard is valid and empty. Each run tests one function, named by the
 * argument; the Rust test checks that none is missing. */
#include <pageyard_core.h>

#include "hostile.h"

#ifdef PLANT
static pageyard_status planted(void) {
    raise(SIGABRT);
    return PAGEYARD_OK;
}
#define pageyard_core_compact(yard) planted()
#endif

static pageyard_core *yard;
static uint64_t zeroed;

static void zero(void *context, uint64_t pfn, uint32_t order) {
    (void)context;
    EXPECT(pfn >= FIRST && pfn < FIRST + PAGES && order <= PAGEYARD_MAX_ORDER);
    zeroed += (uint64_t)1 << order;
}

static int32_t relocate(void *context, uint64_t from, uint64_t to, uint32_t order) {
    (void)context;
    (void)from;
    (void)to;
    (void)order;
    return INT32_MIN; /* what is no answer is a refusal */
}

static uint64_t reclaim(void *context, const pageyard_reclaim_job *job) {
    (void)context;
    (void)job;
    return UINT64_MAX; /* more than there is */
}

static pageyard_layout layout_of(void) {
    static pageyard_range usable = {FIRST, FIRST + PAGES};
    static pageyard_zone zone = {{FIRST, FIRST + PAGES}, 0, PAGEYARD_ZONE_NORMAL};
    static const uint16_t cpus[2] = {0, 0};
    pageyard_layout layout;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &usable;
    layout.usable_count = 1;
    layout.cpus = cpus;
    layout.cpu_count = 2;
    layout.engine = ENGINE;
    return layout;
}

static pageyard_platform machine(void) {
    pageyard_platform platform;
    memset(&platform, 0, sizeof platform);
    platform.struct_size = sizeof platform;
    platform.version = PAGEYARD_VERSION;
    platform.zero = zero;
    platform.relocate = relocate;
    platform.reclaim = reclaim;
    return platform;
}

static void make(void) {
    pageyard_layout layout = layout_of();
    pageyard_platform platform = machine();
    size_t bytes = 0;
    OK(pageyard_core_room(&layout, &bytes));
    OK(pageyard_core_create(&layout, &platform, malloc(bytes), bytes, &yard, NULL, 0));
}

/* Asserts that an allocated block is zero if requested, and frees it. */
static void check(pageyard_status status, const uint64_t *pfn, uint32_t order, uint32_t flags) {
    if (known(status)) {
        EXPECT(zeroed == (flags & PAGEYARD_ZERO ? (uint64_t)1 << order : 0));
        OK(pageyard_core_free(yard, *pfn, order));
    }
    zeroed = 0;
}

static void h_pageyard_strerror(void) {
    EACH(int32_t, n) {
        CALL(pageyard_strerror, (uint64_t)n);
        EXPECT(strlen(pageyard_strerror(n)) > 0);
    }
}

static void h_pageyard_core_room(void) {
    size_t bytes;
    EACH(uint64_t, start) EACH(uint64_t, end) EACH_OF_SOME_FLAGS(other) {
        pageyard_zone zone = {{start, end}, other, other};
        pageyard_layout layout = layout_of();
        layout.zones = &zone;
        CALL(pageyard_core_room, start, end, other);
        known(pageyard_core_room(&layout, &bytes));
    }
    EACH(uint32_t, size) EACH(uint32_t, version) {
        /* As long as the largest size that is accepted. */
        static pageyard_layout layout[17];
        layout[0] = layout_of();
        layout[0].struct_size = size;
        layout[0].version = version;
        CALL(pageyard_core_room, size, version);
        known(pageyard_core_room(layout, &bytes));
    }
    EACH(uint64_t, engine) {
        pageyard_layout layout = layout_of();
        layout.engine = engine;
        CALL(pageyard_core_room, engine);
        EXPECT(known(pageyard_core_room(&layout, &bytes)) == (engine <= PAGEYARD_ENGINE_PACKED));
    }
}

static void h_pageyard_core_create(void) {
    pageyard_platform platform = machine();
    static char room[1 << 20];
    char why[64];
    pageyard_core *made;
    size_t bytes;
    EACH_OF(PLACES, uint64_t, start) EACH_OF(PLACES, uint64_t, end) EACH_OF(FEW, uint32_t, node) {
        pageyard_zone zone = {{start, end}, node, PAGEYARD_ZONE_NORMAL};
        pageyard_range range = {start, end}, half = {start, end / 2};
        pageyard_layout layout = layout_of();
        uint16_t cpu = (uint16_t)node;
        layout.zones = &zone;
        layout.usable = &range;
        layout.reserved = &half;
        layout.reserved_count = 1;
        layout.cpus = &cpu;
        layout.cpu_count = 1;
        CALL(pageyard_core_create, start, end, node);
        if (known(pageyard_core_create(&layout, &platform, room, sizeof room, &made, why,
                                       sizeof why)))
            OK(pageyard_core_destroy(made));
    }
    EACH(uint32_t, kind) EACH(uint8_t, distance) {
        pageyard_zone zone = {{FIRST, FIRST + PAGES}, 0, kind};
        pageyard_layout layout = layout_of();
        layout.zones = &zone;
        layout.distances = &distance;
        layout.distance_count = 1;
        CALL(pageyard_core_create, kind, distance);
        if (known(pageyard_core_create(&layout, &platform, room, sizeof room, &made, why,
                                       sizeof why)))
            OK(pageyard_core_destroy(made));
    }
    /* Counts without arrays, and a wrong size of the room. */
    {
        pageyard_layout layout = layout_of();
        OK(pageyard_core_room(&layout, &bytes));
        EXPECT(bytes < sizeof room);
        for (size_t *count = &layout.zone_count; count <= &layout.distance_count; count += 2) {
            size_t was = *count;
            *count = SIZE_MAX;
            CALL(pageyard_core_create, SIZE_MAX);
            EXPECT(!known(pageyard_core_create(&layout, &platform, room, sizeof room, &made, why,
                                               sizeof why)));
            *count = was;
        }
        EACH(size_t, size) EACH(size_t, why_size) {
            CALL(pageyard_core_create, size, why_size);
            if (known(pageyard_core_create(&layout, &platform, room, size, &made, why,
                                           why_size < sizeof why ? why_size : sizeof why))) {
                EXPECT(size >= bytes);
                OK(pageyard_core_destroy(made));
            }
        }
    }
    EACH(uint32_t, size) EACH(uint32_t, version) {
        static pageyard_platform table[17];
        pageyard_layout layout = layout_of();
        table[0] = platform;
        table[0].struct_size = size;
        table[0].version = version;
        CALL(pageyard_core_create, size, version);
        if (known(pageyard_core_create(&layout, table, room, sizeof room, &made, why, sizeof why)))
            OK(pageyard_core_destroy(made));
    }
    /* Engines: a known one, and a platform that does not contradict it. */
    EACH(uint64_t, engine) EACH(uint64_t, other) {
        pageyard_layout layout = layout_of();
        pageyard_platform table = machine();
        layout.engine = engine;
        table.engine = other;
        CALL(pageyard_core_create, engine, other);
        EXPECT(known(pageyard_core_create(&layout, &table, room, sizeof room, &made, why, sizeof why))
               == (engine <= PAGEYARD_ENGINE_PACKED && (other == 0 || other == engine)));
        if (why[0] == 0)
            OK(pageyard_core_destroy(made));
    }
    /* Hooks: sizes, versions and numbers. */
    EACH(uint32_t, size) EACH(uint32_t, version) {
        static pageyard_hooks hooks[17];
        pageyard_layout layout = layout_of();
        pageyard_platform table = machine();
        hooks[0].struct_size = size;
        hooks[0].version = version;
        table.hooks = hooks;
        CALL(pageyard_core_create, size, version);
        if (known(pageyard_core_create(&layout, &table, room, sizeof room, &made, why, sizeof why)))
            OK(pageyard_core_destroy(made));
    }
    EACH(uint32_t, number) {
        int i;
        for (i = 0; i < 4; i++) {
            pageyard_layout layout = layout_of();
            pageyard_platform table = machine();
            pageyard_hooks hooks;
            uint64_t pfn;
            memset(&hooks, 0, sizeof hooks);
            hooks.struct_size = sizeof hooks;
            hooks.version = PAGEYARD_VERSION;
            (&hooks.flags)[i] = number;
            table.hooks = &hooks;
            CALL(pageyard_core_create, number, (uint64_t)i);
            if (known(pageyard_core_create(&layout, &table, room, sizeof room, &made, why,
                                           sizeof why))) {
                OK(pageyard_core_alloc(made, 0, PAGEYARD_KERNEL, &pfn));
                OK(pageyard_core_free(made, pfn, 0));
                OK(pageyard_core_destroy(made));
            }
        }
    }
    zeroed = 0;
}

static void h_pageyard_core_destroy(void) {
    CALL(pageyard_core_destroy, 0);
    OK(pageyard_core_destroy(yard));
    EXPECT_STATUS(pageyard_core_destroy(yard), PAGEYARD_ERR_HANDLE);
    make();
}

static void h_pageyard_core_alloc(void) {
    uint64_t pfn = 0;
    EACH_FLAGS(flags) EACH(uint32_t, order) {
        CALL(pageyard_core_alloc, order, flags);
        check(pageyard_core_alloc(yard, order, flags, &pfn), &pfn, order, flags);
    }
}

static void h_pageyard_core_alloc_on(void) {
    uint64_t pfn = 0;
    EACH(uint32_t, node) EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_core_alloc_on, node, order, flags);
        check(pageyard_core_alloc_on(yard, node, order, flags, &pfn), &pfn, order, flags);
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_alloc_on, 0, 3, flags);
        check(pageyard_core_alloc_on(yard, 0, 3, flags, &pfn), &pfn, 3, flags);
    }
}

static void h_pageyard_core_alloc_interleaved(void) {
    uint64_t pfn = 0;
    uint32_t turn = 0;
    EACH(uint64_t, nodes) EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_core_alloc_interleaved, nodes, order, flags);
        check(pageyard_core_alloc_interleaved(yard, nodes, &turn, order, flags, &pfn), &pfn, order, flags);
    }
    EACH(uint32_t, turn) EACH(uint64_t, nodes) {
        CALL(pageyard_core_alloc_interleaved, nodes, turn);
        check(pageyard_core_alloc_interleaved(yard, nodes, &turn, 0, PAGEYARD_KERNEL, &pfn), &pfn, 0,
              PAGEYARD_KERNEL);
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_alloc_interleaved, 1, 3, flags);
        check(pageyard_core_alloc_interleaved(yard, 1, &turn, 3, flags, &pfn), &pfn, 3, flags);
    }
}

static void h_pageyard_core_alloc_with(void) {
    uint64_t pfn = 0;
    EACH(uint64_t, align) EACH(uint32_t, order) {
        CALL(pageyard_core_alloc_with, align, order);
        check(pageyard_core_alloc_with(yard, order, PAGEYARD_KERNEL, align, 0, &pfn), &pfn, order,
              PAGEYARD_KERNEL);
    }
    EACH(uint64_t, below) EACH(uint32_t, order) {
        CALL(pageyard_core_alloc_with, below, order);
        check(pageyard_core_alloc_with(yard, order, PAGEYARD_KERNEL, 1, below, &pfn), &pfn, order,
              PAGEYARD_KERNEL);
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_alloc_with, 3, flags);
        check(pageyard_core_alloc_with(yard, 3, flags, 1, 0, &pfn), &pfn, 3, flags);
    }
}

static void h_pageyard_core_alloc_at(void) {
    EACH(uint64_t, first) EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        uint64_t pfn = first;
        CALL(pageyard_core_alloc_at, first, order, flags);
        check(pageyard_core_alloc_at(yard, first, order, flags), &pfn, order, flags);
    }
}

static void h_pageyard_core_alloc_preferring(void) {
    uint64_t pfn = 0;
    EACH(uint64_t, nodes) EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_core_alloc_preferring, nodes, order, flags);
        check(pageyard_core_alloc_preferring(yard, nodes, order, flags, &pfn), &pfn, order, flags);
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_alloc_preferring, 1, 3, flags);
        check(pageyard_core_alloc_preferring(yard, 1, 3, flags, &pfn), &pfn, 3, flags);
    }
}

static void h_pageyard_core_try_alloc(void) {
    uint64_t pfn = 0;
    EACH_FLAGS(flags) EACH(uint32_t, order) {
        CALL(pageyard_core_try_alloc, order, flags);
        check(pageyard_core_try_alloc(yard, order, flags, &pfn), &pfn, order, flags);
    }
}

/* Frees any frame at any order, and a block of order 3 at any. */
#define EVERY_FREE(function)                                                                                \
    uint64_t pfn = 0;                                                                                       \
    EACH(uint64_t, at) EACH(uint32_t, order) {                                                              \
        CALL(function, at, order);                                                                          \
        EXPECT(!known(function(yard, at, order)));                                                          \
    }                                                                                                       \
    EACH(uint32_t, order) {                                                                                 \
        OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn));                                            \
        CALL(function, pfn, order);                                                                         \
        if (!known(function(yard, pfn, order)))                                                             \
            OK(function(yard, pfn, 3));                                                                     \
        else                                                                                                \
            EXPECT(order == 3);                                                                             \
    }

static void h_pageyard_core_free(void) {
    EVERY_FREE(pageyard_core_free)
}

static void h_pageyard_core_free_nowait(void) {
    EVERY_FREE(pageyard_core_free_nowait)
}

/* More than there are pages, so that every accepted count fits. */
static uint64_t pfns[2 * PAGES];

static void h_pageyard_core_alloc_bulk(void) {
    size_t got, done;
    EACH(size_t, count) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_core_alloc_bulk, flags, count);
        got = 0;
        if (known(pageyard_core_alloc_bulk(yard, flags, pfns, count, &got))) {
            EXPECT(got <= count && got <= PAGES);
            EXPECT(zeroed == (flags & PAGEYARD_ZERO ? got : 0));
        }
        zeroed = 0;
        OK(pageyard_core_free_bulk(yard, pfns, got, 0, &done));
        EXPECT(done == got);
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_alloc_bulk, flags, 40);
        got = 0;
        if (known(pageyard_core_alloc_bulk(yard, flags, pfns, 40, &got)))
            EXPECT(zeroed == (flags & PAGEYARD_ZERO ? got : 0));
        zeroed = 0;
        OK(pageyard_core_free_bulk(yard, pfns, got, 0, NULL));
    }
}

static void h_pageyard_core_free_bulk(void) {
    size_t done;
    EACH(uint64_t, pfn) EACH(size_t, count) EACH(uint32_t, order) {
        size_t i;
        for (i = 0; i < 64; i++)
            pfns[i] = pfn;
        CALL(pageyard_core_free_bulk, pfn, count, order);
        done = SIZE_MAX;
        if (known(pageyard_core_free_bulk(yard, pfns, count, order, &done)))
            EXPECT(count == 0);
        EXPECT(done == 0 || done == SIZE_MAX);
    }
}

static void h_pageyard_core_split(void) {
    uint64_t pfn = 0;
    EACH(uint64_t, at) EACH(uint32_t, order) {
        CALL(pageyard_core_split, at, order, 0);
        EXPECT(!known(pageyard_core_split(yard, at, order, 0)));
    }
    EACH(uint32_t, order) EACH(uint32_t, into) {
        OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn));
        CALL(pageyard_core_split, pfn, order, into);
        if (known(pageyard_core_split(yard, pfn, order, into))) {
            uint32_t i;
            EXPECT(order == 3 && into <= 3);
            for (i = 0; i < 8; i += 1u << into)
                OK(pageyard_core_free(yard, pfn + i, into));
        } else {
            OK(pageyard_core_free(yard, pfn, 3));
        }
    }
}

static void h_pageyard_core_set_movable(void) {
    uint64_t pfn = 0;
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL | PAGEYARD_MOVABLE, &pfn));
    EACH(int32_t, movable) {
        EACH(uint64_t, at) EACH(uint32_t, order) {
            CALL(pageyard_core_set_movable, at, order, (uint64_t)movable);
            if (known(pageyard_core_set_movable(yard, at, order, movable)))
                EXPECT(at == pfn && order == 3);
        }
        OK(pageyard_core_set_movable(yard, pfn, 3, movable));
    }
    OK(pageyard_core_free(yard, pfn, 3));
}

static void h_pageyard_core_alloc_contig(void) {
    EACH(uint64_t, start) EACH(uint64_t, end) EACH_OF_SOME_FLAGS(flags) {
        uint32_t type;
        for (type = 0; type < 9; type++) {
            uint32_t t = type < 7 ? type : UINT32_MAX << (type - 7);
            CALL(pageyard_core_alloc_contig, start, end, t, flags);
            if (known(pageyard_core_alloc_contig(yard, start, end, t, flags))) {
                EXPECT(start >= FIRST && start < end && end <= FIRST + PAGES);
                OK(pageyard_core_free_contig(yard, start, end));
            }
            zeroed = 0;
        }
    }
}

static void h_pageyard_core_alloc_contig_pages(void) {
    uint64_t pfn = 0;
    EACH(uint64_t, pages) EACH(uint64_t, align) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_core_alloc_contig_pages, pages, align, 1, flags);
        if (known(pageyard_core_alloc_contig_pages(yard, pages, align, PAGEYARD_TYPE_MOVABLE, flags,
                                                   &pfn))) {
            EXPECT(pages > 0 && pages <= PAGES && pfn % align == 0);
            OK(pageyard_core_free_contig(yard, pfn, pfn + pages));
        }
        zeroed = 0;
    }
    EACH(uint32_t, type) {
        CALL(pageyard_core_alloc_contig_pages, 1, 1, type, PAGEYARD_KERNEL);
        if (known(pageyard_core_alloc_contig_pages(yard, 1, 1, type, PAGEYARD_KERNEL, &pfn)))
            OK(pageyard_core_free_contig(yard, pfn, pfn + 1));
    }
}

static void contig_pages_from(uint64_t pages, uint64_t align, uint32_t flags) {
    uint64_t pfn = 0;
    pageyard_cursor cursor = {FIRST + 77, 0};
    CALL(pageyard_core_alloc_contig_pages_from, pages, align, flags);
    if (known(pageyard_core_alloc_contig_pages_from(yard, &cursor, pages, align, NULL,
                                                    PAGEYARD_TYPE_MOVABLE, flags, &pfn))) {
        EXPECT(pages > 0 && pages <= PAGES && pfn % align == 0 && cursor.next == pfn + pages);
        OK(pageyard_core_free_contig(yard, pfn, pfn + pages));
    }
    zeroed = 0;
}

static void h_pageyard_core_alloc_contig_pages_from(void) {
    uint64_t pfn = 0;
    EACH_OF(PLACES, uint64_t, next) EACH_OF(PLACES, uint64_t, start) EACH_OF(PLACES, uint64_t, end) {
        pageyard_cursor cursor = {next, next};
        pageyard_range within = {start, end};
        CALL(pageyard_core_alloc_contig_pages_from, next, start, end);
        if (known(pageyard_core_alloc_contig_pages_from(yard, &cursor, 600, 4, &within,
                                                        PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &pfn))) {
            EXPECT(pfn >= start && pfn + 600 <= end && pfn >= FIRST && pfn + 600 <= FIRST + PAGES);
            OK(pageyard_core_free_contig(yard, pfn, pfn + 600));
        }
    }
    EACH(uint64_t, pages) {
        EACH(uint64_t, align) contig_pages_from(pages, align, PAGEYARD_KERNEL);
        EACH_OF_SOME_FLAGS(flags) contig_pages_from(pages, 1, flags);
    }
    EACH(uint32_t, type) {
        pageyard_cursor cursor = {0, 0};
        CALL(pageyard_core_alloc_contig_pages_from, type);
        if (known(pageyard_core_alloc_contig_pages_from(yard, &cursor, 1, 1, NULL, type, PAGEYARD_KERNEL,
                                                        &pfn)))
            OK(pageyard_core_free_contig(yard, pfn, pfn + 1));
    }
}

static void range_or_scatter(uint64_t pages, size_t count, uint32_t flags) {
    /* More than there are pages, so no number of them is too large. */
    static pageyard_range ranges[2 * PAGES];
    uint64_t sum = 0;
    size_t got = SIZE_MAX, i;
    CALL(pageyard_core_alloc_range_or_scatter, pages, count, flags);
    if (known(pageyard_core_alloc_range_or_scatter(yard, pages, flags, ranges, count, &got))) {
        EXPECT(got <= count && zeroed >= (flags & PAGEYARD_ZERO ? pages : 0));
        for (i = 0; i < got; i++) {
            EXPECT(ranges[i].start < ranges[i].end);
            sum += ranges[i].end - ranges[i].start;
            OK(pageyard_core_free_contig(yard, ranges[i].start, ranges[i].end));
        }
        EXPECT(sum == pages);
    } else {
        EXPECT(got == SIZE_MAX);
    }
    zeroed = 0;
}

static void h_pageyard_core_alloc_range_or_scatter(void) {
    EACH(uint64_t, pages) {
        EACH(size_t, count) range_or_scatter(pages, count, PAGEYARD_KERNEL);
        EACH_OF_SOME_FLAGS(flags) range_or_scatter(pages, PAGES, flags);
    }
    EACH_FLAGS(flags) range_or_scatter(40, 40, flags);
}

/* Epochs, batches and balloons whose numbers are all wrong; only what has to be a pointer is right. */
static uint64_t acknowledged[64];

static pageyard_epochs *epochs_of(uint64_t now, uint64_t words, size_t cpus) {
    static pageyard_epochs epochs[17];
    size_t i;
    for (i = 0; i < COUNT(acknowledged); i++)
        acknowledged[i] = words;
    memset(epochs, 0, sizeof epochs);
    epochs[0].struct_size = sizeof epochs[0];
    epochs[0].version = PAGEYARD_VERSION;
    epochs[0].now = now;
    epochs[0].acknowledged = acknowledged;
    epochs[0].cpu_count = cpus < COUNT(acknowledged) ? cpus : COUNT(acknowledged);
    return epochs;
}

static void flush(void *context) {
    ++*(uint64_t *)context;
}

static void h_pageyard_core_epochs_acknowledge(void) {
    EACH(uint64_t, now) EACH(size_t, cpus) EACH(uint32_t, cpu) {
        uint64_t flushes = 0;
        pageyard_epochs *epochs = epochs_of(now, 0, cpus);
        CALL(pageyard_core_epochs_acknowledge, now, cpus, cpu);
        EXPECT(known(pageyard_core_epochs_acknowledge(epochs, cpu, flush, &flushes)) ==
               (cpu < epochs->cpu_count));
        EXPECT(flushes == (cpu < epochs->cpu_count));
        EXPECT(flushes == 0 || acknowledged[cpu] == now);
    }
    EACH(uint32_t, size) EACH(uint32_t, version) {
        uint64_t flushes = 0;
        pageyard_epochs *epochs = epochs_of(0, 0, 1);
        epochs->struct_size = size;
        epochs->version = version;
        CALL(pageyard_core_epochs_acknowledge, size, version);
        if (known(pageyard_core_epochs_acknowledge(epochs, 0, flush, &flushes)))
            EXPECT(flushes == 1 && version == PAGEYARD_VERSION && size >= sizeof *epochs);
        else
            EXPECT(flushes == 0);
    }
}

static void h_pageyard_core_epochs_online(void) {
    EACH(uint64_t, now) EACH(uint64_t, words) EACH(uint32_t, cpu) {
        uint64_t flushes = 0;
        pageyard_epochs *epochs = epochs_of(now, words, 2);
        CALL(pageyard_core_epochs_online, now, words, cpu);
        EXPECT(known(pageyard_core_epochs_online(epochs, cpu, flush, &flushes)) == (cpu < 2));
        EXPECT(flushes == (cpu < 2) && (cpu >= 2 || acknowledged[cpu] == now));
    }
}

static void h_pageyard_core_epochs_offline(void) {
    pageyard_epochs *epochs;
    EACH(size_t, cpus) EACH(uint32_t, cpu) {
        epochs = epochs_of(1, 0, cpus);
        CALL(pageyard_core_epochs_offline, cpus, cpu);
        EXPECT(known(pageyard_core_epochs_offline(epochs, cpu)) == (cpu < epochs->cpu_count));
        EXPECT(cpu >= epochs->cpu_count || acknowledged[cpu] == UINT64_MAX);
    }
    /* A number of words that cannot be. */
    CALL(pageyard_core_epochs_offline, SIZE_MAX);
    epochs = epochs_of(0, 0, 1);
    epochs->cpu_count = SIZE_MAX;
    EXPECT_STATUS(pageyard_core_epochs_offline(epochs, 0), PAGEYARD_ERR_ARGUMENT);
}

static void h_pageyard_core_epochs_lagging(void) {
    EACH(uint64_t, epoch) EACH(uint64_t, words) EACH(uint32_t, from) {
        pageyard_epochs *epochs = epochs_of(epoch, words, 40);
        uint32_t cpu = 99;
        CALL(pageyard_core_epochs_lagging, epoch, words, from);
        OK(pageyard_core_epochs_lagging(epochs, epoch, from, &cpu));
        EXPECT(cpu == (words < epoch && from < 40 ? from : UINT32_MAX));
    }
}

static pageyard_shootdown_block block_room[64];

static pageyard_shootdown *batch_of(size_t room, size_t count, uint64_t epoch) {
    static pageyard_shootdown batch[17];
    memset(batch, 0, sizeof batch);
    memset(block_room, 0, sizeof block_room);
    batch[0].struct_size = sizeof batch[0];
    batch[0].version = PAGEYARD_VERSION;
    batch[0].epochs = epochs_of(0, UINT64_MAX, 2);
    batch[0].blocks = block_room;
    batch[0].room = room < COUNT(block_room) ? room : COUNT(block_room);
    batch[0].count = count;
    batch[0].epoch = epoch;
    return batch;
}

static void h_pageyard_core_shootdown_add(void) {
    uint64_t pfn = 0;
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn));
    EACH(uint64_t, at) EACH(uint32_t, order) {
        CALL(pageyard_core_shootdown_add, at, order);
        if (known(pageyard_core_shootdown_add(yard, batch_of(1, 0, 0), at, order)))
            EXPECT(at == pfn && order == 3);
    }
    EACH(size_t, room) EACH(size_t, count) EACH(uint64_t, epoch) {
        pageyard_shootdown *batch = batch_of(room, count, epoch);
        CALL(pageyard_core_shootdown_add, room, count, epoch);
        EXPECT(known(pageyard_core_shootdown_add(yard, batch, pfn, 3)) ==
               (count < batch->room && epoch == 0));
    }
    EACH(uint32_t, size) EACH(uint32_t, version) EACH(uint64_t, busy) {
        pageyard_shootdown *batch = batch_of(1, 0, 0);
        batch->struct_size = size;
        batch->version = version;
        batch->busy = busy;
        CALL(pageyard_core_shootdown_add, size, version, busy);
        if (known(pageyard_core_shootdown_add(yard, batch, pfn, 3)))
            EXPECT(version == PAGEYARD_VERSION && size >= sizeof *batch && busy == 0);
    }
    OK(pageyard_core_free(yard, pfn, 3));
}

static void h_pageyard_core_shootdown_begin(void) {
    EACH(size_t, room) EACH(size_t, count) EACH(uint64_t, now) {
        pageyard_shootdown *batch = batch_of(room, count, now);
        uint64_t epoch = 99;
        batch->epochs->now = now;
        CALL(pageyard_core_shootdown_begin, room, count, now);
        if (known(pageyard_core_shootdown_begin(batch, &epoch)))
            EXPECT(count <= batch->room && epoch == now + 1 && batch->epoch == epoch);
        else
            EXPECT(count > batch->room && epoch == 99 && batch->epochs->now == now);
    }
}

static void h_pageyard_core_shootdown_free(void) {
    EACH(uint64_t, pfn) EACH(uint8_t, order) EACH(size_t, count) {
        pageyard_shootdown *batch = batch_of(64, count, 1);
        size_t freed = 99, i;
        for (i = 0; i < COUNT(block_room); i++) {
            block_room[i].pfn = pfn;
            block_room[i].order = order;
            memset(block_room[i].unused, 0xa5, sizeof block_room[i].unused);
        }
        CALL(pageyard_core_shootdown_free, pfn, order, count);
        if (known(pageyard_core_shootdown_free(yard, batch, &freed)))
            EXPECT(count == 0 && freed == 0);
        EXPECT(batch->busy == 0 && batch->count <= count);
    }
    EACH(uint64_t, epoch) EACH(uint64_t, words) {
        pageyard_shootdown *batch = batch_of(2, 1, epoch);
        size_t freed = 0;
        epochs_of(epoch, words, 2);
        OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &block_room[0].pfn));
        CALL(pageyard_core_shootdown_free, epoch, words);
        if (known(pageyard_core_shootdown_free(yard, batch, &freed)))
            EXPECT(epoch != 0 && words >= epoch && freed == 1 && batch->count == 0);
        else
            OK(pageyard_core_free(yard, block_room[0].pfn, 0));
    }
}

static pageyard_lent lent_room[64];

static pageyard_balloon *balloon_of(size_t room, uint32_t order) {
    static pageyard_balloon balloon[17];
    memset(balloon, 0, sizeof balloon);
    memset(lent_room, 0, sizeof lent_room);
    balloon[0].struct_size = sizeof balloon[0];
    balloon[0].version = PAGEYARD_VERSION;
    balloon[0].lent = lent_room;
    balloon[0].room = room < COUNT(lent_room) ? room : COUNT(lent_room);
    balloon[0].order = order;
    return balloon;
}

static void h_pageyard_core_balloon_lend(void) {
    uint64_t pfn = 0;
    EACH(size_t, room) EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        pageyard_balloon *balloon = balloon_of(room, order);
        CALL(pageyard_core_balloon_lend, room, order, flags);
        if (known(pageyard_core_balloon_lend(yard, balloon, flags, &pfn))) {
            EXPECT(room > 0 && pfn == lent_room[0].pfn && zeroed == 0);
            OK(pageyard_core_free(yard, pfn, order));
        }
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_core_balloon_lend, flags);
        if (known(pageyard_core_balloon_lend(yard, balloon_of(1, 9), flags, &pfn)))
            OK(pageyard_core_free(yard, pfn, 9));
    }
    EACH(uint32_t, size) EACH(uint32_t, version) EACH(uint32_t, busy) {
        pageyard_balloon *balloon = balloon_of(1, 0);
        balloon->struct_size = size;
        balloon->version = version;
        balloon->busy = busy;
        CALL(pageyard_core_balloon_lend, size, version, busy);
        if (known(pageyard_core_balloon_lend(yard, balloon, PAGEYARD_KERNEL, &pfn))) {
            EXPECT(version == PAGEYARD_VERSION && size >= sizeof *balloon && busy == 0);
            OK(pageyard_core_free(yard, pfn, 0));
        }
    }
}

static void h_pageyard_core_balloon_ask(void) {
    EACH(uint64_t, pfn) EACH(uint64_t, phase) EACH(uint32_t, order) {
        pageyard_balloon *balloon = balloon_of(2, order);
        uint64_t asked = 99;
        lent_room[1].pfn = pfn;
        lent_room[1].phase = phase;
        CALL(pageyard_core_balloon_ask, pfn, phase, order);
        if (known(pageyard_core_balloon_ask(balloon, &asked)))
            EXPECT(asked == (phase == 1 ? pfn : UINT64_MAX));
        else
            EXPECT(order > PAGEYARD_MAX_ORDER && asked == 99);
    }
}

static void h_pageyard_core_balloon_acknowledge(void) {
    EACH(uint64_t, pfn) EACH(uint64_t, phase) EACH(uint32_t, order) {
        pageyard_balloon *balloon = balloon_of(2, order);
        lent_room[1].pfn = pfn;
        lent_room[1].phase = phase;
        CALL(pageyard_core_balloon_acknowledge, pfn, phase, order);
        EXPECT(!known(pageyard_core_balloon_acknowledge(yard, balloon, pfn)));
        EXPECT(balloon->busy == 0);
    }
}

static void h_pageyard_core_free_contig(void) {
    EACH(uint64_t, start) EACH(uint64_t, end) {
        CALL(pageyard_core_free_contig, start, end);
        if (known(pageyard_core_free_contig(yard, start, end)))
            EXPECT(start >= end); /* nothing to give back */
    }
}

static void h_pageyard_core_fold(void) {
    EACH(uint32_t, cpu) {
        CALL(pageyard_core_fold, cpu);
        EXPECT(known(pageyard_core_fold(yard, cpu)) == (cpu < 2));
    }
}

static void h_pageyard_core_tick(void) {
    EACH(uint32_t, cpu) {
        CALL(pageyard_core_tick, cpu);
        EXPECT(known(pageyard_core_tick(yard, cpu)) == (cpu < 2));
    }
}

static void h_pageyard_core_drain(void) {
    CALL(pageyard_core_drain, 0);
    OK(pageyard_core_drain(yard));
}

static void h_pageyard_core_compact_background(void) {
    uint64_t sleep_ns;
    EACH(uint32_t, node) {
        CALL(pageyard_core_compact_background, node);
        EXPECT(known(pageyard_core_compact_background(yard, node, &sleep_ns)) == (node == 0));
    }
}

static void h_pageyard_core_report_free(void) {
    uint64_t sleep_ns;
    CALL(pageyard_core_report_free, 0);
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(sleep_ns == UINT64_MAX); /* these hooks report nothing */
}

static void h_pageyard_core_compact(void) {
    CALL(pageyard_core_compact, 0);
    OK(pageyard_core_compact(yard));
}

static void h_pageyard_core_cpu_up(void) {
    EACH(uint32_t, cpu) {
        CALL(pageyard_core_cpu_up, cpu);
        EXPECT(!known(pageyard_core_cpu_up(yard, cpu)));
    }
}

static void h_pageyard_core_cpu_dead(void) {
    uint64_t pfn;
    EACH(uint32_t, cpu) {
        CALL(pageyard_core_cpu_dead, cpu);
        if (known(pageyard_core_cpu_dead(yard, cpu))) {
            EXPECT(cpu < 2);
            EXPECT_STATUS(pageyard_core_alloc(yard, 0, 0, &pfn),
                          cpu == 0 ? PAGEYARD_ERR_CPU : PAGEYARD_OK);
            OK(pageyard_core_cpu_up(yard, cpu));
            if (cpu != 0)
                OK(pageyard_core_free(yard, pfn, 0));
        }
    }
}

static void h_pageyard_core_online(void) {
    EACH(uint64_t, start) EACH(uint64_t, end) {
        CALL(pageyard_core_online, start, end);
        EXPECT(!known(pageyard_core_online(yard, start, end)));
    }
}

static void h_pageyard_core_offline(void) {
    EACH(uint64_t, start) EACH(uint64_t, end) {
        CALL(pageyard_core_offline, start, end);
        if (known(pageyard_core_offline(yard, start, end))) {
            EXPECT(start == FIRST && end == FIRST + PAGES);
            OK(pageyard_core_online(yard, start, end));
        }
    }
}

static void h_pageyard_core_release(void) {
    static char why[200];
    EACH(uint64_t, start) EACH(uint64_t, end) {
        CALL(pageyard_core_release, start, end);
        EXPECT(!known(pageyard_core_release(yard, start, end, why, sizeof why)));
        EXPECT(why[0] != 0);
    }
    EACH(size_t, size) {
        size_t room = size < sizeof why ? size : sizeof why;
        CALL(pageyard_core_release, FIRST, room);
        memset(why, 'x', sizeof why);
        EXPECT(!known(pageyard_core_release(yard, FIRST, FIRST + 1, why, room)));
        EXPECT(room == sizeof why || why[room] == 'x');
    }
}

static void h_pageyard_core_validate(void) {
    static char why[200];
    EACH(size_t, size) {
        size_t room = size < sizeof why ? size : sizeof why;
        CALL(pageyard_core_validate, size, room);
        memset(why, 'x', sizeof why);
        EXPECT(known(pageyard_core_validate(yard, why, room)));
        EXPECT(room == 0 ? why[0] == 'x' : why[0] == 0);
    }
}

static void h_pageyard_core_stats(void) {
    static pageyard_stats stats[17];
    EACH(uint32_t, size) EACH(uint32_t, version) {
        stats[0].struct_size = size;
        stats[0].version = version;
        CALL(pageyard_core_stats, size, version);
        if (known(pageyard_core_stats(yard, stats)))
            EXPECT(stats[0].struct_size == size && stats[0].version == version);
    }
}

static void h_pageyard_core_zone_stats(void) {
    pageyard_stats stats;
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    EACH(size_t, index) {
        CALL(pageyard_core_zone_stats, index);
        EXPECT(known(pageyard_core_zone_stats(yard, index, &stats)) == (index == 0));
    }
}

static char text[1 << 16];

static void h_pageyard_core_text(void) {
    size_t needed;
    EACH(uint32_t, kind) EACH(size_t, size) {
        size_t room = size < sizeof text ? size : sizeof text;
        CALL(pageyard_core_text, kind, room);
        memset(text, 'x', sizeof text);
        if (known(pageyard_core_text(yard, kind, text, room, &needed)))
            EXPECT(needed <= room && strlen(text) + 1 == needed);
        EXPECT(room == sizeof text || text[room] == 'x');
    }
}

static void h_pageyard_core_knob(void) {
    size_t needed, i;
    for (i = 0; i < COUNT(NAMES); i++)
        EACH(size_t, size) {
            CALL(pageyard_core_knob, i, size);
            known(pageyard_core_knob(yard, NAMES[i], text, size < sizeof text ? size : sizeof text,
                                     &needed));
        }
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_STATUS(pageyard_core_knob(yard, text, NULL, 0, &needed), PAGEYARD_ERR_KNOB);
}

static void h_pageyard_core_knobs(void) {
    static pageyard_knobs knobs[17];
    EACH(uint32_t, profile) EACH(uint32_t, size) EACH(uint32_t, version) {
        knobs[0].struct_size = size;
        knobs[0].version = version;
        CALL(pageyard_core_knobs, profile, size, version);
        if (known(pageyard_core_knobs(profile, knobs)))
            EXPECT(profile <= PAGEYARD_KNOBS_SMALL && knobs[0].struct_size == size);
    }
}

static void h_pageyard_core_set_knob(void) {
    size_t i, j;
    uint64_t pfn;
    for (i = 0; i < COUNT(NAMES); i++)
        for (j = 0; j < COUNT(VALUES); j++) {
            CALL(pageyard_core_set_knob, i, j);
            known(pageyard_core_set_knob(yard, NAMES[i], VALUES[j]));
            if (known(pageyard_core_alloc(yard, 2, PAGEYARD_KERNEL, &pfn)))
                OK(pageyard_core_free(yard, pfn, 2));
        }
    memset(text, '1', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_STATUS(pageyard_core_set_knob(yard, "min_free_kbytes", text), PAGEYARD_ERR_KNOB);
}

static void h_pageyard_kernel_init(void) {
    static _Alignas(4096) char memory[4 << 20];
    pageyard_platform platform = machine();
    pageyard_core *made;
    char why[64];
    platform.zero = NULL;
    platform.engine = ENGINE;
    platform.direct_map = memory;
    platform.mapped = sizeof memory;
    /* Ranges of every kind and bound. Ranges outside the buffer are not mapped, and so left out. */
    EACH_OF(PLACES, uint64_t, start) EACH_OF(PLACES, uint64_t, size) EACH_OF(FEW, uint32_t, kind) {
        pageyard_memory map[2] = {{start, size, kind, kind}, {0, sizeof memory, 1, 0}};
        pageyard_addresses reserved = {start, start + size};
        CALL(pageyard_kernel_init, start, size, kind);
        if (known(pageyard_kernel_init(map, 2, &reserved, size % 2, 1, &platform, &made, why,
                                       sizeof why))) {
            pageyard_page_free(made, pageyard_page(made));
            OK(pageyard_core_destroy(made));
        }
    }
    EACH(uint32_t, cpus) EACH(size_t, count) EACH(size_t, why_size) {
        pageyard_memory map = {0, sizeof memory, 1, 0};
        CALL(pageyard_kernel_init, cpus, count, why_size);
        if (known(pageyard_kernel_init(&map, count < 2 ? count : SIZE_MAX, NULL, 0, cpus, &platform,
                                       &made, why, why_size < sizeof why ? why_size : sizeof why)))
            OK(pageyard_core_destroy(made));
    }
    EACH(uint64_t, engine) {
        pageyard_memory map = {0, sizeof memory, 1, 0};
        pageyard_platform table = platform;
        table.engine = engine;
        CALL(pageyard_kernel_init, engine);
        EXPECT(known(pageyard_kernel_init(&map, 1, NULL, 0, 1, &table, &made, why, sizeof why))
               == (engine <= PAGEYARD_ENGINE_PACKED));
        if (why[0] == 0)
            OK(pageyard_core_destroy(made));
    }
    EACH(uint64_t, mapped) {
        pageyard_memory map = {0, sizeof memory, 1, 0};
        platform.mapped = mapped;
        CALL(pageyard_kernel_init, mapped);
        if (known(pageyard_kernel_init(&map, 1, NULL, 0, 1, &platform, &made, why, sizeof why)))
            OK(pageyard_core_destroy(made));
    }
}

/* This yard's frame numbers are addresses without memory. */
static void h_pageyard_page(void) {
    for (int i = 0; i < 2 * PAGES; i++) {
        void *page = pageyard_page(yard);
        CALL(pageyard_page, (uint64_t)i);
        OK(pageyard_page_free(yard, page));
    }
    EXPECT(pageyard_page(NULL) == NULL);
}

static void h_pageyard_page_free(void) {
    uint64_t pfn;
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn));
    EACH(uint64_t, address) {
        CALL(pageyard_page_free, address);
        EXPECT(!known(pageyard_page_free(yard, (void *)(uintptr_t)address)) || address == 0);
        EXPECT(!known(pageyard_page_free(yard, (void *)(uintptr_t)(address * PAGEYARD_PAGE_SIZE)))
               || address * PAGEYARD_PAGE_SIZE == 0);
    }
    OK(pageyard_core_free(yard, pfn, 3));
}

static const row ROWS[] = {
    ROW(pageyard_strerror),
    ROW(pageyard_core_room),
    ROW(pageyard_core_create),
    ROW(pageyard_core_destroy),
    ROW(pageyard_kernel_init),
    ROW(pageyard_page),
    ROW(pageyard_page_free),
    ROW(pageyard_core_alloc),
    ROW(pageyard_core_alloc_on),
    ROW(pageyard_core_alloc_interleaved),
    ROW(pageyard_core_alloc_preferring),
    ROW(pageyard_core_alloc_with),
    ROW(pageyard_core_alloc_at),
    ROW(pageyard_core_try_alloc),
    ROW(pageyard_core_free),
    ROW(pageyard_core_free_nowait),
    ROW(pageyard_core_alloc_bulk),
    ROW(pageyard_core_free_bulk),
    ROW(pageyard_core_split),
    ROW(pageyard_core_set_movable),
    ROW(pageyard_core_alloc_contig),
    ROW(pageyard_core_alloc_contig_pages),
    ROW(pageyard_core_alloc_contig_pages_from),
    ROW(pageyard_core_free_contig),
    ROW(pageyard_core_alloc_range_or_scatter),
    ROW(pageyard_core_epochs_acknowledge),
    ROW(pageyard_core_epochs_lagging),
    ROW(pageyard_core_epochs_offline),
    ROW(pageyard_core_epochs_online),
    ROW(pageyard_core_shootdown_add),
    ROW(pageyard_core_shootdown_begin),
    ROW(pageyard_core_shootdown_free),
    ROW(pageyard_core_balloon_acknowledge),
    ROW(pageyard_core_balloon_ask),
    ROW(pageyard_core_balloon_lend),
    ROW(pageyard_core_fold),
    ROW(pageyard_core_tick),
    ROW(pageyard_core_drain),
    ROW(pageyard_core_compact_background),
    ROW(pageyard_core_compact),
    ROW(pageyard_core_report_free),
    ROW(pageyard_core_cpu_up),
    ROW(pageyard_core_cpu_dead),
    ROW(pageyard_core_online),
    ROW(pageyard_core_offline),
    ROW(pageyard_core_release),
    ROW(pageyard_core_validate),
    ROW(pageyard_core_stats),
    ROW(pageyard_core_zone_stats),
    ROW(pageyard_core_text),
    ROW(pageyard_core_knob),
    ROW(pageyard_core_knobs),
    ROW(pageyard_core_set_knob),
};

int main(int argc, char **argv) {
    size_t i;
    watch();
    for (i = 0; i < COUNT(ROWS); i++)
        if (argc == 2 && strcmp(argv[1], ROWS[i].name) == 0) {
            pageyard_stats stats;
            make();
            ROWS[i].run();
            /* No page is lost, and no lock is held. */
            CALL(pageyard_core_drain, 0);
            OK(pageyard_core_drain(yard));
            stats.struct_size = sizeof stats;
            stats.version = PAGEYARD_VERSION;
            OK(pageyard_core_stats(yard, &stats));
            EXPECT(stats.managed == PAGES && stats.free == PAGES && stats.cached == 0);
            puts("hostile: all is well");
            return 0;
        }
    fprintf(stderr, "there is no row for %s\n", argc == 2 ? argv[1] : "nothing");
    return 1;
}
