//! Devices and file systems that fail, hang, freeze or vanish.

use std::fs::{self, File};
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;
use trimtab_linux::mount;

use crate::broken::{Failing, Frozen, Hung};
use crate::support::{
    DRIVES, Daemon, TRIMTAB, Volume, eager, patient, possible, refused, run, wait_until, weekly,
};

const FILE: Bytes = Bytes(32 << 20);

fn is_idle(fs: &FileSystemStatus) -> bool {
    fs.state == State::Idle && fs.pending == Bytes::ZERO
}

fn is_failing(fs: &FileSystemStatus) -> bool {
    fs.state == State::Failing
}

/// Deletes a file of that volume, and waits until it is trimmed.
fn goes_on(daemon: &Daemon, volume: &Volume, file: &str) {
    let before = daemon.status_of(volume).unwrap().trimmed;
    volume.delete(file);
    daemon.wait_for(volume, "it is managed", |fs| fs.trimmed >= before + FILE && is_idle(fs));
}

/// Processor time that the service has used, in ticks.
fn ticks(daemon: &Daemon) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Whether the service does next to nothing for three seconds.
fn rests(daemon: &Daemon) -> bool {
    let before = ticks(daemon);
    std::thread::sleep(std::time::Duration::from_secs(3));
    ticks(daemon) - before < 30
}

#[test]
fn failed_discards_are_retried_until_they_succeed() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let (failing, other) = (Failing::mounted(fstype), Volume::mounted("ext4"));
        let volume = &failing.volume;
        for place in [volume, &other] {
            place.write("goes", FILE);
        }
        let mut daemon = Daemon::start(&(eager(volume) + &eager(&other)));
        for place in [volume, &other] {
            daemon.wait_for(place, "all that was free is trimmed", is_idle);
        }
        let before = daemon.status_of(volume).unwrap().trimmed;
        failing.set(true);
        volume.delete("goes");
        let tries = |fs: &FileSystemStatus| fs.refusals.get("io_error").copied().unwrap_or(0);
        daemon.wait_for(volume, "it fails again", |fs| is_failing(fs) && tries(fs) >= 2);
        let fs = daemon.status_of(volume).unwrap();
        assert!(fs.pending >= FILE && fs.trimmed == before, "{fs:?}");
        assert_eq!(daemon.logged("event=discard_failed"), 1, "{}", daemon.log());
        let reason = fs.reason.unwrap();
        assert!(reason.contains("fails to discard") || reason.contains("Input/output error"), "{reason}");
        goes_on(&daemon, &other, "goes");
        assert!(rests(&daemon), "{}", daemon.log());
        failing.set(false);
        daemon.wait_for(volume, "all is trimmed", |fs| is_idle(fs) && fs.trimmed >= before + FILE);
        assert_eq!(daemon.logged("event=discard_recovered"), 1, "{}", daemon.log());
        assert!(tries(&daemon.status_of(volume).unwrap()) < 8, "its pauses grow");
        assert_eq!(daemon.stop(), Some(0));
    }
}

#[test]
fn trim_command_reports_failed_discards() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let failing = Failing::mounted(fstype);
        let runtime = tempfile::TempDir::new().unwrap();
        let trim = || {
            let mut command = Command::new(TRIMTAB);
            command.arg("trim").arg(&failing.volume.target).env("RUNTIME_DIRECTORY", runtime.path());
            command.output().unwrap()
        };
        failing.set(true);
        let said = refused(&trim());
        assert!(said.contains("fails to discard") || said.contains("Input/output error"), "{said}");
        failing.set(false);
        let sound = trim();
        assert!(sound.status.success(), "{}", String::from_utf8_lossy(&sound.stderr));
    }
}

