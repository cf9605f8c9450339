//! Calls each public function, each in a function of its own that cannot itself panic.
//! `scripts/no-panic.sh` searches their machine code for panics.

use pageyard::policy::{Linux612, StaticPolicy};
use pageyard::{Bare, InitError, Yard};

type Lock = spin::mutex::SpinMutex<()>;
type Y<'a, P> = Yard<'a, Bare<Lock, (), P>>;

include!("../declare.rs");
include!("table.rs");

fn with_yard<P: StaticPolicy>() -> Result<(), InitError> {
    let usable = [0..16 << 20, 16 << 20..32 << 20];
    all::<P>(&Yard::from_memory_map(&usable, &[], 1, ())?);
    Ok(())
}

fn main() -> Result<(), InitError> {
    with_yard::<Linux612>()
}
