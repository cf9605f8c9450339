/* Threads that free the same blocks concurrently: each block is freed exactly once. */
#include <pageyard.h>

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "expect.h"

/* RUN: blocks that the threads free between two gates. */
enum { ROUNDS = 40, BLOCKS = 512, RUN = 32, THREADS = 2 };

static pageyard *yard;
static void *blocks[BLOCKS];
static unsigned gates[BLOCKS / RUN];
static unsigned freed[BLOCKS];

static uint32_t order_of(unsigned n) {
    static const uint32_t orders[8] = {0, 0, 1, 0, 3, 0, 5, 0};
    return orders[n % 8];
}

/* A barrier: holds each thread until all have arrived. */
static void pass(unsigned *gate) {
    unsigned turns = 0;
    __atomic_add_fetch(gate, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(gate, __ATOMIC_SEQ_CST) < THREADS)
        if (++turns % 512 == 0) sched_yield();
}

static void *free_all(void *unused) {
    unsigned n;
    (void)unused;
    for (n = 0; n < BLOCKS; n++) {
        pageyard_status status;
        if (n % RUN == 0) pass(&gates[n / RUN]);
        status = pageyard_free(yard, blocks[n], order_of(n));
        if (status == PAGEYARD_OK)
            __atomic_add_fetch(&freed[n], 1, __ATOMIC_SEQ_CST);
        else
            EXPECT_STATUS(status, PAGEYARD_ERR_DOUBLE_FREE);
    }
    return NULL;
}

/* A freed block that the thread cache has fetched again in advance has no owner either. */
static void twice_with_requests_between(void) {
    void *first, *others[300];
    unsigned n, at = 300;
    OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &first));
    OK(pageyard_free(yard, first, 0));
    for (n = 0; n < 300; n++) {
        if (n < at) EXPECT_STATUS(pageyard_free(yard, first, 0), PAGEYARD_ERR_DOUBLE_FREE);
        OK(pageyard_alloc(yard, 0, PAGEYARD_KERNEL, &others[n]));
        if (others[n] == first) at = n;
    }
    for (n = 0; n < 300; n++) OK(pageyard_free(yard, others[n], 0));
}

int main(void) {
    pageyard_options options;
    pthread_t threads[THREADS];
    pageyard_stats stats;
    unsigned round, n;

    OK(pageyard_options_init(&options, sizeof options, 64 << 20));
    OK(pageyard_create(&options, &yard));
    twice_with_requests_between();
    for (round = 0; round < ROUNDS; round++) {
        memset(gates, 0, sizeof gates);
        memset(freed, 0, sizeof freed);
        for (n = 0; n < BLOCKS; n++)
            OK(pageyard_alloc(yard, order_of(n), PAGEYARD_KERNEL, &blocks[n]));
        for (n = 0; n < THREADS; n++)
            EXPECT(pthread_create(&threads[n], NULL, free_all, NULL) == 0);
        for (n = 0; n < THREADS; n++) EXPECT(pthread_join(threads[n], NULL) == 0);
        for (n = 0; n < BLOCKS; n++) EXPECT(freed[n] == 1);
    }
    OK(pageyard_drain(yard));
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    OK(pageyard_get_stats(yard, &stats));
    EXPECT(stats.free == stats.managed);
    OK(pageyard_destroy(yard));
    puts("pageyard.h, races: all is well");
    return 0;
}
