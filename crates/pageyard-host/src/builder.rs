//! Options of a yard, and construction from them.

use std::io;
use std::ops::Range;
use std::time::Duration;

use lock_api::RawMutex;
use pageyard::policy::{Engine, Policy, StaticPolicy};
use pageyard::{Hooks, Knobs, MAX_NODES, NodeId, Order, PAGE_SIZE, Pfn, ZoneKind, ZoneSpec};

use crate::backing::{Backing, HugePages};
use crate::error::{BuildError, of};
use crate::give_back::GiveBack;
use crate::limits::{Limits, pages};
use crate::maps::LayoutParts;
use crate::memory::{LARGEST, Region, system_page};
use crate::raw_yard::RawYard;
use crate::service::ServiceOptions;
use crate::signals::SystemFiles;
use crate::thread_cache::ThreadCache;
use crate::topology::{Node, Topology, list};
use crate::trace_events;
use crate::yard::HostYard;

/// Largest size of a yard, half of the 47-bit address space.
const MOST: u64 = 1 << 46;
/// Returns the largest part of a node in bytes: a zone has fewer than 2^32 frames, or 2^31. The last
/// part is larger than the others by less than a largest block for each node, of which there are at
/// most 1,024.
const fn most_of_node(engine: Engine) -> u64 {
    let frames = match engine {
        Engine::Exact => 1 << 32,
        Engine::Packed => 1 << 31,
    };
    (frames - (1 << 21)) * PAGE_SIZE
}
/// Pages populated per call.
const STEP: u64 = (256 << 20) / PAGE_SIZE;

/// Options of a yard. Anything not set is derived from the machine.
///
/// ```
/// use std::time::Duration;
/// use pageyard_host::{Builder, HugePages};
///
/// let yard = Builder::new(64 << 20)
///     .huge_pages(HugePages::System)
///     .hard_limit(48 << 20)
///     .tick(Some(Duration::from_millis(500)))
///     .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    size: u64,
    nodes: Option<Vec<u16>>,
    cpus: Option<Vec<u32>>,
    huge_pages: HugePages,
    prefault: bool,
    pinned: bool,
    deferred: bool,
    knobs: Knobs,
    tick: Option<Duration>,
    thread_cache: ThreadCache,
    service: ServiceOptions,
}

impl Builder {
    /// The knobs of a yard unless [`knobs`](Builder::knobs) sets others: the kernel's defaults
    /// without the boost of the watermarks (`watermark_boost_factor: 0`, §3.4). A boost refuses
    /// requests beside free memory until background reclaim ends it, and in a program most reclaim
    /// finds nothing to give.
    pub const KNOBS: Knobs = Knobs { watermark_boost_factor: 0, ..Knobs::DEFAULT };

    /// Creates options for a yard of `size` bytes, rounded up to pages.
    pub fn new(size: u64) -> Self {
        Builder {
            size,
            nodes: None,
            cpus: None,
            huge_pages: HugePages::default(),
            prefault: false,
            pinned: false,
            deferred: false,
            knobs: Builder::KNOBS,
            tick: Some(Duration::from_secs(1)),
            thread_cache: ThreadCache::Auto,
            service: ServiceOptions {
                backing: Backing::default(),
                fallback: false,
                limits: Limits::default(),
                give_back: None,
                system: None,
                publish: true,
            },
        }
    }

    /// Creates options for a yard of `percent` percent of the memory that this process may still
    /// use. That is what the system has available or what the tightest control group leaves,
    /// whichever is less.
    ///
    /// # Errors
    /// `percent` is 0 or above 100, or the system does not report its available memory.
    pub fn of_available(percent: u8) -> Result<Self, BuildError> {
        if !(1..=100).contains(&percent) {
            return Err(BuildError::Value(
                "size: expected 1 to 100 percent of the available memory",
            ));
        }
        let all = crate::topology::available_memory().ok_or_else(|| BuildError::System {
            option: "size",
            error: io::Error::other("the system does not report its available memory"),
        })?;
        let part = u128::from(all) * u128::from(percent) / 100;
        Ok(Self::new(part as u64 / LARGEST * LARGEST))
    }