#[test]
fn vanished_drive_is_logged_once_and_others_are_managed() {
    if !possible() {
        return;
    }
    let gone = Volume::on_drive("ext4", Profile::named("nvme-tlc").unwrap(), Clock::Model);
    let other = Volume::mounted("xfs");
    for place in [&gone, &other] {
        place.write("goes", FILE);
    }
    let dir = tempfile::TempDir::new().unwrap();
    let mut daemon = Daemon::start(&(patient(&gone, dir.path()) + &eager(&other)));
    daemon.wait_for(&other, "all that was free is trimmed", is_idle);
    gone.fray();
    daemon.wait_for(&gone, "something is pending", |fs| fs.pending > Bytes::ZERO);
    let _alone = DRIVES.write().unwrap_or_else(PoisonError::into_inner);
    kill_process(gone.server(), Signal::KILL).unwrap();
    daemon.configure(&(eager(&gone) + &eager(&other)));
    daemon.signal(Signal::HUP);
    daemon.wait_for(&gone, "it fails again", |fs| {
        is_failing(fs) && fs.refusals.values().sum::<u64>() >= 2 && fs.pending > Bytes::ZERO
    });
    goes_on(&daemon, &other, "goes");
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 1, "{}", daemon.log());
    assert!(rests(&daemon), "{}", daemon.log());
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    // A killed server leaves its drive to whoever looks next.
    drop(gone);
    trimtab_drive::list().unwrap();
}

#[test]
fn hung_drive_does_not_delay_others() {
    if !possible() {
        return;
    }
    let slow = Volume::on_drive("ext4", Profile::named("nvme-tlc").unwrap(), Clock::Model);
    let other = Volume::mounted("ext4");
    for name in ["first", "second"] {
        other.write(name, FILE);
    }
    let dir = tempfile::TempDir::new().unwrap();
    let before = slow.counters().discard_bytes;
    let (waits, goes) = (patient(&slow, dir.path()), eager(&slow));
    let mut daemon = Daemon::start(&(waits.clone() + &eager(&other)));
    daemon.wait_for(&other, "all that was free is trimmed", is_idle);
    let hang = |daemon: &Daemon| {
        slow.fray();
        daemon.wait_for(&slow, "something is pending", |fs| fs.pending > Bytes::ZERO);
        let hung = Hung::new(&slow);
        daemon.configure(&(goes.clone() + &eager(&other)));
        daemon.signal(Signal::HUP);
        daemon.wait_for(&slow, "it doesn't answer", |fs| {
            is_failing(fs) && fs.refusals.contains_key("no_answer")
        });
        hung
    };
    let hung = hang(&daemon);
    assert_eq!(daemon.logged("event=discard_failed"), 1, "{}", daemon.log());
    goes_on(&daemon, &other, "first");
    assert!(rests(&daemon), "{}", daemon.log());
    drop(hung);
    daemon.wait_for(&slow, "all is trimmed", is_idle);
    assert_eq!(daemon.logged("event=discard_recovered"), 1, "{}", daemon.log());
    let trimmed = daemon.status_of(&slow).unwrap().trimmed;
    assert_eq!(trimmed, slow.counters().discard_bytes - before, "what was answered late counts");

    daemon.configure(&(waits + &eager(&other)));
    daemon.signal(Signal::HUP);
    wait_until("it waits again", || daemon.logged("event=configuration_loaded") == 2);
    let hung = hang(&daemon);
    goes_on(&daemon, &other, "second");
    let mut command = Command::new(TRIMTAB);
    let reason =
        refused(&command.args(["pause", "--for", "1s", "--run"]).arg(daemon.run()).output().unwrap());
    assert!(reason.contains("the pause of 1s was over before"), "{reason}");
    daemon.signal(Signal::TERM);
    wait_until("it ends", || daemon.child.try_wait().unwrap().is_some());
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    assert_eq!((daemon.logged("event=stopped"), daemon.instances()), (1, 0));
    assert!(!daemon.run().join("status").exists());
    drop(hung);
}

/// A file system on a drive that can hang, with nothing of it in memory yet, and another one with a file.
fn one_that_hangs_and_another(fstype: &str) -> (Volume, Volume) {
    let hangs = Volume::on_drive(fstype, Profile::named("nvme-tlc").unwrap(), Clock::Model);
    run(Command::new("blockdev").arg("--flushbufs").arg(&hangs.device));
    let other = Volume::mounted("ext4");
    other.write("goes", FILE);
    (hangs, other)
}

/// Has `daemon`, which trims `other`, manage `hangs` as `config` says, once that hangs.
fn managed_while_it_hangs(daemon: &Daemon, hangs: &Volume, config: String, other: &Volume) -> Hung {
    daemon.wait_for(other, "all that was free is trimmed", is_idle);
    let hung = Hung::new(hangs);
    daemon.configure(&(config + &eager(other)));
    daemon.signal(Signal::HUP);
    hung
}

