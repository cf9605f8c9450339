//! Kernel releases, as `uname -r` prints them.

use std::fmt;
use std::str::FromStr;

/// Longest release that is read, in bytes: a field of `uname` has 64, without the final zero.
const MAX_LEN: usize = 64;

/// The version in a kernel's release, such as 6.12.117 in `6.12.117+deb12-cloud-amd64`.
///
/// ```
/// use pageyard_trace::Release;
///
/// let stable: Release = "6.12.117+deb12-cloud-amd64".parse()?;
/// assert_eq!((stable.major, stable.minor, stable.patch), (6, 12, Some(117)));
/// // A distribution's package number is not the number of a stable update.
/// let packaged: Release = "6.1.0-56-cloud-amd64".parse()?;
/// assert_eq!((packaged.minor, packaged.patch), (1, None));
/// # Ok::<(), pageyard_trace::NotARelease>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The stable update; `None` if the release does not say. Distributions that put the number of
    /// their package in its place write 0 here (`6.1.0-56-amd64`).
    pub patch: Option<u16>,
}

/// The text is not a kernel release.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a kernel release; expected a version such as 6.12.30, as `uname -r` prints it")]
pub struct NotARelease;

impl FromStr for Release {
    type Err = NotARelease;

    fn from_str(text: &str) -> Result<Release, NotARelease> {
        let (major, rest) = number(text).ok_or(NotARelease)?;
        let (minor, rest) = rest.strip_prefix('.').and_then(number).ok_or(NotARelease)?;
        let (patch, rest) = match rest.strip_prefix('.').and_then(number) {
            Some((patch, rest)) => (Some(patch), rest),
            None => (None, rest),
        };
        if rest.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            return Err(NotARelease);
        }
        let is_package = rest.strip_prefix('-').and_then(number).is_some();
        let patch = patch.filter(|&patch| patch != 0 || !is_package);
        Ok(Release { major, minor, patch })
    }
}

/// Parses the number at the front, and returns it with the rest.
fn number(text: &str) -> Option<(u16, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// Finds the release in the first line of a text: of `uname -r`, `uname -a` or `/proc/version`.
pub(crate) fn find(text: &[u8]) -> Option<&str> {
    let line = text.split(|&b| b == b'\n').next()?.trim_ascii();
    let line = str::from_utf8(line).ok()?;
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let release = match first {
        // "Linux version 6.12.30 (…", "Linux host 6.12.30 #1 …"
        "Linux" => words.nth(1)?,
        _ => words.next().is_none().then_some(first)?,
    };
    (release.len() <= MAX_LEN && release.parse::<Release>().is_ok()).then_some(release)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_distributions() {
        for (text, shown) in [
            ("6.12.117+deb12-cloud-amd64", "6.12.117"),
            ("6.1.0-56-cloud-amd64", "6.1"),
            ("5.14.0-427.13.1.el9_4.x86_64", "5.14"),
            ("6.8.0", "6.8.0"),
            ("6.16-rc3", "6.16"),
            ("6.18.44-fc-v782", "6.18.44"),
        ] {
            assert_eq!(text.parse::<Release>().unwrap().to_string(), shown, "{text}");
        }
        for bad in ["", "6", "6.", "six.1", "6.x", "6.12x", "70000.1", "6.12.3a", "-6.1"] {
            assert_eq!(bad.parse::<Release>(), Err(NotARelease), "{bad}");
        }
    }

    #[test]
    fn releases_in_saved_texts() {
        for text in [
            "6.12.30\n",
            "Linux version 6.12.30 (builder@host) (gcc 12) #1 SMP\n",
            "Linux host 6.12.30 #1 SMP PREEMPT x86_64 GNU/Linux",
        ] {
            assert_eq!(find(text.as_bytes()), Some("6.12.30"), "{text}");
        }
        for bad in ["", "Linux", "Linux version", "6.12.30 and more", "\n6.12.30", "\u{1b}[2J6.1"] {
            assert_eq!(find(bad.as_bytes()), None, "{bad}");
        }
        let long = format!("6.1-{}", "x".repeat(MAX_LEN));
        assert_eq!(find(long.as_bytes()), None);
    }
}
