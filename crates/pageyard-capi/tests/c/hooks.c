/* Events, defences and free page reporting: each function of struct pageyard_hooks is called where
 * its comment says, and its answer has its effect. With PLANT, one function is replaced: the
 * program must then fail. */
#include <pageyard_core.h>

#include <stddef.h>
#include <string.h>

#include "expect.h"

enum { FIRST = 1 << 20, PAGES = 1 << 15, KINDS = 32 };

static int held;
static uint64_t clock_ns;

static void lock(pageyard_lock *l) {
    EXPECT(l->words[0] == 0);
    l->words[0] = 1;
    held++;
}
static int32_t try_lock(pageyard_lock *l) {
    if (l->words[0] != 0)
        return 0;
    lock(l);
    return 1;
}
static void unlock(pageyard_lock *l) {
    l->words[0] = 0;
    held--;
}

static pageyard_core *yard;
static unsigned zeroed, failing, asked, warned, woken, wake_depth;
static uint64_t kinds[KINDS];
static pageyard_event last[KINDS];
static pageyard_report reported;
static unsigned reports;
/* This program's state of each page. */
static pageyard_page_state states[PAGES];
static uint8_t allocated[PAGES], filled[PAGES], mapped[PAGES];
static pageyard_block blocks[64];
static size_t block_count;
static int refusing;

static int context; /* its address is passed to every function */
#define CHECK_CONTEXT(c) EXPECT((c) == (void *)&context)

static uint64_t now(void *c) {
    CHECK_CONTEXT(c);
    return clock_ns;
}
static void zero(void *c, uint64_t pfn, uint32_t order) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0 && pfn % ((uint64_t)1 << order) == 0);
    zeroed += 1u << order;
}
static void event(void *c, const pageyard_event *e) {
    CHECK_CONTEXT(c);
    EXPECT(e->kind > 0 && e->kind < KINDS && e->cpu == 0 && e->reserved == 0);
    kinds[e->kind]++;
    last[e->kind] = *e;
}
static void report(void *c, const pageyard_report *r) {
    CHECK_CONTEXT(c);
    reported = *r;
    reports++;
}
static int32_t fail(void *c, uint32_t order, uint32_t flags) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0 && order == 3 && flags == PAGEYARD_KERNEL);
    asked++;
    return failing && asked % 3 == 0;
}
static void page_state(void *c, uint64_t pfn, pageyard_page_state *state) {
    CHECK_CONTEXT(c);
    /* The initial value: an unused page. */
    EXPECT(state->mapcount == -1 && state->refcount == 0 && state->flags == 0 && state->mapping == 0);
    EXPECT(state->charged == 0 && state->link == PAGEYARD_LINK_SINGLE && state->head == 0);
    *state = states[pfn - FIRST];
}
static void poison(void *c, uint64_t pfn, uint32_t order) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0);
    memset(&filled[pfn - FIRST], 1, (size_t)1 << order);
}
static int32_t check_poison(void *c, uint64_t pfn, uint32_t order, pageyard_corruption *damage) {
    uint64_t i;
    CHECK_CONTEXT(c);
    EXPECT(held == 0);
    for (i = pfn - FIRST; i < pfn - FIRST + ((uint64_t)1 << order); i++) {
        uint8_t was = filled[i];
        EXPECT(mapped[i] == 1); /* it can be read */
        filled[i] = 0;          /* and is about to be used */
        if (was != 1) {
            damage->first = damage->last = (i - (pfn - FIRST)) * PAGEYARD_PAGE_SIZE + 5;
            damage->single_bit = 1;
            return -1;
        }
    }
    return 0;
}
static void unmap(void *c, uint64_t pfn, uint32_t order) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0);
    memset(&mapped[pfn - FIRST], 0, (size_t)1 << order);
}
static void map(void *c, uint64_t pfn, uint32_t order) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0);
    memset(&mapped[pfn - FIRST], 1, (size_t)1 << order);
}
static int32_t report_free(void *c, const pageyard_block *list, size_t count) {
    uint64_t pfn;
    size_t i;
    CHECK_CONTEXT(c);
    EXPECT(held == 0 && count > 0 && count <= 32);
    for (i = 0; i < count; i++) {
        EXPECT(list[i].pfn % ((uint64_t)1 << list[i].order) == 0 && list[i].reserved == 0);
        blocks[block_count++ % 64] = list[i];
    }
    /* The hook may make requests, which get none of these blocks. */
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfn));
    for (i = 0; i < count; i++)
        EXPECT(pfn < list[i].pfn || pfn >= list[i].pfn + ((uint64_t)1 << list[i].order));
    OK(pageyard_core_free(yard, pfn, 0));
    return refusing ? 0 : 7;
}

