//! The memories and links of a machine, and the channels that lines pass.

use crate::channel::Channel;
use crate::spec::MachineSpec;

/// The memories and links of a machine.
#[derive(Debug)]
pub(crate) struct Channels {
    /// One per node, if the bandwidth is known.
    memory: Vec<Channel>,
    /// One from each socket to each, if the bandwidth is known.
    links: Vec<Channel>,
    sockets: usize,
    /// The socket of each node.
    socket_of: Vec<u16>,
    /// Time spent waiting for these, in picoseconds, over all CPUs.
    pub(crate) waited: u64,
}

/// The channels that lines pass on their way to a CPU.
#[derive(Clone, Copy)]
pub(crate) struct Passage {
    pub(crate) memory: Option<usize>,
    pub(crate) link: Option<usize>,
}

impl Channels {
    pub(crate) fn new(spec: &MachineSpec) -> Channels {
        let sockets = spec.sockets();
        let mut socket_of = vec![0; spec.nodes.into()];
        for place in &spec.cpus {
            socket_of[usize::from(place.node)] = place.socket;
        }
        let channels = |n, rate: Option<u64>| {
            rate.map_or(vec![], |b| (0..n).map(|_| Channel::new(b)).collect())
        };
        Channels {
            memory: channels(spec.nodes.into(), spec.bandwidth),
            links: channels(sockets * sockets, spec.link),
            sockets,
            socket_of,
            waited: 0,
        }
    }

    pub(crate) fn link(&self, from: u16, to: u16) -> Option<usize> {
        let at = usize::from(from) * self.sockets + usize::from(to);
        (from != to && at < self.links.len()).then_some(at)
    }

    /// Returns the passage from a node's memory to a socket.
    pub(crate) fn passage(&self, node: u16, to: u16) -> Passage {
        let at = usize::from(node);
        let memory = (at < self.memory.len()).then_some(at);
        Passage { memory, link: self.link(self.socket_of[at], to) }
    }

    /// Returns the channels of a passage.
    pub(crate) fn of(&mut self, passage: Passage) -> impl Iterator<Item = &mut Channel> {
        let memory = passage.memory.map(|m| &mut self.memory[m]);
        memory.into_iter().chain(passage.link.map(|l| &mut self.links[l]))
    }
}
