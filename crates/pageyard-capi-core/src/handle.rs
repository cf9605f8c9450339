//! The handle of a yard on the caller's memory.

use core::mem::{ManuallyDrop, offset_of};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(feature = "packed")]
use pageyard::policy::Packed;
use pageyard::policy::{Engine, Linux612, NoProposals, Rules, StaticPolicy};
use pageyard::{Hooked, InitError, Layout, Storage, Yard};

use crate::hooked::CHooks;
use crate::hooks::pageyard_hooks;
use crate::lock::CLock;
use crate::platform::{CPlatform, pageyard_platform};
use crate::sized;
use crate::status::{PAGEYARD_ERR_HANDLE, pageyard_status};

/// The allocator behind a handle, without [`pageyard_hooks`].
pub type PlainYard = Yard<'static, Hooked<CLock, CPlatform, Linux612>>;

/// The allocator behind a handle, with [`pageyard_hooks`]. A type of its own, so that a yard without
/// them does not test for them.
pub type HookedYard = Yard<'static, Hooked<CLock, CHooks, NoProposals<'static>>>;

/// The allocator behind a handle, on the packed engine and without [`pageyard_hooks`]. With them it is a
/// [`HookedYard`], whose rules name the engine.
#[cfg(feature = "packed")]
pub type PackedYard = Yard<'static, Hooked<CLock, CPlatform, Packed>>;

