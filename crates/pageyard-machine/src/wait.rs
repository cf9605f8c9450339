//! Tasks that wait for each other: a queue of sleepers, and a pipe between tasks.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::task::Task;

/// Tasks that sleep until another task wakes them, in FIFO order.
#[derive(Debug, Default)]
pub struct WaitQueue {
    tasks: RefCell<VecDeque<u32>>,
}

impl WaitQueue {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sleeps until woken. Call [`Task::sync`] before checking the condition; nothing can then
    /// happen between the check and the wait.
    pub fn wait(&self, task: &Task<'_, '_>) {
        task.wait(|me| self.tasks.borrow_mut().push_back(me));
    }

    /// Wakes the task that has waited longest. Returns whether there was one.
    pub fn wake_one(&self, task: &Task<'_, '_>) -> bool {
        let next = self.tasks.borrow_mut().pop_front();
        if let Some(next) = next {
            task.wake(next);
        }
        next.is_some()
    }

    /// Wakes all waiting tasks.
    pub fn wake_all(&self, task: &Task<'_, '_>) {
        while self.wake_one(task) {}
    }
}

/// A bounded pipe: senders sleep while it is full, receivers while it is empty. An item sent from
/// another CPU costs the transfer of a line.
#[derive(Debug)]
pub struct Pipe<T> {
    items: RefCell<VecDeque<(u32, T)>>,
    most: usize,
    closed: Cell<bool>,
    senders: WaitQueue,
    receivers: WaitQueue,
}

impl<T> Pipe<T> {
    /// Creates a pipe for `most` items, at least one.
    pub fn new(most: usize) -> Self {
        Pipe {
            items: RefCell::default(),
            most: most.max(1),
            closed: Cell::new(false),
            senders: WaitQueue::new(),
            receivers: WaitQueue::new(),
        }
    }

    /// Sends an item; waits while the pipe is full.
    ///
    /// # Errors
    /// Returns the item if the pipe is closed.
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

    /// Receives the oldest item; waits while the pipe is empty. Returns `None` once the pipe is
    /// closed and empty.
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

    /// Closes the pipe. Receivers still get the remaining items; waiting senders get their items
    /// back.
    pub fn close(&self, task: &Task<'_, '_>) {
        task.sync();
        self.closed.set(true);
        self.senders.wake_all(task);
        self.receivers.wake_all(task);
    }

    /// Returns the number of items in the pipe.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Returns whether the pipe is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
