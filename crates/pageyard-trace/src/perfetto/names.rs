//! The names that events give to threads. Most events repeat a known name; only changes are kept.

use std::collections::HashMap;

/// The last name of each thread.
#[derive(Default)]
pub(super) struct Names(HashMap<u32, Seen>);

/// A name, and the times between which it was seen.
struct Seen {
    comm: Box<[u8]>,
    from: u64,
    until: u64,
}

impl Names {
    /// Notes that a thread has a name at a time. Events of different CPUs come in any order. Passes
    /// the times and names to `change` that must be known to tell the name at any time.
    pub(super) fn see(
        &mut self,
        t_ns: u64,
        tid: u32,
        comm: &[u8],
        mut change: impl FnMut(u64, &[u8]),
    ) {
        let new = Seen { comm: comm.into(), from: t_ns, until: t_ns };
        match self.0.get_mut(&tid) {
            Some(seen) if *seen.comm == *comm && t_ns >= seen.from => {
                seen.until = seen.until.max(t_ns);
                return;
            }
            Some(seen) if t_ns < seen.until => {
                // The later name was seen again after this one.
                change(seen.until, &seen.comm);
                seen.from = seen.until;
            }
            Some(seen) => *seen = new,
            None => _ = self.0.insert(tid, new),
        }
        change(t_ns, comm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_order_of_time_tell_the_name_at_each_time() {
        let mut names = Names::default();
        let mut changes = Vec::new();
        for (t, comm) in [(10, "a"), (30, "a"), (20, "b"), (40, "a"), (5, "a"), (50, "c")] {
            names.see(t, 7, comm.as_bytes(), |t, comm| changes.push((t, comm.to_vec())));
        }
        changes.sort();
        let at = |t| changes.iter().rfind(|(from, _)| *from <= t).map(|(_, comm)| comm[0]);
        let found: Vec<_> = [4, 5, 12, 25, 35, 45, 55].map(at).into_iter().flatten().collect();
        assert_eq!(found, b"aabaac");
        // A name that is seen again costs nothing.
        names.see(60, 7, b"c", |_, _| panic!("no change"));
    }
}
