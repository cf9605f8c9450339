//! Pages that left their list without an event: bulk requests (spec §6.1).

use pageyard::{Config, NodeId, Order, Pfn};

use super::driver::{Driver, Seat};
use super::serving::SILENT_GFP;

impl<C: Config, S: Seat> Driver<'_, '_, C, S> {
    /// Performs a run of silent pages as a bulk request (spec §6.1).
    #[cold]
    pub(super) fn flush(&mut self) {
        let Some((cpu, zone, migratetype)) = self.silent.take() else { return };
        self.go(cpu.into());
        if let Some(blame) = &self.observer.blame {
            blame.asks_in_bulk(cpu.into(), self.observer.now.get(), migratetype);
        }
        let frames = std::mem::take(&mut self.silents);
        let got = self.bulk(zone, migratetype, frames.len(), |driver, i, ours| {
            let old = driver.map.put(frames[i], ours, 0);
            driver.replaced(old);
        });
        for &frame in &frames[got..] {
            self.figures.failed += 1;
            if let Some(blame) = &self.observer.blame {
                blame.failed(zone);
            }
            let old = self.map.put_failed(frame);
            self.replaced(old);
        }
        self.silents = frames;
        self.silents.clear();
    }

    /// Removes pages that the trace never shows from a list.
    #[cold]
    pub(super) fn vanish(&mut self, slot: usize, pages: usize) {
        self.flush();
        let cpus = self.machine.cpus.len();
        self.go((slot % cpus) as u32);
        if let Some(blame) = &self.observer.blame {
            blame.asks_in_bulk((slot % cpus) as u32, self.observer.now.get(), 0);
        }
        self.bulk(slot / cpus, 0, pages, |_, _, _| {});
    }

    /// Allocates `n` single pages with bulk requests. Returns the number of pages allocated.
    fn bulk(
        &mut self,
        zone: usize,
        migratetype: u8,
        n: usize,
        mut each: impl FnMut(&mut Self, usize, u32),
    ) -> usize {
        let yard = self.yard;
        let flags = self.flags(zone, migratetype, SILENT_GFP);
        let mut got: Vec<u32> = Vec::with_capacity(n);
        let base = self.machine.base();
        while got.len() < n {
            let before = got.len();
            let node = NodeId(self.machine.zones[zone].node);
            let _ =
                yard.alloc_bulk_each_on(node, n - before, flags, |p| got.push((p.0 - base) as u32));
            if got.len() == before {
                break;
            }
        }
        self.idle.now -= got.len() as i64;
        self.follow_idle(self.observer.cpu.get());
        if let Some(blame) = &self.observer.blame {
            got.iter().for_each(|&ours| blame.taken_silently(ours));
        }
        for (i, &ours) in got.iter().enumerate() {
            if migratetype == 1 {
                let _ = yard.set_movable(Pfn(base + u64::from(ours)), Order::ZERO, true);
            }
            each(self, i, ours);
        }
        got.len()
    }
}
