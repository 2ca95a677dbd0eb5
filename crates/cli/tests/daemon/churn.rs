//! After a full trim, the next trim sends little more than what was freed since.

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::status::FileSystemStatus;

use crate::support::{Daemon, TRIMTAB, Volume, patient, possible, run, wait_until};

const FILES: usize = 400;
const LENGTH: Bytes = Bytes(256 << 10);
/// Of the files that are kept, one in this many is deleted and written again.
const CHURN: usize = 100;
/// The most that is sent, over what fstrim sends.
const MOST: f64 = 0.02;

struct Churned {
    volume: Volume,
    /// Files that there are; the oldest are deleted first.
    files: Vec<usize>,
}

impl Churned {
    /// Makes a file system, writes files and deletes half of them: its free space is in many pieces.
    fn new(fstype: &str) -> Self {
        let volume = Volume::in_memory(fstype);
        volume.mount();
        let mut churned = Self { volume, files: Vec::new() };
        (0..FILES).for_each(|file| churned.write(file));
        churned.volume.sync();
        (1..FILES).step_by(2).for_each(|file| churned.remove(file));
        churned.files.retain(|file| file % 2 == 0);
        churned.volume.sync();
        churned
    }

    fn write(&mut self, file: usize) {
        fs::write(self.volume.target.join(file.to_string()), vec![7; LENGTH.0 as usize]).unwrap();
        self.files.push(file);
    }

    fn remove(&self, file: usize) {
        fs::remove_file(self.volume.target.join(file.to_string())).unwrap();
    }

    /// Deletes files here and there, and writes as much; returns the bytes that this frees.
    fn churn(&mut self) -> Bytes {
        let gone: Vec<_> = self.files.iter().copied().step_by(CHURN).collect();
        self.files.retain(|file| !gone.contains(file));
        gone.iter().for_each(|file| self.remove(*file));
        self.volume.sync();
        let next = self.files.iter().max().map_or(0, |last| last + 1);
        (next..next + gone.len()).for_each(|file| self.write(file));
        self.volume.sync();
        Bytes(LENGTH.0 * gone.len() as u64)
    }

    /// Mounts it anew once the service has saved its state.
    fn remount(&self, daemon: &Daemon) {
        let saved = daemon.logged("event=state_saved");
        self.volume.unmount();
        wait_until("its state is saved", || daemon.logged("event=state_saved") > saved);
        self.volume.mount();
    }

    /// Returns the bytes that `command`, run with the mount point, discards.
    fn sent(&self, command: &mut Command) -> Bytes {
        let before = self.volume.counters().discard_bytes;
        run(command.arg(&self.volume.target));
        self.volume.counters().discard_bytes - before
    }
}

fn the_next_trim_sends_little(fstype: &str) {
    if !possible() {
        return;
    }
    let mut churned = Churned::new(fstype);
    let dir = TempDir::new().unwrap();
    let config = patient(&churned.volume, dir.path());
    let mut daemon = Daemon::start(&config);
    let trim = |daemon: &Daemon, arguments: &[&str]| {
        let mut trim = Command::new(TRIMTAB);
        trim.args(["trim", "--quiet"]).args(arguments).arg("--run").arg(daemon.run());
        trim.env("RUNTIME_DIRECTORY", daemon.dir.path());
        trim
    };
    assert!(churned.sent(&mut trim(&daemon, &["--full"])) > Bytes(256 << 20));

    let is_pending = |bytes| move |fs: &FileSystemStatus| fs.pending >= bytes;
    let mut sent = Vec::new();
    let freed = churned.churn();
    daemon.wait_for(&churned.volume, "what was freed is pending", is_pending(freed));
    sent.push(("mounted", freed, churned.sent(&mut trim(&daemon, &[]))));

    let freed = churned.churn();
    churned.remount(&daemon);
    daemon.wait_for(&churned.volume, "that outlived the mount", is_pending(freed));
    sent.push(("remounted", freed, churned.sent(&mut trim(&daemon, &[]))));

    let freed = churned.churn();
    daemon.wait_for(&churned.volume, "what was freed is pending", is_pending(freed));
    assert_eq!(daemon.stop(), Some(0));
    let home = std::mem::replace(&mut daemon.dir, TempDir::new().unwrap());
    let daemon = Daemon::start_in(home, &config, |_| {});
    sent.push(("managed anew", freed, churned.sent(&mut trim(&daemon, &[]))));

    // ext4 remembers what was trimmed while it is mounted.
    churned.remount(&daemon);
    let theirs = churned.sent(&mut Command::new("fstrim"));
    for (manner, freed, sent) in sent {
        let share = sent.0 as f64 / theirs.0 as f64;
        // Trims skip short extents that hold up to 1 % of the free bytes.
        let least = Bytes(freed.0 / 100 * 99);
        let log = daemon.log();
        assert!(
            sent >= least && share <= MOST,
            "{fstype} {manner}: {freed} freed, {sent} sent of {theirs}\n{log}"
        );
    }
}

#[test]
fn ext4_trim_after_a_full_trim_sends_little() {
    the_next_trim_sends_little("ext4");
}

#[test]
fn xfs_trim_after_a_full_trim_sends_little() {
    the_next_trim_sends_little("xfs");
}
