//! Who holds what when a trace has been replayed (spec §9.7): the requests that the trace records,
//! on the pages that a policy gave them.

use std::fmt;

use pageyard::{MigrateType, Task};
use pageyard_trace::{gfp, printable};
use serde_json::{Value, json};

use super::error::ReplayError;
use super::held::{Held, Holder};
use super::input::{Input, Reading};
use super::options::{Options, Stage};
use super::prepared::Prepared;
use super::run::run;
use crate::owner::{By, Group, groups, name, text};
use crate::policies::by_name;

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
