//! Results side by side: selects the columns and checks that they are comparable.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::error::{TableError, wrong};
use super::role::explains;
use super::source::Source;
use crate::result::{Better, Metric, RunResult, World};

/// One workload under several policies, or from several files. The input of
/// every form of table.
#[derive(Clone, Debug, Serialize)]
pub struct Set {
    /// The workload's name.
    pub workload: String,
    /// The parameters that all columns share.
    pub parameters: BTreeMap<String, String>,
    /// The columns; the first is the base.
    pub columns: Vec<Column>,
    /// The metrics, in the base's order, then those that only other columns have.
    pub metrics: Vec<Row>,
}

/// Where a column's samples come from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Column {
    /// The column's unique name: the policy, the file's stem, or both.
    pub name: String,
    /// The file.
    pub file: String,
    /// The policy.
    pub policy: String,
    /// The machine.
    pub world: World,
    /// The seeds of the runs, in order.
    pub seeds: Vec<u64>,
    /// The versions that produced the runs, without repetition.
    pub versions: Vec<String>,
    /// The parameters that differ between columns.
    pub parameters: BTreeMap<String, String>,
}

/// One metric, and each column's samples of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Whether it states a result; other metrics explain one. Significance is corrected over the
    /// primary metrics only.
    pub primary: bool,
    /// Samples by column; empty for a column that does not have the metric.
    pub samples: Vec<Vec<f64>>,
}

/// Metrics that not every column has, because an engine does not have them or nothing was counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Partial {
    /// The columns that have them.
    pub columns: Vec<String>,
    /// The metrics.
    pub metrics: Vec<String>,
}

impl fmt::Display for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.columns.as_slice() {
            [] => f.write_str("in no column: ")?,
            columns => write!(f, "only in {}: ", columns.join(", "))?,
        }
        f.write_str(&self.metrics.join(", "))
    }
}

impl Set {
    /// Whether the results are of a simulated machine.
    pub fn simulated(&self) -> bool {
        self.columns.iter().any(|c| matches!(c.world, World::Simulated(_)))
    }

    /// Describes where the workload ran: `simulated on NAME`, or the host.
    pub fn world(&self) -> String {
        let worlds: Vec<_> = self.columns.iter().map(|c| &c.world).collect();
        let words = |w: &World| match w {
            World::Simulated(name) => format!("simulated on {name}"),
            World::Host(name) => format!("on {name}"),
        };
        if worlds.iter().all(|w| *w == worlds[0]) {
            return words(worlds[0]);
        }
        let each = self.columns.iter().map(|c| format!("{} {}", c.name, words(&c.world)));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Returns the set with the metrics that every column has.
    pub(super) fn complete(&self) -> Set {
        self.with(Row::is_complete)
    }

    /// Returns the set with the metrics that `keep` selects.
    pub(super) fn with(&self, keep: impl Fn(&Row) -> bool) -> Set {
        Set {
            workload: self.workload.clone(),
            parameters: self.parameters.clone(),
            columns: self.columns.clone(),
            metrics: self.metrics.iter().filter(|m| keep(m)).cloned().collect(),
        }
    }

    /// Returns the metrics that not every column has, by the columns that have them.
    pub(super) fn partial(&self) -> Vec<Partial> {
        let mut all: Vec<Partial> = Vec::new();
        for m in self.metrics.iter().filter(|m| !m.is_complete()) {
            let has = self.columns.iter().zip(&m.samples).filter(|(_, s)| !s.is_empty());
            let columns: Vec<String> = has.map(|(c, _)| c.name.clone()).collect();
            match all.iter_mut().find(|p| p.columns == columns) {
                Some(p) => p.metrics.push(m.name.clone()),
                None => all.push(Partial { columns, metrics: vec![m.name.clone()] }),
            }
        }
        all
    }

    /// Returns the workload with its parameters.
    pub fn title(&self) -> String {
        let parameters = pairs(&self.parameters);
        format!("{}{}{parameters}", self.workload, if parameters.is_empty() { "" } else { " " })
    }
}

/// The heading above every table: workload, machine, seeds and version.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = |of: fn(&Column) -> Vec<String>| {
            let all: BTreeSet<String> = self.columns.iter().flat_map(of).collect();
            all.into_iter().collect::<Vec<_>>().join(", ")
        };
        let versions = all(|c| c.versions.clone());
        write!(f, "{}, {}, {}, pageyard {versions}", self.title(), self.world(), self.seeds())?;
        let differ = self.columns.iter().filter(|c| !c.parameters.is_empty());
        for c in differ {
            write!(f, "\n  {}: {}", c.name, pairs(&c.parameters))?;
        }
        Ok(())
    }
}

