/* Hooks and callbacks that call the library wherever the headers allow it. No such hook is called
 * with a lock held, no hook that frees memory is called by the requests of such a hook, and every
 * request terminates. */
#include <pageyard.h>

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { FIRST = 1 << 20, PAGES = 1 << 15, HELD = 1 << 12 };

/* The core level: its locks record their holder. There is one thread, so waiting for a held lock
 * would never end. */

static unsigned held;

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
    EXPECT(l->words[0] == 1);
    l->words[0] = 0;
    held--;
}

static pageyard_core *core;
/* Blocks that `relocate` can move, and blocks that `reclaim` frees. */
static uint64_t movable[HELD];
static size_t movables;

enum hook { ZERO, TASK, PAUSE, RECLAIM, RECLAIMABLE, OUT_OF_MEMORY, KEEP_TRYING, RELOCATE, WAKE_RECLAIM,
            WAKE_COMPACTION, WARN, HOOKS };
static unsigned calls[HOOKS], within[HOOKS], depth;

/* Calls that a hook may make: everything that takes a lock, and requests that call further hooks.
 * */
static void use(void) {
    static char text[1 << 16];
    uint64_t pfn, pfns[20];
    size_t n;
    pageyard_stats stats;
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    if (pageyard_core_alloc(core, 0, PAGEYARD_ATOMIC, &pfn) == PAGEYARD_OK)
        OK(pageyard_core_free(core, pfn, 0));
    if (pageyard_core_alloc(core, 4, PAGEYARD_KERNEL | PAGEYARD_MOVABLE, &pfn) == PAGEYARD_OK)
        OK(pageyard_core_free(core, pfn, 4));
    OK(pageyard_core_alloc_bulk(core, PAGEYARD_KERNEL, pfns, 20, &n));
    OK(pageyard_core_free_bulk(core, pfns, n, 0, NULL));
    OK(pageyard_core_stats(core, &stats));
    OK(pageyard_core_text(core, PAGEYARD_TEXT_SHOW_MEM, text, sizeof text, NULL));
    OK(pageyard_core_tick(core, 0));
    OK(pageyard_core_drain(core));
}

/* Hooks that free or count memory are never called by the requests of such a hook. Other hooks may
 * be called there, and then make no further calls. */
static void enter(enum hook hook) {
    calls[hook]++;
    EXPECT(held == 0);
    if (hook == RECLAIM || hook == RECLAIMABLE || hook == OUT_OF_MEMORY || hook == RELOCATE)
        EXPECT(within[RECLAIM] + within[RECLAIMABLE] + within[OUT_OF_MEMORY] + within[RELOCATE] == 0);
    within[hook]++;
    if (depth++ == 0)
        use();
    depth--;
    within[hook]--;
}

static uint32_t cpu(void *context) {
    (void)context;
    return 0;
}

static uint64_t now(void *context) {
    static uint64_t time;
    (void)context;
    return time += 1000000;
}

static void zero(void *context, uint64_t pfn, uint32_t order) {
    (void)context;
    (void)pfn;
    (void)order;
    enter(ZERO);
}

static uint64_t task(void *context) {
    (void)context;
    enter(TASK);
    return UINT64_MAX; /* the complement would be 0, which means no task */
}

static void rest(void *context) {
    (void)context;
    enter(PAUSE);
}

static uint64_t reclaim(void *context, const pageyard_reclaim_job *job) {
    uint64_t freed = 0;
    (void)context;
    enter(RECLAIM);
    while (freed < job->pages && movables > HELD / 2) {
        OK(pageyard_core_free(core, movable[--movables], 0));
        freed++;
    }
    return freed;
}

static uint64_t reclaimable(void *context, uint32_t node, uint32_t zone) {
    (void)context;
    (void)node;
    (void)zone;
    enter(RECLAIMABLE);
    return movables - HELD / 2;
}

static int32_t out_of_memory(void *context, const pageyard_reclaim_job *job) {
    (void)context;
    (void)job;
    enter(OUT_OF_MEMORY);
    return 0;
}

