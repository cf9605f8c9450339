//! Records are built field by field from descriptions like those of 5.15 to 6.18.

use super::*;
use crate::compaction::{Deferral, Wanted};

const LITTLE: Layout = Layout { big_endian: false, long: 8 };
const BIG: Layout = Layout { big_endian: true, long: 8 };

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                      \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";

/// Fields as `type name offset size signed`.
fn description(name: &str, id: u16, fields: &[(&str, usize, usize, u8)], fmt: &str) -> String {
    let mut text = format!("name: {name}\nID: {id}\nformat:\n{COMMON}\n");
    for (declaration, offset, size, signed) in fields {
        text +=
            &format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
    }
    text + "\nprint fmt: " + fmt + "\n"
}

/// A record of event `id` and pid 7 with these numbers (offset, size, value).
fn record(layout: Layout, id: u16, numbers: &[(usize, usize, u64)]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    for &(offset, size, value) in [(0, 2, u64::from(id)), (4, 4, 7)].iter().chain(numbers) {
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        let number = if layout.big_endian { &big[8 - size..] } else { &little[..size] };
        bytes[offset..offset + size].copy_from_slice(number);
    }
    bytes
}

const FLAGS: &str = "\"gfp_flags=%s\", (REC->gfp_flags) ? __print_flags(REC->gfp_flags, \"|\", \
                     {( unsigned long)((( gfp_t)0x20u)|(( gfp_t)0x200u)|(( gfp_t)0x800u)), \
                     \"GFP_ATOMIC\"}, {( unsigned long)(( gfp_t)0x100u), \"__GFP_ZERO\"}, \
                     {( unsigned long)(( gfp_t)(1 << 24)), \"__GFP_NO_OBJ_EXT\"}, \
                     {( unsigned long)(( gfp_t)0x40u), \"__GFP_NEW\"}) : \"none\"";

fn alloc() -> String {
    let fields = [
        ("unsigned long pfn", 8, 8, 0),
        ("unsigned int order", 16, 4, 0),
        ("unsigned long gfp_flags", 24, 8, 0),
        ("int migratetype", 32, 4, 1),
    ];
    description("mm_page_alloc", 653, &fields, FLAGS)
}

