//! Error texts: each names what is wrong, and the frame, CPU, node, order or number concerned.

use crate::common::o;

use pageyard::FreeError::{self, NotHead, WrongOrder};
use pageyard::{
    AllocError, BatchError, ContigError, CpuId, HotplugError, IsolateError, MigrateType, NodeId,
    Pfn, PlaceError, ReleaseError,
};

/// The text contains each of these.
fn names(error: impl std::error::Error, parts: &[&str]) {
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text:?} lacks one of {parts:?}");
}

#[test]
fn an_error_names_what_is_wrong_and_where() {
    let (pfn, cpu) = (Pfn(0x1234), CpuId(77));
    names(AllocError::NoMemory, &["no zone", "free block"]);
    names(AllocError::BadZone, &["zone flags"]);
    names(AllocError::BadType, &["movable", "reclaimable"]);
    names(AllocError::UnknownCpu(cpu), &["CPU 77"]);
    names(AllocError::UnknownNode(NodeId(9)), &["node 9"]);

    names(FreeError::Foreign, &["no zone"]);
    names(FreeError::Reserved, &["reserved"]);
    names(FreeError::DoubleFree, &["already free"]);
    names(FreeError::Misaligned, &["multiple"]);
    names(WrongOrder { allocated: o(3) }, &["order 3"]);
    names(NotHead { head: pfn, allocated: o(3) }, &["order 3", "0x1234"]);
    names(FreeError::OutOfUse, &["out of use"]);
    names(FreeError::UnknownCpu(cpu), &["CPU 77"]);
    names(BatchError { index: 5, error: FreeError::Reserved }, &["block 5", "reserved"]);

    names(IsolateError::EmptyRange, &["no frames"]);
    names(IsolateError::OutsideZone(pfn), &["0x1234", "zone"]);
    names(IsolateError::BadType(MigrateType::HighAtomic), &["unmovable", "CMA"]);
    names(IsolateError::ZoneEdge(pfn), &["0x1234", "boundary"]);
    names(IsolateError::Isolated(pfn), &["0x1234", "already isolated"]);
    names(IsolateError::Unmovable(pfn), &["0x1234", "not movable"]);
    names(IsolateError::UnknownCpu(cpu), &["CPU 77"]);

    names(ContigError::Isolate(IsolateError::EmptyRange), &["no frames"]);
    names(ContigError::Busy(pfn), &["0x1234", "in use"]);
    names(ContigError::NoMemory, &["no free block"]);
    names(ContigError::NotABlock, &["order 0 to 10"]);
    names(ContigError::NoPlace, &["no range"]);
    names(ContigError::BadAlign(12), &["12 pages", "power of two"]);

    names(PlaceError::Alloc(AllocError::NoMemory), &["no zone", "free block"]);
    names(PlaceError::BadAlign(12), &["12 pages", "power of two"]);
    names(PlaceError::Misaligned(pfn), &["0x1234", "multiple"]);
    names(PlaceError::Foreign(pfn), &["0x1234", "no zone"]);
    names(PlaceError::Reserved(pfn), &["0x1234", "reserved"]);
    names(PlaceError::InUse(pfn), &["0x1234", "in use"]);
    names(PlaceError::Withheld(pfn, MigrateType::HighAtomic), &["0x1234", "HighAtomic"]);

    names(HotplugError::Misaligned(pfn), &["0x1234", "section"]);
    names(HotplugError::Present(pfn), &["0x1234", "already"]);
    names(HotplugError::Hole(pfn), &["0x1234", "no memory"]);
    names(HotplugError::Deferred, &["deferred"]);
    names(HotplugError::Nested, &["return from it first"]);
    for (error, reason) in [
        (ReleaseError::OutsideZone(pfn), "in no zone"),
        (ReleaseError::Hole(pfn), "no memory"),
        (ReleaseError::NotReserved(pfn), "not reserved"),
        (ReleaseError::AlreadyReleased(pfn), "released before"),
    ] {
        names(error, &["0x1234", reason]);
    }
    names(ReleaseError::EmptyRange, &["no frames"]);
    names(ReleaseError::Deferred, &["deferred"]);
    names(ReleaseError::Nested, &["return from it first"]);
    names(HotplugError::Refused(ContigError::Busy(pfn)), &["0x1234", "in use"]);
}

/// §4.12, §8.4: errors map to the kernel's error numbers.
#[test]
fn s4_12_errors_have_the_kernels_numbers() {
    let (pfn, cpu) = (Pfn(512), CpuId(1));
    for busy in
        [IsolateError::ZoneEdge(pfn), IsolateError::Isolated(pfn), IsolateError::Unmovable(pfn)]
    {
        assert_eq!((busy.errno(), ContigError::Isolate(busy).errno()), (-16, -16));
    }
    let wrong = [
        IsolateError::EmptyRange,
        IsolateError::OutsideZone(pfn),
        IsolateError::BadType(MigrateType::Isolate),
        IsolateError::UnknownCpu(cpu),
    ];
    for error in wrong {
        assert_eq!((error.errno(), ContigError::Isolate(error).errno()), (-22, -22));
    }
    assert_eq!(ContigError::Busy(pfn).errno(), -16);
    assert_eq!(ContigError::NoMemory.errno(), -12);
    assert_eq!(ContigError::NoPlace.errno(), -12);
    assert_eq!(ContigError::NotABlock.errno(), -22);
    assert_eq!(ContigError::BadAlign(3).errno(), -22);
}

#[test]
fn an_error_of_a_request_survives_its_bits() {
    let of_numbers =
        [AllocError::UnknownCpu(CpuId(u32::MAX)), AllocError::UnknownNode(NodeId(u16::MAX))];
    let others = [AllocError::NoMemory, AllocError::BadZone, AllocError::BadType];
    for error in others.into_iter().chain(of_numbers) {
        assert_ne!(error.to_bits(), 0);
        assert_eq!(AllocError::from_bits(error.to_bits()), error);
    }
}
