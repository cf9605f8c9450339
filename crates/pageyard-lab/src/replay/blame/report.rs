//! All cases of a recording and of the policies, for people and for programs.

use std::cmp::Reverse;
use std::io::{self, Write};

use pageyard::{Gfp, MigrateType};
use pageyard_trace::{gfp, printable};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Value, json};

use super::case::{Case, How, Place};
use super::collect::Collector;
use super::sentence::{Words, clause, reason, type_name, word};
use super::totals::kind;
use crate::format::{grouped, many};
use crate::replay::input::Reading;
use crate::replay::machine::Machine;

/// Formats a number of cases of a kind.
fn counted((kind, n): (&&str, u64)) -> String {
    let kind = if n == 1 { kind.trim_end_matches('s') } else { kind };
    format!("{} {kind}", grouped(n))
}

/// Lines of each summary.
const LINES: usize = 12;

/// Why requests failed, were slow, or took blocks of another type: in the recording, and under
/// policies.
#[derive(Debug)]
pub struct Blame {
    /// What was read.
    pub reading: Reading,
    /// The machine of the trace.
    pub machine: Machine,
    /// Whether events of direct reclaim or compaction, by which a recorded request counts as slow, are
    /// in the trace, or were enabled and did not happen.
    pub has_efforts: bool,
    /// The recording, then each policy.
    pub sides: Vec<BlameSide>,
}

/// The cases of the recording or of a policy.
#[derive(Debug)]
pub struct BlameSide {
    /// `recorded`, or the policy.
    pub name: String,
    pub(in crate::replay) cases: Collector,
}

impl BlameSide {
    /// Returns the number of cases: failed requests, slow ones, claims and steals.
    pub fn counts(&self) -> [u64; 4] {
        self.cases.totals.counts()
    }
}

/// The name of the recording among the sides.
pub(in crate::replay) const RECORDED: &str = "recorded";

/// The names of the kinds of cases, as [`BlameSide::counts`] orders them.
const KINDS: [&str; 4] = ["failed", "slow", "claims", "steals"];

impl Blame {
    fn words<'a>(&'a self, side: &'a BlameSide) -> Words<'a> {
        Words { machine: &self.machine, names: &side.cases.names }
    }

    /// Returns whether slow requests of a side are known.
    fn knows_slow(&self, side: &BlameSide) -> bool {
        side.name != RECORDED || self.has_efforts
    }

    /// Writes sums, then up to `limit` cases of each side.
    ///
    /// # Errors
    /// Fails if `out` does.
    pub fn write(&self, out: &mut dyn Write, limit: usize) -> io::Result<()> {
        writeln!(
            out,
            "Requests of {} that failed, were slow, or took blocks of another type",
            printable(&self.reading.input)
        )?;
        let r = &self.reading;
        if r.lost > 0 {
            writeln!(out, "  the recorder lost {} events; owners may be wrong", grouped(r.lost))?;
        }
        for side in &self.sides {
            writeln!(out)?;
            self.sums(out, side)?;
            self.cases(out, side, limit)?;
        }
        Ok(())
    }

