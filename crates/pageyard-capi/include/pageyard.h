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

// Use huge pages where the system supports them.
#define PAGEYARD_HUGE_ADVISE 0

// Leave huge pages to the system's policy.
#define PAGEYARD_HUGE_SYSTEM 1

// Use no huge pages.
#define PAGEYARD_HUGE_NEVER 2

// Take all memory from the system at creation, not at the first write.
#define PAGEYARD_PREFAULT (1 << 0)

// Initialize only a part of the memory at creation and the rest on demand. A large yard is then
// ready at once.
#define PAGEYARD_DEFERRED (1 << 1)

// Back the memory with an anonymous file that other processes can map (pageyard_file).
#define PAGEYARD_MEMFD (1 << 2)

// Do not return idle memory to the system.
#define PAGEYARD_KEEP_IDLE (1 << 3)

// Memory is not short.
#define PAGEYARD_CALM 0

// Caches should shrink: use is above the soft limit, free memory is below a low watermark, the
// system stalls, or the control group approaches its limits.
#define PAGEYARD_MODERATE 1

// Ordinary requests fail, or are about to fail.
#define PAGEYARD_CRITICAL 2

// An allocator of real memory. Functions check handles. They return PAGEYARD_ERR_HANDLE for a
// handle that is null, misaligned or destroyed, even if other yards were created since. A pointer
// to anything else is not reliably detected: it is read, which faults if it is not mapped.
typedef struct pageyard pageyard;

// A registered shrinker or pressure callback. Checked like the handle of a yard, also after it has
// ended.
typedef struct pageyard_registration pageyard_registration;

// Options of a yard. Fill the structure in with pageyard_options_init, then change individual
// fields. Later versions may add fields at its end.
//
// Owner: the arrays stay the caller's; pageyard_create copies them.
typedef struct pageyard_options {
    // sizeof(struct pageyard_options).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Memory in bytes, rounded up to whole pages; at least 4 MiB per node.
    uint64_t size;
    // Node numbers of the system. Each supplies an equal part of the memory, as a zone of its own.
    // Null: all nodes that have memory.
    const uint16_t *nodes;
    // Number of nodes.
    size_t node_count;
    // CPU numbers of the system. Each gets its own per-CPU lists; other CPUs share the lists of
    // one of these. Null: all online CPUs.
    const uint32_t *cpus;
    // Number of CPUs.
    size_t cpu_count;
    // One of the PAGEYARD_HUGE numbers.
    uint32_t huge_pages;
    // Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED, PAGEYARD_MEMFD, PAGEYARD_KEEP_IDLE.
    uint32_t flags;
    // Interval in nanoseconds at which a thread of the yard folds statistics and shrinks unused
    // lists. 0: no thread; the caller must call pageyard_tick.
    uint64_t tick_ns;
    // Maximum number of bytes to allocate; 0: no limit. pageyard_set_limits changes both limits.
    uint64_t hard_limit;
    // Number of bytes in use above which shrinkers are called; 0: never.
    uint64_t soft_limit;
    // One of the PAGEYARD_ENGINE numbers.
    uint64_t engine;
} pageyard_options;

// A shrinker: callbacks of a user of pages that it can free under memory pressure, such as a cache
// or a buffer pool.
//
// Owner: what `context` points to stays the caller's and must live until pageyard_unregister has
// returned.
typedef struct pageyard_shrinker {
    // sizeof(struct pageyard_shrinker).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Passed to both functions.
    void *context;
    // Returns about how many pages could be freed. Null: unknown, treated as many.
    uint64_t (*count)(void *context);
    // Frees about `pages` pages by freeing blocks to the yard, and returns the number freed. It is
    // called by the yard's thread, and by threads whose PAGEYARD_KERNEL request cannot be served.
    // It must only try-lock locks that its users may hold while they allocate. Its own requests
    // never call a shrinker.
    uint64_t (*shrink)(void *context, uint64_t pages);
} pageyard_shrinker;

