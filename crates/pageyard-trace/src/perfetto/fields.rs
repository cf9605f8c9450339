//! The protobuf wire format: numbered fields, one after the other.

use crate::error::Fault;

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number, of any wire type.
    Number(u64),
    /// A text, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Returns the number; 0 for bytes.
    pub(super) fn number(self) -> u64 {
        match self {
            Value::Number(n) => n,
            Value::Bytes(_) => 0,
        }
    }

    /// Returns the bytes; none for a number.
    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Value::Number(_) => &[],
            Value::Bytes(bytes) => bytes,
        }
    }
}

/// Iterates over the fields of a message: their numbers and values.
#[derive(Clone)]
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Fields(message)
    }

    /// Returns the last value of this field.
    ///
    /// # Errors
    /// Fails if the message is damaged.
    pub(super) fn get(&self, wanted: u64) -> Result<Option<Value<'a>>, Fault> {
        let mut found = None;
        for field in self.clone() {
            let (number, value) = field?;
            if number == wanted {
                found = Some(value);
            }
        }
        Ok(found)
    }

    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = varint(&mut self.0)?;
        let fixed = |rest: &mut &'a [u8], size| {
            let (bytes, behind) = rest.split_at_checked(size)?;
            *rest = behind;
            Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
        };
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut self.0)?),
            1 => Value::Number(fixed(&mut self.0, 8)?),
            5 => Value::Number(fixed(&mut self.0, 4)?),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).ok()?;
                let (bytes, behind) = self.0.split_at_checked(length)?;
                self.0 = behind;
                Value::Bytes(bytes)
            }
            _ => return None,
        };
        (tag >> 3 != 0).then_some((tag >> 3, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or(Fault::Record("a message that is not protobuf")))
    }
}

/// Takes a variable-length number from the front.
pub(super) fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for (n, &byte) in from.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            *from = &from[n + 1..];
            return Some(value);
        }
    }
    None
}

/// Iterates over packed numbers. Ends at damage.
pub(super) fn packed(mut bytes: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || varint(&mut bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_all_wire_types() {
        let message = b"\x08\x96\x01\x12\x02hi\x1d\x01\0\0\0\x21\x02\0\0\0\0\0\0\0";
        let all: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
        let number = |n, value| (n, Value::Number(value));
        assert_eq!(all, [number(1, 150), (2, Value::Bytes(b"hi")), number(3, 1), number(4, 2)]);
        assert_eq!(packed(b"\x01\x96\x01\x80").collect::<Vec<_>>(), [1, 150]);
    }

    #[test]
    fn damaged_messages_are_rejected() {
        let more = [0xff; 11];
        for message in [&b"\x08"[..], b"\x12\x05hi", b"\x0b", b"\x02\x00", b"\x1d\x01", &more] {
            assert!(Fields::new(message).any(|field| field.is_err()), "{message:?}");
        }
    }
}
