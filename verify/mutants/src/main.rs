//! Mutation tests: each mutant is one small change of the code that some test must detect.
//!
//! All mutants are compiled into one build, in a copy of the repository. An environment variable
//! selects one when a test runs. A mutant is run against the tests that reach it until one fails.

mod build;
mod error;
mod list;
mod record;
mod rewrite;
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use build::{Left, Tree};
use error::Result;
use list::Mutant;
use record::{Record, Verdict};
use tests::{End, Test, Tried};

const HELP: &str = "\
Compiles the mutants of the core's lists and request paths and of the host's thread cache and background work into one build, and
tries them. scripts/mutants.tsv records what was found.

Usage: scripts/mutants.sh [OPTIONS] [FILE]...

  FILE            a file's name (pcp, compact/pass) or a folder's (compact); all unless given
  --again         try survivors that have no reason again
  --seconds N     run tests of N seconds for each mutant [default: 60]
  --minutes N     begin nothing new after that time
  --summary       print what was found so far, by file
  -h, --help      print this
";

/// Files whose mutants are tested.
const FILES: &[&str] = &[
    "crates/pageyard/src/request/alloc.rs",
    "crates/pageyard/src/zone/area.rs",
    "crates/pageyard/src/zone/buddy.rs",
    "crates/pageyard/src/ranges/compact/*.rs",
    "crates/pageyard/src/ranges/contig.rs",
    "crates/pageyard/src/request/free.rs",
    "crates/pageyard/src/ranges/hotplug.rs",
    "crates/pageyard/src/ranges/isolate.rs",
    "crates/pageyard/src/ranges/migrate.rs",
    "crates/pageyard/src/ranges/place.rs",
    "crates/pageyard/src/request/slow_path.rs",
    "crates/pageyard/src/zone/mobility.rs",
    "crates/pageyard/src/request/cached.rs",
    "crates/pageyard/src/pcp/tuning.rs",
    "crates/pageyard/src/base/watermark.rs",
    "crates/pageyard/src/packed/bits.rs",
    "crates/pageyard/src/packed/blocks.rs",
    "crates/pageyard/src/packed/blocks/*.rs",
    "crates/pageyard/src/packed/cpu.rs",
    "crates/pageyard/src/packed/domain.rs",
    "crates/pageyard/src/packed/isolation.rs",
    "crates/pageyard/src/packed/label.rs",
    "crates/pageyard/src/packed/notes.rs",
    "crates/pageyard/src/packed/place.rs",
    "crates/pageyard/src/packed/refill.rs",
    "crates/pageyard/src/packed/region.rs",
    "crates/pageyard/src/packed/route.rs",
    "crates/pageyard/src/packed/set.rs",
    "crates/pageyard/src/packed/free_set_apart.rs",
    "crates/pageyard/src/packed/set_apart.rs",
    "crates/pageyard/src/packed/stack.rs",
    "crates/pageyard/src/packed/steps.rs",
    "crates/pageyard/src/packed/storage.rs",
    "crates/pageyard-host/src/roster.rs",
    "crates/pageyard-host/src/wake_event.rs",
    "crates/pageyard-host/src/wake_flag.rs",
    "crates/pageyard-host/src/thread_cache.rs",
    "crates/pageyard-host/src/give_back.rs",
    "crates/pageyard-host/src/magazine.rs",
    "crates/pageyard-host/src/movable.rs",
    "crates/pageyard-host/src/relocate.rs",
    "crates/pageyard-host/src/usage.rs",
    "crates/pageyard-host/src/worker.rs",
];
const PACKAGES: &[&str] = &[CORE_PACKAGE, HOST_PACKAGE];
const CORE_PACKAGE: &str = "pageyard";
const HOST_PACKAGE: &str = "pageyard-host";
const HOST: &str = "crates/pageyard-host/";

