use super::*;

const PAGE: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const EVENT: &str = "# compressed entry header\n\ttype_len    :    5 bits\n\
                     \ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\
                     \tpadding     : type == 29\n\ttime_extend : type == 30\n\
                     \ttime_stamp : type == 31\n\tdata max type_len  == 28\n";

fn layout(big: bool) -> PageLayout {
    PageLayout::parse(PAGE.as_bytes(), EVENT.as_bytes(), big).unwrap().0
}

/// A sub-buffer of these words of records that began at `t`, with flags in its commit word.
fn page(big: bool, t: u64, flags: u64, words: &[u32]) -> Vec<u8> {
    let commit = (words.len() as u64 * 4) | flags;
    let mut bytes = Vec::new();
    for n in [t, commit] {
        bytes.extend(if big { n.to_be_bytes() } else { n.to_le_bytes() });
    }
    for n in words {
        bytes.extend(if big { n.to_be_bytes() } else { n.to_le_bytes() });
    }
    bytes.resize(4096, 0);
    bytes
}

fn head(big: bool, kind: u32, delta: u32) -> u32 {
    if big { kind << 27 | delta } else { delta << 5 | kind }
}

fn all(big: bool, bytes: &[u8]) -> Result<Vec<(u64, Range<usize>)>, Fault> {
    let mut page = layout(big).open(bytes)?;
    std::iter::from_fn(|| page.next(bytes).transpose()).collect()
}

#[test]
fn records_have_their_time_and_bytes() {
    for big in [false, true] {
        let h = |kind, delta| head(big, kind, delta);
        let words = [
            [h(2, 5), 0, 0].as_slice(),
            // Time extended; a discarded event, whose time counts; a long record.
            &[h(TIME_EXTEND, 3), 2],
            &[h(PADDING, 7), 8, 0],
            &[h(0, 1), 12, 0, 0],
            // Absolute time, with the high bits of the time before.
            &[h(TIME_STAMP, 9), 1 << 20],
            &[h(1, 0), 0],
            &[h(PADDING, 0), 0, 0],
        ]
        .concat();
        let start = 1 << 60;
        let extended = start + 5 + (2 << 27) + 3;
        let stamp = start | 1 << 47 | 9;
        let expected = [(start + 5, 20..28), (extended + 7 + 1, 56..64), (stamp, 76..80)];
        assert_eq!(all(big, &page(big, start, 0, &words)).unwrap(), expected, "{big}");
    }
}

#[test]
fn an_absolute_time_that_wrapped_is_later() {
    let words = [head(false, TIME_STAMP, 3), 0, head(false, 1, 0), 0];
    let records = all(false, &page(false, (1 << 59) - 1, 0, &words)).unwrap();
    assert_eq!(records, [((1 << 59) + 3, 28..32)]);
}

#[test]
fn lost_events_are_counted() {
    let words = [head(false, 1, 0), 0];
    let lost = |flags, count: u64| {
        let mut bytes = page(false, 0, flags, &words);
        bytes[24..32].copy_from_slice(&count.to_le_bytes());
        layout(false).open(&bytes).unwrap().lost
    };
    assert_eq!(lost(0, 9), 0);
    assert_eq!(lost(MISSED, 9), 1);
    assert_eq!(lost(MISSED | MISSED_STORED, 9), 9);
    assert_eq!(lost(MISSED | MISSED_STORED, 0), 1);
    // The bytes of records are still those that the commit word counts.
    assert_eq!(all(false, &page(false, 0, MISSED, &words)).unwrap().len(), 1);
    // No room for the count.
    let full = [0; 1020].map(|_| head(false, 1, 0));
    let error = layout(false).open(&page(false, 0, MISSED | MISSED_STORED, &full));
    assert!(matches!(error, Err(Fault::Record(_))));
}

#[test]
fn damaged_records_are_rejected() {
    let h = |kind, delta| head(false, kind, delta);
    for words in [
        &[h(2, 0), 0][..],
        &[h(0, 0)],
        &[h(0, 0), 3],
        &[h(0, 0), 16, 0],
        &[h(0, 0), u32::MAX],
        &[h(TIME_EXTEND, 0)],
        &[h(TIME_STAMP, 0)],
        &[h(PADDING, 1)],
        &[h(PADDING, 1), 16],
        &[h(PADDING, 1), u32::MAX],
    ] {
        let bytes = page(false, 0, 0, words);
        assert!(matches!(all(false, &bytes), Err(Fault::Record(_))), "{words:?}");
        // The rest of the sub-buffer is skipped.
        let mut page = layout(false).open(&bytes).unwrap();
        assert!(page.next(&bytes).is_err() && matches!(page.next(&bytes), Ok(None)));
    }
    let long = page(false, 0, 0, &[0; 1021]);
    assert!(layout(false).open(&long[..4096]).is_err());
    assert!(layout(false).open(&long[..15]).is_err());
}

#[test]
fn another_form_of_records_is_rejected() {
    let parse = |page: &str, event: &str| {
        PageLayout::parse(page.as_bytes(), event.as_bytes(), false).map(|(page, _)| page.size)
    };
    assert_eq!(parse(PAGE, EVENT).unwrap(), 4096);
    assert_eq!(parse(&PAGE.replace("4080", "65520"), EVENT).unwrap(), 65536);
    for (page, event) in [
        (PAGE.to_owned(), EVENT.replace("27 bits", "28 bits")),
        (PAGE.to_owned(), EVENT.replace("type == 30", "type == 5")),
        (PAGE.to_owned(), String::new()),
        (PAGE.replace("commit", "commix"), EVENT.to_owned()),
        (PAGE.replace("size:8;\tsigned:1", "size:3;\tsigned:1"), EVENT.to_owned()),
    ] {
        assert!(matches!(parse(&page, &event), Err(Fault::Format { .. })), "{page}{event}");
    }
}
