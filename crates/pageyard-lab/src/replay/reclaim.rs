//! When the kernel's background reclaim was active (spec §7.2): from its tracepoints if the trace
//! has them, else inferred from the page events of its threads.

use std::fmt;

use pageyard_trace::{Compaction, Event, Tasks};
use serde::Serialize;

use crate::format::{duration, grouped};

/// Before it sleeps, kswapd naps for up to 0.1 s in which it does not reclaim (spec §7.2).
const NAP_NS: u64 = 100_000_000;

/// The source of the times of background reclaim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReclaimSource {
    /// The trace shows no background reclaim.
    #[default]
    None,
    /// The tracepoints `mm_vmscan_kswapd_wake` and `mm_vmscan_kswapd_sleep`.
    Recorded,
    /// Inferred from page events of the threads `kswapdN`.
    Inferred,
}

/// Summary of background reclaim for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReclaimFigures {
    /// The source of the times.
    pub source: ReclaimSource,
    /// Number of active periods, all nodes together.
    pub runs: u64,
    /// Total active time in milliseconds, all nodes together.
    pub active_ms: u64,
    /// Direct reclaims, as far as the tracepoints show.
    pub direct: u64,
}

impl fmt::Display for ReclaimFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReclaimFigures { source, .. } = *self;
        let [runs, direct] = [self.runs, self.direct].map(grouped);
        let active = duration(self.active_ms.saturating_mul(1_000_000));
        match source {
            ReclaimSource::None => f.write_str("none: no events of kswapd"),
            ReclaimSource::Recorded => write!(
                f,
                "kswapd active {runs} times, {active} in total, and {direct} direct reclaims: \
                 recorded by tracepoints"
            ),
            ReclaimSource::Inferred => write!(
                f,
                "kswapd active {runs} times, {active} in total: inferred from its page events"
            ),
        }
    }
}

/// Returns whether a direct reclaim or a compaction ended. A request that still finds no block then
/// drains the per-CPU lists of all CPUs.
pub(super) fn ends_work(what: &Compaction) -> bool {
    matches!(what, Compaction::DirectReclaimEnd { .. } | Compaction::End { .. })
}

/// A start or end of reclaim on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    /// Time in nanoseconds.
    pub(super) t_ns: u64,
    /// The node.
    pub(super) node: u16,
    /// Whether reclaim starts.
    pub(super) begins: bool,
}

/// Collects the times of background reclaim in the first pass.
#[derive(Default)]
pub(super) struct ReclaimTimes {
    nodes: Vec<Node>,
    /// Per task seen: the node that it reclaims, plus one, or 0 for none. Filled on first sight.
    threads: Vec<u32>,
    direct: u64,
}

/// Observations of one node's kswapd.
#[derive(Default)]
struct Node {
    /// Active periods according to the tracepoints.
    recorded: Runs,
    /// Whether there were tracepoints.
    has_tracepoints: bool,
    /// Active periods inferred from page events.
    inferred: Runs,
    last_page_ns: Option<u64>,
}

impl Node {
    /// Ends a nap. The nap began after the thread's last page and lasted at most [`NAP_NS`].
    fn nap(&mut self, t_ns: u64) {
        let longest = t_ns.saturating_sub(NAP_NS);
        self.recorded.end(self.last_page_ns.map_or(longest, |last| last.max(longest)));
    }
}

/// Periods as (start, end). The last one may still be open.
#[derive(Default)]
struct Runs {
    done: Vec<(u64, u64)>,
    open: Option<u64>,
}

impl Runs {
    fn begin(&mut self, t_ns: u64) {
        self.open.get_or_insert(t_ns);
    }

    fn end(&mut self, t_ns: u64) {
        if let Some(from) = self.open.take() {
            self.done.push((from, t_ns.max(from)));
        }
    }
}

/// Highest node number accepted in a thread name: no kernel has more nodes.
const MOST_NODE: u16 = 1023;

