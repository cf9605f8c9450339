//! Costs of keeping a page ready without a lock, in three ways:
//!
//! - a thread's own array,
//! - the same with a handshake by which other threads can claim it,
//! - a per-CPU array in a restartable sequence.
//!
//! Best of many rounds, in nanoseconds; to compare, not to quote.

#![allow(unsafe_code)] // restartable sequences

use std::hint::black_box;

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod sequence {
    //! Per-CPU arrays. A thread that is interrupted or moved inside the sequence restarts it.

    use std::arch::asm;
    use std::cell::UnsafeCell;

    const ROOM: usize = 126;

    #[repr(C, align(1024))]
    struct OfCpu {
        count: u64,
        /// Not 0 while another thread has claimed the array.
        stop: u64,
        slots: [u64; ROOM],
    }

    /// For CPUs below 1024.
    pub(super) struct Arrays {
        all: Box<[UnsafeCell<OfCpu>]>,
        area: isize,
    }

    impl Arrays {
        pub(super) fn new() -> Option<Arrays> {
            // SAFETY: C strings; glibc defines both symbols, with these types, or neither.
            let area = unsafe {
                let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr());
                let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr());
                if offset.is_null() || size.is_null() || *size.cast::<u32>() == 0 {
                    return None;
                }
                *offset.cast::<isize>()
            };
            let one = || UnsafeCell::new(OfCpu { count: 0, stop: 0, slots: [0; ROOM] });
            Some(Arrays { all: (0..1024).map(|_| one()).collect(), area })
        }

        #[inline(always)]
        pub(super) fn pop(&self) -> Option<u64> {
            let (value, count): (u64, u64);
            // SAFETY: only the last store changes the CPU's array, and it is executed only if the
            // thread was not interrupted since it read the CPU number. The descriptor is never
            // written; `area` is glibc's, and the thread is registered.
            unsafe {
                asm!(
                    ".pushsection __rseq_cs, \"aw\"",
                    ".balign 32",
                    "77:",
                    ".long 0, 0",
                    ".quad 22f, 33f - 22f, 44f",
                    ".popsection",
                    "66:",
                    "lea {at}, [rip + 77b]",
                    "mov qword ptr fs:[{area} + 8], {at}",
                    "22:",
                    "mov {at:e}, dword ptr fs:[{area} + 4]",
                    "shl {at}, 10",
                    "add {at}, {base}",
                    "xor {n:e}, {n:e}",
                    "cmp qword ptr [{at} + 8], 0",
                    "jne 55f",
                    "mov {n}, qword ptr [{at}]",
                    "test {n}, {n}",
                    "jz 55f",
                    "mov {value}, qword ptr [{at} + 8 * {n} + 8]",
                    "dec {n}",
                    "mov qword ptr [{at}], {n}",
                    "33:",
                    "inc {n}",
                    "55:",
                    ".pushsection .text.unlikely, \"ax\"",
                    ".byte 0x0f, 0xb9, 0x3d",
                    ".long 0x53053053",
                    "44:",
                    "jmp 66b",
                    ".popsection",
                    at = out(reg) _,
                    n = out(reg) count,
                    value = out(reg) value,
                    area = in(reg) self.area,
                    base = in(reg) self.all.as_ptr(),
                    options(nostack),
                );
            }
            (count != 0).then_some(value)
        }

        #[inline(always)]
        pub(super) fn push(&self, value: u64) -> bool {
            let full: u64;
            // SAFETY: as in `pop`; the slot written before the last store holds nothing.
            unsafe {
                asm!(
                    ".pushsection __rseq_cs, \"aw\"",
                    ".balign 32",
                    "77:",
                    ".long 0, 0",
                    ".quad 22f, 33f - 22f, 44f",
                    ".popsection",
                    "66:",
                    "lea {at}, [rip + 77b]",
                    "mov qword ptr fs:[{area} + 8], {at}",
                    "22:",
                    "mov {at:e}, dword ptr fs:[{area} + 4]",
                    "shl {at}, 10",
                    "add {at}, {base}",
                    "mov {full:e}, 1",
                    "cmp qword ptr [{at} + 8], 0",
                    "jne 55f",
                    "mov {n}, qword ptr [{at}]",
                    "cmp {n}, {room}",
                    "jae 55f",
                    "mov qword ptr [{at} + 8 * {n} + 16], {value}",
                    "inc {n}",
                    "mov qword ptr [{at}], {n}",
                    "33:",
                    "xor {full:e}, {full:e}",
                    "55:",
                    ".pushsection .text.unlikely, \"ax\"",
                    ".byte 0x0f, 0xb9, 0x3d",
                    ".long 0x53053053",
                    "44:",
                    "jmp 66b",
                    ".popsection",
                    at = out(reg) _,
                    n = out(reg) _,
                    full = out(reg) full,
                    value = in(reg) value,
                    area = in(reg) self.area,
                    base = in(reg) self.all.as_ptr(),
                    room = const ROOM,
                    options(nostack),
                );
            }
            full == 0
        }
    }
}

