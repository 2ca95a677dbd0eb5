//! P. Nagel's kernel tree on ext4 with and without discards, and what the comments on it report.

mod claims;

use std::ffi::OsString;

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{ChartPair, Source};
use trimtab_core::policy::PolicyKind::{Batched, None as NoPolicy, Online, Smart};

use super::Definition;
use super::draft::{bars, source};
use super::measured::Measured;
use super::model::{SECTOR, random_writes, sequential_waf, writes_at};
use super::setup::Setup;
use crate::error::LabError;
use crate::fs::FileSystem::Xfs;
use crate::workload::WorkloadOptions;
use crate::workload::tree_files;

/// The post with its comments, and the post in the list of the blog.
const POST: &str = "nagel-comments";
const BLOG: &str = "nagel-post";
/// The profiles of the drives of the post and of its comments.
const VERTEX: &str = "ocz-vertex-le";
const AGILITY: &str = "ocz-agility-3";
const CORSAIR: &str = "corsair-performance-pro";
/// Files of the tree here: an eighth of the original's.
const FILES: u32 = 4588;
/// The size of the other drives.
const SIZE: Bytes = Bytes(320 << 20);
/// Discards after the steps of the delete count too.
const DISCARDS: [&str; 3] = ["delete", "sync-deleted", "after-delete"];
/// The size of the drive on which the script runs.
const SCRIPT_SIZE: Bytes = Bytes(160 << 20);
/// The unit in which the drive of the post counts what was written, beside its file system: 64 of 88.5 GiB.
const COARSE: Bytes = Bytes(SCRIPT_SIZE.0 / 885 * 640);

/// Writes and deletes many files, and trims when more was written than is free: P. Nagel's idea for a script.
/// Its arguments are the directory, and the unit in sectors of the count of what was written; 0 never trims.
const SCRIPT: &str = r#"
set -eu
dir=$1 unit=$2
source=$(df --output=source "$dir" | tail -n 1)
stat=/sys/block/${source##*/}/stat
written() { set -- $(cat "$stat"); echo $(($7 / unit * unit)); }
[ "$unit" = 0 ] || last=$(written)
for round in 1 2 3 4 5 6 7 8 9 10; do
    head -c 50M /dev/zero | split -b 128K - "$dir/$round-"
    sync
    rm -f "$dir/$round-"*[acegikmoqsuwy]
    before=$((round - 2))
    rm -f "$dir/$before-"*
    sync
    [ "$unit" != 0 ] || continue
    free=$(($(df --output=avail -B 512 "$dir" | tail -n 1)))
    if [ $(($(written) - last)) -ge "$free" ]; then
        fstrim "$dir"
        last=$(written)
    fi
done
"#;

/// The experiment `nagel-tree`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "unpack, sync, delete and sync a kernel tree with and without discards; fstrim of a file system that is 60 % \
              full; the script that trims when more was written than is free",
    sources: || {
        let of = |key, place, url: &str| Source {
            url: Some(url.to_owned()),
            hardware: "OCZ Vertex LE 100 GB (firmware 1.32), AMD Phenom II X4 965".to_owned(),
            kernel: "2.6.39.2".to_owned(),
            ..source(
                key,
                "Impact of ext4's discard option on my SSD",
                "Patrick Nagel",
                "updated 2011-07-08",
                place,
            )
        };
        vec![
            of(POST, "web page with comments of 2011 to 2015", "https://patrick-nagel.net/blog/archives/337"),
            of(
                BLOG,
                "the same post in the list of the blog, without comments",
                "https://patrick-nagel.net/blog/archives/category/ssd",
            ),
        ]
    },
    replaced: &[
        "The drive is the flash model with the profile ocz-vertex-le; its cost of a discard is fitted to the 40 s and the \
         six minutes of the post. Other drives of the comments are ocz-agility-3 (for the Vertex 2) and \
         corsair-performance-pro (for the Crucial M4, which has the same controller, and for a fast drive).",
        "The tree has the shape of the kernel's with 4588 files, an eighth of the original's, on a drive of 320 MiB; the script \
         runs on one of 160 MiB.",
        "ext4 runs on the guest's kernel, which since Linux 5.15 discards in a background worker; that of 2.6.39 discarded \
         while the journal committed, and sync waited for it. XFS, whose log waits, stands beside it.",
        "Kernels of that time waited for each discard, so that none could be merged with its neighbours: merging is turned \
         off for the tree.",
        "Trimming at shutdown is the FITRIM of the policy batched at the pause after the delete: its time is what the \
         shutdown takes longer.",
        "The script reads what was written from the kernel's count in place of the SMART value, rounded as the drive's.",
    ],
    setups,
    model: |measured, _| model(measured),
    claims: claims::claims,
    charts,
};