    /// Sets the kind of memory: anonymous, a file (memfd), or pages of hugetlbfs.
    pub fn backing(mut self, backing: Backing) -> Self {
        self.service.backing = backing;
        self
    }

    /// Falls back to ordinary memory if huge pages are not available. A file of small pages (memfd)
    /// replaces a [`backing`](Builder::backing) of hugetlbfs. [`HugePages::Collapse`] is replaced
    /// by whatever huge pages the system provides. By default both are errors.
    pub fn fallback(mut self, fallback: bool) -> Self {
        self.service.fallback = fallback;
        self
    }

    /// Limits the memory in use to `bytes` bytes, rounded down to pages ([`Limits::hard`]). The
    /// reserves are within it: [`HostYard::usable`] says what ordinary requests get. For a
    /// [`HostYard`].
    pub fn hard_limit(mut self, bytes: u64) -> Self {
        self.service.limits.hard = Some(pages(bytes));
        self
    }

    /// Calls the shrinkers when more than `bytes` bytes, rounded down to pages, are in use
    /// ([`Limits::soft`]). For a [`HostYard`].
    pub fn soft_limit(mut self, bytes: u64) -> Self {
        self.service.limits.soft = Some(pages(bytes));
        self
    }

    /// Sets how idle memory is returned to the system; `None` disables it. The default is that of
    /// [`GiveBack`], unless [`prefault`](Builder::prefault) is set or the memory is of hugetlbfs.
    /// The worker does the work ([`tick`](Builder::tick)). For a [`HostYard`].
    pub fn give_back(mut self, how: Option<GiveBack>) -> Self {
        self.service.give_back = Some(how);
        self
    }

    /// Sets the system files that the worker watches: [`SystemFiles::detect`] by default,
    /// [`SystemFiles::none`] for none. Files that cannot be read are not watched
    /// ([`Status`](crate::Status) reports why). For a [`HostYard`].
    pub fn system(mut self, files: SystemFiles) -> Self {
        self.service.system = Some(files);
        self
    }

    /// Sets whether the worker publishes statistics twice a second, for `pageyard top` and
    /// [`read_stats`](crate::read_stats), in an anonymous file (memfd) of this process. On by
    /// default. For a [`HostYard`].
    pub fn publish(mut self, publish: bool) -> Self {
        self.service.publish = publish;
        self
    }

