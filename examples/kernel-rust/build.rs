//! Passes the linker script of the target's processor.

fn main() {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let boot = concat!(env!("CARGO_MANIFEST_DIR"), "/../boot");
    println!("cargo:rustc-link-arg=-T{boot}/{arch}.ld");
    println!("cargo:rerun-if-changed={boot}");
}
