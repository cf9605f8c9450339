//! When the kernel's background reclaim was at work (spec §7.2): from its own tracepoints where the
//! trace has them, else from what its threads did with pages.

use std::fmt;

use pageyard_trace::{Compaction, Event, Tasks};
use serde::Serialize;

/// kswapd naps for a tenth of a second before it sleeps, and is not reclaiming then (spec §7.2).
const NAP_NS: u64 = 100_000_000;

/// Where the times of background reclaim come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReclaimSource {
    /// The trace shows nothing of it.
    #[default]
    None,
    /// The tracepoints `mm_vmscan_kswapd_wake` and `mm_vmscan_kswapd_sleep`.
    Recorded,
    /// Page events of the threads `kswapdN`: inferred.
    Inferred,
}

/// What is known of background reclaim, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReclaimFigures {
    /// Where its times come from.
    pub source: ReclaimSource,
    /// Times that it was at work, all nodes together.
    pub runs: u64,
    /// Milliseconds for which it was at work, all nodes together.
    pub active_ms: u64,
    /// Requests that reclaimed memory themselves, as far as the tracepoints tell.
    pub direct: u64,
}

impl fmt::Display for ReclaimFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReclaimFigures { source, runs, active_ms, direct } = *self;
        match source {
            ReclaimSource::None => f.write_str("none: no event of kswapd"),
            ReclaimSource::Recorded => write!(
                f,
                "kswapd at work {runs} times, {active_ms} ms together, and {direct} direct \
                 reclaims: by their tracepoints"
            ),
            ReclaimSource::Inferred => write!(
                f,
                "kswapd at work {runs} times, {active_ms} ms together: inferred from its page \
                 events"
            ),
        }
    }
}

/// Reclaim begins or ends on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// When.
    pub(super) t_ns: u64,
    /// On which node.
    pub(super) node: u16,
    /// It begins.
    pub(super) begins: bool,
}

/// Collects the times of background reclaim in the first pass.
#[derive(Default)]
pub(super) struct Observations {
    nodes: Vec<Node>,
    /// Per task seen, the node that it reclaims, plus one; 0: none. Entered on first sight.
    threads: Vec<u32>,
    direct: u64,
}

/// What is seen of one node's thread.
#[derive(Default)]
struct Node {
    /// Its runs by its tracepoints.
    recorded: Runs,
    /// There were tracepoints.
    told: bool,
    /// Its runs by its page events.
    inferred: Runs,
    last_page_ns: Option<u64>,
}

impl Node {
    /// A nap has ended. It began after the thread's last page, and was no longer than it may be.
    fn nap(&mut self, t_ns: u64) {
        let longest = t_ns.saturating_sub(NAP_NS);
        self.recorded.end(self.last_page_ns.map_or(longest, |last| last.max(longest)));
    }
}

/// Times from, to; the last one may have no end yet.
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

/// The greatest number of a node that a name may tell: no kernel has more.
const MOST_NODE: u16 = 1023;

impl Observations {
    fn node(&mut self, node: u16) -> &mut Node {
        let at = usize::from(node.min(MOST_NODE));
        if self.nodes.len() <= at {
            self.nodes.resize_with(at + 1, Node::default);
        }
        &mut self.nodes[at]
    }

    /// A page event.
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

    /// One of reclaim's tracepoints.
    pub(super) fn see_point(&mut self, t_ns: u64, what: &Compaction) {
        match *what {
            Compaction::KswapdWake { node, .. } => {
                let node = self.node(node);
                node.told = true;
                // Where it was at work before, a request has cut its nap short.
                node.nap(t_ns);
                node.recorded.begin(t_ns);
            }
            Compaction::KswapdSleep { node } => {
                let node = self.node(node);
                node.told = true;
                node.nap(t_ns);
            }
            Compaction::DirectReclaimBegin { .. } => self.direct += 1,
            _ => {}
        }
    }

