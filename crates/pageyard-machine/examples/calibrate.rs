//! Measures what can be measured of the costs on this host, beside the table, and prints the table.
//!
//! `cargo run --release -p pageyard-machine --example calibrate`

use pageyard_machine::spec::SpecError;
use pageyard_machine::{Costs, MachineSpec, calibrate};

fn main() -> Result<(), SpecError> {
    let costs = Costs::default();
    let spec = MachineSpec::detect()?;
    let report = calibrate::Report { found: calibrate::calibrate(&spec), costs: &costs };
    println!("{report}\n{}", costs.table());
    Ok(())
}
