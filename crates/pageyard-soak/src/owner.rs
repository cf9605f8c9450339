//! The owner of a page.

use std::fmt;

use serde::{Serialize, Serializer};

/// The names of the rows of the operation table, by number.
pub(crate) type Names = &'static [&'static str];

/// The owner of a page: an item of one thread, or a state of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Owner {
    number: u64,
    /// The row that allocated the item.
    by: &'static str,
}

/// Bits of an item's serial number, and of the row that allocated it.
const SERIAL: u32 = 40;
const ROW: u32 = 8;

impl Owner {
    /// The yard owns the page: it is free.
    pub const FREE: Owner = Owner { number: 0, by: "" };
    /// Offline with its section.
    pub(crate) const OFFLINE: Owner = Owner { number: u64::MAX, by: "" };
    /// Out of use because its memory is faulty.
    pub(crate) const POISONED: Owner = Owner { number: u64::MAX - 1, by: "" };

    /// Creates the owner of an item that a thread allocated by a row of the table. Threads are
    /// numbered from 1.
    pub(crate) fn new(thread: u64, row: usize, serial: u64, names: Names) -> Owner {
        let serial = serial & ((1 << SERIAL) - 1);
        let number = thread << (SERIAL + ROW) | (row as u64) << SERIAL | serial;
        Owner { number, by: names[row] }
    }

    /// Returns the owner with this [number](Owner::number).
    pub(crate) fn from_number(number: u64, names: Names) -> Owner {
        let states = [Owner::FREE, Owner::OFFLINE, Owner::POISONED];
        states.into_iter().find(|state| state.number == number).unwrap_or_else(|| {
            let row = (number >> SERIAL) as usize & ((1 << ROW) - 1);
            Owner { number, by: names[row] }
        })
    }

    /// Returns the number that distinguishes it, and its pattern, from other owners.
    pub(crate) fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Owner::FREE => f.write_str("the yard"),
            Owner::OFFLINE => f.write_str("an offline section"),
            Owner::POISONED => f.write_str("the poisoned frames"),
            Owner { number, by } => {
                let (thread, serial) = (number >> (SERIAL + ROW), number & ((1 << SERIAL) - 1));
                write!(f, "thread {thread} (item {serial}, by {by})")
            }
        }
    }
}

impl Serialize for Owner {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
