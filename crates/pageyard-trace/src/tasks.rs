//! The processes that appear in a trace.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::ops::Index;

/// A process as the tracer named it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Its process id (0: idle).
    pub pid: u32,
    /// Its command name. Bytes that are not UTF-8, and characters on which a terminal
    /// [acts](crate::is_active), stand as `\xNN`.
    pub comm: String,
}

/// Table of tasks, in order of first appearance; [`crate::Event::task`] is an index into it.
///
/// A pid under two names (before and after `exec`) is two tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    list: Vec<Task>,
    /// The last task of each hash of a pid and a name. The names stand in `list` alone.
    by_hash: HashMap<u64, u32>,
    /// For each task, the one before it of the same hash, or [`NONE`].
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
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// The index of the task with this pid and name, entered at the end if it is new.
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

    /// The task at `index`, if there is one.
    pub fn get(&self, index: u32) -> Option<&Task> {
        self.list.get(index as usize)
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The tasks in order of their index.
    pub fn iter(&self) -> std::slice::Iter<'_, Task> {
        self.list.iter()
    }
}

impl Index<u32> for Tasks {
    type Output = Task;

    /// # Panics
    /// If no task has this index; [`Tasks::get`] does not panic.
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
