//! `--html` and `--svg`, shared by several commands.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use pageyard_lab::picture::{PLOTS, Page};

use crate::output::write_file;

type Failed = Box<dyn std::error::Error>;

/// Output files for plots.
#[derive(clap::Args)]
pub(crate) struct Picture {
    /// Write a page with the table, plots over time and the heap: a single file that needs no
    /// network. The chapter "Pages and plots" explains how to read it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a single plot
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Which plot --svg writes [default: the first available]
    #[arg(long, value_name = "NAME", requires = "svg", long_help = plots(), hide_possible_values = true,
          value_parser = PossibleValuesParser::new(PLOTS.map(|p| p.0)))]
    plot: Option<String>,
}

fn plots() -> String {
    let line = |(name, what): &(&str, &str)| format!("\n  {name:15} {what}");
    let lines: String = PLOTS.iter().map(line).collect();
    format!("Which plot --svg writes [default: the first available]. Plots of all commands:{lines}")
}

impl Picture {
    /// Returns whether a page or plot is requested.
    pub(crate) fn is_wanted(&self) -> bool {
        self.html.is_some() || self.svg.is_some()
    }

    /// Returns the files that are requested.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = &Path> {
        self.html.iter().chain(&self.svg).map(PathBuf::as_path)
    }

    /// Writes the requested files, if any, each completely or not at all. A command that has computed
    /// for long prints its results before it returns this error: not every plot is there for every result.
    pub(crate) fn draw(&self, page: impl FnOnce() -> Result<Page, Failed>) -> Result<(), Failed> {
        if !self.is_wanted() {
            return Ok(());
        }
        let page = page()?;
        // Render first, so that an error occurs before anything is written.
        let svg = self.svg.as_ref().map(|_| page.svg(self.plot.as_deref())).transpose()?;
        let html = self.html.as_ref().map(|_| page.html());
        for (path, text) in [(&self.html, html), (&self.svg, svg)] {
            if let (Some(path), Some(text)) = (path, text) {
                write_file(path, |mut file| Ok(file.write_all(text.as_bytes())?))?;
            }
        }
        Ok(())
    }
}

/// Returns the command line of this program, quoted for a shell.
pub(crate) fn command() -> String {
    let mut words = vec!["pageyard".to_owned()];
    words.extend(std::env::args_os().skip(1).map(|a| quoted(&a.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("--set=pairs=2"), "--set=pairs=2");
        assert_eq!(quoted("Vanilla<Base>"), "'Vanilla<Base>'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
    }
}
