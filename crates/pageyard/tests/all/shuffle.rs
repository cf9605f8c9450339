//! Spec §1.11, §1.8: shuffled free lists.

use crate::common;

use common::view::normal;
use common::{Machine, Y, o};
use pageyard::{Gfp, MigrateType::Movable};

const BLOCKS: u64 = 300;

fn largest(seed: Option<u64>) -> Vec<u64> {
    let m = Machine::normal(BLOCKS << 10).knobs(|k| k.shuffle_seed = seed);
    m.run(|y: &Y<'_>| normal(y).free(10, Movable).to_vec())
}

fn sorted(mut pfns: Vec<u64>) -> Vec<u64> {
    pfns.sort_unstable();
    pfns
}

#[test]
fn s1_11_lists_are_in_order_unless_shuffled() {
    let plain = largest(None);
    assert_eq!(plain.len() as u64, BLOCKS);
    assert!(plain.is_sorted());
    let shuffled = largest(Some(7));
    assert_eq!(sorted(shuffled.clone()), plain, "the same blocks");
    let moved = plain.iter().zip(&shuffled).filter(|(a, b)| a != b).count();
    assert!(moved > 250, "only {moved} of them moved");
    assert_eq!(largest(Some(7)), shuffled, "the same seed, the same order");
    assert_ne!(largest(Some(8)), shuffled);
}

#[test]
fn s1_8_largest_blocks_go_to_a_random_end_while_shuffled() {
    let ends = |seed| {
        let m = Machine::normal(BLOCKS << 10).knobs(|k| k.shuffle_seed = seed);
        m.run(|y: &Y<'_>| {
            let mut tails = 0;
            for _ in 0..100 {
                let pfn = y.alloc(o(10), Gfp::HIGHUSER_MOVABLE).unwrap();
                y.free(pfn, o(10)).unwrap();
                tails += u32::from(normal(y).free(10, Movable).last() == Some(&pfn.0));
            }
            tails
        })
    };
    assert_eq!(ends(None), 0);
    let tails = ends(Some(3));
    assert!((25..=75).contains(&tails), "{tails} of 100");
}
