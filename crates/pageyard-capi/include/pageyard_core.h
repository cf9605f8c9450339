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
 *
 * Needs stdint.h and stddef.h, which every compiler has without a libc. With PAGEYARD_NO_STDINT
 * defined it includes neither: the program has defined int32_t, int64_t, uint8_t, uint16_t, uint32_t,
 * uint64_t and size_t before.
 */

#ifndef PAGEYARD_CORE_H
#define PAGEYARD_CORE_H

#ifndef PAGEYARD_NO_STDINT
#include <stdint.h>
#include <stddef.h>
#endif

// Version of the interface: the value of a structure's `version` field.
#define PAGEYARD_VERSION 1

// Bytes per page.
#define PAGEYARD_PAGE_SIZE 4096

// The highest order of a block: 2^10 pages, 4 MiB.
#define PAGEYARD_MAX_ORDER 10

// Allocate from the DMA zone.
#define PAGEYARD_DMA (1 << 0)

// Allocate from the DMA32 zone.
#define PAGEYARD_DMA32 (1 << 2)

// The pages are movable. With PAGEYARD_HIGHMEM, the movable zone may be used too.
#define PAGEYARD_MOVABLE (1 << 3)

// High memory may be used.
#define PAGEYARD_HIGHMEM (1 << 1)

// The pages are reclaimable.
#define PAGEYARD_RECLAIMABLE (1 << 4)

// Urgent: may allocate below the minimum watermark.
#define PAGEYARD_HIGH (1 << 5)

// Reclaim may start I/O.
#define PAGEYARD_IO (1 << 6)

// Reclaim may call into file systems.
#define PAGEYARD_FS (1 << 7)

// Return zeroed pages.
#define PAGEYARD_ZERO (1 << 8)

// May reclaim directly, and so may sleep.
#define PAGEYARD_DIRECT_RECLAIM (1 << 10)

// May wake the background reclaimer.
#define PAGEYARD_KSWAPD_RECLAIM (1 << 11)

// Do not report a failure.
#define PAGEYARD_NOWARN (1 << 13)

// Retry hard, but fail if that does not help.
#define PAGEYARD_RETRY_MAYFAIL (1 << 14)

// Do not fail as long as the `keep_trying` hook returns nonzero.
#define PAGEYARD_NOFAIL (1 << 15)

// Do not retry hard; fail early.
#define PAGEYARD_NORETRY (1 << 16)

// May use all reserves: the caller is freeing memory.
#define PAGEYARD_MEMALLOC (1 << 17)

// Compound: the block is treated as one unit.
#define PAGEYARD_COMP (1 << 18)

// Never use reserves, whatever the context of the caller.
#define PAGEYARD_NOMEMALLOC (1 << 19)

// Restrict the request to the caller's set of nodes.
#define PAGEYARD_HARDWALL (1 << 20)

// Restrict the request to the preferred node.
#define PAGEYARD_THISNODE (1 << 21)

// Ordinary memory: may reclaim, start I/O and call into file systems. The usual choice.
#define PAGEYARD_KERNEL (((PAGEYARD_DIRECT_RECLAIM | PAGEYARD_KSWAPD_RECLAIM) | PAGEYARD_IO) | PAGEYARD_FS)

// For interrupt handlers and other atomic contexts: must not sleep, may use reserves.
#define PAGEYARD_ATOMIC (PAGEYARD_HIGH | PAGEYARD_KSWAPD_RECLAIM)

// Must not sleep and tolerates failure.
#define PAGEYARD_NOWAIT (PAGEYARD_KSWAPD_RECLAIM | PAGEYARD_NOWARN)

// Memory that its owner can move, from any zone.
#define PAGEYARD_HIGHUSER_MOVABLE (((PAGEYARD_KERNEL | PAGEYARD_HARDWALL) | PAGEYARD_HIGHMEM) | PAGEYARD_MOVABLE)

// The pages cannot be moved.
#define PAGEYARD_TYPE_UNMOVABLE 0

// The owner of the pages can switch to another frame.
#define PAGEYARD_TYPE_MOVABLE 1

// The pages cannot be moved but can be reclaimed.
#define PAGEYARD_TYPE_RECLAIMABLE 2

// Addresses that the oldest devices can reach.
#define PAGEYARD_ZONE_DMA 0

// Addresses that 32-bit devices can reach.
#define PAGEYARD_ZONE_DMA32 1

// All other memory.
#define PAGEYARD_ZONE_NORMAL 2

// Memory for movable pages only.
#define PAGEYARD_ZONE_MOVABLE 3

// Device memory; requests never allocate from it.
#define PAGEYARD_ZONE_DEVICE 4

// The engine that answers every request as Linux 6.12 does. The core level's default.
#define PAGEYARD_ENGINE_LINUX612 0

// The packed engine: a bit for each free frame, 1.3 bytes of room a frame instead of 16 but more for
// each zone and CPU, and requests served from the fullest pageblocks. docs/packed.md says what differs.
// The default of pageyard_options_init. In libpageyard, and in a libpageyard-core that was installed with
// --packed.
#define PAGEYARD_ENGINE_PACKED 1

// A request completed. Sets pfn (UINT64_MAX: the request failed), order, page_type, flags.
#define PAGEYARD_EVENT_ALLOC 1

// A block was freed by its owner; it is not on a list yet. Sets pfn, order.
#define PAGEYARD_EVENT_FREE 2

// A block freed by pageyard_core_free_bulk goes to this CPU's list. PAGEYARD_EVENT_FREE has
// announced it already. Sets pfn.
#define PAGEYARD_EVENT_FREE_BATCHED 3

// A block left the free lists of a zone. Sets pfn, order, page_type; `values[0]`: 1 if blocks of this
// order and type are kept on per-CPU lists.
#define PAGEYARD_EVENT_ZONE_LOCKED 4

// A block went from a per-CPU list to the zone. Sets pfn, order, page_type.
#define PAGEYARD_EVENT_DRAIN 5

// A request took another type's block. Sets pfn, order, page_type; values: the order and the type of
// the block found, and 1 if its pageblock was claimed.
#define PAGEYARD_EVENT_FALLBACK 6

// An empty per-CPU list was refilled. Sets zone, order; values: blocks requested, blocks taken.
#define PAGEYARD_EVENT_REFILL 7

// Per-CPU lists returned pages to the zone. Sets zone; values: pages, and the reason (0: `high` was
// reached, 1: a run of high-order frees, 2: a tick, 3: idle lists of a remote node, 4: a drain).
#define PAGEYARD_EVENT_BULK_FREE 8

// `high` of the CPU's lists changed; only with PAGEYARD_SEE_TUNING. Sets node, zone; values: the old
// and the new value, pages on the lists, refills so far, bulk frees so far, and the reason (0:
// limits, 1: refill, 2: free, 3: a run of high-order frees, 4: reclaim, 5: below the high
// watermark, 6: a tick).
#define PAGEYARD_EVENT_HIGH 9

// A request is about to compact. Sets order, flags; `values[0]`: the priority, 2 (gentle) to 0.
#define PAGEYARD_EVENT_COMPACT_TRY 16

// A compaction run over a zone starts. Values: the zone's first frame, the positions of the
// migration scanner and the free scanner, one past the zone's last frame, and the mode (0: async, 1:
// light, 2: sync).
#define PAGEYARD_EVENT_COMPACT_BEGIN 17

// A compaction run ended. Values: as PAGEYARD_EVENT_COMPACT_BEGIN, then the result.
#define PAGEYARD_EVENT_COMPACT_END 18

// Blocks were isolated for migration. Values: first frame scanned, one past the last, frames
// scanned, pages isolated.
#define PAGEYARD_EVENT_COMPACT_SOURCES 19

// Free blocks were isolated as targets. Values: as PAGEYARD_EVENT_COMPACT_SOURCES.
#define PAGEYARD_EVENT_COMPACT_TARGETS 20

// The isolated pages were migrated, or not. Values: pages migrated, pages that stayed.
#define PAGEYARD_EVENT_COMPACT_MIGRATED 21

// Whether a compaction run is done. Sets node, zone, order (UINT32_MAX: as much as possible);
// `values[0]`: the result.
#define PAGEYARD_EVENT_COMPACT_FINISHED 22

// Whether a compaction run is worthwhile. Sets node, zone, order; `values[0]`: the result.
#define PAGEYARD_EVENT_COMPACT_SUITABLE 23

// A compaction run did not start because earlier ones failed. Sets node, zone, order; values:
// attempts since the last failure, the logarithm of the attempts to defer, the smallest order that
// failed.
#define PAGEYARD_EVENT_COMPACT_DEFERRED 24

// A compaction run failed. As PAGEYARD_EVENT_COMPACT_DEFERRED.
#define PAGEYARD_EVENT_COMPACT_FAILED 25

// A compaction run succeeded. As PAGEYARD_EVENT_COMPACT_DEFERRED.
#define PAGEYARD_EVENT_COMPACT_SUCCEEDED 26

// Background compaction has nothing to do. Sets node.
#define PAGEYARD_EVENT_COMPACT_SLEEP 27

// Background compaction is given work. Sets node, zone (the highest that may serve it), order.
#define PAGEYARD_EVENT_COMPACT_WAKEUP 28

// Background compaction starts. As PAGEYARD_EVENT_COMPACT_WAKEUP.
#define PAGEYARD_EVENT_COMPACT_WAKE 29

