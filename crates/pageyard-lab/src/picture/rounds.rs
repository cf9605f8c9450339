//! The rounds of `hygiene` under both policies: curves, a table, and the claims.

use super::axis::Axis;
use super::figure::{Body, Figure};
use super::plot::{Array, Panel, Series, Shape};
use super::table::{Cell, Name, Table};
use super::text::number;
use super::{Page, Part};
use crate::format::size;
use crate::hygiene::{Report, Round};

/// A field of a round: its name and its value.
type Field = (&'static str, fn(&Round) -> u64);

const FIELDS: [Field; 3] =
    [("steals", |r| r.steals), ("claims", |r| r.claims), ("mismatches", |r| r.mismatches)];

impl Page {
    /// Adds a run of `hygiene`.
    pub fn hygiene(&mut self, report: &Report) {
        let at = self.keep("hygiene", report);
        self.fact("seed", &report.seed.to_string());
        self.fact("heap", &format!("{}, {} CPUs", size(report.memory), report.cpus));
        self.fact("measured by", concat!("pageyard ", env!("CARGO_PKG_VERSION")));
        self.simulated = "simulated: reclaims, compacts, no swap".into();
        self.section("By round");
        self.parts.push(Part::Figure(figure(report, &at)));
        self.parts.push(Part::Table(table(report, &at)));
        self.section("Claims");
        let claim = |c: crate::hygiene::Claim| {
            let says = match c.holds {
                Some(true) => "yes",
                Some(false) => "no",
                None => "too few rounds",
            };
            (Name { name: c.text, note: String::new() }, vec![Cell::text(says)])
        };
        self.parts.push(Part::Table(Table {
            caption: "Claims of the patches and of the published series (A.3)".into(),
            head: ["claim", "holds here"].map(String::from).to_vec(),
            rows: report.claims().into_iter().map(claim).collect(),
            ..Table::default()
        }));
    }
}

/// Returns both policies' results, each with its field in the report.
fn sides(report: &Report) -> [(&'static str, &crate::hygiene::Series); 2] {
    [("vanilla", &report.vanilla), ("linux612", &report.linux612)]
}

fn figure(report: &Report, at: &str) -> Figure {
    let rounds = report.vanilla.rounds.len().max(report.linux612.rounds.len());
    // Rounds are plotted by their index in the data but labelled from 1.
    let mut across = Axis::whole("round", "", [1.0, rounds as f64].into_iter());
    (across.low, across.high) = (across.low - 1.0, across.high - 1.0);
    across.ticks.iter_mut().for_each(|tick| tick.0 -= 1.0);
    let panel = |(name, get): &Field| {
        let series = sides(report).into_iter().enumerate().map(|(colour, (key, side))| {
            let values: Vec<f64> = side.rounds.iter().map(|r| get(r) as f64).collect();
            let x = Array { values: (0..values.len()).map(|n| n as f64).collect(), at: "".into() };
            let y = Array { values, at: format!("{at}/{key}/rounds/*/{name}") };
            Series::arrays(side.policy, colour, Shape::Line, x, y)
        });
        let all = sides(report).into_iter().flat_map(|(_, s)| &s.rounds).map(|r| get(r) as f64);
        let y = Axis::linear(name, "", all.chain([0.0]));
        Panel::new(name, across.clone(), y, series.collect())
    };
    let panels = FIELDS.iter().map(panel).collect();
    Figure::new("rounds", "Blocks of the wrong type by round", "", Body::Panels(panels))
}

fn table(report: &Report, at: &str) -> Table {
    let mut head = vec!["round".to_owned()];
    for (name, _) in FIELDS {
        head.extend(sides(report).map(|(_, s)| format!("{name}: {}", s.policy)));
    }
    let row = |i: usize| {
        let cells = FIELDS.iter().flat_map(|(name, get)| {
            sides(report).map(|(key, side)| match side.rounds.get(i).map(get) {
                Some(n) => {
                    let n = n as f64;
                    Cell::value(number(n), n, format!("{at}/{key}/rounds/{i}/{name}"))
                }
                None => Cell::text("-"),
            })
        });
        (Name { name: (i + 1).to_string(), note: String::new() }, cells.collect())
    };
    Table {
        caption: "Steals, claims and mismatches".into(),
        head,
        rows: (0..report.vanilla.rounds.len()).map(row).collect(),
        notes: vec!["A steal keeps the pageblock's type, a claim changes it.".into()],
        plain: None,
    }
}
