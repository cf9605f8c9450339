//! `pageyard compare`: compares saved results.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser;
use pageyard_lab::picture::Page;
use pageyard_lab::table::{
    Aggregate, FalseAlarms, Form, Options, Report, Rows, Rule, Selection, Source, align,
    false_alarms, tsv,
};

use crate::output::{self, print_json};
use crate::picture::{Picture, command};

const EXAMPLES: &str = "\
Examples:
  pageyard compare before.json after.json
  pageyard compare before.json after.json --metrics 'time,hold_*'
  pageyard compare results.json --form mmtests-2019
  pageyard compare before.json after.json --html changes.html
  pageyard compare first.json again.json --aa
  pageyard compare replay-before.json replay-after.json";

/// Compare saved results and print a table
///
/// A file contains the output of `pageyard run --json`, or of `pageyard replay --json`. Every policy
/// of every file is a column; the first is the base. Runs of the same workload under the same
/// policy in one file are samples of one column. A metric that a column does not have is `-` there.
///
/// In the form `pageyard` a change is reported if p, corrected over all comparisons of primary
/// metrics, is below 0.05, and the interval of the ratio is outside the band. `~` means that no
/// change is shown; `n=24` after it, that about 24 samples on each side would show a difference as
/// large as this one. Indented metrics explain a result: their p is not corrected, and no change is
/// claimed. Simulated results that vary on neither side are compared exactly.
///
/// Exit code: 0, or 2 if a file cannot be read or the results cannot be compared.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Saved results, the base first
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Form of the table. pageyard: medians, and changes only where the samples show them;
    /// mmtests-2019, mmtests-2024: as printed by mmtests, with its rule of significance until and
    /// since December 2024; index: the base is 100; change: plain percentages; change-2024: like
    /// change, of figures increased by one; series: every sample
    #[arg(long, value_name = "FORM", default_value = "pageyard", value_parser = form())]
    form: Form,
    /// Show these metrics only, and correct for them only: names separated by commas, with `*` for
    /// any characters and `?` for one. Select them before you see the results; by default, all are
    /// shown and those that explain a result are not corrected for
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    metrics: Vec<String>,
    /// pageyard, --aa: ignore changes whose ratio is within this many percent of 1 [default: 1]
    #[arg(long, value_name = "PERCENT", value_parser = band)]
    band: Option<f64>,
    /// Random seed of the bootstrap and of --aa
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// mmtests: which rows to print [default: multiops]
    #[arg(long, value_name = "ROWS", value_parser = rows())]
    rows: Option<Rows>,
    /// mmtests: digits after the decimal point [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=6))]
    precision: Option<u8>,
    /// index and change: how samples are aggregated [default: mean]
    #[arg(long, value_name = "NAME", value_parser = aggregate())]
    aggregate: Option<Aggregate>,
    /// Treat the files as an A/A run (the same thing measured twice), and print how often each rule
    /// would raise a false alarm
    #[arg(long, conflicts_with_all = ["form", "csv", "tsv", "html", "svg"])]
    aa: bool,
    /// With --aa: number of times the samples are redistributed
    #[arg(long, value_name = "N", default_value_t = 1000, requires = "aa",
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    deals: u32,
    /// Length of the longest line, in characters; wider tables are folded. By default that of the
    /// terminal, or unlimited if the output is not a terminal
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..),
          conflicts_with = "output")]
    width: Option<u16>,
    /// Print comma-separated values instead of text
    #[arg(long, group = "output")]
    csv: bool,
    /// Print all samples in the exchange format of mmtests: metric, workload, column, interval,
    /// value and unit, separated by tabs
    #[arg(long, group = "output", conflicts_with_all = ["form", "band"])]
    tsv: bool,
    /// Print JSON instead of text
    #[arg(long, group = "output")]
    json: bool,
    #[command(flatten)]
    picture: Picture,
}

