// What is run on text that may be settings: lines of `name=value`, written to a small yard one by
// one. What is accepted is read back and accepted again; the yard is sound and serves.

use crate::common::{Machine, Y};
use pageyard::{Gfp, KNOBS, Order, ZoneKind};

pub(crate) fn knobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let machine = Machine::new()
        .zone(ZoneKind::Dma32, 0..2048)
        .zone(ZoneKind::Normal, 2048..8192)
        .cpus(&[0, 0]);
    machine.run(|y: &Y<'_>| {
        for line in text.lines().take(64) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            // A number for a name: the setting at that place of the table.
            let name = name.parse().ok().and_then(|n: usize| KNOBS.get(n)).map_or(name, |k| k.name);
            let before = y.knobs();
            match y.set_knob(name, value) {
                Err(e) => {
                    assert!(!e.to_string().is_empty());
                    assert_eq!(y.knobs(), before, "refused, and changed");
                }
                Ok(()) => {
                    let after = y.knobs();
                    let mut text = String::new();
                    if y.knob(name, &mut text).is_ok() {
                        y.set_knob(name, text.trim()).unwrap_or_else(|e| panic!("{text}: {e}"));
                        assert_eq!(y.knobs(), after, "{name}: read and written");
                    }
                }
            }
            y.validate().unwrap_or_else(|e| panic!("{line}: {e}"));
            if let Ok(pfn) = y.alloc(Order::ZERO, Gfp::KERNEL) {
                y.free(pfn, Order::ZERO).unwrap();
            }
        }
    });
}
