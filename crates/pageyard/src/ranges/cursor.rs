//! Contiguous ranges from where the last search ended, so that repeated calls do not look again at the
//! start of memory.

use core::ops::Range;

use crate::allocator::yard::Yard;
use crate::base::gfp::Gfp;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::{MigrateType, Pfn};
use crate::embedder::config::Config;
use crate::ranges::contig::ContigError;

/// Where a search for contiguous pages continues: a hint, which any number of threads may share. Keep
/// one for each range in which you search, such as a zone.
///
/// Two words, of which any bits are valid: where the next search begins, then the number of pageblocks
/// looked at.
///
/// ```
/// # use pageyard::*;
/// # type Y = Yard<'static, Bare<spin::mutex::SpinMutex<()>, ()>>;
/// # let yard = Y::from_memory_map(&[0x1_0000_0000..0x1_0800_0000], &[], 1, ()).unwrap();
/// static CURSOR: ContigCursor = ContigCursor::new();
///
/// let (all, t) = (Pfn(0x10_0000)..Pfn(0x10_8000), MigrateType::Movable);
/// let first = yard.alloc_contig_pages_from(&CURSOR, 4096, 1, all.clone(), t, Gfp::KERNEL)?;
/// let second = yard.alloc_contig_pages_from(&CURSOR, 4096, 1, all, t, Gfp::KERNEL)?;
/// assert!(second.0 >= first.0 + 4096);
/// # Ok::<(), ContigError>(())
/// ```
#[derive(Debug, Default)]
#[repr(C)]
pub struct ContigCursor {
    next: AtomicU64,
    looks: AtomicU64,
}

impl ContigCursor {
    /// Creates a cursor at the start of memory.
    pub const fn new() -> Self {
        ContigCursor { next: AtomicU64::new(0), looks: AtomicU64::new(0) }
    }

    /// Returns how many pageblocks searches with this cursor have looked at.
    pub fn pageblocks_looked_at(&self) -> u64 {
        self.looks.load(Relaxed)
    }
}

impl<C: Config> Yard<'_, C> {
    /// Like [`alloc_contig_pages`](Self::alloc_contig_pages), but begins behind the range that the last
    /// call with this cursor found. What lies before it is searched only if there is no place behind.
    ///
    /// # Errors
    /// As [`alloc_contig_pages`](Self::alloc_contig_pages).
    pub fn alloc_contig_pages_from(
        &self,
        cursor: &ContigCursor,
        pages: u64,
        align: u64,
        within: Range<Pfn>,
        t: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, ContigError> {
        let wanted = self.contig_wanted(pages, align, t, gfp)?;
        let next = Pfn(cursor.next.load(Relaxed)).max(within.start).min(within.end);
        // Ranges that begin before the cursor may end behind it.
        let end = Pfn(next.0.saturating_add(pages.saturating_sub(1))).min(within.end);
        let mut looks = 0;
        let mut search = |range| self.contig_search(&wanted, &range, &mut looks);
        let found = match search(next..within.end) {
            Err(ContigError::NoPlace) => search(within.start..end),
            found => found,
        };
        cursor.looks.fetch_add(looks, Relaxed);
        if let Ok(start) = found {
            cursor.next.store(start.0.saturating_add(pages), Relaxed);
        }
        found
    }
}