    fn sums(&self, out: &mut dyn Write, side: &BlameSide) -> io::Result<()> {
        let totals = &side.cases.totals;
        let counts = totals.counts();
        let heading = match side.name.as_str() {
            RECORDED => "In the recording".to_owned(),
            policy => format!("Replayed under {policy}"),
        };
        let mut list: Vec<String> = KINDS.iter().zip(counts).map(counted).collect();
        if !self.knows_slow(side) && counts[1] == 0 {
            list[1] = "slow not recorded".to_owned();
        }
        writeln!(out, "{heading}: {}", list.join(", "))?;
        if !self.knows_slow(side) {
            writeln!(
                out,
                "  to see slow requests, record vmscan:mm_vmscan_direct_reclaim_begin, \
                 …_direct_reclaim_end and\n  compaction:mm_compaction_try_to_compact_pages with it"
            )?;
        }
        let mut reasons: Vec<_> = totals.reasons.iter().filter(|(_, n)| **n > 0).collect();
        reasons.sort_by_key(|(reason, n)| (Reverse(**n), **reason));
        let rest = |all: usize| all.saturating_sub(LINES);
        for ((happened, wanted, found, order), n) in reasons.iter().take(LINES) {
            writeln!(
                out,
                "  {:>7} {:6} order {order:<2} {}",
                grouped(**n),
                word(*happened),
                clause(*happened, *wanted, *found)
            )?;
        }
        if rest(reasons.len()) > 0 {
            writeln!(out, "          and {}", many(rest(reasons.len()) as u64, "other reason"))?;
        }
        let names = &side.cases.names;
        let mut tasks: Vec<_> = totals.tasks.iter().collect();
        tasks.sort_by_key(|(name, counts)| {
            (Reverse(counts.iter().sum::<u64>()), name.map(|n| names.name(n)))
        });
        if !tasks.is_empty() {
            writeln!(out, "  by task of the request")?;
        }
        for (name, counts) in tasks.iter().take(LINES) {
            let name = name.map_or("(no event)", |n| names.name(n));
            let parts = KINDS.iter().zip(counts.iter()).filter(|(_, n)| **n > 0);
            let parts: Vec<_> = parts.map(|(kind, n)| counted((kind, *n))).collect();
            writeln!(out, "    {:16} {}", printable(name), parts.join(", "))?;
        }
        if rest(tasks.len()) > 0 {
            writeln!(out, "    and {}", many(rest(tasks.len()) as u64, "other task"))?;
        }
        let mut users: Vec<_> = totals.users.iter().filter(|(_, sum)| sum.0 > 0).collect();
        users.sort_by_key(|(request, sum)| (Reverse(sum.1), **request));
        if !users.is_empty() {
            writeln!(out, "  pages in use there, summed over these cases, by task and flags")?;
        }
        for (request, (cases, pages)) in users.iter().take(LINES) {
            let who = match request {
                Some((name, flags)) => {
                    format!("{} ({})", printable(names.name(*name)), gfp::to_names(*flags))
                }
                None => "no request in the trace".to_owned(),
            };
            let (pages, cases) = (grouped(*pages), many(*cases, "case"));
            writeln!(out, "    {pages:>9} pages in {cases}: {who}")?;
        }
        if rest(users.len()) > 0 {
            writeln!(out, "              and {}", many(rest(users.len()) as u64, "other user"))?;
        }
        Ok(())
    }

    fn cases(&self, out: &mut dyn Write, side: &BlameSide, limit: usize) -> io::Result<()> {
        let cases = &side.cases.cases;
        let words = self.words(side);
        // A failed or slow request is rarer than a claim and matters more.
        let mut order: Vec<usize> = (0..cases.len()).collect();
        order.sort_by_key(|&i| kind(cases[i].happened));
        for (n, &i) in order.iter().take(limit).enumerate() {
            write!(out, "{:>4}. {}", n + 1, words.case(&cases[i]))?;
        }
        let left = cases.len().saturating_sub(limit) as u64 + side.cases.left_out;
        if left > 0 {
            writeln!(out, "  {} not shown; use --limit N, or --json for all", many(left, "case"))?;
        }
        Ok(())
    }
}

impl Serialize for Blame {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("reading", &self.reading)?;
        map.serialize_entry("machine", &self.machine)?;
        map.serialize_entry("slow_recorded", &self.has_efforts)?;
        let sides: Vec<_> = self
            .sides
            .iter()
            .map(|side| Side { words: self.words(side), blame: self, side })
            .collect();
        map.serialize_entry("sides", &sides)?;
        map.end()
    }
}

struct Side<'a> {
    words: Words<'a>,
    blame: &'a Blame,
    side: &'a BlameSide,
}

