//! The CPU that a thread runs on, and the CPUs that it may run on.
//!
//! glibc (since 2.35) registers every thread for restartable sequences. `__rseq_offset` gives the
//! place in thread-local storage where the kernel keeps the CPU number, so reading it takes one
//! load. Without it, `sched_getcpu` is called.

use std::io;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

#[cfg(miri)]
use crate::miri as libc;

/// Not looked up yet.
const UNKNOWN: isize = isize::MIN;
/// Not available.
const NONE: isize = isize::MAX;

/// Offset of a thread's `cpu_id` from its thread pointer.
static CPU_ID: AtomicIsize = AtomicIsize::new(UNKNOWN);

/// Returns the current CPU, by the system's number. The thread may have moved to another one by the
/// time this returns.
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

/// Returns whether the number comes from the kernel's restartable sequences, without a call.
pub fn is_registered() -> bool {
    slow();
    CPU_ID.load(Relaxed) != NONE
}

#[cold]
fn slow() -> u32 {
    if CPU_ID.load(Relaxed) == UNKNOWN {
        CPU_ID.store(find().unwrap_or(NONE), Relaxed);
    }
    // SAFETY: `sched_getcpu` takes no arguments.
    let cpu = unsafe { libc::sched_getcpu() };
    // Fails only on kernels without the call; any CPU is correct then, only slower.
    u32::try_from(cpu).unwrap_or(0)
}

#[cfg(all(
    target_env = "gnu",
    not(any(target_feature = "crt-static", miri)),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn find() -> Option<isize> {
    /// Offset of `cpu_id` in the kernel's `struct rseq`, a stable interface: after `cpu_id_start`,
    /// a u32.
    const FIELD: isize = 4;
    // SAFETY: the names are C strings. glibc defines the two symbols as a ptrdiff_t and an unsigned
    // int, which do not change once `main` has begun.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        // A size of 0 means that registration is disabled for the program.
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

/// Returns the CPU that the kernel has written; `None` for a thread that is not registered.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn registered(offset: isize) -> Option<u32> {
    let cpu: u32;
    // SAFETY: `offset` is glibc's, so the word lies in the area reserved in every thread's static
    // TLS block. Only the kernel writes it, and only while the thread does not run
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

/// Returns the CPU that the kernel has written; `None` for a thread that is not registered.
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

/// Bits of a CPU mask: more than any Linux is built for.
const MOST: usize = 1 << 16;

/// Returns the CPUs that the calling thread may use, ascending.
///
/// # Errors
/// The system's error.
pub fn allowed() -> io::Result<Vec<u32>> {
    if cfg!(miri) {
        return Ok(vec![0, 1]);
    }
    let mut mask = vec![0u64; MOST / 64];
    // SAFETY: the length is that of the vector, in bytes (`a_bound_thread_runs_on_its_cpu`).
    let bytes = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&mask[..]), mask.as_mut_ptr())
    };
    if bytes < 0 {
        return Err(io::Error::last_os_error());
    }
    let is_set = |&cpu: &u32| mask[cpu as usize / 64] >> (cpu % 64) & 1 != 0;
    Ok(all().into_iter().filter(is_set).collect())
}

/// Returns the numbers of all CPUs that there can be.
pub(crate) fn all() -> Vec<u32> {
    (0..MOST as u32).collect()
}

/// Binds the calling thread to these CPUs.
///
/// # Errors
/// The system's error: none of the CPUs exists or is allowed.
pub fn bind(cpus: &[u32]) -> io::Result<()> {
    let mut mask = vec![0u64; MOST / 64];
    for &cpu in cpus {
        let word = mask.get_mut(cpu as usize / 64);
        *word.ok_or(io::ErrorKind::InvalidInput)? |= 1 << (cpu % 64);
    }
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: the length is that of the vector, in bytes (`a_bound_thread_runs_on_its_cpu`).
    let done = unsafe {
        libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&mask[..]), mask.as_ptr())
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_runs_on_its_cpu() {
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
    fn invalid_cpus_are_rejected() {
        assert!(bind(&[]).is_err());
        assert!(bind(&[MOST as u32]).is_err());
    }
}