static int32_t keep_trying(void *context, uint32_t order, uint32_t tries) {
    (void)context;
    (void)order;
    enter(KEEP_TRYING);
    return tries < 3;
}

static int32_t relocate(void *context, uint64_t from, uint64_t to, uint32_t order) {
    size_t i;
    (void)context;
    enter(RELOCATE);
    for (i = 0; i < movables && order == 0; i++)
        if (movable[i] == from) {
            movable[i] = to;
            return PAGEYARD_MOVED;
        }
    return PAGEYARD_MOVE_REFUSED;
}

static void wake_reclaim(void *context, uint32_t node, uint32_t order, uint32_t highest) {
    (void)context;
    (void)node;
    (void)order;
    (void)highest;
    enter(WAKE_RECLAIM);
}

static void wake_compaction(void *context, uint32_t node) {
    (void)context;
    (void)node;
    enter(WAKE_COMPACTION);
}

static void warn(void *context, uint32_t order, uint32_t flags) {
    (void)context;
    (void)order;
    (void)flags;
    enter(WARN);
}

static void core_level(void) {
    static pageyard_range all = {FIRST, FIRST + PAGES};
    static pageyard_zone zone = {{FIRST, FIRST + PAGES}, 0, PAGEYARD_ZONE_NORMAL};
    static const uint16_t cpus[1] = {0};
    static uint64_t own[PAGES], sleep_ns, pfn;
    pageyard_layout layout;
    pageyard_platform platform;
    size_t bytes, owned = 0, i;
    void *room;
    memset(&layout, 0, sizeof layout);
    layout.struct_size = sizeof layout;
    layout.version = PAGEYARD_VERSION;
    layout.zones = &zone;
    layout.zone_count = 1;
    layout.usable = &all;
    layout.usable_count = 1;
    layout.cpus = cpus;
    layout.cpu_count = 1;
    layout.engine = ENGINE;
    memset(&platform, 0, sizeof platform);
    platform.struct_size = sizeof platform;
    platform.version = PAGEYARD_VERSION;
    platform.cpu = cpu;
    platform.now = now;
    platform.lock = lock;
    platform.try_lock = try_lock;
    platform.unlock = unlock;
    OK(pageyard_core_room(&layout, &bytes));
    room = malloc(bytes);
    platform.zero = zero;
    platform.task = task;
    platform.pause = rest;
    platform.reclaim = reclaim;
    platform.reclaimable = reclaimable;
    platform.out_of_memory = out_of_memory;
    platform.keep_trying = keep_trying;
    platform.relocate = relocate;
    platform.wake_reclaim = wake_reclaim;
    platform.wake_compaction = wake_compaction;
    platform.warn = warn;
    OK(pageyard_core_create(&layout, &platform, room, bytes, &core, NULL, 0));

    /* Movable pages throughout memory, with immovable ones between them. */
    for (movables = 0; movables < HELD; movables++) {
        OK(pageyard_core_alloc(core, 0, PAGEYARD_HIGHUSER_MOVABLE, &movable[movables]));
        OK(pageyard_core_set_movable(core, movable[movables], 0, 1));
        for (i = 0; i < 6; i++)
            OK(pageyard_core_alloc(core, 0, PAGEYARD_KERNEL | PAGEYARD_MOVABLE, &own[owned++]));
    }
    for (i = 0; i < owned; i += 2)
        OK(pageyard_core_free(core, own[i], 0));
    for (i = 0; 2 * i + 1 < owned; i++)
        own[i] = own[2 * i + 1];
    owned /= 2;
    /* Large blocks: compaction moves the movable ones. */
    for (i = 0; i < 4; i++)
        if (pageyard_core_alloc(core, 9, PAGEYARD_KERNEL | PAGEYARD_ZERO, &pfn) == PAGEYARD_OK)
            OK(pageyard_core_free(core, pfn, 9));
    OK(pageyard_core_compact(core));
    OK(pageyard_core_compact_background(core, 0, &sleep_ns));
    /* Allocates all memory: reclaim, the out-of-memory killer, warnings; then a request that may
     * not fail. */
    while (pageyard_core_alloc(core, 0, PAGEYARD_KERNEL, &own[owned]) == PAGEYARD_OK)
        owned++;
    EXPECT_STATUS(pageyard_core_alloc(core, 3, PAGEYARD_KERNEL | PAGEYARD_NOFAIL, &pfn),
                  PAGEYARD_ERR_NO_MEMORY);
    for (i = owned / 2; i < owned; i++)
        OK(pageyard_core_free(core, own[i], 0));
    owned /= 2;
    /* A range and a section, from which blocks are migrated. */
    if (pageyard_core_alloc_contig_pages(core, 600, 1, PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL, &pfn) ==
        PAGEYARD_OK)
        OK(pageyard_core_free_contig(core, pfn, pfn + 600));
    EXPECT(pageyard_core_offline(core, FIRST, FIRST + PAGES) != PAGEYARD_OK);
    OK(pageyard_core_set_knob(core, "compact_memory", "1"));
    OK(pageyard_core_set_knob(core, "compaction_proactiveness", "30"));

    for (i = 0; i < HOOKS; i++)
        if (calls[i] == 0) {
            fprintf(stderr, "hook %d was not called\n", (int)i);
            exit(1);
        }
    for (i = 0; i < owned; i++)
        OK(pageyard_core_free(core, own[i], 0));
    while (movables > 0)
        OK(pageyard_core_free(core, movable[--movables], 0));
    OK(pageyard_core_drain(core));
    {
        pageyard_stats stats;
        stats.struct_size = sizeof stats;
        stats.version = PAGEYARD_VERSION;
        OK(pageyard_core_stats(core, &stats));
        EXPECT(stats.free == PAGES && stats.cached == 0);
    }
    OK(pageyard_core_destroy(core));
    free(room);
}

