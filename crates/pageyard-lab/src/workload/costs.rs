//! The time that workloads spend outside the allocator, in nanoseconds: the same numbers for all of
//! them. The machine model determines the cost of touching pages and of everything in the
//! allocator.

/// A page fault, without zeroing and allocating the page. Derived from A.1: two processes of
/// page_fault1 map 2,694,662 pages per second, 742 ns each. The machine's table has 299 ns for
/// zeroing a page from memory, and about 40 ns are spent in the allocator.
pub(super) const FAULT: u64 = 400;
/// Unmapping a page at the end of a process, without freeing it. Assumed: clearing its entry and
/// its reverse mapping, a tenth of a fault.
pub(super) const UNMAP: u64 = 40;
/// Putting a page on a list for reclaim or taking it off, with the list's lock held, and without
/// moving the lock's line. Assumed: as many instructions as the kernel has for a page that goes to
/// a free list ([`Costs::LINUX`](pageyard_machine::Costs::LINUX): 105 of .131 ns each), whatever
/// allocator is priced; descriptors cost nothing more, since the allocator touches the same ones.
pub(super) const LRU: u64 = 14;
/// Removing a page of a file from the page cache, without freeing it. Derived from A.1: removing
/// 2,621,440 pages took 540 ms, 206 ns each, of which about 50 ns were spent in the allocator.
pub(super) const FORGET: u64 = 150;
/// A buffer's share of a system call on a UNIX socket, without allocating and copying. Derived:
/// writing 64 KiB, four buffers, takes 13.3 us of CPU time (measured: an Intel Xeon, Linux 6.18),
/// of which the machine model accounts for 6.0 us of copying and allocating.
pub(super) const UNIX: u64 = 1_800;
