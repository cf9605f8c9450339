//! The packed engine's protocols hold, and each planted bug is found.

mod common;

use common::{finds, holds};
use pageyard_loom::packed::{self, Bug};

macro_rules! probe { ($($name:ident $bound:literal,)*) => { $(#[test] fn $name() { let t = std::time::Instant::now(); holds(stringify!($name), Some($bound), || packed::$name(Bug::No)); println!("{} {:?}", stringify!($name), t.elapsed()); })* } }
probe! { last_two_words 2, free_and_adopt 3, free_and_take 3, two_takers 3, seal_and_thief 2, empty_and_free 2, move_in_index 1, isolate_and_free 2, isolate_and_seal 2, isolate_and_claim 2, claim_and_free 2, pair_and_half 2, seal_claim_and_late_look 1, free_twice 3, depot 2, }