fn setups() -> Vec<Setup> {
    let tree = |name, profile, policies: &[_]| {
        Setup::new(name, profile, policies, WorkloadOptions::Tree { source: None, files: Some(FILES) })
            .sized(SIZE)
    };
    let aged = |name, profile, policies: &[_]| {
        Setup::new(name, profile, policies, WorkloadOptions::Aged).sized(SIZE)
    };
    let script = |name, unit: u64| {
        let words = ["sh", "-c", SCRIPT, "script", "{dir}", &unit.to_string()].map(OsString::from);
        Setup::new(name, VERTEX, &[NoPolicy], WorkloadOptions::Exec { command: words.to_vec() })
            .sized(SCRIPT_SIZE)
    };
    vec![
        tree("tree", VERTEX, &[NoPolicy, Online, Batched, Smart]),
        tree("tree-xfs", VERTEX, &[NoPolicy, Online]).on(&[Xfs]),
        tree("agility", AGILITY, &[NoPolicy, Online]),
        tree("agility-xfs", AGILITY, &[NoPolicy, Online]).on(&[Xfs]),
        tree("corsair", CORSAIR, &[NoPolicy, Online]),
        aged("aged", VERTEX, &[NoPolicy, Online, Batched]),
        aged("aged-fast", CORSAIR, &[NoPolicy, Online, Batched]),
        script("script-never", 0),
        script("script-exact", 1),
        script("script-coarse", COARSE.0 / SECTOR.0),
    ]
}

/// How many times the tree of the post is larger than the one here.
fn scale() -> f64 {
    f64::from(tree_files()) / f64::from(FILES)
}

fn model(measured: &mut Measured) -> Result<(), LabError> {
    for (name, discards) in [("discarded", true), ("kept", false)] {
        measured.keep(name, random_writes(VERTEX, true, discards)?.0);
    }
    measured.keep("sequential", sequential_waf(VERTEX)?);
    measured.keep("random", random_writes(VERTEX, true, false)?.1);
    measured.keep("aligned", writes_at(AGILITY, Bytes::ZERO)?);
    // A partition that begins at sector 63.
    measured.keep("misaligned", writes_at(AGILITY, Bytes(63 * SECTOR.0 % 4096))?);
    Ok(())
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let steps = ["unpack", "sync-unpacked", "delete", "sync-deleted"];
    let names = ["unpack", "sync", "delete", "sync after it"];
    let ours = |fs: &str, policy: &str| {
        let setup = if fs == "xfs" { "tree-xfs" } else { "tree" };
        let cell = measured.run(setup, fs, policy);
        steps.iter().map(|step| Some(cell.time(&[step])? * scale())).collect::<Vec<_>>()
    };
    let published = |values: [f64; 4]| values.map(Some).to_vec();
    let chart = bars(
        "Kernel tree on ext4",
        "s",
        &names,
        vec![
            ("without discard", published([1.21, 1.66, 0.47, 0.17])),
            ("with discard", published([1.18, 1.62, 0.48, 40.41])),
        ],
    );
    let here = bars(
        "Kernel tree here, times eight for a tree of its size",
        "s, clock of the run",
        &names,
        vec![
            ("ext4, none", ours("ext4", "none")),
            ("ext4, online", ours("ext4", "online")),
            ("XFS, none", ours("xfs", "none")),
            ("XFS, online", ours("xfs", "online")),
        ],
    );
    [POST, BLOG]
        .map(|source| ChartPair {
            source: source.to_owned(),
            published: Some(chart.clone()),
            measured: here.clone(),
        })
        .to_vec()
}
