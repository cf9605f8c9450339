//! A text in shared words: one writer, any number of readers that copy it, and no waiting.
//!
//! Both sides use these words; the first three belong to the caller:
//!
//! - 3: sequence number, odd while the rest is being written
//! - 4: length of the text in bytes
//! - from [`HEAD`]: the text

use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU64, fence, yield_now};

/// Words before the text.
pub(crate) const HEAD: usize = 5;
const SEQ: usize = 3;
const LENGTH: usize = 4;
/// Attempts of a reader that finds the text being written.
const TRIES: u32 = 1000;
/// Copies of a text that changes during the copy: the writer may be hostile, and the text long.
pub(crate) const COPIES: u32 = 64;

/// Replaces the text, which must fit. One writer at a time.
pub(crate) fn publish(words: &[AtomicU64], text: &[u8]) {
    let seq = words[SEQ].load(Relaxed);
    words[SEQ].store(seq.wrapping_add(1), Relaxed);
    // A reader that sees a word of the new text also sees that it is being written.
    fence(Release);
    words[LENGTH].store(text.len() as u64, Relaxed);
    for (word, bytes) in words[HEAD..].iter().zip(text.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(whole), Relaxed);
    }
    words[SEQ].store(seq.wrapping_add(2), Release);
}

/// Copies the text consistently. `copy` fills a buffer with the bytes from an offset on; `text`
/// returns the length of the text, given the words before it. Returns `None` if there is no text
/// yet, or if it was being written all the time.
pub(crate) fn snapshot<E>(
    mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    mut text: impl FnMut(&[u64; HEAD]) -> Result<usize, E>,
) -> Result<Option<Vec<u8>>, E> {
    let mut head = [0; HEAD * 8];
    let (mut bytes, mut copies) = (Vec::new(), 0);
    for _ in 0..TRIES {
        copy(0, &mut head)?;
        let before = words_of(&head);
        if !before[SEQ].is_multiple_of(2) {
            yield_now();
            continue;
        }
        let length = text(&before)?;
        if length == 0 || copies == COPIES {
            return Ok(None);
        }
        copies += 1;
        // Nothing copied below is older than the sequence number ...
        fence(Acquire);
        bytes.resize(length, 0);
        copy(HEAD * 8, &mut bytes)?;
        // ... or newer.
        fence(Acquire);
        copy(0, &mut head)?;
        // The length was copied together with the number, before the first fence, and may be older.
        let after = words_of(&head);
        if (after[SEQ], after[LENGTH]) == (before[SEQ], before[LENGTH]) {
            return Ok(Some(bytes));
        }
        yield_now();
    }
    Ok(None)
}

fn words_of(bytes: &[u8; HEAD * 8]) -> [u64; HEAD] {
    let (words, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|at| u64::from_ne_bytes(words[at]))
}

/// Returns the length of the text in bytes, from the words before it.
pub(crate) fn length(head: &[u64; HEAD]) -> u64 {
    head[LENGTH]
}
