//! Sets the `cfg` under which the core's files are compiled for shuttle.

fn main() {
    println!("cargo::rustc-cfg=pageyard_shuttle");
    println!("cargo::rerun-if-changed=build.rs");
}
