//! The unsafe parts: blocks by number, an allocator's memory, forks, and the memory of a phase.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;

use pageyard::{FreeError, NodeId, Order, Pfn};

use crate::found::Found;
use crate::yards::{Block, HostYard, PageAlloc};

/// Seconds after which a child that has not ended counts as hung.
const PATIENCE: u32 = 60;
/// The result of a child that panicked; greater than the number of checks.
const PANICKED: usize = 100;

/// A value on the heap that any thread may refer to until it is freed explicitly.
pub(crate) struct Shared<T: 'static>(NonNull<T>);

impl<T: Sync> Shared<T> {
    pub(crate) fn new(value: T) -> Shared<T> {
        Shared(NonNull::from(Box::leak(Box::new(value))))
    }

    pub(crate) fn get(&self) -> &'static T {
        // SAFETY: it lives until `free`, whose caller guarantees that no reference is left.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// No reference to it may be left, neither in a thread nor in anything that a thread left
    /// behind.
    pub(crate) unsafe fn free(self) {
        // SAFETY: `new` made it from a box, and it is freed once, as this takes the only handle.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Frees a block by its number.
pub(crate) fn free_raw(yard: &HostYard, block: Block<'static>) -> Result<(), FreeError> {
    let (pfn, order) = block.into_raw();
    // SAFETY: `into_raw` gave up its ownership just now.
    unsafe { yard.free_raw(pfn, order) }
}

/// Converts a block to its number and back.
pub(crate) fn through_numbers(yard: &'static HostYard, block: Block<'static>) -> Block<'static> {
    let (pfn, order) = block.into_raw();
    // SAFETY: `into_raw` gave up its ownership just now.
    unsafe { yard.from_raw(pfn, order) }.expect("a block of this yard")
}

/// Splits a block of several pages into halves.
pub(crate) fn split(
    yard: &'static HostYard,
    block: Block<'static>,
) -> Result<[Block<'static>; 2], Found> {
    let (pfn, order) = block.into_raw();
    let half = Order::new(order.get() - 1).unwrap_or_default();
    // SAFETY: no `Block` owns the block that is split.
    let done = unsafe { yard.core() }.split(pfn, order, half);
    done.map_err(|e| Found::Wrong(format!("{pfn} of order {order} is not split: {e}")))?;
    let halves = [pfn, Pfn(pfn.0 + u64::from(half.pages()))];
    // SAFETY: both were split from a block whose ownership was given up above.
    Ok(halves.map(|pfn| unsafe { yard.from_raw(pfn, half) }.expect("a block of this yard")))
}

/// Initialises the next section of a deferred yard.
pub(crate) fn init_section(yard: &HostYard) -> bool {
    // SAFETY: nothing is freed.
    unsafe { yard.core() }.init_section(NodeId(0))
}

/// Finishes deferred initialisation. Returns whether it is finished.
pub(crate) fn finish_deferred(yard: &HostYard) -> bool {
    // SAFETY: nothing is freed.
    unsafe { yard.core() }.finish_deferred()
}

/// Brings an offline section online through the core behind the host's yard. Returns whether it
/// did.
pub(crate) fn online(yard: &HostYard, frames: Range<Pfn>) -> bool {
    // SAFETY: nothing is freed; no block is in an offline section.
    unsafe { yard.core() }.online(frames).is_ok()
}

/// Returns whether the yard's memory is a file.
pub(crate) fn has_file(yard: &HostYard) -> bool {
    // SAFETY: nothing is written to the file.
    unsafe { yard.fd() }.is_some()
}

/// Allocates the memory of a block a second time, for a planted mistake.
pub(crate) fn duplicate(yard: &'static HostYard, block: &Block<'static>) -> Block<'static> {
    // SAFETY: none. The caller enters it as owned, which fails, and leaks it.
    unsafe { yard.from_raw(block.pfn(), block.order()) }.expect("a block")
}

/// Memory from a yard's [`PageAlloc`], or from the system if the yard has no memory left.
pub(crate) struct Heap {
    start: NonNull<u8>,
    layout: Layout,
    from: &'static PageAlloc<System>,
}

// SAFETY: it is the only access to its bytes, and any thread may free it.
unsafe impl Send for Heap {}

impl Heap {
    /// Allocates memory. The layout's size must not be 0.
    pub(crate) fn new(
        from: &'static PageAlloc<System>,
        layout: Layout,
        zero: bool,
    ) -> Option<Heap> {
        // SAFETY: the size is not 0.
        let start = unsafe { if zero { from.alloc_zeroed(layout) } else { from.alloc(layout) } };
        let start = NonNull::new(start)?;
        if !zero {
            // SAFETY: it was allocated just now with this size and is not initialised yet.
            unsafe { start.write_bytes(0x5a, layout.size()) };
        }
        Some(Heap { start, layout, from })
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns the size of its block, at least.
    pub(crate) fn size(&self) -> usize {
        self.layout.size().max(self.layout.align())
    }

    pub(crate) fn resize(&mut self, bytes: usize) {
        let Ok(layout) = Layout::from_size_align(bytes, self.layout.align()) else { return };
        // SAFETY: it was allocated with this layout, and the new size is neither 0 nor too large.
        let start = unsafe { self.from.realloc(self.start.as_ptr(), self.layout, bytes) };
        let Some(start) = NonNull::new(start) else { return };
        if let Some(more) = bytes.checked_sub(self.layout.size()) {
            // SAFETY: the bytes after the old ones are within the new size.
            unsafe { start.add(self.layout.size()).write_bytes(0x5a, more) };
        }
        (self.start, self.layout) = (start, layout);
    }
}

impl Deref for Heap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: it was allocated with this size and initialised, and `self` owns it.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Heap {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout and is freed once.
        unsafe { self.from.dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A condition that must hold in a child after a fork, with the message for when it does not.
pub(crate) type Check<'a> = (&'static str, &'a mut dyn FnMut() -> bool);

/// Forks and runs the checks in the child.
pub(crate) fn in_child(checks: &mut [Check<'_>]) -> Result<(), Found> {
    // SAFETY: the child only uses yards, which define what is allowed after a fork, and then exits.
    match unsafe { libc::fork() } {
        // The system has no room for another process.
        -1 => Ok(()),
        0 => {
            // SAFETY: both take numbers. The signals end the child after a timeout, or with its
            // parent.
            unsafe {
                libc::alarm(PATIENCE);
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            }
            // A panic must not let the child continue its parent's work.
            let first_wrong = || checks.iter_mut().position(|(_, holds)| !holds());
            let wrong = catch_unwind(AssertUnwindSafe(first_wrong)).unwrap_or(Some(PANICKED));
            // SAFETY: takes a number.
            unsafe { libc::_exit(wrong.map_or(0, |n| n as i32 + 1)) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the pointer is to a local variable.
            while unsafe { libc::waitpid(child, &mut status, 0) } == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
            child_result(status, checks)
        }
    }
}

fn child_result(status: i32, checks: &[Check<'_>]) -> Result<(), Found> {
    let wrong = |what: &str| Err(Found::Child(what.to_owned()));
    match (libc::WIFEXITED(status), libc::WEXITSTATUS(status), libc::WTERMSIG(status)) {
        (true, 0, _) => Ok(()),
        (true, n, _) => wrong(checks.get(n as usize - 1).map_or("panicked", |check| check.0)),
        (_, _, libc::SIGALRM) => wrong("hung"),
        // These signals were meant for the parent too.
        (_, _, libc::SIGINT | libc::SIGTERM | libc::SIGHUP) => Ok(()),
        (_, _, signal) => Err(Found::Child(format!("ended by signal {signal}"))),
    }
}
