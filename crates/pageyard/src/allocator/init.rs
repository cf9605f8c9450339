//! Initialization: turns a description of memory ([`Layout`]) and room for the maps into an
//! allocator in which every usable frame is free (spec §8.1).

use core::ops::Range;

use lock_api::{Mutex, RawMutex};

use crate::allocator::init_error::InitError;
use crate::allocator::knobs::Knobs;
use crate::allocator::layout::{Layout, Storage, ZoneSpec, common, section_end};
use crate::allocator::start::{Deferred, Start};
use crate::allocator::vm_events::EventCounters;
use crate::allocator::yard::Yard;
use crate::base::busy::BusyFlag;
use crate::base::frame::{Map, State};
use crate::base::reclaimers::Reclaimers;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{
    CpuId, MAX_ORDER, MigrateType, NodeId, PAGEBLOCK_ORDER, PAGEBLOCK_PAGES, Pfn, TYPES, ZoneKind,
};
use crate::base::unwind::Rollback;
use crate::base::watermark::HIGH;
use crate::embedder::config::Config;
use crate::embedder::hooks::Reclaim;
use crate::embedder::policy::StaticPolicy;
use crate::packed;
use crate::zone::at::At;
use crate::zone::deferred_part::DeferredPart;
use crate::zone::node::{Node, rebuild_orders};
use crate::zone::state::{PerCpu, Zone};

impl<'a, C: Config<Policy: StaticPolicy>> Yard<'a, C> {
    /// Creates an allocator in which every usable, unreserved frame is free.
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage.
    pub fn new(
        layout: &Layout<'_>,
        storage: Storage<'a, C::Lock>,
        hooks: impl Into<C::Hooks>,
    ) -> Result<Self, InitError> {
        let mut yard = Self::without_memory(hooks.into());
        yard.init(layout, storage)?;
        Ok(yard)
    }

    /// Creates an allocator without memory. All requests fail until [`init`](Yard::init) adds
    /// memory. On small stacks, use the two instead of [`new`](Yard::new): an allocator takes
    /// several KiB, and functions that return it by value may copy it on the stack.
    ///
    /// With [`Bare`](crate::Bare), pass [`Parts::new(platform)`](crate::Parts::new).
    pub const fn without_memory(hooks: C::Hooks) -> Self {
        Self::with_policy(hooks, C::Policy::POLICY)
    }

    /// Creates an allocator with the layout's zones but no memory in them, for
    /// [`restore`](Yard::restore). The layout's ranges are checked but not used.
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage.
    pub fn blank(
        layout: &Layout<'_>,
        storage: Storage<'a, C::Lock>,
        hooks: impl Into<C::Hooks>,
    ) -> Result<Self, InitError> {
        let mut yard = Self::without_memory(hooks.into());
        yard.init_blank(layout, storage)?;
        Ok(yard)
    }
}

impl<'a, C: Config> Yard<'a, C> {
    /// Like [`without_memory`](Yard::without_memory), for a policy that is a value, such as
    /// `&Rules`.
    pub const fn with_policy(hooks: C::Hooks, policy: C::Policy) -> Self {
        Yard {
            zones: &[],
            nodes: &[],
            cpu_zones: &[],
            hooks,
            cpus: 0,
            knobs: Mutex::new(Knobs::DEFAULT),
            settings: Mutex::new(()),
            hotplug: BusyFlag::new(),
            hotplug_task: AtomicU64::new(0),
            draining: Mutex::new(()),
            oom: BusyFlag::new(),
            reclaimers: Reclaimers::new(),
            warned: AtomicU64::new(0),
            zonelist_changes: AtomicU64::new(0),
            events: EventCounters::new(),
            deferred: None,
            policy,
        }
    }

    /// Initializes the allocator in place: every usable, unreserved frame becomes free. Discards
    /// all previous state except the counters.
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage, and the allocator is unchanged.
    pub fn init(
        &mut self,
        layout: &Layout<'_>,
        storage: Storage<'a, C::Lock>,
    ) -> Result<(), InitError> {
        self.build(layout, storage, Start::Whole)?;
        self.recalculate();
        self.update_grouping();
        Ok(())
    }