/// The allocator behind a handle.
#[derive(Clone, Copy, Debug)]
pub enum CoreYard<'h> {
    /// Without [`pageyard_hooks`].
    Plain(&'h PlainYard),
    /// With them, on either engine.
    Hooked(&'h HookedYard),
    /// On the packed engine, without them.
    #[cfg(feature = "packed")]
    Packed(&'h PackedYard),
}

/// The magic word of a handle, less its address. So neither a copy of a handle nor a pointer into one is a handle.
const PLAIN: u64 = u32::from_be_bytes(*b"pgy1") as u64;
const OTHER: u64 = u32::from_be_bytes(*b"pgy2") as u64;
/// What an [`OTHER`] yard is. Apart from the magic word, so that a plain yard is known by one
/// comparison, whatever else the library holds.
const HOOKED: u32 = 0;
#[cfg(feature = "packed")]
const PACKED: u32 = 1;

/// An allocator on the caller's memory. Functions check handles. They return PAGEYARD_ERR_HANDLE
/// for a handle that is null, a copy, or of a destroyed yard whose room has not been written
/// since. A pointer to anything else is read, which faults if it is not mapped, and is then an error
/// unless it points at the number that a handle would have there.
pub struct pageyard_core(Body);

/// The magic word comes first: of a pointer that is not a handle, only the word is read. With `other`
/// it says which yard there is.
#[repr(C)]
struct Body {
    magic: AtomicU64,
    other: AtomicU32,
    yard: Any,
}

union Any {
    plain: ManuallyDrop<PlainYard>,
    hooked: ManuallyDrop<HookedYard>,
    #[cfg(feature = "packed")]
    packed: ManuallyDrop<PackedYard>,
}

impl pageyard_core {
    /// Returns storage that is not a handle yet. A constant, because it is copied to its place; a
    /// value would be built on the stack first.
    pub(crate) const fn unmade() -> Self {
        let platform = CPlatform::new(pageyard_platform::none());
        let plain = ManuallyDrop::new(Yard::without_memory(platform));
        Self::of(HOOKED, Any { plain })
    }

    const fn of(other: u32, yard: Any) -> Self {
        pageyard_core(Body { magic: AtomicU64::new(0), other: AtomicU32::new(other), yard })
    }

    /// Like [`unmade`](Self::unmade), with room for [`pageyard_hooks`].
    const fn unmade_hooked() -> Self {
        let platform = CPlatform::new(pageyard_platform::none());
        let hooks = CHooks { platform, hooks: pageyard_hooks::none() };
        let hooked = ManuallyDrop::new(Yard::with_policy(hooks, NoProposals(&Linux612::RULES)));
        Self::of(HOOKED, Any { hooked })
    }

    /// Like [`unmade`](Self::unmade), for the packed engine.
    #[cfg(feature = "packed")]
    const fn unmade_packed() -> Self {
        let platform = CPlatform::new(pageyard_platform::none());
        let packed = ManuallyDrop::new(Yard::without_memory(platform));
        Self::of(PACKED, Any { packed })
    }

    /// Makes an unmade yard one with hooks on this engine, and sets the rules to those that they ask
    /// for. Not inlined, and as the structure is read to its place, it takes no stack where there are no hooks.
    ///
    /// # Errors
    /// Fails for an unknown or invalid structure, and for hooks that the engine does not have.
    ///
    /// # Safety
    /// The pointer must be null or point to a structure of the size in its first field.
    #[inline(never)]
    pub(crate) unsafe fn add_hooks(
        &mut self,
        hooks: *const pageyard_hooks,
        rules: &'static mut Rules,
        engine: Engine,
    ) -> Result<(), pageyard_status> {
        *self = const { pageyard_core::unmade_hooked() };
        // SAFETY: just written.
        let yard = unsafe { &mut self.0.yard.hooked };
        let to = &mut yard.hooks_mut().hooks;
        // SAFETY: guaranteed by the caller.
        unsafe { sized::read_to(hooks, to) }?;
        *rules = to.rules(engine)?;
        yard.set_policy(NoProposals(rules));
        Ok(())
    }

    /// Initializes an unmade yard on this engine and makes this a valid handle. `hooked`: it has
    /// [hooks](Self::add_hooks).
    #[inline(always)]
    pub(crate) fn init(
        &mut self,
        table: &pageyard_platform,
        (engine, hooked): (Engine, bool),
        layout: &Layout<'_>,
        storage: Storage<'static, CLock>,
    ) -> Result<(), InitError> {
        if hooked {
            return self.init_apart(table, layout, storage);
        }
        #[cfg(feature = "packed")]
        if engine == Engine::Packed {
            return self.init_on_packed(table, layout, storage);
        }
        _ = engine;
        // SAFETY: without hooks, an unmade yard is a plain one.
        let yard = unsafe { &mut self.0.yard.plain };
        yard.hooks_mut().set(table);
        yard.init(layout, storage)?;
        self.make(PLAIN);
        Ok(())
    }

    #[inline(never)]
    fn init_apart(
        &mut self,
        table: &pageyard_platform,
        layout: &Layout<'_>,
        storage: Storage<'static, CLock>,
    ) -> Result<(), InitError> {
        // SAFETY: `add_hooks` has written it.
        let yard = unsafe { &mut self.0.yard.hooked };
        yard.hooks_mut().platform.set(table);
        yard.init(layout, storage)?;
        self.make(OTHER);
        Ok(())
    }

    #[cfg(feature = "packed")]
    #[inline(never)]
    fn init_on_packed(
        &mut self,
        table: &pageyard_platform,
        layout: &Layout<'_>,
        storage: Storage<'static, CLock>,
    ) -> Result<(), InitError> {
        *self = const { pageyard_core::unmade_packed() };
        // SAFETY: just written (`core.c` on the packed engine).
        let yard = unsafe { &mut self.0.yard.packed };
        yard.hooks_mut().set(table);
        yard.init(layout, storage)?;
        self.make(OTHER);
        Ok(())
    }

    /// Makes this a valid handle.
    fn make(&self, kind: u64) {
        let address = ptr::from_ref(self).addr() as u64;
        self.0.magic.store(address.wrapping_add(kind), Ordering::Relaxed);
    }

    /// Invalidates the handle. The yard consists of atomics and the caller's memory, so nothing is
    /// dropped.
    pub(crate) fn end(&self) {
        self.0.magic.store(0, Ordering::Relaxed);
    }
}

const _: () = assert!(offset_of!(pageyard_core, 0) == 0 && offset_of!(Body, magic) == 0);

/// Returns the yard of a handle.
///
/// # Errors
/// Fails if the pointer is detectably not a handle.
///
/// # Safety
/// The pointer must be null or point to readable memory. If that holds a yard, the yard must not be
/// destroyed meanwhile.
#[inline(always)]
pub unsafe fn of<'h>(handle: *const pageyard_core) -> Result<CoreYard<'h>, pageyard_status> {
    if handle.is_null() {
        return Err(PAGEYARD_ERR_HANDLE);
    }
    // SAFETY: the caller guarantees that it is readable. It may be misaligned, and nothing writes the word
    // of a yard that is not being destroyed (`misuse_is_an_error` has pointers of all kinds).
    let word = unsafe { handle.cast::<u64>().read_unaligned() };
    match word.wrapping_sub(handle.addr() as u64) {
        // SAFETY: the word is written last and cleared first, so there is a yard, and this is its address
        // (a stale handle and a copy in `misuse_is_an_error`).
        PLAIN => Ok(CoreYard::Plain(unsafe { &(*handle).0.yard.plain })),
        // SAFETY: as above.
        OTHER => unsafe { other(&*handle) },
        _ => Err(PAGEYARD_ERR_HANDLE),
    }
}

/// Returns the yard of a handle that is not a plain one.
///
/// # Safety
/// There must be such a yard.
#[inline(always)]
unsafe fn other(handle: &pageyard_core) -> Result<CoreYard<'_>, pageyard_status> {
    match handle.0.other.load(Ordering::Relaxed) {
        #[cfg(feature = "packed")]
        // SAFETY: `unmade_packed` wrote the number and the yard (`core.c` on the packed engine).
        PACKED => Ok(CoreYard::Packed(unsafe { &handle.0.yard.packed })),
        _ if cfg!(not(feature = "without-hooks")) => {
            // SAFETY: `unmade_hooked` wrote the yard (`hooks_are_called_and_have_their_effect`).
            Ok(CoreYard::Hooked(unsafe { &handle.0.yard.hooked }))
        }
        _ => Err(PAGEYARD_ERR_HANDLE),
    }
}

/// Calls a function with the yard of a handle, of whichever type it is. The function is compiled once
/// for each type. None is inlined: as the last calls of the caller they reuse its stack frame, and a
/// yard takes no stack for those of another type (`tests/c/stack.rs` tells them apart by the names).
macro_rules! on_yard {
    ($handle:expr, |$yard:ident $(, $arg:ident: $type:ty)*| $body:expr) => {{
        #[inline(always)]
        fn body<C: ::pageyard::Config>(
            $yard: &::pageyard::Yard<'_, C>, $($arg: $type),*
        ) -> impl $crate::status::Answer {
            $body
        }
        #[inline(never)]
        fn here(yard: &$crate::handle::PlainYard, $($arg: $type),*) -> pageyard_status {
            $crate::status::Answer::status(body(yard, $($arg),*))
        }
        #[inline(never)]
        fn apart(yard: &$crate::handle::HookedYard, $($arg: $type),*) -> pageyard_status {
            $crate::status::Answer::status(body(yard, $($arg),*))
        }
        #[cfg(feature = "packed")]
        #[inline(never)]
        fn on_packed(yard: &$crate::handle::PackedYard, $($arg: $type),*) -> pageyard_status {
            $crate::status::Answer::status(body(yard, $($arg),*))
        }
        match $handle {
            Ok($crate::handle::CoreYard::Plain(yard)) => here(yard, $($arg),*),
            Ok($crate::handle::CoreYard::Hooked(yard)) => apart(yard, $($arg),*),
            #[cfg(feature = "packed")]
            Ok($crate::handle::CoreYard::Packed(yard)) => on_packed(yard, $($arg),*),
            Err(status) => status,
        }
    }};
}
pub(crate) use on_yard;
