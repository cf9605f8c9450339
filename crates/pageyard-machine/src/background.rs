//! The kernel's threads as tasks: the statistics tick of each CPU, and background reclaim and
//! background compaction of each node.

use pageyard::policy::Policy;
use pageyard::{CpuId, Hooks, NodeId, ReclaimJob, ReclaimTask};

use crate::alarm::{Thread, alarm};
use crate::cpu::NONE;
use crate::fiber;
use crate::platform::SimYard;
use crate::task::{Scope, Task};

impl Task<'_, '_> {
    fn await_alarm(&self, node: NodeId, thread: Thread, most_ns: Option<u64>) {
        self.sync();
        let state = &self.scope.state;
        if state.borrow_mut().await_alarm(node, thread, most_ns) {
            fiber::suspend();
            let mut state = state.borrow_mut();
            let alarm = &mut state.alarms[alarm(node, thread)];
            alarm.ringing = false;
            alarm.task = NONE;
        }
    }
}

impl<'env> Scope<'env> {
    /// Spawns every CPU's statistics worker, which folds counters and decays and expires lists once
    /// in each `stat_interval` (§5.14, §5.15, §9.2, §10). Their first ticks are spread over one, as in a
    /// kernel.
    pub fn spawn_ticks<'a: 'env, P: Policy, E: Hooks>(&self, yard: &'env SimYard<'a, P, E>) {
        let interval = yard.knobs().stat_interval.saturating_mul(1_000_000_000);
        for cpu in (0..yard.cpus()).map(CpuId) {
            let offset = interval / u64::from(yard.cpus()) * u64::from(cpu.0);
            self.spawn_daemon(cpu, move |task| {
                let mut at = task.now() + offset;
                loop {
                    task.sleep_until(at);
                    yard.tick(cpu);
                    at = task.now().max(at) + interval;
                }
            });
        }
    }

    /// Spawns a node's background reclaim (§7.1) on one of its CPUs. `reclaim` frees pages through
    /// the allocator and returns how many.
    pub fn spawn_kswapd<'a: 'env, P: Policy, E: Hooks>(
        &self,
        yard: &'env SimYard<'a, P, E>,
        node: NodeId,
        cpu: CpuId,
        mut reclaim: impl FnMut(&Task<'_, 'env>, &ReclaimJob) -> u64 + 'env,
    ) {
        self.spawn_daemon(cpu, move |task| {
            let Some(mut kswapd) = yard.kswapd(node) else { return };
            let mut freed = 0;
            loop {
                match kswapd.next(freed) {
                    ReclaimTask::Reclaim(job) => freed = reclaim(task, &job),
                    ReclaimTask::Nap(ns) => {
                        task.await_alarm(node, Thread::Reclaim, Some(ns));
                        freed = 0;
                    }
                    ReclaimTask::Sleep => {
                        task.await_alarm(node, Thread::Reclaim, None);
                        freed = 0;
                    }
                }
            }
        });
    }

    /// Spawns a node's background compaction (§7.8) on one of its CPUs.
    pub fn spawn_kcompactd<'a: 'env, P: Policy, E: Hooks>(
        &self,
        yard: &'env SimYard<'a, P, E>,
        node: NodeId,
        cpu: CpuId,
    ) {
        self.spawn_daemon(cpu, move |task| {
            loop {
                let step = yard.compact_background(node);
                task.await_alarm(node, Thread::Compaction, step.sleep);
            }
        });
    }
}
