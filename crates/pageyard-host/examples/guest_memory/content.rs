//! Page contents: words derived from a seed, so that the seed gives every byte.

use crate::PAGE;

const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a pseudorandom number.
pub(crate) fn mix(n: u64) -> u64 {
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

/// Expected content of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Zeros,
    /// Words from a seed.
    Seed(u64),
    /// The device's answer to those words.
    Answer(u64),
    /// The ring, which changes.
    Ring,
}

impl Content {
    pub(crate) fn write(self, page: &mut [u8; PAGE]) {
        let (Content::Seed(seed) | Content::Answer(seed)) = self else { return page.fill(0) };
        let mut n = seed;
        for word in page.as_chunks_mut().0 {
            n = n.wrapping_add(GAMMA);
            *word = mix(n).to_le_bytes();
        }
        if matches!(self, Content::Answer(_)) {
            work(page);
        }
    }
}

/// Transforms the words of a request, as the device does.
pub(crate) fn work(bytes: &mut [u8]) {
    for word in bytes.as_chunks_mut().0 {
        *word = (u64::from_le_bytes(*word).rotate_left(17) ^ GAMMA).to_le_bytes();
    }
}

/// Hashes bytes.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let step = |h: u64, word: &[u8; 8]| {
        (h ^ u64::from_le_bytes(*word)).wrapping_mul(GAMMA).rotate_left(29)
    };
    bytes.as_chunks().0.iter().fold(bytes.len() as u64, step)
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).collect()
}
