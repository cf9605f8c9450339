//! Requests that fail on purpose (spec §11.7), to see how their callers take it.

use crate::base::gfp::Gfp;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::Order;

/// Which requests are to fail. The default fails none; its switches are the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Of those that come so far, how many in a thousand fail.
    pub per_mille: u32,
    /// Only every so-manieth gets a chance to fail. 0 and 1: each one.
    pub interval: u64,
    /// At most so many fail.
    pub times: u64,
    /// No request fails while more pages than it wants are left of this number, from which each
    /// request's 2^order pages are taken.
    pub space: u64,
    /// Smaller requests never fail.
    pub min_order: Order,
    /// Requests that must not fail do not.
    pub skip_nofail: bool,
    /// Requests for user space's memory (HIGHMEM) do not fail.
    pub skip_highmem: bool,
    /// Requests that may reclaim do not fail.
    pub skip_direct_reclaim: bool,
    /// Where the random numbers start: the same seed and the same requests fail the same ones.
    pub seed: u64,
}

impl FaultPlan {
    /// No request fails.
    pub const NONE: FaultPlan = FaultPlan {
        per_mille: 0,
        interval: 1,
        times: u64::MAX,
        space: 0,
        min_order: match Order::new(1) {
            Some(order) => order,
            None => Order::ZERO,
        },
        skip_nofail: true,
        skip_highmem: true,
        skip_direct_reclaim: true,
        seed: 0,
    };
}

impl Default for FaultPlan {
    fn default() -> Self {
        FaultPlan::NONE
    }
}

/// A plan at work. A platform that has one asks it in [`fail`](crate::Defences::fail):
///
/// ```
/// use pageyard::{FaultPlan, Defences, Faults, Gfp, Order};
///
/// struct Failing { faults: Faults }
/// impl Defences for Failing {
///     fn fail(&self, order: Order, gfp: Gfp) -> bool { self.faults.hit(order, gfp) }
/// }
/// let plan = FaultPlan { per_mille: 1000, times: 1, ..FaultPlan::NONE };
/// let failing = Failing { faults: Faults::new(plan) };
/// assert!(failing.fail(Order::MAX, Gfp::ATOMIC));
/// assert!(!failing.fail(Order::MAX, Gfp::ATOMIC));
/// assert_eq!(failing.faults.injected(), 1);
/// ```
///
/// Any number of CPUs may ask at once. Then the order in which they come decides who fails, and
/// `times` holds exactly all the same.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
    random: AtomicU64,
    asked: AtomicU64,
    space: AtomicU64,
    injected: AtomicU64,
}

impl Faults {
    /// Begins with a plan.
    pub const fn new(plan: FaultPlan) -> Faults {
        Faults {
            // Neighbouring seeds are to be far apart, and 0 would stay 0.
            random: AtomicU64::new(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63),
            asked: AtomicU64::new(0),
            space: AtomicU64::new(plan.space),
            injected: AtomicU64::new(0),
            plan,
        }
    }

    /// How many requests have failed.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    /// Whether this request is to fail.
    pub fn hit(&self, order: Order, gfp: Gfp) -> bool {
        let plan = &self.plan;
        if order < plan.min_order
            || plan.skip_nofail && gfp.contains(Gfp::NOFAIL)
            || plan.skip_highmem && gfp.contains(Gfp::HIGHMEM)
            || plan.skip_direct_reclaim && gfp.contains(Gfp::DIRECT_RECLAIM)
            || self.injected() >= plan.times
        {
            return false;
        }
        let pages = u64::from(order.pages());
        let afford = |left: u64| (left > pages).then(|| left - pages);
        if self.space.fetch_update(Relaxed, Relaxed, afford).is_ok() {
            return false;
        }
        let asked = self.asked.fetch_add(1, Relaxed).wrapping_add(1);
        if !asked.is_multiple_of(plan.interval.max(1)) {
            return false;
        }
        if self.random() % 1000 >= u64::from(plan.per_mille) {
            return false;
        }
        let one_more = |n: u64| (n < plan.times).then(|| n + 1);
        self.injected.fetch_update(Relaxed, Relaxed, one_more).is_ok()
    }

    /// The next random number (xorshift64*), its upper half.
    fn random(&self) -> u64 {
        let next = |mut x: u64| {
            x ^= x >> 12;
            x ^= x << 25;
            x ^= x >> 27;
            Some(x)
        };
        let (Ok(x) | Err(x)) = self.random.fetch_update(Relaxed, Relaxed, next);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}
