//! Positioned reading of a file, within a budget.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::binary::Layout;
use crate::error::{Fault, Position, TraceError};
use crate::input::Source;
use crate::shared::Shared;

/// The bytes of a recording.
pub(crate) struct Store {
    bytes: Bytes,
    /// Size in bytes.
    length: u64,
    /// Bytes that parts of the file may still claim. Parts of a sound file do not overlap, so all
    /// together they are not larger than the file. A damaged file whose parts do, again and again,
    /// would take any amount of time and memory.
    unclaimed: u64,
    /// Bytes of sub-buffers read so far.
    pub(crate) consumed: u64,
}

enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

impl Store {
    /// Opens an input. An uncompressed regular file is given as `file` and read where needed; any
    /// other input is read into memory.
    ///
    /// # Errors
    /// Fails if the input is damaged, in strict mode.
    pub(crate) fn open(
        source: &mut Source,
        file: Option<(File, u64)>,
        shared: &mut Shared,
    ) -> Result<Self, TraceError> {
        if let Some((file, length)) = file {
            return Ok(Store::file(file, length));
        }
        let (bytes, damage) = source.take_all();
        if let Some(fault) = damage {
            shared.fault(Position::Byte(bytes.len() as u64), fault)?;
        }
        Ok(Store::memory(bytes))
    }

    pub(crate) fn file(file: File, length: u64) -> Self {
        Store { bytes: Bytes::File(file), length, unclaimed: length, consumed: 0 }
    }

    fn memory(bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Store { bytes: Bytes::Memory(bytes), length, unclaimed: length, consumed: 0 }
    }

    /// Returns the size of the file in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Takes a part of the file out of the budget. `what` names the part in errors.
    ///
    /// # Errors
    /// Fails with [`Fault::Truncated`] if the part is not in the file, or [`Fault::Record`] if all
    /// parts so far are larger than the file.
    pub(crate) fn claim(&mut self, at: u64, length: u64, what: &'static str) -> Result<(), Fault> {
        if at.checked_add(length).is_none_or(|end| end > self.length) {
            return Err(Fault::Truncated(what));
        }
        let left = self.unclaimed.checked_sub(length);
        self.unclaimed = left.ok_or(Fault::Record("parts of the file overlap"))?;
        Ok(())
    }

    /// Reads `length` bytes at `at` into `into`, replacing its content.
    ///
    /// # Errors
    /// Fails with [`Fault::Truncated`] if they are not in the file, or [`Fault::Io`].
    pub(crate) fn read(
        &self,
        at: u64,
        length: u64,
        into: &mut Vec<u8>,
        what: &'static str,
    ) -> Result<(), Fault> {
        let end = at.checked_add(length).filter(|&end| end <= self.length);
        let end = end.ok_or(Fault::Truncated(what))?;
        into.clear();
        match &self.bytes {
            Bytes::Memory(bytes) => into.extend_from_slice(&bytes[at as usize..end as usize]),
            Bytes::File(file) => {
                into.resize(length as usize, 0);
                file.read_exact_at(into, at).map_err(|error| match error.kind() {
                    // The file shrank meanwhile.
                    io::ErrorKind::UnexpectedEof => Fault::Truncated(what),
                    _ => Fault::Io(error),
                })?;
            }
        }
        Ok(())
    }
}

/// Reads one item after the other, from the file (version 6) or from a section in memory
/// (version 7).
pub(super) struct Items<'a> {
    from: From<'a>,
    /// Position of the next item.
    pub(super) at: u64,
    pub(super) layout: Layout,
    what: &'static str,
}

enum From<'a> {
    Store(&'a Store),
    Section(&'a [u8]),
}

/// Maximum length of a string in bytes; names of event systems and clocks are short.
const MAX_STRING: u64 = 4096;

impl<'a> Items<'a> {
    /// Reads from the file, from `at`. `what` names the part in errors.
    pub(super) fn of_file(store: &'a Store, at: u64, layout: Layout, what: &'static str) -> Self {
        Items { from: From::Store(store), at, layout, what }
    }

    /// Reads from a section.
    pub(super) fn of_section(section: &'a [u8], layout: Layout, what: &'static str) -> Self {
        Items { from: From::Section(section), at: 0, layout, what }
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// This function and the others fail with [`Fault::Truncated`] if the item is not complete.
    pub(super) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::new();
        match self.from {
            From::Store(store) => store.read(self.at, length, &mut bytes, self.what)?,
            From::Section(section) => {
                let end = self.at.checked_add(length).filter(|&end| end <= section.len() as u64);
                let end = end.ok_or(Fault::Truncated(self.what))?;
                bytes.extend_from_slice(&section[self.at as usize..end as usize]);
            }
        }
        self.at += length;
        Ok(bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Fault> {
        Ok(self.number(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(self.number(4)? as u32)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        self.number(8)
    }

    fn number(&mut self, size: u64) -> Result<u64, Fault> {
        Ok(self.layout.number(&self.bytes(size)?))
    }

    /// Reads a string and the zero byte that ends it.
    pub(super) fn string(&mut self) -> Result<Vec<u8>, Fault> {
        let length = match self.from {
            From::Store(store) => store.length(),
            From::Section(section) => section.len() as u64,
        };
        let at = self.at;
        let mut string = self.bytes(length.saturating_sub(at).min(MAX_STRING))?;
        let end = string.iter().position(|&b| b == 0).ok_or(Fault::Truncated(self.what))?;
        string.truncate(end);
        self.at = at + end as u64 + 1;
        Ok(string)
    }

    /// Returns whether items follow.
    pub(super) fn is_at_end(&self) -> bool {
        match self.from {
            From::Store(store) => self.at >= store.length(),
            From::Section(section) => self.at >= section.len() as u64,
        }
    }
}
