//! `pageyard replay`.

use crate::output::Outcome;

/// To be written.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args) -> Outcome {
    Err("not yet".into())
}
