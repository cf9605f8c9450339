//! What a yard is made from.

use std::slice;
use std::time::Duration;

use pageyard_capi_core::flags::PAGEYARD_VERSION;
use pageyard_capi_core::sized::{self, Growing};
use pageyard_capi_core::status::{
    PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_OPTION, pageyard_status, status,
};
use pageyard_host::{Backing, Builder, HugePages, ThreadCache};

use crate::last_error;

/// Huge pages where the system can.
pub const PAGEYARD_HUGE_ADVISE: u32 = 0;
/// Huge pages as the system does by itself.
pub const PAGEYARD_HUGE_SYSTEM: u32 = 1;
/// No huge pages.
pub const PAGEYARD_HUGE_NEVER: u32 = 2;

/// All memory is taken from the system now, not when it is first written.
pub const PAGEYARD_PREFAULT: u32 = 1 << 0;
/// Only a part is initialised now, the rest when requests want it: a yard of much memory begins at
/// once.
pub const PAGEYARD_DEFERRED: u32 = 1 << 1;
/// The memory is a file without a name, which another process may map too (pageyard_file).
pub const PAGEYARD_MEMFD: u32 = 1 << 2;
/// Idle memory is not given back to the system.
pub const PAGEYARD_KEEP_IDLE: u32 = 1 << 3;

/// Options of a yard. Fill it in with pageyard_options_init, then change what is to differ; it may
/// grow in later versions, at its end.
///
/// Owner: the arrays are the caller's; pageyard_create copies them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_options {
    /// sizeof(struct pageyard_options).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Bytes of memory, rounded up to pages; at least 4 MiB for each node.
    pub size: u64,
    /// The nodes, by the system's numbers, from which memory comes in equal parts, each a zone of its
    /// own. Null: all that have memory.
    pub nodes: *const u16,
    /// How many.
    pub node_count: usize,
    /// The CPUs, by the system's numbers, that get lists of their own; others share one of theirs.
    /// Null: all that are online.
    pub cpus: *const u32,
    /// How many.
    pub cpu_count: usize,
    /// One of the PAGEYARD_HUGE numbers.
    pub huge_pages: u32,
    /// Any of PAGEYARD_PREFAULT, PAGEYARD_DEFERRED, PAGEYARD_MEMFD, PAGEYARD_KEEP_IDLE.
    pub flags: u32,
    /// How often a thread of the yard's own folds statistics and shortens unused lists, in
    /// nanoseconds. 0: no such thread, and pageyard_tick is the caller's to call.
    pub tick_ns: u64,
    /// No more bytes than these are handed out; 0: all. pageyard_set_limits changes both.
    pub hard_limit: u64,
    /// Above these, shrinkers are asked; 0: never.
    pub soft_limit: u64,
}

// SAFETY: it begins with the two fields; zero is null, a number, or no entries.
unsafe impl Growing for pageyard_options {
    // The limits came later.
    const LEAST: usize = std::mem::offset_of!(pageyard_options, hard_limit);
}

/// Fills in the defaults for a yard of so many bytes: all nodes, all CPUs, huge pages where the system
/// can, memory taken as it is written, a tick a second, no limits. `struct_size` is the caller's
/// sizeof(struct pageyard_options).
///
/// Errors: PAGEYARD_ERR_ARGUMENT; PAGEYARD_ERR_VERSION for a size that no version of the structure has.
///
/// Threads: any. Owner: the structure stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pageyard_options_init(
    options: *mut pageyard_options,
    struct_size: u32,
    size: u64,
) -> pageyard_status {
    if options.is_null() || !options.is_aligned() {
        return PAGEYARD_ERR_ARGUMENT;
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
    };
    // SAFETY: the header asks for a structure of that size.
    unsafe {
        options.cast::<[u32; 2]>().write([struct_size, PAGEYARD_VERSION]);
        status(sized::write(options, &defaults))
    }
}

fn wrong(what: impl std::fmt::Display) -> pageyard_status {
    last_error::set(&what);
    PAGEYARD_ERR_OPTION
}

/// # Safety
/// The pointer is null or to so many entries.
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
    // SAFETY: by the caller's word.
    Ok(Some(unsafe { slice::from_raw_parts(from, count) }.to_vec()))
}

/// A builder with these options.
///
/// # Safety
/// The pointer is null or to options as their comments say.
pub(crate) unsafe fn builder(options: *const pageyard_options) -> Result<Builder, pageyard_status> {
    // SAFETY: by the caller's word; and so below.
    let o = unsafe { sized::read(options) }?;
    let huge = match o.huge_pages {
        PAGEYARD_HUGE_ADVISE => HugePages::Advise,
        PAGEYARD_HUGE_SYSTEM => HugePages::System,
        PAGEYARD_HUGE_NEVER => HugePages::Never,
        n => {
            return Err(wrong(format_args!(
                "huge_pages: {n}; give one of the PAGEYARD_HUGE numbers, 0 to 2"
            )));
        }
    };
    let known = PAGEYARD_PREFAULT | PAGEYARD_DEFERRED | PAGEYARD_MEMFD | PAGEYARD_KEEP_IDLE;
    if o.flags & !known != 0 {
        return Err(wrong(format_args!("flags: {:#x}; {known:#x} are known", o.flags)));
    }
    // A page that waits with a thread looks as if somebody had it, and a second free of it would be
    // taken for the first. To callers whose blocks come back past the cache it is of no use anyway.
    let mut builder = Builder::new(o.size)
        .thread_cache(ThreadCache::Off)
        .huge_pages(huge)
        .prefault(o.flags & PAGEYARD_PREFAULT != 0)
        .deferred(o.flags & PAGEYARD_DEFERRED != 0)
        .tick((o.tick_ns > 0).then(|| Duration::from_nanos(o.tick_ns)));
    let has = |flag| o.flags & flag != 0;
    if has(PAGEYARD_MEMFD) {
        builder = builder.backing(Backing::Memfd);
    }
    if has(PAGEYARD_KEEP_IDLE) {
        builder = builder.give_back(None);
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
    Ok(builder)
}
