//! Later changes to discards, in the words of their developers: btrfs's asynchronous discards, XFS's FITRIM, F2FS's
//! granularity, and the weekly fstrim of distributions.

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{ChartPair, Claim, Source};
use trimtab_core::policy::PolicyKind::{Async, Batched, None as NoPolicy, Online};

use super::Definition;
use super::draft::{bars, claim, order, source};
use super::measured::{Cell, Measured, over, plus};
use super::setup::Setup;
use crate::fs::FileSystem::{Btrfs, Ext4, F2fs, Xfs};
use crate::workload::WorkloadOptions;

/// The changes.
const BTRFS: &str = "btrfs-async";
const XFS: &str = "xfs-fstrim";
const F2FS: &str = "f2fs-granularity";
const TIMER: &str = "fedora-timer";
/// A fast drive of SATA, on which no limit is the drive's own.
const FAST: &str = "corsair-performance-pro";
/// A drive whose discards are slow.
const SLOW: &str = "ocz-vertex-le";
/// The size of the drives.
const SIZE: Bytes = Bytes(320 << 20);
/// F2FS's least discard, and the least of btrfs's lists.
const LEAST_F2FS: Bytes = Bytes(64 << 10);
const LEAST_BTRFS: Bytes = Bytes(32 << 10);
/// The steps that delete, and what the file system then still discards.
const DELETE: [&str; 2] = ["delete", "after-delete"];

/// The experiment `kernel-changes`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "the words of kernel developers on btrfs's discard=async, of FITRIM on XFS, and of F2FS's least discard; and of a distribution \
              on its weekly fstrim",
    sources: || {
        let of = |key, title, author, date, place, commit| Source {
            url: Some(format!("https://git.kernel.org/linus/{commit}")),
            hardware: "not given".to_owned(),
            ..source(key, title, author, date, place)
        };
        vec![
            Source {
                kernel: "5.6 and later".to_owned(),
                ..of(
                    BTRFS,
                    "Btrfs updates for 5.6; btrfs: have multiple discard lists; btrfs: auto enable discard=async when possible",
                    "David Sterba, Dennis Zhou",
                    "2020 to 2023",
                    "pull request of January 2020; commits 7fe6d45e4009 and 63a7cb130718",
                    "7fe6d45e4009",
                )
            },
            Source {
                kernel: "before and after the commit".to_owned(),
                hardware: "a Ceph volume of 10 TB".to_owned(),
                ..of(
                    XFS,
                    "xfs: reduce AGF hold times during fstrim operations",
                    "Dave Chinner",
                    "2023-10",
                    "commit 89cfa899608f",
                    "89cfa899608f",
                )
            },
            Source {
                kernel: "4.14".to_owned(),
                ..of(
                    F2FS,
                    "f2fs: introduce discard_granularity sysfs entry",
                    "Chao Yu",
                    "2017",
                    "commit 969d1b180d98",
                    "969d1b180d98",
                )
            },
            Source {
                kernel: "not given".to_owned(),
                url: Some("https://fedoraproject.org/wiki/Changes/EnableFSTrimTimer".to_owned()),
                hardware: "not given".to_owned(),
                ..source(
                    TIMER,
                    "Enable fstrim.timer by default",
                    "Chris Murphy",
                    "2019-12",
                    "proposal of a change in Fedora 32",
                )
            },
        ]
    },
    replaced: &[
        "The drives are the flash model with the profiles corsair-performance-pro (fast discards) and ocz-vertex-le (slow \
         ones), of 320 MiB.",
        "The kernel is the guest's: what held before a change is not measured, as emulated drives need a later kernel.",
    ],
    setups,
    model: |_, _| Ok(()),
    claims,
    charts,
};

fn setups() -> Vec<Setup> {
    let new =
        |name, profile, policies: &[_], workload| Setup::new(name, profile, policies, workload).sized(SIZE);
    let mut xfs = new("xfs", SLOW, &[], WorkloadOptions::Aged).on(&[Xfs]);
    xfs.policies.push("batched:2s".parse().expect("a policy"));
    vec![
        new("btrfs", FAST, &[Online, Async], WorkloadOptions::Fragment).on(&[Btrfs]),
        xfs,
        new("f2fs", FAST, &[Online], WorkloadOptions::Aged).on(&[F2fs]),
        new("timer", SLOW, &[NoPolicy, Batched], WorkloadOptions::Aged).on(&[Ext4]),
    ]
}

fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = btrfs(measured);
    claims.push(xfs(measured));
    claims.extend(f2fs(measured));
    claims.extend(timer(measured));
    claims
}

