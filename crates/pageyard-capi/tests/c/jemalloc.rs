//! jemalloc with its extents from a yard gives unmodified programs the same output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pageyard_unmet::{is_emulated, met, program};

use super::install::{prefix, run};
use super::{here, sqlite};

/// The library to preload; `None` if jemalloc is not installed.
fn library() -> Option<PathBuf> {
    if !met("programs for this processor, which is emulated", !is_emulated()) {
        return None;
    }
    let mut probe = Command::new("cc");
    probe.args(["-fsyntax-only", "-include", "jemalloc/jemalloc.h", "-x", "c", "/dev/null"]);
    let there = probe.output().is_ok_and(|o| o.status.success());
    if !met("jemalloc.h (apt-get install libjemalloc-dev)", there) {
        return None;
    }
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extents.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]);
    compiler.arg(here().join("examples/jemalloc_extents.c")).arg("-o").arg(&library);
    compiler.arg("-I").arg(prefix().join("include")).arg("-L").arg(prefix().join("lib"));
    run(compiler.args(["-lpageyard", "-ljemalloc"]));
    Some(library)
}

/// A program's output for this input; with the library, also the MiB of extents from the yard and
/// the number of extents from jemalloc.
fn output(program: &[&str], input: &[u8], library: Option<&Path>) -> (Vec<u8>, [u64; 2]) {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(library) = library {
        let lib = prefix().join("lib").display().to_string();
        let more = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
        // In this order, jemalloc's malloc comes before libc's.
        let preload = format!("libjemalloc.so.2:{}", library.display());
        command.env("LD_PRELOAD", preload).env("LD_LIBRARY_PATH", format!("{lib}:{more}"));
        command.env("MALLOC_CONF", "oversize_threshold:0"); // large ones too
        command.env("PAGEYARD_EXTENTS_STATS", "1").env("PAGEYARD_EXTENTS_MIB", "512");
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let done = std::thread::scope(|s| {
        s.spawn(move || stdin.write_all(input).unwrap());
        child.wait_with_output().unwrap()
    });
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program:?}: {said}");
    let number = |behind: &str| {
        let before = said.split(behind).next()?;
        before.rsplit(' ').next()?.parse().ok()
    };
    let counts = [" MiB,", " asked of jemalloc"].map(|b| number(b).unwrap_or(0));
    (done.stdout, counts)
}

#[test]
fn jemalloc_programs_run_on_extents_from_a_yard() {
    let Some(library) = library() else { return };
    // Unsorted, distinct lines.
    let lines: Vec<String> = (0u64..200_000)
        .map(|i| format!("{:020}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let text = lines.concat().into_bytes();
    let programs: [(&str, &[&str], &[u8], u64); 3] = [
        // Many small blocks.
        (
            "perl",
            &["perl", "-ne", "$n{$_} = $.; END { print map { \"$n{$_} $_\" } sort keys %n }"],
            &text,
            5,
        ),
        // Threads, with buffers larger than a block.
        ("xz-utils", &["xz", "-1", "-T4", "--block-size=1MiB", "-c"], &text, 25),
        ("sqlite3", &["sqlite3", ":memory:"], sqlite::SCRIPT.as_bytes(), 16),
    ];
    for (package, command, input, least) in programs {
        if !program(command[0], package) {
            continue;
        }
        let (own, _) = output(command, input, None);
        let (yard, [mib, refused]) = output(command, input, Some(&library));
        assert!(own == yard, "{command:?}: the output differs");
        assert!(own.len() > 100_000, "{command:?}: {} bytes", own.len());
        assert!(mib >= least && refused == 0, "{command:?}: {mib} and {refused}");
    }
}
