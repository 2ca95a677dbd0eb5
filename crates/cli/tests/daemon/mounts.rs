//! File systems are mounted and unmounted while the service runs.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::Signal;
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_keeper::service::control::Control;
use trimtab_linux::mount;

use crate::support::{Daemon, TRIMTAB, Volume, eager, patient, possible, run, smart, wait_until};

#[test]
fn file_system_is_managed_while_mounted() {
    if !possible() {
        return;
    }
    let volume = Volume::new("ext4");
    let daemon = Daemon::start(&smart(&volume));
    assert_eq!(daemon.status_of(&volume), None);
    volume.mount();
    let state = || daemon.status_of(&volume).map(|fs| fs.state);
    wait_until("it is managed", || state().is_some_and(|state| state != State::Off));
    volume.remount("remount,ro");
    wait_until("it is left alone", || state() == Some(State::Off));
    let reason = daemon.status_of(&volume).unwrap().reason.unwrap();
    assert_eq!(reason, "it is mounted read-only");
    volume.remount("remount,rw");
    wait_until("it is managed again", || state().is_some_and(|state| state != State::Off));
    volume.unmount();
    wait_until("it is gone", || state().is_none());
}

#[test]
fn only_what_is_trimmed_is_opened() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let volume = Volume::mounted(fstype);
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, &volume.target, WatchFlags::OPEN).unwrap();
        let is_opened = || inotify::Reader::new(&watch, &mut [MaybeUninit::uninit(); 512]).next().is_ok();
        let daemon = Daemon::start("");
        let state = || daemon.status_of(&volume).map(|fs| fs.state);
        assert_eq!(state(), Some(State::Off), "{fstype}");
        volume.remount("remount,ro");
        volume.remount("remount,rw");
        daemon.signal(Signal::HUP);
        wait_until("the configuration is read", || daemon.logged("event=configuration_loaded") == 1);
        assert!(!is_opened(), "{fstype}");
        daemon.configure(&eager(&volume));
        daemon.signal(Signal::HUP);
        wait_until("it is managed", || state().is_some_and(|state| state != State::Off));
        assert!(is_opened(), "{fstype}");
    }
}

#[test]
fn doctor_sees_the_running_service() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let mut daemon = Daemon::start(&smart(&volume));
    let managed = || daemon.status_of(&volume).is_some_and(|fs| fs.state != State::Off);
    wait_until("it is managed", managed);
    let run = daemon.run();
    let doctor = || {
        let mut command = Command::new(TRIMTAB);
        let output = command.args(["doctor", "--json", "--run"]).arg(&run).arg(&volume.target).output();
        let document: DoctorDocument = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let target = &document.targets[0];
        let ids: Vec<_> = target.findings.iter().map(|finding| finding.id.clone()).collect();
        (target.layers[0].reason.clone(), ids)
    };
    let (reason, ids) = doctor();
    assert!(reason.contains("trimtab daemon trims it"), "{reason}");
    let nobody = ["nobody-trims", "timer-not-in-container", "not-in-fstab"];
    assert!(ids.iter().all(|id| !nobody.contains(&id.as_str())), "{ids:?}");
    daemon.stop();
    let (reason, ids) = doctor();
    assert!(!reason.contains("trimtab daemon"), "{reason}");
    assert!(ids.iter().any(|id| nobody.contains(&id.as_str())), "{ids:?}");
}

#[test]
fn configured_mount_points_not_in_use_are_logged() {
    if !possible() {
        return;
    }
    let volume = Volume::new("ext4");
    let daemon = Daemon::start(&smart(&volume));
    let mount = format!("mount={}", volume.target.display());
    let is_said = |line: &&str| line.contains("event=not_mounted ") && line.ends_with(&mount);
    let said = || daemon.log().lines().filter(is_said).count();
    assert_eq!(said(), 1, "{}", daemon.log());
    let reload = || Control::connect(&daemon.run()).unwrap().reload().unwrap();
    reload();
    assert_eq!(said(), 2);
    volume.mount();
    reload();
    assert_eq!(said(), 2);
}

