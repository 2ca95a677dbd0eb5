//! Helpers that the tests share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use trimtab_core::document::{CompareDocument, Run, Step};
use trimtab_core::policy::PolicyKind;

pub use crate::common::possible;

/// Small enough to be quick, large enough for XFS, and a drive that feels its garbage collection.
pub const SMALL: [&str; 4] = ["--profile", "ocz-agility-3", "--size", "384M"];
/// The same on this machine's own kernel, faster than real time: for what doesn't depend on times.
pub const FAST: [&str; 8] =
    ["--clock", "real", "--speed", "50", "--profile", "ocz-agility-3", "--size", "512M"];

/// `trimtab compare` with these arguments, in a temporary directory of its own.
pub fn compare(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trimtab"));
    command.arg("compare").args(arguments).stdin(Stdio::null());
    command
}

/// A comparison that ran, and what it left.
pub struct Finished {
    pub output: Output,
    pub document: CompareDocument,
    pub dir: TempDir,
}

impl Finished {
    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn runs(&self, fs: &str, policy: PolicyKind) -> Vec<&Run> {
        self.document.runs.iter().filter(|run| run.fs == fs && run.policy.kind() == policy).collect()
    }

    pub fn run(&self, fs: &str, policy: PolicyKind) -> &Run {
        self.runs(fs, policy).first().unwrap_or_else(|| panic!("{fs} {policy} ran: {}", self.stderr()))
    }
}

/// Runs a comparison to its end, with `--report` into a directory of its own.
pub fn finish(mut command: Command, rest: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    let output = command.arg("--report").arg(dir.path()).args(rest).output().unwrap();
    let document = saved(&dir.path().join("compare.json"))
        .unwrap_or_else(|| panic!("a document: {}", String::from_utf8_lossy(&output.stderr)));
    Finished { output, document, dir }
}

/// The document in a file, if there is a whole one.
pub fn saved(path: &Path) -> Option<CompareDocument> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// The step of a run with this name.
pub fn step<'a>(run: &'a Run, name: &str) -> &'a Step {
    run.steps.iter().find(|step| step.name == name).unwrap_or_else(|| panic!("{name} in {run:?}"))
}

/// Whether the drive and the kernel counted the same discards over the whole run, but for those that
/// were under way while one after the other was asked at its end: on a drive that is many times faster
/// than real time, some.
pub fn counters_agree(run: &Run) -> bool {
    let kernel: u64 = run.steps.iter().map(|step| step.kernel.unwrap().discards).sum();
    discards(run).abs_diff(kernel) <= 10 + discards(run) / 50
}

/// Discards of a whole run.
pub fn discards(run: &Run) -> u64 {
    run.steps.iter().map(|step| step.discards).sum()
}

/// Lists everything that the comparison of process `id` left mounted, attached or running.
pub fn leftovers(id: u32) -> Vec<String> {
    let drive = format!("compare-{id}");
    let place = PathBuf::from("/run/trimtab/drives").join(&drive);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mounted = mounts.lines().filter(|line| line.contains(&drive)).map(str::to_owned);
    let attached = std::fs::read_dir("/sys/block").unwrap().flatten().filter_map(|device| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        file.contains(&drive).then_some(file)
    });
    let served = place.exists().then(|| place.display().to_string());
    mounted.chain(attached).chain(served).collect()
}

pub fn sh(line: &str) {
    let output = Command::new("sh").arg("-ec").arg(line).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A mounted ext4 on an emulated drive, for the user's own directory.
pub struct Mounted {
    name: String,
    target: TempDir,
}

impl Mounted {
    pub fn new(options: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("on-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let target = TempDir::new().unwrap();
        sh(&format!(
            "dev=$({} drive create {name} --profile ocz-agility-3 --size 256M); mkfs.ext4 -q $dev; \
             mount -o {options} $dev {}",
            env!("CARGO_BIN_EXE_trimtab"),
            target.path().display()
        ));
        Self { name, target }
    }

    pub fn dir(&self) -> &str {
        self.target.path().to_str().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let trimtab = env!("CARGO_BIN_EXE_trimtab");
        sh(&format!("umount {}; {trimtab} drive rm {}", self.target.path().display(), self.name));
    }
}