// A page of a block that was freed or about to be allocated is not in the state of an unused page.
// The block is now out of use. Sets pfn (the page), block, order; values: a PAGEYARD_BAD number, the
// count or flags that are wrong, and 1 if found when the block was allocated, 0 when it was freed.
#define PAGEYARD_REPORT_BAD_PAGE 1

// Bad pages were not reported, to limit their number. `values[0]`: how many.
#define PAGEYARD_REPORT_BAD_PAGES_SUPPRESSED 2

// `check_poison` found a block damaged, which is allocated anyway. Sets block, order; values: the
// offsets in bytes of the first and the last damaged byte, and 1 if a single bit differs.
#define PAGEYARD_REPORT_POISON 3

// Damaged blocks were not reported, to limit their number. `values[0]`: how many.
#define PAGEYARD_REPORT_POISON_SUPPRESSED 4

// The page is mapped.
#define PAGEYARD_BAD_MAPCOUNT 1

// The page belongs to a file or to anonymous memory.
#define PAGEYARD_BAD_MAPPING 2

// The page has references.
#define PAGEYARD_BAD_REFCOUNT 3

// The page is charged to a control group.
#define PAGEYARD_BAD_CHARGED 4

// The page has flags that must be clear.
#define PAGEYARD_BAD_FLAGS 5

// The page's link to the head of a compound block is wrong.
#define PAGEYARD_BAD_LINK 6

// The mark of a tail of a compound block is missing.
#define PAGEYARD_BAD_TAIL 7

// `event` receives PAGEYARD_EVENT_HIGH too.
#define PAGEYARD_SEE_TUNING (1 << 0)

// `event` receives every allocated block. Without it, pages of a bulk request may come without an
// event of their own. With it, such requests are served page by page.
#define PAGEYARD_SEE_EVERY_BLOCK (1 << 1)

// All memory is zeroed when it is allocated, through the `zero` function of the platform. No effect
// with `poison`.
#define PAGEYARD_INIT_ON_ALLOC (1 << 2)

// All memory is zeroed when it becomes free, through the `zero` function of the platform, and never
// when it is allocated. No effect with `poison`.
#define PAGEYARD_INIT_ON_FREE (1 << 3)

// The page is locked by a user that works on it.
#define PAGEYARD_PAGE_LOCKED (1 << 0)

// The page is on a reclaim list.
#define PAGEYARD_PAGE_LRU (1 << 1)

// The page is on the active reclaim list.
#define PAGEYARD_PAGE_ACTIVE (1 << 2)

// A file system keeps private data with the page.
#define PAGEYARD_PAGE_PRIVATE (1 << 3)

// A second mark of that kind.
#define PAGEYARD_PAGE_PRIVATE_2 (1 << 4)

// The page is being written out.
#define PAGEYARD_PAGE_WRITEBACK (1 << 5)

// The page is not managed by the allocator.
#define PAGEYARD_PAGE_RESERVED (1 << 6)

// The page is excluded from reclaim.
#define PAGEYARD_PAGE_UNEVICTABLE (1 << 7)

// The page is locked in memory by its user.
#define PAGEYARD_PAGE_MLOCKED (1 << 8)

// The page was changed since it was read. May be set when the page is freed, but must be clear when
// it is allocated, as all flags from here on.
#define PAGEYARD_PAGE_DIRTY (1 << 9)

// The contents of the page are valid.
#define PAGEYARD_PAGE_UPTODATE (1 << 10)

// The page was used recently.
#define PAGEYARD_PAGE_REFERENCED (1 << 11)

// The memory of the page is faulty: its block is put out of use without a report.
#define PAGEYARD_PAGE_HWPOISON (1 << 12)

// The first flag without a meaning to the library.
#define PAGEYARD_PAGE_OTHER (1 << 16)

// The page is in no compound block.
#define PAGEYARD_LINK_SINGLE 0

// The page is the first of a compound block.
#define PAGEYARD_LINK_HEAD 1

// The page belongs to the compound block that starts at `head`.
#define PAGEYARD_LINK_TAIL 2

// Result of `relocate`: the contents and the owner are at the new place.
#define PAGEYARD_MOVED 0

// Result of `relocate`: the block is in use now; a later attempt may succeed.
#define PAGEYARD_MOVE_BUSY 1

// Result of `relocate`: the block cannot be moved, or has no owner any more.
#define PAGEYARD_MOVE_REFUSED 2

// A request that is about to fail drains the per-CPU lists of all CPUs and tries once more. For
// kernels that do not reclaim: without it, pages on the lists of other CPUs are out of reach. Linux
// does so only after reclaim has freed pages.
#define PAGEYARD_DRAIN_ON_FAILURE 1

// Settings of a kernel that reclaims: the defaults of Linux 6.12.
#define PAGEYARD_KNOBS_DEFAULT 0

// Settings for a machine below about 1 GiB whose kernel does not reclaim: no floor of huge pages, no
// boost of the watermarks, no tuning of the per-CPU lists.
#define PAGEYARD_KNOBS_SMALL 1

// Kind of a memory range: the kernel may use it.
#define PAGEYARD_MEMORY_USABLE 1

// Kind of a memory range: tables of ACPI, which the kernel may use once it has read them.
#define PAGEYARD_MEMORY_ACPI 3

// The largest number of CPUs that pageyard_kernel_init takes.
#define PAGEYARD_MOST_CPUS 1024

// Free blocks by order, one row per zone, in the format of /proc/buddyinfo.
#define PAGEYARD_TEXT_BUDDYINFO 0

// Free blocks by order and type, in the format of /proc/pagetypeinfo.
#define PAGEYARD_TEXT_PAGETYPEINFO 1

// Zones, watermarks and per-CPU lists, in the format of /proc/zoneinfo.
#define PAGEYARD_TEXT_ZONEINFO 2

// Counters, in the format of /proc/vmstat.
#define PAGEYARD_TEXT_VMSTAT 3

// The memory report that the kernel prints when a request fails.
#define PAGEYARD_TEXT_SHOW_MEM 4

// Zones and their counters as one JSON object: {"zones": [{"node": 0, "kind": "Normal", ...}]}.
// The fields have the names of struct pageyard_stats; "free_blocks" counts by order.
#define PAGEYARD_TEXT_JSON 5

// An allocator on the caller's memory. Functions check handles. They return PAGEYARD_ERR_HANDLE
// for a handle that is null, a copy, or of a destroyed yard whose room has not been written
// since. A pointer to anything else is read, which faults if it is not mapped, and is then an error
// unless it points at the number that a handle would have there.
typedef struct pageyard_core pageyard_core;

// Result of a function: PAGEYARD_OK, or a negative PAGEYARD_ERR number. Unless a function says
// otherwise, an error leaves everything unchanged. The meaning of a number never changes; later
// versions may add numbers.
typedef int32_t pageyard_status;

// Initial settings of a yard (docs/knobs.md), for pageyard_layout. Set `struct_size` to
// sizeof(struct pageyard_knobs) and `version` to PAGEYARD_VERSION, let pageyard_core_knobs fill in
// the rest, then change what is to differ. Fields that are switches are 0 or 1.
typedef struct pageyard_knobs {
    // sizeof(struct pageyard_knobs).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Memory kept free for the kernel's own needs, in kB. 0: computed from the memory. A larger
    // computed value wins.
    uint64_t min_free_kbytes;
    // Distance between the watermarks, in ten-thousandths of a zone, from 1 to 3000.
    uint64_t watermark_scale_factor;
    // Limit of the watermark boost, in ten-thousandths of the high watermark. 0: no boost.
    uint64_t watermark_boost_factor;
    // For each zone kind, the fraction of higher zones' pages that it reserves against their
    // requests. 0: no reserve.
    uint64_t lowmem_reserve_ratio[5];
    // Unmapped file pages that node reclaim keeps, in percent of a node.
    uint64_t min_unmapped_ratio;
    // Reclaimable slab pages that node reclaim keeps, in percent of a node.
    uint64_t min_slab_ratio;
    // Effort of proactive background compaction, from 0 to 100.
    uint64_t compaction_proactiveness;
    // Zones whose fragmentation index is at most this are not compacted, from 0 to 1000.
    uint64_t extfrag_threshold;
    // Interval at which pageyard_core_tick is called for each CPU, in seconds.
    uint64_t stat_interval;
    // Low memory of this machine's other allocators, in pages, which share min_free_kbytes.
    uint64_t foreign_lowmem;
    // Seed for shuffling the free lists, if `shuffle` is set.
    uint64_t shuffle_seed;
    // Fixes `high` of the per-CPU lists at this fraction of a zone: 0, or at least 8. 0: `high` is
    // tuned.
    uint32_t percpu_pagelist_high_fraction;
    // Node reclaim before requests fall back to other nodes: 1 enabled, 2 writes, 4 unmaps pages.
    uint32_t zone_reclaim_mode;
    // Switch: `high` of the per-CPU lists is tuned.
    uint32_t pcp_autotune;
    // Switch: compaction may move pages that reclaim must not touch.
    uint32_t compact_unevictable_allowed;
    // Switch: NUMA events are counted.
    uint32_t numa_stat;
    // Switch: pages are demoted to slower memory instead of swapped out.
    uint32_t memory_tiering;
    // Switch: huge pages are in use, so that whole pageblocks are kept free.
    uint32_t huge_pages;
    // Switch: free lists are shuffled at the start.
    uint32_t shuffle;
} pageyard_knobs;