#[test]
fn repeated_mounts_leave_nothing_behind() {
    if !possible() {
        return;
    }
    let volume = Volume::new("ext4");
    let daemon = Daemon::start(&smart(&volume));
    let has = || {
        let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", daemon.pid())).unwrap().count();
        (count("fd"), count("task"), daemon.instances())
    };
    let cycle = || {
        volume.mount();
        wait_until("it is managed", || daemon.status_of(&volume).is_some());
        volume.unmount();
        wait_until("it is gone", || daemon.status_of(&volume).is_none());
    };
    let saved = || daemon.logged("event=state_saved") + daemon.logged("event=state_not_saved");
    cycle();
    wait_until("its state is saved", || saved() == 1);
    // The last status connection may take a moment to close.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let before = has();
    // One more of each where the kernel has a function tracer, which shows that somebody unmounts.
    assert!((1..=2).contains(&before.1) && before.2 == before.1 + 1, "{before:?}");
    (0..20).for_each(|_| cycle());
    wait_until("nothing is left of them", || has() == before);
}

#[test]
fn file_system_without_discard_support_is_not_managed() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let daemon = Daemon::start(&eager(&volume));
    wait_until("it is managed", || daemon.status_of(&volume).unwrap().state == State::Idle);
    volume.write("file", Bytes(8 << 20));
    volume.block().set_discard_max(Bytes::ZERO).unwrap();
    volume.delete("file");
    daemon.wait_for(&volume, "its storage has been examined again", |fs| {
        let reason = fs.reason.as_deref().unwrap_or_default();
        fs.state == State::Off && reason.starts_with("discards are blocked: ") && reason.contains("limit")
    });
    assert_eq!(daemon.status_of(&volume).unwrap().refusals.get("unsupported"), Some(&1));
    let logged = |event: &str| {
        let target = volume.target.display().to_string();
        daemon.log().lines().filter(|line| line.contains(event) && line.contains(&target)).count()
    };
    assert_eq!(logged("event=no_longer_managed "), 1, "{}", daemon.log());
    assert_eq!(logged("event=not_managed "), 1, "{}", daemon.log());
}

#[test]
fn valid_configuration_applies_at_once_and_invalid_one_is_rejected() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("xfs");
    let daemon = Daemon::start(&smart(&volume));
    let policy = || daemon.status_of(&volume).unwrap().policy;
    assert_eq!(policy(), "smart");
    daemon.configure("");
    daemon.signal(Signal::HUP);
    wait_until("it is off", || policy() == "none");
    assert_eq!(daemon.status_of(&volume).unwrap().state, State::Off);
    daemon.configure("[metrics]\nport = 1\n");
    daemon.signal(Signal::HUP);
    wait_until("it says so", || daemon.logged("level=error") > 0);
    assert_eq!(daemon.logged("event=configuration_rejected"), 1, "{}", daemon.log());
    assert_eq!(daemon.logged("metrics.port"), 1, "{}", daemon.log());
    assert_eq!(policy(), "none");
    daemon.configure(&format!("{}policy = \"batched:1d\"\n", volume.table()));
    Control::connect(&daemon.run()).unwrap().reload().unwrap();
    assert_eq!(policy(), "batched:1d");
}

/// Whether little more is pending than what was `freed`, and the rest is trimmed.
fn small(freed: Bytes) -> impl Fn(&FileSystemStatus) -> bool {
    move |fs| fs.pending >= freed && fs.pending < Bytes::MIB && fs.trimmed > Bytes::MIB
}

#[test]
fn pending_extents_survive_restart_and_remount() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = TempDir::new().unwrap();
        let config = patient(&volume, dir.path());
        let mut daemon = Daemon::start(&config);
        daemon.wait_for_first_trims(&volume);
        let freed = volume.fray();
        daemon.wait_for(&volume, "small pieces are pending", small(freed));
        let figures = |fs: &FileSystemStatus| (fs.pending, fs.trimmed, fs.last_trim.clone());
        let mut before = daemon.status_of(&volume).unwrap();
        wait_until("it has nothing more to do", || {
            std::thread::sleep(std::time::Duration::from_secs(2));
            let earlier = std::mem::replace(&mut before, daemon.status_of(&volume).unwrap());
            figures(&earlier) == figures(&before)
        });
        assert_eq!(daemon.stop(), Some(0));
        let home = std::mem::replace(&mut daemon.dir, TempDir::new().unwrap());
        let daemon = Daemon::start_in(home, &config, |_| {});
        daemon.wait_for(&volume, "it continues where it ended", |fs| figures(fs) == figures(&before));
        let age = daemon.status_of(&volume).unwrap().oldest_s;
        assert!(age.is_some() && age >= before.oldest_s, "{age:?} {:?}", before.oldest_s);
        daemon.configure("");
        daemon.signal(Signal::HUP);
        daemon.wait_for(&volume, "it is left alone", |fs| fs.state == State::Off);
        daemon.configure(&config);
        daemon.signal(Signal::HUP);
        daemon.wait_for(&volume, "it is managed again", |fs| figures(fs) == figures(&before));
        let saved = daemon.logged("event=state_saved");
        volume.unmount();
        wait_until("its state is saved", || daemon.logged("event=state_saved") > saved);
        volume.mount();
        // A mount writes, and the blocks that it frees are pending too.
        daemon.wait_for(&volume, "it is managed after the mount", |fs| {
            fs.trimmed == before.trimmed && fs.pending >= before.pending && fs.pending < Bytes::MIB
        });
    }
}

