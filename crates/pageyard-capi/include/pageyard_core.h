/*
 * Pageyard, the page allocator of Linux as a library: the bare core.
 *
 * For kernels, hypervisors and unikernels: bring your own memory, locks, CPU number and clock. The
 * library libpageyard-core.a needs no libc but memcpy, memmove, memset and memcmp, as every C
 * compiler does. The library libpageyard has the same functions.
 *
 * Made from the Rust sources by cbindgen; do not edit. Licence: MIT or Apache-2.0.
 *
 * Every function says what it does, its errors, which threads may call it, and who owns what. What
 * holds for all: a function never unwinds; a pointer that a comment does not call optional is not
 * null (which is an error where it is) and is to what its type says (which cannot be checked).
 */

#ifndef PAGEYARD_CORE_H
#define PAGEYARD_CORE_H

#include <stdint.h>
#include <stddef.h>

// The interface's version: what a structure's `version` field is set to.
#define PAGEYARD_VERSION 1

// Bytes in a page.
#define PAGEYARD_PAGE_SIZE 4096

// The highest order of a block: 2^10 pages, 4 MiB.
#define PAGEYARD_MAX_ORDER 10

// From the DMA zone.
#define PAGEYARD_DMA (1 << 0)

// From the DMA32 zone.
#define PAGEYARD_DMA32 (1 << 2)

// The pages can be moved. With PAGEYARD_HIGHMEM also from the movable zone.
#define PAGEYARD_MOVABLE (1 << 3)

// High memory will do.
#define PAGEYARD_HIGHMEM (1 << 1)

// The pages can be reclaimed.
#define PAGEYARD_RECLAIMABLE (1 << 4)

// Urgent: may dip below the minimum watermark.
#define PAGEYARD_HIGH (1 << 5)

// Reclaim may start I/O.
#define PAGEYARD_IO (1 << 6)

// Reclaim may call into file systems.
#define PAGEYARD_FS (1 << 7)

// Zeroed pages.
#define PAGEYARD_ZERO (1 << 8)

// May reclaim, and so may sleep.
#define PAGEYARD_DIRECT_RECLAIM (1 << 10)

// May wake the background reclaimer.
#define PAGEYARD_KSWAPD_RECLAIM (1 << 11)

// Do not report a failure.
#define PAGEYARD_NOWARN (1 << 13)

// Try hard, but do fail.
#define PAGEYARD_RETRY_MAYFAIL (1 << 14)

// Does not fail for as long as the `keep_trying` hook says so.
#define PAGEYARD_NOFAIL (1 << 15)

// Do not try hard.
#define PAGEYARD_NORETRY (1 << 16)

// May use all reserves: the caller is freeing memory.
#define PAGEYARD_MEMALLOC (1 << 17)

// The block is one unit.
#define PAGEYARD_COMP (1 << 18)

// No reserves, whoever the caller is.
#define PAGEYARD_NOMEMALLOC (1 << 19)

// Within the caller's set of nodes.
#define PAGEYARD_HARDWALL (1 << 20)

// Of the preferred node only.
#define PAGEYARD_THISNODE (1 << 21)

// Ordinary memory: may reclaim, start I/O and call into file systems. What to give where nothing
// else is meant.
#define PAGEYARD_KERNEL (((PAGEYARD_DIRECT_RECLAIM | PAGEYARD_KSWAPD_RECLAIM) | PAGEYARD_IO) | PAGEYARD_FS)

// From interrupt handlers and the like: must not sleep, may dip into reserves.
#define PAGEYARD_ATOMIC (PAGEYARD_HIGH | PAGEYARD_KSWAPD_RECLAIM)

// Must not sleep, can live with a failure.
#define PAGEYARD_NOWAIT (PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_NOWARN)

// Memory that its owner can move, from any zone.
#define PAGEYARD_HIGHUSER_MOVABLE (((PAGEYARD_KERNEL | PAGEYARD_HARDWALL) | PAGEYARD_HIGHMEM) | PAGEYARD_MOVABLE)

