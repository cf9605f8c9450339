//! For tests that call every public function of a crate with invalid and extreme arguments: macros
//! that call a function with each of its arguments, values of plain types, and a machine.
//!
//! Users declare the types `Y` (a yard under a policy) and `Row`, and include a table of calls.

use pageyard::{CpuId, HighReason, MigrateType, NodeId, Order, Pfn, ZoneId, ZoneKind};

use crate::common::{Machine, o};

/// How many values each argument takes, by the number of arguments: a few thousand calls in all.
pub(crate) const WIDTH: [usize; 7] = [1, 1000, 60, 14, 8, 5, 4];

macro_rules! each {
    ($width:expr, [] $body:block) => { $body };
    ($width:expr, [$arg:ident: $type:ty $(, $rest:ident: $rest_type:ty)*] $body:block) => {
        for $arg in <$type as Hostile>::values().into_iter().take($width) {
            each!($width, [$($rest: $rest_type),*] $body)
        }
    };
}

macro_rules! calls {
    ($($name:ident($y:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(fn $name<P: Policy>($y: &Y<'_, P> $(, $arg: $type)*) -> $out { $body })*

        const ROWS: &[Row] = &[$((stringify!($name), |y, after| {
            #[allow(dead_code)] // unused for functions without arguments
            const ARGUMENTS: usize = [$(stringify!($arg),)* ""].len() - 1;
            let _ = $name(y $(, $value)*);
            after();
            each!(WIDTH[ARGUMENTS], [$($arg: $type),*] {
                let _ = $name(y $(, $arg)*);
                after();
            });
        }),)*];
    };
}

/// The values of a type to try, the most revealing first.
pub(crate) trait Hostile: Sized {
    fn values() -> Vec<Self>;
}

macro_rules! hostile {
    ($($type:ty: $values:expr;)*) => { $(impl Hostile for $type {
        fn values() -> Vec<Self> { $values.into_iter().collect() }
    })* };
}

/// Leaks a value, for references that must be `'static`.
pub(crate) fn leak<T>(value: T) -> &'static mut T {
    Box::leak(Box::new(value))
}

pub(crate) const SECTION: u64 = 1 << 15;
pub(crate) const MOVABLE: u64 = 1 << 40;

/// Two nodes, four zones, and a section that can go offline.
pub(crate) fn machine() -> Machine {
    Machine::new()
        .zone(ZoneKind::Dma, 0..4096)
        .zone(ZoneKind::Normal, 4096..20_480)
        .zone_on(1, ZoneKind::Normal, 1 << 30..(1 << 30) + 4096)
        .zone(ZoneKind::Movable, MOVABLE..MOVABLE + SECTION)
        .cpus(&[0, 0, 1])
}

/// Powers of two and their neighbours.
pub(crate) fn powers() -> impl Iterator<Item = u64> {
    [0, 1, 2, 4, 9, 10, 12, 15, 16, 22, 31, 32, 40, 52, 62, 63]
        .into_iter()
        .flat_map(|n| [(1u64 << n) - 1, 1 << n, (1 << n) + 1])
}

fn zone_ids() -> Vec<ZoneId> {
    let nodes = [0, u16::MAX, 1, 63, 64];
    let kinds = [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Dma, ZoneKind::Device];
    nodes.iter().flat_map(|&n| kinds.map(|kind| ZoneId { node: NodeId(n), kind })).collect()
}

hostile! {
    bool: [false, true];
    u8: [0, u8::MAX, 10, 11, 1, 63, 64, 127, 128];
    i32: [0, i32::MAX, i32::MIN, -1, 1, 63, 64, 1 << 28, i32::MAX - 1];
    u32: [0, u32::MAX, 1, 1 << 31, i32::MAX as u32, 7, 8, 64];
    usize: [7, usize::MAX, 0, 1 << 63, 1, 100, 1 << 20, 1 << 50, isize::MAX as usize];
    u64: [7, u64::MAX, 0, 1 << 63, 512, MOVABLE, u64::MAX - 1, i64::MAX as u64].into_iter().chain(powers());
    Pfn: [7, u64::MAX, MOVABLE, 1 << 63, 4096, MOVABLE + SECTION, u64::MAX - 1, 20_479, 20_480, 512]
        .into_iter().chain(powers()).map(Pfn);
    Order: [0, 10, 9, 3].into_iter().chain(0..11).map(o);
    Option<Order>: [None, Order::new(0), Order::new(10), Order::new(9)];
    NodeId: [0, u16::MAX, 1, 2, 63, 64, 1 << 15].map(NodeId);
    CpuId: [0, u32::MAX, 2, 3, 1 << 31, 1].map(CpuId);
    ZoneKind: [ZoneKind::Normal, ZoneKind::Movable, ZoneKind::Dma, ZoneKind::Device, ZoneKind::Dma32];
    ZoneId: zone_ids();
    MigrateType: [2, 4, 5].into_iter().chain(0..8).filter_map(MigrateType::from_number);
    HighReason: [HighReason::Limits, HighReason::Decay];
}

/// Returns whether the table calls a function: `y.NAME(`, `TYPE::NAME(` or `MODULE::NAME(`.
pub(crate) fn is_called(table: &str, function: &str) -> bool {
    let (of, name) = function.split_once("::").unwrap();
    let ends = |before: &str| {
        table.match_indices(&format!("{before}{name}")).any(|(at, found)| {
            let rest = &table[at + found.len()..];
            rest.starts_with('(') || rest.starts_with("::<")
        })
    };
    match of {
        "Yard" => ends("y.") || ends("Yard::"),
        of if of.starts_with(char::is_uppercase) => {
            ends(&format!("{of}::")) || ends(&format!("{of}::<Lock>::"))
        }
        _ => ends("::"),
    }
}
