//! The atomics of `core`, which report each access with its place in the source to a hook of the
//! calling thread. Only one thread of an exploration runs at a time, so orderings do not matter.
//!
//! A thread can be given a [`Fault`], for the tests that plant bugs.

use std::cell::Cell;
use std::panic::Location;
use std::sync::atomic as real;

pub use real::{Ordering, fence};

/// The kind of an access to an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// A plain load.
    Load,
    /// A plain store.
    Store,
    /// A read-modify-write, or the store half of one that a fault has torn.
    Update,
}

/// Called before every access of a thread.
pub type Hook = fn(Access, &'static Location<'static>);

/// A fault in a thread's atomics, limited to those used in one source file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No fault.
    None,
    /// Read-modify-writes in this file become a load and a later store.
    Torn(&'static str),
    /// Compare-exchanges in this file always report success.
    Forced(&'static str),
    /// Loads of bytes in this file miss these bits.
    Blind(&'static str, u8),
}

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
    static FAULT: Cell<Fault> = const { Cell::new(Fault::None) };
}

/// Sets the calling thread's hook and returns the previous one.
pub fn set_hook(hook: Option<Hook>) -> Option<Hook> {
    HOOK.replace(hook)
}

/// Sets the fault of the calling thread's atomics. It applies while the thread has a hook.
pub fn set_fault(fault: Fault) {
    FAULT.set(fault);
}

#[inline]
fn tell(access: Access, place: &'static Location<'static>) {
    if let Some(hook) = HOOK.get() {
        hook(access, place);
    }
}

fn fault() -> Fault {
    if HOOK.get().is_some() { FAULT.get() } else { Fault::None }
}

fn is_forced(place: &Location<'_>) -> bool {
    matches!(fault(), Fault::Forced(file) if place.file().ends_with(file))
}

fn is_torn(place: &Location<'_>) -> bool {
    matches!(fault(), Fault::Torn(file) if place.file().ends_with(file))
}

/// Returns a byte as the thread sees it, which may be blind for some of its bits.
fn seen(byte: u8, place: &Location<'_>) -> u8 {
    match fault() {
        Fault::Blind(file, bits) if place.file().ends_with(file) => byte & !bits,
        _ => byte,
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty, $see:expr $(, $fetch:ident = $new:expr)*) => {
        #[doc = "As that of `core`."]
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub struct $name(real::$name);

        #[allow(missing_docs)] // like those of `core`
        impl $name {
            #[inline]
            pub const fn new(value: $value) -> Self {
                $name(real::$name::new(value))
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            #[inline]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                let place = Location::caller();
                tell(Access::Load, place);
                let see: fn($value, &Location<'_>) -> $value = $see;
                see(self.0.load(order), place)
            }

            #[inline]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                tell(Access::Store, Location::caller());
                self.0.store(value, order);
            }

            /// Replaces the value by the result of `new`, if there is one. Takes two steps if a
            /// fault tears read-modify-writes.
            fn change(
                &self,
                place: &'static Location<'static>,
                new: impl Fn($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                tell(Access::Update, place);
                let old = self.0.load(Ordering::SeqCst);
                if is_torn(place) {
                    tell(Access::Update, place);
                }
                let new = new(old).ok_or(old)?;
                self.0.store(new, Ordering::SeqCst);
                Ok(old)
            }

            #[track_caller]
            pub fn swap(&self, value: $value, _: Ordering) -> $value {
                self.change(Location::caller(), |_| Some(value)).unwrap_or_else(|old| old)
            }

            #[track_caller]
            pub fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                let place = Location::caller();
                let forced = is_forced(place);
                self.change(place, |old| (forced || old == from).then_some(to))
            }

            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(from, to, success, failure)
            }

            /// Like that of `core`: a load, then compare-exchanges until one succeeds.
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut new: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut old = self.load(failure);
                while let Some(next) = new(old) {
                    match self.compare_exchange(old, next, success, failure) {
                        Ok(old) => return Ok(old),
                        Err(now) => old = now,
                    }
                }
                Err(old)
            }

            $(
                #[track_caller]
                pub fn $fetch(&self, by: $value, _: Ordering) -> $value {
                    let new: fn($value, $value) -> $value = $new;
                    self.change(Location::caller(), |old| Some(new(old, by))).unwrap_or_else(|old| old)
                }
            )*
        }
    };
}

macro_rules! integer {
    ($name:ident, $value:ty, $see:expr) => {
        atomic!(
            $name,
            $value,
            $see,
            fetch_add = <$value>::wrapping_add,
            fetch_sub = <$value>::wrapping_sub,
            fetch_and = |a, b| a & b,
            fetch_or = |a, b| a | b,
            fetch_max = Ord::max,
            fetch_min = Ord::min
        );
    };
}

atomic!(AtomicBool, bool, |v, _| v);
integer!(AtomicI32, i32, |v, _| v);
integer!(AtomicI64, i64, |v, _| v);
integer!(AtomicU8, u8, seen);
integer!(AtomicU32, u32, |v, _| v);
integer!(AtomicU64, u64, |v, _| v);
