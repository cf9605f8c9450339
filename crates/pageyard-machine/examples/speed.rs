//! How fast the machine is on this host, and how much memory it takes.
//!
//! `cargo run --release -p pageyard-machine --example speed [MACHINE] [OPERATIONS] [PATTERN]`
//!
//! Every CPU runs one task. Patterns: `fault` allocates bursts of up to 1,024 pages, writes to each
//! and frees them all; `fill` does it once, with all operations in one burst; `pair` allocates and
//! frees one page; `pipe` allocates blocks of order 2 on even CPUs and frees them on odd ones.

use std::time::Instant;

use pageyard::policy::Linux612;
use pageyard::{CpuId, Gfp, Knobs, Order};
use pageyard_machine::{Machine, MachineSpec, Memory, Options, Pipe, Touch};

/// A line of `/proc/self/status` in MiB.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(key)).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) >> 10
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or("2x56".into());
    let operations: u64 = args.next().map_or(Ok(20_000_000), |n| n.parse())?;
    let pattern = args.next().unwrap_or("fault".into());
    let spec = MachineSpec::open(name.as_ref())?;
    let start = Instant::now();
    let machine = Machine::new(&spec, Options::default());
    let memory_layout = machine.memory_layout();
    let layout = memory_layout.layout(Knobs::default());
    let memory = Memory::for_layout(&layout)?;
    let mut rooms = memory.rooms();
    let yard = machine.yard::<Linux612, ()>(&layout, memory.storage(&mut rooms), ())?;
    println!("{name}: built in {:.2?}, {} MiB resident", start.elapsed(), status("VmRSS"));

    let cpus = yard.cpus();
    let fill = pattern == "fill";
    let each = operations / u64::from(cpus);
    let start = Instant::now();
    let pipes: Vec<Pipe<_>> = (0..cpus.div_ceil(2)).map(|_| Pipe::new(17)).collect();
    machine.run(|s| {
        for cpu in (0..cpus).map(CpuId) {
            let (yard, pipe) = (&yard, &pipes[cpu.0 as usize / 2]);
            match &*pattern {
                "pair" => s.spawn(cpu, move |task| {
                    for _ in 0..each / 2 {
                        task.think(200);
                        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
                        yard.free(pfn, Order::ZERO).unwrap();
                    }
                }),
                "pipe" if cpu.0 % 2 == 0 => s.spawn(cpu, move |task| {
                    for _ in 0..each {
                        task.think(1000);
                        let pfn = yard.alloc(Order::new(2).unwrap(), Gfp::KERNEL).unwrap();
                        task.touch(pfn, Order::new(2).unwrap(), Touch::Use);
                        pipe.send(task, pfn).unwrap();
                    }
                    pipe.close(task);
                }),
                "pipe" => s.spawn(cpu, move |task| {
                    while let Some(pfn) = pipe.receive(task) {
                        task.think(1000);
                        task.touch(pfn, Order::new(2).unwrap(), Touch::Use);
                        yard.free(pfn, Order::new(2).unwrap()).unwrap();
                    }
                }),
                _ => s.spawn(cpu, move |task| {
                    let mut pages = Vec::new();
                    let mut left = each / 2;
                    while left > 0 {
                        let burst = if fill { left } else { (1 + task.random(1024)).min(left) };
                        left -= burst;
                        for _ in 0..burst {
                            task.think(300);
                            let pfn = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
                            task.touch_bytes(pfn, 64);
                            pages.push(pfn);
                        }
                        for pfn in pages.drain(..) {
                            yard.free(pfn, Order::ZERO).unwrap();
                        }
                    }
                }),
            }
        }
        s.spawn_ticks(&yard);
    })?;
    let took = start.elapsed();
    let stats = machine.stats();
    println!(
        "{operations} operations in {took:.2?}: {:.2} million/s, {} switches; {} MiB at most",
        operations as f64 / took.as_secs_f64() / 1e6,
        stats.switches,
        status("VmHWM")
    );
    println!("{stats}");
    Ok(())
}
