//! The processes that appear in a trace.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Index;

/// A process as the tracer named it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Process id (0 is the idle task).
    pub pid: u32,
    /// Command name. Bytes that are not UTF-8, and characters that a terminal [acts
    /// on](crate::is_active), are escaped as `\xNN`.
    pub comm: String,
}

/// Table of tasks, in order of first appearance; [`crate::Event::task`] is an index into it.
///
/// A pid with two names (before and after `exec`) is two tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    list: Vec<Task>,
    /// The last task with each hash of pid and name. The names are stored only in `list`.
    by_hash: HashMap<u64, u32>,
    /// For each task, the previous one with the same hash, or [`NONE`].
    before: Vec<u32>,
    hasher: RandomState,
}

const NONE: u32 = u32::MAX;

impl PartialEq for Tasks {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Tasks {}

impl Tasks {
    /// Creates an empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the index of the task with this pid and name, appending it if it is new.
    pub fn intern(&mut self, pid: u32, comm: &str) -> u32 {
        let last = self.by_hash.entry(self.hasher.hash_one((pid, comm))).or_insert(NONE);
        let mut at = *last;
        while let Some(task) = self.list.get(at as usize) {
            if task.pid == pid && task.comm == comm {
                return at;
            }
            at = self.before[at as usize];
        }
        let index = self.list.len() as u32;
        self.list.push(Task { pid, comm: comm.to_owned() });
        self.before.push(*last);
        *last = index;
        index
    }

    /// Returns the task at `index`, if there is one.
    pub fn get(&self, index: u32) -> Option<&Task> {
        self.list.get(index as usize)
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no tasks.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Iterates over the tasks in order of their index.
    pub fn iter(&self) -> std::slice::Iter<'_, Task> {
        self.list.iter()
    }
}

impl Index<u32> for Tasks {
    type Output = Task;

    /// # Panics
    /// Panics if no task has this index; [`Tasks::get`] does not.
    fn index(&self, index: u32) -> &Task {
        &self.list[index as usize]
    }
}

impl<'a> IntoIterator for &'a Tasks {
    type Item = &'a Task;
    type IntoIter = std::slice::Iter<'a, Task>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
