/* Every function of pageyard.h, and every error that it documents. */
#include <pageyard.h>

#include <pthread.h>
#include <string.h>

#include "expect.h"

static uint64_t engine;

static pageyard *make(void) {
    pageyard_options options;
    pageyard *yard = NULL;
    OK(pageyard_options_init(&options, sizeof options, 64 << 20));
    options.engine = engine;
    OK(pageyard_create(&options, &yard));
    EXPECT(yard != NULL);
    return yard;
}

static pageyard_stats stats_of(const pageyard *yard) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_get_stats(yard, &stats));
    return stats;
}

/* Runs on its own thread, which is bound to one CPU afterwards. */
static void *tick(void *yard) {
    OK(pageyard_tick((pageyard *)yard));
    return NULL;
}

static void options(void) {
    pageyard_options options;
    pthread_t ticker;
    pageyard *yard = NULL;
    uint16_t node = 999;
    uint32_t cpu = 99999;
    struct {
        pageyard_options options;
        uint64_t unknown;
    } later;

    OK(pageyard_options_init(&options, sizeof options, 64 << 20));
    EXPECT(options.struct_size == sizeof options && options.version == PAGEYARD_VERSION);
    EXPECT(options.size == 64 << 20 && options.tick_ns == 1000000000);
    EXPECT(options.nodes == NULL && options.cpus == NULL && options.flags == 0);
    EXPECT(options.engine == PAGEYARD_ENGINE_PACKED);
    EXPECT_STATUS(pageyard_options_init(NULL, sizeof options, 1), PAGEYARD_ERR_ARGUMENT);
    options.struct_size = 12345;
    EXPECT_STATUS(pageyard_options_init(&options, 4, 1), PAGEYARD_ERR_VERSION);
    EXPECT(options.struct_size == 12345);

    OK(pageyard_options_init(&options, sizeof options, 1 << 20));
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "size") != NULL);
    OK(pageyard_options_init(&options, sizeof options, 64 << 20));
    EXPECT_STATUS(pageyard_create(&options, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_create(NULL, &yard), PAGEYARD_ERR_ARGUMENT);
    options.version = 2;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_VERSION);
    options.version = PAGEYARD_VERSION;
    options.huge_pages = 4;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "huge_pages") != NULL);
    options.huge_pages = PAGEYARD_HUGE_NEVER;
    options.flags = 1 << 10;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "flags") != NULL);
    options.flags = 0;
    options.engine = 2;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "engine") != NULL);
    options.engine = PAGEYARD_ENGINE_PACKED;
    options.node_count = 1;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    options.nodes = &node;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "node 999") != NULL);
    options.nodes = NULL;
    options.node_count = 0;
    options.cpus = &cpu;
    options.cpu_count = 1;
    EXPECT_STATUS(pageyard_create(&options, &yard), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "CPU 99999") != NULL);
    EXPECT(yard == NULL);

    /* A limit below the reserves leaves nothing for ordinary requests, but the yard is created. */
    options.cpus = NULL;
    options.cpu_count = 0;
    options.size = (uint64_t)4 << 30;
    options.hard_limit = 8 << 20;
    for (options.engine = 0; options.engine <= PAGEYARD_ENGINE_PACKED; options.engine++) {
        void *page;
        OK(pageyard_create(&options, &yard));
        EXPECT_STATUS(pageyard_alloc(yard, 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &page),
                      PAGEYARD_ERR_NO_MEMORY);
        OK(pageyard_destroy(yard));
    }
    yard = NULL;
    options.engine = PAGEYARD_ENGINE_PACKED;
    options.hard_limit = 0;
    options.size = 64 << 20;

    /* A program compiled before the engine could be chosen. */
    options.struct_size = offsetof(pageyard_options, engine);
    OK(pageyard_create(&options, &yard));
    OK(pageyard_destroy(yard));
    yard = NULL;

    /* Callers of a later version: one sets no field that is unknown here, one does. */
    memset(&later, 0, sizeof later);
    OK(pageyard_options_init(&later.options, sizeof later, 64 << 20));
    later.options.flags = PAGEYARD_PREFAULT | PAGEYARD_DEFERRED;
    later.options.tick_ns = 0;
    /* The packed engine, the default, does not start so. */
    EXPECT_STATUS(pageyard_create(&later.options, &yard), PAGEYARD_ERR_OPTION);
    later.options.engine = PAGEYARD_ENGINE_LINUX612;
    OK(pageyard_create(&later.options, &yard));
    EXPECT(pthread_create(&ticker, NULL, tick, yard) == 0 && pthread_join(ticker, NULL) == 0);
    OK(pageyard_destroy(yard));
    later.unknown = 1;
    EXPECT_STATUS(pageyard_create(&later.options, &yard), PAGEYARD_ERR_VERSION);
}

