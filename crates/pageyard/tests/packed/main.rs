//! Tests of the packed engine from outside. They are a separate program, because the other tests
//! instantiate `Yard` and take minutes to build; these take seconds.

mod hostile;
mod misuse;
mod model;
mod packing;
mod reviewed;
mod threads;

use pageyard::packed::{OwnedStorage, Region};
use pageyard::{CpuId, MigrateType, Order, Pfn};

type Lock = spin::mutex::SpinMutex<()>;
type Storage = OwnedStorage<Lock>;
type R<'a> = Region<'a, Lock>;

const TYPES: [MigrateType; 3] =
    [MigrateType::Unmovable, MigrateType::Movable, MigrateType::Reclaimable];

fn o(order: u8) -> Order {
    Order::new(order).unwrap()
}

/// A region from frame 0, with all frames added.
fn full(storage: &Storage, frames: u32) -> R<'_> {
    let region = storage.region(Pfn(0)).unwrap();
    region.add(Pfn(0)..Pfn(frames.into())).unwrap();
    region
}

/// Drains everything and checks that all frames are in whole pageblocks.
fn assert_empty(region: &R<'_>, frames: u32) {
    assert!(region.drain_all());
    let census = region.validate().unwrap();
    assert_eq!(census.present, frames.into());
    assert_eq!(census.whole, frames.into(), "{census:?}");
    assert_eq!(region.double_frees(), 0);
}

/// A generator of numbers (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// An order as programs request them: mostly single pages, every order now and then.
    fn order(&mut self) -> u8 {
        match self.below(64) {
            0 => 9,
            1 => 10,
            2 => 4 + self.below(5) as u8,
            3..10 => 3,
            10..20 => 2,
            20..30 => 1,
            _ => 0,
        }
    }
}

/// The seed of a test: `PAGEYARD_SEED`, or a fixed one. Prints it.
fn seed() -> u64 {
    let seed = std::env::var("PAGEYARD_SEED").map_or(612, |s| s.parse().expect("a number"));
    println!("PAGEYARD_SEED={seed}");
    seed
}

fn cpu(n: usize) -> CpuId {
    CpuId(n as u32)
}
