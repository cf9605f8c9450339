//! Examples of this package as programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of an example, which Cargo builds with all tests of a package. If only one test
/// was requested, the example may be missing or stale, so it is built now. `source`: its folder or
/// file in `examples`.
pub(crate) fn example(name: &str, source: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path = folder.join("examples").join(name);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |f: &Path| match f.read_dir() {
        Ok(all) => all.map(|f| f.unwrap().path()).collect(),
        Err(_) => vec![f.to_owned()],
    };
    let sources = [package.join("examples").join(source), package.join("src")];
    let age = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
    let newest = sources.iter().flat_map(|f| files(f)).filter_map(|f| age(&f)).max();
    if age(&path) < newest {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "-p", "pageyard-host", "--example", name]);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.current_dir(package).status().unwrap().success());
    }
    path
}
