/* Every function of pageyard.h with invalid and extreme numbers: each call succeeds or returns an
 * error, memory requested as zeroed is zero, and afterwards the yard is valid and empty. Each run
 * tests one function, named by the argument; the Rust test checks that none is missing. */
#include <pageyard.h>

#include <stdio.h>
#include <stdlib.h>

/* After each call, pageyard_last_error is about that call: empty if and only if it succeeded. */
static unsigned long succeeded;
#define SEEN(status) seen(status)
static void seen(pageyard_status status) {
    if ((status == PAGEYARD_OK) != (pageyard_last_error()[0] == 0)) {
        fprintf(stderr, "status %d, and the last error is: %s\n", (int)status,
                pageyard_last_error());
        exit(1);
    }
    succeeded += status == PAGEYARD_OK;
}

#include "hostile.h"

enum { SIZE = 16 << 20, ALL = SIZE / 4096 };

static pageyard *yard;

static void make(void) {
    pageyard_options options;
    OK(pageyard_options_init(&options, sizeof options, SIZE));
    options.tick_ns = 0;
    options.flags = PAGEYARD_MEMFD;
    OK(pageyard_create(&options, &yard));
}

/* Asserts that an allocated block is zero if requested, fills it and frees it. */
static void check(pageyard_status status, void *const *block, uint32_t order, uint32_t flags) {
    if (known(status)) {
        size_t bytes = (size_t)4096 << order;
        unsigned char *b = *block;
        if (flags & PAGEYARD_ZERO)
            EXPECT(b[0] == 0 && memcmp(b, b + 1, bytes - 1) == 0);
        memset(b, 0xff, bytes);
        OK(pageyard_free(yard, b, order));
    }
}

static void h_pageyard_last_error(void) {
    CALL(pageyard_last_error, 0);
    EXPECT(pageyard_last_error() != NULL);
}

static void h_pageyard_options_init(void) {
    static pageyard_options options[17];
    EACH(uint32_t, struct_size) EACH(uint64_t, size) {
        CALL(pageyard_options_init, struct_size, size);
        known(pageyard_options_init(options, struct_size, size));
    }
}

/* Creates a yard and destroys it at once, unless it would take all memory of the system. */
static void create(const pageyard_options *options) {
    pageyard *made;
    if (known(pageyard_create(options, &made))) {
        void *block;
        if (known(pageyard_alloc(made, 0, PAGEYARD_KERNEL, &block)))
            OK(pageyard_free(made, block, 0));
        OK(pageyard_destroy(made));
    }
}

static void h_pageyard_create(void) {
    static pageyard_options options[17];
    const pageyard_options *o = options;
#define FIELD(type, field)                                                      \
    EACH(type, field) {                                                         \
        OK(pageyard_options_init(options, sizeof options[0], SIZE));            \
        options[0].tick_ns = 0;                                                 \
        options[0].field = field;                                               \
        CALL(pageyard_create, offsetof(pageyard_options, field), (uint64_t)field); \
        create(o);                                                              \
    }
    FIELD(uint32_t, struct_size)
    FIELD(uint32_t, version)
    FIELD(uint64_t, size)
    FIELD(size_t, node_count)
    FIELD(size_t, cpu_count)
    FIELD(uint32_t, huge_pages)
    FIELD(uint32_t, flags)
    FIELD(uint64_t, tick_ns)
    FIELD(uint64_t, hard_limit)
    FIELD(uint64_t, soft_limit)
    FIELD(uint64_t, engine)
    FIELD(uint64_t, give_back_after_ns)
    FIELD(uint64_t, give_back_floor)
    FIELD(uint64_t, give_back_rate)
    FIELD(uint64_t, give_back_least)
    EACH(uint16_t, node) EACH(uint32_t, cpu) {
        uint16_t nodes[2] = {node, node};
        uint32_t cpus[2] = {cpu, 0};
        size_t count;
        for (count = 0; count <= 2; count++) {
            OK(pageyard_options_init(options, sizeof options[0], SIZE));
            options[0].tick_ns = 0;
            options[0].nodes = nodes;
            options[0].node_count = count > 0;
            options[0].cpus = cpus;
            options[0].cpu_count = count;
            CALL(pageyard_create, node, cpu, count);
            create(o);
        }
    }
}

