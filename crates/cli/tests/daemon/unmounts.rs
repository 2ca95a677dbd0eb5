//! Unmounts, freezes and remounts beside the service: what it keeps them from, and for how long.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use trimtab_core::Bytes;
use trimtab_core::document::status::State;
use trimtab_core::profile::Profile;
use trimtab_drive::Clock;
use trimtab_linux::mount;

use crate::broken::Frozen;
use crate::support::{
    self, Daemon, TRIMTAB, Volume, eager, patient, possible, refused, run, smart, wait_until,
};

/// A file system on a drive whose discards take 10 ms each, with much to discard.
fn slow(fstype: &str) -> Volume {
    let profile = Profile::named("micron-m500it").unwrap();
    let volume = Volume::on_drive(fstype, profile, Clock::Real { speed: 1.0 });
    volume.fray_into(1000);
    volume
}

/// Whether nobody has the device: no file system is mounted from it, and none lives on.
fn is_unused(device: &Path) -> bool {
    let exclusive = OFlags::EXCL.bits() as i32;
    OpenOptions::new().read(true).custom_flags(exclusive).open(device).is_ok()
}

fn is_trimming(daemon: &Daemon) -> bool {
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", daemon.pid())).unwrap();
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let others = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    !children.is_empty() || others.into_iter().any(|children| !children.is_empty())
}

#[test]
fn unmounted_file_system_is_complete_on_its_device() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let volume = slow(fstype);
        let daemon = Daemon::start(&eager(&volume));
        let mut met = 0;
        for round in 0..8 {
            let deadline = Instant::now() + Duration::from_secs(3);
            while !is_trimming(&daemon) && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
            met += u32::from(is_trimming(&daemon));
            let name = format!("new-{round}");
            fs::write(volume.target.join(&name), vec![round; 1 << 20]).unwrap();
            let begun = Instant::now();
            while mount::unmount(&volume.target).is_err() {
                assert!(begun.elapsed() < Duration::from_secs(5), "{fstype}: {}", daemon.log());
                thread::sleep(Duration::from_millis(1));
            }
            assert!(is_unused(&volume.device), "{fstype}: it lives on after it was unmounted");
            mount::mount(&volume.device, &volume.target, fstype, "ro").unwrap();
            assert_eq!(fs::read(volume.target.join(&name)).unwrap(), vec![round; 1 << 20]);
            volume.unmount();
            volume.mount();
            volume.fray_into(100);
        }
        assert!(met >= 4, "{fstype}: only {met} rounds met a trim");
        assert_eq!(daemon.logged("level=warning") + daemon.logged("level=error"), 0, "{}", daemon.log());
    }
}

#[test]
fn lazy_unmount_ends_a_trim() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "btrfs"] {
        let volume = slow(fstype);
        let daemon = Daemon::start(&eager(&volume));
        wait_until("it is being trimmed", || is_trimming(&daemon));
        mount::unmount_lazily(&volume.target).unwrap();
        let begun = Instant::now();
        wait_until("it ends", || is_unused(&volume.device));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

#[test]
fn new_mount_is_left_alone() {
    if !possible() {
        return;
    }
    let volume = Volume::new("ext4");
    let daemon = Daemon::start(&(smart(&volume) + "min_mount_age = \"1h\"\n"));
    for round in 0..100 {
        volume.mount();
        // A program that another test starts would hold a file that this process has open, for a moment.
        run(Command::new("sh").args(["-c", "echo text >file"]).current_dir(&volume.target));
        thread::sleep(Duration::from_millis(round % 10 * 5));
        mount::unmount(&volume.target).unwrap();
        assert!(is_unused(&volume.device));
    }
    volume.mount();
    wait_until("it is seen", || daemon.status_of(&volume).is_some());
    let status = daemon.status_of(&volume).unwrap();
    assert_eq!((status.state, status.unmanaged.as_deref()), (State::Off, Some("new")));
    assert!(status.reason.unwrap().contains("min_mount_age"));
    // The service learns of what is freed meanwhile, but trims nothing.
    let before = volume.counters().discards;
    volume.fray();
    thread::sleep(Duration::from_millis(500));
    assert_eq!(volume.counters().discards, before);
    daemon.configure(&eager(&volume));
    daemon.signal(rustix::process::Signal::HUP);
    daemon.wait_for(&volume, "it is managed", |fs| fs.state != State::Off);
}

#[test]
fn pending_extents_of_a_new_mount_survive() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = tempfile::TempDir::new().unwrap();
        let daemon = Daemon::start(&(patient(&volume, dir.path()) + "min_mount_age = \"2s\"\n"));
        daemon.wait_for_first_trims(&volume);
        let freed = volume.fray();
        daemon.wait_for(&volume, "small pieces are pending", |fs| {
            fs.pending >= freed && fs.pending < Bytes::MIB
        });
        volume.unmount();
        wait_until("its state is saved", || daemon.logged("event=state_saved") == 1);
        volume.mount();
        // It is in use before it is managed.
        volume.fray_into(8);
        // Its files may lie where others were deleted.
        daemon.wait_for(&volume, "what is left is pending", |fs| {
            fs.trimmed > Bytes::MIB && fs.pending_extents >= 24 && fs.pending < Bytes::MIB
        });
    }
}

