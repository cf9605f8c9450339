//! `pageyard record`: records page events on this machine.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use pageyard_lab::format::{self, duration, grouped};
use pageyard_machine::size;
use pageyard_trace::printable;
use pageyard_trace::record::{RecordError, RecordOptions, Recorder, Recording};
use serde_json::json;

use crate::output::{self, print_json, say};
use crate::progress::{Bar, Count};
use crate::{signals, trace};

const EXAMPLES: &str = "\
Examples:
  sudo pageyard record -- make -j8
  sudo pageyard record --duration 30 --output db.pgy
  pageyard replay recording.pgy";

/// Record the page events of this machine's kernel, ready to be replayed
///
/// Records the page allocator's events, and those of compaction and reclaim, through tracefs: while
/// COMMAND runs, for --duration seconds, or until Ctrl-C. The machine's state before and after
/// (zoneinfo, vmstat, CPU caches, settings, the use of each frame) is stored in the same file.
/// Uses a tracing instance of its own, so that other tracing goes on undisturbed. Needs root.
///
/// Exit code: that of COMMAND (128 and the signal if one ended it), 0 without a command or if Ctrl-C
/// ended the recording, or 2 if nothing could be recorded.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Output file
    #[arg(long, short, value_name = "FILE.pgy", default_value = "recording.pgy")]
    output: PathBuf,
    /// End the recording after this many seconds. COMMAND runs on, and its end is waited for
    #[arg(long, value_name = "S", value_parser = seconds, allow_negative_numbers = true)]
    duration: Option<Duration>,
    /// Size of each CPU's buffer, from 16K to below 4T [default: a sixteenth of the memory in all, and at most 32M
    /// each]
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    buffer: Option<u32>,
    /// Use this tracing instance, which exists and stays as it is, instead of a new one
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Folder where tracefs is mounted [default: /sys/kernel/tracing]
    #[arg(long, value_name = "DIR")]
    tracefs: Option<PathBuf>,
    /// Root of procfs
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,
    /// Root of sysfs
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys: PathBuf,
    /// Compression level, 1 to 19
    #[arg(long, value_name = "N", default_value_t = 9,
          value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Command to record, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Parses the size of a buffer to KiB.
fn buffer(text: &str) -> Result<u32, String> {
    let kib = u32::try_from(size(text)? / 1024).ok();
    kib.filter(|&kib| kib >= 16).ok_or_else(|| "expected a size from 16K to below 4T".into())
}

/// Parses a positive number of seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let fault = || "not a positive number of seconds".to_owned();
    let seconds: f64 = text.parse().map_err(|_| fault())?;
    Some(seconds).filter(|&s| s > 0.0 && s <= 1e9).map(Duration::from_secs_f64).ok_or_else(fault)
}

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

pub(crate) fn run(args: &Args) -> output::Outcome {
    let folder = spool_folder(&args.output)?;
    output::check(&[], &[&args.output])?;
    let options = RecordOptions {
        tracefs: args.tracefs.clone(),
        proc: args.proc.clone(),
        sys: args.sys.clone(),
        instance: args.instance.clone(),
        buffer_kib: args.buffer,
    };
    // A signal from here on ends the recording, but keeps it.
    signals::end_gently(true);
    let mut recorder = Recorder::start(&options, &mut || spool(&folder))?;
    let began = Instant::now();
    let mut child = match args.command.split_first() {
        Some((program, arguments)) => {
            let started = Command::new(program).args(arguments).spawn();
            Some(started.map_err(|e| not_started(program, &e))?)
        }
        None => None,
    };
    let said = |notes: Vec<String>| notes.iter().for_each(|note| say!("pageyard: {note}"));
    said(recorder.take_notes());
    if !recorder.absent().is_empty() {
        say!("pageyard: this kernel does not have: {}", recorder.absent().join(", "));
    }
    let (mut status, failure) = wait(args, &recorder, child.as_mut(), began)?;
    let waited = began.elapsed();
    if let Some(failure) = failure {
        // The command is not to blame: it runs to its end.
        drop(recorder);
        say!("pageyard: {failure}; the recording has ended, nothing is written");
        if let Some(mut child) = child.filter(|_| status.is_none()) {
            child.wait()?;
        }
        return Ok(ExitCode::from(2));
    }
    let recording = recorder.finish();
    let was_stopped = signals::stopped();
    signals::end_gently(false);
    if was_stopped && let Some(child) = child.as_ref().filter(|_| status.is_none()) {
        end(child);
    }
    let written =
        recording.map_err(Into::into).and_then(|recording| write(args, recording, waited));
    // The command may run on after --duration, whatever became of the recording.
    if let Some(child) = &mut child {
        status = Some(child.wait()?);
    }
    written?;
    // A command that a signal ended together with the recording did not fail.
    Ok(status.filter(|_| !was_stopped).map_or(ExitCode::SUCCESS, code_of))
}

