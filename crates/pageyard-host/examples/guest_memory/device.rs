//! The second process: a vhost-user device that maps guest memory as described over its socket, and
//! answers the requests in a guest's ring.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use vhost::vhost_user::{Listener, VhostUserProtocolFeatures};
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringMutex, VringT};
use virtio_queue::QueueT;
use vm_memory::{
    Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryLoadGuard,
    GuestMemoryMmap,
};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::content;
use crate::ring::{FEATURES, HASH, HASHED, QUEUE, WORK};
use crate::{PAGE, Result};

/// Number of answers after which the guest is notified.
const TELL: u32 = 16;

type Memory = GuestMemoryAtomic<GuestMemoryMmap>;

struct Device {
    memory: Memory,
    exit: (EventConsumer, EventNotifier),
    page: Vec<u8>,
}

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

impl Device {
    /// Answers a request. Returns the length of the answer in bytes.
    fn answer(
        &mut self,
        memory: &GuestMemoryMmap,
        input: &mut impl Read,
        output: &mut impl Write,
    ) -> io::Result<u32> {
        let mut header = [0; 24];
        input.read_exact(&mut header)?;
        match content::words(&header)[..] {
            [WORK, ..] => {
                self.page.resize(PAGE, 0);
                input.read_exact(&mut self.page)?;
                content::work(&mut self.page);
                output.write_all(&self.page)?;
                Ok(PAGE as u32)
            }
            [HASH, address, bytes] if bytes <= HASHED => {
                self.page.resize(bytes as usize, 0);
                memory.read_slice(&mut self.page, GuestAddress(address)).map_err(other)?;
                output.write_all(&content::hash(&self.page).to_le_bytes())?;
                Ok(8)
            }
            _ => Err(other("a request that this device does not know")),
        }
    }

    fn process(&mut self, ring: &VringMutex<Memory>) -> io::Result<()> {
        let memory: GuestMemoryLoadGuard<GuestMemoryMmap> = self.memory.memory();
        let mut untold = 0;
        loop {
            let chain = ring.get_mut().get_queue_mut().pop_descriptor_chain(memory.clone());
            let Some(chain) = chain else { break };
            let head = chain.head_index();
            let mut input = chain.clone().reader(&memory).map_err(other)?;
            let mut output = chain.writer(&memory).map_err(other)?;
            let bytes = self.answer(&memory, &mut input, &mut output)?;
            ring.add_used(head, bytes).map_err(other)?;
            untold += 1;
            if untold == TELL {
                ring.signal_used_queue()?;
                untold = 0;
            }
        }
        if untold > 0 { ring.signal_used_queue() } else { Ok(()) }
    }
}

impl VhostUserBackendMut for Device {
    type Bitmap = ();
    type Vring = VringMutex<Memory>;

    fn num_queues(&self) -> usize {
        1
    }

    fn max_queue_size(&self) -> usize {
        QUEUE.into()
    }

    fn features(&self) -> u64 {
        FEATURES
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&mut self, _: bool) {}

    fn update_memory(&mut self, memory: Memory) -> io::Result<()> {
        self.memory = memory;
        Ok(())
    }

    fn handle_event(
        &mut self,
        _: u16,
        _: EventSet,
        rings: &[Self::Vring],
        _: usize,
    ) -> io::Result<()> {
        let ring = rings.first().ok_or_else(|| other("no ring"))?;
        loop {
            ring.disable_notification().map_err(other)?;
            self.process(ring)?;
            if !ring.enable_notification().map_err(other)? {
                return Ok(());
            }
        }
    }

    fn exit_event(&self, _: usize) -> Option<(EventConsumer, EventNotifier)> {
        Some((self.exit.0.try_clone().ok()?, self.exit.1.try_clone().ok()?))
    }
}

/// Serves one guest after the other on a socket.
fn serve(mut listener: Listener) -> Result<()> {
    loop {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let exit = new_event_consumer_and_notifier(EventFlag::NONBLOCK)?;
        let device = Device { memory: memory.clone(), exit, page: Vec::new() };
        let daemon = VhostUserDaemon::new("device".into(), Arc::new(Mutex::new(device)), memory);
        let mut daemon = daemon.map_err(|e| format!("device: {e}"))?;
        daemon.start(&mut listener).map_err(|e| format!("device: {e}"))?;
        // A guest ends by closing its connection.
        let _ = daemon.wait();
    }
}

/// Serves sockets 0, 1, … in a directory, until the input ends.
pub(crate) fn run(directory: &Path, guests: usize) -> Result<()> {
    for n in 0..guests {
        let listener = Listener::new(directory.join(n.to_string()), true)?;
        std::thread::spawn(move || {
            if let Err(error) = serve(listener) {
                eprintln!("{error}");
                std::process::exit(1);
            }
        });
    }
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
