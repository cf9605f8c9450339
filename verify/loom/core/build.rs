//! Sets the `cfg` under which the core's files are compiled for loom.

fn main() {
    println!("cargo::rustc-cfg=pageyard_loom");
    println!("cargo::rustc-check-cfg=cfg(pageyard_loom, pageyard_pairs, pageyard_shuttle)");
    println!("cargo::rerun-if-changed=build.rs");
}
