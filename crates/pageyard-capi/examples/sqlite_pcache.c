/*
 * SQLite's page cache on a yard, for unmodified programs.
 *
 *     cc -shared -fPIC -o pcache.so sqlite_pcache.c $(pkg-config --cflags --libs pageyard) -lsqlite3
 *     LD_PRELOAD=./pcache.so sqlite3 data.db
 *
 * Before main runs, SQLite is configured to keep its pages here (SQLITE_CONFIG_PCACHE2): their
 * contents are blocks of a yard, SQLite's records of them are on the heap. Each open database has a
 * table of its pages by number, and a list of its unpinned pages. When the cache is full, the least
 * recently used one of them is reused.
 *
 * PAGEYARD_SQLITE_MIB sets the size of the yard (default 256); PAGEYARD_SQLITE_STATS prints
 * statistics at exit.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pageyard.h>
#include <sqlite3.h>

static pageyard *yard;

struct page {
    sqlite3_pcache_page seen; /* what SQLite is handed; first, so that a page is found from it */
    unsigned key;
    int pinned;
    struct page *next;            /* of the same bucket */
    struct page *older, *younger; /* on the list of unused ones */
};

struct cache {
    uint32_t order;
    unsigned extra, most, pages, buckets;
    int purgeable;
    struct page **table;
    struct page unused; /* the ring's anchor: `younger` of it is the oldest */
};

/* ---- Pages in and out of the table and the list ---- */

static struct page **bucket(struct cache *cache, unsigned key) {
    return &cache->table[key & (cache->buckets - 1)];
}

static void grow_table(struct cache *cache) {
    unsigned old = cache->buckets, i;
    struct page **table = (struct page **)calloc((size_t)old * 2, sizeof *table), **was = cache->table;
    if (table == NULL) return; /* its chains get longer */
    cache->table = table;
    cache->buckets = old * 2;
    for (i = 0; i < old; i++) {
        while (was[i] != NULL) {
            struct page *page = was[i], **link = bucket(cache, page->key);
            was[i] = page->next;
            page->next = *link;
            *link = page;
        }
    }
    free(was);
}

static void enter(struct cache *cache, struct page *page, unsigned key) {
    struct page **link = bucket(cache, key);
    page->key = key;
    page->next = *link;
    *link = page;
}

static void leave(struct cache *cache, struct page *page) {
    struct page **link = bucket(cache, page->key);
    while (*link != page) link = &(*link)->next;
    *link = page->next;
}

static void pin(struct page *page) {
    if (page->pinned) return;
    page->pinned = 1;
    page->older->younger = page->younger;
    page->younger->older = page->older;
}

static void unpin(struct cache *cache, struct page *page) {
    page->pinned = 0;
    page->older = cache->unused.older;
    page->younger = &cache->unused;
    page->older->younger = page;
    cache->unused.older = page;
}

/* ---- Memory ---- */

static struct page *new_page(struct cache *cache) {
    struct page *page = (struct page *)malloc(sizeof *page + cache->extra);
    if (page == NULL) return NULL;
    if (pageyard_alloc(yard, cache->order, PAGEYARD_KERNEL, &page->seen.pBuf) != PAGEYARD_OK) {
        free(page);
        return NULL;
    }
    page->seen.pExtra = page + 1;
    cache->pages++;
    return page;
}

static void free_page(struct cache *cache, struct page *page) {
    if (pageyard_free(yard, page->seen.pBuf, cache->order) != PAGEYARD_OK) abort();
    free(page);
    cache->pages--;
}

static void evict(struct cache *cache, struct page *page) {
    leave(cache, page);
    if (!page->pinned) pin(page); /* off the list */
    free_page(cache, page);
}

/* ---- Called by SQLite; its header says what each must do. ---- */

static int x_init(void *argument) {
    (void)argument;
    return SQLITE_OK;
}

static sqlite3_pcache *x_create(int page_bytes, int extra, int purgeable) {
    struct cache *cache = (struct cache *)calloc(1, sizeof *cache);
    if (cache == NULL) return NULL;
    while (((size_t)PAGEYARD_PAGE_SIZE << cache->order) < (size_t)page_bytes) cache->order++;
    cache->extra = (unsigned)extra;
    cache->purgeable = purgeable;
    cache->most = 100;
    cache->buckets = 256;
    cache->table = (struct page **)calloc(cache->buckets, sizeof *cache->table);
    cache->unused.older = cache->unused.younger = &cache->unused;
    if (cache->table == NULL) {
        free(cache);
        return NULL;
    }
    return (sqlite3_pcache *)cache;
}

static void shrink_to(struct cache *cache, unsigned most) {
    while (cache->pages > most && cache->unused.younger != &cache->unused)
        evict(cache, cache->unused.younger);
}

