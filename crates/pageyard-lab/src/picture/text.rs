//! Text in pages: escapes external text and formats numbers.

use pageyard_trace::is_active;

use crate::format::number_with;

/// Escapes text for HTML, SVG and their attributes in double quotes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A page must not contain these in any notation.
            c if is_active(c) && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Formats JSON for a script element: nothing in it ends the element or starts another.
pub(super) fn json(value: &serde_json::Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            // These occur only in strings, where an escape is equivalent.
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => out.push(c),
        }
    }
    out
}

/// Formats a number for display: as everywhere, with narrow no-break spaces between the groups.
pub(super) fn number(x: f64) -> String {
    number_with(x, '\u{202f}')
}

/// Formats a time in a suitable unit.
pub(super) fn time(ns: f64) -> String {
    let (unit, per) = time_unit(ns);
    let text = number(ns / per);
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {unit}")
}

/// Returns the unit that suits times up to this one, and its length in nanoseconds.
pub(super) fn time_unit(ns: f64) -> (&'static str, f64) {
    match ns.abs() {
        n if n < 1e3 => ("ns", 1.0),
        n if n < 1e6 => ("µs", 1e3),
        n if n < 1e9 => ("ms", 1e6),
        _ => ("s", 1e9),
    }
}

/// Formats a coordinate, rounded to hundredths of a unit.
pub(super) fn coordinate(x: f64) -> String {
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_escaped() {
        assert_eq!(
            escaped("<img src=x onerror='a()'> & \"b\"\u{1}"),
            "&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;\u{fffd}"
        );
        let evil = serde_json::json!({"</script><script>": "<!-- \u{2028} & ]]>"});
        let text = json(&evil);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), evil);
    }

    #[test]
    fn numbers_are_formatted_for_reading() {
        for (x, text) in [
            (0.0, "0"),
            (1234.0, "1\u{202f}234"),
            (-1234567.0, "-1\u{202f}234\u{202f}567"),
            (0.000123456, "0.00012346"),
            (99.99999, "100.000"),
            (3517878.297, "3\u{202f}517\u{202f}878"),
            (12345.67, "12\u{202f}346"),
            (f64::INFINITY, "∞"),
        ] {
            assert_eq!(number(x), text);
        }
        assert_eq!(
            (time(36.0), time(1_536.0), time(2.5e9)),
            ("36 ns".into(), "1.536 µs".into(), "2.5 s".into())
        );
        assert_eq!([1.0, -0.001, 2.345].map(coordinate), ["1", "0", "2.35"]);
    }
}
