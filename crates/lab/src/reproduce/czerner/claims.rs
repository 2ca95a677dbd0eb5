//! The claims of L. Czerner's slides, slide by slide.

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{Claim, Order};

use super::super::draft::{MORE, NEW_DRIVE, PER_COMMAND, SAME, claim, order};
use super::super::measured::{Measured, over, plus};
use super::{DRIVE, SIZE, SLIDES, VENDORS};

/// The steps of PostMark that work on files, but for the first, which the state of the drive at the beginning slows.
const FILES: [&str; 2] = ["transactions", "delete"];
/// The pauses of PostMark in which FITRIM runs.
const PAUSES: [&str; 2] = ["after-create", "after-transactions"];
/// The two halves of FITRIM's range.
const HALVES: [&str; 2] = ["trim-front", "trim-back"];

pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = background(measured);
    claims.extend(performance(measured));
    claims.extend(file_systems(measured));
    claims.extend(batched(measured));
    claims.extend(programs(measured));
    claims
}

/// MiB a second of a pattern of discards.
fn rate(measured: &Measured, vendor: &str, pattern: &str, piece: u64) -> Option<f64> {
    measured.figure(&format!("{vendor} {pattern} {piece}"))
}

fn background(measured: &Measured) -> Vec<Claim> {
    let aged = |policy| measured.ext4("aged", policy);
    let model = |name: &str| measured.figure(name);
    vec![
        claim(SLIDES, "ATA TRIM Command", "TRIM helps with the overhead of garbage collection.")
            .larger("random writes on a used drive: without discards over with", "s", model("used kept"), model("used discarded"))
            .judged(),
        claim(SLIDES, "ATA TRIM Command", "As long as the drive has enough free pages, TRIM is not needed.")
            .alike("random writes on a new drive: without discards over with", "s", model("new kept"), model("new discarded"), SAME)
            .follows(NEW_DRIVE)
            .judged(),
        claim(
            SLIDES,
            "ATA TRIM Command; SCSI UNMAP / WRITE SAME",
            "What was discarded reads the same each time, and never as data of another address.",
        )
        .because(
            "A rule of the standards: every run read its live files back as written, but no discarded block was read; \
             `trimtab bench --verify` does that.",
        )
        .judged(),
        claim(SLIDES, "Thin Provisioning; SCSI UNMAP / WRITE SAME", "Discards give the space of deleted files back to a thin volume.")
            .at_least("held for nothing at the end: none over online", "B", aged("none").stale(), aged("online").stale(), 4.0)
            .at_least("held for nothing at the end: none over batched", "B", aged("none").stale(), aged("batched").stale(), MORE)
            .judged(),
    ]
}

fn performance(measured: &Measured) -> Vec<Claim> {
    let vertex = VENDORS[0];
    let mib = Bytes::MIB.0;
    let of = |vendor, pattern, piece| rate(measured, vendor, pattern, piece);
    let model = |name: &str| measured.figure(name);
    vec![
        claim(SLIDES, "Sequential discard performance", "The rate of discards grows with their size.")
            .larger("MiB/s in sequence, 1 MiB over 4 KiB, Corsair", "MiB/s", of(DRIVE, "sequential", mib), of(DRIVE, "sequential", 4096))
            .larger("MiB/s in sequence, 1 MiB over 4 KiB, Vertex LE", "MiB/s", of(vertex, "sequential", mib), of(vertex, "sequential", 4096))
            .follows(PER_COMMAND)
            .judged(),
        claim(SLIDES, "Different modes comparison", "Sequential, random and repeated discards are compared.")
            .because(
                "The slide is a chart that is not in the text, so that nothing says which is larger. The chart here shows the \
                 three; most profiles know no difference, as nothing published says how their drives differ.",
            )
            .judged(),
        claim(SLIDES, "Difference between various vendors", "Drives of different vendors differ in the speed of discards.")
            .at_least("MiB/s of 64 KiB in sequence, Corsair over Vertex LE", "MiB/s", of(DRIVE, "sequential", 64 << 10), of(vertex, "sequential", 64 << 10), 2.0)
            .follows("the profiles' costs of a command")
            .judged(),
        claim(SLIDES, "SSD performance degradation", "A drive's performance degrades as it fills with stale data.")
            .larger("time of a write: used drive over new one, a page", "s", model("used kept").map(|s| s / 8.0), model("new kept"))
            .judged(),
        claim(SLIDES, "Discard Batching - The idea", "Small extents are slow to discard.")
            .larger("MiB/s in sequence: 1 MiB over 16 KiB", "MiB/s", of(DRIVE, "sequential", mib), of(DRIVE, "sequential", 16 << 10))
            .follows(PER_COMMAND)
            .judged(),
        claim(SLIDES, "Discard Batching - The idea, disadvantage 2", "Discarding already discarded blocks should be easy, but...")
            .because(
                "The slide leaves open what follows. These drives take the same time for a discard whatever its blocks hold, so \
                 nothing here can tell.",
            )
            .judged(),
    ]
}

