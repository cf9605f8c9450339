//! The names of state files, next to a recording and attached to it.

use crate::attachment::{ENABLED_EVENTS, KERNEL_RELEASE};

/// Files of `before/`, `after/` and of the moments just inside the recording.
pub(super) const FILES: [&str; 6] =
    ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat", "cpu_cache", "sys_vm"];
/// Maps of all frames.
pub(super) const PFNMAPS: [&str; 2] = ["pfnmap.before", "pfnmap.after"];
/// Files that also tell the release.
pub(super) const RELEASES: [&str; 5] =
    ["before/kernel_release", "uname", "before/uname", "version", "before/version"];
/// Extensions of plain and of compressed files.
pub(super) const SUFFIXES: [&str; 4] = ["", ".xz", ".gz", ".zst"];

/// Returns whether `name` is that of a state file, next to a recording or attached to it.
pub(crate) fn is_state_file(name: &str) -> bool {
    let file = |name: &str| FILES.contains(&name);
    match name.split_once('/') {
        Some(("before" | "after", name)) => file(name),
        Some(_) => false,
        None => {
            let traced = |end| name.strip_suffix(end).is_some_and(file);
            let others = [KERNEL_RELEASE, ENABLED_EVENTS, PFNMAPS[0], PFNMAPS[1]];
            others.contains(&name) || traced(".traced_start") || traced(".traced_end")
        }
    }
}
