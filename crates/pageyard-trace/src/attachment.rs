//! Named files that travel inside a `.pgy` file.

/// One attached file, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name, a relative path with `/`, such as `before/zoneinfo`.
    pub name: String,
    /// Its content, not compressed.
    pub data: Vec<u8>,
}

/// The attached files of a trace, in the order in which they were attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachments {
    list: Vec<Attachment>,
}

impl Attachments {
    /// No files.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file; one of the same name is replaced.
    pub fn insert(&mut self, name: impl Into<String>, data: Vec<u8>) {
        let name = name.into();
        match self.list.iter_mut().find(|a| a.name == name) {
            Some(old) => old.data = data,
            None => self.list.push(Attachment { name, data }),
        }
    }

    /// The content of the file of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.list.iter().find(|a| a.name == name).map(|a| a.data.as_slice())
    }

    /// Takes out the content of the file of this name.
    pub(crate) fn take(&mut self, name: &str) -> Option<Vec<u8>> {
        let at = self.list.iter().position(|a| a.name == name)?;
        Some(self.list.remove(at).data)
    }

    /// All files.
    pub fn iter(&self) -> std::slice::Iter<'_, Attachment> {
        self.list.iter()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
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
