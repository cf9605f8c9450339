//! Optional hooks beyond the platform: events, defences, reports of free memory.

use core::ffi::c_void;
use core::mem::offset_of;

use pageyard::policy::{Engine, Linux612, MAX_GUARD_ORDER, Packed, Rules, Safety, StaticPolicy};
use pageyard::{MAX_ORDER, PageFlags};

use crate::events::{pageyard_event, pageyard_report};
use crate::flags::PAGEYARD_VERSION;
use crate::sized::Growing;
use crate::status::{PAGEYARD_ERR_ARGUMENT, PAGEYARD_ERR_NOT_ON_PACKED, pageyard_status};

/// `event` receives PAGEYARD_EVENT_HIGH too.
pub const PAGEYARD_SEE_TUNING: u32 = 1 << 0;
/// `event` receives every allocated block. Without it, pages of a bulk request may come without an
/// event of their own. With it, such requests are served page by page.
pub const PAGEYARD_SEE_EVERY_BLOCK: u32 = 1 << 1;
/// All memory is zeroed when it is allocated, through the `zero` function of the platform. No effect
/// with `poison`.
pub const PAGEYARD_INIT_ON_ALLOC: u32 = 1 << 2;
/// All memory is zeroed when it becomes free, through the `zero` function of the platform, and never
/// when it is allocated. No effect with `poison`.
pub const PAGEYARD_INIT_ON_FREE: u32 = 1 << 3;

/// The page is locked by a user that works on it.
pub const PAGEYARD_PAGE_LOCKED: u32 = 1 << 0;
/// The page is on a reclaim list.
pub const PAGEYARD_PAGE_LRU: u32 = 1 << 1;
/// The page is on the active reclaim list.
pub const PAGEYARD_PAGE_ACTIVE: u32 = 1 << 2;
/// A file system keeps private data with the page.
pub const PAGEYARD_PAGE_PRIVATE: u32 = 1 << 3;
/// A second mark of that kind.
pub const PAGEYARD_PAGE_PRIVATE_2: u32 = 1 << 4;
/// The page is being written out.
pub const PAGEYARD_PAGE_WRITEBACK: u32 = 1 << 5;
/// The page is not managed by the allocator.
pub const PAGEYARD_PAGE_RESERVED: u32 = 1 << 6;
/// The page is excluded from reclaim.
pub const PAGEYARD_PAGE_UNEVICTABLE: u32 = 1 << 7;
/// The page is locked in memory by its user.
pub const PAGEYARD_PAGE_MLOCKED: u32 = 1 << 8;
/// The page was changed since it was read. May be set when the page is freed, but must be clear when
/// it is allocated, as all flags from here on.
pub const PAGEYARD_PAGE_DIRTY: u32 = 1 << 9;
/// The contents of the page are valid.
pub const PAGEYARD_PAGE_UPTODATE: u32 = 1 << 10;
/// The page was used recently.
pub const PAGEYARD_PAGE_REFERENCED: u32 = 1 << 11;
/// The memory of the page is faulty: its block is put out of use without a report.
pub const PAGEYARD_PAGE_HWPOISON: u32 = 1 << 12;
/// The first flag without a meaning to the library.
pub const PAGEYARD_PAGE_OTHER: u32 = 1 << 16;

/// The page is in no compound block.
pub const PAGEYARD_LINK_SINGLE: u32 = 0;
/// The page is the first of a compound block.
pub const PAGEYARD_LINK_HEAD: u32 = 1;
/// The page belongs to the compound block that starts at `head`.
pub const PAGEYARD_LINK_TAIL: u32 = 2;

/// The state of a page in the caller's own descriptors. The library passes it filled in as an unused
/// page, which passes every check: `mapcount` is -1, all else 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_page_state {
    /// Number of mappings minus one.
    pub mapcount: i32,
    /// Number of references.
    pub refcount: u32,
    /// PAGEYARD_PAGE flags.
    pub flags: u32,
    /// Nonzero: the page belongs to a file or to anonymous memory. For a tail: the mark that tails
    /// have in this place is missing.
    pub mapping: u32,
    /// Nonzero: the page is charged to a control group.
    pub charged: u32,
    /// A PAGEYARD_LINK number. An unknown one fails the check of an allocation.
    pub link: u32,
    /// With PAGEYARD_LINK_TAIL: first frame of the compound block.
    pub head: u64,
}

