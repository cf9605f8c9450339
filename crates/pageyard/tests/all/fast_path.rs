//! The common case of a request and of a free has code of its own, which changes no answer (§2.7, §5.9):
//! a yard without it gives the same blocks, emits the same events and ends in the same state.

use crate::common;

use common::ops::{Op, Session, config, machine, op};
use common::{Machine, Y, all_records};
use pageyard::policy::*;
use pageyard::{Event, Pfn, Record, ZoneId, ZoneStats};
use proptest::prelude::*;

/// All that can be seen of a run.
#[derive(PartialEq, Debug)]
struct Seen {
    answers: Vec<Option<Pfn>>,
    events: Vec<Event>,
    stats: Vec<ZoneStats>,
    state: Vec<(ZoneId, Vec<Record>)>,
}

fn seen<P: StaticPolicy>(machine: &Machine, ops: &[Op], whole_way: bool) -> Seen {
    machine.run(|y: &Y<'_, P>| {
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
    fn s2_7_the_common_case_answers_as_the_whole_way_does(
        machine in machine(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        prop_assert_eq!(seen::<Linux612>(&machine, &ops, true), seen::<Linux612>(&machine, &ops, false));
        prop_assert_eq!(seen::<Step9>(&machine, &ops, true), seen::<Step9>(&machine, &ops, false));
    }
}
