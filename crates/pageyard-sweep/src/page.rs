//! The results as text and as an HTML page: the Pareto front of every input.

use std::fmt::Write;

use pageyard_lab::format;
use pageyard_lab::picture::escaped;

use crate::front::{Front, OBJECTIVES, Point};

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), format::number)
}

fn title(front: &Front) -> String {
    let on = if front.machine.is_empty() { "" } else { " on " };
    format!("{}{on}{}", front.input, front.machine)
}

fn heading(front: &Front) -> Vec<String> {
    let name = |(name, unit): (&&str, &&str)| {
        if unit.is_empty() { (*name).to_owned() } else { format!("{name}, {unit}") }
    };
    OBJECTIVES.iter().zip(&front.units).map(name).collect()
}

/// Formats the fronts as text; `*` marks the policies on a front.
pub fn text(fronts: &[Front]) -> String {
    let mut out = String::new();
    for front in fronts {
        let names = front.points.iter().map(|p| p.policy.chars().count());
        let width = names.max().unwrap_or(0).max(6);
        let _ = writeln!(out, "{}", title(front));
        let _ = write!(out, "  {:width$}", "policy");
        let heading = heading(front);
        for name in &heading {
            let _ = write!(out, "  {name:>14}");
        }
        out.push('\n');
        for point in &front.points {
            let mark = if point.on_front { '*' } else { ' ' };
            let _ = write!(out, "{mark} {:width$}", point.policy);
            for (value, name) in point.values.iter().zip(&heading) {
                let _ = write!(out, "  {:>w$}", number(*value), w = name.len().max(14));
            }
            out.push('\n');
        }
        out.push('\n');
    }
    out.push_str("* on the Pareto front: no policy is as good in all of these and better in one\n");
    out
}

const STYLE: &str = "body{font:15px system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
color:#222;background:#fff}table{border-collapse:collapse}td,th{padding:.2rem .8rem;text-align:right}\
td:first-child,th:first-child{text-align:left}tr.front{font-weight:600;background:#e8f1ff}\
svg{display:block;margin:1rem 0}text{font:12px system-ui,sans-serif;fill:#444}";

/// Formats the fronts as a page: one HTML file that needs no network.
pub fn html(name: &str, fronts: &[Front]) -> String {
    let name = escaped(name);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Sweep {name}</title>\
         <style>{STYLE}</style></head><body>\n<h1>Sweep {name}</h1>\n<p>Means over all seeds. Marked \
         rows are on the Pareto front: no other policy is as good in all columns and better in one. \
         Lower is better in every column. Every measurement is in <code>results.parquet</code>.</p>\n"
    );
    for front in fronts {
        let _ = writeln!(out, "<h2>{}</h2>", escaped(&title(front)));
        out.push_str(&plot(front));
        out.push_str("<table><tr><th>policy</th>");
        for name in heading(front) {
            let _ = write!(out, "<th>{}</th>", escaped(&name));
        }
        out.push_str("</tr>\n");
        for point in &front.points {
            let class = if point.on_front { " class=\"front\"" } else { "" };
            let _ = write!(out, "<tr{class}><td>{}</td>", escaped(&point.policy));
            for value in point.values {
                let _ = write!(out, "<td>{}</td>", number(value));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }
    out.push_str("</body></html>\n");
    out
}

/// Width and height of a plot, and the space for its axes.
const SIZE: (f64, f64) = (560.0, 320.0);
const EDGE: f64 = 48.0;

/// Draws the first two objectives against each other: filled dots are on the front.
fn plot(front: &Front) -> String {
    let at = |p: &Point| Some((p.values[0]?, p.values[1]?));
    let dots: Vec<(&Point, (f64, f64))> =
        front.points.iter().filter_map(|p| Some((p, at(p)?))).collect();
    if dots.is_empty() {
        return String::new();
    }
    let most = |of: fn(&(f64, f64)) -> f64| {
        let largest = dots.iter().map(|(_, d)| of(d)).fold(0.0, f64::max);
        if largest > 0.0 { largest * 1.1 } else { 1.0 }
    };
    let (most_x, most_y) = (most(|d| d.0), most(|d| d.1));
    let (width, height) = SIZE;
    let place = |(x, y): (f64, f64)| {
        let x = EDGE + x / most_x * (width - 2.0 * EDGE);
        let y = height - EDGE - y / most_y * (height - 2.0 * EDGE);
        (x, y)
    };
    let names = heading(front);
    let (left, bottom) = (EDGE, height - EDGE);
    let mut out = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\
         <path d=\"M{left} {EDGE}V{bottom}H{}\" fill=\"none\" stroke=\"#888\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text x=\"{left}\" y=\"{}\">{}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
        width - EDGE,
        width - EDGE,
        bottom + 34.0,
        escaped(&names[0]),
        EDGE - 12.0,
        escaped(&names[1]),
        width - EDGE,
        bottom + 16.0,
        number(Some(most_x)),
        left - 4.0,
        EDGE + 10.0,
        number(Some(most_y)),
    );
    for (point, dot) in dots {
        let (x, y) = place(dot);
        let fill = if point.on_front { "#1f6feb" } else { "#fff" };
        let name = escaped(&point.policy);
        let _ = writeln!(
            out,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{fill}\" stroke=\"#1f6feb\">\
             <title>{name}</title></circle><text x=\"{:.1}\" y=\"{:.1}\">{name}</text>",
            x + 8.0,
            y - 6.0
        );
    }
    out.push_str("</svg>\n");
    out
}