/// Damage to the contents of a free block. Offsets are in bytes from the start of the block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_corruption {
    /// Offset of the first damaged byte.
    pub first: u64,
    /// Offset of the last damaged byte.
    pub last: u64,
    /// Nonzero: exactly one bit differs.
    pub single_bit: u32,
    /// Zero.
    pub reserved: u32,
}

/// A free block in a report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pageyard_block {
    /// First frame.
    pub pfn: u64,
    /// Order.
    pub order: u32,
    /// Zero.
    pub reserved: u32,
}

/// Hooks beyond the platform: events, defences against mistakes and faults, reports of free memory.
/// Set the structure to zero, then set `struct_size` to sizeof(struct pageyard_hooks), `version` to
/// PAGEYARD_VERSION, and the functions you want. Every function is optional (null): what it would
/// check or report is then turned off. Pass it in the field `hooks` of struct pageyard_platform.
///
/// A yard without this structure runs code that has none of these hooks. On PAGEYARD_ENGINE_PACKED,
/// `page_state`, `poison`, `check_poison`, `unmap` and `map` must be null, `guard_min_order` 0, and
/// PAGEYARD_INIT_ON_ALLOC and PAGEYARD_INIT_ON_FREE not set.
///
/// Owner: pageyard_core_create copies the structure. What `context` points to must live as long as
/// the yard.
///
/// Threads: functions are called on the thread or CPU that calls the library, any number at once. No
/// function except `report_free` may make requests. `event`, `report` and `page_state` may be called
/// with locks held: they must not call the library and must not sleep. The others are called without
/// locks held. They may sleep if the request may (PAGEYARD_DIRECT_RECLAIM), but a block may be freed
/// where nothing may sleep. No function may exit through an exception or longjmp.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct pageyard_hooks {
    /// sizeof(struct pageyard_hooks).
    pub struct_size: u32,
    /// PAGEYARD_VERSION.
    pub version: u32,
    /// Passed to every function.
    pub context: *mut c_void,
    /// Any of PAGEYARD_SEE_TUNING, PAGEYARD_SEE_EVERY_BLOCK, PAGEYARD_INIT_ON_ALLOC,
    /// PAGEYARD_INIT_ON_FREE.
    pub flags: u32,
    /// Blocks of this order and above are reported to `report_free`, 1 to 10. 0: 9 (2 MiB).
    pub report_order: u32,
    /// Parts of orders below this that a split leaves over become guards, which no request gets: 1 to
    /// 5. 0: none.
    pub guard_min_order: u32,
    /// Zero.
    pub reserved: u32,
    /// Observes an event. The structure lives until the function returns. Locks may be held.
    pub event: Option<unsafe extern "C" fn(context: *mut c_void, event: *const pageyard_event)>,
    /// Observes what a check found. The structure lives until the function returns. Locks may be
    /// held. In each zone, at most 60 bad pages a minute and 10 damaged blocks in 5 seconds of `now`
    /// are reported; if `now` is null, at most that many in total.
    pub report: Option<unsafe extern "C" fn(context: *mut c_void, report: *const pageyard_report)>,
    /// Returns nonzero if this request must fail, to test its caller. Called at the start of every
    /// request except those for contiguous ranges.
    pub fail: Option<unsafe extern "C" fn(context: *mut c_void, order: u32, flags: u32) -> i32>,
    /// Fills in the state of a page in the caller's own descriptors. Called for every page of a block
    /// when it is freed and when it is allocated. A block with a page that is still in use is put out
    /// of use and reported. Locks may be held.
    pub page_state: Option<
        unsafe extern "C" fn(context: *mut c_void, pfn: u64, state: *mut pageyard_page_state),
    >,
    /// Fills a block that becomes free with a pattern. Supply `check_poison` too.
    pub poison: Option<unsafe extern "C" fn(context: *mut c_void, pfn: u64, order: u32)>,
    /// Checks that a block about to be allocated still holds the pattern. Returns nonzero if it does
    /// not, and says where. It need not be a block that `poison` was called for as a whole.
    pub check_poison: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            pfn: u64,
            order: u32,
            damage: *mut pageyard_corruption,
        ) -> i32,
    >,
    /// Unmaps a block that becomes free, after `poison`. Supply `map` too.
    pub unmap: Option<unsafe extern "C" fn(context: *mut c_void, pfn: u64, order: u32)>,
    /// Maps a block that is about to be allocated. It need not be a block that was unmapped as a
    /// whole.
    pub map: Option<unsafe extern "C" fn(context: *mut c_void, pfn: u64, order: u32)>,
    /// Reports `count` free blocks, at most 32, none of which is allocated until this returns: their
    /// memory may be used elsewhere. Returns nonzero if the report was accepted; otherwise they are
    /// reported again later. Called by pageyard_core_report_free only. May sleep and may make
    /// requests.
    pub report_free: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            blocks: *const pageyard_block,
            count: usize,
        ) -> i32,
    >,
}

