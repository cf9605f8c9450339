//! Fault injection: requests that fail on purpose (spec §11.7), to test their callers.

use crate::base::gfp::Gfp;
use crate::base::sync::{AtomicU64, Ordering::Relaxed};
use crate::base::units::Order;

/// Selects the requests that fail. The default fails none; its switches are the kernel's.
///
/// ```
/// use pageyard::{FaultPlan, Faults, Gfp, Order};
///
/// // One in a hundred requests of order 3 and above fails, ten in all.
/// let plan = FaultPlan {
///     per_mille: 10,
///     times: 10,
///     min_order: Order::new(3).unwrap(),
///     skip_direct_reclaim: false,
///     ..FaultPlan::NONE
/// };
/// let faults = Faults::new(plan);
/// assert!(!faults.hit(Order::ZERO, Gfp::KERNEL));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// How many in a thousand of the requests that pass all other tests fail.
    pub per_mille: u32,
    /// Only every `interval`-th request may fail. 0 and 1 mean every request.
    pub interval: u64,
    /// The largest number of requests that fail.
    pub times: u64,
    /// Budget of pages, reduced by each request's 2^order pages. No request fails while the
    /// remaining budget exceeds its size.
    pub space: u64,
    /// Requests of a lower order never fail.
    pub min_order: Order,
    /// Requests that must not fail ([`Gfp::NOFAIL`]) never fail.
    pub skip_nofail: bool,
    /// Requests for user memory ([`Gfp::HIGHMEM`]) never fail.
    pub skip_highmem: bool,
    /// Requests that may reclaim never fail.
    pub skip_direct_reclaim: bool,
    /// Seed of the random numbers: the same seed and the same requests give the same failures.
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

/// A running fault plan. The embedder queries it in [`fail`](crate::Defences::fail):
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
/// Any number of CPUs may query it concurrently. The order in which they call then decides which
/// requests fail; `times` still holds exactly.
#[derive(Debug)]
pub struct Faults {
    plan: FaultPlan,
    random: AtomicU64,
    asked: AtomicU64,
    space: AtomicU64,
    injected: AtomicU64,
}

impl Faults {
    /// Starts a plan.
    pub const fn new(plan: FaultPlan) -> Faults {
        Faults {
            // Consecutive seeds must give different sequences, and a state of 0 would stay 0.
            random: AtomicU64::new(plan.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63),
            asked: AtomicU64::new(0),
            space: AtomicU64::new(plan.space),
            injected: AtomicU64::new(0),
            plan,
        }
    }

    /// Returns the number of requests that have failed.
    pub fn injected(&self) -> u64 {
        self.injected.load(Relaxed)
    }

    /// Returns whether this request must fail.
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

    /// Returns the upper half of the next random number (xorshift64*).
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
