//! Tables in an event's `print fmt`: the names that the recording kernel gives to numbers.
//!
//! Values of enumerations and of some request flags differ between kernels and configurations.
//! Their names do not, so the tables translate what a binary record has to what text has.
//!
//! ```text
//! __print_flags(REC->gfp_flags, "|", {( unsigned long)((( gfp_t)0x400u) | …), "GFP_KERNEL"}, …)
//! __print_symbolic(REC->idx, {0, "DMA"}, {1, "DMA32"}, {2, "Normal"}, {3, "Movable"})
//! ```

/// Names by number, in the order of the description.
pub(super) type Names<'a> = Vec<(u64, &'a str)>;

/// Maximum depth of parentheses and operators in an expression; kernels have about 10.
const MAX_DEPTH: usize = 64;

/// Maximum length of the expression whose names a table has.
const MAX_ARGUMENT: usize = 100;

/// Returns the table for this field, if `print_fmt` has one. Entries whose number is not a constant
/// expression, or whose name is not a string, are left out.
pub(super) fn names_of<'a>(print_fmt: &'a str, field: &str) -> Option<Names<'a>> {
    for call in ["__print_flags(", "__print_symbolic("] {
        for (at, _) in print_fmt.match_indices(call) {
            let rest = &print_fmt[at + call.len()..];
            // Bounded, so that a text full of calls takes linear time.
            let near = &rest.as_bytes()[..rest.len().min(MAX_ARGUMENT)];
            let Some(comma) = near.iter().position(|&b| b == b',') else { continue };
            let (argument, rest) = (&rest[..comma], &rest[comma..]);
            if argument.split("REC->").nth(1).map(|name| name.trim_end_matches([')', ' ']))
                == Some(field)
            {
                return Some(table(rest));
            }
        }
    }
    None
}

/// Parses `{number, "name"}, …)`, after a delimiter, if there is one.
fn table(text: &str) -> Names<'_> {
    let mut names = Vec::new();
    let mut rest = text.split_once('{').map_or("", |(_, rest)| rest);
    loop {
        let Some((entry, after)) = rest.split_once('}') else { return names };
        // Only the entry: a cast without its parenthesis would be looked for to the end of the text.
        let mut number = Expression { text: entry.as_bytes(), at: 0 };
        let value = number.or(0);
        number.blanks();
        // After a value that is no constant, the name is what follows the last comma.
        let name = entry.rsplit_once(',').and_then(|(before, name)| {
            let whole = number.at == before.len();
            name.trim().strip_prefix('"')?.strip_suffix('"').filter(|_| whole)
        });
        if let (Some(value), Some(name)) = (value, name) {
            names.push((value, name));
        }
        // Another entry follows a comma; the table ends with a parenthesis.
        match after.trim_start().strip_prefix(',').map(|s| s.trim_start().strip_prefix('{')) {
            Some(Some(next)) => rest = next,
            _ => return names,
        }
    }
}

/// Evaluates a constant C expression of numbers, casts and the operators `| & << ~`.
struct Expression<'a> {
    text: &'a [u8],
    at: usize,
}

