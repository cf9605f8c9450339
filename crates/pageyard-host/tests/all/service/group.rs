//! The files of a control group, in a directory of their own.

use std::path::Path;

use super::SystemFiles;

pub(crate) struct Group(tempfile::TempDir);

impl Group {
    /// A group that may use 1,000,000 bytes and uses 100,000.
    pub(crate) fn new() -> Self {
        let group = Group(tempfile::tempdir().unwrap());
        group.write("memory.max", "1000000\n");
        group.uses(100_000);
        group
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn uses(&self, bytes: u64) {
        self.write("memory.current", &format!("{bytes}\n"));
    }

    /// A worker never reads half of a file: it is written beside and renamed.
    fn write(&self, name: &str, text: &str) {
        let new = self.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path().join(name)).unwrap();
    }

    pub(crate) fn files(&self) -> SystemFiles {
        let (group, group_root) = (Some(self.path().to_owned()), self.path().to_owned());
        SystemFiles { pressure: None, group, group_root }
    }
}
