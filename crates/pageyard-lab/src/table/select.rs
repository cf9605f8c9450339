//! Which metrics a table shows, and which of them state a result.

use serde::{Serialize, Serializer};

use super::error::{TableError, wrong};
use super::set::Set;

/// Metrics selected by name. In a pattern `*` stands for any characters and `?` for one.
///
/// The default, an empty selection, keeps all rows as they are.
///
/// ```
/// # fn main() -> Result<(), pageyard_lab::table::TableError> {
/// use pageyard_lab::table::Selection;
///
/// let holds = Selection::new(&["hold_*", "zone_lock"])?;
/// assert!(holds.has("hold_alloc_p99") && holds.has("zone_lock") && !holds.has("time"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection(Vec<glob::Pattern>);

impl Selection {
    /// Parses patterns.
    ///
    /// # Errors
    /// Fails on a pattern that is empty or malformed, such as one with an unclosed bracket.
    pub fn new(patterns: &[impl AsRef<str>]) -> Result<Selection, TableError> {
        const FIX: &str = "use names, with * for any characters and ? for one";
        let mut all = Vec::new();
        for text in patterns.iter().map(|p| p.as_ref().trim()) {
            match glob::Pattern::new(text) {
                _ if text.is_empty() => return wrong("metrics", "an empty name", FIX),
                Ok(pattern) => all.push(pattern),
                Err(e) => return wrong(format!("metric {text}"), e.msg, FIX),
            }
        }
        Ok(Selection(all))
    }

    /// Whether a pattern matches this name.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|p| p.matches(name))
    }

    /// Keeps the selected metrics of each set, and makes them its primary ones. Sets without any of
    /// them are left out.
    ///
    /// # Errors
    /// Fails if a pattern matches no metric; the error lists the metrics.
    pub fn of(&self, mut sets: Vec<Set>) -> Result<Vec<Set>, TableError> {
        if self.0.is_empty() {
            return Ok(sets);
        }
        let names = || sets.iter().flat_map(|s| &s.metrics).map(|m| m.name.as_str());
        if let Some(lost) = self.0.iter().find(|p| !names().any(|n| p.matches(n))) {
            let mut known: Vec<&str> = Vec::new();
            for name in names() {
                if !known.contains(&name) && known.len() <= MOST_LISTED {
                    known.push(name);
                }
            }
            let more = if known.len() > MOST_LISTED { ", …" } else { "" };
            known.truncate(MOST_LISTED);
            let what = format!("not in the results, which have {}{more}", known.join(", "));
            return wrong(format!("metric {lost}"), what, "select one of these, or a pattern");
        }
        for set in &mut sets {
            set.metrics.retain(|m| self.has(&m.name));
            set.metrics.iter_mut().for_each(|m| m.primary = true);
        }
        sets.retain(|s| !s.metrics.is_empty());
        Ok(sets)
    }
}

/// The number of metrics that an error lists.
const MOST_LISTED: usize = 30;

impl Serialize for Selection {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.iter().map(glob::Pattern::as_str))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_patterns_are_rejected() {
        let of = |p: &[&str]| Selection::new(p).unwrap_err().to_string();
        assert!(of(&["time", "a["]).starts_with("metric a[: "));
        assert!(of(&["time", " "]).starts_with("metrics: an empty name; "));
    }
}
