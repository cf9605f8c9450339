//! Tables in pages.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::text::{escaped, number};
use crate::result::Better;
use crate::table::{Printed, Titled, Verdict};

/// A table of cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) caption: String,
    /// Headings of all columns, including the column of row names.
    pub(super) head: Vec<String>,
    pub(super) rows: Vec<(Name, Vec<Cell>)>,
    pub(super) notes: Vec<String>,
    /// The table as plain text, if its form prescribes the layout.
    pub(super) plain: Option<String>,
}

/// A row's name and a note on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) note: String,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    parts: Vec<Part>,
    class: &'static str,
}

/// Text, and the number that it represents with its place in the data.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    value: Option<(f64, String)>,
    small: bool,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell::default().and(text)
    }

    /// Creates a cell that shows a number of the page's data as this text.
    pub(super) fn value(text: String, value: f64, at: String) -> Cell {
        let parts = vec![Part { text, value: Some((value, at)), small: false }];
        Cell { parts, class: "number" }
    }

    fn and(mut self, text: impl Into<String>) -> Cell {
        self.parts.push(Part { text: text.into(), value: None, small: true });
        self
    }

    fn and_value(mut self, text: String, value: f64, at: String) -> Cell {
        self.parts.push(Part { text, value: Some((value, at)), small: true });
        self
    }
}

impl Table {
    pub(super) fn html(&self) -> String {
        let mut s = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\
             <caption><span>{0}</span></caption><thead><tr>",
            escaped(&self.caption)
        );
        for head in &self.head {
            let _ = write!(s, "<th scope=\"col\">{}</th>", escaped(head));
        }
        s.push_str("</tr></thead><tbody>");
        for (name, cells) in &self.rows {
            let _ = write!(s, "<tr><th scope=\"row\">{}", escaped(&name.name));
            if !name.note.is_empty() {
                let _ = write!(s, " <small>{}</small>", escaped(&name.note));
            }
            s.push_str("</th>");
            for cell in cells {
                cell.html(&mut s);
            }
            s.push_str("</tr>");
        }
        s.push_str("</tbody></table></div>");
        for note in &self.notes {
            let _ = write!(s, "<p class=\"note\">{}</p>", escaped(note));
        }
        if let Some(plain) = &self.plain {
            let _ = write!(
                s,
                "<details open><summary>Plain text</summary><pre tabindex=\"0\">{}</pre></details>",
                escaped(plain)
            );
        }
        s
    }
}

impl Cell {
    fn html(&self, s: &mut String) {
        let _ = write!(s, "<td class=\"{}\">", self.class);
        for part in &self.parts {
            let tag = if part.small { "small" } else { "span" };
            match &part.value {
                Some((value, at)) if value.is_finite() && !at.is_empty() => {
                    let _ = write!(
                        s,
                        "<{tag} data-at=\"{}\" data-value=\"{value}\">{}</{tag}>",
                        escaped(at),
                        escaped(&part.text)
                    );
                }
                _ => _ = write!(s, "<{tag}>{}</{tag}>", escaped(&part.text)),
            }
        }
        s.push_str("</td>");
    }
}

/// Returns a table of `pageyard compare` whose JSON is at this place in the data.
pub(super) fn compared(titled: &Titled, at: &str) -> Table {
    let Printed::Ours(table) = &titled.table else { return printed(titled) };
    let mut head = vec!["median [95 % interval]".to_owned()];
    for (i, name) in table.columns.iter().enumerate() {
        head.push(name.clone());
        if i > 0 {
            head.push("change".into());
        }
    }
    let mut rows = Vec::new();
    for (i, line) in table.lines.iter().enumerate() {
        let better = if line.better == Better::Lower { "lower" } else { "higher" };
        let unit = if line.unit.is_empty() { String::new() } else { format!("{}, ", line.unit) };
        let indent = if line.primary { "" } else { "· " };
        let name = Name {
            name: format!("{indent}{}", line.metric),
            note: format!("{unit}{better} is better"),
        };
        let mut cells = Vec::new();
        for (j, cell) in line.cells.iter().enumerate() {
            let place = format!("{at}/table/lines/{i}/cells/{j}");
            let shown = if cell.n == 0 { "-".into() } else { number(cell.median) };
            let mut median = Cell::value(shown, cell.median, format!("{place}/median"));
            if let Some(interval) = cell.interval {
                let end = |name: &str| format!("{place}/interval/{name}");
                median = median
                    .and(" [")
                    .and_value(number(interval.low), interval.low, end("low"))
                    .and(", ")
                    .and_value(number(interval.high), interval.high, end("high"))
                    .and("]");
            }
            cells.push(median);
            if j == 0 {
                continue;
            }
            let Some(c) = cell.compared.as_ref().filter(|c| !c.zero) else {
                cells.push(Cell::text("-"));
                continue;
            };
            let percent = |ratio: f64| match ratio {
                r if r.is_finite() => format!("{:+.2} %", 100.0 * (r - 1.0)),
                _ => "from 0".into(),
            };
            let place = format!("{place}/compared");
            let (class, word) = match c.verdict {
                Verdict::Better => ("better", " ▲ better"),
                Verdict::Worse => ("worse", " ▼ worse"),
                Verdict::Same => ("same", " ="),
                Verdict::Nothing => ("nothing", " ~"),
                Verdict::Unjudged => ("nothing", ""),
            };
            let mut change = Cell::value(percent(c.ratio), c.ratio, format!("{place}/ratio"));
            if let Some(i) = c.interval {
                let end = |name: &str| format!("{place}/interval/{name}");
                change = change
                    .and(" [")
                    .and_value(percent(i.low), i.low, end("low"))
                    .and(", ")
                    .and_value(percent(i.high), i.high, end("high"))
                    .and("]");
            }
            if c.exact {
                change = change.and(" exact");
            }
            let p = [("p_holm", c.p_holm), ("p", c.p)];
            if let Some((name, p)) = p.into_iter().find_map(|(name, p)| Some((name, p?))) {
                change = change.and_value(format!(" {}", c.p_text()), p, format!("{place}/{name}"));
            }
            change = change.and(word);
            if let Some(needed) = c.needed {
                let text = format!(" {}", c.needed_text());
                change = change.and_value(text, needed as f64, format!("{place}/needed"));
            }
            change.class = class;
            cells.push(change);
        }
        rows.push((name, cells));
    }
    let mut notes = vec![table.legend().join("; ")];
    notes.extend(titled.partial.iter().map(ToString::to_string));
    Table { caption: titled.heading.clone(), head, rows, notes, plain: None }
}

