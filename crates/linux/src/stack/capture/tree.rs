//! A tree of small files and links, in memory.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use tar::{Builder, EntryType, Header};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File(Vec<u8>),
    Link(PathBuf),
}

/// Files and links by their paths below a root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Tree(BTreeMap<PathBuf, Entry>);

impl Tree {
    /// Adds a file.
    pub(super) fn file(&mut self, path: impl Into<PathBuf>, text: impl Into<Vec<u8>>) {
        self.0.insert(path.into(), Entry::File(text.into()));
    }

    /// Adds `text` to a file, which need not be there yet.
    pub(super) fn append(&mut self, path: &str, text: &str) {
        let entry = self.0.entry(path.into()).or_insert(Entry::File(Vec::new()));
        if let Entry::File(bytes) = entry {
            bytes.extend(text.bytes());
        }
    }

    /// Adds a link to `place`, a path below the root too; written relative, it never leaves the tree.
    pub(super) fn link(&mut self, path: PathBuf, place: &Path) {
        let directory = path.parent().unwrap_or(Path::new(""));
        let shared = directory.components().zip(place.components()).take_while(|(one, other)| one == other);
        let shared = shared.count();
        let up = directory.components().skip(shared).map(|_| Component::ParentDir);
        let to = up.chain(place.components().skip(shared)).collect();
        self.0.insert(path, Entry::Link(to));
    }

    /// Writes it below the directory `top` as a tar archive that says nothing of who wrote it, and when.
    pub(super) fn archive(&self, top: &Path, out: impl Write) -> io::Result<()> {
        let mut archive = Builder::new(out);
        for (path, entry) in &self.0 {
            let path = top.join(path);
            let mut header = Header::new_gnu();
            match entry {
                Entry::File(bytes) => {
                    header.set_mode(0o644);
                    header.set_size(bytes.len() as u64);
                    archive.append_data(&mut header, path, bytes.as_slice())?;
                }
                Entry::Link(to) => {
                    header.set_mode(0o777);
                    header.set_size(0);
                    header.set_entry_type(EntryType::Symlink);
                    archive.append_link(&mut header, path, to)?;
                }
            }
        }
        archive.finish()
    }
}
