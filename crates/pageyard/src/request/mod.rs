//! Allocating and freeing: the fast path, the per-CPU lists, the slow path, background reclaim, and
//! requests that never wait.

pub(crate) mod alloc;
pub(crate) mod bulk;
pub(crate) mod cached;
pub(crate) mod compact_retry;
pub(crate) mod direct_reclaim;
pub(crate) mod free;
pub(crate) mod highatomic;
pub(crate) mod interleave;
pub(crate) mod kswapd;
pub(crate) mod nowait;
pub(crate) mod owned;
pub(crate) mod packed;
pub(crate) mod prepare;
pub(crate) mod slow_path;
