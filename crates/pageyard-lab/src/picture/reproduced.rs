//! Experiments: published figures next to the measured ones, as tables and as profiles.

use super::axis::Axis;
use super::figure::{Body, Figure};
use super::plot::{Panel, Point, Series, Shape, Value};
use super::table::{Cell, Name, Table};
use super::text::number;
use super::{Page, Part};
use crate::reproduce::{Agreement, Claim, Column, Comparison, Report};

impl Page {
    /// Adds experiments, one after the other. Each has its tables with their agreement, the same
    /// figures as plots, the claims, and notes.
    pub fn reproduced(&mut self, reports: &[Report]) {
        let all = self.keep("reproduced", reports);
        let simulated = reports.iter().flat_map(|r| &r.outcome.tables);
        if simulated.into_iter().any(|t| t.world.contains("simulated")) {
            self.simulated = "simulated, next to published figures".into();
        }
        for (i, report) in reports.iter().enumerate() {
            let at = format!("{all}/{i}");
            self.section(&format!("{}: {}", report.experiment, report.summary));
            self.fact("published in", report.source);
            self.fact("seed", &report.seed.to_string());
            self.fact("runs each", &report.iterations.to_string());
            self.fact("measured by", &format!("pageyard {}", report.version));
            for (j, comparison) in report.outcome.tables.iter().enumerate() {
                let at = format!("{at}/tables/{j}");
                self.parts.push(Part::Table(table(comparison, &at)));
                let figure = figure(comparison, &at);
                if !figure.is_empty() {
                    self.parts.push(Part::Figure(figure));
                }
            }
            if !report.outcome.claims.is_empty() {
                let mut claims = claims(&report.outcome.claims);
                claims.notes.clone_from(&report.outcome.notes);
                self.parts.push(Part::Table(claims));
            }
        }
    }
}

fn label(column: &Column) -> String {
    if column.unit.is_empty() {
        column.name.clone()
    } else {
        format!("{}, {}", column.name, column.unit)
    }
}

fn table(c: &Comparison, at: &str) -> Table {
    let mut head = vec![String::new()];
    for column in &c.columns {
        head.extend(c.sides.map(|side| format!("{}: {side}", label(column))));
    }
    let cell = |column: usize, side: &str, row: usize, value: Option<f64>| match value {
        Some(v) => Cell::value(number(v), v, format!("{at}/columns/{column}/{side}/{row}")),
        None => Cell::text("-"),
    };
    let mut rows: Vec<(Name, Vec<Cell>)> = Vec::new();
    for (i, name) in c.rows.iter().enumerate() {
        let cells = c.columns.iter().enumerate().flat_map(|(j, column)| {
            [cell(j, "seed", i, column.seed[i]), cell(j, "ours", i, column.ours[i])]
        });
        rows.push((Name { name: name.clone(), note: String::new() }, cells.collect()));
    }
    let of = |(n, all): (usize, usize)| if all == 0 { "-".into() } else { format!("{n} of {all}") };
    let direction = |a: &Agreement| of(a.direction);
    let order = |a: &Agreement| of(a.order);
    let factor = |a: &Agreement| a.factor.map_or("-".into(), |f| format!("{f:.2}"));
    let says: [&dyn Fn(&Agreement) -> String; 3] = [&direction, &order, &factor];
    for (name, say) in ["same direction", "same order", "largest factor"].iter().zip(says) {
        let cells = c
            .columns
            .iter()
            .flat_map(|column| [Cell::text(""), Cell::text(say(&column.agreement))]);
        rows.push((Name { name: (*name).into(), note: String::new() }, cells.collect()));
    }
    let again = (!c.command.is_empty()).then(|| format!("Again: {}", c.command));
    let caption = format!("{} ({})", c.title, c.world);
    Table { caption, head, rows, notes: again.into_iter().collect(), plain: None }
}

fn figure(c: &Comparison, at: &str) -> Figure {
    let names: Vec<&str> = c.rows.iter().map(String::as_str).collect();
    let panel = |(j, column): (usize, &Column)| {
        let all = column.seed.iter().chain(&column.ours).flatten().copied();
        let x = Axis::linear(&column.name, column.unit, all);
        let side = |colour: usize, side: &str, values: &[Option<f64>]| {
            let point = |(i, v): (usize, &Option<f64>)| {
                let x = Value::new((*v)?, format!("{at}/columns/{j}/{side}/{i}"));
                Some(Point { x, y: Value::plain(i as f64), interval: None })
            };
            let points = values.iter().enumerate().filter_map(point).collect();
            Series::points(c.sides[colour], colour, Shape::Linked, points)
        };
        let series = vec![side(0, "seed", &column.seed), side(1, "ours", &column.ours)];
        let mut panel = Panel::new(&label(column), x, Axis::rows("", &names), series);
        panel.height = 62.0 + 22.0 * names.len() as f64;
        panel
    };
    // A single row has no profile, and a comparison needs both sides.
    let beside = |c: &Column| [&c.seed, &c.ours].iter().all(|s| s.iter().flatten().count() > 1);
    let panels = c.columns.iter().enumerate().filter(|(_, c)| beside(c)).map(panel).collect();
    Figure::new("beside", &c.title, "", Body::Panels(panels))
}

fn claims(claims: &[Claim]) -> Table {
    let row = |claim: &Claim| {
        let says = match claim.holds {
            Some(true) => "yes",
            Some(false) => "no",
            None => "cannot say",
        };
        let name = Name { name: claim.text.clone(), note: String::new() };
        (name, vec![Cell::text(says), Cell::text(claim.found.clone())])
    };
    Table {
        caption: "Claims".into(),
        head: ["claim", "holds here", "found"].map(String::from).to_vec(),
        rows: claims.iter().map(row).collect(),
        notes: Vec::new(),
        plain: None,
    }
}
