// The corpora of the fuzzers, for tests on stable.

/// A file of `fuzz/corpus`, decompressed.
pub(crate) fn read(name: &str) -> Vec<u8> {
    // The folder of the package that includes this file.
    let path = format!("{}/../../fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    if name.ends_with(".zst") { zstd::decode_all(&bytes[..]).unwrap() } else { bytes }
}