static void x_cachesize(sqlite3_pcache *pcache, int most) {
    struct cache *cache = (struct cache *)pcache;
    cache->most = most > 0 ? (unsigned)most : 1;
    if (cache->purgeable) shrink_to(cache, cache->most);
}

static int x_pagecount(sqlite3_pcache *pcache) {
    return (int)((struct cache *)pcache)->pages;
}

static sqlite3_pcache_page *x_fetch(sqlite3_pcache *pcache, unsigned key, int create) {
    struct cache *cache = (struct cache *)pcache;
    struct page *page = *bucket(cache, key);
    int full;
    while (page != NULL && page->key != key) page = page->next;
    if (page != NULL) {
        pin(page);
        return &page->seen;
    }
    if (create == 0) return NULL;
    full = cache->purgeable && cache->pages >= cache->most;
    if (full && cache->unused.younger != &cache->unused) {
        page = cache->unused.younger; /* another one's place */
        leave(cache, page);
        pin(page);
    } else if (full && create == 1) {
        return NULL; /* SQLite is to unpin some first */
    } else {
        if (cache->pages >= cache->buckets) grow_table(cache);
        page = new_page(cache);
        if (page == NULL) return NULL;
        page->pinned = 1;
    }
    memset(page->seen.pExtra, 0, cache->extra);
    enter(cache, page, key);
    return &page->seen;
}

static void x_unpin(sqlite3_pcache *pcache, sqlite3_pcache_page *seen, int discard) {
    struct cache *cache = (struct cache *)pcache;
    struct page *page = (struct page *)seen;
    if (discard || (cache->purgeable && cache->pages > cache->most))
        evict(cache, page);
    else
        unpin(cache, page);
}

static void x_rekey(sqlite3_pcache *pcache, sqlite3_pcache_page *seen, unsigned old, unsigned key) {
    struct cache *cache = (struct cache *)pcache;
    struct page *page = (struct page *)seen, *there = *bucket(cache, key);
    (void)old;
    while (there != NULL && there->key != key) there = there->next;
    if (there != NULL && there != page) evict(cache, there);
    leave(cache, page);
    enter(cache, page, key);
}

static void x_truncate(sqlite3_pcache *pcache, unsigned limit) {
    struct cache *cache = (struct cache *)pcache;
    unsigned i;
    for (i = 0; i < cache->buckets; i++) {
        struct page **link = &cache->table[i];
        while (*link != NULL) {
            if ((*link)->key >= limit)
                evict(cache, *link);
            else
                link = &(*link)->next;
        }
    }
}

static void x_destroy(sqlite3_pcache *pcache) {
    struct cache *cache = (struct cache *)pcache;
    x_truncate(pcache, 0);
    free(cache->table);
    free(cache);
}

static void x_shrink(sqlite3_pcache *pcache) {
    shrink_to((struct cache *)pcache, 0);
}

static void x_shutdown(void *argument) {
    (void)argument;
}

static void report(void) {
    pageyard_stats stats;
    memset(&stats, 0, sizeof stats);
    stats.struct_size = sizeof stats;
    stats.version = PAGEYARD_VERSION;
    if (pageyard_get_stats(yard, &stats) == PAGEYARD_OK)
        fprintf(stderr,
                "pageyard: %" PRIu64 " blocks handed out, %" PRIu64 " still in use, %" PRIu64
                " refills\n",
                stats.allocs, stats.allocs - stats.frees, stats.refills);
}

__attribute__((constructor)) static void begin(void) {
    static const sqlite3_pcache_methods2 methods = {
        1,      NULL,    x_init,  x_shutdown, x_create,  x_cachesize, x_pagecount,
        x_fetch, x_unpin, x_rekey, x_truncate, x_destroy, x_shrink,
    };
    const char *mib = getenv("PAGEYARD_SQLITE_MIB");
    uint64_t size = (mib != NULL ? strtoull(mib, NULL, 10) : 256) << 20;
    pageyard_options options;
    pageyard_status status = pageyard_options_init(&options, sizeof options, size);
    if (status == PAGEYARD_OK) status = pageyard_create(&options, &yard);
    if (status != PAGEYARD_OK) {
        fprintf(stderr, "pageyard: %s (%s); SQLite keeps its own page cache\n",
                pageyard_strerror(status), pageyard_last_error());
        return;
    }
    if (sqlite3_config(SQLITE_CONFIG_PCACHE2, &methods) != SQLITE_OK) {
        fputs("pageyard: SQLite is in use already, and keeps its own page cache\n", stderr);
        return;
    }
    if (getenv("PAGEYARD_SQLITE_STATS") != NULL) atexit(report);
}
