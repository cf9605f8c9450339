//! The policies that a command runs, and `pageyard policies`, which lists them.

use std::io::Write;
use std::process::ExitCode;
use std::str::FromStr;

use pageyard::policy::{self, Linux612, MODIFIERS, NUMBERED, StaticPolicy};
use pageyard_lab::replay::{Choice, DEFAULT_POLICIES, PolicyError, Settings, columns, policies};
use pageyard_lab::workload::on_hosts;
use serde::Serialize;

use crate::output::{self, print_json, say};

/// The policies to compare.
#[derive(clap::Args)]
pub(crate) struct Choices {
    /// Policies, one column each; changes are against the first. `pageyard policies` lists them
    /// [default: Base,Step5,Step10,Linux612], and in a replay also that of the recording kernel
    ///
    /// Modifiers compose, as in TwoPassBulkFree<Vanilla<Base>>. Settings can follow a policy and
    /// apply only to its column: Linux612,Linux612+high=400,Linux612+percpu_pagelist_high_fraction=8.
    #[arg(long, value_name = "P,P")]
    policy: Option<Policies>,
    /// A setting for every column that does not set it itself; may be repeated
    ///
    /// NAME is a writable knob (`pageyard knobs`), or high, high_min, high_max or batch: the limits
    /// of each zone's per-CPU lists, in pages.
    #[arg(long, value_name = "NAME=VALUE")]
    knob: Vec<Settings>,
}

#[derive(Clone)]
struct Policies(Vec<Choice>);

impl FromStr for Policies {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Policies, PolicyError> {
        columns(text).map(Policies)
    }
}

impl Choices {
    /// Returns all policies, with the settings applied.
    pub(crate) fn all(&self) -> Vec<Choice> {
        match &self.policy {
            Some(_) => self.given(),
            None => self.with_knobs(columns(DEFAULT_POLICIES).unwrap_or_default()),
        }
    }

    /// Returns the policies that the user named, with the settings applied.
    pub(crate) fn given(&self) -> Vec<Choice> {
        self.with_knobs(self.policy.iter().flat_map(|p| p.0.clone()).collect())
    }

    fn with_knobs(&self, choices: Vec<Choice>) -> Vec<Choice> {
        choices.into_iter().map(|choice| choice.with_all(&self.knob)).collect()
    }

    /// Returns whether the policies are the default.
    pub(crate) fn is_default(&self) -> bool {
        self.policy.is_none()
    }

    /// Returns whether there are settings for every column.
    pub(crate) fn has_knobs(&self) -> bool {
        !self.knob.is_empty()
    }
}

/// Says on standard error which settings of these policies change nothing.
pub(crate) fn note_without_effect(choices: &[Choice]) {
    for choice in choices {
        let names: Vec<&str> = choice.without_effect().collect();
        if !names.is_empty() {
            say!(
                "pageyard: {}: {} changes nothing: the packed engine has no per-CPU lists",
                choice.name,
                names.join(", ")
            );
        }
    }
}

/// List the policies and modifiers
///
/// A policy selects the allocator's behavior: the rules of Linux 6.12, those of an earlier or later
/// step, or either with a modification. `replay`, `run`, `show` and `soak` accept policies with
/// --policy; `judge` takes its policy as an argument.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: &'static str,
    about: String,
    /// Whether this is a modifier, which wraps a policy.
    modifier: bool,
    /// Whether `run --on host` accepts it.
    on_hosts: bool,
}

impl Entry {
    fn new<T>(of: &policy::Named<T>, modifier: bool) -> Entry {
        let &policy::Named { name, about, .. } = of;
        Entry { name, about: plain(about), modifier, on_hosts: on_hosts().any(|n| n == name) }
    }
}

/// Converts documentation to plain lines: links become their text, and examples are left out.
fn plain(about: &str) -> String {
    let about = about.split("```").next().unwrap_or_default().trim_end();
    let mut text = String::with_capacity(about.len());
    let mut rest = about;
    while let Some((before, link)) = rest.split_once('[') {
        let (name, after) = link.split_once(']').unwrap_or((link, ""));
        text.extend([before, name]);
        rest = match after.strip_prefix('(') {
            Some(target) => target.split_once(')').map_or("", |(_, rest)| rest),
            None => after,
        };
    }
    text.push_str(rest);
    let lines = text.lines().map(|line| line.trim().replace('`', ""));
    lines.collect::<Vec<_>>().join("\n")
}

fn entries() -> Vec<Entry> {
    let whole = policies().map(|p| Entry::new(p, false));
    let modifiers = MODIFIERS.iter().map(|m| Entry::new(m, true));
    let numbered = NUMBERED.iter().map(|m| Entry {
        name: m.name,
        about: format!(
            "{}\n{1}<N, P>, or {1}<N>: N is {2} of at most {3}.",
            plain(m.about),
            m.name,
            m.number,
            m.most
        ),
        modifier: true,
        on_hosts: false,
    });
    whole.chain(modifiers).chain(numbered).collect()
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    let entries = entries();
    if args.json {
        print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = output::stdout();
    let (modifiers, whole): (Vec<&Entry>, Vec<_>) = entries.iter().partition(|e| e.modifier);
    let mut list = |entries: &[&Entry]| -> std::io::Result<()> {
        for Entry { name, about, .. } in entries {
            writeln!(out, "{name}\n    {}", about.replace('\n', "\n    "))?;
        }
        Ok(())
    };
    list(&whole)?;
    list(&modifiers)?;
    let hosts = on_hosts().collect::<Vec<_>>().join(", ");
    writeln!(
        out,
        "\n\
         Modifiers wrap a policy and compose, as in TwoPassBulkFree<Vanilla<Base>>; a modifier \
         without a policy\n\
         wraps {}. `run --on host` accepts {hosts}.",
        Linux612::NAME
    )?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        choices: Choices,
    }

    #[test]
    fn help_names_the_default_policies() {
        let help = Program::command().render_long_help().to_string();
        assert!(help.contains(&format!("[default: {DEFAULT_POLICIES}]")), "{help}");
        let choices = Choices { policy: None, knob: Vec::new() };
        assert_eq!(choices.all().len(), 4);
        assert!(choices.given().is_empty());
    }
}
