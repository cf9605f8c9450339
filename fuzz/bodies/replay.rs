// Replays a corpus on stable: every input as it is, and mutated by a seeded generator. A failing
// input is printed.

/// A small random generator.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// Prints the input if a run panics.
struct Progress<'i>(&'i [u8]);

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input: {:?}", self.0.escape_ascii().to_string());
        }
    }
}

/// The inputs of a corpus: each a length of four bytes, little end first, and its bytes.
pub(crate) fn inputs(corpus: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    let mut rest = corpus;
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (one, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        all.push(one);
        rest = behind;
    }
    assert!(!all.is_empty() && rest.is_empty(), "the corpus is truncated");
    all
}

/// Runs every input, and `changed` mutated inputs. `PAGEYARD_CASES` requests more.
pub(crate) fn replay(corpus: &[u8], changed: usize, run: impl Fn(&[u8])) {
    const SEED: u64 = 1;
    let all = inputs(corpus);
    for input in &all {
        let _tell = Progress(input);
        run(input);
    }
    let asked = std::env::var("PAGEYARD_CASES").ok().and_then(|n| n.parse().ok());
    let mut random = Random(SEED);
    for _ in 0..asked.unwrap_or(changed) {
        let mut input = all[random.below(all.len())].to_vec();
        for _ in 0..1 + random.below(4) {
            change(&mut input, &all, &mut random);
        }
        let _tell = Progress(&input);
        run(&input);
    }
}

/// Asserts that mutations of a corpus break a reader in the expected way. Any other panic is a bug
/// of the test.
#[allow(dead_code)]
pub(crate) fn finds(what: &str, corpus: &[u8], changed: usize, run: impl Fn(&[u8])) {
    let found =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| replay(corpus, changed, run)));
    let panic = found.expect_err("no mutation of the corpus breaks the reader");
    let said = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    assert!(said.contains(what), "another panic: {said}");
}

fn change(input: &mut Vec<u8>, all: &[&[u8]], random: &mut Random) {
    const ODD: [&[u8]; 8] =
        [b"0", b"-1", b"18446744073709551616", b"\n", b"\xff\xff\xff\xff", b"\0\0\0\0", b"=", b" "];
    let at = random.below(input.len() + 1);
    let n = random.below(16).min(input.len() - at);
    match random.below(6) {
        0 if n > 0 => input[at] ^= 1 << random.below(8),
        1 if n > 0 => input[at] = random.below(256) as u8,
        2 => _ = input.drain(at..at + n),
        3 => input.truncate(at),
        4 => {
            let odd = ODD[random.below(ODD.len())];
            input.splice(at..at + n, odd.iter().copied());
        }
        _ => {
            let other = all[random.below(all.len())];
            let from = random.below(other.len() + 1);
            let to = from + random.below(64).min(other.len() - from);
            input.splice(at..at, other[from..to].iter().copied());
        }
    }
}
