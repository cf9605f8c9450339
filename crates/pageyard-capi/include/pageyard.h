/*
 * Pageyard, the page allocator of Linux as a library: real memory on Linux.
 *
 * For buffer pools, storage engines, virtual machine monitors, runtimes: blocks of 4 KiB to 4 MiB,
 * by address. Status numbers and flags are in pageyard_core.h.
 *
 * Made from the Rust sources by cbindgen; do not edit. Licence: MIT or Apache-2.0.
 *
 * Every function says what it does, its errors, which threads may call it, and who owns what. What
 * holds for all: a function never unwinds; a pointer that a comment does not call optional is not
 * null (which is an error where it is) and is to what its type says (which cannot be checked).
 */

#ifndef PAGEYARD_H
#define PAGEYARD_H

#include "pageyard_core.h"

// Huge pages where the system can.
#define PAGEYARD_HUGE_ADVISE 0

// Huge pages as the system does by itself.
#define PAGEYARD_HUGE_SYSTEM 1

// No huge pages.
#define PAGEYARD_HUGE_NEVER 2

// All memory is taken from the system now, not when it is first written.
#define PAGEYARD_PREFAULT (1 << 0)

// Only a part is initialised now, the rest when requests want it: a yard of much memory begins at
// once.
#define PAGEYARD_DEFERRED (1 << 1)

// The memory is a file without a name, which another process may map too (pageyard_file).
#define PAGEYARD_MEMFD (1 << 2)

// Idle memory is not given back to the system.
#define PAGEYARD_KEEP_IDLE (1 << 3)

// Memory is not short.
#define PAGEYARD_CALM 0

// Caches had better shrink: use is above the soft limit, free memory below a LOW mark, the system
// stalls, or the control group comes near its limits.
#define PAGEYARD_MODERATE 1

// Ordinary requests fail or are about to.
#define PAGEYARD_CRITICAL 2

// An allocator of real memory. Handles are checked: one that is null, misaligned or was destroyed is
// answered with PAGEYARD_ERR_HANDLE, also when other yards were made since. A pointer to anything else
// is not told apart from a handle for sure: it is read, which faults where no memory is.
typedef struct pageyard pageyard;

// Something that is registered with a yard. Checked as the handle of a yard is, also after its end.
typedef struct pageyard_registration pageyard_registration;

// Options of a yard. Fill it in with pageyard_options_init, then change what is to differ; it may
// grow in later versions, at its end.
//
// Owner: the arrays are the caller's; pageyard_create copies them.
typedef struct pageyard_options {
    // sizeof(struct pageyard_options).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Bytes of memory, rounded up to pages; at least 4 MiB for each node.
    uint64_t size;
    // The nodes, by the system's numbers, from which memory comes in equal parts, each a zone of its
    // own. Null: all that have memory.
    const uint16_t *nodes;
    // How many.
    size_t node_count;
    // The CPUs, by the system's numbers, that get lists of their own; others share one of theirs.
    // Null: all that are online.
    const uint32_t *cpus;
    // How many.
    size_t cpu_count;
    // One of the PAGEYARD_HUGE numbers.
    uint32_t huge_pages;
    // Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED, PAGEYARD_MEMFD, PAGEYARD_KEEP_IDLE.
    uint32_t flags;
    // How often a thread of the yard's own folds statistics and shortens unused lists, in
    // nanoseconds. 0: no such thread, and pageyard_tick is the caller's to call.
    uint64_t tick_ns;
    // No more bytes than these are handed out; 0: all. pageyard_set_limits changes both.
    uint64_t hard_limit;
    // Above these, shrinkers are asked; 0: never.
    uint64_t soft_limit;
} pageyard_options;

// Somebody who keeps pages that can be had again: a cache, a buffer pool.
//
// Owner: what `context` points to stays the caller's, and lives until pageyard_unregister has
// returned.
typedef struct pageyard_shrinker {
    // sizeof(struct pageyard_shrinker).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // What both functions are given.
    void *context;
    // How many pages it could give up, about. Null: nobody knows, many.
    uint64_t (*count)(void *context);
    // Gives up about so many pages, by giving blocks back to the yard; returns how many it was.
    // Called by the yard's thread, and by threads whose request (one with PAGEYARD_KERNEL) cannot be
    // served: so it tries locks that its users may hold while they allocate, and does not wait for
    // them. Its own requests never lead to another call.
    uint64_t (*shrink)(void *context, uint64_t pages);
} pageyard_shrinker;

