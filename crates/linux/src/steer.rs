//! Steering the discards that a file system sends by itself: those of btrfs with `discard=async`, and of
//! F2FS with `discard`. Both wait for idle time and join what is free, so a second opinion would only
//! compete; their knobs in sysfs are set to hold the same goals, and put back afterwards.

use std::borrow::Cow;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use trimtab_core::Bytes;

use crate::block::BlockDevice;
use crate::btrfs;
use crate::mount::{Mount, discard_option};

/// The unit of F2FS's granularity, and its limits: one block and a segment.
const F2FS_BLOCK: Bytes = Bytes(4096);
const F2FS_SEGMENT_BLOCKS: u64 = 512;
/// As many as F2FS sends at once by default.
const F2FS_REQUESTS: u64 = 8;
/// The longest wait of F2FS by default.
const F2FS_LONGEST_WAIT: Duration = Duration::from_secs(60);
/// btrfs waits for whole milliseconds between two discards.
const BTRFS_IOPS: u64 = 1000;
/// The least length to which btrfs cuts long discards, so that its blocks stay whole.
const BTRFS_GRAIN: Bytes = Bytes(64 << 10);

/// The most that discards may cost the foreground.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// How long discards may hold the device at once.
    pub max_latency: Duration,
    /// The share of the time in which they may hold it, above 0 and at most 1.
    pub max_share: f64,
    /// How long a discard may be put off.
    pub max_age: Duration,
    /// The longest discard that holds the device for no longer than that at once.
    pub longest: Bytes,
    /// How long it does.
    pub takes: Duration,
    /// The shortest discard that is worth it.
    pub shortest: Bytes,
}

/// A knob of a file system and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// Its file in the file system's directory.
    pub file: Cow<'static, str>,
    /// The value, in the knob's own unit.
    pub value: u64,
}

