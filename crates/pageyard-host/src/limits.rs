//! Limits of the memory that a yard may use. The reserves are within the hard limit.

use pageyard::{MAX_ORDER, PAGE_SIZE};

/// Limits of a yard, in pages; [`of_bytes`](Limits::of_bytes) makes them of bytes.
///
/// ```
/// use pageyard_host::{Builder, Limits};
///
/// let yard = Builder::new(16 << 20).build()?;
/// yard.set_limits(Limits::of_bytes(Some(8 << 20), Some(4 << 20)))?;
/// assert_eq!(yard.limits(), Limits { hard: Some(2048), soft: Some(1024) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Maximum number of pages in use or on per-CPU lists, including the reserves. Ordinary
    /// requests already fail at the MIN watermark; critical ones ([`HIGH`](pageyard::Gfp::HIGH),
    /// [`MEMALLOC`](pageyard::Gfp::MEMALLOC)) succeed up to this limit.
    /// [`HostYard::usable`](crate::HostYard::usable) says how much that leaves.
    pub hard: Option<u64>,
    /// Above this number of pages in use, shrinkers are asked for the excess, and the pressure
    /// level is at least [`Moderate`](crate::Level::Moderate).
    pub soft: Option<u64>,
}

/// Invalid limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The hard limit exceeds the size of the yard, or is too small to serve requests.
    #[error(
        "hard_limit: {} bytes ({given} pages); expected {} to {} bytes",
        bytes(*given), bytes(*least), bytes(*most)
    )]
    Hard {
        /// Requested limit in pages.
        given: u64,
        /// Minimum in pages: the largest block for each node.
        least: u64,
        /// Maximum in pages: the whole yard.
        most: u64,
    },
    /// The soft limit exceeds the hard limit or the size of the yard.
    #[error(
        "soft_limit: {} bytes ({given} pages); expected at most the hard limit or the yard's size, \
         {} bytes",
        bytes(*given), bytes(*hard)
    )]
    Soft {
        /// Requested limit in pages.
        given: u64,
        /// The hard limit, or the size of the yard, in pages.
        hard: u64,
    },
}

impl Limits {
    /// Makes limits of bytes. They are rounded down to whole pages of 4 KiB, as by
    /// [`Builder::hard_limit`](crate::Builder::hard_limit): a yard never uses more than the bytes
    /// given.
    pub fn of_bytes(hard: Option<u64>, soft: Option<u64>) -> Limits {
        Limits { hard: hard.map(pages), soft: soft.map(pages) }
    }

    /// Returns the hard limit in bytes.
    pub fn hard_bytes(&self) -> Option<u64> {
        self.hard.map(bytes)
    }

    /// Returns the soft limit in bytes.
    pub fn soft_bytes(&self) -> Option<u64> {
        self.soft.map(bytes)
    }

    pub(crate) fn check(&self, pages: u64, nodes: u64) -> Result<(), LimitError> {
        let least = nodes << MAX_ORDER;
        match (self.hard, self.soft) {
            (Some(given), _) if !(least..=pages).contains(&given) => {
                Err(LimitError::Hard { given, least, most: pages })
            }
            (hard, Some(given)) if given > hard.unwrap_or(pages) => {
                Err(LimitError::Soft { given, hard: hard.unwrap_or(pages) })
            }
            _ => Ok(()),
        }
    }
}

/// Converts bytes to pages, rounding down.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes / PAGE_SIZE
}

/// Converts pages to bytes.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(PAGE_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_limits_are_rejected() {
        let check = |hard, soft| Limits { hard, soft }.check(10_000, 2).map_err(|e| e.to_string());
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(Some(2048), Some(2048)), Ok(()));
        let text = |hard, soft| check(hard, soft).unwrap_err();
        assert_eq!(
            text(Some(2047), None),
            "hard_limit: 8384512 bytes (2047 pages); expected 8388608 to 40960000 bytes"
        );
        assert!(text(Some(10_001), None).starts_with("hard_limit: 40964096 bytes (10001 pages)"));
        let text = [text(Some(5000), Some(5001)), text(None, Some(10_001))];
        assert!(text[0].starts_with("soft_limit: 20484096 bytes (5001 pages)"), "{}", text[0]);
        assert!(text[0].ends_with("20480000 bytes") && text[1].ends_with("40960000 bytes"));
    }

    #[test]
    fn bytes_are_rounded_down_to_pages() {
        let limits = Limits::of_bytes(Some((8 << 20) + 4095), Some(4095));
        assert_eq!(limits, Limits { hard: Some(2048), soft: Some(0) });
        assert_eq!((limits.hard_bytes(), limits.soft_bytes()), (Some(8 << 20), Some(0)));
        assert_eq!(Limits::of_bytes(None, None), Limits::default());
        let most = Limits { hard: Some(u64::MAX), soft: None };
        assert_eq!(most.hard_bytes(), Some(u64::MAX));
    }
}
