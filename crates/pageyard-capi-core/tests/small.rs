//! The core's C interface as called from Rust, small enough for Miri (`scripts/miri.sh`): room and
//! layout as in a C program, at an odd address, and two threads.

#![allow(unsafe_code)]

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use pageyard_capi_core::create::{pageyard_core_create, pageyard_core_destroy};
use pageyard_capi_core::engine::*;
use pageyard_capi_core::flags::*;
use pageyard_capi_core::handle::pageyard_core;
use pageyard_capi_core::layout::*;
use pageyard_capi_core::maintain::*;
use pageyard_capi_core::request::*;
use pageyard_capi_core::stats::{pageyard_core_stats, pageyard_core_zone_stats, pageyard_stats};
use pageyard_capi_core::status::*;
use pageyard_capi_core::text::*;

const FIRST: u64 = 1 << 20;
const PAGES: u64 = 2048;

/// A yard in uninitialised room at an odd address.
struct Yard {
    handle: *mut pageyard_core,
    room: *mut u8,
    size: Layout,
}

// SAFETY: the interface documents which functions any number of threads may call.
unsafe impl Sync for Yard {}

const ENGINES: [u64; 2] = [PAGEYARD_ENGINE_LINUX612, PAGEYARD_ENGINE_PACKED];

fn with_layout<T>(engine: u64, f: impl FnOnce(*const pageyard_layout) -> T) -> T {
    let span = pageyard_range { start: FIRST, end: FIRST + PAGES };
    let zone = pageyard_zone { span, node: 0, kind: PAGEYARD_ZONE_NORMAL };
    let cpus = [0u16; 2];
    f(&pageyard_layout {
        struct_size: size_of::<pageyard_layout>() as u32,
        version: PAGEYARD_VERSION,
        zones: &zone,
        zone_count: 1,
        usable: &span,
        usable_count: 1,
        reserved: ptr::null(),
        reserved_count: 0,
        cpus: cpus.as_ptr(),
        cpu_count: cpus.len(),
        distances: ptr::null(),
        distance_count: 0,
        knobs: ptr::null(),
        engine,
    })
}

impl Yard {
    fn new(engine: u64) -> Yard {
        with_layout(engine, |layout| {
            let mut bytes = 0;
            // SAFETY: a valid layout, and a place for the answer.
            assert_eq!(unsafe { pageyard_core_room(layout, &mut bytes) }, PAGEYARD_OK);
            let size = Layout::from_size_align(bytes + 1, 1).unwrap();
            // SAFETY: the size is not 0.
            let room = unsafe { alloc(size) };
            let mut handle = ptr::null_mut();
            let mut why = [0 as c_char; 80];
            // SAFETY: all arguments live until the call returns, and the room until `drop`.
            let done = unsafe {
                let from = room.add(1).cast::<c_void>();
                let (why, long) = (why.as_mut_ptr(), why.len());
                pageyard_core_create(layout, ptr::null(), from, bytes, &mut handle, why, long)
            };
            assert_eq!((done, why[0]), (PAGEYARD_OK, 0));
            Yard { handle, room, size }
        })
    }

    fn alloc(&self, order: u32, flags: u32) -> u64 {
        let mut pfn = 0;
        // SAFETY: a valid yard, and a place for the answer.
        let done = unsafe { pageyard_core_alloc(self.handle, order, flags, &mut pfn) };
        assert_eq!(done, PAGEYARD_OK);
        pfn
    }

    fn free(&self, pfn: u64, order: u32) -> pageyard_status {
        // SAFETY: a valid yard.
        unsafe { pageyard_core_free(self.handle, pfn, order) }
    }

    fn drain(&self) {
        // SAFETY: a valid yard.
        assert_eq!(unsafe { pageyard_core_drain(self.handle) }, PAGEYARD_OK);
    }

    fn stats(&self) -> pageyard_stats {
        let mut stats = MaybeUninit::<pageyard_stats>::zeroed();
        let at = stats.as_mut_ptr();
        // SAFETY: zero is a value of each field; the call fills in what the size covers.
        unsafe {
            (*at).struct_size = size_of::<pageyard_stats>() as u32;
            (*at).version = PAGEYARD_VERSION;
            assert_eq!(pageyard_core_stats(self.handle, at), PAGEYARD_OK);
            stats.assume_init()
        }
    }
}

impl Drop for Yard {
    fn drop(&mut self) {
        // SAFETY: the yard is not used any more; the room was allocated with this layout.
        unsafe {
            assert_eq!(pageyard_core_destroy(self.handle), PAGEYARD_OK);
            assert_eq!(pageyard_core_drain(self.handle), PAGEYARD_ERR_HANDLE);
            dealloc(self.room, self.size);
        }
    }
}

#[test]
fn functions_stay_within_their_memory() {
    ENGINES.into_iter().for_each(stay_within_their_memory);
}

