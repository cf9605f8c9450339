//! The pattern in free memory, and what its damage says (spec §11.4). Pure functions over bytes:
//! the memory is the embedder's.

/// What every byte of free memory holds.
pub const POISON_BYTE: u8 = 0xaa;

/// How the pattern was damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Offset of the first byte that differs, from the start of what was inspected.
    pub first: usize,
    /// Offset of the last one.
    pub last: usize,
    /// Exactly one byte differs, in exactly one bit: rather failing memory than a stray write.
    pub single_bit: bool,
}

/// Fills memory with the pattern.
pub fn fill(bytes: &mut [u8]) {
    bytes.fill(POISON_BYTE);
}

/// Looks for damage to the pattern; `None` where there is none.
pub fn inspect(bytes: &[u8]) -> Option<Corruption> {
    // Nearly always there is none: by pieces without a branch in them, which compilers make wide.
    let damaged = |piece: &[u8]| piece.iter().fold(0, |d, &b| d | b ^ POISON_BYTE) != 0;
    if !bytes.chunks(64).any(damaged) {
        return None;
    }
    let first = bytes.iter().position(|&b| b != POISON_BYTE)?;
    let last = bytes.iter().rposition(|&b| b != POISON_BYTE)?;
    let flipped = bytes.get(first).map_or(0, |b| b ^ POISON_BYTE);
    Some(Corruption { first, last, single_bit: first == last && flipped.is_power_of_two() })
}
