//! `pageyard show`: a recorded machine state in the kernel's own words.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::show::{Form, Moment, When, show};
use serde_json::{Value, json};

use crate::output::{self, print_json};

const EXAMPLES: &str = "\
Examples:
  pageyard show samples/kbuild.pgy --as zoneinfo
  pageyard show samples/kbuild.pgy --as vmstat --at after
  pageyard show samples/oracle/drains-1.jsonl.zst --as pagetypeinfo --line 60000
  pageyard show samples/oracle/drains-1.jsonl.zst --as show_mem --json";

/// A trace's state is printed from the files that were recorded with it; a recording's state is
/// restored into the allocator, which prints it. show_mem is the kernel's report on memory at a
/// failed request, zone by zone. Exit code: 0, or 2 if there is no such state.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A trace with state files attached (.pgy) or beside it, their folder, or a recording of the
    /// real kernel (JSON lines, plain or compressed with zstd)
    #[arg(value_name = "TRACE|SNAPSHOT")]
    file: PathBuf,
    /// What to print
    #[arg(long = "as", value_name = "zoneinfo|buddyinfo|pagetypeinfo|vmstat|show_mem")]
    form: Form,
    /// Which of a trace's states [default: the earliest that has it]
    #[arg(long, value_name = "before|traced_start|traced_end|after")]
    at: Option<Moment>,
    /// Of a recording's states, the last one up to this line [default: the first]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    line: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let shown = show(&args.file, args.form, When { at: args.at, line: args.line })?;
    if args.json {
        let mut all = json!({
            "file": args.file.display().to_string(),
            "state": shown.state,
            "as": args.form.name(),
        });
        if let (Value::Object(all), Value::Object(figures)) = (&mut all, shown.json) {
            all.extend(figures);
        }
        print_json(&all)?;
    } else {
        std::io::stdout().lock().write_all(shown.text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}