/* A wake function that makes the same request that wakes. */
static void wake_reclaim(void *c, uint32_t node, uint32_t order, uint32_t highest_zone) {
    uint64_t pfn;
    CHECK_CONTEXT(c);
    EXPECT(held == 0 && node == 0 && order <= 1 && highest_zone == PAGEYARD_ZONE_NORMAL);
    EXPECT(wake_depth++ == 0);
    woken++;
    if (pageyard_core_alloc(yard, 1, PAGEYARD_NOWAIT, &pfn) == PAGEYARD_OK)
        OK(pageyard_core_free(yard, pfn, 1));
    wake_depth--;
}
static void warn(void *c, uint32_t order, uint32_t flags) {
    CHECK_CONTEXT(c);
    EXPECT(held == 0 && order == 0 && flags == PAGEYARD_KERNEL);
    warned++;
}

#ifdef PLANT
static void nothing(void *c, uint64_t pfn, uint32_t order) {
    (void)c;
    (void)pfn;
    (void)order;
}
static int32_t undamaged(void *c, uint64_t pfn, uint32_t order, pageyard_corruption *damage) {
    (void)c;
    (void)pfn;
    (void)order;
    (void)damage;
    return 0;
}
/* References, so that the compiler does not warn about unused functions. */
static void (*const planted[])(void *, uint64_t, uint32_t) = {nothing};
static int32_t (*const planted_check)(void *, uint64_t, uint32_t, pageyard_corruption *) = undamaged;
#endif

static pageyard_platform machine(void) {
    pageyard_platform p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.version = PAGEYARD_VERSION;
    p.context = &context;
    p.now = now;
    p.lock = lock;
    p.try_lock = try_lock;
    p.unlock = unlock;
    p.zero = zero;
    return p;
}

static pageyard_hooks no_hooks(void) {
    pageyard_hooks h;
    memset(&h, 0, sizeof h);
    h.struct_size = sizeof h;
    h.version = PAGEYARD_VERSION;
    h.context = &context;
    return h;
}

static uint64_t room[2][1 << 17];
static char why[160];

static pageyard_status make(int n, const pageyard_platform *p, pageyard_hooks *h, pageyard_core **made) {
    static pageyard_range usable = {FIRST, FIRST + PAGES};
    static pageyard_zone zone = {{FIRST, FIRST + PAGES}, 0, PAGEYARD_ZONE_NORMAL};
    static const uint16_t cpus[1] = {0};
    pageyard_platform platform = *p;
    pageyard_layout layout;
    size_t bytes;
    int i;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &usable;
    layout.usable_count = 1;
    layout.cpus = cpus;
    layout.cpu_count = 1;
    layout.engine = ENGINE;
    OK(pageyard_core_room(&layout, &bytes));
    EXPECT(bytes <= sizeof room[n]);
    for (i = 0; i < PAGES; i++) {
        memset(&states[i], 0, sizeof states[i]);
        states[i].mapcount = -1;
    }
    memset(allocated, 0, sizeof allocated);
    memset(filled, 0, sizeof filled);
    memset(mapped, 1, sizeof mapped);
    memset(kinds, 0, sizeof kinds);
    zeroed = failing = asked = reports = 0;
    block_count = 0;
#ifdef PLANT
    EXPECT(planted[0] != NULL && planted_check != NULL);
    if (h != NULL && (uintptr_t)h % sizeof(void *) == 0 && h->PLANT != NULL)
        h->PLANT = PLANT_WITH;
#endif
    platform.hooks = h;
    return pageyard_core_create(&layout, &platform, room[n], sizeof room[n], made, why, sizeof why);
}

