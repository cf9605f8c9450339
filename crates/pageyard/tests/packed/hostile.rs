//! Every public function with invalid arguments: no panic, and no frame is lost.

use std::ops::Range;

use pageyard::FreeError;

use crate::*;

/// Argument values of a type.
trait Values: Sized {
    fn values() -> Vec<Self>;
}

impl Values for u32 {
    fn values() -> Vec<u32> {
        vec![0, 1, 2, 511, 512, 1 << 14, 1 << 20, 1 << 31, u32::MAX - 1, u32::MAX]
    }
}

impl Values for CpuId {
    fn values() -> Vec<CpuId> {
        [0, 1, 2, 3, u32::MAX].map(CpuId).into()
    }
}

impl Values for Pfn {
    fn values() -> Vec<Pfn> {
        let near = |n: u64| [n.wrapping_sub(1), n, n + 1];
        let edges = [FIRST, FIRST + 512, FIRST + u64::from(FRAMES), 1 << 32, FIRST + (1 << 32)];
        edges.into_iter().flat_map(near).chain([0, u64::MAX, u64::MAX - 512]).map(Pfn).collect()
    }
}

impl Values for Range<Pfn> {
    fn values() -> Vec<Range<Pfn>> {
        let (starts, ends) = (Pfn::values(), Pfn::values());
        starts.iter().flat_map(|&s| ends.iter().map(move |&e| s..e)).collect()
    }
}

impl Values for Order {
    fn values() -> Vec<Order> {
        [0, 1, 3, 4, 6, 8, 9, 10].map(o).into()
    }
}

impl Values for MigrateType {
    fn values() -> Vec<MigrateType> {
        MigrateType::ALL.into()
    }
}

const FIRST: u64 = 1 << 20;
const FRAMES: u32 = 1 << 13;

type Row = (&'static str, fn(&R<'_>, &mut dyn FnMut()));

/// Declares the rows: each calls its function with all combinations of values.
macro_rules! packed_calls {
    ($($name:ident($r:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(#[allow(clippy::redundant_closure_call)] // a body may return early
        fn $name($r: &R<'_>, after: &mut dyn FnMut()) {
            packed_calls!(@each after, $body, $out; $($arg: $type),*);
        })*
        const ROWS: &[Row] = &[$((stringify!($name), $name)),*];
    };
    (@each $after:ident, $body:expr, $out:ty;) => {
        let out = (|| -> $out { $body })();
        _ = std::hint::black_box(out);
        $after();
    };
    (@each $after:ident, $body:expr, $out:ty; $arg:ident: $type:ty $(, $rest:ident: $types:ty)*) => {
        for $arg in <$type>::values() {
            packed_calls!(@each $after, { let $arg = $arg.clone(); $body }, $out; $($rest: $types),*);
        }
    };
}

include!("../../../../verify/calls/core/packed.rs");

/// Frees everything, un-isolates everything, and drains.
fn restore(region: &R<'_>) {
    for pfn in (FIRST..FIRST + u64::from(FRAMES)).map(Pfn) {
        if let Some(order) = region.allocated(pfn) {
            region.free(cpu(0), pfn, order).unwrap();
        }
        if pfn.0 % 512 == 0 {
            _ = region.unisolate(pfn);
        }
    }
    assert!(region.drain_all());
}

#[test]
fn no_argument_makes_a_function_panic_or_lose_a_frame() {
    for (name, row) in ROWS {
        println!("{name}");
        call_region_new(FRAMES, Pfn(FIRST), |region| {
            // The last pageblock is for functions that add frames.
            let end = FIRST + u64::from(FRAMES) - 512;
            region.add(Pfn(FIRST)..Pfn(end)).unwrap();
            let mut calls = 0;
            row(region, &mut || {
                calls += 1;
                if calls % 100 == 0 {
                    restore(region);
                }
            });
            restore(region);
            let census = region.validate().unwrap();
            assert!(census.present >= u64::from(FRAMES) - 512);
            assert_eq!(census.bits + census.whole, census.present, "{name}: {census:?}");
        })
        .unwrap();
    }
    assert!(ROWS.len() >= 30);
}
