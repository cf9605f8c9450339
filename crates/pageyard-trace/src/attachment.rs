//! Named files attached to a `.pgy` file.

/// Name of the file with the release of the kernel.
pub(crate) const KERNEL_RELEASE: &str = "kernel_release";
/// Name of the file with the events that were recorded.
pub(crate) const ENABLED_EVENTS: &str = "enabled_events";

/// One attached file, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, a relative path with `/`, such as `before/zoneinfo`.
    pub name: String,
    /// Its content, decompressed.
    pub data: Vec<u8>,
}

/// The attached files of a trace, in the order of attachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    list: Vec<Attachment>,
}

impl Attachments {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, replacing any file of the same name.
    pub fn insert(&mut self, name: impl Into<String>, data: Vec<u8>) {
        let name = name.into();
        match self.list.iter_mut().find(|a| a.name == name) {
            Some(old) => old.data = data,
            None => self.list.push(Attachment { name, data }),
        }
    }

    /// Returns the content of the file of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.list.iter().find(|a| a.name == name).map(|a| a.data.as_slice())
    }

    /// Adds the kernel's release as the file `kernel_release`, replacing any.
    pub fn set_kernel_release(&mut self, release: &str) {
        self.insert(KERNEL_RELEASE, format!("{release}\n").into_bytes());
    }

    /// Adds the events that the recorder enabled as the file `enabled_events`, replacing any.
    pub fn set_enabled_events(&mut self, events: &[String]) {
        self.insert(ENABLED_EVENTS, events.join("\n").into_bytes());
    }

    /// Removes the file of this name and returns its content.
    pub(crate) fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.list.iter().position(|a| a.name == name)?;
        Some(self.list.remove(at).data)
    }

    /// Iterates over all files.
    pub fn iter(&self) -> std::slice::Iter<'_, Attachment> {
        self.list.iter()
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl<'a> IntoIterator for &'a Attachments {
    type Item = &'a Attachment;
    type IntoIter = std::slice::Iter<'a, Attachment>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
