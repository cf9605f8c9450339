//! Plots as SVG, for pages and as separate files. Colours come from the style sheet, so they follow
//! the reader's theme. Every mark has its exact value and that value's place in the page's data.

use std::fmt::Write as _;

use super::axis::Axis;
use super::text::{coordinate, escaped};

/// A number and its place in the page's data, as a JSON pointer; empty if it is not in the data.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    pub(super) value: f64,
    pub(super) at: String,
}

impl Value {
    pub(super) fn new(value: f64, at: String) -> Value {
        Value { value, at }
    }

    /// Creates a value that is only a position and is not in the data.
    pub(super) fn plain(value: f64) -> Value {
        Value { value, at: String::new() }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: Value,
    pub(super) y: Value,
    /// Interval along the value axis.
    pub(super) interval: Option<[Value; 2]>,
}

/// Numbers from one array of the data, or from one field of the array's elements (`/a/*/b`).
#[derive(Clone, Debug, Default)]
pub(super) struct Array {
    pub(super) values: Vec<f64>,
    pub(super) at: String,
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Arrays { x: Array, y: Array },
    Points(Vec<Point>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A line from point to point.
    Line,
    /// A step line: each value holds until the next point.
    Steps,
    /// A step line: each value covers the time since the previous point.
    Since,
    /// Bars from 0.
    Bars,
    /// Marks joined by a line.
    Linked,
    /// Marks without a line.
    Marks,
    /// A bar across the axis, as for a median.
    Ticks,
}

#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) dashed: bool,
    pub(super) shape: Shape,
    pub(super) data: Data,
    /// The field of a list (such as `high`), if the reader selects the list to show.
    pub(super) field: &'static str,
}

impl Series {
    pub(super) fn arrays(name: &str, colour: usize, shape: Shape, x: Array, y: Array) -> Series {
        let data = Data::Arrays { x, y };
        Series { name: name.into(), colour, dashed: false, shape, data, field: "" }
    }

    pub(super) fn points(name: &str, colour: usize, shape: Shape, points: Vec<Point>) -> Series {
        let data = Data::Points(points);
        Series { name: name.into(), colour, dashed: false, shape, data, field: "" }
    }
}

/// One set of axes with its series.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    /// Place of the lists from which the reader selects one.
    pub(super) lists: String,
    pub(super) height: f64,
    /// Minimum width at the left, for panels whose ticks may change.
    pub(super) left: f64,
}

pub(super) const WIDTH: f64 = 480.0;
pub(super) const HEIGHT: f64 = 232.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;

impl Panel {
    pub(super) fn new(title: &str, x: Axis, y: Axis, series: Vec<Series>) -> Panel {
        Panel { title: title.into(), x, y, series, lists: String::new(), height: HEIGHT, left: 0.0 }
    }

    /// Returns the width at the left that the tick labels need.
    fn left(&self) -> f64 {
        let chars = self.y.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(1);
        let label = if self.y.label.is_empty() { 0.0 } else { 18.0 };
        (chars as f64 * 6.8 + 12.0 + label).min(WIDTH * 0.4).max(self.left)
    }

    fn px(&self, x: f64) -> f64 {
        self.left() + self.x.at(x) * (WIDTH - RIGHT - self.left())
    }

    fn py(&self, y: f64) -> f64 {
        self.height - BOTTOM - self.y.at(y) * (self.height - BOTTOM - TOP)
    }

    /// Returns the SVG element with the attributes `more`.
    pub(super) fn svg(&self, more: &str) -> String {
        let mut s = String::new();
        let (left, right, bottom) = (self.left(), WIDTH - RIGHT, self.height - BOTTOM);
        let scale = |a: &Axis, from: f64, to: f64| {
            format!("{} {} {} {} {}", a.log as u8, a.low, a.high, coordinate(from), coordinate(to))
        };
        let _ = write!(
            s,
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\" \
             data-x-scale=\"{}\" data-y-scale=\"{}\" data-x-unit=\"{}\" data-y-unit=\"{}\"{more}>",
            self.height,
            escaped(&format!("{}: {} over {}", self.title, self.y.label, self.x.label)),
            scale(&self.x, left, right),
            scale(&self.y, bottom, TOP),
            escaped(&self.x.unit),
            escaped(&self.y.unit),
        );
        self.frame(&mut s);
        for series in &self.series {
            self.series(&mut s, series);
        }
        s.push_str("</svg>");
        s
    }

    fn frame(&self, s: &mut String) {
        let (left, right, bottom) = (self.left(), WIDTH - RIGHT, self.height - BOTTOM);
        s.push_str("<g class=\"axes\"><g class=\"y\">");
        for (v, text) in &self.y.ticks {
            let y = self.py(*v);
            let _ = write!(
                s,
                "<path class=\"grid\" d=\"M{} {y:.1}H{right}\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                coordinate(left),
                coordinate(left - 6.0),
                y + 4.0,
                escaped(text)
            );
        }
        s.push_str("</g>");
        for (v, text) in &self.x.ticks {
            let x = self.px(*v);
            let _ = write!(
                s,
                "<path class=\"tick\" d=\"M{x:.1} {bottom}v4\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 17.0,
                escaped(text)
            );
        }
        let _ = write!(
            s,
            "<path class=\"axis\" d=\"M{0} {TOP}V{bottom}H{right}\"/>\
             <text class=\"label\" x=\"{1:.1}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
            coordinate(left),
            (left + right) / 2.0,
            self.height - 8.0,
            escaped(&self.x.label)
        );
        if !self.y.label.is_empty() {
            let middle = (TOP + bottom) / 2.0;
            let _ = write!(
                s,
                "<text class=\"label\" transform=\"translate(12 {middle}) rotate(-90)\" \
                 text-anchor=\"middle\">{}</text>",
                escaped(&self.y.label)
            );
        }
        s.push_str("</g>");
    }

