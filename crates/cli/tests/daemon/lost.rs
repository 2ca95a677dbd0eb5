//! The state of the service, and its reaction if that is lost or doubtful.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::FallocateFlags;
use rustix::process::Signal;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_keeper::state::Store;
use trimtab_linux::generation::seal_mounted;
use trimtab_linux::tracefs::FreeCoverage;
use trimtab_linux::{PROCFS, SYSFS, mount};

use crate::support::{Daemon, TRIMTAB, Volume, eager, patient, possible, run, wait_until, weekly};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Makes more holes in a file of that volume than the kernel has room for events of one processor, while the
/// service doesn't read them; says how many. They are of 4 KiB, and an event has some 60 bytes.
fn lose(daemon: &Daemon, volume: &Volume) -> u64 {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let holes = 2 * (512 << 10) / 40;
    let file = File::create(volume.target.join("holes")).unwrap();
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file.as_fd(), FallocateFlags::empty(), 0, holes * 8192).unwrap();
    volume.sync();
    daemon.signal(Signal::STOP);
    (0..holes).for_each(|hole| rustix::fs::fallocate(file.as_fd(), flags, hole * 8192, 4096).unwrap());
    holes
}

/// Returns a service that has trimmed all free space, and then lost events: it was stopped while more holes
/// were punched than the kernel's buffers hold.
fn lost(volume: &Volume, dir: &Path) -> (Daemon, u64) {
    let daemon = Daemon::start(&patient(volume, dir));
    let is_trimmed = |fs: &FileSystemStatus| fs.trimmed > Bytes::MIB && fs.pending < Bytes::MIB;
    daemon.wait_for(volume, "all that was free is trimmed", is_trimmed);
    let holes = lose(&daemon, volume);
    (daemon, holes)
}

#[test]
fn lost_events_make_all_free_space_pending() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = tempfile::TempDir::new().unwrap();
        let (daemon, holes) = lost(&volume, dir.path());
        daemon.signal(Signal::CONT);
        daemon.wait_for(&volume, "it is said", |_| daemon.logged("event=free_events_lost") > 0);
        assert!(daemon.status().lost_events > 0);
        // Those at the ends may have become part of something larger.
        daemon.wait_for(&volume, "all holes are pending", |fs| fs.pending >= Bytes((holes - 64) * 4096));
        // They become one, which is trimmed sooner.
        volume.delete("holes");
        daemon.configure(&eager(&volume));
        daemon.signal(Signal::HUP);
        daemon.wait_for(&volume, "all is trimmed", |fs| fs.state == State::Idle && fs.pending == Bytes::ZERO);
    }
}

#[test]
fn events_lost_before_an_unmount_invalidate_the_state() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = tempfile::TempDir::new().unwrap();
        let (daemon, holes) = lost(&volume, dir.path());
        volume.unmount();
        daemon.signal(Signal::CONT);
        wait_until("it is gone", || daemon.status_of(&volume).is_none());
        assert!(daemon.status().lost_events > 0);
        volume.mount();
        daemon.wait_for(&volume, "all holes are pending", |fs| fs.pending >= Bytes((holes - 64) * 4096));
    }
}

#[test]
fn batched_policy_remembers_the_last_trim() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let config = weekly(&volume);
    let mut daemon = Daemon::start(&config);
    daemon.wait_for(&volume, "it is trimmed", |fs| fs.state == State::Idle && fs.trimmed > Bytes::MIB);
    let before = volume.counters().discards;
    let stamp = |daemon: &Daemon| {
        let all =
            std::fs::read_dir(daemon.dir.path().join("state")).unwrap().map(|entry| entry.unwrap().path());
        let mut stamps = all.filter(|path| path.extension().is_some_and(|extension| extension == "trimmed"));
        File::options().write(true).open(stamps.next().expect("it is kept")).unwrap()
    };
    let now = SystemTime::now();
    // The clock may have been set back meanwhile.
    for last in [now, now - DAY, now + DAY] {
        stamp(&daemon).set_modified(last).unwrap();
        daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
        std::thread::sleep(Duration::from_millis(500));
        let fs = daemon.status_of(&volume).unwrap();
        assert_eq!((fs.state, fs.trimmed), (State::Idle, Bytes::ZERO));
        let said = humantime::parse_rfc3339(&fs.last_trim.unwrap()).unwrap();
        assert!(said <= last && last < said + Duration::from_secs(1));
    }
    assert_eq!(volume.counters().discards, before);
    for last in [now - YEAR, now + YEAR] {
        stamp(&daemon).set_modified(last).unwrap();
        daemon = Daemon::start_in(daemon.kill(), &config, |_| {});
        daemon.wait_for(&volume, "it is trimmed", |fs| fs.state == State::Idle && fs.last_trim.is_some());
        wait_until("it is kept", || {
            let kept = stamp(&daemon).metadata().unwrap().modified().unwrap();
            kept.duration_since(now).is_ok_and(|since| since < DAY)
        });
    }
}

