//! Figures: related plots or maps, in a page or as one SVG.

use std::fmt::Write as _;

use super::map::{self, Map};
use super::plot::{self, Panel, Shape};
use super::text::escaped;

/// A figure of a page.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Name on the command line.
    pub(super) name: &'static str,
    pub(super) title: String,
    /// How to read the figure.
    pub(super) note: String,
    pub(super) body: Body,
    /// The labels of the lists that the reader can select; `shown` is the one shown.
    pub(super) lists: Vec<String>,
    pub(super) shown: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Body {
    Panels(Vec<Panel>),
    /// The maps and the end of their time axis.
    Maps(Vec<Map>, u64),
}

/// Returns the initial step of a slider and its time: where the first map has the most pages in
/// use.
fn first_step(maps: &[Map], end_ns: u64) -> (usize, f64) {
    let time = |step: usize| end_ns as f64 * step as f64 / STEPS as f64;
    let used = |step: &usize| {
        let map = maps.first();
        let frame = map.map(|m| m.frame_at(time(*step)));
        map.zip(frame).and_then(|(m, f)| m.heap.in_use.get(f)).copied().unwrap_or(0)
    };
    let step = (0..=STEPS).rev().max_by_key(used).unwrap_or(STEPS);
    (step, time(step))
}

/// Number of steps of a slider.
const STEPS: usize = 60;