// State of a yard's memory, and totals of its maintenance since creation. All figures are in
// pages.
typedef struct pageyard_upkeep {
    // sizeof(struct pageyard_upkeep).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL, at the last check of the yard's
    // thread.
    uint32_t level;
    // 1 if the yard's thread is running.
    uint32_t worker;
    // Pages in use: allocated, or out of use.
    uint64_t used;
    // Pages backed by the system, as far as the allocator knows.
    uint64_t resident;
    // Current target for the number of backed pages.
    uint64_t target;
    // Hard limit; UINT64_MAX if there is none.
    uint64_t hard_limit;
    // Soft limit; UINT64_MAX if there is none.
    uint64_t soft_limit;
    // Pages returned to the system.
    uint64_t given_back;
    // Returned pages that were later backed again.
    uint64_t fetched;
    // Pages freed by shrinkers in the background.
    uint64_t shrunk;
    // Pages freed by shrinkers on behalf of requests.
    uint64_t shrunk_directly;
} pageyard_upkeep;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Fills in the defaults for a yard of `size` bytes: all nodes, all CPUs, huge pages where the
// system supports them, memory taken at the first write, one tick per second, no limits, the packed
// engine.
// `struct_size` must be the caller's sizeof(struct pageyard_options).
//
// Errors: PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a size that no version of the structure
// has.
//
// Threads: any. Owner: the structure stays the caller's.
pageyard_status pageyard_options_init(struct pageyard_options *options,
                                      uint32_t struct_size,
                                      uint64_t size);

// Creates a yard with the given options and stores its handle in `yard`.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_OPTION for an invalid option;
// PAGEYARD_ERR_SYSTEM if the system refuses memory or a thread. pageyard_last_error names the
// option.
//
// Threads: any. Starts a thread, unless `tick_ns` is 0. After fork, the child has a copy of the
// yard: allocations fail with PAGEYARD_ERR_NO_MEMORY; pageyard_free, pageyard_unregister and
// pageyard_destroy succeed without an effect on the parent; functions that inspect or change the
// yard return PAGEYARD_ERR_HANDLE. PAGEYARD_MEMFD memory is shared with the child, other memory is
// copied.
//
// Owner: the caller owns the handle until pageyard_destroy; the options stay the caller's.
pageyard_status pageyard_create(const struct pageyard_options *options, struct pageyard **yard);

// Destroys a yard and returns its memory to the system, including blocks that are still allocated.
// Its thread has exited when this function returns. The library remembers the destroyed handle
// until the program exits, which takes a few hundred bytes.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: no other thread may use the yard or its blocks during or after the call. Owner: the
// caller owns neither the handle nor its blocks any more.
pageyard_status pageyard_destroy(struct pageyard *yard);

// Returns the message of this thread's last PAGEYARD_ERR_OPTION, PAGEYARD_ERR_SYSTEM or
// PAGEYARD_ERR_KNOB. It names the option or setting. Empty if there was no such error; never null.
//
// Threads: any; each thread has its own message. Owner: the library owns the text, which lives
// until the thread exits or its next such error.
const char *pageyard_last_error(void);

// Allocates a block of 2^order pages, aligned to its size, and stores its address in `block`. The
// block is readable and writable. It keeps its old contents, unless `flags` contains
// PAGEYARD_ZERO. The usual value of `flags` is PAGEYARD_KERNEL.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a
// null `block`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS. `block` is not written then.
//
// Threads: any, but not signal handlers. Owner: the caller owns the block until pageyard_free,
// which any thread may call.
pageyard_status pageyard_alloc(const struct pageyard *yard,
                               uint32_t order,
                               uint32_t flags,
                               void **block);

// Like pageyard_alloc, but prefers a node, given by the system's number. With PAGEYARD_THISNODE in
// `flags`, only that node is used.
//
// Errors: as pageyard_alloc; PAGEYARD_ERR_NODE if there is no such node.
//
// Threads, owner: as pageyard_alloc.
pageyard_status pageyard_alloc_on(const struct pageyard *yard,
                                  uint32_t node,
                                  uint32_t order,
                                  uint32_t flags,
                                  void **block);

