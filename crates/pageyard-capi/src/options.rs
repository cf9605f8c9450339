//! Options for creating a yard.

use std::slice;
use std::time::Duration;

use ::pageyard::policy::Engine;
use ::pageyard::{Order, PAGE_SIZE, PAGEBLOCK_ORDER};
use pageyard_capi_core::engine::{PAGEYARD_ENGINE_PACKED, engine};
use pageyard_capi_core::flags::PAGEYARD_VERSION;
use pageyard_capi_core::sized::Growing;
use pageyard_capi_core::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_OPTION, PAGEYARD_ERR_VERSION, pageyard_status,
};
use pageyard_host::{Backing, Builder, GiveBack, HugePages, HugeSize, ThreadCache};

use crate::argument;
use crate::last_error::{self, done};

/// Use huge pages where the system supports them.
pub const PAGEYARD_HUGE_ADVISE: u32 = 0;
/// Leave huge pages to the system's policy.
pub const PAGEYARD_HUGE_SYSTEM: u32 = 1;
/// Use no huge pages.
pub const PAGEYARD_HUGE_NEVER: u32 = 2;
/// Collapse all memory into huge pages at creation, or fail, whatever the system's policy. Requires
/// PAGEYARD_PREFAULT.
pub const PAGEYARD_HUGE_COLLAPSE: u32 = 3;

/// Take all memory from the system at creation, not at the first write.
pub const PAGEYARD_PREFAULT: u32 = 1 << 0;
/// Initialize only a part of the memory at creation and the rest on demand. A large yard is then
/// ready at once. Only for PAGEYARD_ENGINE_LINUX612: the packed engine, which is the default,
/// initializes all memory at creation, which is one store a page.
pub const PAGEYARD_DEFERRED: u32 = 1 << 1;
/// Back the memory with an anonymous file that other processes can map (pageyard_file).
pub const PAGEYARD_MEMFD: u32 = 1 << 2;
/// Do not return idle memory to the system.
pub const PAGEYARD_KEEP_IDLE: u32 = 1 << 3;
/// Keep the system's page behind each address the same as long as the yard lives: for memory that is
/// registered with io_uring, VFIO or RDMA (pageyard_region). Nothing is returned to the system or
/// moved, and a child after fork reads zeros unless the memory is a file.
pub const PAGEYARD_PINNED: u32 = 1 << 4;
/// Use pages of 2 MiB of hugetlbfs, which an administrator has reserved. The size must be a multiple
/// of theirs. The memory is a file, as with PAGEYARD_MEMFD.
pub const PAGEYARD_HUGETLB_2M: u32 = 1 << 5;
/// Like PAGEYARD_HUGETLB_2M, with pages of 1 GiB.
pub const PAGEYARD_HUGETLB_1G: u32 = 1 << 6;
/// Use ordinary memory if PAGEYARD_HUGETLB_2M, PAGEYARD_HUGETLB_1G or PAGEYARD_HUGE_COLLAPSE is refused
/// by the system.
pub const PAGEYARD_FALLBACK: u32 = 1 << 7;
/// Return idle memory by MADV_FREE: the system takes it when it needs it. Not for memory that is a
/// file.
pub const PAGEYARD_GIVE_BACK_LAZILY: u32 = 1 << 8;
/// Cache blocks in each thread (pageyard_get_thread_cache). Faster where a thread frees and
/// allocates again; but a block that is freed twice is not detected, and may then be allocated twice.
pub const PAGEYARD_THREAD_CACHE: u32 = 1 << 9;

