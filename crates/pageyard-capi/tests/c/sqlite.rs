//! SQLite with its page cache on a yard gives the same answers, as an unmodified program.

use std::path::Path;
use std::process::{Command, Stdio};

use pageyard_unmet::{is_emulated, met, program};

use super::here;
use super::install::{prefix, run};

/// More pages than the cache may hold, deletions, a rollback, truncation, and an in-memory table.
pub(crate) const SCRIPT: &str = "
PRAGMA cache_size = 200;
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
    INSERT INTO t SELECT i, printf('%040d', i * 7919 % 20000), i % 97 FROM n;
CREATE INDEX by_b ON t(b);
CREATE INDEX by_c ON t(c, b);
UPDATE t SET b = b || 'x' WHERE a % 5 = 0;
BEGIN;
DELETE FROM t WHERE a % 3 = 0;
ROLLBACK;
DELETE FROM t WHERE a % 7 = 0;
VACUUM;
PRAGMA page_size = 16384;
VACUUM;
CREATE TEMP TABLE u AS SELECT * FROM t ORDER BY b DESC;
SELECT count(*), sum(c), max(b), total(length(b)) FROM u;
SELECT c, count(*) FROM t GROUP BY c ORDER BY 2 DESC, 1 LIMIT 5;
PRAGMA integrity_check;
.dump
";

fn answers(preload: Option<&Path>) -> (String, String) {
    let name = if preload.is_some() { "sqlite-yard" } else { "sqlite-own" };
    // A folder of its own, without a journal that an interrupted run may have left.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg("-bail").arg(folder.join("test.db")).stdin(Stdio::piped());
    sqlite.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(library) = preload {
        sqlite.env("LD_PRELOAD", library).env("PAGEYARD_SQLITE_STATS", "1");
        sqlite.env("PAGEYARD_SQLITE_MIB", "64").env("LD_LIBRARY_PATH", prefix().join("lib"));
    }
    let mut child = sqlite.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), SCRIPT.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn sqlite_results_are_unchanged_with_a_yard_page_cache() {
    if !met("programs for this processor, which is emulated", !is_emulated()) {
        return;
    }
    let header = Path::new("/usr/include/sqlite3.h").exists();
    if !met("sqlite3.h (apt-get install libsqlite3-dev)", header) || !program("sqlite3", "sqlite3")
    {
        return;
    }
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pcache.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]);
    compiler.arg(here().join("examples/sqlite_pcache.c")).arg("-o").arg(&library);
    compiler.arg("-I").arg(prefix().join("include")).arg("-L").arg(prefix().join("lib"));
    run(compiler.args(["-lpageyard", "-lsqlite3"]));

    let (own, _) = answers(None);
    let (yard, said) = answers(Some(&library));
    assert!(own.contains("\nok\n") && own.contains("INSERT INTO t VALUES"), "{own:.2000}");
    assert!(own == yard, "the answers differ: {yard:.2000}");
    // "pageyard: N blocks handed out, 0 still in use, ..."
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words[0] == "pageyard:" && words[1].parse::<u64>().unwrap() > 500, "{said}");
    assert!(said.contains(" 0 still in use"), "{said}");
}
