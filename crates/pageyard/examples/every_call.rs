//! Every public method of a yard, each in a function of its own, without anything that could
//! panic here. `scripts/no-panic.sh` looks into the machine code of these for a way to panic.

use pageyard::policy::{
    Guarded, InitOnFree, Linux612, Poisoned as Filled, StaticPolicy, TwoPassBulkFree, Vanilla,
};
use pageyard::{CpuSlot, Frame, Home, Node, Pageblock, Platform, Relocation, Storage, Yard, Zone};

type Lock = spin::mutex::SpinMutex<()>;
type Y<'a, P> = Yard<'a, Lock, Machine, P>;

/// Moves blocks, and wants to know of free ones.
struct Machine;

impl Platform for Machine {
    const REPORT_ORDER: Option<Order> = Some(Order::HUGE);

    fn relocate(&self, from: Pfn, _: Pfn, _: Order) -> Relocation {
        match std::hint::black_box(from.0 % 3) {
            0 => Relocation::Moved,
            1 => Relocation::Busy,
            _ => Relocation::Refused,
        }
    }
}

/// Declares the functions, and one that calls them all.
macro_rules! calls {
    ($($name:ident($y:ident $(, $arg:ident: $type:ty = $value:expr)*) -> $out:ty { $body:expr })*) => {
        $(#[inline(never)]
        fn $name<P: Policy>($y: &Y<'_, P> $(, $arg: $type)*) -> $out { $body })*

        fn all<P: Policy>(y: &Y<'_, P>) {
            $(let _ = std::hint::black_box($name(y $(, std::hint::black_box($value))*));)*
        }
    };
}

include!("calls/table.rs");

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
    let mut y = Yard::without_memory(Machine);
    std::hint::black_box(y.platform_mut());
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
    let mut y = Yard::with_policy(Machine, policy);
    y.init(layout, storage)?;
    Ok(y)
}

#[inline(never)]
fn call_init_deferred<'a, P: Policy>(
    layout: &Layout<'a>,
    storage: Storage<'a, Lock>,
    policy: P,
) -> Result<Y<'a, P>, InitError> {
    let mut y = Yard::with_policy(Machine, policy);
    y.init_deferred(layout, storage)?;
    Ok(y)
}

#[inline(never)]
fn call_init_blank<'a, P: Policy>(
    layout: &Layout<'_>,
    storage: Storage<'a, Lock>,
    policy: P,
) -> Result<Y<'a, P>, InitError> {
    let mut y = Yard::with_policy(Machine, policy);
    y.init_blank(layout, storage)?;
    Ok(y)
}

#[derive(Clone, Copy)]
enum Made {
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
    let needs = layout.needs::<Lock>()?;
    let frames: Vec<Frame> = (0..needs.frames).map(|_| Frame::new()).collect();
    let blocks: Vec<Pageblock> = (0..needs.blocks).map(|_| Pageblock::new()).collect();
    let mut slots: Vec<CpuSlot<Lock>> = (0..needs.slots).map(|_| CpuSlot::new()).collect();
    let mut zones: Vec<Zone<'_, Lock>> = (0..needs.zones).map(|_| Zone::new()).collect();
    let mut nodes: Vec<Node<'_, Lock>> = (0..needs.nodes).map(|_| Node::new()).collect();
    let mut homes: Vec<Home<'_, Lock>> = (0..needs.homes).map(|_| Home::new()).collect();
    let storage = Storage {
        frames: &frames,
        blocks: &blocks,
        zones: &mut zones,
        slots: &mut slots,
        nodes: &mut nodes,
        homes: &mut homes,
    };
    match made {
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
    with_yard::<Linux612>(Made::New)?;
    with_yard::<Linux612>(Made::InPlace)?;
    with_yard::<Linux612>(Made::Deferred)?;
    with_yard::<Linux612>(Made::Blank)?;
    with_yard::<Linux612>(Made::WithRules)?;
    with_yard::<Linux612>(Made::DeferredWithRules)?;
    with_yard::<Linux612>(Made::BlankWithRules)?;
    with_yard::<Guarded<4, Filled<InitOnFree>>>(Made::New)?;
    with_yard::<TwoPassBulkFree<Vanilla>>(Made::New)
}
