//! Small traces, written as text event by event, and their replay.

use std::io::Cursor;

use pageyard_lab::replay::{Input, MachineOptions, Options, Report, TickPhase, by_name, replay};

/// One event in the form of `trace-cmd report`: CPU, task, microseconds, event and fields.
pub(crate) struct Trace(pub(crate) String);

impl Trace {
    pub(crate) fn new() -> Trace {
        Trace(String::new())
    }

    pub(crate) fn line(mut self, cpu: u32, task: &str, us: u64, event: &str) -> Trace {
        let (s, us) = (us / 1_000_000, us % 1_000_000);
        self.0 += &format!("{task} [{cpu:03}] {s}.{us:06}: {event}\n");
        self
    }

    /// Events of CPU 0 and one task, a microsecond apart.
    pub(crate) fn then(self, event: &str) -> Trace {
        let us = 10_000_000 + self.0.lines().count() as u64;
        self.line(0, "a-1", us, event)
    }

    pub(crate) fn alloc(self, pfn: u64, order: u8, t: u8) -> Trace {
        self.then(&format!(
            "mm_page_alloc: page=0x1 pfn={pfn:#x} order={order} migratetype={t} gfp_flags=0xcc0"
        ))
    }

    pub(crate) fn free(self, pfn: u64, order: u8) -> Trace {
        self.then(&format!("mm_page_free: page=0x1 pfn={pfn:#x} order={order}"))
    }

    pub(crate) fn batched(self, pfn: u64) -> Trace {
        self.then(&format!("mm_page_free_batched: page=0x1 pfn={pfn:#x} order=0"))
    }

    pub(crate) fn locked(self, pfn: u64, order: u8, t: u8) -> Trace {
        self.then(&format!(
            "mm_page_alloc_zone_locked: page=0x1 pfn={pfn:#x} order={order} migratetype={t} \
             percpu_refill=1"
        ))
    }

    pub(crate) fn drain(self, pfn: u64, order: u8, t: u8) -> Trace {
        self.then(&drain(pfn, order, t))
    }

    pub(crate) fn input(&self) -> Input {
        Input::Stream("test".into(), Box::new(Cursor::new(self.0.clone().into_bytes())))
    }

    pub(crate) fn replay(&self, policy: &str) -> Report {
        replay(self.input(), &options(policy), &mut |_, _, _| {}).unwrap()
    }
}

pub(crate) fn drain(pfn: u64, order: u8, t: u8) -> String {
    format!("mm_page_pcpu_drain: page=0x1 pfn={pfn:#x} order={order} migratetype={t}")
}

/// 64 MiB and 64 CPUs: the lists of the zone DMA32, from frame 0x1000 up, have batch 3, high_min
/// 12 and high_max 24.
pub(crate) fn options(policy: &str) -> Options {
    Options {
        policies: vec![by_name(policy).unwrap()],
        tick_phase: TickPhase::At(0.5),
        machine: MachineOptions {
            memory: Some(64 << 20),
            cpus: Some(64),
            ..MachineOptions::default()
        },
        ..Options::default()
    }
}

/// A frame in the middle of memory.
pub(crate) const F: u64 = 0x2000;

/// 21 frees of pages in use before the trace.
pub(crate) fn frees() -> Trace {
    (0..21).fold(Trace::new(), |t, i| t.free(F + i, 0))
}