static void h_pageyard_destroy(void) {
    CALL(pageyard_destroy, 0);
    OK(pageyard_destroy(yard));
    EXPECT_STATUS(pageyard_destroy(yard), PAGEYARD_ERR_HANDLE);
    make();
}

static void h_pageyard_alloc(void) {
    void *block;
    EACH_FLAGS(flags) {
        uint32_t order;
        for (order = 0; order < 5; order += 4) {
            CALL(pageyard_alloc, order, flags);
            check(pageyard_alloc(yard, order, flags, &block), &block, order, flags);
        }
    }
    EACH(uint32_t, order) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_alloc, order, flags);
        check(pageyard_alloc(yard, order, flags, &block), &block, order, flags);
    }
}

static void h_pageyard_alloc_on(void) {
    void *block;
    EACH(uint32_t, node) EACH_OF_SOME_FLAGS(flags) {
        EACH(uint32_t, order) {
            if (order == 9 || order == 10)
                continue; /* pageyard_alloc has them */
            CALL(pageyard_alloc_on, node, order, flags);
            check(pageyard_alloc_on(yard, node, order, flags, &block), &block, order, flags);
        }
    }
    EACH_FLAGS(flags) {
        CALL(pageyard_alloc_on, 0, 0, flags);
        check(pageyard_alloc_on(yard, 0, 0, flags, &block), &block, 0, flags);
    }
}

static void h_pageyard_free(void) {
    void *block;
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
    EACH(uint64_t, at) EACH(uint32_t, order) {
        CALL(pageyard_free, at, order);
        if (known(pageyard_free(yard, (void *)(uintptr_t)at, order)))
            EXPECT(at == 0 && order <= PAGEYARD_MAX_ORDER);
        CALL(pageyard_free, (uintptr_t)block + at, order);
        if (known(pageyard_free(yard, (char *)((uintptr_t)block + at), order))) {
            EXPECT(at == 0 && order == 3);
            OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
        }
    }
    OK(pageyard_free(yard, block, 3));
}

/* More than there are pages, so that every accepted count fits. */
static void *pages[2 * ALL];

static void h_pageyard_alloc_bulk(void) {
    size_t got, done, i;
    EACH(size_t, count) EACH_OF_SOME_FLAGS(flags) {
        got = 0;
        CALL(pageyard_alloc_bulk, flags, count);
        if (known(pageyard_alloc_bulk(yard, flags, pages, count, &got)))
            EXPECT(got <= count && got <= ALL);
        for (i = 0; i < got; i++) {
            unsigned char *b = (unsigned char *)pages[i];
            if (flags & PAGEYARD_ZERO)
                EXPECT(b[0] == 0 && memcmp(b, b + 1, 4095) == 0);
            memset(b, 0xff, 4096);
        }
        OK(pageyard_free_bulk(yard, pages, got, 0, &done));
        EXPECT(done == got);
    }
    EACH_FLAGS(flags) {
        got = 0;
        CALL(pageyard_alloc_bulk, flags, 40);
        known(pageyard_alloc_bulk(yard, flags, pages, 40, &got));
        for (i = 0; i < got; i++) {
            unsigned char *b = (unsigned char *)pages[i];
            if (flags & PAGEYARD_ZERO)
                EXPECT(b[0] == 0 && memcmp(b, b + 1, 4095) == 0);
            memset(b, 0xff, 4096);
        }
        OK(pageyard_free_bulk(yard, pages, got, 0, NULL));
    }
}

