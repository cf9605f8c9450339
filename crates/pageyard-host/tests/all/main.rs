//! Tests of the host's yards from outside, in one program. Next to it in `tests` are programs that
//! change process-wide state: its allocator, its subscriber, its system calls, or the process
//! itself by forks. Each says why.

mod direct_io;
mod example;
mod flags;
mod fragments;
mod guest_memory;
mod hostile;
mod owned;
mod pinned;
mod service;
mod small;
mod thread_cache;
mod usable;
mod yard;
