/* A kernel's start from memory maps as boot loaders report them: unsorted, overlapping, with holes,
 * too small for the maps, and wrong. */
#include <pageyard_core.h>

#include <string.h>
#include <sys/mman.h>

#include "expect.h"

#define MIB ((uint64_t)1 << 20)
enum { PAGE = PAGEYARD_PAGE_SIZE, BASE_MIB = 8, END_MIB = 40, PAGES = END_MIB * 256, CPUS = 3 };

static char why[160];
static uint8_t *direct_map;
static uint32_t this_cpu;
static pageyard_core *yard;

static uint32_t cpu(void *context) {
    (void)context;
    return this_cpu;
}

static pageyard_platform machine(void) {
    pageyard_platform machine;
    memset(&machine, 0, sizeof machine);
    machine.struct_size = sizeof machine;
    machine.version = PAGEYARD_VERSION;
    machine.cpu = cpu;
    machine.direct_map = direct_map;
    machine.engine = ENGINE;
    return machine;
}

/* Memory from 8 to 40 MiB, unsorted. The firmware uses a page between 12 and 13 MiB, and a page
 * that two entries share counts as in use as well; ACPI tables follow the hole from 30 to 31 MiB.
 * */
static const pageyard_memory MAP[] = {
    {20 * MIB, 10 * MIB, PAGEYARD_MEMORY_USABLE, 0},
    {31 * MIB, MIB / 2, PAGEYARD_MEMORY_ACPI, 0},
    {31 * MIB + MIB / 2, 9 * MIB - MIB / 2 - 100, PAGEYARD_MEMORY_USABLE, 0},
    {8 * MIB, 10 * MIB, PAGEYARD_MEMORY_USABLE, 7},
    {12 * MIB + 5, 9, 2, 0},
    {9 * MIB, 11 * MIB, PAGEYARD_MEMORY_USABLE, 0},
    {15 * MIB, 0, 2, 0},
    {0, 0, PAGEYARD_MEMORY_USABLE, 0},
    {40 * MIB - 100, 100, 5, 0},
    {UINT64_MAX - 9, UINT64_MAX, 2, 0},
};
static const pageyard_addresses RESERVED[] = {{8 * MIB, 8 * MIB + 1}, {38 * MIB, 39 * MIB},
                                              {60 * MIB, 61 * MIB}, {9 * MIB, 9 * MIB}};
enum { MAP_COUNT = sizeof MAP / sizeof *MAP, RESERVED_COUNT = sizeof RESERVED / sizeof *RESERVED };

/* Whether a page is free at the start, by the entries' definition. */
static int is_free(uint64_t pfn) {
    uint64_t start = pfn * PAGE, end = start + PAGE;
    int inside = (start >= 8 * MIB && end <= 30 * MIB)
                 || (start >= 31 * MIB + MIB / 2 && end <= 40 * MIB - 100);
    return inside && !(start <= 12 * MIB + 5 && end > 12 * MIB + 5) && start != 8 * MIB
           && !(start >= 38 * MIB && end <= 39 * MIB);
}

static pageyard_status init(const pageyard_memory *map, size_t n, const pageyard_addresses *reserved,
                            size_t m, uint32_t cpus, const pageyard_platform *platform) {
    memset(why, 'x', sizeof why);
    return pageyard_kernel_init(map, n, reserved, m, cpus, platform, &yard, why, sizeof why);
}

static int says(const char *part) {
    if (strstr(why, part) != NULL) return 1;
    fprintf(stderr, "why: \"%s\", without \"%s\"\n", why, part);
    return 0;
}

/* Every free page can be allocated once, except those of the maps, which are contiguous. Writes to
 * the pages do not reach the maps. */