impl Serialize for Side<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let (side, words) = (self.side, self.words);
        let mut map = s.serialize_map(None)?;
        map.serialize_entry("name", &side.name)?;
        let [failed, slow, claims, steals] = side.counts();
        let slow = (self.blame.knows_slow(side) || slow > 0).then_some(slow);
        let counts = json!({"failed": failed, "slow": slow, "claims": claims, "steals": steals});
        map.serialize_entry("counts", &counts)?;
        let mut reasons: Vec<_> = side.cases.totals.reasons.iter().filter(|r| *r.1 > 0).collect();
        reasons.sort();
        let reasons = reasons.into_iter().map(|((happened, wanted, found, order), n)| {
            json!({
                "what": word(*happened), "reason": reason(*happened), "order": order,
                "type": type_name(*wanted), "found_type": found.map(type_name), "cases": n,
            })
        });
        map.serialize_entry("reasons", &reasons.collect::<Vec<_>>())?;
        map.serialize_entry("cases_left_out", &side.cases.left_out)?;
        map.serialize_entry("cases", &Cases { words, cases: &side.cases.cases })?;
        map.end()
    }
}

/// Serializes case by case, so that only one is held as JSON at a time.
struct Cases<'a> {
    words: Words<'a>,
    cases: &'a [Case],
}

impl Serialize for Cases<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.cases.iter().map(|case| self.words.json(case)))
    }
}

impl Words<'_> {
    fn json(&self, case: &Case) -> Value {
        let zone = &self.machine.zones[case.zone];
        let pfn = case.frame.map(|f| self.pfn(f));
        let e = case.effort;
        json!({
            "what": word(case.happened),
            "reason": reason(case.happened),
            "t_ns": case.t_ns,
            "cpu": case.cpu,
            "task": case.task.map(|task| json!({
                "comm": self.names.name(self.names.number(task)),
                "pid": self.names.pid(task),
            })),
            "order": case.order,
            "type": type_name(case.wanted),
            "gfp": case.gfp,
            "gfp_names": case.gfp.map(gfp::to_names),
            "node": zone.node,
            "zone": zone.kind.name(),
            "pfn": pfn,
            "pageblock": pfn.map(|pfn| pfn >> 9),
            "found": case.found.map(|(order, t)| json!({ "order": order, "type": type_name(t) })),
            "took_ns": case.took_ns,
            "direct_reclaims": e.reclaims,
            "direct_compactions": e.compactions,
            "zone_free": case.free,
            "zone_min": case.min,
            "place": case.place.as_ref().map(|place| self.place(place)),
            "own_pageblocks": case.own.as_ref().map(|own| own.0),
            "own_users": case.own.as_ref().map(|own| self.used(&own.1)),
            "text": self.case(case),
        })
    }

    fn place(&self, place: &Place) -> Value {
        let pfn = self.pfn(place.first);
        let types = place.types.iter().map(|at| {
            let (how, by) = match at.how {
                How::Start => ("start", None),
                How::Claimed(task) => ("claimed", task),
                How::Shown => ("shown", None),
            };
            json!({
                "t_ns": at.t_ns, "type": type_name(at.migratetype), "how": how,
                "task": by.map(|task| self.task(task)),
            })
        });
        json!({
            "pfn": pfn, "pages": place.pages, "pageblock": pfn >> 9,
            "types": types.collect::<Vec<_>>(), "earlier_types": place.more_types,
            "users": self.used(place),
        })
    }

    fn used(&self, place: &Place) -> Value {
        let users = place.users.iter().map(|u| {
            let request = u.request.map(|(name, flags)| {
                let t = Gfp::from_bits_retain(flags).migrate_type();
                json!({
                    "comm": self.names.name(name), "pid": u.pid, "tasks": u.tasks,
                    "gfp": flags, "gfp_names": gfp::to_names(flags),
                    "type": t.unwrap_or(MigrateType::Unmovable).name(),
                })
            });
            json!({
                "pages": u.pages, "request": request, "silent": u.silent,
                "first_ns": u.first_ns, "last_ns": u.last_ns,
            })
        });
        json!({
            "free": place.free, "listed": place.listed, "largest": users.collect::<Vec<_>>(),
            "others": { "groups": place.more_users.0, "pages": place.more_users.1 },
        })
    }
}