fn trimtab(daemon: &Daemon, arguments: &[&str]) -> Output {
    Command::new(TRIMTAB).args(arguments).arg("--run").arg(daemon.run()).output().unwrap()
}

#[test]
fn pause_ends_trims_until_it_is_over() {
    if !possible() {
        return;
    }
    let volume = slow("ext4");
    let target = volume.target.to_str().unwrap();
    let daemon = Daemon::start(&eager(&volume));
    let directory = fs::read_link(format!("/proc/{}/cwd", daemon.pid())).unwrap();
    assert_eq!(directory, Path::new("/"), "it keeps no directory that it was started in");
    wait_until("it is being trimmed", || is_trimming(&daemon));
    for elsewhere in [&format!("{target}/no-directory"), "/proc/self", "/dev/null"] {
        let reason = refused(&trimtab(&daemon, &["trim", "--cancel", elsewhere]));
        assert!(reason.contains("is not a mount point"), "{elsewhere}: {reason}");
        assert!(!trimtab(&daemon, &["resume", elsewhere]).status.success(), "{elsewhere}");
    }
    let with_slash = &format!("{target}/");
    assert!(trimtab(&daemon, &["trim", "--cancel", with_slash]).status.success());
    assert!(trimtab(&daemon, &["resume", with_slash]).status.success());
    let device = volume.device.to_str().unwrap();
    assert!(trimtab(&daemon, &["pause", device]).status.success());
    assert!(trimtab(&daemon, &["resume", target]).status.success(), "a device stands for its mount point");
    wait_until("it is being trimmed again", || is_trimming(&daemon));
    let paused = trimtab(&daemon, &["pause", target, "--for", "1h"]);
    assert!(paused.status.success(), "{}", String::from_utf8_lossy(&paused.stderr));
    let before = volume.counters().discards;
    mount::unmount(&volume.target).unwrap();
    assert!(is_unused(&volume.device));
    volume.mount();
    daemon.wait_for(&volume, "it is managed", |fs| fs.state == State::Waiting);
    let reason = daemon.status_of(&volume).unwrap().reason.unwrap();
    assert!(reason.starts_with("paused for another "), "{reason}");
    assert!(reason.ends_with(&format!("; trimtab resume {target} ends that")), "{reason}");
    volume.fray();
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(volume.counters().discards, before, "nothing is trimmed in a pause");
    let reason = refused(&trimtab(&daemon, &["trim", target]));
    assert!(reason.contains(&format!("; trimtab resume {target} ends that")), "{reason}");
    assert!(trimtab(&daemon, &["trim", "--cancel", target]).status.success());
    assert!(refused(&trimtab(&daemon, &["trim", target])).contains("another 59m"), "the longer pause holds");
    assert!(
        refused(&trimtab(&daemon, &["resume"])).contains(&format!("to end another: trimtab resume {target}"))
    );
    assert!(trimtab(&daemon, &["resume", target]).status.success());
    wait_until("it is trimmed again", || volume.counters().discards > before);
    assert!(refused(&trimtab(&daemon, &["resume", target])).contains("no pause"));
    assert!(trimtab(&daemon, &["pause", "--for", "1s"]).status.success());
    let is_paused =
        || daemon.status_of(&volume).unwrap().reason.is_some_and(|reason| reason.contains("paused"));
    wait_until("a pause is over by itself", || !is_paused());
}

#[test]
fn cancelled_trim_command_ends_at_once() {
    if !possible() {
        return;
    }
    let volume = slow("ext4");
    let target = volume.target.to_str().unwrap();
    let run = tempfile::TempDir::new().unwrap();
    let fstrim = run.path().join("fstrim");
    symlink(TRIMTAB, &fstrim).unwrap();
    let with_run = |command: &mut Command| {
        command.env("RUNTIME_DIRECTORY", run.path());
        command.spawn().unwrap()
    };
    // Any mount point stands for the file system.
    let bind = volume.target.join("bind");
    fs::create_dir(&bind).unwrap();
    for is_fstrim in [false, true] {
        let before = volume.counters().discards;
        let mut child = match is_fstrim {
            false => with_run(Command::new(TRIMTAB).args(["trim", target, "--run"]).arg(run.path())),
            true => with_run(Command::new(&fstrim).arg(target)),
        };
        wait_until("it trims", || volume.counters().discards > before);
        support::run(Command::new("mount").arg("--bind").args([&volume.target, &bind]));
        let mut command = Command::new(TRIMTAB);
        command.args(["trim", "--cancel"]).arg(&bind);
        // By its own name, it goes by /run/trimtab.
        if !is_fstrim {
            command.arg("--run").arg(run.path());
        }
        let cancelled = command.output().unwrap();
        assert!(cancelled.status.success(), "{}", String::from_utf8_lossy(&cancelled.stderr));
        let said = String::from_utf8_lossy(&cancelled.stdout);
        let (_, rest) = said.split_once("none starts for ").unwrap_or_else(|| panic!("{said}"));
        let (left, _) = rest.split_once("; trimtab resume ").unwrap_or_else(|| panic!("{said}"));
        // A minute, less what it took to end the trim on a busy machine.
        assert!((50..=60).contains(&humantime::parse_duration(left).unwrap().as_secs()), "{said}");
        mount::unmount(&bind).unwrap();
        mount::unmount(&volume.target).unwrap();
        let status = child.wait().unwrap();
        match is_fstrim {
            false => assert_eq!(status.code(), Some(143), "128 and SIGTERM"),
            true => assert_eq!(status.signal(), Some(15), "SIGTERM"),
        }
        volume.mount();
    }
    let pause = |verb: &str| Command::new(TRIMTAB).args([verb, target]).status().unwrap().success();
    _ = pause("resume");
    assert!(pause("pause"));
    let reason = refused(&Command::new(&fstrim).arg(target).output().unwrap());
    assert!(pause("resume"));
    assert!(reason.starts_with(&format!("fstrim: {target}: trims are paused")), "{reason}");
}