/// ext4 discards after the file operations.
fn in_background(measured: &Measured) -> Order {
    let online = measured.run("postmark", "ext4", "online");
    order(
        "discards of ext4: in the pauses over in the file operations",
        "discards",
        online.discards(&PAUSES),
        plus(online.discards(&FILES), Some(1.0)),
        2.0,
    )
}

fn file_systems(measured: &Measured) -> Vec<Claim> {
    let run = |fs, policy| measured.run("postmark", fs, policy);
    // The drive of batched has no stale data to collect meanwhile; none's drive has some.
    let slower = |fs| over(run(fs, "online").time(&FILES), run(fs, "batched").time(&FILES));
    // Without one of them there is no worst or best.
    let all: Vec<_> =
        ["ext4", "xfs", "btrfs"].into_iter().map(slower).collect::<Option<_>>().unwrap_or_default();
    let (worst, best) =
        (all.iter().copied().max_by(f64::total_cmp), all.iter().copied().min_by(f64::total_cmp));
    vec![
        claim(SLIDES, "Periodic discard", "TRIM is not queued: what does that imply? Others wait for it.")
            .larger(
                "longest read of others in PostMark: online over batched, ext4",
                "s",
                run("ext4", "online").longest_read(&FILES),
                run("ext4", "batched").longest_read(&FILES),
            )
            .judged(),
        claim(SLIDES, "Ext4 performance (18% hit)", "Online discards cost ext4 18 % of its performance under PostMark.")
            .figure("time that online adds to the file operations, for each second of batched", "s", 1.0 / 0.82 - 1.0, slower("ext4").map(|ratio| ratio - 1.0))
            .larger("time of the file operations: online over batched, ext4", "s", run("ext4", "online").time(&FILES), run("ext4", "batched").time(&FILES))
            .shown(
                "Since Linux 5.15 ext4 discards in a background worker, so that file operations rarely wait; another file \
                 system still makes them wait.",
                vec![
                    in_background(measured),
                    order(
                        "what online adds to the file operations: the worst file system over ext4",
                        "",
                        worst,
                        slower("ext4"),
                        MORE,
                    ),
                ],
            )
            .judged(),
        claim(SLIDES, "Performance with various file systems", "The cost of online discards differs by file system.")
            .larger("time of the file operations, online over batched: worst over best", "", worst, best)
            .judged(),
    ]
}