// Nobody can move these pages.
#define PAGEYARD_TYPE_UNMOVABLE 0

// Their owner can be told to use another frame.
#define PAGEYARD_TYPE_MOVABLE 1

// They cannot move but can be given up.
#define PAGEYARD_TYPE_RECLAIMABLE 2

// Addresses that the oldest devices reach.
#define PAGEYARD_ZONE_DMA 0

// Addresses that 32-bit devices reach.
#define PAGEYARD_ZONE_DMA32 1

// Everything else.
#define PAGEYARD_ZONE_NORMAL 2

// Memory that holds movable pages only.
#define PAGEYARD_ZONE_MOVABLE 3

// Memory of devices: never handed out by requests.
#define PAGEYARD_ZONE_DEVICE 4

// What `relocate` answers: contents and owner are at the new place.
#define PAGEYARD_MOVED 0

// What `relocate` answers: not now, somebody is using it.
#define PAGEYARD_MOVE_BUSY 1

// What `relocate` answers: it cannot move, or has no owner any more.
#define PAGEYARD_MOVE_REFUSED 2

// Free blocks by order, a row for each zone, as the kernel's /proc/buddyinfo.
#define PAGEYARD_TEXT_BUDDYINFO 0

// Free blocks by order and type, as /proc/pagetypeinfo.
#define PAGEYARD_TEXT_PAGETYPEINFO 1

// Zones, watermarks, per-CPU lists, as /proc/zoneinfo.
#define PAGEYARD_TEXT_ZONEINFO 2

// Counters, as /proc/vmstat.
#define PAGEYARD_TEXT_VMSTAT 3

// The report on memory that the kernel prints when a request fails.
#define PAGEYARD_TEXT_SHOW_MEM 4

// Zones and their counters as one JSON object: {"zones": [{"node": 0, "kind": "Normal", ...}]},
// fields named as those of struct pageyard_stats, and "free_blocks" by order.
#define PAGEYARD_TEXT_JSON 5

// An allocator on the caller's memory. Handles are checked: one that is null, misaligned, or of a
// yard that was destroyed and whose room has not been written since is answered with
// PAGEYARD_ERR_HANDLE. A pointer to anything else is not told apart from a handle for sure: it is
// read, which faults where no memory is.
typedef struct pageyard_core pageyard_core;

// What a function answers: PAGEYARD_OK, or one of the negative PAGEYARD_ERR numbers. Unless a
// function says otherwise, nothing has changed after an error. Numbers are never given another
// meaning; later versions may add some.
typedef int32_t pageyard_status;

// Frames from `start` to one before `end`.
typedef struct pageyard_range {
    // The first frame.
    uint64_t start;
    // One past the last.
    uint64_t end;
} pageyard_range;

// One zone.
typedef struct pageyard_zone {
    // Its frames, holes included.
    struct pageyard_range span;
    // Its node, from 0 to 63.
    uint32_t node;
    // One of the PAGEYARD_ZONE numbers.
    uint32_t kind;
} pageyard_zone;

// A machine's memory. Set everything to zero, then `struct_size` to sizeof(struct pageyard_layout),
// `version` to PAGEYARD_VERSION, and what there is.
//
// Owner: all arrays are the caller's; pageyard_core_create copies what it needs.
typedef struct pageyard_layout {
    // sizeof(struct pageyard_layout).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // The zones, in any order, at least one; no two overlap, or are of one kind and node.
    const struct pageyard_zone *zones;
    // How many.
    size_t zone_count;
    // Where there is memory, in any order; no two overlap, all lie in zones.
    const struct pageyard_range *usable;
    // How many.
    size_t usable_count;
    // Memory that is in use already and never becomes free.
    const struct pageyard_range *reserved;
    // How many.
    size_t reserved_count;
    // The node of each CPU, by number, at least one.
    const uint16_t *cpus;
    // How many.
    size_t cpu_count;
    // How far the nodes are from each other, row by row: 10 from a node to itself, more to others.
    // Null: all others are equally far.
    const uint8_t *distances;
    // How many: the square of the number of nodes, or 0.
    size_t distance_count;
} pageyard_layout;

