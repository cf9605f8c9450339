//! One schedule: which task continues, choice by choice.

use std::fmt;
use std::str::FromStr;

use crate::rng::Rng;

/// A schedule with more steps than this is considered endless.
const MOST_STEPS: usize = 1_000_000;
/// One in this many points with a lock held begins a stall ...
const STALL_ONE_IN: u64 = 16;
/// ... of up to this many points.
const LONGEST_STALL: u64 = 64;

#[derive(Clone, Debug)]
enum Kind {
    Random(Rng),
    /// The maximum number of preemptions.
    Bounded(u32),
    Fixed,
}

/// The choices of a schedule. A choice is an index into the list of tasks that can continue: the
/// task that ran last first, then the others by number.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    kind: Kind,
    /// What was chosen, and from how many options.
    choices: Vec<(u32, u32)>,
    /// Number of choices already taken.
    at: usize,
    preemptions: u32,
    /// The stalled task, and the step until which it is stalled.
    stalled: Vec<(u32, usize)>,
}

impl Schedule {
    fn new(kind: Kind, choices: Vec<(u32, u32)>) -> Self {
        Schedule { kind, choices, at: 0, preemptions: 0, stalled: Vec::new() }
    }

    pub(crate) fn random(seed: u64) -> Self {
        Schedule::new(Kind::Random(Rng::new(seed)), Vec::new())
    }

    pub(crate) fn bounded(preemptions: u32) -> Self {
        Schedule::new(Kind::Bounded(preemptions), Vec::new())
    }

    /// Returns the next schedule, depth first; `None` after the last.
    pub(crate) fn following(mut self) -> Option<Self> {
        self.choices.truncate(self.at);
        while let Some((chosen, of)) = self.choices.pop() {
            if chosen + 1 < of {
                self.choices.push((chosen + 1, of));
                return Some(Schedule::new(self.kind, self.choices));
            }
        }
        None
    }

    /// Chooses the task that continues from `ready`, which is in ascending order. `last` ran last,
    /// and `holds` tells whether it holds a lock. Returns `None` if no task can continue, or if the
    /// schedule is endless.
    pub(crate) fn choose(&mut self, ready: &[u32], last: u32, holds: bool) -> Option<u32> {
        if ready.is_empty() || self.at >= MOST_STEPS {
            return None;
        }
        let goes_on = ready.contains(&last);
        let mut options = Vec::with_capacity(ready.len());
        options.extend(goes_on.then_some(last));
        options.extend(ready.iter().filter(|&&t| t != last));
        let chosen = if let Some(&(chosen, _)) = self.choices.get(self.at) {
            // A fixed schedule may be of another program: clamp the choice.
            (chosen as usize).min(options.len() - 1)
        } else {
            let (chosen, of) = self.decide(&options, goes_on, holds);
            self.choices.push((chosen as u32, of as u32));
            chosen
        };
        self.at += 1;
        self.preemptions += u32::from(goes_on && chosen != 0);
        Some(options[chosen])
    }

    /// Makes a choice among `n` options that is not about the next task.
    pub(crate) fn pick(&mut self, n: u32) -> u32 {
        if n < 2 {
            return 0;
        }
        let chosen = match (self.choices.get(self.at), &mut self.kind) {
            (Some(&(chosen, _)), _) => chosen.min(n - 1),
            (None, Kind::Random(rng)) => rng.below(n.into()) as u32,
            (None, _) => 0,
        };
        if self.at == self.choices.len() {
            self.choices.push((chosen, n));
        }
        self.at += 1;
        chosen
    }