/// Options of a yard. Fill the structure in with pageyard_options_init, then change individual
/// fields. Later versions may add fields at its end.
///
/// Owner: the arrays stay the caller's; pageyard_create copies them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_options {
    /// sizeof(struct pageyard_options).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Memory in bytes, rounded up to whole pages; at least 4 MiB per node.
    pub size: u64,
    /// Node numbers of the system. Each supplies an equal part of the memory, as a zone of its own.
    /// Null: all nodes that have memory.
    pub nodes: *const u16,
    /// Number of nodes.
    pub node_count: usize,
    /// CPU numbers of the system. Each gets its own per-CPU lists; other CPUs share the lists of
    /// one of these. Null: all online CPUs.
    pub cpus: *const u32,
    /// Number of CPUs.
    pub cpu_count: usize,
    /// One of the PAGEYARD_HUGE numbers.
    pub huge_pages: u32,
    /// Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED, PAGEYARD_MEMFD, PAGEYARD_KEEP_IDLE,
    /// PAGEYARD_PINNED, PAGEYARD_HUGETLB_2M, PAGEYARD_HUGETLB_1G, PAGEYARD_FALLBACK,
    /// PAGEYARD_GIVE_BACK_LAZILY, PAGEYARD_THREAD_CACHE.
    pub flags: u32,
    /// Interval in nanoseconds at which a thread of the yard folds statistics and shrinks unused
    /// lists. 0: no thread; the caller must call pageyard_tick, which does these two, drains what threads'
    /// caches did not use, and takes what a limit lacks. Nothing does the thread's other work then: idle memory is not returned to the system, the pressure level stays
    /// PAGEYARD_CALM, shrinkers are called on behalf of requests only, not for `soft_limit`, and
    /// statistics are not published to other processes.
    pub tick_ns: u64,
    /// Maximum number of bytes to allocate, with the reserves; 0: no limit. Rounded down to whole
    /// pages, as the next field. pageyard_set_limits_bytes changes both, and pageyard_get_usable says
    /// what the reserves leave: in a yard whose reserves are larger, no ordinary request is served.
    pub hard_limit: u64,
    /// Number of bytes in use above which shrinkers are called; 0: above `hard_limit` only. They are also
    /// called where free memory is low.
    pub soft_limit: u64,
    /// One of the PAGEYARD_ENGINE numbers.
    pub engine: u64,
    /// Nanoseconds after which memory that was not in use is returned to the system; 0: one second.
    pub give_back_after_ns: u64,
    /// Bytes that stay backed in any case.
    pub give_back_floor: u64,
    /// Maximum rate in bytes per second; 0: the whole yard in a quarter of a second.
    pub give_back_rate: u64,
    /// Size in bytes of the smallest blocks that are returned: 4096 to 2097152, a power of two; 0: 2 MiB.
    /// Less than 2 MiB returns free memory also from around blocks in use. The memory is then anonymous,
    /// with PAGEYARD_HUGE_NEVER or PAGEYARD_HUGE_SYSTEM.
    pub give_back_least: u64,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer, a number or no entries.
unsafe impl Growing for pageyard_options {
    // The limits and all after them were added after the first version. A program that was compiled
    // before has the exact engine, which is 0.
    const LEAST: usize = std::mem::offset_of!(pageyard_options, hard_limit);
}

/// Returns the order of the smallest block that is returned to the system.
fn block_of(bytes: u64) -> Result<Order, pageyard_status> {
    let largest = PAGE_SIZE << PAGEBLOCK_ORDER;
    let order = (0..=PAGEBLOCK_ORDER).find(|order| bytes == PAGE_SIZE << order);
    order.and_then(Order::new).ok_or_else(|| {
        wrong(format_args!(
            "give_back_least: {bytes} bytes; expected a power of two from {PAGE_SIZE} to {largest}, or 0"
        ))
    })
}

/// Fills in the defaults for a yard of `size` bytes: all nodes, all CPUs, huge pages where the
/// system supports them, memory taken at the first write, one tick per second, no limits, the packed
/// engine.
/// `struct_size` must be the caller's sizeof(struct pageyard_options).
///
/// Errors: PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a size that no version of the structure
/// has.
///
/// Threads: any. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_options_init(
    options: *mut pageyard_options,
    struct_size: u32,
    size: u64,
) -> pageyard_status {
    if options.is_null() || !options.is_aligned() {
        return done(Err(argument::wrong(
            PAGEYARD_ERR_ARGUMENT,
            "options: null or misaligned; give a structure",
        )));
    }
    // Not even the size and version may be written then.
    if (struct_size as usize) < pageyard_options::LEAST {
        let least = pageyard_options::LEAST;
        return done(Err(argument::wrong(
            PAGEYARD_ERR_VERSION,
            format_args!(
                "struct_size: {struct_size}; expected at least {least}, sizeof(struct pageyard_options)"
            ),
        )));
    }
    let defaults = pageyard_options {
        struct_size,
        version: PAGEYARD_VERSION,
        size,
        nodes: std::ptr::null(),
        node_count: 0,
        cpus: std::ptr::null(),
        cpu_count: 0,
        huge_pages: PAGEYARD_HUGE_ADVISE,
        flags: 0,
        tick_ns: 1_000_000_000,
        hard_limit: 0,
        soft_limit: 0,
        engine: PAGEYARD_ENGINE_PACKED,
        give_back_after_ns: 0,
        give_back_floor: 0,
        give_back_rate: 0,
        give_back_least: 0,
    };
    // SAFETY: the header requires a structure of that size.
    unsafe {
        options.cast::<[u32; 2]>().write([struct_size, PAGEYARD_VERSION]);
        done(argument::write("options", options, &defaults))
    }
}

fn wrong(what: impl std::fmt::Display) -> pageyard_status {
    last_error::set(&what);
    PAGEYARD_ERR_OPTION
}

/// # Safety
/// The pointer must be null or point to `count` entries.
unsafe fn entries<T: Copy>(
    option: &str,
    from: *const T,
    count: usize,
) -> Result<Option<Vec<T>>, pageyard_status> {
    if from.is_null() {
        return match count {
            0 => Ok(None),
            _ => Err(wrong(format_args!("{option}: {count} of them, but the pointer is null"))),
        };
    }
    if !from.is_aligned() || count > 1 << 16 {
        return Err(wrong(format_args!("{option}: a pointer that is not aligned, or too many")));
    }
    // SAFETY: guaranteed by the caller.
    Ok(Some(unsafe { slice::from_raw_parts(from, count) }.to_vec()))
}

