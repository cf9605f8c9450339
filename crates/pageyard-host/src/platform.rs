//! The hooks of an allocator on the host: current CPU, clock, real memory.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pageyard::poison::{self, Corruption, POISON_BYTE};
use pageyard::{
    Context, CpuId, Defences, Gfp, Hooks, NodeId, Observer, Order, PAGE_SIZE, Pfn, Platform,
    Reclaim, ReclaimJob, Relocation, Throttle, ZoneId, ZoneKind,
};

use crate::backing::Backing;
use crate::known_zero::KnownZero;
use crate::memory::Region;
use crate::relocate::Moving;
use crate::service::{Meanwhile, Service};
use crate::{clock, cpu};

/// Words per page.
pub(crate) const WORDS: usize = PAGE_SIZE as usize / 8;
/// Length of a pause, and polling interval of a throttled thread: the kernel's tick at 250 Hz.
const TICK: Duration = Duration::from_millis(4);

/// Maps each of the system's CPUs to a CPU of the yard: to itself, or to another one if the yard
/// keeps no lists for it.
#[derive(Debug)]
pub(crate) struct CpuTable(Box<[CpuId]>);

impl CpuTable {
    /// Creates the table for these CPUs of the yard, at least one.
    pub(crate) fn new(cpus: &[u32]) -> Self {
        let last = cpus.iter().max().map_or(0, |&c| c as usize);
        let of = |n: usize| {
            let own = cpus.iter().find(|&&c| c as usize == n);
            CpuId(*own.unwrap_or(&cpus[n % cpus.len()]))
        };
        CpuTable((0..=last).map(of).collect())
    }

    #[inline]
    fn of(&self, cpu: u32) -> CpuId {
        match self.0.get(cpu as usize) {
            Some(&own) => own,
            None => self.0[cpu as usize % self.0.len()],
        }
    }
}

/// The allocator's hooks on the host. `E` is the embedder's hooks: reclaim, ownership, failures,
/// events. The CPU, clock and pause hooks of `E` are not called.
///
/// ```
/// use pageyard::Platform;
/// use pageyard_host::Builder;
///
/// let yard = Builder::new(16 << 20).build_raw::<
///     pageyard::policy::Packed, pageyard_host::HostLock, ()>(())?;
/// let platform = yard.core().hooks();
/// assert!(platform.now() > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostPlatform<E = ()> {
    region: Arc<Region>,
    cpus: CpuTable,
    /// Each block has one owner at a time, so that nothing uses free memory. Then the allocator can
    /// track which pages are still zero.
    exclusive: bool,
    known_zero: Option<KnownZero>,
    service: Service,
    embedder: E,
}

impl<E> HostPlatform<E> {
    pub(crate) fn new(
        region: Arc<Region>,
        cpus: CpuTable,
        exclusive: bool,
        service: Service,
        embedder: E,
    ) -> HostPlatform<E> {
        // Another process may write to a file.
        let known = exclusive && region.backing() == Backing::Anonymous;
        let known_zero = known.then(|| KnownZero::new(&region.frames()));
        HostPlatform { region, cpus, exclusive, known_zero, service, embedder }
    }

    /// Returns the state shared with the worker. Only an exclusive yard uses it.
    pub(crate) fn service(&self) -> &Service {
        &self.service
    }

    /// Whether a callback forked, and this is the child, which continues what its parent was doing. The
    /// memory may be the parent's: it must not change (`a_callback_may_fork`).
    fn is_elsewhere(&self) -> bool {
        self.exclusive && !self.service.born.is_here()
    }

    /// Returns the embedder's hooks.
    pub fn embedder(&self) -> &E {
        &self.embedder
    }

    /// Records that the system took back the memory of free pages, so that they read as zeros next
    /// time (`MADV_DONTNEED`, not `MADV_FREE`). They stay unallocated during this call.
    pub(crate) fn note_returned(&self, frames: &Range<Pfn>) {
        if let Some(known_zero) = &self.known_zero {
            known_zero.mark_zero(frames.start, frames.end.0.saturating_sub(frames.start.0));
        }
    }

