//! The atomics and their store.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{self, Ordering};

/// The numbers of atomics and of locks that the threads of a model may use.
const MOST: usize = 400;
const MOST_LOCKS: usize = 16;

/// Loom's part of everything that the threads of a model use. Loom requires that it is created
/// before the threads, but which atomics they use is known only later. Hence a store of them,
/// handed out one by one.
#[derive(Default)]
struct Store {
    words: Vec<atomic::AtomicU64>,
    contents: Vec<UnsafeCell<()>>,
    next: Cell<usize>,
    next_contents: Cell<usize>,
}

std::thread_local! {
    // Belongs to the thread that runs the model; loom's own threads are coroutines on it.
    static STAGED: Cell<bool> = const { Cell::new(false) };
    static STORE: RefCell<Rc<Store>> = RefCell::default();
}

/// Runs the part of a model that has several threads, all of which end in it.
pub fn staged<T>(body: impl FnOnce() -> T) -> T {
    STORE.set(Rc::new(Store {
        words: (0..MOST).map(|_| atomic::AtomicU64::new(0)).collect(),
        contents: (0..MOST_LOCKS).map(|_| UnsafeCell::new(())).collect(),
        ..Store::default()
    }));
    STAGED.set(true);
    let done = body();
    unstage();
    done
}

/// Makes all atomics plain values.
pub(crate) fn unstage() {
    STAGED.set(false);
}

/// Whether threads of a model are running.
pub(crate) fn is_staged() -> bool {
    STAGED.get()
}

fn next(next: &Cell<usize>) -> Option<usize> {
    Some(next.replace(next.get() + 1))
}

/// Reports to loom that the holder of a lock writes to the data it protects.
pub(crate) fn write(place: &Cell<Option<usize>>) {
    let store = STORE.with_borrow(Rc::clone);
    place.set(place.get().or_else(|| next(&store.next_contents)));
    let contents = place.get().and_then(|i| store.contents.get(i));
    contents.expect("the store has enough locks").with_mut(|_| ());
}

/// A value in loom: its distance from the value when the threads started.
#[derive(Default)]
struct Word(Cell<Option<usize>>);

impl Word {
    const fn new() -> Word {
        Word(Cell::new(None))
    }

    /// Calls `f` with loom's atomic.
    #[track_caller]
    fn with<T>(&self, f: impl FnOnce(&atomic::AtomicU64) -> T) -> T {
        let store = STORE.with_borrow(Rc::clone);
        self.0.set(self.0.get().or_else(|| next(&store.next)));
        let word = self.0.get().and_then(|i| store.words.get(i));
        f(word.expect("the store has enough atomics"))
    }

    /// The final distance; `None` if no thread used the atomic.
    fn end(&self) -> Option<u64> {
        self.0.get()?;
        let far = self.with(|w| w.load(Ordering::SeqCst));
        self.0.set(None);
        Some(far)
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty, $bits:expr, $from:expr $(, $more:ident)*) => {
        /// As that of `core`.
        pub struct $name {
            plain: Cell<$value>,
            word: Word,
        }

        // SAFETY: all threads of a model are coroutines of one thread, which switch only in loom's
        // operations.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            #[doc = "As that of `core`."]
            pub const fn new(value: $value) -> Self {
                $name { plain: Cell::new(value), word: Word::new() }
            }

            /// Converts a value to loom's distance.
            fn far(&self, value: $value) -> u64 {
                let bits: fn($value) -> u64 = $bits;
                bits(value).wrapping_sub(bits(self.plain.get()))
            }

            /// Converts loom's distance to a value.
            fn value_of(&self, far: u64) -> $value {
                let (bits, from): (fn($value) -> u64, fn(u64) -> $value) = ($bits, $from);
                from(bits(self.plain.get()).wrapping_add(far))
            }

            /// The plain value, updated with loom's last one.
            fn plain(&self) -> &Cell<$value> {
                if let Some(far) = self.word.end() {
                    self.plain.set(self.value_of(far));
                }
                &self.plain
            }

            #[doc = "As that of `core`."]
            #[track_caller]
            pub fn load(&self, order: Ordering) -> $value {
                if is_staged() {
                    self.value_of(self.word.with(|w| w.load(order)))
                } else {
                    self.plain().get()
                }
            }

            #[doc = "As that of `core`."]
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                if is_staged() {
                    self.word.with(|w| w.store(self.far(value), order));
                } else {
                    self.plain().set(value);
                }
            }

