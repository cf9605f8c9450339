//! On which CPU a thread runs, and where it may.
//!
//! glibc registers every thread with the kernel's restartable sequences and says where in a thread's
//! own memory the kernel keeps the CPU's number (`__rseq_offset`, since 2.35): one load. Elsewhere
//! `sched_getcpu` is called.

use std::io;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

#[cfg(miri)]
use crate::miri as libc;

/// Nobody has looked for it yet.
const UNKNOWN: isize = isize::MIN;
/// There is none.
const NONE: isize = isize::MAX;

/// Where a thread's `cpu_id` lies, from its thread pointer.
static CPU_ID: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// The CPU that executes the caller, as the system numbers them. The thread may be on another one
/// by the time this returns.
#[inline]
pub fn current() -> u32 {
    let offset = CPU_ID.load(Relaxed);
    if offset != UNKNOWN
        && offset != NONE
        && let Some(cpu) = registered(offset)
    {
        return cpu;
    }
    slow()
}

/// Whether the number comes from the kernel's restartable sequences, without a call.
pub fn is_registered() -> bool {
    slow();
    CPU_ID.load(Relaxed) != NONE
}

#[cold]
fn slow() -> u32 {
    if CPU_ID.load(Relaxed) == UNKNOWN {
        CPU_ID.store(find().unwrap_or(NONE), Relaxed);
    }
    // SAFETY: takes nothing.
    let cpu = unsafe { libc::sched_getcpu() };
    // It fails only on kernels without the call; any CPU is right then, only slower.
    u32::try_from(cpu).unwrap_or(0)
}

#[cfg(all(
    target_env = "gnu",
    not(any(target_feature = "crt-static", miri)),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn find() -> Option<isize> {
    /// Of `cpu_id` in the kernel's `struct rseq`, a stable interface: after `cpu_id_start`, u32.
    const FIELD: isize = 4;
    // SAFETY: the names are C strings. glibc defines the two symbols as a ptrdiff_t and an unsigned
    // int that do not change once a program's main has begun.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        // A size of 0: the program was told not to register.
        if offset.is_null() || size.is_null() || *size == 0 { None } else { Some(*offset + FIELD) }
    }
}

#[cfg(not(all(
    target_env = "gnu",
    not(any(target_feature = "crt-static", miri)),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn find() -> Option<isize> {
    None
}

/// What the kernel has written there; `None` for a thread that is not registered.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registered(offset: isize) -> Option<u32> {
    let cpu: u32;
    // SAFETY: `offset` is glibc's, so the word lies in the area that it has set apart in every
    // thread's static block. The kernel alone writes it, and only while the thread does not run
    // (`both_ways_agree`).
    unsafe {
        std::arch::asm!(
            "mov {cpu:e}, dword ptr fs:[{offset}]",
            cpu = out(reg) cpu,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    (cpu as i32 >= 0).then_some(cpu)
}

/// What the kernel has written there; `None` for a thread that is not registered.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn registered(offset: isize) -> Option<u32> {
    let cpu: u32;
    // SAFETY: as on x86-64.
    unsafe {
        std::arch::asm!(
            "mrs {at}, tpidr_el0",
            "ldr {cpu:w}, [{at}, {offset}]",
            at = out(reg) _,
            cpu = out(reg) cpu,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    (cpu as i32 >= 0).then_some(cpu)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn registered(_: isize) -> Option<u32> {
    None
}

/// Bits of a mask of CPUs that the kernel may want: more than any Linux is built for.
const MOST: usize = 1 << 16;

/// The CPUs that the calling thread may use, ascending.
///
/// # Errors
/// The system's.
pub fn allowed() -> io::Result<Vec<u32>> {
    if cfg!(miri) {
        return Ok(vec![0, 1]);
    }
    let mut mask = vec![0u64; MOST / 64];
    // SAFETY: the length is that of the vector, in bytes (`a_bound_thread_is_where_it_is_bound`).
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask[..]), mask.as_mut_ptr())
    };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |&cpu: &u32| mask[cpu as usize / 64] >> (cpu % 64) & 1 != 0;
    Ok((0..MOST as u32).filter(is_set).collect())
}

/// Keeps the calling thread on these CPUs.
///
/// # Errors
/// The system's: none of them is there, or may be used.
pub fn bind(cpus: &[u32]) -> io::Result<()> {
    let mut mask = vec![0u64; MOST / 64];
    for &cpu in cpus {
        let word = mask.get_mut(cpu as usize / 64);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (cpu % 64);
    }
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the length is that of the vector, in bytes (`a_bound_thread_is_where_it_is_bound`).
    let done = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask[..]), mask.as_ptr())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_is_where_it_is_bound() {
        let all = allowed().unwrap();
        assert!(!all.is_empty());
        std::thread::scope(|s| {
            s.spawn(|| {
                for &cpu in &all {
                    bind(&[cpu]).unwrap();
                    assert_eq!(current(), cpu);
                    assert_eq!(allowed().unwrap(), [cpu]);
                }
            });
        });
    }

    #[test]
    fn both_ways_agree() {
        std::thread::scope(|s| {
            s.spawn(|| {
                let cpu = allowed().unwrap()[0];
                bind(&[cpu]).unwrap();
                if is_registered() {
                    assert_eq!(registered(CPU_ID.load(Relaxed)), Some(cpu));
                }
                assert_eq!(slow(), cpu);
            });
        });
    }

    #[test]
    fn impossible_cpus_are_refused() {
        assert!(bind(&[]).is_err());
        assert!(bind(&[MOST as u32]).is_err());
    }
}
