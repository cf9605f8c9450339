//! Measures the start of a large machine: descriptors written at once and deferred, next to a plain
//! memset of the same memory in the same run, and the time to the first page on a machine of 1 TiB
//! (docs/performance.md).
//!
//!     cargo run --release -p pageyard --example start -- [GIB] [THREADS]

use std::alloc::{Layout as Bytes, alloc_zeroed, handle_alloc_error};
use std::hint::black_box;
use std::time::{Duration, Instant};

use pageyard::{
    Bare, CpuId, Frame, Gfp, Knobs, Layout, Needs, NodeId, Order, OwnedStorage, Pageblock, Pfn,
    Platform, Storage, Yard, ZoneKind, ZoneSpec,
};

type Lock = spin::mutex::SpinMutex<()>;

thread_local! { static CPU: std::cell::Cell<u32> = const { std::cell::Cell::new(0) }; }

#[derive(Clone, Copy)]
struct Machine;

impl Platform for Machine {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }
}

const PAGES_PER_GIB: u64 = 1 << 18;
const CPUS: [NodeId; 64] = [NodeId(0); 64];

/// Returns zero bytes that the operating system has not backed with memory yet. Never freed.
#[allow(unsafe_code)] // safe constructors of such a slice would write it
fn fresh<T>(n: usize) -> &'static mut [T] {
    let bytes = Bytes::array::<T>(n.max(1)).expect("fits an address space");
    // SAFETY: the layout is not empty. `Frame` and `Pageblock`, the only types used here, consist
    // of atomic integers, for which zero bytes are valid. The memory is never freed.
    unsafe {
        let start = alloc_zeroed(bytes).cast::<T>();
        if start.is_null() {
            handle_alloc_error(bytes);
        }
        std::slice::from_raw_parts_mut(start, n)
    }
}

/// Zeroes the descriptors with a plain memset.
#[allow(unsafe_code)]
fn memset(frames: &mut [Frame]) {
    let n = size_of_val(frames);
    // SAFETY: covers exactly a mutably borrowed slice; zero bytes are valid descriptors.
    unsafe { frames.as_mut_ptr().cast::<u8>().write_bytes(0, n) };
    black_box(frames);
}

fn time<T>(f: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let answer = f();
    (answer, start.elapsed())
}

/// Creates an allocator of `gib` GiB over these descriptors and passes it to `f` with its start
/// time.
fn with_yard<T>(
    gib: u64,
    frames: &[Frame],
    deferred: bool,
    f: impl for<'y> FnOnce(&Yard<'y, Bare<Lock, Machine>>, Instant) -> T,
) -> T {
    let span = Pfn(0)..Pfn(gib * PAGES_PER_GIB);
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
        usable: &[span],
        reserved: &[],
        cpus: &CPUS,
        distances: &[],
        knobs: Knobs::default(),
    };
    let needs = layout.needs::<Lock>().expect("a layout without faults");
    let blocks: &[Pageblock] = fresh(needs.blocks);
    let mut rest = OwnedStorage::for_needs(&Needs { frames: 0, blocks: 0, ..needs })
        .expect("memory for a zone and its CPUs");
    let storage = Storage { frames, blocks, ..rest.storage() };
    let start = Instant::now();
    let yard = if deferred {
        Yard::deferred(&layout, storage, Machine)
    } else {
        Yard::new(&layout, storage, Machine)
    };
    f(&yard.expect("room for it"), start)
}

fn init_all(y: &Yard<'_, Bare<Lock, Machine>>, threads: u32) {
    std::thread::scope(|s| {
        for cpu in 0..threads {
            s.spawn(move || {
                CPU.set(cpu);
                while y.init_section(NodeId(0)) {}
            });
        }
    });
    assert!(y.finish_deferred());
}

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>());
    let gib = args.next().map_or(512, |n| n.expect("GIB is a number"));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = args.next().map_or(cores, |n| n.expect("THREADS is a number")).min(64) as u32;

    // Runs first, while no other memory has been touched.
    let huge: &[Frame] = fresh(1024 * PAGES_PER_GIB as usize);
    let (first, finished) = with_yard(1024, huge, true, |y, start| {
        let page = y.alloc(Order::ZERO, Gfp::KERNEL).expect("there is memory");
        let first = start.elapsed();
        (first, black_box((page, y.zone_info(ZoneKind::Normal).expect("one zone").managed)).1)
    });
    println!("1 TiB deferred: first page after {first:?}; {finished} pages initialised by then");

    let n = (gib * PAGES_PER_GIB) as usize;
    let bytes = (n * size_of::<Frame>()) as f64;
    let row = |what: &str, t: Duration| {
        println!(
            "{what:<44} {:>8.3} s {:>7.2} GB/s",
            t.as_secs_f64(),
            bytes / t.as_secs_f64() / 1e9
        );
    };
    println!("{gib} GiB, {:.2} GB of descriptors", bytes / 1e9);
    let frames: &mut [Frame] = fresh(n);
    row("memset, memory not backed yet", time(|| memset(frames)).1);
    for _ in 0..3 {
        row("memset", time(|| memset(frames)).1);
        row("Yard::new", with_yard(gib, frames, false, |_, start| start.elapsed()));
        memset(frames);
        for threads in [1, threads] {
            let t = with_yard(gib, frames, true, |y, _| time(|| init_all(y, threads)).1);
            row(&format!("deferred sections, {threads} threads"), t);
            memset(frames);
        }
    }
}
