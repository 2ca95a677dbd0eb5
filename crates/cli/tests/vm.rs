//! Tests on another kernel: Debian's 6.12, which `vm/run` boots.

mod guest;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::State;
use trimtab_core::trace::{EventKind, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_trace::{Columns, open};

use guest::{repository, run};

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn a_guest_discards_on_every_kind_of_disk() {
    let disks = ["nvme:64M", "virtio-blk:64M", "virtio-scsi:64M", "ahci:64M"];
    let mut arguments: Vec<_> = disks.into_iter().flat_map(|disk| ["-d", disk]).collect();
    arguments.push("vm/disks");
    let Some(output) = run(&arguments) else { return };
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((stderr.as_str(), output.status.code()), ("to standard error\n", Some(7)), "{stdout}");
    let mut lines = stdout.lines();
    assert!(lines.next().unwrap().starts_with("6.12."), "{stdout}");
    // 8 MiB in blocks of 512 bytes, and nothing.
    assert_eq!(lines.collect::<Vec<_>>(), ["16384 0"; 4]);
}

#[test]
fn parsers_read_the_formats_of_the_kernel() {
    let dir = TempDir::new().unwrap();
    let Some(output) = run(&["-o", dir.path().to_str().unwrap(), "vm/formats"]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kept = repository().join("crates/linux/tests/data/6.12");
    let files = files_below(&kept);
    assert!(!files.is_empty());
    // An event's number is another at each boot.
    let described = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().filter(|line| !line.starts_with("ID: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    for file in files {
        let name = file.strip_prefix(&kept).unwrap();
        assert_eq!(described(&dir.path().join(name)), described(&file), "{}", name.display());
    }
}

/// A trace that a guest left.
struct Trace {
    header: TraceHeader,
    events: Vec<TraceEvent>,
}

impl Trace {
    fn read(path: &Path) -> Self {
        let mut trace = open(path, None, Columns::All).unwrap();
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        loop {
            trace.next_batch(&mut batch).unwrap();
            if batch.is_empty() {
                return Self { header: trace.header().clone(), events };
            }
            events.append(&mut batch);
        }
    }

    fn total(&self, kind: EventKind) -> (u64, Bytes) {
        let ours = self.events.iter().filter(|event| event.kind == kind);
        ours.fold((0, Bytes::ZERO), |(count, bytes), event| (count + 1, bytes + event.extent.len()))
    }

    /// How many commands the requests of a kind came in. Each may have several ranges.
    fn commands(&self, kind: EventKind) -> u64 {
        let ours = self.events.iter().filter(|event| event.kind == kind);
        ours.map(|event| (event.at, event.latency)).collect::<BTreeSet<_>>().len() as u64
    }

    /// The bytes that events of a kind name.
    fn named(&self, kind: EventKind) -> ExtentSet {
        let mut set = ExtentSet::new();
        self.events.iter().filter(|event| event.kind == kind).for_each(|event| set.insert(event.extent));
        set
    }

    /// The kind, start and length of every request, sorted.
    fn requests(&self) -> Vec<(EventKind, Bytes, Bytes)> {
        let ours = self.events.iter().filter(|event| event.kind.is_request());
        let mut all: Vec<_> =
            ours.map(|event| (event.kind, event.extent.start, event.extent.len())).collect();
        all.sort();
        all
    }
}

/// Reads the recording `name` of `vm/record`, and checks that the disk's own counters agree with it.
fn recording(dir: &Path, name: &str) -> Trace {
    let trace = Trace::read(&dir.join(format!("{name}.parquet")));
    assert!(trace.header.environment.as_ref().unwrap().kernel.starts_with("6.12."), "{name}");
    assert_eq!((trace.header.lost, trace.header.devices.len()), (0, 1), "{name}");
    assert!(trace.events.iter().all(|event| event.error == 0), "{name}");

    // See the kernel's Documentation/block/stat.rst: requests are followed by merges and sectors.
    let counters = std::fs::read_to_string(dir.join(format!("{name}.stat"))).unwrap();
    let mut lines = counters.lines().map(|line| line.split_whitespace().map(|field| field.parse().unwrap()));
    let [before, after] = [(); 2].map(|()| lines.next().unwrap().collect::<Vec<u64>>());
    let counted = |field: usize| after[field] - before[field];
    let requests = |field| (counted(field), Bytes(counted(field + 2) * 512));
    // A disk with several paths counts the parts of each request that it splits.
    let is_split = name == "paths";
    let ((reads, read), (all_reads, all_read)) = (trace.total(EventKind::Read), requests(0));
    assert!(read == all_read && (reads == all_reads || is_split && reads < all_reads), "{name}");
    // Discards that the kernel put into one with others count as merged.
    let discards = (counted(11) + counted(12), Bytes(counted(13) * 512));
    let discarded = trace.total(EventKind::Discard);
    assert!(discarded.1 == discards.1 && (discarded.0 == discards.0 || is_split), "{name}");
    let [(writes, written), (zeroes, zeroed), (flushes, _)] =
        [EventKind::Write, EventKind::WriteZeroes, EventKind::Flush].map(|kind| trace.total(kind));
    let (all_writes, all_written) = requests(4);
    assert_eq!(written + zeroed, all_written, "{name}");
    // The device mapper doesn't count flushes, and counts a write behind one twice.
    if name != "linear" && !is_split {
        assert_eq!(flushes, counted(15), "{name}");
        // Some flushes count as writes of nothing, too.
        assert!((writes + zeroes..=writes + zeroes + flushes).contains(&all_writes), "{name}");
    }
    trace
}

#[test]
fn recordings_match_the_disks_and_blktrace() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let trimtab = env!("CARGO_BIN_EXE_trimtab");
    let Some(output) =
        run(&["-d", "nvme:4G", "-d", "nvme:64M", "-d", "nvme-paths:512M", "-o", out, "vm/record", trimtab])
    else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let partition = |number: u64| Extent::at(Bytes(number << 29), Bytes(1 << 29));
    let unlisted = |kind: &str| format!("the free space of /mnt: {kind} doesn't list it");
    let f2fs_allocations = "this kernel doesn't report which blocks f2fs allocates".to_owned();
    for (name, home, gaps) in [
        ("ext4", partition(1), vec![]),
        ("xfs", partition(2), vec![]),
        ("btrfs", partition(3), vec![unlisted("btrfs")]),
        ("f2fs", partition(4), vec![unlisted("f2fs"), f2fs_allocations]),
        ("linear", partition(0), vec![]),
    ] {
        let trace = recording(dir.path(), name);
        assert_eq!(trace.header.gaps, gaps, "{name}");
        let (freed, discarded) = (trace.named(EventKind::Free), trace.named(EventKind::Discard));
        assert!(discarded.len() >= Bytes(20 * (256 << 10)), "{name}: {discarded:?}");
        assert!(discarded.iter().all(|extent| extent.intersect(home) == extent), "{name}: {discarded:?}");
        assert_eq!(freed.intersect(&discarded), discarded, "{name}: freed {freed:?}");
        // The kernel puts several of theirs into one command.
        if ["xfs", "f2fs"].contains(&name) {
            assert!(trace.commands(EventKind::Discard) < trace.total(EventKind::Discard).0, "{name}");
        }
        // Blocks of btrfs' trees that never reached the disk are free again without a discard.
        assert!(discarded.len() <= freed.len() && freed.len() <= discarded.len() + Bytes::MIB, "{name}");
    }

    // The kernel names the path, which has no number in sysfs, where the requests of such a disk complete.
    let paths = recording(dir.path(), "paths");
    let name = &paths.header.devices[0].name;
    let gap = format!("the latencies of some requests to {name}, which has several paths");
    assert_eq!(paths.header.gaps, [gap]);
    for kind in [EventKind::Read, EventKind::Write, EventKind::Discard] {
        let mut requests = paths.events.iter().filter(|event| event.kind == kind);
        assert!(requests.any(|event| event.latency.is_some()), "{kind:?}");
    }
    assert!(paths.named(EventKind::Discard).len() >= Bytes(20 * (256 << 10)));

    let split = recording(dir.path(), "split");
    assert_eq!(split.header.gaps, [""; 0]);
    assert_eq!(split.named(EventKind::Discard).len(), Bytes(32 << 20));
    let discards = split.events.iter().filter(|event| event.kind == EventKind::Discard);
    assert_eq!(discards.map(|event| event.extent.len()).max(), Some(Bytes(48 << 10)));

    let ours = recording(dir.path(), "fio");
    assert_eq!(ours.header.gaps, [""; 0]);
    assert_eq!(ours.total(EventKind::Discard), (256, Bytes(16 << 20)));
    let theirs = Trace::read(&dir.path().join("fio.blktrace.0"));
    assert_eq!(ours.requests(), theirs.requests());
}

#[test]
fn an_f2fs_that_discards_by_itself_does_so_as_the_goals_say() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let Some(output) = run(&["-d", "nvme:256M", "-o", out, "vm/steer", env!("CARGO_BIN_EXE_trimtab")]) else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (before, steered) = (read("before"), read("steered"));
    let status: StatusDocument = serde_json::from_str(&read("status.json")).unwrap();
    let fs = status.file_systems.into_iter().find(|fs| fs.mount == "/mnt").unwrap();
    assert_eq!((fs.fs.as_str(), fs.state, fs.policy.as_str()), ("f2fs", State::Steered, "smart"));
    let reason = fs.reason.unwrap();
    let said: String = reason.split(", ").map(|knob| format!("{knob}\n")).collect();
    assert_eq!(said, steered);
    assert!(steered.contains("max_discard_issue_time = 3000\n"), "{steered}");
    assert_ne!(before, steered);
    assert_eq!(read("after"), before);
    let took = |name| read(name).trim().parse::<u64>().unwrap();
    // 32 MiB in blocks of 512 bytes, and some may be the file system's own.
    let given_back = took("took-before") - took("took-after");
    assert!(given_back >= 60_000, "{given_back} blocks");
}

/// A volume takes no discards while it has a thick snapshot.
#[test]
fn file_system_is_trimmed_again_when_its_storage_takes_discards_again() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let Some(output) = run(&["-d", "nvme:512M", "-o", out, "vm/snapshot", env!("CARGO_BIN_EXE_trimtab")])
    else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let status = |name: &str| {
        let status: StatusDocument = serde_json::from_str(&read(name)).unwrap();
        status.file_systems.into_iter().find(|fs| fs.mount == "/mnt").unwrap()
    };
    let (before, blocked, after) = (status("before.json"), status("blocked.json"), status("after.json"));
    assert!(blocked.reason.unwrap().contains("snapshot"));
    // A look while LVM changes its tables may find it blocked once more.
    assert!(blocked.refusals["unsupported"] >= 1 && after.refusals["unsupported"] >= 1);
    // The file of 16 MiB that was deleted meanwhile.
    assert!(after.trimmed >= before.trimmed + Bytes(16 << 20), "{:?}, {:?}", before.trimmed, after.trimmed);
    let log = read("log");
    let logged =
        |event: &str| log.lines().filter(|line| line.contains(event) && line.contains("mount=/mnt")).count();
    let times = ["event=managed ", "event=no_longer_managed ", "event=not_managed "].map(logged);
    assert!(times[0] >= 2 && times[1] >= 1 && times[2] >= 1, "{times:?}: {log}");
}

