//! Measures what can be measured of the costs on this host, beside the table, and prints the table.
//!
//! `cargo run --release -p pageyard-machine --example calibrate`

use pageyard_machine::{Costs, calibrate};

fn main() {
    let costs = Costs::default();
    let report = calibrate::Report { rows: calibrate::calibrate(), costs: &costs };
    println!("{report}\n{}", costs.table());
}
