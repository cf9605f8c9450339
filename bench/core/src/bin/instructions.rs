//! `instructions CONTESTANT PATTERN TIMES`: runs a pattern TIMES times, for callgrind to count
//! (`scripts/instructions.sh`). Prints the number of operations per run. Without arguments, prints
//! the names of contestants and patterns.
//!
//! The functions named `measured_*` hold the code to be counted. They also run in a first, warm-up
//! run. The count for TIMES = 2 minus the count for TIMES = 1 is therefore the count of one run in
//! the steady state.

use std::process::ExitCode;

use pageyard_bench::contestants::{Contestant, PageyardOpaque, Visitor};

use pageyard_bench::field::each;
use pageyard_bench::patterns::{HELD, PATTERNS, Pattern, Shape};
use pageyard_bench::safety;

/// Large enough to make the fixed part of a run negligible.
const PAIRS: usize = 4096;
const SEED: u64 = 0x5EED;

struct Run<'a> {
    name: &'a str,
    pattern: Pattern,
    times: u64,
    found: bool,
}

impl Visitor for Run<'_> {
    fn visit<A: Contestant + 'static>(&mut self) {
        if A::NAME != self.name {
            return;
        }
        self.found = true;
        let a = A::new();
        for time in 0..self.times {
            self.pattern.run(&a, PAIRS, SEED + time);
        }
    }
}

struct Names;

impl Visitor for Names {
    fn visit<A: Contestant + 'static>(&mut self) {
        println!("contestant {}", A::NAME);
    }
}

/// Visits the opaque variant, then all contestants, then pageyard with checks and defences.
fn visit_all(visitor: &mut impl Visitor) {
    visitor.visit::<PageyardOpaque>();
    each(visitor);
    safety::each(visitor);
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if args.is_empty() {
        visit_all(&mut Names);
        PATTERNS.iter().filter(|p| p.threads == 1).for_each(|p| println!("pattern {}", p.name));
        return ExitCode::SUCCESS;
    }
    let [name, wanted, times] = args[..] else {
        eprintln!("usage: instructions [CONTESTANT PATTERN TIMES]");
        return ExitCode::FAILURE;
    };
    let Some(pattern) = PATTERNS.into_iter().find(|p| p.name == wanted && p.threads == 1) else {
        eprintln!("no single-threaded pattern {wanted}");
        return ExitCode::FAILURE;
    };
    let Ok(times) = times.parse() else {
        eprintln!("not a number: {times}");
        return ExitCode::FAILURE;
    };
    let mut run = Run { name, pattern, times, found: false };
    visit_all(&mut run);
    if !run.found {
        eprintln!("unknown contestant {name}");
        return ExitCode::FAILURE;
    }
    println!("{}", if matches!(pattern.shape, Shape::Pair(_)) { PAIRS } else { HELD });
    ExitCode::SUCCESS
}