#[test]
fn drive_hung_at_the_start_does_not_delay_others() {
    if !possible() {
        return;
    }
    // The superblock of an XFS is not in the page cache when it is mounted.
    for fstype in ["ext4", "xfs"] {
        let (hangs, other) = one_that_hangs_and_another(fstype);
        // It only ends once the drive doesn't hang any more.
        let daemon;
        let hung = Hung::new(&hangs);
        daemon = Daemon::start(&(eager(&hangs) + &eager(&other)));
        daemon.wait_for(&other, "all that was free is trimmed", is_idle);
        let reason = daemon.status_of(&hangs).unwrap().reason.unwrap();
        assert!(reason.contains("the kernel doesn't answer"), "{reason}");
        goes_on(&daemon, &other, "goes");
        drop(hung);
        daemon.wait_for(&hangs, "it is managed", |fs| is_idle(fs) && fs.trimmed > Bytes::MIB);
        assert_eq!(daemon.status_of(&hangs).unwrap().policy, "smart", "{}", daemon.log());
    }
}

#[test]
fn drive_that_hangs_when_it_is_to_be_trimmed_is_examined_again() {
    if !possible() {
        return;
    }
    let (hangs, other) = one_that_hangs_and_another("xfs");
    let daemon = Daemon::start(&eager(&other));
    run(Command::new("blockdev").arg("--flushbufs").arg(&hangs.device));
    let hung = managed_while_it_hangs(&daemon, &hangs, eager(&hangs), &other);
    daemon.wait_for(&hangs, "its drive does not answer", |fs| {
        fs.state == State::Off && fs.reason.as_ref().is_some_and(|reason| reason.contains("answer"))
    });
    goes_on(&daemon, &other, "goes");
    drop(hung);
    daemon.wait_for(&hangs, "it is trimmed", |fs| is_idle(fs) && fs.trimmed > Bytes::MIB);
    assert_eq!(daemon.status_of(&hangs).unwrap().policy, "smart", "{}", daemon.log());
}

#[test]
fn drive_hung_during_a_free_space_query_does_not_delay_others() {
    if !possible() {
        return;
    }
    let (hangs, other) = one_that_hangs_and_another("ext4");
    let daemon = Daemon::start(&eager(&other));
    let hung = managed_while_it_hangs(&daemon, &hangs, weekly(&hangs), &other);
    let wait_for_failures = |failures| {
        daemon.wait_for(&hangs, "it doesn't answer", |fs| {
            is_failing(fs) && fs.refusals.get("no_answer").is_some_and(|count| *count >= failures)
        });
        fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().count()
    };
    let threads = wait_for_failures(1);
    goes_on(&daemon, &other, "goes");
    assert_eq!(wait_for_failures(3), threads, "it is asked once");
    drop(hung);
    daemon.wait_for(&hangs, "it is trimmed", |fs| is_idle(fs) && fs.trimmed > Bytes::MIB);
}

#[test]
fn free_space_that_is_not_read_in_time_is_read_later() {
    if !possible() {
        return;
    }
    let (hangs, other) = one_that_hangs_and_another("ext4");
    let mut daemon = Daemon::start(&eager(&other));
    let hung = managed_while_it_hangs(&daemon, &hangs, eager(&hangs), &other);
    daemon.wait_for(&hangs, "its free space is missing", |fs| {
        fs.state == State::Waiting
            && fs.reason.as_ref().is_some_and(|reason| reason.contains("not been read"))
    });
    goes_on(&daemon, &other, "goes");
    drop(hung);
    daemon.wait_for(&hangs, "it is trimmed", |fs| is_idle(fs) && fs.trimmed > Bytes::MIB);
    assert_eq!(daemon.status_of(&hangs).unwrap().policy, "smart");
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    assert_eq!(daemon.logged("event=state_not_saved"), 0, "{}", daemon.log());
}

#[test]
fn frees_during_the_end_are_trimmed_after_a_restart() {
    if !possible() {
        return;
    }
    let drive = || Volume::on_drive("ext4", Profile::named("nvme-tlc").unwrap(), Clock::Model);
    let mut both = [drive(), drive()];
    both.sort_by(|one, other| one.target.cmp(&other.target));
    let [hangs, volume] = both;
    // A clean file system syncs without its drive, so that only the seal blocks.
    hangs.remount("remount,barrier=0,noinit_itable");
    volume.write("goes", FILE);
    let config = eager(&hangs) + &eager(&volume);
    let mut daemon = Daemon::start(&config);
    for place in [&hangs, &volume] {
        daemon.wait_for(place, "all that was free is trimmed", is_idle);
    }
    hangs.sync();
    let before = volume.counters().discard_bytes;
    let hung = Hung::new(&hangs);
    daemon.signal(Signal::TERM);
    std::thread::sleep(Duration::from_secs(1));
    fs::remove_file(volume.target.join("goes")).unwrap();
    wait_until("it ends", || daemon.logged("event=stopped") == 1);
    assert_eq!(daemon.logged("event=state_not_saved"), 1, "{}", daemon.log());
    drop(hung);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
    let _daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
    wait_until("it is trimmed", || volume.counters().discard_bytes >= before + FILE);
}

