//! The device tree, which says where memory is and which CPUs there are.

use core::ffi::CStr;
use core::ptr;
use core::slice;

use crate::memory::Memory;
use crate::{CPUS, println};

unsafe extern "C" {
    static image_start: u8;
    static image_end: u8;
}

/// The device tree.
struct Tree(&'static [u8]);

impl Tree {
    fn at(address: usize) -> Tree {
        // SAFETY: QEMU put the device tree there; the page is mapped, and nothing writes it.
        let header: [u32; 2] = unsafe { ptr::read(address as *const [u32; 2]) };
        let [magic, size] = header.map(u32::from_be);
        assert!(magic == 0xd00d_feed, "no device tree at {address:#x}");
        // SAFETY: the header says how long it is; `memory` reserves all of it.
        Tree(unsafe { slice::from_raw_parts(address as *const u8, size as usize) })
    }

    fn word(&self, at: usize) -> usize {
        let bytes = self.0[at..at + 4].try_into().unwrap_or_default();
        u32::from_be_bytes(bytes) as usize
    }

    fn name(&self, at: usize) -> &'static [u8] {
        CStr::from_bytes_until_nul(&self.0[at..]).unwrap_or_default().to_bytes()
    }

    /// Calls `each` with the property `reg` of every node on a path whose names begin so. The
    /// numbers in it have 64 bits, or 32 where the property is a single one.
    fn regs(&self, path: &[&str], each: &mut dyn FnMut([u64; 2])) {
        let (mut at, strings) = (self.word(8), self.word(12));
        // The nodes that are open, how many of the outer ones are on the path, whether the innermost
        // is its end.
        let (mut depth, mut matched, mut wanted) = (0, 0, false);
        loop {
            let token = self.word(at);
            at += 4;
            match token {
                // A node begins; its name.
                1 => {
                    let name = self.name(at);
                    let next = path.get(depth).filter(|_| matched == depth);
                    matched += usize::from(next.is_some_and(|p| name.starts_with(p.as_bytes())));
                    depth += 1;
                    wanted = depth == path.len() && matched == depth;
                    at += (name.len() + 1).next_multiple_of(4);
                }
                // A property: length, name, value.
                3 => {
                    let (length, name) = (self.word(at), self.name(strings + self.word(at + 4)));
                    let value = at + 8;
                    let number =
                        |i| (self.word(value + i) as u64) << 32 | self.word(value + i + 4) as u64;
                    match length {
                        _ if !wanted || name != b"reg" => {}
                        4 => each([self.word(value) as u64, 0]),
                        8 => each([number(0), 0]),
                        _ => (0..length).step_by(16).for_each(|i| each([number(i), number(i + 8)])),
                    }
                    at = value + length.next_multiple_of(4);
                }
                // A node ends.
                2 => {
                    depth -= 1;
                    matched = matched.min(depth);
                    wanted = false;
                }
                4 => {}
                _ => return,
            }
        }
    }
}

/// Adds the memory below `mapped`, and reserves what is in use: by the firmware, the device tree,
/// the image.
pub fn memory(at: usize, mapped: u64, memory: &mut Memory) {
    let tree = Tree::at(at);
    tree.regs(&["", "memory@"], &mut |[start, size]| {
        println!("memory {start:#x}..{:#x}", start + size);
        memory.add(start..(start + size).min(mapped));
    });
    tree.regs(&["", "reserved-memory", ""], &mut |[start, size]| {
        memory.reserve(start..start + size)
    });
    memory.reserve(at as u64..(at + tree.0.len()) as u64);
    memory.reserve(&raw const image_start as u64..&raw const image_end as u64);
}

/// Stores the CPUs' numbers, that of the boot CPU first, and returns how many there are.
pub fn cpus(at: usize, boot: u64, ids: &mut [u64; CPUS]) -> usize {
    ids[0] = boot;
    let mut n = 1;
    Tree::at(at).regs(&["", "cpus", "cpu@"], &mut |[id, _]| {
        if id != boot && n < CPUS {
            ids[n] = id;
            n += 1;
        }
    });
    n
}