fn one(layout: Layout, description: &str, raw: &[u8]) -> Result<Kind, Fault> {
    let mut table = EventTable::new(layout);
    table.add(description.as_bytes()).unwrap();
    let decoded = table.decode(raw)?;
    assert_eq!(decoded.pid, 7);
    match decoded.what {
        What::Page(kind) => Ok(kind),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_allocation_has_the_flags_of_its_text() {
    for layout in [LITTLE, BIG] {
        let with = |gfp, pfn| {
            let numbers = [(8, 8, pfn), (16, 4, 3), (24, 8, gfp), (32, 4, 1)];
            one(layout, &alloc(), &record(layout, 653, &numbers)).unwrap()
        };
        let expected = |gfp, pfn| Kind::Alloc { pfn, order: 3, migratetype: 1, gfp };
        // GFP_ATOMIC and __GFP_ZERO, as 6.1 numbers them, have the numbers of their names.
        assert_eq!(with(0xb20, 5), expected(0x920, Some(5)));
        // A flag with another bit in this kernel; one that has a name this crate does not know;
        // one without a name.
        assert_eq!(with(1 << 24, 0), expected(0x800_0000, Some(0)));
        assert_eq!(with(0x40 | 1 << 30, 5), expected(0x40 | 1 << 30, Some(5)));
        assert_eq!(with(0, u64::MAX), expected(0, None));
    }
}

#[test]
fn impossible_values_are_rejected() {
    let with = |numbers: &[_]| one(LITTLE, &alloc(), &record(LITTLE, 653, numbers));
    assert!(with(&[]).is_ok());
    let at = |field, limit| move |error: Fault| matches!(error, Fault::OutOfRange { field: f, limit: l, .. } if f == field && l == limit);
    assert!(with(&[(16, 4, 11)]).is_err_and(at("order", 10)));
    assert!(with(&[(32, 4, u64::MAX)]).is_err_and(at("migratetype", 7)));
    assert!(with(&[(8, 8, 1 << 52)]).is_err_and(at("pfn", MAX_PFN)));
    assert!(with(&[(24, 8, 1 << 32)]).is_err_and(at("gfp_flags", u32::MAX.into())));
    let free = description(
        "mm_page_free",
        1,
        &[("unsigned long pfn", 8, 8, 0), ("unsigned int order", 16, 4, 0)],
        "",
    );
    let none = record(LITTLE, 1, &[(8, 8, u64::MAX)]);
    assert!(matches!(one(LITTLE, &free, &none), Err(Fault::NoFrame { .. })));
    for cut in [0, 1, 3, 7, 15, 35] {
        let error = one(LITTLE, &alloc(), &record(LITTLE, 653, &[])[..cut]);
        assert!(matches!(error, Err(Fault::Record(_))), "{cut}: {error:?}");
    }
}

#[test]
fn older_zone_locked_events_refill_if_the_order_is_0() {
    let mut fields = vec![
        ("unsigned long pfn", 8, 8, 0),
        ("unsigned int order", 16, 4, 0),
        ("int migratetype", 20, 4, 1),
    ];
    let old = description("mm_page_alloc_zone_locked", 9, &fields, "");
    fields.push(("int percpu_refill", 24, 4, 1));
    let new = description("mm_page_alloc_zone_locked", 9, &fields, "");
    let refill = |text: &str, order, refill| {
        let raw = record(LITTLE, 9, &[(8, 8, 5), (16, 4, order), (24, 4, refill)]);
        let Kind::ZoneLocked { refill, .. } = one(LITTLE, text, &raw).unwrap() else { panic!() };
        refill
    };
    assert!(refill(&old, 0, 0) && !refill(&old, 1, 1));
    assert!(!refill(&new, 0, 0) && refill(&new, 1, 1));
}

#[test]
fn a_description_without_a_needed_field_is_rejected() {
    let fields = [("struct page * page", 8, 8, 0), ("unsigned int order", 16, 4, 0)];
    let old = description("mm_page_free", 1, &fields, "");
    let error = EventTable::new(LITTLE).add(old.as_bytes());
    assert!(matches!(error, Err(Fault::MissingField { event: "mm_page_free", field: "pfn" })));
}

#[test]
fn compaction_is_translated_by_the_kernels_names() {
    // A kernel without ZONE_DMA numbers its zones from DMA32.
    let fmt = "\"x\", __print_symbolic(REC->idx, {0, \"DMA32\"}, {1, \"Normal\"}), 1";
    let fields = [
        ("int nid", 8, 4, 1),
        ("enum zone_type idx", 12, 4, 0),
        ("int order", 16, 4, 1),
        ("unsigned int considered", 20, 4, 0),
        ("unsigned int defer_shift", 24, 4, 0),
        ("int order_failed", 28, 4, 1),
    ];
    let mut table = EventTable::new(LITTLE);
    let text = description("mm_compaction_deferred", 4, &fields, fmt);
    table.add(text.as_bytes()).unwrap();
    let deferred = |idx, order: u64, shift| {
        let numbers = [(12, 4, idx), (16, 4, order), (20, 4, 9), (24, 4, shift), (28, 4, 3)];
        let raw = record(LITTLE, 4, &numbers);
        table.decode(&raw).map(|decoded| match decoded.what {
            What::Compaction(what) => *what,
            other => panic!("{other:?}"),
        })
    };
    let wanted = |zone, order| Wanted { node: 0, zone, order };
    let expected = |wanted, limit| {
        Compaction::Deferred(Deferral { wanted, order_failed: 3, considered: 9, limit })
    };
    assert_eq!(deferred(0, 9, 6).unwrap(), expected(wanted(1, Some(9)), 64));
    assert_eq!(deferred(1, u64::MAX, 0).unwrap(), expected(wanted(2, None), 1));
    assert!(matches!(deferred(2, 9, 0), Err(Fault::UnknownWord { field: "zone", .. })));
    assert!(matches!(deferred(0, 11, 0), Err(Fault::OutOfRange { field: "order", .. })));
    assert!(matches!(deferred(0, u64::MAX - 1, 0), Err(Fault::OutOfRange { .. })));
    assert!(matches!(deferred(0, 9, 64), Err(Fault::OutOfRange { field: "limit", .. })));
}

#[test]
fn every_tracepoint_names_its_recorded_fields() {
    for point in &POINTS {
        for (before, _) in point.fields {
            assert_ne!(recorded_names(before), ["?"], "{}: {before}", point.name);
        }
    }
}

#[test]
fn marks_end_at_a_zero_byte() {
    let fields = [("unsigned long ip", 8, 8, 0), ("char buf[]", 16, 0, 0)];
    let mut table = EventTable::new(LITTLE);
    table.add(description("print", 5, &fields, "").as_bytes()).unwrap();
    let mut raw = record(LITTLE, 5, &[(8, 8, 0xabc)]);
    raw[16..26].copy_from_slice(b"two\nlines\n");
    let text = |raw: &[u8]| match table.decode(raw).unwrap().what {
        What::Print { ip: 0xabc, text } => text.to_vec(),
        other => panic!("{other:?}"),
    };
    assert_eq!(text(&raw), b"two\nlines");
    assert_eq!(text(&raw[..20]), b"two\n"[..3]);
    assert_eq!(text(&raw[..16]), b"");
    assert!(table.decode(&raw[..15]).is_err());
}

#[test]
fn other_events_have_their_name() {
    let mut table = EventTable::new(LITTLE);
    let named = |table: &EventTable, id| {
        let raw = record(LITTLE, id, &[]);
        match table.decode(&raw).unwrap().what {
            What::Other(name) => name.to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(named(&table, 4), UNKNOWN);
    table.add(description("sched_switch", 4, &[], "").as_bytes()).unwrap();
    assert_eq!(named(&table, 4), "sched_switch");
    assert_eq!(named(&table, 65535), UNKNOWN);
}
