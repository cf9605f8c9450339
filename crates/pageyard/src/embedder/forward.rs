//! Forwarding of hooks, written once.

/// Implements the named methods of [`Platform`](crate::Platform), [`Reclaim`](crate::Reclaim),
/// [`Observer`](crate::Observer) or [`Defences`](crate::Defences) by calling the same method of a
/// field.
///
/// For wrappers, inside an `impl` of one of these traits: forwards what the wrapper does not
/// override.
///
/// ```
/// use pageyard::{CpuId, Event, Observer};
///
/// struct Counted<O> { inner: O }
/// impl<O: Observer> Observer for Counted<O> {
///     fn event(&self, cpu: CpuId, event: Event) {
///         // Count here.
///         self.inner.event(cpu, event);
///     }
///     pageyard::forward_hooks!(inner: sees_every_block touch report warn);
/// }
/// ```
#[macro_export]
macro_rules! forward_hooks {
    (@deref: $($method:ident)*) => { $( $crate::forward_hooks!(@method $method (**)); )* };
    ($field:ident: $($method:ident)*) => { $( $crate::forward_hooks!(@method $method () .$field); )* };
    // By the trait's name: a type such as `Parts` may have methods of its own with the same names.
    (@forward ($($deref:tt)*) $(.$field:ident)?,
        $trait:ident $method:ident($($arg:ident: $type:ty),*) $(-> $answer:ty)?) => {
        #[inline(always)]
        fn $method(&self $(, $arg: $type)*) $(-> $answer)? {
            $crate::$trait::$method(&($($deref)* self $(.$field)?) $(, $arg)*)
        }
    };
    (@method cpu $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Platform cpu() -> $crate::CpuId);
    };
    (@method now $($to:tt)*) => { $crate::forward_hooks!(@forward $($to)*, Platform now() -> u64); };
    (@method pause $($to:tt)*) => { $crate::forward_hooks!(@forward $($to)*, Platform pause()); };
    (@method prepare $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Platform prepare(pfn: $crate::Pfn, order: $crate::Order, gfp: $crate::Gfp));
    };
    (@method drain_on_failure $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Platform drain_on_failure() -> bool);
    };
    (@method is_plain $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim is_plain(gfp: $crate::Gfp) -> bool);
    };
    (@method context $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim context() -> $crate::Context);
    };
    (@method task $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim task() -> Option<u64>);
    };
    (@method dirty_ok $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim dirty_ok(node: $crate::NodeId) -> bool);
    };
    (@method reclaim $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim reclaim(job: &$crate::ReclaimJob) -> u64);
    };
    (@method reclaimable $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim reclaimable(zone: $crate::ZoneId) -> u64);
    };
    (@method node_reclaim $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim node_reclaim(job: &$crate::NodeReclaimJob) -> $crate::NodeReclaim);
    };
    (@method node_caches $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim node_caches(job: &$crate::NodeReclaimJob) -> Option<$crate::NodeCaches>);
    };
    (@method throttle $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim throttle(node: $crate::NodeId, most_ns: Option<u64>, enough: &dyn Fn() -> bool) -> $crate::Throttle);
    };
    (@method out_of_memory $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim out_of_memory(job: &$crate::ReclaimJob) -> $crate::Oom);
    };
    (@method keep_trying $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim keep_trying(order: $crate::Order, tries: u32) -> bool);
    };
    (@method wake_reclaim $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim wake_reclaim(node: $crate::NodeId, order: $crate::Order, highest_zone: $crate::ZoneKind));
    };
    (@method wake_compaction $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim wake_compaction(node: $crate::NodeId));
    };
    (@method relocate $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim relocate(from: $crate::Pfn, to: $crate::Pfn, order: $crate::Order) -> $crate::Relocation);
    };
    (@method is_unevictable $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim is_unevictable(pfn: $crate::Pfn, order: $crate::Order) -> bool);
    };
    (@method report_order $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim report_order() -> Option<$crate::Order>);
    };
    (@method report_free $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Reclaim report_free(blocks: &[($crate::Pfn, $crate::Order)]) -> bool);
    };
    (@method sees_every_block $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Observer sees_every_block() -> bool);
    };
    (@method event $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Observer event(cpu: $crate::CpuId, event: $crate::Event));
    };
    (@method touch $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Observer touch(pfn: $crate::Pfn));
    };
    (@method report $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Observer report(report: $crate::Report));
    };
    (@method warn $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Observer warn(order: $crate::Order, gfp: $crate::Gfp));
    };
    (@method fail $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences fail(order: $crate::Order, gfp: $crate::Gfp) -> bool);
    };
    (@method page_state $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences page_state(pfn: $crate::Pfn) -> $crate::PageState);
    };
    (@method zero $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences zero(pfn: $crate::Pfn, order: $crate::Order) -> bool);
    };
    (@method poison $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences poison(pfn: $crate::Pfn, order: $crate::Order));
    };
    (@method check_poison $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences check_poison(pfn: $crate::Pfn, order: $crate::Order) -> Option<$crate::poison::Corruption>);
    };
    (@method unmap $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences unmap(pfn: $crate::Pfn, order: $crate::Order));
    };
    (@method map $($to:tt)*) => {
        $crate::forward_hooks!(@forward $($to)*, Defences map(pfn: $crate::Pfn, order: $crate::Order));
    };
}
