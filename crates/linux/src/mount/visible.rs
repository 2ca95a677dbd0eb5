//! Finds the mounts that can be reached: others may hide them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::Mount;

/// The visible ones of `mounts`: no other mount hides them. In their order.
pub fn visible(mounts: &[Mount]) -> Vec<&Mount> {
    let tree = Tree::of(mounts);
    mounts.iter().filter(|mount| tree.is_visible(mount)).collect()
}

/// The mount of `mounts` that the canonical path `place` is on.
pub fn covering<'a>(mounts: &'a [Mount], place: &Path) -> Option<&'a Mount> {
    let tree = Tree::of(mounts);
    let mut found: Vec<_> = mounts.iter().filter(|mount| place.starts_with(&mount.target)).collect();
    found.sort_by_key(|mount| mount.target.components().count());
    found.into_iter().rfind(|mount| tree.is_visible(mount))
}

/// Whether a directory is seen at the mount point of `mount`; a bind mount may show a single file.
pub fn is_directory(mount: &Mount) -> bool {
    // The root of a file system is a directory. What can't be looked at is no reason to pass it over.
    mount.root == Path::new("/") || fs::metadata(&mount.target).map_or(true, |found| found.is_dir())
}

/// Mounts as a tree.
struct Tree<'a> {
    by_id: HashMap<u64, &'a Mount>,
    /// The mounts that lie on each.
    on: HashMap<u64, Vec<&'a Mount>>,
    /// The last one at each mount point.
    last: HashMap<&'a Path, u64>,
}

impl<'a> Tree<'a> {
    fn of(mounts: &'a [Mount]) -> Self {
        let mut on: HashMap<u64, Vec<&Mount>> = HashMap::new();
        // The root of an initramfs is its own parent.
        for mount in mounts.iter().filter(|mount| mount.parent != mount.id) {
            on.entry(mount.parent).or_default().push(mount);
        }
        Self {
            by_id: mounts.iter().map(|mount| (mount.id, mount)).collect(),
            on,
            last: mounts.iter().map(|mount| (mount.target.as_path(), mount.id)).collect(),
        }
    }

    fn is_visible(&self, mount: &Mount) -> bool {
        let mut mount = mount;
        if self.on(mount.id).any(|other| other.target == mount.target) {
            return false;
        }
        // No more steps than there are mounts, should they be no tree.
        for _ in 0..self.by_id.len() {
            let Some(parent) = self.by_id.get(&mount.parent).filter(|parent| parent.id != mount.id) else {
                break;
            };
            let is_last = |other: &Mount| self.last.get(other.target.as_path()) == Some(&other.id);
            let hides = |other: &Mount| {
                other.id != mount.id
                    && mount.target.starts_with(&other.target)
                    && (mount.target != other.target || is_last(other))
            };
            if self.on(parent.id).any(hides) {
                return false;
            }
            mount = parent;
        }
        // The parents of a captured machine's mounts aren't known.
        self.by_id.contains_key(&mount.parent) || self.last.get(mount.target.as_path()) == Some(&mount.id)
    }

    fn on(&self, id: u64) -> impl Iterator<Item = &'a Mount> + '_ {
        self.on.get(&id).into_iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::mount::parse;

    /// Mounts with these ids, parents and mount points.
    fn mounted(lines: &[(u64, u64, &str)]) -> Vec<Mount> {
        let line = |(id, parent, target): &(u64, u64, &str)| {
            format!("{id} {parent} 8:{id} / {target} rw - ext4 /dev/x rw\n")
        };
        parse(lines.iter().map(line).collect::<String>().as_bytes())
    }

    fn seen(lines: &[(u64, u64, &str)]) -> Vec<u64> {
        visible(&mounted(lines)).iter().map(|mount| mount.id).collect()
    }

    #[test]
    fn mounts_are_hidden_by_later_ones_above_them() {
        let root = (1, 0, "/");
        assert_eq!(seen(&[root, (2, 1, "/a"), (3, 2, "/a/x")]), [1, 2, 3]);
        assert_eq!(seen(&[root, (3, 1, "/a/x"), (2, 1, "/a")]), [1, 2], "/a was mounted over it");
        assert_eq!(seen(&[root, (3, 1, "/a/x"), (4, 3, "/a/x/y"), (2, 1, "/a")]), [1, 2]);
        assert_eq!(seen(&[root, (3, 1, "/a/x"), (2, 1, "/a"), (4, 2, "/a/x")]), [1, 2, 4]);
        assert_eq!(seen(&[root, (2, 1, "/a"), (3, 2, "/a")]), [1, 3], "one on the other");
        assert_eq!(seen(&[root, (2, 1, "/a"), (3, 2, "/a/x"), (4, 2, "/a")]), [1, 4]);
        assert_eq!(seen(&[root, (2, 1, "/ab"), (3, 1, "/a")]), [1, 2, 3], "names are compared whole");
        let initramfs = [(1, 1, "/"), (2, 1, "/proc"), (3, 1, "/mnt")];
        assert_eq!(seen(&initramfs), [1, 2, 3], "its root lies on itself");
        // Parents that aren't listed prove nothing but for what is on one point.
        assert_eq!(seen(&[(5, 9, "/"), (6, 9, "/a"), (7, 9, "/a"), (8, 9, "/a/x")]), [5, 7, 8]);
    }

    #[test]
    fn place_is_on_the_nearest_visible_mount() {
        let all = mounted(&[(1, 0, "/"), (3, 1, "/a/x"), (2, 1, "/a"), (4, 1, "/b")]);
        for (place, id) in [("/a/x/y", 2), ("/a", 2), ("/b/c", 4), ("/bc", 1)] {
            assert_eq!(covering(&all, Path::new(place)).unwrap().id, id, "{place}");
        }
        assert!(covering(&[], Path::new("/a")).is_none());
    }

    #[test]
    fn single_files_are_told_from_directories() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let bound = |target: &Path| {
            let mut mount = mounted(&[(1, 0, "/")]).remove(0);
            (mount.root, mount.target) = (PathBuf::from("/x"), target.to_owned());
            mount
        };
        assert!(is_directory(&bound(dir.path())));
        assert!(!is_directory(&bound(&file)));
        assert!(is_directory(&bound(Path::new("/nonexistent/x"))));
    }
}