static void h_pageyard_free_bulk(void) {
    size_t done, i;
    EACH(uint64_t, at) EACH(size_t, count) EACH(uint32_t, order) {
        for (i = 0; i < 64; i++)
            pages[i] = (void *)(uintptr_t)at;
        CALL(pageyard_free_bulk, at, count, order);
        done = SIZE_MAX;
        if (known(pageyard_free_bulk(yard, pages, count, order, &done)))
            EXPECT(count == 0);
        EXPECT(done == 0 || done == SIZE_MAX);
    }
}

static void h_pageyard_split(void) {
    void *block;
    EACH(uint32_t, order) EACH(uint32_t, into) {
        CALL(pageyard_split, order, into);
        OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
        EXPECT(!known(pageyard_split(yard, (void *)(uintptr_t)order, order, into)));
        if (known(pageyard_split(yard, block, order, into))) {
            uint32_t i;
            EXPECT(order == 3 && into <= 3);
            for (i = 0; i < 8; i += 1u << into)
                OK(pageyard_free(yard, (char *)block + 4096 * i, into));
        } else {
            OK(pageyard_free(yard, block, 3));
        }
    }
}

static void h_pageyard_pfn(void) {
    uint64_t pfn;
    EACH(uint64_t, at) {
        CALL(pageyard_pfn, at);
        EXPECT(!known(pageyard_pfn(yard, (void *)(uintptr_t)at, &pfn)));
    }
    void *page;
    OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page));
    OK(pageyard_pfn(yard, page, &pfn));
    OK(pageyard_free(yard, page, 0));
}

static void h_pageyard_address(void) {
    void *address;
    uint64_t pfn;
    EACH(uint64_t, at) {
        CALL(pageyard_address, at);
        if (known(pageyard_address(yard, at, &address))) {
            OK(pageyard_pfn(yard, address, &pfn));
            EXPECT(pfn == at);
        }
    }
}

static uint64_t huge(void *context) {
    return *(uint64_t *)context;
}

static uint64_t shrink(void *context, uint64_t wanted) {
    (void)wanted;
    return *(uint64_t *)context;
}

static void told(void *context, uint32_t level, uint32_t was) {
    (void)context;
    (void)level;
    (void)was;
}

static void h_pageyard_register_shrinker(void) {
    static pageyard_shrinker shrinkers[17];
    pageyard_registration *registration;
    EACH(uint32_t, size) EACH(uint32_t, version) {
        memset(shrinkers, 0, sizeof shrinkers);
        shrinkers[0].struct_size = size;
        shrinkers[0].version = version;
        shrinkers[0].shrink = shrink;
        CALL(pageyard_register_shrinker, size, version);
        if (known(pageyard_register_shrinker(yard, shrinkers, &registration)))
            OK(pageyard_unregister(registration));
    }
    /* Impossible answers, to a request that finds no memory. */
    EACH(uint64_t, answer) {
        size_t got;
        void *block;
        memset(shrinkers, 0, sizeof shrinkers);
        shrinkers[0].struct_size = sizeof shrinkers[0];
        shrinkers[0].version = PAGEYARD_VERSION;
        shrinkers[0].context = &answer;
        shrinkers[0].count = huge;
        shrinkers[0].shrink = shrink;
        CALL(pageyard_register_shrinker, answer);
        OK(pageyard_register_shrinker(yard, shrinkers, &registration));
        OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, pages, COUNT(pages), &got));
        while (known(pageyard_alloc(yard, 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &block)))
            pages[got++] = block;
        OK(pageyard_unregister(registration));
        OK(pageyard_free_bulk(yard, pages, got, 0, NULL));
    }
}

static void h_pageyard_on_pressure(void) {
    EACH(uint64_t, context) {
        pageyard_registration *registration;
        CALL(pageyard_on_pressure, context);
        OK(pageyard_on_pressure(yard, told, (void *)(uintptr_t)context, &registration));
        OK(pageyard_unregister(registration));
    }
}

static void h_pageyard_unregister(void) {
    pageyard_registration *registration;
    CALL(pageyard_unregister, 0);
    OK(pageyard_on_pressure(yard, told, NULL, &registration));
    OK(pageyard_unregister(registration));
    EXPECT_STATUS(pageyard_unregister(registration), PAGEYARD_ERR_HANDLE);
}

