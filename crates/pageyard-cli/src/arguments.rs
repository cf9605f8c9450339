//! The program's arguments: reading them, and the answer to wrong ones or to a question for help.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches};
use pageyard_trace::is_active;

use crate::output::{self, say};
use crate::{closed, manual};

/// Parses the arguments, with help whose examples name the samples where they are.
pub(crate) fn parse<A: CommandFactory + FromArgMatches>() -> Result<A, clap::Error> {
    let mut program = with_negative_numbers(manual::with_samples(A::command()));
    let matches = program.try_get_matches_from_mut(std::env::args_os()).map_err(in_words)?;
    A::from_arg_matches(&matches).map_err(|e| e.format(&mut program))
}

/// Takes a negative number for an option's value, so that the error is about the number.
fn with_negative_numbers(program: Command) -> Command {
    program
        .mut_args(|arg| {
            let takes_values = arg.get_action().takes_values();
            arg.allow_negative_numbers(takes_values)
        })
        .mut_subcommands(with_negative_numbers)
}

/// Prints help, or an error in the arguments.
pub(crate) fn answer(e: &clap::Error) -> ExitCode {
    let text = e.render().to_string();
    let words = output::without_numbers(&text);
    if e.use_stderr() && (words != text || text.contains(|c| c != '\n' && is_active(c))) {
        // The message names a system error, or quotes an argument with active characters. `print` would
        // print it as it is, unescaped and with colours.
        say!("{}", words.trim_end());
        return ExitCode::from(2);
    }
    let is_open = if e.use_stderr() { Ok(()) } else { closed::check() };
    let printed = is_open.and_then(|()| e.print()).map_err(|e| output::named(output::STDOUT, &e));
    match printed.and_then(|()| output::stdout().flush()) {
        Err(e) if !output::is_broken_pipe(&e) => {
            say!("pageyard: {}", output::without_numbers(&e));
            ExitCode::from(2)
        }
        _ => ExitCode::from(if e.use_stderr() { 2 } else { 0 }),
    }
}

/// Returns a parser of a number from `least` to `most`.
pub(crate) fn number(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number: f64 = text.parse().map_err(|_| "expected a number")?;
        let in_range = (least..=most).contains(&number);
        in_range.then_some(number).ok_or_else(|| format!("expected {least} to {most}"))
    }
}

/// Says of a number what was expected, in place of the words of Rust's parsers.
fn in_words(e: clap::Error) -> clap::Error {
    let expected = e.source().and_then(|why| expected(&why.to_string()));
    let (Some(expected), Some(value), Some(argument)) =
        (expected, e.get(ContextKind::InvalidValue), e.get(ContextKind::InvalidArg))
    else {
        return e;
    };
    let text = format!(
        "invalid value '{value}' for '{argument}': {expected}\n\n\
         For more information, try '--help'.\n"
    );
    clap::Error::raw(ErrorKind::ValueValidation, text)
}

/// Returns what a parser expected that gave this reason.
fn expected(why: &str) -> Option<String> {
    const IN: &str = " is not in ";
    if let Some((_, range)) = why.split_once(IN) {
        let (from, to) = range.split_once("..")?;
        let to = to.strip_prefix('=').unwrap_or(to);
        return Some(match to.parse() {
            Ok(u64::MAX) => format!("expected at least {from}"),
            _ => format!("expected {from} to {to}"),
        });
    }
    let known = [
        ("digit found", "expected a whole number"),
        ("integer from empty", "expected a whole number"),
        ("number too large", "the number is too large"),
        ("number too small", "the number is too small"),
        ("float", "expected a number"),
    ];
    known.iter().find(|(part, _)| why.contains(part)).map(|(_, words)| (*words).into())
}