impl Set {
    /// Formats the seeds; a long list by its first and last.
    fn seeds(&self) -> String {
        let seeds: BTreeSet<u64> = self.columns.iter().flat_map(|c| c.seeds.clone()).collect();
        let ends = (seeds.first().copied().unwrap_or(0), seeds.last().copied().unwrap_or(0));
        match seeds.len() {
            0 | 1 => format!("seed {}", ends.0),
            n if n <= 4 => {
                let all: Vec<_> = seeds.iter().map(u64::to_string).collect();
                format!("seeds {}", all.join(", "))
            }
            n => format!("{n} seeds from {} to {}", ends.0, ends.1),
        }
    }
}

fn pairs(parameters: &BTreeMap<String, String>) -> String {
    parameters.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" ")
}

/// The runs of one column: one source, policy and world.
struct Group<'a> {
    source: &'a Source,
    runs: Vec<&'a RunResult>,
    /// The runs by workload.
    by_workload: HashMap<&'a str, Vec<&'a RunResult>>,
}

/// Aligns results: one column for each source, policy and world, in the order given, and one set
/// for each workload and its parameters. Equal runs are merged.
///
/// If every column has a workload with only one choice of parameters, the choices may differ; the
/// heading says so. A metric that a column does not have has no samples there.
///
/// # Errors
/// Fails if the columns have different workloads, if a column has no metric of the base, if a metric
/// has different units, if simulated and measured results are mixed, if the same simulated run
/// occurs twice, or if [`Source::check`] fails.
pub fn align(sources: &[Source]) -> Result<Vec<Set>, TableError> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for source in sources {
        source.check()?;
        let mut by_place = HashMap::new();
        for run in &source.results {
            let at = *by_place.entry((&run.policy, &run.world)).or_insert_with(|| {
                groups.push(Group { source, runs: Vec::new(), by_workload: HashMap::new() });
                groups.len() - 1
            });
            groups[at].runs.push(run);
            groups[at].by_workload.entry(&run.workload).or_default().push(run);
        }
    }
    let Some(base) = groups.first() else {
        return wrong("compare", "no results", "name at least one file");
    };
    one_kind_of_world(&groups)?;
    let names = names(&groups);

    let mut sets = Vec::new();
    let mut workloads: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for run in &base.runs {
        if seen.insert(&run.workload) {
            workloads.push(&run.workload);
        }
    }
    for group in &groups[1..] {
        if let Some(run) = group.runs.iter().find(|r| !seen.contains(&r.workload)) {
            let what = format!("no such workload in the base, {}", at(base));
            return wrong(group.source.place(run), what, SAME_WORKLOADS);
        }
    }
    for workload in workloads {
        let choices: Vec<_> = groups.iter().map(|g| choices(g, workload)).collect();
        if let Some(i) = choices.iter().position(Vec::is_empty) {
            let what = format!("workload {workload} of the base, {}, is missing", at(base));
            return wrong(at(&groups[i]), what, SAME_WORKLOADS);
        }
        if choices.iter().all(|c| c.len() == 1) {
            let runs: Vec<_> = choices.into_iter().flatten().map(|(_, runs)| runs).collect();
            sets.push(set(&groups, &names, &runs)?);
            continue;
        }
        let by_choice: Vec<HashMap<_, _>> =
            choices.iter().map(|of| of.iter().map(|(p, runs)| (*p, runs)).collect()).collect();
        for (i, of) in choices.iter().enumerate() {
            if let Some((p, _)) = of.iter().find(|(p, _)| !by_choice[0].contains_key(p)) {
                let what = format!("workload {workload} with {} is not in the base", pairs(p));
                return wrong(at(&groups[i]), what, SAME_WORKLOADS);
            }
        }
        for (p, _) in &choices[0] {
            let mut runs = Vec::new();
            for (group, of) in groups.iter().zip(&by_choice) {
                match of.get(p) {
                    Some(found) => runs.push((*found).clone()),
                    None => {
                        let what = format!("workload {workload} with {} is missing", pairs(p));
                        return wrong(at(group), what, SAME_WORKLOADS);
                    }
                }
            }
            sets.push(set(&groups, &names, &runs)?);
        }
    }
    Ok(sets)
}