fn stay_within_their_memory(engine: u64) {
    let yard = Yard::new(engine);
    let y = yard.handle;
    let one = yard.alloc(0, PAGEYARD_KERNEL);
    let large = yard.alloc(3, PAGEYARD_HIGHUSER_MOVABLE);
    assert_eq!(yard.free(one, 1), PAGEYARD_ERR_WRONG_ORDER);
    assert_eq!((yard.free(one, 0), yard.free(one, 0)), (PAGEYARD_OK, PAGEYARD_ERR_DOUBLE_FREE));
    // SAFETY: a valid yard, and places for answers with the given lengths.
    unsafe {
        assert_eq!(pageyard_core_set_movable(y, large, 3, 1), PAGEYARD_OK);
        assert_eq!(pageyard_core_split(y, large, 3, 0), PAGEYARD_OK);
        let mut pfns = [0u64; 20];
        let (mut got, mut done, mut pfn) = (0, 0, 0);
        let into = pfns.as_mut_ptr();
        assert_eq!(pageyard_core_alloc_bulk(y, PAGEYARD_KERNEL, into, 20, &mut got), PAGEYARD_OK);
        assert_eq!(pageyard_core_free_bulk(y, into, got, 0, &mut done), PAGEYARD_OK);
        assert_eq!((got, done), (20, 20));
        assert_eq!(pageyard_core_alloc_on(y, 0, 1, PAGEYARD_KERNEL, &mut pfn), PAGEYARD_OK);
        assert_eq!(yard.free(pfn, 1), PAGEYARD_OK);
        for n in 0..8 {
            assert_eq!(yard.free(large + n, 0), PAGEYARD_OK);
        }
        let (movable, kernel) = (PAGEYARD_TYPE_MOVABLE, PAGEYARD_KERNEL);
        assert_eq!(
            pageyard_core_alloc_contig_pages(y, 700, 1, movable, kernel, &mut pfn),
            PAGEYARD_OK
        );
        assert_eq!(pageyard_core_free_contig(y, pfn, pfn + 700), PAGEYARD_OK);
        let (from, to) = (FIRST + 512, FIRST + 1024);
        assert_eq!(pageyard_core_alloc_contig(y, from, to, movable, kernel), PAGEYARD_OK);
        assert_eq!(pageyard_core_free_contig(y, from, to), PAGEYARD_OK);
        assert_eq!(pageyard_core_fold(y, 0), PAGEYARD_OK);
        assert_eq!(pageyard_core_tick(y, 0), PAGEYARD_OK);
        assert_eq!(pageyard_core_cpu_dead(y, 1), PAGEYARD_OK);
        assert_eq!(pageyard_core_cpu_up(y, 1), PAGEYARD_OK);
        // Not a section of memory.
        assert_eq!(pageyard_core_offline(y, from, to), PAGEYARD_ERR_RANGE);
        assert_eq!(pageyard_core_online(y, from, to), PAGEYARD_ERR_RANGE);
        let mut why = [0 as c_char; 9];
        let into = why.as_mut_ptr();
        assert_eq!(pageyard_core_release(y, from, to, into, 9), PAGEYARD_ERR_NOT_RESERVED);
        assert_eq!(why.map(|c| c as u8), *b"frame 0x\0");
        let mut sleep = 0;
        assert_eq!(pageyard_core_compact(y), PAGEYARD_OK);
        assert_eq!(pageyard_core_compact_background(y, 0, &mut sleep), PAGEYARD_OK);
        yard.drain();
        // Request one byte of a text, then all of it.
        for kind in [PAGEYARD_TEXT_BUDDYINFO, PAGEYARD_TEXT_JSON] {
            let mut needed = 0;
            let short = pageyard_core_text(y, kind, pfns.as_mut_ptr().cast(), 1, &mut needed);
            assert_eq!(short, PAGEYARD_ERR_BUFFER);
            let mut text = Vec::<c_char>::with_capacity(needed + 64);
            let whole =
                pageyard_core_text(y, kind, text.as_mut_ptr(), text.capacity(), &mut needed);
            assert_eq!(whole, PAGEYARD_OK);
        }
        let (name, mut value) = (c"min_free_kbytes".as_ptr(), [0 as c_char; 20]);
        assert_eq!(pageyard_core_set_knob(y, name, c"512".as_ptr()), PAGEYARD_OK);
        let into = value.as_mut_ptr();
        assert_eq!(pageyard_core_knob(y, name, into, 20, ptr::null_mut()), PAGEYARD_OK);
        assert_eq!(value[..4].iter().map(|&c| c as u8).collect::<Vec<_>>(), *b"512\0");
        let mut stats = yard.stats();
        assert_eq!(pageyard_core_zone_stats(y, 0, &mut stats), PAGEYARD_OK);
    }
    let stats = yard.stats();
    assert_eq!((stats.free, stats.cached), (stats.managed, 0));
}

#[test]
fn threads_own_their_blocks() {
    ENGINES.into_iter().for_each(own_their_blocks);
}

fn own_their_blocks(engine: u64) {
    let yard = Yard::new(engine);
    let owners: Vec<_> = (0..PAGES).map(|_| std::sync::atomic::AtomicU32::new(0)).collect();
    let rounds = if cfg!(miri) { 4 } else { 2000 };
    let work = |me: u32| {
        use std::sync::atomic::Ordering::Relaxed;
        for round in 0..rounds {
            let order = round % 3;
            let pfn = yard.alloc(order, PAGEYARD_KERNEL);
            let pages = || &owners[(pfn - FIRST) as usize..][..1 << order];
            assert!(pages().iter().all(|p| p.swap(me, Relaxed) == 0), "{pfn:#x} has two owners");
            assert!(pages().iter().all(|p| p.swap(0, Relaxed) == me), "{pfn:#x} has two owners");
            assert_eq!(yard.free(pfn, order), PAGEYARD_OK);
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| work(1));
        s.spawn(|| work(2));
        s.spawn(|| (0..rounds).for_each(|_| yard.drain()));
    });
    yard.drain();
    let stats = yard.stats();
    assert_eq!((stats.free, stats.cached), (stats.managed, 0));
}
