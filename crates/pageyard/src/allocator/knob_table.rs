//! The table of all settings (spec §10): names, ranges, defaults and effects. It is the source for
//! access by name, for the ranges that [`Knobs::check`] enforces, and for `docs/knobs.md`.

use core::fmt::{self, Write};

use crate::allocator::knob_error::{Excerpt, KnobError};
use crate::allocator::knobs::Knobs;
use crate::base::put::{Put, put};
use crate::embedder::policy::Rules;

/// When and where a setting can be chosen.
///
/// ```
/// use pageyard::{Access, Knob};
///
/// let writable = |name| Knob::named(name).is_some_and(|k| k.access == Access::RunTime);
/// assert!(writable("min_free_kbytes") && !writable("page_poison"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Readable and writable at any time.
    RunTime,
    /// Writable at any time, to trigger an action. Not readable.
    WriteOnly,
    /// A field of [`Layout::knobs`](crate::Layout::knobs), read-only after the start.
    Start,
    /// Fixed at compile time by the [policy](crate::policy).
    Policy,
    /// A kernel setting that the allocator does not have; the text names what decides instead.
    Elsewhere(&'static str),
}

/// One setting.
///
/// ```
/// use pageyard::{KNOBS, Knob};
///
/// let knob = Knob::named("min_free_kbytes").unwrap();
/// println!("{} ({}): {}", knob.name, knob.range, knob.effect);
/// assert!(KNOBS.iter().any(|k| k.name == knob.name));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// The kernel's name, or this project's if the kernel has no such setting.
    pub name: &'static str,
    /// The unit of its numbers; empty for plain numbers.
    pub unit: &'static str,
    /// Its value in [`Knobs::default`], or how that value is computed.
    pub default: &'static str,
    /// The values it accepts.
    pub range: &'static str,
    /// Its effect, in one line.
    pub effect: &'static str,
    /// When it can be chosen.
    pub access: Access,
    /// Whether the kernel lacks this setting.
    pub ours: bool,
    value: Value,
    pub(crate) follows: Follows,
}

/// How a setting's text maps to its field.
#[derive(Clone, Copy, Debug)]
enum Value {
    Number {
        get: fn(&Knobs) -> u64,
        set: fn(&mut Knobs, u64),
        fits: fn(u64) -> bool,
    },
    Switch {
        get: fn(&Knobs) -> bool,
        set: fn(&mut Knobs, bool),
    },
    /// `lowmem_reserve_ratio`.
    Ratios,
    /// `numa_zonelist_order`: the name of the only remaining order.
    ZonelistOrder,
    /// Write-only: accepts 1, to trigger an action.
    Trigger,
    /// Fixed at the start: `Y` or `N`.
    Fixed(fn(&Knobs) -> bool),
    OfPolicy(fn(&Rules) -> u64),
    /// Whether the policy includes it: `Y` or `N`.
    InPolicy(fn(&Rules) -> bool),
    None,
}

/// What to update after a setting is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Follows {
    Nothing,
    Watermarks,
    Boost,
    Reserves,
    Limits,
    NumaStat,
    /// Compact all zones.
    Compact,
    /// Wake background compaction at once, unless its proactiveness is now 0.
    Proactive,
}

/// Larger values could overflow the arithmetic and have no use.
const MOST_KBYTES: u64 = 1 << 40;
const MOST_FACTOR: u64 = 1 << 31;
const MOST_PAGES: u64 = 1 << 48;
/// The kernel's settings of this kind are C ints.
const MOST_INT: u64 = i32::MAX as u64;
/// The largest number of seconds whose ticks, at 1000 per second, fit the kernel's int.
const MOST_SECONDS: u64 = MOST_INT / 1000;

const BLANK: Knob = Knob {
    name: "",
    unit: "",
    default: "0",
    range: "",
    effect: "",
    access: Access::RunTime,
    ours: false,
    value: Value::None,
    follows: Follows::Nothing,
};

