//! The way from a program to a drive's server and back, measured.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use trimtab_core::{Bytes, Extent};
use trimtab_linux::ioctl;

use crate::DriveError;
use crate::protocol::{PathTimes, UNTIL_STARTED};

/// How many commands of each kind are timed.
const SAMPLES: usize = 512;

/// A buffer that direct I/O takes.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// Times reads and discards, number by number, on a drive that is not started yet.
pub(crate) fn measure(device: &Path) -> Result<PathTimes, DriveError> {
    let direct = OFlags::DIRECT.bits() as i32;
    let file = OpenOptions::new().read(true).write(true).custom_flags(direct).open(device);
    let file = file.map_err(DriveError::file("open", device))?;
    let mut page = Page([0; 4096]);
    let extent = Extent::at(Bytes::ZERO, Bytes(page.0.len() as u64));
    let (mut reads, mut discards) = (Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        file.read_exact_at(&mut page.0, 0).map_err(DriveError::file("read", device))?;
        let read = Instant::now();
        ioctl::discard(&file, extent).map_err(|errno| DriveError::file("discard", device)(errno.into()))?;
        reads.push(read - begun);
        discards.push(read.elapsed());
    }
    Ok(PathTimes { transfer: way(reads), discard: way(discards) })
}

/// Returns the time of these commands beyond the drive's own: the lower quartile, which on a quiet
/// machine is close to the median, and on a busy one leaves out what waited for other work.
fn way(mut samples: Vec<Duration>) -> Duration {
    let quartile = SAMPLES / 4;
    samples.select_nth_unstable(quartile).1.saturating_sub(UNTIL_STARTED)
}
