//! Tests of traces and state files from outside, in one program.

mod common;
mod compaction;
mod compression;
mod corpus;
mod perf;
mod perfetto;
mod pgy;
mod record;
mod round_trip;
mod sample;
mod state;
mod text;
mod trace_dat;
