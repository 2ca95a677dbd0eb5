//! Measures the service: its memory, time for each free, wake-ups while nothing happens, and what a thousand
//! mounts leave behind. Needs root: `cargo bench -p trimtab-cli --bench daemon -- [CYCLES]`.

use std::fmt::Write;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::status::FileSystemStatus;
use trimtab_core::profile::builtin_text;
use trimtab_keeper::service::control;
use trimtab_linux::{loop_device, mount, trim};

const SIZE: Bytes = Bytes(2 << 30);
const DIRECTORIES: usize = 100;
const FILES: usize = 1000;
const ROUNDS: usize = 5;
const CYCLES: usize = 1000;
/// The rate of frees that the share of a core is given for.
const RATE: f64 = 50_000.0;
/// The kernel's ticks in which it counts a process's time (`USER_HZ`).
const TICK_S: f64 = 0.01;

struct Volume {
    fstype: &'static str,
    device: PathBuf,
    target: PathBuf,
    _dir: TempDir,
}

impl Volume {
    fn new(fstype: &'static str) -> Self {
        // In memory, so that the service is measured and not the disk.
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let (file, target) = (dir.path().join("backing"), dir.path().join("mounted"));
        File::create(&file).unwrap().set_len(SIZE.0).unwrap();
        fs::create_dir(&target).unwrap();
        let device = loop_device::attach(&file, Bytes(512)).unwrap();
        let inodes = (DIRECTORIES * (FILES + 2)).to_string();
        let options: &[&str] = if fstype == "ext4" { &["-N", &inodes] } else { &[] };
        let made = Command::new(format!("mkfs.{fstype}")).arg("-q").args(options).arg(&device).status();
        assert!(made.unwrap().success());
        let volume = Self { fstype, device, target, _dir: dir };
        volume.mount();
        volume
    }

    fn mount(&self) {
        mount::mount(&self.device, &self.target, self.fstype, "").unwrap();
    }

    fn fill(&self) {
        for directory in 0..DIRECTORIES {
            let directory = self.target.join(directory.to_string());
            fs::create_dir(&directory).unwrap();
            (0..FILES).for_each(|file| fs::write(directory.join(file.to_string()), [7; 4096]).unwrap());
        }
        trim::sync(&self.target).unwrap();
    }

    fn empty(&self) {
        for directory in 0..DIRECTORIES {
            fs::remove_dir_all(self.target.join(directory.to_string())).unwrap();
        }
        trim::sync(&self.target).unwrap();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = mount::unmount(&self.target);
        let _ = loop_device::detach(&self.device);
    }
}

struct Daemon {
    child: Child,
    dir: TempDir,
}

impl Daemon {
    /// Starts a service with the usual policy, or, unless `trims`, one that leaves all frees pending.
    fn start(volumes: &[Volume], trims: bool) -> Self {
        let dir = TempDir::new().unwrap();
        let config = dir.path().join("config.toml");
        let mut text = "[defaults]\npolicy = \"none\"\n".to_owned();
        for volume in volumes {
            write!(text, "[mount.{:?}]\npolicy = \"smart\"\n", volume.target).unwrap();
            if !trims {
                let profile = dir.path().join("profile.toml");
                let (small, large) =
                    ("value = \"512 B\", source = \"Samsung", "value = \"1 GiB\", source = \"Samsung");
                fs::write(&profile, builtin_text("nvme-tlc").unwrap().replace(small, large)).unwrap();
                writeln!(text, "profile = {profile:?}").unwrap();
            }
        }
        fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
        command.arg("daemon").arg("--config").arg(config).stderr(Stdio::null());
        command.arg("--run").arg(dir.path().join("run")).arg("--state").arg(dir.path().join("state"));
        let daemon = Self { child: command.spawn().unwrap(), dir };
        daemon.wait(|all| all.len() >= volumes.len());
        daemon
    }

    fn wait(&self, mut is_so: impl FnMut(&[FileSystemStatus]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !control::status(&self.dir.path().join("run")).is_ok_and(|status| is_so(&status.file_systems)) {
            assert!(Instant::now() < deadline, "the service doesn't get there");
            sleep(Duration::from_millis(50));
        }
    }

    /// Gives it time to read its events, and to trim extents that are worth it.
    fn settle(&self) {
        sleep(Duration::from_secs(8));
    }

    fn pending(&self) -> Vec<(String, Bytes, u64)> {
        let status = control::status(&self.dir.path().join("run")).unwrap();
        let all = status.file_systems.into_iter().filter(|fs| fs.policy != "none");
        all.map(|fs| (fs.fs, fs.pending, fs.pending_extents)).collect()
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }

    /// A figure of its status file.
    fn figure(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.proc("status")).unwrap();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The processor's time that it took, in seconds.
    fn time(&self) -> f64 {
        let text = fs::read_to_string(self.proc("stat")).unwrap();
        let fields: Vec<_> = text.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() * TICK_S).sum()
    }

    fn has(&self) -> [usize; 2] {
        ["fd", "task"].map(|what| fs::read_dir(self.proc(what)).unwrap().count())
    }

    fn memory(&self) -> String {
        let of = |name| Bytes(self.figure(name) << 10);
        format!("{} resident at most, {} now, of that {} its own", of("VmHWM"), of("VmRSS"), of("RssAnon"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn main() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: it needs root");
        return;
    }
    let cycles = std::env::args().find_map(|word| word.parse().ok()).unwrap_or(CYCLES);
    let volumes = ["ext4", "xfs"].map(Volume::new);
    let tracking = Daemon::start(&volumes, false);
    for volume in &volumes {
        share_of_core(&tracking, volume, "tracked");
    }
    println!("with all of that pending: {}; pending: {:?}", tracking.memory(), tracking.pending());
    drop(tracking);
    let daemon = Daemon::start(&volumes, true);
    daemon.settle();
    println!("with {} file systems: {}", volumes.len(), daemon.memory());
    let switches = || daemon.figure("voluntary_ctxt_switches");
    let before = switches();
    sleep(Duration::from_secs(10));
    println!("{} wake-ups in 10 s while nothing happens", switches() - before);
    for volume in &volumes {
        share_of_core(&daemon, volume, "tracked and trimmed");
    }
    println!("after them: {}; pending: {:?}", daemon.memory(), daemon.pending());
    let before = daemon.has();
    for cycle in 0..cycles {
        let volume = &volumes[cycle % volumes.len()];
        while mount::unmount(&volume.target).is_err() {
            sleep(Duration::from_millis(1));
        }
        volume.mount();
    }
    daemon.settle();
    sleep(Duration::from_secs(1));
    println!(
        "{cycles} mounts: files and threads {before:?} before, {:?} after; {}",
        daemon.has(),
        daemon.memory()
    );
}

/// Prints the share of a core that the service uses while deleted files are `done`.
fn share_of_core(daemon: &Daemon, volume: &Volume, done: &str) {
    let mut shares: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            volume.fill();
            daemon.settle();
            let before = daemon.time();
            volume.empty();
            daemon.settle();
            (daemon.time() - before) / (DIRECTORIES * FILES) as f64
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    println!(
        "{}: {:.2} us for each of {} frees {done}: {:.2} % of a core at {RATE} frees/s (of {ROUNDS} rounds {:.2} to {:.2})",
        volume.fstype,
        shares[ROUNDS / 2] * 1e6,
        DIRECTORIES * FILES,
        shares[ROUNDS / 2] * RATE * 100.0,
        shares[0] * RATE * 100.0,
        shares[ROUNDS - 1] * RATE * 100.0,
    );
}
