//! What is unsafe: blocks by number, an allocator's memory, forks, and the memory of a phase.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;

use pageyard::{FreeError, NodeId, Order, Pfn};
use pageyard_host::{Block, HostYard, PageAlloc};

use crate::found::Found;

/// A child that has not ended by then hangs, in seconds.
const PATIENCE: u32 = 60;
/// More than there are checks in a child.
const PANICKED: usize = 100;

/// Something on the heap that any thread may refer to until it is freed explicitly.
pub(crate) struct Shared<T: 'static>(NonNull<T>);

impl<T: Sync> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: it lives until `free`, whose caller says that no reference is left.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// Nothing refers to it any more: neither a thread nor anything that a thread left behind.
    pub(crate) unsafe fn free(self) {
        // SAFETY: `new` made it from a box, and it is freed once, as this takes the only handle.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Gives a block back by its number.
pub(crate) fn free_raw(yard: &HostYard, block: Block<'static>) -> Result<(), FreeError> {
    let (pfn, order) = block.into_raw();
    // SAFETY: its ownership was given up just now.
    unsafe { yard.free_raw(pfn, order) }
}

/// Takes a block apart and puts it together again.
pub(crate) fn through_numbers(yard: &'static HostYard, block: Block<'static>) -> Block<'static> {
    let (pfn, order) = block.into_raw();
    // SAFETY: its ownership was given up just now.
    unsafe { yard.from_raw(pfn, order) }.expect("a block of this yard")
}

/// Splits a block of several pages into halves.
pub(crate) fn split(
    yard: &'static HostYard,
    block: Block<'static>,
) -> Result<[Block<'static>; 2], Found> {
    let (pfn, order) = block.into_raw();
    let half = Order::new(order.get() - 1).unwrap_or_default();
    // SAFETY: no block owns what is split.
    let done = unsafe { yard.core() }.split(pfn, order, half);
    done.map_err(|e| Found::Wrong(format!("{pfn} of order {order} is not split: {e}")))?;
    let halves = [pfn, Pfn(pfn.0 + u64::from(half.pages()))];
    // SAFETY: both were split from a block whose ownership was given up just now.
    Ok(halves.map(|pfn| unsafe { yard.from_raw(pfn, half) }.expect("a block of this yard")))
}

/// Initialises the next section of a deferred yard.
pub(crate) fn init_section(yard: &HostYard) -> bool {
    // SAFETY: nothing is freed.
    unsafe { yard.core() }.init_section(NodeId(0))
}

/// Ends deferred initialisation. Returns whether it has ended.
pub(crate) fn finish_deferred(yard: &HostYard) -> bool {
    // SAFETY: nothing is freed.
    unsafe { yard.core() }.finish_deferred()
}

/// Takes back a section that is offline, by the allocator behind the host's yard. Returns whether it
/// did.
pub(crate) fn online(yard: &HostYard, frames: Range<Pfn>) -> bool {
    // SAFETY: nothing is freed; no block is in a section that is offline.
    unsafe { yard.core() }.online(frames).is_ok()
}

/// Whether the yard's memory is a file.
pub(crate) fn has_file(yard: &HostYard) -> bool {
    // SAFETY: nothing is written to the file.
    unsafe { yard.fd() }.is_some()
}

/// Hands out the memory of a block a second time, for a planted mistake.
pub(crate) fn twin(yard: &'static HostYard, block: &Block<'static>) -> Block<'static> {
    // SAFETY: none. The caller enters it as owned, which fails, and leaks it.
    unsafe { yard.from_raw(block.pfn(), block.order()) }.expect("a block")
}

/// Memory from a yard's [`PageAlloc`], or from the system where the yard has none.
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
    from: &'static PageAlloc<System>,
}

// SAFETY: it is the only way to its bytes, and may be freed by any thread.
unsafe impl Send for Heap {}

impl Heap {
    /// At least a byte.
    pub(crate) fn new(
        from: &'static PageAlloc<System>,
        layout: Layout,
        zero: bool,
    ) -> Option<Heap> {
        // SAFETY: the size is not 0.
        let start = unsafe { if zero { from.alloc_zeroed(layout) } else { from.alloc(layout) } };
        let start = NonNull::new(start)?;
        if !zero {
            // SAFETY: it was allocated just now, of this size; it is to be initialised.
            unsafe { start.write_bytes(0x5a, layout.size()) };
        }
        Some(Heap { start, layout, from })
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Bytes that its block has at least.
    pub(crate) fn size(&self) -> usize {
        self.layout.size().max(self.layout.align())
    }

    pub(crate) fn resize(&mut self, bytes: usize) {
        let Ok(layout) = Layout::from_size_align(bytes, self.layout.align()) else { return };
        // SAFETY: it was allocated with this layout, and the new size is not 0 nor too large.
        let start = unsafe { self.from.realloc(self.start.as_ptr(), self.layout, bytes) };
        let Some(start) = NonNull::new(start) else { return };
        if let Some(more) = bytes.checked_sub(self.layout.size()) {
            // SAFETY: the bytes behind the old ones are within the new size.
            unsafe { start.add(self.layout.size()).write_bytes(0x5a, more) };
        }
        (self.start, self.layout) = (start, layout);
    }
}

impl Deref for Heap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this size, initialised, and owned by this.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Heap {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { self.from.dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// What must hold in a child after a fork, and what is wrong where it does not.
pub(crate) type Check<'a> = (&'static str, &'a mut dyn FnMut() -> bool);

/// Looks at all of it in a child after a fork.
pub(crate) fn in_child(checks: &mut [Check<'_>]) -> Result<(), Found> {
    // SAFETY: the child uses yards, which say what is allowed there, and ends at once.
    match unsafe { libc::fork() } {
        // The system has no room for one more.
        -1 => Ok(()),
        0 => {
            // SAFETY: both take numbers. The signals end the child: after a while, and with its
            // parent.
            unsafe {
                libc::alarm(PATIENCE);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            // It must not go on with the parent's work.
            let first_wrong = || checks.iter_mut().position(|(_, holds)| !holds());
            let wrong = catch_unwind(AssertUnwindSafe(first_wrong)).unwrap_or(Some(PANICKED));
            // SAFETY: takes a number.
            unsafe { libc::_exit(wrong.map_or(0, |n| n as i32 + 1)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a number of ours.
            while unsafe { libc::waitpid(child, &mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            how_it_ended(status, checks)
        }
    }
}

fn how_it_ended(status: i32, checks: &[Check<'_>]) -> Result<(), Found> {
    let wrong = |what: &str| Err(Found::Child(what.to_owned()));
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status), libc::WTERMSIG(status)) {
        (true, 0, _) => Ok(()),
        (true, n, _) => wrong(checks.get(n as usize - 1).map_or("panicked", |check| check.0)),
        (_, _, libc::SIGALRM) => wrong("hung"),
        // Meant for the parent too.
        (_, _, libc::SIGINT | libc::SIGTERM | libc::SIGHUP) => Ok(()),
        (_, _, signal) => Err(Found::Child(format!("ended by signal {signal}"))),
    }
}