    /// All that was seen, in order of time; `end_ns` is the trace's end.
    pub(super) fn finish(&mut self, end_ns: u64) -> (Vec<Turn>, ReclaimFigures) {
        let told = self.nodes.iter().any(|n| n.told);
        let mut figures = ReclaimFigures { direct: self.direct, ..ReclaimFigures::default() };
        let mut turns = Vec::new();
        for (number, node) in (0..).zip(&mut self.nodes) {
            let last = node.last_page_ns.unwrap_or(end_ns);
            node.recorded.end(end_ns);
            node.inferred.end(last);
            let runs = if told { &node.recorded.done } else { &node.inferred.done };
            for &(from, to) in runs {
                figures.runs += 1;
                figures.active_ms += (to - from) / 1_000_000;
                turns.push(Turn { t_ns: from, node: number, begins: true });
                turns.push(Turn { t_ns: to, node: number, begins: false });
            }
        }
        figures.source = match (told, figures.runs, figures.direct) {
            (true, ..) | (false, 0, 1..) => ReclaimSource::Recorded,
            (false, 0, 0) => ReclaimSource::None,
            (false, 1.., _) => ReclaimSource::Inferred,
        };
        // A run that ends at once still begins before it ends.
        turns.sort_by_key(|turn| turn.t_ns);
        (turns, figures)
    }
}

/// The node of a thread of background reclaim: `kswapd0`.
fn node_of(comm: &str) -> Option<u16> {
    comm.strip_prefix("kswapd")?.parse().ok().filter(|&node| node <= MOST_NODE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn spans(turns: &[Turn]) -> Vec<(u64, bool)> {
        turns.iter().map(|turn| (turn.t_ns, turn.begins)).collect()
    }

    #[test]
    fn page_events_of_a_thread_are_one_run_until_it_naps() {
        let mut o = Observations::default();
        for t in [10, 40, 80] {
            o.see_page(0, SECOND + t * 1_000_000);
        }
        o.see_page(0, 3 * SECOND);
        let (turns, figures) = o.finish(9 * SECOND);
        let (first, last) = (SECOND + 10_000_000, SECOND + 80_000_000);
        let second = 3 * SECOND;
        assert_eq!(spans(&turns), [(first, true), (last, false), (second, true), (second, false)]);
        assert_eq!((figures.source, figures.runs), (ReclaimSource::Inferred, 2));
        assert_eq!(figures.active_ms, 70);
    }

    #[test]
    fn tracepoints_count_for_more_than_page_events() {
        let mut o = Observations::default();
        o.see_point(SECOND, &Compaction::KswapdWake { node: 0, order: None });
        o.see_page(0, SECOND + 5);
        o.see_point(2 * SECOND, &Compaction::KswapdSleep { node: 0 });
        // Woken out of its nap: it was at work until its last page.
        o.see_point(3 * SECOND, &Compaction::KswapdWake { node: 0, order: None });
        o.see_page(0, 3 * SECOND + 7);
        o.see_point(3 * SECOND + 50, &Compaction::KswapdWake { node: 0, order: None });
        let (turns, figures) = o.finish(4 * SECOND);
        assert_eq!(
            spans(&turns),
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
    fn a_trace_without_reclaim_has_no_turns() {
        let (turns, figures) = Observations::default().finish(SECOND);
        assert!(turns.is_empty());
        assert_eq!(figures, ReclaimFigures::default());
        // Direct reclaim says nothing of kswapd, whose pages then do.
        let mut o = Observations::default();
        o.see_point(SECOND, &Compaction::DirectReclaimBegin { order: None, gfp: 0 });
        assert_eq!(o.finish(2 * SECOND).1.source, ReclaimSource::Recorded);
        o.see_page(0, SECOND);
        assert_eq!(o.finish(2 * SECOND).1.source, ReclaimSource::Inferred);
        // Tracepoints that tell that nothing happened are no inference.
        let mut o = Observations::default();
        o.see_point(SECOND, &Compaction::KswapdSleep { node: 0 });
        let (turns, figures) = o.finish(2 * SECOND);
        assert!(turns.is_empty());
        assert_eq!(figures.source, ReclaimSource::Recorded);
    }

    #[test]
    fn threads_are_known_by_their_names() {
        assert_eq!(node_of("kswapd12"), Some(12));
        assert_eq!(node_of("kswapd"), None);
        assert_eq!(node_of("kswapd99999"), None);
        assert_eq!(node_of("cat"), None);
    }
}