/// Writes the recording, and says what is in it.
fn write(args: &Args, recording: Recording, waited: Duration) -> Result<()> {
    recording.notes.iter().for_each(|note| say!("pageyard: {note}"));
    let (lost, raw, buffer_kib) = (recording.lost, recording.bytes, recording.buffer_kib);
    let absent = recording.absent.clone();
    let mut reader = recording.into_reader()?;
    let mut attachments = reader.attachments().clone();
    let bytes = trace::store(&mut reader, &mut attachments, None, &args.output, args.level)?;
    let summary = reader.summary();
    let events = summary.kinds.total() + summary.compaction.total();
    // The events while the state was read are among those recorded. Reading takes longer than a short command.
    let seconds = summary.span_ns.map_or(0.0, |(from, to)| to.saturating_sub(from) as f64 / 1e9);
    if args.json {
        print_json(&json!({
            "output": args.output.to_string_lossy(),
            "events": events,
            "seconds": seconds,
            "seconds_waited": waited.as_secs_f64(),
            "lost": lost,
            "raw_bytes": raw,
            "buffer_kib_per_cpu": buffer_kib,
            "bytes": bytes,
            "absent": absent,
            "state_files": attachments.iter().map(|a| a.name.as_str()).collect::<Vec<_>>(),
        }))?;
    } else {
        say!("{}", trace::stored(&reader, &attachments, &args.output, bytes));
        say!(
            "{}, of which {} between reading the state before and after; {} events a second, {} lost; \
             buffers of {} per CPU",
            duration((seconds * 1e9) as u64),
            duration(waited.as_nanos() as u64),
            if seconds > 0.0 { grouped((events as f64 / seconds) as u64) } else { "-".into() },
            grouped(lost),
            format::size(buffer_kib << 10)
        );
    }
    trace::report_trouble(summary);
    if lost > 0 {
        say!("pageyard: events were lost; record with a larger --buffer");
    }
    Ok(())
}

/// Waits until the recording is to end. Returns the command's status if it ended, or why recording
/// failed.
fn wait(
    args: &Args,
    recorder: &Recorder,
    mut child: Option<&mut Child>,
    began: Instant,
) -> Result<(Option<ExitStatus>, Option<RecordError>)> {
    const STEP: Duration = Duration::from_millis(20);
    let mut bar = Bar::new();
    loop {
        if let Some(child) = &mut child
            && let Some(status) = child.try_wait()?
        {
            return Ok((Some(status), None));
        }
        let failure = recorder.failure();
        let is_over = args.duration.is_some_and(|duration| began.elapsed() >= duration);
        if failure.is_some() || is_over || signals::stopped() {
            return Ok((None, failure));
        }
        // A command writes to the same terminal.
        if child.is_none() {
            bar.show("record", Count::Bytes, recorder.figure().bytes, None);
        }
        thread::sleep(STEP);
    }
}

/// Returns the folder of the output file, where temporary files go. Fails early if the output
/// could not be written.
fn spool_folder(output: &Path) -> Result<PathBuf> {
    let failed = |path: &Path, what: &str, fix: &str| {
        Err(format!("{}: {what}; {fix}", path.display()).into())
    };
    if output.is_dir() {
        return failed(output, "is a folder", "name a file: --output FILE.pgy");
    }
    let folder = output::folder_of(output);
    match spool(folder) {
        Ok(_) => Ok(folder.to_owned()),
        Err(e) => failed(
            folder,
            &output::without_numbers(&e),
            "name an output in a folder you can write to",
        ),
    }
}

/// Makes a temporary file without a name, which disappears with this program.
fn spool(folder: &Path) -> io::Result<File> {
    tempfile::tempfile_in(folder)
}

fn not_started(program: &OsString, error: &io::Error) -> String {
    let program = program.to_string_lossy();
    format!(
        "{}: {}; check the command after --",
        printable(&program),
        output::without_numbers(error)
    )
}

/// Asks a command to end.
fn end(child: &Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Returns the exit code that a shell would report.
fn code_of(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}
