//! Tests of the machine from outside.

mod background;
mod common;
mod contended;
mod corpus;
mod explore;
mod large;
mod locks;
mod mixed;
mod packed;
mod reproducible;
mod specs;
mod tasks;
mod touch;
mod traffic;
