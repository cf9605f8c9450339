//! Sections of memory that go offline and online.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use pageyard::policy::{Linux612, Packed, StaticPolicy};
use pageyard::{ContigError, Gfp, HotplugError, Pfn, Relocation, SECTION_PAGES, VmEvent};
use pageyard_host::{Block, HostYard, Limits, Moving, Relocator};

use super::{MIB, QUIET, builder, fill, forever, order, until};

#[test]
fn sections_go_offline_and_online() {
    let yard = builder(256 * MIB).tick(None).give_back(None).build().unwrap();
    let managed = || yard.zones().map(|z| yard.zone_info(z).unwrap().managed).sum::<u64>();
    let all = managed();
    let blocks = fill(&yard, 60_000);
    let resident = yard.resident().unwrap();
    let second = second_section();
    assert!(
        matches!(yard.offline(second.clone()), Err(HotplugError::Refused(_))),
        "the section is in use"
    );
    assert_eq!(managed(), all);
    // Movable blocks do not prevent offlining.
    drop(blocks);
    let mut movable: Vec<_> =
        (0..200).map(|_| yard.alloc_movable(order(5), QUIET).unwrap()).collect();
    for (n, m) in movable.iter_mut().enumerate() {
        m.lock()[77] = n as u8;
    }
    yard.offline(second.clone()).unwrap();
    assert_eq!(managed(), all - SECTION_PAGES);
    assert!(yard.resident().unwrap() < resident - 20_000);
    yard.validate().unwrap();
    for (n, m) in movable.iter().enumerate() {
        let bytes = m.lock();
        assert!(bytes[77] == n as u8 && !second.contains(&bytes.pfn()));
    }
    assert!(matches!(yard.offline(second.clone()), Err(HotplugError::Hole(_))));
    yard.online(second.clone()).unwrap();
    assert_eq!(managed(), all);
    assert!(matches!(yard.online(second), Err(HotplugError::Present(_))));
    drop(movable);
    assert!(fill(&yard, 60_000).iter().all(|b| b[0] == 1));
    yard.set_knob("watermark_scale_factor", "100").unwrap();
    assert!(yard.set_knob("watermark_scale_factor", "0").is_err());
    yard.validate().unwrap();
}

/// The second section of a yard.
fn second_section() -> std::ops::Range<Pfn> {
    let first = pageyard_host::Region::FIRST.0 + SECTION_PAGES;
    Pfn(first)..Pfn(first + SECTION_PAGES)
}

#[test]
fn a_hard_limit_does_not_count_memory_that_is_offline() {
    let yard = builder(256 * MIB).tick(None).give_back(None).build().unwrap();
    let section = second_section();
    let limits = Limits { hard: Some(8192), soft: None };
    let most = || {
        let mut held = Vec::new();
        while let Ok(block) = yard.alloc(order(0), QUIET | Gfp::MEMALLOC) {
            held.push(block);
        }
        held.len()
    };
    yard.offline(section.clone()).unwrap();
    assert_eq!(yard.set_limits(limits), Ok(true));
    assert_eq!(most(), 8192, "a section is offline");
    // Onlined pages are held back, and pages that are held back can go offline.
    yard.online(section.clone()).unwrap();
    assert_eq!(most(), 8192, "the section is online again");
    assert_eq!(yard.status().kept, 2 * SECTION_PAGES - 8192);
    assert_eq!(yard.set_limits(Limits::default()), Ok(true));
    yard.offline(section).unwrap();
    assert_eq!(yard.status().kept, 0);
}

