//! `failing [--gib N,N] [--times N] [--json]`: how long requests take that fail beside free memory, on both
//! engines. Every other page is in use, so no block of two pages is free, and no page can be moved: pages are
//! unmovable, or movable but their owners refuse.
//!
//! The first such request may compact all memory in vain. Later ones may be deferred (spec §7.6), so the
//! median alone would say little.

use std::time::Instant;

use clap::Parser;
use pageyard::policy::{Linux612, Packed};
use pageyard::{Bare, Gfp, Order, Yard};
use serde::Serialize;

type Lock = spin::mutex::SpinMutex<()>;

/// Times requests that fail beside free memory.
#[derive(Parser)]
struct Args {
    /// GiB of memory.
    #[arg(long, default_value = "1,16", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1024))]
    gib: Vec<u64>,
    /// Requests of each kind.
    #[arg(long, default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..))]
    times: u64,
    /// JSON in place of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    engine: &'static str,
    gib: u64,
    pages: &'static str,
    request: &'static str,
    order: u8,
    median_us: f64,
    longest_us: f64,
}

/// Requests of all kinds in a yard under a policy.
macro_rules! rows {
    ($engine:literal, $policy:ty, $args:expr, $rows:expr) => {
        for &gib in &$args.gib {
            for (pages, gfp) in [("unmovable", Gfp::KERNEL), ("refusing", Gfp::HIGHUSER_MOVABLE)] {
                let usable = [1 << 32..(1_u64 << 32) + (gib << 30)];
                let yard: Yard<'_, Bare<Lock, (), $policy>> =
                    Yard::from_memory_map(&usable, &[], 2, ()).expect("one range of memory");
                let all = || yard.alloc(Order::ZERO, gfp | Gfp::MEMALLOC | Gfp::NOWARN).ok();
                for page in std::iter::from_fn(all).collect::<Vec<_>>() {
                    if page.0 % 2 == 0 {
                        yard.free(page, Order::ZERO).expect("a page in use");
                    }
                }
                yard.drain_all(None);
                for (request, flags) in [
                    ("NOWAIT", Gfp::NOWAIT),
                    ("NORETRY", Gfp::KERNEL | Gfp::NORETRY),
                    ("RETRY_MAYFAIL", Gfp::KERNEL | Gfp::RETRY_MAYFAIL),
                ] {
                    // A failure defers larger orders too.
                    for order in [9, 8, 4, 3, 1] {
                        let wanted = Order::new(order).expect("an order");
                        let mut us: Vec<f64> = (0..$args.times)
                            .map(|_| {
                                let start = Instant::now();
                                let result = yard.alloc(wanted, flags | Gfp::NOWARN);
                                let time = start.elapsed().as_secs_f64() * 1e6;
                                assert!(result.is_err(), "no such block is free");
                                time
                            })
                            .collect();
                        us.sort_by(f64::total_cmp);
                        let (median_us, longest_us) = (us[us.len() / 2], us[us.len() - 1]);
                        $rows.push(Row {
                            engine: $engine,
                            gib,
                            pages,
                            request,
                            order,
                            median_us,
                            longest_us,
                        });
                    }
                }
            }
        }
    };
}

fn main() -> serde_json::Result<()> {
    let args = Args::parse();
    let mut rows: Vec<Row> = vec![];
    rows!("exact", Linux612, args, rows);
    rows!("packed", Packed, args, rows);
    if args.json {
        return serde_json::to_writer_pretty(std::io::stdout(), &rows).map(|()| println!());
    }
    println!(
        "requests that fail beside free memory, microseconds: median of {}, longest",
        args.times
    );
    println!("pages      memory  request        order         exact                 packed");
    let half = rows.len() / 2;
    for (exact, packed) in rows[..half].iter().zip(&rows[half..]) {
        println!(
            "{:<10} {:>2} GiB  {:<14} {:>5} {:>9.1} {:>9.0} {:>11.1} {:>9.0}",
            exact.pages,
            exact.gib,
            exact.request,
            exact.order,
            exact.median_us,
            exact.longest_us,
            packed.median_us,
            packed.longest_us
        );
    }
    Ok(())
}
