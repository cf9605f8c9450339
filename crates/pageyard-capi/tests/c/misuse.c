/* Every function of both headers with invalid pointers: handles that are null, misaligned, garbage,
 * of the other level, or stale; null for every other pointer. The Rust test checks that no function
 * and no pointer lacks a row. */
#include <pageyard.h>

#include <pthread.h>
#include <string.h>

#include "expect.h"

enum { FIRST = 1 << 20, PAGES = 1 << 15 };

#ifdef PLANT_HANDLE
static pageyard_status planted(const pageyard *yard) {
    (void)yard;
    return PAGEYARD_OK;
}
#define pageyard_drain planted
#endif
#ifdef PLANT_TWICE
static pageyard_status planted(pageyard_registration *registration) {
    pageyard_unregister(registration);
    return registration == NULL ? PAGEYARD_ERR_HANDLE : PAGEYARD_OK;
}
#define pageyard_unregister planted
#endif

/* Places for answers, which an error about a handle must not change. */
static struct {
    void *block;
    uint64_t number;
    size_t size;
    char text[64];
    int file;
    uint32_t cpu;
    pageyard_stats stats;
    pageyard_upkeep upkeep;
    pageyard_usable usable;
    pageyard_thread_cache thread_cache;
    pageyard_registration *registration;
} out, before;

/* Structures that are right, and hold nothing. */
static pageyard_range range;
static pageyard_cursor cursor;
static uint32_t turn;
static uint64_t acknowledged[1];
static pageyard_epochs epochs = {sizeof epochs, PAGEYARD_VERSION, 0, acknowledged, 1};
static pageyard_shootdown_block block_room[1];
static pageyard_shootdown batch = {sizeof batch, PAGEYARD_VERSION, &epochs, block_room, 1, 0, 0, 0};
static pageyard_lent lent_room[1];
static pageyard_balloon balloon = {sizeof balloon, PAGEYARD_VERSION, lent_room, 1, 0, 0};

static void flush(void *context) {
    (void)context;
}

static uint64_t garbage[8] = {1, 2, 3, 4, 5, 6, 7, 8};

#define BAD 6
static void *bad[BAD];