// Frees a block. `order` must be the order at which it was allocated. A null `block` is ignored.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT. For an invalid block: PAGEYARD_ERR_FOREIGN,
// PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED, PAGEYARD_ERR_WRONG_ORDER,
// PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
//
// Threads: any, but not signal handlers. If several threads free the same block at once, only one
// call returns PAGEYARD_OK. Owner: the library owns the block again; its memory must not be
// accessed any more.
pageyard_status pageyard_free(const struct pageyard *yard, void *block, uint32_t order);

// Allocates up to `count` single pages in one call, which is cheaper than one call per page.
// Stores the addresses in `pages` and their number in `got`. Allocating fewer pages than
// requested, or none, is not an error.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS.
//
// Threads, owner: as pageyard_alloc.
pageyard_status pageyard_alloc_bulk(const struct pageyard *yard,
                                    uint32_t flags,
                                    void **pages,
                                    size_t count,
                                    size_t *got);

// Frees `count` blocks of one order, which is cheaper than one call per block. Stops at the first
// invalid block. If `done` is not null, it receives the number of blocks freed; after an error
// that is the index of the invalid block. That block and all later ones are unchanged.
//
// Errors: as pageyard_free; a null block is PAGEYARD_ERR_FOREIGN.
//
// Threads, owner: as pageyard_free.
pageyard_status pageyard_free_bulk(const struct pageyard *yard,
                                   void *const *blocks,
                                   size_t count,
                                   uint32_t order,
                                   size_t *done);

// Splits an allocated block into blocks of the smaller order `into`. Each is freed separately.
//
// Errors: as pageyard_free; PAGEYARD_ERR_WRONG_ORDER if `into` is larger than `order`.
//
// Threads: the block's owner. Owner: the caller owns the parts.
pageyard_status pageyard_split(const struct pageyard *yard,
                               void *block,
                               uint32_t order,
                               uint32_t into);

// Stores the frame number of the page that contains an address in `pfn`. Frames are numbered in
// the order of their addresses, as on a machine whose memory begins at 4 GiB. Blocks are aligned
// both by address and by frame number.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for an address outside
// this yard's memory.
//
// Threads: any. Owner: no ownership changes; the page need not be allocated.
pageyard_status pageyard_pfn(const struct pageyard *yard, const void *address, uint64_t *pfn);

// Stores the address of a frame in `address`.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FOREIGN for a frame outside
// this yard's memory.
//
// Threads: any. Owner: no ownership changes; the page need not be allocated.
pageyard_status pageyard_address(const struct pageyard *yard, uint64_t pfn, void **address);

// Registers a shrinker. The library calls it in the background when a node's free memory falls
// below the low watermark or use exceeds the soft limit. It also calls it on behalf of requests
// that cannot be served otherwise. The structure is copied.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a shrinker without
// `shrink`; PAGEYARD_ERR_VERSION.
//
// Threads: any. Owner: the caller owns the registration until pageyard_unregister.
pageyard_status pageyard_register_shrinker(const struct pageyard *yard,
                                           const struct pageyard_shrinker *shrinker,
                                           struct pageyard_registration **registration);

// Registers a function that is called when the pressure level changes. It receives the new and the
// previous level: PAGEYARD_CALM, PAGEYARD_MODERATE or PAGEYARD_CRITICAL. The yard's thread calls
// it without any lock of the yard held, so it may use the yard.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer other than `context`.
//
// Threads: any. Owner: the caller owns the registration until pageyard_unregister; what `context`
// points to stays the caller's and must live until then.
pageyard_status pageyard_on_pressure(const struct pageyard *yard,
                                     void (*told)(void *context, uint32_t level, uint32_t before),
                                     void *context,
                                     struct pageyard_registration **registration);

// Ends a registration. When this function returns, the registered functions are not running on any
// thread and will not be called again. The yard may be destroyed before or after. The library
// remembers the ended registration until the program exits, which takes a few dozen bytes.
//
// Errors: PAGEYARD_ERR_HANDLE, also if the registration has already ended; PAGEYARD_ERR_BUSY if
// called from a registered function, because this call would wait for it. Nothing changes then.
//
// Threads: any that holds no lock that the registered functions wait for. Owner: the registration
// no longer exists.
pageyard_status pageyard_unregister(struct pageyard_registration *registration);

