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

// An allocator of real memory. Handles are checked: one that is null, misaligned or was destroyed is
// answered with PAGEYARD_ERR_HANDLE, also when other yards were made since. A pointer to anything else
// is not told apart from a handle for sure: it is read, which faults where no memory is.
typedef struct pageyard pageyard;

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
    // Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED.
    uint32_t flags;
    // How often a thread of the yard's own folds statistics and shortens unused lists, in
    // nanoseconds. 0: no such thread, and pageyard_tick is the caller's to call.
    uint64_t tick_ns;
} pageyard_options;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Fills in the defaults for a yard of so many bytes: all nodes, all CPUs, huge pages where the system
// can, memory taken as it is written, a tick a second. `struct_size` is the caller's
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
// Threads: any. Starts a thread, unless `tick_ns` is 0. After fork, a child must not use the yard, not
// even to destroy it: its memory there is a copy, and the thread is not running.
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
// Threads: any; not signal handlers. Two that free the same block in the same few nanoseconds are not
// told apart. Owner: the block is the library's; nobody uses its memory any more.
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