const SAME_WORKLOADS: &str = "run the same workloads with the same parameters for every column";

fn at(group: &Group<'_>) -> String {
    format!("{}: policy {}", group.source.name, group.runs[0].policy)
}

fn one_kind_of_world(groups: &[Group<'_>]) -> Result<(), TableError> {
    let simulated = |g: &&Group<'_>| matches!(g.runs[0].world, World::Simulated(_));
    let (Some(one), Some(other)) =
        (groups.iter().find(simulated), groups.iter().find(|g| !simulated(g)))
    else {
        return Ok(());
    };
    let what = format!(
        "simulated, but {} was measured on a host; virtual times of a cost model cannot be compared \
         with measured ones",
        at(other)
    );
    wrong(at(one), what, "compare simulated results only with simulated ones")
}

/// Groups a workload's runs in this column by their parameters.
fn choices<'a>(
    group: &Group<'a>,
    workload: &str,
) -> Vec<(&'a BTreeMap<String, String>, Vec<&'a RunResult>)> {
    let mut choices: Vec<(_, Vec<_>)> = Vec::new();
    let mut places = HashMap::new();
    for &run in group.by_workload.get(workload).into_iter().flatten() {
        let at = *places.entry(&run.parameters).or_insert_with(|| {
            choices.push((&run.parameters, Vec::new()));
            choices.len() - 1
        });
        choices[at].1.push(run);
    }
    choices
}

/// Returns the shortest names that distinguish all columns.
fn names(groups: &[Group<'_>]) -> Vec<String> {
    // Versions contain dots too, so only the `.json` extension is removed.
    let stem = |g: &Group<'_>| {
        let name = Path::new(&g.source.name).file_name();
        let name = name.map_or(g.source.name.clone(), |s| s.to_string_lossy().into_owned());
        name.strip_suffix(".json").map_or(name.clone(), str::to_owned)
    };
    let policy = |g: &Group<'_>| g.runs[0].policy.clone();
    let world = |g: &Group<'_>| match &g.runs[0].world {
        World::Simulated(name) | World::Host(name) => name.clone(),
    };
    let ways: [&dyn Fn(&Group<'_>) -> String; 6] = [
        &policy,
        &stem,
        &|g| format!("{}-{}", stem(g), policy(g)),
        &|g| format!("{}-{}", policy(g), world(g)),
        &|g| format!("{}-{}-{}", stem(g), policy(g), world(g)),
        &|g| format!("{}-{}-{}", g.source.name, policy(g), world(g)),
    ];
    let mut last = Vec::new();
    for way in ways {
        last = groups.iter().map(way).collect();
        if last.iter().collect::<BTreeSet<_>>().len() == groups.len() {
            return last;
        }
    }
    // The same file twice: number them.
    last.iter().enumerate().map(|(i, name)| format!("{}-{name}", i + 1)).collect()
}

