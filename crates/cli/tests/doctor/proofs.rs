//! Tests with canaries.

use std::fs;

use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::verdict::Verdict;
use trimtab_linux::{SYSFS, block::BlockDevice};

use crate::common::possible;
use crate::support::{OnLoop, doctor, target};

#[test]
fn canary_is_seen_below_and_leaves_nothing() {
    if !possible() {
        return;
    }
    for (fstype, options) in [("ext4", ""), ("ext4", "discard"), ("xfs", "")] {
        let stack = OnLoop::new("tmpfs", fstype, options);
        let device = BlockDevice::open(SYSFS.as_ref(), &stack.device.device).unwrap();
        let before = device.counters().unwrap();
        let found = target(&["--canary"], &stack.upper.target);
        let canary = found.canary.as_ref().unwrap_or_else(|| panic!("{found:#?}"));
        assert_eq!((found.verdict, canary.verdict), (Verdict::Reaches, Verdict::Reaches), "{found:#?}");
        assert_eq!(canary.seen[0].layer, stack.device.name());
        assert_eq!(canary.seen[0].bytes, canary.sent_bytes);
        // The kernel counted the same discards.
        let counted = device.counters().unwrap().since(&before);
        assert!(counted.discard_bytes >= canary.sent_bytes && canary.sent_bytes > Bytes::ZERO, "{counted:?}");
        let left: Vec<_> =
            fs::read_dir(&stack.upper.target).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "lost+found"), "{left:?}");
    }
}

#[test]
fn device_without_discards_sees_no_canary() {
    if !possible() {
        return;
    }
    // No holes can be punched into a file on it.
    let stack = OnLoop::new("ramfs", "ext4", "");
    let found = target(&["--canary"], &stack.upper.target);
    assert_eq!(found.verdict, Verdict::Blocked, "{found:#?}");
    assert_eq!(found.canary.as_ref().unwrap().verdict, Verdict::Blocked);
    let finding = &found.findings[0];
    assert_eq!((finding.id.as_str(), finding.layer.as_str()), ("loop-no-holes", stack.device.name()));
}

#[test]
fn failed_canary_leaves_the_other_targets_alone() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "discard");
    let read_only = OnLoop::new("tmpfs", "ext4", "ro,discard");
    let output = doctor(&["--json", "--canary"], &[&read_only.upper.target, &stack.upper.target]);
    let document: DoctorDocument = serde_json::from_slice(&output.stdout).unwrap();
    let proved: Vec<_> = document.targets.iter().map(|target| target.canary.is_some()).collect();
    assert_eq!(proved, [false, true]);
    let said = format!("no proof: {} is read-only", read_only.upper.target.display());
    assert!(document.left_out.iter().any(|line| line.starts_with(&said)), "{:?}", document.left_out);
    assert!(matches!(output.status.code(), Some(1 | 4)), "{output:?}");
}

#[test]
fn capture_overwrites_no_file_and_leaves_no_partial_file() {
    if !possible() {
        return;
    }
    let stack = OnLoop::new("tmpfs", "ext4", "");
    let dir = tempfile::TempDir::new().unwrap();
    let archive = dir.path().join("capture.tar.gz");
    let arguments = ["--canary", "--capture", archive.to_str().unwrap()];
    // A target that can't be examined is not captured.
    assert_eq!(doctor(&arguments, &["/nonexistent".as_ref()]).status.code(), Some(1));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    fs::write(&archive, "precious").unwrap();
    let device = BlockDevice::open(SYSFS.as_ref(), &stack.device.device).unwrap();
    let before = device.counters().unwrap().discards;
    let refused = doctor(&arguments, &[&stack.upper.target]);
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(1), 0), "{refused:?}");
    assert_eq!(fs::read(&archive).unwrap(), b"precious");
    assert_eq!(device.counters().unwrap().discards, before, "no canary was sent");

    fs::remove_file(&archive).unwrap();
    let said = String::from_utf8(doctor(&arguments, &[&stack.upper.target]).stdout).unwrap();
    let expected = format!("\nCapture: {} (what the canary proved isn't in it)\n", archive.display());
    assert!(said.ends_with(&expected), "{said}");
}