// Room for one lock, for the caller's lock functions. All zero at first: a lock that nobody holds.
// While nobody holds it, the library may move it, byte by byte, so it must not be on anybody's list
// then. The holder may keep something in it, as the state of interrupts.
typedef struct pageyard_lock {
    // The caller's to use.
    uint64_t words[2];
} pageyard_lock;

// Memory to be freed for a request that could not be served.
typedef struct pageyard_reclaim_job {
    // How many pages to free.
    uint64_t pages;
    // The nodes whose memory would help, a bit for each.
    uint64_t allowed;
    // The flags of the request.
    uint32_t flags;
    // Its order.
    uint32_t order;
    // The node where memory is wanted most.
    uint32_t node;
    // Zones up to this one (PAGEYARD_ZONE numbers) would help.
    uint32_t highest_zone;
    // 12 at first, then down to 1: how hard to look.
    uint32_t priority;
    // Whether pages may be written back or swapped out: 0 or 1.
    uint32_t may_write;
} pageyard_reclaim_job;

// The machine under a yard: functions of the caller's. Set everything to zero, then `struct_size`
// to sizeof(struct pageyard_platform), `version` to PAGEYARD_VERSION, and what there is. Every
// function may be missing (null).
//
// Owner: pageyard_core_create copies the table; what `context` points to must live as long as the
// yard.
//
// Threads: functions are called on the thread or CPU that calls the library, any number at once.
// `cpu`, `now`, `lock`, `try_lock` and `unlock` may be called with locks held and must not call the
// library; the others are called without any lock, may sleep and may make requests. No function may
// leave by an exception or longjmp.
typedef struct pageyard_platform {
    // sizeof(struct pageyard_platform).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Handed to every function but the lock functions.
    void *context;
    // The CPU that executes the caller, from 0, below the layout's `cpu_count`. It need not stay
    // there. Missing: 0.
    uint32_t (*cpu)(void *context);
    // Nanoseconds since any start. Missing: 0 always; then nothing that waits for time to pass does
    // (reports of failures are not held back, background compaction does not look by itself).
    uint64_t (*now)(void *context);
    // A pause of about a tick: another thread is dealing with the shortage. Missing: a processor's
    // hint that it spins.
    void (*pause)(void *context);
    // Waits for a lock and takes it. All three lock functions are there, or none: then a spin lock
    // is used. A program has one kind of lock: all yards give the same three. Where requests are
    // also made by interrupt handlers, lock and try_lock turn interrupts off and unlock restores
    // them.
    void (*lock)(struct pageyard_lock *lock);
    // Takes a lock if nobody holds it; whether it did: not 0. Never waits.
    int32_t (*try_lock)(struct pageyard_lock *lock);
    // Gives a lock back. Called by the holder.
    void (*unlock)(struct pageyard_lock *lock);
    // Zeroes a block that a request with PAGEYARD_ZERO is about to get. Missing: blocks are handed
    // out as they are.
    void (*zero)(void *context, uint64_t pfn, uint32_t order);
    // A number that tells the calling task from others, so that a reclaim that asks for memory
    // itself is known by it. Missing: the CPU's.
    uint64_t (*task)(void *context);
    // Frees memory; how many pages it freed. Requests it makes may use all reserves. Missing: 0.
    uint64_t (*reclaim)(void *context, const struct pageyard_reclaim_job *job);
    // How many pages of a zone `reclaim` could still free. Missing: 0, so that `reclaim` is not
    // tried again when it freed too little.
    uint64_t (*reclaimable)(void *context, uint32_t node, uint32_t zone);
    // Nothing could be reclaimed: make somebody give up memory; not 0 where somebody does. One
    // call at a time. Missing: 0.
    int32_t (*out_of_memory)(void *context, const struct pageyard_reclaim_job *job);
    // A request with PAGEYARD_NOFAIL has failed `tries` times. Waits for memory; not 0: try again.
    // Missing: 0, and the request fails.
    int32_t (*keep_trying)(void *context, uint32_t order, uint32_t tries);
    // Moves a block that pageyard_core_set_movable was told of: copies it and makes its owner the
    // owner of `to`, or refuses; PAGEYARD_MOVED and its kin. The owner may have given the block
    // back a moment ago: look it up under the owner's own lock. After PAGEYARD_MOVED nobody
    // touches or frees `from`. Missing: refused.
    int32_t (*relocate)(void *context, uint64_t from, uint64_t to, uint32_t order);
    // Background reclaim of a node has work: free memory fell below a watermark for requests of
    // this order that may use zones up to `highest_zone`.
    void (*wake_reclaim)(void *context, uint32_t node, uint32_t order, uint32_t highest_zone);
    // Background compaction of a node has work: call pageyard_core_compact_background.
    void (*wake_compaction)(void *context, uint32_t node);
    // A request failed that did not ask for silence; at most one call in ten seconds of `now`.
    void (*warn)(void *context, uint32_t order, uint32_t flags);
} pageyard_platform;

