//! Parser of `/proc/pagetypeinfo`: free blocks by order and type, pageblocks by type.

use super::lines::Lines;
use crate::error::TraceError;

/// Contents of `/proc/pagetypeinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageTypeInfo {
    /// Order of a pageblock.
    pub block_order: u8,
    /// Pages in a pageblock.
    pub pages_per_block: u64,
    /// Free blocks, one row per zone and type.
    pub free: Vec<FreeRow>,
    /// Pageblocks by type, one row per zone.
    pub blocks: Vec<BlockRow>,
    /// Pageblocks that contain pages of another type, one row per zone; only with `page_owner`.
    pub mixed: Vec<BlockRow>,
}

/// Free blocks of one zone and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreeRow {
    /// The zone's node.
    pub node: u16,
    /// The zone's name.
    pub zone: String,
    /// The type's name, such as `Movable`.
    pub migratetype: String,
    /// By order.
    pub counts: Vec<FreeCount>,
}

/// Number of free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeCount {
    /// The number.
    pub blocks: u64,
    /// Whether the kernel stopped counting here (`>`), so there may be more.
    pub at_least: bool,
}

/// Pageblocks of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// The zone's node.
    pub node: u16,
    /// The zone's name.
    pub zone: String,
    /// Type names and numbers of pageblocks.
    pub counts: Vec<(String, u64)>,
}

enum Section {
    Head,
    Free,
    Blocks,
    Mixed,
}

impl PageTypeInfo {
    /// Parses the file. With several nodes, it repeats its parts for each node.
    ///
    /// # Errors
    /// Fails on the first line of an unexpected form.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, TraceError> {
        let mut info = PageTypeInfo::default();
        let mut section = Section::Head;
        let mut types: Vec<&str> = Vec::new();
        let mut orders = 0;
        let mut lines = Lines::new(name, bytes);
        while let Some(line) = lines.next()? {
            if let Some(order) = line.strip_prefix("Page block order:") {
                let order = lines.number("the order of a pageblock", order.trim())?;
                info.block_order = u8::try_from(order)
                    .map_err(|_| lines.expected("the order of a pageblock", line))?;
            } else if let Some(pages) = line.strip_prefix("Pages per block:") {
                info.pages_per_block = lines.number("the pages in a pageblock", pages.trim())?;
            } else if let Some(heading) =
                line.strip_prefix("Free pages count per migrate type at order")
            {
                orders = heading.split_ascii_whitespace().count();
                section = Section::Free;
            } else if let Some(names) = line.strip_prefix("Number of blocks type") {
                types = names.split_ascii_whitespace().collect();
                section = Section::Blocks;
            } else if let Some(names) = line.strip_prefix("Number of mixed blocks") {
                types = names.split_ascii_whitespace().collect();
                section = Section::Mixed;
            } else {
                match section {
                    Section::Head => return Err(lines.expected("`Page block order:`", line)),
                    Section::Free => info.free.push(free_row(&lines, line, orders)?),
                    Section::Blocks => info.blocks.push(block_row(&lines, line, &types)?),
                    Section::Mixed => info.mixed.push(block_row(&lines, line, &types)?),
                }
            }
        }
        Ok(info)
    }
}

fn free_row(lines: &Lines<'_>, line: &str, orders: usize) -> Result<FreeRow, TraceError> {
    const FORM: &str = "`Node N, zone NAME, type NAME` and a number for every order";
    let (node, zone, rest) = lines.node_zone(line)?;
    let rest = rest.strip_prefix(", type").ok_or_else(|| lines.expected(FORM, line))?;
    let mut words = rest.split_ascii_whitespace();
    let migratetype = words.next().ok_or_else(|| lines.expected(FORM, line))?.to_owned();
    let mut counts = Vec::with_capacity(orders);
    for word in words {
        let digits = word.strip_prefix('>').unwrap_or(word);
        let blocks = lines.number("the number of free blocks", digits)?;
        counts.push(FreeCount { blocks, at_least: digits.len() < word.len() });
    }
    if counts.len() != orders {
        return Err(lines.expected(FORM, line));
    }
    Ok(FreeRow { node, zone: zone.to_owned(), migratetype, counts })
}

fn block_row(lines: &Lines<'_>, line: &str, types: &[&str]) -> Result<BlockRow, TraceError> {
    let (node, zone, rest) = lines.node_zone(line)?;
    let mut counts = Vec::with_capacity(types.len());
    let mut words = rest.split_ascii_whitespace();
    for (name, word) in types.iter().zip(words.by_ref()) {
        counts.push(((*name).to_owned(), lines.number("the number of pageblocks", word)?));
    }
    if counts.len() != types.len() || words.next().is_some() {
        return Err(lines.expected("the number of pageblocks for every type", line));
    }
    Ok(BlockRow { node, zone: zone.to_owned(), counts })
}
