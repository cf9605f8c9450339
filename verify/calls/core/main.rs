//! Calls every public method, each in a function of its own that cannot itself panic.
//! `scripts/no-panic.sh` searches their machine code for panics.

use pageyard::policy::{
    Guarded, InitOnFree, Linux612, Packed, Poisoned as Filled, StaticPolicy, TwoPassBulkFree,
    Vanilla,
};
use pageyard::{
    Bare, CpuZones, Defences, Frame, Node, Observer, OwnedStorage, Pageblock, Parts, PerCpu,
    Platform, Reclaim, Relocation, Storage, Yard, Zone,
};

type Lock = spin::mutex::SpinMutex<()>;
type Y<'a, P> = Yard<'a, Bare<Lock, Machine, P>>;

/// Hooks that migrate blocks and request reports of free blocks.
struct Machine;

impl Platform for Machine {}

impl Reclaim for Machine {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        match std::hint::black_box(from.0 % 3) {
            0 => Relocation::Moved,
            1 => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }
}

impl Observer for Machine {}
impl Defences for Machine {}

include!("../declare.rs");
include!("table.rs");

/// The same for a region of the packed engine.
macro_rules! packed_calls {
    ($($name:ident($r:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(#[inline(never)]
        fn $name($r: &Region<'_, Lock>$(, $arg: $type)*) -> $out { $body })*

        fn all_of_region(r: &Region<'_, Lock>) {
            $(let _ = std::hint::black_box($name(r $(, std::hint::black_box($value))*));)*
        }
    };
}

include!("packed.rs");

#[inline(never)]
fn call_new<'a, P: StaticPolicy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    Yard::new(layout, storage, Machine)
}

#[inline(never)]
fn call_init<'a, P: StaticPolicy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    let hooks = Parts::defences(Parts::observer(Parts::reclaim(Parts::new(Machine), ()), ()), ());
    let mut y = Yard::without_memory(hooks);
    std::hint::black_box(y.hooks_mut());
    std::hint::black_box(y.set_policy(y.policy()));
    y.init(layout, storage)?;
    Ok(y)
}

#[inline(never)]
fn call_deferred<'a, P: StaticPolicy>(
    layout: &Layout<'a>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    Yard::deferred(layout, storage, Machine)
}

#[inline(never)]
fn call_blank<'a, P: StaticPolicy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
) -> Result<Y<'a, P>, InitError> {
    Yard::blank(layout, storage, Machine)
}

#[inline(never)]
fn call_with_policy<'a, P: Policy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
    policy: P,
) -> Result<Y<'a, P>, InitError> {
    let mut y = Yard::with_policy(Parts::new(Machine), policy);
    y.init(layout, storage)?;
    Ok(y)
}

#[inline(never)]
fn call_init_deferred<'a, P: Policy>(
    layout: &Layout<'a>,
    storage: Storage<'a, Lock>,
    policy: P,
) -> Result<Y<'a, P>, InitError> {
    let mut y = Yard::with_policy(Parts::new(Machine), policy);
    y.init_deferred(layout, storage)?;
    Ok(y)
}

#[inline(never)]
fn call_init_blank<'a, P: Policy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
    policy: P,
) -> Result<Y<'a, P>, InitError> {
    let mut y = Yard::with_policy(Parts::new(Machine), policy);
    y.init_blank(layout, storage)?;
    let records: &[Record] = std::hint::black_box(&[]);
    let _ = std::hint::black_box(y.restore(ZONE, records.iter().copied()));
    Ok(y)
}

#[inline(never)]
fn call_empty_maps<'a>() -> (PerCpu<Lock>, Zone<'a, Lock>, Node<'a, Lock>, CpuZones<'a, Lock>) {
    std::hint::black_box((Frame::new(), Pageblock::new()));
    (PerCpu::new(), Zone::new(), Node::new(), CpuZones::new())
}

#[inline(never)]
fn call_owned_storage<'a>(layout: &Layout<'_>) -> Result<OwnedStorage<'a, Lock>, InitError> {
    std::hint::black_box(OwnedStorage::<Lock>::for_needs(&NEEDS)?);
    OwnedStorage::new(layout)
}

#[inline(never)]
fn call_storage<'a>(maps: &'a mut OwnedStorage<'a, Lock>) -> Storage<'a, Lock> {
    OwnedStorage::storage(maps)
}

#[inline(never)]
fn call_leak<'a>(maps: OwnedStorage<'a, Lock>) -> Storage<'a, Lock> {
    OwnedStorage::leak(maps)
}

#[inline(never)]
fn call_from_memory_map<P: StaticPolicy>(
    usable: &[Range<u64>],
    cpus: u32,
) -> Result<Y<'static, P>, InitError> {
    Yard::from_memory_map(usable, usable.get(7..).unwrap_or(&[]), cpus, Machine)
}

#[derive(Clone, Copy)]
enum Made {
    Leaked,
    Mapped,
    New,
    InPlace,
    Deferred,
    Blank,
    WithRules,
    DeferredWithRules,
    BlankWithRules,
}

fn with_yard<P: StaticPolicy>(made: Made) -> Result<(), InitError> {
    let layout = layout();
    let rules = std::hint::black_box(P::RULES);
    let mut maps = call_owned_storage(&layout)?;
    let storage = call_storage(&mut maps);
    match made {
        Made::Leaked => all(&call_new::<P>(&layout, call_leak(call_owned_storage(&layout)?))?),
        Made::Mapped => {
            let usable = [0..16 << 20, 0..1 << 24];
            all(&call_from_memory_map::<P>(std::hint::black_box(&usable), 1)?);
        }
        Made::New => all(&call_new::<P>(&layout, storage)?),
        Made::InPlace => all(&call_init::<P>(&layout, storage)?),
        Made::Deferred => all(&call_deferred::<P>(&layout, storage)?),
        Made::Blank => all(&call_blank::<P>(&layout, storage)?),
        Made::WithRules => all(&call_with_policy(&layout, storage, &rules)?),
        Made::DeferredWithRules => all(&call_init_deferred(&layout, storage, &rules)?),
        Made::BlankWithRules => all(&call_init_blank(&layout, storage, &rules)?),
    }
    Ok(())
}

fn main() -> Result<(), InitError> {
    std::hint::black_box(call_empty_maps());
    let made = call_region_new(std::hint::black_box(1 << 14), Pfn(0), all_of_region);
    std::hint::black_box(made.is_ok());
    with_yard::<Linux612>(Made::New)?;
    with_yard::<Linux612>(Made::InPlace)?;
    with_yard::<Linux612>(Made::Leaked)?;
    with_yard::<Linux612>(Made::Mapped)?;
    with_yard::<Linux612>(Made::Deferred)?;
    with_yard::<Linux612>(Made::Blank)?;
    with_yard::<Linux612>(Made::WithRules)?;
    with_yard::<Packed>(Made::New)?;
    with_yard::<Linux612>(Made::DeferredWithRules)?;
    with_yard::<Linux612>(Made::BlankWithRules)?;
    with_yard::<Guarded<4, Filled<InitOnFree>>>(Made::New)?;
    with_yard::<TwoPassBulkFree<Vanilla>>(Made::New)
}
