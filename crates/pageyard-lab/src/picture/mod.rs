//! Results as pictures: a self-contained HTML page, or single plots as SVG.
//!
//! A [`Page`] is filled with results, comparisons and replays. Each of them adds tables and
//! figures. The printed HTML has no external dependencies and contains all data as one block of
//! JSON. Every number and mark names its place in that block, so a test can check each against its
//! data.
//!
//! ```
//! # use pageyard_lab::picture::Page;
//! # use pageyard_lab::table::{Options, Report, Set};
//! # fn page(sources: &[pageyard_lab::table::Source]) -> Result<String, pageyard_lab::table::TableError> {
//! let mut page = Page::new("trunc under two policies", "pageyard compare a.json b.json");
//! page.compare(sources, &Options::default())?;
//! Ok(page.html())
//! # }
//! ```

mod axis;
mod compare;
mod course;
mod figure;
mod map;
mod page;
mod plot;
mod reproduced;
mod rounds;
mod table;
mod text;

pub use text::escaped;

use serde_json::Value as Json;

use self::figure::Figure;
use self::table::Table;
use crate::format::pages;
use crate::replay;
use crate::result::{RunResult, Versioned, World};
use crate::table::{Options, Report, Set, Source, TableError, align};

/// All plots that can exist, by the names that [`Page::svg`] accepts.
pub const PLOTS: [(&str, &str); 12] = [
    ("scaling", "metrics by the points of the workload"),
    ("dots", "every sample of every metric, with intervals"),
    ("beside", "published and reproduced figures by step"),
    ("rounds", "blocks of the wrong type by round of hygiene"),
    ("lists", "count and high of the busiest CPU's lists over time"),
    ("moves", "refills and drains of the busiest CPU's lists over time"),
    ("free", "free pages of a zone and its watermarks over time"),
    ("orders", "free pages of a zone by the order of their blocks over time"),
    ("waiting", "CPUs waiting for zone locks over time"),
    ("waiting-by-cpu", "time that each CPU waited for zone locks"),
    ("latency", "latency of requests"),
    ("heap", "the heap by pageblock, when most of it is in use"),
];

/// Why a plot is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// No plot has this name.
    #[error("unknown plot {name}; expected one of {known}")]
    Unknown {
        /// The requested name.
        name: String,
        /// All known names.
        known: String,
    },
    /// These results do not have the plot.
    #[error("plot {name} is not available for these results; available: {there}{why}")]
    Missing {
        /// The requested name.
        name: String,
        /// The plots that these results have.
        there: String,
        /// What to do to get it, if anything.
        why: &'static str,
    },
}

/// A page under construction.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    command: String,
    facts: Vec<(String, String)>,
    /// What was simulated, in words; empty if nothing was.
    simulated: String,
    data: serde_json::Map<String, Json>,
    parts: Vec<Part>,
    /// The figures of single plots, where they differ from the page's.
    single: Vec<Figure>,
}

#[derive(Clone, Debug)]
enum Part {
    /// A heading.
    Section(String),
    Table(Table),
    /// Text as the terminal shows it, under its heading.
    Text(String, String),
    Figure(Figure),
    /// Figures of one of several points, under its heading.
    Point(String, Vec<Figure>),
}

impl Page {
    /// Creates a page with this title. `command` is the command that reproduces it.
    pub fn new(title: &str, command: &str) -> Page {
        Page {
            title: title.into(),
            command: command.into(),
            facts: Vec::new(),
            simulated: String::new(),
            data: serde_json::Map::new(),
            parts: Vec::new(),
            single: Vec::new(),
        }
    }

    /// Adds a fact about the run, shown to the reader.
    pub fn fact(&mut self, name: &str, value: &str) {
        let fact = (name.to_owned(), value.to_owned());
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
    }

    /// Starts a new section with a heading.
    pub fn section(&mut self, heading: &str) {
        self.parts.push(Part::Section(heading.into()));
    }

