//! The clean-up of 2009 (A.2), idea by idea: how many instructions and branches each idea saves,
//! measured against today's core. Nothing is simulated: the program runs itself under callgrind,
//! once with a number of operations and once with none, and takes the difference.

mod callgrind;
mod hot;

use std::ffi::OsStr;
use std::path::Path;
use std::thread;

use self::callgrind::{Counts, Failed};
use self::hot::{PATTERNS, Pattern, VARIANTS};
use super::agree::{Column, Kind};
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Claim, Comparison, Outcome, SIDES};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: NAME,
    summary: "table look-ups, flags computed once, a separate fast path, no checks: a shorter hot \
              path",
    source: "A.2",
    simulated: false,
    anchors: &[],
    run,
};

const NAME: &str = "fast-path";

/// The subcommand of the `pageyard` program that runs [`exercise`].
pub const COMMAND: &str = "hot-path";

/// Published: the share of the sanity checks in the allocation path, in percent.
const CHECKS: f64 = 10.0;
/// The largest deviation at which a share still counts as "about" the published one, in percentage
/// points.
const ABOUT: f64 = 1.5;
/// The practical band: smaller savings, relative to the path, do not count.
const BAND: f64 = 0.01;

/// Runs a named pattern with a named variant of the core: `size` operations to warm up, then `n`
/// operations, at most `size`. For counting by callgrind; prints nothing.
///
/// # Errors
/// Returns [`ReproduceError::Count`], which lists the known names, or [`ReproduceError::Init`].
pub fn exercise(variant: &str, pattern: &str, size: usize, n: usize) -> Result<(), ReproduceError> {
    let unknown = |what: &str, name: &str, known: Vec<&str>| {
        ReproduceError::Count(format!(
            "unknown {what} {name}; expected one of {}",
            known.join(", ")
        ))
    };
    let v = VARIANTS
        .iter()
        .find(|v| v.name == variant)
        .ok_or_else(|| unknown("variant", variant, VARIANTS.iter().map(|v| v.name).collect()))?;
    let (_, p) = PATTERNS
        .iter()
        .find(|p| p.0 == pattern)
        .ok_or_else(|| unknown("pattern", pattern, PATTERNS.iter().map(|p| p.0).collect()))?;
    Ok((v.exercise)(*p, size, n)?)
}

/// Kills the programs that this experiment started, and prevents it from starting others. For a
/// program that is about to exit.
pub fn stop() {
    callgrind::stop();
}

/// Instructions and branches per operation: by variant, then by pattern.
type Figures = Vec<Vec<[f64; 2]>>;

/// The patterns that were counted.
fn patterns(figures: &Figures) -> &'static [(&'static str, Pattern)] {
    &PATTERNS[..figures[0].len()]
}

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let unavailable = |why: String| ReproduceError::Unavailable { experiment: NAME, why };
    let Some(program) = run.options.program.clone() else {
        return Err(unavailable("only the pageyard program can count its own instructions".into()));
    };
    let patterns = match run.options.scale {
        Scale::Full => &PATTERNS[..],
        // Those of the claims.
        Scale::Small => &PATTERNS[..2],
    };
    let mut figures = Figures::new();
    let all = (VARIANTS.len() * patterns.len()) as u64;
    for (i, variant) in VARIANTS.iter().enumerate() {
        let mut row = Vec::new();
        for (j, (pattern, _)) in patterns.iter().enumerate() {
            run.progress("callgrind", (i * patterns.len() + j) as u64, all);
            let size = match (run.options.scale, pattern.starts_with("pair")) {
                (Scale::Full, false) => 65536,
                (Scale::Small, false) => 8192,
                (Scale::Full, true) => 4096,
                (Scale::Small, true) => 256,
            };
            let counted = &|n| count(&program, variant.name, pattern, size, n);
            // Counts do not depend on concurrent programs.
            let [some, none] =
                thread::scope(|s| [size, 0].map(|n| s.spawn(move || counted(n))).map(|t| t.join()))
                    .map(|t| t.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            let each = some.and_then(|some| Ok(some.each(none?, size)));
            row.push(each.map_err(|e| {
                match e {
                Failed::NoValgrind => unavailable(
                    "valgrind, which counts the instructions, is not installed; apt-get install \
                     valgrind"
                        .into(),
                ),
                Failed::Run(why) => ReproduceError::Count(why),
            }
            })?);
        }
        figures.push(row);
    }
    Ok(outcome(&figures, !cfg!(debug_assertions)))
}

