//! What a worker sleeps on: a bell that anybody may ring, and files that tell of pressure.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Rung by requests that want background work, without a lock; ringing a bell that rings already
/// costs one exchange.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        // SAFETY: takes numbers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Bell { fd, rung: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, SeqCst) {
            // SAFETY: eight bytes of a number of ours. It can only fail where it rings already.
            unsafe { libc::write(self.fd.as_raw_fd(), (&raw const ONE).cast(), 8) };
        }
    }

    /// Sleeps until the bell is rung, one of `files` has urgent news (`POLLPRI`), or for `most`.
    /// Which of the files have news, by their place. An early return, for a signal perhaps, looks
    /// like one of no news.
    pub(crate) fn wait(&self, files: &[RawFd], most: Duration) -> Vec<usize> {
        let poll = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLPRI, revents: 0 };
        let mut all: Vec<_> = files.iter().map(poll).collect();
        all.push(libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let whole = most.as_nanos().div_ceil(1_000_000);
        let ms = i32::try_from(whole).unwrap_or(i32::MAX);
        // SAFETY: the vector is as long as said, and lives until the call returns.
        let ready = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, ms) };
        if ready <= 0 {
            return Vec::new();
        }
        // Before the count is read: who rings in between is answered by what is done after this.
        if self.rung.swap(false, SeqCst) {
            let mut count = 0u64;
            // SAFETY: eight bytes of a number of ours.
            unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        let news = |f: &libc::pollfd| f.revents & libc::POLLPRI != 0;
        (0..files.len()).filter(|&i| news(&all[i])).collect()
    }
}

static ONE: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_wakes_once_however_often_it_was_rung() {
        let bell = Bell::new().unwrap();
        let long = Duration::from_secs(3600);
        bell.ring();
        bell.ring();
        assert!(bell.wait(&[], long).is_empty());
        assert!(!bell.rung.load(SeqCst));
        assert!(bell.wait(&[], Duration::ZERO).is_empty());
        std::thread::scope(|s| {
            s.spawn(|| bell.ring());
            bell.wait(&[], long);
        });
    }

    #[test]
    fn files_are_told_apart() {
        use std::os::unix::net::UnixStream;
        let bell = Bell::new().unwrap();
        let (a, _keep) = UnixStream::pair().unwrap();
        let (b, other) = UnixStream::pair().unwrap();
        // SAFETY: one byte of ours; out-of-band data is urgent news.
        let sent =
            unsafe { libc::send(other.as_raw_fd(), (&raw const ONE).cast(), 1, libc::MSG_OOB) };
        if sent != 1 {
            eprintln!("no urgent data on Unix sockets here; left out");
            return;
        }
        let files = [a.as_raw_fd(), b.as_raw_fd()];
        assert_eq!(bell.wait(&files, Duration::from_secs(3600)), [1]);
    }
}
