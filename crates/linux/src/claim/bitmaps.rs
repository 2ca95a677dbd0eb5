//! Bitmaps that md keeps in files: the kernel writes to them, and neither claims them nor shows them among what
//! processes have open.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::ClaimError;
use crate::limited;
use crate::mount;

/// How such a file begins.
const MAGIC: [u8; 4] = *b"bitm";

/// The bitmap of an array, in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bitmap {
    /// The path that the kernel has of the file, which need not lead there.
    pub path: PathBuf,
    /// The array's name, such as `md0`.
    pub array: String,
}

/// The bitmaps in files of all arrays that run.
///
/// # Errors
/// [`ClaimError::Arrays`]; a kernel without md has no list of arrays.
pub(super) fn bitmaps(procfs: &Path) -> Result<Vec<Bitmap>, ClaimError> {
    let path = procfs.join("mdstat");
    match fs::read(&path) {
        Ok(text) => Ok(listed(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(ClaimError::Arrays { path, source }),
    }
}

/// The bitmaps in the text of `mdstat`.
fn listed(text: &[u8]) -> Vec<Bitmap> {
    let file = b", file: ";
    let mut array = String::new();
    let mut all = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        // An array begins with `md0 : active ...`; the lines about it are indented.
        let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
        if !name.is_empty() {
            array = String::from_utf8_lossy(name).into_owned();
        }
        // `bitmap: 4/4 pages [16KB], 4KB chunk, file: /images/b\040x`.
        let place = line.windows(file.len()).position(|window| window == file);
        if let Some(place) = place.filter(|_| line.trim_ascii_start().starts_with(b"bitmap: ")) {
            let path = mount::unescape(&line[place + file.len()..]);
            all.push(Bitmap { path, array: array.clone() });
        }
    }
    all
}

/// Whether the file at `path` begins as a bitmap does.
pub(super) fn is_bitmap(path: &Path) -> bool {
    let path = path.to_owned();
    // The path may lead to anything by now.
    let found = limited::in_time(move || {
        let mut found = [0; MAGIC.len()];
        // The open of a pipe waits.
        if fs::metadata(&path)?.is_file() {
            File::open(&path)?.read_exact(&mut found)?;
        }
        Ok(found)
    });
    found.is_ok_and(|found| found == MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    /// As Linux 6.12 prints it.
    const MDSTAT: &str = "Personalities : [raid1] \n\
        md1 : active raid1 loop3[1] loop2[0]\n      31744 blocks super 1.2 [2/2] [UU]\n      \
        bitmap: 1/1 pages [4KB], 65536KB chunk\n\n\
        md0 : active raid1 loop1[1] loop0[0]\n      31744 blocks super 1.2 [2/2] [UU]\n      \
        bitmap: 4/4 pages [16KB], 4KB chunk, file: /run/disk/b\\040x\n\nunused devices: <none>\n";

    #[test]
    fn bitmaps_in_files_are_listed() {
        let machine = Captured::new().file("proc/mdstat", MDSTAT);
        let expected = Bitmap { path: "/run/disk/b x".into(), array: "md0".into() };
        assert_eq!(bitmaps(&machine.procfs()).unwrap(), [expected]);
        assert!(bitmaps(&Captured::new().procfs()).unwrap().is_empty(), "a kernel without md");
    }

    #[test]
    fn list_of_arrays_that_cannot_be_read_is_no_proof_of_none() {
        let machine = Captured::new().file("proc/mdstat/a", "");
        let error = bitmaps(&machine.procfs()).unwrap_err().to_string();
        assert!(error.starts_with("cannot read the list of md arrays "), "{error}");
    }
}
