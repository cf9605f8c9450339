//! Request flags as names and numbers (spec §2.1–2.2).
//!
//! The numbers up to `__GFP_ACCOUNT` are those of §2.1. The flags above it depend on the kernel's
//! configuration, so their names have fixed numbers here and their numeric forms are passed
//! through. `__GFP_ATOMIC` (0x200) exists only before 6.2, where `GFP_ATOMIC` included it. The name
//! does not show that; it is read as in §2.2. Likewise, `GFP_NOWAIT` is read with `__GFP_NOWARN`, a
//! flag that a 6.1 kernel prints separately.

use std::fmt::Write;

use crate::number::parse_number;

/// Names of single bits, lowest first.
const BITS: &[(&str, u32)] = &[
    ("__GFP_DMA", 0x1),
    ("__GFP_HIGHMEM", 0x2),
    ("__GFP_DMA32", 0x4),
    ("__GFP_MOVABLE", 0x8),
    ("__GFP_RECLAIMABLE", 0x10),
    ("__GFP_HIGH", 0x20),
    ("__GFP_IO", 0x40),
    ("__GFP_FS", 0x80),
    ("__GFP_ZERO", 0x100),
    ("__GFP_ATOMIC", 0x200),
    ("__GFP_DIRECT_RECLAIM", 0x400),
    ("__GFP_KSWAPD_RECLAIM", 0x800),
    ("__GFP_WRITE", 0x1000),
    ("__GFP_NOWARN", 0x2000),
    ("__GFP_RETRY_MAYFAIL", 0x4000),
    ("__GFP_NOFAIL", 0x8000),
    ("__GFP_NORETRY", 0x1_0000),
    ("__GFP_MEMALLOC", 0x2_0000),
    ("__GFP_COMP", 0x4_0000),
    ("__GFP_NOMEMALLOC", 0x8_0000),
    ("__GFP_HARDWALL", 0x10_0000),
    ("__GFP_THISNODE", 0x20_0000),
    ("__GFP_ACCOUNT", 0x40_0000),
    ("__GFP_ZEROTAGS", 0x80_0000),
    ("__GFP_SKIP_ZERO", 0x100_0000),
    ("__GFP_SKIP_KASAN", 0x200_0000),
    ("__GFP_NOLOCKDEP", 0x400_0000),
    ("__GFP_NO_OBJ_EXT", 0x800_0000),
];

const RECLAIM: u32 = 0xc00;
const KERNEL: u32 = RECLAIM | 0xc0;
const USER: u32 = KERNEL | 0x10_0000;
const HIGHUSER: u32 = USER | 0x2;
const HIGHUSER_MOVABLE: u32 = HIGHUSER | 0x8;
const TRANSHUGE_LIGHT: u32 = (HIGHUSER_MOVABLE | 0x4_0000 | 0x8_0000 | 0x2000) & !RECLAIM;

/// Compound names, in descending number of bits, so that printing picks the largest match.
const COMPOUNDS: &[(&str, u32)] = &[
    ("GFP_TRANSHUGE", TRANSHUGE_LIGHT | 0x400),
    ("GFP_TRANSHUGE_LIGHT", TRANSHUGE_LIGHT),
    ("GFP_HIGHUSER_MOVABLE", HIGHUSER_MOVABLE),
    ("GFP_HIGHUSER", HIGHUSER),
    ("GFP_USER", USER),
    ("GFP_KERNEL_ACCOUNT", KERNEL | 0x40_0000),
    ("GFP_KERNEL", KERNEL),
    ("GFP_NOFS", RECLAIM | 0x40),
    ("GFP_ATOMIC", 0x820),
    ("GFP_NOIO", RECLAIM),
    ("GFP_NOWAIT", 0x2800),
];

/// Other names that some kernels print.
const ALIASES: &[(&str, u32)] = &[
    ("GFP_DMA", 0x1),
    ("GFP_DMA32", 0x4),
    ("__GFP_RECLAIM", RECLAIM),
    ("__GFP_REPEAT", 0x4000),
    ("__GFP_SKIP_KASAN_POISON", 0x200_0000),
    ("__GFP_SKIP_KASAN_UNPOISON", 0x200_0000),
    ("none", 0),
];

