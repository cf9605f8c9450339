//! How much a yard may hand out. The reserves are within the hard limit.

use pageyard::{MAX_ORDER, PAGE_SIZE};

/// Limits of a yard, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// No more than so many are handed out or lie on per-CPU lists, the reserves included: ordinary
    /// requests fail at the MIN mark before, critical ones
    /// ([`HIGH`](pageyard::Gfp::HIGH), [`MEMALLOC`](pageyard::Gfp::MEMALLOC)) go on up to here.
    pub hard: Option<u64>,
    /// Above this, shrinkers are asked for what is over, and the level of pressure is
    /// [`Moderate`](crate::Level::Moderate) at least.
    pub soft: Option<u64>,
}

/// Limits that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LimitError {
    /// The hard limit is more than there is, or too little to serve anybody.
    #[error("hard_limit: {given} pages; give {least} to {most}")]
    Hard {
        /// What was asked for.
        given: u64,
        /// The least there can be: the largest block for each node.
        least: u64,
        /// The most there can be: all of the yard.
        most: u64,
    },
    /// The soft limit is more than the hard one.
    #[error("soft_limit: {given} pages are more than the hard limit, {hard}")]
    Soft {
        /// What was asked for.
        given: u64,
        /// The hard limit, or the size of the yard.
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

/// Bytes as pages, rounded down.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes / PAGE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_be() {
        let check = |hard, soft| Limits { hard, soft }.check(10_000, 2).map_err(|e| e.to_string());
        assert_eq!(check(None, None), Ok(()));
        assert_eq!(check(Some(2048), Some(2048)), Ok(()));
        let text = |t: &str| Err(t.to_owned());
        assert_eq!(check(Some(2047), None), text("hard_limit: 2047 pages; give 2048 to 10000"));
        assert_eq!(check(Some(10_001), None), text("hard_limit: 10001 pages; give 2048 to 10000"));
        let more = "pages are more than the hard limit,";
        assert_eq!(check(Some(5000), Some(5001)), text(&format!("soft_limit: 5001 {more} 5000")));
        assert_eq!(check(None, Some(10_001)), text(&format!("soft_limit: 10001 {more} 10000")));
    }
}
