//! Parameters that were derived from published figures, and so are no evidence for them.

use serde::Serialize;

/// A parameter of ours that was derived from a published figure of an experiment.
///
/// ```
/// use pageyard_lab::reproduce::by_name;
///
/// let faults = by_name("bulk-free")?;
/// assert!(faults.anchors.iter().any(|a| a.parameter.contains("page fault")));
/// # Ok::<(), pageyard_lab::reproduce::ReproduceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Anchor {
    /// The parameter, with its value.
    pub parameter: &'static str,
    /// The figure from which it was derived, with its source.
    pub figure: &'static str,
    /// What this means for the comparison.
    pub consequence: &'static str,
}

/// The cost of a page fault.
pub(super) const FAULT: Anchor = Anchor {
    parameter: "a page fault without zeroing and allocating the page: 400 ns",
    figure: "A.1, page_fault1 of two processes, vanilla: 2,694,662 pages/s",
    consequence: "the rates of two processes do not count; the other rates of page_fault1 are predictions",
};

/// The cost of removing a page from the page cache.
pub(super) const FORGET: Anchor = Anchor {
    parameter: "removing a page from the page cache without freeing it: 150 ns",
    figure: "A.1, trunc on one socket, vanilla: 540 ms for 10 GiB",
    consequence: "vanilla's time on one socket is no prediction; the changes against it are",
};

/// The file pages of a build.
pub(super) const FILES: Anchor = Anchor {
    parameter: "file pages of a build: 16.8 times the recorded ones",
    figure: "A.3, pages reclaimed per build, mean of both kernels: 244,586",
    consequence: "the reclaimed pages do not count",
};

/// The load of the hygiene experiment.
pub(super) const LOAD: Anchor = Anchor {
    parameter: "reclaimable slab 50 times the recorded, reclaimed twice as fast as files; huge pages \
                requested as by a machine of 8 GiB, held for 1 s",
    figure: "A.3, mismatches of vanilla, which end too soon under less pressure",
    consequence: "vanilla's mismatches do not count; the table below has other values",
};
