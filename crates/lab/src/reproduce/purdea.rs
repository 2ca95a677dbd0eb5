//! A. Purdea's measurement of TRIM by size, and of a kernel tree's delete on ext4 and XFS.

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{
    Chart, ChartData, ChartPair, Claim, FigureClock, SizeSeries, Source,
};
use trimtab_core::policy::PolicyKind::Online;

use super::Definition;
use super::draft::{MORE, claim, order, source};
use super::measured::{Cell, Measured, over};
use super::model::{SECTOR, random_writes, sweep, unmapped};
use super::setup::Setup;
use crate::error::LabError;
use crate::fs::FileSystem::{Ext4, Xfs};
use crate::workload::WorkloadOptions;

/// The document.
const PAGE: &str = "purdea";
/// The profiles of its two drives, and a later one beside them.
const AGILITY: &str = "ocz-agility-3";
const CORSAIR: &str = "corsair-performance-pro";
const LATER: &str = "samsung-870-evo";
/// Files of the tree here: a quarter of the kernel's.
const FILES: u32 = 9176;
/// Files of the tree that is deleted without merging, where each is a discard that takes a while.
const FEWER_FILES: u32 = 2294;
/// The steps of a delete: what returns, and what the file system then still discards.
const DELETE: [&str; 2] = ["delete", "sync-deleted"];
const DISCARDS: [&str; 3] = ["delete", "sync-deleted", "after-delete"];
/// Said of how XFS and ext4 differ here.
const MERGED: &str = "XFS submits a discard for each extent that it frees, and a recent kernel merges adjacent ones before \
                      they reach the drive. The same delete with merging turned off shows it. The XFS of the document \
                      waited for each of them (commit e84661aa84e2), so that none could be merged.";

/// The experiment `purdea-sizes`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "the time of a discard by its size on three drives, and the discards of ext4 and XFS while a kernel tree \
              is deleted",
    sources: || {
        vec![Source {
            hardware: "OCZ Agility 3 (firmware 2.15), Corsair Performance Pro".to_owned(),
            kernel: "3.1".to_owned(),
            url: Some("http://purdea.ro/projects/trim_perf/".to_owned()),
            ..source(
                PAGE,
                "Measure the performance of the TRIM command on your SSD",
                "Purdea Andrei",
                "undated",
                "web page, © 2009",
            )
        }]
    },
    replaced: &[
        "The two drives are the flash model with the profiles ocz-agility-3 and corsair-performance-pro; a samsung-870-evo \
         stands beside them. The sweep is in model time, with one command at a time as trim_perf sends them.",
        "The tree has the shape of a kernel tree with 9176 files, a quarter of Linux 2.6.39's, on drives of 512 MiB; \
         without merging it has 2294.",
        "ext4 and XFS run on the guest's kernel, not on 3.1: ext4 discards in the background there, and adjacent discards \
         are merged, except in the runs named \"without merging\".",
    ],
    setups: || {
        let on_both = |name, profile, files| {
            let tree = WorkloadOptions::Tree { source: None, files: Some(files) };
            Setup::new(name, profile, &[Online], tree).on(&[Ext4, Xfs])
        };
        vec![
            on_both("agility", AGILITY, FILES),
            on_both("corsair", CORSAIR, FILES),
            on_both("agility, unmerged", AGILITY, FEWER_FILES).unmerged(),
            on_both("corsair, unmerged", CORSAIR, FEWER_FILES).unmerged(),
        ]
    },
    model: |measured, _| model(measured),
    claims,
    charts,
};

fn model(measured: &mut Measured) -> Result<(), LabError> {
    measured.sweeps = [AGILITY, CORSAIR, LATER].map(sweep).into_iter().collect::<Result<_, _>>()?;
    measured.keep("unmapped below 4 KiB", unmapped(AGILITY, Bytes(2048))?);
    for (name, discards) in [("discarded", true), ("kept", false)] {
        measured.keep(name, random_writes(CORSAIR, true, discards)?.0);
    }
    Ok(())
}

/// Microseconds of a discard of this size by the sweep of a profile.
fn microseconds(measured: &Measured, profile: &str, size: Bytes) -> Option<f64> {
    let line = measured.sweeps.iter().find(|line| line.name == profile)?;
    line.points.iter().find(|(of, _)| *of == size).map(|(_, us)| *us)
}

