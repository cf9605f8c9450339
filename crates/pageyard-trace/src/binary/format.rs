//! Parser of the kernel's event descriptions: `events/*/*/format` in tracefs, which recorders copy
//! into their files, and `events/header_page`, which has fields of the same form.
//!
//! ```text
//! name: mm_page_free
//! ID: 655
//! format:
//!     field:unsigned short common_type; offset:0; size:2; signed:0;
//!     field:unsigned long pfn; offset:8; size:8; signed:0;
//!
//! print fmt: "page=%p pfn=0x%lx order=%d", …
//! ```

use crate::error::{Fault, excerpt};
use crate::number::parse_decimal;

/// Position and form of a field in a raw record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Byte offset from the start of the record.
    pub(crate) offset: usize,
    /// Size in bytes. An array that extends to the end of the record has size 0.
    pub(crate) size: usize,
    /// Whether the number is signed.
    pub(crate) signed: bool,
    /// Whether the field holds only the place of its data (`__data_loc`): offset in the low 16
    /// bits, length in the high 16.
    pub(crate) dynamic: bool,
}

/// An event's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventFormat<'a> {
    /// Name of the event.
    pub(crate) name: &'a str,
    /// Number of the event: `common_type` of its records.
    pub(crate) id: u16,
    /// The lines before `print fmt:`, which describe the fields, the common ones included.
    head: &'a str,
    /// The text after `print fmt:`: a C format string and its arguments.
    pub(crate) print_fmt: &'a str,
}

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields<'a>(Vec<(&'a str, Field)>);

impl<'a> Fields<'a> {
    /// Parses the lines that describe fields. Ignores other lines.
    ///
    /// # Errors
    /// Fails with [`Fault::Format`] on a field without name, offset or size.
    pub(crate) fn parse(text: &'a str) -> Result<Self, Fault> {
        let mut fields = Vec::new();
        for line in text.lines() {
            // header_page has a blank after the colon.
            if let Some(field) = line.trim_start().strip_prefix("field:") {
                fields.push(parse_field(field).ok_or_else(|| bad(line))?);
            }
        }
        Ok(Fields(fields))
    }

    /// Returns the field of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Field> {
        self.0.iter().find(|(known, _)| *known == name).map(|&(_, field)| field)
    }
}

impl<'a> EventFormat<'a> {
    /// Parses one description, except its fields.
    ///
    /// # Errors
    /// Fails with [`Fault::Format`] if it is not text, or has no name or number.
    pub(crate) fn parse(description: &'a [u8]) -> Result<Self, Fault> {
        let text = str::from_utf8(description)
            .map_err(|_| Fault::Format { part: excerpt(description) })?;
        // The last line may be long and hold anything.
        let (head, print_fmt) = text.split_once("print fmt:").unwrap_or((text, ""));
        let value = |key: &str| head.lines().find_map(|line| line.trim().strip_prefix(key));
        let name = value("name:").map(str::trim).filter(|name| !name.is_empty());
        let id = value("ID:").and_then(|id| parse_decimal(id.trim().as_bytes()));
        let id = id.and_then(|id| u16::try_from(id).ok());
        let (Some(name), Some(id)) = (name, id) else { return Err(bad(text)) };
        Ok(EventFormat { name, id, head, print_fmt: print_fmt.trim() })
    }

    /// Parses the fields.
    ///
    /// # Errors
    /// Fails with [`Fault::Format`] on a field without name, offset or size.
    pub(crate) fn fields(&self) -> Result<Fields<'a>, Fault> {
        Fields::parse(self.head)
    }
}

/// Parses `TYPE NAME; offset:N; size:N; signed:N;`.
fn parse_field(text: &str) -> Option<(&str, Field)> {
    let mut parts = text.split(';').map(str::trim);
    let declaration = parts.next()?;
    let (mut offset, mut size, mut signed) = (None, None, false);
    for part in parts {
        let Some((key, value)) = part.split_once(':') else { continue };
        let value = parse_decimal(value.trim().as_bytes());
        match key {
            "offset" => offset = value,
            "size" => size = value,
            "signed" => signed = value? != 0,
            _ => {}
        }
    }
    // `char buf[]`, `u8 src[16]`, `const char * fmt`, `__data_loc char[] path`
    let name = declaration.split('[').next()?;
    let name = if declaration.ends_with(']') { name } else { declaration };
    let name = name.rsplit([' ', '\t', '*', ']']).next()?;
    let dynamic = declaration.starts_with("__data_loc");
    let narrow = |n: Option<u64>| n.and_then(|n| u16::try_from(n).ok()).map(usize::from);
    let field = Field { offset: narrow(offset)?, size: narrow(size)?, signed, dynamic };
    (!name.is_empty()).then_some((name, field))
}

fn bad(text: &str) -> Fault {
    Fault::Format { part: excerpt(text.trim().as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_parsed() {
        let text = b"name: x\nID: 19\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:const char * fmt;\toffset:16;\tsize:8;\tsigned:0;\n\
            \tfield:__data_loc char[] path;\toffset:24;\tsize:4;\tsigned:1;\n\
            \tfield:__u8 src[16];\toffset:28;\tsize:16;\tsigned:0;\n\
            \tfield:char buf[];\toffset:44;\tsize:0;\tsigned:1;\n\n\
            print fmt: \"field:%d\", REC->x\n";
        let format = EventFormat::parse(text).unwrap();
        assert_eq!((format.name, format.id), ("x", 19));
        assert_eq!(format.print_fmt, "\"field:%d\", REC->x");
        let fields = format.fields().unwrap();
        let field = |name: &str| {
            let f = fields.get(name).unwrap_or_else(|| panic!("{name}"));
            (f.offset, f.size, f.signed, f.dynamic)
        };
        assert_eq!(field("common_type"), (0, 2, false, false));
        assert_eq!(field("fmt"), (16, 8, false, false));
        assert_eq!(field("path"), (24, 4, true, true));
        assert_eq!(field("src"), (28, 16, false, false));
        assert_eq!(field("buf"), (44, 0, true, false));
        assert_eq!(fields.get("char"), None);
    }

    #[test]
    fn the_page_header_has_fields_of_the_same_form() {
        let text = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n";
        let fields = Fields::parse(text).unwrap();
        assert_eq!(fields.get("timestamp").map(|f| f.size), Some(8));
        assert_eq!(fields.get("commit").map(|f| f.offset), Some(8));
    }

    #[test]
    fn an_incomplete_description_is_rejected() {
        let field = |line: &str| format!("name: x\nID: 1\nformat:\n\t{line}\n");
        fn parse(text: &str) -> Result<Fields<'_>, Fault> {
            EventFormat::parse(text.as_bytes())?.fields()
        }
        assert!(parse(&field("field:int a;\toffset:8;\tsize:4;")).is_ok());
        for bad in [
            "name: x\nformat:\n".to_owned(),
            "ID: 1\nformat:\n".to_owned(),
            "name: x\nID: 70000\n".to_owned(),
            field("field:int a;\toffset:8;"),
            field("field:int a;\tsize:8;"),
            field("field:;\toffset:8;\tsize:4;"),
            field("field:int a;\toffset:-1;\tsize:4;"),
            field("field:int a;\toffset:70000;\tsize:4;"),
        ] {
            let error = parse(&bad);
            assert!(matches!(error, Err(Fault::Format { .. })), "{bad}: {error:?}");
        }
        assert!(EventFormat::parse(b"name: \xff\nID: 1\n").is_err());
    }
}
