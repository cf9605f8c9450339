// The body for text that may be settings: lines of `name=value`, written to a small yard one by
// one. An accepted value is read back and accepted again; a refused one changes no setting. The
// yard stays valid and usable. `validate`, which checks every frame, runs at the end, and on one
// input in eight, chosen by its hash, after each line.

use crate::common::{Machine, Y};
use pageyard::{Gfp, KNOBS, Order, ZoneKind};

pub(crate) fn knobs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let machine = Machine::new()
        .zone(ZoneKind::Dma32, 0..1024)
        .zone(ZoneKind::Normal, 1024..4096)
        .cpus(&[0, 0]);
    let hash = data.iter().fold(0u32, |h, &b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    let each_line = (hash >> 16).is_multiple_of(8);
    machine.run(|y: &Y<'_>| {
        let sound = |line: &str| y.validate().unwrap_or_else(|e| panic!("{line}: {e}"));
        for line in text.lines().take(64) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            // A number instead of a name: the setting at that index of the table.
            let name = name.parse().ok().and_then(|n: usize| KNOBS.get(n)).map_or(name, |k| k.name);
            let before = y.knobs();
            match y.set_knob(name, value) {
                Err(e) => {
                    assert!(!e.to_string().is_empty());
                    assert_eq!(y.knobs(), before, "a refused value changed a setting");
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
            if each_line {
                sound(line);
            }
            if let Ok(pfn) = y.alloc(Order::ZERO, Gfp::KERNEL) {
                y.free(pfn, Order::ZERO).unwrap();
            }
        }
        sound("the end");
    });
}