static void the_map_is_an_allocator(void) {
    static uint8_t owned[PAGES];
    static void *pages[PAGES];
    pageyard_platform platform = machine();
    pageyard_stats stats;
    uint64_t n = 0, pfn, maps = 0, first = 0, last = 0;
    this_cpu = 1;
    EXPECT_STATUS(init(MAP, MAP_COUNT, RESERVED, RESERVED_COUNT, CPUS, &platform), PAGEYARD_OK);
    EXPECT(why[0] == 0);
    OK(pageyard_core_validate(yard, why, sizeof why));
    /* Only the calling CPU is online. */
    EXPECT_STATUS(pageyard_core_tick(yard, 0), PAGEYARD_ERR_CPU);
    OK(pageyard_core_tick(yard, 1));
    EXPECT_STATUS(pageyard_core_cpu_up(yard, 1), PAGEYARD_ERR_CPU);
    OK(pageyard_core_cpu_up(yard, 0));
    OK(pageyard_core_cpu_up(yard, 2));

    for (; (pages[n] = pageyard_page(yard)) != NULL; n++) {}
    EXPECT(n > PAGES / 2);
    /* The remaining pages, which ordinary requests do not get. */
    while (pageyard_core_alloc(yard, 0, PAGEYARD_ATOMIC | PAGEYARD_MEMALLOC, &pfn) == PAGEYARD_OK)
        pages[n++] = direct_map + pfn * PAGE;
    for (uint64_t i = 0; i < n; i++) {
        pfn = (uint64_t)((uint8_t *)pages[i] - direct_map) / PAGE;
        EXPECT(pfn < PAGES && is_free(pfn) && !owned[pfn]);
        owned[pfn] = 1;
        memset(pages[i], 0xff, PAGE);
    }
    for (pfn = 0; pfn < PAGES; pfn++) {
        if (!is_free(pfn) || owned[pfn]) continue;
        if (maps++ == 0) first = pfn;
        last = pfn;
    }
    EXPECT(maps > 0 && last - first + 1 == maps && last + 1 == 40 * MIB / PAGE - 1);
    for (uint64_t i = 0; i < n; i++) OK(pageyard_page_free(yard, pages[i]));
    OK(pageyard_core_drain(yard));
    OK(pageyard_core_validate(yard, why, sizeof why));
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_core_stats(yard, &stats));
    EXPECT(stats.managed == n && stats.free == n);

    /* ACPI tables and reserved pages can be released, the maps never. */
    EXPECT_STATUS(pageyard_core_release(yard, first, last + 1, why, sizeof why), PAGEYARD_ERR_RANGE);
    OK(pageyard_core_release(yard, 31 * MIB / PAGE, (31 * MIB + MIB / 2) / PAGE, why, sizeof why));
    OK(pageyard_core_release(yard, 38 * MIB / PAGE, 39 * MIB / PAGE, why, sizeof why));
    OK(pageyard_core_stats(yard, &stats));
    EXPECT(stats.managed == n + 128 + 256);
    OK(pageyard_core_validate(yard, why, sizeof why));
    OK(pageyard_core_destroy(yard));
    this_cpu = 0;
}

static void pages_are_checked(void) {
    pageyard_platform platform = machine();
    uint8_t *page;
    EXPECT_STATUS(init(MAP, MAP_COUNT, RESERVED, RESERVED_COUNT, CPUS, &platform), PAGEYARD_OK);
    page = (uint8_t *)pageyard_page(yard);
    EXPECT(page != NULL && (uint64_t)(page - direct_map) % PAGE == 0);
    EXPECT_STATUS(pageyard_page_free(yard, page + 1), PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_page_free(yard, direct_map + 60 * MIB), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_page_free(yard, direct_map - PAGE), PAGEYARD_ERR_FOREIGN);
    EXPECT_STATUS(pageyard_page_free(yard, direct_map + 8 * MIB), PAGEYARD_ERR_RESERVED);
    OK(pageyard_page_free(yard, NULL));
    OK(pageyard_page_free(yard, page));
    EXPECT_STATUS(pageyard_page_free(yard, page), PAGEYARD_ERR_DOUBLE_FREE);
    OK(pageyard_core_destroy(yard));
    EXPECT(pageyard_page(yard) == NULL && pageyard_page(NULL) == NULL);
    EXPECT_STATUS(pageyard_page_free(yard, page), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_page_free(NULL, NULL), PAGEYARD_ERR_HANDLE);
}

/* Without a platform, memory is at its physical address, and the page at address 0 is never
 * allocated. */
static void without_a_platform_memory_is_mapped_one_to_one(void) {
    uint8_t *own = direct_map + BASE_MIB * MIB;
    const pageyard_memory map[] = {{(uintptr_t)own, 4 * MIB, PAGEYARD_MEMORY_USABLE, 0}};
    void *page;
    EXPECT_STATUS(init(map, 1, NULL, 0, 1, NULL), PAGEYARD_OK);
    page = pageyard_page(yard);
    EXPECT((uint8_t *)page >= own && (uint8_t *)page < own + 4 * MIB);
    memset(page, 0xff, PAGE);
    OK(pageyard_page_free(yard, page));
    OK(pageyard_core_validate(yard, why, sizeof why));
    OK(pageyard_core_destroy(yard));
    /* The address of the page at 8 MiB is null. */
    {
        const pageyard_memory two[] = {{8 * MIB, PAGE, PAGEYARD_MEMORY_USABLE, 0},
                                       {(uintptr_t)own + 8 * MIB, 4 * MIB, PAGEYARD_MEMORY_USABLE, 0}};
        pageyard_platform platform = machine();
        uint64_t pfn;
        platform.direct_map = (void *)(uintptr_t)-(8 * MIB);
        EXPECT_STATUS(init(two, 2, NULL, 0, 1, &platform), PAGEYARD_OK);
        while (pageyard_core_alloc(yard, 0, PAGEYARD_ATOMIC | PAGEYARD_MEMALLOC, &pfn) == PAGEYARD_OK)
            EXPECT(pfn != 8 * MIB / PAGE);
        OK(pageyard_core_destroy(yard));
    }
    {
        const pageyard_memory low[] = {{0, 4 * MIB, PAGEYARD_MEMORY_USABLE, 0}};
        pageyard_platform platform = machine();
        pageyard_stats stats;
        uint64_t pfn;
        platform.direct_map = NULL;
        platform.mapped = 1;
        EXPECT_STATUS(init(low, 1, NULL, 0, 1, &platform), PAGEYARD_ERR_LAYOUT);
        EXPECT(says("no memory range has a whole page"));
        platform.direct_map = own;
        platform.mapped = 2 * MIB + 5;
        EXPECT_STATUS(init(low, 1, NULL, 0, 1, &platform), PAGEYARD_OK);
        stats.struct_size = sizeof stats;
        stats.version = PAGEYARD_VERSION;
        OK(pageyard_core_stats(yard, &stats));
        EXPECT(stats.managed > 256 && stats.managed < 512);
        while (pageyard_core_alloc(yard, 0, PAGEYARD_ATOMIC | PAGEYARD_MEMALLOC, &pfn) == PAGEYARD_OK)
            EXPECT(pfn < 512);
        OK(pageyard_core_destroy(yard));
    }
}

