//! The recording's own figures, and which of them the trace cannot show because it has no event of
//! some kind. Such a figure is absent, never 0.

use std::fmt;
use std::ops::Deref;

use pageyard_trace::KindCounts;
use serde::{Serialize, Serializer};

use super::figures::Figures;

const ALLOC: &str = "mm_page_alloc";
const FREE: &str = "mm_page_free";
const LOCKED: &str = "mm_page_alloc_zone_locked";
const DRAIN: &str = "mm_page_pcpu_drain";
const EXTFRAG: &str = "mm_page_alloc_extfrag";

/// Page events of which the trace has none, by their kernel names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// Events that were not recorded: the file says so, or every workload has them.
    pub not_recorded: Vec<&'static str>,
    /// Events of which there are none. A short trace may truly have none, and the file does not say
    /// whether they were enabled.
    pub none_recorded: Vec<&'static str>,
}

impl Absent {
    /// Sorts the kinds of which there are no events. `enabled` is the list of recorded events, if it
    /// is known.
    pub(super) fn new(counts: &KindCounts, enabled: Option<&[String]>) -> Absent {
        // Whether every workload has the kind: allocations, frees and refills.
        let always = [true, true, false, true, false, false];
        let mut absent = Absent::default();
        for ((name, _), always) in counts.iter().zip(always).filter(|((_, count), _)| *count == 0) {
            match enabled.map(|all| all.iter().any(|known| known == name)) {
                Some(true) => {}
                None if !always => absent.none_recorded.push(name),
                Some(false) | None => absent.not_recorded.push(name),
            }
        }
        absent
    }

    fn contains(&self, name: &str) -> bool {
        self.not_recorded.iter().chain(&self.none_recorded).any(|&known| known == name)
    }
}

/// Says below a table why figures are missing, and how to record them.
impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (events, what, record) in [
            (&self.not_recorded, "not recorded", "record it with"),
            (
                &self.none_recorded,
                "none recorded",
                "it did not happen, or was not enabled; to be sure, record it with",
            ),
        ] {
            for event in events {
                writeln!(f, "{what}: {event}; {record} `trace-cmd record -e kmem:{event} …`")?;
            }
        }
        Ok(())
    }
}

/// The figures of a recording, some of which may be absent.
#[derive(Clone, Debug, Default)]
pub struct RecordedFigures {
    figures: Figures,
    absent: Absent,
}

impl RecordedFigures {
    pub(super) fn new(figures: Figures, absent: Absent) -> RecordedFigures {
        RecordedFigures { figures, absent }
    }

    /// Returns the events of which the trace has none.
    pub fn absent(&self) -> &Absent {
        &self.absent
    }

    /// Returns whether the trace shows the figure of this JSON name.
    pub fn shows(&self, figure: &str) -> bool {
        let needs: &[&str] = match figure {
            "alloc_blocks" | "alloc_pages" | "failed" => &[ALLOC],
            "free_blocks" | "free_pages" => &[FREE],
            "zone_pages" | "refill_pages" | "refill_holds" => &[LOCKED],
            "drain_pages" | "drain_holds" => &[DRAIN],
            "pages_per_hold" => &[LOCKED, DRAIN],
            "claims" | "steals" => &[EXTFRAG],
            "idle_peak" | "idle_mean" => &[ALLOC, FREE, LOCKED, DRAIN],
            _ => &[],
        };
        !needs.iter().any(|event| self.absent.contains(event))
    }
}

impl Deref for RecordedFigures {
    type Target = Figures;

    fn deref(&self) -> &Figures {
        &self.figures
    }
}

/// As [`Figures`], with `null` for what the trace does not show, and the lists of [`Absent`].
impl Serialize for RecordedFigures {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(self.figures).map_err(serde::ser::Error::custom)?;
        for (name, figure) in value.as_object_mut().into_iter().flatten() {
            if !self.shows(name) {
                *figure = serde_json::Value::Null;
            }
        }
        value["not_recorded"] = self.absent.not_recorded.as_slice().into();
        value["none_recorded"] = self.absent.none_recorded.as_slice().into();
        value.serialize(s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCHED: &str = "mm_page_free_batched";

    #[test]
    fn a_figure_without_its_event_is_null_and_never_zero() {
        let counts = KindCounts { alloc: 2, free: 1, ..KindCounts::default() };
        let absent = Absent::new(&counts, None);
        assert_eq!(absent.not_recorded, [LOCKED]);
        assert_eq!(absent.none_recorded, [BATCHED, DRAIN, EXTFRAG]);
        let figures = RecordedFigures::new(Figures::default(), absent);
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["alloc_blocks"], 0);
        for absent in ["zone_pages", "refill_holds", "drain_pages", "claims", "idle_mean"] {
            assert!(json[absent].is_null(), "{absent}");
        }
        assert_eq!(json["not_recorded"][0], LOCKED);
        assert!(!figures.shows("pages_per_hold") && figures.shows("free_pages"));
    }

    #[test]
    fn an_enabled_event_that_did_not_happen_is_zero() {
        let counts = KindCounts { alloc: 2, ..KindCounts::default() };
        let enabled: Vec<String> = [ALLOC, DRAIN, LOCKED].map(str::to_owned).to_vec();
        let absent = Absent::new(&counts, Some(&enabled));
        assert_eq!(absent.not_recorded, [FREE, BATCHED, EXTFRAG]);
        assert!(absent.none_recorded.is_empty());
        let figures = RecordedFigures::new(Figures::default(), absent);
        assert!(figures.shows("drain_pages") && !figures.shows("claims"));
    }
}