static void h_pageyard_set_limits(void) {
    void *block;
    EACH(uint64_t, hard) EACH(uint64_t, soft) {
        CALL(pageyard_set_limits, hard, soft);
        known(pageyard_set_limits(yard, hard, soft));
        if (known(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &block)))
            OK(pageyard_free(yard, block, 0));
    }
    OK(pageyard_set_limits(yard, UINT64_MAX, UINT64_MAX));
}

static void h_pageyard_get_upkeep(void) {
    static pageyard_upkeep upkeep[17];
    EACH(uint32_t, size) EACH(uint32_t, version) {
        upkeep[0].struct_size = size;
        upkeep[0].version = version;
        CALL(pageyard_get_upkeep, size, version);
        known(pageyard_get_upkeep(yard, upkeep));
    }
}

static void h_pageyard_file(void) {
    int file;
    CALL(pageyard_file, 0);
    OK(pageyard_file(yard, &file));
}

static void h_pageyard_offset(void) {
    uint64_t offset;
    EACH(uint64_t, at) {
        CALL(pageyard_offset, at);
        EXPECT(!known(pageyard_offset(yard, (void *)(uintptr_t)at, &offset)));
    }
    void *page;
    OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page));
    OK(pageyard_offset(yard, page, &offset));
    OK(pageyard_free(yard, page, 0));
}

static void h_pageyard_region(void) {
    void *address;
    size_t size;
    CALL(pageyard_region, 0);
    OK(pageyard_region(yard, &address, &size));
    EXPECT(address != NULL && size == SIZE);
}

static void h_pageyard_get_usable(void) {
    static pageyard_usable usable[17];
    EACH(uint32_t, size) EACH(uint32_t, version) {
        usable[0].struct_size = size;
        usable[0].version = version;
        CALL(pageyard_get_usable, size, version);
        known(pageyard_get_usable(yard, usable));
    }
}

static void h_pageyard_get_thread_cache(void) {
    static pageyard_thread_cache stats[17];
    EACH(uint32_t, size) EACH(uint32_t, version) {
        stats[0].struct_size = size;
        stats[0].version = version;
        CALL(pageyard_get_thread_cache, size, version);
        known(pageyard_get_thread_cache(yard, stats));
    }
}

static void h_pageyard_alloc_range(void) {
    void *range;
    EACH(uint64_t, count) EACH(uint64_t, align) EACH_OF_SOME_FLAGS(flags) {
        CALL(pageyard_alloc_range, count, align, flags);
        if (known(pageyard_alloc_range(yard, count, align, flags, &range))) {
            EXPECT(count > 0 && count <= ALL);
            memset(range, 0xff, count * 4096);
            OK(pageyard_free_range(yard, range, count));
        }
    }
}

static void h_pageyard_free_range(void) {
    char *range;
    EACH(uint64_t, at) EACH(uint64_t, count) {
        CALL(pageyard_free_range, at, count);
        if (known(pageyard_free_range(yard, (void *)(uintptr_t)at, count)))
            EXPECT(at == 0);
    }
    OK(pageyard_alloc_range(yard, 1500, 1, PAGEYARD_KERNEL, (void **)&range));
    EACH(uint64_t, count) {
        CALL(pageyard_free_range, 1, count);
        if (count == 0 || count > 1500)
            EXPECT(!known(pageyard_free_range(yard, range, count)));
    }
    OK(pageyard_free_range(yard, range, 1000));
    OK(pageyard_free_range(yard, range + 1000 * 4096, 500));
    EXPECT(!known(pageyard_free_range(yard, range, 1500)));
}

static void h_pageyard_set_movable(void) {
    void *block;
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
    EACH(uint64_t, at) EACH(uint32_t, order) {
        CALL(pageyard_set_movable, at, order);
        EXPECT(!known(pageyard_set_movable(yard, (void *)(uintptr_t)at, order, 1)));
        if (known(pageyard_set_movable(yard, block, order, (uint32_t)at)))
            EXPECT(order == 3);
    }
    OK(pageyard_free(yard, block, 3));
}

