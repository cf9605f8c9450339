//! Helpers shared by the tests.

use std::cell::RefCell;
use std::collections::HashMap;

use pageyard::policy::{StaticPolicy, TypeChecked};
use pageyard::{Gfp, Hooks, Knobs, Order, Pfn};
use pageyard_machine::{Costs, Machine, MachineSpec, Memory, Options, SimYard};

/// The policy of most tests: Linux's, with its debug check.
pub(crate) type P = TypeChecked;

pub(crate) fn machine(name: &str, options: Options) -> Machine {
    Machine::new(&MachineSpec::shipped(name).unwrap(), options)
}

pub(crate) fn small(name: &str) -> Machine {
    machine(name, Options { memory: Some(64 << 20), ..Options::default() })
}

pub(crate) fn with_yard<P: StaticPolicy, E: Hooks, T>(
    machine: &Machine,
    embedder: E,
    f: impl FnOnce(&SimYard<'_, P, E>) -> T,
) -> T {
    let layout = machine.memory_layout();
    let layout = layout.layout(Knobs::default());
    let memory = Memory::for_layout(&layout).unwrap();
    let mut rooms = memory.rooms();
    let yard = machine.yard::<P, E>(&layout, memory.storage(&mut rooms), embedder).unwrap();
    f(&yard)
}

/// Costs that are easy to add up. Everything else is free.
pub(crate) fn round_costs() -> Costs {
    Costs {
        lock: 10_000,
        unlock: 1_000,
        handover: 5_000,
        tas_waiter: 2_000,
        private_hit: 0,
        last_level_hit: 20_000,
        transfer_complex: 50_000,
        transfer_socket: 80_000,
        transfer_remote: 100_000,
        context_switch: 1_000_000,
        wakeup: 2_000_000,
        time_slice: 100_000_000,
        ..Costs::default()
    }
}

/// The owners of frames: no frame is allocated twice, and none is freed without an owner.
#[derive(Default)]
pub(crate) struct Owners(RefCell<HashMap<u64, u8>>);

impl Owners {
    pub(crate) fn alloc<E: Hooks>(
        &self,
        yard: &SimYard<'_, P, E>,
        order: u8,
        gfp: Gfp,
    ) -> Option<Pfn> {
        let pfn = yard.alloc(Order::new(order).unwrap(), gfp).ok()?;
        for i in 0..1 << order {
            let before = self.0.borrow_mut().insert(pfn.0 + i, order);
            assert_eq!(before, None, "frame {} of a block of order {order} at {pfn}", pfn.0 + i);
        }
        Some(pfn)
    }

    pub(crate) fn free<E: Hooks>(&self, yard: &SimYard<'_, P, E>, pfn: Pfn, order: u8) {
        for i in 0..1 << order {
            assert_eq!(self.0.borrow_mut().remove(&(pfn.0 + i)), Some(order));
        }
        yard.free(pfn, Order::new(order).unwrap()).unwrap();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}

/// Asserts that all memory is free, in blocks as large as at the start.
pub(crate) fn check_all_free<E: Hooks>(yard: &SimYard<'_, P, E>, start: &[[u64; 11]]) {
    yard.drain_all(None);
    for (zone, start) in yard.zone_ids().zip(start) {
        let info = yard.zone_info(zone).unwrap();
        assert_eq!((info.free_exact, info.cached), (info.managed, 0), "{zone:?}");
        assert_eq!(yard.zone_stats(zone).unwrap().type_check_failures, 0);
        assert_eq!(yard.free_blocks(zone).unwrap(), *start, "{zone:?}");
    }
}

pub(crate) fn free_blocks<E: Hooks>(yard: &SimYard<'_, P, E>) -> Vec<[u64; 11]> {
    yard.zone_ids().map(|z| yard.free_blocks(z).unwrap()).collect()
}
