//! What the name of a metric says about its place in a table.

use crate::result::{EXPLAINING, is_named};

pub(super) const DURATION: &str = "Duration ";
pub(super) const OPS: &str = "Ops ";

/// Whether a metric of this name is a total of the whole run: `Duration User`, `Ops Swap Ins`.
pub(super) fn is_total(name: &str) -> bool {
    name.starts_with(DURATION) || name.starts_with(OPS)
}

/// Whether a metric explains a result; a point's label may follow its name, as in `hits-64`.
pub(super) fn explains(name: &str) -> bool {
    is_total(name) || EXPLAINING.iter().any(|known| is_named(name, known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_point_explain_too() {
        let of = ["rate-64", "elsp-2", "zone_lock-64", "hits", "hitsmore", "Ops Swap Ins"];
        assert_eq!(of.map(explains), [false, false, true, true, false, true]);
    }
}
