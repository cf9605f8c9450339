//! `pageyard trace`: traces in and out of the compact form.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use pageyard_trace::state::StateDir;
use pageyard_trace::{
    Attachments, Format, Options, Summary, TextWriter, TraceReader, TraceWriter, WriterOptions,
};
use serde_json::json;

use crate::output::{self, part_of, print_json};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read ftrace text (or a .pgy file) and write the compact form
    ///
    /// Takes what `trace-cmd report` prints, with or without -t, and what the kernel's trace and
    /// trace_pipe files hold; plain, zstd, xz or gzip. The files of /proc that lie beside the
    /// trace go into the compact file, so that it can be replayed on its own.
    Import {
        /// The trace; - for standard input
        trace: PathBuf,
        /// The file to write
        #[arg(value_name = "FILE.pgy")]
        output: PathBuf,
        /// Where the machine's state files lie, if not beside the trace
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Count damaged places and go on, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// How hard to compress, 1 to 19
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(i32).range(1..=19))]
        level: i32,
    },
    /// Say what a trace holds
    Info {
        /// The trace; - for standard input
        trace: PathBuf,
        /// Count damaged places and go on, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Write a trace as ftrace text, as `trace-cmd report -t` prints it
    Export {
        /// The trace; - for standard input
        trace: PathBuf,
        /// The file to write, instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write request flags as names, not as a number
        #[arg(long)]
        gfp_names: bool,
        /// Count damaged places and go on, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// Extract the state files the trace carries into this folder instead of its events
        #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "gfp_names"])]
        state: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    match &args.command {
        Command::Import { trace, output, state, lenient, level } => {
            import(trace, output, state.as_deref(), *lenient, *level)
        }
        Command::Info { trace, lenient, json } => info(trace, *lenient, *json),
        Command::Export { trace, output, gfp_names, lenient, state } => match state {
            Some(folder) => extract(trace, folder),
            None => export(trace, output.as_deref(), *gfp_names, *lenient),
        },
    }
}

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn open(trace: &Path, lenient: bool) -> Result<TraceReader> {
    let options = Options { lenient };
    Ok(if trace.as_os_str() == "-" {
        TraceReader::from_reader("standard input", io::stdin(), options)?
    } else {
        TraceReader::open(trace, options)?
    })
}

/// How far a reader is, on a terminal.
struct Bar(ProgressBar);

impl Bar {
    fn new(reader: &TraceReader) -> Bar {
        if !io::stderr().is_terminal() {
            return Bar(ProgressBar::hidden());
        }
        let bar = match reader.progress().total {
            Some(total) => {
                ProgressBar::new(total).with_style(style("{wide_bar} {bytes}/{total_bytes} {eta}"))
            }
            None => ProgressBar::new_spinner().with_style(style("{spinner} {bytes}")),
        };
        Bar(bar)
    }

    fn show(&self, reader: &TraceReader) {
        self.0.set_position(reader.progress().consumed);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file; a wrong one falls back to the default look.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn import(
    trace: &Path,
    output: &Path,
    state: Option<&Path>,
    lenient: bool,
    level: i32,
) -> output::Outcome {
    if trace == output {
        return Err(format!(
            "{}: input and output are the same file; name another output",
            trace.display()
        )
        .into());
    }
    let mut reader = open(trace, lenient)?;
    let mut attachments = reader.attachments().clone();
    if let Some(folder) = state {
        merge(&mut attachments, &StateDir::collect(folder)?);
    } else if let Some(folder) = trace.parent().filter(|_| trace.as_os_str() != "-") {
        merge(&mut attachments, &StateDir::collect(folder)?);
    }

    // Written beside its place and moved there when it is whole: a failure leaves nothing behind.
    let part = part_of(output);
    let file = File::create(&part).map_err(|e| format!("{}: {e}", part.display()))?;
    let written = (|| -> Result<u64> {
        let bar = Bar::new(&reader);
        let mut records = Vec::new();
        let mut more = reader.next_chunk(&mut records)?;
        let declared_cpus = reader.summary().declared_cpus;
        let mut writer =
            TraceWriter::new(BufWriter::new(file), WriterOptions { level, declared_cpus })?;
        writer.attach_all(&attachments)?;
        while more {
            for record in &records {
                writer.write(reader.tasks(), record)?;
            }
            bar.show(&reader);
            more = reader.next_chunk(&mut records)?;
        }
        let summary = reader.summary();
        let mut out = writer.finish(reader.tasks(), summary)?;
        out.flush()?;
        let bytes = out.get_ref().metadata()?.len();
        Ok(bytes)
    })();
    let bytes = match written {
        Ok(done) => done,
        Err(e) => {
            let _ = std::fs::remove_file(&part);
            return Err(e);
        }
    };
    std::fs::rename(&part, output).map_err(|e| format!("{}: {e}", output.display()))?;

    let summary = reader.summary();
    let events = summary.kinds.total() + summary.compaction.total();
    println!(
        "{}: {events} events, {} marks, {} state files, {bytes} bytes ({:.2} an event)",
        output.display(),
        summary.marks,
        attachments.iter().count(),
        bytes as f64 / (events.max(1)) as f64
    );
    report_trouble(summary);
    Ok(ExitCode::SUCCESS)
}

fn merge(into: &mut Attachments, from: &Attachments) {
    for a in from.iter() {
        into.insert(a.name.clone(), a.data.clone());
    }
}

/// What was ignored, lost or damaged goes to standard error: none of it is silent.
fn report_trouble(summary: &Summary) {
    if summary.ignored.total() > 0 {
        let names: Vec<_> = summary.ignored.iter().map(|(name, n)| format!("{n} {name}")).collect();
        eprintln!("pageyard: other events, ignored: {}", names.join(", "));
    }
    if summary.lost > 0 {
        eprintln!("pageyard: the recorder lost {} events", summary.lost);
    }
    if summary.malformed.count > 0 {
        eprintln!(
            "pageyard: {} damaged places were passed over; the first:",
            summary.malformed.count
        );
        for e in &summary.malformed.first {
            eprintln!("  {e}");
        }
    }
}

fn info(trace: &Path, lenient: bool, json: bool) -> output::Outcome {
    let mut reader = open(trace, lenient)?;
    let bar = Bar::new(&reader);
    let mut records = Vec::new();
    while reader.next_chunk(&mut records)? {
        bar.show(&reader);
    }
    drop(bar);
    let s = reader.summary();
    let k = &s.kinds;
    let seconds = s.span_ns.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9);
    let bytes = reader.progress().consumed;
    let kinds = [
        ("mm_page_alloc", k.alloc),
        ("mm_page_free", k.free),
        ("mm_page_free_batched", k.free_batched),
        ("mm_page_alloc_zone_locked", k.zone_locked),
        ("mm_page_pcpu_drain", k.drain),
        ("mm_page_alloc_extfrag", k.ext_frag),
    ];
    if json {
        let events: serde_json::Map<_, _> =
            kinds.iter().map(|&(n, c)| (n.into(), c.into())).collect();
        let compaction: serde_json::Map<_, _> =
            s.compaction.iter().map(|(n, c)| (n.to_owned(), c.into())).collect();
        let ignored: serde_json::Map<_, _> =
            s.ignored.iter().map(|(n, c)| (n.to_owned(), c.into())).collect();
        let attachments: serde_json::Map<_, _> =
            reader.attachments().iter().map(|a| (a.name.clone(), a.data.len().into())).collect();
        print_json(&json!({
            "trace": reader.name(),
            "format": format!("{:?}", reader.format()),
            "compression": format!("{:?}", reader.compression()),
            "bytes": bytes,
            "events": events,
            "events_total": k.total(),
            "compaction": compaction,
            "failed_requests": k.alloc_failed,
            "marks": s.marks,
            "seconds": seconds,
            "cpus": s.declared_cpus,
            "tasks": reader.tasks().len(),
            "lost": s.lost,
            "ignored": ignored,
            "malformed": s.malformed.count,
            "malformed_at_import": s.malformed_at_import,
            "state_files": attachments,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    let form = match reader.format() {
        Format::Text => "ftrace text",
        Format::Pgy => "compact trace",
    };
    writeln!(out, "{}: {form}, {}", reader.name(), reader.compression())?;
    for (name, count) in kinds {
        writeln!(out, "  {name:<28}{count:>12}")?;
    }
    writeln!(out, "  {:<28}{:>12}", "events", k.total())?;
    writeln!(out, "  {:<28}{:>12}", "events of compaction", s.compaction.total())?;
    writeln!(out, "  {:<28}{:>12}", "failed requests", k.alloc_failed)?;
    writeln!(out, "  {:<28}{:>12}", "marks", s.marks)?;
    writeln!(out, "  {:<28}{:>12}", "tasks", reader.tasks().len())?;
    writeln!(out, "  {:<28}{seconds:>12.3}", "seconds")?;
    if matches!(reader.format(), Format::Pgy) {
        let each = bytes as f64 / k.total().max(1) as f64;
        writeln!(out, "  {:<28}{bytes:>12} ({each:.2} an event)", "bytes")?;
    }
    for a in reader.attachments().iter() {
        writeln!(out, "  state: {:<21}{:>12} bytes", a.name, a.data.len())?;
    }
    if s.malformed_at_import > 0 {
        writeln!(out, "  damaged places passed over at import: {}", s.malformed_at_import)?;
    }
    drop(out);
    report_trouble(s);
    Ok(ExitCode::SUCCESS)
}

fn export(trace: &Path, output: Option<&Path>, gfp_names: bool, lenient: bool) -> output::Outcome {
    let mut reader = open(trace, lenient)?;
    let out: Box<dyn Write> = match output {
        Some(path) => Box::new(File::create(path).map_err(|e| format!("{}: {e}", path.display()))?),
        None => Box::new(io::stdout()),
    };
    let mut records = Vec::new();
    let mut more = reader.next_chunk(&mut records)?;
    let cpus = reader.summary().declared_cpus;
    let mut writer =
        TextWriter::new(BufWriter::with_capacity(1 << 18, out), cpus)?.gfp_names(gfp_names);
    while more {
        for record in &records {
            writer.write(reader.tasks(), record)?;
        }
        more = reader.next_chunk(&mut records)?;
    }
    if reader.summary().lost > 0 {
        writer.write_lost(reader.summary().lost)?;
    }
    writer.finish()?.flush()?;
    report_trouble(reader.summary());
    Ok(ExitCode::SUCCESS)
}

fn extract(trace: &Path, folder: &Path) -> output::Outcome {
    let reader = open(trace, false)?;
    for a in reader.attachments().iter() {
        // Names come from a file: none may lead out of the folder.
        let name = Path::new(&a.name);
        if name.components().any(|c| !matches!(c, std::path::Component::Normal(_))) {
            return Err(format!(
                "{}: the state file name \"{}\" leads elsewhere",
                trace.display(),
                a.name
            )
            .into());
        }
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, &a.data).map_err(|e| format!("{}: {e}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}