fn claims(measured: &Measured) -> Vec<Claim> {
    let us = |profile, size| microseconds(measured, profile, size);
    let run = |setup, fs| measured.run(setup, fs, "online");
    let (agility_ext4, agility_xfs) = (run("agility", "ext4"), run("agility", "xfs"));
    let corsair = |fs| run("corsair", fs);
    let unmerged = |fs| run("agility, unmerged", fs);
    let (unmerged_ext4, unmerged_xfs) = (unmerged("ext4"), unmerged("xfs"));
    let for_each = |files, count: Option<f64>| count.map(|count| count / f64::from(files));
    let mean = |run: Cell| over(run.discarded(&DISCARDS), run.discards(&DISCARDS));
    let kib = |bytes: Option<f64>| bytes.map(|bytes| bytes / 1024.0);
    let swept: Option<f64> =
        measured.sweeps.first().map(|line| line.points.iter().map(|(size, _)| size.gib()).sum());
    vec![
        claim(PAGE, "paragraph 1", "Blocks that are not discarded slow the drive's writes down over time.")
            .larger(
                "random writes on a full drive, without discards over with",
                "s",
                measured.figure("kept"),
                measured.figure("discarded"),
            )
            .judged(),
        claim(PAGE, "paragraph 3", "The Agility 3 ignores a TRIM of less than 4 KiB, and takes 10 ms for it all the same.")
            .by(FigureClock::Model, "a TRIM of 2 KiB", "ms", 10.0, us(AGILITY, Bytes(2048)).map(|us| us / 1e3))
            .fitted("ocz-agility-3's cost of a command")
            .by(
                FigureClock::None,
                "bytes that a TRIM of 2 KiB unmaps, and 1 more, as nothing compares with zero",
                "B",
                1.0,
                measured.figure("unmapped below 4 KiB").map(|bytes| 1.0 + bytes),
            )
            .fitted("ocz-agility-3's honoured granularity")
            .judged(),
        claim(
            PAGE,
            "paragraph 4",
            "trim_perf discards from 2 GiB down to one sector, each half as large as the one before: about 4 GiB in all.",
        )
        .number("discarded in a sweep", "GiB", 4.0, swept)
        .fitted("the sweep here was made so")
        .judged(),
        claim(PAGE, "paragraphs 3 and 5; chart", "The Agility 3 is more than 100 times slower than the Corsair at small discards.")
            .by(
                FigureClock::Model,
                "a discard of 4 KiB, Agility 3 over Corsair",
                "",
                100.0,
                over(us(AGILITY, Bytes(4096)), us(CORSAIR, Bytes(4096))),
            )
            .fitted("corsair-performance-pro's cost of a command is chosen by this ratio")
            .judged(),
        claim(
            PAGE,
            "paragraph 5",
            "On the Agility 3, deleting a kernel tree takes about 1 s on ext4 and more than 6 minutes on XFS.",
        )
        .figure("deleting the tree, XFS over ext4", "", 360.0, over(agility_xfs.time(&DELETE), agility_ext4.time(&DELETE)))
        .at_least("deleting the tree: XFS over ext4", "s", agility_xfs.time(&DELETE), agility_ext4.time(&DELETE), 5.0)
        .shown(
            MERGED,
            vec![order(
                "drive busy with discards, without merging: XFS over ext4",
                "s",
                unmerged_xfs.busy(&DISCARDS),
                unmerged_ext4.busy(&DISCARDS),
                5.0,
            )],
        )
        .judged(),
        claim(PAGE, "paragraph 5", "The Corsair performs well with both file systems.")
            .at_least(
                "deleting the tree on the Corsair: ext4 over XFS",
                "s",
                corsair("ext4").time(&DELETE),
                corsair("xfs").time(&DELETE),
                0.1,
            )
            .at_least(
                "the same without merging, which the kernels of that time did not do",
                "s",
                run("corsair, unmerged", "ext4").time(&DELETE),
                run("corsair, unmerged", "xfs").time(&DELETE),
                0.1,
            )
            .judged(),
        claim(
            PAGE,
            "paragraph 6",
            "XFS discards many small pieces, of 13.2 KiB on average; ext4 discards few large ones, of 21 MiB.",
        )
        .number("mean discard of XFS", "KiB", 13.2, kib(mean(agility_xfs)))
        .number("mean discard of ext4", "KiB", 43_036.0 / 2.0, kib(mean(agility_ext4)))
        .larger("mean discard: ext4 over XFS", "B", mean(agility_ext4), mean(agility_xfs))
        .shown(
            MERGED,
            vec![order("mean discard, without merging: ext4 over XFS", "B", mean(unmerged_ext4), mean(unmerged_xfs), MORE)],
        )
        .judged(),
        claim(PAGE, "paragraph 6", "XFS sends 1641 times as many discards as ext4.")
            .number(
                "discards, XFS over ext4",
                "",
                1641.0,
                over(agility_xfs.discards(&DISCARDS), agility_ext4.discards(&DISCARDS)),
            )
            .larger(
                "discards: XFS over ext4",
                "discards",
                agility_xfs.discards(&DISCARDS),
                agility_ext4.discards(&DISCARDS),
            )
            .shown(
                MERGED,
                vec![
                    order(
                        "discards without merging: XFS over ext4",
                        "discards",
                        unmerged_xfs.discards(&DISCARDS),
                        unmerged_ext4.discards(&DISCARDS),
                        MORE,
                    ),
                    order(
                        "discards of XFS for each file: without merging over with",
                        "discards",
                        for_each(FEWER_FILES, unmerged_xfs.discards(&DISCARDS)),
                        for_each(FILES, agility_xfs.discards(&DISCARDS)),
                        MORE,
                    ),
                ],
            )
            .judged(),
    ]
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let line =
        |name: &str, points: &[(Bytes, f64)]| SizeSeries { name: name.to_owned(), points: points.to_vec() };
    let chart = |title: &str, quantity: &str, series| Chart {
        title: title.to_owned(),
        quantity: quantity.to_owned(),
        data: ChartData::BySize { series },
    };
    let small = [(SECTOR, 10e3), (Bytes(4096), 10e3)];
    vec![ChartPair {
        source: PAGE.to_owned(),
        published: Some(chart(
            "Comparison of my two SSDs: what the text gives of the chart",
            "time of a TRIM",
            vec![
                line("OCZ Agility 3: 10 ms", &small),
                line("Corsair: more than 100 times less", &small.map(|(size, us)| (size, us / 100.0))),
            ],
        )),
        measured: chart(
            "Time of a discard by size",
            "time of a discard, model time",
            measured.sweeps.clone(),
        ),
    }]
}
