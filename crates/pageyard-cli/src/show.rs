//! `pageyard show`: prints a recorded machine state in the kernel's formats.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use pageyard_lab::owner::By;
use pageyard_lab::replay::{Choice, Options, Owners, by_name, owners};
use pageyard_lab::show::{Form, Moment, When, is_recording, show};
use serde_json::{Value, json};

use crate::output::{self, print_json};
use crate::progress::Bar;
use crate::replay::{Reading, input, show as progress};

const EXAMPLES: &str = "\
Examples:
  pageyard show samples/kbuild.pgy --as zoneinfo
  pageyard show samples/kbuild.pgy --as vmstat --at after
  pageyard show samples/kbuild.pgy --as page_owner --by name
  pageyard show samples/oracle/drains-1.jsonl.zst --as pagetypeinfo --line 60000
  pageyard show samples/oracle/drains-1.jsonl.zst --as show_mem --json";

/// Print a recorded machine state as the kernel's zoneinfo, buddyinfo, pagetypeinfo, vmstat or
/// show_mem, or the owners of pages (page_owner)
///
/// The state of a trace is printed from the files that were recorded with it. The state of a
/// recording is restored into the allocator, which prints it. show_mem is the kernel's memory
/// report for a failed request, zone by zone.
///
/// page_owner prints which task holds which pages at the end of a trace. The trace is replayed, so
/// the pages are those that the policy chose; the requests are the recorded ones. What a trace does
/// not record (processes, call stacks, owners of pages before it began) is listed on standard
/// error, and under "notes" in JSON.
///
/// Exit code: 0, or 2 if there is no such state.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, mut_arg("lenient", |arg| arg.help_heading(None)))]
pub(crate) struct Args {
    /// A trace with state files attached (.pgy) or next to it, the folder of state files, or a
    /// recording of the real kernel (JSON lines, plain or compressed with zstd). For page_owner,
    /// any trace, or - for standard input
    #[arg(value_name = "TRACE|SNAPSHOT")]
    file: PathBuf,
    /// What to print
    #[arg(long = "as", value_parser = text_of,
          value_name = "zoneinfo|buddyinfo|pagetypeinfo|vmstat|show_mem|page_owner")]
    text: Text,
    /// Which state of a trace to print [default: the earliest that has it]
    #[arg(long, value_name = "before|traced_start|traced_end|after")]
    at: Option<Moment>,
    /// Print the last state of a recording up to this line [default: the first state]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    line: Option<u64>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Only with --as page_owner")]
    owner: OwnerArgs,
}

#[derive(clap::Args)]
struct OwnerArgs {
    /// Group blocks by task (name and pid), by task name, or by order and flags, largest total
    /// first [default: every block in the kernel's format]
    #[arg(long, value_name = "task|name|request", value_parser = by)]
    by: Option<By>,
    /// Policy under which the trace is replayed [default: that of the kernel that recorded it]
    #[arg(long, value_name = "P", value_parser = by_name)]
    policy: Option<Choice>,
    #[command(flatten)]
    reading: Reading,
}

impl OwnerArgs {
    /// Returns whether an option is given that does not apply to a text of a state.
    fn given(&self) -> bool {
        let none = Reading { lenient: self.reading.lenient, ..Reading::default() };
        self.by.is_some() || self.policy.is_some() || self.reading != none
    }
}

/// A text of a state, or page_owner, which requires a replay.
#[derive(Clone, Copy)]
enum Text {
    State(Form),
    PageOwner,
}

fn text_of(name: &str) -> Result<Text, String> {
    match name {
        "page_owner" => Ok(Text::PageOwner),
        name => name.parse().map(Text::State).map_err(|e| format!("{e}, page_owner")),
    }
}

fn by(name: &str) -> Result<By, String> {
    Owners::BY.into_iter().find(|by| by.name() == name).ok_or_else(|| {
        let names = Owners::BY.map(By::name).join(", ");
        format!("a trace cannot be grouped by \"{name}\"; expected one of {names}")
    })
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    match args.text {
        Text::State(_) if args.owner.given() => Err(
            "--by, --policy, --state, --memory, --cpus, --cache-slice and --kernel apply only to \
             a replay; remove them, or use --as page_owner"
                .into(),
        ),
        Text::State(form) => state(args, form),
        Text::PageOwner if args.at.is_some() || args.line.is_some() => {
            Err("page_owner describes the end of a trace; remove --at and --line".into())
        }
        Text::PageOwner => page_owner(args),
    }
}

fn state(args: &Args, form: Form) -> output::Outcome {
    let lenient = args.owner.reading.lenient;
    let shown = show(&args.file, form, When { at: args.at, line: args.line, lenient })?;
    if !shown.skipped.is_empty() {
        output::say!("pageyard: damaged parts of the trace skipped, the first:");
        shown.skipped.iter().for_each(|damage| output::say!("  {damage}"));
    }
    if args.json {
        let state = [("state", shown.state.into()), ("as", form.name().into())];
        print(args, state, shown.json)
    } else {
        output::stdout().write_all(shown.text.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn page_owner(args: &Args) -> output::Outcome {
    let OwnerArgs { by, policy, reading } = &args.owner;
    let options = Options {
        policies: policy.iter().cloned().collect(),
        machine: reading.machine(),
        state: reading.state.clone(),
        lenient: reading.lenient,
        ..Options::default()
    };
    if is_recording(&args.file) {
        return Err(format!(
            "{}: page_owner needs a trace, and this is a recording of the kernel's answers; name a trace, \
             or use another --as",
            args.file.display()
        )
        .into());
    }
    let mut bar = Bar::new();
    let update = &mut |stage, at, all| progress(&mut bar, stage, at, all);
    let owners = owners(input(&args.file), &options, update)?;
    drop(bar);
    if args.json {
        return print(
            args,
            [("state", "end".into()), ("as", "page_owner".into())],
            owners.json(*by),
        );
    }
    for note in owners.notes() {
        output::say!("pageyard: {note}");
    }
    let mut out = std::io::BufWriter::new(output::stdout());
    match by {
        Some(by) => out.write_all(owners.summary(*by).as_bytes())?,
        None => write!(out, "{owners}")?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args, state: [(&str, Value); 2], figures: Value) -> output::Outcome {
    let mut all = json!({ "file": args.file.display().to_string() });
    if let (Value::Object(all), Value::Object(figures)) = (&mut all, figures) {
        all.extend(state.map(|(key, value)| (key.to_owned(), value)));
        all.extend(figures);
    }
    print_json(&all)?;
    Ok(ExitCode::SUCCESS)
}
