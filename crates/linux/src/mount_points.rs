//! Finds mount points: by a path, and those at which a file system can be written to.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::mount::{Mount, covering, is_directory, visible};

/// The most symbolic links that a path may lead through, as in the kernel.
const MOST_LINKS: usize = 40;

/// Resolves the symbolic links in the absolute path `path`; `mounts` are this process's. None if it leads nowhere, or to
/// or through an automount point, which a look at what is below it would mount.
pub fn resolved(mounts: &[Mount], path: &Path) -> Option<PathBuf> {
    let mut left: Vec<PathBuf> = vec![path.to_owned()];
    let mut found = PathBuf::from("/");
    let mut links = 0;
    while let Some(path) = left.pop() {
        let mut components = path.components();
        let Some(component) = components.next() else { continue };
        left.push(components.as_path().to_owned());
        match component {
            Component::RootDir => found = PathBuf::from("/"),
            Component::ParentDir => _ = found.pop(),
            Component::CurDir | Component::Prefix(_) => {}
            Component::Normal(name) => {
                let next = found.join(name);
                if covering(mounts, &next).is_some_and(|mount| mount.fstype == "autofs") {
                    return None;
                }
                if next.symlink_metadata().ok()?.is_symlink() {
                    links += 1;
                    left.push(fs::read_link(&next).ok().filter(|_| links <= MOST_LINKS)?);
                } else {
                    found = next;
                }
            }
        }
    }
    Some(found)
}

/// Returns the mounts among `mounts` of the file system of `mount` at which it can be written to: not read-only, and
/// not hidden by another mount; the one with the shortest path first.
pub fn writable<'a>(mounts: &'a [Mount], mount: &Mount) -> Vec<&'a Mount> {
    let is_wanted = |other: &Mount| other.is_of_same_file_system(mount) && !other.is_read_only();
    let mut found: Vec<&Mount> =
        visible(mounts).into_iter().filter(|other| is_wanted(other) && is_directory(other)).collect();
    found.sort_by_key(|mount| mount.target.components().count());
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::parse;

    #[test]
    fn links_are_resolved_up_to_automount_points() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for directory in ["real/below", "auto/below"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        for (link, to) in [("absolute", root.join("real")), ("relative", "./absolute/../real/below".into())] {
            std::os::unix::fs::symlink(to, root.join(link)).unwrap();
        }
        std::os::unix::fs::symlink("auto/below", root.join("asleep")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let line = format!("31 27 0:9 / {} rw - autofs systemd-1 rw\n", root.join("auto").display());
        let mounts = parse(line.as_bytes());
        let found = |name: &str| resolved(&mounts, &root.join(name));
        for (name, place) in
            [("real", "real"), ("absolute/below", "real/below"), ("relative/..", "real"), ("real/.", "real")]
        {
            assert_eq!(found(name), Some(root.join(place)), "{name}");
        }
        for name in ["auto", "auto/below", "asleep", "loop", "missing"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
