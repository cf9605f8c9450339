//! How fast memory returns to the system after everything was freed, and what that costs a steady
//! load in page faults. Prints measurements of this machine; nothing is simulated.
//!
//!     cargo run --release -p pageyard-host --example give_back [MiB]

use std::time::{Duration, Instant};

use pageyard::{Gfp, Order, PAGE_SIZE};
use pageyard_host::{Block, Builder, GiveBack, HostYard, HugePages};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Returns a field of `/proc/self/stat`, counted from 0 behind the process's name.
fn stat(field: usize) -> Result<u64> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let behind = text.rsplit_once(')').ok_or("/proc/self/stat: no name")?.1;
    let mut fields = behind.split_whitespace();
    Ok(fields.nth(field).ok_or("/proc/self/stat: too short")?.parse()?)
}

/// Returns the page faults of this process so far.
fn faults() -> Result<u64> {
    stat(7)
}

/// Returns the CPU time of this process in milliseconds, in steps of ten.
fn cpu_time() -> Result<u64> {
    Ok((stat(11)? + stat(12)?) * 10)
}

fn fill(yard: &HostYard, pages: u64) -> Result<Vec<Block<'_>>> {
    let one = |_| {
        let mut block = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
        block[0] = 1;
        Ok(block)
    };
    (0..pages).map(one).collect()
}

fn returned(size: u64, huge: HugePages) -> Result<()> {
    let yard = Builder::new(size).huge_pages(huge).build()?;
    let blocks = fill(&yard, size / PAGE_SIZE * 9 / 10)?;
    std::thread::sleep(Duration::from_millis(2000));
    let before = yard.resident()?;
    drop(blocks);
    let start = Instant::now();
    let mut next = before / 2;
    let mut parts = Vec::new();
    while next >= before / 20 && start.elapsed() < Duration::from_secs(20) {
        let now = yard.resident()?;
        while now <= next && next >= before / 20 {
            parts.push(format!(
                "{}% in {} ms",
                100 - next * 100 / before,
                start.elapsed().as_millis()
            ));
            next = if next > before / 10 {
                before / 10
            } else if next > before / 20 {
                before / 20
            } else {
                0
            };
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("{huge:?}: of {} MiB, {}", (before * PAGE_SIZE) >> 20, parts.join(", "));
    Ok(())
}

/// How much of a pool stays that keeps one page of a hundred, and what it costs to fill it again.
fn pool(size: u64, least: Order) -> Result<()> {
    let how = GiveBack { least, ..GiveBack::default() };
    let yard = Builder::new(size).huge_pages(HugePages::Never).give_back(Some(how)).build()?;
    let mut blocks = fill(&yard, size / PAGE_SIZE * 9 / 10)?;
    let before = yard.resident()?;
    let mut n = 0;
    blocks.retain(|_| {
        n += 1;
        n % 100 == 0
    });
    let (start, cpu) = (Instant::now(), cpu_time()?);
    std::thread::sleep(Duration::from_secs(5));
    let (worked, after) = (cpu_time()? - cpu, yard.resident()?);
    let again = Instant::now();
    let more = fill(&yard, size / PAGE_SIZE * 8 / 10)?;
    let each = again.elapsed().as_nanos() / more.len() as u128;
    let mib = |pages| (pages * PAGE_SIZE) >> 20;
    println!(
        "a pool keeps 1%, blocks from {} KiB on are returned: {} of {} MiB stay after {} s, {worked} ms \
         of CPU time; then {each} ns to take and write a page",
        4 << least.get(),
        mib(after),
        mib(before),
        (again - start).as_secs(),
    );
    Ok(())
}

/// Runs a load that holds between half and all of its pages, for some seconds.
fn steady(size: u64, gives: bool) -> Result<()> {
    let mut builder = Builder::new(size).huge_pages(HugePages::Never);
    if !gives {
        builder = builder.give_back(None);
    }
    let yard = builder.build()?;
    let most = (size / PAGE_SIZE / 2) as usize;
    let mut held: Vec<Block<'_>> = Vec::with_capacity(most);
    let mut draw = 1u64;
    let (start, mut warm, mut pairs) = (Instant::now(), None, 0u64);
    while start.elapsed() < Duration::from_secs(12) {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let goal = most / 2 + (draw >> 33) as usize % (most / 2);
        held.truncate(goal);
        while held.len() < goal {
            let mut block = yard.alloc(Order::ZERO, Gfp::KERNEL)?;
            block[0] = 1;
            held.push(block);
            pairs += u64::from(warm.is_some());
        }
        if warm.is_none() && start.elapsed() > Duration::from_secs(3) {
            warm = Some(faults()?);
        }
    }
    let faults = faults()? - warm.unwrap_or(0);
    let name = if gives { "giving back" } else { "keeping all" };
    println!("steady load, {name}: {faults} faults in 9 s, {pairs} pages allocated");
    Ok(())
}

fn main() -> Result<()> {
    let mib: u64 = std::env::args().nth(1).map_or(Ok(1024), |n| n.parse())?;
    returned(mib << 20, HugePages::Never)?;
    returned(mib << 20, HugePages::Advise)?;
    for least in [Order::HUGE, Order::new(2).unwrap_or_default(), Order::ZERO] {
        pool(mib << 20, least)?;
    }
    steady(mib << 20, false)?;
    steady(mib << 20, true)
}
