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

int main(void) {
    shrinkers();
    limits_and_pressure();
    shared();
    puts("pageyard.h, upkeep: all is well");
    return 0;
}