mod own {
    //! A thread's own array.

    use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
    use std::sync::atomic::{AtomicU64, compiler_fence};

    const ROOM: usize = 126;

    struct Array {
        inside: AtomicU64,
        taken: AtomicU64,
        count: AtomicU64,
        slots: [AtomicU64; ROOM],
    }

    thread_local! {
        static MINE: Array = const { Array {
            inside: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            count: AtomicU64::new(0),
            slots: [const { AtomicU64::new(0) }; ROOM],
        } };
    }

    /// With `SHARED`, another thread can claim the array. The owner sets `inside` before it checks
    /// `taken`, and a barrier that the claimer pays for ensures that at least one of them sees the
    /// other.
    #[inline(always)]
    fn inside<const SHARED: bool, T>(none: T, f: impl FnOnce(&Array) -> T) -> T {
        MINE.with(|mine| {
            if SHARED {
                mine.inside.store(1, Relaxed);
                compiler_fence(SeqCst);
                if mine.taken.load(Relaxed) != 0 {
                    mine.inside.store(0, Release);
                    return none;
                }
            }
            let answer = f(mine);
            if SHARED {
                mine.inside.store(0, Release);
            }
            answer
        })
    }

    #[inline(always)]
    pub(super) fn pop<const SHARED: bool>() -> Option<u64> {
        inside::<SHARED, _>(None, |mine| {
            let count = mine.count.load(Relaxed).checked_sub(1)?;
            mine.count.store(count, Relaxed);
            Some(mine.slots.get(count as usize)?.load(Relaxed))
        })
    }

    #[inline(always)]
    pub(super) fn push<const SHARED: bool>(value: u64) -> bool {
        inside::<SHARED, _>(false, |mine| {
            let count = mine.count.load(Relaxed);
            let Some(slot) = mine.slots.get(count as usize) else { return false };
            slot.store(value, Relaxed);
            mine.count.store(count + 1, Relaxed);
            true
        })
    }
}

fn best(name: &str, mut one: impl FnMut()) {
    const TIMES: u32 = 200_000;
    let round = |_| {
        let start = std::time::Instant::now();
        (0..TIMES).for_each(|_| one());
        start.elapsed().as_nanos() as f64 / f64::from(TIMES)
    };
    let least = (0..60).map(round).fold(f64::INFINITY, f64::min);
    println!("{name:36} {least:6.2}");
}

fn main() {
    for _ in 0..2 {
        own::push::<false>(7);
        best("own array", || {
            let value = black_box(own::pop::<false>()).unwrap_or(7);
            own::push::<false>(value);
        });
        best("own array that can be taken away", || {
            let value = black_box(own::pop::<true>()).unwrap_or(7);
            own::push::<true>(value);
        });
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        if let Some(arrays) = sequence::Arrays::new() {
            arrays.push(7);
            best("restartable sequences", || {
                let value = black_box(arrays.pop()).unwrap_or(7);
                arrays.push(value);
            });
            let mut sum = 0;
            while let Some(v) = arrays.pop() {
                sum += v;
            }
            black_box(sum);
        }
    }
}
