//! The atomics of the packed engine, which CPUs share. With the feature `lines` each access is
//! reported; without it they are those of [`sync`](crate::base::sync).

use core::ops::Deref;

#[cfg(not(feature = "lines"))]
pub(crate) use crate::base::sync::{
    AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64,
};
#[cfg(feature = "lines")]
pub(crate) use reported::{AtomicBool, AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64};

use crate::base::sync::{AtomicI64 as Counter, Ordering};

/// A value on a line of its own: CPUs that change it do not take the values beside it from others.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Reports a load of a counter that both engines have, by the packed one.
#[inline(always)]
pub(crate) fn loads(counter: &Counter) -> &Counter {
    #[cfg(feature = "lines")]
    crate::base::lines::report(counter, crate::base::lines::Access::Load);
    counter
}

/// Reports an update of a counter that both engines have, by the packed one.
#[inline(always)]
pub(crate) fn updates(counter: &Counter) -> &Counter {
    #[cfg(feature = "lines")]
    crate::base::lines::report(counter, crate::base::lines::Access::Update);
    counter
}

/// Reads a word without using its value, so that its line is near soon.
#[inline(always)]
pub(crate) fn fetch(word: &AtomicU64, order: Ordering) {
    #[cfg(feature = "lines")]
    word.fetch(order);
    #[cfg(not(feature = "lines"))]
    word.load(order);
}

#[cfg(feature = "lines")]
mod reported {
    use crate::base::lines::{Access, report};
    use crate::base::sync::{self, Ordering};

    macro_rules! reported {
        ($($name:ident: $value:ty)*) => {$(
            #[derive(Debug)]
            #[repr(transparent)]
            pub(crate) struct $name(sync::$name);

            #[allow(dead_code)] // not every type needs each
            impl $name {
                pub(crate) const fn new(value: $value) -> Self {
                    $name(sync::$name::new(value))
                }

                #[inline]
                pub(crate) fn load(&self, order: Ordering) -> $value {
                    report(self, Access::Load);
                    self.0.load(order)
                }

                #[inline]
                pub(crate) fn fetch(&self, order: Ordering) {
                    report(self, Access::Fetch);
                    self.0.load(order);
                }

                #[inline]
                pub(crate) fn store(&self, value: $value, order: Ordering) {
                    report(self, Access::Store);
                    self.0.store(value, order);
                }

                #[inline]
                pub(crate) fn swap(&self, value: $value, order: Ordering) -> $value {
                    report(self, Access::Update);
                    self.0.swap(value, order)
                }

                #[inline]
                pub(crate) fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    report(self, Access::Update);
                    self.0.compare_exchange(current, new, success, failure)
                }

                #[inline]
                pub(crate) fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    report(self, Access::Update);
                    self.0.compare_exchange_weak(current, new, success, failure)
                }
            }
        )*};
    }

    macro_rules! integers {
        ($($name:ident: $value:ty)*) => {
            reported! { $($name: $value)* }
            $(
                updates! { $name: $value, fetch_add fetch_sub fetch_and fetch_or }

                #[allow(dead_code)] // not every type needs it
                impl $name {
                    #[inline]
                    pub(crate) fn fetch_update(
                        &self,
                        set: Ordering,
                        fetch: Ordering,
                        change: impl FnMut($value) -> Option<$value>,
                    ) -> Result<$value, $value> {
                        report(self, Access::Update);
                        self.0.fetch_update(set, fetch, change)
                    }
                }
            )*
        };
    }

    macro_rules! updates {
        ($name:ident: $value:ty, $($update:ident)*) => {
            #[allow(dead_code)] // not every type needs each
            impl $name {
                $(
                    #[inline]
                    pub(crate) fn $update(&self, by: $value, order: Ordering) -> $value {
                        report(self, Access::Update);
                        self.0.$update(by, order)
                    }
                )*
            }
        };
    }

    reported! { AtomicBool: bool }
    integers! { AtomicI32: i32 AtomicI64: i64 AtomicU8: u8 AtomicU32: u32 AtomicU64: u64 }
}
