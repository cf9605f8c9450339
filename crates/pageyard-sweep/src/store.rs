//! Finished cells on disk, one file each, named by the cell's key.
//!
//! A file appears under its name once it is complete, by `rename`. So an interrupted sweep leaves
//! whole cells and nothing else that counts, and two processes that finish the same cell write the
//! same bytes.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cell::{Cell, CellResult};
use crate::error::SweepError;

/// The folder of finished cells.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// Ending of files that are being written.
const PARTIAL: &str = "partial";

impl Store {
    /// Opens the folder, creating it if needed. Removes what interrupted processes left.
    ///
    /// # Errors
    /// Fails if the folder cannot be created or listed.
    pub fn open(folder: &Path) -> Result<Store, SweepError> {
        fs::create_dir_all(folder).map_err(|e| SweepError::file(folder, e))?;
        remove_abandoned(folder)?;
        Ok(Store(folder.to_owned()))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.0.join(format!("{key}.json"))
    }

    /// Returns the result of a finished cell. A file that is damaged, or not of this cell, counts as
    /// missing and will be replaced.
    pub fn get(&self, key: &str, cell: &Cell) -> Option<CellResult> {
        let text = fs::read(self.path(key)).ok()?;
        let result: CellResult = serde_json::from_slice(&text).ok()?;
        // The name of a file is not part of the key, and the tables show the present one.
        let same = result.key == key;
        same.then(|| CellResult { cell: cell.clone(), ..result })
    }

    /// Keeps the result of a cell.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn put(&self, result: &CellResult) -> Result<(), SweepError> {
        let mut text = serde_json::to_vec(result).expect("plain data");
        text.push(b'\n');
        write_whole(&self.path(&result.key), &text)
    }
}

/// Writes a file that appears once it is complete.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    // Distinct for every writer: threads of this process, and other processes.
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(
        ".{}{}-{number}.{PARTIAL}",
        visible().unwrap_or_default(),
        std::process::id()
    ));
    let partial = path.with_file_name(name);
    let written = (|| -> io::Result<()> {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        // After a crash of the system, a name must not stand for an empty file.
        file.sync_data()?;
        fs::rename(&partial, path)
    })();
    written.map_err(|e| {
        let _ = fs::remove_file(&partial);
        SweepError::file(path, e)
    })
}

/// Removes the partial files that interrupted processes left in a folder.
pub(crate) fn remove_abandoned(folder: &Path) -> Result<(), SweepError> {
    let fail = |e| SweepError::file(folder, e);
    let Some(visible) = visible() else { return Ok(()) };
    for entry in fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if is_abandoned(&path, &visible) {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

/// Whether a partial file's process is one of the visible ones and no longer exists.
fn is_abandoned(path: &Path, visible: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let process = name.strip_suffix(PARTIAL).and_then(|name| name.rsplit('.').nth(1));
    let number = process.and_then(|process| process.strip_prefix(visible));
    let number = number.and_then(|number| number.split('-').next());
    number.is_some_and(|number| !Path::new("/proc").join(number).exists())
}

/// Returns a prefix for the numbers of processes that `/proc` shows: the boot of the system and the
/// container. A folder may be shared with others, whose processes are not known here.
fn visible() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    let space = space.to_string_lossy().replace(|c: char| !c.is_ascii_digit(), "");
    Some(format!("{}-{space}-", boot.trim()))
}
