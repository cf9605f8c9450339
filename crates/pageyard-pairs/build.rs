//! Says to the core's files that they are compiled for the exploration of pairs.

fn main() {
    println!("cargo::rustc-cfg=pageyard_pairs");
    println!("cargo::rerun-if-changed=build.rs");
}