// A range of frames from `start` up to, but not including, `end`.
typedef struct pageyard_range {
    // First frame.
    uint64_t start;
    // One past the last frame.
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

// Description of a machine's memory. Set the structure to zero, then set `struct_size` to
// sizeof(struct pageyard_layout), `version` to PAGEYARD_VERSION, and the fields that apply.
//
// Owner: all arrays stay the caller's; pageyard_core_create copies what it needs.
typedef struct pageyard_layout {
    // sizeof(struct pageyard_layout).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // At least one zone, in any order. No two overlap, or have the same kind and node.
    const struct pageyard_zone *zones;
    // Number of zones.
    size_t zone_count;
    // Ranges that contain memory, in any order. No two overlap; all lie in zones.
    const struct pageyard_range *usable;
    // Number of usable ranges.
    size_t usable_count;
    // Ranges that are already in use. They stay so until pageyard_core_release.
    const struct pageyard_range *reserved;
    // Number of reserved ranges.
    size_t reserved_count;
    // The node of each CPU, indexed by CPU number. At least one entry.
    const uint16_t *cpus;
    // Number of CPUs.
    size_t cpu_count;
    // Distances between nodes as a matrix, row by row: 10 from a node to itself, more to others.
    // Null: all other nodes are equally far.
    const uint8_t *distances;
    // Number of distances: the square of the number of nodes, or 0.
    size_t distance_count;
    // The initial settings, as pageyard_core_knobs fills them in. Null: the defaults.
    const struct pageyard_knobs *knobs;
    // One of the PAGEYARD_ENGINE numbers. 0: PAGEYARD_ENGINE_LINUX612.
    uint64_t engine;
} pageyard_layout;

// Storage of one lock, for the caller's lock functions. Initially all zero, which must mean
// unlocked. The library may move an unlocked lock byte by byte, so it must not be linked into any
// list then. The holder may store data in it, such as the interrupt state.
typedef struct pageyard_lock {
    // For use by the caller's lock functions.
    uint64_t words[2];
} pageyard_lock;

// A reclaim request, made when an allocation could not be served.
typedef struct pageyard_reclaim_job {
    // Number of pages to free.
    uint64_t pages;
    // Nodes whose memory is useful, one bit per node.
    uint64_t allowed;
    // Flags of the failed request.
    uint32_t flags;
    // Order of the failed request.
    uint32_t order;
    // Preferred node of the request.
    uint32_t node;
    // Highest useful zone (a PAGEYARD_ZONE number). Lower zones are useful too.
    uint32_t highest_zone;
    // Scan priority, from 12 (first pass) down to 1 (most aggressive).
    uint32_t priority;
    // Whether pages may be written back or swapped out: 0 or 1.
    uint32_t may_write;
} pageyard_reclaim_job;

// An event: a page tracepoint of the kernel. The PAGEYARD_EVENT number says which fields are set;
// all others are zero. Later versions may add kinds, and fields at the end.
typedef struct pageyard_event {
    // A PAGEYARD_EVENT number. Ignore unknown ones.
    uint32_t kind;
    // CPU on which it happened.
    uint32_t cpu;
    // First frame of the block.
    uint64_t pfn;
    // Order of the block.
    uint32_t order;
    // A PAGEYARD_TYPE number: 0 to 2, or 3 (reserved for urgent requests), 4 (contiguous-memory
    // area), 5 (isolated).
    uint32_t page_type;
    // Flags of the request.
    uint32_t flags;
    // A PAGEYARD_ZONE number.
    uint32_t zone;
    // Number of the node.
    uint32_t node;
    // Always zero.
    uint32_t reserved;
    // As the PAGEYARD_EVENT number says.
    uint64_t values[6];
} pageyard_event;

// What a check found, for a log. The PAGEYARD_REPORT number says which fields are set; all others
// are zero. Later versions may add kinds, and fields at the end.
typedef struct pageyard_report {
    // A PAGEYARD_REPORT number. Ignore unknown ones.
    uint32_t kind;
    // Order of the block.
    uint32_t order;
    // First frame of the block.
    uint64_t block;
    // The page.
    uint64_t pfn;
    // As the PAGEYARD_REPORT number says.
    uint64_t values[3];
} pageyard_report;

// The state of a page in the caller's own descriptors. The library passes it filled in as an unused
// page, which passes every check: `mapcount` is -1, all else 0.
typedef struct pageyard_page_state {
    // Number of mappings minus one.
    int32_t mapcount;
    // Number of references.
    uint32_t refcount;
    // PAGEYARD_PAGE flags.
    uint32_t flags;
    // Nonzero: the page belongs to a file or to anonymous memory. For a tail: the mark that tails
    // have in this place is missing.
    uint32_t mapping;
    // Nonzero: the page is charged to a control group.
    uint32_t charged;
    // A PAGEYARD_LINK number. An unknown one fails the check of an allocation.
    uint32_t link;
    // With PAGEYARD_LINK_TAIL: first frame of the compound block.
    uint64_t head;
} pageyard_page_state;

// Damage to the contents of a free block. Offsets are in bytes from the start of the block.
typedef struct pageyard_corruption {
    // Offset of the first damaged byte.
    uint64_t first;
    // Offset of the last damaged byte.
    uint64_t last;
    // Nonzero: exactly one bit differs.
    uint32_t single_bit;
    // Zero.
    uint32_t reserved;
} pageyard_corruption;

// A free block in a report.
typedef struct pageyard_block {
    // First frame.
    uint64_t pfn;
    // Order.
    uint32_t order;
    // Zero.
    uint32_t reserved;
} pageyard_block;

// Hooks beyond the platform: events, defences against mistakes and faults, reports of free memory.
// Set the structure to zero, then set `struct_size` to sizeof(struct pageyard_hooks), `version` to
// PAGEYARD_VERSION, and the functions you want. Every function is optional (null): what it would
// check or report is then turned off. Pass it in the field `hooks` of struct pageyard_platform.
//
// A yard without this structure runs code that has none of these hooks. On PAGEYARD_ENGINE_PACKED,
// `page_state`, `poison`, `check_poison`, `unmap` and `map` must be null, `guard_min_order` 0, and
// PAGEYARD_INIT_ON_ALLOC and PAGEYARD_INIT_ON_FREE not set.
//
// Owner: pageyard_core_create copies the structure. What `context` points to must live as long as
// the yard.
//
// Threads: functions are called on the thread or CPU that calls the library, any number at once. No
// function except `report_free` may make requests. `event`, `report` and `page_state` may be called
// with locks held: they must not call the library and must not sleep. The others are called without
// locks held. They may sleep if the request may (PAGEYARD_DIRECT_RECLAIM), but a block may be freed
// where nothing may sleep. No function may exit through an exception or longjmp.
typedef struct pageyard_hooks {
    // sizeof(struct pageyard_hooks).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Passed to every function.
    void *context;
    // Any of PAGEYARD_SEE_TUNING, PAGEYARD_SEE_EVERY_BLOCK, PAGEYARD_INIT_ON_ALLOC,
    // PAGEYARD_INIT_ON_FREE.
    uint32_t flags;
    // Blocks of this order and above are reported to `report_free`, 1 to 10. 0: 9 (2 MiB).
    uint32_t report_order;
    // Parts of orders below this that a split leaves over become guards, which no request gets: 1 to
    // 5. 0: none.
    uint32_t guard_min_order;
    // Zero.
    uint32_t reserved;
    // Observes an event. The structure lives until the function returns. Locks may be held.
    void (*event)(void *context, const struct pageyard_event *event);
    // Observes what a check found. The structure lives until the function returns. Locks may be
    // held. In each zone, at most 60 bad pages a minute and 10 damaged blocks in 5 seconds of `now`
    // are reported; if `now` is null, at most that many in total.
    void (*report)(void *context, const struct pageyard_report *report);
    // Returns nonzero if this request must fail, to test its caller. Called at the start of every
    // request except those for contiguous ranges.
    int32_t (*fail)(void *context, uint32_t order, uint32_t flags);
    // Fills in the state of a page in the caller's own descriptors. Called for every page of a block
    // when it is freed and when it is allocated. A block with a page that is still in use is put out
    // of use and reported. Locks may be held.
    void (*page_state)(void *context, uint64_t pfn, struct pageyard_page_state *state);
    // Fills a block that becomes free with a pattern. Supply `check_poison` too.
    void (*poison)(void *context, uint64_t pfn, uint32_t order);
    // Checks that a block about to be allocated still holds the pattern. Returns nonzero if it does
    // not, and says where. It need not be a block that `poison` was called for as a whole.
    int32_t (*check_poison)(void *context,
                            uint64_t pfn,
                            uint32_t order,
                            struct pageyard_corruption *damage);
    // Unmaps a block that becomes free, after `poison`. Supply `map` too.
    void (*unmap)(void *context, uint64_t pfn, uint32_t order);
    // Maps a block that is about to be allocated. It need not be a block that was unmapped as a
    // whole.
    void (*map)(void *context, uint64_t pfn, uint32_t order);
    // Reports `count` free blocks, at most 32, none of which is allocated until this returns: their
    // memory may be used elsewhere. Returns nonzero if the report was accepted; otherwise they are
    // reported again later. Called by pageyard_core_report_free only. May sleep and may make
    // requests.
    int32_t (*report_free)(void *context, const struct pageyard_block *blocks, size_t count);
} pageyard_hooks;

// The platform of a yard: functions that the caller supplies. Set the structure to zero, then set
// `struct_size` to sizeof(struct pageyard_platform), `version` to PAGEYARD_VERSION, and the
// functions you have. Every function is optional (null).
//
// Owner: pageyard_core_create copies the table. What `context` points to must live as long as the
// yard.
//
// Threads: functions are called on the thread or CPU that calls the library, any number at once.
// `cpu`, `now`, `lock`, `try_lock` and `unlock` may be called with locks held and must not call
// the library. The others are called without locks held, may sleep and may make requests. Requests
// made by `reclaim`, `reclaimable`, `out_of_memory` and `relocate` call none of these four again,
// and requests made by `wake_reclaim` and `wake_compaction` call neither of these two. Requests
// made by `zero`, `task`, `pause` and `keep_trying` may call the same function again, which must
// end that. No function may exit through an exception or longjmp.
typedef struct pageyard_platform {
    // sizeof(struct pageyard_platform).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Passed to every function except the lock functions.
    void *context;
    // Returns the CPU that runs the caller, from 0 up to the layout's `cpu_count` - 1. The caller
    // may migrate afterwards. If null: always 0. Must be null in a core that was installed with
    // `--cpu-at`, which finds the number itself.
    uint32_t (*cpu)(void *context);
    // Returns nanoseconds since an arbitrary start. If null: always 0, and everything that waits
    // for time to pass is disabled: limits on reports never expire, and background compaction does
    // not start by itself.
    uint64_t (*now)(void *context);
    // Pauses for about one tick while another thread handles the shortage. If null: a spin-loop
    // hint.
    void (*pause)(void *context);
    // Acquires a lock, waiting if necessary. Supply all three lock functions or none; without them
    // a spin lock is used. All yards of a program must use the same three functions. If interrupt
    // handlers make requests too, lock and try_lock must disable interrupts and unlock must
    // restore them. In a core that was installed with `--interrupt-lock` the spin lock does so, and
    // all three must be null.
    void (*lock)(struct pageyard_lock *lock);
    // Acquires a lock if it is free, and returns nonzero if it did. Never waits.
    int32_t (*try_lock)(struct pageyard_lock *lock);
    // Releases a lock. Called by the holder.
    void (*unlock)(struct pageyard_lock *lock);
    // Zeroes a block for a request with PAGEYARD_ZERO before the request returns. If null: blocks
    // are returned with their old contents.
    void (*zero)(void *context, uint64_t pfn, uint32_t order);
    // Returns a number that identifies the calling task. It lets the library recognize requests
    // made from within `reclaim`. UINT64_MAX and the number before it may count as one task. If null:
    // the CPU number.
    uint64_t (*task)(void *context);
    // Frees memory and returns the number of pages freed. Requests made by this function may use
    // all reserves. If null: 0.
    uint64_t (*reclaim)(void *context, const struct pageyard_reclaim_job *job);
    // Returns how many pages of a zone `reclaim` could still free. If null: 0, so `reclaim` is not
    // retried when it frees too little.
    uint64_t (*reclaimable)(void *context, uint32_t node, uint32_t zone);
    // Called when nothing could be reclaimed: force some user to release memory. Returns nonzero
    // if one does. One call at a time. If null: 0.
    int32_t (*out_of_memory)(void *context, const struct pageyard_reclaim_job *job);
    // Called when a request with PAGEYARD_NOFAIL has failed `tries` times. Waits for memory;
    // returns nonzero to retry. If null: 0, and the request fails.
    int32_t (*keep_trying)(void *context, uint32_t order, uint32_t tries);
    // Migrates a block that was marked with pageyard_core_set_movable or, in a core with `--packed`, was
    // requested with PAGEYARD_MOVABLE: copies it from `from` to
    // `to` and makes its owner use `to`, or refuses. Returns PAGEYARD_MOVED, PAGEYARD_MOVE_BUSY or
    // PAGEYARD_MOVE_REFUSED. The owner may have just freed the block, so look it up under the
    // owner's own lock. After PAGEYARD_MOVED, nothing may access or free `from`. If null: refused. Must
    // be null in a core that was installed with `--without-relocate`, in which requests do not compact.
    int32_t (*relocate)(void *context, uint64_t from, uint64_t to, uint32_t order);
    // Wakes background reclaim of a node. Free memory fell below a watermark for requests of this
    // order that may use zones up to `highest_zone`. Called repeatedly while that lasts. A task that
    // is in this function or in `wake_compaction` causes no further calls of either; with more than
    // eight such tasks, other tasks cause none.
    void (*wake_reclaim)(void *context, uint32_t node, uint32_t order, uint32_t highest_zone);
    // Wakes background compaction of a node: have pageyard_core_compact_background called.
    void (*wake_compaction)(void *context, uint32_t node);
    // Reports that a request without PAGEYARD_NOWARN failed. At most one call per ten seconds of
    // `now`; if `now` is null, one call in total.
    void (*warn)(void *context, uint32_t order, uint32_t flags);
    // Events, defences and reports of free memory. If null: none.
    const struct pageyard_hooks *hooks;
    // PAGEYARD_DRAIN_ON_FAILURE, or 0.
    uint64_t flags;
    // For pageyard_kernel_init and pageyard_page: the virtual address at which physical address 0 is
    // mapped, and all memory after it. Need not be a valid address itself. If null: memory is mapped
    // one to one.
    void *direct_map;
    // For pageyard_kernel_init: memory from this physical address on is not mapped, and is left out.
    // If 0: all memory is mapped.
    uint64_t mapped;
    // For pageyard_kernel_init: one of the PAGEYARD_ENGINE numbers. 0: PAGEYARD_ENGINE_LINUX612.
    // pageyard_core_create takes the engine from the layout; this field is then 0 or the same.
    uint64_t engine;
} pageyard_platform;

// A range of physical memory as a boot loader reports it. The maps of PVH and Multiboot 2, whose
// entries have 24 bytes, are arrays of this structure.
typedef struct pageyard_memory {
    // Physical address of the first byte.
    uint64_t start;
    // Size in bytes. May be 0.
    uint64_t size;
    // Numbered as in an e820 map: PAGEYARD_MEMORY_USABLE, PAGEYARD_MEMORY_ACPI. All other numbers
    // mean that the range is in use.
    uint32_t kind;
    // Ignored.
    uint32_t reserved;
} pageyard_memory;

// A range of physical addresses from `start` up to, but not including, `end`.
typedef struct pageyard_addresses {
    // First byte.
    uint64_t start;
    // One past the last byte.
    uint64_t end;
} pageyard_addresses;

// Where searches of pageyard_core_alloc_contig_pages_from continue. Set it to zero; then the fields are
// the library's. Keep one for each range in which you search, such as a zone. Any number of threads
// may share it.
typedef struct pageyard_cursor {
    // The frame at which the next search begins: a hint.
    uint64_t next;
    // Pageblocks that searches with this cursor have looked at.
    uint64_t looks;
} pageyard_cursor;

// Which translations each CPU has flushed from its TLB. Set the structure and the words of
// `acknowledged` to zero, then set `struct_size` to sizeof(struct pageyard_epochs), `version` to
// PAGEYARD_VERSION, `acknowledged` and `cpu_count`. All CPUs are online then: call
// pageyard_core_epochs_offline for each that has not started.
//
// The thread that unmaps pages begins an epoch, then interrupts the CPUs that
// pageyard_core_epochs_lagging names. Each calls pageyard_core_epochs_acknowledge, at the latest at its
// next tick or context switch.
//
// Owner: structure and words stay the caller's, who does not change them once they are in use.
typedef struct pageyard_epochs {
    // sizeof(struct pageyard_epochs).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // The library's: the last epoch that began.
    uint64_t now;
    // A word for each CPU, the library's: the last epoch that the CPU acknowledged.
    uint64_t *acknowledged;
    // Number of CPUs, at least 1.
    size_t cpu_count;
} pageyard_epochs;

// A block of a batch. The library's.
typedef struct pageyard_shootdown_block {
    // First frame.
    uint64_t pfn;
    // Its order.
    uint8_t order;
    // Not used.
    uint8_t unused[7];
} pageyard_shootdown_block;

// Blocks to be freed once every CPU has flushed their translations. Set the structure to zero, then
// set `struct_size` to sizeof(struct pageyard_shootdown), `version` to PAGEYARD_VERSION, `epochs`,
// `blocks` and `room`.
//
// The blocks stay allocated meanwhile and belong to the batch: only it frees them, once, and `relocate`
// must refuse them. A batch that is given up leaves its blocks allocated: memory is lost, and never
// handed out twice. A block that is in two batches is not noticed.
//
// Threads: one at a time for a batch. A hook that calls again with the batch gets PAGEYARD_ERR_BUSY.
// Owner: structure and array stay the caller's, who changes neither while the batch has blocks.
typedef struct pageyard_shootdown {
    // sizeof(struct pageyard_shootdown).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // What the batch waits for.
    struct pageyard_epochs *epochs;
    // Room for blocks.
    struct pageyard_shootdown_block *blocks;
    // Number of entries of `blocks`.
    size_t room;
    // The library's: number of blocks in the batch.
    size_t count;
    // The library's: the epoch for which the batch waits. 0: none was begun.
    uint64_t epoch;
    // The library's: 1 during a call with this batch.
    uint64_t busy;
} pageyard_shootdown;

// Place of a block in a balloon. Set it to zero; then it is the library's.
typedef struct pageyard_lent {
    // First frame.
    uint64_t pfn;
    // 0: no block; 1: lent; 2: asked back.
    uint64_t phase;
} pageyard_lent;

// Blocks of one order that are lent to a hypervisor. Set the structure and the entries of `lent` to
// zero, then set `struct_size` to sizeof(struct pageyard_balloon), `version` to PAGEYARD_VERSION,
// `lent`, `room` and `order`.
//
// 1. pageyard_core_balloon_lend takes a free block out of the yard. The caller unmaps it and releases
//    it to the hypervisor.
// 2. pageyard_core_balloon_ask names a block that is wanted back. The caller asks the hypervisor to map
//    it again.
// 3. pageyard_core_balloon_acknowledge frees it once the hypervisor has answered.
//
// A block that is not acknowledged stays out of the yard, also if the balloon is given up. `relocate` must
// refuse blocks of a balloon.
//
// Threads: one at a time for a balloon. A hook that calls again with the balloon gets PAGEYARD_ERR_BUSY.
// Owner: structure and array stay the caller's, who changes neither while the balloon has blocks.
typedef struct pageyard_balloon {
    // sizeof(struct pageyard_balloon).
    uint32_t struct_size;
    // PAGEYARD_VERSION.
    uint32_t version;
    // Room for blocks.
    struct pageyard_lent *lent;
    // Number of entries of `lent`.
    size_t room;
    // The order of all blocks.
    uint32_t order;
    // The library's: 1 during a call with this balloon.
    uint32_t busy;
} pageyard_balloon;

// Figures and counters of a yard or a zone. Before the structure is filled in, set `struct_size`
// to sizeof(struct pageyard_stats) and `version` to PAGEYARD_VERSION.
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
    // Watermarks in pages, without boost. At min, only urgent requests are served; below low,
    // background reclaim is woken; at high, it stops.
    uint64_t min;
    // See min.
    uint64_t low;
    // See min.
    uint64_t high;
    // Blocks allocated.
    uint64_t allocs;
    // Blocks freed.
    uint64_t frees;
    // Failed requests.
    uint64_t failures;
    // Refills of per-CPU lists.
    uint64_t refills;
    // Acquisitions of zone locks.
    uint64_t lock_holds;
    // Pages removed from the zones' free lists. 0 on the packed engine, which has none; there
    // `refills` is what moves pages to CPUs.
    uint64_t pages_taken;
    // Pages returned to the zones' free lists. 0 on the packed engine.
    uint64_t pages_returned;
    // Blocks allocated from a pageblock of another type than requested.
    uint64_t mismatches;
    // Pages allocated, contiguous ranges included. alloc_pages - free_pages is the number of pages
    // that callers own, however blocks were split. If nothing is out of use, it equals
    // managed - free - cached.
    uint64_t alloc_pages;
    // Pages freed.
    uint64_t free_pages;
} pageyard_stats;

