//! The names of threads over time.

use std::collections::HashMap;

use super::queue::Item;
use crate::event::{Event, Record};
use crate::printable::name_from_bytes;
use crate::shared::Shared;

/// The names of threads at the time of the last item. Turns items into records.
pub(crate) struct Threads {
    comms: HashMap<u32, Box<[u8]>>,
    /// Names of threads that no earlier item names.
    fallback: HashMap<u32, Box<[u8]>>,
    /// Indices of tasks, while they keep their names.
    tasks: HashMap<u32, u32>,
    idle: &'static str,
    unknown: fn(u32) -> String,
}

impl Threads {
    /// `idle` is the name of thread 0; `unknown` makes that of a thread without one. They are those
    /// that the format's own tool prints.
    pub(crate) fn new(idle: &'static str, unknown: fn(u32) -> String) -> Self {
        let (comms, fallback, tasks) = Default::default();
        Threads { comms, fallback, tasks, idle, unknown }
    }

    /// Sets a name that is used until an item gives one.
    pub(crate) fn name(&mut self, tid: u32, comm: &[u8]) {
        self.fallback.insert(tid, comm.into());
    }

    /// Converts an item to a record; the name of a task yields none.
    pub(crate) fn record(&mut self, t_ns: u64, item: Item, shared: &mut Shared) -> Option<Record> {
        Some(match item {
            Item::Page { cpu, tid, kind } => {
                Record::Event(Event { t_ns, cpu, task: self.task(tid, shared), kind })
            }
            Item::Compaction { cpu, tid, what } => {
                Record::Compaction { t_ns, cpu, task: self.task(tid, shared), what }
            }
            Item::Mark { cpu, text } => Record::Mark { t_ns, cpu, text },
            Item::Comm { tid, comm } => {
                if self.comms.get(&tid) != Some(&comm) {
                    self.comms.insert(tid, comm);
                    self.tasks.remove(&tid);
                }
                return None;
            }
            Item::Fork { tid, parent } => {
                // A thread has its parent's name until it gets its own.
                if tid != parent {
                    match self.comms.get(&parent).cloned() {
                        Some(comm) => self.comms.insert(tid, comm),
                        None => self.comms.remove(&tid),
                    };
                    self.tasks.remove(&tid);
                }
                return None;
            }
        })
    }

    fn task(&mut self, tid: u32, shared: &mut Shared) -> u32 {
        let (comms, fallback) = (&self.comms, &self.fallback);
        *self.tasks.entry(tid).or_insert_with(|| {
            let comm = match comms.get(&tid).or_else(|| fallback.get(&tid)) {
                _ if tid == 0 => self.idle.to_owned(),
                // The text parser trims names too.
                Some(comm) => name_from_bytes(comm.trim_ascii(), None),
                None => (self.unknown)(tid),
            };
            shared.tasks.intern(tid, &comm)
        })
    }
}