/// What the hard limit keeps in a section moves to others, or leaves if there is no room for it.
fn a_limit_keeps_no_section_online<P: StaticPolicy + Send + Sync + 'static>() {
    let builder = builder(384 * MIB).tick(None).give_back(None);
    let yard = builder.build_with::<P>().unwrap();
    let section = |n: u64| {
        let first = pageyard_host::Region::FIRST.0 + n * SECTION_PAGES;
        Pfn(first)..Pfn(first + SECTION_PAGES)
    };
    assert_eq!(yard.set_limits(Limits { hard: Some(SECTION_PAGES), soft: None }), Ok(true));
    assert_eq!(yard.status().kept, 2 * SECTION_PAGES);
    yard.offline(section(1)).unwrap();
    assert_eq!(yard.status().kept, SECTION_PAGES);
    yard.offline(section(0)).unwrap();
    assert_eq!(yard.status().kept, 0);
    yard.online(section(1)).unwrap();
    assert_eq!(yard.status().kept, SECTION_PAGES);
    // Refused, since a block is in use there; the limit holds afterwards.
    let blocks: Vec<_> = std::iter::from_fn(|| yard.alloc(order(0), QUIET).ok()).collect();
    let n = 1 + u64::from(section(2).contains(&blocks[0].pfn()));
    assert!(matches!(yard.offline(section(n)), Err(HotplugError::Refused(_))), "{}", P::NAME);
    assert_eq!(yard.status().kept, SECTION_PAGES);
    yard.validate().unwrap();
}

#[test]
fn a_hard_limit_keeps_no_section_online() {
    a_limit_keeps_no_section_online::<Packed>();
    a_limit_keeps_no_section_online::<Linux612>();
}

/// There is no room for what the limit keeps in a section: half of the yard is not free elsewhere.
fn a_section_that_a_limit_fills_goes_offline<P: StaticPolicy + Send + Sync + 'static>() {
    let builder = builder(256 * MIB).tick(None).give_back(None).hard_limit(64 * MIB);
    let yard = builder.build_with::<P>().unwrap();
    assert_eq!(yard.offline(second_section()), Ok(()), "{}", P::NAME);
    assert_eq!(yard.status().kept, SECTION_PAGES / 2);
}

#[test]
fn a_hard_limit_leaves_a_section_without_room_elsewhere() {
    a_section_that_a_limit_fills_goes_offline::<Packed>();
    a_section_that_a_limit_fills_goes_offline::<Linux612>();
}

/// If it did, other requests could have them until the limit takes them again.
#[test]
#[allow(unsafe_code)]
fn an_offline_that_cannot_succeed_frees_nothing_that_a_limit_keeps() {
    let yard = builder(384 * MIB).tick(None).give_back(None).build().unwrap();
    assert_eq!(yard.set_limits(Limits { hard: Some(SECTION_PAGES), soft: None }), Ok(true));
    // SAFETY: it is only asked for a counter.
    let freed = || unsafe { yard.core() }.vm_events().get(VmEvent::PgFree);
    let before = freed();
    let Range { start, end } = second_section();
    let inside = Pfn(start.0 + 1);
    assert_eq!(yard.offline(inside..end), Err(HotplugError::Misaligned(inside)));
    assert_eq!(freed(), before);
}

#[test]
fn offlining_from_a_relocator_is_rejected() {
    struct Nested {
        yard: &'static HostYard,
        seen: Arc<Mutex<Vec<HotplugError>>>,
    }
    #[allow(unsafe_code)]
    // SAFETY: no block is moved.
    unsafe impl Relocator for Nested {
        fn relocate(&self, _: &Moving) -> Relocation {
            let section = second_section();
            let nested = [self.yard.offline(section.clone()), self.yard.online(section)];
            self.seen.lock().unwrap().extend(nested.into_iter().filter_map(Result::err));
            Relocation::Refused
        }
    }
    let yard = forever(builder(256 * MIB).tick(None).give_back(None));
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    yard.register_relocator(Nested { yard, seen: seen.clone() }).keep();
    let inside = |b: &Block<'_>| second_section().contains(&b.pfn());
    let blocks: Vec<_> = std::iter::from_fn(|| yard.alloc(order(10), QUIET).ok()).collect();
    let block = blocks.into_iter().find(inside).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: the block stays where it is.
    unsafe { yard.core() }.set_movable(block.pfn(), block.order(), true).unwrap();
    // On its own thread, since it once waited for itself.
    let offline = std::thread::spawn(move || yard.offline(second_section()));
    assert!(until(|| offline.is_finished()), "the call waits for itself");
    assert!(offline.join().unwrap().is_err());
    let busy = HotplugError::Refused(ContigError::Busy(second_section().start));
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|e| *e == busy), "{seen:?}");
    drop(block);
}