/// A number with a field of its own.
macro_rules! number {
    ($field:ident, |$n:ident| $fits:expr) => {
        Value::Number { get: |k| k.$field.into(), set: |k, n| k.$field = n as _, fits: |$n| $fits }
    };
}

macro_rules! switch {
    ($field:ident) => {
        Value::Switch { get: |k| k.$field, set: |k, on| k.$field = on }
    };
}

const fn elsewhere(name: &'static str, effect: &'static str, decides: &'static str) -> Knob {
    Knob { name, default: "off", range: "-", effect, access: Access::Elsewhere(decides), ..BLANK }
}

const fn in_policy(name: &'static str, effect: &'static str, get: fn(&Rules) -> bool) -> Knob {
    let (default, range, access) = ("N", "Y or N", Access::Policy);
    Knob { name, default, range, effect, access, value: Value::InPolicy(get), ..BLANK }
}

/// All settings of §10 in its order, then those that the kernel lacks.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "min_free_kbytes",
        unit: "kB",
        default: "computed from the memory (§3.1)",
        range: "0 to 2^40",
        effect: "memory kept free for the kernel's own needs; watermarks and limits of the per-CPU \
                 lists follow",
        value: Value::Number {
            // Below the user's value only in a layout, where it is not computed yet.
            get: |k| k.min_free_kbytes.max(k.user_min_free_kbytes.unwrap_or(0)),
            set: |k, kb| {
                k.min_free_kbytes = kb;
                k.user_min_free_kbytes = Some(kb);
            },
            fits: |kb| kb <= MOST_KBYTES,
        },
        follows: Follows::Watermarks,
        ..BLANK
    },
    Knob {
        name: "watermark_scale_factor",
        unit: "1/10000 of a zone",
        default: "10",
        range: "1 to 3000",
        effect: "the minimum distance between the watermarks (§3.2)",
        value: number!(watermark_scale_factor, |n| (1..=3000).contains(&n)),
        follows: Follows::Watermarks,
        ..BLANK
    },
    Knob {
        name: "watermark_boost_factor",
        unit: "1/10000 of the high watermark",
        default: "15000",
        range: "0 to 2^31",
        effect: "the maximum boost of the watermarks by a fallback (§3.4); 0: no boost",
        value: number!(watermark_boost_factor, |n| n <= MOST_FACTOR),
        follows: Follows::Boost,
        ..BLANK
    },
    Knob {
        name: "lowmem_reserve_ratio",
        default: "256 256 32 0 0",
        range: "up to five numbers, for DMA, DMA32, NORMAL, MOVABLE, DEVICE; below 1 is 0",
        effect: "the fraction of higher zones' pages that a zone reserves against their requests \
                 (§3.5); 0: none",
        value: Value::Ratios,
        follows: Follows::Reserves,
        ..BLANK
    },
    Knob {
        name: "percpu_pagelist_high_fraction",
        range: "0, or 8 to 2^31-1",
        effect: "fixes high of the per-CPU lists at this fraction of a zone, shared by its CPUs \
                 (§5.4); 0: high is tuned",
        value: number!(percpu_pagelist_high_fraction, |n| n == 0 || (8..=MOST_INT).contains(&n)),
        follows: Follows::Limits,
        ..BLANK
    },
    Knob {
        name: "numa_zonelist_order",
        default: "Node",
        range: "any text that starts with D, d, N or n",
        effect: "none: only one order remains",
        value: Value::ZonelistOrder,
        ..BLANK
    },
    Knob {
        name: "zone_reclaim_mode",
        range: "0 to 7",
        effect: "a node is reclaimed before requests fall back to others: 1 enabled, 2 writes \
                 pages, 4 unmaps them",
        value: number!(zone_reclaim_mode, |n| n <= 7),
        ..BLANK
    },
    Knob {
        name: "min_unmapped_ratio",
        unit: "% of a node",
        default: "1",
        range: "0 to 100",
        effect: "unmapped file pages that node reclaim keeps (§2.8)",
        value: number!(min_unmapped_ratio, |n| n <= 100),
        ..BLANK
    },
    Knob {
        name: "min_slab_ratio",
        unit: "% of a node",
        default: "5",
        range: "0 to 100",
        effect: "reclaimable slab pages that node reclaim keeps (§2.8)",
        value: number!(min_slab_ratio, |n| n <= 100),
        ..BLANK
    },
    Knob {
        name: "compaction_proactiveness",
        default: "20",
        range: "0 to 100",
        effect: "effort of proactive compaction (§7.8); 0: disabled; writing any other value starts \
                 it at once",
        value: number!(compaction_proactiveness, |n| n <= 100),
        follows: Follows::Proactive,
        ..BLANK
    },
    Knob {
        name: "extfrag_threshold",
        unit: "1/1000",
        default: "500",
        range: "0 to 1000",
        effect: "zones with a fragmentation index of at most this are not compacted (§7.5)",
        value: number!(extfrag_threshold, |n| n <= 1000),
        ..BLANK
    },
    Knob {
        name: "compact_unevictable_allowed",
        default: "1",
        range: "0 or 1",
        effect: "compaction may move unevictable pages (§7.4)",
        value: switch!(compact_unevictable_allowed),
        ..BLANK
    },
    Knob {
        name: "compact_memory",
        default: "-",
        range: "1",
        effect: "requests compaction of all zones",
        access: Access::WriteOnly,
        value: Value::Trigger,
        follows: Follows::Compact,
        ..BLANK
    },
    Knob {
        name: "stat_interval",
        unit: "s",
        default: "1",
        range: "1 to 2147483",
        effect: "interval at which the embedder calls Yard::tick for each CPU: fold, decay, expiry \
                 (§5.14, §5.15, §9.2)",
        value: number!(stat_interval, |n| (1..=MOST_SECONDS).contains(&n)),
        ..BLANK
    },
    Knob {
        name: "numa_stat",
        default: "1",
        range: "0 or 1",
        effect: "the NUMA events of §9.1 are counted; while it is 0, they do not change",
        value: switch!(numa_stat),
        follows: Follows::NumaStat,
        ..BLANK
    },
    Knob {
        name: "PCP_BATCH_SCALE_MAX",
        default: "5",
        range: "0 to 6",
        effect: "maximum number of doublings of the batch by refills and bulk frees (§5.8)",
        access: Access::Policy,
        value: Value::OfPolicy(|r| r.pcp.scale_max.into()),
        ..BLANK
    },
    Knob {
        name: "page_alloc.shuffle",
        default: "N",
        range: "Y or N",
        effect: "free lists are shuffled at start (§1.11); Knobs::shuffle_seed gives the seed",
        access: Access::Start,
        value: Value::Fixed(|k| k.shuffle_seed.is_some()),
        ..BLANK
    },
    in_policy(
        "page_poison",
        "free memory is filled with a pattern that is checked later (§11.4)",
        |r| r.safety.poison,
    ),
    in_policy("init_on_alloc", "memory is zeroed on allocation (§11.5)", |r| {
        r.safety.init_on_alloc
    }),
    in_policy("init_on_free", "memory is zeroed on free (§11.5)", |r| r.safety.init_on_free),
    in_policy("debug_pagealloc", "free memory is unmapped (§11.6)", |r| r.safety.unmap),
    Knob {
        name: "debug_guardpage_minorder",
        range: "0 to 5",
        effect: "remainders of a split below this order become guards (§11.6)",
        access: Access::Policy,
        value: Value::OfPolicy(|r| r.safety.guard_min_order.into()),
        ..BLANK
    },
    elsewhere(
        "page_owner",
        "owners of blocks are recorded (§9.7)",
        "the platform records owners from the events",
    ),
    elsewhere(
        "fail_page_alloc",
        "requests fail at random, for tests",
        "the embedder injects the failures",
    ),
    elsewhere(
        "page_reporting_order",
        "free blocks of this order and above are reported to a hypervisor (§9.9)",
        "the embedder reports free blocks",
    ),
    elsewhere(
        "kernelcore",
        "amount of memory that is not movable",
        "the layout defines the MOVABLE zones",
    ),
    elsewhere(
        "movablecore",
        "amount of memory that is only for movable blocks",
        "the layout defines the MOVABLE zones",
    ),
    elsewhere("cma", "memory for contiguous ranges", "the embedder creates contiguous areas"),
    Knob {
        name: "pcp_autotune",
        default: "1",
        range: "0 or 1",
        effect: "high of the per-CPU lists is tuned between its limits; 0: it stays at the lower \
                 limit, with or without percpu_pagelist_high_fraction",
        ours: true,
        value: switch!(pcp_autotune),
        follows: Follows::Limits,
        ..BLANK
    },
    Knob {
        name: "memory_tiering",
        default: "0",
        range: "0 or 1",
        effect: "reclaim demotes pages to slower memory: background reclaim stops at the PROMO \
                 watermark (§7.1)",
        ours: true,
        value: switch!(memory_tiering),
        ..BLANK
    },
    Knob {
        name: "huge_pages",
        default: "Y",
        range: "Y or N",
        effect: "huge pages are in use: min_free_kbytes is raised so that whole pageblocks stay \
                 free (§3.1)",
        access: Access::Start,
        ours: true,
        value: Value::Fixed(|k| k.huge_pages),
        ..BLANK
    },
    Knob {
        name: "foreign_lowmem",
        unit: "pages",
        range: "0 to 2^48",
        effect: "low memory of this machine's other allocators, which share min_free_kbytes with \
                 this one (§3.2)",
        access: Access::Start,
        ours: true,
        value: number!(foreign_lowmem, |n| n <= MOST_PAGES),
        ..BLANK
    },
];

