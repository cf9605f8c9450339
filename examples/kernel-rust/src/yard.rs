//! The allocator with zones, watermarks and locked per-CPU lists: `Yard`.

use pageyard::{
    AllocError, Bare, CpuId, FreeError, Gfp, Knobs, Layout, NodeId, Order, Parts, Pfn, Platform,
    Yard, ZoneKind, ZoneSpec,
};
use pageyard_carve::{Carver, carve};

use crate::lock::IrqLock;
use crate::memory::Memory;
use crate::{CPUS, Serial, arch, hammer};

/// What the allocator asks of this kernel.
struct Machine;

impl Platform for Machine {
    /// All memory is there from the start.
    const DEFERS: bool = false;

    #[inline(always)]
    fn cpu(&self) -> CpuId {
        CpuId(arch::cpu() as u32)
    }

    fn now(&self) -> u64 {
        hammer::milliseconds() * 1_000_000
    }
}

/// What the hammer asks for. This kernel reclaims nothing, so no request may try: without
/// DIRECT_RECLAIM a request fails at once where reclaim would start. NOWARN: nothing prints
/// warnings.
const FLAGS: [Gfp; 4] = [
    Gfp::KERNEL.difference(Gfp::DIRECT_RECLAIM).union(Gfp::NOWARN),
    Gfp::HIGHUSER_MOVABLE.difference(Gfp::DIRECT_RECLAIM).union(Gfp::NOWARN),
    Gfp::NOWAIT.union(Gfp::RECLAIMABLE),
    Gfp::NOWAIT.union(Gfp::DMA32),
];

pub struct Engine(Yard<'static, Bare<IrqLock, Machine>>);

/// A CPU that may call the allocator.
pub struct Cpu(&'static Engine);

fn layout<'l>(memory: &'l Memory, zones: &'l [ZoneSpec], cpus: usize) -> Layout<'l> {
    Layout {
        zones,
        usable: memory.usable.get(),
        reserved: memory.reserved.get(),
        cpus: &[NodeId(0); CPUS][..cpus],
        distances: &[],
        // No huge pages: else 5% of a small machine stay free.
        knobs: Knobs { huge_pages: false, ..Knobs::DEFAULT },
    }
}

impl Engine {
    pub const NAME: &'static str = "locked per-CPU lists";
    /// What a hot pair may take at most (docs/kernels.md has the measured numbers).
    pub const MOST_INSTRUCTIONS: u64 = 145;

    /// Creates the allocator at the end of the largest range of memory, with only this CPU online.
    pub fn start(memory: &mut Memory, cpus: usize) -> &'static Engine {
        let mut zones =
            [ZoneKind::Dma; 3].map(|kind| ZoneSpec { kind, node: NodeId(0), span: Pfn(0)..Pfn(0) });
        let n = memory.zones(&mut zones);
        let zones = &zones[..n];
        let maps =
            layout(memory, zones, cpus).metadata::<IrqLock>().unwrap_or_else(|e| panic!("{e}"));
        let own = size_of::<Engine>() + align_of::<Engine>() + maps.size() + maps.align();
        let mut carver = Carver::new(memory.take(own));
        let engine = carver.slice(1, |_| Engine(Yard::without_memory(Parts::new(Machine))));
        let [engine] = engine.expect("room was taken for it") else { unreachable!() };
        // Now with the region for the maps reserved.
        let layout = layout(memory, zones, cpus);
        carve(&layout, carver.into_rest())
            .and_then(|storage| engine.0.init(&layout, storage))
            .unwrap_or_else(|e| panic!("{e}"));
        for cpu in 1..cpus {
            engine.0.cpu_dead(CpuId(cpu as u32));
        }
        engine
    }

    /// Brings the calling CPU online.
    pub fn enter(&'static self, cpu: usize) -> Cpu {
        self.0.cpu_up(CpuId(cpu as u32));
        Cpu(self)
    }

    /// Allocates in an interrupt handler.
    pub fn interrupt_alloc(&self, _cpu: usize, order: Order) -> Option<Pfn> {
        self.0.alloc(order, Gfp::ATOMIC | Gfp::NOWARN).ok()
    }

    /// Frees in an interrupt handler.
    pub fn interrupt_free(&self, _cpu: usize, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.0.free(pfn, order)
    }

    /// Runs a CPU's tick, in its interrupt handler.
    pub fn tick(&self, cpu: usize) {
        self.0.tick(CpuId(cpu as u32));
    }

    /// Drains and checks the allocator when no CPU uses it. Returns the number of free pages.
    pub fn finish(&self) -> u64 {
        self.0.drain_all(None);
        if let Err(invalid) = self.0.validate() {
            panic!("{invalid}");
        }
        let _ = pageyard_report::text::write_buddyinfo(&mut Serial, &self.0);
        let zones = self.0.zone_ids().filter_map(|zone| self.0.zone_info(zone));
        let mut free = 0;
        for zone in zones {
            assert_eq!((zone.managed, zone.cached), (zone.free_exact, 0), "zone {:?}", zone.kind);
            free += zone.free_exact;
        }
        free
    }
}

impl Cpu {
    /// Allocates a block; one of four kinds of flags.
    pub fn alloc(&mut self, order: Order, kind: usize) -> Option<Pfn> {
        match self.0.0.alloc(order, FLAGS[kind]) {
            Ok(pfn) => Some(pfn),
            Err(AllocError::NoMemory) => None,
            Err(other) => panic!("{other}"),
        }
    }

    pub fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.0.0.free(pfn, order)
    }

    /// A hot pair: order and flags are constants.
    #[inline(always)]
    pub fn pair(&mut self) -> bool {
        // No closure: where the compiler does not inline it, it takes 16 instructions more.
        let Ok(page) = self.0.0.alloc(Order::ZERO, Gfp::KERNEL) else { return false };
        self.0.0.free(page, Order::ZERO).is_ok()
    }

    /// Does what other CPUs asked of this one: nothing here, they lock its lists.
    pub fn poll(&mut self) {}
}
