//! The tasks of a trace, with equal names numbered once.

use std::collections::HashMap;

use pageyard_trace::Tasks;

/// The tasks of a trace.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// By the trace's number of the task: its process id and the number of its name.
    tasks: Vec<(u32, u32)>,
    names: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    /// Adds the tasks that are new.
    pub(super) fn see(&mut self, task: u32, tasks: &Tasks) {
        while self.tasks.len() <= task as usize {
            let Some(next) = tasks.get(self.tasks.len() as u32) else { return };
            let number = match self.numbers.get(&next.comm) {
                Some(&number) => number,
                None => {
                    let number = self.names.len() as u32;
                    self.names.push(next.comm.clone());
                    self.numbers.insert(next.comm.clone(), number);
                    number
                }
            };
            self.tasks.push((next.pid, number));
        }
    }

    /// Returns the number of a task's name.
    pub(super) fn number(&self, task: u32) -> u32 {
        self.tasks.get(task as usize).map_or(u32::MAX, |t| t.1)
    }

    /// Returns a task's process id.
    pub(super) fn pid(&self, task: u32) -> u32 {
        self.tasks.get(task as usize).map_or(0, |t| t.0)
    }

    /// Returns the name with a number.
    pub(super) fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("unknown", String::as_str)
    }
}
