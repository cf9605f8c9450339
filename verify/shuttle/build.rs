//! Says to the core's files that they are compiled for shuttle.

fn main() {
    println!("cargo::rustc-cfg=pageyard_shuttle");
    println!("cargo::rerun-if-changed=build.rs");
}