    /// Returns how idle memory of this kind is returned to the system, or why it is not.
    fn gives_back(&self, backing: Backing) -> Result<GiveBack, &'static str> {
        match (self.service.give_back, backing) {
            _ if self.pinned => Err("the memory is pinned"),
            (Some(None), _) => Err("disabled"),
            (_, Backing::HugeTlb(_)) => Err("pages of hugetlbfs are reserved for the yard"),
            (Some(Some(how)), _) => Ok(how),
            (None, _) if self.prefault => Err("all memory is prefaulted"),
            (None, _) => Ok(GiveBack::default()),
        }
    }

    fn check_service(&self, nodes: u64) -> Result<(), BuildError> {
        let ServiceOptions { backing, limits, give_back, .. } = &self.service;
        limits.check(self.size.div_ceil(PAGE_SIZE), nodes)?;
        let Some(Some(how)) = give_back else { return Ok(()) };
        if how.rate.is_some_and(|r| r < PAGE_SIZE) {
            let what =
                "give_back: the rate is less than a page per second; use a higher rate or no rate";
            return Err(BuildError::Value(what));
        }
        if how.least > Order::HUGE {
            let what = "give_back: the smallest block returned is above 2 MiB; use order 9 or less";
            return Err(BuildError::Value(what));
        }
        let merges = matches!(self.huge_pages, HugePages::Advise | HugePages::Collapse);
        let what = match () {
            () if self.pinned => {
                "give_back: pinned memory is never returned to the system; remove this option"
            }
            () if matches!(backing, Backing::HugeTlb(_)) => {
                "give_back: pages of hugetlbfs are reserved for the yard; remove this option"
            }
            () if how.lazily && *backing != Backing::Anonymous => {
                "give_back: returning lazily requires anonymous memory"
            }
            () if how.returns_pieces() && *backing != Backing::Anonymous => {
                "give_back: returning blocks of less than 2 MiB requires anonymous memory"
            }
            () if how.returns_pieces() && merges => {
                "give_back: with huge pages the system fetches back blocks of less than 2 MiB; use \
                 HugePages::Never, or HugePages::System if the system makes none by itself"
            }
            () if how.floor > self.size => "give_back: the floor exceeds the size of the yard",
            () => return Ok(()),
        };
        Err(BuildError::Together(what))
    }

    /// Sets the nodes, by the system's numbers, that contribute equal parts of the memory. Each
    /// part is a zone. By default all nodes with memory.
    pub fn nodes(mut self, nodes: impl IntoIterator<Item = u16>) -> Self {
        self.nodes = Some(nodes.into_iter().collect());
        self
    }

    /// Sets the CPUs, by the system's numbers, that get per-CPU lists of their own. A thread on any
    /// other CPU shares the lists of one of these. By default all online CPUs. Fewer CPUs get
    /// longer lists.
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = u32>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Sets the huge page mode.
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Allocates all memory from the system at construction, not on first write.
    pub fn prefault(mut self, prefault: bool) -> Self {
        self.prefault = prefault;
        self
    }

    /// Keeps the system's page behind each address the same as long as the yard lives, for blocks
    /// that the kernel or a device accesses by reference: fixed buffers of io_uring, VFIO and RDMA
    /// mappings. Register the whole of [`HostYard::memory`] once, or single blocks.
    ///
    /// Without this option, idle memory is returned to the system, and the next allocation there
    /// gets another page. A registration from before still refers to the old one, so that a device
    /// silently reads and writes other bytes than the program.
    ///
    /// In a pinned yard
    /// - idle memory stays resident, and so does memory that [`Limits::hard`] or
    ///   [`HostYard::offline`] takes out of circulation;
    /// - compaction moves nothing: a [`Movable`](crate::Movable) stays in place, and relocators are
    ///   not called;
    /// - [`HugePages::Collapse`] is done at construction or never;
    /// - a child after a fork reads anonymous memory as zeros (`MADV_WIPEONFORK`), instead of a
    ///   copy of it.
    ///
    /// The system may still swap or migrate pages that nothing refers to; `mlock` prevents the
    /// former. Whatever writes to the file behind the memory ([`HostYard::fd`]) must not punch
    /// holes in it.
    ///
    /// ```
    /// use pageyard_host::Builder;
    ///
    /// let yard = Builder::new(16 << 20).pinned(true).build()?;
    /// let all = yard.memory();
    /// // An iovec for io_uring: address and length of the whole yard.
    /// assert_eq!((all.len(), all.cast::<u8>().addr().get() % (4 << 20)), (16 << 20, 0));
    /// # Ok::<(), pageyard_host::BuildError>(())
    /// ```
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Initialises only the first part of each zone at construction. The rest follows when requests
    /// need it, or by [`init_section`](pageyard::Yard::init_section) and
    /// [`finish_deferred`](pageyard::Yard::finish_deferred). A large yard then starts at once, and
    /// unused descriptors take no memory until it is finished. Only for policies on the exact engine, or
    /// building fails: the packed one initialises all memory at construction, which is one store a page.
    pub fn deferred(mut self, deferred: bool) -> Self {
        self.deferred = deferred;
        self
    }

    /// Sets the initial knobs of the allocator; [`Builder::KNOBS`] by default.
    ///
    /// ```
    /// use pageyard::Knobs;
    /// use pageyard_host::Builder;
    ///
    /// let knobs = Knobs { watermark_scale_factor: 20, ..Builder::KNOBS };
    /// let yard = Builder::new(16 << 20).knobs(knobs).build()?;
    /// assert_eq!(yard.knobs().watermark_boost_factor, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = knobs;
        self
    }

    /// Sets how often the worker thread of a [`HostYard`] folds statistics and shortens unused
    /// per-CPU lists; once a second by default. With `None` there is no worker thread: the caller
    /// runs [`HostYard::worker`] on its own thread, or at least calls [`HostYard::tick`]. A
    /// [`RawYard`] never has a worker thread.
    ///
    /// The thread blocks the signals of the process, also while it calls registered functions.
    pub fn tick(mut self, interval: Option<Duration>) -> Self {
        self.tick = interval;
        self
    }

    /// Sets the size of the thread cache of a [`HostYard`]. A [`RawYard`] has no thread cache.
    pub fn thread_cache(mut self, thread_cache: ThreadCache) -> Self {
        self.thread_cache = thread_cache;
        self
    }

    fn checked_cpus(&self, topology: &Topology) -> Result<Vec<u32>, BuildError> {
        let online = || topology.cpus.iter().map(|c| c.number);
        let Some(wanted) = &self.cpus else { return Ok(online().collect()) };
        for &cpu in wanted {
            if topology.node_of(cpu).is_none() {
                return Err(BuildError::Cpu { cpu, online: list(online()) });
            }
        }
        let mut cpus = wanted.clone();
        cpus.sort_unstable();
        cpus.dedup();
        if cpus.is_empty() { Err(BuildError::NoCpus) } else { Ok(cpus) }
    }

    fn checked_nodes(&self, topology: &Topology) -> Result<Vec<u16>, BuildError> {
        let usable = |node: &&Node| node.memory > 0 && is_known(node.number);
        let known = || topology.nodes.iter().filter(usable).map(|n| n.number);
        let nodes: Vec<u16> = match &self.nodes {
            None => known().collect(),
            Some(nodes) => nodes.clone(),
        };
        if let Some(&node) = nodes.iter().find(|&&n| !known().any(|k| k == n)) {
            return Err(BuildError::Node { node, known: list(known().map(u32::from)) });
        }
        let twice = nodes.iter().enumerate().any(|(i, n)| nodes[..i].contains(n));
        if nodes.is_empty() || twice { Err(BuildError::Nodes) } else { Ok(nodes) }
    }

    /// Splits `pages` pages into one range of frames per node. Each is a multiple of the largest
    /// block, except for the last one.
    fn parts(pages: u64, first: Pfn, nodes: usize) -> Vec<Range<Pfn>> {
        let block = LARGEST / PAGE_SIZE;
        let end = first.0 + pages;
        let share = pages / nodes as u64 / block * block;
        let starts = (0..nodes as u64).map(|n| first.0 + n * share);
        let last = nodes as u64 - 1;
        let part = |(n, start)| Pfn(start)..Pfn(if n == last { end } else { start + share });
        (0..).zip(starts).map(part).collect()
    }

    /// Maps memory for a yard of this size on these nodes. Several yards can use it one after the
    /// other ([`build_on`](Builder::build_on), [`RawYard::into_region`]).
    ///
    /// # Errors
    /// Invalid options, or an error of the system.
    pub fn region(&self) -> Result<Region, BuildError> {
        self.region_for(Engine::Exact)
    }

    /// Like [`region`](Builder::region), of a size that this engine can manage.
    fn region_for(&self, engine: Engine) -> Result<Region, BuildError> {
        let topology = Topology::detect()?;
        let nodes = self.checked_nodes(&topology)?;
        if system_page() != PAGE_SIZE {
            return Err(BuildError::SystemPage(system_page()));
        }
        let of_nodes = |part: u64| part.saturating_mul(nodes.len() as u64);
        let (least, most) = (of_nodes(LARGEST), of_nodes(most_of_node(engine)).min(MOST));
        if !(least..=most).contains(&self.size) {
            let (given, nodes) = (self.size, nodes.len());
            return Err(BuildError::Size { given, least, most, nodes });
        }
        self.check_service(nodes.len() as u64)?;
        if self.deferred && engine == Engine::Packed {
            let what = "deferred: the packed engine initialises all memory at the start; choose a \
                        policy on the exact engine, as by build_with_policy(Linux612), or leave \
                        this option out";
            return Err(BuildError::Together(what));
        }
        let collapse = self.huge_pages == HugePages::Collapse;
        if collapse && !self.prefault {
            let what = "huge_pages: collapsing requires resident memory; prefault it";
            return Err(BuildError::Together(what));
        }
        let mut region = self.mapped()?;
        let first = if collapse { HugePages::Advise } else { self.huge_pages };
        of("huge_pages", region.set_huge_pages(first))?;
        if topology.nodes.len() > 1 {
            let parts = Self::parts(region.pages(), region.first(), nodes.len());
            for (part, &node) in parts.iter().zip(&nodes) {
                of("nodes", region.prefer_node(part, NodeId(node)))?;
            }
        }
        if self.prefault {
            let end = region.frames().end.0;
            for at in (region.first().0..end).step_by(STEP as usize) {
                of("prefault", region.populate(&(Pfn(at)..Pfn((at + STEP).min(end)))))?;
            }
        }
        if collapse {
            let done = region.set_huge_pages(HugePages::Collapse);
            let or_less = |e| {
                if !self.service.fallback {
                    return Err(e);
                }
                trace_events::fell_back("huge_pages", &self.huge_pages, &e);
                Ok(())
            };
            of("huge_pages", done.or_else(or_less))?;
        }
        if self.pinned {
            of("pinned", region.pin())?;
        }
        Ok(region)
    }

    /// Maps the memory, with the fallback if it is allowed.
    fn mapped(&self) -> Result<Region, BuildError> {
        let pages = self.size.div_ceil(PAGE_SIZE);
        let backing = self.service.backing;
        if backing == Backing::Anonymous {
            return of("size", Region::new(pages));
        }
        // The fallback does not help with an invalid size.
        let valid = pages.is_multiple_of(backing.unit() / PAGE_SIZE);
        let again = self.service.fallback && valid && matches!(backing, Backing::HugeTlb(_));
        let done = Region::backed(pages, backing).or_else(|e| {
            if !again {
                return Err(e);
            }
            trace_events::fell_back("backing", &backing, &e);
            Region::backed(pages, Backing::Memfd)
        });
        of("backing", done)
    }

    fn on<P: Policy, R: RawMutex, E: Hooks>(
        &self,
        policy: P,
        region: Region,
        exclusive: bool,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        let topology = Topology::detect()?;
        let cpus = self.checked_cpus(&topology)?;
        let nodes = self.checked_nodes(&topology)?;
        let parts = Self::parts(region.pages(), region.first(), nodes.len());
        let zones = parts.iter().zip(&nodes).map(|(span, &node)| ZoneSpec {
            kind: ZoneKind::Normal,
            node: NodeId(node),
            span: span.clone(),
        });
        let last = cpus.last().map_or(0, |&c| c);
        let homes = (0..=last).map(|c| home(&topology, c, &nodes));
        let plan = LayoutParts {
            zones: zones.collect(),
            usable: parts.into(),
            cpus: homes.collect(),
            distances: distances(&topology).into(),
            knobs: self.knobs,
        };
        RawYard::new(policy, plan, self.deferred, region, cpus, &topology, exclusive, embedder)
    }

    /// Builds a yard that is used by frame number.
    ///
    /// # Errors
    /// Invalid options, or an error of the system.
    pub fn build_raw<P: StaticPolicy, R: RawMutex, E: Hooks>(
        &self,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        self.on(P::POLICY, self.region_for(P::POLICY.rules().engine)?, false, embedder)
    }

    /// Builds a yard that is used by frame number on an existing region, whose contents may be
    /// anything. The region's size replaces the builder's. A region that was mapped as
    /// [pinned](Builder::pinned) stays so. The policy is [`StaticPolicy::POLICY`] or chosen at run
    /// time, as for [`build_with_policy`](Builder::build_with_policy).
    ///
    /// # Errors
    /// Invalid options, or an error of the system.
    pub fn build_on<P: Policy, R: RawMutex, E: Hooks>(
        &self,
        policy: P,
        mut region: Region,
        embedder: E,
    ) -> Result<RawYard<P, R, E>, BuildError> {
        if self.pinned {
            of("pinned", region.pin())?;
        }
        self.on(policy, region, false, embedder)
    }

    /// Builds a yard of owned blocks with the default policy.
    ///
    /// ```
    /// use pageyard_host::Builder;
    ///
    /// let yard = Builder::new(16 << 20).build()?;
    /// # Ok::<(), pageyard_host::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// Invalid options, or an error of the system.
    pub fn build(&self) -> Result<HostYard, BuildError> {
        self.build_with()
    }

    /// Builds a yard of owned blocks with another policy: [`build`](Builder::build) for `P`.
    ///
    /// ```
    /// use pageyard::policy::PageChecked;
    /// use pageyard_host::Builder;
    ///
    /// let yard = Builder::new(16 << 20).build_with::<PageChecked>()?;
    /// # Ok::<(), pageyard_host::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// As [`build`](Builder::build). Also fails for a [thread cache](Builder::thread_cache) of a
    /// given size together with a policy that checks or fills pages.
    pub fn build_with<P: StaticPolicy + Send + Sync + 'static>(
        &self,
    ) -> Result<HostYard<P>, BuildError> {
        self.build_with_policy(P::POLICY)
    }

    /// Builds a yard of owned blocks with a policy that is chosen at run time.
    ///
    /// ```
    /// use pageyard::policy::{Linux612, Packed, Rules, StaticPolicy};
    /// use pageyard_host::{Builder, HostYard};
    ///
    /// let exact = std::env::var_os("EXACT").is_some();
    /// let rules: &'static Rules = if exact { &Linux612::RULES } else { &Packed::RULES };
    /// let yard: HostYard<&'static Rules> = Builder::new(16 << 20).build_with_policy(rules)?;
    /// # Ok::<(), pageyard_host::BuildError>(())
    /// ```
    ///
    /// # Errors
    /// As [`build_with`](Builder::build_with).
    pub fn build_with_policy<P: Policy + Send + Sync + 'static>(
        &self,
        policy: P,
    ) -> Result<HostYard<P>, BuildError> {
        if self.tick == Some(Duration::ZERO) {
            return Err(BuildError::Tick);
        }
        if !self.thread_cache.is_possible() {
            return Err(BuildError::ThreadCache);
        }
        if policy.rules().safety.checks_pages()
            && matches!(self.thread_cache, ThreadCache::Blocks { .. })
        {
            let what = "thread_cache: the policy checks or fills pages on allocation and free, \
                        which a thread cache would bypass; remove this option";
            return Err(BuildError::Together(what));
        }
        let region = self.region_for(policy.rules().engine)?;
        let raw = self.on(policy, region, true, ())?;
        let gives_back = self.gives_back(raw.region().backing());
        if self.prefault && gives_back.is_ok_and(|how| how.returns_pieces()) {
            // They are resident, so they count as if they had been in use.
            let (first, pages) = (raw.region().first(), raw.region().pages());
            raw.core().hooks().take_known_zero(first, pages);
        }
        HostYard::new(raw, self.tick, self.thread_cache, gives_back, &self.service)
    }
}

