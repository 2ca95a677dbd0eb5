//! Measures a trim when little was freed since the last one: bytes and seconds of `trimtab trim`, which gets
//! the pending extents from the service, and of fstrim, in turns, on the same emulated drive in real time.
//! Before each trim, 1 % of the files is deleted and as much written again; then nothing else happens, or the
//! file system is mounted again, or the service restarts. Needs root and FUSE. `-- ROUNDS PROFILE` chooses.

mod testbed;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::status::{FileSystemStatus, State};
use trimtab_core::profile::{Profile, builtin_text};
use trimtab_core::stats::median;
use trimtab_keeper::service::control;
use trimtab_linux::block::{BlockCounters, BlockDevice};
use trimtab_linux::{SYSFS, trim};

use testbed::{TRIMTAB, Testbed, run};

const SIZE: Bytes = Bytes(6 << 30);
const FILES: usize = 8000;
/// The mean length of a file.
const LENGTH: Bytes = Bytes(128 << 10);
/// Of the files that are written first, one in this many is kept.
const KEPT: usize = 4;
/// Of those, one in this many is deleted and written again each time.
const CHURN: usize = 100;
/// How long after that what is left to be written is: `trimtab trim` would wait for it, and fstrim not.
const SETTLED: Duration = Duration::from_secs(3);
/// The most that `trimtab trim` may send and take, over what fstrim does.
const BYTES_BAR: f64 = 0.02;
const TIME_BAR: f64 = 0.05;

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let rounds = arguments.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let name = arguments.next().unwrap_or_else(|| "micron-m500it".to_owned());
    let profile = Profile::named(&name).expect("a built-in profile");
    println!(
        "After a trim of all and {} of {} files of {LENGTH} on average anew, on {name} in real time; medians of {rounds} rounds",
        FILES / KEPT / CHURN,
        FILES / KEPT
    );
    println!(
        "{:4} {:15} {:>10} {:>10} {:>7} {:>8} {:>9} {:>6}",
        "fs", "since", "sent MiB", "fstrim", "ratio", "wall s", "fstrim", "ratio"
    );
    for fstype in ["ext4", "xfs"] {
        compare(fstype, &profile, rounds);
    }
}

/// The event after the churn and before the trim.
#[derive(Debug, Clone, Copy)]
enum Between {
    Nothing,
    Mount,
    Service,
}

/// Data discarded by a trim, and its time.
struct Cost {
    mib: f64,
    wall_s: f64,
}

fn compare(fstype: &str, profile: &Profile, rounds: usize) {
    let mut churned = Churned::new(fstype, profile);
    churned.trim(&["--full"]);
    // Of a whole allocation group XFS (of Linux 6.18) trims the 100 longest extents and some of the others, and of
    // a part of one all of them.
    let fstrim: &[&str] = if fstype == "xfs" { &["--offset", "4096"] } else { &[] };
    for (name, between) in
        [("", Between::Nothing), ("mounted anew", Between::Mount), ("service anew", Between::Service)]
    {
        let costs: Vec<[Cost; 2]> = (0..rounds)
            .map(|_| {
                churned.churn(between);
                let ours = churned.trim(&[]);
                churned.churn(between);
                let theirs = churned.cost(Command::new("fstrim").args(fstrim));
                // The service doesn't know that fstrim was at work.
                churned.trim(&[]);
                [ours, theirs]
            })
            .collect();
        let of = |figure: fn(&[Cost; 2]) -> f64| {
            let figures: Vec<f64> = costs.iter().map(figure).collect();
            median(&figures).expect("there are rounds")
        };
        println!(
            "{fstype:4} {name:15} {:>10.1} {:>10.1} {:>7.4} {:>8.2} {:>9.2} {:>6.3}  the bars are {BYTES_BAR} and {TIME_BAR}",
            of(|[ours, _]| ours.mib),
            of(|[_, theirs]| theirs.mib),
            of(|[ours, theirs]| ours.mib / theirs.mib),
            of(|[ours, _]| ours.wall_s),
            of(|[_, theirs]| theirs.wall_s),
            of(|[ours, theirs]| ours.wall_s / theirs.wall_s),
        );
    }
    churned.remove();
}

/// A file system with files that come and go, and its service.
struct Churned {
    testbed: Testbed,
    block: BlockDevice,
    service: Service,
    files: Vec<usize>,
    next: usize,
}

impl Churned {
    fn new(fstype: &str, profile: &Profile) -> Self {
        let testbed = Testbed::new("churn", fstype, profile, SIZE);
        let block = BlockDevice::open(Path::new(SYSFS), testbed.drive.device()).expect("sysfs has the drive");
        let service = Service::start(&testbed.place);
        let mut churned = Self { testbed, block, service, files: Vec::new(), next: 0 };
        churned.write(FILES);
        let (kept, gone) = (0..FILES).partition(|file| file % KEPT == 0);
        churned.files = kept;
        churned.remove_files(gone);
        churned
    }

