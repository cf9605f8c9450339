//! The requester, as far as it affects the request (spec §2.7, §2.9, §2.10).

use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeMask;

bitflags::bitflags! {
    /// Properties of the requesting task.
    ///
    /// ```
    /// use pageyard::TaskFlags;
    ///
    /// let handler = TaskFlags::INTERRUPT | TaskFlags::REALTIME;
    /// assert!(!handler.contains(TaskFlags::MEMALLOC));
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub struct TaskFlags: u32 {
        /// The task frees memory: it already reclaims, or may use all reserves (`PF_MEMALLOC`).
        const MEMALLOC = 1;
        /// The OOM killer chose the task, which may use half of the reserve (§3.7).
        const OOM_VICTIM = 2;
        /// The task has a realtime or deadline policy.
        const REALTIME = 4;
        /// There is no task: the request comes from an interrupt.
        const INTERRUPT = 8;
        /// The task runs a user's program, so background reclaim can make it wait (§7.3).
        const USER = 16;
        /// The task writes a core dump: no task is killed for its requests.
        const DUMPING = 32;
    }
}

/// The nodes that a task may use.
///
/// ```
/// use pageyard::{Context, Cpuset, NodeId, NodeMask};
///
/// let near = NodeMask::only(NodeId(0));
/// let cpuset = Cpuset { allowed: near, hardwall: near.with(NodeId(1)) };
/// let context = Context { cpuset: Some(cpuset), ..Context::default() };
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpuset {
    /// The nodes of the task's own set.
    pub allowed: NodeMask,
    /// The nodes of the nearest enclosing hard-walled set, for requests without [`Gfp::HARDWALL`].
    pub hardwall: NodeMask,
}

/// The requester of a block. The default is an ordinary task without restrictions.
///
/// ```
/// use pageyard::{Context, Gfp, Reclaim, TaskFlags};
///
/// struct Tasks;
/// impl Reclaim for Tasks {
///     fn is_plain(&self, _: Gfp) -> bool { false }
///     fn context(&self) -> Context {
///         // A user's task inside a file system, which reclaim must not enter again.
///         Context { flags: TaskFlags::USER, without: Gfp::FS, ..Context::default() }
///     }
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// Properties of the task.
    pub flags: TaskFlags,
    /// Flags that a scope around the request removes: `FS` or `IO | FS` if the task must not enter
    /// file systems or start I/O, `MOVABLE` if it pins the memory for long.
    pub without: Gfp,
    /// The nodes that the task may use, if such restrictions are in use.
    pub cpuset: Option<Cpuset>,
    /// A number that changes whenever the restrictions may have changed. A request about to fail
    /// then starts again.
    pub cookie: u64,
}

impl Default for Context {
    fn default() -> Self {
        Context { flags: TaskFlags::empty(), without: Gfp::empty(), cpuset: None, cookie: 0 }
    }
}

impl Context {
    pub(crate) fn is(&self, flag: TaskFlags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns whether a request may use a node (§2.8 step 1).
    #[inline(never)]
    pub(crate) fn allows(&self, node: crate::base::units::NodeId, hardwall: bool) -> bool {
        let Some(set) = self.cpuset else { return true };
        set.allowed.contains(node)
            || self.flags.intersects(TaskFlags::INTERRUPT | TaskFlags::OOM_VICTIM)
            || !hardwall && set.hardwall.contains(node)
    }
}
