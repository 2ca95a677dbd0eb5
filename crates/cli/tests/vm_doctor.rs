//! Compares the verdicts of `trimtab doctor` on stacks with the real fate of their discards, on Debian's kernel
//! 6.12: `vm/doctor` sets the stacks up.

mod guest;

use serde::Deserialize;
use trimtab_core::Bytes;
use trimtab_core::document::DoctorDocument;
use trimtab_core::document::doctor::Target;
use trimtab_core::document::status::State;
use trimtab_core::document::trim::Sent;
use trimtab_core::verdict::{Passes, Verdict};

use guest::{ran, run};

/// The output of vm/doctor for a stack.
#[derive(Debug, Deserialize)]
struct Examined {
    name: String,
    #[serde(flatten)]
    truth: Truth,
    #[serde(rename = "static")]
    inferred: DoctorDocument,
    canary: DoctorDocument,
    fixed: Option<Fixed>,
    trimmed: ByTrim,
    none: Option<Bytes>,
    served: ByService,
    pool: Option<Pool>,
}

/// The fate of a file that was deleted, and that `trimtab trim` trimmed.
#[derive(Debug, Deserialize)]
struct ByTrim {
    freed: i64,
    /// Its own figures; none where it failed.
    sent: Option<Sent>,
}

/// The fate of a file that was deleted before a service began.
#[derive(Debug, Deserialize)]
struct ByService {
    freed: i64,
    state: State,
    unmanaged: Option<String>,
    /// Its own figure.
    trimmed: Bytes,
    uncounted: Vec<String>,
}

/// How full a thin pool is.
#[derive(Debug, Deserialize)]
struct Pool {
    /// The output of `dmsetup status` before a service runs.
    status: String,
    /// The metrics where no service runs, and where one does.
    without: String,
    with: String,
}

impl Pool {
    /// Whether the metrics say what dmsetup does. The pool has chunks of 64 KiB; 16 MiB are written.
    fn is_measured(&self) -> bool {
        let blocks = |place: usize| -> Option<(u64, u64)> {
            let (used, all) = self.status.split_whitespace().nth(place)?.split_once('/')?;
            Some((used.parse().ok()?, all.parse().ok()?))
        };
        let Some(((metadata_used, metadata), (used, size))) = blocks(5).zip(blocks(6)) else { return false };
        let says = |text: &str, name: &str, bytes: u64| {
            let start = format!("trimtab_pool_{name}_bytes{{pool=\"vg/pool\",device=\"/dev/dm-");
            let value =
                text.lines().find(|line| line.starts_with(&start)).and_then(|line| line.rsplit(' ').next());
            value == Some(&bytes.to_string())
        };
        let sizes =
            |text: &str| says(text, "size", size << 16) && says(text, "metadata_size", metadata << 12);
        // The service trims, which changes how much is in use.
        used > 256
            && sizes(&self.without)
            && says(&self.without, "used", used << 16)
            && says(&self.without, "metadata_used", metadata_used << 12)
            && sizes(&self.with)
    }
}

/// The fate of a file that was deleted and trimmed.
#[derive(Debug, Deserialize)]
struct Truth {
    freed: i64,
    image: Option<i64>,
    fstrim: Option<u64>,
    lsblk: u64,
}

#[derive(Debug, Deserialize)]
struct Fixed {
    #[serde(flatten)]
    truth: Truth,
    canary: DoctorDocument,
}

/// The expected results of a stack.
struct Expected {
    name: &'static str,
    /// The doctor's verdict.
    verdict: Verdict,
    /// The canary's verdict.
    canary: Verdict,
    /// The fate of the file that is deleted and trimmed; unknown if it is freed later.
    truth: Verdict,
    /// The kind of the layer that lets nothing through, and what is found there.
    culprit: Option<(&'static str, &'static str)>,
    /// Whether what is said to mend it does.
    mends: bool,
}

const fn reaches(name: &'static str) -> Expected {
    let verdict = Verdict::Reaches;
    Expected { name, verdict, canary: verdict, truth: verdict, culprit: None, mends: false }
}

const fn blocked(name: &'static str, layer: &'static str, finding: &'static str) -> Expected {
    let (verdict, culprit) = (Verdict::Blocked, Some((layer, finding)));
    Expected { name, verdict, canary: verdict, truth: verdict, culprit, mends: false }
}

const fn partial(name: &'static str, layer: &'static str, finding: &'static str) -> Expected {
    let verdict = Verdict::Partial;
    Expected { verdict, canary: verdict, truth: verdict, ..blocked(name, layer, finding) }
}

const fn delayed(name: &'static str) -> Expected {
    Expected { canary: Verdict::Unknown, truth: Verdict::Unknown, ..reaches(name) }
}

