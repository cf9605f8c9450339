//! The tests that `scripts/mutants.sh` asks first: those of few policies, whose program is built again in a second or two.
//! `cargo test` leaves it out; all of them are in `quick`.

#[path = "../../../pageyard/tests/all/common/mod.rs"]
mod common;

#[path = "../../../pageyard/tests/all/attempts.rs"]
mod attempts;
#[path = "../../../pageyard/tests/all/batch.rs"]
mod batch;
#[path = "../../../pageyard/tests/all/buddy.rs"]
mod buddy;
#[path = "../../../pageyard/tests/all/bulk.rs"]
mod bulk;
#[path = "../../../pageyard/tests/all/claims.rs"]
mod claims;
#[path = "../../../pageyard/tests/all/cma.rs"]
mod cma;
#[path = "../../../pageyard/tests/all/counters.rs"]
mod counters;
#[path = "../../../pageyard/tests/all/cpus.rs"]
mod cpus;
#[path = "../../../pageyard/tests/all/findings.rs"]
mod findings;
#[path = "../../../pageyard/tests/all/free_errors.rs"]
mod free_errors;
#[path = "../../../pageyard/tests/all/guards.rs"]
mod guards;
#[path = "../../../pageyard/tests/all/highatomic.rs"]
mod highatomic;
#[path = "../../../pageyard/tests/all/isolation.rs"]
mod isolation;
#[path = "../../../pageyard/tests/all/kswapd.rs"]
mod kswapd;
#[path = "../../../pageyard/tests/all/pcp_drain.rs"]
mod pcp_drain;
#[path = "../../../pageyard/tests/all/pcp_lists.rs"]
mod pcp_lists;
#[path = "../../../pageyard/tests/all/place.rs"]
mod place;
#[path = "../../../pageyard/tests/all/touches.rs"]
mod touches;
#[path = "../../../pageyard/tests/all/vanilla.rs"]
mod vanilla;
#[path = "../../../pageyard/tests/all/watermarks.rs"]
mod watermarks;
#[path = "../../../pageyard/tests/all/zones.rs"]
mod zones;
