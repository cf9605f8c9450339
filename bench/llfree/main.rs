//! The comparison of `bench/core` with LLFree as one more peer. `scripts/llfree.sh` builds and runs
//! it against a checkout, which this repository does not contain.

use llfree::{Alloc, Class, Classing, FrameId, HUGE_ORDER, Init, LLFree, MetaData, Request};
use pageyard_bench::compare::{Field, run};
use pageyard_bench::contestants::{CPUS, Contestant, FRAMES, Visitor};
use pageyard_bench::field;

/// LLFree with the two classes of its own documentation: small frames and huge frames, each with
/// one reservation per CPU.
struct Peer(LLFree<'static>);

/// The same answer as the function that [`Classing::simple`] returns, without an indirect call.
#[inline(always)]
fn request(order: u8) -> Request {
    let order = usize::from(order);
    Request::new(order, Class((order >= HUGE_ORDER).into()), Some(pageyard_bench::cpu() as usize))
}

impl Contestant for Peer {
    const NAME: &'static str = "llfree";

    fn new() -> Self {
        let (classing, _) = Classing::simple(CPUS);
        let room = LLFree::metadata_size(&classing, FRAMES);
        // Kept until the program ends, as in a kernel.
        let memory = MetaData::alloc(&room);
        Peer(LLFree::new(FRAMES, Init::FreeAll, &classing, memory).expect("the room fits"))
    }

    #[inline(always)]
    fn alloc(&self, order: u8) -> usize {
        self.0.get(None, request(order)).expect("free memory").0.0
    }

    #[inline(always)]
    fn free(&self, block: usize, order: u8) {
        self.0.put(FrameId(block), request(order)).expect("an allocated block");
    }
}

struct WithLlfree;

impl Field for WithLlfree {
    fn each(visitor: &mut impl Visitor) {
        field::each(visitor);
        visitor.visit::<Peer>();
    }
}

fn main() -> std::io::Result<()> {
    run::<WithLlfree>()
}