/// Returns whether the allocator knows nodes of this number. The machine may have others.
fn is_known(node: u16) -> bool {
    usize::from(node) < MAX_NODES
}

/// Returns a CPU's node; the nearest of the yard's nodes for CPUs without a known one.
fn home(topology: &Topology, cpu: u32, nodes: &[u16]) -> NodeId {
    let own = topology.node_of(cpu);
    let far = |&&to: &&u16| own.and_then(|from| topology.distance(from.0, to)).unwrap_or(u8::MAX);
    let nearest = || NodeId(nodes.iter().min_by_key(far).copied().unwrap_or(0));
    own.filter(|node| is_known(node.0)).unwrap_or_else(nearest)
}

/// Returns the node distance matrix, row by row up to the highest known node number; empty with only
/// one node. Uses defaults where the firmware reports no distance.
fn distances(topology: &Topology) -> Vec<u8> {
    let known = topology.nodes.iter().map(|n| n.number).filter(|&n| is_known(n));
    let count = known.map(|n| n + 1).max().unwrap_or(1);
    if count == 1 {
        return Vec::new();
    }
    let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
    let far = |(a, b)| match topology.distance(a, b) {
        _ if a == b => 10,
        Some(d) => d.max(11),
        None => 20,
    };
    pairs.map(far).collect()
}

