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

// Collapse all memory into huge pages at creation, or fail, whatever the system's policy. Requires
// PAGEYARD_PREFAULT.
#define PAGEYARD_HUGE_COLLAPSE 3

// Take all memory from the system at creation, not at the first write.
#define PAGEYARD_PREFAULT (1 << 0)

// Initialize only a part of the memory at creation and the rest on demand. A large yard is then
// ready at once. Only for PAGEYARD_ENGINE_LINUX612: the packed engine, which is the default,
// initializes all memory at creation, which is one store a page.
#define PAGEYARD_DEFERRED (1 << 1)

// Back the memory with an anonymous file that other processes can map (pageyard_file).
#define PAGEYARD_MEMFD (1 << 2)

// Do not return idle memory to the system.
#define PAGEYARD_KEEP_IDLE (1 << 3)

// Keep the system's page behind each address the same as long as the yard lives: for memory that is
// registered with io_uring, VFIO or RDMA (pageyard_region). Nothing is returned to the system or
// moved, and a child after fork reads zeros unless the memory is a file.
#define PAGEYARD_PINNED (1 << 4)

// Use pages of 2 MiB of hugetlbfs, which an administrator has reserved. The size must be a multiple
// of theirs. The memory is a file, as with PAGEYARD_MEMFD.
#define PAGEYARD_HUGETLB_2M (1 << 5)

// Like PAGEYARD_HUGETLB_2M, with pages of 1 GiB.
#define PAGEYARD_HUGETLB_1G (1 << 6)

// Use ordinary memory if PAGEYARD_HUGETLB_2M, PAGEYARD_HUGETLB_1G or PAGEYARD_HUGE_COLLAPSE is refused
// by the system.
#define PAGEYARD_FALLBACK (1 << 7)

// Return idle memory by MADV_FREE: the system takes it when it needs it. Not for memory that is a
// file.
#define PAGEYARD_GIVE_BACK_LAZILY (1 << 8)

// Cache blocks in each thread (pageyard_get_thread_cache). Faster where a thread frees and
// allocates again; but a block that is freed twice is not detected, and may then be allocated twice.
#define PAGEYARD_THREAD_CACHE (1 << 9)

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

// A registered shrinker, relocator or pressure callback. Checked like the handle of a yard, also after it has
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
    // Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED, PAGEYARD_MEMFD, PAGEYARD_KEEP_IDLE,
    // PAGEYARD_PINNED, PAGEYARD_HUGETLB_2M, PAGEYARD_HUGETLB_1G, PAGEYARD_FALLBACK,
    // PAGEYARD_GIVE_BACK_LAZILY, PAGEYARD_THREAD_CACHE.
    uint32_t flags;
    // Interval in nanoseconds at which a thread of the yard folds statistics and shrinks unused
    // lists. 0: no thread; the caller must call pageyard_tick, which does these two, drains what threads'
    // caches did not use, and takes what a limit lacks. Nothing does the thread's other work then: idle memory is not returned to the system, the pressure level stays
    // PAGEYARD_CALM, shrinkers are called on behalf of requests only, not for `soft_limit`, and
    // statistics are not published to other processes.
    uint64_t tick_ns;
    // Maximum number of bytes to allocate, with the reserves; 0: no limit. Rounded down to whole
    // pages, as the next field. pageyard_set_limits_bytes changes both, and pageyard_get_usable says
    // what the reserves leave: in a yard whose reserves are larger, no ordinary request is served.
    uint64_t hard_limit;
    // Number of bytes in use above which shrinkers are called; 0: above `hard_limit` only. They are also
    // called where free memory is low.
    uint64_t soft_limit;
    // One of the PAGEYARD_ENGINE numbers.
    uint64_t engine;
    // Nanoseconds after which memory that was not in use is returned to the system; 0: one second.
    uint64_t give_back_after_ns;
    // Bytes that stay backed in any case.
    uint64_t give_back_floor;
    // Maximum rate in bytes per second; 0: the whole yard in a quarter of a second.
    uint64_t give_back_rate;
    // Size in bytes of the smallest blocks that are returned: 4096 to 2097152, a power of two; 0: 2 MiB.
    // Less than 2 MiB returns free memory also from around blocks in use. The memory is then anonymous,
    // with PAGEYARD_HUGE_NEVER or PAGEYARD_HUGE_SYSTEM.
    uint64_t give_back_least;
} pageyard_options;

