//! Sets the `cfg` under which the core's files are compiled for the exploration of pairs.

fn main() {
    println!("cargo::rustc-cfg=pageyard_pairs");
    println!("cargo::rerun-if-changed=build.rs");
}