#[cfg(test)]
mod tests {
    use pageyard::policy::{Linux612, Packed};
    use pageyard::tuning::CacheSlice;

    use super::*;
    use crate::topology::Cpu;

    /// A bad value of one option is not a contradiction of two.
    #[test]
    fn single_values_and_contradictions_are_told_apart() {
        assert!(matches!(Builder::of_available(0), Err(BuildError::Value(_))));
        let deferred = Builder::new(16 << 20).deferred(true);
        assert!(matches!(deferred.build().unwrap_err(), BuildError::Together(_)));
        deferred.build_with_policy(pageyard::policy::Linux612).unwrap();
        let give_back = |how| Builder::new(16 << 20).give_back(Some(how)).build().unwrap_err();
        let slow = GiveBack { rate: Some(1), ..GiveBack::default() };
        assert!(matches!(give_back(slow), BuildError::Value(_)));
        let high = GiveBack { floor: 32 << 20, ..GiveBack::default() };
        assert!(matches!(give_back(high), BuildError::Together(_)));
        let large = GiveBack { least: Order::MAX, ..GiveBack::default() };
        assert!(matches!(give_back(large), BuildError::Value(_)));
        let small = GiveBack { least: Order::ZERO, ..GiveBack::default() };
        let builder = Builder::new(16 << 20).give_back(Some(small));
        for huge_pages in [HugePages::Advise, HugePages::Collapse] {
            let error = builder.clone().huge_pages(huge_pages).prefault(true).build().unwrap_err();
            assert!(error.to_string().contains("HugePages::Never"), "{error}");
        }
        let never = builder.huge_pages(HugePages::Never);
        assert!(matches!(
            never.clone().backing(Backing::Memfd).build().unwrap_err(),
            BuildError::Together(_)
        ));
        never.build().unwrap();
    }