// What a yard or a zone has and did. Set `struct_size` to sizeof(struct pageyard_stats) and
// `version` to PAGEYARD_VERSION before it is filled.
typedef struct pageyard_stats {
    // sizeof(struct pageyard_stats).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Pages that the allocator manages.
    uint64_t managed;
    // Pages on the zones' free lists.
    uint64_t free;
    // Pages on per-CPU lists.
    uint64_t cached;
    // The watermarks, in pages, boost not included: at min, only urgent requests are served;
    // below low, background reclaim is woken; at high, it stops.
    uint64_t min;
    // See min.
    uint64_t low;
    // See min.
    uint64_t high;
    // Blocks handed out.
    uint64_t allocs;
    // Blocks taken back.
    uint64_t frees;
    // Requests that could not be served.
    uint64_t failures;
    // Times per-CPU lists were refilled.
    uint64_t refills;
    // Times the zones' locks were taken.
    uint64_t lock_holds;
    // Pages that left the zones' free lists.
    uint64_t pages_taken;
    // Pages that came back to them.
    uint64_t pages_returned;
    // Blocks handed out whose pageblock has another type than was asked for.
    uint64_t mismatches;
} pageyard_stats;

// It is done.
#define PAGEYARD_OK 0

// The handle is null, not aligned as handles are, or of something destroyed.
#define PAGEYARD_ERR_HANDLE -1

// A pointer that must not be null is, or a number is out of its range.
#define PAGEYARD_ERR_ARGUMENT -2

// A structure's size or version is not one that this library knows, or a field is set that it does
// not know yet.
#define PAGEYARD_ERR_VERSION -3

// An option has a value that it cannot have; pageyard_last_error says which.
#define PAGEYARD_ERR_OPTION -4

// The system refused; pageyard_last_error says what.
#define PAGEYARD_ERR_SYSTEM -5

// The layout cannot be.
#define PAGEYARD_ERR_LAYOUT -6

// The room given is smaller than pageyard_core_room says.
#define PAGEYARD_ERR_ROOM -7

// Another yard of this program uses other lock functions; all use the same.
#define PAGEYARD_ERR_LOCKS -8

// The text did not fit into the buffer.
#define PAGEYARD_ERR_BUFFER -9

// There is no free block that the request may use.
#define PAGEYARD_ERR_NO_MEMORY -10

// The request's flags contradict each other.
#define PAGEYARD_ERR_FLAGS -11

// The caller runs on a CPU that the yard was not told of, or that is down.
#define PAGEYARD_ERR_CPU -12

// There is no such node, or no such zone.
#define PAGEYARD_ERR_NODE -13

// The block is not of this yard.
#define PAGEYARD_ERR_FOREIGN -20

// The frame is a hole, or was never the allocator's.
#define PAGEYARD_ERR_RESERVED -21

// The block is free already.
#define PAGEYARD_ERR_DOUBLE_FREE -22