/// The canary, which is large and waits for nobody, comes through.
const fn but_not_for_the_canary(expected: Expected) -> Expected {
    Expected { canary: Verdict::Reaches, ..expected }
}

const fn mended(expected: Expected) -> Expected {
    Expected { mends: true, ..expected }
}

/// The size of the file that is deleted and trimmed.
const FILE: Bytes = Bytes(16 << 20);

/// The stacks whose counters show less than comes back: the file system or a layer waits, or takes it back by itself.
const COUNTED_LATER: [&str; 5] = ["f2fs", "nilfs2", "bcachefs", "bcachefs-off", "writecache"];

/// The stacks with a layer that hands no discards on, but takes space back for others.
const TAKEN_BACK: [&str; 3] = ["thin-nopassdown", "stratis", "vdo"];

/// The stack whose file system discards data in use when it is trimmed.
const LOSES_DATA: &str = "ntfs3-discard";

const DISKS: &str = "nvme:512M ahci:512M virtio-scsi:512M virtio-blk:512M usb-storage:512M uas:512M nvme:4G";

/// Boots once for all of `expected`, and holds what is found to it.
fn hold(expected: &[Expected]) {
    hold_on(DISKS, expected);
}

/// As [`hold`], with these disks.
fn hold_on(disks: &str, expected: &[Expected]) {
    let mut arguments: Vec<_> = disks.split(' ').flat_map(|disk| ["-d", disk]).collect();
    arguments.extend(["-t", "3600", "vm/doctor", env!("CARGO_BIN_EXE_trimtab")]);
    arguments.extend(expected.iter().map(|expected| expected.name));
    let Some(output) = run(&arguments) else { return };
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Examined> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), expected.len(), "{stderr}");
    let wrong: Vec<_> =
        found.iter().zip(expected).flat_map(|(found, expected)| wrong(found, expected)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn target(document: &DoctorDocument) -> &Target {
    &document.targets[0]
}

/// Lists the differences from the expected results, a line each.
fn wrong(found: &Examined, expected: &Expected) -> Vec<String> {
    let (inferred, canary) = (target(&found.inferred), target(&found.canary));
    let mut wrong = Vec::new();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            wrong.push(format!("{}: {what}: {found:#?}", found.name));
        }
    };
    check(found.name == expected.name, "not what was asked for");
    check(found.truth.is(expected.truth), "what reaches the disks");
    // A canary that comes through proves no more than the facts say; one that doesn't proves them wrong.
    let settled = if expected.canary == Verdict::Blocked { Verdict::Blocked } else { expected.verdict };
    check(inferred.verdict == expected.verdict && canary.verdict == settled, "the verdict");
    let proven = canary.canary.as_ref().map(|canary| canary.verdict);
    check(proven == Some(expected.canary), "the canary's verdict");
    let culprit = inferred.layers.iter().find(|layer| layer.passes == Passes::No);
    check(
        expected.culprit.is_none_or(|(kind, id)| {
            let named = |name: &str| {
                inferred.findings.iter().any(|finding| finding.id == id && finding.layer == name)
            };
            inferred.layers.iter().any(|layer| layer.kind == kind && named(&layer.name))
                && culprit.is_none_or(|culprit| culprit.kind == kind)
        }),
        "the layer that is to blame",
    );
    check(expected.culprit.is_some() || culprit.is_none(), "a layer is to blame");

    // If lsblk or fstrim find that discards are blocked, so must the doctor. Except on bcachefs, which has no
    // fstrim and discards by itself.
    let is_untrimmed = found.truth.fstrim.is_none() && inferred.fs.as_deref() != Some("bcachefs");
    let refused = found.truth.lsblk == 0 || is_untrimmed;
    // No layer announces that it will fail: a canary has to show it.
    let judged = if expected.verdict == Verdict::Blocked { inferred.verdict } else { canary.verdict };
    check(!refused || judged == Verdict::Blocked, "lsblk or fstrim know better");

    let mended = found.fixed.as_ref().is_some_and(|fixed| {
        fixed.truth.is(Verdict::Reaches) && target(&fixed.canary).verdict == Verdict::Reaches
    });
    check(mended == expected.mends, "what comes of the fix");
    // FITRIM cuts a least length to 32 bits there, or refuses it.
    let is_cut = ["jfs", "fat", "exfat"].contains(&found.name.as_str());
    check(!is_cut || found.none == Some(Bytes::ZERO), "a least length that nothing free has");
    for (wrong, what) in beside_fstrim(found) {
        check(!wrong, what);
    }
    check(found.name != "thin" || found.pool.as_ref().is_some_and(Pool::is_measured), "how full the pool is");
    wrong
}