fn count(
    program: &Path,
    variant: &str,
    pattern: &str,
    size: u64,
    n: u64,
) -> Result<Counts, Failed> {
    // Pad both numbers to the same number of digits, since parsing them is counted too.
    let arguments = [COMMAND, variant, pattern, &format!("{size:06}"), &format!("{n:06}")];
    callgrind::count(OsStr::new("valgrind"), program, &arguments.map(String::from))
}

/// Computes the outcome. `optimised`: whether the build's counts are meaningful.
fn outcome(figures: &Figures, optimised: bool) -> Outcome {
    let [instructions, branches] = [0, 1].map(|quantity| table(figures, quantity));
    let patterns = patterns(figures);
    let shares: Vec<_> = (0..patterns.len()).map(|p| share(figures, p)).collect();
    let checks = Comparison {
        title: "checks: share of the checked path's instructions".into(),
        world: WORLD.into(),
        command: String::new(),
        sides: SIDES,
        rows: patterns.iter().map(|p| p.0.to_owned()).collect(),
        columns: vec![Column::new(
            "share",
            "%",
            Kind::Plain,
            &patterns.iter().map(|p| (p.0 == ALLOCATION).then_some(CHECKS)).collect::<Vec<_>>(),
            &shares.iter().map(|&s| Some(s)).collect::<Vec<_>>(),
        )],
    };
    let mut claims: Vec<Claim> = IDEAS.iter().map(|i| i.claim(figures, optimised)).collect();
    let found = patterns.iter().position(|p| p.0 == ALLOCATION).map_or(0.0, |p| shares[p]);
    let factor = (found / CHECKS).max(CHECKS / found);
    claims.push(Claim {
        text: "sanity checks are about 1/10 of the allocation path".into(),
        found: format!("{found:.0}% of {ALLOCATION}"),
        holds: optimised.then_some(factor <= ABOUT),
    });
    let mut notes = vec![NOTE.to_owned()];
    if !optimised {
        notes.push(
            "This build is not optimised, so its counts are meaningless. Build with --release."
                .into(),
        );
    }
    Outcome { tables: vec![instructions, branches, checks], claims, notes }
}

const WORLD: &str = "counted by callgrind on this build";
const ALLOCATION: &str = "alloc-64k";
const NOTE: &str = "Not simulated. Today's core contains every idea. Each other row adds the work \
                    that one idea saves, around the core's calls; the last row adds all of it. \
                    Order and flags are unknown to the compiler. A pair is one operation, and \
                    the loop around it is counted. Without a fast path every request takes the \
                    path for rare cases, which is not optimised: an upper bound of what the \
                    idea saves. The path of 2009 was about ten times as long as today's core \
                    (Linux 6.12.117 itself takes 834 instructions for a hot pair), so shares of \
                    it differ from shares of this one. The times published with the series \
                    (compile workload, tbench, hackbench, sysbench) require a whole kernel.";

/// An idea: the variant without it, and the variant to compare that with.
struct Idea {
    without: &'static str,
    with: &'static str,
    text: &'static str,
}

const IDEAS: [Idea; 4] = [
    Idea {
        without: "branches",
        with: "table",
        text: "a table instead of branches for a request's zone saves",
    },
    Idea {
        without: "flags-again",
        with: "today",
        text: "zone and type looked up once per request save",
    },
    Idea {
        without: "one-path",
        with: "today",
        text: "a fast path separate from the slow path \
               saves",
    },
    Idea {
        without: "type-again",
        with: "today",
        text: "the pageblock's type read once per free saves",
    },
];

