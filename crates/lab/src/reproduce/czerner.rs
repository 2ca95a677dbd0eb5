//! L. Czerner's evaluation: patterns of discards, online and batched discards under PostMark, FITRIM, and the
//! programs that make, check and grow file systems.

mod claims;

use std::time::Duration;

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{Chart, ChartData, ChartPair, SizeSeries, Source};
use trimtab_core::policy::PolicyKind::{Batched, None as NoPolicy, Online};

use super::Definition;
use super::draft::{bars, source};
use super::measured::{Measured, over};
use super::model::{Pattern, pattern, random_writes, sweep};
use super::setup::Setup;
use crate::error::LabError;
use crate::fs::FileSystem::{Btrfs, Ext4, Xfs};
use crate::workload::{Maintenance, PostmarkOptions, WorkloadOptions};

/// The document.
const SLIDES: &str = "czerner";
/// The drive of the file systems, which is of the slides' time.
const DRIVE: &str = "corsair-performance-pro";
/// Its size: little more than the least that XFS takes.
const SIZE: Bytes = Bytes(320 << 20);
/// The pauses of PostMark: ext4 discards for less.
const PAUSE: Duration = Duration::from_secs(10);
/// From one read beside PostMark to the next: its steps are short.
const PROBE: Duration = Duration::from_millis(20);
/// Drives of several makers for `test-discard`.
const VENDORS: [&str; 4] = ["ocz-vertex-le", "corsair-performance-pro", "samsung-870-evo", "intel-p4500"];
/// The pieces of the patterns.
const PIECES: [Bytes; 5] =
    [Bytes(4 << 10), Bytes(16 << 10), Bytes(64 << 10), Bytes(256 << 10), Bytes(1 << 20)];
const PATTERNS: [(&str, Pattern); 3] =
    [("sequential", Pattern::Sequential), ("random", Pattern::Random), ("repeated", Pattern::Repeated)];

/// The experiment `czerner`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "patterns of discards on several drives; online and batched discards under PostMark; FITRIM's ranges and least \
              length; mkfs, fsck and resize with discards, each on an aged file system",
    sources: || {
        vec![Source {
            hardware: "not given in the text of the slides; their charts are not part of it".to_owned(),
            kernel: "2.6.36 to 2.6.39, by the versions named".to_owned(),
            url: Some("http://people.redhat.com/lczerner/discard/".to_owned()),
            ..source(
                SLIDES,
                "Performance evaluation of Linux Discard Support",
                "Lukáš Czerner, Red Hat",
                "2011-05-27",
                "slides",
            )
        }]
    },
    replaced: &[
        "The charts of the slides are not in their text: of their figures only the 18 % of ext4 under PostMark remain.",
        "test-discard's patterns are the flash model's, in model time, on drives of four makers.",
        "PostMark is trimtab's workload of that name, with 1000 files and 2000 transactions on an emulated \
         corsair-performance-pro of 320 MiB; the kernel is the guest's.",
        "File systems are aged by the workload aged in place of Impressions, with simpler distributions.",
        "Thin provisioning: the pages that the emulated drive holds stand for the blocks of a thin volume.",
    ],
    setups,
    model: |measured, _| model(measured),
    claims: claims::claims,
    charts,
};

fn setups() -> Vec<Setup> {
    let postmark =
        PostmarkOptions { files: Some(1000), transactions: Some(2000), ..PostmarkOptions::default() };
    let new = |name, policies: &[_], workload| Setup::new(name, DRIVE, policies, workload).sized(SIZE);
    let maintenance = WorkloadOptions::Maintenance;
    vec![
        new("postmark", &[NoPolicy, Online, Batched], WorkloadOptions::Postmark(postmark))
            .on(&[Ext4, Xfs, Btrfs])
            .probed(PROBE)
            .pausing(PAUSE),
        new("aged", &[NoPolicy, Online, Batched], WorkloadOptions::Aged),
        new("fitrim", &[NoPolicy], maintenance(Maintenance::Fitrim)).on(&[Ext4, Xfs]),
        new("mkfs", &[NoPolicy, Online], maintenance(Maintenance::Mkfs)).on(&[Ext4, Xfs, Btrfs]),
        new("fsck", &[NoPolicy, Online], maintenance(Maintenance::Fsck)),
        new("resize", &[NoPolicy, Online], maintenance(Maintenance::Resize)),
    ]
}

fn model(measured: &mut Measured) -> Result<(), LabError> {
    measured.sweeps = VENDORS.map(sweep).into_iter().collect::<Result<_, _>>()?;
    for vendor in VENDORS {
        for (name, kind) in PATTERNS {
            for piece in PIECES {
                measured.keep(format!("{vendor} {name} {}", piece.0), pattern(vendor, kind, piece)?);
            }
        }
    }
    for (name, used) in [("new", false), ("used", true)] {
        for (discarded, discards) in [("discarded", true), ("kept", false)] {
            measured.keep(format!("{name} {discarded}"), random_writes(DRIVE, used, discards)?.0);
        }
    }
    Ok(())
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let of = |published, measured| ChartPair { source: SLIDES.to_owned(), published, measured };
    let by_size = |title: &str, series| Chart {
        title: title.to_owned(),
        quantity: "time of a discard, model time".to_owned(),
        data: ChartData::BySize { series },
    };
    let modes = PATTERNS.map(|(name, _)| {
        let us = |piece: Bytes| {
            let rate = measured.figure(&format!("{} {name} {}", VENDORS[3], piece.0))?;
            Some((piece, piece.0 as f64 / (rate * f64::from(1 << 20)) * 1e6))
        };
        SizeSeries { name: name.to_owned(), points: PIECES.into_iter().filter_map(us).collect() }
    });
    let systems = ["ext4", "xfs", "btrfs"];
    let waited = |policy: &str| {
        let slower = |fs: &&str| {
            over(measured.run("postmark", fs, policy).waited(), measured.run("postmark", fs, "none").waited())
        };
        systems.iter().map(slower).collect::<Vec<_>>()
    };
    let made = |policy: &str| {
        systems.iter().map(|fs| measured.run("mkfs", fs, policy).time(&["mkfs"])).collect::<Vec<_>>()
    };
    vec![
        of(None, by_size("Difference between various vendors", measured.sweeps.clone())),
        of(None, by_size("Different modes comparison, Intel P4500", modes.to_vec())),
        of(
            Some(bars(
                "Ext4 performance (18 % hit)",
                "rate, none = 1",
                &["ext4"],
                vec![("none", vec![Some(1.0)]), ("online", vec![Some(0.82)])],
            )),
            bars(
                "PostMark by file system",
                "waited, none = 1, clock of the run",
                &systems,
                vec![("none", waited("none")), ("online", waited("online")), ("batched", waited("batched"))],
            ),
        ),
        of(
            None,
            bars(
                "File system creation",
                "s, clock of the run",
                &systems,
                vec![("no discard", made("none")), ("discard", made("online"))],
            ),
        ),
    ]
}
