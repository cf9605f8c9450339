/* Work besides requests: shrinkers, pressure, limits, returning memory, and the memory's file. */
#include <pageyard.h>

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "expect.h"

#define PAGES 16384
#define MOST 20000

/* A buffer pool that frees its pages when asked. */
struct pool {
    pageyard *yard;
    pthread_mutex_t lock;
    void *pages[MOST];
    uint64_t held, asked;
    pageyard_registration *registration;
};

static struct pool pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t count(void *context) {
    return ((struct pool *)context)->held;
}

static uint64_t shrink(void *context, uint64_t pages) {
    struct pool *p = context;
    uint64_t done = 0;
    EXPECT_STATUS(pageyard_unregister(p->registration), PAGEYARD_ERR_BUSY);
    EXPECT_STATUS(pageyard_destroy(p->yard), PAGEYARD_ERR_BUSY);
    if (pthread_mutex_trylock(&p->lock) != 0)
        return 0;
    p->asked++;
    while (done < pages && p->held > 0) {
        OK(pageyard_free(p->yard, p->pages[--p->held], 0));
        done++;
    }
    pthread_mutex_unlock(&p->lock);
    return done;
}

static pageyard_upkeep upkeep(const pageyard *yard) {
    pageyard_upkeep u;
    memset(&u, 0, sizeof u);
    u.struct_size = sizeof u;
    u.version = PAGEYARD_VERSION;
    OK(pageyard_get_upkeep(yard, &u));
    return u;
}

/* Waits for a state, for at most a minute. */
#define UNTIL(holds)                                   \
    do {                                               \
        int tries_ = 12000;                            \
        while (!(holds) && tries_-- > 0) usleep(5000); \
        EXPECT(holds);                                 \
    } while (0)

static pageyard *make(uint32_t flags, uint64_t tick, uint64_t hard, uint64_t soft) {
    pageyard_options options;
    pageyard *yard = NULL;
    OK(pageyard_options_init(&options, sizeof options, (uint64_t)PAGES * 4096));
    options.huge_pages = PAGEYARD_HUGE_NEVER;
    options.flags = flags;
    options.tick_ns = tick;
    options.hard_limit = hard;
    options.soft_limit = soft;
    OK(pageyard_create(&options, &yard));
    return yard;
}

static void take(pageyard *yard, uint64_t pages) {
    while (pool.held < pages) {
        void *page;
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page));
        *(char *)page = 1;
        pool.pages[pool.held++] = page;
    }
}

static void give(pageyard *yard) {
    while (pool.held > 0) OK(pageyard_free(yard, pool.pages[--pool.held], 0));
}

static void shrinkers(void) {
    pageyard *yard = make(PAGEYARD_KEEP_IDLE, 0, 0, 0);
    pageyard_shrinker own;
    pageyard_registration *registration = NULL;
    void *page;
    uint64_t full;
    int i;

    memset(&own, 0, sizeof own);
    own.struct_size = sizeof own;
    own.version = PAGEYARD_VERSION;
    own.context = &pool;
    own.count = count;
    EXPECT_STATUS(pageyard_register_shrinker(yard, &own, &registration), PAGEYARD_ERR_ARGUMENT);
    own.shrink = shrink;
    EXPECT_STATUS(pageyard_register_shrinker(yard, &own, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_register_shrinker(yard, NULL, &registration), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_register_shrinker(NULL, &own, &registration), PAGEYARD_ERR_HANDLE);
    own.version = 77;
    EXPECT_STATUS(pageyard_register_shrinker(yard, &own, &registration), PAGEYARD_ERR_VERSION);
    own.version = PAGEYARD_VERSION;
    OK(pageyard_register_shrinker(yard, &own, &registration));

    pool.yard = yard;
    pool.registration = registration;
    while (pageyard_alloc(yard, 0, PAGEYARD_NOWAIT, &page) == PAGEYARD_OK)
        pool.pages[pool.held++] = page;
    full = pool.held;
    EXPECT(full > 15000 && pool.asked == 0);
    for (i = 0; i < 2000; i++) OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page));
    EXPECT(pool.asked > 0 && pool.held < full && upkeep(yard).shrunk_directly > 0);
    OK(pageyard_unregister(registration));
    EXPECT_STATUS(pageyard_unregister(NULL), PAGEYARD_ERR_HANDLE);
    pool.asked = 0;
    while (pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page) == PAGEYARD_OK)
        continue;
    EXPECT(pool.asked == 0);
    pool.held = 0;
    OK(pageyard_destroy(yard));
}