// What a yard's memory is like, and what was done about it ever since. All in pages.
typedef struct pageyard_upkeep {
    // sizeof(struct pageyard_upkeep).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL, when the yard's thread last looked.
    uint32_t level;
    // 1 where the yard's thread is at work.
    uint32_t worker;
    // In use: handed out, or out of use.
    uint64_t used;
    // Backed by the system, as far as the allocator knows.
    uint64_t resident;
    // To stay backed at the moment.
    uint64_t target;
    // The limits; UINT64_MAX where there is none.
    uint64_t hard_limit;
    // See `hard_limit`.
    uint64_t soft_limit;
    // Given back to the system.
    uint64_t given_back;
    // Of these, fetched again.
    uint64_t fetched;
    // Freed by shrinkers in the background.
    uint64_t shrunk;
    // Freed by shrinkers on behalf of requests.
    uint64_t shrunk_directly;
} pageyard_upkeep;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Fills in the defaults for a yard of so many bytes: all nodes, all CPUs, huge pages where the system
// can, memory taken as it is written, a tick a second, no limits. `struct_size` is the caller's
// sizeof(struct pageyard_options).
//
// Errors: PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a size that no version of the structure has.
//
// Threads: any. Owner: the structure stays the caller's.
pageyard_status pageyard_options_init(struct pageyard_options *options,
                                      uint32_t struct_size,
                                      uint64_t size);

// Makes a yard with these options, and puts its handle to `yard`.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_OPTION for an option that cannot
// be, PAGEYARD_ERR_SYSTEM where the system refuses memory or a thread; pageyard_last_error names the
// option.
//
// Threads: any. Starts a thread, unless `tick_ns` is 0. In a child after fork, which has a copy, the
// yard gives nothing (PAGEYARD_ERR_NO_MEMORY), pageyard_free, pageyard_unregister and pageyard_destroy
// are done without effect on the parent, and what would look at the yard or change it is answered
// with PAGEYARD_ERR_HANDLE. Memory of PAGEYARD_MEMFD is shared with the child, other memory is copied.
//
// Owner: the handle is the caller's until pageyard_destroy; the options stay the caller's.
pageyard_status pageyard_create(const struct pageyard_options *options,
                                struct pageyard **yard);

// Ends a yard: its memory goes back to the system, whoever has blocks of it. Its thread has ended when
// this returns. The handle is known as destroyed for as long as the program runs; that takes some
// hundred bytes.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: nobody else uses the yard or its blocks, or does afterwards. Owner: nothing is the caller's
// any more.
pageyard_status pageyard_destroy(struct pageyard *yard);

// What was wrong, in words, when a function last answered PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM or
// PAGEYARD_ERR_KNOB on this thread: it names the option or setting. Empty where none did. Never null.
//
// Threads: any, each has its own. Owner: the text is the library's, and lives until the thread ends or
// another such error takes its place.
const char *pageyard_last_error(void);

// Allocates a block of 2^order pages, aligned to its size, and puts its address to `block`. It is
// readable and writable; its contents are what was there before, or zeros with PAGEYARD_ZERO in
// `flags`. PAGEYARD_KERNEL is what to give for flags where nothing else is meant.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a null
// `block`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS. `block` is not written then.
//
// Threads: any; not signal handlers. Owner: the block is the caller's until pageyard_free, on whatever
// thread.
pageyard_status pageyard_alloc(const struct pageyard *yard,
                               uint32_t order,
                               uint32_t flags,
                               void **block);

// Allocates a block as pageyard_alloc does, preferably of a node, by the system's number; with
// PAGEYARD_THISNODE in `flags`, of no other.
//
// Errors: as pageyard_alloc; PAGEYARD_ERR_NODE where there is no such node.
//
// Threads, owner: as pageyard_alloc.
pageyard_status pageyard_alloc_on(const struct pageyard *yard,
                                  uint32_t node,
                                  uint32_t order,
                                  uint32_t flags,
                                  void **block);

