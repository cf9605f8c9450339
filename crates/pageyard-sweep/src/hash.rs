//! Content hashes: SHA-256, as hexadecimal digits.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};

fn digits(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hash of these bytes.
///
/// ```
/// assert!(pageyard_sweep::hash_of(b"abc").starts_with("ba7816bf"));
/// ```
pub fn hash_of(bytes: &[u8]) -> String {
    digits(&Sha256::digest(bytes))
}

/// Returns the hash of a file's content, and the size of the file.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn hash_of_file(path: &Path) -> io::Result<(String, u64)> {
    hash_of_input(&mut File::open(path)?)
}

/// Returns the hash of the rest of an input, and its size.
pub(crate) fn hash_of_input(file: &mut File) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 18];
    let mut size = 0;
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok((digits(&hash.finalize()), size));
        }
        hash.update(&buffer[..n]);
        size += n as u64;
    }
}