            #[doc = "As that of `core`."]
            #[track_caller]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                if is_staged() {
                    self.value_of(self.word.with(|w| w.swap(self.far(value), order)))
                } else {
                    self.plain().replace(value)
                }
            }

            #[doc = "As that of `core`."]
            #[track_caller]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                if is_staged() {
                    let (current, new) = (self.far(current), self.far(new));
                    let was = self.word.with(|w| w.compare_exchange(current, new, success, failure));
                    return was.map(|v| self.value_of(v)).map_err(|v| self.value_of(v));
                }
                let was = self.plain().get();
                if was != current {
                    return Err(was);
                }
                self.plain.set(new);
                Ok(was)
            }

            #[doc = "As that of `core`; it never fails without a reason."]
            #[track_caller]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[doc = "As that of `core`."]
            #[track_caller]
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut was = self.load(failure);
                while let Some(next) = f(was) {
                    match self.compare_exchange(was, next, success, failure) {
                        Ok(was) => return Ok(was),
                        Err(now) => was = now,
                    }
                }
                Err(was)
            }

            #[doc = "As that of `core`."]
            pub fn get_mut(&mut self) -> &mut $value {
                self.plain();
                self.plain.get_mut()
            }

            /// An operation that cannot work on a distance: a compare-exchange loop.
            #[track_caller]
            fn change(&self, order: Ordering, f: impl Fn($value) -> $value) -> $value {
                let changed = self.fetch_update(order, Ordering::Relaxed, |v| Some(f(v)));
                changed.unwrap_or_else(|v| v)
            }

            $(atomic!(@ $more $value);)*
        }

        impl Default for $name {
            fn default() -> Self {
                $name::new(<$value>::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an atomic of loom's")
            }
        }
    };
    (@ fetch_add $value:ty) => {
        #[doc = "As that of `core`."]
        #[track_caller]
        pub fn fetch_add(&self, n: $value, order: Ordering) -> $value {
            if is_staged() {
                return self.value_of(self.word.with(|w| w.fetch_add(n as u64, order)));
            }
            let was = self.plain().get();
            self.plain.set(was.wrapping_add(n));
            was
        }
    };
    (@ fetch_sub $value:ty) => {
        #[doc = "As that of `core`."]
        #[track_caller]
        pub fn fetch_sub(&self, n: $value, order: Ordering) -> $value {
            self.fetch_add((0 as $value).wrapping_sub(n), order)
        }
    };
    (@ fetch_max $value:ty) => { atomic!(@@ fetch_max $value, |was, n| was.max(n)); };
    (@ fetch_min $value:ty) => { atomic!(@@ fetch_min $value, |was, n| was.min(n)); };
    (@ fetch_or $value:ty) => { atomic!(@@ fetch_or $value, |was, n| was | n); };
    (@ fetch_and $value:ty) => { atomic!(@@ fetch_and $value, |was, n| was & n); };
    (@@ $name:ident $value:ty, |$was:ident, $n:ident| $new:expr) => {
        #[doc = "As that of `core`."]
        #[track_caller]
        pub fn $name(&self, $n: $value, order: Ordering) -> $value {
            self.change(order, |$was| $new)
        }
    };
}

macro_rules! number {
    ($name:ident, $value:ty) => {
        atomic!(
            $name,
            $value,
            |v| v as u64,
            |n| n as $value,
            fetch_add,
            fetch_sub,
            fetch_max,
            fetch_min,
            fetch_or,
            fetch_and
        );
    };
}

atomic!(AtomicBool, bool, u64::from, |n| n & 1 != 0, fetch_or, fetch_and);
number!(AtomicU8, u8);
number!(AtomicI32, i32);
number!(AtomicU32, u32);
number!(AtomicI64, i64);
number!(AtomicU64, u64);