// Sets the limits, in pages; UINT64_MAX means no limit. Requests that would exceed the hard limit
// fail; above the soft limit, shrinkers are called for the excess. If more than the hard limit is
// already in use, every request fails until enough is freed.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_OPTION for invalid limits. pageyard_last_error
// describes the problem, and nothing changes.
//
// Threads: any, but not from a registered function. Owner: no ownership changes.
pageyard_status pageyard_set_limits(const struct pageyard *yard, uint64_t hard, uint64_t soft);

// Fills in the state of memory pressure and the totals of maintenance.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
// of the structure are not set.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_get_upkeep(const struct pageyard *yard, struct pageyard_upkeep *upkeep);

// Stores the descriptor of the file behind the yard's memory in `file`, for another process to
// map. The yard must have been created with PAGEYARD_MEMFD. pageyard_offset returns the offset of
// a block in the file.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM if the memory is not
// backed by a file.
//
// Threads: any. Owner: the descriptor stays the yard's; sending it to another process duplicates
// it. A process that maps the file must access only blocks that it was given: free pages may be
// discarded at any time.
pageyard_status pageyard_file(const struct pageyard *yard, int *file);

// Stores the offset of a page in the yard's file, in bytes, in `offset`.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FOREIGN,
// PAGEYARD_ERR_MISALIGNED.
//
// Threads: any. Owner: no ownership changes.
pageyard_status pageyard_offset(const struct pageyard *yard, const void *page, uint64_t *offset);

// Fills in the figures of all zones together.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
// of the structure are not set.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_get_stats(const struct pageyard *yard, pageyard_stats *stats);

// Fills in the figures of one zone. `index` is its position: there is one zone per node, in
// ascending order.
//
// Errors: as pageyard_get_stats; PAGEYARD_ERR_NODE if there is no zone at this position.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_get_zone_stats(const struct pageyard *yard,
                                        size_t index,
                                        pageyard_stats *stats);

// Asks the system how many of the yard's pages are currently backed by memory. Takes time
// proportional to the yard's size.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_SYSTEM.
//
// Threads: any. Owner: no ownership changes.
pageyard_status pageyard_resident(const struct pageyard *yard, uint64_t *pages);

// Writes one of the PAGEYARD_TEXT texts about the yard to a buffer of `size` bytes. The text is
// truncated to fit and, unless `size` is 0, ends with a zero byte. If `needed` is not null, it
// receives the size of the whole text with that byte. A later text may be longer.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an unknown kind, or a null buffer with a
// nonzero size; PAGEYARD_ERR_BUFFER if the text was truncated.
//
// Threads: any. The figures of one text may be from slightly different times. Owner: the buffer
// stays the caller's.
pageyard_status pageyard_text(const struct pageyard *yard,
                              uint32_t kind,
                              char *buffer,
                              size_t size,
                              size_t *needed);

// Writes the value of a setting to a buffer, in the manner of pageyard_text. `name` is the
// kernel's name of the setting, such as "min_free_kbytes". docs/knobs.md lists all settings.
//
// Errors: as pageyard_text; PAGEYARD_ERR_KNOB if there is no such setting, or it cannot be read.
//
// Threads: any. Owner: name and buffer stay the caller's.
pageyard_status pageyard_knob(const struct pageyard *yard,
                              const char *name,
                              char *buffer,
                              size_t size,
                              size_t *needed);

// Sets a setting, given by name, to a value given as text, and applies everything that depends on
// it.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB if there is no such
// setting, it cannot be written, or the value is not allowed. pageyard_last_error describes the
// problem and the allowed values.
//
// Threads: any. Owner: the strings stay the caller's.
pageyard_status pageyard_set_knob(const struct pageyard *yard, const char *name, const char *value);

// Drains the per-CPU lists to the zones, where blocks merge.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any. Owner: no ownership changes.
pageyard_status pageyard_drain(const struct pageyard *yard);

// Runs one tick of the statistics worker for every CPU. Call it about once a second if `tick_ns`
// was 0. Binds the calling thread to each CPU in turn and leaves it on the last one.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: a dedicated thread that does nothing else. Owner: no ownership changes.
pageyard_status pageyard_tick(const struct pageyard *yard);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEYARD_H */
