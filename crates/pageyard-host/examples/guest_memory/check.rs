//! Checks contents only. Guests start and stop, their memory is freed to the yard and idle memory
//! is returned to the system, while other guests work. No page in use may change, and no guest may
//! find data of another one.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use pageyard_host::{Backing, Builder, GiveBack, HostYard, SystemFiles};

use crate::content::mix;
use crate::guest::Guest;
use crate::memory::{YardMemory, file_of, frames, from_yard, overlap};
use crate::{Devices, PAGE, Result};

/// Maximum time to wait for the worker.
const PATIENCE: Duration = Duration::from_secs(60);

/// A planted mistake: the check must find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Plant {
    /// Memory is taken without asking for zeros.
    Dirty,
    /// A hole is made in a page that a guest has.
    Punch,
    /// The device is told another place in the file for one of the regions.
    Offset,
}

#[derive(Args)]
pub(crate) struct Options {
    /// Memory of a guest.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(4..=1 << 16))]
    mib: u64,
    /// Requests of a guest at a time.
    #[arg(long, default_value_t = 2000)]
    requests: u64,
    /// Guests that follow each other in the end.
    #[arg(long, default_value_t = 6)]
    guests: u64,
    /// Contents follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A mistake made on purpose, which has to be found.
    #[arg(long)]
    plant: Option<Plant>,
}

type YardGuest<'y> = Guest<YardMemory<'y>>;

struct Scene<'y> {
    options: &'y Options,
    yard: &'y HostYard,
    file: std::sync::Arc<File>,
    devices: Devices,
    begun: u64,
}

impl<'y> Scene<'y> {
    /// Starts a guest on a device. Checks that every page is zero, then writes and uses all of
    /// them.
    fn guest(&mut self, device: usize) -> Result<YardGuest<'y>> {
        let Options { mib, requests, seed, plant, .. } = *self.options;
        self.begun += 1;
        let zero = plant != Some(Plant::Dirty);
        let memory = from_yard(self.yard, &self.file, (mib << 20) / PAGE as u64, zero)?;
        let name = format!("guest {}", self.begun);
        let shift = if plant == Some(Plant::Offset) && device > 0 { -(2 << 20) } else { 0 };
        let seed = mix(seed) ^ mix(self.begun);
        let mut guest = Guest::start(name, seed, memory, &self.devices.socket(device), shift)?;
        guest.check()?;
        guest.boot()?;
        guest.work(requests)?;
        guest.check()?;
        Ok(guest)
    }
}

/// Punches a hole into the first page behind the ring of a guest's memory.
fn punch(file: &File, guest: &YardGuest<'_>) -> Result<()> {
    let first = frames(&guest.memory)[0].0 - pageyard_host::Region::FIRST.0;
    let at = (first + crate::ring::PAGES) * PAGE as u64;
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: the descriptor is open; the effect on the page is intended.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, at as i64, PAGE as i64) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    println!("seed {}", options.seed);
    // Room for two guests but not for three, so that a new guest gets memory of an earlier one.
    let size = (options.mib << 20) * 5 / 2 + (8 << 20);
    let idle = GiveBack { after: Duration::from_millis(1), ..GiveBack::default() };
    let yard = Builder::new(size)
        .backing(Backing::Memfd)
        .give_back(Some(idle))
        .tick(Some(Duration::from_millis(20)))
        .system(SystemFiles::none())
        .build()?;
    let file = file_of(&yard)?;
    let mut scene = Scene { options, yard: &yard, file, devices: Devices::start(2)?, begun: 0 };

    let first = scene.guest(0)?;
    let mut second = scene.guest(1)?;
    let had = frames(&first.memory);
    let pages = (options.mib << 20) / PAGE as u64;
    let before = yard.status().given_back;
    drop(first.end()?);
    // The first guest's memory is returned to the system while the second guest and its device
    // work.
    let until = Instant::now() + PATIENCE;
    while yard.status().given_back - before < pages / 2 {
        yard.wake_worker();
        second.work(64)?;
        if Instant::now() > until {
            return Err(format!("idle memory stays: {:?}", yard.status()).into());
        }
    }
    let given = yard.status().given_back - before;
    if options.plant == Some(Plant::Punch) {
        punch(&scene.file, &second)?;
    }
    second.check()?;
    println!(
        "given back while a guest works: {given} pages; the guest's are all as they should be"
    );

    let mut last = had;
    let mut shared = 0;
    for _ in 0..options.guests {
        let mut guest = scene.guest(0)?;
        shared += overlap(&guest.memory, &last);
        last = frames(&guest.memory);
        second.work(64)?;
        guest.check()?;
        drop(guest.end()?);
    }
    if options.guests > 1 && shared == 0 {
        return Err("no guest had a page that another one had: nothing was shown".into());
    }
    second.check()?;
    drop(second.end()?);
    println!(
        "{} guests; {shared} pages that the one before had wrote, all zero; {} pages given back, {} \
         fetched again",
        scene.begun,
        yard.status().given_back,
        yard.status().fetched
    );
    yard.drain();
    // Pages being returned to the system at the moment count as in use.
    let until = Instant::now() + PATIENCE;
    while yard.status().used > 0 {
        if Instant::now() > until {
            let used = yard.status().used;
            return Err(format!("{used} pages are in use after the last guest").into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
