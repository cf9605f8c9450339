//! Sums over all cases, also over those that are not kept.

use std::collections::{HashMap, HashSet};

use super::case::{Case, Happened, User};
use crate::replay::names::Names;

/// Cases that are alike: what happened, the requested type and order, and the type of the block
/// that the request took from another type.
pub(super) type Reason = (Happened, u8, Option<u8>, u8);

/// Cases of one task's name: failed, slow, claims, steals.
pub(super) type Counts = [u64; 4];

/// Sums over cases.
#[derive(Clone, Debug, Default)]
pub(in crate::replay) struct Totals {
    pub(super) reasons: HashMap<Reason, u64>,
    /// By the number of the task's name, of the requests.
    pub(super) tasks: HashMap<Option<u32>, Counts>,
    /// By name and flags of the users: cases in which they stood in the way, and their pages,
    /// summed over these cases.
    pub(super) users: HashMap<Option<(u32, u32)>, (u64, u64)>,
}

/// Returns the index of a case in [`Counts`].
pub(super) fn kind(happened: Happened) -> usize {
    match happened {
        Happened::Failed(_) => 0,
        Happened::Slow(_) => 1,
        Happened::Claim => 2,
        Happened::Steal => 3,
    }
}

impl Totals {
    pub(super) fn add(&mut self, case: &Case, names: &Names) {
        self.change(case, names, 1);
    }

    pub(super) fn remove(&mut self, case: &Case, names: &Names) {
        self.change(case, names, -1);
    }

    fn change(&mut self, case: &Case, names: &Names, by: i64) {
        let add = |n: &mut u64, by: i64| *n = n.saturating_add_signed(by);
        let found = case.found.map(|f| f.1);
        let reason = (case.happened, case.wanted, found, case.order);
        add(self.reasons.entry(reason).or_default(), by);
        let name = case.task.map(|task| names.number(task));
        add(&mut self.tasks.entry(name).or_default()[kind(case.happened)], by);
        let own = case.own.as_ref().map(|own| &own.1);
        // A request may have several users: in two places, or of several kinds without an event.
        let mut counted = HashSet::new();
        for user in case.place.iter().chain(own).flat_map(|p| &p.users) {
            let User { request, pages, .. } = *user;
            let sum = self.users.entry(request).or_default();
            if counted.insert(request) {
                add(&mut sum.0, by);
            }
            add(&mut sum.1, by * i64::from(pages));
        }
    }

    /// Returns the cases of each kind.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = [0; 4];
        for counts in self.tasks.values() {
            sum.iter_mut().zip(counts).for_each(|(s, n)| *s += n);
        }
        sum
    }
}
