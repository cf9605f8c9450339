// The body for text that may be a machine file or a size.

use pageyard::{CpuId, NodeId};
use pageyard_machine::MachineLayout;
use pageyard_machine::spec::{Description, MOST_CPUS};

/// A machine file, or, after a `?`, a size.
pub(crate) fn machine(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(rest) = text.strip_prefix('?') {
        let _ = pageyard_machine::size(rest);
        return;
    }
    let spec = match Description::from_toml("fuzz", text).and_then(|d| d.check()) {
        Ok(spec) => spec,
        Err(e) => return assert!(e.to_string().starts_with("fuzz: "), "{e}"),
    };
    let (cpus, nodes) = (spec.cpus().len(), usize::from(spec.nodes()));
    assert!((1..=MOST_CPUS as usize).contains(&cpus));
    assert_eq!(spec.distances().len(), nodes * nodes);
    let on_nodes: usize = (0..nodes).map(|n| spec.cpus_of(NodeId(n as u16)).count()).sum();
    assert_eq!(on_nodes, cpus);
    assert!(spec.cache_slice(CpuId(0)).is_some());
    let layout = MachineLayout::new(&spec, spec.memory());
    // Accepted or refused, without a panic.
    let _ = layout.layout(pageyard::Knobs::default()).needs::<spin::mutex::SpinMutex<()>>();
}
