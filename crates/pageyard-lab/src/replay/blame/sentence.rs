//! A case in words.

use std::fmt::Write as _;

use pageyard::{Gfp, MigrateType};
use pageyard_trace::{gfp, printable};

use super::case::{Case, Happened, How, Lack, Place, Slow, TypeAt, User};
use crate::format::{duration, grouped, many};
use crate::replay::machine::Machine;
use crate::replay::names::Names;
use crate::table::wrapped_lines;

/// What a sentence needs besides its case.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    pub(super) machine: &'a Machine,
    pub(super) names: &'a Names,
}

/// Formats a time of the trace's clock, as `trace-cmd report` prints it.
pub(super) fn seconds(ns: u64) -> String {
    format!("{}.{:06} s", ns / 1_000_000_000, ns % 1_000_000_000 / 1000)
}

/// Breaks a line at blanks into lines of at most [`WIDTH`] characters, indented. A longer word stays
/// whole.
fn wrapped(line: &str) -> String {
    let text = line.trim_start();
    let first = " ".repeat(6 + line.len() - text.len());
    let others = format!("{first}  ");
    let options = textwrap::Options::new(WIDTH)
        .initial_indent(&first)
        .subsequent_indent(&others)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    wrapped_lines(text, options).join("\n") + "\n"
}

/// Width of the text.
const WIDTH: usize = 100;

pub(super) fn type_name(t: u8) -> &'static str {
    MigrateType::from_number(t).map_or("unknown", MigrateType::name)
}

/// Returns the word for what happened.
pub(super) fn word(happened: Happened) -> &'static str {
    match happened {
        Happened::Failed(_) => "failed",
        Happened::Slow(_) => "slow",
        Happened::Claim => "claim",
        Happened::Steal => "steal",
    }
}

/// Returns the reason of a case as a name for programs.
pub(super) fn reason(happened: Happened) -> &'static str {
    let lack = |lack| match lack {
        Lack::Watermark => "watermark",
        Lack::Fragmented => "fragmented",
        Lack::Exhausted => "exhausted",
    };
    match happened {
        Happened::Failed(why) => lack(why),
        Happened::Slow(Slow::Effort) => "reclaimed_or_compacted",
        Happened::Slow(Slow::BelowMin) => "below_min",
        Happened::Slow(Slow::Waited(_)) => "waited",
        Happened::Claim | Happened::Steal => "no_block_of_its_type",
    }
}

/// Returns the reason of alike cases as a clause.
pub(super) fn clause(happened: Happened, wanted: u8, found: Option<u8>) -> String {
    let wanted = type_name(wanted);
    match happened {
        Happened::Failed(Lack::Watermark) => {
            format!("{wanted}: a block was free, but the watermark kept it in reserve")
        }
        Happened::Failed(Lack::Fragmented) => {
            format!("{wanted}: enough pages were free, but no block of this order")
        }
        Happened::Failed(Lack::Exhausted) => format!("{wanted}: too few pages were free"),
        Happened::Slow(Slow::Effort) => {
            format!("{wanted}: the request reclaimed or compacted memory itself")
        }
        Happened::Slow(Slow::BelowMin) => format!("{wanted}: served from below the MIN watermark"),
        Happened::Slow(Slow::Waited(_)) => format!("{wanted}: waited for a later free"),
        Happened::Claim => format!(
            "{wanted} claimed a {} pageblock: no free block of its own type",
            type_name(found.unwrap_or(u8::MAX))
        ),
        Happened::Steal => format!(
            "{wanted} stole from a {} pageblock: no free block of its own type",
            type_name(found.unwrap_or(u8::MAX))
        ),
    }
}

