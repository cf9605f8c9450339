//! All contestants in all timed patterns.
//!
//! `cargo bench -p pageyard-bench [-- --quick] [--rounds N] [--seed N] [--only PATTERN] [--json FILE]`

use pageyard_bench::compare::run;
use pageyard_bench::field::Everyone;

fn main() -> std::io::Result<()> {
    run::<Everyone>()
}