static void begin(const pageyard_platform *p, pageyard_hooks *h) {
    OK(make(0, p, h, &yard));
}

static pageyard_stats stats(void) {
    pageyard_stats s;
    memset(&s, 0, sizeof s);
    s.struct_size = sizeof s;
    s.version = PAGEYARD_VERSION;
    OK(pageyard_core_drain(yard));
    OK(pageyard_core_stats(yard, &s));
    return s;
}

/* Asserts that the yard is whole, except for pages that are out of use. */
static void end(uint64_t out_of_use) {
    EXPECT(stats().free == PAGES - out_of_use);
    EXPECT(held == 0);
    OK(pageyard_core_destroy(yard));
    EXPECT_STATUS(pageyard_core_drain(yard), PAGEYARD_ERR_HANDLE);
}

static int64_t knob(const char *name) {
    char text[64];
    OK(pageyard_core_knob(yard, name, text, sizeof text, NULL));
    return text[0] == 'Y' ? 1 : text[0] == 'N' ? 0 : atoi(text);
}

/* A fixed sequence of requests; returns its answers as one number. */
static uint64_t sequence(pageyard_core *y) {
    static uint64_t pfns[256];
    uint32_t orders[256], n;
    uint64_t sum = 0;
    memset(pfns, 0, sizeof pfns);
    for (n = 0; n < 4096 + 256; n++) {
        uint32_t at = n < 4096 ? n * 2654435761u % 256 : n - 4096;
        if (pfns[at] != 0) {
            OK(pageyard_core_free(y, pfns[at], orders[at]));
            pfns[at] = 0;
        }
        if (n >= 4096)
            continue;
        orders[at] = n % 5;
        if (pageyard_core_alloc(y, orders[at], n % 3 ? PAGEYARD_KERNEL : PAGEYARD_HIGHUSER_MOVABLE,
                                &pfns[at]) != PAGEYARD_OK)
            pfns[at] = 0;
        sum = sum * 31 + pfns[at];
    }
    return sum;
}

/* Hooks that are all null change nothing, nor do those of an older caller. */
static void nulls(void) {
    pageyard_platform p = machine(), older = machine();
    pageyard_hooks h = no_hooks();
    pageyard_core *other = NULL;
    begin(&p, &h);
    OK(make(1, &p, NULL, &other));
    EXPECT(sequence(yard) == sequence(other));
    OK(pageyard_core_destroy(other));
    EXPECT(knob("page_poison") == 0 && knob("init_on_free") == 0 && knob("debug_pagealloc") == 0);
    end(0);
    /* The field is beyond the size that this caller passes, so it is not read. */
    older.struct_size = offsetof(pageyard_platform, hooks);
    begin(&older, (pageyard_hooks *)1);
    end(0);
}

static void invalid(void) {
    pageyard_platform p = machine();
    pageyard_core *made = NULL;
    pageyard_hooks h;
#define REFUSED(change, status)                           \
    do {                                                  \
        h = no_hooks();                                   \
        change;                                           \
        EXPECT_STATUS(make(1, &p, &h, &made), status);    \
        EXPECT(made == NULL);                             \
    } while (0)
    REFUSED(h.flags = 16, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.report_order = 11, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.guard_min_order = 6, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.reserved = 1, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.poison = poison, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.check_poison = check_poison, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.unmap = unmap, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.map = map, PAGEYARD_ERR_ARGUMENT);
    REFUSED(h.struct_size = 8, PAGEYARD_ERR_VERSION);
    REFUSED(h.version = 2, PAGEYARD_ERR_VERSION);
    h = no_hooks();
    EXPECT_STATUS(make(1, &p, (pageyard_hooks *)((char *)&h + 1), &made), PAGEYARD_ERR_ARGUMENT);
    EXPECT(why[0] == 0);
    if (IS_PACKED) {
        REFUSED(h.page_state = page_state, PAGEYARD_ERR_NOT_ON_PACKED);
        EXPECT(strcmp(why, pageyard_strerror(PAGEYARD_ERR_NOT_ON_PACKED)) == 0);
        REFUSED((h.poison = poison, h.check_poison = check_poison), PAGEYARD_ERR_NOT_ON_PACKED);
        REFUSED((h.unmap = unmap, h.map = map), PAGEYARD_ERR_NOT_ON_PACKED);
        REFUSED(h.flags = PAGEYARD_INIT_ON_ALLOC, PAGEYARD_ERR_NOT_ON_PACKED);
        REFUSED(h.flags = PAGEYARD_INIT_ON_FREE, PAGEYARD_ERR_NOT_ON_PACKED);
        REFUSED(h.guard_min_order = 1, PAGEYARD_ERR_NOT_ON_PACKED);
    }
}

