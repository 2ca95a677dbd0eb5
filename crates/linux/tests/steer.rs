//! The knobs of a real btrfs.

mod common;

use std::path::Path;
use std::time::Duration;

use common::mounted::Mounted;
use common::possible;
use trimtab_core::Bytes;
use trimtab_linux::mount::{self, Mount};
use trimtab_linux::steer::{Pace, Steering};
use trimtab_linux::{PROCFS, SYSFS};

fn mount_of(mounted: &Mounted) -> Mount {
    let find = |mount: &Mount| mount.target == mounted.directory.path();
    mount::mounts(Path::new(PROCFS)).unwrap().into_iter().find(find).unwrap()
}

#[test]
fn a_btrfs_takes_its_knobs_and_gets_them_back() {
    if !possible() {
        return;
    }
    let pace = Pace {
        max_latency: Duration::from_millis(5),
        max_share: 0.05,
        max_age: Duration::from_secs(3600),
        longest: Bytes(9 << 20),
        takes: Duration::from_micros(2500),
        shortest: Bytes(32 << 10),
    };
    let Some(mounted) = Mounted::new("btrfs", Bytes(512 << 20), "discard=async") else { return };
    let plan = |mounted| Steering::plan(Path::new(SYSFS), &mount_of(mounted), || pace).unwrap();
    let steer = || {
        let steering = plan(&mounted).unwrap();
        steering.set().unwrap();
        steering
    };
    let before = {
        let first = steer();
        assert_eq!(first.knobs().len(), 2);
        let second = steer();
        assert!(second.knobs().iter().all(|(knob, held)| knob.value.to_string() == *held), "{second:?}");
        first.knobs().to_vec()
    };
    assert_eq!(steer().knobs(), before);
    let Some(other) = Mounted::new("btrfs", Bytes(512 << 20), "nodiscard") else { return };
    assert!(plan(&other).is_none());
}