/* The host level: a cache whose functions use the yard. */

static pageyard *yard;
static pageyard_registration *registration;
static void *cache[1024];
static size_t cached;
static unsigned counted, shrunk, nested;

static void use_host(void) {
    static char text[1 << 16];
    pageyard_upkeep upkeep;
    void *block;
    size_t n;
    uint64_t pages;
    upkeep.struct_size = sizeof upkeep;
    upkeep.version = PAGEYARD_VERSION;
    if (pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block) == PAGEYARD_OK)
        OK(pageyard_free(yard, block, 3));
    OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, &block, 1, &n));
    OK(pageyard_free_bulk(yard, &block, n, 0, NULL));
    OK(pageyard_get_upkeep(yard, &upkeep));
    OK(pageyard_text(yard, PAGEYARD_TEXT_ZONEINFO, text, sizeof text, NULL));
    OK(pageyard_resident(yard, &pages));
    OK(pageyard_drain(yard));
    EXPECT_STATUS(pageyard_unregister(registration), PAGEYARD_ERR_BUSY);
}

static uint64_t count(void *context) {
    (void)context;
    counted++;
    EXPECT(nested++ == 0);
    use_host();
    nested--;
    return cached;
}

static uint64_t shrink(void *context, uint64_t wanted) {
    uint64_t freed = 0;
    (void)context;
    shrunk++;
    EXPECT(nested++ == 0);
    use_host();
    while (cached > 0 && freed < wanted) {
        OK(pageyard_free(yard, cache[--cached], 0));
        freed++;
    }
    nested--;
    return freed;
}

static void host_level(void) {
    static void *own[1 << 13];
    pageyard_options options;
    pageyard_shrinker shrinker;
    pageyard_stats stats;
    size_t owned = 0;
    OK(pageyard_options_init(&options, sizeof options, 16 << 20));
    options.tick_ns = 0;
    OK(pageyard_create(&options, &yard));
    memset(&shrinker, 0, sizeof shrinker);
    shrinker.struct_size = sizeof shrinker;
    shrinker.version = PAGEYARD_VERSION;
    shrinker.count = count;
    shrinker.shrink = shrink;
    OK(pageyard_register_shrinker(yard, &shrinker, &registration));
    for (cached = 0; cached < 1024; cached++)
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &cache[cached]));
    while (pageyard_alloc(yard, 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &own[owned]) == PAGEYARD_OK)
        owned++;
    EXPECT(counted > 0 && shrunk > 0 && cached == 0);
    OK(pageyard_unregister(registration));
    while (owned > 0)
        OK(pageyard_free(yard, own[--owned], 0));
    OK(pageyard_drain(yard));
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_get_stats(yard, &stats));
    EXPECT(stats.free == stats.managed && stats.cached == 0);
    OK(pageyard_destroy(yard));
}