// Success.
#define PAGEYARD_OK 0

// The handle is null, misaligned or destroyed.
#define PAGEYARD_ERR_HANDLE -1

// A required pointer is null, or a number is out of range.
#define PAGEYARD_ERR_ARGUMENT -2

// The structure's size or version is unknown to this library, or a field that it does not know is
// set.
#define PAGEYARD_ERR_VERSION -3

// An option has an invalid value. pageyard_last_error names the option.
#define PAGEYARD_ERR_OPTION -4

// The operating system refused an operation. pageyard_last_error describes it.
#define PAGEYARD_ERR_SYSTEM -5

// The layout is invalid.
#define PAGEYARD_ERR_LAYOUT -6

// The room is smaller than pageyard_core_room requires.
#define PAGEYARD_ERR_ROOM -7

// Another yard of this program uses other lock functions. All yards must use the same.
#define PAGEYARD_ERR_LOCKS -8

// The text did not fit in the buffer.
#define PAGEYARD_ERR_BUFFER -9

// There is no free block that the request may use.
#define PAGEYARD_ERR_NO_MEMORY -10

// The flags of the request contradict each other.
#define PAGEYARD_ERR_FLAGS -11

// The calling CPU is unknown to the yard or offline.
#define PAGEYARD_ERR_CPU -12

