//! An allocator to experiment with, for example in a notebook.
//!
//! An allocator borrows its maps, so it lives on the stack of a thread of its own, beside them. A
//! call sends a closure to that thread and waits for the answer. So calls of several Python
//! threads are performed one after another, and nothing here is unsafe or leaked.

use std::cell::Cell;
use std::fmt::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use pageyard::policy::Rules;
use pageyard::{
    AllocError, Bare, CpuId, Gfp, Knobs, Layout, NodeId, Order, OwnedStorage, PAGE_SIZE, Parts,
    Pfn, Platform, Record, Yard, ZoneKind, ZoneSpec,
};
use pageyard_lab::Lock;
use pageyard_lab::replay::{Choice, columns};
use pageyard_machine::size;
use pageyard_report::text;
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::error::{FreeError, NoMemoryError, lab, panicked};

/// The first address of the memory: all of it is one zone, Normal.
const BASE: Pfn = Pfn::containing(4 << 30);

/// The machine: the CPU that the caller chose, and a clock that the caller advances.
#[derive(Default)]
struct Machine {
    cpu: Cell<u32>,
    now_ns: Cell<u64>,
}

impl Platform for Machine {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.get())
    }

    fn now(&self) -> u64 {
        self.now_ns.get()
    }
}

type Play<'a> = Yard<'a, Bare<Lock, &'a Machine, &'a Rules>>;
type Job = Box<dyn for<'y, 'a> FnOnce(&'y Play<'a>) + Send>;

/// States of a frame in [`PageAllocator::page_states`], by number.
const STATES: [&str; 5] = ["hole", "free", "cached", "allocated", "unusable"];

/// Runs the allocator until its last handle is dropped.
fn serve(
    span: &Range<Pfn>,
    cpus: u32,
    choice: &Choice,
    ready: Sender<Result<(), String>>,
    jobs: Receiver<Job>,
) {
    let nodes = vec![NodeId(0); cpus as usize];
    let layout = Layout {
        zones: &[ZoneSpec { kind: ZoneKind::Normal, node: NodeId(0), span: span.clone() }],
        usable: std::slice::from_ref(span),
        reserved: &[],
        cpus: &nodes,
        distances: &[],
        knobs: Knobs::DEFAULT,
    };
    let machine = Machine::default();
    let maps =
        layout.needs_on::<Lock>(choice.rules.engine).and_then(|n| OwnedStorage::for_needs(&n));
    let mut maps = match maps {
        Ok(maps) => maps,
        Err(e) => return drop(ready.send(Err(format!("memory: {e}")))),
    };
    let mut yard: Play<'_> = Yard::with_policy(Parts::new(&machine), &choice.rules);
    let started = yard.init(&layout, maps.storage()).map_err(|e| format!("memory: {e}"));
    let started = started.and_then(|()| choice.settings.apply(&yard).map_err(|e| e.to_string()));
    let failed = started.is_err();
    if ready.send(started).is_err() || failed {
        return;
    }
    for job in jobs {
        job(&yard);
    }
}

/// A page allocator with memory of its own, which exists only as numbers.
///
/// The memory begins at 4 GiB and is one zone, Normal. Blocks are named by their first frame number.
#[pyclass(frozen)]
pub(crate) struct PageAllocator {
    jobs: Mutex<Sender<Job>>,
    policy: String,
    cpus: u32,
    span: Range<Pfn>,
    /// A process forked from this one has no thread that serves.
    process: u32,
}

impl PageAllocator {
    /// Performs `work` on the allocator.
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl for<'y, 'a> FnOnce(&'y Play<'a>) -> T + Send + 'static,
    ) -> PyResult<T> {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "this PageAllocator belongs to the parent process; create one after the fork",
            ));
        }
        let (answer, answered) = channel();
        let job: Job = Box::new(move |yard| {
            let _ = answer.send(catch_unwind(AssertUnwindSafe(|| work(yard))));
        });
        let sent = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(job);
        let answered = Mutex::new(answered);
        let answer = py.detach(|| {
            sent.ok()?;
            answered.into_inner().unwrap_or_else(PoisonError::into_inner).recv().ok()
        });
        let ended = || PyRuntimeError::new_err("the allocator's thread has ended");
        answer.ok_or_else(ended)?.map_err(|payload| panicked(&*payload))
    }

    fn on(&self, cpu: u32) -> PyResult<u32> {
        let known = cpu < self.cpus;
        known
            .then_some(cpu)
            .ok_or_else(|| lab(format!("cpu {cpu}: the allocator has CPUs 0 to {}", self.cpus - 1)))
    }
}