// How much of a yard ordinary requests for single pages can use at once, and what takes the rest, in
// bytes. The fields from `absent` to `bytes` add up to `size`.
typedef struct pageyard_usable {
    // sizeof(struct pageyard_usable).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // All memory of the yard.
    uint64_t size;
    // Offline, or not initialized yet.
    uint64_t absent;
    // Faulty, bad, or guard pages.
    uint64_t out_of_use;
    // Kept out of circulation by the hard limit.
    uint64_t above_limit;
    // Below the min watermarks, for PAGEYARD_HIGH and PAGEYARD_MEMALLOC only. A share of the whole
    // size, not of the limit; the setting "min_free_kbytes" changes it.
    uint64_t min;
    // Reserved for atomic requests of larger blocks at the moment.
    uint64_t highatomic;
    // The most that ordinary requests can have at once.
    uint64_t bytes;
    // On lists of CPUs and in thread caches at the moment; no part of the sum. Lists of idle CPUs are
    // drained within a second, or by pageyard_drain.
    uint64_t cached;
    // Descriptors and tables, which are outside the yard's memory.
    uint64_t maps;
} pageyard_usable;

// Statistics of a yard's thread cache (PAGEYARD_THREAD_CACHE).
typedef struct pageyard_thread_cache {
    // sizeof(struct pageyard_thread_cache).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // 1 if there is a cache: the option is set, and the system has membarrier.
    uint32_t on;
    // 1 while threads keep nothing, because a zone was below its low watermark.
    uint32_t pressed;
    // Threads that have a part of it.
    uint64_t threads;
    // Pages in it.
    uint64_t pages;
    // Requests that were served from it.
    uint64_t hits;
    // Refills, and their pages.
    uint64_t refills;
    // See `refills`.
    uint64_t refilled_pages;
    // Times that a thread's part was full or its thread ended, and the pages that left it.
    uint64_t flushes;
    // See `flushes`.
    uint64_t flushed_pages;
    // Times that a thread's part was drained, and the pages that left it.
    uint64_t drains;
    // See `drains`.
    uint64_t drained_pages;
} pageyard_thread_cache;

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
    // never call a shrinker of this yard. Its requests of another yard may call that yard's
    // shrinkers, from within this function.
    uint64_t (*shrink)(void *context, uint64_t pages);
} pageyard_shrinker;

// A relocator: a callback of an owner of blocks that it can move, which compaction and contiguous
// ranges call.
//
// Owner: what `context` points to stays the caller's and must live until pageyard_unregister has
// returned.
typedef struct pageyard_relocator {
    // sizeof(struct pageyard_relocator).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Passed to the function.
    void *context;
    // Moves the block of 2^order pages at `from` to `to`, which is free memory of the same size: copies
    // the bytes and makes its owner use `to`. Returns PAGEYARD_MOVED; PAGEYARD_MOVE_BUSY to be asked
    // again; PAGEYARD_MOVE_REFUSED if the block is not the caller's, also if it is of another order by
    // now. The owner may just have freed the block, so look it up under the owner's own lock, which
    // must only be try-locked if its users may hold it while they allocate. After PAGEYARD_MOVED,
    // nothing may access or free `from`.
    int32_t (*relocate)(void *context, void *from, void *to, uint32_t order);
} pageyard_relocator;

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
// yard. There, pageyard_alloc, pageyard_alloc_on and pageyard_alloc_range fail with
// PAGEYARD_ERR_NO_MEMORY. pageyard_free, pageyard_free_range, pageyard_unregister and
// pageyard_destroy succeed without an effect on the parent. pageyard_pfn, pageyard_address,
// pageyard_region, pageyard_resident, pageyard_file and pageyard_offset work. All others, also
// pageyard_alloc_bulk, pageyard_free_bulk and pageyard_split, return PAGEYARD_ERR_HANDLE.
// PAGEYARD_MEMFD memory is shared with the child, other memory is copied.
//
// Owner: the caller owns the handle until pageyard_destroy; the options stay the caller's.
pageyard_status pageyard_create(const struct pageyard_options *options, struct pageyard **yard);

// Destroys a yard and returns its memory to the system, including blocks that are still allocated.
// Its thread has exited when this function returns. The library remembers the destroyed handle
// until the program exits, which takes a few hundred bytes.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_BUSY if called from a registered function of any yard,
// because the call that runs it may use this yard. Nothing changes then.
//
// Threads: no other thread may use the yard or its blocks during or after the call. Owner: the
// caller owns neither the handle nor its blocks any more.
pageyard_status pageyard_destroy(struct pageyard *yard);

// Returns a message about the calling thread's last call of a function of pageyard.h that returns a
// status: empty if it succeeded, otherwise a sentence. It names the option, setting or argument that
// is wrong, with its value; where there is none, it is that of pageyard_strerror. Never null.
// Functions of pageyard_core.h change nothing.
//
// Threads: any; each thread has its own message. Owner: the library owns the text, which lives
// until the thread exits or its next call that fails.
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
// call returns PAGEYARD_OK. With PAGEYARD_THREAD_CACHE, a block that is freed twice is not detected. Owner: the library owns the block again; its memory must not be
// accessed any more.
pageyard_status pageyard_free(const struct pageyard *yard,
                              void *block,
                              uint32_t order);

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
// that is the index of the invalid block. That block and all later ones are unchanged. PAGEYARD_ERR_HANDLE
// and PAGEYARD_ERR_ARGUMENT leave `done` unwritten: nothing is freed then.
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

