//! The types of a yard whose engine is chosen at run time.

use pageyard::policy::Rules;

type Policy = &'static Rules;

pub(crate) type HostYard = pageyard_host::HostYard<Policy>;
pub(crate) type Block<'y> = pageyard_host::Block<'y, Policy>;
pub(crate) type Movable<'y> = pageyard_host::Movable<'y, Policy>;
pub(crate) type PageRange<'y> = pageyard_host::PageRange<'y, Policy>;
pub(crate) type InYard<'y, F> = pageyard_host::InYard<'y, F, Policy>;
pub(crate) type PageAlloc<F> = pageyard_host::PageAlloc<F, Policy>;