// Gives a block back, of the order at which it was allocated. Null is given back by doing nothing.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; what is wrong with the block: PAGEYARD_ERR_FOREIGN,
// PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED, PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD,
// PAGEYARD_ERR_OUT_OF_USE.
//
// Threads: any; not signal handlers. Of those that free the same block at once, one is told
// PAGEYARD_OK. Owner: the block is the library's; nobody uses its memory any more.
pageyard_status pageyard_free(const struct pageyard *yard,
                              void *block,
                              uint32_t order);

// Allocates up to `count` single pages at once, cheaper than one by one. Their addresses are put to
// `pages`, how many there are to `got`: fewer than asked for, even none, is no error.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS.
//
// Threads, owner: as pageyard_alloc.
pageyard_status pageyard_alloc_bulk(const struct pageyard *yard,
                                    uint32_t flags,
                                    void **pages,
                                    size_t count,
                                    size_t *got);

// Gives `count` blocks of one order back, cheaper than one by one. `done`, where it is not null, is
// set to how many were given back: at an error, the block at that position is the one at fault, and
// it and all after it are as they were.
//
// Errors: as pageyard_free; a null block is PAGEYARD_ERR_FOREIGN.
//
// Threads, owner: as pageyard_free.
pageyard_status pageyard_free_bulk(const struct pageyard *yard,
                                   void *const *blocks,
                                   size_t count,
                                   uint32_t order,
                                   size_t *done);

// Turns an allocated block into blocks of the smaller order `into`, each to be freed on its own.
//
// Errors: as pageyard_free; PAGEYARD_ERR_WRONG_ORDER where `into` is larger than `order`.
//
// Threads: the block's owner. Owner: the parts are the caller's.
pageyard_status pageyard_split(const struct pageyard *yard,
                               void *block,
                               uint32_t order,
                               uint32_t into);

// The frame number of the page that holds an address. Frames are numbered as in a machine whose
// memory begins at 4 GiB, in the order of their addresses; blocks are aligned by either.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for an address that is not of
// this yard's memory.
//
// Threads: any. Owner: nothing changes hands; the page need not be allocated.
pageyard_status pageyard_pfn(const struct pageyard *yard,
                             const void *address,
                             uint64_t *pfn);

// The address of a frame.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for a frame that is not of this
// yard's.
//
// Threads: any. Owner: nothing changes hands; the page need not be allocated.
pageyard_status pageyard_address(const struct pageyard *yard,
                                 uint64_t pfn,
                                 void **address);

// Registers somebody who can do with fewer pages: asked in the background when a node's free memory
// falls below the LOW mark or use rises above the soft limit, and by requests that are not served
// otherwise. The structure is copied.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a shrinker without `shrink`;
// PAGEYARD_ERR_VERSION.
//
// Threads: any. Owner: the registration is the caller's until pageyard_unregister.
pageyard_status pageyard_register_shrinker(const struct pageyard *yard,
                                           const struct pageyard_shrinker *shrinker,
                                           struct pageyard_registration **registration);

// Registers a function that is told when memory becomes short or is not short any more: the level now
// and the one before, PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL. Called by the yard's
// thread, without any lock of the yard's: it may use the yard.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer other than `context`.
//
// Threads: any. Owner: the registration is the caller's until pageyard_unregister; what `context`
// points to stays the caller's, and lives until then.
pageyard_status pageyard_on_pressure(const struct pageyard *yard,
                                     void (*told)(void *context, uint32_t level, uint32_t before),
                                     void *context,
                                     struct pageyard_registration **registration);

// Ends a registration. When this returns, its functions are not running on any thread, and are not
// called any more. A yard may be destroyed before or after. The registration is known as ended for as
// long as the program runs; that takes some dozen bytes.
//
// Errors: PAGEYARD_ERR_HANDLE, also for one that was ended already; PAGEYARD_ERR_BUSY from within a
// registered function, which this would wait for; nothing has changed then.
//
// Threads: any, but one that holds no lock that the functions wait for. Owner: the registration is
// gone.
pageyard_status pageyard_unregister(struct pageyard_registration *registration);

