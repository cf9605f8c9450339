//! What a worker sleeps on: a wake event that any thread may signal, and files that report
//! pressure.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::wake_flag::WakeFlag;

/// Rung without a lock by requests that need background work. Ringing again before the worker has
/// taken the signal costs one exchange.
#[derive(Debug)]
pub(crate) struct WakeEvent {
    fd: OwnedFd,
    flag: WakeFlag,
}

impl WakeEvent {
    pub(crate) fn new() -> io::Result<WakeEvent> {
        // SAFETY: `eventfd` takes numbers, no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just returned, so nothing else owns it
        // (`several_signals_wake_once` fails with a closed one).
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(WakeEvent { fd, flag: WakeFlag::default() })
    }

    pub(crate) fn signal(&self) {
        self.flag.signal(|| {
            // SAFETY: reads eight bytes of a static (`several_signals_wake_once`
            // fails with fewer).
            unsafe { libc::write(self.fd.as_raw_fd(), (&raw const ONE).cast(), 8) == 8 }
        });
    }

    /// Sleeps until the event is signalled, one of `files` reports urgent news (`POLLPRI`) or is
    /// dead (`POLLERR`, `POLLHUP`, `POLLNVAL`), or `most` has passed. Returns the files that
    /// reported something, with their events. An early return, for example for a signal, returns no
    /// files.
    pub(crate) fn wait(&self, files: &[RawFd], most: Duration) -> Vec<(RawFd, i16)> {
        let poll = |&fd: &RawFd| libc::pollfd { fd, events: libc::POLLPRI, revents: 0 };
        let mut all: Vec<_> = files.iter().map(poll).collect();
        all.push(libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        let whole = most.as_nanos().div_ceil(1_000_000);
        let ms = i32::try_from(whole).unwrap_or(i32::MAX);
        // SAFETY: the vector is of this length and lives until the call returns
        // (`sources_are_distinguished` fails with a shorter one).
        let ready = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, ms) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // Refused, by a filter or a limit of 0 descriptors. A caller that came back at once would
            // take a whole CPU. A wake-up is noticed late then (`any_system_call_may_fail`).
            std::thread::sleep(most.min(LATE));
        }
        if ready <= 0 {
            return Vec::new();
        }
        self.flag.take(|| {
            let mut count = 0u64;
            // SAFETY: writes eight bytes to a local of that size; the descriptor does not block
            // (`several_signals_wake_once`).
            unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        });
        all.pop();
        all.retain(|f| f.revents != 0);
        all.into_iter().map(|f| (f.fd, f.revents)).collect()
    }
}

/// The longest sleep that no wake-up ends.
const LATE: Duration = Duration::from_millis(100);

static ONE: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    impl WakeEvent {
        fn is_readable(&self) -> bool {
            let mut fd = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one entry, which outlives the call.
            unsafe { libc::poll(&mut fd, 1, 0) == 1 }
        }
    }

    #[test]
    fn several_signals_wake_once() {
        let wake_event = WakeEvent::new().unwrap();
        let long = Duration::from_secs(3600);
        wake_event.signal();
        wake_event.signal();
        assert!(wake_event.wait(&[], long).is_empty());
        assert!(!wake_event.is_readable());
        assert!(wake_event.wait(&[], Duration::ZERO).is_empty());
        std::thread::scope(|s| {
            s.spawn(|| wake_event.signal());
            wake_event.wait(&[], long);
        });
    }

    #[test]
    fn signals_before_a_wait_are_written_once() {
        let wake_event = WakeEvent::new().unwrap();
        wake_event.signal();
        wake_event.signal();
        let mut count = 0u64;
        // SAFETY: eight bytes of a local; the descriptor does not block.
        let read = unsafe { libc::read(wake_event.fd.as_raw_fd(), (&raw mut count).cast(), 8) };
        assert_eq!((read, count), (8, 1));
    }

    /// A signal between the two halves of a wait must not suppress later signals.
    #[test]
    fn a_signal_during_a_wait_does_not_suppress_later_signals() {
        let wake_event = WakeEvent::new().unwrap();
        for _ in 0..20 {
            std::thread::scope(|s| {
                let signaller = s.spawn(|| (0..20_000).for_each(|_| wake_event.signal()));
                while !signaller.is_finished() {
                    wake_event.wait(&[], Duration::ZERO);
                }
            });
            wake_event.wait(&[], Duration::ZERO);
            wake_event.signal();
            assert!(wake_event.is_readable(), "the signal did not reach the eventfd");
        }
    }

    #[test]
    fn sources_are_distinguished() {
        use std::os::unix::net::UnixStream;
        let wake_event = WakeEvent::new().unwrap();
        let (a, _keep) = UnixStream::pair().unwrap();
        let (b, other) = UnixStream::pair().unwrap();
        // SAFETY: one byte of ours; out-of-band data is reported as urgent.
        let sent =
            unsafe { libc::send(other.as_raw_fd(), (&raw const ONE).cast(), 1, libc::MSG_OOB) };
        if !pageyard_unmet::met("MSG_OOB on Unix sockets", sent == 1) {
            return;
        }
        let files = [a.as_raw_fd(), b.as_raw_fd()];
        let heard = wake_event.wait(&files, Duration::from_secs(3600));
        assert_eq!(heard, [(b.as_raw_fd(), libc::POLLPRI)]);
    }
}
