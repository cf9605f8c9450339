//! Blame: why requests failed, were slow, or took blocks of another type, and which requests hold
//! the pages that stood in the way.

mod case;
mod collect;
mod report;
mod sentence;
mod totals;

pub(super) use case::{Effort, Place};
pub(super) use collect::{Asked, Collector};
pub(super) use report::RECORDED;
pub use report::{Blame, BlameSide};
