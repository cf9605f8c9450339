//! Conditions of the slow path whose edges no request reaches.

#![allow(clippy::single_range_in_vec_init)] // the map is a list of ranges

use super::*;
use crate::base::node_mask::NodeChoice;
use crate::embedder::config::Hooked;
use crate::embedder::hooks::Defences;

/// Hooks that can move blocks.
struct Mover;

impl Platform for Mover {}
impl Reclaim for Mover {}
impl Observer for Mover {}
impl Defences for Mover {}

type Y = Yard<'static, Hooked<spin::mutex::SpinMutex<()>, Mover>>;

fn yard() -> Y {
    Y::from_memory_map(&[0x1_0000_0000..0x1_0400_0000], &[], 1, Mover).unwrap()
}

fn request(y: &Y, order: u8, gfp: Gfp) -> Request {
    y.request(Order::new(order).unwrap(), gfp, NodeChoice::LOCAL).unwrap()
}

#[test]
fn s2_10_single_pages_and_requests_without_io_do_not_compact() {
    let y = yard();
    let may = |order, gfp| Y::can_compact(&request(&y, order, gfp));
    assert!(may(1, Gfp::KERNEL) && may(1, Gfp::NOFS));
    assert!(!may(0, Gfp::KERNEL) && !may(1, Gfp::NOIO));
}

#[test]
fn claims_are_credible_up_to_the_managed_pages_and_what_the_counter_holds() {
    let y = yard();
    let mut req = request(&y, 0, Gfp::KERNEL);
    let mut c = SlowPath {
        req: &mut req,
        flags: AllocFlags::empty(),
        zonelists: 0,
        progress: true,
        claimed: 0,
        free: 0,
        in_vain: MAX_IN_VAIN,
        no_progress_loops: 0,
        compacted: CompactResult::Skipped,
        left: Left::Nothing,
        compacted_first: false,
        retries: Retries::default(),
        rounds: 0,
        oom_rounds: 0,
        drained: false,
        tries: 0,
    };
    let mut credible = |managed: u64, claimed: u32| {
        y.zones[0].managed.store(managed, Relaxed);
        c.claimed = claimed;
        y.is_credible(&c)
    };
    assert!(credible(100, 100) && !credible(100, 101));
    // At its maximum the counter may have lost claims: 16 TiB.
    let most = u32::MAX;
    assert!(credible(most.into(), most - 1) && !credible(most.into(), most));
}