fn btrfs(measured: &Measured) -> Vec<Claim> {
    let run = |policy| measured.run("btrfs", "btrfs", policy);
    let (sync, later) = (run("online"), run("async"));
    let mean = |run: Cell| over(run.discarded(&DELETE), run.discards(&DELETE));
    vec![
        claim(
            BTRFS,
            "pull request, asynchronous discards, item 2",
            "Freed extents are not discarded at once, but later.",
        )
        .at_least(
            "discarded by async: after the delete over during it",
            "B",
            later.discarded(&["after-delete"]),
            plus(later.discarded(&["delete"]), Some(1.0)),
            4.0,
        )
        .at_least(
            "discards by sync: during the delete over after it",
            "discards",
            sync.discards(&["delete"]),
            plus(sync.discards(&["after-delete"]), Some(1.0)),
            4.0,
        )
        .judged(),
        claim(
            BTRFS,
            "pull request, asynchronous discards, items 2 and 3",
            "Freed extents are grouped; sync submits short ones.",
        )
        .larger("mean discard of the deletes: async over sync", "B", mean(later), mean(sync))
        .judged(),
        claim(
            BTRFS,
            "pull request, asynchronous discards, item 4",
            "The discards have left the commit, which is faster for it.",
        )
        .larger("deleting and syncing: sync over async", "s", sync.time(&["delete"]), later.time(&["delete"]))
        .judged(),
        claim(
            BTRFS,
            "commit 7fe6d45e4009",
            "Lists with least lengths, the lowest of 32 KiB, keep short extents from going first.",
        )
        .at_least(
            "discards of the deletes by async: of 32 KiB or more over shorter ones",
            "discards",
            later.discards_from(&DELETE, LEAST_BTRFS),
            plus(later.discards_below(&DELETE, LEAST_BTRFS), Some(1.0)),
            4.0,
        )
        .judged(),
        claim(BTRFS, "commit 63a7cb130718", "It is not intrusive, and waits for larger freed extents.")
            .larger(
                "longest read of others in the deletes: sync over async",
                "s",
                sync.longest_read(&DELETE),
                later.longest_read(&DELETE),
            )
            .because("It is judged by the longest read of one run, which differs from build to build of this program.")
            .judged(),
    ]
}

fn xfs(measured: &Measured) -> Claim {
    let trimmed = measured.run("xfs", "xfs", "batched:2s");
    claim(
        XFS,
        "description, paragraphs 1 and 3",
        "FITRIM held a lock for all of its discards, so that allocations and frees waited for it; now they go on beside it.",
    )
    .at_least(
        "the longest FITRIM over the longest deletes and creates beside it",
        "s",
        trimmed.longest_trim(),
        trimmed.longest("age"),
        2.0,
    )
    .because(
        "An extent cannot be allocated while it is discarded, as the commit says, and here most of the free space is at \
         once. A lock held for all of FITRIM would look the same, so that nothing measured here tells the two apart.",
    )
    .judged()
}

fn f2fs(measured: &Measured) -> Vec<Claim> {
    let online = measured.run("f2fs", "f2fs", "online");
    let aged = ["age", "after-ageing"];
    vec![
        claim(F2FS, "description, paragraph 2", "F2FS issues no discard shorter than 64 KiB by default.")
            .at_least(
                "discards of an ageing file system: of 64 KiB or more over shorter ones",
                "discards",
                online.discards_from(&aged, LEAST_F2FS),
                plus(online.discards_below(&aged, LEAST_F2FS), Some(1.0)),
                4.0,
            )
            .because(
                "F2FS takes a granularity of one block on volumes of at most 16 GiB (f2fs_tuning_parameters in fs/f2fs/super.c), \
                 as here.",
            )
            .judged(),
        claim(
            F2FS,
            "description, paragraph 1",
            "F2FS delays discards, as what is invalid soon becomes longer.",
        )
        .at_least(
            "discards after the deletes over those during them",
            "discards",
            online.discards(&["after-ageing"]),
            plus(online.discards(&["age"]), Some(1.0)),
            1.0,
        )
        .judged(),
    ]
}

fn timer(measured: &Measured) -> Vec<Claim> {
    let (never, batched) = (measured.ext4("timer", "none"), measured.ext4("timer", "batched"));
    let pause = ["after-ageing"];
    let place = "detailed description, paragraph 3";
    let longest = batched.longest_read(&pause);
    vec![
        claim(TIMER, place, "The weekly fstrim may be felt on drives that do not queue their TRIMs.")
            .larger(
                "longest read of others in a pause: with fstrim over without",
                "s",
                longest,
                never.longest_read(&pause),
            )
            .judged(),
        claim(TIMER, place, "What is felt is one pause of seconds.")
            .at_least("longest read of others beside fstrim: over a second", "s", longest, Some(1.0), 1.0)
            .shown(
                "The drive reads between two discards: others wait for one of them, and not for all.",
                vec![order(
                    "all of fstrim over the longest read beside it",
                    "s",
                    batched.longest_trim(),
                    longest,
                    4.0,
                )],
            )
            .judged(),
    ]
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let run = |policy| measured.run("btrfs", "btrfs", policy);
    let steps = ["delete", "after-delete", "write"];
    let mib = |policy: &'static str| {
        let of = |step: &&str| Some(run(policy).discarded(&[step])? / Bytes::MIB.0 as f64);
        (policy, steps.iter().map(of).collect::<Vec<_>>())
    };
    vec![ChartPair {
        source: BTRFS.to_owned(),
        published: None,
        measured: bars("btrfs: what is discarded when", "MiB", &steps, vec![mib("online"), mib("async")]),
    }]
}