    /// Initializes the allocator in place with the layout's zones but no memory in them
    /// ([`blank`](Yard::blank)).
    ///
    /// # Errors
    /// [`InitError`]; nothing was written to the storage, and the allocator is unchanged.
    pub fn init_blank(
        &mut self,
        layout: &Layout<'_>,
        storage: Storage<'a, C::Lock>,
    ) -> Result<(), InitError> {
        self.build(layout, storage, Start::Blank)
    }

    /// Enables mobility grouping, or disables it if there is too little memory for it to pay off (§2.4).
    pub(crate) fn update_grouping(&self) {
        let above: u64 = self
            .zones
            .iter()
            .map(|z| z.managed.load(Relaxed).saturating_sub(z.watermarks.effective(HIGH)))
            .sum();
        for zone in self.zones {
            let _lock = zone.lock.lock();
            zone.grouping_disabled
                .store(above < TYPES as u64 * u64::from(PAGEBLOCK_PAGES), Relaxed);
            zone.refresh_cached_mark(self.rules());
        }
    }

    pub(crate) fn build(
        &mut self,
        layout: &Layout<'_>,
        storage: Storage<'a, C::Lock>,
        start: Start<'_, 'a>,
    ) -> Result<(), InitError> {
        let populated = !matches!(start, Start::Blank);
        InitError::check(&self.policy)?;
        let needs = layout.needs_on::<C::Lock>(self.rules().engine)?;
        let room = |what, needed, given| {
            if given < needed { Err(InitError::TooSmall { what, needed, given }) } else { Ok(()) }
        };
        room("frame descriptors", needs.frames, storage.frames.len())?;
        room("pageblock entries", needs.blocks, storage.blocks.len())?;
        room("zones", needs.zones, storage.zones.len())?;
        room("CPU slots", needs.slots, storage.slots.len())?;
        room("nodes", needs.nodes, storage.nodes.len())?;
        room("CPU zones", needs.cpu_zones, storage.cpu_zones.len())?;
        let mut packed = storage.packed.into_parts();
        if self.is_packed() {
            if let Some((what, needed, given)) = packed.shortage(&needs.packed.get()) {
                return Err(InitError::TooSmall { what, needed, given });
            }
            if !packed.clear() {
                return Err(InitError::InUse);
            }
        }

        for (i, slot) in storage.slots.iter_mut().take(needs.slots).enumerate() {
            *slot = const { PerCpu::new() };
            if let Some(node) = layout.cpus.get(i % layout.cpus.len().max(1)) {
                slot.node.store(node.0.into(), Relaxed);
            }
        }
        let slots: &'a [PerCpu<C::Lock>] = storage.slots;
        let (mut frames, mut blocks, mut slots) = (storage.frames, storage.blocks, slots);
        let ids = (0..needs.nodes).flat_map(|n| {
            ZoneKind::ALL.into_iter().rev().map(move |kind| (NodeId(n as u16), kind))
        });
        let specs = ids.filter_map(|id| layout.zones.iter().find(|z| (z.node, z.kind) == id));
        for (spec, zone) in specs.zip(storage.zones.iter_mut()) {
            let zone_is_exact = !self.is_packed();
            let own;
            (own, frames) = frames.split_at(spec.frames().min(frames.len()));
            let own_blocks;
            (own_blocks, blocks) = blocks.split_at(spec.blocks().min(blocks.len()));
            let cpus;
            (cpus, slots) = slots.split_at(layout.cpus.len().min(slots.len()));
            let map = Map::new(own, own_blocks);
            let deferred = match start {
                // The packed engine initialises memory with one store a frame, at once.
                Start::Deferred(_) if zone_is_exact => layout.deferred_part(spec),
                Start::Deferred(_) | Start::Blank | Start::Whole => None,
            };
            // If memory follows, `populate` or deferred initialization writes the frames.
            match start {
                Start::Blank => map.clear(),
                Start::Whole | Start::Deferred(_) => map.clear_blocks(),
            }
            *zone = const { Zone::new() };
            zone.map = map;
            if !zone_is_exact {
                place_region(zone, layout, spec, &mut packed)?;
            }
            zone.cpus = cpus;
            zone.base = spec.base();
            zone.start = spec.span.start;
            zone.spanned = spec.span.end.0 - spec.span.start.0;
            zone.kind = spec.kind;
            zone.node = spec.node;
            if let Some(deferred) = deferred {
                zone.deferred_part = DeferredPart::new(deferred);
            }
            if populated {
                zone.limit_pagesets(self.rules());
            }
            zone.boost_factor.store(layout.knobs.watermark_boost_factor, Relaxed);
            zone.count_numa(layout.knobs.numa_stat);
            let nofragment = layout.starts_nofragment(spec, needs.nodes);
            zone.nofragment.store(nofragment, Relaxed);
        }
        sort_by_start(storage.zones.get_mut(..needs.zones).unwrap_or(&mut []));
        let zones: &'a [Zone<'a, C::Lock>] = storage.zones.get(..needs.zones).unwrap_or(&[]);
        if populated {
            for zone in zones {
                populate::<C>(zone, layout, &self.hooks, self.policy);
            }
        }