impl Words<'_> {
    pub(super) fn pfn(&self, frame: u32) -> u64 {
        self.machine.base() + u64::from(frame)
    }

    pub(super) fn task(&self, task: u32) -> String {
        let name = self.names.name(self.names.number(task));
        format!("{} (pid {})", printable(name), self.names.pid(task))
    }

    fn zone(&self, zone: usize) -> String {
        let z = &self.machine.zones[zone];
        format!("node {} {}", z.node, z.kind)
    }

    /// Returns a case as lines, the first without its number.
    pub(super) fn case(&self, case: &Case) -> String {
        let mut out =
            format!("{}  {}, CPU {}: ", seconds(case.t_ns), word(case.happened), case.cpu);
        match case.task {
            Some(task) => out += &self.task(task),
            None => out += "a request without an event (bulk)",
        }
        let _ = write!(out, " requested order {}, {}", case.order, type_name(case.wanted));
        if let Some(flags) = case.gfp {
            let _ = write!(out, " ({})", gfp::to_names(flags));
        }
        out += ".\n";
        for line in self.reasons(case).into_iter().chain(self.details(case)) {
            out += &wrapped(&line);
        }
        out
    }

    /// Says why.
    fn reasons(&self, case: &Case) -> Vec<String> {
        let zone = self.zone(case.zone);
        let (free, min, order) = (case.free, grouped(case.min), case.order);
        let block = case.frame.map_or(0, |f| self.pfn(f) >> 9);
        let lacks = |lack| match lack {
            Lack::Watermark => format!(
                "{zone} had a free block of order {order}, but only {} in all. Less the {} of the \
                 request, that does not exceed its MIN watermark of {min}.",
                many(free, "free page"),
                many(1 << order, "page")
            ),
            Lack::Fragmented => format!(
                "{zone} had {}, above its MIN watermark of {min}, but no free block of order \
                 {order}.",
                many(free, "free page")
            ),
            Lack::Exhausted => format!(
                "{zone} had {} (MIN watermark {min}) and no free block of order {order} above it.",
                many(free, "free page")
            ),
        };
        match case.happened {
            Happened::Claim | Happened::Steal => {
                let (found, from) = case.found.unwrap_or((0, u8::MAX));
                let pfn = case.frame.map_or(0, |f| self.pfn(f));
                let then = match case.happened {
                    Happened::Claim if found >= 9 => {
                        "All of it became the request's type".to_owned()
                    }
                    Happened::Claim => format!(
                        "The pageblock became {}: enough of it was free or in compatible use",
                        type_name(case.wanted)
                    ),
                    _ => format!("The pageblock stayed {}", type_name(from)),
                };
                vec![format!(
                    "{zone} had no free {} block of order {order} or above. The request took PFN \
                     {pfn:#x} (pageblock {block}) from a free {} block of order {found}. {then}.",
                    type_name(case.wanted),
                    type_name(from)
                )]
            }
            Happened::Failed(lack) => {
                let mut lines = vec![lacks(lack)];
                lines.extend(self.effort(case, "It failed after"));
                lines
            }
            Happened::Slow(Slow::Effort) => {
                let mut lines: Vec<String> =
                    self.effort(case, "It was served after").into_iter().collect();
                lines.push(format!(
                    "{zone} had {} then (MIN watermark {min}). It got PFN {:#x} (pageblock {block}).",
                    many(free, "free page"),
                    case.frame.map_or(0, |f| self.pfn(f)),
                ));
                lines
            }
            Happened::Slow(Slow::BelowMin) => vec![format!(
                "{zone} had {}, and its MIN watermark is {min}. It got PFN {:#x} (pageblock \
                 {block}); the kernel would have reclaimed first.",
                many(free, "free page"),
                case.frame.map_or(0, |f| self.pfn(f)),
            )],
            Happened::Slow(Slow::Waited(lack)) => {
                let end = match (case.took_ns, case.frame) {
                    (Some(ns), Some(f)) => format!(
                        "It waited {} until later frees supplied PFN {:#x} (pageblock {block}).",
                        duration(ns),
                        self.pfn(f)
                    ),
                    _ => "It still waited when the trace ended.".to_owned(),
                };
                vec![lacks(lack), end]
            }
        }
    }

    fn effort(&self, case: &Case, start: &str) -> Option<String> {
        let e = case.effort;
        let mut parts = Vec::new();
        if e.reclaims > 0 {
            parts.push(format!(
                "{} ({} freed, {})",
                many(e.reclaims.into(), "direct reclaim"),
                many(e.reclaimed, "page"),
                duration(e.reclaim_ns)
            ));
        }
        if e.compactions > 0 {
            parts.push(many(e.compactions.into(), "direct compaction"));
        }
        let took = case.took_ns.map_or(String::new(), |ns| format!(", {} in all", duration(ns)));
        (!parts.is_empty()).then(|| format!("{start} {}{took}.", parts.join(" and ")))
    }

    /// Says what the pageblock's types were, and which requests hold its pages.
    fn details(&self, case: &Case) -> Vec<String> {
        let Some(place) = &case.place else { return Vec::new() };
        let whole = case.frame.is_some()
            && !matches!(case.happened, Happened::Slow(Slow::Effort | Slow::Waited(_)));
        let first = self.pfn(place.first);
        let mut lines = Vec::new();
        if !whole {
            lines.push(format!(
                "Closest to a free block of order {}: PFN {first:#x} to {:#x} (pageblock {}).",
                case.order,
                first + u64::from(place.pages) - 1,
                first >> 9
            ));
        }
        lines.push(format!("Types: {}.", self.types(place)));
        let other = if whole { "Other pages of the pageblock" } else { "Its pages" };
        self.users(&mut lines, other, place);
        if let Some((blocks, own)) = &case.own {
            let t = type_name(case.wanted);
            match blocks {
                0 => lines.push(format!("No pageblock of the zone was {t}.")),
                n => {
                    let of = format!("The zone's {}", many((*n).into(), &format!("{t} pageblock")));
                    self.users(&mut lines, &of, own);
                }
            }
        }
        lines
    }

    /// Says how pages are used.
    fn users(&self, lines: &mut Vec<String>, what: &str, place: &Place) {
        let in_use = if place.users.is_empty() { ", none in use." } else { "; in use:" };
        let Place { free, listed, .. } = place;
        let (free, listed) = (grouped((*free).into()), grouped((*listed).into()));
        lines.push(format!("{what}: {free} free, {listed} on per-CPU lists{in_use}"));
        lines.extend(place.users.iter().map(|u| format!("  {}", self.user(u))));
        if place.more_users.0 > 0 {
            let (groups, pages) = place.more_users;
            let (pages, groups) = (many(pages.into(), "page"), many(groups.into(), "other user"));
            lines.push(format!("  {pages} by {groups}"));
        }
    }

    pub(super) fn types(&self, place: &Place) -> String {
        let each = |at: &TypeAt| {
            let name = type_name(at.migratetype);
            let when = seconds(at.t_ns);
            match at.how {
                How::Start => format!("{name} when recording began"),
                How::Claimed(Some(task)) => {
                    format!("{name} from {when}, claimed for {}", self.task(task))
                }
                How::Claimed(None) => format!("{name} from {when}, claimed"),
                How::Shown => format!("{name} by {when}, without a recorded claim"),
            }
        };
        let mut all: Vec<String> = place.types.iter().map(each).collect();
        if place.more_types > 0 {
            all.insert(0, format!("{} earlier", many(place.more_types.into(), "change")));
        }
        all.join("; ")
    }

    fn user(&self, user: &User) -> String {
        let pages = many(user.pages.into(), "page");
        let Some((name, flags)) = user.request else {
            return if user.silent {
                format!("{pages} taken without an event (bulk requests have none)")
            } else {
                format!("{pages} allocated before the trace began (or no memory)")
            };
        };
        let tasks = match user.tasks {
            1 => format!("pid {}", user.pid),
            n => format!("{n} tasks, such as pid {}", user.pid),
        };
        let when = if user.first_ns == user.last_ns {
            format!("at {}", seconds(user.first_ns))
        } else {
            format!("from {} to {}", seconds(user.first_ns), seconds(user.last_ns))
        };
        let t = Gfp::from_bits_retain(flags).migrate_type().unwrap_or(MigrateType::Unmovable);
        format!(
            "{pages} by {} ({tasks}), {t} ({}), allocated {when}",
            printable(self.names.name(name)),
            gfp::to_names(flags)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_blanks_and_stay_indented() {
        let long = format!("  {}", "word ".repeat(60).trim_end());
        let text = wrapped(&long);
        assert!(text.lines().count() > 2);
        for (i, line) in text.lines().enumerate() {
            assert!(line.len() <= WIDTH && !line.ends_with(' '));
            let indent = if i == 0 { 8 } else { 10 };
            assert_eq!(line.len() - line.trim_start().len(), indent, "{line}");
        }
        assert_eq!(text.split_whitespace().count(), 60);
        assert_eq!(wrapped("short"), "      short\n");
        // A word that is too long stands on its own line.
        assert!(wrapped(&"x".repeat(200)).lines().count() == 1);
    }

    #[test]
    fn times_and_numbers_have_units() {
        assert_eq!(seconds(224_299_241_999), "224.299241 s");
        assert_eq!((many(1, "page"), many(0, "page")), ("1 page".into(), "0 pages".into()));
    }
}
