//! Tasks that wait for each other: a queue of sleepers, and a pipe between tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::task::Task;

/// Tasks that sleep until somebody wakes them, first come, first served.
#[derive(Debug, Default)]
pub struct WaitQueue {
    tasks: RefCell<VecDeque<u32>>,
}

impl WaitQueue {
    /// A queue in which nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sleeps until woken. Call [`Task::sync`] before looking at what is waited for; then nothing
    /// happens between the look and the wait.
    pub fn wait(&self, task: &Task<'_, '_>) {
        task.wait(|me| self.tasks.borrow_mut().push_back(me));
    }

    /// Wakes the one who has waited longest; whether there was one.
    pub fn wake_one(&self, task: &Task<'_, '_>) -> bool {
        let next = self.tasks.borrow_mut().pop_front();
        if let Some(next) = next {
            task.wake(next);
        }
        next.is_some()
    }

    /// Wakes all who wait.
    pub fn wake_all(&self, task: &Task<'_, '_>) {
        while self.wake_one(task) {}
    }
}

/// A bounded pipe: who sends sleeps while it is full, who receives while it is empty. What was
/// written on another CPU costs the transfer of a line.
#[derive(Debug)]
pub struct Pipe<T> {
    items: RefCell<VecDeque<(u32, T)>>,
    most: usize,
    closed: Cell<bool>,
    senders: WaitQueue,
    receivers: WaitQueue,
}

impl<T> Pipe<T> {
    /// A pipe for so many items, at least one.
    pub fn new(most: usize) -> Self {
        Pipe {
            items: RefCell::default(),
            most: most.max(1),
            closed: Cell::new(false),
            senders: WaitQueue::new(),
            receivers: WaitQueue::new(),
        }
    }

    /// Sends an item. It comes back if the pipe is closed.
    ///
    /// # Errors
    /// The item, where nobody will receive it.
    pub fn send(&self, task: &Task<'_, '_>, item: T) -> Result<(), T> {
        task.sync();
        while self.items.borrow().len() >= self.most && !self.closed.get() {
            self.senders.wait(task);
        }
        if self.closed.get() {
            return Err(item);
        }
        self.items.borrow_mut().push_back((task.cpu().0, item));
        self.receivers.wake_one(task);
        Ok(())
    }

    /// The oldest item; `None` once the pipe is closed and empty.
    pub fn receive(&self, task: &Task<'_, '_>) -> Option<T> {
        task.sync();
        loop {
            let next = self.items.borrow_mut().pop_front();
            if let Some((from, item)) = next {
                self.senders.wake_one(task);
                task.fetch_from(from);
                return Some(item);
            }
            if self.closed.get() {
                return None;
            }
            self.receivers.wait(task);
        }
    }

    /// Nothing more will be sent. Who receives gets what is left; who is about to send gets it back.
    pub fn close(&self, task: &Task<'_, '_>) {
        task.sync();
        self.closed.set(true);
        self.senders.wake_all(task);
        self.receivers.wake_all(task);
    }

    /// Items in it.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