        let nodes = storage.nodes.get_mut(..needs.nodes).unwrap_or(&mut []);
        set_nodes(nodes, zones, layout);
        let nodes: &'a [Node<'a, C::Lock>] = nodes;
        // In a blank allocator, any zone may still get memory.
        let serves = |z: &Zone<'a, C::Lock>| !populated || z.is_populated();
        rebuild_orders(nodes, |id| zones.iter().any(|z| z.node == id && serves(z)));
        let mut cpu_zones = storage.cpu_zones.iter_mut().take(needs.cpu_zones);
        for ((cpu, &node), local) in (0..).map(CpuId).zip(layout.cpus).zip(&mut cpu_zones) {
            local.set(cpu, node, |highest| {
                let order = nodes.get(usize::from(node.0))?.order();
                let near = order.filter_map(|n| nodes.get(usize::from(n.0)));
                near.flat_map(|n| n.zones_up_to(highest)).find(|z| serves(z))
            });
        }
        self.zones = zones;
        self.nodes = nodes;
        self.cpu_zones = storage.cpu_zones.get(..needs.cpu_zones).unwrap_or(&[]);
        self.cpus = layout.cpus.len() as u32;
        *self.knobs.get_mut() = layout.knobs;
        self.deferred = match start {
            Start::Deferred(layout) => Some(Deferred::new(*layout)),
            Start::Blank | Start::Whole => None,
        };
        Ok(())
    }
}

/// Gives each node its zones, which are sorted by node, its distances and the number of its CPUs. Outlined
/// to keep its frame off the stack while memory is added.
#[inline(never)]
fn set_nodes<'a, R: RawMutex>(
    nodes: &mut [Node<'a, R>],
    zones: &'a [Zone<'a, R>],
    layout: &Layout<'_>,
) {
    let count = nodes.len();
    for (i, node) in nodes.iter_mut().enumerate() {
        let id = NodeId(i as u16);
        let first = zones.iter().take_while(|z| z.node < id).count();
        let own = zones.iter().filter(|z| z.node == id).count();
        let distances = layout.distances.get(i * count..).unwrap_or(&[]);
        let distances = distances.get(..count).unwrap_or(&[]);
        *node = const { Node::new() };
        node.set(id, zones.get(first..first + own).unwrap_or(&[]), distances);
        let cpus = layout.cpus.iter().filter(|&&n| n == id).count();
        node.cpus.store(cpus as u32, Relaxed);
    }
}

