//! A guest: its memory, its device in the second process, and the expected contents of each page.

use std::path::Path;

use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VringConfigData};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

use crate::content::{self, Content, mix};
use crate::memory::{HIGH, table};
use crate::ring::{self, FEATURES, HASH, HASHED, QUEUE, Ring, SLOTS, WORK};
use crate::{PAGE, Result};

/// Timeout for an answer.
const PATIENCE_MS: i32 = 60_000;
/// Pages hashed by one request.
const HASHED_PAGES: u64 = HASHED / PAGE as u64;

/// What an answer is compared with.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    /// The page must hold this content.
    Page(u64, Content),
    /// The slot must hold the hash of this many pages from this one on.
    Hash(u64, u64),
}

pub(crate) struct Guest<M> {
    pub(crate) memory: M,
    name: String,
    seed: u64,
    low: u64,
    pages: Vec<Content>,
    ring: Ring,
    wanted: [Option<Wanted>; SLOTS as usize],
    requests: u64,
    stride: u64,
    device: Frontend,
    kick: EventFd,
    call: EventFd,
    waits: Epoll,
    text: Box<[u8; PAGE]>,
    expected: Box<[u8; PAGE]>,
}

fn common(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl<M: GuestMemoryBackend> Guest<M> {
    /// Starts a guest on zeroed memory, with the device at a socket. `shift` is added to the file
    /// offset of the last region, which is a mistake unless it is 0.
    pub(crate) fn start(
        name: String,
        seed: u64,
        memory: M,
        socket: &Path,
        shift: i64,
    ) -> Result<Self> {
        let sizes: Vec<u64> = memory.iter().map(vm_memory::GuestMemoryRegion::len).collect();
        let pages = sizes.iter().sum::<u64>() / PAGE as u64;
        let mut regions = table(&memory)?;
        if let Some(region) = regions.last_mut() {
            region.mmap_offset = region.mmap_offset.wrapping_add_signed(shift);
        }
        let mut device = Frontend::connect(socket, 1)?;
        device.set_owner()?;
        device.set_features(device.get_features()? & FEATURES)?;
        let offered = device.get_protocol_features()?;
        device.set_protocol_features(offered & VhostUserProtocolFeatures::REPLY_ACK)?;
        // Each message is answered, so that a refusal of the device is an error here.
        device.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        device.set_mem_table(&regions)?;
        device.set_vring_num(0, QUEUE)?;
        let host = |address| -> Result<u64> {
            Ok(memory.get_host_address(GuestAddress(address))?.addr() as u64)
        };
        let config = VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: host(ring::DESCRIPTORS)?,
            used_ring_addr: host(ring::USED)?,
            avail_ring_addr: host(ring::AVAILABLE)?,
            log_addr: None,
        };
        device.set_vring_addr(0, &config)?;
        device.set_vring_base(0, 0)?;
        let event = || EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        let (kick, call) = (event()?, event()?);
        device.set_vring_call(0, &call)?;
        device.set_vring_kick(0, &kick)?;
        device.set_vring_enable(0, true)?;
        let waits = Epoll::new()?;
        waits.ctl(
            ControlOperation::Add,
            std::os::fd::AsRawFd::as_raw_fd(&call),
            EpollEvent::new(EventSet::IN, 0),
        )?;
        // Visits all pages in turn, far from each other.
        let others = pages - ring::PAGES;
        let stride = (others * 5 / 8..).find(|&s| common(s, others) == 1).unwrap_or(1);
        let mut contents = vec![Content::Zeros; pages as usize];
        contents[..ring::PAGES as usize].fill(Content::Ring);
        Ok(Guest {
            memory,
            name,
            seed,
            low: sizes[0] / PAGE as u64,
            pages: contents,
            ring: Ring::new(),
            wanted: [None; SLOTS as usize],
            requests: 0,
            stride,
            device,
            kick,
            call,
            waits,
            text: Box::new([0; PAGE]),
            expected: Box::new([0; PAGE]),
        })
    }

    fn address(&self, page: u64) -> GuestAddress {
        match page.checked_sub(self.low) {
            None => GuestAddress(page * PAGE as u64),
            Some(page) => GuestAddress(HIGH + page * PAGE as u64),
        }
    }

    fn write(&mut self, page: u64, content: Content) -> Result<()> {
        content.write(&mut self.expected);
        self.memory.write_slice(&self.expected[..], self.address(page))?;
        self.pages[page as usize] = content;
        Ok(())
    }

    /// Writes all pages, like a guest at boot.
    pub(crate) fn boot(&mut self) -> Result<()> {
        for page in ring::PAGES..self.pages.len() as u64 {
            self.write(page, Content::Seed(mix(self.seed ^ page)))?;
        }
        Ok(())
    }

    /// Checks that a page holds the expected content, as this process sees it.
    fn verify(&mut self, page: u64, content: Content) -> Result<()> {
        let place = self.address(page);
        self.memory.read_slice(&mut self.text[..], place)?;
        content.write(&mut self.expected);
        if self.text == self.expected {
            return Ok(());
        }
        let at = self.text.iter().zip(&self.expected[..]).position(|(a, b)| a != b).unwrap_or(0);
        let (name, found, wanted) = (&self.name, self.text[at], self.expected[at]);
        let what = match content {
            Content::Zeros => "is not zero at its start".to_owned(),
            _ => "does not hold what was written".to_owned(),
        };
        Err(format!("{name}: page {page} {what}: byte {at} is {found:#x} and not {wanted:#x}")
            .into())
    }

    /// Returns the n-th page of those that requests use.
    fn nth(&self, n: u64) -> u64 {
        let others = self.pages.len() as u64 - ring::PAGES;
        ring::PAGES + n % others * self.stride % others
    }

    /// Runs `requests` requests, each with a page of data and a page for the answer, and compares
    /// every answer.
    pub(crate) fn work(&mut self, requests: u64) -> Result<()> {
        let end = self.requests + requests;
        let next = |guest: &mut Self| -> Result<bool> {
            if guest.requests == end || guest.ring.in_flight() == SLOTS {
                return Ok(false);
            }
            let n = guest.requests;
            guest.requests += 1;
            let (data, answer) = (guest.nth(2 * n), guest.nth(2 * n + 1));
            let seed = mix(guest.seed.rotate_left(32) ^ n);
            guest.write(data, Content::Seed(seed))?;
            let read = (guest.address(data).0, PAGE as u32);
            let write = (guest.address(answer).0, PAGE as u32);
            guest.put(
                [WORK, 0, 0],
                Some(read),
                Some(write),
                Wanted::Page(answer, Content::Answer(seed)),
            )
        };
        self.run(next)
    }

    /// Checks the contents of all pages, as seen by this process and by the device's.
    pub(crate) fn check(&mut self) -> Result<()> {
        let pages = self.pages.len() as u64;
        for page in ring::PAGES..pages {
            self.verify(page, self.pages[page as usize])?;
        }
        let mut page = ring::PAGES;
        self.run(|guest| {
            if page == pages || guest.ring.in_flight() == SLOTS {
                return Ok(false);
            }
            let region = if page < guest.low { guest.low } else { pages };
            let count = HASHED_PAGES.min(region - page);
            let header = [HASH, guest.address(page).0, count * PAGE as u64];
            let wanted = Wanted::Hash(page, count);
            page += count;
            guest.put(header, None, None, wanted)
        })
    }

    fn put(
        &mut self,
        header: [u64; 3],
        read: Option<(u64, u32)>,
        write: Option<(u64, u32)>,
        wanted: Wanted,
    ) -> Result<bool> {
        let slot = self.ring.put(&self.memory, header, read, write)?;
        let Some(slot) = slot else { return Ok(false) };
        self.wanted[usize::from(slot)] = Some(wanted);
        Ok(true)
    }

    /// Puts requests into the ring while `next` supplies them, and compares the answers, until all
    /// are answered.
    fn run(&mut self, mut next: impl FnMut(&mut Self) -> Result<bool>) -> Result<()> {
        loop {
            let mut news = false;
            while next(self)? {
                news = true;
            }
            if news && self.ring.publish(&self.memory)? {
                self.kick.write(1)?;
            }
            if self.ring.in_flight() == 0 {
                return Ok(());
            }
            let mut answers = 0;
            while let Some((slot, bytes)) = self.ring.take(&self.memory)? {
                self.compare(slot, bytes)?;
                answers += 1;
            }
            if answers == 0 {
                self.wait()?;
            }
        }
    }

    fn wait(&mut self) -> Result<()> {
        let mut events = [EpollEvent::default()];
        match self.waits.wait(PATIENCE_MS, &mut events) {
            Ok(0) => Err(format!("{}: the device does not answer", self.name).into()),
            Ok(_) => {
                // An earlier look may have taken the answers already.
                let _ = self.call.read();
                Ok(())
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn compare(&mut self, slot: u16, bytes: u32) -> Result<()> {
        match self.wanted[usize::from(slot)].take() {
            Some(Wanted::Page(page, content)) if bytes == PAGE as u32 => {
                self.pages[page as usize] = content;
                self.verify(page, content)
            }
            Some(Wanted::Hash(page, count)) if bytes == 8 => {
                let found: u64 = self.memory.read_obj(ring::short_answer(slot))?;
                let mut all = Vec::new();
                for page in page..page + count {
                    self.pages[page as usize].write(&mut self.expected);
                    all.extend_from_slice(&self.expected[..]);
                }
                let name = &self.name;
                let what = || format!("{name}: the device sees something else from page {page} on");
                if found == content::hash(&all) { Ok(()) } else { Err(what().into()) }
            }
            _ => Err(format!("{}: an answer of {bytes} bytes", self.name).into()),
        }
    }

    /// Stops the device and returns the memory, which may be freed now.
    pub(crate) fn end(self) -> Result<M> {
        self.device.get_vring_base(0)?;
        Ok(self.memory)
    }
}
