//! File systems that discard by themselves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use trimtab_core::Bytes;
use trimtab_core::document::status::State;
use trimtab_linux::mount;

use crate::support::{Daemon, Volume, possible, wait_until};

/// The directory of the knobs of a btrfs.
fn knobs(volume: &Volume) -> PathBuf {
    let blkid = Command::new("blkid").args(["-p", "-s", "UUID", "-o", "value"]).arg(&volume.device).output();
    let id = String::from_utf8(blkid.unwrap().stdout).unwrap();
    Path::new("/sys/fs/btrfs").join(id.trim()).join("discard")
}

/// A btrfs that discards by itself.
fn discarding() -> Volume {
    let volume = Volume::new("btrfs");
    mount::mount(&volume.device, &volume.target, "btrfs", "discard=async").unwrap();
    volume
}

/// The table of a configuration that has it steered to take this share of its drive's time.
fn steered(volume: &Volume, share: f64) -> String {
    format!("{}policy = \"smart\"\nmax_busy_share = {share}\n", volume.table())
}

#[test]
fn btrfs_with_its_own_discards_is_steered_by_the_goals() {
    if !possible() {
        return;
    }
    let volume = discarding();
    let directory = knobs(&volume);
    let held = || {
        let held = |knob| fs::read_to_string(directory.join(knob)).unwrap().trim().parse::<u64>().unwrap();
        (held("max_discard_size"), held("iops_limit"))
    };
    let before = held();
    let mut daemon = Daemon::start(&steered(&volume, 0.01));
    let status = daemon.status_of(&volume).unwrap();
    assert_eq!((status.state, status.policy.as_str()), (State::Steered, "smart"));
    let (size, slow) = held();
    assert_ne!((size, slow), before);
    let said = |(size, iops)| format!("discard/max_discard_size = {size}, discard/iops_limit = {iops}");
    assert_eq!(status.reason, Some(said((size, slow))));
    assert_eq!(daemon.logged("event=steered"), 1, "{}", daemon.log());
    assert_eq!(daemon.logged(&said((size, slow))), 1, "{}", daemon.log());

    daemon.configure(&steered(&volume, 0.1));
    daemon.signal(Signal::HUP);
    wait_until("the new goals hold", || held().1 > slow);
    daemon.configure("");
    daemon.signal(Signal::HUP);
    wait_until("it is left alone", || daemon.status_of(&volume).unwrap().state == State::Off);
    assert_eq!(held(), before);

    daemon.configure(&steered(&volume, 0.01));
    daemon.signal(Signal::HUP);
    wait_until("it is steered again", || held() == (size, slow));
    volume.remount("remount,nodiscard");
    daemon.wait_for(&volume, "it is trimmed", |fs| fs.trimmed > Bytes::ZERO);
    assert_eq!(held(), before);
    volume.remount("remount,discard=async");
    daemon.wait_for(&volume, "it is steered again", |fs| fs.state == State::Steered);
    // The trim showed what discards cost on this drive, so the limits may differ from those by the profile.
    assert_ne!(held(), before);
    let learned = held();
    assert_eq!(daemon.status_of(&volume).unwrap().reason, Some(said(learned)));

    daemon.configure(&steered(&volume, 0.1));
    daemon.signal(Signal::HUP);
    daemon.wait_for(&volume, "the new goals hold", |fs| fs.reason != Some(said(learned)));
    assert_eq!(held().0, learned.0, "what the trim showed is kept");
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(held(), before);
}

#[test]
fn settings_are_restored_after_a_killed_service() {
    if !possible() {
        return;
    }
    let volume = discarding();
    let directory = knobs(&volume);
    let held =
        || ["max_discard_size", "iops_limit"].map(|knob| fs::read_to_string(directory.join(knob)).unwrap());
    let before = held();
    let config = steered(&volume, 0.01);
    let mut daemon = Daemon::start(&config);
    let set = held();
    assert_ne!(set, before);
    for _ in 0..2 {
        daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
        assert_eq!(held(), set);
    }
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(held(), before);
    // The next service restores the limits even if its policy is none.
    let daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
    assert_eq!(held(), set);
    let mut daemon = Daemon::start_in(daemon.kill(), "", |_| {});
    assert_eq!(held(), before);
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
}

#[test]
fn steered_file_system_can_be_unmounted() {
    if !possible() {
        return;
    }
    let volume = discarding();
    let mut daemon = Daemon::start(&steered(&volume, 0.01));
    assert_eq!(daemon.status_of(&volume).unwrap().state, State::Steered);
    volume.unmount();
    wait_until("it is gone", || daemon.status_of(&volume).is_none());
    assert_eq!(daemon.stop(), Some(0));
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
}