static void events(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t pfn, pfns[100], *out = (uint64_t *)malloc(PAGES * sizeof *out);
    size_t got, n = 0, i;
    h.event = event;
    begin(&p, &h);
    OK(pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL | PAGEYARD_ZERO, &pfn));
    EXPECT(kinds[PAGEYARD_EVENT_ALLOC] == 1 && last[PAGEYARD_EVENT_ALLOC].pfn == pfn);
    EXPECT(last[PAGEYARD_EVENT_ALLOC].order == 3 && zeroed == 8);
    EXPECT(last[PAGEYARD_EVENT_ALLOC].flags == (PAGEYARD_KERNEL | PAGEYARD_ZERO));
    EXPECT(last[PAGEYARD_EVENT_ALLOC].page_type == PAGEYARD_TYPE_UNMOVABLE);
    /* The first request of its type: all memory was movable, or whole free pageblocks without a
     * type. */
    EXPECT(kinds[PAGEYARD_EVENT_FALLBACK] == !IS_PACKED);
    EXPECT((kinds[PAGEYARD_EVENT_REFILL] > 0) == !IS_PACKED);
    if (!IS_PACKED) {
        EXPECT(last[PAGEYARD_EVENT_FALLBACK].values[1] == PAGEYARD_TYPE_MOVABLE);
        EXPECT(last[PAGEYARD_EVENT_FALLBACK].values[2] == 1);
        EXPECT(last[PAGEYARD_EVENT_REFILL].zone == PAGEYARD_ZONE_NORMAL);
        EXPECT(last[PAGEYARD_EVENT_REFILL].order == 3 && last[PAGEYARD_EVENT_REFILL].values[1] >= 1);
    }
    OK(pageyard_core_free(yard, pfn, 3));
    EXPECT(kinds[PAGEYARD_EVENT_FREE] == 1 && last[PAGEYARD_EVENT_FREE].pfn == pfn);
    EXPECT(last[PAGEYARD_EVENT_FREE].order == 3);
    OK(pageyard_core_alloc_bulk(yard, PAGEYARD_KERNEL, pfns, 100, &got));
    EXPECT(got == 100);
    if (!IS_PACKED) {
        EXPECT(kinds[PAGEYARD_EVENT_ZONE_LOCKED] >= 1);
        EXPECT(last[PAGEYARD_EVENT_ZONE_LOCKED].values[0] == 1);
    }
    OK(pageyard_core_free_bulk(yard, pfns, got, 0, NULL));
    EXPECT(kinds[PAGEYARD_EVENT_FREE] == 101);
    EXPECT(kinds[PAGEYARD_EVENT_FREE_BATCHED] == (IS_PACKED ? 0 : 100));
    EXPECT(stats().cached == 0);
    EXPECT((kinds[PAGEYARD_EVENT_DRAIN] > 0 && kinds[PAGEYARD_EVENT_BULK_FREE] > 0) == !IS_PACKED);
    EXPECT(IS_PACKED || last[PAGEYARD_EVENT_BULK_FREE].values[1] == 4); /* a drain */
    OK(pageyard_core_compact(yard));
    EXPECT((kinds[PAGEYARD_EVENT_COMPACT_BEGIN] >= 1) == !IS_PACKED);
    EXPECT(kinds[PAGEYARD_EVENT_COMPACT_BEGIN] == kinds[PAGEYARD_EVENT_COMPACT_END]);
    if (!IS_PACKED) {
        EXPECT(last[PAGEYARD_EVENT_COMPACT_END].values[0] == FIRST);
        EXPECT(last[PAGEYARD_EVENT_COMPACT_END].values[3] == FIRST + PAGES);
    }
    while (pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &out[n]) == PAGEYARD_OK)
        n++;
    EXPECT(last[PAGEYARD_EVENT_ALLOC].pfn == UINT64_MAX); /* it failed */
    for (i = 0; i < n; i++)
        OK(pageyard_core_free(yard, out[i], 0));
    OK(pageyard_core_tick(yard, 0));
    EXPECT(kinds[PAGEYARD_EVENT_HIGH] == 0);
    end(0);

    h.flags = PAGEYARD_SEE_TUNING | PAGEYARD_SEE_EVERY_BLOCK;
    begin(&p, &h);
    OK(pageyard_core_alloc_bulk(yard, PAGEYARD_KERNEL, pfns, 100, &got));
    EXPECT(kinds[PAGEYARD_EVENT_ALLOC] == got && got > 0);
    OK(pageyard_core_free_bulk(yard, pfns, got, 0, NULL));
    for (n = 0; n < 1000; n++)
        OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &out[n]));
    EXPECT((kinds[PAGEYARD_EVENT_HIGH] > 0) == !IS_PACKED);
    EXPECT(IS_PACKED
           || last[PAGEYARD_EVENT_HIGH].values[0] != last[PAGEYARD_EVENT_HIGH].values[1]);
    while (n > 0)
        OK(pageyard_core_free(yard, out[--n], 0));
    end(0);
    free(out);
}