#[test]
fn frozen_file_system_does_not_delay_others() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let (frozen, other) = (Volume::mounted(fstype), Volume::mounted("ext4"));
        frozen.write("stays", FILE);
        frozen.write("goes", FILE);
        other.write("goes", FILE);
        let mut daemon = Daemon::start(&(eager(&frozen) + &eager(&other)));
        for place in [&frozen, &other] {
            daemon.wait_for(place, "all that was free is trimmed", is_idle);
        }
        frozen.delete("goes");
        let ice = Frozen::new(&frozen);
        goes_on(&daemon, &other, "goes");
        daemon.signal(Signal::HUP);
        wait_until("the configuration is read", || daemon.logged("event=configuration_loaded") == 1);
        let is_waiting =
            |fs: &FileSystemStatus| fs.reason.as_ref().is_some_and(|reason| reason.contains("frozen"));
        daemon.wait_for(&frozen, "it waits", is_waiting);
        drop(ice);
        daemon.wait_for(&frozen, "it is trimmed after that", is_idle);
        goes_on(&daemon, &frozen, "stays");
        let ice = Frozen::new(&frozen);
        assert_eq!(daemon.stop(), Some(0));
        drop(ice);
        assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
    }
}

#[test]
fn pending_extents_survive_a_read_only_remount() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("xfs");
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon.wait_for_first_trims(&volume);
    let freed = volume.fray();
    daemon.wait_for(&volume, "small pieces are pending", |fs| fs.pending >= freed);
    volume.remount("remount,ro");
    daemon.wait_for(&volume, "it is left alone", |fs| fs.state == State::Off && fs.pending == Bytes::ZERO);
    volume.remount("remount,rw");
    daemon.wait_for(&volume, "they are pending again", |fs| fs.state != State::Off && fs.pending >= freed);
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
}

#[test]
fn unmount_during_a_trim_succeeds() {
    if !possible() {
        return;
    }
    // Its discards take 10 ms each.
    let profile = Profile::named("micron-m500it").unwrap();
    let volume = Volume::on_drive("ext4", profile, Clock::Real { speed: 1.0 });
    volume.fray_into(1000);
    let daemon = Daemon::start(&eager(&volume));
    for _ in 0..3 {
        let before = volume.counters().discards;
        daemon.wait_for(&volume, "it is being trimmed", |_| volume.counters().discards > before + 2);
        volume.unmount();
        wait_until("it is gone", || daemon.status_of(&volume).is_none());
        volume.mount();
        wait_until("it is managed", || daemon.status_of(&volume).is_some());
    }
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
}

#[test]
fn lazily_unmounted_file_system_is_examined_anew() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    volume.write("open", FILE);
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    let is_trimmed = |fs: &FileSystemStatus| fs.trimmed > FILE && fs.pending < Bytes::MIB;
    daemon.wait_for(&volume, "all that was free is trimmed", is_trimmed);
    volume.unmount();
    wait_until("its state is saved", || daemon.logged("event=state_saved") == 1);
    volume.mount();
    daemon.wait_for(&volume, "it is known", is_trimmed);
    let open = |name: &str| File::open(volume.target.join(name)).unwrap();
    let (root, file) = (open("."), open("open"));
    fs::remove_file(volume.target.join("open")).unwrap();
    mount::unmount_lazily(&volume.target).unwrap();
    wait_until("it isn't seen any more", || daemon.status_of(&volume).is_none());
    let before = volume.counters().discard_bytes;
    drop(file);
    rustix::fs::syncfs(&root).unwrap();
    // The same file system, which had not ended, is seen again.
    volume.mount();
    drop(root);
    wait_until("the file is trimmed", || volume.counters().discard_bytes >= before + FILE);
    assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
}