impl ReclaimTimes {
    fn node(&mut self, node: u16) -> &mut Node {
        let at = usize::from(node.min(MOST_NODE));
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, Node::default);
        }
        &mut self.nodes[at]
    }

    /// Observes a page event.
    #[inline(always)]
    pub(super) fn see(&mut self, event: &Event, tasks: &Tasks) {
        if self.threads.len() <= event.task as usize {
            self.enter(event.task, tasks);
        }
        if let Some(node) = self.threads[event.task as usize].checked_sub(1) {
            self.see_page(node as u16, event.t_ns);
        }
    }

    #[cold]
    fn enter(&mut self, task: u32, tasks: &Tasks) {
        while self.threads.len() <= task as usize {
            let of = tasks.get(self.threads.len() as u32).and_then(|t| node_of(&t.comm));
            self.threads.push(of.map_or(0, |node| u32::from(node) + 1));
        }
    }

    #[cold]
    fn see_page(&mut self, node: u16, t_ns: u64) {
        let node = self.node(node);
        if let Some(last) = node.last_page_ns
            && t_ns.saturating_sub(last) >= NAP_NS
        {
            node.inferred.end(last);
        }
        node.inferred.begin(t_ns);
        node.last_page_ns = Some(t_ns);
    }

    /// Observes one of reclaim's tracepoints.
    pub(super) fn see_point(&mut self, t_ns: u64, what: &Compaction) {
        match *what {
            Compaction::KswapdWake { node, .. } => {
                let node = self.node(node);
                node.has_tracepoints = true;
                // If kswapd was active before, a request cut its nap short.
                node.nap(t_ns);
                node.recorded.begin(t_ns);
            }
            Compaction::KswapdSleep { node } => {
                let node = self.node(node);
                node.has_tracepoints = true;
                node.nap(t_ns);
            }
            Compaction::DirectReclaimBegin { .. } => self.direct += 1,
            _ => {}
        }
    }

    /// Returns all observations in order of time. `end_ns` is the trace's end.
    pub(super) fn finish(&mut self, end_ns: u64) -> (Vec<Transition>, ReclaimFigures) {
        let has_tracepoints = self.nodes.iter().any(|n| n.has_tracepoints);
        let mut figures = ReclaimFigures { direct: self.direct, ..ReclaimFigures::default() };
        let mut transitions = Vec::new();
        for (number, node) in (0..).zip(&mut self.nodes) {
            let last = node.last_page_ns.unwrap_or(end_ns);
            node.recorded.end(end_ns);
            node.inferred.end(last);
            let runs = if has_tracepoints { &node.recorded.done } else { &node.inferred.done };
            for &(from, to) in runs {
                figures.runs += 1;
                figures.active_ms += (to - from) / 1_000_000;
                transitions.push(Transition { t_ns: from, node: number, begins: true });
                transitions.push(Transition { t_ns: to, node: number, begins: false });
            }
        }
        figures.source = match (has_tracepoints, figures.runs, figures.direct) {
            (true, ..) | (false, 0, 1..) => ReclaimSource::Recorded,
            (false, 0, 0) => ReclaimSource::None,
            (false, 1.., _) => ReclaimSource::Inferred,
        };
        // The sort is stable: a period of length zero still starts before it ends.
        transitions.sort_by_key(|turn| turn.t_ns);
        (transitions, figures)
    }
}

/// Returns the node of a background reclaim thread such as `kswapd0`.
fn node_of(comm: &str) -> Option<u16> {
    comm.strip_prefix("kswapd")?.parse().ok().filter(|&node| node <= MOST_NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spans(transitions: &[Transition]) -> Vec<(u64, bool)> {
        transitions.iter().map(|turn| (turn.t_ns, turn.begins)).collect()
    }

    #[test]
    fn page_events_of_kswapd_form_one_run_until_a_pause() {
        let mut o = ReclaimTimes::default();
        for t in [10, 40, 80] {
            o.see_page(0, SECOND + t * 1_000_000);
        }
        o.see_page(0, 3 * SECOND);
        let (transitions, figures) = o.finish(9 * SECOND);
        let (first, last) = (SECOND + 10_000_000, SECOND + 80_000_000);
        let second = 3 * SECOND;
        assert_eq!(
            spans(&transitions),
            [(first, true), (last, false), (second, true), (second, false)]
        );
        assert_eq!((figures.source, figures.runs), (ReclaimSource::Inferred, 2));
        assert_eq!(figures.active_ms, 70);
    }

    #[test]
    fn tracepoints_take_precedence_over_page_events() {
        let mut o = ReclaimTimes::default();
        o.see_point(SECOND, &Compaction::KswapdWake { node: 0, order: None });
        o.see_page(0, SECOND + 5);
        o.see_point(2 * SECOND, &Compaction::KswapdSleep { node: 0 });
        // Woken during its nap: it was active until its last page.
        o.see_point(3 * SECOND, &Compaction::KswapdWake { node: 0, order: None });
        o.see_page(0, 3 * SECOND + 7);
        o.see_point(3 * SECOND + 50, &Compaction::KswapdWake { node: 0, order: None });
        let (transitions, figures) = o.finish(4 * SECOND);
        assert_eq!(
            spans(&transitions),
            [
                (SECOND, true),
                (2 * SECOND - NAP_NS, false),
                (3 * SECOND, true),
                (3 * SECOND + 7, false),
                (3 * SECOND + 50, true),
                (4 * SECOND, false),
            ]
        );
        assert_eq!((figures.source, figures.runs), (ReclaimSource::Recorded, 3));
    }

    #[test]
    fn a_trace_without_reclaim_has_no_runs() {
        let (transitions, figures) = ReclaimTimes::default().finish(SECOND);
        assert!(transitions.is_empty());
        assert_eq!(figures, ReclaimFigures::default());
        // Direct reclaim says nothing about kswapd. Its page events do.
        let mut o = ReclaimTimes::default();
        o.see_point(SECOND, &Compaction::DirectReclaimBegin { order: None, gfp: 0 });
        assert_eq!(o.finish(2 * SECOND).1.source, ReclaimSource::Recorded);
        o.see_page(0, SECOND);
        assert_eq!(o.finish(2 * SECOND).1.source, ReclaimSource::Inferred);
        // With tracepoints that show no activity, nothing is inferred.
        let mut o = ReclaimTimes::default();
        o.see_point(SECOND, &Compaction::KswapdSleep { node: 0 });
        let (transitions, figures) = o.finish(2 * SECOND);
        assert!(transitions.is_empty());
        assert_eq!(figures.source, ReclaimSource::Recorded);
    }

    #[test]
    fn kswapd_is_recognised_by_name() {
        assert_eq!(node_of("kswapd12"), Some(12));
        assert_eq!(node_of("kswapd"), None);
        assert_eq!(node_of("kswapd99999"), None);
        assert_eq!(node_of("cat"), None);
    }
}