static void failures(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t pfn;
    int i;
    h.fail = fail;
    begin(&p, &h);
    failing = 1;
    for (i = 1; i <= 9; i++) {
        pageyard_status status = pageyard_core_alloc(yard, 3, PAGEYARD_KERNEL, &pfn);
        EXPECT_STATUS(status, i % 3 == 0 ? PAGEYARD_ERR_NO_MEMORY : PAGEYARD_OK);
        if (status == PAGEYARD_OK)
            OK(pageyard_core_free(yard, pfn, 3));
    }
    EXPECT(asked == 9);
    end(0);
}

static void pages(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t pfn, other, third;
    h.page_state = page_state;
    h.report = report;
    begin(&p, &h);
    OK(pageyard_core_alloc(yard, 2, PAGEYARD_KERNEL, &pfn));
    OK(pageyard_core_alloc(yard, 2, PAGEYARD_KERNEL, &other));
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &third));
    /* The third of four pages is still referenced: the free succeeds, but the block is out of use.
     * */
    states[pfn - FIRST + 2].refcount = 5;
    OK(pageyard_core_free(yard, pfn, 2));
    EXPECT(reports == 1 && reported.kind == PAGEYARD_REPORT_BAD_PAGE && reported.block == pfn);
    EXPECT(reported.pfn == pfn + 2 && reported.order == 2);
    EXPECT(reported.values[0] == PAGEYARD_BAD_REFCOUNT && reported.values[1] == 5);
    EXPECT(reported.values[2] == 0); /* when it was freed */
    EXPECT_STATUS(pageyard_core_free(yard, pfn, 2), PAGEYARD_ERR_OUT_OF_USE);
    states[other - FIRST].mapcount = 3;
    OK(pageyard_core_free(yard, other, 2));
    EXPECT(reports == 2 && reported.values[0] == PAGEYARD_BAD_MAPCOUNT && reported.values[1] == 3);
    /* A page marked dirty may be freed, but not allocated again. */
    states[third - FIRST].flags = PAGEYARD_PAGE_DIRTY;
    OK(pageyard_core_free(yard, third, 0));
    EXPECT(reports == 2);
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &pfn));
    EXPECT(pfn != third && reports == 3 && reported.values[0] == PAGEYARD_BAD_FLAGS);
    EXPECT(reported.values[1] == PAGEYARD_PAGE_DIRTY && reported.values[2] == 1);
    OK(pageyard_core_free(yard, pfn, 0));
    /* Compound: the tails refer to their head. */
    OK(pageyard_core_alloc(yard, 1, PAGEYARD_KERNEL | PAGEYARD_COMP, &pfn));
    states[pfn - FIRST].link = PAGEYARD_LINK_HEAD;
    states[pfn - FIRST + 1].link = PAGEYARD_LINK_TAIL;
    states[pfn - FIRST + 1].head = pfn + 1;
    OK(pageyard_core_free(yard, pfn, 1));
    EXPECT(reports == 4 && reported.values[0] == PAGEYARD_BAD_LINK && reported.pfn == pfn + 1);
    end(4 + 4 + 1 + 2);
}

