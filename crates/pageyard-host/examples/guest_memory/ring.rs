//! The guest's side of a virtqueue (split, virtio 1.x), in guest memory and through `vm-memory`,
//! like a driver in a guest kernel.

use std::sync::atomic::{Ordering, fence};

use vm_memory::{Bytes, GuestAddress, GuestMemory};

use crate::{PAGE, Result};

/// Number of descriptors.
pub(crate) const QUEUE: u16 = 256;
/// Maximum number of requests in flight: three descriptors each.
pub(crate) const SLOTS: u16 = 64;
/// VIRTIO_F_VERSION_1 and VHOST_USER_F_PROTOCOL_FEATURES.
pub(crate) const FEATURES: u64 = 1 << 32 | 1 << 30;
/// First word of a request's header: process a page, or hash memory.
pub(crate) const WORK: u64 = 1;
/// See `WORK`.
pub(crate) const HASH: u64 = 2;
/// Maximum number of bytes hashed by one request.
pub(crate) const HASHED: u64 = 16 * PAGE as u64;

/// Guest addresses of the descriptors, the available and used rings, and the slots' headers.
pub(crate) const DESCRIPTORS: u64 = 0;
pub(crate) const AVAILABLE: u64 = PAGE as u64;
pub(crate) const USED: u64 = 2 * PAGE as u64;
const HEADERS: u64 = 3 * PAGE as u64;
/// Bytes per slot: its header and a short answer.
const SLOT: u64 = 64;
/// Pages that the queue takes.
pub(crate) const PAGES: u64 = 4;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const NO_NOTIFY: u16 = 1;

/// The guest's state of the queue.
#[derive(Debug)]
pub(crate) struct Ring {
    free: Vec<u16>,
    available: u16,
    seen: u16,
}

/// Returns the address of a slot's short answer.
pub(crate) fn short_answer(slot: u16) -> GuestAddress {
    GuestAddress(HEADERS + u64::from(slot) * SLOT + SLOT / 2)
}

impl Ring {
    pub(crate) fn new() -> Ring {
        Ring { free: (0..SLOTS).rev().collect(), available: 0, seen: 0 }
    }

    pub(crate) fn in_flight(&self) -> u16 {
        SLOTS - self.free.len() as u16
    }

    /// Puts a request into the ring: a header, the data to read, and the place for the answer,
    /// which is in the slot by default. Returns the slot; `None` if none is free.
    pub(crate) fn put<M: GuestMemory>(
        &mut self,
        memory: &M,
        header: [u64; 3],
        read: Option<(u64, u32)>,
        write: Option<(u64, u32)>,
    ) -> Result<Option<u16>> {
        let Some(slot) = self.free.pop() else { return Ok(None) };
        let place = HEADERS + u64::from(slot) * SLOT;
        for (n, word) in header.into_iter().enumerate() {
            memory.write_obj(word, GuestAddress(place + 8 * n as u64))?;
        }
        let head = slot * 3;
        let mut at = head;
        let mut describe = |(address, bytes): (u64, u32), flags: u16| -> Result<()> {
            let entry = GuestAddress(DESCRIPTORS + 16 * u64::from(at));
            let next = if flags & NEXT != 0 { at + 1 } else { 0 };
            at += 1;
            let rest = u64::from(bytes) | u64::from(flags) << 32 | u64::from(next) << 48;
            memory.write_obj([address, rest], entry)?;
            Ok(())
        };
        describe((place, 24), NEXT)?;
        if let Some(read) = read {
            describe(read, NEXT)?;
        }
        describe(write.unwrap_or((short_answer(slot).0, 8)), WRITE)?;
        let entry = AVAILABLE + 4 + 2 * u64::from(self.available % QUEUE);
        memory.write_obj(head, GuestAddress(entry))?;
        self.available = self.available.wrapping_add(1);
        Ok(Some(slot))
    }

    /// Publishes new requests to the device. Returns whether it needs a notification.
    pub(crate) fn publish<M: GuestMemory>(&self, memory: &M) -> Result<bool> {
        memory.store(self.available, GuestAddress(AVAILABLE + 2), Ordering::Release)?;
        // The device disables notifications, then checks the ring once more.
        fence(Ordering::SeqCst);
        let flags: u16 = memory.load(GuestAddress(USED), Ordering::Relaxed)?;
        Ok(flags & NO_NOTIFY == 0)
    }

    /// Returns the slot of the next answered request and the length of the answer in bytes.
    pub(crate) fn take<M: GuestMemory>(&mut self, memory: &M) -> Result<Option<(u16, u32)>> {
        let used: u16 = memory.load(GuestAddress(USED + 2), Ordering::Acquire)?;
        if used == self.seen {
            return Ok(None);
        }
        let entry = USED + 4 + 8 * u64::from(self.seen % QUEUE);
        let [head, bytes]: [u32; 2] = memory.read_obj(GuestAddress(entry))?;
        self.seen = self.seen.wrapping_add(1);
        let slot = u16::try_from(head / 3)?;
        if head % 3 != 0 || slot >= SLOTS || self.free.contains(&slot) {
            return Err(format!("the device answered a request that was not made: {head}").into());
        }
        self.free.push(slot);
        Ok(Some((slot, bytes)))
    }
}
