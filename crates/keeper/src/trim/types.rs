//! The types of file systems that `-t` selects.

use trimtab_linux::mount::{MountError, covering, mounts};
use trimtab_linux::stack::Machine;

use super::Listing;

/// Why a file system is passed over.
const OTHER: &str = "its type is not one of --types";

impl Listing {
    /// Passes over what is not of one of `types`, in the form of `mount -t`.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn of_types(mut self, machine: &Machine, types: &str) -> Result<Self, MountError> {
        let in_use = mounts(&machine.procfs())?;
        let (kept, others) = self.mounts.into_iter().partition(|path| {
            // What is not mounted any more is refused later.
            let mount = covering(&in_use, path);
            mount.is_none_or(|mount| is_of_types(&mount.fstype, types))
        });
        self.mounts = kept;
        self.passed_over.extend(Vec::into_iter(others).map(|path| (path, OTHER)));
        Ok(self)
    }
}

/// Returns whether `fstype` is one of `types`: names with commas between them, where `no` before the first
/// excludes all of them, and `no` before another excludes that one. As in util-linux, the case of names doesn't matter,
/// and the case of `no` does.
pub(super) fn is_of_types(fstype: &str, types: &str) -> bool {
    let (names, is_included) = types.strip_prefix("no").map_or((types, true), |names| (names, false));
    for name in names.split(',') {
        if name.eq_ignore_ascii_case(fstype) {
            return is_included;
        }
        if name.strip_prefix("no").is_some_and(|name| name.eq_ignore_ascii_case(fstype)) {
            return false;
        }
    }
    !is_included
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_included_or_excluded() {
        for (types, is_wanted) in [
            ("ext4", true),
            ("EXT4", true),
            ("xfs,Ext4", true),
            ("xfs", false),
            ("ext", false),
            ("noext4", false),
            ("noEXT4", false),
            ("NOext4", false),
            ("noxfs,ext4", false),
            ("noxfs,btrfs", true),
            ("NOxfs", false),
            ("xfs,noext4", false),
            ("", false),
        ] {
            assert_eq!(is_of_types("ext4", types), is_wanted, "{types:?}");
        }
    }
}