#[test]
fn clock_set_back_delays_no_trim() {
    if !possible() {
        return;
    }
    let volume = Volume::mounted("ext4");
    let dir = tempfile::TempDir::new().unwrap();
    let mut daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon.wait_for_first_trims(&volume);
    let freed = volume.fray();
    daemon.wait_for(&volume, "small pieces are pending", |fs| {
        fs.pending >= freed && fs.pending < Bytes::MIB && fs.trimmed > Bytes::MIB
    });
    assert_eq!(daemon.stop(), Some(0));
    let mounts = mount::mounts(Path::new(PROCFS)).unwrap();
    let mounted = mounts.iter().find(|mount| mount.target == volume.target).unwrap();
    let seal = seal_mounted(Path::new(SYSFS), mounted).unwrap();
    let store = Store::at(&daemon.dir.path().join("state"));
    let mut state = store.load(&seal, FreeCoverage::FromNow).unwrap().expect("it was kept");
    assert!(!state.pending.is_empty());
    state.pending.iter_mut().for_each(|(_, since)| *since += YEAR);
    state.last_trim = state.last_trim.map(|at| at + YEAR);
    store.save(&state).unwrap();
    let daemon = Daemon::start_in(daemon.kill(), &eager(&volume), |_| {});
    daemon.wait_for(&volume, "they are trimmed", |fs| fs.state == State::Idle && fs.pending == Bytes::ZERO);
    let last = humantime::parse_rfc3339(&daemon.status_of(&volume).unwrap().last_trim.unwrap()).unwrap();
    assert!(last < SystemTime::now() + DAY, "it is that of now");
}

/// `trimtab trim` of that volume, which asks that service.
fn trim(daemon: &Daemon, volume: &Volume) -> Command {
    let mut command = Command::new(TRIMTAB);
    command.args(["trim", "--json", "-m", "0"]).arg("--run").arg(daemon.run()).arg(&volume.target);
    command.env("RUNTIME_DIRECTORY", daemon.dir.path());
    command
}

#[test]
fn trim_command_sends_the_pending_extents_of_the_service() {
    if !possible() {
        return;
    }
    for fstype in ["ext4", "xfs"] {
        let volume = Volume::mounted(fstype);
        let dir = tempfile::TempDir::new().unwrap();
        let daemon = Daemon::start(&patient(&volume, dir.path()));
        daemon.wait_for_first_trims(&volume);
        let freed = volume.fray();
        daemon.wait_for(&volume, "small pieces are pending", |fs| {
            fs.pending >= freed && fs.pending < Bytes::MIB && fs.trimmed > Bytes::MIB
        });
        let (fs, before) = (daemon.status_of(&volume).unwrap(), volume.counters().discard_bytes);
        // Times are told in seconds.
        std::thread::sleep(Duration::from_millis(1100));
        run(&mut trim(&daemon, &volume));
        let sent = volume.counters().discard_bytes - before;
        assert!((freed..Bytes(4 << 20)).contains(&sent), "{fstype}: {sent} of {}", fs.pending);
        daemon.wait_for(&volume, "nothing is pending", |after| {
            after.pending == Bytes::ZERO && after.state == State::Idle && after.last_trim > fs.last_trim
        });
    }
}

#[test]
fn interrupted_trim_command_gives_back_the_rest() {
    if !possible() {
        return;
    }
    // Its discards take 10 ms each.
    let profile = trimtab_core::profile::Profile::named("micron-m500it").unwrap();
    let volume = Volume::on_drive("ext4", profile, trimtab_drive::Clock::Real { speed: 1.0 });
    let freed = volume.fray_into(500);
    let dir = tempfile::TempDir::new().unwrap();
    let daemon = Daemon::start(&patient(&volume, dir.path()));
    daemon
        .wait_for(&volume, "small pieces are pending", |fs| fs.pending >= freed && fs.pending_extents > 400);
    let before = daemon.status_of(&volume).unwrap();
    let discards = volume.counters().discards;
    let mut command = trim(&daemon, &volume);
    let mut by_hand =
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    wait_until("it has begun", || volume.counters().discards > discards + 30);
    let pid = rustix::process::Pid::from_child(&by_hand);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
    assert_eq!(by_hand.wait().unwrap().code(), Some(130));
    let after = daemon.status_of(&volume).unwrap();
    assert!(after.pending > Bytes::ZERO && after.pending < before.pending, "{after:?}");
    assert!(after.oldest_s >= before.oldest_s, "it grows no younger");
}
