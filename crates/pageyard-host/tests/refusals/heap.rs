//! A heap for the test that makes no system calls, so that a refused call is never the test's own.
//! Powers of two, in free lists, from a static array.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

const BYTES: usize = 256 << 20;

#[repr(C, align(4096))]
struct Room(UnsafeCell<[u8; BYTES]>);

// SAFETY: blocks of it are handed out under the lock, each to one owner.
unsafe impl Sync for Room {}

static ROOM: Room = Room(UnsafeCell::new([0; BYTES]));

struct Lists {
    /// By the logarithm of their size; a free block starts with the address of the next one.
    free: [*mut u8; usize::BITS as usize],
    used: usize,
}

/// The heap.
pub(crate) struct Heap {
    held: AtomicBool,
    lists: UnsafeCell<Lists>,
}

// SAFETY: the lists are used under the lock.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) const fn new() -> Heap {
        let lists = Lists { free: [ptr::null_mut(); usize::BITS as usize], used: 0 };
        Heap { held: AtomicBool::new(false), lists: UnsafeCell::new(lists) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Lists) -> T) -> T {
        while self.held.swap(true, Acquire) {
            std::hint::spin_loop();
        }
        // SAFETY: the lock is held.
        let answer = f(unsafe { &mut *self.lists.get() });
        self.held.store(false, Release);
        answer
    }
}

fn class(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(16).next_power_of_two().trailing_zeros() as usize
}

// SAFETY: blocks are aligned to their size, and each is in one list or has one owner.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let class = class(layout);
        self.with(|lists| {
            let first = lists.free[class];
            if !first.is_null() {
                // SAFETY: the address was written when the block was freed.
                lists.free[class] = unsafe { first.cast::<*mut u8>().read() };
                return first;
            }
            let start = lists.used.next_multiple_of((1 << class).min(4096));
            if class > 12 && layout.align() > 4096 || start + (1 << class) > BYTES {
                return ptr::null_mut();
            }
            lists.used = start + (1 << class);
            // SAFETY: inside the array.
            unsafe { ROOM.0.get().cast::<u8>().add(start) }
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let class = class(layout);
        self.with(|lists| {
            // SAFETY: the block is free, and has room for an address.
            unsafe { block.cast::<*mut u8>().write(lists.free[class]) };
            lists.free[class] = block;
        });
    }
}
