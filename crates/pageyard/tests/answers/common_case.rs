//! When the common case serves a request or a free. The full path gives the same answers, so that
//! tests of `alloc` and `free` do not notice a common case that never serves.

use pageyard::policy::{OwnedBlocks, Packed, PageChecked, StaticPolicy};
use pageyard::{Gfp, NodeChoice, NodeId, Order, ZoneKind};

use crate::common::{Chosen, LINUX612, Machine, o};

const PAGES: u64 = 8192;
const LOCAL: NodeChoice = NodeChoice::LOCAL;

#[test]
fn the_common_case_frees_to_the_list_of_this_cpu_and_allocates_from_it() {
    let checked: Chosen = &<PageChecked as StaticPolicy>::RULES;
    for rules in [LINUX612, checked] {
        Machine::normal(PAGES).run_under(rules, |y| {
            for order in (0..=2).map(o) {
                let block = y.alloc(order, Gfp::KERNEL).unwrap();
                assert_eq!(y.free_ready(block, order), Some(()), "{order:?}");
                assert_eq!(y.alloc_ready(LOCAL, order, Gfp::KERNEL), Some(block), "{order:?}");
            }
            assert_eq!(y.validate(), Ok(()));
        });
    }
}

#[test]
fn thisnode_is_a_common_case_where_the_cpu_has_memory() {
    Machine::normal(PAGES).run(|y| {
        let page = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        y.free(page, Order::ZERO).unwrap();
        let gfp = Gfp::KERNEL | Gfp::THISNODE;
        assert_eq!(y.alloc_ready(LOCAL, Order::ZERO, gfp), Some(page));
    });
}

#[test]
fn a_cpu_without_memory_has_a_common_case_for_requests_that_name_no_node() {
    let m = Machine::new().cpus(&[0, 1]).zone(ZoneKind::Normal, 0..PAGES);
    m.run(|y| {
        y.hooks().on(1);
        let page = y.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        y.free(page, Order::ZERO).unwrap();
        let ready = |nodes, gfp| y.alloc_ready(nodes, Order::ZERO, gfp);
        assert_eq!(ready(LOCAL, Gfp::KERNEL | Gfp::THISNODE), None);
        assert_eq!(ready(NodeId(0).into(), Gfp::KERNEL), None);
        assert_eq!(ready(LOCAL, Gfp::KERNEL), Some(page));
    });
}

/// A pageblock that is one block has no owner: its list is that of the CPU that frees it.
#[test]
fn huge_pages_go_to_the_list_of_the_cpu_that_frees_them() {
    let rules: Chosen = &<OwnedBlocks as StaticPolicy>::RULES;
    let m = Machine::normal(64 * PAGES).cpus(&[0, 0]).knobs(|knobs| knobs.huge_pages = true);
    m.run_under(rules, |y| {
        let huge = y.alloc(Order::HUGE, Gfp::HIGHUSER_MOVABLE).unwrap();
        y.hooks().on(1);
        y.free(huge, Order::HUGE).unwrap();
        assert_eq!(y.alloc_ready(LOCAL, Order::HUGE, Gfp::HIGHUSER_MOVABLE), Some(huge));
    });
}

/// Spec §2.8: a request tests the high watermark first. The packed engine's zones read their free counter
/// only near it.
#[test]
fn the_common_case_ends_at_the_high_watermark() {
    let packed: Chosen = &<Packed as StaticPolicy>::RULES;
    for rules in [LINUX612, packed] {
        Machine::normal(PAGES).run_under(rules, |y| {
            let mut below = 0;
            for _ in 0..PAGES {
                let info = y.zone_info(ZoneKind::Normal).unwrap();
                let ready = y.alloc_ready(LOCAL, Order::ZERO, Gfp::KERNEL);
                if info.free <= info.watermarks[2] {
                    assert_eq!(ready, None, "{} pages are free", info.free);
                    below += 1;
                }
                if ready.is_none() && y.alloc(Order::ZERO, Gfp::ATOMIC | Gfp::NOWARN).is_err() {
                    break;
                }
            }
            assert!(below > 0);
        });
    }
}

/// A magazine's block is there whatever its order: the free counter decides, also close to the watermark.
#[test]
fn the_packed_engine_s_common_case_serves_all_orders_above_the_high_watermark() {
    let packed: Chosen = &<Packed as StaticPolicy>::RULES;
    Machine::normal(PAGES).run_under(packed, |y| {
        let block = y.alloc(o(1), Gfp::KERNEL).unwrap();
        y.free(block, o(1)).unwrap();
        let info = || y.zone_info(ZoneKind::Normal).unwrap();
        // High watermarks of three halves of this.
        let set_min = |pages: u64| y.set_min_free_kbytes(4 * pages).unwrap();
        set_min(PAGES);
        set_min((info().free - 500) / 3 * 2);
        let above = info().free - info().watermarks[2];
        assert!((400..600).contains(&above), "{above} pages above the watermark");
        assert_eq!(y.alloc_ready(LOCAL, o(1), Gfp::KERNEL), Some(block));
    });
}