static void handles(void) {
    static uint64_t garbage[64];
    pageyard *yard = make(), *stale = yard;
    void *block = &garbage;
    size_t n;
    OK(pageyard_destroy(yard));
    EXPECT_STATUS(pageyard_destroy(stale), PAGEYARD_ERR_HANDLE);
    yard = make();
    EXPECT(yard != stale);
    EXPECT_STATUS(pageyard_alloc(stale, 0, PAGEYARD_KERNEL, &block), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_alloc(NULL, 0, PAGEYARD_KERNEL, &block), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_alloc((pageyard *)garbage, 0, PAGEYARD_KERNEL, &block),
                  PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_alloc((pageyard *)((char *)yard + 1), 0, PAGEYARD_KERNEL, &block),
                  PAGEYARD_ERR_HANDLE);
    EXPECT(block == (void *)&garbage);
    EXPECT_STATUS(pageyard_alloc_on(NULL, 0, 0, PAGEYARD_KERNEL, &block), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_free(NULL, block, 0), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_alloc_bulk(NULL, PAGEYARD_KERNEL, &block, 1, &n), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_free_bulk(NULL, &block, 1, 0, NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_split(NULL, block, 1, 0), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_pfn(NULL, block, garbage), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_address(NULL, 1, &block), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_get_stats(NULL, NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_get_zone_stats(NULL, 0, NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_resident(NULL, garbage), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_text(NULL, 0, NULL, 0, &n), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_knob(NULL, "numa_stat", NULL, 0, &n), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_set_knob(NULL, "numa_stat", "1"), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_drain(NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_tick(NULL), PAGEYARD_ERR_HANDLE);
    OK(pageyard_destroy(yard));
}

static void blocks(void) {
    pageyard *yard = make();
    void *block = NULL, *again = NULL, *parts[8];
    uint64_t pfn, head, i;
    size_t done;
    pageyard_stats before = stats_of(yard), after;

    for (i = 0; i <= PAGEYARD_MAX_ORDER; i++) {
        uint64_t bytes = (uint64_t)PAGEYARD_PAGE_SIZE << i;
        OK(pageyard_alloc(yard, (uint32_t)i, PAGEYARD_KERNEL, &block));
        EXPECT((uintptr_t)block % bytes == 0);
        memset(block, 0x5a, bytes);
        OK(pageyard_free(yard, block, (uint32_t)i));
    }
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL | PAGEYARD_ZERO, &block));
    for (i = 0; i < PAGEYARD_PAGE_SIZE << 3; i++) EXPECT(((char *)block)[i] == 0);
    OK(pageyard_free(yard, NULL, 0));

    OK(pageyard_pfn(yard, (char *)block + 4097, &pfn));
    OK(pageyard_pfn(yard, block, &head));
    EXPECT(pfn == head + 1 && head % 8 == 0);
    OK(pageyard_address(yard, pfn, &again));
    EXPECT((char *)again == (char *)block + 4096);
    EXPECT_STATUS(pageyard_pfn(yard, &pfn, &head), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_pfn(yard, block, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_address(yard, 1, &again), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_address(yard, pfn, NULL), PAGEYARD_ERR_ARGUMENT);

    EXPECT_STATUS(pageyard_alloc(yard, 11, PAGEYARD_KERNEL, &again), PAGEYARD_ERR_ARGUMENT);
    EXPECT(strcmp(pageyard_last_error(), "order: 11; expected 0 to 10 (PAGEYARD_MAX_ORDER)") == 0);
    EXPECT_STATUS(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_alloc(yard, 0, PAGEYARD_MOVABLE | PAGEYARD_RECLAIMABLE, &again),
                  PAGEYARD_ERR_FLAGS);
    EXPECT(strncmp(pageyard_last_error(), "flags: 0x18; ", 13) == 0);
    EXPECT_STATUS(pageyard_alloc_on(yard, 63, 0, PAGEYARD_KERNEL, &again), PAGEYARD_ERR_NODE);
    EXPECT_STATUS(pageyard_alloc_on(yard, 1 << 20, 0, PAGEYARD_KERNEL, &again), PAGEYARD_ERR_NODE);

    EXPECT_STATUS(pageyard_free(yard, block, 2), PAGEYARD_ERR_WRONG_ORDER);
    EXPECT(strncmp(pageyard_last_error(), "block: 0x", 9) == 0);
    EXPECT(strstr(pageyard_last_error(), "allocated at order 3") != NULL);
    EXPECT_STATUS(pageyard_free(yard, block, 11), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_free(yard, (char *)block + 4096, 0), PAGEYARD_ERR_NOT_HEAD);
    EXPECT_STATUS(pageyard_free(yard, (char *)block + 4096, 1), PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_free(yard, (char *)block + 1, 3), PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_free(yard, &pfn, 0), PAGEYARD_ERR_FOREIGN);

    EXPECT_STATUS(pageyard_split(yard, block, 3, 4), PAGEYARD_ERR_WRONG_ORDER);
    EXPECT(strcmp(pageyard_last_error(), "into: 4; expected 0 to 3, the block's order") == 0);
    EXPECT_STATUS(pageyard_split(yard, block, 3, 12), PAGEYARD_ERR_ARGUMENT);
    EXPECT(strncmp(pageyard_last_error(), "into: 12; expected 0 to 10", 26) == 0);
    OK(pageyard_split(yard, block, 3, 0));
    for (i = 0; i < 8; i++) parts[i] = (char *)block + i * PAGEYARD_PAGE_SIZE;
    OK(pageyard_free(yard, parts[5], 0));
    EXPECT_STATUS(pageyard_free_bulk(yard, parts, 8, 0, &done), PAGEYARD_ERR_DOUBLE_FREE);
    EXPECT(done == 5);
    EXPECT(strncmp(pageyard_last_error(), "blocks[5]: ", 11) == 0);
    EXPECT_STATUS(pageyard_free_bulk(yard, NULL, 1, 0, &done), PAGEYARD_ERR_ARGUMENT);
    EXPECT(done == 5);
    EXPECT_STATUS(pageyard_alloc_range(yard, 3, 3, PAGEYARD_KERNEL, &again), PAGEYARD_ERR_RANGE);
    EXPECT(strncmp(pageyard_last_error(), "pages: 3, align: 3: ", 20) == 0);
    EXPECT_STATUS(pageyard_alloc_range(yard, 0, 1, PAGEYARD_KERNEL, &again), PAGEYARD_ERR_RANGE);
    EXPECT(strncmp(pageyard_last_error(), "pages: 0, align: 1: ", 20) == 0);
    /* A range of two types, or of two zones. */
    EXPECT_STATUS(pageyard_alloc_range(yard, 3, 1, PAGEYARD_DMA | PAGEYARD_HIGHMEM, &again),
                  PAGEYARD_ERR_FLAGS);
    EXPECT_STATUS(pageyard_alloc_range(yard, 3, 1, PAGEYARD_MOVABLE | PAGEYARD_RECLAIMABLE, &again),
                  PAGEYARD_ERR_FLAGS);
    OK(pageyard_free_bulk(yard, parts + 6, 2, 0, NULL));
    EXPECT_STATUS(pageyard_free(yard, block, 3), PAGEYARD_ERR_DOUBLE_FREE);

    OK(pageyard_drain(yard));
    after = stats_of(yard);
    EXPECT(after.managed == before.managed && after.cached == 0);
    EXPECT(after.free == after.managed);
    EXPECT(after.allocs > before.allocs && after.frees > before.frees);
    EXPECT(after.min > 0 && after.min < after.low && after.low < after.high);
    OK(pageyard_destroy(yard));
}

/* Allocates everything in bulk requests, and frees it. */
static void exhaustion(void) {
    enum { MOST = 1 << 14 };
    static void *pages[MOST + 1];
    pageyard *yard = make();
    size_t n = 0, got = 0, done = 0, i;
    pageyard_status status;

    memset(pages, 0, sizeof pages);
    EXPECT_STATUS(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, NULL, 1, &got), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, pages, 1, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_free_bulk(yard, NULL, 1, 0, NULL), PAGEYARD_ERR_ARGUMENT);
    OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, pages, 0, &got));
    EXPECT(got == 0);
    do {
        OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, pages + n, 200, &got));
        n += got;
        EXPECT(n <= MOST - 200);
    } while (got > 0);
    for (i = 0; i < n; i++) {
        EXPECT(pages[i] != NULL && (uintptr_t)pages[i] % PAGEYARD_PAGE_SIZE == 0);
        EXPECT(*(uint64_t *)pages[i] == 0);
        *(uint64_t *)pages[i] = i + 1;
    }
    for (i = 0; i < n; i++) EXPECT(*(uint64_t *)pages[i] == i + 1);
    /* The worker may have drained some more pages from lists meanwhile. */
    while ((status = pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &pages[n])) == PAGEYARD_OK) {
        n++;
        EXPECT(n < MOST);
    }
    EXPECT(status == PAGEYARD_ERR_NO_MEMORY && pages[n] == NULL);
    /* Urgent requests may use the reserves. */
    OK(pageyard_alloc(yard, 0, PAGEYARD_ATOMIC, &pages[n]));
    OK(pageyard_free_bulk(yard, pages, n + 1, 0, &done));
    EXPECT(done == n + 1 && n > 12000);
    OK(pageyard_drain(yard));
    EXPECT(stats_of(yard).free == stats_of(yard).managed && stats_of(yard).failures > 0);
    OK(pageyard_destroy(yard));
}