/* A thread that frees pages to its thread cache, and keeps them until it may end. */
struct keeper {
    pageyard *yard;
    void **pages;
    pthread_barrier_t freed, over;
};

enum { KEPT = 8 };

static void *keep(void *context) {
    struct keeper *k = context;
    int i;
    for (i = 0; i < KEPT; i++) OK(pageyard_free(k->yard, k->pages[i], 0));
    pthread_barrier_wait(&k->freed);
    pthread_barrier_wait(&k->over);
    return NULL;
}

/* When memory is short, a bulk request takes what threads keep, as a request for one page does. */
static void bulk_requests_drain_thread_caches(void) {
    struct keeper k;
    pthread_t thread;
    void *page, *again[2 * KEPT];
    size_t got;

    k.yard = make(PAGEYARD_KEEP_IDLE | PAGEYARD_THREAD_CACHE, 1000000000, 0, 0);
    k.pages = pool.pages;
    while (pageyard_alloc(k.yard, 0, PAGEYARD_NOWAIT, &page) == PAGEYARD_OK)
        pool.pages[pool.held++] = page;
    EXPECT(pthread_barrier_init(&k.freed, NULL, 2) == 0);
    EXPECT(pthread_barrier_init(&k.over, NULL, 2) == 0);
    EXPECT(pthread_create(&thread, NULL, keep, &k) == 0);
    pthread_barrier_wait(&k.freed);
    OK(pageyard_alloc_bulk(k.yard, PAGEYARD_NOWAIT, again, 2 * KEPT, &got));
    EXPECT(got == KEPT);
    pthread_barrier_wait(&k.over);
    EXPECT(pthread_join(thread, NULL) == 0);
    pool.held = 0;
    OK(pageyard_destroy(k.yard));
}

struct news {
    pthread_mutex_t lock;
    uint32_t level, calls;
};

static void told(void *context, uint32_t level, uint32_t before) {
    struct news *n = context;
    pthread_mutex_lock(&n->lock);
    EXPECT(level != before && before == n->level);
    n->level = level;
    n->calls++;
    pthread_mutex_unlock(&n->lock);
}

static void limits_and_pressure(void) {
    pageyard *yard = make(PAGEYARD_KEEP_IDLE, 1000000000, 12288u * 4096u, 4096u * 4096u);
    struct news news = {PTHREAD_MUTEX_INITIALIZER, PAGEYARD_CALM, 0};
    pageyard_registration *registration = NULL;
    uint32_t calls;
    pageyard_upkeep small;
    void *page;

    EXPECT_STATUS(pageyard_on_pressure(yard, NULL, NULL, &registration), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_on_pressure(yard, told, &news, NULL), PAGEYARD_ERR_ARGUMENT);
    OK(pageyard_on_pressure(yard, told, &news, &registration));
    EXPECT(upkeep(yard).hard_limit == 12288 && upkeep(yard).soft_limit == 4096);
    UNTIL(upkeep(yard).worker == 1);
    take(yard, 6000);
    UNTIL(upkeep(yard).level == PAGEYARD_MODERATE && news.level == PAGEYARD_MODERATE);
    while (pageyard_alloc(yard, 0, PAGEYARD_NOWAIT, &page) == PAGEYARD_OK)
        pool.pages[pool.held++] = page;
    EXPECT(pool.held <= 12288);
    give(yard);
    UNTIL(news.level == PAGEYARD_CALM);
    EXPECT_STATUS(pageyard_set_limits(yard, PAGES + 1, UINT64_MAX), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "hard_limit") != NULL);
    OK(pageyard_set_limits(yard, UINT64_MAX, UINT64_MAX));
    EXPECT(upkeep(yard).hard_limit == UINT64_MAX && upkeep(yard).soft_limit == UINT64_MAX);
    take(yard, 13000);
    give(yard);
    OK(pageyard_unregister(registration));
    calls = news.calls;
    OK(pageyard_set_limits(yard, UINT64_MAX, 1));
    take(yard, 6000);
    UNTIL(upkeep(yard).level != PAGEYARD_CALM);
    EXPECT(news.calls == calls);
    give(yard);
    memset(&small, 0, sizeof small);
    EXPECT_STATUS(pageyard_get_upkeep(yard, &small), PAGEYARD_ERR_VERSION);
    EXPECT_STATUS(pageyard_get_upkeep(yard, NULL), PAGEYARD_ERR_ARGUMENT);
    EXPECT_STATUS(pageyard_set_limits(NULL, 1, 1), PAGEYARD_ERR_HANDLE);
    OK(pageyard_destroy(yard));
}