fn order(n: u8) -> PyResult<Order> {
    Order::new(n).ok_or_else(|| lab(format!("order {n}: expected 0 to {}", Order::MAX.get())))
}

/// Parses the flags of a request, such as `KERNEL|ZERO`.
fn gfp(text: &str) -> PyResult<Gfp> {
    let mut flags = Gfp::empty();
    for name in text.split('|').map(str::trim) {
        let flag = Gfp::from_name(name).filter(|_| name != "_");
        flags |= flag.ok_or_else(|| {
            lab(format!(
                "flag {name}: expected names joined by |, such as KERNEL|ZERO or USER|MOVABLE"
            ))
        })?;
    }
    Ok(flags)
}

fn refused(e: AllocError) -> PyErr {
    match e {
        AllocError::NoMemory => NoMemoryError::new_err(e.to_string()),
        e => lab(e),
    }
}

#[pymethods]
impl PageAllocator {
    /// Creates an allocator over `memory` bytes, such as "64M".
    #[new]
    #[pyo3(signature = (memory="64M", *, cpus=1, policy="Linux612"))]
    fn new(py: Python<'_>, memory: &str, cpus: u32, policy: &str) -> PyResult<PageAllocator> {
        let pages = size(memory).map_err(lab)? / PAGE_SIZE;
        let mut choices = columns(policy).map_err(lab)?;
        let choice = match (choices.pop(), choices.is_empty()) {
            (Some(choice), true) => choice,
            _ => return Err(lab(format!("policy {policy}: expected one policy"))),
        };
        if cpus == 0 || cpus > pageyard_trace::MAX_CPUS.into() {
            return Err(lab(format!("cpus {cpus}: expected 1 to {}", pageyard_trace::MAX_CPUS)));
        }
        let name = choice.name.clone();
        let span = BASE..Pfn(BASE.0.saturating_add(pages));
        let (jobs, queue) = channel();
        let (ready, started) = channel();
        let of = span.clone();
        std::thread::Builder::new()
            .name("pageyard-allocator".into())
            .spawn(move || serve(&of, cpus, &choice, ready, queue))
            .map_err(|e| PyOSError::new_err(format!("a thread for the allocator: {e}")))?;
        let started = Mutex::new(started);
        let started =
            py.detach(|| started.into_inner().unwrap_or_else(PoisonError::into_inner).recv());
        started.unwrap_or_else(|_| Err("the allocator's thread has ended".into())).map_err(lab)?;
        let process = std::process::id();
        Ok(PageAllocator { jobs: Mutex::new(jobs), policy: name, cpus, span, process })
    }

    /// The policy's full name.
    #[getter]
    fn policy(&self) -> &str {
        &self.policy
    }

    /// The number of CPUs.
    #[getter]
    fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The first frame number of the memory.
    #[getter]
    fn first_pfn(&self) -> u64 {
        self.span.start.0
    }

    /// The number of pages of the memory.
    #[getter]
    fn pages(&self) -> u64 {
        self.span.end.0 - self.span.start.0
    }

    /// Allocates a block of 2^order pages and returns its first frame number.
    #[pyo3(signature = (order=0, *, flags="KERNEL", cpu=0))]
    fn alloc(&self, py: Python<'_>, order: u8, flags: &str, cpu: u32) -> PyResult<u64> {
        let (order, gfp, cpu) = (self::order(order)?, gfp(flags)?, self.on(cpu)?);
        let got = self.ask(py, move |yard| {
            yard.hooks().platform.cpu.set(cpu);
            yard.alloc(order, gfp)
        })?;
        Ok(got.map_err(refused)?.0)
    }

