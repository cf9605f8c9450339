//! What wakes the background threads of a node.

use pageyard::NodeId;

use crate::cpu::NOBODY;
use crate::state::State;

/// A background thread of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Thread {
    Reclaim = 0,
    Compaction = 1,
}

/// Where a thread's alarm is among the machine's.
pub(crate) fn alarm(node: NodeId, thread: Thread) -> usize {
    usize::from(node.0) * 2 + thread as usize
}

impl State {
    /// A node's thread has something to do.
    pub(crate) fn ring(&mut self, node: NodeId, thread: Thread) {
        let Some(alarm) = self.alarms.get_mut(alarm(node, thread)) else { return };
        alarm.rung = true;
        let task = std::mem::replace(&mut alarm.task, NOBODY);
        if task != NOBODY {
            self.wake(task);
        }
    }

    /// The running task sleeps until its alarm rings, or for so long. Whether it must suspend
    /// itself.
    pub(crate) fn await_alarm(
        &mut self,
        node: NodeId,
        thread: Thread,
        most_ns: Option<u64>,
    ) -> bool {
        let (me, until) = (self.task, most_ns.map(|ns| self.clock() + ns * 1000));
        let alarm = &mut self.alarms[alarm(node, thread)];
        if std::mem::take(&mut alarm.rung) {
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