impl Knob {
    /// Returns the setting with this name.
    pub fn named(name: &str) -> Option<&'static Knob> {
        KNOBS.iter().find(|k| k.name == name)
    }

    /// Writes the setting's value as text.
    pub(crate) fn read(
        &self,
        knobs: &Knobs,
        rules: &Rules,
        out: &mut impl Write,
    ) -> Result<(), KnobError> {
        let name = self.name;
        let done = match self.value {
            Value::Number { get, .. } => put!(out, get(knobs)),
            Value::Switch { get, .. } => put!(out, u8::from(get(knobs))),
            Value::Ratios => ratios(knobs, out),
            Value::ZonelistOrder => out.write_str("Node"),
            Value::Fixed(get) => out.write_str(if get(knobs) { "Y" } else { "N" }),
            Value::OfPolicy(get) => put!(out, get(rules)),
            Value::InPolicy(get) => out.write_str(if get(rules) { "Y" } else { "N" }),
            Value::Trigger => return Err(KnobError::WriteOnly { name }),
            Value::None => return Err(self.elsewhere()),
        };
        done.map_err(|_| KnobError::NoRoom { name })
    }

    /// Sets the field from text. Trims white space, because `echo` ends lines.
    #[inline(never)]
    pub(crate) fn write(&self, knobs: &mut Knobs, text: &str) -> Result<(), KnobError> {
        let name = self.name;
        match self.access {
            Access::RunTime | Access::WriteOnly => {}
            Access::Start => {
                return Err(KnobError::ReadOnly { name, chosen: "the layout's knobs" });
            }
            Access::Policy => return Err(KnobError::ReadOnly { name, chosen: "the policy" }),
            Access::Elsewhere(_) => return Err(self.elsewhere()),
        }
        let text = text.trim();
        let number = || text.parse::<u64>().ok();
        let taken = match self.value {
            Value::Number { set, fits, .. } => {
                number().filter(|&n| fits(n)).map(|n| set(knobs, n)).is_some()
            }
            Value::Switch { set, .. } => {
                number().filter(|&n| n <= 1).map(|n| set(knobs, n == 1)).is_some()
            }
            Value::Ratios => set_ratios(knobs, text),
            Value::ZonelistOrder => text.starts_with(['D', 'd', 'N', 'n']),
            Value::Trigger => number() == Some(1),
            Value::Fixed(_) | Value::OfPolicy(_) | Value::InPolicy(_) | Value::None => false,
        };
        if taken { Ok(()) } else { Err(self.refuse(text)) }
    }

    /// Checks that the field is in range.
    #[inline]
    pub(crate) fn check(&self, knobs: &Knobs) -> Result<(), KnobError> {
        match self.value {
            Value::Number { get, fits, .. } if !fits(get(knobs)) => Err(self.refuse(get(knobs))),
            _ => Ok(()),
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&self, value: impl Put) -> KnobError {
        KnobError::Refused { name: self.name, value: Excerpt::of(value), range: self.range }
    }

    fn elsewhere(&self) -> KnobError {
        let decides = match self.access {
            Access::Elsewhere(decides) => decides,
            _ => "",
        };
        KnobError::Elsewhere { name: self.name, decides }
    }
}