// There is no such node or zone.
#define PAGEYARD_ERR_NODE -13

// This library was built without the packed engine. scripts/install-capi.sh --packed builds it in.
#define PAGEYARD_ERR_ENGINE -14

// The packed engine does not have what was requested: hooks and flags that check, fill or unmap
// memory, or guards. PAGEYARD_ENGINE_LINUX612 has them.
#define PAGEYARD_ERR_NOT_ON_PACKED -15

// The caller's array has no room for another entry.
#define PAGEYARD_ERR_FULL -16

// The block does not belong to this yard.
#define PAGEYARD_ERR_FOREIGN -20

// The frame is a hole, or was never managed by the allocator.
#define PAGEYARD_ERR_RESERVED -21

// The block is already free, or a frame of the range was already released.
#define PAGEYARD_ERR_DOUBLE_FREE -22

// The address or frame number is not a multiple of the block's size.
#define PAGEYARD_ERR_MISALIGNED -23

// The block was allocated at another order.
#define PAGEYARD_ERR_WRONG_ORDER -24

// The frame is inside a block, not at its start.
#define PAGEYARD_ERR_NOT_HEAD -25

// The block is out of use because one of its pages is bad or faulty.
#define PAGEYARD_ERR_OUT_OF_USE -26

// A frame of the range was not reserved when the yard was created.
#define PAGEYARD_ERR_NOT_RESERVED -27

// The range is invalid: empty, across zone boundaries, not in whole sections, or with memory that
// is unexpectedly present or absent.
#define PAGEYARD_ERR_RANGE -30

// A frame of the range is in use and cannot be migrated; pageyard_unregister or pageyard_destroy was
// called from a registered function; or a hook or interrupt handler used the batch or balloon of the call that it
// is in.
#define PAGEYARD_ERR_BUSY -31

// A CPU has not acknowledged the epoch yet.
#define PAGEYARD_ERR_PENDING -32

// The batch or the block is in another phase: the batch waits for an epoch and takes no block, none was
// begun for it, or the block was not asked back.
#define PAGEYARD_ERR_PHASE -33

// The block is not in the balloon.
#define PAGEYARD_ERR_NOT_LENT -34

// There is no such setting, it cannot be read or written, or the value is not allowed.
#define PAGEYARD_ERR_KNOB -40

// An invariant of the yard does not hold: a caller or a hook has corrupted it.
#define PAGEYARD_ERR_INVALID -41

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns an English sentence for a status, without a newline. Never returns null; an unknown
// number has a sentence too.
//
// Threads: any. Owner: the library owns the text, which is constant and lives as long as the
// library is loaded.
const char *pageyard_strerror(pageyard_status status);

// Fills in settings: the defaults, or those of a profile.
//
// Errors: PAGEYARD_ERR_ARGUMENT, also for an unknown profile; PAGEYARD_ERR_VERSION.
//
// Threads: any. Owner: everything stays the caller's.
pageyard_status pageyard_core_knobs(uint32_t profile, struct pageyard_knobs *knobs);

// Computes how many bytes of room a yard with this layout needs: 16 per frame, or 1.3 with
// PAGEYARD_ENGINE_PACKED, and some more per zone, CPU and range. If the room itself is one of the reserved ranges, the layout must contain
// that range, with any bounds, before this call.
//
// Errors: PAGEYARD_ERR_ARGUMENT, also for an unknown engine; PAGEYARD_ERR_ENGINE;
// PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT for zones that end before they begin or exceed the
// address space. pageyard_core_create validates the rest of the
// layout.
//
// Threads: any. Owner: everything stays the caller's.
pageyard_status pageyard_core_room(const struct pageyard_layout *layout,
                                   size_t *bytes);

// Creates a yard in which every usable frame that is not reserved is free.
//
// `room` is memory for the yard's maps: at least as many `bytes` as pageyard_core_room returns, at
// any address, with any contents. It must not overlap memory that the yard allocates, unless the
// layout reserves it. `platform` may be null: one CPU, spin locks, no hooks. If `why` is not null,
// it receives a sentence that says what is wrong with the layout, the room, the engine, or a function of
// the platform that this core is built without, at most `why_size` bytes with its terminating zero. It is
// empty after other errors, such as invalid hooks or flags.
//
// Errors: PAGEYARD_ERR_ARGUMENT, also for invalid hooks, an unknown engine or unknown flags, or a
// platform with another engine or with a function that this core is built without; PAGEYARD_ERR_VERSION; PAGEYARD_ERR_ENGINE,
// PAGEYARD_ERR_NOT_ON_PACKED; PAGEYARD_ERR_LAYOUT; PAGEYARD_ERR_ROOM; PAGEYARD_ERR_LOCKS. The room
// may then have been written to.
//
// Threads: any. Other threads may use the yard once this function has returned and the handle has
// been passed to them with proper synchronization.
//
// Owner: the library owns the room until pageyard_core_destroy; everything else stays the
// caller's.
pageyard_status pageyard_core_create(const struct pageyard_layout *layout,
                                     const struct pageyard_platform *platform,
                                     void *room,
                                     size_t bytes,
                                     struct pageyard_core **yard,
                                     char *why,
                                     size_t why_size);