/// Builds the set of one workload from its runs, one list per column.
fn set(
    groups: &[Group<'_>],
    names: &[String],
    runs: &[Vec<&RunResult>],
) -> Result<Set, TableError> {
    let base = runs[0][0];
    let shared: BTreeMap<_, _> = base
        .parameters
        .iter()
        .filter(|(k, v)| runs.iter().all(|r| r[0].parameters.get(*k) == Some(*v)))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut rows = Rows::default();
    let mut columns = Vec::new();
    for ((group, name), runs) in groups.iter().zip(names).zip(runs) {
        let first = runs[0];
        let mut column = Column {
            name: name.clone(),
            file: group.source.name.clone(),
            policy: first.policy.clone(),
            world: first.world.clone(),
            seeds: Vec::new(),
            versions: Vec::new(),
            parameters: first.parameters.clone(),
        };
        column.parameters.retain(|k, _| !shared.contains_key(k));
        for row in &mut rows.all {
            row.samples.push(Vec::new());
        }
        let (mut seeds, mut versions) = (HashSet::new(), HashSet::new());
        for run in runs {
            let place = group.source.place(run);
            if matches!(run.world, World::Simulated(_)) && !seeds.insert(run.seed) {
                let what = format!("seed {} occurs twice, so the run is the same", run.seed);
                return wrong(place, what, "use a different seed for every simulated run");
            }
            column.seeds.push(run.seed);
            if versions.insert(&run.version) {
                column.versions.push(run.version.clone());
            }
            rows.take(&place, &run.metrics, columns.len())?;
        }
        columns.push(column);
        // Engines have metrics of their own. Results without any common metric are of different
        // workloads with one name.
        let last = columns.len() - 1;
        if !rows.all.iter().any(|row| !row.samples[0].is_empty() && !row.samples[last].is_empty()) {
            let what = format!("no metric in common with the base, {}", at(&groups[0]));
            return wrong(group.source.place(first), what, SAME_VERSION);
        }
    }
    let (workload, parameters) = (base.workload.clone(), shared);
    let mut set = Set { workload, parameters, columns, metrics: rows.all };
    // Without a result of its own, every metric is one.
    if set.metrics.iter().any(|m| !explains(&m.name)) {
        set.metrics.iter_mut().for_each(|m| m.primary = !explains(&m.name));
    }
    Ok(set)
}

impl Row {
    /// Creates a row with empty columns.
    fn of(m: &Metric, columns: usize) -> Row {
        let samples = vec![Vec::new(); columns];
        let (name, unit) = (m.name.clone(), m.unit.clone());
        Row { name, unit, better: m.better, primary: true, samples }
    }

    /// Whether every column has samples.
    pub(super) fn is_complete(&self) -> bool {
        !self.samples.iter().any(Vec::is_empty)
    }
}

const SAME_VERSION: &str = "compare results of the same version of the workload";

/// The rows of a set while its columns are read.
#[derive(Default)]
struct Rows {
    all: Vec<Row>,
    /// Places of the rows by name.
    places: HashMap<String, usize>,
}

impl Rows {
    /// Appends a run's samples to the last column; `before` columns precede it. A metric that no
    /// earlier run had gets a row at the end.
    fn take(&mut self, place: &str, from: &[Metric], before: usize) -> Result<(), TableError> {
        for m in from {
            let at = match self.places.get(&m.name) {
                Some(&at) => at,
                None => {
                    self.places.insert(m.name.clone(), self.all.len());
                    self.all.push(Row::of(m, before + 1));
                    self.all.len() - 1
                }
            };
            let row = &mut self.all[at];
            if (&m.unit, m.better) != (&row.unit, row.better) {
                let what = format!(
                    "in \"{}\" with {:?} better, but before in \"{}\" with {:?} better",
                    m.unit, m.better, row.unit, row.better
                );
                return wrong(format!("{place}: metric {}", m.name), what, SAME_VERSION);
            }
            if let Some(column) = row.samples.last_mut() {
                column.extend(m.counted());
            }
        }
        Ok(())
    }
}