impl Idea {
    /// Returns what the idea saves for a hot pair of order 0, the first pattern.
    fn claim(&self, figures: &Figures, optimised: bool) -> Claim {
        let of =
            |name| VARIANTS.iter().position(|v| v.name == name).map_or([0.0; 2], |v| figures[v][0]);
        let [with, without] = [of(self.with), of(self.without)];
        let saved = [without[0] - with[0], without[1] - with[1]];
        let part = saved[0] / without[0];
        Claim {
            text: self.text.into(),
            found: format!(
                "{:.1} instructions ({:.1}%) and {:.1} branches of {}",
                saved[0],
                100.0 * part,
                saved[1],
                PATTERNS[0].0
            ),
            holds: optimised.then_some(part > BAND && saved[1] >= 0.0),
        }
    }
}

fn table(figures: &Figures, quantity: usize) -> Comparison {
    let columns = patterns(figures).iter().enumerate().map(|(p, (name, _))| {
        let ours: Vec<_> = figures.iter().map(|row| Some(row[p][quantity])).collect();
        Column::ours(*name, "", &ours)
    });
    let what = ["instructions", "conditional branches"][quantity];
    Comparison {
        title: format!("{what} of an operation"),
        world: WORLD.into(),
        command: String::new(),
        sides: SIDES,
        rows: VARIANTS.iter().map(|v| v.row.to_owned()).collect(),
        columns: columns.collect(),
    }
}

/// Returns the share of the checks in a pattern's instructions, for the path that has them, in
/// percent.
fn share(figures: &Figures, pattern: usize) -> f64 {
    let checks = VARIANTS.iter().position(|v| v.name == "checks").unwrap_or(0);
    let [without, with] = [figures[0][pattern][0], figures[checks][pattern][0]];
    100.0 * (with - without) / with
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation takes 100 instructions and 10 branches, plus what a variant adds.
    fn figures(added: [[f64; 2]; 8]) -> Figures {
        added.map(|[i, b]| vec![[100.0 + i, 10.0 + b]; PATTERNS.len()]).to_vec()
    }

    const SOME: [[f64; 2]; 8] = [
        [0.0, 0.0],
        [3.0, 1.0],
        [3.5, 3.0],
        [10.0, 1.0],
        [100.0, 9.0],
        [5.0, -1.0],
        [10.0, 2.0],
        [300.0, 20.0],
    ];

    #[test]
    fn an_ideas_saving_is_the_extra_cost_without_it() {
        let o = outcome(&figures(SOME), true);
        let holds: Vec<_> = o.claims.iter().map(|c| c.holds).collect();
        // Half an instruction of a hundred is below the band; more branches without it are no
        // saving.
        assert_eq!(holds, [Some(false), Some(true), Some(true), Some(false), Some(true)]);
        assert!(o.claims[2].found.starts_with("100.0 instructions (50.0%) and 9.0 branches"));
        assert_eq!(o.tables[0].rows.len(), VARIANTS.len());
        assert_eq!(o.tables[1].columns[0].ours[7], Some(30.0));
    }

    #[test]
    fn a_claim_of_a_tenth_has_a_tolerance() {
        let share = |checks: f64| {
            let mut added = SOME;
            added[6][0] = checks;
            let o = outcome(&figures(added), true);
            let ours = o.tables[2].columns[0].ours[1].unwrap();
            (ours.round() as i64, o.claims.last().unwrap().holds.unwrap())
        };
        assert_eq!(share(100.0 / 9.0), (10, true));
        assert_eq!(share(25.0), (20, false));
        assert_eq!(share(4.0), (4, false));
        assert_eq!(share(0.0), (0, false));
    }

    #[test]
    fn an_unoptimised_build_makes_no_claims() {
        let o = outcome(&figures(SOME), false);
        assert!(o.claims.iter().all(|c| c.holds.is_none()));
        assert!(o.notes.iter().any(|n| n.contains("--release")));
    }

    #[test]
    fn unknown_names_are_reported() {
        let e = exercise("tomorrow", "pair-4k", 1, 1).unwrap_err().to_string();
        assert!(e.contains("tomorrow") && e.contains("type-again"), "{e}");
        let e = exercise("today", "pair-3k", 1, 1).unwrap_err().to_string();
        assert!(e.contains("pair-3k") && e.contains("free-in-order"), "{e}");
    }
}
