//! A heap that has been in use before a workload begins.
//!
//! On a fresh heap free lists lead through memory in order, so that the next descriptor is in the same
//! line or the next one. On a machine that has run, neighbours on a list are anywhere. Ageing
//! allocates a share of each node's memory page by page, frees a random half of it in random order,
//! and keeps the other half allocated during the run, as page cache and slab are. The half is
//! assumed. So is the order: the buddy of a free page is in use as often as not.
//!
//! Then the machine rests until lists that tune themselves have returned what they gathered. Else the
//! ticks during the run would drain the ageing CPUs' lists, with thousands of pages in each hold of
//! the zone lock.

use std::sync::Mutex;

use pageyard::{CpuId, NodeId, Order};

use super::actor::{Block, Stage};
use super::recipe::Site;
use super::seats::lock;
use crate::hygiene::build::{flags, gfp};

/// One page in `UNMOVABLE` is unmovable (measured: of 358,771 requests of the recording
/// `6.12-build`, 342,550 are for anonymous and file pages).
const UNMOVABLE: u64 = 22;
/// How long the machine rests, in nanoseconds. Lists lose an eighth of what exceeds their least size
/// in each second (§5.14), so that three parts in 10,000 are left.
const REST: u64 = 60_000_000_000;
/// The largest share of memory that can be aged, in percent: workloads need some, too.
pub const MOST_AGED: u8 = 50;

/// Ages the heap of one run.
#[derive(Debug)]
pub(super) struct Ageing {
    /// A CPU of each node that has one.
    nodes: Vec<(NodeId, CpuId)>,
    /// Pages to allocate on each node.
    pages: u64,
    kept: Mutex<Vec<Block>>,
}

impl Ageing {
    /// Ages `percent` of each node's memory; nodes are taken to be of equal size.
    pub(super) fn new(site: &Site, percent: u8) -> Ageing {
        let cpu = |node| Some((node, *site.cpus_of(node).first()?));
        Ageing {
            nodes: (0..site.nodes).map(NodeId).filter_map(cpu).collect(),
            pages: site.pages / u64::from(site.nodes) * u64::from(percent.min(MOST_AGED)) / 100,
            kept: Mutex::default(),
        }
    }

    /// Uses the memory.
    pub(super) fn start<'env>(&'env self, stage: &dyn Stage<'env>) {
        for &(node, cpu) in &self.nodes {
            stage.spawn(
                cpu,
                Box::new(move |actor| {
                    let mut pages = Vec::new();
                    for n in 0..self.pages {
                        let unmovable = n % UNMOVABLE == 0;
                        let bits = if unmovable { flags::TABLE } else { flags::READ };
                        pages.extend(actor.alloc_on(node, Order::ZERO, gfp(bits)));
                    }
                    for i in (1..pages.len()).rev() {
                        pages.swap(i, actor.random(i as u64 + 1) as usize);
                    }
                    let kept = pages.split_off(pages.len() / 2);
                    pages.into_iter().for_each(|page| actor.free(page));
                    lock(&self.kept).extend(kept);
                    actor.sleep_until(actor.now() + REST);
                }),
            );
        }
    }

    /// Frees what the run kept.
    pub(super) fn end<'env>(&'env self, stage: &dyn Stage<'env>) {
        let Some(&(_, cpu)) = self.nodes.first() else { return };
        stage.spawn(
            cpu,
            Box::new(move |actor| {
                let kept = std::mem::take(&mut *lock(&self.kept));
                actor.free_list(&kept);
            }),
        );
    }
}