    /// Frees a block.
    #[pyo3(signature = (pfn, order=0, *, cpu=0))]
    fn free(&self, py: Python<'_>, pfn: u64, order: u8, cpu: u32) -> PyResult<()> {
        let (order, cpu) = (self::order(order)?, self.on(cpu)?);
        let freed = self.ask(py, move |yard| {
            yard.hooks().platform.cpu.set(cpu);
            yard.free(Pfn(pfn), order)
        })?;
        freed.map_err(|e| FreeError::new_err(format!("frame {pfn:#x}, order {}: {e}", order.get())))
    }

    /// Advances the clock and performs the periodic work of one CPU, or of all.
    #[pyo3(signature = (seconds=1.0, *, cpu=None))]
    fn tick(&self, py: Python<'_>, seconds: f64, cpu: Option<u32>) -> PyResult<()> {
        if !(0.0..=1e9).contains(&seconds) {
            return Err(lab(format!("seconds {seconds}: expected 0 to 1e9")));
        }
        let cpus = match cpu {
            Some(cpu) => self.on(cpu)?..cpu + 1,
            None => 0..self.cpus,
        };
        self.ask(py, move |yard| {
            let machine = yard.hooks().platform;
            machine.now_ns.set(machine.now_ns.get().saturating_add((seconds * 1e9) as u64));
            for cpu in cpus {
                machine.cpu.set(cpu);
                yard.tick(CpuId(cpu));
            }
        })
    }

    /// Returns the pages on the lists of one CPU, or of all, to the zone.
    #[pyo3(signature = (*, cpu=None))]
    fn drain(&self, py: Python<'_>, cpu: Option<u32>) -> PyResult<()> {
        let cpu = cpu.map(|cpu| self.on(cpu)).transpose()?;
        self.ask(py, move |yard| match cpu {
            Some(cpu) => yard.drain_cpu(CpuId(cpu), None),
            None => yard.drain_all(None),
        })
    }