/// Lists whether `trimtab trim` and the service do other than fstrim did, or say other than what came of it.
fn beside_fstrim(found: &Examined) -> [(bool, &'static str); 7] {
    let Examined { truth, trimmed, served, .. } = found;
    let is_later = COUNTED_LATER.contains(&found.name.as_str());
    // The service may also trim the file system below a loop device.
    let is_as_fstrim = |freed: i64| is_later || freed >= truth.freed - 10;
    // A file that came back was counted, or it is said that nothing counts it.
    let arrived = |freed: i64| freed >= 90 && !is_later;
    let told = |sent: &Sent| sent.bytes >= FILE || sent.reported_bytes >= FILE && !sent.uncounted.is_empty();
    let (is_off, is_failing) = (served.state == State::Off, served.state == State::Failing);
    // A steered file system sends its discards itself.
    let is_counted = !is_off && served.state != State::Steered;
    let takes_back = TAKEN_BACK.contains(&found.name.as_str());
    let is_blocked = served.unmanaged.as_deref() == Some("blocked");
    // It discards what it frees, and nobody else does.
    let loses_data = found.name == LOSES_DATA;
    let is_left = served.unmanaged.as_deref() == Some("loses_data") && trimmed.sent.is_none();
    [
        (loses_data && !is_left, "a trim that may lose data"),
        (!is_as_fstrim(trimmed.freed), "what trim gives back"),
        (
            arrived(trimmed.freed) && !loses_data && !trimmed.sent.as_ref().is_some_and(told),
            "what trim says that it sent, beside what came back",
        ),
        (truth.fstrim.is_none() && trimmed.sent.is_some(), "trim succeeds where fstrim fails"),
        (
            if is_off && !loses_data {
                is_blocked && (truth.freed >= 90 || takes_back)
            } else {
                !is_as_fstrim(served.freed)
            },
            "what the service gives back",
        ),
        (
            is_counted && arrived(served.freed) && served.trimmed < FILE && served.uncounted.is_empty(),
            "what the service says that it trimmed, beside what came back",
        ),
        (is_failing && trimmed.sent.is_some(), "the service fails where trim does not"),
    ]
}

impl Truth {
    /// Whether as much came back as `verdict` says. What a loop device's file gave back waits in the file
    /// system around it for the next trim.
    fn is(&self, verdict: Verdict) -> bool {
        match verdict {
            Verdict::Reaches => self.freed >= 90,
            Verdict::Partial => (10..90).contains(&self.freed) || self.image.is_some_and(|image| image >= 90),
            Verdict::Blocked => self.freed < 10 && self.image.is_none_or(|image| image < 10),
            Verdict::Unknown => true,
        }
    }
}

#[test]
fn disks_and_file_systems_are_diagnosed() {
    hold(&[
        reaches("ext4-nvme"),
        reaches("ext4-sata"),
        reaches("ext4-virtio-scsi"),
        reaches("ext4-virtio-blk"),
        mended(blocked("ext4-usb-storage", "usb", "usb-bridge")),
        mended(blocked("ext4-usb-zeroes", "usb", "provisioning-mode")),
        reaches("ext4-uas"),
        reaches("xfs"),
        reaches("xfs-log"),
        reaches("jfs"),
        reaches("jfs-log"),
        delayed("f2fs"),
        reaches("exfat"),
        reaches("fat"),
        mended(blocked("ntfs3", "ntfs3", "ntfs3-needs-discard")),
        reaches("ntfs3-discard"),
        // The program that serves it decides.
        Expected { verdict: Verdict::Unknown, canary: Verdict::Unknown, ..reaches("ntfs-3g") },
        delayed("nilfs2"),
        reaches("btrfs-two"),
        mended(partial("btrfs-mixed", "usb", "usb-bridge")),
        reaches("partition-63"),
    ]);
}

#[test]
fn encryption_and_volumes_are_diagnosed() {
    hold(&[
        mended(blocked("luks", "dm-crypt", "luks-no-discards")),
        reaches("luks-discards"),
        // The volume keeps the limit that its table was loaded with.
        mended(blocked("lvm-luks", "dm-crypt", "luks-no-discards")),
        mended(blocked("luks1", "dm-crypt", "luks-no-discards")),
        mended(blocked("plain", "dm-crypt", "luks-no-discards")),
        mended(blocked("tcrypt", "dm-crypt", "luks-no-discards")),
        mended(blocked("crypt", "dm-crypt", "luks-no-discards")),
        reaches("crypt-discards"),
        mended(blocked("integrity", "dm-integrity", "integrity-no-discards")),
        reaches("linear"),
        reaches("striped"),
        reaches("thin"),
        // What Stratis sets up, nobody else can change.
        blocked("stratis", "dm-thin-pool", "thin-no-passdown"),
        mended(blocked("thin-nopassdown", "dm-thin-pool", "thin-no-passdown")),
        mended(blocked("thin-ignore", "dm-thin-pool", "thin-no-passdown")),
        Expected {
            canary: Verdict::Blocked,
            truth: Verdict::Blocked,
            ..partial("thin-chunks", "dm-thin-pool", "thin-large-chunks")
        },
        mended(blocked("snapshot-origin", "dm-snapshot-origin", "thick-snapshot")),
        blocked("snapshot", "dm-snapshot", "thick-snapshot"),
        reaches("dm-raid1"),
        reaches("dm-mirror"),
        reaches("cache"),
        // The file was in the cache alone, which keeps its own blocks.
        Expected { truth: Verdict::Unknown, ..reaches("writecache") },
        reaches("era"),
    ]);
}

#[test]
fn arrays_loops_and_emulated_disks_are_diagnosed() {
    hold(&[
        reaches("md-raid0"),
        reaches("md-raid1"),
        mended(partial("md-mixed", "usb", "usb-bridge")),
        reaches("md-raid10"),
        mended(blocked("md-raid5", "md-raid5", "raid-parity")),
        reaches("md-raid5-safe"),
        reaches("lvm-luks-md"),
        mended(but_not_for_the_canary(partial("loop-ext4", "ext4", "nested-file-system"))),
        but_not_for_the_canary(partial("loop-xfs", "xfs", "nested-file-system")),
        reaches("loop-tmpfs"),
        blocked("loop-fat", "loop", "loop-no-holes"),
        blocked("null", "nullb", "device-no-discards"),
        reaches("null-discard"),
        reaches("zram"),
        reaches("debug-unmap"),
        reaches("debug-writesame"),
        blocked("debug-none", "scsi", "device-no-discards"),
        reaches("debug-odd"),
    ]);
}

#[test]
fn devices_that_count_no_discards_are_diagnosed() {
    let disks = format!("{DISKS} nvme-paths:512M");
    hold_on(&disks, &[reaches("nvme-paths"), reaches("nvme-paths-linear")]);
}

/// Disks of servers and targets, which are the kernel's own here.
#[test]
fn disks_on_the_network_are_diagnosed() {
    hold(&[
        reaches("nbd"),
        reaches("nvmet"),
        Expected { canary: Verdict::Blocked, truth: Verdict::Blocked, ..reaches("nbd-error") },
        reaches("drbd"),
        mended(blocked("lio", "scsi", "host-no-discards")),
        mended(blocked("lio-file", "scsi", "host-no-discards")),
        // Without a serial number, the kernel sends WRITE SAME, which the target rejects.
        mended(blocked("lio-tpu", "scsi", "provisioning-mode")),
        reaches("iostats-off"),
        reaches("xfs-realtime"),
        // The file lies on the data device, which takes none.
        mended(Expected {
            canary: Verdict::Blocked,
            truth: Verdict::Blocked,
            ..partial("xfs-realtime-mixed", "usb", "usb-bridge")
        }),
    ]);
}

/// The output of vm/swap for a swap.
#[derive(Debug, Deserialize)]
struct Swap {
    name: String,
    /// The KiB that turning it on gave back, before and after the fix.
    before: i64,
    after: i64,
    found: DoctorDocument,
    mended: DoctorDocument,
}

#[test]
fn fixes_of_swap_work() {
    let Some(output) = run(&["-d", "nvme:256M", "vm/swap", env!("CARGO_BIN_EXE_trimtab")]) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let swaps: Vec<Swap> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<_> = swaps.iter().map(|swap| swap.name.as_str()).collect();
    assert_eq!(names, ["disk", "encrypted"]);
    for (swap, id) in swaps.iter().zip(["swap-no-discard", "luks-no-discards"]) {
        let has = |document: &DoctorDocument| target(document).findings.iter().any(|found| found.id == id);
        assert!(has(&swap.found) && !has(&swap.mended), "{swap:#?}");
        assert_eq!(target(&swap.mended).verdict, Verdict::Reaches, "{swap:#?}");
        // It held 32 MiB of data.
        assert!(swap.before < 1024 && swap.after > 30 << 10, "{swap:#?}");
    }
}

#[test]
fn cached_disk_is_diagnosed() {
    hold(&[reaches("bcache")]);
}

#[test]
fn file_systems_of_newer_formatters_are_diagnosed() {
    // The guest has no network.
    let Some(fetched) = ran("vm/formatters", &[]) else { return };
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    let off = mended(blocked("bcachefs-off", "bcachefs", "bcachefs-no-discards"));
    hold(&[reaches("bcachefs"), off, blocked("vdo", "dm-vdo", "vdo-keeps-discards")]);
}