// Stores the address and the size in bytes of all memory of the yard, to register it with a device
// or with io_uring. Create the yard with PAGEYARD_PINNED: otherwise idle memory is returned to the
// system, the same address then gets another page, and the registration still refers to the old one.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT.
//
// Threads: any. Owner: no ownership changes; only blocks that the caller owns may be accessed.
pageyard_status pageyard_region(const struct pageyard *yard,
                                void **address,
                                size_t *size);

// Fills in how much of the yard ordinary requests can use, and what takes the rest.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
// of the structure are not set.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_get_usable(const struct pageyard *yard, struct pageyard_usable *usable);

// Fills in the statistics of the thread cache; zeros if there is none.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
// of the structure are not set.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_get_thread_cache(const struct pageyard *yard,
                                          struct pageyard_thread_cache *stats);

// Allocates any number of contiguous pages, also more than the largest block, and stores their
// address in `range`. The number of the first frame is a multiple of `align` pages; 1 is enough for
// most. Movable blocks that are in the way are moved. The pages keep their old contents, unless
// `flags` contains PAGEYARD_ZERO.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE if `pages` or `align` is
// not possible; PAGEYARD_ERR_FLAGS; PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY if there is no such range.
//
// Threads: any, but not signal handlers. Owner: the caller owns the pages until
// pageyard_free_range, which any thread may call.
pageyard_status pageyard_alloc_range(const struct pageyard *yard,
                                     uint64_t pages,
                                     uint64_t align,
                                     uint32_t flags,
                                     void **range);

// Frees `pages` contiguous pages of pageyard_alloc_range: all of the range, or a part. A null
// `range` is ignored.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE if the range exceeds the yard; as pageyard_free of
// order 0 for the first page that cannot be freed. Nothing is freed then.
//
// Threads: any, but not signal handlers. Owner: the library owns the pages again; they must not be
// accessed any more.
pageyard_status pageyard_free_range(const struct pageyard *yard,
                                    void *range,
                                    uint64_t pages);

// Sets whether the owner of a block can move it when a relocator is called for it
// (pageyard_register_relocator). A block is not movable when it is allocated.
//
// Errors: as pageyard_free; a null block is PAGEYARD_ERR_FOREIGN.
//
// A call with `movable` 0 does not stop a move that has begun: a relocator may still be called for the
// block, or be running. An owner that needs the block in place therefore also notes that in the table
// where its relocator looks the block up, under the same lock, and the relocator refuses.
//
// Threads: the block's owner. Owner: no ownership changes.
pageyard_status pageyard_set_movable(const struct pageyard *yard,
                                     void *block,
                                     uint32_t order,
                                     uint32_t movable);

// Compacts all memory now: moves movable blocks together, so that large blocks become free. Calls
// the relocators.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any that holds no lock that a relocator waits for. Owner: no ownership changes.
pageyard_status pageyard_compact(const struct pageyard *yard);

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

// Registers a relocator for blocks that pageyard_set_movable has marked. The yard's thread calls it,
// pageyard_compact, and requests that need a large block or a range. The structure is copied. Requests
// that it makes never lead to reclaim or compaction. A yard with PAGEYARD_PINNED never calls it.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for a null pointer, or a relocator without
// `relocate`; PAGEYARD_ERR_VERSION.
//
// Threads: any. Owner: the caller owns the registration until pageyard_unregister.
pageyard_status pageyard_register_relocator(const struct pageyard *yard,
                                            const struct pageyard_relocator *relocator,
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
// Threads: any that holds no lock that the registered functions wait for. Any number of threads may
// call this at once, also where the functions make requests of each other's yards. Owner: the
// registration no longer exists.
pageyard_status pageyard_unregister(struct pageyard_registration *registration);

// Sets the limits, in pages. UINT64_MAX means no limit; a soft limit of 0 pages is a limit (in
// pageyard_options 0 means none). The hard limit is at least 4 MiB for each of the yard's nodes. Requests
// that would exceed it fail; above the soft limit, the yard's thread calls shrinkers for the excess. If
// more than the hard limit is already in use, the thread, or pageyard_tick, takes what is freed. Until
// that is enough, a request succeeds only if it finds freed pages before the limit takes them.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_OPTION for invalid limits. pageyard_last_error
// describes the problem, and nothing changes.
//
// Threads: any, but not from a registered function. Owner: no ownership changes.
pageyard_status pageyard_set_limits(const struct pageyard *yard,
                                    uint64_t hard,
                                    uint64_t soft);

// Like pageyard_set_limits, in bytes, which are rounded down to whole pages: a yard never uses more
// than the bytes given. UINT64_MAX means no limit. The reserves are within the hard limit:
// pageyard_get_usable says what it leaves.
//
// Errors: as pageyard_set_limits.
//
// Threads: any, but not from a registered function. Owner: no ownership changes.
pageyard_status pageyard_set_limits_bytes(const struct pageyard *yard,
                                          uint64_t hard,
                                          uint64_t soft);

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
