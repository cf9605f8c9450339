//! The full-screen view, until the user quits.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pageyard_host::{PageError, YardStats};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use super::draw::{View, draw};

/// Whether this program controls the terminal. Held while drawing or restoring.
static OURS: Mutex<bool> = Mutex::new(false);

fn ours() -> MutexGuard<'static, bool> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Restores the terminal from another thread when the program ends. Nothing is drawn afterwards.
pub(crate) fn leave() {
    let mut ours = ours();
    if std::mem::take(&mut *ours) {
        // A failure cannot be reported anywhere.
        let _ = ratatui::try_restore();
    }
    std::mem::forget(ours);
}

/// Shows the yards that `read` returns, refreshed every `every`, until `q`, Escape or Ctrl-C, or
/// until `read` fails because the process is gone.
///
/// # Errors
/// Errors of the terminal and of `read`.
pub(crate) fn watch(
    every: Duration,
    mut read: impl FnMut() -> Result<Vec<YardStats>, PageError>,
) -> Result<(), Box<dyn std::error::Error>> {
    // Before the screen changes, so that an error stays visible.
    let mut now = read()?;
    let mut before = now.clone();
    let mut at = 0;
    let mut terminal = {
        let mut ours = ours();
        *ours = true;
        ratatui::try_init()?
    };
    let run = || -> Result<(), Box<dyn std::error::Error>> {
        loop {
            at %= now.len().max(1);
            let Some(yard) = now.get(at) else { return Ok(()) };
            let earlier = before.get(at).unwrap_or(yard);
            let which = (at + 1, now.len());
            let view = View { now: yard.clone(), before: earlier.clone(), which };
            {
                let _ours = ours();
                terminal.draw(|frame| draw(frame, &view))?;
            }
            if event::poll(every)? {
                match key(&event::read()?) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Next) => at += 1,
                    None => {}
                }
            } else {
                let next = read()?;
                before = compared_with(before, now, &next);
                now = next;
            }
        }
    };
    let result = run();
    let mut ours = ours();
    let restored: io::Result<()> = ratatui::try_restore();
    *ours = false;
    result.and(restored.map_err(Into::into))
}

/// Returns the statistics that rates are computed against, yard by yard: those that were shown, or
/// those before them while the process has not published new ones.
fn compared_with(
    before: Vec<YardStats>,
    now: Vec<YardStats>,
    next: &[YardStats],
) -> Vec<YardStats> {
    if before.len() != now.len() {
        return now;
    }
    let is_old = |at: usize, now: &YardStats| next.get(at).is_some_and(|n| n.at_ns == now.at_ns);
    let both = before.into_iter().zip(now).enumerate();
    both.map(|(at, (before, now))| if is_old(at, &now) { before } else { now }).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Key {
    Quit,
    Next,
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('n') | KeyCode::Tab => Some(Key::Next),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    /// A screen may be drawn more often than the process publishes: the rates stay as they are.
    #[test]
    fn rates_need_new_statistics() {
        let at = |times: &[u64]| -> Vec<YardStats> {
            times.iter().map(|&at_ns| YardStats { at_ns, ..YardStats::default() }).collect()
        };
        let times = |yards: Vec<YardStats>| yards.iter().map(|y| y.at_ns).collect::<Vec<_>>();
        assert_eq!(times(compared_with(at(&[1, 1]), at(&[2, 2]), &at(&[2, 3]))), [1, 2]);
        assert_eq!(times(compared_with(at(&[1]), at(&[2, 2]), &at(&[2, 3]))), [2, 2], "a new yard");
        assert_eq!(times(compared_with(at(&[1, 1]), at(&[2, 2]), &at(&[2]))), [1, 2]);
    }

    #[test]
    fn keys() {
        let of = |code, modifiers| key(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(of(KeyCode::Char('q'), KeyModifiers::NONE), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Quit));
        assert_eq!(of(KeyCode::Char('c'), KeyModifiers::NONE), None);
        assert_eq!(of(KeyCode::Tab, KeyModifiers::NONE), Some(Key::Next));
        assert_eq!(key(&Event::FocusLost), None);
    }
}