    /// Returns the memory of free pages to the system ([`Region::discard`]).
    pub(crate) fn discard(&self, pfn: Pfn, order: Order, lazily: bool) -> io::Result<()> {
        if self.region.is_pinned() || self.is_elsewhere() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let pages = u64::from(order.pages());
        let touched = self.touched(pfn, pages);
        if touched == Some(0) {
            // Nothing to return, which the system is not asked for: it may be most of a large yard.
            return Ok(());
        }
        if let Some(known_zero) = self.known_zero.as_ref().filter(|_| lazily) {
            known_zero.mark_lazily_freed(pfn, pages);
        }
        let done = self.region.discard(pfn, pages, lazily);
        self.service.refused.store(done.is_err(), Relaxed);
        done?;
        if !lazily {
            self.note_returned(&(pfn..Pfn(pfn.0 + pages)));
        }
        self.service.returned_touched.fetch_add(touched.unwrap_or(0), Relaxed);
        Ok(())
    }

    /// Returns how many pages of these have been touched: allocated since the system provided them. `None`
    /// unless pieces are returned: then the system may back pages that were not.
    pub(crate) fn touched(&self, pfn: Pfn, pages: u64) -> Option<u64> {
        let known_zero = self.known_zero.as_ref()?;
        let counts = self.service.returns_pieces.load(Relaxed);
        counts.then(|| known_zero.touched_of(pfn, pages))
    }

    /// Records that the pages may be written from now on. Returns whether they are known to be
    /// zero.
    #[inline]
    pub(crate) fn take_known_zero(&self, pfn: Pfn, pages: u64) -> bool {
        self.known_zero
            .as_ref()
            .is_some_and(|known_zero| known_zero.take_known_zero(&self.region, pfn, pages))
    }

    /// Returns how many pages have been touched, if pieces of pageblocks are returned: then it is what the
    /// system backs. A scan of 32 KiB per GiB.
    pub(crate) fn touched_pages(&self) -> Option<u64> {
        let known_zero =
            self.known_zero.as_ref().filter(|_| self.service.returns_pieces.load(Relaxed));
        known_zero.map(KnownZero::touched_pages)
    }

    /// Returns whether this page was known to be zero when it was prepared, if it is the last one
    /// that this thread prepared.
    pub(crate) fn was_zeros(&self, pfn: Pfn) -> bool {
        self.known_zero.is_some() && PREPARED_ZEROS.get() == pfn.0
    }

    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns a block as atomic words, which any thread may use at any time.
    pub(crate) fn words(&self, pfn: Pfn, order: Order) -> Option<&[AtomicU64]> {
        let pages = u64::from(order.pages());
        let start = self.region.address(pfn, pages)?;
        // SAFETY: the pages are mapped as long as the region lives, aligned, and initialised to
        // zero by the system. In a yard that is not exclusive, all accesses are atomic. In an
        // exclusive yard, this is called only for blocks that the allocator holds at the moment
        // (`a_raw_yard_works_by_frame_number`,
        // `checking_and_filling_policies_disable_the_thread_cache`).
        Some(unsafe {
            slice::from_raw_parts(start.as_ptr().cast::<AtomicU64>(), pages as usize * WORDS)
        })
    }

    fn fill(&self, pfn: Pfn, order: Order, word: u64) {
        if self.is_elsewhere() {
            return;
        }
        store(self.words(pfn, order).unwrap_or_default(), word);
    }

    #[inline(never)]
    fn clear(&self, pfn: Pfn, order: Order) {
        if self.is_elsewhere() {
            return;
        }
        if !self.exclusive {
            return self.fill(pfn, order, 0);
        }
        let pages = u64::from(order.pages());
        if let Some(start) = self.region.address(pfn, pages) {
            // SAFETY: the pages are mapped. The allocator holds the block, so in an exclusive yard
            // nothing else uses it (`zeroed_blocks_are_zero_with_any_flags`,
            // `migrating_threads_never_share_a_page`).
            unsafe { start.write_bytes(0, (pages * PAGE_SIZE) as usize) };
        }
    }
}

