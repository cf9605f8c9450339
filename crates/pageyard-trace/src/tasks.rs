//! The processes that appear in a trace.

use std::collections::HashMap;
use std::ops::Index;

/// A process as the tracer named it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// Its process id (0: idle).
    pub pid: u32,
    /// Its command name. Bytes that are not UTF-8 stand as `\xNN`.
    pub comm: String,
}

/// Table of tasks, in order of first appearance; [`crate::Event::task`] is an index into it.
///
/// A pid under two names (before and after `exec`) is two tasks.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    list: Vec<Task>,
    by_pid: HashMap<u32, Vec<u32>>,
}

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
        let same_pid = self.by_pid.entry(pid).or_default();
        for &index in same_pid.iter() {
            if self.list[index as usize].comm == comm {
                return index;
            }
        }
        let index = self.list.len() as u32;
        self.list.push(Task { pid, comm: comm.to_owned() });
        same_pid.push(index);
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

/// A name as text: UTF-8 as it is, other bytes as `\xNN`, so that different names stay different.
pub(crate) fn name_from_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        out.push_str(part.valid());
        for byte in part.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}
