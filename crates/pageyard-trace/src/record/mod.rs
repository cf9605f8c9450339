//! Records page events on the running machine, through tracefs.
//!
//! A [`Recorder`] makes a tracing instance of its own, enables the events that a replay uses, and
//! moves raw events to spool files. It reads the machine's state before and after. The result is a
//! [`TraceReader`] with the state files attached.
//!
//! ```no_run
//! use pageyard_trace::record::{Recorder, RecordOptions};
//!
//! let mut recorder = Recorder::start(&RecordOptions::default(), &mut tempfile::tempfile)?;
//! std::process::Command::new("make").status()?;
//! let recording = recorder.finish()?;
//! println!("{} events were lost", recording.lost);
//! let reader = recording.into_reader()?;
//! println!("{} state files", reader.attachments().len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod drain;
mod error;
mod instance;
mod machine;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use error::RecordError;

use crate::attachment::Attachments;
use crate::binary::{EventTable, PageLayout};
use crate::compaction_layout::POINTS;
use crate::error::TraceError;
use crate::reader::{Options, TraceReader};
use crate::summary::PAGE_EVENTS;
use crate::trace_dat::Spool;
use drain::{CpuPipe, Drain, Figures};
use instance::Instance;
use machine::Machine;

/// Events that tell a task's name.
const TASK_EVENTS: [&str; 2] = ["task_newtask", "task_rename"];

/// Where to record, and how.
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// Folder where tracefs is mounted; by default `/sys/kernel/tracing` or, on older systems,
    /// `/sys/kernel/debug/tracing`.
    pub tracefs: Option<PathBuf>,
    /// Root of the process file system.
    pub proc: PathBuf,
    /// Root of the device file system.
    pub sys: PathBuf,
    /// Name of an existing tracing instance to use. By default an instance is made, and removed at
    /// the end.
    pub instance: Option<String>,
    /// Size of each CPU's buffer in KiB. By default they have a sixteenth of the memory, and at most
    /// 32 MiB each.
    pub buffer_kib: Option<u32>,
}

impl Default for RecordOptions {
    /// The running machine.
    fn default() -> Self {
        RecordOptions {
            tracefs: None,
            proc: "/proc".into(),
            sys: "/sys".into(),
            instance: None,
            buffer_kib: None,
        }
    }
}

/// Figures of a running recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Bytes of raw events so far.
    pub bytes: u64,
    /// Events lost so far; a gap without a number counts as one.
    pub lost: u64,
}

/// A running recording. Dropping it ends the recording and removes its tracing instance.
pub struct Recorder {
    // Dropped first, since it has the instance's files open.
    drain: Drain,
    instance: Instance,
    machine: Machine,
    figures: Arc<Figures>,
    buffer_kib: u64,
    attachments: Attachments,
    events: EventTable,
    pages: PageLayout,
    comms: HashMap<u32, String>,
    cpus: Vec<u16>,
    /// Events that the kernel does not have.
    absent: Vec<&'static str>,
    notes: Vec<String>,
}

/// A finished recording.
pub struct Recording {
    /// Events that were lost.
    pub lost: u64,
    /// Bytes of raw events.
    pub bytes: u64,
    /// Size of each CPU's buffer in KiB.
    pub buffer_kib: u64,
    /// Events that the kernel does not have.
    pub absent: Vec<&'static str>,
    /// What of the machine's state was not recorded, for the user: what
    /// [`Recorder::take_notes`] has not returned.
    pub notes: Vec<String>,
    attachments: Attachments,
    events: EventTable,
    pages: PageLayout,
    comms: HashMap<u32, String>,
    spools: Vec<Spool>,
    /// Lost events that no head of a sub-buffer shows.
    unseen: u64,
}

