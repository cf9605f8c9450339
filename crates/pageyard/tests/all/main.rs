//! Tests of the core that work for long, in one program: compiled and linked once, they share the allocator's code.
//! The others are a program of `pageyard-tests`.

mod common;
#[path = "../../../../fuzz/bodies/replay.rs"]
mod replay;

mod compact_direct;
mod compact_threads;
mod compact_whole;
mod corpus;
mod failing_hooks;
mod free_races;
mod hotplug;
mod hwpoison;
mod isolation_threads;
mod ladder;
mod model;
mod panicking_hooks;
mod report;
mod shuffle;
