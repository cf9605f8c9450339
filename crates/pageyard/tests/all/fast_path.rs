//! Seed figures A.2: the ideas that keep the common case short change no answer. A yard without one of
//! them gives the same blocks, tells the same events and ends in the same state.

use crate::common;

use common::ops::{Op, Session, config, machine, op};
use common::{Chosen, LINUX612, Machine, all_records};
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

fn seen(rules: Chosen, machine: &Machine, ops: &[Op]) -> Seen {
    machine.run_under(rules, |y| {
        y.platform().watch();
        let mut s = Session::new(y, machine);
        ops.iter().for_each(|op| s.apply(op));
        Seen {
            answers: s.answers,
            events: y.platform().events(),
            stats: y.zone_ids().map(|k| y.zone_stats(k).unwrap()).collect(),
            state: all_records(y),
        }
    })
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn a2_no_idea_changes_an_answer(
        machine in machine(),
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let today = seen(LINUX612, &machine, &ops);
        prop_assert_eq!(&seen(&<ZoneByBranches>::RULES, &machine, &ops), &today);
        prop_assert_eq!(&seen(&<FlagsAgain>::RULES, &machine, &ops), &today);
        prop_assert_eq!(&seen(&<OnePath>::RULES, &machine, &ops), &today);
        prop_assert_eq!(&seen(&<TypeAgain>::RULES, &machine, &ops), &today);
        type None = ZoneByBranches<FlagsAgain<OnePath<TypeAgain>>>;
        prop_assert_eq!(&seen(&<None>::RULES, &machine, &ops), &today);
    }
}