    fn series(&self, s: &mut String, series: &Series) {
        let dashed = if series.dashed { " dashed" } else { "" };
        let shape = format!("{:?}", series.shape).to_lowercase();
        let _ = write!(
            s,
            "<g class=\"series c{}{dashed} {shape}\" data-name=\"{}\" data-shape=\"{shape}\"",
            series.colour % COLOURS,
            escaped(&series.name)
        );
        match &series.data {
            Data::Arrays { x, y } => {
                let _ = write!(
                    s,
                    " data-x-at=\"{}\" data-y-at=\"{}\" data-field=\"{}\"><path d=\"{}\"/>",
                    escaped(&x.at),
                    escaped(&y.at),
                    series.field,
                    self.path(series.shape, &x.values, &y.values)
                );
            }
            Data::Points(points) => {
                s.push('>');
                self.points(s, series, points);
            }
        }
        s.push_str("</g>");
    }

    /// Returns a path through points. The page's script draws the same path.
    fn path(&self, shape: Shape, xs: &[f64], ys: &[f64]) -> String {
        let mut d = String::new();
        let base = coordinate(self.py(0.0));
        let bar = self.px(xs.first().unwrap_or(&0.0) + 1.0) - self.px(*xs.first().unwrap_or(&0.0));
        let bar = (bar * 0.8).max(0.6);
        for (i, (x, y)) in xs.iter().zip(ys).enumerate() {
            let (px, py) = (coordinate(self.px(*x)), coordinate(self.py(*y)));
            let _ = match shape {
                Shape::Bars => {
                    let (a, b) = (self.px(*x) - bar / 2.0, self.px(*x) + bar / 2.0);
                    write!(d, "M{} {base}V{py}H{}V{base}z", coordinate(a), coordinate(b))
                }
                _ if i == 0 => write!(d, "M{px} {py}"),
                Shape::Steps => write!(d, "H{px}V{py}"),
                Shape::Since => write!(d, "V{py}H{px}"),
                _ => write!(d, "L{px} {py}"),
            };
        }
        d
    }

    fn points(&self, s: &mut String, series: &Series, points: &[Point]) {
        if series.shape == Shape::Linked {
            let xs: Vec<_> = points.iter().map(|p| p.x.value).collect();
            let ys: Vec<_> = points.iter().map(|p| p.y.value).collect();
            let _ = write!(s, "<path d=\"{}\"/>", self.path(Shape::Line, &xs, &ys));
        }
        for p in points {
            let (x, y) = (self.px(p.x.value), self.py(p.y.value));
            if let Some([low, high]) = &p.interval {
                // The interval lies along the value axis.
                let across = self.y.unit == "row";
                let d = if across {
                    let (a, b) = (self.px(low.value), self.px(high.value));
                    format!("M{a:.2} {0:.2}v6m0 -3H{b:.2}m0 -3v6", y - 3.0)
                } else {
                    let (a, b) = (self.py(low.value), self.py(high.value));
                    format!("M{0:.2} {a:.2}h6m-3 0V{b:.2}m-3 0h6", x - 3.0)
                };
                let _ = write!(
                    s,
                    "<path class=\"interval\" d=\"{d}\" {} {}/>",
                    attributes("low", low),
                    attributes("high", high)
                );
            }
            let d = mark(series.shape, series.colour, x, y);
            let _ = write!(
                s,
                "<path class=\"mark\" d=\"{d}\" {} {}/>",
                attributes("x", &p.x),
                attributes("y", &p.y)
            );
        }
    }
}

fn attributes(name: &str, v: &Value) -> String {
    let at = if v.at.is_empty() {
        String::new()
    } else {
        format!(" data-{name}-at=\"{}\"", escaped(&v.at))
    };
    format!("data-{name}=\"{}\"{at}", v.value)
}

pub(super) const COLOURS: usize = 8;

/// Returns a mark. Shapes differ by colour, for readers who cannot distinguish the colours.
fn mark(shape: Shape, colour: usize, x: f64, y: f64) -> String {
    if shape == Shape::Ticks {
        return format!("M{x:.2} {:.2}v14", y - 7.0);
    }
    match colour % 4 {
        0 => format!("M{:.2} {y:.2}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0z", x - 3.5),
        1 => format!("M{:.2} {:.2}h6v6h-6z", x - 3.0, y - 3.0),
        2 => format!("M{x:.2} {:.2}l4 7h-8z", y - 4.0),
        _ => format!("M{x:.2} {:.2}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", y - 4.5),
    }
}

/// Returns a mark for a legend.
pub(super) fn sample(colour: usize, x: f64, y: f64) -> String {
    format!("<path class=\"mark\" d=\"{}\"/>", mark(Shape::Marks, colour, x, y))
}
