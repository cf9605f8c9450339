//! The host's yards, tested from outside, in one program. Beside it, in `tests`, are programs that change what belongs to
//! a whole process: its allocator, its subscriber, its system calls, or the process itself by forks. Each says why.

mod flags;
mod guest_memory;
mod hostile;
mod service;
mod small;
mod thread_cache;
mod yard;
