//! Which lists the tracks of the same work keep: the same ones in all of them, so that they can be
//! compared.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::{ListTrack, Track};

type Key = (u32, u16, String);

fn key(l: &ListTrack) -> Key {
    (l.cpu, l.node, l.zone.clone())
}

/// Reduces the lists of tracks to the `limit` busiest of all tracks together, in the order of CPUs.
/// Lists that are active in no track are dropped.
pub(crate) fn keep_common(tracks: &mut [&mut Track], limit: usize) {
    // Moves of each list under all policies, and whether it ever had pages.
    let mut all: BTreeMap<Key, (u64, bool)> = BTreeMap::new();
    for l in tracks.iter().flat_map(|t| &t.lists) {
        let moves = l.refills.iter().chain(&l.drains).fold(0, |sum: u64, n| sum.saturating_add(*n));
        let sum = all.entry(key(l)).or_default();
        sum.0 = sum.0.saturating_add(moves);
        sum.1 |= l.count.iter().any(|&n| n > 0);
    }
    let mut active: Vec<(Key, u64)> =
        all.into_iter().filter(|(_, a)| a.0 > 0 || a.1).map(|(k, a)| (k, a.0)).collect();
    active.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    let left_out = active.len().saturating_sub(limit) as u64;
    active.truncate(limit);
    let mut kept: Vec<Key> = active.into_iter().map(|a| a.0).collect();
    kept.sort();
    for track in tracks {
        track.lists.retain(|l| kept.binary_search(&key(l)).is_ok());
        track.lists.sort_by_key(key);
        track.lists_left_out = left_out;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cpu: u32, moves: u64, count: i64) -> ListTrack {
        let (refills, drains) = (vec![moves], vec![0]);
        let zone = "Normal".to_owned();
        ListTrack { cpu, node: 0, zone, high: vec![1], count: vec![count], refills, drains }
    }

    #[test]
    fn all_tracks_keep_the_same_lists_the_busiest_of_all_together() {
        let track = |lists: Vec<ListTrack>| Track { lists, ..Track::default() };
        // CPU 2 is the busiest under the second policy and idle under the first.
        let mut a = track(vec![list(0, 9, 0), list(1, 1, 0), list(2, 0, 0), list(3, 0, 0)]);
        let mut b = track(vec![list(3, 0, 0), list(0, 1, 0), list(1, 2, 0), list(2, 50, 0)]);
        keep_common(&mut [&mut a, &mut b], 2);
        let cpus = |t: &Track| t.lists.iter().map(|l| l.cpu).collect::<Vec<_>>();
        assert_eq!((cpus(&a), cpus(&b)), (vec![0, 2], vec![0, 2]));
        assert_eq!((a.lists_left_out, b.lists_left_out), (1, 1), "CPU 3 was never active");
        // A list that only holds pages is active.
        let mut one = track(vec![list(0, 0, 5), list(1, 0, 0)]);
        keep_common(&mut [&mut one], 8);
        assert_eq!((cpus(&one), one.lists_left_out), (vec![0], 0));
    }
}
