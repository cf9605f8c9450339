//! Throughput of the ring, and costs of starting and stopping a guest. Compares memory from a yard
//! with a file of the guest's own, with the same program and the same device.

use std::io::IsTerminal;
use std::time::Instant;

use clap::Args;
use pageyard_host::{Backing, Builder, HostYard, HugePages, SystemFiles};
use serde::Serialize;
use vm_memory::GuestMemoryBackend;

use crate::content::mix;
use crate::guest::Guest;
use crate::memory::{file_of, from_memfd, from_yard};
use crate::{Devices, PAGE, Result};

/// Consecutive guests in a round.
const LIVES: usize = 3;

#[derive(Args, Serialize)]
pub(crate) struct Options {
    /// Memory of a guest.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(4..=1 << 16))]
    mib: u64,
    /// Requests of a guest, each with 4 KiB to the device and 4 KiB back.
    #[arg(long, default_value_t = 60_000)]
    requests: u64,
    /// Rounds, in each of which every kind of memory has its turn.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Contents, and the order within a round, follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For programs.
    #[arg(long)]
    #[serde(skip)]
    json: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { mib: 128, requests: 60_000, rounds: 7, seed: 1, json: false }
    }
}

/// Kind of guest memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Yard,
    #[serde(rename = "yard-4k")]
    YardSmall,
    #[serde(rename = "memfd-huge")]
    FileHuge,
    #[serde(rename = "memfd")]
    File,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Yard, "yard"),
    (Kind::YardSmall, "yard-4k"),
    (Kind::FileHuge, "memfd-huge"),
    (Kind::File, "memfd"),
];

/// Times of a guest in ms, and throughput to and from the device in MiB/s.
#[derive(Clone, Copy, Serialize)]
struct Life {
    kind: Kind,
    round: u64,
    /// Position among the consecutive guests, from 0.
    life: usize,
    begin_ms: f64,
    write_ms: f64,
    ring_mib_s: f64,
    end_ms: f64,
}

struct Times {
    last: Instant,
}

impl Times {
    fn ms(&mut self) -> f64 {
        let now = Instant::now();
        let passed = now - std::mem::replace(&mut self.last, now);
        passed.as_secs_f64() * 1e3
    }
}

fn live<M: GuestMemoryBackend>(
    options: &Options,
    (kind, round, life): (Kind, u64, usize),
    devices: &Devices,
    memory: impl FnOnce() -> Result<M>,
) -> Result<Life> {
    let mut times = Times { last: Instant::now() };
    let seed = mix(options.seed ^ round << 8 ^ life as u64);
    let name = format!("{kind:?}, round {round}, guest {life}");
    let mut guest = Guest::start(name, seed, memory()?, &devices.socket(0), 0)?;
    let begin_ms = times.ms();
    guest.boot()?;
    let write_ms = times.ms();
    guest.work(options.requests)?;
    let ring_ms = times.ms();
    guest.check()?;
    times.ms();
    drop(guest.end()?);
    let bytes = (options.requests * 2 * PAGE as u64) as f64;
    let ring_mib_s = bytes / (1 << 20) as f64 / (ring_ms / 1e3);
    Ok(Life { kind, round, life, begin_ms, write_ms, ring_mib_s, end_ms: times.ms() })
}

/// Returns the median, the minimum and the maximum.
fn spread(mut all: Vec<f64>) -> (f64, f64, f64) {
    all.sort_by(f64::total_cmp);
    let middle = match all.len() {
        0 => return (0.0, 0.0, 0.0),
        n if n % 2 == 1 => all[n / 2],
        n => (all[n / 2 - 1] + all[n / 2]) / 2.0,
    };
    (middle, all[0], all[all.len() - 1])
}

fn cell(all: impl Iterator<Item = f64>) -> String {
    let (middle, least, most) = spread(all.collect());
    format!("{middle:.1} ({least:.1}–{most:.1})")
}

fn print(options: &Options, lives: &[Life]) {
    let Options { mib, requests, rounds, seed, .. } = options;
    println!(
        "{mib} MiB a guest, {requests} requests of 4 KiB there and 4 KiB back, {rounds} rounds of \
         {LIVES} guests, seed {seed}: medians, all within the brackets; times in ms\n"
    );
    println!(
        "| memory | ring, MiB/s | to memfd | first guest: begins | writes all | next guests: begin | \
         write all | end |\n|---|---|---|---|---|---|---|---|"
    );
    for (kind, name) in KINDS {
        let of = |first: Option<bool>| {
            let is =
                move |l: &&Life| l.kind == kind && first.is_none_or(|first| first == (l.life == 0));
            lives.iter().filter(is)
        };
        // Compare with the same guest of the same round.
        let ratios = of(None).filter_map(|l| {
            let same = |o: &&Life| (o.kind, o.round, o.life) == (Kind::File, l.round, l.life);
            Some(l.ring_mib_s / lives.iter().find(same)?.ring_mib_s)
        });
        let (ratio, least, most) = spread(ratios.collect());
        println!(
            "| {name} | {} | {ratio:.2} ({least:.2}–{most:.2}) | {} | {} | {} | {} | {} |",
            cell(of(None).map(|l| l.ring_mib_s)),
            cell(of(Some(true)).map(|l| l.begin_ms)),
            cell(of(Some(true)).map(|l| l.write_ms)),
            cell(of(Some(false)).map(|l| l.begin_ms)),
            cell(of(Some(false)).map(|l| l.write_ms)),
            cell(of(None).map(|l| l.end_ms)),
        );
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let yard = |huge| -> Result<HostYard> {
        let size = (options.mib << 20) + (64 << 20);
        let builder = Builder::new(size).backing(Backing::Memfd).huge_pages(huge);
        // The memory pressure of the system must not affect the measurement.
        Ok(builder.system(SystemFiles::none()).build()?)
    };
    let (huge, small) = (yard(HugePages::Advise)?, yard(HugePages::Never)?);
    let (huge_file, small_file) = (file_of(&huge)?, file_of(&small)?);
    let devices = Devices::start(1)?;
    let pages = (options.mib << 20) / PAGE as u64;
    let mut lives = Vec::new();
    let mut draw = options.seed;
    for round in 0..options.rounds {
        let mut order = KINDS;
        for n in (1..order.len()).rev() {
            draw = mix(draw.wrapping_add(1));
            order.swap(n, (draw % (n as u64 + 1)) as usize);
        }
        for (kind, name) in order {
            if std::io::stderr().is_terminal() {
                eprint!("\rround {} of {}: {name}          ", round + 1, options.rounds);
            }
            for life in 0..LIVES {
                let at = (kind, round, life);
                lives.push(match kind {
                    Kind::Yard => {
                        live(options, at, &devices, || from_yard(&huge, &huge_file, pages, true))?
                    }
                    Kind::YardSmall => {
                        live(options, at, &devices, || from_yard(&small, &small_file, pages, true))?
                    }
                    Kind::FileHuge => live(options, at, &devices, || from_memfd(pages, true))?,
                    Kind::File => live(options, at, &devices, || from_memfd(pages, false))?,
                });
            }
        }
    }
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    if options.json {
        let all = serde_json::json!({ "options": options, "guests": lives });
        println!("{}", serde_json::to_string_pretty(&all)?);
    } else {
        print(options, &lives);
    }
    Ok(())
}
