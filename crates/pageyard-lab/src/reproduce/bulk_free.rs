//! A bulk free in one pass instead of two (A.1): files removed from the page cache on two machines,
//! and page faults of up to four times as many processes as CPUs.
//!
//! Of its one-socket machine the mail says only that it is a Skylake; `1x28` represents it.

use super::agree::{Column, Kind};
use super::anchor;
use super::error::ReproduceError;
use super::experiment::{Experiment, Run, Scale};
use super::outcome::{Comparison, Outcome};
use super::simulated::Simulated;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "bulk-free",
    summary: "bulk frees in one pass: truncation 2% to 4% faster, scaling unchanged",
    source: "A.1",
    simulated: true,
    anchors: &[anchor::FAULT, anchor::FORGET],
    run,
};

/// Two passes; high-order pages not on the lists; one pass block by block, as in the kernel; and
/// one pass that frees neighbours as one, as in Pageyard, which has no published figure.
const POLICIES: [&str; 4] =
    ["TwoPassBulkFree<Base>", "TwoPassBulkFree<NoHighOrder<Base>>", "BlockByBlock<Base>", "Base"];
const STEPS: [&str; 4] = ["vanilla", "revert", "series", "pageyard"];

/// Milliseconds, arithmetic means of ten runs.
const TRUNC: [(&str, &str, [f64; 3]); 2] =
    [("1 socket", "1x28", [543.0, 530.0, 530.0]), ("2 sockets", "2x20", [529.0, 521.0, 510.0])];

/// Processes; pages per second before and after.
const FAULTS: [(u32, f64, f64); 16] = [
    (2, 2_694_662.26, 2_695_780.35),
    (5, 6_425_819.34, 6_435_544.57),
    (8, 9_642_169.10, 9_658_962.39),
    (12, 12_167_502.10, 12_190_163.79),
    (21, 15_636_859.03, 15_612_447.26),
    (30, 25_157_348.61, 25_169_456.65),
    (48, 27_694_013.85, 27_671_111.46),
    (79, 25_928_742.64, 25_934_202.02),
    (110, 25_730_869.75, 25_671_880.65),
    (141, 25_626_992.42, 25_629_551.61),
    (172, 25_611_651.35, 25_614_927.99),
    (203, 25_577_298.75, 25_583_445.59),
    (234, 25_580_686.07, 25_608_240.71),
    (265, 25_570_215.47, 25_568_647.58),
    (296, 25_549_488.62, 25_543_935.00),
    (320, 25_555_149.05, 25_575_696.74),
];

fn run(run: &mut Run<'_>) -> Result<Outcome, ReproduceError> {
    let mut outcome = Outcome::default();
    let small = run.options.scale == Scale::Small;
    for (name, machine, seed) in TRUNC {
        let files = if small { "1" } else { "10" };
        let trunc = Simulated {
            workload: "trunc",
            machine,
            policies: &POLICIES,
            set: &[("files", files)],
            ..Simulated::default()
        };
        let found = trunc.run(run, &format!("trunc, {name}"))?;
        let mut seed = seed.map(Some).to_vec();
        seed.push(None);
        let time = found.column("time", "", Kind::Index, "time", &seed);
        let title = format!("trunc, {name}: time to remove the files");
        outcome.tables.push(found.compare(title, STEPS, vec![time]));
        run.show(&outcome.tables)?;
    }
    outcome.tables.push(faults(run, small)?);
    outcome.notes.push(
        "page_fault1: the claim is that nothing changes; the last column is series / vanilla."
            .into(),
    );
    Ok(outcome)
}

fn faults(run: &mut Run<'_>, small: bool) -> Result<Comparison, ReproduceError> {
    let points: Vec<_> = FAULTS.iter().filter(|p| !small || [2, 30, 79].contains(&p.0)).collect();
    let processes = points.iter().map(|p| p.0.to_string()).collect::<Vec<_>>().join(",");
    let pages = if small { "4096" } else { "32768" };
    let faults = Simulated {
        workload: "page_fault1",
        machine: "2x20",
        policies: &[POLICIES[0], POLICIES[2]],
        set: &[("processes", &processes), ("pages", pages)],
        ..Simulated::default()
    };
    let found = faults.run(run, "page_fault1")?;
    let rates: Vec<[Option<f64>; 2]> = points
        .iter()
        .map(|p| {
            let rates = found.means(&format!("rate-{}", p.0));
            [rates[0], rates[1]]
        })
        .collect();
    let column = |i: usize| rates.iter().map(|r| r[i]).collect::<Vec<_>>();
    let ratio = |a: Option<f64>, b: Option<f64>| Some(100.0 * b? / a?);
    let seed =
        |f: fn(&(u32, f64, f64)) -> f64| points.iter().map(|p| Some(f(p))).collect::<Vec<_>>();
    let columns = vec![
        Column::new("vanilla", "pages/s", Kind::Plain, &seed(|p| p.1), &column(0))
            .anchored_at(&[0]),
        Column::new("series", "pages/s", Kind::Plain, &seed(|p| p.2), &column(1)).anchored_at(&[0]),
        Column::new(
            "change",
            "%",
            Kind::Plain,
            &seed(|p| 100.0 * p.2 / p.1),
            &rates.iter().map(|r| ratio(r[0], r[1])).collect::<Vec<_>>(),
        ),
    ];
    let rows = points.iter().map(|p| p.0);
    Ok(found.compare("page_fault1 on 80 CPUs: pages/s", rows, columns))
}
