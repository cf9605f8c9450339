//! Parser of `/proc/buddyinfo`: free blocks by order.

use super::lines::Lines;
use crate::error::TraceError;

/// Free blocks of every populated zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuddyInfo {
    /// One row per populated zone.
    pub rows: Vec<BuddyRow>,
}

/// Free blocks of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuddyRow {
    /// Its node.
    pub node: u16,
    /// Its name.
    pub zone: String,
    /// Number of free blocks of each order.
    pub free: Vec<u64>,
}

impl BuddyInfo {
    /// Parses the file.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form, or with another number of orders than the
    /// first line.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut rows: Vec<BuddyRow> = Vec::new();
        let mut lines = Lines::new(name, bytes);
        while let Some(line) = lines.next()? {
            let (node, zone, rest) = lines.node_zone(line)?;
            let mut free = Vec::new();
            for word in rest.split_ascii_whitespace() {
                free.push(lines.number("the number of free blocks", word)?);
            }
            if free.is_empty() || rows.first().is_some_and(|row| row.free.len() != free.len()) {
                return Err(lines.expected("the number of free blocks for every order", line));
            }
            rows.push(BuddyRow { node, zone: zone.to_owned(), free });
        }
        Ok(BuddyInfo { rows })
    }

    /// Returns the free blocks of one zone by order.
    pub fn zone(&self, node: u16, zone: &str) -> Option<&[u64]> {
        let row = self.rows.iter().find(|row| row.node == node && row.zone == zone)?;
        Some(&row.free)
    }
}
