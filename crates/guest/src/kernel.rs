//! The kernel that a guest runs.

use std::fs;
use std::path::{Path, PathBuf};

use super::bzimage;
use super::debian::Fetcher;
use super::error::GuestError;
use super::kernel_choice::KernelChoice;
use trimtab_core::interrupt::Interrupt;

impl KernelChoice {
    /// Finds the kernel, which is fetched first if it is a package that was never fetched before.
    ///
    /// # Errors
    /// [`GuestError`] names what is missing.
    pub(super) fn find(&self, interrupt: &Interrupt) -> Result<Kernel, GuestError> {
        match self {
            Self::Debian(version) => Kernel::read(&Fetcher::new().kernel(version, interrupt)?, None),
            Self::File { image, modules } => Kernel::read(image, modules.as_deref()),
        }
    }
}

/// A kernel and where its modules are.
#[derive(Debug)]
pub(super) struct Kernel {
    image: Vec<u8>,
    /// As uname gives it.
    pub(super) release: String,
    /// The directory with its modules.
    pub(super) modules: PathBuf,
}

impl Kernel {
    fn read(path: &Path, modules: Option<&Path>) -> Result<Self, GuestError> {
        let image = fs::read(path)
            .map_err(|source| GuestError::KernelUnreadable { path: path.to_owned(), source })?;
        let release =
            bzimage::release(&image).ok_or_else(|| GuestError::NotAKernel { path: path.to_owned() })?;
        let modules = match modules {
            Some(dir) => dir.to_owned(),
            None => modules_of(path, &release),
        };
        if !modules.join("kernel").is_dir() {
            return Err(GuestError::NoModules { release, dir: modules });
        }
        Ok(Self { image, release, modules })
    }

    /// Returns the image that QEMU boots.
    pub(super) fn bootable(&self) -> Vec<u8> {
        bzimage::direct(&self.image).unwrap_or_else(|| self.image.clone())
    }
}

/// Where the modules of an image should be: `lib/modules/RELEASE` in its own directory or the one above,
/// as in an unpacked package, or this machine's.
fn modules_of(image: &Path, release: &str) -> PathBuf {
    let inside = Path::new("lib/modules").join(release);
    let above = image.ancestors().skip(1).take(2).map(|dir| dir.join(&inside));
    above.into_iter().find(|dir| dir.is_dir()).unwrap_or_else(|| Path::new("/").join(&inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_beside_the_image_or_on_this_machine() {
        let root = tempfile::tempdir().unwrap();
        let modules = root.path().join("lib/modules/6.1");
        fs::create_dir_all(&modules).unwrap();
        assert_eq!(modules_of(&root.path().join("boot/vmlinuz"), "6.1"), modules);
        assert_eq!(modules_of(&root.path().join("vmlinuz"), "6.1"), modules);
        assert_eq!(modules_of(&root.path().join("boot/vmlinuz"), "6.2"), Path::new("/lib/modules/6.2"));
    }

    #[test]
    fn a_file_that_is_no_kernel_is_named() {
        let root = tempfile::tempdir().unwrap();
        let image = root.path().join("vmlinuz");
        let find = || {
            let choice = KernelChoice::File { image: image.clone(), modules: None };
            choice.find(&Interrupt::never()).unwrap_err()
        };
        assert!(matches!(find(), GuestError::KernelUnreadable { .. }));
        fs::write(&image, "text").unwrap();
        assert!(matches!(find(), GuestError::NotAKernel { path } if path == image));
    }
}
