//! What recording costs: the IOPS of a saturating random read with a recorder beside it, over those
//! without one, in turns. Needs root and fio; blktrace is measured in the same way where it is there.
//!
//! `cargo bench -p trimtab-linux --bench tracing [ROUNDS [SECONDS]]`

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::trace::Kind;
use trimtab_linux::block::BlockDevice;
use trimtab_linux::tracing::{RecordOptions, Recording};
use trimtab_linux::{SYSFS, loop_device};

const SIZE: u64 = 1 << 30;

/// The recorders to compare with none.
const RECORDERS: [(&str, Recorder); 4] = [
    ("nothing", Recorder::None),
    (
        "all block I/O",
        Recorder::Ours(&[
            Kind::Read,
            Kind::Write,
            Kind::Discard,
            Kind::Flush,
            Kind::WriteZeroes,
            Kind::SecureErase,
        ]),
    ),
    ("discards and frees", Recorder::Ours(&[Kind::Discard, Kind::Free, Kind::Allocate])),
    ("blktrace", Recorder::Blktrace),
];

#[derive(Clone, Copy)]
enum Recorder {
    None,
    Ours(&'static [Kind]),
    Blktrace,
}

fn main() {
    let numbers: Vec<f64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let rounds = numbers.first().map_or(7, |rounds| *rounds as usize);
    let seconds = numbers.get(1).copied().unwrap_or(2.0);
    let file = tempfile::tempfile_in("/dev/shm").expect("memory at /dev/shm");
    file.set_len(SIZE).unwrap();
    let backing = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let device = loop_device::attach(&backing, Bytes(4096)).expect("root and a free loop device");
    fio(&device, &["--rw=write", "--bs=1m"]);
    for jobs in [1, 2] {
        let mut iops = vec![Vec::new(); RECORDERS.len()];
        for round in 0..rounds {
            // The order changes, so that none always follows the same one.
            for place in 0..RECORDERS.len() {
                let which = (place + round) % RECORDERS.len();
                if let Some(found) = measured(RECORDERS[which].1, &device, jobs, seconds) {
                    iops[which].push(found);
                }
            }
        }
        println!("{jobs} job(s), depth 32, {rounds} rounds of {seconds} s");
        let (bare, recorded) = iops.split_first().unwrap();
        println!("  {:20} {:8.0} IOPS", RECORDERS[0].0, median(bare.clone()));
        for ((name, _), found) in RECORDERS[1..].iter().zip(recorded).filter(|(_, found)| !found.is_empty()) {
            let ratios: Vec<f64> = found.iter().zip(bare).map(|(with, without)| with / without).collect();
            let cost = (1.0 - median(ratios)) * 100.0;
            println!("  {name:20} {:8.0} IOPS, costs {cost:5.1} %", median(found.clone()));
        }
    }
    loop_device::detach(&device).unwrap();
}

/// The IOPS with a recorder; none where it isn't here.
fn measured(recorder: Recorder, device: &Path, jobs: u32, seconds: f64) -> Option<f64> {
    match recorder {
        Recorder::None => Some(random_read(device, jobs, seconds)),
        Recorder::Ours(kinds) => {
            let disk = BlockDevice::open(Path::new(SYSFS), device).unwrap();
            let options =
                RecordOptions { devices: vec![disk], kinds: kinds.to_vec(), ..RecordOptions::default() };
            let mut recording = Recording::start(&options).unwrap();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut events = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        recording.wait(Duration::from_millis(500)).unwrap();
                        events.clear();
                        recording.read(&mut events).unwrap();
                    }
                    recording.stop(&mut events).unwrap();
                    assert_eq!(recording.header().lost, 0);
                });
                let iops = random_read(device, jobs, seconds);
                over.store(true, Ordering::Relaxed);
                Some(iops)
            })
        }
        Recorder::Blktrace => {
            Command::new("blktrace").arg("-V").output().ok()?;
            // It needs debugfs, which is mounted for it alone.
            let script =
                "mount -t debugfs debugfs /sys/kernel/debug; exec blktrace -d $0 -a issue -a complete -o -";
            let mut blktrace = Command::new("unshare")
                .args(["-m", "sh", "-c", script, device.to_str().unwrap()])
                .stdout(File::create("/dev/null").unwrap())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            std::thread::sleep(Duration::from_millis(300));
            if blktrace.try_wait().unwrap().is_some() {
                // Where the kernel is locked down, debugfs can't be read.
                return None;
            }
            let iops = random_read(device, jobs, seconds);
            let interrupted = Command::new("kill").args(["-INT", &blktrace.id().to_string()]).status();
            assert!(interrupted.unwrap().success());
            blktrace.wait().unwrap();
            Some(iops)
        }
    }
}

fn random_read(device: &Path, jobs: u32, seconds: f64) -> f64 {
    let (jobs, runtime) = (format!("--numjobs={jobs}"), format!("--runtime={seconds}s"));
    let report = fio(
        device,
        &["--rw=randread", "--bs=4k", "--iodepth=32", "--time_based", "--group_reporting", &jobs, &runtime],
    );
    // The eighth field of fio's terse report is the IOPS of reads.
    report.split(';').nth(7).and_then(|iops| iops.parse().ok()).expect("fio's terse report")
}

fn fio(device: &Path, arguments: &[&str]) -> String {
    let output = Command::new("fio")
        .args(["--name=job", "--direct=1", "--ioengine=io_uring", "--output-format=terse", "--size=1g"])
        .arg(format!("--filename={}", device.display()))
        .args(arguments)
        .output()
        .expect("fio");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}
