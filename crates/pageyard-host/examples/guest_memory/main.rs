//! Guest memory from a yard on a memfd, for a VMM whose devices are other processes (vhost-user).
//! `vm-memory` regions own ranges of the yard. A device in a second process maps them by offset
//! into the yard's file. A virtqueue in guest memory connects both.
//!
//!     cargo run --release -p pageyard-host --example guest_memory              # throughput with and without a yard
//!     cargo run --release -p pageyard-host --example guest_memory -- check     # contents alone
//!
//! Every answer of the device is compared by content. The printed values are measured on this
//! machine; nothing is simulated.

#![allow(unsafe_code)]

mod check;
mod content;
mod device;
mod guest;
mod measure;
mod memory;
mod ring;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use clap::{Parser, Subcommand};

/// Bytes per page.
pub(crate) const PAGE: usize = pageyard::PAGE_SIZE as usize;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Guest memory from a yard, shared with a device in a second process.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// Throughput with guest memory from a yard and from a file of the guest's own (the default).
    Measure(measure::Options),
    /// Guests come and go while memory is given back; every page is compared in both processes.
    Check(check::Options),
    /// The second process: a device that listens on sockets 0, 1, … in a directory.
    #[command(hide = true)]
    Device {
        /// Where.
        directory: PathBuf,
        /// How many.
        guests: usize,
    },
}

/// The second process, which ends when this is dropped.
pub(crate) struct Devices {
    directory: tempfile::TempDir,
    process: Child,
}

impl Devices {
    /// Starts this program again, with devices for `guests` guests at a time.
    pub(crate) fn start(guests: usize) -> Result<Devices> {
        let directory = tempfile::tempdir()?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("device").arg(directory.path()).arg(guests.to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let devices = Devices { directory, process };
        if line == "ready\n" { Ok(devices) } else { Err("the second process did not begin".into()) }
    }

    /// Returns the path of a guest's device socket.
    pub(crate) fn socket(&self, guest: usize) -> PathBuf {
        self.directory.path().join(guest.to_string())
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // Closing its input ends the process.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        None => measure::run(&measure::Options::default()),
        Some(What::Measure(options)) => measure::run(&options),
        Some(What::Check(options)) => check::run(&options),
        Some(What::Device { directory, guests }) => device::run(&directory, guests),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("guest_memory: {error}");
            ExitCode::FAILURE
        }
    }
}