fn batched(measured: &Measured) -> Vec<Claim> {
    let run = |fs, policy| measured.run("postmark", fs, policy);
    let aged = |policy| measured.ext4("aged", policy);
    let fitrim = |fs| measured.run("fitrim", fs, "none");
    let beside_files = |fs| run(fs, "batched").longest_read(&["create", "transactions", "delete"]);
    let beside_trims = |fs| run(fs, "batched").longest_read(&PAUSES);
    // While files come and go. After the last delete ext4's worker discards the rest of the free space behind each
    // freed extent, the same space again and again.
    let mean = |policy| {
        let lived = ["transactions", "after-transactions"];
        over(run("ext4", policy).discarded(&lived), run("ext4", policy).discards(&lived))
    };
    vec![
        claim(SLIDES, "Discard Batching - The idea", "Fine-grained discards are not needed: batches free the drive as well.")
            .at_least("erases on an aged file system: none over batched", "erases", aged("none").all_erases(), aged("batched").all_erases(), SAME)
            .at_least("rate of the write to an aged file system: batched over online", "B/s", aged("batched").rate("write"), aged("online").rate("write"), 0.9)
            .judged(),
        claim(SLIDES, "Discard Batching - The idea", "With time, freed extents coalesce.")
            .larger("mean discard of the transactions on ext4: batched over online", "B", mean("batched"), mean("online"))
            .judged(),
        claim(SLIDES, "Batched discard benchmark results", "Batched discards cost less than online ones.")
            .larger("time of the file operations: online over batched, ext4", "s", run("ext4", "online").time(&FILES), run("ext4", "batched").time(&FILES))
            .larger("time of the file operations: online over batched, XFS", "s", run("xfs", "online").time(&FILES), run("xfs", "batched").time(&FILES))
            .shown(
                "Since Linux 5.15 ext4 discards in a background worker, mostly while nobody waits; XFS makes file operations wait.",
                vec![
                    in_background(measured),
                    order("time of the file operations: online over batched, XFS", "s", run("xfs", "online").time(&FILES), run("xfs", "batched").time(&FILES), MORE),
                ],
            )
            .judged(),
        claim(SLIDES, "Batched discard support", "FITRIM disturbs other I/O little.")
            .at_least("longest read of others: beside file operations over beside FITRIM, ext4", "s", beside_files("ext4"), beside_trims("ext4"), 1.0)
            .at_least("longest read of others: beside file operations over beside FITRIM, XFS", "s", beside_files("xfs"), beside_trims("xfs"), 1.0)
            .because("A read each 20 ms meets each of the five FITRIMs once or twice.")
            .judged(),
        claim(SLIDES, "Batched discard support", "FITRIM has to keep blocks from being allocated while they are trimmed.")
            .because(
                "Seen in other comparisons as operations that find no space while ext4 or btrfs trims (`no_space` in the \
                 documents); these runs leave room enough.",
            )
            .judged(),
        claim(SLIDES, "FITRIM ioctl", "FITRIM takes a range: two halves together discard what is free, each its own part.")
            .at_least("discarded by both halves over the larger half, ext4", "B", fitrim("ext4").discarded(&HALVES), max(fitrim("ext4").discarded(&["trim-front"]), fitrim("ext4").discarded(&["trim-back"])), MORE)
            .at_least("discarded by both halves over the larger half, XFS", "B", fitrim("xfs").discarded(&HALVES), max(fitrim("xfs").discarded(&["trim-front"]), fitrim("xfs").discarded(&["trim-back"])), MORE)
            .judged(),
        claim(SLIDES, "FITRIM ioctl", "FITRIM takes a least length: shorter free extents are passed over.")
            .larger("mean discard on XFS: least length 1 MiB over none", "B", over(fitrim("xfs").discarded(&["trim-large"]), fitrim("xfs").discards(&["trim-large"])), over(fitrim("xfs").discarded(&["trim-again"]), fitrim("xfs").discards(&["trim-again"])))
            .larger("discards on XFS: no least length over 1 MiB", "discards", fitrim("xfs").discards(&["trim-again"]), fitrim("xfs").discards(&["trim-large"]))
            .judged(),
    ]
}

fn max(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a?.max(b?))
}