/* A write is visible in another mapping of the file; freed memory is returned to the system. */
static void shared(void) {
    pageyard *yard = make(PAGEYARD_MEMFD, 1000000000, 0, 0), *other = make(0, 0, 0, 0);
    char *page, *there;
    uint64_t offset, resident;
    int file = -1;

    EXPECT_STATUS(pageyard_file(other, &file), PAGEYARD_ERR_SYSTEM);
    EXPECT(strstr(pageyard_last_error(), "PAGEYARD_MEMFD") != NULL);
    OK(pageyard_file(yard, &file));
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, (void **)&page));
    OK(pageyard_offset(yard, page + 4096, &offset));
    EXPECT_STATUS(pageyard_offset(yard, page + 1, &offset), PAGEYARD_ERR_MISALIGNED);
    EXPECT_STATUS(pageyard_offset(other, page, &offset), PAGEYARD_ERR_FOREIGN);
    there = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)offset);
    EXPECT(there != MAP_FAILED);
    strcpy(page + 4096, "from here");
    EXPECT(strcmp(there, "from here") == 0);
    strcpy(there, "from there");
    EXPECT(strcmp(page + 4096, "from there") == 0);
    EXPECT(munmap(there, 4096) == 0);
    take(yard, 10000);
    OK(pageyard_resident(yard, &resident));
    EXPECT(resident >= 10000);
    give(yard);
    UNTIL(pageyard_resident(yard, &resident) == PAGEYARD_OK && resident < 2000);
    UNTIL(upkeep(yard).given_back > 8000);
    EXPECT(strcmp(page + 4096, "from there") == 0);
    OK(pageyard_destroy(yard));
    OK(pageyard_destroy(other));
}

/* Pages that a relocator moves: the page at each place begins with its number. */
static struct {
    char *pages[4000];
    int count, moved;
} owned;

static int32_t relocate(void *context, void *from, void *to, uint32_t order) {
    int i;
    EXPECT(context == &owned && order == 0);
    for (i = 0; i < owned.count; i++)
        if (owned.pages[i] == from) {
            memcpy(to, from, 4096);
            memset(from, 0xee, 4096);
            owned.pages[i] = to;
            owned.moved++;
            return PAGEYARD_MOVED;
        }
    return PAGEYARD_MOVE_REFUSED;
}

/* Moves every other page of a yard, whose contents stay. */
static void relocators(uint32_t flags) {
    pageyard *yard = make(flags | PAGEYARD_KEEP_IDLE, 0, 0, 0);
    pageyard_relocator own;
    pageyard_registration *registration;
    void *range;
    int i;

    memset(&own, 0, sizeof own);
    own.struct_size = sizeof own;
    own.version = PAGEYARD_VERSION;
    own.context = &owned;
    EXPECT_STATUS(pageyard_register_relocator(yard, &own, &registration), PAGEYARD_ERR_ARGUMENT);
    own.relocate = relocate;
    OK(pageyard_register_relocator(yard, &own, &registration));
    owned.count = owned.moved = 0;
    for (i = 0; i < 8000; i++) {
        void *page;
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL | PAGEYARD_MOVABLE, &page));
        if (i % 2 == 0) {
            memcpy(page, &i, sizeof i);
            OK(pageyard_set_movable(yard, page, 0, 1));
            owned.pages[owned.count++] = page;
        } else {
            pool.pages[pool.held++] = page;
        }
    }
    give(yard);
    OK(pageyard_compact(yard));
    EXPECT((owned.moved > 0) == ((flags & PAGEYARD_PINNED) == 0));
    /* More than the largest block. */
    OK(pageyard_alloc_range(yard, 3000, 1, PAGEYARD_KERNEL, &range));
    memset(range, 7, (size_t)3000 * 4096);
    EXPECT_STATUS(pageyard_free_range(yard, range, 3001), PAGEYARD_ERR_DOUBLE_FREE);
    OK(pageyard_free_range(yard, range, 3000));
    for (i = 0; i < owned.count; i++) {
        int number;
        memcpy(&number, owned.pages[i], sizeof number);
        EXPECT(number == 2 * i);
        OK(pageyard_free(yard, owned.pages[i], 0));
    }
    OK(pageyard_unregister(registration));
    OK(pageyard_destroy(yard));
}

static unsigned asked;