fn ratios(knobs: &Knobs, out: &mut impl Write) -> fmt::Result {
    for (i, &ratio) in knobs.lowmem_reserve_ratio.iter().enumerate() {
        put!(out, if i > 0 { " " } else { "" }, ratio)?;
    }
    Ok(())
}

/// If the text has fewer numbers than there are zone kinds, the others stay unchanged, as in the
/// kernel.
fn set_ratios(knobs: &mut Knobs, text: &str) -> bool {
    let mut ratios = knobs.lowmem_reserve_ratio;
    let mut fields = ratios.iter_mut();
    let mut any = false;
    for word in text.split_ascii_whitespace() {
        let (Some(field), Ok(n)) = (fields.next(), word.parse::<i64>()) else { return false };
        *field = n.max(0) as u64;
        any = true;
    }
    knobs.lowmem_reserve_ratio = ratios;
    any
}

impl Knobs {
    /// Sets a setting from text (§10), like [`Yard::set_knob`](crate::Yard::set_knob) for an
    /// existing allocator.
    ///
    /// # Errors
    /// As [`Yard::set_knob`](crate::Yard::set_knob); nothing has changed.
    ///
    /// ```
    /// # use pageyard::{KnobError, Knobs};
    /// let mut knobs = Knobs::default();
    /// knobs.set("percpu_pagelist_high_fraction", "8")?;
    /// assert_eq!(knobs.percpu_pagelist_high_fraction, 8);
    /// # Ok::<(), KnobError>(())
    /// ```
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), KnobError> {
        known(name)?.write(self, value)
    }

    /// Checks all ranges.
    ///
    /// # Errors
    /// The first setting out of its range.
    pub fn check(&self) -> Result<(), KnobError> {
        KNOBS.iter().try_for_each(|knob| knob.check(self))
    }
}

pub(crate) fn known(name: &str) -> Result<&'static Knob, KnobError> {
    Knob::named(name).ok_or_else(|| KnobError::Unknown { name: Excerpt::of(name) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s10_values_outside_their_range_are_rejected() {
        let k = Knobs::default();
        assert!(k.check().is_ok());
        for bad in [
            Knobs { watermark_scale_factor: 0, ..k },
            Knobs { watermark_scale_factor: 3001, ..k },
            Knobs { percpu_pagelist_high_fraction: 7, ..k },
            Knobs { min_free_kbytes: u64::MAX, ..k },
            Knobs { compaction_proactiveness: 101, ..k },
            Knobs { extfrag_threshold: 1001, ..k },
            Knobs { watermark_boost_factor: u64::MAX, ..k },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        assert!(Knobs { percpu_pagelist_high_fraction: 8, ..k }.check().is_ok());
    }
}
