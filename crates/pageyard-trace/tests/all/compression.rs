//! Compressed inputs: whole, joined, cut, damaged.

use std::io::Write;

use pageyard_trace::{Compression, Fault, Options};

use crate::common::{TEXT, error, read, records};

fn pack(compression: Compression, bytes: &[u8]) -> Vec<u8> {
    match compression {
        Compression::None => bytes.to_vec(),
        Compression::Zstd => {
            // With a checksum, as the zstd tool writes it.
            let mut out = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
            out.include_checksum(true).unwrap();
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        Compression::Xz => {
            let mut out = liblzma::write::XzEncoder::new(Vec::new(), 6);
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
        Compression::Gzip => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            out.write_all(bytes).unwrap();
            out.finish().unwrap()
        }
    }
}

const ALL: [Compression; 3] = [Compression::Zstd, Compression::Xz, Compression::Gzip];

#[test]
fn whole_and_joined() {
    let (first, second) = TEXT.split_at(500);
    for compression in ALL {
        let (got, reader) = read(&pack(compression, TEXT.as_bytes()), Options::default()).unwrap();
        assert_eq!(got, records(TEXT), "{compression}");
        assert_eq!(reader.compression(), compression);

        let mut joined = pack(compression, first.as_bytes());
        joined.extend(pack(compression, second.as_bytes()));
        assert_eq!(read(&joined, Options::default()).unwrap().0, records(TEXT), "{compression}");
        let (_, reader) = read(&joined, Options::default()).unwrap();
        assert_eq!(reader.progress().consumed, joined.len() as u64);
    }
}

#[test]
fn truncation_anywhere_is_an_error() {
    for compression in ALL {
        let packed = pack(compression, TEXT.as_bytes());
        for end in 0..packed.len() {
            let error = error(&packed[..end]);
            if end >= 6 {
                assert!(
                    matches!(&*error.fault, Fault::Compression(c, _) if *c == compression),
                    "{compression} cut at {end}: {error}"
                );
            }
            if end > 0 {
                let (_, reader) = read(&packed[..end], Options::lenient()).unwrap();
                assert!(reader.summary().malformed.count > 0, "{compression} cut at {end}");
            }
        }
    }
}

#[test]
fn damage_is_an_error_or_changes_nothing() {
    for compression in ALL {
        let packed = pack(compression, TEXT.as_bytes());
        for at in 0..packed.len() {
            let mut bad = packed.clone();
            bad[at] ^= 0x10;
            // gzip has irrelevant bytes, such as the packing time.
            if let Ok((got, _)) = read(&bad, Options::default()) {
                assert_eq!(got, records(TEXT), "{compression}: byte {at}");
            }
            if let Ok((got, reader)) = read(&bad, Options::lenient()) {
                let noticed = reader.summary().malformed.count > 0;
                assert!(noticed || got == records(TEXT), "{compression}: byte {at}");
            }
        }
    }
}

#[test]
fn a_decompression_bomb_is_rejected() {
    let line = TEXT.lines().nth(3).unwrap().to_owned() + "\n";
    let long = line.repeat(20_000_000 / line.len());
    for compression in ALL {
        let packed = pack(compression, long.as_bytes());
        // Ratios that gzip can reach are accepted.
        if packed.len() < 40_000 {
            let error = error(&packed);
            assert!(matches!(*error.fault, Fault::Expands { .. }), "{compression}: {error}");
            let (got, reader) = read(&packed, Options::lenient()).unwrap();
            assert_eq!(reader.summary().malformed.count, 1);
            assert!(got.len() < 200_000 && got.len() > 50_000, "{}", got.len());
        }
        let (got, _) = read(
            &pack(compression, &long.as_bytes()[..4_000_000 / line.len() * line.len()]),
            Options::default(),
        )
        .unwrap();
        assert!(got.len() > 20_000, "short inputs have no limit");
    }
}

/// A fuzzer's find: the decoder would have allocated as much memory as the header claims.
#[test]
fn an_xz_header_with_a_4_gib_dictionary_is_rejected() {
    let mut packed = pack(Compression::Xz, TEXT.as_bytes());
    // After the stream header of 12 bytes: the block header, with the size of the LZMA2 dictionary.
    let head = &mut packed[12..];
    let length = (usize::from(head[0]) + 1) * 4;
    let at = head.windows(2).position(|w| w == [0x21, 1]).unwrap();
    head[at + 2] = 40;
    let crc = crc32fast::hash(&head[..length - 4]).to_le_bytes();
    head[length - 4..length].copy_from_slice(&crc);
    let error = error(&packed);
    let refused = |c: &std::io::Error| c.to_string().contains("memory");
    assert!(
        matches!(&*error.fault, Fault::Compression(Compression::Xz, e) if refused(e)),
        "{error}"
    );
}