/* The shrinkers of two yards make requests of the other yard, and both are unregistered meanwhile. */

static pageyard *yards[2];
static pageyard_registration *users[2];
static pthread_barrier_t shrinking, unregistering;
static __thread int is_shrinking;

static uint64_t first_count(void *context) {
    (void)context;
    if (is_shrinking == 1) {
        is_shrinking = 2;
        pthread_barrier_wait(&unregistering);
        /* Not needed for the test to pass: it gives both pageyard_unregister time to begin to wait. */
        usleep(200000);
    }
    return 0;
}

static uint64_t first_shrink(void *context, uint64_t wanted) {
    (void)context;
    (void)wanted;
    return 0;
}

static uint64_t user_count(void *context) {
    (void)context;
    return 10;
}

static uint64_t user_shrink(void *context, uint64_t wanted) {
    uintptr_t own = (uintptr_t)context;
    void *page;
    (void)wanted;
    if (is_shrinking)
        return 0;
    is_shrinking = 1;
    pthread_barrier_wait(&shrinking);
    EXPECT_STATUS(pageyard_alloc(yards[1 - own], 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &page),
                  PAGEYARD_ERR_NO_MEMORY);
    EXPECT(is_shrinking == 2);
    return 0;
}

static void *request_one(void *context) {
    void *page;
    EXPECT_STATUS(pageyard_alloc(yards[(uintptr_t)context], 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &page),
                  PAGEYARD_ERR_NO_MEMORY);
    return NULL;
}

static void *unregister_one(void *context) {
    pthread_barrier_wait(&unregistering);
    OK(pageyard_unregister(users[(uintptr_t)context]));
    return NULL;
}

static void two_yards(void) {
    pageyard_registration *firsts[2];
    pthread_t threads[4];
    uintptr_t i;
    EXPECT(pthread_barrier_init(&shrinking, NULL, 2) == 0);
    EXPECT(pthread_barrier_init(&unregistering, NULL, 4) == 0);
    for (i = 0; i < 2; i++) {
        pageyard_options options;
        pageyard_shrinker first, user;
        void *page;
        OK(pageyard_options_init(&options, sizeof options, 8 << 20));
        options.tick_ns = 0;
        OK(pageyard_create(&options, &yards[i]));
        while (pageyard_alloc(yards[i], 0, PAGEYARD_KERNEL | PAGEYARD_NOWARN, &page) == PAGEYARD_OK) {}
        memset(&first, 0, sizeof first);
        first.struct_size = sizeof first;
        first.version = PAGEYARD_VERSION;
        first.context = (void *)i;
        user = first;
        first.count = first_count;
        first.shrink = first_shrink;
        user.count = user_count;
        user.shrink = user_shrink;
        OK(pageyard_register_shrinker(yards[i], &first, &firsts[i]));
        OK(pageyard_register_shrinker(yards[i], &user, &users[i]));
    }
    for (i = 0; i < 2; i++) {
        EXPECT(pthread_create(&threads[i], NULL, request_one, (void *)i) == 0);
        EXPECT(pthread_create(&threads[2 + i], NULL, unregister_one, (void *)i) == 0);
    }
    for (i = 0; i < 4; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    for (i = 0; i < 2; i++) {
        OK(pageyard_unregister(firsts[i]));
        OK(pageyard_destroy(yards[i]));
    }
}

static void stuck(int number) {
    (void)number;
    _exit(write(2, "a request does not end\n", 23) == 23 ? 2 : 3);
}

int main(void) {
    /* Not a measurement: a thread that waits for its own lock does not end otherwise. */
    signal(SIGALRM, stuck);
    alarm(600);
    core_level();
    host_level();
    two_yards();
    puts("re-entry: all is well");
    return 0;
}