/// Why a file system's own discards can't be steered.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// A knob can't be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Its file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// A knob can't be set.
    #[error("cannot write {value} to {}", path.display())]
    Write {
        /// Its file.
        path: PathBuf,
        /// The value.
        value: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// The settings with which btrfs holds `pace`: discards no longer than the longest, and so few a second that
/// even these hold the device for no larger share.
pub fn btrfs_knobs(pace: &Pace) -> Vec<Knob> {
    let longest = Bytes(pace.longest.0 / BTRFS_GRAIN.0 * BTRFS_GRAIN.0).max(BTRFS_GRAIN);
    let a_second = pace.max_share / pace.takes.as_secs_f64();
    vec![
        Knob { file: "discard/max_discard_size".into(), value: longest.0 },
        // Zero would mean that there is no limit.
        Knob { file: "discard/iops_limit".into(), value: (a_second as u64).clamp(1, BTRFS_IOPS) },
    ]
}

/// The settings with which F2FS holds `pace`: as many discards at once as hold the device for no longer than
/// they may, and a pause after them that makes that the share.
pub fn f2fs_knobs(pace: &Pace) -> Vec<Knob> {
    let requests = pace.max_latency.as_secs_f64() / pace.takes.as_secs_f64();
    let requests = (requests as u64).clamp(1, F2FS_REQUESTS);
    let pause = pace.takes.as_secs_f64() * requests as f64 / pace.max_share * 1000.0;
    let longest_wait = pace.max_age.min(F2FS_LONGEST_WAIT).as_millis() as u64;
    vec![
        Knob { file: "max_discard_request".into(), value: requests },
        Knob {
            file: "min_discard_issue_time".into(),
            value: (pause.ceil() as u64).clamp(1, longest_wait.max(1)),
        },
        Knob { file: "max_discard_issue_time".into(), value: longest_wait.max(1) },
        Knob {
            file: "discard_granularity".into(),
            value: (pace.shortest.0 / F2FS_BLOCK.0).clamp(1, F2FS_SEGMENT_BLOCKS),
        },
    ]
}

/// A file system whose own discards are steered. Dropping it puts its knobs back. Who is killed can't: what
/// was kept of this (with serde) before [`Self::set`] does it later.
#[derive(Debug, Serialize, Deserialize)]
pub struct Steering {
    directory: PathBuf,
    /// Knobs with what they held.
    knobs: Vec<(Knob, String)>,
}

impl Steering {
    /// Reads the knobs by which the file system of `mount` is to hold a pace; none where it sends no discards
    /// by itself, for which `pace` is not called. Knobs that its kernel doesn't have are left out. `sysfs` is where sysfs is
    /// mounted.
    ///
    /// # Errors
    /// [`SteerError::Read`].
    pub fn plan(
        sysfs: &Path,
        mount: &Mount,
        pace: impl FnOnce() -> Pace,
    ) -> Result<Option<Self>, SteerError> {
        let Some((directory, knobs_for)) = steerable(sysfs, mount) else { return Ok(None) };
        let mut knobs = Vec::new();
        for knob in knobs_for(&pace()) {
            let path = directory.join(&*knob.file);
            match fs::read_to_string(&path) {
                Ok(text) => knobs.push((knob, text.trim().to_owned())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(SteerError::Read { path, source }),
            }
        }
        Ok((!knobs.is_empty()).then_some(Self { directory, knobs }))
    }

    /// Sets the knobs.
    ///
    /// # Errors
    /// [`SteerError::Write`]; those that were set before it stay so until this is dropped.
    pub fn set(&self) -> Result<(), SteerError> {
        let mut knobs = self.knobs.iter();
        knobs.try_for_each(|(knob, _)| write(&self.directory.join(&*knob.file), &knob.value.to_string()))
    }

    /// The knobs, each with what it held before.
    pub fn knobs(&self) -> &[(Knob, String)] {
        &self.knobs
    }

    /// Puts the knobs back, but for those that somebody else has set since, or that are gone.
    ///
    /// # Errors
    /// The first [`SteerError`]; the others are put back all the same.
    pub fn stop(mut self) -> Result<(), SteerError> {
        self.put_back()
    }

    fn put_back(&mut self) -> Result<(), SteerError> {
        let mut outcome = Ok(());
        for (knob, before) in self.knobs.drain(..) {
            let path = self.directory.join(&*knob.file);
            let is_ours = fs::read_to_string(&path).is_ok_and(|now| now.trim() == knob.value.to_string());
            if is_ours {
                outcome = outcome.and(write(&path, &before));
            }
        }
        outcome
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        _ = self.put_back();
    }
}

/// Chooses the values of a file system's knobs.
type KnobsFor = fn(&Pace) -> Vec<Knob>;

/// The directory of the knobs of a file system that sends discards by itself, and what chooses their values.
fn steerable(sysfs: &Path, mount: &Mount) -> Option<(PathBuf, KnobsFor)> {
    let options = mount.all_options();
    match (mount.fstype.as_str(), discard_option(&options)) {
        ("btrfs", Some("discard=async")) => Some((btrfs::directory_of(sysfs, mount)?, btrfs_knobs)),
        ("f2fs", Some("discard")) => {
            let name = BlockDevice::numbered(sysfs, mount.number)?.name();
            Some((sysfs.join("fs/f2fs").join(name), f2fs_knobs))
        }
        _ => None,
    }
}

fn write(path: &Path, value: &str) -> Result<(), SteerError> {
    let failed = |source| SteerError::Write { path: path.to_owned(), value: value.to_owned(), source };
    fs::write(path, value).map_err(failed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::captured::Captured;

    fn pace() -> Pace {
        Pace {
            max_latency: Duration::from_millis(5),
            max_share: 0.05,
            max_age: Duration::from_secs(3600),
            longest: Bytes(9 << 20),
            takes: Duration::from_micros(2500),
            shortest: Bytes(32 << 10),
        }
    }

    fn values(knobs: &[Knob]) -> Vec<(&str, u64)> {
        knobs.iter().map(|knob| (&*knob.file, knob.value)).collect()
    }

    #[test]
    fn goals_become_knobs() {
        let btrfs = [("discard/max_discard_size", 9 << 20), ("discard/iops_limit", 20)];
        assert_eq!(values(&btrfs_knobs(&pace())), btrfs);
        let f2fs = [
            ("max_discard_request", 2),
            ("min_discard_issue_time", 100),
            ("max_discard_issue_time", 60_000),
            ("discard_granularity", 8),
        ];
        assert_eq!(values(&f2fs_knobs(&pace())), f2fs);
    }

    proptest! {
        #[test]
        fn share_is_held_if_the_knobs_allow_it(
            latency in 1_u64..100_000, share in 0.001_f64..1.0, age in 0_u64..100_000,
            longest in 1_u64..1 << 40, takes in 1_u64..1_000_000, shortest in 0_u64..1 << 40,
        ) {
            let pace = Pace {
                max_latency: Duration::from_micros(latency),
                max_share: share,
                max_age: Duration::from_millis(age),
                longest: Bytes(longest),
                takes: Duration::from_micros(takes),
                shortest: Bytes(shortest),
            };
            let takes = pace.takes.as_secs_f64();
            let [size, iops] = &btrfs_knobs(&pace)[..] else { panic!() };
            prop_assert!(size.value >= BTRFS_GRAIN.0 && size.value.is_multiple_of(BTRFS_GRAIN.0));
            prop_assert!(iops.value == 1 || iops.value as f64 * takes <= share);
            let [requests, pause, longest_wait, granularity] = &f2fs_knobs(&pace)[..] else { panic!() };
            prop_assert!(requests.value == 1 || requests.value as f64 * takes <= latency as f64 / 1e6);
            let held = requests.value as f64 * takes / (pause.value as f64 / 1000.0);
            prop_assert!(held <= share * 1.0001 || pause.value == longest_wait.value);
            prop_assert!((1..=512).contains(&granularity.value));
        }
    }

    fn f2fs(options: &str) -> Mount {
        Mount {
            id: 1,
            parent: 1,
            number: "8:1".parse().unwrap(),
            root: "/".into(),
            target: "/mnt".into(),
            fstype: "f2fs".into(),
            source: "/dev/sda1".into(),
            options: "rw".into(),
            super_options: options.into(),
        }
    }

    #[test]
    fn knobs_are_restored_unless_others_set_them() {
        let machine =
            Captured::new().device("sda", "8:0", &[]).device("sda/sda1", "8:1", &[("partition", "1")]);
        let sysfs = machine.sysfs();
        let directory = sysfs.join("fs/f2fs/sda1");
        fs::create_dir_all(&directory).unwrap();
        let file = |name: &str| directory.join(name);
        let holds = |name: &str| fs::read_to_string(file(name)).unwrap().trim().to_owned();
        // An old kernel: it has not all of them.
        [("max_discard_issue_time", "50000\n"), ("discard_granularity", "16\n")]
            .iter()
            .for_each(|(name, value)| fs::write(file(name), value).unwrap());
        assert!(Steering::plan(&sysfs, &f2fs("nodiscard"), pace).unwrap().is_none());
        let steering = Steering::plan(&sysfs, &f2fs("discard"), pace).unwrap().unwrap();
        assert_eq!(steering.knobs().len(), 2);
        assert_eq!(holds("discard_granularity"), "16", "nothing is changed yet");
        let kept = serde_json::to_string(&steering).unwrap();
        steering.set().unwrap();
        // It is killed, and the next one puts back what it kept.
        std::mem::forget(steering);
        let steering: Steering = serde_json::from_str(&kept).unwrap();
        assert_eq!(
            (holds("max_discard_issue_time"), holds("discard_granularity")),
            ("60000".into(), "8".into())
        );
        fs::write(file("discard_granularity"), "4").unwrap();
        steering.stop().unwrap();
        assert_eq!(
            (holds("max_discard_issue_time"), holds("discard_granularity")),
            ("50000".into(), "4".into())
        );
        assert!(!file("max_discard_request").exists());
    }

    #[test]
    fn unreadable_knob_leaves_all_unchanged() {
        let machine =
            Captured::new().device("sda", "8:0", &[]).device("sda/sda1", "8:1", &[("partition", "1")]);
        let sysfs = machine.sysfs();
        let directory = sysfs.join("fs/f2fs/sda1");
        fs::create_dir_all(directory.join("min_discard_issue_time")).unwrap();
        fs::write(directory.join("max_discard_request"), "7").unwrap();
        let error = Steering::plan(&sysfs, &f2fs("discard"), pace).unwrap_err();
        assert!(error.to_string().contains("min_discard_issue_time"), "{error}");
        assert_eq!(fs::read_to_string(directory.join("max_discard_request")).unwrap(), "7");
    }
}
