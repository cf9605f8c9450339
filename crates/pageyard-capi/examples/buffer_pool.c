/*
 * A buffer pool on a yard: pages of a file in memory, shared by threads.
 *
 *     cc buffer_pool.c $(pkg-config --cflags --libs pageyard) -pthread && ./a.out
 *
 * Four threads add to counters that are spread over a file larger than the pool. At the end the file
 * is read without the pool, and every counter must be what was added to it.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pageyard.h>

enum {
    ORDER = 2, /* 16 KiB, a usual page of a database */
    PAGE_BYTES = PAGEYARD_PAGE_SIZE << ORDER,
    FILE_PAGES = 600,
    POOL_PAGES = 100,
    BUCKETS = 256,
    THREADS = 4,
    ADDITIONS = 20000
};

/* One page of the file in memory. */
struct frame {
    uint32_t page;
    uint32_t pins;
    int dirty;
    int used_lately;
    void *bytes;
    struct frame *next; /* in its bucket */
};

struct pool {
    pageyard *yard;
    int file;
    pthread_mutex_t lock;
    struct frame *buckets[BUCKETS];
    struct frame frames[POOL_PAGES];
    uint32_t filled, hand;
    uint64_t hits, reads, writes;
};

static void check(pageyard_status status, const char *what) {
    if (status != PAGEYARD_OK) {
        fprintf(stderr, "%s: %s %s\n", what, pageyard_strerror(status), pageyard_last_error());
        exit(1);
    }
}

static void write_back(struct pool *pool, struct frame *frame) {
    off_t at = (off_t)frame->page * PAGE_BYTES;
    if (pwrite(pool->file, frame->bytes, PAGE_BYTES, at) != PAGE_BYTES) {
        perror("pwrite");
        exit(1);
    }
    frame->dirty = 0;
    pool->writes++;
}

/* A frame without a user: a new one, or roughly the least recently used one. */
static struct frame *free_frame(struct pool *pool) {
    if (pool->filled < POOL_PAGES) {
        struct frame *frame = &pool->frames[pool->filled];
        pageyard_status status = pageyard_alloc(pool->yard, ORDER, PAGEYARD_KERNEL, &frame->bytes);
        if (status == PAGEYARD_OK) {
            pool->filled++;
            return frame;
        }
        /* No memory left: the pool keeps its size. */
        if (status != PAGEYARD_ERR_NO_MEMORY || pool->filled == 0) check(status, "pageyard_alloc");
    }
    for (;;) {
        struct frame *frame = &pool->frames[pool->hand++ % pool->filled];
        struct frame **link;
        if (frame->pins > 0) continue;
        if (frame->used_lately) {
            frame->used_lately = 0;
            continue;
        }
        if (frame->dirty) write_back(pool, frame);
        link = &pool->buckets[frame->page % BUCKETS];
        while (*link != frame) link = &(*link)->next;
        *link = frame->next;
        return frame;
    }
}

/* Pins a page of the file; its bytes stay where they are until it is unpinned. */
static struct frame *pin(struct pool *pool, uint32_t page) {
    struct frame *frame;
    pthread_mutex_lock(&pool->lock);
    for (frame = pool->buckets[page % BUCKETS]; frame != NULL; frame = frame->next)
        if (frame->page == page) break;
    if (frame != NULL) {
        pool->hits++;
    } else {
        frame = free_frame(pool);
        if (pread(pool->file, frame->bytes, PAGE_BYTES, (off_t)page * PAGE_BYTES) != PAGE_BYTES) {
            perror("pread");
            exit(1);
        }
        pool->reads++;
        frame->page = page;
        frame->next = pool->buckets[page % BUCKETS];
        pool->buckets[page % BUCKETS] = frame;
    }
    frame->pins++;
    frame->used_lately = 1;
    pthread_mutex_unlock(&pool->lock);
    return frame;
}

static void unpin(struct pool *pool, struct frame *frame, int dirty) {
    pthread_mutex_lock(&pool->lock);
    frame->dirty |= dirty;
    frame->pins--;
    pthread_mutex_unlock(&pool->lock);
}

struct worker {
    pthread_t thread;
    struct pool *pool;
    uint32_t seed;
    uint64_t added[FILE_PAGES];
};

static void *work(void *argument) {
    struct worker *worker = (struct worker *)argument;
    int i;
    for (i = 0; i < ADDITIONS; i++) {
        uint32_t random, page;
        struct frame *frame;
        worker->seed = worker->seed * 1664525u + 1013904223u;
        random = worker->seed >> 8;
        /* Half of the work on a tenth of the pages. */
        page = random % 2 ? random / 2 % (FILE_PAGES / 10) : random / 2 % FILE_PAGES;
        frame = pin(worker->pool, page);
        __atomic_fetch_add((uint64_t *)frame->bytes, 1, __ATOMIC_RELAXED);
        worker->added[page]++;
        unpin(worker->pool, frame, 1);
    }
    return NULL;
}

int main(void) {
    static struct pool pool;
    static struct worker workers[THREADS];
    pageyard_options options;
    pageyard_stats stats;
    char name[] = "/tmp/pageyard-pool-XXXXXX";
    uint64_t wrong = 0;
    uint32_t page, i;

    check(pageyard_options_init(&options, sizeof options, 8 << 20), "pageyard_options_init");
    check(pageyard_create(&options, &pool.yard), "pageyard_create");
    pthread_mutex_init(&pool.lock, NULL);
    pool.file = mkstemp(name);
    if (pool.file < 0 || ftruncate(pool.file, (off_t)FILE_PAGES * PAGE_BYTES) != 0) {
        perror(name);
        return 1;
    }
    unlink(name);

    for (i = 0; i < THREADS; i++) {
        workers[i].pool = &pool;
        workers[i].seed = i + 1;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
    for (i = 0; i < pool.filled; i++)
        if (pool.frames[i].dirty) write_back(&pool, &pool.frames[i]);

    for (page = 0; page < FILE_PAGES; page++) {
        uint64_t found = 0, added = 0;
        if (pread(pool.file, &found, sizeof found, (off_t)page * PAGE_BYTES) != sizeof found) return 1;
        for (i = 0; i < THREADS; i++) added += workers[i].added[page];
        wrong += found != added;
    }

    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    check(pageyard_get_stats(pool.yard, &stats), "pageyard_get_stats");
    printf("%u frames of %d KiB; %" PRIu64 " hits, %" PRIu64 " reads, %" PRIu64 " writes; %" PRIu64
           " of %" PRIu64 " pages free\n",
           pool.filled, PAGE_BYTES >> 10, pool.hits, pool.reads, pool.writes, stats.free,
           stats.managed);

    for (i = 0; i < pool.filled; i++)
        check(pageyard_free(pool.yard, pool.frames[i].bytes, ORDER), "pageyard_free");
    check(pageyard_destroy(pool.yard), "pageyard_destroy");
    close(pool.file);
    if (wrong != 0) {
        fprintf(stderr, "%" PRIu64 " pages of the file are wrong\n", wrong);
        return 1;
    }
    puts("every counter in the file is right");
    return 0;
}
