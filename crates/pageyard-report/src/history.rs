//! The history of `high` of the per-CPU lists: each change with its reason, kept in a bounded ring
//! for embedders that want it (spec §5.4, §5.8, §5.10, §5.14).

use lock_api::{Mutex, RawMutex};

use pageyard::{CpuId, Event, HighChange, HighReason, ZoneId};

/// Number of reasons.
const REASONS: usize = HighReason::ALL.len();

/// A change and the time it was noted, in the embedder's nanoseconds.
pub type Noted = (u64, HighChange);

/// The last `N` changes of one CPU's `high` in one zone, and the number of changes per reason.
#[derive(Clone, Copy, Debug)]
pub struct Ring<const N: usize> {
    last: [Option<Noted>; N],
    noted: u64,
    by_reason: [u64; REASONS],
}

impl<const N: usize> Ring<N> {
    /// Creates an empty ring.
    pub const fn new() -> Self {
        Ring { last: [None; N], noted: 0, by_reason: [0; REASONS] }
    }

    /// Notes a change, which replaces the oldest one if the ring is full.
    pub fn note(&mut self, now: u64, change: HighChange) {
        let at = self.noted.checked_rem(N as u64).unwrap_or(0);
        if let Some(slot) = self.last.get_mut(at as usize) {
            *slot = Some((now, change));
        }
        self.noted = self.noted.wrapping_add(1);
        if let Some(n) = self.by_reason.get_mut(change.reason as usize) {
            *n = n.wrapping_add(1);
        }
    }

    /// Returns the remembered changes, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Noted> {
        let at = self.noted.checked_rem(N as u64).unwrap_or(0) as usize;
        self.last.iter().skip(at).chain(self.last.iter().take(at)).flatten()
    }

    /// Returns the number of changes, including forgotten ones.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Returns the number of changes with this reason.
    pub fn count(&self, reason: HighReason) -> u64 {
        self.by_reason.get(reason as usize).copied().unwrap_or(0)
    }
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Ring::new()
    }
}

/// A [`Ring`] for each CPU in each zone, in the embedder's memory.
///
/// Hooks that keep one must set [`SEES_TUNING`](pageyard::Observer::SEES_TUNING) and feed it:
///
/// ```
/// use pageyard::{CpuId, Event, Observer, ZoneId, ZoneKind};
/// use pageyard_report::{History, Ring};
/// # type Lock = spin::mutex::SpinMutex<()>;
/// struct Watch<'h> { history: History<'h, Lock, 32> }
///
/// impl Observer for Watch<'_> {
///     const SEES_TUNING: bool = true;
///
///     fn event(&self, cpu: CpuId, event: Event) {
///         let now_ns = 0; // Read the clock here.
///         self.history.note(now_ns, cpu, &event);
///     }
/// }
///
/// let zones = [ZoneId::from(ZoneKind::Normal)];
/// let rings: Vec<_> = (0..4).map(|_| lock_api::Mutex::new(Ring::new())).collect();
/// let watch = Watch { history: History::new(&zones, 4, &rings).unwrap() };
/// assert_eq!(watch.history.read(ZoneKind::Normal, CpuId(3)).unwrap().noted(), 0);
/// ```
#[derive(Debug)]
pub struct History<'h, R: RawMutex, const N: usize> {
    zones: &'h [ZoneId],
    cpus: u32,
    /// Indexed by zone, then by CPU. Locks are held briefly, and nothing is called under them.
    rings: &'h [Mutex<R, Ring<N>>],
}

impl<'h, R: RawMutex, const N: usize> History<'h, R, N> {
    /// Creates a history for these zones and `cpus` CPUs. Returns `None` if there are fewer rings
    /// than zones times CPUs.
    pub fn new(zones: &'h [ZoneId], cpus: u32, rings: &'h [Mutex<R, Ring<N>>]) -> Option<Self> {
        let needed = zones.len().checked_mul(cpus as usize)?;
        (rings.len() >= needed).then_some(History { zones, cpus, rings })
    }

    /// Notes an event if it is a change of `high`.
    pub fn note(&self, now: u64, cpu: CpuId, event: &Event) {
        if let Event::High { zone, change } = event
            && let Some(ring) = self.ring(*zone, cpu)
        {
            ring.lock().note(now, *change);
        }
    }

    /// Returns a copy of the ring of a CPU in a zone, or `None` if there is no such CPU or zone.
    pub fn read(&self, zone: impl Into<ZoneId>, cpu: CpuId) -> Option<Ring<N>> {
        Some(*self.ring(zone.into(), cpu)?.lock())
    }

    fn ring(&self, zone: ZoneId, cpu: CpuId) -> Option<&'h Mutex<R, Ring<N>>> {
        if cpu.0 >= self.cpus {
            return None;
        }
        let zone = self.zones.iter().position(|&z| z == zone)?;
        self.rings.get(zone.checked_mul(self.cpus as usize)?.checked_add(cpu.0 as usize)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_keeps_the_latest_entries() {
        let change =
            |to, reason| HighChange { from: 0, to, count: 0, refills: 0, drains: 0, reason };
        let mut ring = Ring::<4>::new();
        for n in 0..3 {
            ring.note(n, change(n as i32, HighReason::Refill));
        }
        assert!(ring.iter().map(|n| n.0).eq([0, 1, 2]));
        for n in 3..10 {
            ring.note(n, change(n as i32, HighReason::Decay));
        }
        assert!(ring.iter().map(|n| n.1.to).eq([6, 7, 8, 9]));
        assert_eq!((ring.noted(), ring.count(HighReason::Decay)), (10, 7));
        let mut none = Ring::<0>::new();
        none.note(1, change(1, HighReason::Free));
        assert_eq!((none.noted(), none.iter().count()), (1, 0));
    }
}
