//! Who holds what when a trace has been replayed (spec §9.7): the requests that the trace records,
//! on the pages that a policy gave them.

use std::fmt;

use pageyard::policy::Policy;
use pageyard::{
    Gfp, Hooked, Hooks, MigrateType, NodeId, Order, Owner, PageFlags, Pfn, Task, Yard, ZoneId,
};
use pageyard_trace::{Tasks, gfp, printable};
use serde_json::{Value, json};

use super::error::ReplayError;
use super::input::{Input, Reading};
use super::machine::Machine;
use super::map::FrameMap;
use super::policies::by_name;
use super::run::run;
use super::{Options, Prepared, Stage};
use crate::memory::Lock;
use crate::owner::{By, Group, Place, groups, name, text};

/// The request behind a recorded block.
#[derive(Clone, Copy)]
struct Request {
    t_ns: u64,
    gfp: u32,
    /// The trace's number for the task.
    task: u32,
    /// Of the block when it was handed out, or one of the two below.
    order: u8,
}

/// Bytes that are kept for each frame.
pub(super) const PER_FRAME: u64 = size_of::<Request>() as u64;

/// No block begins here.
const INSIDE: u8 = 0xff;
/// A block begins here that left its list without an event: nobody is known to have asked for it.
const SILENT: u8 = 0xfe;

/// The last request for each recorded block, by the block's first frame.
pub(super) struct Requests {
    of: Vec<Request>,
    /// By the trace's number; entered when they first ask.
    tasks: Vec<Option<Task>>,
}

impl Requests {
    pub(super) fn new(frames: usize) -> Requests {
        let none = Request { t_ns: 0, gfp: 0, task: 0, order: INSIDE };
        Requests { of: vec![none; frames], tasks: Vec::new() }
    }

    /// A task was given a block.
    pub(super) fn asked(
        &mut self,
        frame: u32,
        order: u8,
        gfp: u32,
        t_ns: u64,
        who: u32,
        tasks: &Tasks,
    ) {
        self.begins(frame, order, Request { t_ns, gfp, task: who, order });
        let at = who as usize;
        if self.tasks.len() <= at {
            self.tasks.resize(at + 1, None);
        }
        if self.tasks[at].is_none() {
            self.tasks[at] = tasks.get(who).map(|t| task(t.pid, &t.comm));
        }
    }

    /// A block went without an event.
    pub(super) fn silent(&mut self, frame: u32, order: u8) {
        self.begins(frame, order, Request { t_ns: 0, gfp: 0, task: 0, order: SILENT });
    }

    fn begins(&mut self, frame: u32, order: u8, request: Request) {
        let block = &mut self.of[frame as usize..frame as usize + (1 << order)];
        block.iter_mut().for_each(|r| r.order = INSIDE);
        block[0] = request;
    }

    /// The request for the block, or for the larger one of which it is what was not freed.
    fn find(&self, machine: &Machine, frame: u32) -> Option<&Request> {
        (0..=10)
            .find_map(|k| {
                let head = machine.align_down(frame, k)?;
                let request = &self.of[head as usize];
                let covers = request.order == SILENT && head == frame
                    || request.order <= 10 && frame - head < 1 << request.order;
                covers.then_some(request)
            })
            .filter(|r| r.order != SILENT)
    }
}

/// A task of the trace as the core has them. The kernel too keeps the first 15 bytes of a name. Its
/// process is not recorded: 0.
fn task(pid: u32, comm: &str) -> Task {
    let mut bytes = [0; 16];
    let end = (0..=comm.len().min(15)).rev().find(|&n| comm.is_char_boundary(n)).unwrap_or(0);
    bytes[..end].copy_from_slice(&comm.as_bytes()[..end]);
    Task { pid, tgid: 0, comm: bytes }
}

/// A block in use, who asked for it, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    /// Who asked, for what, and when by the trace's clock.
    pub owner: Owner,
    /// Where it lies under the policy.
    pub place: Place,
}

/// What is in use when a run has ended.
pub(super) struct Held {
    holders: Vec<Holder>,
    in_use: u64,
}

/// Looks up the request behind every recorded block that is still in use.
pub(super) fn held<E: Hooks, P: Policy>(
    machine: &Machine,
    yard: &Yard<'_, Hooked<Lock, E, P>>,
    map: &FrameMap,
    requests: &Requests,
) -> Held {
    let holder = |(recorded, ours, order): (u32, u32, u8)| {
        let request = requests.find(machine, recorded)?;
        let pfn = Pfn(machine.base() + u64::from(ours));
        let zone = &machine.zones[machine.zone_of(pfn.0)?];
        Some(Holder {
            owner: Owner {
                pfn,
                order: Order::new(order)?,
                gfp: Gfp::from_bits_retain(request.gfp),
                task: requests.tasks.get(request.task as usize).copied().flatten()?,
                since: request.t_ns,
                stack: 0,
                moved: None,
                freed: (0, 0, 0, 0),
            },
            place: Place {
                block_type: yard.block_type(pfn)?,
                flags: PageFlags::empty(),
                node: NodeId(zone.node),
                zone: zone.kind,
            },
        })
    };
    let mut holders: Vec<Holder> = map.blocks().filter_map(holder).collect();
    holders.sort_unstable_by_key(|h| h.owner.pfn);
    let in_use = |z: &super::MachineZone| {
        let info = yard.zone_info(ZoneId { node: NodeId(z.node), kind: z.kind });
        info.map_or(0, |i| i.managed.saturating_sub(i.free_exact + i.cached))
    };
    Held { holders, in_use: machine.zones.iter().map(in_use).sum() }
}

