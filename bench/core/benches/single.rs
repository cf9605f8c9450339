//! Runs each timed pattern under criterion, for its baselines and its plots over time:
//! `cargo bench -p pageyard-bench --features criterion --bench single -- --save-baseline NAME`. For
//! ratios between contestants, use `compare`.

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use pageyard_bench::contestants::{Contestant, Visitor};
use pageyard_bench::field::each;
use pageyard_bench::patterns::PATTERNS;

struct Bench<'c>(&'c mut Criterion);

impl Visitor for Bench<'_> {
    fn visit<A: Contestant + 'static>(&mut self) {
        for pattern in PATTERNS.into_iter().filter(|p| p.timed) {
            let a = A::new();
            self.0.bench_function(&format!("{}/{}", pattern.name, A::NAME), |b| {
                // Criterion gets thread CPU time per operation, not wall time.
                b.iter_custom(|times| {
                    (0..times)
                        .map(|n| Duration::from_secs_f64(pattern.run(&a, 20_000, n).ns / 1e9))
                        .sum()
                });
            });
        }
    }
}

fn all(c: &mut Criterion) {
    each(&mut Bench(c));
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(11).measurement_time(Duration::from_secs(1));
    targets = all
}
criterion_main!(benches);
