//! Who asked for which block, as the trace has it.

use pageyard::Task;
use pageyard_trace::Tasks;

use super::machine::Machine;

/// The request behind a recorded block.
#[derive(Clone, Copy)]
pub(super) struct Request {
    pub(super) t_ns: u64,
    pub(super) gfp: u32,
    /// The trace's number for the task.
    pub(super) task: u32,
    /// Of the block when it was handed out, or one of the two below.
    order: u8,
}

/// Bytes that are kept for each frame.
pub(super) const PER_FRAME: u64 = size_of::<Request>() as u64;

/// No block begins here.
const INSIDE: u8 = 0xff;
/// A block begins here that left its list without an event: nobody is known to have asked for it.
const SILENT: u8 = 0xfe;

/// The last request for each recorded block, by the block's first frame.
pub(super) struct Requests {
    of: Vec<Request>,
    /// By the trace's number; entered when they first ask.
    pub(super) tasks: Vec<Option<Task>>,
}

impl Requests {
    pub(super) fn new(frames: usize) -> Requests {
        let none = Request { t_ns: 0, gfp: 0, task: 0, order: INSIDE };
        Requests { of: vec![none; frames], tasks: Vec::new() }
    }

    /// A task was given a block.
    pub(super) fn asked(
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

    /// A block went without an event.
    pub(super) fn silent(&mut self, frame: u32, order: u8) {
        self.begins(frame, order, Request { t_ns: 0, gfp: 0, task: 0, order: SILENT });
    }

    fn begins(&mut self, frame: u32, order: u8, request: Request) {
        let block = &mut self.of[frame as usize..frame as usize + (1 << order)];
        block.iter_mut().for_each(|r| r.order = INSIDE);
        block[0] = request;
    }

    /// The request for the block, or for the larger one of which it is what was not freed.
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

/// A task of the trace as the core has them. The kernel too keeps the first 15 bytes of a name. Its
/// process is not recorded: 0.
fn task(pid: u32, comm: &str) -> Task {
    let mut bytes = [0; 16];
    let end = (0..=comm.len().min(15)).rev().find(|&n| comm.is_char_boundary(n)).unwrap_or(0);
    bytes[..end].copy_from_slice(&comm.as_bytes()[..end]);
    Task { pid, tgid: 0, comm: bytes }
}
