//! Descriptions as files: their text and its parsing.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::de::DeserializeOwned;

/// The maximum size of a description in bytes.
const MOST_TEXT: u64 = 1 << 20;

/// Returns the text of a file of at most `most` bytes. The limit also covers endless devices such
/// as `/dev/zero`.
///
/// # Errors
/// Fails if the file cannot be read, is longer, or is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    let text = io::read_to_string(File::open(path)?.take(most + 1))?;
    if text.len() as u64 > most {
        let what = format!("more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(text)
}

/// Returns the text of a description: of a file, or of one of the `shipped` ones by name. An
/// existing file of that name takes precedence.
///
/// # Errors
/// Fails if the file cannot be read, with what is wrong and what can be given: a file, one of
/// `others` (such as ", `detected`,") or one of the shipped names.
pub fn description(
    path: &Path,
    shipped: &[(&str, &'static str)],
    others: &str,
) -> Result<Cow<'static, str>, String> {
    let name = path.to_string_lossy();
    if let Some((_, text)) = shipped.iter().find(|s| s.0 == name && !path.exists()) {
        return Ok(Cow::Borrowed(text));
    }
    read_text(path, MOST_TEXT).map(Cow::Owned).map_err(|e| {
        let names: Vec<_> = shipped.iter().map(|s| s.0).collect();
        format!("{e}; name a TOML file{others} or one of {}", names.join(", "))
    })
}

/// Parses TOML.
///
/// # Errors
/// Fails with the place of the error, such as `line 3`, and what is wrong. The place is empty if the
/// error is about the whole file.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, (String, String)> {
    toml::from_str(text).map_err(|e| {
        let place = e.span().map_or(String::new(), |span| {
            let before = text.bytes().take(span.start);
            format!("line {}", 1 + before.filter(|&b| b == b'\n').count())
        });
        (place, e.message().to_owned())
    })
}

/// Returns how an error names a place in its file: the place and a colon, or nothing if it is empty.
pub fn prefix(place: &str) -> String {
    if place.is_empty() { String::new() } else { format!("{place}: ") }
}