    /// The packed engine's zones are smaller. Nothing is mapped for a yard that is too large.
    #[test]
    fn the_largest_size_is_that_of_the_engine() {
        let most = |error| match error {
            Err(BuildError::Size { most, nodes: 1, .. }) => most >> 40,
            other => panic!("{other:?}"),
        };
        let topology = Topology::detect().unwrap();
        let node = topology.nodes.iter().find(|node| node.memory > 0).unwrap();
        let huge = Builder::new(16 << 40).nodes([node.number]).tick(None);
        assert_eq!(most(huge.build_with::<Packed>().map(drop)), 7);
        assert_eq!(most(huge.build_with::<Linux612>().map(drop)), 15);
        assert_eq!(most(huge.region().map(drop)), 15);
    }

    /// Node 64 is one more than the allocator knows. It may be the home of devices or of CPUs.
    #[test]
    fn a_node_of_a_high_number_does_not_keep_others_from_use() {
        let node = |number, distances: [u8; 3]| Node {
            number,
            memory: 1 << 30,
            free: 0,
            distances: distances.into(),
        };
        let slice = CacheSlice::default();
        let topology = Topology {
            nodes: vec![node(0, [10, 20, 30]), node(1, [20, 10, 15]), node(64, [30, 15, 10])],
            cpus: [(0, 0), (1, 1), (2, 64)]
                .map(|(number, node)| Cpu { number, node, slice })
                .into(),
        };
        assert_eq!(distances(&topology), [10, 20, 20, 10]);
        let homes = |nodes: &[u16]| [0, 1, 2].map(|cpu| home(&topology, cpu, nodes).0);
        assert_eq!(homes(&[0, 1]), [0, 1, 1]);
        assert_eq!(homes(&[0]), [0, 1, 0]);
        let builder = Builder::new(16 << 20);
        assert_eq!(builder.checked_nodes(&topology).unwrap(), [0, 1]);
        let error = builder.nodes([64]).checked_nodes(&topology).unwrap_err();
        assert!(matches!(error, BuildError::Node { node: 64, .. }), "{error}");
    }

    #[test]
    fn parts_consist_of_whole_blocks() {
        let first = Pfn(1 << 20);
        let parts = Builder::parts(10_000, first, 2);
        assert_eq!(parts, [first..Pfn(first.0 + 4096), Pfn(first.0 + 4096)..Pfn(first.0 + 10_000)]);
        assert_eq!(Builder::parts(1500, first, 1), [first..Pfn(first.0 + 1500)]);
    }
}