/* Each page is filled and unmapped while it is free, and neither while it is allocated. */
static void hold(uint64_t pfn, uint32_t order) {
    uint64_t i;
    for (i = pfn - FIRST; i < pfn - FIRST + ((uint64_t)1 << order); i++) {
        EXPECT(allocated[i] == 0 && filled[i] == 0 && mapped[i] == 1);
        allocated[i] = 1;
    }
}
static void let_go(uint64_t pfn, uint32_t order) {
    memset(&allocated[pfn - FIRST], 0, (size_t)1 << order);
    OK(pageyard_core_free(yard, pfn, order));
}

static void contents(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t pfns[64];
    uint32_t i;
    h.poison = poison;
    h.check_poison = check_poison;
    h.unmap = unmap;
    h.map = map;
    h.report = report;
    begin(&p, &h);
    EXPECT(knob("page_poison") == 1 && knob("debug_pagealloc") == 1 && knob("init_on_free") == 0);
    for (i = 0; i < PAGES; i++)
        EXPECT(filled[i] == 1 && mapped[i] == 0);
    for (i = 0; i < 64; i++) {
        OK(pageyard_core_alloc(yard, i % 5, PAGEYARD_KERNEL, &pfns[i]));
        hold(pfns[i], i % 5);
    }
    EXPECT(reports == 0);
    for (i = 0; i < 64; i++)
        let_go(pfns[i], i % 5);
    OK(pageyard_core_drain(yard));
    for (i = 0; i < PAGES; i++)
        EXPECT(filled[i] == 1 && mapped[i] == 0);
    /* A stray write to free memory. */
    memset(filled, 2, sizeof filled);
    OK(pageyard_core_alloc(yard, 1, PAGEYARD_KERNEL, &pfns[0]));
    EXPECT(reports == 1 && reported.kind == PAGEYARD_REPORT_POISON && reported.block == pfns[0]);
    EXPECT(reported.order == 1 && reported.values[0] == 5 && reported.values[1] == 5);
    EXPECT(reported.values[2] == 1);
    OK(pageyard_core_free(yard, pfns[0], 1));
    end(0);
}

static void zeros(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t pfn;
    h.flags = PAGEYARD_INIT_ON_ALLOC;
    begin(&p, &h);
    EXPECT(zeroed == 0);
    OK(pageyard_core_alloc(yard, 2, PAGEYARD_KERNEL, &pfn));
    EXPECT(zeroed == 4);
    OK(pageyard_core_free(yard, pfn, 2));
    EXPECT(zeroed == 4);
    end(0);
    h.flags = PAGEYARD_INIT_ON_FREE;
    begin(&p, &h);
    EXPECT(zeroed == PAGES);
    OK(pageyard_core_alloc(yard, 2, PAGEYARD_KERNEL | PAGEYARD_ZERO, &pfn));
    EXPECT(zeroed == PAGES);
    OK(pageyard_core_free(yard, pfn, 2));
    EXPECT(zeroed == PAGES + 4);
    end(0);
    h.flags = 0;
    h.guard_min_order = 3;
    begin(&p, &h);
    EXPECT(knob("debug_guardpage_minorder") == 3);
    OK(pageyard_core_alloc(yard, 4, PAGEYARD_KERNEL, &pfn));
    EXPECT(stats().free == PAGES - 16); /* what was left over is larger */
    OK(pageyard_core_free(yard, pfn, 4));
    OK(pageyard_core_set_knob(yard, "percpu_pagelist_high_fraction", "0"));
    OK(pageyard_core_alloc(yard, 2, PAGEYARD_ATOMIC, &pfn));
    EXPECT(stats().free < PAGES - 4); /* guards lie beside it */
    OK(pageyard_core_free(yard, pfn, 2));
    end(0);
}

/* Whether a block with this frame was reported. */
static int is_reported(uint64_t pfn) {
    size_t i;
    for (i = 0; i < block_count && i < 64; i++)
        if (pfn >= blocks[i].pfn && pfn < blocks[i].pfn + ((uint64_t)1 << blocks[i].order))
            return 1;
    return 0;
}

