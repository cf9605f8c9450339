//! The fast path of requests and frees changes no result (§2.7, §5.9): a yard without it returns
//! the same blocks, emits the same events and ends in the same state.

use crate::common;

use common::ops::{Op, Session, config, machine, op};
use common::{Chosen, LINUX612, Machine, all_records};
use pageyard::policy::*;
use pageyard::{Event, Pfn, Record, ZoneId, ZoneStats};
use proptest::prelude::*;

/// Everything observable about a run.
#[derive(PartialEq, Debug)]
struct Seen {
    answers: Vec<Option<Pfn>>,
    events: Vec<Event>,
    stats: Vec<ZoneStats>,
    state: Vec<(ZoneId, Vec<Record>)>,
}

fn seen(rules: Chosen, machine: &Machine, ops: &[Op], whole_way: bool) -> Seen {
    machine.run_under(rules, |y| {
        y.hooks().watch();
        let mut s = Session::new(y, machine);
        s.whole_way = whole_way;
        ops.iter().for_each(|op| s.apply(op));
        Seen {
            answers: s.answers,
            events: y.hooks().events(),
            stats: y.zone_ids().map(|k| y.zone_stats(k).unwrap()).collect(),
            state: all_records(y),
        }
    })
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn s2_7_the_fast_path_answers_like_the_slow_path(
        machine in machine(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        for rules in [LINUX612, &Step9::RULES] {
            let (quick, whole) = (seen(rules, &machine, &ops, false), seen(rules, &machine, &ops, true));
            prop_assert_eq!(quick, whole);
        }
    }
}