static void texts(void) {
    pageyard *yard = make();
    char text[16384], small[8];
    size_t needed = 0;
    uint64_t resident = 0;
    void *block;
    uint32_t kind;
    pageyard_stats stats;

    for (kind = 0; kind <= PAGEYARD_TEXT_JSON; kind++) {
        OK(pageyard_text(yard, kind, text, sizeof text, &needed));
        EXPECT(needed == strlen(text) + 1 && needed > 50 && text[needed - 2] == '\n');
        EXPECT_STATUS(pageyard_text(yard, kind, small, sizeof small, NULL), PAGEYARD_ERR_BUFFER);
        EXPECT(strlen(small) == 7 && memcmp(small, text, 7) == 0);
        EXPECT_STATUS(pageyard_text(yard, kind, NULL, 0, &needed), PAGEYARD_ERR_BUFFER);
    }
    OK(pageyard_text(yard, PAGEYARD_TEXT_JSON, text, sizeof text, NULL));
    EXPECT(strncmp(text, "{\"zones\": [{\"node\": 0, \"kind\": \"Normal\", \"managed\": 16384,", 57) == 0);
    OK(pageyard_text(yard, PAGEYARD_TEXT_BUDDYINFO, text, sizeof text, NULL));
    EXPECT(strncmp(text, "Node 0, zone   Normal ", 22) == 0);
    EXPECT_STATUS(pageyard_text(yard, 6, text, sizeof text, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_text(yard, 0, NULL, 1, NULL), PAGEYARD_ERR_ARGUMENT);

    OK(pageyard_set_knob(yard, "min_free_kbytes", "2048"));
    OK(pageyard_knob(yard, "min_free_kbytes", text, sizeof text, &needed));
    EXPECT(atoi(text) == 2048 && needed == strlen(text) + 1);
    EXPECT(stats_of(yard).min == 512);
    EXPECT_STATUS(pageyard_knob(yard, "no_such", text, sizeof text, NULL), PAGEYARD_ERR_KNOB);
    EXPECT_STATUS(pageyard_set_knob(yard, "min_free_kbytes", "many"), PAGEYARD_ERR_KNOB);
    EXPECT(strstr(pageyard_last_error(), "min_free_kbytes") != NULL);
    EXPECT_STATUS(pageyard_set_knob(yard, NULL, "1"), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_set_knob(yard, "\xff", "1"), PAGEYARD_ERR_ARGUMENT);

    OK(pageyard_alloc(yard, 9, PAGEYARD_KERNEL, &block));
    memset(block, 1, 512 * PAGEYARD_PAGE_SIZE);
    OK(pageyard_resident(yard, &resident));
    EXPECT(resident >= 512);
    EXPECT_STATUS(pageyard_resident(yard, NULL), PAGEYARD_ERR_ARGUMENT);
    OK(pageyard_free(yard, block, 9));

    memset(&stats, 0, sizeof stats);
    EXPECT_STATUS(pageyard_get_stats(yard, &stats), PAGEYARD_ERR_VERSION);
    EXPECT(strncmp(pageyard_last_error(), "stats: struct_size ", 19) == 0);
    EXPECT_STATUS(pageyard_get_stats(yard, NULL), PAGEYARD_ERR_ARGUMENT);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    EXPECT_STATUS(pageyard_get_zone_stats(yard, 64, &stats), PAGEYARD_ERR_NODE);
    OK(pageyard_get_zone_stats(yard, 0, &stats));
    EXPECT(stats.managed > 0 && stats.managed <= 16384);
    OK(pageyard_destroy(yard));
}

/* Blocks that one thread allocates and another frees; no other thread writes to them. */
static pageyard *shared;
static void *slots[64];

static void *traffic(void *argument) {
    uint64_t me = (uint64_t)(uintptr_t)argument, n;
    for (n = 0; n < 20000; n++) {
        uint64_t order = (n + me) % 4;
        uint64_t *block;
        void *raw = NULL, *old;
        OK(pageyard_alloc(shared, (uint32_t)order, PAGEYARD_KERNEL, &raw));
        block = (uint64_t *)raw;
        block[0] = order;
        block[1] = (uint64_t)(uintptr_t)raw;
        old = __atomic_exchange_n(&slots[(n * 7 + me) % 64], raw, __ATOMIC_ACQ_REL);
        if (old != NULL) {
            block = (uint64_t *)old;
            EXPECT(block[1] == (uint64_t)(uintptr_t)old);
            OK(pageyard_free(shared, old, (uint32_t)block[0]));
        }
    }
    return NULL;
}

static void threads(void) {
    pthread_t workers[4];
    uintptr_t i;
    shared = make();
    for (i = 0; i < 4; i++) EXPECT(pthread_create(&workers[i], NULL, traffic, (void *)i) == 0);
    for (i = 0; i < 4; i++) EXPECT(pthread_join(workers[i], NULL) == 0);
    for (i = 0; i < 64; i++) {
        if (slots[i] != NULL) OK(pageyard_free(shared, slots[i], (uint32_t)*(uint64_t *)slots[i]));
        slots[i] = NULL;
    }
    OK(pageyard_drain(shared));
    EXPECT(stats_of(shared).free == stats_of(shared).managed);
    EXPECT(stats_of(shared).allocs >= 80000);
    OK(pageyard_destroy(shared));
}

int main(void) {
    EXPECT(strcmp(pageyard_strerror(PAGEYARD_OK), "done") == 0);
    EXPECT(strlen(pageyard_last_error()) == 0);
    options();
    for (engine = PAGEYARD_ENGINE_LINUX612; engine <= PAGEYARD_ENGINE_PACKED; engine++) {
        handles();
        blocks();
        exhaustion();
        texts();
        threads();
    }
    puts("pageyard.h: all is well");
    return 0;
}