static void h_pageyard_compact(void) {
    CALL(pageyard_compact, 0);
    OK(pageyard_compact(yard));
}

static int32_t relocate(void *context, void *from, void *to, uint32_t order) {
    EXPECT(from != NULL && to != NULL && from != to && order <= PAGEYARD_MAX_ORDER);
    return *(int32_t *)context;
}

static void h_pageyard_register_relocator(void) {
    static pageyard_relocator relocators[17];
    pageyard_registration *registration;
    size_t got, i;
    EACH(uint32_t, size) EACH(uint32_t, version) {
        memset(relocators, 0, sizeof relocators);
        relocators[0].struct_size = size;
        relocators[0].version = version;
        relocators[0].relocate = relocate;
        CALL(pageyard_register_relocator, size, version);
        if (known(pageyard_register_relocator(yard, relocators, &registration)))
            OK(pageyard_unregister(registration));
    }
    /* Every answer but that the block was moved. */
    EACH(int32_t, answer) {
        if (answer == PAGEYARD_MOVED)
            continue;
        memset(relocators, 0, sizeof relocators);
        relocators[0].struct_size = sizeof relocators[0];
        relocators[0].version = PAGEYARD_VERSION;
        relocators[0].context = &answer;
        relocators[0].relocate = relocate;
        CALL(pageyard_register_relocator, (uint64_t)answer);
        OK(pageyard_register_relocator(yard, relocators, &registration));
        OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL | PAGEYARD_MOVABLE, pages, 1000, &got));
        for (i = 0; i < got; i++) OK(pageyard_set_movable(yard, pages[i], 0, 1));
        for (i = 0; i < got; i += 2) OK(pageyard_free(yard, pages[i], 0));
        OK(pageyard_compact(yard));
        for (i = 1; i < got; i += 2) OK(pageyard_free(yard, pages[i], 0));
        OK(pageyard_unregister(registration));
    }
}

static void h_pageyard_set_limits_bytes(void) {
    void *block;
    EACH(uint64_t, hard) EACH(uint64_t, soft) {
        CALL(pageyard_set_limits_bytes, hard, soft);
        known(pageyard_set_limits_bytes(yard, hard, soft));
        if (known(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &block)))
            OK(pageyard_free(yard, block, 0));
    }
    OK(pageyard_set_limits_bytes(yard, UINT64_MAX, UINT64_MAX));
}

static void h_pageyard_get_stats(void) {
    static pageyard_stats stats[17];
    EACH(uint32_t, size) EACH(uint32_t, version) {
        stats[0].struct_size = size;
        stats[0].version = version;
        CALL(pageyard_get_stats, size, version);
        known(pageyard_get_stats(yard, stats));
    }
}

static void h_pageyard_get_zone_stats(void) {
    pageyard_stats stats;
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    EACH(size_t, index) {
        CALL(pageyard_get_zone_stats, index);
        known(pageyard_get_zone_stats(yard, index, &stats));
    }
}

static void h_pageyard_resident(void) {
    uint64_t n;
    CALL(pageyard_resident, 0);
    OK(pageyard_resident(yard, &n));
}

static char text[1 << 16];

static void h_pageyard_text(void) {
    size_t needed;
    EACH(uint32_t, kind) EACH(size_t, size) {
        size_t room = size < sizeof text ? size : sizeof text;
        CALL(pageyard_text, kind, room);
        memset(text, 'x', sizeof text);
        if (known(pageyard_text(yard, kind, text, room, &needed)))
            EXPECT(needed <= room && strlen(text) + 1 == needed);
        EXPECT(room == sizeof text || text[room] == 'x');
    }
}