impl Expression<'_> {
    fn blanks(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Consumes `token`, after blanks, if it is next.
    fn token(&mut self, token: &[u8]) -> bool {
        self.blanks();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    fn or(&mut self, depth: usize) -> Option<u64> {
        let mut value = self.and(depth)?;
        while self.token(b"|") {
            value |= self.and(depth)?;
        }
        Some(value)
    }

    fn and(&mut self, depth: usize) -> Option<u64> {
        let mut value = self.shift(depth)?;
        while self.token(b"&") {
            value &= self.shift(depth)?;
        }
        Some(value)
    }

    fn shift(&mut self, depth: usize) -> Option<u64> {
        let mut value = self.unary(depth)?;
        while self.token(b"<<") {
            value = value.checked_shl(u32::try_from(self.unary(depth)?).ok()?)?;
        }
        Some(value)
    }

    fn unary(&mut self, depth: usize) -> Option<u64> {
        if depth > MAX_DEPTH {
            return None;
        }
        if self.token(b"~") {
            return self.unary(depth + 1).map(|value| !value);
        }
        if !self.token(b"(") {
            return self.number();
        }
        self.blanks();
        if self.peek().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_') {
            // A cast. Types are wide enough for all the values.
            let end = self.text[self.at..].iter().position(|&b| b == b')')?;
            self.at += end + 1;
            return self.unary(depth + 1);
        }
        let value = self.or(depth + 1)?;
        self.token(b")").then_some(value)
    }

    fn number(&mut self) -> Option<u64> {
        let rest = &self.text[self.at..];
        let length = rest.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
        self.at += length;
        let word = str::from_utf8(&rest[..length]).ok()?.trim_end_matches(['u', 'U', 'l', 'L']);
        crate::number::parse_number(word.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_found_by_field() {
        let fmt = "\"node=%d zone=%-8s ret=%s\", REC->nid, __print_symbolic(REC->idx, {0, \"DMA\"}, \
                   {1, \"DMA32\"}), __print_symbolic((REC->ret), {1, \"skipped\"}, { 4, \
                   \"continue\" }, {COMPACT_X, \"x\"}, {8, \"success\"})";
        assert_eq!(names_of(fmt, "idx"), Some(vec![(0, "DMA"), (1, "DMA32")]));
        let ret = vec![(1, "skipped"), (4, "continue"), (8, "success")];
        assert_eq!(names_of(fmt, "ret"), Some(ret));
        assert_eq!(names_of(fmt, "nid"), None);
    }

    #[test]
    fn flags_are_evaluated() {
        // As 6.1 and 6.18 print them.
        let fmt = "\"gfp_flags=%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
                   {( unsigned long)(((( gfp_t)(0x400u|0x800u)) | (( gfp_t)0) | (( gfp_t)0x80u)) & \
                   ~(( gfp_t)(0x400u))), \"A\"}, {( unsigned long)(( gfp_t)(((((1UL))) << \
                   (10))|((((1UL))) << (11)))), \"B\"}, { 0, ((void *)0) } ) : \"none\"";
        assert_eq!(names_of(fmt, "gfp_flags"), Some(vec![(0x880, "A"), (0xc00, "B")]));
    }

    #[test]
    fn hostile_tables_end() {
        let deep = format!("__print_flags(REC->a, \"|\", {{{}1, \"x\"}})", "(".repeat(100_000));
        assert_eq!(names_of(&deep, "a"), Some(vec![]));
        for cut in ["__print_flags(REC->a", "__print_flags(REC->a, \"|\", {", "{", "__print_flags("]
        {
            assert!(names_of(cut, "a").unwrap_or_default().is_empty(), "{cut}");
        }
        let shift = "__print_flags(REC->a, \"|\", {1 << 99, \"x\"}, {2, \"y\"})";
        assert_eq!(names_of(shift, "a"), Some(vec![(2, "y")]));
        let many = "__print_symbolic(REC->a, {1, \"x\"}, ".repeat(10_000);
        assert_eq!(names_of(&many, "b"), None);
        assert_eq!(names_of(&"__print_flags(".repeat(100_000), "b"), None);
        // A cast does not reach into the entries after its own: that would take quadratic time.
        let cast = "__print_flags(REC->a, \"|\", {(t, \"x\"}, {)1, \"y\"}, {2, \"z\"})";
        let open = Expression { text: b"(t, \"x\"", at: 0 }.or(0);
        assert_eq!((names_of(cast, "a"), open), (Some(vec![(2, "z")]), None));
        let open = format!("__print_flags(REC->a, \"|\", {})", "{(t}, ".repeat(300_000));
        assert_eq!(names_of(&open, "a"), Some(vec![]));
    }
}