impl Recorder {
    /// Starts a recording. `spool` makes temporary files, one for each CPU.
    ///
    /// # Errors
    /// Fails if tracefs is missing, not mounted or not permitted, if the kernel has no page events,
    /// or if a temporary file cannot be made.
    pub fn start(
        options: &RecordOptions,
        spool: &mut dyn FnMut() -> io::Result<File>,
    ) -> Result<Self, RecordError> {
        let tracefs = find_tracefs(options)?;
        let machine = Machine { proc: options.proc.clone(), sys: options.sys.clone() };
        let mut notes = Vec::new();
        for (name, removed) in instance::remove_stale(&tracefs, &machine.proc) {
            let what = if removed { "removed" } else { "could not be removed" };
            notes.push(format!("the tracing instance {name} of an ended recording {what}"));
        }
        let (pages, mut events) = layouts(&tracefs)?;
        let wanted = describe(&tracefs, &mut events)?;

        let mut attachments = Attachments::new();
        for (path, error) in machine.snapshot(&mut attachments, |file| format!("before/{file}")) {
            notes.push(format!("not recorded: {}: {error}", path.display()));
        }
        if let Some(release) = machine.release() {
            attachments.set_kernel_release(&release);
        }

        let mut instance = Instance::new(&tracefs, options.instance.as_deref())?;
        let cpus = instance.cpus()?;
        let pages = match instance.sub_buffer() {
            Some(size) => pages.of_size(size).map_err(|fault| {
                RecordError::new(instance.path(), fault.to_string(), "use another instance")
            })?,
            None => pages,
        };
        instance.set("trace_clock", "mono")?;
        // Set once: while the kernel resizes a buffer it drops the events of all CPUs, and counts none.
        let fitting = || fitting_buffer(&machine.proc, cpus.len());
        let buffer_kib = options.buffer_kib.map_or_else(fitting, u64::from);
        instance.set("buffer_size_kb", &buffer_kib.to_string())?;
        let mut enabled = Vec::new();
        let mut absent = Vec::new();
        for (system, event) in wanted {
            match instance.enable(system, event)? {
                true => enabled.push(event.to_owned()),
                false => absent.push(event),
            }
        }
        if !enabled.iter().any(|event| PAGE_EVENTS.contains(&event.as_str())) {
            let fix = "record on a kernel with CONFIG_TRACING and the events of kmem";
            return Err(RecordError::new(&tracefs, "the kernel has no page events", fix));
        }
        attachments.set_enabled_events(&enabled);
        let mut pipes = Vec::new();
        for &cpu in &cpus {
            let file = spool().map_err(|e| RecordError::spool(&e))?;
            pipes.push(CpuPipe::new(cpu, instance.pipe(cpu)?, file));
        }

        let figures = Arc::<Figures>::default();
        let comms = machine.comms();
        instance.set("tracing_on", "1")?;
        let drain = Drain::start(pipes, pages, Arc::clone(&figures))?;
        let mut recorder = Recorder {
            drain,
            instance,
            machine,
            figures,
            buffer_kib,
            attachments,
            events,
            pages,
            comms,
            cpus,
            absent,
            notes,
        };
        recorder.begin();
        Ok(recorder)
    }

    /// Reads the state just inside the recording. The marks tell a replay when.
    fn begin(&mut self) {
        self.mark("TRACE_ON");
        self.frames("pfnmap.before");
        self.mark("SNAPSHOT_FRAMES");
        for file in ["pagetypeinfo", "vmstat", "buddyinfo", "zoneinfo"] {
            self.state(file, "traced_start");
        }
        self.mark("SNAPSHOT_LISTS");
        self.mark("WORKLOAD_START");
    }

    /// Writes a mark. Without it, a replay knows less of the state at the start.
    fn mark(&mut self, text: &str) {
        if let Err(error) = self.instance.mark(text) {
            self.notes.push(format!("not recorded: the mark {text}: {error}"));
        }
    }

    fn state(&mut self, file: &str, when: &str) {
        // What cannot be read was noted before the recording.
        let name = format!("{file}.{when}");
        self.machine.file(&mut self.attachments, file, name, &mut Vec::new());
    }

    fn frames(&mut self, name: &str) {
        match self.machine.frames() {
            Ok(frames) => self.attachments.insert(name, frames),
            Err(error) => {
                let path = self.machine.proc.join("kpageflags");
                self.notes.push(format!("not recorded: {}: {error}", path.display()));
            }
        }
    }

    /// Returns remarks for the user so far, and forgets them: state that could not be read,
    /// instances of earlier recordings.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the events that the kernel does not have.
    pub fn absent(&self) -> &[&'static str] {
        &self.absent
    }

    /// Returns the figures so far.
    pub fn figure(&self) -> Figure {
        Figure {
            bytes: self.figures.bytes.load(Ordering::Relaxed),
            lost: self.figures.lost.load(Ordering::Relaxed),
        }
    }

