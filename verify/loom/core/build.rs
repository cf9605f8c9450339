//! Says to the core's files that they are compiled for loom.

fn main() {
    println!("cargo::rustc-cfg=pageyard_loom");
    println!("cargo::rustc-check-cfg=cfg(pageyard_loom, pageyard_pairs, pageyard_shuttle)");
    println!("cargo::rerun-if-changed=build.rs");
}
