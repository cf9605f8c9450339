// Calls each public method of the packed engine in a function of its own that cannot itself panic.
// Files that include this one declare the macro `packed_calls` and the type `Lock`.
// `main.rs` compiles the functions for `scripts/no-panic.sh`; the core's `tests/packed/hostile.rs`
// calls them with its own arguments instead of these.

use pageyard::packed::{self, AddError, Broken, Census, CpuCounts, Region, RegionError};

packed_calls! {
    call_region_alloc(r, cpu: CpuId = CpuId(0), order: Order = Order::ZERO, t: MigrateType = MigrateType::Movable)
        -> Option<Pfn> { Region::alloc(r, cpu, order, t) }
    call_region_free(r, cpu: CpuId = CpuId(0), pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { Region::free(r, cpu, pfn, order) }
    call_region_free_owned(r, cpu: CpuId = CpuId(0), pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Result<(), FreeError> { Region::free_owned(r, cpu, pfn, order) }
    call_region_split(r, pfn: Pfn = Pfn(7), from: Order = Order::HUGE, into: Order = Order::ZERO)
        -> Result<(), FreeError> { Region::split(r, pfn, from, into) }
    call_region_add(r, range: Range<Pfn> = Pfn(0)..Pfn(7)) -> Result<(), AddError> { Region::add(r, range) }
    call_region_add_allocated(r, pfn: Pfn = Pfn(7), order: Order = Order::ZERO, t: MigrateType = MigrateType::Movable)
        -> Result<(), AddError> { Region::add_allocated(r, pfn, order, t) }
    call_region_isolate(r, pfn: Pfn = Pfn(7)) -> Result<(), packed::IsolateError> { Region::isolate(r, pfn) }
    call_region_unisolate(r, pfn: Pfn = Pfn(7)) -> Result<(), packed::IsolateError> { Region::unisolate(r, pfn) }
    call_region_set_block_type(r, pfn: Pfn = Pfn(7), t: MigrateType = MigrateType::Movable)
        -> bool { Region::set_block_type(r, pfn, t) }
    call_region_block_type(r, pfn: Pfn = Pfn(7)) -> Option<MigrateType> { Region::block_type(r, pfn) }
    call_region_free_in_block(r, pfn: Pfn = Pfn(7)) -> Option<u32> { Region::free_in_block(r, pfn) }
    call_region_allocated(r, pfn: Pfn = Pfn(7)) -> Option<Order> { Region::allocated(r, pfn) }
    call_region_counts(r, cpu: CpuId = CpuId(0)) -> Option<CpuCounts> { Region::counts(r, cpu) }
    call_region_drain(r, cpu: CpuId = CpuId(0)) -> bool { Region::drain(r, cpu) }
    call_region_drain_all(r) -> bool { Region::drain_all(r) }
    call_region_tick(r) -> () { Region::tick(r) }
    call_region_cpus(r) -> u32 { Region::cpus(r) }
    call_region_frames(r) -> Range<Pfn> { Region::frames(r) }
    call_region_whole_blocks(r) -> u64 { Region::whole_blocks(r) }
    call_region_free_frames(r) -> u64 { Region::free_frames(r) }
    call_region_double_frees(r) -> u64 { Region::double_frees(r) }
    call_region_depot_returned(r) -> u64 { Region::depot_returned(r) }
    call_region_validate(r) -> Result<Census, Broken> { Region::validate(r) }
    call_pinned(r, cpu: CpuId = CpuId(0)) -> Option<CpuId> { Some(packed::Pinned::cpu(&Region::pin(r, cpu)?)) }
    call_pinned_alloc(r, cpu: CpuId = CpuId(0), order: Order = Order::ZERO, t: MigrateType = MigrateType::Movable)
        -> Option<Pfn> { packed::Pinned::alloc(&mut Region::pin(r, cpu)?, order, t) }
    call_pinned_free(r, cpu: CpuId = CpuId(0), pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Option<Result<(), FreeError>> { Some(packed::Pinned::free(&mut Region::pin(r, cpu)?, pfn, order)) }
    call_pinned_free_owned(r, cpu: CpuId = CpuId(0), pfn: Pfn = Pfn(7), order: Order = Order::ZERO)
        -> Option<Result<(), FreeError>> { Some(packed::Pinned::free_owned(&mut Region::pin(r, cpu)?, pfn, order)) }
    call_pinned_poll(r, cpu: CpuId = CpuId(0)) -> Option<bool> { Some(packed::Pinned::poll(&mut Region::pin(r, cpu)?)) }
    call_pinned_drain(r, cpu: CpuId = CpuId(0)) -> Option<()> { { packed::Pinned::drain(&mut Region::pin(r, cpu)?); Some(()) } }
    call_packed_needs(_r, first: Pfn = Pfn(7), frames: u32 = 7, cpus: u32 = 7, per_domain: u32 = 7)
        -> Result<usize, RegionError> { Ok(packed::Needs::bytes::<Lock>(&packed::Needs::of(first, frames, cpus, per_domain)?)) }
    call_packed_needs_of_zones(_r, first: Pfn = Pfn(7), frames: u32 = 7, cpus: u32 = 7)
        -> Result<usize, RegionError> {{
            let zone = packed::Needs::of_zone(first, frames, cpus)?;
            Ok(packed::Needs::and(zone, zone).states)
        }}
}

/// Makes a region: what a table of calls on a region cannot have.
#[inline(never)]
fn call_region_new(
    frames: u32,
    first: Pfn,
    then: impl FnOnce(&Region<'_, Lock>),
) -> Result<(), RegionError> {
    std::hint::black_box((
        packed::Words::new(),
        packed::Label::new(),
        packed::Route::new(),
        packed::IndexWord::new(),
        packed::Magazine::new(),
        packed::Link::new(),
        packed::Domain::new(),
        packed::FrameState::new(),
        packed::PerCpu::<Lock>::new(),
    ));
    let storage = packed::OwnedStorage::<Lock>::new(frames, 3, 2)?;
    // `Region::new(` is what this calls.
    then(&packed::OwnedStorage::region(&storage, first)?);
    Ok(())
}
