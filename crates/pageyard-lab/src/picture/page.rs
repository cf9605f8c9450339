//! The page itself.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::text::{escaped, json};
use super::{Page, Part};

const COLOURS: &str = include_str!("../../assets/colours.css");
const PLOTS: &str = include_str!("../../assets/plots.css");
const STYLE: &str = include_str!("../../assets/page.css");
const SCRIPT: &str = include_str!("../../assets/page.js");

/// The page must not load anything from outside, whatever its contents.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data:; base-uri 'none'; form-action 'none'";

impl Page {
    /// Returns the page as HTML, which can be opened from a file and has no external dependencies.
    pub fn html(&self) -> String {
        let mut s = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta name=\"generator\" content=\"pageyard {}\">\n<title>{}</title>\n\
             <link rel=\"icon\" href=\"data:,\">\n<style>\n{COLOURS}{PLOTS}{STYLE}</style>\n</head>\n\
             <body>\n<a class=\"skip\" href=\"#main\">Skip to the results</a>\n",
            env!("CARGO_PKG_VERSION"),
            escaped(&self.title)
        );
        self.header(&mut s);
        s.push_str("<main id=\"main\">\n");
        let mut open = false;
        let mut figure = 0;
        let mut id = || {
            figure += 1;
            format!("figure-{figure}")
        };
        let mut first_point = true;
        for part in &self.parts {
            match part {
                Part::Section(heading) => {
                    let end = if open { "</section>\n" } else { "" };
                    let _ = writeln!(s, "{end}<section><h2>{}</h2>", escaped(heading));
                    (open, first_point) = (true, true);
                }
                Part::Table(table) => s.push_str(&table.html()),
                Part::Text(heading, text) => {
                    let _ = write!(
                        s,
                        "<h3>{}</h3><pre class=\"remarks\" tabindex=\"0\">{}</pre>",
                        escaped(heading),
                        escaped(text)
                    );
                }
                Part::Figure(f) => s.push_str(&f.html(&id())),
                Part::Point(heading, figures) => {
                    let attribute = if first_point { " open" } else { "" };
                    first_point = false;
                    let _ = write!(
                        s,
                        "<details class=\"point\"{attribute}><summary>{}</summary>",
                        escaped(heading)
                    );
                    figures.iter().for_each(|f| s.push_str(&f.html(&id())));
                    s.push_str("</details>\n");
                }
            }
        }
        if open {
            s.push_str("</section>\n");
        }
        self.again(&mut s);
        let _ = write!(
            s,
            "</main>\n<div id=\"tip\" role=\"status\" aria-live=\"polite\" hidden></div>\n\
             <script type=\"application/json\" id=\"data\">{}</script>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            json(&Json::Object(self.data.clone()))
        );
        s
    }

    fn header(&self, s: &mut String) {
        let _ = write!(s, "<header><h1>{}</h1>", escaped(&self.title));
        if !self.simulated.is_empty() {
            let what = if self.simulated.starts_with("replayed") {
                "The allocator executes the recorded events under each policy; times are the \
                 trace's."
            } else {
                "All times are virtual: computed by a cost model, not measured on hardware."
            };
            let _ = write!(
                s,
                "<p class=\"simulated\"><strong>{}</strong> {what}</p>",
                escaped(&self.simulated)
            );
        }
        s.push_str("</header>\n");
    }

    /// Writes what was run, and the command that reproduces it.
    fn again(&self, s: &mut String) {
        s.push_str("<section><h2>What was run</h2>\n<dl>");
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in &self.facts {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        for name in names {
            let _ = write!(s, "<dt>{}</dt>", escaped(name));
            for (_, value) in self.facts.iter().filter(|f| f.0 == name) {
                let _ = write!(s, "<dd>{}</dd>", escaped(value));
            }
        }
        let _ = write!(
            s,
            "<dt>page written by</dt><dd>pageyard {}</dd></dl>\n\
             <h3>Command</h3><pre class=\"command\" tabindex=\"0\">{}</pre></section>\n",
            env!("CARGO_PKG_VERSION"),
            escaped(&self.command)
        );
    }
}