// Destroys a yard. Frames that were allocated from it are not affected.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: no other thread may use the yard during or after the call. Owner: the caller owns the
// room again.
pageyard_status pageyard_core_destroy(struct pageyard_core *yard);

// Creates a kernel's yard from a memory map. The yard has one node, with a zone each below 16 MiB,
// below 4 GiB and above. Its maps are placed in free memory and are not part of the yard. All CPUs
// are offline but the caller's; each other calls pageyard_core_cpu_up when it starts.
//
// `ranges` is the memory map, in any order. Ranges may overlap: a page is usable if a usable range
// contains it and no range of another kind touches it. `reserved` is what is in use besides: the
// kernel's image, its boot stack and page tables, an initial ramdisk. pageyard_core_release frees it
// later, as it frees ACPI tables. The lists may lie in reserved memory only. `platform` may be null:
// one to one map of all memory, one CPU that calls, spin locks. Its `direct_map` and `mapped` say where
// memory is mapped, its `engine` which engine the yard runs on. The settings are those of PAGEYARD_KNOBS_SMALL if it has no `reclaim`. If `why`
// is not null, it receives a sentence that says what is wrong, at most `why_size` bytes with its
// terminating zero, or an empty text.
//
// Errors: PAGEYARD_ERR_ARGUMENT for a null list or yard, an invalid number of CPUs, engine or flag,
// invalid hooks, or a function of the platform that this core is built without; PAGEYARD_ERR_ENGINE, PAGEYARD_ERR_NOT_ON_PACKED; PAGEYARD_ERR_VERSION; PAGEYARD_ERR_LAYOUT for an invalid range or without any usable
// memory; PAGEYARD_ERR_ROOM if no free memory has room for the maps; PAGEYARD_ERR_CPU for an invalid
// answer of `cpu`; PAGEYARD_ERR_LOCKS. Free memory may then have been written to.
//
// Threads: one, before other CPUs start. Owner: the library owns all memory that is usable and not
// reserved, except for pages that it allocates; lists and platform stay the caller's.
pageyard_status pageyard_kernel_init(const struct pageyard_memory *ranges,
                                     size_t range_count,
                                     const struct pageyard_addresses *reserved,
                                     size_t reserved_count,
                                     uint32_t cpus,
                                     const struct pageyard_platform *platform,
                                     struct pageyard_core **yard,
                                     char *why,
                                     size_t why_size);

// Allocates one page on the platform's current CPU and returns its address in the platform's
// `direct_map`, or null if there is no free page or the handle is invalid. As a request with
// PAGEYARD_KERNEL, but never reclaims or sleeps, and does not report a failure. The page keeps its
// old contents. A page whose address is null is left to pageyard_core_alloc.
//
// Errors: as pageyard_core_alloc; the answer is null. pageyard_core_alloc says which.
//
// Threads: any, and interrupt handlers if the lock functions disable interrupts. Owner: the caller
// owns the page until pageyard_page_free.
void *pageyard_page(const struct pageyard_core *yard);

// Frees a page that pageyard_page returned, or one of pageyard_core_alloc by its address in the
// `direct_map`. Does nothing if the address is null.
//
// Errors: as pageyard_core_free; PAGEYARD_ERR_MISALIGNED for an address inside a page.
//
// Threads: as pageyard_page. Owner: the library owns the page again.
pageyard_status pageyard_page_free(const struct pageyard_core *yard, void *page);

// Allocates a block of 2^order pages, aligned to its size, and stores its first frame in `pfn`.
// The block keeps its old contents unless PAGEYARD_ZERO is set and there is a `zero` hook.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an order above PAGEYARD_MAX_ORDER or a
// null `pfn`; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
//
// Threads: any. Interrupt handlers may call it without PAGEYARD_DIRECT_RECLAIM if the lock
// functions disable interrupts. Owner: the caller owns the block until pageyard_core_free.
pageyard_status pageyard_core_alloc(const struct pageyard_core *yard,
                                    uint32_t order,
                                    uint32_t flags,
                                    uint64_t *pfn);

// Like pageyard_core_alloc, but prefers a node. With PAGEYARD_THISNODE, only that node is used.
//
// Errors: as pageyard_core_alloc; PAGEYARD_ERR_NODE.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_on(const struct pageyard_core *yard,
                                       uint32_t node,
                                       uint32_t order,
                                       uint32_t flags,
                                       uint64_t *pfn);

// Frees a block. `order` must be the order at which it was allocated.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_CPU. For an invalid block:
// PAGEYARD_ERR_FOREIGN, PAGEYARD_ERR_RESERVED, PAGEYARD_ERR_DOUBLE_FREE, PAGEYARD_ERR_MISALIGNED,
// PAGEYARD_ERR_WRONG_ORDER, PAGEYARD_ERR_NOT_HEAD, PAGEYARD_ERR_OUT_OF_USE.
//
// Threads: as pageyard_core_alloc. If several threads free the same block at once, only one call
// returns PAGEYARD_OK. Owner: the library owns the block again.
pageyard_status pageyard_core_free(const struct pageyard_core *yard, uint64_t pfn, uint32_t order);

// Allocates up to `count` single pages in one call, on the exact engine cheaper than one call per page.
// Stores the frames in `pfns` and their number in `got`. Allocating fewer pages than requested, or
// none, is not an error.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_bulk(const struct pageyard_core *yard,
                                         uint32_t flags,
                                         uint64_t *pfns,
                                         size_t count,
                                         size_t *got);

// Frees `count` blocks of one order, which is cheaper than one call per block. Stops at the first
// invalid block. If `done` is not null, it receives the number of blocks freed; after an error
// that is the index of the invalid block. That block and all later ones are unchanged. PAGEYARD_ERR_HANDLE
// and PAGEYARD_ERR_ARGUMENT leave `done` unwritten: nothing is freed then.
//
// Errors: as pageyard_core_free.
//
// Threads, owner: as pageyard_core_free.
pageyard_status pageyard_core_free_bulk(const struct pageyard_core *yard,
                                        const uint64_t *pfns,
                                        size_t count,
                                        uint32_t order,
                                        size_t *done);

// Splits an allocated block into blocks of the smaller order `into`. Each is freed separately.
//
// Errors: as pageyard_core_free; PAGEYARD_ERR_WRONG_ORDER if `into` is larger than `order`.
//
// Threads: the block's owner. Owner: the caller owns the parts.
pageyard_status pageyard_core_split(const struct pageyard_core *yard,
                                    uint64_t pfn,
                                    uint32_t order,
                                    uint32_t into);

// Sets whether an allocated block is movable (`movable` is 0 or 1). The library may pass a movable
// block to the `relocate` hook.
//
// Errors: as pageyard_core_free.
//
// Threads: the block's owner. Owner: no ownership changes.
pageyard_status pageyard_core_set_movable(const struct pageyard_core *yard,
                                          uint64_t pfn,
                                          uint32_t order,
                                          int32_t movable);

// Allocates exactly the frames from `start` up to, but not including, `end`. They become single
// pages of the type `page_type` (a PAGEYARD_TYPE number) or, with PAGEYARD_COMP, one block.
// Movable blocks in the range are migrated through the `relocate` hook.
//
// With PAGEYARD_COMP, the range must be exactly one block: 2^order pages, aligned to their size, at most
// the largest order, and not part of a larger free block once it is vacated. The packed engine does not
// require the last. On the exact engine a range below 2 MiB whose neighbours are free is therefore
// PAGEYARD_ERR_RANGE; pageyard_core_alloc serves such an order.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY,
// PAGEYARD_ERR_NO_MEMORY. Nothing is allocated then, but blocks may have been migrated.
//
// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig.
pageyard_status pageyard_core_alloc_contig(const struct pageyard_core *yard,
                                           uint64_t start,
                                           uint64_t end,
                                           uint32_t page_type,
                                           uint32_t flags);

// Allocates `pages` contiguous single pages from anywhere in the yard; they may exceed the largest
// block. The first frame is a multiple of `align`, a power of two, and is stored in `pfn`.
// Otherwise like pageyard_core_alloc_contig.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_RANGE if `pages` is 0 or
// `align` is not a power of two; PAGEYARD_ERR_NO_MEMORY. Nothing is allocated then, but blocks may
// have been migrated.
//
// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig.
pageyard_status pageyard_core_alloc_contig_pages(const struct pageyard_core *yard,
                                                 uint64_t pages,
                                                 uint64_t align,
                                                 uint32_t page_type,
                                                 uint32_t flags,
                                                 uint64_t *pfn);

// Like pageyard_core_alloc_contig_pages, but searches only `within` (null: the whole yard), and begins
// behind the range that the last call with this cursor found. What lies before it is searched only if
// there is no place behind. For embedders that allocate such ranges often.
//
// Errors: as pageyard_core_alloc_contig_pages.
//
// Threads: any that may sleep. Owner: the caller owns the frames until pageyard_core_free_contig. The
// cursor stays the caller's.
pageyard_status pageyard_core_alloc_contig_pages_from(const struct pageyard_core *yard,
                                                      struct pageyard_cursor *cursor,
                                                      uint64_t pages,
                                                      uint64_t align,
                                                      const struct pageyard_range *within,
                                                      uint32_t page_type,
                                                      uint32_t flags,
                                                      uint64_t *pfn);

