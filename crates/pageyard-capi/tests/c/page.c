/* The examples in C of docs/needs.md, which the program's test puts into needs_page.h, with a machine around
 * them. */
#include <pageyard_core.h>

#include <string.h>

#include "expect.h"

enum { FIRST = 0x100000, PAGES = 0x20000, FAR = 0x200000 };

static uint64_t mapped, removed, interrupts, flushes, released, requested[8], requests, records;
static uint32_t this_cpu;

static void map_pages(uint64_t pfn, uint64_t pages) {
    EXPECT(pfn >= FIRST);
    mapped += pages;
}

static void remove_from_page_table(uint64_t pfn) {
    removed = pfn;
}

static void flush_tlb(void *context) {
    EXPECT(context == NULL);
    flushes++;
}

static void send_interrupt(uint32_t cpu);

static uint32_t running_cpu(void) {
    return this_cpu;
}

static void cpu_pause(void) {
    EXPECT(!"every CPU has flushed");
}

static void unmap_and_release(uint64_t block) {
    EXPECT(block % 512 == 0);
    released++;
}

static void request_from_hypervisor(uint64_t block) {
    requested[requests++] = block;
}

static void write_record(uint64_t pfn) {
    EXPECT(pfn >= FIRST);
    records++;
}

#include "needs_page.h"

static void send_interrupt(uint32_t cpu) {
    interrupts++;
    flush(cpu);
}

static uint32_t cpu(void *context) {
    (void)context;
    return this_cpu;
}

int main(void) {
    static const pageyard_zone zones[2] = {{{FIRST, FIRST + PAGES}, 0, PAGEYARD_ZONE_NORMAL},
                                           {{FAR, FAR + PAGES}, 1, PAGEYARD_ZONE_NORMAL}};
    static const pageyard_range usable[2] = {{FIRST, FIRST + PAGES}, {FAR, FAR + PAGES}};
    static const uint16_t cpus[2] = {0, 1};
    pageyard_layout layout;
    pageyard_platform machine;
    pageyard_core *yard = NULL;
    pageyard_stats stats;
    uint64_t pfn = 0, large[4];
    size_t bytes = 0;
    void *memory;
    int i;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = zones;
    layout.zone_count = 2;
    layout.usable = usable;
    layout.usable_count = 2;
    layout.cpus = cpus;
    layout.cpu_count = 2;
    memset(&machine, 0, sizeof machine);
    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.cpu = cpu;
    OK(pageyard_core_room(&layout, &bytes));
    memory = malloc(bytes);
    OK(pageyard_core_create(&layout, &machine, memory, bytes, &yard, NULL, 0));

    load(yard);
    EXPECT(mapped == 300);
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfn));
    EXPECT(unmap(yard, pfn) == PAGEYARD_OK);
    EXPECT(removed == pfn && interrupts == 1 && flushes == 2);
    EXPECT_STATUS(pageyard_core_free(yard, pfn, 0), PAGEYARD_ERR_DOUBLE_FREE);
    lend(yard);
    EXPECT(released == 8);
    for (i = 0; i < 9; i++) ask();
    EXPECT(requests == 8);
    for (i = 0; i < 8; i++) OK(answered(yard, requested[i]));
    EXPECT_STATUS(answered(yard, requested[0]), PAGEYARD_ERR_NOT_LENT);
    for (i = 0; i < 4; i++) OK(large_block(yard, &large[i]));
    EXPECT(cursor.looks == 4 * 8);
    for (i = 0; i < 4; i++) OK(pageyard_core_free_contig(yard, large[i], large[i] + 4096));
    for (this_cpu = 0; this_cpu < 2; this_cpu++) {
        pfn = fault(yard);
        EXPECT((pfn >= FAR) == (this_cpu == 1) && pfn < FAR + PAGES);
        OK(pageyard_core_free(yard, pfn, 0));
    }
    this_cpu = 0;
    EXPECT(sample(yard) == 1 && records == 1);
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_core_drain(yard));
    OK(pageyard_core_stats(yard, &stats));
    EXPECT(stats.free == 2 * PAGES && stats.alloc_pages == stats.free_pages);
    OK(pageyard_core_destroy(yard));
    free(memory);
    puts("the page: all is well");
    return 0;
}
