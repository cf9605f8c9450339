//! `instructions CONTESTANT PATTERN TIMES`: does a pattern TIMES times, for callgrind to count
//! (`scripts/instructions.sh`). Prints the operations that one time has. Without arguments: the
//! names of contestants and patterns.
//!
//! The functions whose names begin with `measured_` hold what is to be counted. They also run in
//! a first, unmeasured time; so the count for TIMES = 2 less the count for TIMES = 1 is that of a
//! time in the steady state.

use std::process::ExitCode;

use pageyard_bench::contestants::{Contestant, PageyardOpaque, Visitor, each};

use pageyard_bench::patterns::{HELD, PATTERNS, Pattern, Shape};
use pageyard_bench::safety;

/// Enough to make the fixed part of a time small.
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

/// Ours twice, then the rest, then ours with checks and defences.
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
        eprintln!("no pattern of one thread is called {wanted}");
        return ExitCode::FAILURE;
    };
    let Ok(times) = times.parse() else {
        eprintln!("not a number: {times}");
        return ExitCode::FAILURE;
    };
    let mut run = Run { name, pattern, times, found: false };
    visit_all(&mut run);
    if !run.found {
        eprintln!("no contestant is called {name}");
        return ExitCode::FAILURE;
    }
    println!("{}", if matches!(pattern.shape, Shape::Pair(_)) { PAIRS } else { HELD });
    ExitCode::SUCCESS
}