// The address or frame number is not a multiple of the block's size.
#define PAGEYARD_ERR_MISALIGNED -23

// The block was allocated at another order.
#define PAGEYARD_ERR_WRONG_ORDER -24

// The frame lies inside a block, not at its start.
#define PAGEYARD_ERR_NOT_HEAD -25

// The block is out of use: a page of it is bad or faulty.
#define PAGEYARD_ERR_OUT_OF_USE -26

// A range means nothing: empty, over zones' edges, not whole sections, or not as it was said.
#define PAGEYARD_ERR_RANGE -30

// A frame of the range is in use and cannot be moved away; or what is to end is calling.
#define PAGEYARD_ERR_BUSY -31

// There is no such setting, or it cannot be read or written, or not to this value.
#define PAGEYARD_ERR_KNOB -40

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A sentence for a status, in English, without a newline. Never null: a number that this library
// does not know gets a sentence that says so.
//
// Threads: any. Owner: the text is the library's, constant, and lives as long as it is loaded.
const char *pageyard_strerror(pageyard_status status);

// How many bytes of room a yard with this layout needs: 16 for each frame, and some more for each
// zone and CPU.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT for zones that end before
// they begin or exceed the address space. Whether the rest of the layout can be is for
// pageyard_core_create to say.
//
// Threads: any. Owner: everything stays the caller's.
pageyard_status pageyard_core_room(const struct pageyard_layout *layout,
                                   size_t *bytes);

// Makes a yard in which every usable frame that is not reserved is free.
//
// `room` is memory for its maps, of at least as many `bytes` as pageyard_core_room says, anywhere,
// holding anything; it must not be memory that the yard hands out, unless the layout reserves that.
// `platform` may be null: one CPU, spin locks, no hooks. `why`, where it is not null, is filled with
// a sentence of at most `why_size` bytes, its ending zero included, that says what is wrong with the
// layout; empty where that is not the error.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT; PAGEYARD_ERR_ROOM;
// PAGEYARD_ERR_LOCKS. The room may then have been written to.
//
// Threads: any; the yard may be used by others once this has returned, and they know that.
//
// Owner: the room is the library's until pageyard_core_destroy; everything else stays the caller's.
pageyard_status pageyard_core_create(const struct pageyard_layout *layout,
                                     const struct pageyard_platform *platform,
                                     void *room,
                                     size_t bytes,
                                     struct pageyard_core **yard,
                                     char *why,
                                     size_t why_size);

// Ends a yard. Frames that it had handed out stay in whoever's hands they are.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: nobody else uses the yard, or does afterwards. Owner: the room is the caller's again.
pageyard_status pageyard_core_destroy(struct pageyard_core *yard);

// Allocates a block of 2^order pages, aligned to its size; its first frame is put to `pfn`. Contents
// are what they were, unless PAGEYARD_ZERO asks for zeros and there is a `zero` hook.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a null
// `pfn`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
//
// Threads: any; with lock functions that turn interrupts off, interrupt handlers too (flags without
// PAGEYARD_DIRECT_RECLAIM). Owner: the block is the caller's until pageyard_core_free.
pageyard_status pageyard_core_alloc(const struct pageyard_core *yard,
                                    uint32_t order,
                                    uint32_t flags,
                                    uint64_t *pfn);

// Allocates a block as pageyard_core_alloc does, preferably of a node; with PAGEYARD_THISNODE, of no
// other.
//
// Errors: as pageyard_core_alloc; PAGEYARD_ERR_NODE.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_on(const struct pageyard_core *yard,
                                       uint32_t node,
                                       uint32_t order,
                                       uint32_t flags,
                                       uint64_t *pfn);

// Gives a block back, of the order at which it was allocated.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_CPU; what is wrong with the block:
// PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_RESERVED, PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED,
// PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
//
// Threads: as pageyard_core_alloc; of those that free the same block at once, one is told
// PAGEYARD_OK. Owner: the block is the library's.
pageyard_status pageyard_core_free(const struct pageyard_core *yard,
                                   uint64_t pfn,
                                   uint32_t order);