/// Parses one of these names to its value.
fn named<T: Copy + Send + Sync + 'static>(
    names: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names.iter().map(|n| n.0)).map(move |name| {
        // The parser accepted only these names.
        names.iter().find(|n| n.0 == name).map_or(names[0].1, |n| n.1)
    })
}

fn form() -> impl TypedValueParser<Value = Form> {
    named(&Form::ALL)
}

fn rows() -> impl TypedValueParser<Value = Rows> {
    named(&[
        ("multiops", Rows::Multiops),
        ("multiops-2026", Rows::Multiops2026),
        ("variabletime", Rows::Variabletime),
    ])
}

fn aggregate() -> impl TypedValueParser<Value = Aggregate> {
    named(&[("mean", Aggregate::Mean), ("median", Aggregate::Median)])
}

fn band(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a percentage of at least 0 and below 100".into()),
    }
}

impl Args {
    /// Fails if an option is given that the form does not use.
    fn check(&self) -> Result<(), String> {
        let is_mmtests = matches!(self.form, Form::Mmtests2019 | Form::Mmtests2024);
        let is_change = matches!(self.form, Form::Index | Form::Change | Form::Change2024);
        let options = [
            ("--band", self.band.is_some(), self.form == Form::Pageyard, "pageyard"),
            ("--rows", self.rows.is_some(), is_mmtests, "mmtests-2019 and mmtests-2024"),
            ("--precision", self.precision.is_some(), is_mmtests, "mmtests-2019 and mmtests-2024"),
            ("--aggregate", self.aggregate.is_some(), is_change, "index, change and change-2024"),
        ];
        match options.iter().find(|(_, is_given, is_used, _)| *is_given && !is_used) {
            Some((name, _, _, forms)) => {
                Err(format!("{name}: applies to --form {forms} only; remove it, or choose a form"))
            }
            None => Ok(()),
        }
    }
}

/// Formats a table in lines of at most this length.
fn folded(table: &impl Display, width: Option<usize>) -> String {
    width.map_or_else(|| table.to_string(), |width| format!("{table:width$}"))
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    args.check()?;
    let inputs: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    output::check(&inputs, &args.picture.outputs().collect::<Vec<_>>())?;
    let sources = args.files.iter().map(|f| Source::read(f)).collect::<Result<Vec<_>, _>>()?;
    let metrics = Selection::new(&args.metrics)?;
    let sets = metrics.of(align(&sources)?)?;
    let width = args.width.map(usize::from).or_else(output::width);
    let rule = Rule { band: args.band.unwrap_or(1.0) / 100.0, seed: args.seed };
    let mut out = output::stdout();
    if args.aa {
        let alarms = sets.iter().map(|set| false_alarms(set, rule, args.deals as usize));
        let alarms = alarms.collect::<Result<Vec<FalseAlarms>, _>>()?;
        if args.json {
            drop(out);
            print_json(&alarms)?;
        } else {
            let text: Vec<String> = alarms.iter().map(|a| folded(a, width)).collect();
            write!(out, "{}", text.join("\n"))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        form: args.form,
        metrics,
        rule,
        rows: args.rows.unwrap_or_default(),
        precision: args.precision.unwrap_or(2).into(),
        aggregate: args.aggregate.unwrap_or_default(),
    };
    args.picture.draw(|| {
        let names: Vec<_> = sources.iter().map(|s| s.name.as_str()).collect();
        let mut page = Page::new(&format!("Comparison of {}", names.join(", ")), &command());
        page.compare(&sources, &options)?;
        Ok(page)
    })?;
    let report = Report::new(&sets, &options);
    if args.json {
        drop(out);
        print_json(&report)?;
    } else if args.csv {
        write!(out, "{}", report.csv())?;
    } else if args.tsv {
        write!(out, "{}", tsv(&sets))?;
    } else {
        write!(out, "{}", folded(&report, width))?;
    }
    Ok(ExitCode::SUCCESS)
}
