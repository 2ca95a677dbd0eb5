//! A file system is opened where it is the one that was meant.

mod common;

use std::path::Path;

use common::mounted::{Mounted, unmount};
use common::possible;
use trimtab_core::Bytes;
use trimtab_linux::SYSFS;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::mount::{mount, open_of};

#[test]
fn covering_file_system_is_not_mistaken_for_the_own() {
    if !possible() {
        return;
    }
    for kind in ["ext4", "xfs", "btrfs"] {
        let Some(mounted) = Mounted::new(kind, Bytes(512 << 20), "") else { return };
        let devices = [BlockDevice::open(Path::new(SYSFS), &mounted.scratch.device).unwrap()];
        let place = mounted.directory.path();
        open_of(place, &devices).unwrap();
        for kind in ["ext4", "btrfs"] {
            let Some(other) = Mounted::new(kind, Bytes(512 << 20), "") else { return };
            mount(&other.scratch.device, place, kind, "").unwrap();
            let refused = open_of(place, &devices).unwrap_err();
            assert!(refused.to_string().contains("another file system is mounted there"), "{refused}");
            unmount(place);
            open_of(place, &devices).unwrap();
        }
    }
}
