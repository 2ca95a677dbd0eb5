//! The files behind loop devices, and those that are used without a device: active swap, md's bitmaps, erofs mounted
//! from a file, and what the kernel serves.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

use super::around::{Around, mounted, sharing};
use super::bitmaps::is_bitmap;
use super::fuse_servers::MEMORY;
use super::uses::Use;
use super::{ClaimError, Sharing, erofs};
use crate::SYSFS;
use crate::identity::{self, FileId, Identity, Length, Sameness};
use crate::limited;
use crate::mount::Namespace;

/// A regular file behind a loop device, or one in which an emulated drive's server may keep it.
#[derive(Debug)]
pub(super) struct BackingFile {
    /// Its numbers.
    pub id: FileId,
    /// The path that the kernel has of it, which need not lead there.
    pub path: PathBuf,
    /// Where its bytes are.
    pub identity: Identity,
    /// How long it is.
    pub length: Length,
    /// Whether a server has it, among other files.
    pub is_served: bool,
}

impl BackingFile {
    /// Whether `theirs` is the same file.
    pub fn compare(&self, theirs: &Identity) -> Sameness {
        match self.identity.compare(theirs) {
            Sameness::Same if self.is_served => Sameness::Unknown,
            sameness => sameness,
        }
    }

    /// Whether it is a server's file of `memfd_create`, which nothing mounts.
    fn is_in_memory(&self) -> bool {
        self.is_served && self.path.starts_with(MEMORY)
    }
}

/// A file that is used without a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UsedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its use.
    pub found: Use,
}

/// Whether the file at `path` is active swap, as the kernel says it.
fn is_active_swap(path: &Path) -> bool {
    // The kernel refuses to allocate in active swap before it refuses a range that no file can have.
    let allocated = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits() as i32)
        .open(path)
        .map(|file| fallocate(file, FallocateFlags::empty(), i64::MAX as u64, 1 << 20));
    allocated.is_ok_and(|outcome| outcome == Err(Errno::TXTBSY))
}

impl Around {
    /// The files that are used without a device and are, or may be, one of `ours`.
    pub fn used_files(&self, ours: &[BackingFile]) -> Result<Vec<(UsedFile, Sharing)>, ClaimError> {
        let mut all = Vec::new();
        // The kernel of a captured machine can't be asked.
        let is_live = self.sysfs == Path::new(SYSFS);
        let is_active_swap: fn(&Path) -> bool = if is_live { is_active_swap } else { |_| true };
        let swaps: Vec<_> = self.swaps()?.into_iter().filter(|(_, is_file)| *is_file).collect();
        for (path, _) in &swaps {
            // The path leads to one of them at most.
            let is_hidden = swaps.iter().filter(|(other, _)| other == path).count() > 1;
            let is_it = if is_hidden { |_: &Path| false } else { is_active_swap };
            all.extend(self.named(ours, path.clone(), Use::Swap(path.clone()), is_it, false));
        }
        for bitmap in &self.bitmaps {
            let found = Use::Bitmap(bitmap.array.clone());
            all.extend(self.named(ours, bitmap.path.clone(), found, is_bitmap, false));
        }
        for export in &self.exports.paths {
            let (path, found) = (export.path.clone(), Use::Served(export.server.clone()));
            // A relative path led on from the directory of whoever set it; what is a device is used as one.
            let is_it = if path.is_absolute() { |_: &Path| true } else { |_: &Path| false };
            let is_device = |namespace: &Namespace| {
                let found = namespace.metadata(&path);
                path.is_absolute() && found.is_ok_and(|found| found.file_type().is_block_device())
            };
            let is_elsewhere =
                self.namespaces.iter().any(|namespace| namespace.is_own() && is_device(namespace));
            all.extend(self.named(ours, path, found, is_it, is_elsewhere));
        }
        if !ours.is_empty() {
            all.extend(self.erofs(ours));
        }
        Ok(all)
    }

    /// The file that has the path `path` for the kernel, if it is, or may be, one of `ours`. Another file may hide it:
    /// one that `is_it` denies proves nothing. Nor does the lack of any, unless it `is_elsewhere`; nor does one in another
    /// namespace than this process's, as anyone can make one.
    fn named(
        &self,
        ours: &[BackingFile],
        path: PathBuf,
        found: Use,
        is_it: fn(&Path) -> bool,
        is_elsewhere: bool,
    ) -> Option<(UsedFile, Sharing)> {
        let found_in = |namespace: &Namespace| {
            let found = self.file_at(namespace, &path)?;
            Some((found, namespace.is_own() && is_it(&namespace.file(&path))))
        };
        let theirs: Vec<_> = self.namespaces.iter().filter_map(found_in).collect();
        let is_found = is_elsewhere || theirs.iter().any(|(_, is_it)| *is_it);
        let compared = ours.iter().flat_map(|ours| {
            let nowhere = (!is_found).then_some(Sameness::Unknown);
            theirs.iter().map(|(theirs, _)| ours.compare(theirs)).chain(nowhere)
        });
        let how = sharing(compared)?;
        Some((UsedFile { path, found }, how))
    }

    fn file_at(&self, namespace: &Namespace, path: &Path) -> Option<Identity> {
        // The path may lead to a file system that does not answer.
        let place = namespace.file(path);
        let id = limited::ask(move || identity::file_at(&place)).answer()?.ok()?;
        Some(identity::identify(&self.namespaces, id, path))
    }

    /// The erofs that are, or may be, mounted from one of `ours`.
    fn erofs(&self, ours: &[BackingFile]) -> Option<(UsedFile, Sharing)> {
        let mut listed = Vec::new();
        for namespace in &self.namespaces {
            for mount in namespace.mounts.iter().filter(|mount| erofs::is_on_file_only(mount)) {
                // The path may lead to another file by now, and further files are not named at all.
                let theirs = self.file_at(namespace, &mount.source);
                let is_it = theirs.is_some_and(|theirs| {
                    ours.iter().any(|ours| ours.identity.compare(&theirs) == Sameness::Same)
                });
                let how = if is_it { Sharing::Certain } else { Sharing::Possible };
                listed.push((UsedFile { path: mount.source.clone(), found: mounted(mount, namespace) }, how));
            }
        }
        let found = listed.into_iter().min_by_key(|(_, how)| *how != Sharing::Certain);
        if found.as_ref().is_some_and(|(_, how)| *how == Sharing::Certain) {
            return found;
        }
        let may_be_image = |file: &&BackingFile| file.identity.fuse.is_none() && !file.is_in_memory();
        let is_concerned = found.is_some() && ours.iter().any(|file| may_be_image(&file));
        let is_hidden = erofs::has_hidden(&self.sysfs, &self.namespaces);
        if is_concerned || !(found.is_some() || is_hidden) {
            return found;
        }
        let mut images = ours.iter().filter(|file| !file.is_in_memory());
        let image = images.find(|file| erofs::may_be_image(&self.namespaces, file.id, &file.path))?;
        found.or_else(|| Some((UsedFile { path: image.path.clone(), found: Use::Erofs }, Sharing::Possible)))
    }
}
