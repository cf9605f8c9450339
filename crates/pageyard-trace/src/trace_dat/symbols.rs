//! Names of kernel functions by address (`/proc/kallsyms`). They tell which function wrote a
//! `print` event.

use memchr::memchr;

/// The symbol table of the recording kernel.
#[derive(Default)]
pub(super) struct Symbols {
    text: Vec<u8>,
    /// Addresses and offsets of their lines, sorted. Built on first use: most recordings have no
    /// `print` event.
    sorted: Option<Vec<(u64, usize)>>,
}

impl Symbols {
    /// Takes the content of `/proc/kallsyms`.
    pub(super) fn new(text: Vec<u8>) -> Self {
        Symbols { text, sorted: None }
    }

    /// Returns the name of the function that contains `address`.
    pub(super) fn name(&mut self, address: u64) -> Option<&[u8]> {
        let text = &self.text;
        let sorted = self.sorted.get_or_insert_with(|| index(text));
        let at = sorted.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
        let line = &text[sorted[at].1..];
        let line = &line[..memchr(b'\n', line).unwrap_or(line.len())];
        // `ffffffff814a9f70 t tracing_mark_write`, for a module with a tab and `[module]`
        let name = line.split(|&b| b == b' ').nth(2)?;
        name.split(|&b| b == b'\t').next().filter(|name| !name.is_empty())
    }
}

fn index(text: &[u8]) -> Vec<(u64, usize)> {
    let mut sorted = Vec::new();
    let mut at = 0;
    for line in text.split(|&b| b == b'\n') {
        let digits = line.split(|&b| b == b' ').next().unwrap_or_default();
        let address = str::from_utf8(digits).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
        // Tables that hide their addresses have 0 everywhere.
        if let Some(address) = address.filter(|&address| address != 0) {
            sorted.push((address, at));
        }
        at += line.len() + 1;
    }
    sorted.sort_by_key(|&(address, _)| address);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_symbol_below_an_address_is_found() {
        let text = b"ffff20 t tracing_mark_write\nffff10 T first\nffff30 t in_module\t[m]\n\
                     0 A hidden\nno line\nffff40 t \n";
        let mut symbols = Symbols::new(text.to_vec());
        let mut name = |at| symbols.name(at).map(|n| String::from_utf8_lossy(n).into_owned());
        assert_eq!(name(0xffff0f), None);
        assert_eq!(name(0xffff10).as_deref(), Some("first"));
        assert_eq!(name(0xffff2f).as_deref(), Some("tracing_mark_write"));
        assert_eq!(name(0xffff30).as_deref(), Some("in_module"));
        assert_eq!(name(u64::MAX), None);
        assert_eq!(Symbols::default().name(1), None);
    }
}