/// Where something is mounted that is mounted elsewhere, too.
struct Bound(TempDir);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = mount::unmount_lazily(self.0.path());
    }
}

#[test]
fn pending_extents_survive_a_change_of_mount_point() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let (dir, bound) = (TempDir::new().unwrap(), Bound(TempDir::new().unwrap()));
        let place = bound.0.path();
        let both = |rules: String| {
            rules.clone() + &rules.replace(volume.target.to_str().unwrap(), place.to_str().unwrap())
        };
        let daemon = Daemon::start(&both(patient(&volume, dir.path())));
        daemon.wait_for_first_trims(&volume);
        volume.write("goes", Bytes(32 << 20));
        let freed = volume.fray();
        let is_small = |fs: &FileSystemStatus| fs.pending >= freed && fs.pending < Bytes::MIB;
        let is_old = |fs: &FileSystemStatus| is_small(fs) && fs.oldest_s.is_some_and(|age| age >= 3.0);
        daemon.wait_for(&volume, "small pieces have been pending for a while", is_old);
        let bind = || run(Command::new("mount").arg("--bind").args([&volume.target, place]));
        let of_bound = || daemon.status().file_systems.into_iter().find(|fs| Path::new(&fs.mount) == place);
        // It is spoken of by its shortest mount point.
        bind();
        wait_until("it is managed by the other mount", || of_bound().is_some());
        assert!(is_old(&of_bound().unwrap()));
        run(Command::new("umount").arg(place));
        wait_until("it is managed by its own", || daemon.status_of(&volume).is_some());
        assert!(is_old(&daemon.status_of(&volume).unwrap()));
        assert_eq!(daemon.logged("event=managed"), 1, "{}", daemon.log());

        daemon.configure(&both(eager(&volume)));
        daemon.signal(Signal::HUP);
        daemon.wait_for(&volume, "all is trimmed", |fs| fs.pending == Bytes::ZERO);
        let before = volume.counters().discard_bytes;
        bind();
        wait_until("it is managed by the other mount", || of_bound().is_some());
        volume.unmount();
        fs::remove_file(place.join("goes")).unwrap();
        trimtab_linux::trim::sync(place).unwrap();
        wait_until("that is trimmed", || volume.counters().discard_bytes >= before + Bytes(32 << 20));
        assert_eq!(daemon.logged("event=managed"), 2, "{}", daemon.log());
    }
}

#[test]
fn pending_extents_survive_a_reboot() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = TempDir::new().unwrap();
        let config = patient(&volume, dir.path());
        let mut daemon = Daemon::start(&config);
        daemon.wait_for_first_trims(&volume);
        let freed = volume.fray();
        daemon.wait_for(&volume, "small pieces are pending", small(freed));
        // A service manager that ends has all unmounted, and tells what is left to end at once.
        daemon.signal(Signal::STOP);
        volume.unmount();
        daemon.signal(Signal::TERM);
        daemon.signal(Signal::CONT);
        assert_eq!(daemon.child.wait().unwrap().code(), Some(0));
        // The next one checks and mounts before it starts the service.
        if fstype == "ext4" {
            run(Command::new("e2fsck").arg("-p").arg(&volume.device));
        }
        volume.mount();
        let daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
        daemon.wait_for(&volume, "they still are", small(freed));
        for event in ["event=state_not_restored", "event=free_events_lost"] {
            assert_eq!(daemon.logged(event), 0, "{}", daemon.log());
        }
    }
}
