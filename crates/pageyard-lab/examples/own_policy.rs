//! Replays a recording under rules of one's own, beside `Linux612`:
//!
//! ```sh
//! cargo run -p pageyard-lab --example own_policy -- samples/kbuild.pgy
//! ```

use std::error::Error;
use std::path::PathBuf;

use pageyard::policy::{Linux612, PcpRules, Rules, StaticPolicy};
use pageyard_lab::replay::{Choice, Input, Options, Settings, by_name, replay};

/// Linux 6.12 that doubles batches at most three times, and keeps single pages only on the per-CPU lists.
const RULES: Rules = Rules {
    pcp: PcpRules { scale_max: 3, ..Linux612::RULES.pcp },
    high_order_lists: false,
    ..Linux612::RULES
};

fn main() -> Result<(), Box<dyn Error>> {
    let trace = std::env::args_os().nth(1).ok_or("usage: own_policy RECORDING")?;
    let own = Choice { name: "Own".into(), rules: RULES, settings: Settings::default() };
    let options = Options {
        policies: vec![by_name("Linux612")?, own],
        seed: 1,
        seeds: 1,
        ..Options::default()
    };
    let report = replay(Input::Path(PathBuf::from(trace)), &options, &mut |_, _, _| {})?;
    println!("{report}");
    Ok(())
}
