//! On kinds of device that every machine has: it runs to the end and says what it found.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use trimtab_core::Bytes;
use trimtab_core::document::bench::{Part, Passage, Pattern};
use trimtab_core::erase::Operation;
use trimtab_core::profile::{DiscardedReads, Profile};

use trimtab_drive::Clock;

use crate::support::{Loop, TRIMTAB, bench, drive, possible, results, saved, turn};

#[test]
fn a_loop_device_over_a_file_is_measured_in_every_part() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let device = Loop::new(Bytes(256 << 20));
    let dir = TempDir::new().unwrap();
    let (report, toml) = (dir.path().join("report"), dir.path().join("loop.toml"));
    let output =
        bench(&device.device, &["--sizes", "16M,64K,4K", "--depth", "1,4", "--time", "45s", "--report"])
            .arg(&report)
            .arg("--profile-out")
            .arg(&toml)
            .current_dir(dir.path())
            .output()
            .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document = saved(&report.join("bench.json"));
    assert!(document.stopped.is_none());
    assert!(document.device.model.contains("loop"), "{}", document.device.model);
    // A slow disk below the file leaves no time for some of the six cells of a pattern.
    for pattern in Pattern::ALL {
        let measured = document.sweeps.iter().filter(|cell| cell.pattern == pattern).count();
        let name = pattern.name();
        let left_out = document.missing.iter().filter(|missing| missing.what.contains(name));
        let is_named = left_out.into_iter().any(|missing| missing.why.contains("allow more (--time)"));
        assert!(measured == 6 || measured > 0 && is_named, "{name}: {measured}, {:?}", document.missing);
    }
    let verify = document.verify.unwrap();
    assert_eq!(verify.reads, Some(DiscardedReads::Zeros));
    assert_eq!((verify.lost_outside, verify.ignored.len()), (0, 0));
    assert!(document.interference.len() > 1 && document.queueing.is_some() && document.fit.is_some());
    assert!(fs::read_to_string(report.join("index.html")).unwrap().contains("<svg"));
    let text = fs::read_to_string(&toml).unwrap();
    Profile::parse(&text, "loop.toml").unwrap();
    assert!(text.contains("trimtab bench"), "it cites the run: {text}");

    let compared = Command::new(TRIMTAB)
        .args(["compare", "--runs", "1", "--size", "512M", "--policy", "none", "--profile"])
        .arg(&toml)
        .output()
        .unwrap();
    assert!(compared.status.success(), "{}", String::from_utf8_lossy(&compared.stderr));
}

/// The first zram device that nothing uses, with a size; it is reset when the test ends.
struct Zram {
    device: PathBuf,
    sysfs: PathBuf,
}

impl Zram {
    fn new(size: Bytes) -> Option<Self> {
        let sysfs = PathBuf::from("/sys/block/zram0");
        let unused = fs::read_to_string(sysfs.join("disksize")).is_ok_and(|size| size.trim() == "0");
        let zram = Self { device: PathBuf::from("/dev/zram0"), sysfs };
        (unused && fs::write(zram.sysfs.join("disksize"), size.0.to_string()).is_ok()).then_some(zram)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(self.sysfs.join("reset"), "1");
    }
}

#[test]
fn zram_is_measured() {
    if !possible() {
        return;
    }
    let _turn = turn();
    let Some(zram) = Zram::new(Bytes(256 << 20)) else {
        eprintln!("skipped: there is no zram device that nothing uses");
        return;
    };
    let (document, text) = results(&zram.device, &["--quick", "--sizes", "16M,64K,4K", "--time", "10s"]);
    assert_eq!(document.verify.as_ref().unwrap().reads, Some(DiscardedReads::Zeros));
    assert_eq!(document.verify.unwrap().granularity.honoured, Some(Bytes(4096)));
    assert!(document.missing.is_empty() && document.plan.parts.contains(&Part::Interference));
    assert!(text.contains("zeros"), "{text}");
}

#[test]
fn a_range_confines_every_write() {
    if !possible() {
        return;
    }
    let device = Loop::new(Bytes(96 << 20));
    let precious = vec![0xa5; 96 << 20];
    fs::write(&device.file, &precious).unwrap();
    drop_caches(&device.device);
    let arguments = ["--range", "32M..64M", "--sizes", "4M,4K", "--time", "12s"];
    let (document, _) = results(&device.device, &arguments);
    assert!(document.stopped.is_none() && !document.sweeps.is_empty() && document.verify.is_some());
    let after = fs::read(&device.file).unwrap();
    assert!(after[..32 << 20] == precious[..32 << 20], "something before the range changed");
    assert!(after[64 << 20..] == precious[64 << 20..], "something behind the range changed");
}

fn drop_caches(device: &Path) {
    crate::support::run("blockdev", &["--flushbufs", device.to_str().unwrap()]);
}

#[test]
fn split_commands_and_missing_operations_are_named() {
    if !possible() {
        return;
    }
    let mut split = Profile::named("nvme-tlc").unwrap();
    split.discard.command_limit.value = Bytes(64 << 10);
    let drive = drive(split, Bytes::GIB, Clock::Real { speed: 10.0 });
    let arguments = ["--sizes", "1M,4K", "--pattern", "sequential", "--depth", "1,4", "--time", "6s"];
    let (document, text) = results(
        drive.device(),
        &[&arguments[..], &["--part", "latency", "--operation", "discard,zeroout,secure"]].concat(),
    );
    for cell in &document.sweeps {
        let kernel = cell.kernel.unwrap();
        let (passage, requests) = match (cell.operation, cell.size) {
            (Operation::Discard, Bytes::MIB) => (Passage::Split, 16 * cell.latency.n),
            (Operation::Discard, _) => (Passage::Whole, cell.latency.n),
            _ => continue,
        };
        assert_eq!((cell.passage, kernel.discards), (passage, requests), "{cell:?}");
        assert_eq!(kernel.discard_bytes, Bytes(cell.size.0 * cell.latency.n));
    }
    assert_eq!(document.sweeps.iter().filter(|cell| cell.operation == Operation::Zeroout).count(), 4);
    assert!(document.missing.iter().all(|missing| missing.what.contains("secure")), "{:?}", document.missing);
    assert!(text.contains("secure") && text.contains("split"), "{text}");
}
