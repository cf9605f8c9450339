//! Translates recorded numbers to those of this crate, and recorded field names to those of text.

use super::print_fmt::Names;
use crate::check::at_most;
use crate::compaction::{STATUSES, ZONES};
use crate::compaction_layout::{Form, power};
use crate::error::Fault;
use crate::gfp;

/// Translates request flags: the recording kernel's bits to this crate's, name by name, in the
/// order in which the kernel prints them.
pub(super) struct Flags(Vec<(u32, u32)>);

impl Flags {
    /// Bits without a name, or with a name that this crate does not know, keep their value.
    pub(super) fn of(names: Option<Names<'_>>) -> Self {
        let known = names.unwrap_or_default().into_iter().filter_map(|(bits, name)| {
            let bits = u32::try_from(bits).ok().filter(|&bits| bits != 0)?;
            Some((bits, gfp::from_name(name).unwrap_or(bits)))
        });
        Flags(known.collect())
    }

    pub(super) fn translate(&self, mut rest: u32) -> u32 {
        let mut flags = 0;
        for &(recorded, known) in &self.0 {
            if rest & recorded == recorded {
                flags |= known;
                rest &= !recorded;
            }
        }
        flags | rest
    }
}

/// Converts a recorded number to a value of [`POINTS`].
pub(super) enum Conversion {
    Same,
    Order,
    /// The recorded number is the logarithm.
    Power,
    Flags(Flags),
    /// By name, as the recording kernel numbers them; `None` for a name that this crate does not
    /// know.
    Names(Vec<(u64, Option<u64>)>),
}

impl Conversion {
    pub(super) fn of(form: Form, names: Option<Names<'_>>) -> Self {
        let by_name = |known: &[&str], names: Option<Names<'_>>| match names {
            None => Conversion::Same,
            Some(names) => Conversion::Names(
                names
                    .into_iter()
                    .map(|(n, name)| (n, known.iter().position(|k| *k == name).map(|at| at as u64)))
                    .collect(),
            ),
        };
        match form {
            Form::Order => Conversion::Order,
            Form::Flags => Conversion::Flags(Flags::of(names)),
            Form::Zone => by_name(&ZONES, names),
            Form::Status => by_name(&STATUSES, names),
            Form::Limit => Conversion::Power,
            _ => Conversion::Same,
        }
    }

    pub(super) fn convert(&self, field: &'static str, value: u64) -> Result<u64, Fault> {
        match self {
            Conversion::Same => Ok(value),
            // -1 becomes 0.
            Conversion::Order => Ok(value.wrapping_add(1)),
            Conversion::Power => power(field, value),
            Conversion::Flags(flags) => {
                at_most(field, value, u32::MAX.into())?;
                Ok(flags.translate(value as u32).into())
            }
            Conversion::Names(names) => {
                let known = names.iter().find(|(n, _)| *n == value).and_then(|(_, known)| *known);
                known.ok_or_else(|| Fault::UnknownWord { field, word: value.to_string().into() })
            }
        }
    }
}

/// Returns the names of the recorded field that text prints after `before`.
pub(super) fn recorded_names(before: &'static str) -> &'static [&'static str] {
    match before {
        "range=(" => &["start_pfn"],
        " ~ " => &["end_pfn"],
        " priority=" => &["prio"],
        ", mode=" => &["sync"],
        "node=" => &["nid"],
        " zone=" => &["idx"],
        " consider=" => &["considered"],
        " limit=" => &["defer_shift"],
        // Before 5.8: `classzone_idx`.
        " classzone_idx=" => &["highest_zoneidx", "classzone_idx"],
        "order=" | " order=" => &["order"],
        " order_failed=" => &["order_failed"],
        " gfp_mask=" => &["gfp_mask"],
        " gfp_flags=" => &["gfp_flags"],
        "zone_start=" => &["zone_start"],
        " migrate_pfn=" => &["migrate_pfn"],
        " free_pfn=" => &["free_pfn"],
        " zone_end=" => &["zone_end"],
        " status=" => &["status"],
        " ret=" => &["ret"],
        ") nr_scanned=" => &["nr_scanned"],
        " nr_taken=" => &["nr_taken"],
        "nr_migrated=" => &["nr_migrated"],
        " nr_failed=" => &["nr_failed"],
        "nid=" => &["nid"],
        "nr_reclaimed=" => &["nr_reclaimed"],
        _ => &["?"],
    }
}