/// Returns the engine and a builder with these options.
///
/// # Safety
/// The pointer must be null or point to options that satisfy their field comments.
pub(crate) unsafe fn builder(
    options: *const pageyard_options,
) -> Result<(Engine, Builder), pageyard_status> {
    // SAFETY: guaranteed by the caller, here and below.
    let o = unsafe { argument::read("options", options) }?;
    let huge = match o.huge_pages {
        PAGEYARD_HUGE_ADVISE => HugePages::Advise,
        PAGEYARD_HUGE_SYSTEM => HugePages::System,
        PAGEYARD_HUGE_NEVER => HugePages::Never,
        PAGEYARD_HUGE_COLLAPSE => HugePages::Collapse,
        n => {
            return Err(wrong(format_args!(
                "huge_pages: {n}; give one of the PAGEYARD_HUGE numbers, 0 to 3"
            )));
        }
    };
    let engine = engine(o.engine).map_err(|_| {
        wrong(format_args!("engine: {}; give one of the PAGEYARD_ENGINE numbers, 0 or 1", o.engine))
    })?;
    if o.flags & PAGEYARD_DEFERRED != 0 && engine != Engine::Exact {
        return Err(wrong(
            "flags: PAGEYARD_DEFERRED is only for PAGEYARD_ENGINE_LINUX612; give that engine, or remove \
             the flag",
        ));
    }
    let known = 2 * PAGEYARD_THREAD_CACHE - 1;
    if o.flags & !known != 0 {
        return Err(wrong(format_args!("flags: {:#x}; {known:#x} are known", o.flags)));
    }
    let has = |flag| o.flags & flag != 0;
    // A page in a thread cache looks allocated, so a double free would not be detected. C callers
    // free blocks by address, past the cache, so they would not benefit from it by default.
    let thread_cache =
        if has(PAGEYARD_THREAD_CACHE) { ThreadCache::Auto } else { ThreadCache::Off };
    let backing = match (has(PAGEYARD_HUGETLB_2M), has(PAGEYARD_HUGETLB_1G)) {
        (true, true) => {
            return Err(wrong("flags: PAGEYARD_HUGETLB_2M and PAGEYARD_HUGETLB_1G; give one"));
        }
        (true, false) => Backing::HugeTlb(HugeSize::M2),
        (false, true) => Backing::HugeTlb(HugeSize::G1),
        (false, false) if has(PAGEYARD_MEMFD) => Backing::Memfd,
        (false, false) => Backing::Anonymous,
    };
    let mut builder = Builder::new(o.size)
        .thread_cache(thread_cache)
        .huge_pages(huge)
        .backing(backing)
        .fallback(has(PAGEYARD_FALLBACK))
        .prefault(has(PAGEYARD_PREFAULT))
        .pinned(has(PAGEYARD_PINNED))
        .deferred(has(PAGEYARD_DEFERRED))
        .tick((o.tick_ns > 0).then(|| Duration::from_nanos(o.tick_ns)));
    let lazily = has(PAGEYARD_GIVE_BACK_LAZILY);
    let how = [o.give_back_after_ns, o.give_back_floor, o.give_back_rate, o.give_back_least];
    let gives = lazily || how != [0; 4];
    match (has(PAGEYARD_KEEP_IDLE), gives) {
        (true, true) => {
            return Err(wrong("give_back: PAGEYARD_KEEP_IDLE contradicts it; give one"));
        }
        (true, false) => builder = builder.give_back(None),
        (false, true) => {
            let default = GiveBack::default();
            builder = builder.give_back(Some(GiveBack {
                after: match o.give_back_after_ns {
                    0 => default.after,
                    ns => Duration::from_nanos(ns),
                },
                floor: o.give_back_floor,
                rate: (o.give_back_rate > 0).then_some(o.give_back_rate),
                lazily,
                least: match o.give_back_least {
                    0 => default.least,
                    bytes => block_of(bytes)?,
                },
            }));
        }
        (false, false) => {}
    }
    if o.hard_limit > 0 {
        builder = builder.hard_limit(o.hard_limit);
    }
    if o.soft_limit > 0 {
        builder = builder.soft_limit(o.soft_limit);
    }
    // SAFETY: see above.
    if let Some(nodes) = unsafe { entries("nodes", o.nodes, o.node_count) }? {
        builder = builder.nodes(nodes);
    }
    // SAFETY: see above.
    if let Some(cpus) = unsafe { entries("cpus", o.cpus, o.cpu_count) }? {
        builder = builder.cpus(cpus);
    }
    Ok((engine, builder))
}