impl Figure {
    pub(super) fn new(name: &'static str, title: &str, note: &str, body: Body) -> Figure {
        let (title, note) = (title.into(), note.into());
        Figure { name, title, note, body, lists: Vec::new(), shown: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.body {
            Body::Panels(panels) => panels.is_empty(),
            Body::Maps(maps, _) => maps.is_empty(),
        }
    }

    /// Returns the figure as part of a page, with the element ID `id`.
    pub(super) fn html(&self, id: &str) -> String {
        let single = matches!(&self.body, Body::Panels(panels) if panels.len() == 1);
        let single = if single { " single" } else { "" };
        let mut s = format!(
            "<figure class=\"figure{single}\" id=\"{id}\" data-figure=\"{}\"><h3>{}</h3><p class=\"note\">{}</p>",
            self.name,
            escaped(&self.title),
            escaped(&self.note)
        );
        self.controls(&mut s, id);
        self.legend(&mut s);
        s.push_str("<div class=\"panels\">");
        match &self.body {
            Body::Panels(panels) => {
                for p in panels {
                    let lists = if p.lists.is_empty() {
                        String::new()
                    } else {
                        format!(" data-lists=\"{}\"", escaped(&p.lists))
                    };
                    let _ = write!(
                        s,
                        "<div class=\"panel\"><h4>{}</h4>{}</div>",
                        escaped(&p.title),
                        p.svg(&format!(" tabindex=\"0\"{lists}"))
                    );
                }
            }
            Body::Maps(maps, end_ns) => {
                let (_, time) = first_step(maps, *end_ns);
                for m in maps {
                    let frame = m.frame_at(time);
                    let _ = write!(
                        s,
                        "<div class=\"panel\"><h4>{}</h4>{}<p class=\"words\">{}</p></div>",
                        escaped(&m.title),
                        m.svg(frame, ""),
                        escaped(&m.words(frame))
                    );
                }
            }
        }
        s.push_str("</div></figure>");
        s
    }

    fn controls(&self, s: &mut String, id: &str) {
        if self.lists.len() > 1 {
            let _ = write!(
                s,
                "<p class=\"controls script\"><label for=\"{id}-list\">Lists of</label> \
                 <select id=\"{id}-list\" class=\"choose-list\">"
            );
            for (i, list) in self.lists.iter().enumerate() {
                let selected = if i == self.shown { " selected" } else { "" };
                let _ = write!(s, "<option{selected}>{}</option>", escaped(list));
            }
            s.push_str("</select></p>");
        }
        if let Body::Maps(maps, end_ns) = &self.body {
            let (step, time) = first_step(maps, *end_ns);
            let _ = write!(
                s,
                "<p class=\"controls script\"><button type=\"button\" class=\"play\" \
                 aria-label=\"Play\">▶</button> <label for=\"{id}-time\">Time</label> \
                 <input id=\"{id}-time\" class=\"time\" type=\"range\" min=\"0\" max=\"{STEPS}\" \
                 value=\"{step}\" data-end=\"{end_ns}\"> <output for=\"{id}-time\">{}</output></p>",
                escaped(&super::text::time(time))
            );
        }
    }

    /// Writes the legend of the colours.
    fn legend(&self, s: &mut String) {
        match &self.body {
            Body::Panels(panels) => {
                let names = legend(panels);
                // The name of a panel's only series is above the panel.
                if names.len() < 2 || panels.iter().all(|p| p.series.len() < 2) {
                    return;
                }
                s.push_str("<ul class=\"legend\">");
                for (name, colour, dashed, shape) in names {
                    let sample = if matches!(shape, Shape::Linked | Shape::Marks) {
                        plot::sample(colour, 12.0, 7.0)
                    } else {
                        String::new()
                    };
                    let _ = write!(
                        s,
                        "<li><button type=\"button\" class=\"toggle\" aria-pressed=\"true\" \
                         data-name=\"{0}\"><svg class=\"swatch\" viewBox=\"0 0 24 14\" \
                         aria-hidden=\"true\"><g class=\"series c{1}{2}\"><path d=\"M1 7H23\"/>{3}</g>\
                         </svg>{0}</button></li>",
                        escaped(&name),
                        colour % plot::COLOURS,
                        if dashed { " dashed" } else { "" },
                        sample
                    );
                }
                s.push_str("</ul>");
            }
            Body::Maps(maps, _) => {
                s.push_str("<ul class=\"legend\">");
                for (kind, name) in map::TYPES.iter().enumerate() {
                    let used = maps.iter().any(|m| m.heap.frames.iter().any(|f| has(f, kind)));
                    if used {
                        let _ = write!(
                            s,
                            "<li><svg class=\"ramp\" viewBox=\"0 0 52 12\" aria-hidden=\"true\">"
                        );
                        for (i, f) in [0, 4, 9, 15].into_iter().enumerate() {
                            let _ = write!(
                                s,
                                "<path class=\"t{kind} f{f}\" d=\"M{} 0h12v12h-12z\"/>",
                                i * 13
                            );
                        }
                        let _ = write!(s, "</svg>{name}, free to full</li>");
                    }
                }
                s.push_str("</ul>");
            }
        }
    }

    /// Returns the figure as a standalone SVG with its own style.
    pub(super) fn svg(&self, subtitle: &str) -> String {
        let gap = 34.0;
        let mut inner = String::new();
        let mut y = 64.0;
        let line = |s: &mut String, class: &str, x: f64, y: f64, text: &str| {
            let _ =
                write!(s, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escaped(text));
        };
        line(&mut inner, "title", 0.0, 18.0, &self.title);
        line(&mut inner, "label", 0.0, 38.0, subtitle);
        if let Body::Panels(panels) = &self.body {
            let mut x = 0.0;
            for (name, colour, dashed, shape) in legend(panels) {
                let marked = matches!(shape, Shape::Linked | Shape::Marks);
                let width = 40.0 + name.chars().count() as f64 * 7.0;
                if x > 0.0 && x + width > plot::WIDTH {
                    (x, y) = (0.0, y + 18.0);
                }
                let mark =
                    if marked { plot::sample(colour, x + 11.0, y - 4.0) } else { String::new() };
                let dashed = if dashed { " dashed" } else { "" };
                let _ = write!(
                    inner,
                    "<g class=\"series c{}{dashed}\"><path d=\"M{x} {}h22\"/>{}</g>",
                    colour % plot::COLOURS,
                    y - 4.0,
                    mark
                );
                line(&mut inner, "label", x + 28.0, y, &name);
                x += width;
            }
            y += 30.0;
            for p in panels {
                line(&mut inner, "panel", 0.0, y, &p.title);
                inner.push_str(&nested(&p.svg(""), y + 8.0, p.height));
                y += p.height + gap;
            }
        }
        if let Body::Maps(maps, end_ns) = &self.body {
            let (_, time) = first_step(maps, *end_ns);
            for (kind, name) in map::TYPES.iter().enumerate() {
                if maps.iter().any(|m| m.heap.frames.iter().any(|f| has(f, kind))) {
                    let _ = write!(
                        inner,
                        "<path class=\"t{kind} f15\" d=\"M{} {}h12v12h-12z\"/>",
                        kind * 110,
                        y - 11.0
                    );
                    line(&mut inner, "label", kind as f64 * 110.0 + 18.0, y, name);
                }
            }
            y += 30.0;
            for m in maps {
                let frame = m.frame_at(time);
                let words = m.words(frame);
                line(&mut inner, "panel", 0.0, y, &format!("{}, {words}", m.title));
                inner.push_str(&nested(&m.svg(frame, ""), y + 8.0, m.height()));
                y += m.height() + gap;
            }
        }
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" \
             viewBox=\"-16 -8 {0} {1:.0}\" width=\"{0}\" height=\"{1:.0}\"><title>{2}</title><style>{3}</style>\
             <rect class=\"paper\" x=\"-16\" y=\"-8\" width=\"100%\" height=\"100%\"/>{inner}</svg>\n",
            plot::WIDTH + 32.0,
            y,
            escaped(&format!("{}: {subtitle}", self.title)),
            concat!(
                include_str!("../../assets/colours.css"),
                include_str!("../../assets/plots.css")
            )
        )
    }
}

/// Places an SVG element inside another one.
fn nested(svg: &str, y: f64, height: f64) -> String {
    let place = format!("<svg y=\"{y:.1}\" width=\"{}\" height=\"{height:.1}\" ", plot::WIDTH);
    svg.replacen("<svg ", &place, 1)
}

fn has(frame: &str, kind: usize) -> bool {
    frame.as_bytes().chunks_exact(2).any(|c| usize::from(c[0] - b'0') == kind)
}

/// Returns the names of the series, each once.
fn legend(panels: &[Panel]) -> Vec<(String, usize, bool, Shape)> {
    let mut names: Vec<(String, usize, bool, Shape)> = Vec::new();
    for s in panels.iter().flat_map(|p| &p.series) {
        if s.shape != Shape::Ticks && !names.iter().any(|n| n.0 == s.name) {
            names.push((s.name.clone(), s.colour, s.dashed, s.shape));
        }
    }
    names
}
