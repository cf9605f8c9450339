//! `pageyard trace`: imports, describes and exports traces.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use pageyard_lab::format::{duration, grouped, size};
use pageyard_trace::state::StateDir;
use pageyard_trace::{
    Attachments, Format, Options, Record, Release, Summary, TextWriter, TraceError, TraceReader,
    TraceWriter, WriterOptions, printable,
};
use serde_json::json;

use crate::output::{self, print_json, write_file};
use crate::progress::{Bar, Count};

const IMPORT: &str = "\
Examples:
  pageyard trace import trace.dat build.pgy
  trace-cmd report -t | pageyard trace import - build.pgy --state folder";

const EXPORT: &str = "\
Examples:
  pageyard trace export samples/kbuild.pgy | less
  pageyard trace export samples/kbuild.pgy --state folder";

/// Import, describe and export traces of page events
///
/// Exit code: 0, or 2 if a file cannot be read or written.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read a recording in any format and write a compact .pgy file
    ///
    /// Reads trace.dat, perf.data and Perfetto files, the output of `trace-cmd report` and
    /// `perf script`, and the contents of the kernel's trace and trace_pipe files; plain or
    /// compressed with zstd, xz or gzip. Saved /proc files next to the trace are stored in the .pgy
    /// file, so that it can be replayed on its own. A trace that has such files keeps those, unless
    /// --state names a folder.
    #[command(after_help = IMPORT)]
    Import {
        /// The trace, or - for standard input
        trace: PathBuf,
        /// Output file, also as -o FILE.pgy
        #[arg(value_name = "FILE.pgy", required_unless_present = "to")]
        output: Option<PathBuf>,
        /// Output file
        #[arg(
            long = "output",
            short = 'o',
            value_name = "FILE.pgy",
            hide = true,
            conflicts_with = "output"
        )]
        to: Option<PathBuf>,
        /// Folder of the machine's state files, if not next to the trace
        #[arg(long, value_name = "DIR")]
        state: Option<PathBuf>,
        /// Count damaged parts and continue, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// Compression level, 1 to 19
        #[arg(long, value_name = "N", default_value_t = 9,
              value_parser = clap::value_parser!(i32).range(1..=19))]
        level: i32,
        /// The kernel that recorded the trace, such as 6.12.30, whatever the trace or the state
        /// files say
        #[arg(long, value_name = "VERSION")]
        kernel: Option<Release>,
    },
    /// Describe the contents of a trace
    ///
    /// Prints events by name, failed requests, tasks, duration and state files, and what was lost,
    /// damaged or ignored. The trace is in any format, plain or compressed.
    #[command(after_help = "Example:\n  pageyard trace info samples/kbuild.pgy")]
    Info {
        /// The trace, or - for standard input
        trace: PathBuf,
        /// Count damaged parts and continue, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// Print JSON instead of text
        #[arg(long)]
        json: bool,
    },
    /// Write a trace as ftrace text, in the format of `trace-cmd report -t`
    ///
    /// The text reads back as the same trace. State files are extracted separately (--state).
    #[command(after_help = EXPORT)]
    Export {
        /// The trace, or - for standard input
        trace: PathBuf,
        /// Output file, instead of standard output
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write request flags as names instead of a number
        #[arg(long)]
        gfp_names: bool,
        /// Count damaged parts and continue, instead of stopping at the first
        #[arg(long)]
        lenient: bool,
        /// Extract the trace's state files to this folder, instead of writing its events
        #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "gfp_names"])]
        state: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> output::Outcome {
    match &args.command {
        Command::Import { trace, output, to, state, lenient, level, kernel } => {
            let output = output.as_ref().or(to.as_ref()).expect("clap requires one of them");
            import(trace, output, state.as_deref(), *lenient, *level, *kernel)
        }
        Command::Info { trace, lenient, json } => info(trace, *lenient, *json),
        Command::Export { trace, output, gfp_names, lenient, state } => match state {
            Some(folder) => extract(trace, folder, *lenient),
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

/// Reads up to the first records, with which the head of the trace is known.
fn first_records(
    reader: &mut TraceReader,
    bar: &mut Bar,
    records: &mut Vec<Record>,
) -> std::result::Result<bool, TraceError> {
    loop {
        let more = reader.next_chunk(records)?;
        if !more || !records.is_empty() {
            return Ok(more);
        }
        show(bar, reader);
    }
}

/// Shows the progress of a reader.
fn show(bar: &mut Bar, reader: &TraceReader) {
    let at = reader.progress();
    bar.show("read", Count::Bytes, at.consumed, at.total);
}

fn import(
    trace: &Path,
    output: &Path,
    state: Option<&Path>,
    lenient: bool,
    level: i32,
    kernel: Option<Release>,
) -> output::Outcome {
    output::check(&[trace], &[output])?;
    let mut reader = open(trace, lenient)?;
    let mut attachments = reader.attachments().clone();
    let beside = Some(trace).filter(|trace| trace.as_os_str() != "-");
    match (state, beside) {
        (None, None) => {}
        (None, Some(path)) if StateDir::is_attached(&attachments) => {
            let note = StateDir::not_used(&attachments, path);
            note.iter().for_each(|note| output::say!("pageyard: {note}; --state replaces those"));
        }
        (Some(path), _) | (None, Some(path)) => {
            let (files, notes) = StateDir::collect(path)?;
            merge(&mut attachments, &files);
            notes.iter().for_each(|note| output::say!("pageyard: {note}"));
        }
    }
    let said = kernel.map(|release| release.to_string());
    let bytes = store(&mut reader, &mut attachments, said, output, level)?;
    let said = stored(&reader, &attachments, output, bytes);
    writeln!(output::stdout(), "{said}")?;
    report_trouble(reader.summary());
    Ok(ExitCode::SUCCESS)
}

/// Writes all records of a reader as a .pgy file, with these state files, to which it adds what the
/// reader knows of the kernel. Returns the file's size in bytes.
pub(crate) fn store(
    reader: &mut TraceReader,
    attachments: &mut Attachments,
    kernel: Option<String>,
    output: &Path,
    level: i32,
) -> Result<u64> {
    write_file(output, |file| {
        let mut bar = Bar::new();
        let mut records = Vec::new();
        let mut more = first_records(reader, &mut bar, &mut records)?;
        let declared_cpus = reader.summary().declared_cpus;
        let mut writer =
            TraceWriter::new(BufWriter::new(file), WriterOptions { level, declared_cpus })?;
        if let Some(release) = kernel.or_else(|| reader.summary().kernel_release.clone()) {
            attachments.set_kernel_release(&release);
        }
        if let Some(events) = &reader.summary().enabled_events {
            attachments.set_enabled_events(events);
        }
        writer.attach_all(attachments)?;
        while more {
            for record in &records {
                writer.write(reader.tasks(), record)?;
            }
            show(&mut bar, reader);
            more = reader.next_chunk(&mut records)?;
        }
        let mut out = writer.finish(reader.tasks(), reader.summary())?;
        out.flush()?;
        Ok(out.get_ref().bytes())
    })
}

/// Describes a .pgy file that was written.
pub(crate) fn stored(
    reader: &TraceReader,
    attachments: &Attachments,
    output: &Path,
    bytes: u64,
) -> String {
    let summary = reader.summary();
    let events = summary.kinds.total() + summary.compaction.total();
    format!(
        "{}: {} events, {} marks, {} state files, {}{}",
        printable(&output::name_of(output)),
        grouped(events),
        grouped(summary.marks),
        attachments.len(),
        size(bytes),
        each(bytes, events)
    )
}

/// Formats the bytes of each event, if there are any events.
fn each(bytes: u64, events: u64) -> String {
    if events == 0 {
        return String::new();
    }
    format!(" ({:.2} bytes an event)", bytes as f64 / events as f64)
}

fn merge(into: &mut Attachments, from: &Attachments) {
    for a in from.iter() {
        into.insert(a.name.clone(), a.data.clone());
    }
}

/// Reports ignored, lost and damaged parts on standard error, so that none of them is dropped
/// silently.
pub(crate) fn report_trouble(summary: &Summary) {
    if summary.ignored.total() > 0 {
        let names: Vec<_> = summary.ignored.iter().map(|(name, n)| format!("{n} {name}")).collect();
        output::say!("pageyard: other events, ignored: {}", names.join(", "));
    }
    if summary.lost > 0 {
        output::say!("pageyard: the recorder lost {} events", summary.lost);
    }
    if summary.malformed.count > 0 {
        let skipped = grouped(summary.malformed.count);
        output::say!("pageyard: {skipped} damaged parts skipped; the first:");
        for e in &summary.malformed.first {
            output::say!("  {e}");
        }
    }
}

fn info(trace: &Path, lenient: bool, json: bool) -> output::Outcome {
    let mut reader = open(trace, lenient)?;
    let mut bar = Bar::new();
    let mut records = Vec::new();
    while reader.next_chunk(&mut records)? {
        show(&mut bar, &reader);
    }
    drop(bar);
    if json {
        info_json(&reader)?;
    } else {
        info_text(&reader)?;
    }
    report_trouble(reader.summary());
    Ok(ExitCode::SUCCESS)
}

fn info_json(reader: &TraceReader) -> Result<()> {
    let s = reader.summary();
    let seconds = s.span_ns.map(|(from, to)| to.saturating_sub(from) as f64 / 1e9);
    let events: serde_json::Map<_, _> =
        s.kinds.iter().map(|(n, c)| (n.to_owned(), c.into())).collect();
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
        "bytes": reader.progress().consumed,
        "events": events,
        "events_total": s.kinds.total(),
        "compaction": compaction,
        "compaction_total": s.compaction.total() - s.compaction.reclaim(),
        "reclaim_total": s.compaction.reclaim(),
        "failed_requests": s.kinds.alloc_failed,
        "marks": s.marks,
        "seconds": seconds,
        "cpus": s.declared_cpus,
        "kernel_release": s.kernel_release,
        "clock": s.clock,
        "tasks": reader.tasks().len(),
        "lost": s.lost,
        "ignored": ignored,
        "malformed": s.malformed.count,
        "malformed_at_import": s.malformed_at_import,
        "state_files": attachments,
    }))
}

fn info_text(reader: &TraceReader) -> io::Result<()> {
    let (s, k) = (reader.summary(), &reader.summary().kinds);
    let bytes = reader.progress().consumed;
    let mut out = output::stdout();
    let form = match reader.format() {
        Format::Text => "ftrace text",
        Format::Pgy => "compact trace",
        Format::TraceDat => "trace.dat",
        Format::PerfData => "perf.data",
        Format::Perfetto => "Perfetto trace",
    };
    writeln!(out, "{}: {form}, {}", printable(reader.name()), reader.compression())?;
    for (name, value) in [("kernel", &s.kernel_release), ("clock", &s.clock)] {
        if let Some(value) = value {
            writeln!(out, "  {name:<28}{:>12}", printable(value))?;
        }
    }
    for (name, count) in k.iter() {
        writeln!(out, "  {name:<28}{:>12}", grouped(count))?;
    }
    writeln!(out, "  {:<28}{:>12}", "events", grouped(k.total()))?;
    let reclaim = s.compaction.reclaim();
    let compaction = s.compaction.total() - reclaim;
    writeln!(out, "  {:<28}{:>12}", "events of compaction", grouped(compaction))?;
    writeln!(out, "  {:<28}{:>12}", "events of reclaim", grouped(reclaim))?;
    writeln!(out, "  {:<28}{:>12}", "failed requests", grouped(k.alloc_failed))?;
    writeln!(out, "  {:<28}{:>12}", "marks", grouped(s.marks))?;
    writeln!(out, "  {:<28}{:>12}", "tasks", grouped(reader.tasks().len() as u64))?;
    let lasted = s.span_ns.map(|(from, to)| to.saturating_sub(from));
    writeln!(out, "  {:<28}{:>12}", "duration", lasted.map_or("-".into(), duration))?;
    if matches!(reader.format(), Format::Pgy) {
        writeln!(
            out,
            "  {:<28}{:>12}{}",
            "size",
            size(bytes),
            each(bytes, k.total() + s.compaction.total())
        )?;
    }
    for a in reader.attachments().iter() {
        writeln!(out, "  state: {:<21}{:>12}", a.name, size(a.data.len() as u64))?;
    }
    if s.malformed_at_import > 0 {
        let skipped = grouped(s.malformed_at_import);
        writeln!(out, "  damaged parts skipped at import: {skipped}")?;
    }
    Ok(())
}

fn export(trace: &Path, output: Option<&Path>, gfp_names: bool, lenient: bool) -> output::Outcome {
    output::check(&[trace], output.as_slice())?;
    let mut reader = open(trace, lenient)?;
    match output {
        Some(path) => write_file(path, |file| write_text(&mut reader, file, gfp_names))?,
        None => write_text(&mut reader, output::stdout(), gfp_names)?,
    }
    report_trouble(reader.summary());
    Ok(ExitCode::SUCCESS)
}

fn write_text(reader: &mut TraceReader, out: impl Write, gfp_names: bool) -> Result<()> {
    let mut records = Vec::new();
    let mut more = first_records(reader, &mut Bar::new(), &mut records)?;
    let cpus = reader.summary().declared_cpus;
    let mut writer =
        TextWriter::new(BufWriter::with_capacity(1 << 18, out), cpus)?.gfp_names(gfp_names);
    if let Some(release) = &reader.summary().kernel_release {
        writer.write_kernel_release(release)?;
    }
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
    Ok(())
}

fn extract(trace: &Path, folder: &Path, lenient: bool) -> output::Outcome {
    let reader = open(trace, lenient)?;
    if reader.attachments().is_empty() {
        let what = "no state files in the trace; add them with `trace import --state`";
        return Err(format!("{}: {what}", trace.display()).into());
    }
    let mut written = Vec::new();
    for a in reader.attachments().iter() {
        // A reader accepts only attachments with names of state files.
        let path = folder.join(&a.name);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .map_err(|e| format!("{}: {e}; name a writable folder", path.display()))?;
        if parent != folder && parent.is_symlink() {
            let what = "a symbolic link may lead out of the folder; remove it";
            return Err(format!("{}: {what}", parent.display()).into());
        }
        write_file(&path, |mut file| Ok(file.write_all(&a.data)?))?;
        written.push(path);
    }
    // A reader of the list that leaves early does not keep files from being written.
    let mut out = output::stdout();
    for path in written {
        writeln!(out, "{}", printable(&path.to_string_lossy()))?;
    }
    drop(out);
    report_trouble(reader.summary());
    Ok(ExitCode::SUCCESS)
}