/// Returns a table in one of the other forms: its figures as rows, and its own layout as text.
fn printed(titled: &Titled) -> Table {
    let mut records = titled.table.records().into_iter();
    let head = records.next().unwrap_or_default();
    let cell = |text: String| match text.parse::<f64>() {
        Ok(value) => Cell::value(number(value), value, String::new()),
        Err(_) => Cell::text(text),
    };
    let row = |record: Vec<String>| {
        let mut fields = record.into_iter();
        let name = Name { name: fields.next().unwrap_or_default(), note: String::new() };
        (name, fields.map(cell).collect())
    };
    Table {
        caption: titled.heading.clone(),
        head,
        rows: records.map(row).collect(),
        notes: titled.partial.iter().map(ToString::to_string).collect(),
        plain: Some(titled.table.to_string()),
    }
}

/// Returns a table of a replay whose JSON is at this place in the data.
pub(super) fn replayed(report: &crate::replay::Report, at: &str, data: &Json) -> Table {
    let mut head = vec![String::new(), "recorded".into()];
    for (i, c) in report.policies.iter().enumerate() {
        head.push(c.policy.as_str().into());
        if i > 0 {
            head.push("change".into());
        }
    }
    let figures = |place: &str, row: &crate::replay::TableRow, column: usize| {
        let Some((text, shown)) = &row.values[column] else {
            // Depots are the packed engine's; no kernel has them.
            let recorded = column == 0 && row.key != "depot_pages";
            return Cell::text(if recorded { "not recorded" } else { "-" });
        };
        let at = format!("{at}{place}/{}", row.key);
        // The printed number may be rounded; the data have full precision.
        match data.pointer(&at).and_then(Json::as_f64).filter(|_| !row.key.is_empty()) {
            Some(value) => Cell::value(text.clone(), value, at),
            None => Cell::value(text.clone(), *shown, String::new()),
        }
    };
    let rows = report.rows().into_iter().map(|row| {
        let mut cells = vec![figures("/recorded", &row, 0)];
        for i in 0..report.policies.len() {
            cells.push(figures(&format!("/policies/{i}/figures"), &row, i + 1));
            if i > 0 {
                let (a, b) = (&row.values[i + 1], &row.values[1]);
                let change = match (a, b) {
                    (Some((_, a)), Some((_, b))) if *b != 0.0 => {
                        format!("{:+.1} %", 100.0 * (a / b - 1.0))
                    }
                    _ => String::new(),
                };
                cells.push(Cell { class: "change", ..Cell::text(change) });
            }
        }
        let name = row.label.trim_start();
        let note = String::new();
        let indented = if name.len() < row.label.len() { "· " } else { "" };
        (Name { name: format!("{indented}{name}"), note }, cells)
    });
    let r = &report.reading;
    Table {
        caption: format!(
            "replay of {}: {} page events, {} s by the trace's clock, seed {}",
            r.input,
            number(r.events as f64),
            number((r.seconds * 1e3).round() / 1e3),
            report.seed
        ),
        head,
        rows: rows.collect(),
        notes: [format!(
            "The order of events is replayed, not their timing. \"recorded\" counts the kernel's \
             events; the other columns count the replayed allocator's. Changes are relative to {}.",
            report.policies.first().map_or("", |c| c.policy.as_str())
        )]
        .into_iter()
        .chain(report.recorded.absent().to_string().lines().map(str::to_owned))
        .collect(),
        plain: None,
    }
}
