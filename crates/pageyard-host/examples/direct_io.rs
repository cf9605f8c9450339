//! A storage engine's reads and writes: io_uring with registered buffers, `O_DIRECT`, and frames
//! that are allocated and freed all the time. The whole yard is registered once, in pieces of at
//! most 1 GiB. Every byte read is compared.
//!
//!     cargo run --release -p pageyard-host --example direct_io [--unpinned] [FOLDER]
//!
//! With `--unpinned`, the yard returns idle memory to the system between two rounds, and the
//! comparison fails: the registration still refers to the old pages.

#![allow(unsafe_code)] // requests of io_uring

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, types};
use pageyard::{Gfp, Order, PAGE_SIZE};
use pageyard_host::{Block, Builder, GiveBack, HostYard, SystemFiles};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SIZE: u64 = 64 << 20;
/// Frames of 16 KiB, of which a round has 1,024 in use.
const FRAME: Order = Order::new(2).expect("an order of a block");
const BYTES: usize = (PAGE_SIZE as usize) << FRAME.get();
const FRAMES: usize = 1024;
const ROUNDS: u64 = 3;
/// Most bytes of one registered buffer.
const PIECE: usize = 1 << 30;
/// Requests under way at once.
const DEPTH: usize = 64;

/// A ring that reads and writes blocks of one yard.
struct Engine<'y> {
    ring: IoUring,
    yard: &'y HostYard,
    file: File,
}

impl<'y> Engine<'y> {
    fn new(yard: &'y HostYard, file: File) -> Result<Engine<'y>> {
        let ring = IoUring::new(DEPTH as u32)?;
        let memory = yard.memory();
        let start: NonNull<u8> = memory.cast();
        let pieces: Vec<libc::iovec> = (0..memory.len())
            .step_by(PIECE)
            .map(|at| libc::iovec {
                iov_base: start.as_ptr().wrapping_add(at).cast(),
                iov_len: PIECE.min(memory.len() - at),
            })
            .collect();
        // SAFETY: the memory stays mapped as long as the yard, which outlives the ring. Requests
        // only access blocks that this engine borrows meanwhile.
        unsafe { ring.submitter().register_buffers(&pieces)? };
        Ok(Engine { ring, yard, file })
    }

    /// Returns the registered buffer that contains a block, by number.
    fn buffer(&self, block: &Block<'_>) -> u16 {
        let start: NonNull<u8> = self.yard.memory().cast();
        ((block.as_ptr().addr().get() - start.addr().get()) / PIECE) as u16
    }

    /// Reads or writes all blocks, each at its place in the file, and waits.
    fn transfer(&mut self, blocks: &mut [Block<'_>], writes: bool) -> Result<()> {
        let fd = types::Fd(self.file.as_raw_fd());
        for (chunk, blocks) in blocks.chunks_mut(DEPTH).enumerate() {
            for (n, block) in blocks.iter_mut().enumerate() {
                let (at, buffer) = ((chunk * DEPTH + n) * BYTES, self.buffer(block));
                let (start, bytes) = (block.as_ptr().as_ptr(), BYTES as u32);
                let entry = if writes {
                    opcode::WriteFixed::new(fd, start, bytes, buffer).offset(at as u64).build()
                } else {
                    opcode::ReadFixed::new(fd, start, bytes, buffer).offset(at as u64).build()
                };
                // SAFETY: the block is borrowed until all requests have ended, below.
                unsafe { self.ring.submission().push(&entry)? };
            }
            self.wait_for(blocks.len())?;
        }
        Ok(())
    }

    /// Submits requests and waits until they have ended: the kernel must not access their blocks
    /// afterwards, even if one of them failed.
    fn wait_for(&mut self, requests: usize) -> Result<()> {
        let mut left = requests;
        let mut failed = None;
        while left > 0 {
            match self.ring.submit_and_wait(1) {
                Err(e) if e.kind() != io::ErrorKind::Interrupted => {
                    // Returning would free blocks that the kernel may still write to.
                    eprintln!("io_uring_enter: {e}");
                    std::process::exit(1);
                }
                _ => {}
            }
            for entry in self.ring.completion() {
                left -= 1;
                failed = failed.or(error_of(&entry));
            }
        }
        failed.map_or(Ok(()), |e| Err(e.into()))
    }
}

fn error_of(entry: &cqueue::Entry) -> Option<io::Error> {
    match entry.result() {
        n if n < 0 => Some(io::Error::from_raw_os_error(-n)),
        n if n as usize != BYTES => Some(io::Error::other(format!("{n} of {BYTES} bytes"))),
        _ => None,
    }
}

fn frames(yard: &HostYard) -> Result<Vec<Block<'_>>> {
    (0..FRAMES).map(|_| Ok(yard.alloc(FRAME, Gfp::KERNEL)?)).collect()
}

/// Waits until the yard has returned idle memory, if it does.
fn rest(yard: &HostYard) -> Result<()> {
    let before = yard.status().given_back;
    let end = Instant::now() + Duration::from_secs(60);
    while yard.status().keeps.is_none() && yard.status().given_back == before {
        if Instant::now() > end {
            return Err("the yard returned no idle memory within a minute".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Returns the number of frames that were not read as they were written.
fn wrong_frames(yard: &HostYard, file: File) -> Result<usize> {
    let mut engine = Engine::new(yard, file)?;
    let mut wrong = 0;
    for round in 1..=ROUNDS {
        let byte = |n: usize| (n as u64 * 7 + round * 31) as u8;
        let mut written = frames(yard)?;
        written.iter_mut().enumerate().for_each(|(n, block)| block.fill(byte(n)));
        engine.transfer(&mut written, true)?;
        drop(written);
        rest(yard)?;
        let mut read = frames(yard)?;
        read.iter_mut().for_each(|block| block.fill(0));
        engine.transfer(&mut read, false)?;
        wrong +=
            (read.iter().enumerate()).filter(|(n, b)| b.iter().any(|&b| b != byte(*n))).count();
        drop(read);
        rest(yard)?;
    }
    Ok(wrong)
}

/// Creates a file without a name that is read and written past the page cache.
fn direct(folder: PathBuf) -> Result<File> {
    let flags = libc::O_DIRECT | libc::O_TMPFILE;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&folder);
    let file = file.map_err(|e| format!("{}: no O_DIRECT file here: {e}", folder.display()))?;
    file.set_len((FRAMES * BYTES) as u64)?;
    Ok(file)
}

fn main() -> Result<()> {
    let (options, mut folders): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|arg| arg.starts_with("--"));
    let unpinned = match &options[..] {
        [] => false,
        [one] if one == "--unpinned" => true,
        _ => return Err("options: expected --unpinned or none".into()),
    };
    let folder = folders.pop().map_or_else(std::env::temp_dir, PathBuf::from);
    let builder = Builder::new(SIZE).system(SystemFiles::none());
    let builder = match unpinned {
        true => builder.give_back(Some(GiveBack { after: Duration::ZERO, ..GiveBack::default() })),
        false => builder.pinned(true),
    };
    let yard = builder.build()?;
    let wrong = wrong_frames(&yard, direct(folder)?)?;
    println!("{wrong} of {} frames do not hold what was written", FRAMES as u64 * ROUNDS);
    if wrong > 0 {
        return Err("registered memory was discarded; build the yard with pinned(true)".into());
    }
    Ok(())
}
