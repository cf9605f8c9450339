//! What a package installs besides the program: manual pages, completions for shells, and samples.
//! `scripts/install-program.sh` calls the two commands.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Command;
use pageyard_trace::printable;

use crate::output;

/// Write the manual pages, one per command
#[derive(clap::Args)]
pub(crate) struct Man {
    /// Folder for the pages, created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder in which the examples of the pages name the samples [default: where they are now]
    #[arg(long, value_name = "DIR")]
    samples: Option<String>,
}

/// Print the completions for a shell
#[derive(clap::Args)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn man(args: &Man, program: Command) -> output::Outcome {
    let samples = args.samples.as_ref().map_or_else(samples, |folder| format!("{folder}/"));
    let mut program = with_samples_in(program, &samples).disable_help_subcommand(true);
    program.build();
    std::fs::create_dir_all(&args.folder)
        .and_then(|()| pages(&program, &args.folder))
        .map_err(|e| output::named(&args.folder.display().to_string(), &e))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and of those below it. Every page names the version;
/// `clap_mangen::generate_to` names it in the first only.
fn pages(command: &Command, folder: &Path) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        pages(inner, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    page.source(concat!("pageyard ", env!("CARGO_PKG_VERSION"))).generate_to(folder).map(drop)
}

pub(crate) fn completions(args: &Completions, mut program: Command) -> output::Outcome {
    // In memory first: the generators panic on a write error.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program, "pageyard", &mut text);
    output::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the program's commands with examples that work here. Their definitions name the samples
/// as in the repository, `samples/FILE`.
pub(crate) fn with_samples(program: Command) -> Command {
    with_samples_in(program, &samples())
}

/// Returns what precedes a sample's name: the folder installed beside the program, that of the
/// repository if it is the current folder, otherwise nothing, so that examples name a file of the
/// user's.
fn samples() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let installed = program.parent().and_then(Path::parent);
    match installed.map(|prefix| prefix.join("share/pageyard/samples")) {
        Some(folder) if folder.is_dir() => format!("{}/", printable(&folder.to_string_lossy())),
        _ if Path::new("samples/kbuild.pgy").exists() => "samples/".into(),
        _ => String::new(),
    }
}

fn with_samples_in(command: Command, prefix: &str) -> Command {
    let command = command.mut_subcommands(|inner| with_samples_in(inner, prefix));
    let Some(text) = command.get_after_help().map(ToString::to_string) else { return command };
    command.after_help(text.replace("samples/", prefix))
}