// Allocates `pages` single pages in as few contiguous ranges as possible: as one range, else as blocks
// that are as large as possible, down to single frames. Stores the ranges in `ranges`, which has
// `count` entries, and their number in `got`. Larger blocks are taken only if they are free; requests
// for single pages reclaim, compact or fail. One range of more than the largest block is migrated
// together if PAGEYARD_DIRECT_RECLAIM is set. PAGEYARD_COMP is ignored.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_FULL if the memory found lies in
// more than `count` ranges; PAGEYARD_ERR_NO_MEMORY, PAGEYARD_ERR_FLAGS, PAGEYARD_ERR_CPU. Nothing is
// allocated then, and the contents of `ranges` are unspecified.
//
// Threads: as pageyard_core_alloc. Owner: the caller owns the pages. Each range is freed by
// pageyard_core_free_contig, or each page by pageyard_core_free.
pageyard_status pageyard_core_alloc_range_or_scatter(const struct pageyard_core *yard,
                                                     uint64_t pages,
                                                     uint32_t flags,
                                                     struct pageyard_range *ranges,
                                                     size_t count,
                                                     size_t *got);

// Frees the frames from `start` up to, but not including, `end`. They must all be single pages, or
// form exactly one block. An empty range is no error.
//
// Errors: as pageyard_core_free, for the first invalid frame; PAGEYARD_ERR_RANGE if the range ends before
// it begins.
//
// Threads: any, but not interrupt handlers. Owner: the library owns the frames again.
pageyard_status pageyard_core_free_contig(const struct pageyard_core *yard,
                                          uint64_t start,
                                          uint64_t end);

// Like pageyard_core_alloc, but begins at the next node in turn, and goes on to the nearest node that
// can serve the request. `nodes` has bit N set for node N; without any bit the node is the CPU's own.
// `turn` counts the requests. Set it to zero; any number of threads may share it.
//
// Errors: as pageyard_core_alloc_on.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_interleaved(const struct pageyard_core *yard,
                                                uint64_t nodes,
                                                uint32_t *turn,
                                                uint32_t order,
                                                uint32_t flags,
                                                uint64_t *pfn);

// Like pageyard_core_alloc, but prefers a set of nodes, of which the nearest comes first: without
// direct reclaim on these, else on any node with all means that the flags allow. `nodes` has bit N set
// for node N.
//
// Errors: as pageyard_core_alloc_on.
//
// Threads, owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_preferring(const struct pageyard_core *yard,
                                               uint64_t nodes,
                                               uint32_t order,
                                               uint32_t flags,
                                               uint64_t *pfn);

// Like pageyard_core_alloc, but the first frame is a multiple of `align`, a power of two in pages, and
// all frames of the block lie below `below`: for a device that addresses 32 bits, `below` is 1 << 20.
// 0 for either is no constraint. Nothing is migrated or reclaimed; pageyard_core_alloc_contig_pages
// migrates. May search the free lists of a zone under its lock.
//
// Errors: as pageyard_core_alloc; PAGEYARD_ERR_ARGUMENT also for an alignment that is not a power of
// two. PAGEYARD_ERR_NO_MEMORY also means that no free block lies at such a place.
//
// Threads: any, but not interrupt handlers. Owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_with(const struct pageyard_core *yard,
                                         uint32_t order,
                                         uint32_t flags,
                                         uint64_t align,
                                         uint64_t below,
                                         uint64_t *pfn);

// Allocates the block of 2^order pages that begins at frame `pfn`. Of the flags, only the type and
// PAGEYARD_ZERO matter: the frame determines the zone. All of the block must be free; nothing is
// migrated. The zone must keep its MIN watermark.
//
// Errors: as pageyard_core_alloc; PAGEYARD_ERR_MISALIGNED if the frame is not a multiple of the
// block's size, PAGEYARD_ERR_FOREIGN if it lies in no zone, PAGEYARD_ERR_RESERVED if a frame was never
// given to the yard, PAGEYARD_ERR_BUSY if one is in use, out of use or in an isolated pageblock.
//
// Threads: any, but not interrupt handlers. Owner: as pageyard_core_alloc.
pageyard_status pageyard_core_alloc_at(const struct pageyard_core *yard,
                                       uint64_t pfn,
                                       uint32_t order,
                                       uint32_t flags);

// Like pageyard_core_alloc, but takes locks only with `try_lock` and never reclaims: for callers that
// may have interrupted a holder of the library's locks, such as a non-maskable interrupt. Makes one
// attempt, down to the min watermark, for the orders that per-CPU lists keep: 0 to 3, and 9. Flags that
// allow reclaim, wake it or give access to reserves are ignored. Expect failures.
//
// Errors: as pageyard_core_alloc. PAGEYARD_ERR_NO_MEMORY also means that a lock was taken, another
// order, or on the packed engine, for an order above 0, that the few pageblocks looked at have no such
// block.
//
// Threads: any, interrupt handlers of every kind included, if `cpu`, `try_lock`, `unlock` and, with
// PAGEYARD_ZERO, `zero` may run there; with struct pageyard_hooks also `now` and those of its functions
// that are set, except `report_free`. A handler that cannot be masked frees the block with
// pageyard_core_free_nowait. Owner: as pageyard_core_alloc.
pageyard_status pageyard_core_try_alloc(const struct pageyard_core *yard,
                                        uint32_t order,
                                        uint32_t flags,
                                        uint64_t *pfn);

// Like pageyard_core_free, but takes locks only with `try_lock`, for the callers of
// pageyard_core_try_alloc. If the locks are taken, the block waits in a queue of its zone until a request,
// a free, pageyard_core_drain or pageyard_core_tick takes the zone lock, or a request lacks memory. Until
// then it is neither allocated nor free.
//
// Errors: as pageyard_core_free.
//
// Threads: as pageyard_core_try_alloc. Owner: the library owns the block again.
pageyard_status pageyard_core_free_nowait(const struct pageyard_core *yard,
                                          uint64_t pfn,
                                          uint32_t order);

// Flushes the TLB of the calling CPU, by a call of `flush` with `context`, and acknowledges all epochs
// that had begun before. `flush` removes all translations of the CPU, global ones and those of other
// address spaces too. It must not leave by an exception or longjmp.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_CPU if `cpu` is unknown. `flush` is
// not called then.
//
// Threads: on the CPU `cpu`, also in interrupt handlers. One call for a CPU does not overlap another,
// other than by interrupting it. Owner: no ownership changes.
pageyard_status pageyard_core_epochs_acknowledge(struct pageyard_epochs *epochs,
                                                 uint32_t cpu,
                                                 void (*flush)(void *context),
                                                 void *context);

// Declares that a CPU that was offline is about to use translations again, and flushes its TLB, as
// pageyard_core_epochs_acknowledge does.
//
// Errors: as pageyard_core_epochs_acknowledge.
//
// Threads, owner: as pageyard_core_epochs_acknowledge.
pageyard_status pageyard_core_epochs_online(struct pageyard_epochs *epochs,
                                            uint32_t cpu,
                                            void (*flush)(void *context),
                                            void *context);

// Declares that a CPU uses no translations any more: no epoch waits for it.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION; PAGEYARD_ERR_CPU if `cpu` is unknown.
//
// Threads: any. Owner: no ownership changes.
pageyard_status pageyard_core_epochs_offline(struct pageyard_epochs *epochs, uint32_t cpu);

// Stores in `cpu` the lowest CPU, not below `from`, that has not acknowledged the epoch: one to
// interrupt. Stores UINT32_MAX if there is none.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION.
//
// Threads: any, also interrupt handlers. Owner: no ownership changes.
pageyard_status pageyard_core_epochs_lagging(struct pageyard_epochs *epochs,
                                             uint64_t epoch,
                                             uint32_t from,
                                             uint32_t *cpu);

// Takes a block over from its owner. `order` must be the order at which it was allocated.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY;
// PAGEYARD_ERR_FULL; PAGEYARD_ERR_PHASE if an epoch was begun for the batch: it takes no block until it is freed. For an
// invalid block: as pageyard_core_free. The block is still its owner's.
//
// Threads: any, also interrupt handlers; one at a time for a batch. Owner: the batch owns the block.
pageyard_status pageyard_core_shootdown_add(const struct pageyard_core *yard,
                                            struct pageyard_shootdown *batch,
                                            uint64_t pfn,
                                            uint32_t order);

// Begins the epoch for which the batch waits, and stores its number in `epoch`. The translations of all
// blocks of the batch must have been removed before. A second call begins another one.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY. None was begun then.
//
// Threads: any, also interrupt handlers; one at a time for a batch. Owner: no ownership changes.
pageyard_status pageyard_core_shootdown_begin(struct pageyard_shootdown *batch,
                                              uint64_t *epoch);

// Frees all blocks of a batch if every CPU has acknowledged its epoch. The batch is empty then, and
// can be used again. If `freed` is not null, it receives the number of blocks freed.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_CPU,
// PAGEYARD_ERR_BUSY; PAGEYARD_ERR_PHASE if no epoch was begun; PAGEYARD_ERR_PENDING if a CPU has not acknowledged it. As
// pageyard_core_free if a block was added twice, or was freed by another than the batch and has not
// been allocated again: it leaves the batch, and another call frees the rest. No block is freed then.
//
// Threads: any, also interrupt handlers whose lock functions disable interrupts; one at a time for a
// batch. Owner: the library owns the blocks again.
pageyard_status pageyard_core_shootdown_free(const struct pageyard_core *yard,
                                             struct pageyard_shootdown *batch,
                                             size_t *freed);

