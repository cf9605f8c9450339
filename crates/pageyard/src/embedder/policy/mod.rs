//! How the allocator behaves: a policy gives its [`Rules`].
//!
//! The policies here are zero-sized types whose rules are constants, so a feature that such a
//! policy does not use costs nothing at run time. A reference to [`Rules`] is also a policy, chosen
//! at run time, with the same results.
//!
//! [`Linux612`] behaves like Linux 6.12. [`Base`] to [`Step10`] are the tuning series that led
//! there (spec §5.17). Each differs from `Linux612` only in the tuning of the per-CPU lists, so two
//! columns of an experiment differ only in the named step. [`Vanilla`], [`TwoPassBulkFree`] and
//! [`NoHighOrder`] change one thing of the policy they wrap and compose:
//! `TwoPassBulkFree<NoHighOrder<Base>>` is a policy. [`Linux61`] is a complete older kernel.

mod history;
mod modifiers;
mod packed;
mod rules;

pub use history::*;
pub use modifiers::*;
pub use packed::*;
pub use rules::*;

/// Provides an allocator's rules. For a policy of your own, implement [`StaticPolicy`], or pass a reference
/// to [`Rules`]. No other type can be a policy: one whose rules changed from call to call, or did not match
/// its [`ENGINE`](Self::ENGINE), could give one page to two owners.
///
/// ```
/// use pageyard::policy::{Linux612, Policy};
///
/// fn keeps_high_orders(policy: impl Policy) -> bool {
///     policy.rules().high_order_lists
/// }
/// assert!(keeps_high_orders(Linux612));
/// ```
///
/// ```compile_fail,E0277
/// use pageyard::policy::{Linux612, OwnedBlocks, Policy, Rules, StaticPolicy};
///
/// #[derive(Clone, Copy)]
/// struct Fickle<'a>(&'a core::cell::Cell<bool>);
/// impl Policy for Fickle<'_> {
///     fn rules(&self) -> &Rules {
///         const { [&Linux612::RULES, &OwnedBlocks::<Linux612>::RULES] }[self.0.replace(true) as usize]
///     }
/// }
/// ```
pub trait Policy: Copy + Constant {
    /// The engine of the rules, if it is known at compile time. The common path then holds the code of
    /// one engine. `None` is always right.
    const ENGINE: Option<Engine> = None;

    /// Whether the rules may ask for [`OwnedBlocks`], [`Steered`] or [`DefragMode`]. `false` leaves their
    /// code out where the rules are chosen at run time; an allocator is then not created if they ask for
    /// one of these.
    const PROPOSALS: bool = true;

    /// Returns the allocator's rules: the same at every call.
    fn rules(&self) -> &Rules;
}

/// What keeps other crates from implementing [`Policy`]: a policy's rules are constant.
mod constant {
    /// Implemented for types whose rules cannot change.
    pub trait Constant {}
}
use constant::Constant;

/// What few policies ask for.
pub(crate) trait Proposals: Policy {
    /// Whether CPUs own pageblocks ([`OwnedBlocks`]).
    #[inline(always)]
    fn owns_blocks(&self) -> bool {
        Self::PROPOSALS && self.rules().pcp.owned_blocks
    }

    /// Whether requests that cannot move are steered into few regions ([`Steered`]).
    #[inline(always)]
    fn steers(&self) -> bool {
        Self::PROPOSALS && self.rules().steered
    }

    /// Whether types mix only after reclaim and compaction ([`DefragMode`]).
    #[inline(always)]
    fn defragments(&self) -> bool {
        Self::PROPOSALS && self.rules().defrag_mode
    }
}

impl<P: Policy> Proposals for P {}

/// Rules chosen at run time.
///
/// ```
/// use pageyard::policy::{Linux612, Policy, Rules, StaticPolicy};
///
/// let chosen = Rules { high_order_lists: false, ..Linux612::RULES };
/// assert!(!(&chosen).rules().high_order_lists);
/// ```
impl Policy for &Rules {
    #[inline]
    fn rules(&self) -> &Rules {
        self
    }
}
impl Constant for &Rules {}

/// Rules chosen at run time, but none of [`OwnedBlocks`], [`Steered`] and [`DefragMode`], whose code is left
/// out. An allocator is not created with rules that ask for one of these.
///
/// ```
/// use pageyard::policy::{Linux612, NoProposals, Policy, StaticPolicy};
///
/// assert_eq!(*NoProposals(&Linux612::RULES).rules(), Linux612::RULES);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NoProposals<'r>(pub &'r Rules);

