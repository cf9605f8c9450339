//! `pageyard knobs`: the table of settings, for people, programs and `docs/knobs.md`.

use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

use pageyard::{Access, KNOBS, Knob};
use serde::Serialize;

use crate::output::{self, print_json};

/// List the allocator's settings: defaults, ranges, effects
///
/// The settings are the allocator's own, by the kernel's names (sysctls, boot parameters, build
/// options). Programs that embed it read and write them with Yard::knob and Yard::set_knob.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the page docs/knobs.md
    #[arg(long)]
    markdown: bool,
}

#[derive(Serialize)]
struct Json {
    name: &'static str,
    unit: &'static str,
    default: &'static str,
    range: &'static str,
    effect: &'static str,
    access: &'static str,
    instead: Option<&'static str>,
    ours: bool,
}

impl From<&Knob> for Json {
    fn from(k: &Knob) -> Json {
        let (access, instead) = access(k);
        let &Knob { name, unit, default, range, effect, ours, .. } = k;
        Json { name, unit, default, range, effect, access, instead, ours }
    }
}

/// When a setting is chosen, in a word, and what decides where it is none of the allocator's.
fn access(k: &Knob) -> (&'static str, Option<&'static str>) {
    match k.access {
        Access::RunTime => ("run time", None),
        Access::WriteOnly => ("write only", None),
        Access::Start => ("start", None),
        Access::Policy => ("policy", None),
        Access::Elsewhere(decides) => ("elsewhere", Some(decides)),
    }
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    if args.json {
        print_json(&KNOBS.iter().map(Json::from).collect::<Vec<_>>())?;
    } else {
        let page = if args.markdown { markdown() } else { text() };
        output::stdout().write_all(page.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The effect, and what decides where that is something else.
fn effect(k: &Knob) -> String {
    match access(k).1 {
        Some(decides) => format!("{}; {decides}", k.effect),
        None => k.effect.to_owned(),
    }
}

fn text() -> String {
    let mut out = String::new();
    for k in KNOBS {
        let unit = if k.unit.is_empty() { String::new() } else { format!(" ({})", k.unit) };
        let _ = writeln!(out, "{}{unit}", k.name);
        let (when, _) = access(k);
        let _ = match k.access {
            Access::Elsewhere(_) => writeln!(out, "    {when}"),
            _ => writeln!(out, "    {when}, default {}, takes {}", k.default, k.range),
        };
        let _ = writeln!(out, "    {}", effect(k));
    }
    out
}

const HEAD: &str = "\
# Knobs

Written by `pageyard knobs --markdown` from the table in `crates/pageyard/src/allocator/knob_table.rs`; change
that, not this page.

Names are the kernel's (its sysctls, boot parameters and build options); `ours` are those that it
does not have. `Yard::knob` reads a setting as text, `Yard::set_knob` writes it with everything that
follows from it. A value out of its range is refused and changes nothing. \"When\" says when a setting
is chosen: at run time (`write only`: a write asks for something, and there is nothing to read), at the
start (`Layout::knobs`), by the policy (compiled in), or elsewhere: the kernel has the setting, and here
the embedder decides. \u{a7} is a section of [spec.md](spec.md).

| knob | unit | default | takes | when | effect |
|---|---|---|---|---|---|
";

fn markdown() -> String {
    let mut out = HEAD.to_owned();
    for k in KNOBS {
        let ours = if k.ours { " (ours)" } else { "" };
        let _ = writeln!(
            out,
            "| `{}`{ours} | {} | {} | {} | {} | {} |",
            k.name,
            k.unit,
            k.default,
            k.range,
            access(k).0,
            effect(k)
        );
    }
    out
}