static int32_t refuse(void *context, void *from, void *to, uint32_t order) {
    (void)context;
    (void)from;
    (void)to;
    (void)order;
    asked++;
    return PAGEYARD_MOVE_REFUSED;
}

/* No block is movable when it is allocated, whatever its type and whichever function allocates it. */
static void unmarked(uint64_t engine) {
    enum { EACH = 2000, RANGE = 3000, MOVABLE = PAGEYARD_KERNEL | PAGEYARD_MOVABLE };
    static void *pages[3 * EACH], *blocks[EACH / 8];
    pageyard_options options;
    pageyard_relocator own;
    pageyard_registration *registration;
    pageyard *yard;
    size_t got;
    char *range;
    int i;
    OK(pageyard_options_init(&options, sizeof options, (uint64_t)PAGES * 4096));
    options.engine = engine;
    options.tick_ns = 0;
    OK(pageyard_create(&options, &yard));
    memset(&own, 0, sizeof own);
    own.struct_size = sizeof own;
    own.version = PAGEYARD_VERSION;
    own.relocate = refuse;
    OK(pageyard_register_relocator(yard, &own, &registration));
    for (i = 0; i < EACH; i++) {
        OK(pageyard_alloc(yard, 0, MOVABLE, &pages[i]));
        OK(pageyard_alloc_on(yard, 0, 0, MOVABLE, &pages[EACH + i]));
    }
    OK(pageyard_alloc_bulk(yard, MOVABLE, pages + 2 * EACH, EACH, &got));
    EXPECT(got == EACH);
    for (i = 0; i < EACH / 8; i++)
        OK(pageyard_alloc(yard, 3, MOVABLE, &blocks[i]));
    OK(pageyard_alloc_range(yard, RANGE, 1, MOVABLE, (void **)&range));
    for (i = 0; i < 3 * EACH; i++)
        if (i % 8 != 0)
            OK(pageyard_free(yard, pages[i], 0));
    for (i = 0; i < EACH / 8; i++)
        if (i % 8 != 0)
            OK(pageyard_free(yard, blocks[i], 3));
    for (i = 0; i < RANGE; i++)
        if (i % 8 != 0)
            OK(pageyard_free_range(yard, range + (size_t)i * 4096, 1));
    asked = 0;
    OK(pageyard_compact(yard));
    EXPECT(asked == 0);
    /* The same blocks, marked: there was something to move. */
    for (i = 0; i < 3 * EACH; i += 8)
        OK(pageyard_set_movable(yard, pages[i], 0, 1));
    OK(pageyard_compact(yard));
    EXPECT(asked > 0);
    OK(pageyard_unregister(registration));
    OK(pageyard_destroy(yard));
}

static pageyard_options defaults(uint32_t huge) {
    pageyard_options options;
    OK(pageyard_options_init(&options, sizeof options, (uint64_t)PAGES * 4096));
    options.huge_pages = huge;
    return options;
}

/* The status of a creation; what was created is destroyed. */
static pageyard_status created(const pageyard_options *options) {
    pageyard *yard;
    pageyard_status status = pageyard_create(options, &yard);
    if (status == PAGEYARD_OK)
        OK(pageyard_destroy(yard));
    return status;
}

static pageyard_status create(uint32_t flags, uint32_t huge, uint64_t after, uint64_t floor) {
    pageyard_options options = defaults(huge);
    options.flags = flags;
    options.give_back_after_ns = after;
    options.give_back_floor = floor;
    return created(&options);
}

static pageyard_status with_least(uint32_t huge, uint64_t least) {
    pageyard_options options = defaults(huge);
    options.give_back_least = least;
    return created(&options);
}

