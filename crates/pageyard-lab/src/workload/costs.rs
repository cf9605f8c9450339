//! What workloads spend outside the allocator, in nanoseconds: the same numbers for all of them.
//! What pages cost when they are touched, and all that the allocator does, is the machine's.

/// A page fault, less zeroing the page and allocating it. Derived from A.1: two processes of
/// page_fault1 map 2,694,662 pages a second, 742 ns each; the machine's table has 299 ns for
/// zeroing a page from memory, and about 40 go to the allocator.
pub(super) const FAULT: u64 = 400;
/// Unmapping a page at the end of a process, less giving it back. Assumed: clearing its entry and
/// its reverse mapping, a tenth of a fault.
pub(super) const UNMAP: u64 = 40;
/// Taking a page of a file out of the page cache, less giving it back. Derived from A.1: removing
/// 2,621,440 pages took 540 ms, 206 ns each, of which about 50 went to the allocator.
pub(super) const FORGET: u64 = 150;
/// A send or a receive of 10 KiB over SCTP, less allocating and copying. Taken to be TCP's: within one
/// machine 10 KiB take 6.1 us over that (measured: two CPUs of an Intel Xeon, Linux 6.18, which has
/// no SCTP), of which the machine has 1.3 for copying and allocating. A comparison of 2004 has SCTP
/// 4.5 times as slow as TCP (epxx.co, 10,000 bytes within one machine); docs/reproductions.md says
/// what that would change.
pub(super) const SCTP: u64 = 5_000;
/// A buffer's part of a system call on a UNIX socket, less allocating and copying. Derived: to write 64
/// KiB, four buffers, takes 13.3 us of CPU time (measured: an Intel Xeon, Linux 6.18), of which the
/// machine has 6.0 for copying and allocating.
pub(super) const UNIX: u64 = 1_800;