// SAFETY: the structure begins with the two fields. Zero is a null pointer, a number or a missing
// function.
unsafe impl Growing for pageyard_hooks {
    const LEAST: usize = offset_of!(Self, report_free) + size_of::<usize>();
}

impl pageyard_hooks {
    /// Returns hooks without functions.
    pub(crate) const fn none() -> Self {
        pageyard_hooks {
            struct_size: size_of::<Self>() as u32,
            version: PAGEYARD_VERSION,
            context: core::ptr::null_mut(),
            flags: 0,
            report_order: 0,
            guard_min_order: 0,
            reserved: 0,
            event: None,
            report: None,
            fail: None,
            page_state: None,
            poison: None,
            check_poison: None,
            unmap: None,
            map: None,
            report_free: None,
        }
    }

    /// Returns the rules of a yard with these hooks.
    ///
    /// # Errors
    /// Fails for a number out of range, for one function of a pair without the other, and for what the
    /// engine does not have.
    pub(crate) fn rules(&self, engine: Engine) -> Result<Rules, pageyard_status> {
        let known = PAGEYARD_SEE_TUNING
            | PAGEYARD_SEE_EVERY_BLOCK
            | PAGEYARD_INIT_ON_ALLOC
            | PAGEYARD_INIT_ON_FREE;
        let in_range = self.flags & !known == 0
            && self.report_order <= MAX_ORDER.into()
            && self.guard_min_order <= MAX_GUARD_ORDER.into()
            && self.reserved == 0;
        let paired = self.poison.is_some() == self.check_poison.is_some()
            && self.unmap.is_some() == self.map.is_some();
        if !in_range || !paired {
            return Err(PAGEYARD_ERR_ARGUMENT);
        }
        let safety = Safety {
            page_checks: self.page_state.is_some(),
            poison: self.poison.is_some(),
            init_on_alloc: self.flags & PAGEYARD_INIT_ON_ALLOC != 0,
            init_on_free: self.flags & PAGEYARD_INIT_ON_FREE != 0,
            unmap: self.unmap.is_some(),
            guard_min_order: self.guard_min_order as u8,
        };
        match engine {
            Engine::Exact => Ok(Rules { safety, ..Linux612::RULES }),
            Engine::Packed if safety == Safety::OFF => Ok(Packed::RULES),
            Engine::Packed => Err(PAGEYARD_ERR_NOT_ON_PACKED),
        }
    }
}

const _: () = {
    assert!(PAGEYARD_PAGE_LOCKED == PageFlags::LOCKED.bits());
    assert!(PAGEYARD_PAGE_LRU == PageFlags::LRU.bits());
    assert!(PAGEYARD_PAGE_ACTIVE == PageFlags::ACTIVE.bits());
    assert!(PAGEYARD_PAGE_PRIVATE == PageFlags::PRIVATE.bits());
    assert!(PAGEYARD_PAGE_PRIVATE_2 == PageFlags::PRIVATE_2.bits());
    assert!(PAGEYARD_PAGE_WRITEBACK == PageFlags::WRITEBACK.bits());
    assert!(PAGEYARD_PAGE_RESERVED == PageFlags::RESERVED.bits());
    assert!(PAGEYARD_PAGE_UNEVICTABLE == PageFlags::UNEVICTABLE.bits());
    assert!(PAGEYARD_PAGE_MLOCKED == PageFlags::MLOCKED.bits());
    assert!(PAGEYARD_PAGE_DIRTY == PageFlags::DIRTY.bits());
    assert!(PAGEYARD_PAGE_UPTODATE == PageFlags::UPTODATE.bits());
    assert!(PAGEYARD_PAGE_REFERENCED == PageFlags::REFERENCED.bits());
    assert!(PAGEYARD_PAGE_HWPOISON == PageFlags::HWPOISON.bits());
    assert!(PAGEYARD_PAGE_OTHER == PageFlags::OTHER.bits());
};