impl Policy for NoProposals<'_> {
    const PROPOSALS: bool = false;

    #[inline]
    fn rules(&self) -> &Rules {
        self.0
    }
}
impl Constant for NoProposals<'_> {}

impl<P: StaticPolicy> Policy for P {
    const ENGINE: Option<Engine> = Some(P::RULES.engine);

    #[inline(always)]
    fn rules(&self) -> &Rules {
        const { &P::RULES }
    }
}
impl<P: StaticPolicy> Constant for P {}

/// A policy known at compile time. A type of yours may be one: its rules are a constant.
///
/// ```
/// use pageyard::policy::{Linux61, Linux612, Rules, StaticPolicy};
///
/// fn describe<P: StaticPolicy>() -> String {
///     format!("{}: types carried: {}", P::NAME, P::RULES.carried_types)
/// }
/// assert_eq!(describe::<Linux61>(), "Linux61: types carried: true");
///
/// /// Linux 6.12 without lists for high orders.
/// #[derive(Clone, Copy, Default)]
/// struct Mine;
/// impl StaticPolicy for Mine {
///     const NAME: &'static str = "Mine";
///     const RULES: Rules = Rules { high_order_lists: false, ..Linux612::RULES };
///     const POLICY: Self = Mine;
/// }
/// assert_eq!(describe::<Mine>(), "Mine: types carried: false");
/// ```
pub trait StaticPolicy: Policy {
    /// The policy's name in tables and on the command line.
    const NAME: &'static str;
    /// The policy's rules.
    const RULES: Rules;
    /// The only value of the type.
    const POLICY: Self;
}

/// A policy or modifier that is chosen by name, for example on a command line.
///
/// ```
/// use pageyard::policy::POLICIES;
///
/// let old = POLICIES.iter().find(|p| p.name == "Linux61").unwrap();
/// assert!(old.makes.carried_types);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Named<T> {
    /// The name of the type.
    pub name: &'static str,
    /// The type's documentation.
    pub about: &'static str,
    /// The rules, or the function that changes another policy's rules.
    pub makes: T,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::init_error::InitError;

    /// A policy whose code lacks the proposals is refused if its rules ask for one.
    #[test]
    fn rules_that_were_left_out_are_refused() {
        for (rules, name) in [
            (&OwnedBlocks::<Linux612>::RULES, "owned_blocks"),
            (&Steered::<Linux612>::RULES, "steered"),
            (&DefragMode::<Linux612>::RULES, "defrag_mode"),
        ] {
            let refused = InitError::Rule { name, value: 1, most: 0 };
            assert_eq!(InitError::check(&NoProposals(rules)), Err(refused));
            assert_eq!(InitError::check(&rules), Ok(()));
        }
        assert_eq!(InitError::check(&NoProposals(&Linux612::RULES)), Ok(()));
    }

    #[test]
    fn every_policy_can_be_chosen_by_name() {
        let whole = |name| POLICIES.iter().find(|p| p.name == name).map(|p| *p.makes);
        assert_eq!(whole("Linux61"), Some(Linux61::RULES));
        for m in MODIFIERS {
            assert_ne!((m.makes)(Base::RULES), Base::RULES, "{}", m.name);
            assert!(m.about.len() > 20 && whole(m.name).is_none());
        }
        for m in NUMBERED {
            assert_ne!((m.makes)(m.most, Base::RULES), Base::RULES, "{}", m.name);
            assert!((m.makes)(m.most, Base::RULES).out_of_range().is_none(), "{}", m.name);
            assert!((m.makes)(m.most + 1, Base::RULES).out_of_range().is_some(), "{}", m.name);
        }
        assert_eq!((NUMBERED[0].makes)(3, Base::RULES), Guarded::<3, Base>::RULES);
        assert_eq!((NUMBERED[1].makes)(2, Base::RULES), Scale::<2, Base>::RULES);
    }

    #[test]
    fn policies_compose() {
        type P = TwoPassBulkFree<NoHighOrder<Vanilla<Base>>>;
        let r = P::RULES;
        assert_eq!(r.bulk_free, BulkFree::TwoPass);
        assert!(!r.high_order_lists && r.carried_types);
        assert_eq!(r.pcp, Base::RULES.pcp);
        assert_eq!(<Vanilla>::RULES.pcp, Linux612::RULES.pcp);
    }
}