// Allocates up to `count` single pages at once, cheaper than one by one; their frames are put to
// `pfns`, how many there are to `got`: fewer than asked for, even none, is no error.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_bulk(const struct pageyard_core *yard,
                                         uint32_t flags,
                                         uint64_t *pfns,
                                         size_t count,
                                         size_t *got);

// Gives `count` blocks of one order back, cheaper than one by one. `done`, where it is not null, is
// set to how many were given back: at an error, the block at that position is the one at fault, and
// it and all after it are as they were.
//
// Errors: as pageyard_core_free.
//
// Threads, owner: as pageyard_core_free.
pageyard_status pageyard_core_free_bulk(const struct pageyard_core *yard,
                                        const uint64_t *pfns,
                                        size_t count,
                                        uint32_t order,
                                        size_t *done);

// Turns an allocated block into blocks of the smaller order `into`, each to be freed on its own.
//
// Errors: as pageyard_core_free; PAGEYARD_ERR_WRONG_ORDER where `into` is larger than `order`.
//
// Threads: the block's owner. Owner: the parts are the caller's.
pageyard_status pageyard_core_split(const struct pageyard_core *yard,
                                    uint64_t pfn,
                                    uint32_t order,
                                    uint32_t into);

// Says whether the owner of an allocated block can move it: whether the `relocate` hook may be asked
// to. `movable` is 0 or 1.
//
// Errors: as pageyard_core_free.
//
// Threads: the block's owner. Owner: nothing changes hands.
pageyard_status pageyard_core_set_movable(const struct pageyard_core *yard,
                                          uint64_t pfn,
                                          uint32_t order,
                                          int32_t movable);

// Allocates exactly the frames from `start` to one before `end`, as single pages of a type
// (PAGEYARD_TYPE numbers) or, with PAGEYARD_COMP, as one block. What is in use there and movable is
// moved away by the `relocate` hook.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY,
// PAGEYARD_ERR_NO_MEMORY. Nothing is taken then, though blocks may have moved.
//
// Threads: any that may sleep. Owner: the frames are the caller's until pageyard_core_free_contig.
pageyard_status pageyard_core_alloc_contig(const struct pageyard_core *yard,
                                           uint64_t start,
                                           uint64_t end,
                                           uint32_t page_type,
                                           uint32_t flags);

// Allocates `pages` single pages beside each other, more than a block may have where need be, wherever
// they can be had; the first frame is a multiple of `align`, a power of two, and is put to `pfn`.
// Otherwise as pageyard_core_alloc_contig.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE for no pages or an `align` that
// is no power of two; PAGEYARD_ERR_NO_MEMORY. Nothing is taken then, though blocks may have moved.
//
// Threads: any that may sleep. Owner: the frames are the caller's until pageyard_core_free_contig.
pageyard_status pageyard_core_alloc_contig_pages(const struct pageyard_core *yard,
                                                 uint64_t pages,
                                                 uint64_t align,
                                                 uint32_t page_type,
                                                 uint32_t flags,
                                                 uint64_t *pfn);

// Gives back the frames from `start` to one before `end`, all of them single pages, or the one block
// that they are.
//
// Errors: as pageyard_core_free, for the first frame at fault.
//
// Threads: any. Owner: the frames are the library's.
pageyard_status pageyard_core_free_contig(const struct pageyard_core *yard,
                                          uint64_t start,
                                          uint64_t end);

// One tick of the statistics worker: folds a CPU's counters and lets its idle lists shrink. To be
// called about once a second for every CPU that is not idle, on that CPU or while it makes no
// requests.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it is down.
//
// Threads: one at a time for a CPU. Owner: nothing changes hands.
pageyard_status pageyard_core_tick(const struct pageyard_core *yard, uint32_t cpu);

// Gives everything on the per-CPU lists of all CPUs back to the zones, where it merges. While
// another thread does the same, this returns at once.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any. Owner: nothing changes hands.
pageyard_status pageyard_core_drain(const struct pageyard_core *yard);