    /// Returns why moving events failed, once: the disk is full, for example. The recording cannot
    /// be finished then.
    pub fn failure(&self) -> Option<RecordError> {
        self.figures.failure()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// Fails if the events could not be moved to the temporary files.
    pub fn finish(mut self) -> Result<Recording, RecordError> {
        self.mark("WORKLOAD_END");
        self.state("zoneinfo", "traced_end");
        self.mark("SNAPSHOT_LISTS");
        for file in ["buddyinfo", "pagetypeinfo", "vmstat"] {
            self.state(file, "traced_end");
        }
        self.frames("pfnmap.after");
        self.mark("TRACE_OFF");
        self.instance.set("tracing_on", "0")?;
        let spools = self.drain.finish()?;
        let counted =
            self.cpus.iter().fold(0u64, |sum, &cpu| sum.saturating_add(self.instance.lost(cpu)));
        self.machine.snapshot(&mut self.attachments, |file| format!("after/{file}"));
        let bytes = self.figures.bytes.load(Ordering::Relaxed);
        let seen = self.figures.lost.load(Ordering::Relaxed);
        Ok(Recording {
            lost: seen.max(counted),
            unseen: counted.saturating_sub(seen),
            bytes,
            buffer_kib: self.buffer_kib,
            absent: self.absent,
            notes: self.notes,
            attachments: self.attachments,
            events: self.events,
            pages: self.pages,
            comms: self.comms,
            spools,
        })
    }
}

impl Recording {
    /// Returns a reader of the recorded events, with the machine's state attached. It is
    /// [lenient](Options::lenient): a workload can seldom be repeated for one event that cannot be read.
    ///
    /// # Errors
    /// Fails if a temporary file cannot be read.
    pub fn into_reader(self) -> Result<TraceReader, TraceError> {
        let Recording { attachments, events, pages, comms, spools, unseen, .. } = self;
        let options = Options::lenient();
        TraceReader::of_recording(attachments, events, comms, pages, spools, unseen, options)
    }
}

/// Returns the folder where tracefs is mounted.
fn find_tracefs(options: &RecordOptions) -> Result<PathBuf, RecordError> {
    let usual = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
    let named = options.tracefs.clone().map(|path| vec![path]);
    let candidates = named.unwrap_or_else(|| usual.to_vec());
    for path in &candidates {
        match fs::metadata(path.join("events/header_page")) {
            Ok(_) => return Ok(path.clone()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(RecordError::tracefs(path, &error)),
        }
    }
    let path = &candidates[0];
    let (what, fix) = match fs::read_dir(path) {
        Ok(_) => {
            ("tracefs is not mounted here", format!("mount -t tracefs nodev {}", path.display()))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(RecordError::tracefs(path, &error));
        }
        Err(_) => (
            "no such folder",
            "mount tracefs (mount -t tracefs nodev DIR) and name it with --tracefs DIR, or use a \
             kernel with CONFIG_TRACING"
                .to_owned(),
        ),
    };
    Err(RecordError::new(path, what, fix))
}

/// Reads a small file by one large read. For some files of tracefs, the kernel ends the file after
/// the first read, however short.
fn at_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; 1 << 16];
    let mut length = 0;
    loop {
        match file.read(&mut bytes[length..])? {
            0 => break,
            n => length += n,
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Reads the layout of sub-buffers and makes a table of events.
fn layouts(tracefs: &Path) -> Result<(PageLayout, EventTable), RecordError> {
    let read = |file: &str| {
        let path = tracefs.join("events").join(file);
        at_once(&path).map_err(|e| RecordError::tracefs(&path, &e))
    };
    let (page, event) = (read("header_page")?, read("header_event")?);
    let pages = PageLayout::parse(&page, &event, cfg!(target_endian = "big"));
    let (pages, layout) = pages.map_err(|fault| {
        let fix = "record with trace-cmd, and report this kernel's release";
        RecordError::new(&tracefs.join("events"), fault.to_string(), fix)
    })?;
    Ok((pages, EventTable::new(layout)))
}

/// Adds the descriptions of all events that a recording wants. Returns the events, by system.
fn describe(
    tracefs: &Path,
    table: &mut EventTable,
) -> Result<Vec<(&'static str, &'static str)>, RecordError> {
    let page = PAGE_EVENTS.map(|event| ("kmem", event));
    let points = POINTS.iter().map(|point| {
        let of_reclaim = point.name.starts_with(crate::compaction::VMSCAN);
        (if of_reclaim { "vmscan" } else { "compaction" }, point.name)
    });
    let task = TASK_EVENTS.map(|event| ("task", event));
    let wanted: Vec<_> = page.into_iter().chain(points).chain(task).collect();
    for (system, event) in wanted.iter().chain(&[("ftrace", "print")]) {
        let path = tracefs.join("events").join(system).join(event).join("format");
        let description = match fs::read(&path) {
            Ok(description) => description,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(RecordError::tracefs(&path, &error)),
        };
        table.add(&description).map_err(|fault| {
            let fix = "record with trace-cmd, and report this kernel's release";
            RecordError::new(&path, fault.to_string(), fix)
        })?;
    }
    Ok(wanted)
}

/// The largest size of a CPU's buffer by default, in KiB.
const MOST_KIB: u64 = 32 << 10;

/// Returns the default size of a CPU's buffer in KiB.
fn fitting_buffer(proc: &Path, cpus: usize) -> u64 {
    let info = fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|n| n.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    (kib.unwrap_or(1 << 20) / 16 / cpus.max(1) as u64).clamp(64, MOST_KIB)
}