    /// Stores data under this name, or the name with a number appended. Returns its place in the
    /// page.
    fn keep(&mut self, name: &str, data: impl serde::Serialize) -> String {
        let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}{n}")));
        let key = names.into_iter().find(|n| !self.data.contains_key(n)).unwrap_or_default();
        let data = serde_json::to_value(data).unwrap_or(Json::Null);
        self.data.insert(key.clone(), data);
        format!("/{key}")
    }

    /// Adds saved or new results side by side: a table in the requested form, scaling curves,
    /// samples, and the recorded tracks.
    ///
    /// # Errors
    /// Fails as [`align`] does.
    pub fn compare(&mut self, sources: &[Source], options: &Options) -> Result<(), TableError> {
        let sets = options.metrics.of(align(sources)?)?;
        let report = Report::new(&sets, options);
        let all: Vec<(&Source, &RunResult)> =
            sources.iter().flat_map(|s| s.results.iter().map(move |r| (s, r))).collect();
        let results = self.keep("results", all.iter().map(|r| r.1).collect::<Vec<_>>());
        let compared = self.keep("report", &report);
        let many = sets.len() > 1;
        for (i, (set, titled)) in sets.iter().zip(&report.tables).enumerate() {
            let at = format!("{compared}/tables/{i}");
            self.section(&if many { set.title() } else { "Results".into() });
            self.known(set);
            self.parts.push(Part::Table(table::compared(titled, &at)));
            let ours = matches!(titled.table, crate::table::Printed::Ours(_));
            let of = |column: &crate::table::Column| {
                let here = all.iter().enumerate().filter(|(_, (source, r))| {
                    source.name == column.file
                        && r.policy == column.policy
                        && r.world == column.world
                        && r.workload == set.workload
                        && set.parameters.iter().all(|(k, v)| r.parameters.get(k) == Some(v))
                });
                here.map(|(n, (_, r))| (format!("{results}/{n}"), *r)).collect()
            };
            let columns: Vec<Vec<(String, &RunResult)>> = set.columns.iter().map(of).collect();
            let c = compare::Compared { set, at: ours.then_some(at), results: columns };
            let figures = compare::figures(&c);
            if !figures.is_empty() {
                self.section("Side by side");
            }
            self.parts.extend(figures.into_iter().map(Part::Figure));
            self.courses(&c);
        }
        Ok(())
    }

    /// Adds the facts that every page states about its results.
    fn known(&mut self, set: &Set) {
        for c in &set.columns {
            let seeds: Vec<String> = c.seeds.iter().map(u64::to_string).collect();
            self.fact("seed", &seeds.join(", "));
            self.fact("measured by", &format!("pageyard {}", c.versions.join(", ")));
            if let World::Simulated(name) = &c.world {
                self.simulated = format!("simulated on {name}");
            }
        }
        self.fact("workload", &set.title());
        self.fact("machine", &set.world());
        let names: Vec<_> = set.columns.iter().map(|c| c.name.as_str()).collect();
        self.fact("columns", &names.join(", "));
    }

    /// Adds the figures of the tracks, point by point.
    fn courses(&mut self, c: &compare::Compared<'_>) {
        let columns = || c.set.columns.iter().zip(&c.results);
        let clock = if c.set.simulated() { "virtual time" } else { "time" };
        let mut points: Vec<&str> = Vec::new();
        for (_, result) in columns().flat_map(|(_, results)| results) {
            for track in &result.tracks {
                if !points.contains(&track.point.as_str()) {
                    points.push(&track.point);
                }
            }
        }
        if !points.is_empty() {
            self.section("Over time");
        }
        let several = points.len() > 1;
        // The page shows the last point first and open: it has the most CPUs, or the most of
        // whatever the points vary.
        for point in points.into_iter().rev() {
            let mut tracks = Vec::new();
            for (column, results) in columns() {
                let one = results.iter().find_map(|(at, r)| {
                    let i = r.tracks.iter().position(|t| t.point == point)?;
                    let at = format!("{at}/tracks/{i}");
                    Some(course::Named { name: &column.name, at, track: &r.tracks[i] })
                });
                tracks.extend(one);
            }
            let mut figures = course::figures(&tracks, clock);
            if several {
                figures.iter_mut().for_each(|f| f.title = format!("{}, point {point}", f.title));
                self.parts.push(Part::Point(format!("Point {point}"), figures));
            } else {
                self.parts.extend(figures.into_iter().map(Part::Figure));
            }
        }
    }

    /// Adds a replay: its table, and what was recorded over the trace's time.
    pub fn replay(&mut self, report: &replay::Report) {
        let at = self.keep("replay", Versioned::of(report));
        self.fact("trace", &report.reading.input);
        self.fact("seed", &report.seed.to_string());
        let policies: Vec<_> = report.policies.iter().map(|c| c.policy.as_str()).collect();
        self.fact("policies", &policies.join(", "));
        let zones = report
            .machine
            .zones
            .iter()
            .map(|z| format!("node {} {} {}", z.node, z.kind, pages(z.managed)));
        let zones: Vec<_> = zones.collect();
        let machine = format!("{} CPUs; {}", report.machine.cpus.len(), zones.join(", "));
        self.fact("machine of the trace", &machine);
        self.fact("ticks", &report.tick_phase.text);
        self.simulated = "replayed: a trace under simulated policies".into();
        self.section("Results");
        let data = Json::Object(self.data.clone());
        self.parts.push(Part::Table(table::replayed(report, &at, &data)));
        let (start, accuracy) = report.remarks();
        self.parts.push(Part::Text("Machine and state at the start".into(), start));
        self.parts.push(Part::Text("Accuracy".into(), accuracy));
        let recorded = report.recorded_track.as_ref().map(|track| course::Named {
            name: "recorded",
            at: format!("{at}/recorded_track"),
            track,
        });
        let named = report.policies.iter().enumerate().filter_map(|(i, c)| {
            let track = c.track.as_ref()?;
            Some(course::Named { name: &c.policy, at: format!("{at}/policies/{i}/track"), track })
        });
        let tracks: Vec<_> = recorded.into_iter().chain(named).collect();
        if !tracks.is_empty() {
            self.section("Over time");
        }
        let clock = "trace's time";
        // A single plot compares policies.
        let policies = &tracks[usize::from(report.recorded_track.is_some()).min(tracks.len())..];
        self.single = course::figures(policies, clock);
        let figures = course::figures(&tracks, clock);
        self.parts.extend(figures.into_iter().map(Part::Figure));
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        let of_parts = self.parts.iter().flat_map(|part| match part {
            Part::Figure(f) => std::slice::from_ref(f),
            Part::Point(_, figures) => figures.as_slice(),
            _ => &[],
        });
        self.single.iter().chain(of_parts)
    }

    /// Returns a single plot as SVG, by its name in [`PLOTS`]. Without a name, returns the first
    /// available plot. If there are several points, the plot is of the last one.
    ///
    /// # Errors
    /// Fails with [`PictureError`], which lists the available names.
    pub fn svg(&self, name: Option<&str>) -> Result<String, PictureError> {
        if let Some(name) = name.filter(|n| !PLOTS.iter().any(|p| p.0 == *n)) {
            let known = PLOTS.map(|p| p.0).join(", ");
            return Err(PictureError::Unknown { name: name.into(), known });
        }
        match self.figures().find(|f| name.is_none_or(|n| f.name == n)) {
            Some(figure) => {
                let comma = if self.simulated.is_empty() { "" } else { ", " };
                Ok(figure.svg(&format!("{}{comma}{}", self.title, self.simulated)))
            }
            None => {
                let mut there: Vec<&str> = Vec::new();
                for f in self.figures().filter(|f| !f.is_empty()) {
                    if !there.contains(&f.name) {
                        there.push(f.name);
                    }
                }
                let none = there.is_empty();
                let there = if none { "none".into() } else { there.join(", ") };
                let recorded = self.figures().any(|f| f.name == "heap");
                let why = if recorded {
                    ""
                } else {
                    "; rerun the workload with --record for plots over time, or with --iterations \
                     for several samples"
                };
                Err(PictureError::Missing {
                    name: name.unwrap_or("of any kind").into(),
                    there,
                    why,
                })
            }
        }
    }
}
