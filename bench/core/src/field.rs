//! All contestants of one comparison.

use crate::compare::Field;
use crate::contestants::{
    Bitmap, BuddySlab, BuddySystem, Floor, FrameCore, FrameDepot, PackedYard, Pageyard,
    PageyardOwned, Visitor,
};
use crate::packed::{Packed, PackedOwned, PackedPinned};

/// Visits all contestants of the tables: pageyard first, then the floor, then the peers.
pub fn each(visitor: &mut impl Visitor) {
    visitor.visit::<Pageyard>();
    visitor.visit::<PageyardOwned>();
    visitor.visit::<PackedYard>();
    visitor.visit::<Packed>();
    visitor.visit::<PackedPinned>();
    visitor.visit::<PackedOwned>();
    visitor.visit::<Floor>();
    visitor.visit::<FrameDepot>();
    visitor.visit::<FrameCore>();
    visitor.visit::<BuddySlab>();
    visitor.visit::<BuddySystem>();
    visitor.visit::<Bitmap>();
}

/// The contestants of [`each`].
#[derive(Debug)]
pub struct Everyone;

impl Field for Everyone {
    fn each(visitor: &mut impl Visitor) {
        each(visitor);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::contestants::{Contestant, PageyardOpaque};
    use crate::patterns::PATTERNS;

    struct Check;

    impl Visitor for Check {
        fn visit<A: Contestant + 'static>(&mut self) {
            let a = A::new();
            for order in [0, 3, 9] {
                let blocks: BTreeSet<usize> = (0..64).map(|_| a.alloc(order)).collect();
                assert_eq!(blocks.len(), 64, "{} gives a block twice", A::NAME);
                blocks.into_iter().for_each(|block| a.free(block, order));
            }
            for pattern in PATTERNS {
                let sample = pattern.run(&a, 100, 1);
                assert!(sample.ns > 0.0, "{} takes no time for {}", A::NAME, pattern.name);
            }
        }
    }

    #[test]
    fn every_contestant_runs_every_pattern() {
        each(&mut Check);
        Check.visit::<PageyardOpaque>();
        crate::safety::each(&mut Check);
    }
}