/* Options that contradict each other are named, others work. */
static void options(void) {
    EXPECT_STATUS(with_least(PAGEYARD_HUGE_ADVISE, 4096), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "huge pages") != NULL);
    EXPECT_STATUS(with_least(PAGEYARD_HUGE_NEVER, 12288), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "give_back_least: 12288 bytes") != NULL);
    EXPECT_STATUS(with_least(PAGEYARD_HUGE_NEVER, 4 << 20), PAGEYARD_ERR_OPTION);
    OK(with_least(PAGEYARD_HUGE_NEVER, 16384));
    OK(with_least(PAGEYARD_HUGE_ADVISE, 2 << 20));
    EXPECT_STATUS(create(PAGEYARD_KEEP_IDLE, 0, 1, 0), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "give_back") != NULL);
    EXPECT_STATUS(create(PAGEYARD_PINNED, 0, 0, 4096), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "pinned") != NULL);
    EXPECT_STATUS(create(PAGEYARD_MEMFD | PAGEYARD_GIVE_BACK_LAZILY, 0, 0, 0), PAGEYARD_ERR_OPTION);
    EXPECT_STATUS(create(PAGEYARD_HUGETLB_2M | PAGEYARD_HUGETLB_1G, 0, 0, 0), PAGEYARD_ERR_OPTION);
    EXPECT_STATUS(create(0, PAGEYARD_HUGE_COLLAPSE, 0, 0), PAGEYARD_ERR_OPTION);
    EXPECT(strstr(pageyard_last_error(), "prefault") != NULL);
    OK(create(PAGEYARD_PREFAULT | PAGEYARD_FALLBACK, PAGEYARD_HUGE_COLLAPSE, 0, 0));
    EXPECT(strlen(pageyard_last_error()) == 0);
    OK(create(PAGEYARD_HUGETLB_2M | PAGEYARD_FALLBACK, 0, 0, 0));
    OK(create(PAGEYARD_GIVE_BACK_LAZILY, 0, 1000000, 1 << 20));
    OK(create(PAGEYARD_PINNED | PAGEYARD_MEMFD, 0, 0, 0));
}

/* What the limits leave, in bytes, and the whole memory. */
static void usable(void) {
    pageyard *yard = make(PAGEYARD_PINNED, 0, (uint64_t)PAGES * 2048 + 4095, 0);
    pageyard_usable u;
    void *address, *block;
    size_t size;
    memset(&u, 0, sizeof u);
    u.struct_size = sizeof u;
    u.version = PAGEYARD_VERSION;
    OK(pageyard_get_usable(yard, &u));
    EXPECT(u.size == (uint64_t)PAGES * 4096 && u.above_limit == u.size / 2);
    EXPECT(u.min > 0 && u.bytes == u.size / 2 - u.min - u.highatomic);
    OK(pageyard_set_limits_bytes(yard, u.size / 4 + 1, 4096));
    EXPECT(upkeep(yard).hard_limit == PAGES / 4 && upkeep(yard).soft_limit == 1);
    OK(pageyard_region(yard, &address, &size));
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
    EXPECT(size == u.size && (char *)block >= (char *)address);
    EXPECT((char *)block + 8 * 4096 <= (char *)address + size);
    OK(pageyard_destroy(yard));
}

/* With a thread cache, a page comes back without the allocator; what is not a block is refused. */
static void thread_cache(void) {
    pageyard *plain = make(0, 0, 0, 0), *yard = make(PAGEYARD_THREAD_CACHE, 0, 0, 0);
    pageyard_thread_cache c;
    void *page, *block;
    int i;
    memset(&c, 0, sizeof c);
    c.struct_size = sizeof c;
    c.version = PAGEYARD_VERSION;
    OK(pageyard_get_thread_cache(plain, &c));
    EXPECT(c.on == 0 && c.hits == 0);
    OK(pageyard_alloc(yard, 3, PAGEYARD_KERNEL, &block));
    for (i = 0; i < 1000; i++) {
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page));
        OK(pageyard_free(yard, page, 0));
    }
    OK(pageyard_get_thread_cache(yard, &c));
    /* Without membarrier there is none. */
    EXPECT(c.on == 0 || (c.hits > 900 && c.threads == 1 && c.pages > 0));
    EXPECT_STATUS(pageyard_free(yard, block, 0), PAGEYARD_ERR_WRONG_ORDER);
    EXPECT_STATUS(pageyard_free(yard, (char *)block + 4096, 0), PAGEYARD_ERR_NOT_HEAD);
    OK(pageyard_free(yard, block, 3));
    OK(pageyard_drain(yard));
    OK(pageyard_get_thread_cache(yard, &c));
    EXPECT(c.pages == 0);
    EXPECT_STATUS(pageyard_free(yard, page, 0), PAGEYARD_ERR_DOUBLE_FREE);
    OK(pageyard_destroy(yard));
    OK(pageyard_destroy(plain));
}

int main(void) {
    relocators(0);
    relocators(PAGEYARD_PINNED);
    unmarked(PAGEYARD_ENGINE_LINUX612);
    unmarked(PAGEYARD_ENGINE_PACKED);
    options();
    usable();
    thread_cache();
    shrinkers();
    bulk_requests_drain_thread_caches();
    limits_and_pressure();
    shared();
    puts("pageyard.h, upkeep: all is well");
    return 0;
}
