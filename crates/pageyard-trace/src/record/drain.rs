//! Moves raw sub-buffers from the kernel to a spool file per CPU while the recording runs.
//!
//! Sub-buffers are only compressed, not decoded: what a recording costs the machine is mostly
//! this. The spools become records when the recording has ended.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::RecordError;
use crate::binary::PageLayout;
use crate::trace_dat::Spool;

/// Bytes of sub-buffers in a chunk.
const CHUNK: usize = 1 << 18;
/// Sub-buffers to read from one CPU before the next has its turn.
const TURN: usize = 1024;
/// Pause when no CPU has events. Buffers hold far more than what comes in this time.
const PAUSE: Duration = Duration::from_millis(20);

/// Figures of a running recording.
#[derive(Debug, Default)]
pub(super) struct Figures {
    /// Bytes of sub-buffers with events.
    pub(super) bytes: AtomicU64,
    /// Events that were lost, by the heads of sub-buffers.
    pub(super) lost: AtomicU64,
    is_ending: AtomicBool,
    is_abandoned: AtomicBool,
    failed: Mutex<Option<RecordError>>,
}

impl Figures {
    /// Returns why moving events failed, once.
    pub(super) fn failure(&self) -> Option<RecordError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The raw buffer of a CPU and its spool.
pub(super) struct CpuPipe {
    pub(super) cpu: u16,
    pub(super) pipe: File,
    pub(super) spool: BufWriter<File>,
    chunks: u32,
    size: u64,
    batch: Vec<u8>,
}

impl CpuPipe {
    pub(super) fn new(cpu: u16, pipe: File, spool: File) -> Self {
        let spool = BufWriter::with_capacity(1 << 16, spool);
        CpuPipe { cpu, pipe, spool, chunks: 0, size: 0, batch: Vec::with_capacity(CHUNK) }
    }

    /// Compresses the batch and appends it to the spool.
    fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let packed = zstd::bulk::compress(&self.batch, 1)?;
        for length in [packed.len(), self.batch.len()] {
            self.spool.write_all(&(length as u32).to_ne_bytes())?;
        }
        self.spool.write_all(&packed)?;
        self.chunks += 1;
        self.size += 8 + packed.len() as u64;
        self.batch.clear();
        Ok(())
    }

    fn finish(mut self) -> io::Result<Spool> {
        self.flush()?;
        let file = self.spool.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(Spool { cpu: self.cpu, file, chunks: self.chunks, size: self.size })
    }
}

/// The thread that moves sub-buffers.
pub(super) struct Drain {
    figures: Arc<Figures>,
    thread: Option<JoinHandle<Result<Vec<Spool>, RecordError>>>,
}

impl Drain {
    /// Starts the thread.
    pub(super) fn start(
        pipes: Vec<CpuPipe>,
        pages: PageLayout,
        figures: Arc<Figures>,
    ) -> Result<Self, RecordError> {
        let of_thread = Arc::clone(&figures);
        let work = move || {
            let done = run(pipes, pages, &of_thread);
            if let Err(error) = &done {
                let mut failed = of_thread.failed.lock().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(error.clone());
            }
            done
        };
        let thread = thread::Builder::new().name("drain".into()).spawn(work);
        let thread = thread.map_err(|e| RecordError::spool(&e))?;
        Ok(Drain { figures, thread: Some(thread) })
    }

    /// Moves what is left and ends the thread. Tracing must be off.
    pub(super) fn finish(mut self) -> Result<Vec<Spool>, RecordError> {
        self.figures.is_ending.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        let broken = || RecordError {
            object: "recorder".into(),
            what: "its thread ended early".into(),
            fix: "record again".into(),
        };
        joined.and_then(Result::ok).unwrap_or_else(|| Err(broken()))
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        // Tracing may be on still, so that there is no end of events.
        self.figures.is_abandoned.store(true, Ordering::Relaxed);
        // The instance can be removed only when its files are closed.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(
    mut pipes: Vec<CpuPipe>,
    pages: PageLayout,
    figures: &Figures,
) -> Result<Vec<Spool>, RecordError> {
    loop {
        // Read first: what was there before the end is moved after it.
        let is_ending = figures.is_ending.load(Ordering::Relaxed);
        if figures.is_abandoned.load(Ordering::Relaxed) {
            return Ok(Vec::new());
        }
        let mut moved = 0;
        for pipe in &mut pipes {
            moved += turn(pipe, pages, figures)?;
        }
        if moved == 0 {
            if is_ending {
                break;
            }
            thread::sleep(PAUSE);
        }
    }
    pipes.into_iter().map(|pipe| pipe.finish().map_err(|e| RecordError::spool(&e))).collect()
}

/// Moves sub-buffers of one CPU. Returns their number.
fn turn(pipe: &mut CpuPipe, pages: PageLayout, figures: &Figures) -> Result<usize, RecordError> {
    for moved in 0..TURN {
        let at = pipe.batch.len();
        pipe.batch.resize(at + pages.size, 0);
        let read = loop {
            match pipe.pipe.read(&mut pipe.batch[at..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        match read {
            Ok(n) if n > 0 => {}
            read => {
                pipe.batch.truncate(at);
                return match read {
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                        let path = PathBuf::from(format!("per_cpu/cpu{}/trace_pipe_raw", pipe.cpu));
                        Err(RecordError::tracefs(&path, &error))
                    }
                    _ => Ok(moved),
                };
            }
        }
        if let Ok(page) = pages.open(&pipe.batch[at..]) {
            figures.lost.fetch_add(page.lost, Ordering::Relaxed);
        }
        figures.bytes.fetch_add(pages.size as u64, Ordering::Relaxed);
        if pipe.batch.len() >= CHUNK {
            pipe.flush().map_err(|e| RecordError::spool(&e))?;
        }
    }
    Ok(TURN)
}