/// The pages in use at a trace's end under a policy, and who asked for them.
#[derive(Clone, Debug)]
pub struct Owners {
    /// What was read.
    pub reading: Reading,
    /// The policy whose pages these are.
    pub policy: String,
    /// Blocks whose request the trace shows, by frame.
    pub holders: Vec<Holder>,
    /// Pages in use, those included whose request it does not show.
    pub in_use: u64,
}

/// Replays a trace under one policy, the first of the options or else that of the kernel that
/// recorded, and says who holds what at its end. Of the options, seeds, jobs and explain do not
/// matter.
///
/// # Errors
/// As [`replay`](super::replay()).
pub fn owners(
    input: Input,
    options: &Options,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Owners, ReplayError> {
    let ready = Prepared::new(input, options, true, progress)?;
    let choice = match options.policies.first() {
        Some(choice) => choice.clone(),
        None => by_name(ready.machine.kernel.policy())?,
    };
    let all = Some(ready.plan.len);
    let ran = run(&ready.setting(), &choice, options.seed, &mut |at| {
        progress(Stage::Replay, at, all);
    })?;
    let Held { holders, in_use } = ran.held.expect("requests were kept");
    Ok(Owners { reading: ready.reading, policy: choice.name, holders, in_use })
}

impl Owners {
    /// What blocks can be grouped by: a trace has neither processes nor call stacks.
    pub const BY: [By; 3] = [By::Task, By::Name, By::Request];

    /// Pages whose request the trace shows.
    pub fn pages(&self) -> u64 {
        self.holders.iter().map(|h| u64::from(h.owner.order.pages())).sum()
    }

    /// The blocks in groups, whoever holds most first.
    pub fn groups(&self, by: By) -> Vec<Group> {
        groups(self.holders.iter().map(|h| h.owner), by)
    }

    /// What the reader must know: what a trace does not say, and what was wrong with this one.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} of {} pages in use have no record: they were in use before the trace began, or \
             were taken without an event",
            self.in_use.saturating_sub(self.pages()),
            self.in_use
        )];
        let mut tasks: Vec<Task> = self.holders.iter().map(|h| h.owner.task).collect();
        tasks.sort_unstable_by_key(|t| (t.pid, t.comm));
        tasks.dedup();
        if let [only] = tasks[..] {
            notes.push(format!(
                "the trace has one task for all of them, {} (pid {}): it may not say who asked",
                name(&only),
                only.pid
            ));
        }
        notes.push(
            "a trace records neither processes (tgid 0 here), nor call stacks, nor the marks of \
             pages (their node and zone are the policy's)"
                .to_owned(),
        );
        let r = &self.reading;
        let wrong = [
            (r.lost, "the recorder lost"),
            (r.malformed, "passed over as damaged:"),
            (r.inconsistent, "left out, since they contradict the machine:"),
        ];
        let wrong = wrong.iter().filter(|(n, _)| *n > 0);
        notes.extend(wrong.map(|(n, what)| format!("{what} {n} events; owners may be wrong")));
        notes
    }

    /// The groups as text, below a line that says what they are of.
    pub fn summary(&self, by: By) -> String {
        let mut out = format!(
            "{} at its end under {}: {} blocks, {} pages whose request it shows, by {}\n",
            printable(&self.reading.input),
            self.policy,
            self.holders.len(),
            self.pages(),
            by.name()
        );
        self.groups(by).iter().for_each(|g| out += &format!("{g}\n"));
        out
    }

    /// The blocks, or their groups, as data. What a trace does not record is `null`.
    pub fn json(&self, by: Option<By>) -> Value {
        let mut all = json!({
            "policy": self.policy,
            "blocks": self.holders.len(),
            "pages": self.pages(),
            "pages_in_use": self.in_use,
            "notes": self.notes(),
        });
        let (key, list): (_, Vec<Value>) = match by {
            Some(by) => ("groups", self.groups(by).iter().map(|g| group(by, g)).collect()),
            None => ("owners", self.holders.iter().map(holder).collect()),
        };
        all[key] = list.into();
        all
    }
}

fn group(by: By, g: &Group) -> Value {
    json!({ by.name(): g.what, "blocks": g.blocks, "pages": g.pages })
}

fn holder(h: &Holder) -> Value {
    let Holder { owner, place } = h;
    json!({
        "pfn": owner.pfn.0,
        "order": owner.order.get(),
        "gfp": owner.gfp.bits(),
        "gfp_names": gfp::to_names(owner.gfp.bits()),
        "pid": owner.task.pid,
        "tgid": null,
        "comm": name(&owner.task),
        "ts_ns": owner.since,
        "type": owner.gfp.migrate_type().unwrap_or(MigrateType::Unmovable).name(),
        "block_type": place.block_type.name(),
        "node": place.node.0,
        "zone": place.zone.name(),
    })
}

/// As the kernel's file `page_owner` has them, without call stacks: a blank line after each block.
impl fmt::Display for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holders.iter().try_for_each(|h| writeln!(f, "{}", text(&h.owner, &h.place)))
    }
}
