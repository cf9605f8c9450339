//! The recorded request behind each block.

use pageyard_report::Task;
use pageyard_trace::Tasks;

use super::machine::Machine;

/// The request behind a recorded block.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) t_ns: u64,
    pub(super) gfp: u32,
    /// The trace's number of the task.
    pub(super) task: u32,
    /// Order of the allocated block, or one of the two values below.
    order: u8,
}

/// Bytes per frame.
pub(super) const PER_FRAME: u64 = size_of::<Request>() as u64;

/// No block begins at this frame.
const INSIDE: u8 = 0xff;
/// A block begins at this frame that left its list without an event. Its request is unknown.
const SILENT: u8 = 0xfe;

/// The last request for each recorded block, by the block's first frame.
pub(super) struct Requests {
    of: Vec<Request>,
    /// Tasks by the trace's number. A task is added at its first request.
    pub(super) tasks: Vec<Option<Task>>,
}

impl Requests {
    pub(super) fn new(frames: usize) -> Requests {
        let none = Request { t_ns: 0, gfp: 0, task: 0, order: INSIDE };
        Requests { of: vec![none; frames], tasks: Vec::new() }
    }

    /// Notes that a task allocated a block.
    pub(super) fn note_request(
        &mut self,
        frame: u32,
        order: u8,
        gfp: u32,
        t_ns: u64,
        who: u32,
        tasks: &Tasks,
    ) {
        self.begins(frame, order, Request { t_ns, gfp, task: who, order });
        let at = who as usize;
        if self.tasks.len() <= at {
            self.tasks.resize(at + 1, None);
        }
        if self.tasks[at].is_none() {
            self.tasks[at] = tasks.get(who).map(|t| task(t.pid, &t.comm));
        }
    }

    /// Notes that a block left its list without an event.
    pub(super) fn silent(&mut self, frame: u32, order: u8) {
        self.begins(frame, order, Request { t_ns: 0, gfp: 0, task: 0, order: SILENT });
    }

    fn begins(&mut self, frame: u32, order: u8, request: Request) {
        let block = &mut self.of[frame as usize..frame as usize + (1 << order)];
        block.iter_mut().for_each(|r| r.order = INSIDE);
        block[0] = request;
    }

    /// Returns the request for the block, or for the larger block of which it is the remainder.
    pub(super) fn find(&self, machine: &Machine, frame: u32) -> Option<&Request> {
        (0..=10)
            .find_map(|k| {
                let head = machine.align_down(frame, k)?;
                let request = &self.of[head as usize];
                let covers = request.order == SILENT && head == frame
                    || request.order <= 10 && frame - head < 1 << request.order;
                covers.then_some(request)
            })
            .filter(|r| r.order != SILENT)
    }
}

/// Converts a task of the trace to the core's form. Like the kernel, it keeps the first 15 bytes of
/// the name. The process is not recorded, so its ID is 0.
fn task(pid: u32, comm: &str) -> Task {
    let mut bytes = [0; 16];
    let end = (0..=comm.len().min(15)).rev().find(|&n| comm.is_char_boundary(n)).unwrap_or(0);
    bytes[..end].copy_from_slice(&comm.as_bytes()[..end]);
    Task { pid, tgid: 0, comm: bytes }
}
