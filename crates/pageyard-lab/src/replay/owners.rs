//! Owners of allocated blocks at the end of a replay (spec §9.7): the recorded requests, on the
//! pages that a policy allocated for them.

use std::fmt;

use pageyard::MigrateType;
use pageyard_report::Task;
use pageyard_trace::{gfp, printable};
use serde_json::{Value, json};

use super::error::ReplayError;
use super::held::{Held, Holder};
use super::input::{Input, Reading};
use super::options::{Keep, Options, Stage};
use super::prepared::Prepared;
use super::run::run;
use crate::owner::{By, Group, groups, name, text};
use crate::policies::by_name;

/// The pages in use at a trace's end under a policy, with their owners.
#[derive(Clone, Debug)]
pub struct Owners {
    /// What was read.
    pub reading: Reading,
    /// The policy that allocated the pages.
    pub policy: String,
    /// Blocks whose request appears in the trace, by frame.
    pub holders: Vec<Holder>,
    /// Pages in use, including those whose request does not appear in the trace.
    pub in_use: u64,
}

/// Replays a trace under one policy and returns the owners at its end. The policy is the first of
/// the options, or else that of the recording kernel. The options for seeds, jobs and explain are
/// ignored.
///
/// # Errors
/// Fails as [`replay`](super::replay()) does.
pub fn owners(
    input: Input,
    options: &Options,
    progress: &mut (dyn FnMut(Stage, u64, Option<u64>) + Send),
) -> Result<Owners, ReplayError> {
    let ready =
        Prepared::new(input, options, Keep { requests: true, ..Keep::default() }, progress)?;
    let choice = match options.policies.first() {
        Some(choice) => choice.clone(),
        None => by_name(ready.machine.kernel.policy)?,
    };
    let all = Some(ready.plan.len);
    let ran = run(&ready.setting(&options.stop), &choice, options.seed, &mut |at| {
        progress(Stage::Replay, at, all);
    })?;
    let Held { holders, in_use } = ran.held.expect("requests were kept");
    Ok(Owners { reading: ready.reading, policy: choice.name, holders, in_use })
}

impl Owners {
    /// The available groupings. A trace has neither processes nor call stacks.
    pub const BY: [By; 3] = [By::Task, By::Name, By::Request];

    /// Returns the number of pages whose request appears in the trace.
    pub fn pages(&self) -> u64 {
        self.holders.iter().map(|h| u64::from(h.owner.order.pages())).sum()
    }

    /// Returns the blocks in groups, largest number of pages first.
    pub fn groups(&self, by: By) -> Vec<Group> {
        groups(self.holders.iter().map(|h| h.owner), by)
    }

    /// Returns notes for the reader: what a trace does not record, and what was wrong with this
    /// one.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "{} of {} pages in use have no record: they were allocated before the trace began or \
             without an event",
            self.in_use.saturating_sub(self.pages()),
            self.in_use
        )];
        let mut tasks: Vec<Task> = self.holders.iter().map(|h| h.owner.task).collect();
        tasks.sort_unstable_by_key(|t| (t.pid, t.comm));
        tasks.dedup();
        if let [only] = tasks[..] {
            notes.push(format!(
                "all requests in the trace have the same task, {} (pid {}); the recorder may not \
                 have recorded the real one",
                name(&only),
                only.pid
            ));
        }
        notes.push(
            "a trace does not record processes (tgid 0 here), call stacks or page flags (node and \
             zone are the policy's)"
                .to_owned(),
        );
        let r = &self.reading;
        notes.extend(r.notes.iter().cloned());
        let wrong = [
            (r.lost, "the recorder lost"),
            (r.malformed, "skipped as damaged:"),
            (r.inconsistent, "skipped, because they contradict the machine:"),
        ];
        let wrong = wrong.iter().filter(|(n, _)| *n > 0);
        notes.extend(wrong.map(|(n, what)| format!("{what} {n} events; owners may be wrong")));
        notes
    }

    /// Returns the groups as text, below a heading.
    pub fn summary(&self, by: By) -> String {
        let mut out = format!(
            "{} at its end under {}: {} blocks and {} pages with a recorded request, by {}\n",
            printable(&self.reading.input),
            self.policy,
            self.holders.len(),
            self.pages(),
            by.name()
        );
        self.groups(by).iter().for_each(|g| out += &format!("{g}\n"));
        out
    }

    /// Returns the blocks or their groups as data. Values that a trace does not record are `null`.
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

/// Formats the blocks as the kernel's file `page_owner` does, without call stacks: a blank line
/// follows each block.
impl fmt::Display for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holders.iter().try_for_each(|h| writeln!(f, "{}", text(&h.owner, &h.place)))
    }
}