static void free_memory(void) {
    pageyard_platform p = machine();
    pageyard_hooks h = no_hooks();
    uint64_t sleep_ns, pages = 0, pfn, kept;
    size_t i;
    clock_ns = 1000;
    h.report_free = report_free;
    begin(&p, &h);
    /* One page in use, so that not all memory is in whole pageblocks: a report may take all of
     * these. */
    OK(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &kept));
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(sleep_ns == 2000000000 && block_count == 0);
    clock_ns += sleep_ns;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(block_count > 0 && block_count <= 64);
    for (i = 0; i < block_count; i++) {
        EXPECT(blocks[i].order >= 9);
        pages += (uint64_t)1 << blocks[i].order;
    }
    EXPECT(pages <= PAGES && pages > PAGES / 2);
    /* A block is reported only once. */
    block_count = 0;
    clock_ns += 3000000000u;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(block_count == 0 && sleep_ns == UINT64_MAX);
    /* A block that was in use meanwhile is reported again, and again if the report is refused. */
    OK(pageyard_core_alloc(yard, 10, PAGEYARD_KERNEL, &pfn));
    OK(pageyard_core_free(yard, pfn, 10));
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(sleep_ns == 2000000000);
    clock_ns += sleep_ns;
    refusing = 1;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(is_reported(pfn) && sleep_ns == 2000000000);
    clock_ns += sleep_ns;
    refusing = 0;
    block_count = 0;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(is_reported(pfn));
    block_count = 0;
    clock_ns += 3000000000u;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(!is_reported(pfn));
    OK(pageyard_core_free(yard, kept, 0));
    end(0);

    /* Smaller blocks as well; PAGEYARD_ENGINE_PACKED reports whole pageblocks. */
    h.report_order = 3;
    begin(&p, &h);
    OK(pageyard_core_alloc(yard, 4, PAGEYARD_KERNEL, &pfn));
    clock_ns += 3000000000u;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    for (i = 0; i < block_count && i < 64 && blocks[i].order != 4; i++) {}
    EXPECT((i < block_count && i < 64) == !IS_PACKED);
    OK(pageyard_core_free(yard, pfn, 4));
    end(0);

    /* Without the function nothing is reported. */
    h.report_free = NULL;
    begin(&p, &h);
    clock_ns += 3000000000u;
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(sleep_ns == UINT64_MAX);
    end(0);
    begin(&p, NULL);
    OK(pageyard_core_report_free(yard, &sleep_ns));
    EXPECT(sleep_ns == UINT64_MAX);
    end(0);
}

/* The platform's own functions: wakes are not nested, and warnings are limited by the clock, which
 * may stand still. */
static void warnings(void) {
    static uint64_t out[PAGES];
    int clock, i;
    for (clock = 0; clock < 2; clock++) {
        pageyard_platform p = machine();
        pageyard_hooks h = no_hooks();
        size_t n = 0;
        p.wake_reclaim = wake_reclaim;
        p.warn = warn;
        if (!clock)
            p.now = NULL;
        woken = warned = 0;
        begin(&p, clock ? NULL : &h);
        while (pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &out[n]) == PAGEYARD_OK)
            n++;
        EXPECT(woken > 1 && wake_depth == 0 && warned == 1);
        for (i = 0; i < 3; i++) {
            clock_ns += 10000000000u;
            EXPECT_STATUS(pageyard_core_alloc(yard, 0, PAGEYARD_KERNEL, &out[n]),
                          PAGEYARD_ERR_NO_MEMORY);
        }
        EXPECT(warned == (clock ? 4 : 1));
        while (n > 0)
            OK(pageyard_core_free(yard, out[--n], 0));
        end(0);
    }
    warned = woken = 0;
}

int main(void) {
    warnings();
    nulls();
    invalid();
    events();
    failures();
    /* PAGEYARD_ENGINE_PACKED has none of these. */
    if (!IS_PACKED) {
        pages();
        contents();
        zeros();
    }
    free_memory();
    EXPECT(warned == 0 && woken == 0);
    puts("hooks: all is well");
    return 0;
}
