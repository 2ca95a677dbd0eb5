//! Measures the cost of recording: the IOPS of a saturating random read while `trimtab record` runs beside it,
//! over those without; and of that the kernel's own share: its two events of each request, which nobody
//! reads. fio runs all the time; the recorders take turns, with nothing before and after each. Needs
//! root, tracefs and fio.
//!
//! `cargo bench -p trimtab-cli --bench record [ROUNDS]`

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use trimtab_core::Bytes;
use trimtab_core::stats::median;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::{SYSFS, loop_device};

const SIZE: Bytes = Bytes(1 << 30);

/// The time for a recorder to begin or to end, and the length of a measurement.
const CHANGE: Duration = Duration::from_millis(400);
const WINDOW: Duration = Duration::from_millis(800);

/// The recorders, and the kinds that `trimtab record` is given; none for the kernel's events alone.
const RECORDERS: [(&str, Option<&str>); 3] = [
    ("recording all block I/O", Some("read,write,discard,flush,write-zeroes,secure-erase")),
    ("of that the kernel's events", None),
    ("recording discards and frees", Some("discard,free")),
];

const TRACEFS: &str = "/sys/kernel/tracing";

fn main() {
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(25);
    let file = tempfile::tempfile_in("/dev/shm").expect("memory at /dev/shm");
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let trace = dir.path().join("t.parquet");
    file.set_len(SIZE.0).unwrap();
    let backing = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let device = loop_device::attach(&backing, Bytes(4096)).expect("root and a free loop device");
    let block = BlockDevice::open(Path::new(SYSFS), &device).unwrap();
    assert!(fio(&device, &["--rw=write", "--bs=1m"]).wait().unwrap().success());
    for jobs in [1, 2] {
        let jobs_word = format!("--numjobs={jobs}");
        let reads = ["--rw=randread", "--bs=4k", "--iodepth=32", "--time_based", "--runtime=1h", &jobs_word];
        let mut load = fio(&device, &reads);
        let mut costs = RECORDERS.map(|_| Vec::new());
        let mut all = Vec::new();
        for _ in 0..rounds {
            for ((_, kinds), costs) in RECORDERS.iter().zip(&mut costs) {
                let before = iops(&block);
                let during = match kinds {
                    Some(kinds) => {
                        let mut recorder = record(&device, kinds, &trace);
                        let during = iops(&block);
                        interrupt(&mut recorder);
                        during
                    }
                    None => with_events(|| iops(&block)),
                };
                let bare = f64::midpoint(before, iops(&block));
                costs.push((1.0 - during / bare) * 100.0);
                all.push(bare);
            }
        }
        interrupt(&mut load);
        println!(
            "{jobs} job(s) at depth 32, {:.0} IOPS with nothing beside; medians of {rounds} rounds",
            median(&all).unwrap()
        );
        for ((name, _), mut costs) in RECORDERS.iter().zip(costs) {
            costs.sort_by(f64::total_cmp);
            let quartile = |part: usize| costs[(costs.len() - 1) * part / 4];
            let (low, high) = (quartile(1), quartile(3));
            println!(
                "  {name:28} costs {:5.1} %  (half of the rounds from {low:.1} to {high:.1})",
                quartile(2)
            );
        }
    }
    loop_device::detach(&device).unwrap();
}

/// Reads a second, once those before have changed to what they are now.
fn iops(block: &BlockDevice) -> f64 {
    thread::sleep(CHANGE);
    let (before, started) = (block.counters().unwrap().reads, Instant::now());
    thread::sleep(WINDOW);
    (block.counters().unwrap().reads - before) as f64 / started.elapsed().as_secs_f64()
}

/// Makes the kernel write the events that a recording of all block I/O needs, without a reader, while
/// `measured` runs. New events overwrite the oldest.
fn with_events(measured: impl FnOnce() -> f64) -> f64 {
    let instance = Path::new(TRACEFS).join(format!("instances/trimtab-bench-{}", std::process::id()));
    let set = |file: &str, value: &str| fs::write(instance.join(file), value).unwrap();
    fs::create_dir(&instance).unwrap();
    set("trace_clock", "mono");
    set("events/block/block_rq_issue/enable", "1");
    set("events/block/block_rq_complete/enable", "1");
    let figure = measured();
    fs::remove_dir(&instance).unwrap();
    figure
}

fn record(device: &Path, kinds: &str, trace: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_trimtab"))
        .args(["record", "--overwrite", "--kinds", kinds, "-d"])
        .arg(device)
        .arg("-o")
        .arg(trace)
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Ends a program that a Ctrl-C ends.
fn interrupt(child: &mut Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    child.wait().unwrap();
}

fn fio(device: &Path, arguments: &[&str]) -> Child {
    Command::new("fio")
        .args(["--name=job", "--direct=1", "--ioengine=io_uring", "--output=/dev/null", "--size=1g"])
        .arg(format!("--filename={}", device.display()))
        .args(arguments)
        .spawn()
        .expect("fio")
}