/* Calls a function with each bad handle and otherwise valid arguments. */
#define BAD_HANDLE(name, handle, ...)                                                   \
    do {                                                                                \
        int i_;                                                                         \
        for (i_ = 0; i_ < BAD; i_++) {                                                  \
            EXPECT_STATUS(name((handle *)bad[i_], ##__VA_ARGS__), PAGEYARD_ERR_HANDLE); \
            EXPECT(memcmp(&out, &before, sizeof out) == 0);                             \
        }                                                                               \
    } while (0)
/* Calls a function with null for one pointer, and checks the answer. The message of an error names the
 * parameter; functions of pageyard_core.h have no message. */
#define NULL_IS(name, parameter, status, ...)                                                    \
    do {                                                                                         \
        EXPECT_STATUS(name(__VA_ARGS__), status);                                                \
        if ((status) != PAGEYARD_OK && strncmp(#name, "pageyard_core", 13) != 0 &&               \
            strncmp(#name, "pageyard_kernel", 15) != 0)                                          \
            EXPECT(strncmp(pageyard_last_error(), #parameter ": ", sizeof #parameter + 1) == 0); \
    } while (0)
/* A pointer that cannot be checked: the header states its requirements. */
#define CANNOT_TELL(name, parameter)
/* A function without pointers, and a condition that must hold. */
#define NO_POINTER(name, holds) EXPECT(holds)

#define OUT PAGEYARD_ERR_ARGUMENT
/* The status for a function that does not return one. */
#define pageyard_page(yard) (pageyard_page(yard) == NULL ? PAGEYARD_ERR_HANDLE : PAGEYARD_OK)

static void *other_thread(void *yard) {
    OK(pageyard_tick((pageyard *)yard));
    return NULL;
}

static uint64_t shrink(void *context, uint64_t pages) {
    (void)context;
    (void)pages;
    return 0;
}

static int32_t relocate(void *context, void *from, void *to, uint32_t order) {
    (void)context;
    (void)from;
    (void)to;
    (void)order;
    return PAGEYARD_MOVE_REFUSED;
}

static void told(void *context, uint32_t level, uint32_t was) {
    (void)context;
    (void)level;
    (void)was;
}

static pageyard *make(void) {
    pageyard_options options;
    pageyard *yard = NULL;
    OK(pageyard_options_init(&options, sizeof options, 16 << 20));
    options.tick_ns = 0;
    options.flags = PAGEYARD_MEMFD;
    OK(pageyard_create(&options, &yard));
    return yard;
}

static pageyard_layout layout_of(void) {
    static const pageyard_range usable = {FIRST, FIRST + PAGES};
    static pageyard_zone zone;
    static const uint16_t cpus[1] = {0};
    pageyard_layout layout;
    memset(&layout, 0, sizeof layout);
    memset(&zone, 0, sizeof zone);
    zone.kind = PAGEYARD_ZONE_NORMAL;
    zone.span = usable;
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &usable;
    layout.usable_count = 1;
    layout.cpus = cpus;
    layout.cpu_count = 1;
    layout.engine = ENGINE;
    return layout;
}

static pageyard_core *make_core(void **room) {
    pageyard_layout layout = layout_of();
    pageyard_core *yard = NULL;
    char why[200];
    size_t bytes = 0;
    OK(pageyard_core_room(&layout, &bytes));
    *room = malloc(bytes);
    EXPECT_STATUS(pageyard_core_create(&layout, NULL, *room, bytes, &yard, why, sizeof why),
                  PAGEYARD_OK);
    return yard;
}

/* All functions of the host level that take a yard, without a valid yard. */
static void host_handles(void) {
    pageyard_shrinker shrinker;
    pageyard_relocator relocator;
    memset(&shrinker, 0, sizeof shrinker);
    shrinker.struct_size = sizeof shrinker;
    shrinker.version = PAGEYARD_VERSION;
    shrinker.shrink = shrink;
    memset(&relocator, 0, sizeof relocator);
    relocator.struct_size = sizeof relocator;
    relocator.version = PAGEYARD_VERSION;
    relocator.relocate = relocate;
    BAD_HANDLE(pageyard_destroy, pageyard);
    BAD_HANDLE(pageyard_alloc, pageyard, 0, PAGEYARD_KERNEL, &out.block);
    BAD_HANDLE(pageyard_alloc_on, pageyard, 0, 0, PAGEYARD_KERNEL, &out.block);
    BAD_HANDLE(pageyard_free, pageyard, NULL, 0);
    BAD_HANDLE(pageyard_free, pageyard, garbage, 0);
    BAD_HANDLE(pageyard_alloc_bulk, pageyard, PAGEYARD_KERNEL, &out.block, 1, &out.size);
    BAD_HANDLE(pageyard_free_bulk, pageyard, &out.block, 1, 0, &out.size);
    BAD_HANDLE(pageyard_split, pageyard, garbage, 1, 0);
    BAD_HANDLE(pageyard_pfn, pageyard, garbage, &out.number);
    BAD_HANDLE(pageyard_address, pageyard, FIRST, &out.block);
    BAD_HANDLE(pageyard_register_shrinker, pageyard, &shrinker, &out.registration);
    BAD_HANDLE(pageyard_on_pressure, pageyard, told, NULL, &out.registration);
    BAD_HANDLE(pageyard_unregister, pageyard_registration);
    BAD_HANDLE(pageyard_set_limits, pageyard, 1, 1);
    BAD_HANDLE(pageyard_set_limits_bytes, pageyard, 1, 1);
    BAD_HANDLE(pageyard_region, pageyard, &out.block, &out.size);
    BAD_HANDLE(pageyard_get_usable, pageyard, &out.usable);
    BAD_HANDLE(pageyard_get_thread_cache, pageyard, &out.thread_cache);
    BAD_HANDLE(pageyard_alloc_range, pageyard, 1, 1, PAGEYARD_KERNEL, &out.block);
    BAD_HANDLE(pageyard_free_range, pageyard, garbage, 1);
    BAD_HANDLE(pageyard_set_movable, pageyard, garbage, 0, 1);
    BAD_HANDLE(pageyard_compact, pageyard);
    BAD_HANDLE(pageyard_register_relocator, pageyard, &relocator, &out.registration);
    BAD_HANDLE(pageyard_get_upkeep, pageyard, &out.upkeep);
    BAD_HANDLE(pageyard_file, pageyard, &out.file);
    BAD_HANDLE(pageyard_offset, pageyard, garbage, &out.number);
    BAD_HANDLE(pageyard_get_stats, pageyard, &out.stats);
    BAD_HANDLE(pageyard_get_zone_stats, pageyard, 0, &out.stats);
    BAD_HANDLE(pageyard_resident, pageyard, &out.number);
    BAD_HANDLE(pageyard_text, pageyard, 0, out.text, sizeof out.text, &out.size);
    BAD_HANDLE(pageyard_knob, pageyard, "numa_stat", out.text, sizeof out.text, &out.size);
    BAD_HANDLE(pageyard_set_knob, pageyard, "numa_stat", "1");
    BAD_HANDLE(pageyard_drain, pageyard);
    BAD_HANDLE(pageyard_tick, pageyard);
}

static void core_handles(void) {
    BAD_HANDLE(pageyard_core_destroy, pageyard_core);
    BAD_HANDLE(pageyard_core_alloc, pageyard_core, 0, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_alloc_on, pageyard_core, 0, 0, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_alloc_interleaved, pageyard_core, 1, &turn, 0, PAGEYARD_KERNEL,
               &out.number);
    BAD_HANDLE(pageyard_core_alloc_preferring, pageyard_core, 1, 0, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_alloc_with, pageyard_core, 0, PAGEYARD_KERNEL, 1, 0, &out.number);
    BAD_HANDLE(pageyard_core_alloc_at, pageyard_core, 0, 0, PAGEYARD_KERNEL);
    BAD_HANDLE(pageyard_core_try_alloc, pageyard_core, 0, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_free, pageyard_core, FIRST, 0);
    BAD_HANDLE(pageyard_core_free_nowait, pageyard_core, FIRST, 0);
    BAD_HANDLE(pageyard_core_alloc_bulk, pageyard_core, PAGEYARD_KERNEL, &out.number, 1, &out.size);
    BAD_HANDLE(pageyard_core_free_bulk, pageyard_core, &out.number, 1, 0, &out.size);
    BAD_HANDLE(pageyard_core_split, pageyard_core, FIRST, 1, 0);
    BAD_HANDLE(pageyard_core_set_movable, pageyard_core, FIRST, 0, 1);
    BAD_HANDLE(pageyard_core_alloc_contig, pageyard_core, FIRST, FIRST + 1, PAGEYARD_TYPE_MOVABLE,
               PAGEYARD_KERNEL);
    BAD_HANDLE(pageyard_core_alloc_contig_pages, pageyard_core, 1, 1, PAGEYARD_TYPE_MOVABLE,
               PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_alloc_contig_pages_from, pageyard_core, &cursor, 1, 1, NULL,
               PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_free_contig, pageyard_core, FIRST, FIRST + 1);
    BAD_HANDLE(pageyard_core_alloc_range_or_scatter, pageyard_core, 1, PAGEYARD_KERNEL, &range, 1,
               &out.size);
    BAD_HANDLE(pageyard_core_shootdown_add, pageyard_core, &batch, FIRST, 0);
    BAD_HANDLE(pageyard_core_shootdown_free, pageyard_core, &batch, &out.size);
    BAD_HANDLE(pageyard_core_balloon_lend, pageyard_core, &balloon, PAGEYARD_KERNEL, &out.number);
    BAD_HANDLE(pageyard_core_balloon_acknowledge, pageyard_core, &balloon, FIRST);
    BAD_HANDLE(pageyard_core_fold, pageyard_core, 0);
    BAD_HANDLE(pageyard_core_tick, pageyard_core, 0);
    BAD_HANDLE(pageyard_core_drain, pageyard_core);
    BAD_HANDLE(pageyard_core_compact_background, pageyard_core, 0, &out.number);
    BAD_HANDLE(pageyard_core_compact, pageyard_core);
    BAD_HANDLE(pageyard_core_report_free, pageyard_core, &out.number);
    BAD_HANDLE(pageyard_core_cpu_up, pageyard_core, 0);
    BAD_HANDLE(pageyard_core_cpu_dead, pageyard_core, 0);
    BAD_HANDLE(pageyard_core_online, pageyard_core, FIRST, FIRST + 1);
    BAD_HANDLE(pageyard_core_offline, pageyard_core, FIRST, FIRST + 1);
    BAD_HANDLE(pageyard_page, pageyard_core);
    BAD_HANDLE(pageyard_page_free, pageyard_core, garbage);
    BAD_HANDLE(pageyard_core_release, pageyard_core, FIRST, FIRST + 1, out.text, sizeof out.text);
    BAD_HANDLE(pageyard_core_validate, pageyard_core, out.text, sizeof out.text);
    BAD_HANDLE(pageyard_core_stats, pageyard_core, &out.stats);
    BAD_HANDLE(pageyard_core_zone_stats, pageyard_core, 0, &out.stats);
    BAD_HANDLE(pageyard_core_text, pageyard_core, 0, out.text, sizeof out.text, &out.size);
    BAD_HANDLE(pageyard_core_knob, pageyard_core, "numa_stat", out.text, sizeof out.text, &out.size);
    BAD_HANDLE(pageyard_core_set_knob, pageyard_core, "numa_stat", "1");
}

static void host_pointers(pageyard *y) {
    pageyard_options options;
    pageyard_shrinker shrinker;
    pageyard_relocator relocator;
    pageyard *made = NULL;
    size_t n;
    uint64_t number;
    void *block;
    char text[16384];
    pthread_t thread;

    memset(&shrinker, 0, sizeof shrinker);
    shrinker.struct_size = sizeof shrinker;
    shrinker.version = PAGEYARD_VERSION;
    shrinker.shrink = shrink;
    memset(&relocator, 0, sizeof relocator);
    relocator.struct_size = sizeof relocator;
    relocator.version = PAGEYARD_VERSION;
    relocator.relocate = relocate;
    OK(pageyard_options_init(&options, sizeof options, 16 << 20));
    OK(pageyard_alloc(y, 0, PAGEYARD_KERNEL, &block));

    NO_POINTER(pageyard_strerror, strcmp(pageyard_strerror(-12345), "") != 0);
    NO_POINTER(pageyard_last_error, pageyard_last_error() != NULL);
    NULL_IS(pageyard_options_init, options, OUT, NULL, sizeof options, 16 << 20);
    NULL_IS(pageyard_create, options, OUT, NULL, &made);
    NULL_IS(pageyard_create, yard, OUT, &options, NULL);
    EXPECT(made == NULL);
    NULL_IS(pageyard_alloc, block, OUT, y, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_alloc_on, block, OUT, y, 0, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_free, block, PAGEYARD_OK, y, NULL, 0);
    NULL_IS(pageyard_alloc_bulk, pages, OUT, y, PAGEYARD_KERNEL, NULL, 1, &n);
    NULL_IS(pageyard_alloc_bulk, got, OUT, y, PAGEYARD_KERNEL, &block, 1, NULL);
    NULL_IS(pageyard_free_bulk, blocks, OUT, y, NULL, 1, 0, &n);
    NULL_IS(pageyard_free_bulk, done, PAGEYARD_OK, y, &block, 1, 0, NULL);
    NULL_IS(pageyard_split, block, PAGEYARD_ERR_FOREIGN, y, NULL, 1, 0);
    NULL_IS(pageyard_pfn, address, PAGEYARD_ERR_FOREIGN, y, NULL, &number);
    NULL_IS(pageyard_pfn, pfn, OUT, y, block, NULL);
    NULL_IS(pageyard_address, address, OUT, y, FIRST, NULL);
    NULL_IS(pageyard_register_shrinker, shrinker, OUT, y, NULL, &out.registration);
    NULL_IS(pageyard_register_shrinker, registration, OUT, y, &shrinker, NULL);
    NULL_IS(pageyard_on_pressure, told, OUT, y, NULL, NULL, &out.registration);
    /* The context is passed on unchanged. */
    CANNOT_TELL(pageyard_on_pressure, context);
    NULL_IS(pageyard_on_pressure, registration, OUT, y, told, NULL, NULL);
    NULL_IS(pageyard_get_upkeep, upkeep, OUT, y, NULL);
    NULL_IS(pageyard_region, address, OUT, y, NULL, &n);
    NULL_IS(pageyard_region, size, OUT, y, &out.block, NULL);
    NULL_IS(pageyard_get_usable, usable, OUT, y, NULL);
    NULL_IS(pageyard_get_thread_cache, stats, OUT, y, NULL);
    NULL_IS(pageyard_alloc_range, range, OUT, y, 1, 1, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_free_range, range, PAGEYARD_OK, y, NULL, 1);
    NULL_IS(pageyard_set_movable, block, PAGEYARD_ERR_FOREIGN, y, NULL, 0, 1);
    NULL_IS(pageyard_register_relocator, relocator, OUT, y, NULL, &out.registration);
    NULL_IS(pageyard_register_relocator, registration, OUT, y, &relocator, NULL);
    NULL_IS(pageyard_file, file, OUT, y, NULL);
    NULL_IS(pageyard_offset, page, PAGEYARD_ERR_FOREIGN, y, NULL, &number);
    NULL_IS(pageyard_offset, offset, OUT, y, block, NULL);
    NULL_IS(pageyard_get_stats, stats, OUT, y, NULL);
    NULL_IS(pageyard_get_zone_stats, stats, OUT, y, 0, NULL);
    NULL_IS(pageyard_resident, pages, OUT, y, NULL);
    NULL_IS(pageyard_text, buffer, OUT, y, 0, NULL, 1, &n);
    NULL_IS(pageyard_text, needed, PAGEYARD_OK, y, 0, text, sizeof text, NULL);
    NULL_IS(pageyard_knob, name, OUT, y, NULL, text, sizeof text, &n);
    NULL_IS(pageyard_knob, buffer, OUT, y, "numa_stat", NULL, 1, &n);
    NULL_IS(pageyard_knob, needed, PAGEYARD_OK, y, "numa_stat", text, sizeof text, NULL);
    NULL_IS(pageyard_set_knob, name, OUT, y, NULL, "1");
    NULL_IS(pageyard_set_knob, value, OUT, y, "numa_stat", NULL);

    /* Addresses outside any block, aligned or not. */
    EXPECT_STATUS(pageyard_free(y, (void *)1, 0), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_free(y, (void *)UINTPTR_MAX, 0), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_free(y, garbage, UINT32_MAX), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_address(y, UINT64_MAX, &block), PAGEYARD_ERR_FOREIGN);
    /* Structures of garbage. */
    EXPECT_STATUS(pageyard_create((pageyard_options *)garbage, &made), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_get_stats(y, (pageyard_stats *)garbage), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_register_shrinker(y, (pageyard_shrinker *)garbage, &out.registration),
                  PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_create((pageyard_options *)((char *)&options + 1), &made), OUT);
    /* Answers may be written to unaligned addresses. */
    OK(pageyard_alloc(y, 0, PAGEYARD_KERNEL, (void **)(text + 1)));
    memcpy(&block, text + 1, sizeof block);
    OK(pageyard_free(y, block, 0));
    EXPECT(pthread_create(&thread, NULL, other_thread, y) == 0 && pthread_join(thread, NULL) == 0);
}

static void core_pointers(pageyard_core *y) {
    pageyard_layout layout = layout_of();
    pageyard_core *made = NULL;
    pageyard_memory map = {0, 4 << 20, PAGEYARD_MEMORY_USABLE, 0};
    void *room = malloc(1 << 20);
    uint64_t number;
    size_t n;
    char text[16384];

    NULL_IS(pageyard_core_room, layout, OUT, NULL, &n);
    NULL_IS(pageyard_core_room, bytes, OUT, &layout, NULL);
    OK(pageyard_core_room(&layout, &n));
    room = realloc(room, n);
    NULL_IS(pageyard_core_create, layout, OUT, NULL, NULL, room, n, &made, text, sizeof text);
    NULL_IS(pageyard_core_create, room, OUT, &layout, NULL, NULL, n, &made, text, sizeof text);
    NULL_IS(pageyard_core_create, yard, OUT, &layout, NULL, room, n, NULL, text, sizeof text);
    NULL_IS(pageyard_core_create, why, PAGEYARD_ERR_ROOM, &layout, NULL, room, 1, &made, NULL, 9);
    EXPECT(made == NULL);
    NULL_IS(pageyard_core_create, platform, PAGEYARD_OK, &layout, NULL, room, n, &made, NULL, 0);
    OK(pageyard_core_destroy(made));
    made = NULL;
    NULL_IS(pageyard_kernel_init, ranges, OUT, NULL, 1, NULL, 0, 1, NULL, &made, text, sizeof text);
    NULL_IS(pageyard_kernel_init, reserved, OUT, &map, 1, NULL, 1, 1, NULL, &made, text, sizeof text);
    NULL_IS(pageyard_kernel_init, yard, OUT, &map, 1, NULL, 0, 1, NULL, NULL, text, sizeof text);
    NULL_IS(pageyard_kernel_init, why, OUT, &map, 1, NULL, 0, 0, NULL, &made, NULL, 9);
    EXPECT(made == NULL);
    map.start = (uintptr_t)(room = realloc(room, map.size));
    NULL_IS(pageyard_kernel_init, platform, PAGEYARD_OK, &map, 1, NULL, 0, 1, NULL, &made, NULL, 0);
    OK(pageyard_core_destroy(made));
    free(room);
    NULL_IS(pageyard_page_free, page, PAGEYARD_OK, y, NULL);
    NULL_IS(pageyard_core_alloc, pfn, OUT, y, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_on, pfn, OUT, y, 0, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_interleaved, turn, OUT, y, 1, NULL, 0, PAGEYARD_KERNEL, &number);
    NULL_IS(pageyard_core_alloc_interleaved, pfn, OUT, y, 1, &turn, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_preferring, pfn, OUT, y, 1, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_with, pfn, OUT, y, 0, PAGEYARD_KERNEL, 1, 0, NULL);
    NULL_IS(pageyard_core_try_alloc, pfn, OUT, y, 0, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_bulk, pfns, OUT, y, PAGEYARD_KERNEL, NULL, 1, &n);
    NULL_IS(pageyard_core_alloc_bulk, got, OUT, y, PAGEYARD_KERNEL, &number, 1, NULL);
    NULL_IS(pageyard_core_free_bulk, pfns, OUT, y, NULL, 1, 0, &n);
    OK(pageyard_core_alloc(y, 0, PAGEYARD_KERNEL, &number));
    NULL_IS(pageyard_core_free_bulk, done, PAGEYARD_OK, y, &number, 1, 0, NULL);
    NULL_IS(pageyard_core_alloc_contig_pages, pfn, OUT, y, 1, 1, PAGEYARD_TYPE_MOVABLE,
            PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_contig_pages_from, cursor, OUT, y, NULL, 1, 1, NULL,
            PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &number);
    NULL_IS(pageyard_core_alloc_contig_pages_from, pfn, OUT, y, &cursor, 1, 1, NULL,
            PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_alloc_contig_pages_from, within, PAGEYARD_OK, y, &cursor, 1, 1, NULL,
            PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &number);
    OK(pageyard_core_free(y, number, 0));
    NULL_IS(pageyard_core_alloc_range_or_scatter, ranges, OUT, y, 1, PAGEYARD_KERNEL, NULL, 1, &n);
    NULL_IS(pageyard_core_alloc_range_or_scatter, got, OUT, y, 1, PAGEYARD_KERNEL, &range, 1, NULL);
    NULL_IS(pageyard_core_epochs_acknowledge, epochs, OUT, NULL, 0, flush, NULL);
    NULL_IS(pageyard_core_epochs_acknowledge, flush, OUT, &epochs, 0, NULL, NULL);
    CANNOT_TELL(pageyard_core_epochs_acknowledge, context);
    NULL_IS(pageyard_core_epochs_online, epochs, OUT, NULL, 0, flush, NULL);
    NULL_IS(pageyard_core_epochs_online, flush, OUT, &epochs, 0, NULL, NULL);
    CANNOT_TELL(pageyard_core_epochs_online, context);
    NULL_IS(pageyard_core_epochs_offline, epochs, OUT, NULL, 0);
    NULL_IS(pageyard_core_epochs_lagging, epochs, OUT, NULL, 0, 0, &out.cpu);
    NULL_IS(pageyard_core_epochs_lagging, cpu, OUT, &epochs, 0, 0, NULL);
    OK(pageyard_core_alloc(y, 0, PAGEYARD_KERNEL, &number));
    NULL_IS(pageyard_core_shootdown_add, batch, OUT, y, NULL, number, 0);
    OK(pageyard_core_shootdown_add(y, &batch, number, 0));
    NULL_IS(pageyard_core_shootdown_begin, batch, OUT, NULL, &number);
    NULL_IS(pageyard_core_shootdown_begin, epoch, OUT, &batch, NULL);
    EXPECT(epochs.now == 0);
    OK(pageyard_core_shootdown_begin(&batch, &number));
    OK(pageyard_core_epochs_acknowledge(&epochs, 0, flush, NULL));
    NULL_IS(pageyard_core_shootdown_free, batch, OUT, y, NULL, &n);
    NULL_IS(pageyard_core_shootdown_free, freed, PAGEYARD_OK, y, &batch, NULL);
    NULL_IS(pageyard_core_balloon_lend, balloon, OUT, y, NULL, PAGEYARD_KERNEL, &number);
    NULL_IS(pageyard_core_balloon_lend, pfn, OUT, y, &balloon, PAGEYARD_KERNEL, NULL);
    NULL_IS(pageyard_core_balloon_ask, balloon, OUT, NULL, &number);
    NULL_IS(pageyard_core_balloon_ask, pfn, OUT, &balloon, NULL);
    NULL_IS(pageyard_core_balloon_acknowledge, balloon, OUT, y, NULL, FIRST);
    EXPECT_STATUS(pageyard_core_epochs_offline((pageyard_epochs *)garbage, 0), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_core_shootdown_begin((pageyard_shootdown *)garbage, &number),
                  PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_core_balloon_ask((pageyard_balloon *)garbage, &number),
                  PAGEYARD_ERR_VERSION);
    NULL_IS(pageyard_core_compact_background, sleep_ns, OUT, y, 0, NULL);
    NULL_IS(pageyard_core_report_free, sleep_ns, OUT, y, NULL);
    NULL_IS(pageyard_core_stats, stats, OUT, y, NULL);
    NULL_IS(pageyard_core_zone_stats, stats, OUT, y, 0, NULL);
    NULL_IS(pageyard_core_release, why, PAGEYARD_ERR_NOT_RESERVED, y, FIRST, FIRST + 1, NULL, 9);
    NULL_IS(pageyard_core_validate, why, PAGEYARD_OK, y, NULL, 9);
    NULL_IS(pageyard_core_knobs, knobs, OUT, PAGEYARD_KNOBS_DEFAULT, NULL);
    NULL_IS(pageyard_core_text, buffer, OUT, y, 0, NULL, 1, &n);
    NULL_IS(pageyard_core_text, needed, PAGEYARD_OK, y, 0, text, sizeof text, NULL);
    NULL_IS(pageyard_core_knob, name, OUT, y, NULL, text, sizeof text, &n);
    NULL_IS(pageyard_core_knob, buffer, OUT, y, "numa_stat", NULL, 1, &n);
    NULL_IS(pageyard_core_knob, needed, PAGEYARD_OK, y, "numa_stat", text, sizeof text, NULL);
    NULL_IS(pageyard_core_set_knob, name, OUT, y, NULL, "1");
    NULL_IS(pageyard_core_set_knob, value, OUT, y, "numa_stat", NULL);

    EXPECT_STATUS(pageyard_core_room((pageyard_layout *)garbage, &n), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_core_stats(y, (pageyard_stats *)garbage), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_core_free(y, UINT64_MAX, 0), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_core_free(y, 0, 0), PAGEYARD_ERR_FOREIGN);
    /* An impossible array: no address space has so many entries. */
    layout.zone_count = SIZE_MAX / 2;
    EXPECT_STATUS(pageyard_core_room(&layout, &n), OUT);
}

int main(void) {
    static _Alignas(128) char copy[4096];
    pageyard *yard = make(), *stale = make();
    void *room, *other_room;
    pageyard_core *core = make_core(&room), *stale_core = make_core(&other_room);
    pageyard_registration *ended;

    OK(pageyard_on_pressure(yard, told, NULL, &ended));
    OK(pageyard_unregister(ended));
    OK(pageyard_destroy(stale));
    OK(pageyard_core_destroy(stale_core));
    memset(&before, 0x5a, sizeof before);
    memcpy(&out, &before, sizeof out);

    bad[0] = NULL;
    bad[1] = (char *)yard + 1;
    bad[2] = garbage;
    bad[3] = stale;
    bad[4] = stale_core;
    bad[5] = ended;
    host_handles();
    core_handles();
    /* Handles of the other level. */
    bad[0] = bad[1] = bad[2] = bad[3] = bad[4] = bad[5] = core;
    host_handles();
    bad[0] = bad[1] = bad[2] = bad[3] = bad[4] = bad[5] = yard;
    core_handles();
    /* A copy of a handle, and a pointer into one. */
    memcpy(copy, core, sizeof copy);
    bad[0] = bad[1] = bad[2] = copy;
    bad[3] = bad[4] = bad[5] = (char *)core + 1;
    core_handles();
    BAD_HANDLE(pageyard_unregister, pageyard_registration);

    host_pointers(yard);
    core_pointers(core);
    /* The valid yards must be unchanged. */
    memset(&out.stats, 0, sizeof out.stats);
    out.stats.struct_size = sizeof out.stats;
    out.stats.version = PAGEYARD_VERSION;
    OK(pageyard_drain(yard));
    OK(pageyard_get_stats(yard, &out.stats));
    EXPECT(out.stats.free == out.stats.managed && out.stats.cached == 0);
    OK(pageyard_core_drain(core));
    OK(pageyard_core_stats(core, &out.stats));
    EXPECT(out.stats.free == PAGES);
    OK(pageyard_destroy(yard));
    OK(pageyard_core_destroy(core));
    free(room);
    free(other_room);
    puts("misuse: all is well");
    return 0;
}
