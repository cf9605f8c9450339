//! Refuses one system call of a thread and its children: the k-th of those that may be refused.
//!
//! A seccomp filter sends the calls to another thread (SECCOMP_RET_USER_NOTIF), which counts them
//! and continues or refuses them. The product runs unchanged on the real system.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// The call behind `poll`.
#[cfg(target_arch = "x86_64")]
pub(crate) const POLL: i64 = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const POLL: i64 = libc::SYS_ppoll;

/// System calls that may be refused.
pub(crate) const CALLS: [(i64, &str); 19] = [
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_mbind, "mbind"),
    (libc::SYS_mincore, "mincore"),
    (libc::SYS_memfd_create, "memfd_create"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_membarrier, "membarrier"),
    (libc::SYS_sched_setaffinity, "sched_setaffinity"),
    (libc::SYS_sched_getaffinity, "sched_getaffinity"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_eventfd2, "eventfd2"),
    (POLL, "poll"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_read, "read"),
    (libc::SYS_pread64, "pread64"),
    (libc::SYS_getdents64, "getdents64"),
];

/// Refusals in a row after which a yard counts as retrying for ever.
const MOST_ASKED: u64 = 100_000;

/// The calls among these that read files, which are many.
const FILES: [i64; 4] = [libc::SYS_openat, libc::SYS_read, libc::SYS_pread64, libc::SYS_getdents64];
/// Calls of a new thread before it runs; std aborts if they are refused.
const START: [i64; 3] = [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_sched_getaffinity];

pub(crate) fn name(call: i64) -> &'static str {
    CALLS.iter().find(|c| c.0 == call).map_or("nothing", |c| c.1)
}

#[derive(Default)]
struct State {
    armed: AtomicBool,
    /// Whether calls on files count too.
    files: AtomicBool,
    /// The thread that installed the filter.
    first: AtomicI64,
    /// Calls since the refuser was armed.
    seen: AtomicU64,
    /// Number of the call to refuse; the first is 1.
    at: AtomicU64,
    /// The call to refuse every time.
    always: AtomicI64,
    errno: AtomicI64,
    refused: AtomicI64,
    /// Refusals since the refuser was armed.
    times: AtomicU64,
}

/// The handle of the thread that answers filtered calls.
pub(crate) struct Refuser(Arc<State>);

impl Refuser {
    /// Filters the calls of the calling thread and of the threads it starts. Returns `None` if the
    /// system has no such filters.
    pub(crate) fn install(files: bool) -> Option<Refuser> {
        let state = Arc::new(State::default());
        state.files.store(files, SeqCst);
        // SAFETY: takes nothing.
        state.first.store(unsafe { libc::gettid() }.into(), SeqCst);
        let (send, receive): (Sender<RawFd>, _) = channel();
        let seen = state.clone();
        // Started before the filter, so it is not filtered.
        thread::spawn(move || {
            if let Ok(listener) = receive.recv() {
                while answer(listener, &seen) {}
            }
        });
        let listener = filter()?;
        send.send(listener).ok()?;
        Some(Refuser(state))
    }

    /// Refuses the `k`-th call from now on with this error.
    pub(crate) fn arm(&self, k: u64, errno: i32) {
        self.begin(k, -1, errno);
    }

    /// Refuses every instance of this call from now on with this error.
    pub(crate) fn arm_always(&self, call: i64, errno: i32) {
        self.begin(0, call, errno);
    }

    fn begin(&self, k: u64, call: i64, errno: i32) {
        let s = &self.0;
        s.always.store(call, SeqCst);
        s.seen.store(0, SeqCst);
        s.at.store(k, SeqCst);
        s.errno.store(errno.into(), SeqCst);
        s.refused.store(-1, SeqCst);
        s.times.store(0, SeqCst);
        s.armed.store(true, SeqCst);
    }

    /// Ends the refusals. Returns the call that was refused.
    pub(crate) fn disarm(&self) -> Option<i64> {
        self.0.armed.store(false, SeqCst);
        Some(self.0.refused.load(SeqCst)).filter(|&n| n >= 0)
    }
}

fn filter() -> Option<RawFd> {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    const LOAD: u16 = 0x20; // a word of the call's description; its number comes first
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let mut program = vec![step(LOAD, 0, 0, 0)];
    for (n, (call, _)) in CALLS.iter().enumerate() {
        let behind = (CALLS.len() - n) as u8;
        program.push(step(EQUAL, behind, 0, *call as u32));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF));
    let all = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives until the calls return; they change this thread alone.
    let fd = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return None;
        }
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &all)
    };
    RawFd::try_from(fd).ok().filter(|&fd| fd >= 0)
}

/// Waits for a call and answers it. Returns `false` if no more calls will come.
fn answer(listener: RawFd, state: &State) -> bool {
    // SAFETY: plain numbers; the kernel wants them zeroed.
    let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is the one that this request expects.
    if unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut call) } != 0 {
        // The calling thread may have exited.
        return std::io::Error::last_os_error().raw_os_error() != Some(libc::EBADF);
    }
    let nr = i64::from(call.data.nr);
    let counts = (state.files.load(SeqCst) || !FILES.contains(&nr))
        && (i64::from(call.pid) == state.first.load(SeqCst) || !START.contains(&nr));
    let armed = counts && state.armed.load(SeqCst);
    let nth = || state.seen.fetch_add(1, SeqCst) + 1 == state.at.load(SeqCst);
    let due = armed && (state.always.load(SeqCst) == nr || nth());
    if due {
        state.refused.store(nr, SeqCst);
        if state.times.fetch_add(1, SeqCst) == MOST_ASKED {
            eprintln!("{}: asked without end", name(nr));
            std::process::abort();
        }
    }
    let mut reply = libc::seccomp_notif_resp {
        id: call.id,
        val: 0,
        error: if due { -state.errno.load(SeqCst) as i32 } else { 0 },
        flags: if due { 0 } else { libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32 },
    };
    // SAFETY: as above.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut reply) };
    true
}
