//! The lock protocol under many schedules (shuttle): a lock that gives way at every operation, and
//! a platform that gives way wherever the core calls it, locks held or not. What a schedule breaks
//! is printed with the seed that repeats it.
//!
//! `SHUTTLE_ITERATIONS=10000 cargo test -p pageyard --test interleavings` looks longer.
#![allow(unsafe_code)] // a lock over shuttle's atomics

use crate::common;

use std::cell::Cell;
use std::sync::Mutex;

use common::check::{Owned, check};
use common::{Machine, o};
use pageyard::policy::*;
use pageyard::{CpuId, Event, Gfp, Pfn, Platform, Yard, ZoneKind};
use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::thread;

/// A spin lock whose every operation is a scheduling point.
struct Turns(AtomicBool);

// SAFETY: only one swap from false to true can succeed before the next unlock.
unsafe impl lock_api::RawMutex for Turns {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Turns(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, SeqCst)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, SeqCst);
    }
}

shuttle::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

struct Stage;

impl Platform for Stage {
    fn cpu(&self) -> CpuId {
        CpuId(CPU.with(Cell::get))
    }

    fn event(&self, _: CpuId, _: Event) {
        thread::yield_now();
    }
}

type Y<'y, P> = Yard<'y, Turns, Stage, P>;
type Blocks = Mutex<Vec<(Pfn, u8)>>;

fn machine() -> Machine {
    Machine::normal(3072).cpus(&[0, 0, 1])
}

/// Runs three threads as three CPUs under many schedules, then drains and checks.
fn explore<P: Policy + Send + Sync + 'static>(each: fn(&Y<'_, P>, u32, &Blocks)) {
    let asked = std::env::var("SHUTTLE_ITERATIONS").ok().and_then(|n| n.parse().ok());
    let body = move || {
        let m = machine();
        m.run_on(Stage, |y: &Y<'_, P>| {
            // Blocks on their way from one thread to whoever frees them.
            let passed = Blocks::default();
            thread::scope(|s| {
                for cpu in 0..3 {
                    let passed = &passed;
                    s.spawn(move || {
                        CPU.with(|c| c.set(cpu));
                        each(y, cpu, passed);
                    });
                }
            });
            for (pfn, order) in passed.into_inner().unwrap() {
                y.free(pfn, o(order)).unwrap();
            }
            y.drain_all(None);
            check(y, &m, &Owned::new());
            let info = y.zone_info(ZoneKind::Normal).unwrap();
            assert_eq!((info.free_exact, info.cached), (3072, 0));
            assert_eq!(y.zone_stats(ZoneKind::Normal).unwrap().type_check_failures, 0);
        });
    };
    shuttle::check_random(body, asked.unwrap_or(60));
}

fn free_passed<P: Policy>(y: &Y<'_, P>, passed: &Blocks) {
    let next = passed.lock().unwrap().pop();
    if let Some((pfn, order)) = next {
        y.free(pfn, o(order)).unwrap();
    }
}

fn requests<P: Policy>(y: &Y<'_, P>, cpu: u32, passed: &Blocks) {
    for i in 0..4u8 {
        let order = [0, 1, 0, 4][usize::from(i)];
        let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC][cpu as usize];
        if let Ok(pfn) = y.alloc(o(order), gfp) {
            passed.lock().unwrap().push((pfn, order));
        }
        free_passed(y, passed);
    }
}

#[test]
fn requests_and_frees_by_others() {
    explore::<TypeChecked>(requests);
    explore::<TypeChecked<TwoPassBulkFree<Step9>>>(requests);
}

#[test]
fn requests_beside_ticks_and_drains() {
    explore::<TypeChecked>(|y, cpu, passed| match cpu {
        0 => requests(y, 0, passed),
        1 => {
            y.tick(CpuId(0));
            y.drain_all(None);
            free_passed(y, passed);
        }
        _ => {
            y.drain_all(Some(ZoneKind::Normal.into()));
            requests(y, 2, passed);
        }
    });
}

#[test]
fn requests_beside_disabled_lists_and_settings() {
    explore::<TypeChecked>(|y, cpu, passed| match cpu {
        0 => requests(y, 0, passed),
        1 => {
            let guard = y.disable_pcp(ZoneKind::Normal).unwrap();
            requests(y, 1, passed);
            drop(guard);
        }
        _ => {
            y.set_min_free_kbytes(400).unwrap();
            y.set_percpu_pagelist_high_fraction(8).unwrap();
        }
    });
}

#[test]
fn s8_3_marks_belong_to_the_setting_that_was_written_last() {
    explore::<TypeChecked>(|y, cpu, _| {
        y.set_min_free_kbytes([400, 800, 1600][cpu as usize]).unwrap();
    });
    let body = || {
        machine().run_on(Stage, |y: &Y<'_, TypeChecked>| {
            thread::scope(|s| {
                for kb in [400, 800] {
                    s.spawn(move || y.set_min_free_kbytes(kb).unwrap());
                }
            });
            let min = y.zone_info(ZoneKind::Normal).unwrap().watermarks[0];
            assert_eq!(min, y.knobs().min_free_kbytes / 4);
        });
    };
    // Few schedules interleave two short calls badly; many are tried.
    shuttle::check_random(body, 3000);
}
