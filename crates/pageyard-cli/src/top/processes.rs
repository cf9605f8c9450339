//! The processes that have yards.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use pageyard_host::{YardStats, publishers};
use pageyard_lab::format::pages;
use pageyard_trace::printable;
use serde::Serialize;

use super::read::read;
use crate::output::{self, Outcome, print_json, say};

/// A process that publishes statistics; sizes are sums over its yards, in pages.
#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    /// The name that the system shows for it.
    name: String,
    yards: usize,
    pages: u64,
    used: u64,
    resident: u64,
    /// The highest pressure level of its yards.
    level: String,
    /// Time of the oldest figures, in nanoseconds of the monotonic clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_ns: Option<u64>,
    /// Why its statistics cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct List {
    processes: Vec<Process>,
    /// Number of processes that could not be examined.
    denied: usize,
}

impl Process {
    fn read(pid: u32) -> Process {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = printable(String::from_utf8_lossy(&name).trim_end()).into_owned();
        Process::of(pid, name, read(pid).map_err(|e| e.to_string()))
    }

    /// The yards are untrusted, so sums may be too large.
    fn of(pid: u32, name: String, yards: Result<Vec<YardStats>, String>) -> Process {
        let (yards, error) = match yards {
            Ok(yards) => (yards, None),
            Err(e) => (Vec::new(), Some(printable(&e).into_owned())),
        };
        let sum = |of: fn(&YardStats) -> u64| yards.iter().map(of).fold(0, u64::saturating_add);
        let known = ["calm", "moderate", "critical"];
        let rank = |y: &&YardStats| known.iter().position(|l| *l == y.level);
        Process {
            pid,
            name,
            yards: yards.len(),
            pages: sum(|y| y.pages),
            used: sum(|y| y.used),
            resident: sum(|y| y.resident),
            level: yards.iter().max_by_key(rank).map_or("-".into(), |y| y.level.clone()),
            at_ns: yards.iter().map(|y| y.at_ns).min(),
            error,
        }
    }
}

/// Prints the processes.
pub(super) fn list(json: bool) -> Outcome {
    let found = publishers().map_err(|e| format!("/proc: {e}"))?;
    let processes = found.pids.into_iter().map(Process::read).collect();
    let list = List { processes, denied: found.denied };
    if json {
        print_json(&list)?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&mut output::stdout(), &list.processes)?;
    if list.denied > 0 {
        say!("pageyard: {} processes of other users were not examined; run as root", list.denied);
    }
    Ok(ExitCode::SUCCESS)
}

fn print(out: &mut impl Write, processes: &[Process]) -> io::Result<()> {
    if processes.is_empty() {
        return writeln!(out, "no process publishes statistics of yards");
    }
    let head = ["PID", "name", "yards", "size", "in use", "resident", "pressure"];
    let mut rows = vec![head.map(String::from)];
    for p in processes {
        let (size, used, resident) = (pages(p.pages), pages(p.used), pages(p.resident));
        let level = p.level.clone() + &p.at_ns.map(super::read::age).unwrap_or_default();
        let (pid, yards) = (p.pid.to_string(), p.yards.to_string());
        rows.push([pid, p.name.clone(), yards, size, used, resident, level]);
    }
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let w: [usize; 7] = std::array::from_fn(width);
    for (i, r) in rows.iter().enumerate() {
        let [pid, name, yards, size, used, resident, level] = r;
        write!(out, "{pid:>0$}  {name:<1$}  {yards:>2$}  {size:>3$}", w[0], w[1], w[2], w[3])?;
        write!(out, "  {used:>0$}  {resident:>1$}  ", w[4], w[5])?;
        let error = i.checked_sub(1).and_then(|i| processes[i].error.as_ref());
        writeln!(out, "{}", error.unwrap_or(level))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(processes: &[Process]) -> String {
        let mut out = Vec::new();
        print(&mut out, processes).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_process_is_the_sum_of_its_yards() {
        let yard = |used, level: &str| YardStats {
            pages: 16384,
            used,
            resident: used.saturating_mul(2),
            level: level.into(),
            at_ns: u64::MAX,
            ..YardStats::default()
        };
        let yards = vec![yard(256, "critical"), yard(u64::MAX, "calm"), yard(1, "\\u{1b}")];
        let many = Process::of(77, "database".into(), Ok(yards[..1].to_vec()));
        assert_eq!((many.yards, many.used, many.level.as_str()), (1, 256, "critical"));
        let most = Process::of(8, "x".into(), Ok(yards));
        assert_eq!((most.used, most.level.as_str()), (u64::MAX, "critical"));
        let wrong = Process::of(9, "y".into(), Err("/proc/9/fd/3: version 9".into()));
        assert_eq!(
            text(&[many, wrong]),
            "PID  name      yards    size  in use  resident  pressure\n \
             77  database      1  64 MiB   1 MiB     2 MiB  critical\n  \
             9  y             0     0 B     0 B       0 B  /proc/9/fd/3: version 9\n"
        );
        assert_eq!(text(&[]), "no process publishes statistics of yards\n");
    }
}