/// Frees a zone's usable memory, except for the deferred part.
fn populate<C: Config>(
    zone: &Zone<'_, C::Lock>,
    layout: &Layout<'_>,
    hooks: &C::Hooks,
    policy: C::Policy,
) {
    let span = zone.start..zone.end();
    let present: u64 = layout.usable.iter().map(|r| common(r, &span)).sum();
    zone.present.store(present, Relaxed);
    if let Some(region) = zone.region() {
        populate_packed(zone, region, layout);
        if hooks.report_order().is_some() && region.has_unreported() {
            zone.report.request(hooks);
        }
        return;
    }
    let Some(at) = zone.at::<C>(hooks, CpuId(0), policy) else { return };
    let end = zone.deferred_part.start().unwrap_or(span.end);
    let all = !zone.deferred_part.is_deferred();
    if all {
        zone.map.reserve(0, zone.first_index());
    }
    let mut from = span.start;
    while from < end {
        // Section by section, so that descriptors are still cached when their blocks go on lists.
        let next = section_end(from).min(end);
        if all && let Some(idx) = zone.index_of(from) {
            let pages = next.0.wrapping_sub(from.0) as u32;
            zone.map.reserve(idx, pages);
        }
        at.init_frames(layout, from..next);
        from = next;
    }
    // Fold the counters, so that no CPU starts with a difference.
    at.lock().fold_all();
    if let Some(seed) = layout.knobs.shuffle_seed {
        zone.seed_shuffle(seed);
        if !zone.deferred_part.is_deferred() {
            at.shuffle();
        }
    }
}

/// Creates the region of a zone on the packed engine in its place. Not inlined: a region takes several
/// hundred bytes of stack, which would lie below everything else that a start does.
#[inline(never)]
fn place_region<'a, R: RawMutex>(
    zone: &mut Zone<'a, R>,
    layout: &Layout<'_>,
    spec: &ZoneSpec,
    storage: &mut packed::Storage<'a, R>,
) -> Result<(), InitError> {
    zone.packed = Some(region_of(layout, spec, storage)?);
    Ok(())
}

fn region_of<'a, R: RawMutex>(
    layout: &Layout<'_>,
    spec: &ZoneSpec,
    storage: &mut packed::Storage<'a, R>,
) -> Result<packed::Region<'a, R>, InitError> {
    let number = layout.zones.iter().position(|z| z == spec).unwrap_or(0);
    let needs = layout.packed_needs(number, spec)?;
    let frames = (spec.span.end.0 - spec.span.start.0) as u32;
    packed::Region::new(spec.span.start, frames, packed::CPUS_PER_DOMAIN, storage.split_off(&needs))
        .map_err(|_| InitError::InUse)
}

/// Frees a zone's usable memory on the packed engine.
fn populate_packed<R: RawMutex>(
    zone: &Zone<'_, R>,
    region: &packed::Region<'_, R>,
    layout: &Layout<'_>,
) {
    let span = zone.start..zone.end();
    for r in layout.usable {
        region.reserve(r.start.max(span.start)..r.end.min(span.end));
    }
    let mut from = span.start;
    while let Some(run) = layout.next_free(&span, from) {
        from = run.end;
        zone.managed.fetch_add(run.end.0 - run.start.0, Relaxed);
        // Cannot fail: these frames are the zone's, and the usable ranges do not overlap.
        _ = region.add_as(run, true);
    }
    zone.nr_free.fetch_add(region.take_loose(), Relaxed);
}

