/* Forks while threads are inside every function. The child may call any function, gets no memory,
 * and waits for no thread; the parent continues. */
#include <pageyard.h>

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

enum { THREADS = 3, FORKS = 60 };

static pageyard *yard;
static int stop;

static uint64_t shrink(void *context, uint64_t pages) {
    (void)context;
    (void)pages;
    return 0;
}

static void told(void *context, uint32_t level, uint32_t before) {
    (void)context;
    (void)level;
    (void)before;
}

static pageyard_shrinker shrinker(void) {
    pageyard_shrinker own;
    memset(&own, 0, sizeof own);
    own.struct_size = sizeof own;
    own.version = PAGEYARD_VERSION;
    own.shrink = shrink;
    return own;
}

static pageyard_stats stats(pageyard_status status) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    EXPECT_STATUS(pageyard_get_stats(yard, &stats), status);
    EXPECT_STATUS(pageyard_get_zone_stats(yard, 0, &stats), status);
    return stats;
}

static void *work(void *argument) {
    uintptr_t n = (uintptr_t)argument;
    void *blocks[8] = {0}, *pages[40];
    char text[16384];
    size_t got;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        pageyard_shrinker own = shrinker();
        pageyard_registration *registration;
        uintptr_t at = n++ % 8;
        OK(pageyard_free(yard, blocks[at], (uint32_t)(at % 4)));
        OK(pageyard_alloc(yard, (uint32_t)(at % 4), PAGEYARD_KERNEL, &blocks[at]));
        if (n % 4 == 0) {
            OK(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, pages, 40, &got));
            OK(pageyard_free_bulk(yard, pages, got, 0, NULL));
        }
        if (n % 16 == 0) OK(pageyard_text(yard, (uint32_t)(n / 16 % 6), text, sizeof text, NULL));
        if (n % 16 == 4) OK(pageyard_set_knob(yard, "min_free_kbytes", n % 32 == 4 ? "512" : "1024"));
        if (n % 16 == 8) OK(pageyard_drain(yard));
        if (n % 16 == 12) {
            OK(pageyard_register_shrinker(yard, &own, &registration));
            OK(pageyard_unregister(registration));
        }
        if (n % 64 == 1) OK(pageyard_set_limits(yard, UINT64_MAX, n % 128 == 1 ? 100 : UINT64_MAX));
    }
    for (n = 0; n < 8; n++) OK(pageyard_free(yard, blocks[n], (uint32_t)(n % 4)));
    return NULL;
}

/* Calls that a child makes on its copy of the yard. */
static void child(char *block, pageyard_registration *registration) {
    pageyard_options options;
    pageyard_shrinker own = shrinker();
    pageyard_registration *other = NULL;
    pageyard_upkeep upkeep;
    pageyard *new_yard = NULL;
    char text[64];
    uint64_t pfn, pages;
    void *page = NULL;
    size_t got = 0;

    alarm(60); /* ends one that waits */
    EXPECT(block[0] == 77 && block[4095] == 77);
    EXPECT_STATUS(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &page), PAGEYARD_ERR_NO_MEMORY);
    EXPECT_STATUS(pageyard_alloc_on(yard, 0, 3, PAGEYARD_KERNEL, &page), PAGEYARD_ERR_NO_MEMORY);
    EXPECT_STATUS(pageyard_alloc_bulk(yard, PAGEYARD_KERNEL, &page, 1, &got), PAGEYARD_ERR_HANDLE);
    EXPECT(page == NULL && got == 0);
    page = block;
    EXPECT_STATUS(pageyard_free_bulk(yard, &page, 1, 0, &got), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_split(yard, block, 0, 0), PAGEYARD_ERR_HANDLE);
    OK(pageyard_pfn(yard, block, &pfn));
    OK(pageyard_address(yard, pfn, &page));
    EXPECT(page == block);
    OK(pageyard_resident(yard, &pages));
    OK(pageyard_offset(yard, block, &pfn));
    OK(pageyard_region(yard, &page, &got));
    EXPECT(block >= (char *)page && block < (char *)page + got);
    EXPECT_STATUS(pageyard_alloc_range(yard, 3, 1, PAGEYARD_KERNEL, &page), PAGEYARD_ERR_NO_MEMORY);
    EXPECT_STATUS(pageyard_set_movable(yard, block, 0, 1), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_compact(yard), PAGEYARD_ERR_HANDLE);
    memset(&upkeep, 0, sizeof upkeep);
    upkeep.struct_size = sizeof upkeep;
    upkeep.version = PAGEYARD_VERSION;
    EXPECT_STATUS(pageyard_get_upkeep(yard, &upkeep), PAGEYARD_ERR_HANDLE);
    stats(PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_text(yard, 0, text, sizeof text, NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_knob(yard, "numa_stat", text, sizeof text, NULL), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_set_knob(yard, "min_free_kbytes", "64"), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_set_limits(yard, 2048, UINT64_MAX), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_drain(yard), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_tick(yard), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_register_shrinker(yard, &own, &other), PAGEYARD_ERR_HANDLE);
    EXPECT_STATUS(pageyard_on_pressure(yard, told, NULL, &other), PAGEYARD_ERR_HANDLE);
    OK(pageyard_unregister(registration));
    OK(pageyard_free(yard, block, 0));
    OK(pageyard_free_range(yard, block, 1));
    OK(pageyard_destroy(yard));
    EXPECT_STATUS(pageyard_destroy(yard), PAGEYARD_ERR_HANDLE);
    /* A yard that the child creates works. */
    OK(pageyard_options_init(&options, sizeof options, 8 << 20));
    options.tick_ns = 0; /* a thread waits for what a thread of the parent may have held */
    OK(pageyard_create(&options, &new_yard));
    OK(pageyard_alloc(new_yard, 2, PAGEYARD_KERNEL, &page));
    memset(page, 1, 4 * PAGEYARD_PAGE_SIZE);
    OK(pageyard_free(new_yard, page, 2));
    OK(pageyard_destroy(new_yard));
    _exit(0);
}

int main(void) {
    pthread_t workers[THREADS];
    pageyard_options options;
    pageyard_registration *registration;
    uintptr_t i;
    int k, status;

    OK(pageyard_options_init(&options, sizeof options, 16 << 20));
    options.tick_ns = 2000000;
    OK(pageyard_create(&options, &yard));
    OK(pageyard_on_pressure(yard, told, NULL, &registration));
    for (i = 0; i < THREADS; i++) EXPECT(pthread_create(&workers[i], NULL, work, (void *)i) == 0);
    for (k = 0; k < FORKS; k++) {
        char *block = NULL;
        pid_t pid;
        usleep((useconds_t)(k * 37 % 500));
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, (void **)&block));
        memset(block, 77, PAGEYARD_PAGE_SIZE);
        pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0) child(block, registration);
        EXPECT(waitpid(pid, &status, 0) == pid);
        /* Killed by SIGALRM: the child hung. */
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        EXPECT(block[0] == 77);
        OK(pageyard_free(yard, block, 0));
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (i = 0; i < THREADS; i++) EXPECT(pthread_join(workers[i], NULL) == 0);
    OK(pageyard_unregister(registration));
    for (k = 0; k < 1000; k++) { /* the worker may have some in its hands */
        pageyard_stats now;
        OK(pageyard_drain(yard));
        now = stats(PAGEYARD_OK);
        if (now.free == now.managed) break;
        usleep(5000);
    }
    EXPECT(k < 1000);
    OK(pageyard_destroy(yard));
    puts("forks: all is well");
    return 0;
}
