//! Checks that series have the form that a run records.

pub(super) fn ascending(name: &str, times: &[u64]) -> Result<(), String> {
    if times.is_sorted() { Ok(()) } else { Err(format!("{name} are not in order")) }
}

pub(super) fn as_many(name: &str, n: usize, times: usize) -> Result<(), String> {
    if n == times { Ok(()) } else { Err(format!("{name} has {n} values for {times} times")) }
}