    fn write(&mut self, files: usize) {
        for file in self.next..self.next + files {
            fs::write(self.testbed.place.join(file.to_string()), vec![7; LENGTH.0 as usize])
                .expect("there is room");
            self.files.push(file);
        }
        self.next += files;
        trim::sync(&self.testbed.place).expect("it can be synced");
    }

    fn remove_files(&self, files: Vec<usize>) {
        for file in files {
            fs::remove_file(self.testbed.place.join(file.to_string())).expect("it is there");
        }
        trim::sync(&self.testbed.place).expect("it can be synced");
    }

    /// Deletes files here and there, and writes as many.
    fn churn(&mut self, between: Between) {
        let count = self.files.len();
        let first = self.next % CHURN;
        let (gone, kept) = (0..count).partition::<Vec<_>, _>(|place| place % CHURN == first);
        let of = |places: Vec<usize>| places.into_iter().map(|place| self.files[place]).collect::<Vec<_>>();
        let (gone, kept) = (of(gone), of(kept));
        self.files = kept;
        self.remove_files(gone);
        self.write(count - self.files.len());
        match between {
            Between::Nothing => {}
            Between::Mount => {
                self.testbed.unmount();
                self.service.wait(|fs| fs.is_none());
                self.testbed.mount();
                self.service.wait(|fs| fs.is_some());
            }
            Between::Service => self.service.restart(),
        }
        sleep(SETTLED);
    }

    fn trim(&self, arguments: &[&str]) -> Cost {
        let directory = self.service.directory.path();
        let mut trim = Command::new(TRIMTAB);
        trim.args(["trim", "--quiet"]).args(arguments).arg("--run").arg(directory);
        self.cost(trim.env("RUNTIME_DIRECTORY", directory))
    }

    /// Returns the cost of a command that gets the mount point, until the drive is done: XFS doesn't wait for it.
    fn cost(&self, command: &mut Command) -> Cost {
        let before = self.counters();
        let started = Instant::now();
        run(command.arg(&self.testbed.place));
        while self.counters().in_flight > 0 {
            sleep(Duration::from_millis(1));
        }
        let wall_s = started.elapsed().as_secs_f64();
        Cost { mib: self.counters().since(&before).discard_bytes.mib(), wall_s }
    }

    fn counters(&self) -> BlockCounters {
        self.block.counters().expect("sysfs has the drive's counters")
    }

    fn remove(mut self) {
        self.service.stop();
        self.testbed.remove();
    }
}

/// A service that leaves freed extents pending: by its profile, the drive ignores discards below 1 GiB.
struct Service {
    child: Child,
    directory: TempDir,
    mount: String,
}

impl Service {
    fn start(mount: &Path) -> Self {
        let directory = TempDir::new().expect("a directory can be made");
        let profile = directory.path().join("patient.toml");
        let (small, large) =
            ("value = \"512 B\", source = \"Samsung", "value = \"1 GiB\", source = \"Samsung");
        let text = builtin_text("nvme-tlc").expect("a built-in profile").replace(small, large);
        fs::write(&profile, text).expect("it can be written");
        let config = format!(
            "[defaults]\npolicy = \"none\"\n[mount.\"{}\"]\npolicy = \"smart\"\nmax_busy_share = 1.0\nprofile = \"{}\"\n",
            mount.display(),
            profile.display()
        );
        fs::write(directory.path().join("config.toml"), config).expect("it can be written");
        let child = spawn(directory.path());
        let service = Self { child, directory, mount: mount.display().to_string() };
        service.wait(|fs| fs.is_some());
        service
    }

    fn restart(&mut self) {
        self.stop();
        self.child = spawn(self.directory.path());
        self.wait(|fs| fs.is_some());
    }

    fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Waits until `is_so` holds for its status of the file system; `None` if it does not manage it.
    fn wait(&self, is_so: impl Fn(Option<&FileSystemStatus>) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_it = |fs: &&FileSystemStatus| fs.mount == self.mount && fs.state != State::Off;
        while !control::status(self.directory.path())
            .is_ok_and(|status| is_so(status.file_systems.iter().find(is_it)))
        {
            assert!(Instant::now() < deadline, "the service doesn't get there");
            sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(directory: &Path) -> Child {
    let mut daemon = Command::new(TRIMTAB);
    daemon.arg("daemon").arg("--config").arg(directory.join("config.toml")).arg("--run").arg(directory);
    daemon.arg("--state").arg(directory.join("state")).stderr(Stdio::null());
    daemon.spawn().expect("the service can be started")
}
