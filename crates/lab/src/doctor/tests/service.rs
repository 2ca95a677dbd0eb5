//! Who sends discards.

use std::path::PathBuf;

use trimtab_linux::stack::{CrypttabLine, FstabLine, Layer, Setup, Timer};

use super::{YES, file_system, mapped, nvme, row, taking, timed};
use crate::doctor::{ASSUMED_ERASE_BLOCK, diagnose};

#[test]
fn who_trims_is_said() {
    let fstab = |options: &str| FstabLine {
        source: "UUID=1".to_owned(),
        target: PathBuf::from("/mnt"),
        fstype: "ext4".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    };
    let ids = |options: &str, setup: &Setup| {
        let stack = row([file_system("/mnt", "ext4", options), nvme(YES)]);
        diagnose(&stack, setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("rw", &Setup::default()), ["nobody-trims"]);
    assert!(ids("rw,discard", &Setup::default()).is_empty());
    assert!(ids("rw", &timed()).is_empty());
    assert_eq!(ids("rw,discard", &timed()), ["double-work"]);
    let listed = |options| Setup { fstab: vec![fstab(options)], ..timed() };
    assert!(ids("rw", &listed("defaults")).is_empty());
    assert_eq!(ids("rw", &listed("defaults,X-fstrim.notrim")), ["fstrim-skips"]);
    let elsewhere = FstabLine { target: PathBuf::from("/other"), ..fstab("defaults") };
    assert_eq!(ids("rw", &Setup { fstab: vec![elsewhere], ..timed() }), ["not-in-fstab"]);
    assert_eq!(ids("rw", &Setup { container: true, ..timed() }), ["container"]);
    let off = Setup {
        timer: Some(Timer { enabled: false, active: false, last: None, next: None }),
        ..Setup::default()
    };
    assert_eq!(ids("rw", &off), ["nobody-trims"]);
}

#[test]
fn discards_allowed_until_the_next_start_are_said_to_be() {
    let crypt = taking(YES, 512, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:1 0 1 allow_discards"));
    let stack = row([
        file_system("/mnt", "ext4", "rw"),
        Layer { label: Some("home".to_owned()), ..crypt },
        nvme(YES),
    ]);
    let ids = |options: &[&str], luks_allows: &[(String, bool)]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let line = CrypttabLine { name: "home".to_owned(), source: "/dev/sda1".to_owned(), options };
        let setup = Setup { crypttab: vec![line], luks_allows: luks_allows.to_vec(), ..timed() };
        diagnose(&stack, &setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&["luks"], &[]), ["luks-until-restart"]);
    assert!(ids(&["luks", "discard"], &[]).is_empty());
    assert!(ids(&["luks"], &[("dm-0".to_owned(), true)]).is_empty());
    assert_eq!(ids(&["luks"], &[("dm-0".to_owned(), false)]), ["luks-until-restart"]);
}