// Takes a free block out of the yard, without reclaim, and stores its first frame in `pfn`.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY;
// PAGEYARD_ERR_FULL; PAGEYARD_ERR_NO_MEMORY if no block is free that a request with these flags may use, or a zone would
// fall to its low watermark, or for flags that contradict each other or an unknown CPU.
//
// Threads: any; one at a time for a balloon. Interrupt handlers may call it if the lock functions
// disable interrupts. Owner: the balloon owns the block.
pageyard_status pageyard_core_balloon_lend(const struct pageyard_core *yard,
                                           struct pageyard_balloon *balloon,
                                           uint32_t flags,
                                           uint64_t *pfn);

// Chooses a block to get back from the hypervisor, and stores its first frame in `pfn`. Stores
// UINT64_MAX if there is none that was not asked for.
//
// Errors: PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_BUSY.
//
// Threads: any, also interrupt handlers; one at a time for a balloon. Owner: no ownership changes.
pageyard_status pageyard_core_balloon_ask(struct pageyard_balloon *balloon, uint64_t *pfn);

// Frees a block that the hypervisor has mapped again.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_VERSION, PAGEYARD_ERR_CPU,
// PAGEYARD_ERR_BUSY; PAGEYARD_ERR_NOT_LENT for a block that is not in the balloon; PAGEYARD_ERR_PHASE for one that
// pageyard_core_balloon_ask has not named since it was lent. As pageyard_core_free if another caller
// has freed it: it leaves the balloon.
//
// Threads: as pageyard_core_balloon_lend. Owner: the library owns the block again.
pageyard_status pageyard_core_balloon_acknowledge(const struct pageyard_core *yard,
                                                  struct pageyard_balloon *balloon,
                                                  uint64_t pfn);

// Runs one tick of the statistics worker for a CPU: folds its counters and shrinks its idle lists.
// Call it about once a second for every CPU that is not idle, on that CPU or while that CPU makes
// no requests.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or offline.
//
// Threads: one at a time per CPU. Owner: no ownership changes.
pageyard_status pageyard_core_tick(const struct pageyard_core *yard, uint32_t cpu);

// Folds a CPU's parts of the zones' counters, without the rest of a tick. Call it when a CPU stops its
// tick because it is idle, so that what other CPUs read is exact, on that CPU or while that CPU makes no
// requests.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or offline.
//
// Threads: one at a time per CPU. Owner: no ownership changes.
pageyard_status pageyard_core_fold(const struct pageyard_core *yard,
                                   uint32_t cpu);

// Drains the per-CPU lists of all CPUs to the zones, where blocks merge. Returns at once if
// another thread is already draining.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any, but not interrupt handlers. Owner: no ownership changes.
pageyard_status pageyard_core_drain(const struct pageyard_core *yard);

// Runs one step of background compaction of a node. `sleep_ns` receives the longest time to sleep
// before the next step, in nanoseconds. UINT64_MAX means: until the `wake_compaction` hook is
// called.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_NODE.
//
// Threads: one at a time per node. Owner: no ownership changes.
pageyard_status pageyard_core_compact_background(const struct pageyard_core *yard,
                                                 uint32_t node,
                                                 uint64_t *sleep_ns);

// Reports free blocks to the `report_free` hook, if a report is due: two seconds of `now` after the
// first of the blocks became free. `sleep_ns` receives the time to wait before the next call, in
// nanoseconds. UINT64_MAX means that there is nothing to report; ask again after a second or so.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT.
//
// Threads: any that may sleep, one at a time. Owner: no ownership changes.
pageyard_status pageyard_core_report_free(const struct pageyard_core *yard, uint64_t *sleep_ns);

// Compacts all zones, as far as blocks can be moved.
//
// Errors: PAGEYARD_ERR_HANDLE.
//
// Threads: any that may sleep. Owner: changes only for blocks that the `relocate` hook moves.
pageyard_status pageyard_core_compact(const struct pageyard_core *yard);

// Brings a CPU of the layout online.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or already online.
//
// Threads: any, before that CPU makes requests. Owner: no ownership changes.
pageyard_status pageyard_core_cpu_up(const struct pageyard_core *yard, uint32_t cpu);

// Takes a CPU offline and drains its lists to the zones. Requests on that CPU are refused until it
// is online again.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_CPU if the CPU is unknown or already offline.
//
// Threads: must be called on another CPU, with no request in progress on the CPU that goes
// offline. Owner: no ownership changes.
pageyard_status pageyard_core_cpu_dead(const struct pageyard_core *yard, uint32_t cpu);

// Brings memory online: whole sections (128 MiB) of a zone's span, none of which is online. All of
// it becomes free.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY.
//
// Threads: any that may sleep. Owner: the library owns the frames.
pageyard_status pageyard_core_online(const struct pageyard_core *yard,
                                     uint64_t start,
                                     uint64_t end);

// Frees memory that the layout reserved, such as an initial ramdisk or the sections of an image that
// only its start needs. Every frame from `start` up to, but not including, `end` must be in a usable
// and in a reserved range of the layout, and not released before. Watermarks and limits follow. If
// `why` is not null, it receives a sentence that names the first frame at fault, at most `why_size`
// bytes with its terminating zero, or an empty text.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_FOREIGN for a frame outside the zones,
// PAGEYARD_ERR_NOT_RESERVED, PAGEYARD_ERR_DOUBLE_FREE for a frame that was released before (on the
// packed engine PAGEYARD_ERR_NOT_RESERVED),
// PAGEYARD_ERR_RANGE if the range is empty, contains a hole, or a hook of a hotplug function calls
// this. Nothing has changed then.
//
// Threads: any that may sleep. Owner: the library owns the frames.
pageyard_status pageyard_core_release(const struct pageyard_core *yard,
                                      uint64_t start,
                                      uint64_t end,
                                      char *why,
                                      size_t why_size);

// Checks every invariant of the yard in one pass over its lists and one over its frames. For
// debugging and tests: it takes milliseconds for each GiB. If `why` is not null, it receives a
// sentence that names the first invariant that does not hold, its zone and its frame, at most
// `why_size` bytes with its terminating zero, or an
// empty text.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_INVALID if an invariant does not hold.
//
// Threads: no other thread may be inside the yard during the call, and no hook may call this. It
// changes nothing. Owner: no ownership changes.
pageyard_status pageyard_core_validate(const struct pageyard_core *yard,
                                       char *why,
                                       size_t why_size);

// Takes memory offline: whole sections of a zone. Blocks in use there are migrated through the
// `relocate` hook.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_RANGE, PAGEYARD_ERR_BUSY, PAGEYARD_ERR_NO_MEMORY. All
// of the memory then stays online.
//
// Threads: any that may sleep. Owner: the caller owns the frames.
pageyard_status pageyard_core_offline(const struct pageyard_core *yard,
                                      uint64_t start,
                                      uint64_t end);

// Fills in the figures of all zones together.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION if the first two fields
// of the structure are not set.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_core_stats(const struct pageyard_core *yard, struct pageyard_stats *stats);

// Fills in the figures of one zone. `index` is its position: node by node, within a node from the
// highest kind down.
//
// Errors: as pageyard_core_stats; PAGEYARD_ERR_NODE if there is no zone at this position.
//
// Threads: any. The figures may be from slightly different times. Owner: the structure stays the
// caller's.
pageyard_status pageyard_core_zone_stats(const struct pageyard_core *yard,
                                         size_t index,
                                         struct pageyard_stats *stats);

// Writes one of the PAGEYARD_TEXT texts about the yard to a buffer of `size` bytes. The text is
// truncated to fit and, unless `size` is 0, ends with a zero byte. If `needed` is not null, it
// receives the size of the whole text with that byte. A later text may be longer.
//
// Errors: PAGEYARD_ERR_HANDLE; PAGEYARD_ERR_ARGUMENT for an unknown kind, or a null buffer with a
// nonzero size; PAGEYARD_ERR_BUFFER if the text was truncated.
//
// Threads: any. The figures of one text may be from slightly different times. Owner: the buffer
// stays the caller's.
pageyard_status pageyard_core_text(const struct pageyard_core *yard,
                                   uint32_t kind,
                                   char *buffer,
                                   size_t size,
                                   size_t *needed);

// Writes the value of a setting to a buffer, in the manner of pageyard_core_text. `name` is the
// kernel's name of the setting, such as "min_free_kbytes".
//
// Errors: as pageyard_core_text; PAGEYARD_ERR_KNOB if there is no such setting, or it cannot be
// read.
//
// Threads: any. Owner: name and buffer stay the caller's.
pageyard_status pageyard_core_knob(const struct pageyard_core *yard,
                                   const char *name,
                                   char *buffer,
                                   size_t size,
                                   size_t *needed);

// Sets a setting, given by name, to a value given as text, and applies everything that depends on
// it.
//
// Errors: PAGEYARD_ERR_HANDLE, PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_KNOB if there is no such
// setting, it cannot be written, or the value is not allowed.
//
// Threads: any. Owner: the strings stay the caller's.
pageyard_status pageyard_core_set_knob(const struct pageyard_core *yard,
                                       const char *name,
                                       const char *value);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PAGEYARD_CORE_H */