impl<C: Config> At<'_, '_, C> {
    /// Frees the usable frames of a range as naturally aligned blocks, as large as possible, in
    /// ascending order, to the tails of the lists (§8.1). Returns the number of pages freed.
    ///
    /// The range must start and end at a section or zone boundary, so that no free block crosses
    /// its edges. No other thread may work on it.
    pub(crate) fn init_frames(&self, layout: &Layout<'_>, range: Range<Pfn>) -> u64 {
        let zone = self.zone;
        let runs = || {
            let mut from = range.start;
            let range = range.clone();
            core::iter::from_fn(move || {
                let run = layout.next_free(&range, from)?;
                from = run.end;
                Some(run)
            })
        };
        for r in layout.usable {
            label(zone, &(r.start.max(range.start)..r.end.min(range.end)));
        }
        mark_reserved(zone, layout, &range);
        let mut pages = 0;
        for run in runs() {
            let n = run.end.0.wrapping_sub(run.start.0);
            if let Some(idx) = zone.index_of(run.start) {
                zone.map.set_states(idx, n as u32, State::TAIL);
            }
            pages += n;
        }
        zone.managed.fetch_add(pages, Relaxed);
        let each_block = |f: &dyn Fn(u32, u8)| {
            for run in runs() {
                let mut pfn = run.start;
                while pfn < run.end {
                    let fits = (run.end.0 - pfn.0).ilog2() as u8;
                    let order = (pfn.0.trailing_zeros() as u8).min(fits).min(MAX_ORDER);
                    if let Some(idx) = zone.index_of(pfn) {
                        f(idx, order);
                    }
                    pfn.0 += 1 << order;
                }
            }
        };
        // No other thread uses this memory yet, so it is filled without the lock.
        if self.rules().safety.fills() {
            let unfilled = Rollback::new(|| self.stay_reserved(&mut runs()));
            each_block(&|idx, order| self.fill(idx, order));
            unfilled.disarm();
        }
        let locked = self.lock();
        each_block(&|idx, order| locked.free_block(idx, order));
        pages
    }
}

impl<C: Config> At<'_, '_, C> {
    /// Marks frames reserved and unmanaged after a hook panicked before they were freed. They can
    /// still be [released](Yard::release).
    #[cold]
    fn stay_reserved(&self, runs: &mut dyn Iterator<Item = Range<Pfn>>) {
        let zone = self.zone;
        let _locked = self.lock();
        for run in runs {
            let pages = run.end.0.wrapping_sub(run.start.0);
            if let Some(idx) = zone.index_of(run.start) {
                zone.map.set_states(idx, pages as u32, State::RESERVED_MEMORY);
            }
            zone.managed.fetch_sub(pages, Relaxed);
        }
    }
}

/// Marks the reserved memory of a range, which [`Yard::release`] can free later. Outlined to keep its
/// locals off the stack.
#[inline(never)]
fn mark_reserved<R: RawMutex>(zone: &Zone<'_, R>, layout: &Layout<'_>, range: &Range<Pfn>) {
    for r in layout.reserved {
        let part = r.start.max(range.start)..r.end.min(range.end);
        for usable in layout.usable {
            let part = part.start.max(usable.start)..part.end.min(usable.end);
            if part.start < part.end
                && let Some(idx) = zone.index_of(part.start)
            {
                let pages = part.end.0.wrapping_sub(part.start.0) as u32;
                zone.map.set_states(idx, pages, State::RESERVED_MEMORY);
            }
        }
    }
}

/// Marks every pageblock that contains memory as movable (§8.1).
fn label<R: RawMutex>(zone: &Zone<'_, R>, range: &Range<Pfn>) {
    let start = range.start.max(zone.start);
    let end = range.end.min(zone.end());
    let mut pfn = start;
    while pfn < end {
        if let Some(idx) = zone.index_of(pfn) {
            zone.map.set_block_type(idx, MigrateType::Movable);
        }
        pfn = Pfn(((pfn.0 >> PAGEBLOCK_ORDER) + 1) << PAGEBLOCK_ORDER);
    }
}

/// Records the order of the zones' start frames, for a binary search by frame.
fn sort_by_start<R: RawMutex>(zones: &mut [Zone<'_, R>]) {
    for nth in 0..zones.len() {
        let below = |i: usize| {
            let start = zones.get(i).map(|z| z.start);
            zones.iter().filter(|z| Some(z.start) < start).count()
        };
        let index = (0..zones.len()).find(|&i| below(i) == nth).unwrap_or(0);
        if let Some(zone) = zones.get_mut(nth) {
            zone.nth_by_start = index as u16;
        }
    }
}