/// Excluded programs: tests without libtest.
const SKIPPED_PROGRAMS: &[&str] = &["exit"];
/// Tests that take longer than this are not used.
const LONGEST: Duration = Duration::from_secs(10);

struct Options {
    files: Vec<String>,
    again: bool,
    summary: bool,
    budget: Duration,
    limit: Duration,
}

fn options() -> Result<Option<Options>> {
    let mut options = Options {
        files: Vec::new(),
        again: false,
        summary: false,
        budget: Duration::from_secs(60),
        limit: Duration::MAX,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--again" => options.again = true,
            "--summary" => options.summary = true,
            "--seconds" | "--minutes" => {
                let value = arguments.next().ok_or(format!("{argument}: a number is missing"))?;
                let number: u64 =
                    value.parse().map_err(|_| format!("{argument}: not a number: {value}"))?;
                match &*argument {
                    "--seconds" => options.budget = Duration::from_secs(number),
                    _ => options.limit = Duration::from_secs(60 * number),
                }
            }
            "-h" | "--help" => return Ok(None),
            _ if argument.starts_with('-') => {
                return Err(format!("unknown option {argument}; see --help").into());
            }
            _ => options.files.push(argument),
        }
    }
    Ok(Some(options))
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mutants: {error}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<()> {
    let Some(options) = options()? else {
        print!("{HELP}");
        return Ok(());
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let path = root.join("scripts/mutants.tsv");
    let mut record = Record::read(&path)?;
    if options.summary {
        print!("{}", record.summary());
        return Ok(());
    }
    let start = Instant::now();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let work = target.join("mutants");
    let mutants = list::list(&root, PACKAGES, FILES)?;
    record.keep(&mutants.iter().map(|mutant| &*mutant.name).collect());

    let mut tree = Tree {
        root: &root,
        tree: work.join("tree"),
        mutants: &mutants,
        left: BTreeMap::new(),
        constant: HashSet::new(),
    };
    for (number, mutant) in mutants.iter().enumerate() {
        match record.get(&mutant.name) {
            Some(Verdict::Unviable) => tree.left.insert(number, Left::Unviable),
            _ => None,
        };
    }
    std::fs::create_dir_all(&tree.tree)?;
    // Known from the last build. Without this, the files would be rewritten and compiled again.
    let constant_functions = work.join("constant-functions");
    if let Ok(names) = std::fs::read_to_string(&constant_functions) {
        tree.constant.extend(names.lines().map(str::to_owned));
    }
    tree.copy()?;
    if let Some(file) = options.files.iter().find(|f| !mutants.iter().any(|m| is_of(&m.file, f))) {
        return Err(format!("{file}: no file or folder of this name has mutants").into());
    }
    let is_chosen = |mutant: &Mutant| {
        options.files.is_empty() || options.files.iter().any(|file| is_of(&mutant.file, file))
    };
    // Only the packages whose tests are wanted: they take long to build.
    let wants = |host| mutants.iter().any(|m| is_chosen(m) && m.file.starts_with(HOST) == host);
    let packages: Vec<&str> = [(false, CORE_PACKAGE), (true, HOST_PACKAGE)]
        .into_iter()
        .filter_map(|(host, package)| wants(host).then_some(package))
        .collect();
    let built = tree.build(&packages, &work.join("build"));
    for (&number, left) in &tree.left {
        let verdict = match left {
            Left::Unviable => Verdict::Unviable,
            Left::Constant => Verdict::Constant,
        };
        record.set(&mutants[number].name, verdict);
    }
    record.write(&path)?;
    let mut programs = built?;
    std::fs::write(&constant_functions, Vec::from_iter(tree.constant).join("\n"))?;
    programs.retain(|program| !SKIPPED_PROGRAMS.contains(&&*program.target));

    let wanted: Vec<usize> = (0..mutants.len())
        .filter(|number| !tree.left.contains_key(number))
        .filter(|&number| {
            let mutant = &mutants[number];
            is_chosen(mutant)
                && match record.get(&mutant.name) {
                    None | Some(Verdict::Unviable | Verdict::Constant) => true,
                    Some(Verdict::Survived) => options.again && !record.is_explained(&mutant.name),
                    Some(_) => false,
                }
        })
        .collect();
    eprintln!("{} mutants, {} to try", mutants.len(), wanted.len());
    if wanted.is_empty() {
        print!("{}", record.summary());
        return Ok(());
    }
    // Host tests also run the core, but are used only for the host's mutants.
    for host in [false, true] {
        let of_group = |number: &&usize| mutants[**number].file.starts_with(HOST) == host;
        let wanted: Vec<usize> = wanted.iter().filter(of_group).copied().collect();
        if wanted.is_empty() {
            continue;
        }
        let programs = programs.iter().filter(|program| (program.package == HOST_PACKAGE) == host);
        let tried = tests::reach(programs, &mutants, LONGEST, &work)?;
        let tests: Vec<(&Tried<'_>, &Test)> = tried
            .iter()
            .flat_map(|tried| tried.tests.iter().map(move |test| (tried, test)))
            .collect();
        eprintln!("{} tests, after {} s", tests.len(), start.elapsed().as_secs());

        // Tests that detected the last mutants are likely to detect the next ones.
        let mut found_by = VecDeque::new();
        for (count, &number) in wanted.iter().enumerate() {
            if start.elapsed() > options.limit {
                break;
            }
            let same = |mutant: &Mutant| mutant.file == mutants[number].file;
            let first = mutants.iter().position(same).unwrap_or(number);
            let last = mutants.iter().rposition(same).unwrap_or(number);
            let verdict =
                attempt(number, &(first..last + 1), &tests, options.budget, &mut found_by)?;
            if verdict == Verdict::Survived {
                println!("survived: {}", mutants[number].place);
            }
            record.set(&mutants[number].name, verdict);
            if count % 20 == 0 {
                record.write(&path)?;
                eprintln!("{count} of {} after {} s", wanted.len(), start.elapsed().as_secs());
            }
        }
    }
    record.write(&path)?;
    print!("{}", record.summary());
    Ok(())
}

/// Returns whether `path` is the named file, or is in the named folder. A name may begin at any folder.
fn is_of(path: &str, name: &str) -> bool {
    let inner = path.split_once("/src/").map_or(path, |(_, inner)| inner);
    let inner = format!("/{}/", inner.strip_suffix(".rs").unwrap_or(inner));
    inner.contains(&format!("/{name}/"))
}

/// Tests one mutant with the tests that reach it, as many as the time budget allows but at least
/// one. Tests that recently detected a mutant run first. Of the others, those that are short come
/// first, that reach many of the file's mutants, and few of other files'.
fn attempt(
    number: usize,
    file: &Range<usize>,
    tests: &[(&Tried<'_>, &Test)],
    budget: Duration,
    found_by: &mut VecDeque<usize>,
) -> Result<Verdict> {
    let mut order: Vec<usize> =
        (0..tests.len()).filter(|&test| tests[test].1.reaches(number)).collect();
    order.sort_by_cached_key(|&test| {
        let recent = found_by.iter().position(|&other| other == test);
        let (reached, all) = tests[test].1.reached_of(file);
        let cost = tests[test].1.normal().as_nanos() * all / (reached * reached);
        (recent.unwrap_or(usize::MAX), cost)
    });
    let mut spent = Duration::ZERO;
    for test in order {
        if spent > budget {
            break;
        }
        spent += tests[test].1.normal();
        let verdict = match tests[test].0.run(tests[test].1, number)? {
            End::Passed => continue,
            End::Failed => Verdict::Killed,
            End::Stopped => Verdict::Timeout,
        };
        found_by.retain(|&other| other != test);
        found_by.push_front(test);
        found_by.truncate(8);
        return Ok(verdict);
    }
    Ok(Verdict::Survived)
}