// One step of background compaction of a node. `sleep_ns` is set to how long to sleep before the
// next step, at most; UINT64_MAX: until the `wake_compaction` hook says so.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_NODE.
//
// Threads: one at a time for a node. Owner: nothing changes hands.
pageyard_status pageyard_core_compact_background(const struct pageyard_core *yard,
                                                 uint32_t node,
                                                 uint64_t *sleep_ns);

// Compacts all zones, as far as blocks can be moved.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any that may sleep. Owner: nothing changes hands but what the `relocate` hook moves.
pageyard_status pageyard_core_compact(const struct pageyard_core *yard);

// A CPU of the layout that was down is about to run.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it was up.
//
// Threads: any; before that CPU makes requests. Owner: nothing changes hands.
pageyard_status pageyard_core_cpu_up(const struct pageyard_core *yard, uint32_t cpu);

// A CPU runs no more: its lists go back to the zones. Until it is up again, requests in its name are
// refused.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU where there is no such CPU, or it was down.
//
// Threads: another CPU; nothing may be under way in the name of the one that goes. Owner: nothing
// changes hands.
pageyard_status pageyard_core_cpu_dead(const struct pageyard_core *yard,
                                       uint32_t cpu);

// Memory has come: whole sections (128 MiB) of a zone's span, none of which was there. All of it
// becomes free.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY.
//
// Threads: any that may sleep. Owner: the frames are the library's.
pageyard_status pageyard_core_online(const struct pageyard_core *yard,
                                     uint64_t start,
                                     uint64_t end);

// Memory is to go: whole sections of a zone. What is in use there is moved away by the `relocate`
// hook.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY. All of
// the memory is still there then.
//
// Threads: any that may sleep. Owner: the frames are the caller's.
pageyard_status pageyard_core_offline(const struct pageyard_core *yard,
                                      uint64_t start,
                                      uint64_t end);

// Fills in the figures of all zones together.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a structure whose
// first two fields are not set.
//
// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
pageyard_status pageyard_core_stats(const struct pageyard_core *yard, struct pageyard_stats *stats);

// Fills in the figures of one zone, by its position: node by node, within a node from the highest
// kind down.
//
// Errors: as pageyard_core_stats; PAGEYARD_ERR_NODE where there are not so many zones.
//
// Threads: any; figures may be a moment apart. Owner: the structure stays the caller's.
pageyard_status pageyard_core_zone_stats(const struct pageyard_core *yard,
                                         size_t index,
                                         struct pageyard_stats *stats);

// Writes a text about the yard, one of the PAGEYARD_TEXT kinds, into a buffer of `size` bytes: as
// much as fits, ended by a zero byte where `size` is not 0. `needed`, where it is not null, is set
// to the bytes that the whole text takes with that byte; a later text may take more.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for another kind or a null buffer of a size;
// PAGEYARD_ERR_BUFFER where it does not fit (the buffer then holds its beginning).
//
// Threads: any; figures of one text may be a moment apart. Owner: the buffer stays the caller's.
pageyard_status pageyard_core_text(const struct pageyard_core *yard,
                                   uint32_t kind,
                                   char *buffer,
                                   size_t size,
                                   size_t *needed);

// Writes the value of a setting, by the kernel's name ("min_free_kbytes"), as pageyard_core_text
// does.
//
// Errors: as pageyard_core_text; PAGEYARD_ERR_KNOB where there is no such setting, or it cannot be
// read.
//
// Threads: any. Owner: all stays the caller's.
pageyard_status pageyard_core_knob(const struct pageyard_core *yard,
                                   const char *name,
                                   char *buffer,
                                   size_t size,
                                   size_t *needed);

// Sets a setting by its name, from text, with everything that follows from it.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB where there is no such
// setting, it cannot be written, or not to this value.
//
// Threads: any. Owner: the strings stay the caller's.
pageyard_status pageyard_core_set_knob(const struct pageyard_core *yard,
                                       const char *name,
                                       const char *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEYARD_CORE_H */
