//! The alarms that wake the background threads of a node.

use pageyard::NodeId;

use crate::cpu::NONE;
use crate::state::State;

/// A background thread of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Thread {
    Reclaim = 0,
    Compaction = 1,
}

/// Returns the index of a thread's alarm in the machine's list.
pub(crate) fn alarm(node: NodeId, thread: Thread) -> usize {
    usize::from(node.0) * 2 + thread as usize
}

impl State {
    /// Rings the alarm of a node's thread: it has work.
    pub(crate) fn ring(&mut self, node: NodeId, thread: Thread) {
        let Some(alarm) = self.alarms.get_mut(alarm(node, thread)) else { return };
        alarm.ringing = true;
        let task = std::mem::replace(&mut alarm.task, NONE);
        if task != NONE {
            self.wake(task);
        }
    }

    /// Puts the running task to sleep until its alarm rings, or for at most `most_ns` nanoseconds.
    /// Returns whether the task must suspend itself.
    pub(crate) fn await_alarm(
        &mut self,
        node: NodeId,
        thread: Thread,
        most_ns: Option<u64>,
    ) -> bool {
        let (me, until) = (self.task, most_ns.map(|ns| self.clock() + ns * 1000));
        let alarm = &mut self.alarms[alarm(node, thread)];
        if std::mem::take(&mut alarm.ringing) {
            return false;
        }
        alarm.task = me;
        match until {
            Some(time) => self.sleep_until(time),
            None => drop(self.wait()),
        }
        true
    }
}