// Sets the limits, in pages; UINT64_MAX: none. Above the hard limit nothing is handed out; above the
// soft one shrinkers are asked for what is over. Where more is in use than the hard limit allows,
// every request fails until enough was given back.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_OPTION for limits that cannot be: pageyard_last_error says
// why, and nothing has changed.
//
// Threads: any, but not a registered function. Owner: nothing changes hands.
pageyard_status pageyard_set_limits(const struct pageyard *yard,
                                    uint64_t hard,
                                    uint64_t soft);

// Fills in how short memory is, and what was done about it.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose first
// two fields are not set.
//
// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
pageyard_status pageyard_get_upkeep(const struct pageyard *yard,
                                    struct pageyard_upkeep *upkeep);

// Puts the descriptor of the file that the yard's memory is to `file`, for another process to map: a
// yard made with PAGEYARD_MEMFD. A block lies pageyard_offset bytes behind its beginning.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM where the memory is not a
// file.
//
// Threads: any. Owner: the descriptor stays the yard's; who sends it duplicates it by that. Whoever
// maps the file leaves alone what is not handed out to him: free pages are emptied at any time.
pageyard_status pageyard_file(const struct pageyard *yard,
                              int *file);

// Puts how many bytes behind the beginning of the yard's file a page lies to `offset`.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_MISALIGNED.
//
// Threads: any. Owner: nothing changes hands.
pageyard_status pageyard_offset(const struct pageyard *yard,
                                const void *page,
                                uint64_t *offset);

// Fills in the figures of all zones together.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose first
// two fields are not set.
//
// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
pageyard_status pageyard_get_stats(const struct pageyard *yard,
                                   pageyard_stats *stats);

// Fills in the figures of one zone, by its position: one for each node, ascending.
//
// Errors: as pageyard_get_stats; PAGEYARD_ERR_NODE where there are not so many zones.
//
// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
pageyard_status pageyard_get_zone_stats(const struct pageyard *yard,
                                        size_t index,
                                        pageyard_stats *stats);

// Asks the system how many of the yard's pages take memory at the moment. Takes time in proportion to
// the yard's size.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM.
//
// Threads: any. Owner: nothing changes hands.
pageyard_status pageyard_resident(const struct pageyard *yard,
                                  uint64_t *pages);

// Writes a text about the yard, one of the PAGEYARD_TEXT kinds, into a buffer of `size` bytes: as
// much as fits, ended by a zero byte where `size` is not 0. `needed`, where it is not null, is set
// to the bytes that the whole text takes with that byte; a later text may take more.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for another kind or a null buffer of a size;
// PAGEYARD_ERR_BUFFER where it does not fit (the buffer then holds its beginning).
//
// Threads: any; figures of one text may be a moment apart. Owner: the buffer stays the caller's.
pageyard_status pageyard_text(const struct pageyard *yard,
                              uint32_t kind,
                              char *buffer,
                              size_t size,
                              size_t *needed);

// Writes the value of a setting, by the kernel's name ("min_free_kbytes"), as pageyard_text does.
// docs/knobs.md has them all.
//
// Errors: as pageyard_text; PAGEYARD_ERR_KNOB where there is no such setting, or it cannot be read.
//
// Threads: any. Owner: all stays the caller's.
pageyard_status pageyard_knob(const struct pageyard *yard,
                              const char *name,
                              char *buffer,
                              size_t size,
                              size_t *needed);

// Sets a setting by its name, from text, with everything that follows from it.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB where there is no such setting,
// it cannot be written, or not to this value: pageyard_last_error says which, and what is allowed.
//
// Threads: any. Owner: the strings stay the caller's.
pageyard_status pageyard_set_knob(const struct pageyard *yard,
                                  const char *name,
                                  const char *value);

// Gives everything on per-CPU lists back to the zones, where it merges.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any. Owner: nothing changes hands.
pageyard_status pageyard_drain(const struct pageyard *yard);

// One tick of the statistics worker for every CPU, to be called about once a second where `tick_ns`
// was 0. Binds the calling thread to each of the CPUs in turn, and leaves it on the last.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: one of its own, that does nothing else. Owner: nothing changes hands.
pageyard_status pageyard_tick(const struct pageyard *yard);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEYARD_H */