/// A thin pool frees a chunk only if one discard covers all of it.
#[test]
fn pools_hold_no_more_than_after_a_plain_fstrim() {
    let trimtab = env!("CARGO_BIN_EXE_trimtab");
    // A minute or two each; without names, vm/units does twelve.
    let pools = ["xfs", "256k", "ext4", "1m"];
    let words = [&["-d", "nvme:1G", "-t", "1500", "vm/units", trimtab], &pools[..]].concat();
    let Some(output) = run(&words) else { return };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert_eq!(stdout.lines().count(), pools.len(), "{stdout}");
    for line in stdout.lines() {
        let fields: Vec<_> = line.split(' ').collect();
        let [_, chunk, _, held, plain] = fields[..] else { panic!("{line}") };
        let [chunk, held, plain] = [chunk.to_uppercase().as_str(), &format!("{held}K"), &format!("{plain}K")]
            .map(|size| size.parse::<Bytes>().unwrap());
        // Between the two, the file system itself goes on to write here and there.
        let most = Bytes(plain.0 / 20 * 21).max(plain + Bytes(chunk.0 * 4));
        assert!(held <= most, "{line}\n{stdout}");
    }
}

#[test]
fn bad_arguments_are_one_clear_line() {
    for (arguments, reason) in [
        (&["-x"][..], "there is no option -x"),
        (&["-d"], "-d needs a value"),
        (&["-d", "floppy", "true"], "no kind of disk 'floppy'"),
        (&["-d", "nvme:much", "true"], "no disk has the size 'much'"),
        (&["-t", "1h", "true"], "'1h' is no number of seconds"),
        (&[], "no program to run"),
        (&["vm/none"], "there is no program vm/none"),
    ] {
        let output = run(arguments).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.starts_with("vm: ") && stderr.contains(reason), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
