//! Checks that the imports between the files of each crate point one way.

use std::fs;
use std::path::{Path, PathBuf};

use pageyard_imports::{Crate, cycles};

/// Returns the root files of a crate: the library, the program, and further programs.
fn roots(package: &Path) -> Vec<PathBuf> {
    let src = package.join("src");
    let programs = fs::read_dir(src.join("bin")).into_iter().flatten().map(|e| e.unwrap().path());
    let roots = [src.join("lib.rs"), src.join("main.rs")].into_iter().chain(programs);
    roots.filter(|r| r.is_file()).collect()
}

#[test]
fn imports_point_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders =
        ["crates", "bench", "verify"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let mut packages: Vec<_> = folders.into_iter().flatten().map(|e| e.unwrap().path()).collect();
    packages.sort();
    let mut report = String::new();
    let mut imports = 0;
    for package in &packages {
        let name = package.file_name().unwrap().to_str().unwrap();
        for root in roots(package) {
            let c = Crate::read(&root, &|file| fs::read_to_string(file).ok());
            imports += c.imports().len();
            for cycle in cycles(&c, package) {
                report += &format!("{name} has a cycle:\n    {}\n", cycle.join("\n    "));
            }
        }
    }
    assert!(imports > 1000, "only {imports} imports found: the check does not see the sources");
    assert!(report.is_empty(), "{report}");
}
