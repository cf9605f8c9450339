//! Who makes a request, as far as that matters to it (spec §2.7, §2.9, §2.10).

use crate::base::gfp::Gfp;
use crate::base::node_mask::NodeMask;

bitflags::bitflags! {
    /// What the requesting task is and does.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
    pub struct TaskFlags: u32 {
        /// It frees memory: it reclaims already, or is to use all reserves (`PF_MEMALLOC`).
        const MEMALLOC = 1;
        /// It was chosen to die for want of memory, and may use half of what is kept (§3.7).
        const OOM_VICTIM = 2;
        /// It has a realtime or deadline policy.
        const REALTIME = 4;
        /// There is no task: an interrupt asks.
        const INTERRUPT = 8;
        /// It runs a user's program, so that it can be made to wait for background reclaim (§7.3).
        const USER = 16;
        /// It is writing a core dump: nobody is killed for it.
        const DUMPING = 32;
    }
}

/// The nodes that a task may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cpuset {
    /// Those of its own set.
    pub allowed: NodeMask,
    /// Those of the nearest set around it that is hard-walled, for requests that do not insist on
    /// its own ([`Gfp::HARDWALL`]).
    pub hardwall: NodeMask,
}

/// Who makes a request. The default is an ordinary task without restrictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// What the task is and does.
    pub flags: TaskFlags,
    /// Flags that a scope around the request takes from it: `FS` or `IO | FS` where it must not
    /// enter file systems or start I/O, `MOVABLE` where it pins what it gets for long.
    pub without: Gfp,
    /// The task's nodes, where such restrictions are in use.
    pub cpuset: Option<Cpuset>,
    /// Changes whenever the restrictions may have: a request that is about to fail begins anew
    /// then.
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

    /// Whether a request may use a node (§2.8 step 1).
    #[inline(never)]
    pub(crate) fn allows(&self, node: crate::base::units::NodeId, hardwall: bool) -> bool {
        let Some(set) = self.cpuset else { return true };
        set.allowed.contains(node)
            || self.flags.intersects(TaskFlags::INTERRUPT | TaskFlags::OOM_VICTIM)
            || !hardwall && set.hardwall.contains(node)
    }
}
