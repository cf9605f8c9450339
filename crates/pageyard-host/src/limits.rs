//! Limits of the memory that a yard may use. The reserves are within the hard limit.

use pageyard::{MAX_ORDER, PAGE_SIZE};

/// Limits of a yard, in pages.
///
/// ```
/// use pageyard_host::{Builder, Limits};
///
/// let yard = Builder::new(16 << 20).build()?;
/// yard.set_limits(Limits { hard: Some(2048), soft: Some(1024) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Maximum number of pages in use or on per-CPU lists, including the reserves. Ordinary
    /// requests already fail at the MIN watermark; critical ones ([`HIGH`](pageyard::Gfp::HIGH),
    /// [`MEMALLOC`](pageyard::Gfp::MEMALLOC)) succeed up to this limit.
    pub hard: Option<u64>,
    /// Above this number of pages in use, shrinkers are asked for the excess, and the pressure
    /// level is at least [`Moderate`](crate::Level::Moderate).
    pub soft: Option<u64>,
}

/// Invalid limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The hard limit exceeds the size of the yard, or is too small to serve requests.
    #[error("hard_limit: {given} pages; expected {least} to {most}")]
    Hard {
        /// Requested limit in pages.
        given: u64,
        /// Minimum in pages: the largest block for each node.
        least: u64,
        /// Maximum in pages: the whole yard.
        most: u64,
    },
    /// The soft limit exceeds the hard limit or the size of the yard.
    #[error("soft_limit: {given} pages exceed the hard limit of {hard}")]
    Soft {
        /// Requested limit in pages.
        given: u64,
        /// The hard limit, or the size of the yard, in pages.
        hard: u64,
    },
}

impl Limits {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_limits_are_rejected() {
        let check = |hard, soft| Limits { hard, soft }.check(10_000, 2).map_err(|e| e.to_string());
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(Some(2048), Some(2048)), Ok(()));
        let text = |t: &str| Err(t.to_owned());
        assert_eq!(check(Some(2047), None), text("hard_limit: 2047 pages; expected 2048 to 10000"));
        assert_eq!(
            check(Some(10_001), None),
            text(
                "hard_limit: 10001 pages; expected 2048 to \
                 10000"
            )
        );
        let more = "pages exceed the hard limit of";
        assert_eq!(check(Some(5000), Some(5001)), text(&format!("soft_limit: 5001 {more} 5000")));
        assert_eq!(check(None, Some(10_001)), text(&format!("soft_limit: 10001 {more} 10000")));
    }
}
