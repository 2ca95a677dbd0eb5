//! Datalight's fragmentation tests: what deletes cost, the write after them, and erases, by policy.

mod claims;

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{ChartPair, Source};
use trimtab_core::policy::PolicyKind::{Batched, None as NoPolicy, Online, Smart};

use super::Definition;
use super::draft::{bars, source};
use super::measured::Measured;
use super::model::{in_pieces, random_writes};
use super::setup::Setup;
use crate::error::LabError;
use crate::fs::FileSystem::{Ext4, Xfs};
use crate::workload::{Maintenance, WorkloadOptions};

/// The document.
const PAPER: &str = "datalight";
/// The profiles of its drives.
const SSD: &str = "micron-m500it";
const EMMC: &str = "micron-emmc";
/// The size of the drives.
const SIZE: Bytes = Bytes(512 << 20);
/// The steps that delete, and what a policy then still does.
const DELETE: [&str; 2] = ["delete", "after-delete"];
/// The policies of the charts, and the original's names of them.
const COLUMNS: [(&str, &str); 4] =
    [("none", "none"), ("online", "online"), ("batched", "batched"), ("smart", "smart")];

/// A page that announces the paper and links it.
const ANNOUNCEMENT: &str = "https://www.embeddedcomputing.com/application/misc/best-use-of-discards-to-improve-flash-storage-performance-2";

/// The experiment `datalight`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "fill the drive, delete that, write fragmented files, delete them, write one large file: on an SSD and an \
              eMMC, by policy",
    sources: || {
        vec![Source {
            hardware: "Micron M500IT SSD, size not given; Pandaboard with Micron eMMC".to_owned(),
            kernel: "4.4 (SSD), 4.1 (eMMC)".to_owned(),
            url: Some(ANNOUNCEMENT.to_owned()),
            ..source(
                PAPER,
                "Optimizing Trim Commands to Improve Flash Storage Performance in Embedded Systems",
                "Datalight",
                "undated",
                "white paper, announced 2017-06-14",
            )
        }]
    },
    replaced: &[
        "The drives are the flash model with the profiles micron-m500it and micron-emmc, of 512 MiB; the paper does not \
         give the size of its drives, the number of its files or their extents.",
        "Reliance Nitro is not available: the column smart is trimtab's service on ext4, which like it defers discards \
         until they are larger or the drive is idle. The column batched is fstrim, which the paper discusses and \
         does not measure.",
        "ext4 runs on the guest's kernel, which since Linux 5.15 discards in a background worker; the kernels of the \
         paper waited for each discard. XFS, which still waits, stands beside it.",
        "A pause of one minute follows the deletes, in which batched, smart and ext4's worker discard.",
    ],
    setups,
    model: |measured, _| model(measured),
    claims: claims::claims,
    charts,
};

fn setups() -> Vec<Setup> {
    let fragment = |name, profile, policies: &[_]| {
        Setup::new(name, profile, policies, WorkloadOptions::Fragment).sized(SIZE)
    };
    let fitrim = WorkloadOptions::Maintenance(Maintenance::Fitrim);
    let mut ssd = fragment("ssd", SSD, &[NoPolicy, Online, Batched, Smart]);
    ssd.policies.push("batched:1h".parse().expect("a policy"));
    vec![
        ssd,
        fragment("emmc", EMMC, &[NoPolicy, Online, Batched, Smart]),
        fragment("ssd-xfs", SSD, &[NoPolicy, Online]).on(&[Xfs]),
        fragment("ssd-large", SSD, &[Batched]).sized(Bytes(768 << 20)),
        Setup::new("fitrim", SSD, &[NoPolicy], fitrim).on(&[Ext4, Xfs]),
    ]
}

fn model(measured: &mut Measured) -> Result<(), LabError> {
    for (name, used) in [("new", false), ("used", true)] {
        for (discarded, discards) in [("discarded", true), ("kept", false)] {
            let (seconds, waf) = random_writes(SSD, used, discards)?;
            measured.keep(format!("{name} {discarded} s"), seconds);
            measured.keep(format!("{name} {discarded} waf"), waf);
        }
    }
    measured.keep("small discards", in_pieces(SSD, Bytes(64 << 10))?);
    measured.keep("large discards", in_pieces(SSD, Bytes(4 << 20))?);
    Ok(())
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let original = ["ext4, none", "ext4, online", "Nitro, smart"];
    let ours: Vec<&str> = COLUMNS.iter().map(|(_, name)| *name).collect();
    let per_policy = |setup: &str, of: fn(&Measured, &str, &str) -> Option<f64>| {
        COLUMNS.iter().map(|(policy, _)| of(measured, setup, policy)).collect::<Vec<_>>()
    };
    let delete = per_policy("ssd", |measured, setup, policy| measured.ext4(setup, policy).time(&["delete"]));
    let xfs: Vec<_> =
        COLUMNS.iter().map(|(policy, _)| measured.run("ssd-xfs", "xfs", policy).time(&["delete"])).collect();
    let write = |setup: &str| {
        per_policy(setup, |measured, setup, policy| {
            Some(measured.ext4(setup, policy).rate("write")? / Bytes::MIB.0 as f64)
        })
    };
    let erases = |steps: &'static [&'static str]| {
        COLUMNS.iter().map(|(policy, _)| measured.ext4("emmc", policy).erases(steps)).collect::<Vec<_>>()
    };
    let of =
        |published, measured| ChartPair { source: PAPER.to_owned(), published: Some(published), measured };
    vec![
        of(
            bars(
                "Figures 2 and 3: deleting the fragmented files",
                "s",
                &original,
                vec![("published", vec![Some(200.0), Some(4.0 * 3600.0), Some(349.0)])],
            ),
            bars(
                "Deleting the fragmented files",
                "s, clock of the run",
                &ours,
                vec![("ext4", delete), ("XFS", xfs)],
            ),
        ),
        of(
            bars(
                "Figures 2 and 3: the write afterwards",
                "MiB/s",
                &original,
                vec![(
                    "published",
                    [609e3, 18e6, 18e6].map(|rate| Some(rate / Bytes::MIB.0 as f64)).to_vec(),
                )],
            ),
            bars(
                "The write afterwards",
                "MiB/s, clock of the run",
                &ours,
                vec![("SSD", write("ssd")), ("eMMC", write("emmc"))],
            ),
        ),
        of(
            bars(
                "Figure 4: erases of the eMMC",
                "erases",
                &original,
                vec![("published", [41_740.0, 27_843.0, 22_199.0].map(Some).to_vec())],
            ),
            bars(
                "Erases of the eMMC by part of the test",
                "erases",
                &ours,
                vec![
                    ("fill and clear", erases(&["fill", "clear"])),
                    ("fragment", erases(&["fragment"])),
                    ("delete", erases(&DELETE)),
                    ("write", erases(&["write"])),
                ],
            ),
        ),
    ]
}