static void h_pageyard_knob(void) {
    size_t needed, i;
    for (i = 0; i < COUNT(NAMES); i++)
        EACH(size_t, size) {
            CALL(pageyard_knob, i, size);
            known(pageyard_knob(yard, NAMES[i], text, size < sizeof text ? size : sizeof text,
                                &needed));
        }
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_STATUS(pageyard_knob(yard, text, NULL, 0, &needed), PAGEYARD_ERR_KNOB);
}

static void h_pageyard_set_knob(void) {
    size_t i, j;
    void *block;
    for (i = 0; i < COUNT(NAMES); i++)
        for (j = 0; j < COUNT(VALUES); j++) {
            CALL(pageyard_set_knob, i, j);
            known(pageyard_set_knob(yard, NAMES[i], VALUES[j]));
            if (known(pageyard_alloc(yard, 2, PAGEYARD_KERNEL, &block)))
                OK(pageyard_free(yard, block, 2));
        }
    memset(text, '1', sizeof text - 1);
    text[sizeof text - 1] = 0;
    EXPECT_STATUS(pageyard_set_knob(yard, "min_free_kbytes", text), PAGEYARD_ERR_KNOB);
}

static void h_pageyard_drain(void) {
    CALL(pageyard_drain, 0);
    OK(pageyard_drain(yard));
}

static void h_pageyard_tick(void) {
    CALL(pageyard_tick, 0);
    OK(pageyard_tick(yard));
}

static const row ROWS[] = {
    ROW(pageyard_last_error),
    ROW(pageyard_options_init),
    ROW(pageyard_create),
    ROW(pageyard_destroy),
    ROW(pageyard_alloc),
    ROW(pageyard_alloc_on),
    ROW(pageyard_free),
    ROW(pageyard_alloc_bulk),
    ROW(pageyard_free_bulk),
    ROW(pageyard_split),
    ROW(pageyard_pfn),
    ROW(pageyard_address),
    ROW(pageyard_region),
    ROW(pageyard_get_usable),
    ROW(pageyard_get_thread_cache),
    ROW(pageyard_alloc_range),
    ROW(pageyard_free_range),
    ROW(pageyard_set_movable),
    ROW(pageyard_compact),
    ROW(pageyard_register_relocator),
    ROW(pageyard_set_limits_bytes),
    ROW(pageyard_register_shrinker),
    ROW(pageyard_on_pressure),
    ROW(pageyard_unregister),
    ROW(pageyard_set_limits),
    ROW(pageyard_get_upkeep),
    ROW(pageyard_file),
    ROW(pageyard_offset),
    ROW(pageyard_get_stats),
    ROW(pageyard_get_zone_stats),
    ROW(pageyard_resident),
    ROW(pageyard_text),
    ROW(pageyard_knob),
    ROW(pageyard_set_knob),
    ROW(pageyard_drain),
    ROW(pageyard_tick),
};

int main(int argc, char **argv) {
    size_t i;
    watch();
    for (i = 0; i < COUNT(ROWS); i++)
        if (argc == 2 && strcmp(argv[1], ROWS[i].name) == 0) {
            pageyard_stats stats;
            make();
            /* A message that the first success must clear. */
            EXPECT_STATUS(pageyard_set_limits(yard, 1, 1), PAGEYARD_ERR_OPTION);
            EXPECT(strstr(pageyard_last_error(), "hard_limit") != NULL);
            succeeded = 0;
            ROWS[i].run();
            EXPECT(succeeded > 0 || strcmp(ROWS[i].name, "pageyard_last_error") == 0);
            /* No page is lost, and no lock is held. */
            CALL(pageyard_drain, 0);
            OK(pageyard_drain(yard));
            stats.struct_size = sizeof stats;
            stats.version = PAGEYARD_VERSION;
            OK(pageyard_get_stats(yard, &stats));
            EXPECT(stats.free == stats.managed && stats.cached == 0);
            OK(pageyard_destroy(yard));
            puts("hostile: all is well");
            return 0;
        }
    fprintf(stderr, "there is no row for %s\n", argc == 2 ? argv[1] : "nothing");
    return 1;
}