/// Stores a word in all of `words`. The compiler emits atomic stores one by one; `rep stosq` writes
/// whole cache lines.
fn store(words: &[AtomicU64], word: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: to the program these are relaxed stores to these words. Each is done whole, as the
    // repeated steps of the instruction are. The direction flag is clear, as the ABI requires
    // (`zeroed_frames_are_zero_with_any_flags`, `zeroing_writes_every_word_and_no_other`).
    unsafe {
        std::arch::asm!(
            "rep stosq",
            inout("rcx") words.len() => _,
            inout("rdi") words.as_ptr() => _,
            in("rax") word,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for w in words {
        w.store(word, Relaxed);
    }
}

thread_local! {
    /// Its address identifies the thread.
    static HERE: u8 = const { 0 };
    /// First frame of the block last prepared on this thread, if all of it was known to be zero;
    /// otherwise 0, which no region contains. It informs the thread cache. Flags do not carry this,
    /// because callers could set them too.
    static PREPARED_ZEROS: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number that no other live thread has.
pub(crate) fn current_task() -> u64 {
    HERE.with(|here| std::ptr::from_ref(here).addr() as u64)
}

impl<E: Hooks> Platform for HostPlatform<E> {
    #[inline]
    fn cpu(&self) -> CpuId {
        self.cpus.of(cpu::current())
    }

    fn now(&self) -> u64 {
        clock::now()
    }

    #[inline]
    fn prepare(&self, pfn: Pfn, order: Order, gfp: Gfp) {
        let zeros = self.take_known_zero(pfn, order.pages().into());
        if self.known_zero.is_some() {
            PREPARED_ZEROS.set(if zeros { pfn.0 } else { 0 });
        }
        if gfp.contains(Gfp::ZERO) && !zeros {
            self.clear(pfn, order);
        }
        self.embedder.prepare(pfn, order, gfp);
    }

    fn pause(&self) {
        thread::sleep(TICK);
    }

    /// No memory is stranded on the lists of a CPU that is idle, or that another thread uses.
    fn drain_on_failure(&self) -> bool {
        true
    }
}

impl<E: Hooks> Reclaim for HostPlatform<E> {
    // Huge pages are returned whole; returning smaller blocks would split them.
    const REPORT_ORDER: Option<Order> = match E::REPORT_ORDER {
        None => Some(Order::HUGE),
        some => some,
    };

    fn relocate(&self, from: Pfn, to: Pfn, order: Order) -> Relocation {
        if self.is_elsewhere() {
            return Relocation::Refused;
        }
        // In a pinned yard too: no program has the address of a block that the hard limit keeps.
        let discard = || _ = self.discard(to, order, false);
        if let Some(answer) = self.service.balloon.relocate((from, to), order, discard) {
            return answer;
        }
        if self.region.is_pinned() {
            return Relocation::Refused;
        }
        self.take_known_zero(to, order.pages().into());
        if !self.exclusive {
            return self.embedder.relocate(from, to, order);
        }
        let pages = u64::from(order.pages());
        let place = |pfn| self.region.address(pfn, pages);
        let (Some(old), Some(new)) = (place(from), place(to)) else { return Relocation::Refused };
        self.service.relocate(&Moving { from, to, order, old, new })
    }

    fn context(&self) -> Context {
        self.service.context(self.embedder.context())
    }

    fn task(&self) -> Option<u64> {
        Some(current_task())
    }

    fn reclaim(&self, job: &ReclaimJob) -> u64 {
        self.service.reclaim_directly(job).saturating_add(self.embedder.reclaim(job))
    }

    fn reclaimable(&self, zone: ZoneId) -> u64 {
        self.service.reclaimable().saturating_add(self.embedder.reclaimable(zone))
    }

    fn throttle(&self, _: NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> Throttle {
        let until = most_ns.map(|ns| clock::now().saturating_add(ns));
        while !enough() && until.is_none_or(|t| clock::now() < t) {
            thread::sleep(TICK);
        }
        Throttle::Done
    }

    fn keep_trying(&self, order: Order, tries: u32) -> bool {
        let again = self.embedder.keep_trying(order, tries);
        if again {
            thread::sleep(TICK);
        }
        again
    }

    fn wake_reclaim(&self, node: NodeId, order: Order, highest_zone: ZoneKind) {
        self.service.reclaim.add(node);
        self.service.wake_event.signal();
        self.embedder.wake_reclaim(node, order, highest_zone);
    }

    fn wake_compaction(&self, node: NodeId) {
        self.service.compaction.add(node);
        self.service.wake_event.signal();
        self.embedder.wake_compaction(node);
    }

    fn report_order(&self) -> Option<Order> {
        self.embedder.report_order().or(Self::REPORT_ORDER)
    }

    fn report_free(&self, blocks: &[(Pfn, Order)]) -> bool {
        if self.region.is_pinned() {
            return false;
        }
        if !self.exclusive {
            return self.embedder.report_free(blocks);
        }
        let lazily = self.service.lazily.load(Relaxed);
        let pages = blocks.iter().map(|(_, order)| u64::from(order.pages())).sum();
        let _returning = Meanwhile::add(&self.service.returning, pages);
        blocks.iter().all(|&(pfn, order)| self.discard(pfn, order, lazily).is_ok())
    }

    pageyard::forward_hooks!(embedder: is_unevictable is_plain dirty_ok node_reclaim node_caches out_of_memory);
}

impl<E: Hooks> Observer for HostPlatform<E> {
    const MEASURE_LOCKS: bool = E::MEASURE_LOCKS;

    const SEES_TUNING: bool = E::SEES_TUNING;

    const SEES_EVERY_BLOCK: bool = E::SEES_EVERY_BLOCK;

    const SEES_TOUCHES: bool = E::SEES_TOUCHES;

    pageyard::forward_hooks!(embedder: sees_every_block event touch report warn);
}

impl<E: Hooks> Defences for HostPlatform<E> {
    fn zero(&self, pfn: Pfn, order: Order) -> bool {
        self.clear(pfn, order);
        if !self.embedder.zero(pfn, order) {
            self.embedder.prepare(pfn, order, Gfp::ZERO);
        }
        true
    }

    fn poison(&self, pfn: Pfn, order: Order) {
        self.take_known_zero(pfn, order.pages().into());
        self.fill(pfn, order, u64::from_ne_bytes([POISON_BYTE; 8]));
        self.embedder.poison(pfn, order);
    }

    fn check_poison(&self, pfn: Pfn, order: Order) -> Option<Corruption> {
        let mut bytes = [0; PAGE_SIZE as usize];
        for (page, words) in self.words(pfn, order)?.chunks(WORDS).enumerate() {
            for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.load(Relaxed).to_ne_bytes());
            }
            if let Some(found) = poison::inspect(&bytes) {
                let at = page * PAGE_SIZE as usize;
                return Some(Corruption {
                    first: at + found.first,
                    last: at + found.last,
                    ..found
                });
            }
        }
        self.embedder.check_poison(pfn, order)
    }

    pageyard::forward_hooks!(embedder: fail page_state unmap map);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeroing_writes_every_word_and_no_other() {
        for n in [0, 1, 2, 7, 512] {
            let words: Vec<_> = (0..n + 2).map(|_| AtomicU64::new(1)).collect();
            store(&words[1..=n], 7);
            let stored = words.iter().map(|w| w.load(Relaxed));
            let wanted = [1].into_iter().chain(std::iter::repeat_n(7, n)).chain([1]);
            assert!(stored.eq(wanted), "{n} words");
        }
    }

    #[test]
    fn every_cpu_maps_to_a_list() {
        let table = CpuTable::new(&[4, 6]);
        assert_eq!([4, 6].map(|c| table.of(c)), [CpuId(4), CpuId(6)]);
        for cpu in 0..300 {
            assert!([CpuId(4), CpuId(6)].contains(&table.of(cpu)), "{cpu}");
        }
    }
}