    /// Makes a new choice. Returns it and the number of options.
    fn decide(&mut self, options: &[u32], goes_on: bool, holds: bool) -> (usize, usize) {
        let step = self.at;
        match &mut self.kind {
            Kind::Fixed => (0, 1),
            Kind::Bounded(most) => {
                let free = !goes_on || self.preemptions < *most;
                (0, if free { options.len() } else { 1 })
            }
            Kind::Random(rng) => {
                if goes_on && holds && rng.happens(1, STALL_ONE_IN) {
                    let until = step + 1 + rng.below(LONGEST_STALL) as usize;
                    self.stalled.push((options[0], until));
                }
                self.stalled.retain(|s| s.1 > step);
                let awake = |&i: &usize| self.stalled.iter().all(|s| s.0 != options[i]);
                let mut among: Vec<usize> = (0..options.len()).filter(awake).collect();
                if among.is_empty() {
                    among = (0..options.len()).collect();
                }
                (among[rng.below(among.len() as u64) as usize], options.len())
            }
        }
    }
}

impl fmt::Display for Schedule {
    /// Formats the choices, separated by commas; `0*7` is seven times the first option. Trailing
    /// zeros are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = &self.choices[..self.at.min(self.choices.len())];
        let end = taken.iter().rposition(|c| c.0 != 0).map_or(0, |i| i + 1);
        let mut parts: Vec<String> = Vec::new();
        let mut zeros = 0;
        for &(chosen, _) in &taken[..end] {
            if chosen == 0 {
                zeros += 1;
                continue;
            }
            match zeros {
                0 => {}
                1 => parts.push("0".into()),
                n => parts.push(format!("0*{n}")),
            }
            zeros = 0;
            parts.push(chosen.to_string());
        }
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Schedule {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut choices = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (chosen, times) = part.split_once('*').unwrap_or((part, "1"));
            let choice = (chosen.parse()?, u32::MAX);
            choices.extend(std::iter::repeat_n(choice, times.parse()?));
        }
        Ok(Schedule::new(Kind::Fixed, choices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks of two points each. Returns the tasks that each schedule runs, in order.
    fn runs(mut schedule: Schedule) -> Vec<Vec<u32>> {
        let mut all = Vec::new();
        loop {
            let mut left = [2, 2];
            let mut last = u32::MAX;
            let mut run = Vec::new();
            loop {
                let ready: Vec<u32> = (0..2).filter(|&t| left[t as usize] > 0).collect();
                let Some(task) = schedule.choose(&ready, last, false) else { break };
                left[task as usize] -= 1;
                last = task;
                run.push(task);
            }
            all.push(run);
            match schedule.following() {
                Some(next) => schedule = next,
                None => return all,
            }
        }
    }

    #[test]
    fn bounded_schedules_are_complete_and_unique() {
        assert_eq!(runs(Schedule::bounded(0)), [[0, 0, 1, 1], [1, 1, 0, 0]]);
        let mut all = runs(Schedule::bounded(9));
        assert_eq!(all.len(), 6, "4! / 2! 2!");
        all.dedup();
        assert_eq!(all.len(), 6);
        assert_eq!(runs(Schedule::bounded(1)).len(), 4);
    }

    #[test]
    fn choices_are_explored_like_tasks() {
        let mut schedule = Schedule::bounded(0);
        let mut all = Vec::new();
        loop {
            all.push((schedule.pick(3), schedule.pick(2), schedule.pick(1)));
            match schedule.following() {
                Some(next) => schedule = next,
                None => break,
            }
        }
        assert_eq!(all, [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0), (2, 0, 0), (2, 1, 0)]);
    }

    #[test]
    fn a_printed_schedule_parses_back() {
        let mut schedule: Schedule = "0*3,1,2,0,1,0*2,1".parse().unwrap();
        let ready = [0, 1, 2];
        let first: Vec<_> = (0..12).map(|_| schedule.choose(&ready, 0, false).unwrap()).collect();
        assert_eq!(first, [0, 0, 0, 1, 2, 0, 1, 0, 0, 1, 0, 0]);
        assert_eq!(schedule.to_string(), "0*3,1,2,0,1,0*2,1");
        assert!("1,x".parse::<Schedule>().is_err());
    }
}
