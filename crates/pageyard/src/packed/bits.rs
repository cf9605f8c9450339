//! Arithmetic on words of 64 frames, one bit per frame.

use core::ops::Range;

/// Words of a pageblock.
pub(crate) const WORDS: usize = 8;

/// Returns the bits of a block of at most 64 frames.
#[inline]
pub(crate) const fn block_mask(frame: u32, order: u8) -> u64 {
    let ones = if order >= 6 { !0 } else { (1u64 << (1u32 << order)) - 1 };
    ones << (frame & 63)
}

/// Returns the words of a range of frames, each with the bits of its frames.
pub(super) fn words_of_frames(frames: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    (frames.start / 64..frames.end.div_ceil(64)).map(move |word| {
        let from = frames.start.max(word * 64) - word * 64;
        let to = frames.end.min(word * 64 + 64) - word * 64;
        let low = if to == 64 { !0 } else { (1u64 << to) - 1 };
        (word, low & (!0u64 << from))
    })
}

/// The frames at which blocks of orders 1 to 6 begin.
const ALIGNED: [u64; 6] = [
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

/// Returns the heads of the aligned runs of 2^`order` set bits, for orders 0 to 6.
#[inline]
pub(crate) const fn run_heads(bits: u64, order: u8) -> u64 {
    let mut heads = bits;
    let mut o = 0;
    while o < order as usize && o < ALIGNED.len() {
        heads &= (heads >> (1 << o)) & ALIGNED[o];
        o += 1;
    }
    heads
}

/// Returns whether one of a pageblock's words has an aligned run of 2^`order` set bits, for orders 0 to
/// 6. As by [`run_heads`], for all words at once: a request that fails may ask it of every pageblock.
pub(crate) fn has_run(mut words: [u64; WORDS], order: u8) -> bool {
    for (step, _) in ALIGNED.iter().enumerate().take(order.into()) {
        for word in &mut words {
            *word &= *word >> (1u32 << step);
        }
    }
    let aligned = usize::from(order).checked_sub(1).and_then(|i| ALIGNED.get(i)).unwrap_or(&!0);
    words.iter().any(|word| word & aligned != 0)
}

/// Returns the order of the largest aligned run of set bits, up to 6; 0 if there is none.
pub(crate) fn largest_run(bits: u64) -> u8 {
    (1..=6).rev().find(|&order| run_heads(bits, order) != 0).unwrap_or(0)
}

/// Returns the bits of the runs with these heads: the inverse of [`run_heads`].
#[inline]
pub(crate) const fn fill_runs(heads: u64, order: u8) -> u64 {
    if order >= 6 {
        return if heads == 0 { 0 } else { !0 };
    }
    heads.wrapping_mul((1u64 << (1u32 << order)) - 1)
}

/// Returns the lowest `n` of the set bits.
pub(crate) const fn lowest(bits: u64, n: u32) -> u64 {
    if bits.count_ones() <= n {
        return bits;
    }
    let mut rest = bits;
    let mut left = n;
    while left > 0 {
        rest &= rest - 1;
        left -= 1;
    }
    bits ^ rest
}

/// Counts the set bits of a pageblock. Adds words before it adds bytes: most targets have no
/// instruction for it.
pub(crate) fn count(words: [u64; WORDS]) -> u32 {
    let mut sum = 0u64;
    for w in words {
        let w = w - (w >> 1 & 0x5555_5555_5555_5555);
        let w = (w & 0x3333_3333_3333_3333) + (w >> 2 & 0x3333_3333_3333_3333);
        sum += (w + (w >> 4)) & 0x0f0f_0f0f_0f0f_0f0f;
    }
    // Eight bytes of at most 64 each add up to 512, which does not fit a byte.
    let sum = (sum & 0x00ff_00ff_00ff_00ff) + (sum >> 8 & 0x00ff_00ff_00ff_00ff);
    (sum.wrapping_mul(0x0001_0001_0001_0001) >> 48) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator of words with many and few set bits.
    fn words() -> impl Iterator<Item = u64> {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = move || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x
        };
        (0..3000).map(move |i| match i % 4 {
            0 => next(),
            1 => next() & next() & next(),
            2 => next() | next() | next(),
            _ => [0, !0, 1, 1 << 63][i / 4 % 4],
        })
    }

    #[test]
    fn a_pageblock_has_a_run_if_one_of_its_words_has() {
        let mut words = words();
        for _ in 0..3000 / WORDS {
            let block: [u64; WORDS] = core::array::from_fn(|_| words.next().unwrap());
            for order in 0..=6 {
                // Runs at the end of a word, and those that would go on in the next one.
                let of_words = block.iter().any(|&word| run_heads(word, order) != 0);
                assert_eq!(has_run(block, order), of_words, "{block:x?} {order}");
            }
        }
        // Of one word alone; half of the last is in each of two aligned places.
        for (bits, order) in [(!0u64 << 32, 5), (0xff << 16, 3), (1 << 63, 0), (0xff << 12, 2)] {
            for i in 0..WORDS {
                let mut block = [0; WORDS];
                block[i] = bits;
                assert!(has_run(block, order) && !has_run(block, order + 1), "{bits:x} {i}");
            }
        }
        assert!(has_run([!0; WORDS], 6));
    }

    #[test]
    fn run_heads_are_those_of_a_search_bit_by_bit() {
        for w in words() {
            for order in 0..=6u8 {
                let mut want = 0u64;
                for at in (0..64).step_by(1 << order) {
                    let mask = block_mask(at, order);
                    if w & mask == mask {
                        want |= 1 << at;
                    }
                }
                assert_eq!(run_heads(w, order), want, "{w:#x} {order}");
                assert_eq!(fill_runs(want, order) & !w, 0);
                assert_eq!(run_heads(fill_runs(want, order), order), want);
            }
        }
    }

    #[test]
    fn words_cover_a_range() {
        let all: [(u32, u64); 3] =
            core::array::from_fn(|i| words_of_frames(60..130).nth(i).unwrap_or((0, 0)));
        assert_eq!(all, [(0, 0xf << 60), (1, !0), (2, 3)]);
        assert_eq!(words_of_frames(5..6).next(), Some((0, 1 << 5)));
        assert_eq!(words_of_frames(64..128).next(), Some((1, !0)));
    }

    #[test]
    fn lowest_keeps_that_many_bits() {
        for w in words() {
            for n in [0, 1, 7, 63, 64] {
                let low = lowest(w, n);
                assert_eq!(low.count_ones(), n.min(w.count_ones()));
                assert_eq!(low & w, low);
                assert!(low < (w ^ low) & (w ^ low).wrapping_neg() || low == w);
            }
        }
    }

    #[test]
    fn count_adds_all_words() {
        let mut all = words();
        while let (Some(a), Some(b)) = (all.next(), all.next()) {
            let w = [a, b, !0, 0, a ^ b, !a, a & b, !0];
            assert_eq!(count(w), w.iter().map(|w| w.count_ones()).sum());
        }
        assert_eq!(count([!0; 8]), 512);
    }
}
