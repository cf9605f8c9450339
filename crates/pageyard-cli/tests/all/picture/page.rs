//! A parsed page, and the check that every figure in it equals the JSON's.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Attributes of a start tag by name; its own name under "".
pub(crate) type Tag = BTreeMap<String, String>;

pub(crate) struct Page {
    pub(crate) text: String,
    pub(crate) tags: Vec<Tag>,
    pub(crate) data: Value,
}

impl Page {
    pub(crate) fn read(path: &Path) -> Page {
        let text = std::fs::read_to_string(path).unwrap();
        let (before, rest) =
            text.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
        let (data, after) = rest.split_once("</script>").unwrap();
        let data = serde_json::from_str(data).unwrap();
        // The content of script and style elements is not markup.
        let style = before.find("<style>").unwrap()..before.find("</style>").unwrap();
        let markup = format!("{}{}", &before[..style.start], &before[style.end..]);
        let tags = tags(&markup);
        assert_eq!(text.matches("<script").count(), 2, "the data and the script");
        assert_eq!(after.matches("</script").count(), 1);
        Page { text, tags, data }
    }

    pub(crate) fn tags_with<'a>(&'a self, attribute: &'a str) -> impl Iterator<Item = &'a Tag> {
        self.tags.iter().filter(move |t| t.contains_key(attribute))
    }
}

/// All start tags. Strict: text has no bare `<`, and attributes are in double quotes.
fn tags(markup: &str) -> Vec<Tag> {
    let mut all = Vec::new();
    let mut rest = markup;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = {
            let mut quoted = false;
            let end = rest.find(|c| {
                quoted ^= c == '"';
                c == '>' && !quoted
            });
            end.unwrap_or_else(|| panic!("no end: {}", &rest[..rest.len().min(80)]))
        };
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with(['/', '!', '?']) {
            continue;
        }
        let tag = tag.trim_end_matches('/');
        let name = tag.split(' ').next().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "a bare <: {tag}");
        let mut attributes = Tag::from([(String::new(), name.to_owned())]);
        let mut left = tag[name.len()..].trim_start();
        while !left.is_empty() {
            let word = left.find([' ', '=']).unwrap_or(left.len());
            let key = left[..word].to_owned();
            left = &left[word..];
            let mut value = String::new();
            if let Some(quoted) = left.strip_prefix("=\"") {
                let close = quoted.find('"').unwrap();
                value = plain(&quoted[..close]);
                left = &quoted[close + 1..];
            } else {
                assert!(!left.starts_with('='), "an attribute without quotes: {tag}");
            }
            left = left.trim_start();
            assert!(attributes.insert(key, value).is_none(), "an attribute twice: {tag}");
        }
        all.push(attributes);
    }
    all
}

fn plain(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) numbers: usize,
    pub(crate) paths: usize,
}

/// Compares every number and every curve of a page with its data, and checks that nothing is loaded
/// from elsewhere.
pub(crate) fn check(page: &Page) -> Found {
    let mut found = Found::default();
    let mut panel: Option<&Tag> = None;
    let mut series: Option<&Tag> = None;
    for tag in &page.tags {
        for (key, at) in tag.iter().filter(|(k, v)| k.ends_with("-at") && !v.is_empty()) {
            let value = match key.as_str() {
                "data-at" => "data-value",
                // Belongs to a curve, whose path is checked below.
                _ if tag.contains_key("data-field") => continue,
                key => key.strip_suffix("-at").unwrap(),
            };
            let shown: f64 = tag[value].parse().unwrap();
            let there = page.data.pointer(at).unwrap_or_else(|| panic!("nothing at {at}"));
            assert_eq!(Some(shown), there.as_f64(), "{at}");
            found.numbers += 1;
        }
        if tag.get("class").is_some_and(|c| c == "plot") {
            panel = Some(tag);
        }
        if tag.contains_key("data-shape") {
            series = Some(tag);
        }
        let curve = series.filter(|s| s.contains_key("data-y-at") && tag[""] == "path");
        if let Some(curve) = curve {
            series = None;
            if !curve["data-y-at"].is_empty() {
                path(page, panel.unwrap(), curve, &tag["d"]);
                found.paths += 1;
            }
        }
        for key in ["src", "href", "action", "data"] {
            if let Some(value) = tag.get(key) {
                assert!(value.starts_with('#') || value == "data:,", "{key}={value}");
            }
        }
        assert!(!tag.keys().any(|k| k.starts_with("on")), "a handler: {tag:?}");
    }
    // Every element with a role has a label.
    for tag in page.tags.iter().filter(|t| t.get("role").is_some_and(|r| r == "img")) {
        assert!(!tag["aria-label"].is_empty());
    }
    for tag in page.tags.iter().filter(|t| t[""] == "th") {
        assert!(tag.contains_key("scope"), "{tag:?}");
    }
    let addresses = page.text.matches("://").count();
    assert_eq!(addresses, page.text.matches("http://www.w3.org/2000/svg").count(), "an address");
    found
}

/// The numbers at a JSON pointer; `*` stands for all elements.
fn numbers(data: &Value, at: &str) -> Vec<f64> {
    let (array, rest) = at.split_once("/*").unwrap_or((at, ""));
    let array = data.pointer(array).and_then(Value::as_array).unwrap_or_else(|| panic!("{at}"));
    array.iter().map(|v| v.pointer(rest).and_then(Value::as_f64).unwrap()).collect()
}

/// Asserts that a curve passes through all its points, in order.
fn path(page: &Page, panel: &Tag, curve: &Tag, d: &str) {
    let scale = |axis: &str, v: f64| {
        let s: Vec<f64> = panel[axis].split(' ').map(|n| n.parse().unwrap()).collect();
        let part = if s[0] == 1.0 {
            (v.max(s[1]) / s[1]).ln() / (s[2] / s[1]).ln()
        } else {
            (v - s[1]) / (s[2] - s[1])
        };
        assert!((-1e-9..1.0 + 1e-9).contains(&part), "{v} is outside {}", panel[axis]);
        s[3] + part * (s[4] - s[3])
    };
    let ys = numbers(&page.data, &curve["data-y-at"]);
    let xs = match curve["data-x-at"].as_str() {
        "" => (0..ys.len()).map(|n| n as f64).collect(),
        at => numbers(&page.data, at),
    };
    assert_eq!(xs.len(), ys.len());
    assert!(!xs.is_empty());
    let corners = corners(d);
    let bars = curve["data-shape"] == "bars";
    let mut next = corners.iter();
    for (x, y) in xs.iter().zip(&ys) {
        let (x, y) = (scale("data-x-scale", *x), scale("data-y-scale", *y));
        // A bar has its height on both sides of its position.
        let near = |c: &&(f64, f64)| (c.1 - y).abs() < 0.02 && (bars || (c.0 - x).abs() < 0.02);
        assert!(next.any(|c| near(&c)), "{} misses {x} {y}", curve["data-y-at"]);
    }
}

/// The corners of a path of absolute commands.
fn corners(d: &str) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    let (mut x, mut y) = (0.0, 0.0);
    let mut rest = d;
    while let Some(command) = rest.chars().next() {
        rest = &rest[1..];
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let n: Vec<f64> = rest[..end].split(' ').filter_map(|n| n.parse().ok()).collect();
        match command {
            'M' | 'L' => (x, y) = (n[0], n[1]),
            'H' => x = n[0],
            'V' => y = n[0],
            'z' => {}
            c => panic!("{c} in a path"),
        }
        all.push((x, y));
        rest = &rest[end..];
    }
    all
}