    /// Checks every structure of the allocator. Raises LabError with the first contradiction.
    fn validate(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |yard| yard.validate().map_err(|e| e.to_string()))?.map_err(lab)
    }

    /// Returns the state as the kernel's file of this name prints it.
    #[pyo3(signature = (form="buddyinfo"))]
    fn text(&self, py: Python<'_>, form: &str) -> PyResult<String> {
        type Form = for<'y, 'a> fn(&mut String, &'y Play<'a>) -> std::fmt::Result;
        let form: Form = match form {
            "buddyinfo" => |out, yard| text::write_buddyinfo(out, yard),
            "pagetypeinfo" => |out, yard| text::write_pagetypeinfo(out, yard),
            "zoneinfo" => |out, yard| text::write_zoneinfo(out, yard, &()),
            "vmstat" => |out, yard| text::write_vmstat(out, yard, &()),
            "show_mem" => |out, yard| text::write_show_mem(out, yard, &()),
            other => {
                return Err(lab(format!(
                    "text {other}: expected buddyinfo, pagetypeinfo, zoneinfo, vmstat or show_mem"
                )));
            }
        };
        self.ask(py, move |yard| {
            let mut out = String::new();
            form(&mut out, yard).expect("a string takes any text");
            out
        })
    }

    /// Returns the free blocks by order (rows) and migrate type (columns).
    fn free_blocks(&self, py: Python<'_>) -> PyResult<Vec<Vec<u64>>> {
        let counts = self.ask(py, |yard| yard.free_blocks_by_type(ZoneKind::Normal))?;
        Ok(counts.map_or(Vec::new(), |c| c.0.iter().map(|row| row.to_vec()).collect()))
    }

    /// Returns the state of every page, one byte each: its number in `STATES`.
    fn page_states<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let span = self.span.clone();
        let states = self.ask(py, move |yard| {
            let mut states = vec![0; (span.end.0 - span.start.0) as usize];
            let mut set = |pfn: Pfn, order: u8, state: u8| {
                let at = (pfn.0 - span.start.0) as usize;
                states[at..at + (1 << order)].fill(state);
            };
            yard.snapshot(ZoneKind::Normal, |record| match record {
                Record::Free { pfn, order, .. } => set(pfn, order.get(), 1),
                Record::Cached { list, pfn, .. } => set(pfn, order_of_list(list), 2),
                Record::Allocated { pfn, order, .. } => set(pfn, order.get(), 3),
                Record::Guard { pfn, order } | Record::Bad { pfn, order } => {
                    set(pfn, order.get(), 4)
                }
                Record::Poisoned { pfn } => set(pfn, 0, 4),
                Record::Zone(_) | Record::Block { .. } | Record::Cpu(_) => {}
            });
            states
        })?;
        Ok(PyBytes::new(py, &states))
    }

    /// The names of the states of a page, by number.
    #[classattr]
    #[pyo3(name = "STATES")]
    fn states() -> Vec<&'static str> {
        STATES.to_vec()
    }

    /// Returns one CPU's lists: their pages, and the limits that govern them.
    #[pyo3(signature = (cpu=0))]
    fn lists<'py>(&self, py: Python<'py>, cpu: u32) -> PyResult<Bound<'py, PyDict>> {
        let cpu = self.on(cpu)?;
        let tuning = self.ask(py, move |yard| yard.pageset(ZoneKind::Normal, CpuId(cpu)))?;
        let lists = PyDict::new(py);
        if let Some(t) = tuning {
            lists.set_item("count", t.count)?;
            lists.set_item("high", t.high)?;
            lists.set_item("high_min", t.limits.high_min)?;
            lists.set_item("high_max", t.limits.high_max)?;
            lists.set_item("batch", t.limits.batch)?;
        }
        Ok(lists)
    }

    /// Returns the counters of the zone.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (totals, stats, info) = self.ask(py, |yard| {
            let zone = ZoneKind::Normal;
            (yard.zone_totals(zone), yard.zone_stats(zone), yard.zone_info(zone))
        })?;
        let counters = PyDict::new(py);
        if let (Some(t), Some(s), Some(i)) = (totals, stats, info) {
            let [min, low, high, promo] = i.watermarks;
            for (name, n) in [
                ("free_pages", i.free_exact),
                ("cached_pages", i.cached),
                ("watermark_min", min),
                ("watermark_low", low),
                ("watermark_high", high),
                ("watermark_promo", promo),
                ("allocs", t.allocs),
                ("frees", t.frees),
                ("refills", t.refills),
                ("failures", t.failures),
                ("zone_lock_holds", t.lock_holds),
                ("pages_taken", t.pages_taken),
                ("pages_returned", t.pages_returned),
                ("steals", s.steals),
                ("claims_whole", s.claims_whole),
                ("claims_part", s.claims_part),
                ("mismatches", s.mismatches),
            ] {
                counters.set_item(name, n)?;
            }
        }
        Ok(counters)
    }

    /// Reads a setting of the allocator (`docs/knobs.md`).
    fn knob(&self, py: Python<'_>, name: String) -> PyResult<String> {
        let read = self.ask(py, move |yard| {
            let mut out = String::new();
            yard.knob(&name, &mut out).map(|()| out).map_err(|e| e.to_string())
        })?;
        read.map_err(lab)
    }

    /// Writes a setting of the allocator (`docs/knobs.md`).
    fn set_knob(&self, py: Python<'_>, name: String, value: String) -> PyResult<()> {
        let set =
            self.ask(py, move |yard| yard.set_knob(&name, &value).map_err(|e| e.to_string()))?;
        set.map_err(lab)
    }

    fn __repr__(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "<PageAllocator {}: {} pages, {} CPUs>",
            self.policy,
            self.pages(),
            self.cpus
        );
        out
    }
}

/// Returns the order of a per-CPU list (§5.2): three types for each of the orders 0 to 3, then two
/// lists of order 9.
fn order_of_list(list: usize) -> u8 {
    if list < 12 { list as u8 / 3 } else { Order::HUGE.get() }
}