#[test]
fn frozen_and_read_only_file_systems_get_no_discards() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs", "btrfs"] {
        let volume = slow(fstype);
        let daemon = Daemon::start(&eager(&volume));
        wait_until("it is being trimmed", || is_trimming(&daemon));
        let ice = Frozen::new(&volume);
        let before = after_last_discard(&volume);
        thread::sleep(Duration::from_secs(2));
        assert_eq!(volume.counters().discards, before, "{fstype}: frozen");
        if fstype == "ext4" {
            daemon.wait_for(&volume, "a call waits for the thaw", |fs| {
                fs.reason.as_ref().is_some_and(|reason| reason.starts_with("frozen"))
            });
            // That call keeps it from being unmounted.
            let target = volume.target.display().to_string();
            let reason = refused(&trimtab(&daemon, &["pause", &target, "--for", "1s"]));
            assert!(reason.contains("the pause of 1s was over before"), "{reason}");
        }
        drop(ice);
        wait_until("it is trimmed after that", || volume.counters().discards > before);
        let read_only = ReadOnly::new(&volume.device);
        let before = after_last_discard(&volume);
        thread::sleep(Duration::from_secs(1));
        assert_eq!(volume.counters().discards, before, "{fstype}: read-only device");
        drop(read_only);
    }
}

/// A device to which nobody can write until this is dropped.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn new(device: &'a Path) -> Self {
        run(Command::new("blockdev").arg("--setro").arg(device));
        Self(device)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        _ = Command::new("blockdev").arg("--setrw").arg(self.0).status();
    }
}

/// Waits until the call of FITRIM that was under way has ended; returns how many discards there were.
fn after_last_discard(volume: &Volume) -> u64 {
    let mut before = volume.counters().discards;
    wait_until("the last call has ended", || {
        thread::sleep(Duration::from_secs(1));
        let earlier = std::mem::replace(&mut before, volume.counters().discards);
        earlier == before
    });
    before
}

#[test]
fn frozen_directory_of_states_hangs_nothing() {
    if !possible() {
        return;
    }
    let (states, other) = (Volume::mounted("ext4"), Volume::mounted("ext4"));
    let dir = tempfile::TempDir::new().unwrap();
    let home = tempfile::TempDir::new().unwrap();
    std::os::unix::fs::symlink(&states.target, home.path().join("state")).unwrap();
    let mut daemon = Daemon::start_in(home, &patient(&other, dir.path()), |_| {});
    daemon.wait_for_first_trims(&other);
    let ice = Frozen::new(&states);
    other.unmount();
    let deadline = Instant::now() + Duration::from_secs(30);
    while daemon.logged("event=state_not_saved") == 0 {
        assert!(Instant::now() < deadline, "{}", daemon.log());
        thread::sleep(Duration::from_millis(20));
    }
    other.mount();
    wait_until("it goes on", || daemon.status_of(&other).is_some());
    let begun = Instant::now();
    assert_eq!(daemon.stop(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(ice);
}

#[test]
fn writers_on_a_nearly_full_btrfs_get_their_space() {
    if !possible() {
        return;
    }
    let profile = Profile::named("ocz-vertex-le").unwrap();
    let volume = Volume::on_drive("btrfs", profile, Clock::Real { speed: 1.0 });
    let daemon = Daemon::start(&eager(&volume));
    // All but some 30 MiB, which are in one chunk.
    let mut filled = 0;
    while fs::write(volume.target.join(format!("fill-{filled}")), vec![filled as u8; 4 << 20]).is_ok() {
        filled += 1;
    }
    (0..7).for_each(|number| fs::remove_file(volume.target.join(format!("fill-{number}"))).unwrap());
    volume.sync();
    for round in 0..60 {
        let path = volume.target.join("written");
        let file = File::create(&path).unwrap();
        rustix::io::write(&file, &vec![round; 8 << 20]).unwrap();
        file.sync_all().unwrap_or_else(|error| panic!("round {round}: {error}; {}", daemon.log()));
        fs::remove_file(&path).unwrap();
        volume.sync();
        thread::sleep(Duration::from_millis(50));
    }
}
