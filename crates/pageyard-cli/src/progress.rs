//! Progress bar on standard error, if that is a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Unit of progress.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Bytes,
    Operations,
    Runs,
}

/// The bar. It disappears when it is dropped.
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    stage: Option<String>,
}

impl Bar {
    pub(crate) fn new() -> Bar {
        let terminal = std::io::stderr().is_terminal();
        Bar { bar: terminal.then(|| ProgressBar::new(0)), stage: None }
    }

    /// Shows the progress of a stage, and its total if known.
    pub(crate) fn show(&mut self, stage: &str, count: Count, at: u64, all: Option<u64>) {
        let Some(bar) = &self.bar else { return };
        if self.stage.as_deref() != Some(stage) {
            self.stage = Some(stage.to_owned());
            bar.set_message(stage.to_owned());
            let template = match (count, all) {
                (Count::Bytes, Some(_)) => "{msg:8} {wide_bar} {bytes}/{total_bytes} {eta}",
                (Count::Bytes, None) => "{msg:8} {spinner} {bytes}",
                (Count::Runs, _) => "{msg:8} {wide_bar} {pos}/{len} {elapsed}",
                (Count::Operations, _) => "{msg:8} {wide_bar} {human_pos}/{human_len} {eta}",
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
        }
        if let Some(all) = all {
            bar.set_length(all);
        }
        bar.set_position(at);
    }

    /// Hides the bar while `f` runs, for example to print a line.
    pub(crate) fn without<T>(&self, f: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(f),
            None => f(),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