static void errors_name_what_is_wrong(void) {
    static const pageyard_addresses backward[] = {{5, 6}, {9, 8}};
    static const pageyard_addresses all[] = {{0, 38 * MIB}, {38 * MIB + PAGE, 40 * MIB}};
    static const pageyard_memory beyond[] = {{8 * MIB, MIB, PAGEYARD_MEMORY_USABLE, 0},
                                             {UINT64_MAX - 9, 11, PAGEYARD_MEMORY_USABLE, 0}};
    static const pageyard_memory none[] = {{8 * MIB, MIB, 2, 0}, {9 * MIB + 1, PAGE, 1, 0}};
    pageyard_platform platform = machine();
    pageyard_hooks hooks;
    char small[8];

    EXPECT_STATUS(init(NULL, 1, NULL, 0, 1, &platform), PAGEYARD_ERR_ARGUMENT);
    EXPECT(says("is null"));
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 1, 1, &platform), PAGEYARD_ERR_ARGUMENT);
    EXPECT(says("is null"));
    EXPECT_STATUS(init(MAP, SIZE_MAX, NULL, 0, 1, &platform), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 0, &platform), PAGEYARD_ERR_ARGUMENT);
    EXPECT(says("0 CPUs"));
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, PAGEYARD_MOST_CPUS + 1, &platform),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT(says("1025 CPUs; expected 1 to 1024"));
    EXPECT_STATUS(init(MAP, MAP_COUNT, backward, 2, 1, &platform), PAGEYARD_ERR_LAYOUT);
    EXPECT(says("reserved range 1 ends before it starts"));
    EXPECT_STATUS(init(beyond, 2, NULL, 0, 1, &platform), PAGEYARD_ERR_LAYOUT);
    EXPECT(says("memory range 1 ends above 2^64"));
    EXPECT_STATUS(init(none, 2, NULL, 0, 1, &platform), PAGEYARD_ERR_LAYOUT);
    EXPECT(says("no memory range has a whole page"));
    EXPECT_STATUS(init(NULL, 0, NULL, 0, 1, &platform), PAGEYARD_ERR_LAYOUT);
    EXPECT_STATUS(init(MAP, MAP_COUNT, all, 2, 1, &platform), PAGEYARD_ERR_ROOM);
    EXPECT(says("no free memory range has room for ") && says(" bytes of maps"));
    this_cpu = 3;
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 3, &platform), PAGEYARD_ERR_CPU);
    EXPECT(says("cpu returned 3; expected a number below 3"));
    this_cpu = 0;
    platform.version = 9;
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 1, &platform), PAGEYARD_ERR_VERSION);
    EXPECT(says("struct_size"));
    platform = machine();
    platform.flags = 2;
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 1, &platform), PAGEYARD_ERR_ARGUMENT);
    platform = machine();
    platform.engine = 2;
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 1, &platform), PAGEYARD_ERR_ARGUMENT);
    EXPECT(says("engine 2; expected one of"));
    platform = machine();
    memset(&hooks, 0, sizeof hooks);
    platform.hooks = &hooks;
    EXPECT_STATUS(init(MAP, MAP_COUNT, NULL, 0, 1, &platform), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_kernel_init(MAP, MAP_COUNT, NULL, 0, 1, NULL, NULL, small, sizeof small),
                  PAGEYARD_ERR_ARGUMENT);
    EXPECT(strcmp(small, "a list ") == 0);
    EXPECT_STATUS(pageyard_kernel_init(MAP, MAP_COUNT, NULL, 0, 0, NULL, &yard, NULL, 0),
                  PAGEYARD_ERR_ARGUMENT);
}

int main(void) {
    size_t bytes = (END_MIB - BASE_MIB) * MIB;
    uint8_t *memory = (uint8_t *)mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(memory != MAP_FAILED);
    /* Arbitrary initial contents of the machine's memory. */
    memset(memory, 0xa5, bytes);
    direct_map = (uint8_t *)((uintptr_t)memory - BASE_MIB * MIB);
    errors_name_what_is_wrong();
    the_map_is_an_allocator();
    pages_are_checked();
    without_a_platform_memory_is_mapped_one_to_one();
    puts("kernel: all is well");
    return 0;
}
