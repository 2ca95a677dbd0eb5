//! What canaries prove.

use trimtab_core::Bytes;
use trimtab_core::document::doctor::Verdict;
use trimtab_linux::{SYSFS, block::BlockDevice};

use crate::common::possible;
use crate::support::{OnLoop, target};

#[test]
fn a_canary_is_seen_below_and_nothing_is_left_of_it() {
    if !possible() {
        return;
    }
    for (fstype, options) in [("ext4", ""), ("ext4", "discard"), ("xfs", "")] {
        let stack = OnLoop::new("tmpfs", fstype, options);
        let device = BlockDevice::open(SYSFS.as_ref(), &stack.device.0).unwrap();
        let before = device.counters().unwrap();
        let found = target(&["--canary"], &stack.upper.0);
        let canary = found.canary.as_ref().unwrap_or_else(|| panic!("{found:#?}"));
        assert_eq!((found.verdict, canary.verdict), (Verdict::Reaches, Verdict::Reaches), "{found:#?}");
        assert_eq!(canary.seen[0].layer, stack.device.name());
        assert_eq!(canary.seen[0].bytes, canary.sent_bytes);
        // What it saw, the kernel counted too.
        let counted = device.counters().unwrap().since(&before);
        assert!(counted.discard_bytes >= canary.sent_bytes && canary.sent_bytes > Bytes::ZERO, "{counted:?}");
        let left: Vec<_> =
            std::fs::read_dir(&stack.upper.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lost+found"), "{left:?}");
    }
}

#[test]
fn a_device_without_discards_sees_no_canary() {
    if !possible() {
        return;
    }
    // No holes can be punched into a file on it.
    let stack = OnLoop::new("ramfs", "ext4", "");
    let found = target(&["--canary"], &stack.upper.0);
    assert_eq!(found.verdict, Verdict::Blocked, "{found:#?}");
    assert_eq!(found.canary.as_ref().unwrap().verdict, Verdict::Blocked);
    let finding = &found.findings[0];
    assert_eq!((finding.id.as_str(), finding.layer.as_str()), ("loop-no-holes", stack.device.name()));
}