/// Returns the flags of one name, compound or single.
pub fn from_name(name: &str) -> Option<u32> {
    let name = name.as_bytes();
    let tables = [COMPOUNDS, BITS, ALIASES];
    tables.into_iter().flatten().find(|(known, _)| known.as_bytes() == name).map(|&(_, bits)| bits)
}

/// Formats the flags as names joined by `|`: at most one compound, then single bits. Bits without a
/// name are printed as a number. [`parse`] returns the same number.
pub fn to_names(flags: u32) -> String {
    if flags == 0 {
        return "none".to_owned();
    }
    let mut out = String::new();
    let mut rest = flags;
    let compound = COMPOUNDS.iter().find(|(_, bits)| flags & bits == *bits);
    for &(name, bits) in compound.into_iter().chain(BITS) {
        if rest & bits == bits {
            rest &= !bits;
            push(&mut out, name);
        }
    }
    if rest != 0 {
        push(&mut out, "");
        let _ = write!(out, "{rest:#x}");
    }
    out
}

fn push(out: &mut String, name: &str) {
    if !out.is_empty() {
        out.push('|');
    }
    out.push_str(name);
}

/// Parses the value of `gfp_flags=`: a number (hex or decimal), or names joined by `|`.
///
/// # Errors
/// Returns the part that is neither a 32-bit number nor a known name.
pub fn parse(text: &str) -> Result<u32, &str> {
    let mut flags = 0;
    for part in text.split('|') {
        flags |= match part.as_bytes() {
            number @ [b'0'..=b'9', ..] => {
                parse_number(number).and_then(|n| u32::try_from(n).ok()).ok_or(part)?
            }
            _ => from_name(part).ok_or(part)?,
        };
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and numbers that kernels printed for the same request.
    const SEEN: &[(&str, u32)] = &[
        ("GFP_HIGHUSER_MOVABLE|__GFP_COMP|__GFP_ZERO", 0x140dca),
        ("GFP_KERNEL_ACCOUNT|__GFP_ZERO", 0x400dc0),
        ("GFP_KERNEL_ACCOUNT", 0x400cc0),
        ("GFP_NOWAIT|__GFP_IO|__GFP_FS|__GFP_COMP|__GFP_ACCOUNT", 0x4428c0),
        ("GFP_NOWAIT|__GFP_NOWARN", 0x2800),
        (
            "GFP_NOFS|__GFP_HIGHMEM|__GFP_NOWARN|__GFP_NORETRY|__GFP_COMP|__GFP_HARDWALL|\
             __GFP_MOVABLE",
            0x152c4a,
        ),
        ("GFP_HIGHUSER|__GFP_ACCOUNT", 0x500cc2),
        ("GFP_TRANSHUGE_LIGHT|__GFP_NORETRY|__GFP_THISNODE", 0x3d20ca),
        ("GFP_TRANSHUGE", 0x1c24ca),
        ("GFP_ATOMIC|__GFP_ZERO", 0x920),
        ("0x1000|__GFP_IO", 0x1040),
        ("none", 0),
        ("0", 0),
    ];

    #[test]
    fn names_convert_to_numbers() {
        for &(names, number) in SEEN {
            assert_eq!(parse(names), Ok(number), "{names}");
        }
        assert_eq!(parse("GFP_KERNEL|__GFP_X"), Err("__GFP_X"));
        assert_eq!(parse("GFP_KERNEL|"), Err(""));
        assert_eq!(parse("0x"), Err("0x"));
        assert_eq!(parse("4294967296"), Err("4294967296"));
    }

    #[test]
    fn numbers_survive_names() {
        for &(_, number) in SEEN {
            assert_eq!(parse(&to_names(number)), Ok(number));
        }
        for bit in 0..32 {
            assert_eq!(parse(&to_names(1 << bit)), Ok(1 << bit));
        }
        assert_eq!(to_names(0x140dca), "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP");
    }
}
