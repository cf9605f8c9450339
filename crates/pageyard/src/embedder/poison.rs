//! The pattern in free memory, and detection of damage to it (spec §11.4). Pure functions over
//! bytes: the memory is the embedder's.

/// The value of every byte of free memory.
pub const POISON_BYTE: u8 = 0xaa;

/// Damage to the pattern.
///
/// ```
/// use pageyard::poison;
///
/// let mut page = [0; 4096];
/// poison::fill(&mut page);
/// page[100] ^= 1;
/// let damage = poison::inspect(&page).unwrap();
/// assert_eq!((damage.first, damage.last, damage.single_bit), (100, 100, true));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Corruption {
    /// Offset of the first byte that differs, from the start of the inspected memory.
    pub first: usize,
    /// Offset of the last byte that differs.
    pub last: usize,
    /// Exactly one byte differs, in exactly one bit: more likely failing memory than a stray write.
    pub single_bit: bool,
}

/// Fills memory with the pattern.
pub fn fill(bytes: &mut [u8]) {
    bytes.fill(POISON_BYTE);
}

/// Returns the damage to the pattern, or `None` if there is none.
pub fn inspect(bytes: &[u8]) -> Option<Corruption> {
    // Usually there is none, so chunks are tested without a branch in them, which compilers
    // vectorise.
    let damaged = |piece: &[u8]| piece.iter().fold(0, |d, &b| d | b ^ POISON_BYTE) != 0;
    if !bytes.chunks(64).any(damaged) {
        return None;
    }
    let first = bytes.iter().position(|&b| b != POISON_BYTE)?;
    let last = bytes.iter().rposition(|&b| b != POISON_BYTE)?;
    let flipped = bytes.get(first).map_or(0, |b| b ^ POISON_BYTE);
    Some(Corruption { first, last, single_bit: first == last && flipped.is_power_of_two() })
}
