//! Owners of blocks, as text in the kernel's format (spec §9.7) and as sums.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use pageyard::{Gfp, MigrateType, NodeId, Order, PAGEBLOCK_ORDER, PageFlags, ZoneKind};
use pageyard_report::{Owner, Task};
use pageyard_trace::gfp;

/// A block's location and page flags, which its owner record does not include.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The type of the block's pageblock.
    pub block_type: MigrateType,
    /// The flags of the block's first page.
    pub flags: PageFlags,
    /// The block's node.
    pub node: NodeId,
    /// The block's zone.
    pub zone: ZoneKind,
}

/// Returns a block's two lines, without the call stack that the kernel prints below them.
pub fn text(owner: &Owner, place: &Place) -> String {
    let Owner { pfn, order, task, since, .. } = owner;
    let mask = owner.gfp.bits();
    let page_type = owner.gfp.migrate_type().unwrap_or(MigrateType::Unmovable);
    format!(
        "Page allocated via order {order}, mask {mask:#x}({}), pid {}, tgid {} ({}), ts {since} ns\n\
         PFN {:#x} type {page_type} Block {} type {} Flags {:#x}({})\n",
        gfp::to_names(mask),
        task.pid,
        task.tgid,
        name(task),
        pfn.0,
        pfn.0 >> PAGEBLOCK_ORDER,
        place.block_type,
        place.flags.bits(),
        flag_names(place),
    )
}

/// Returns a task's name up to its first zero byte.
pub(crate) fn name(task: &Task) -> String {
    let end = task.comm.iter().position(|&b| b == 0).unwrap_or(task.comm.len());
    String::from_utf8_lossy(&task.comm[..end]).into_owned()
}

/// Returns the names of the flags, then node and zone, joined as the kernel joins them.
fn flag_names(place: &Place) -> String {
    let mut out = String::new();
    for (name, _) in place.flags.iter_names() {
        let _ = write!(out, "{}|", name.to_lowercase());
    }
    let _ = write!(out, "node={}|zone={}", place.node.0, place.zone as u8);
    out
}

/// The key by which blocks are grouped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// The task, by name and ID.
    Task,
    /// The task's name alone: all compilers form one group.
    Name,
    /// The process, by name and ID.
    Process,
    /// The call stack.
    Stack,
    /// The order and request flags.
    Request,
}

impl By {
    /// Returns the name that a user writes.
    pub const fn name(self) -> &'static str {
        match self {
            By::Task => "task",
            By::Name => "name",
            By::Process => "process",
            By::Stack => "stack",
            By::Request => "request",
        }
    }
}

/// Blocks with the same key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// The key.
    pub what: String,
    /// Number of blocks.
    pub blocks: u64,
    /// Number of base pages.
    pub pages: u64,
}

impl Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} times, {} pages: {}", self.blocks, self.pages, self.what)
    }
}

/// Groups blocks, largest number of pages first; groups of equal size by name.
pub fn groups(owners: impl IntoIterator<Item = Owner>, by: By) -> Vec<Group> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for owner in owners {
        let sum = sums.entry(key(&owner, by)).or_default();
        sum.0 += 1;
        sum.1 += u64::from(owner.order.pages());
    }
    let mut all: Vec<Group> =
        sums.into_iter().map(|(what, (blocks, pages))| Group { what, blocks, pages }).collect();
    all.sort_by_key(|g| std::cmp::Reverse(g.pages));
    all
}

fn key(owner: &Owner, by: By) -> String {
    match by {
        By::Task => format!("{} (pid {})", name(&owner.task), owner.task.pid),
        By::Name => name(&owner.task),
        By::Process => format!("{} (tgid {})", name(&owner.task), owner.task.tgid),
        By::Stack => format!("stack {:#x}", owner.stack),
        By::Request => request(owner.order, owner.gfp),
    }
}

fn request(order: Order, gfp: Gfp) -> String {
    format!("order {order}, mask {:#x}({})", gfp.bits(), gfp::to_names(gfp.bits()))
}