fn programs(measured: &Measured) -> Vec<Claim> {
    let mkfs = |fs, policy| measured.run("mkfs", fs, policy);
    let (fsck, resize) = (|policy| measured.ext4("fsck", policy), |policy| measured.ext4("resize", policy));
    let one = Some(1.0);
    let [half, quarter, eighth] = [2.0, 4.0, 8.0].map(|part| Some(SIZE.0 as f64 / part));
    vec![
        claim(SLIDES, "Discard in e2fsprogs tools, mke2fs", "mke2fs discards the device, which refreshes the drive's garbage collection.")
            .at_least("discarded by mkfs.ext4, over half of the drive", "B", mkfs("ext4", "online").discarded(&["mkfs"]), half, 1.0)
            .at_least("write after mkfs.ext4: with discard over without", "B/s", mkfs("ext4", "online").rate("write"), mkfs("ext4", "none").rate("write"), SAME)
            .judged(),
        claim(
            SLIDES,
            "Discard in e2fsprogs tools, mke2fs",
            "Where discarded data reads as zeros, mke2fs is much faster with discard, as it need not write zeros.",
        )
        .larger("bytes written by mkfs.ext4: without discard over with", "B", mkfs("ext4", "none").written(&["mkfs"]), mkfs("ext4", "online").written(&["mkfs"]))
        .shown(
            "Since Linux 4.12 (commit 48920ff2a5a9) BLKDISCARDZEROES always answers no: mke2fs writes its zeros in both cases, and the discard is \
             on top. Its time says nothing here: the file system before it was aged with discards in one case and without in the other.",
            vec![order(
                "bytes written by mkfs.ext4: with discard over without",
                "B",
                mkfs("ext4", "online").written(&["mkfs"]),
                mkfs("ext4", "none").written(&["mkfs"]),
                SAME,
            )],
        )
        .judged(),
        claim(SLIDES, "File system creation", "mkfs of xfsprogs and btrfs-progs discards too.")
            .at_least("discarded by mkfs.xfs, over half of the drive", "B", mkfs("xfs", "online").discarded(&["mkfs"]), half, 1.0)
            .at_least("discarded by mkfs.btrfs, over half of the drive", "B", mkfs("btrfs", "online").discarded(&["mkfs"]), half, 1.0)
            .judged(),
        claim(SLIDES, "Discard in e2fsprogs tools, e2fsck", "e2fsck -E discard discards the free space after its last check.")
            .at_least("discarded by e2fsck, over a quarter of the drive", "B", fsck("online").discarded(&["fsck"]), quarter, 1.0)
            .larger("discards of e2fsck: with the option over without", "discards", fsck("online").discards(&["fsck"]), plus(fsck("none").discards(&["fsck"]), one))
            .larger("time of e2fsck: with the option over without", "s", fsck("online").time(&["fsck"]), fsck("none").time(&["fsck"]))
            .judged(),
        claim(SLIDES, "Discard in e2fsprogs tools, resize2fs", "resize2fs -E discard discards the space that it adds.")
            .at_least("discarded by resize2fs, over an eighth of the drive", "B", resize("online").discarded(&["resize"]), eighth, 1.0)
            .shown(
                "The resize2fs of today has no option -E: next to nothing is discarded meanwhile, while mkfs.ext4 of the same package does.",
                vec![order(
                    "discarded before the resize by mkfs.ext4, and by resize2fs",
                    "B",
                    resize("online").discarded(&["mkfs"]),
                    plus(resize("online").discarded(&["resize"]), one),
                    10.0,
                )],
            )
            .judged(),
        claim(SLIDES, "Discard in e2fsprogs tools, resize2fs", "Discards give resize2fs a significant speed boost.")
            .larger("time of resize2fs: without discards over with", "s", resize("none").time(&["resize"]), resize("online").time(&["resize"]))
            .shown(
                "resize2fs has no discards today that could make it faster: it writes the same in both cases.",
                vec![order(
                    "bytes written by resize2fs: with the policy online over none",
                    "B",
                    resize("online").written(&["resize"]),
                    resize("none").written(&["resize"]),
                    SAME,
                )],
            )
            .judged(),
        claim(SLIDES, "Fstrim tool", "fstrim discards what is free on a mounted file system.")
            .larger("discarded by fstrim, over nothing", "B", measured.ext4("aged", "batched").discarded(&["start"]), Some(1_048_576.0))
            .judged(),
    ]
}
