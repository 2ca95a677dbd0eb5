//! The claims of the other documents.

use trimtab_core::document::reproduce::Claim;

use super::cases::{BESIDE_ZNS, CHUNKS, INTEL_320, INTEL_320_FLASH, SMALL_WRITES};
use crate::reproduce::draft::claim;
use crate::reproduce::measured::Measured;

/// CacheLib on a drive with placement handles, as its users and its documentation report it.
pub(super) const FDP: &str = "fdp-caches";
/// The documentation of CacheLib.
pub(super) const CACHELIB: &str = "cachelib";
/// Two drives with placement handles.
pub(super) const WARP: &str = "warp";
/// Drives with and without zones.
pub(super) const ZNS: &str = "zns";
/// A flash cache for tiny objects.
pub(super) const KANGAROO: &str = "kangaroo";
/// Swap on a drive with zones.
pub(super) const ZNSWAP: &str = "znswap";
/// An Intel 320 by file size.
pub(super) const INTEL_320_POST: &str = "intel-320";
/// A card by file size.
pub(super) const FUSIONIO: &str = "fusionio";
/// The endurance that Intel states of its 710.
pub(super) const INTEL_710: &str = "intel-710";

/// Why a document's drive cannot be modelled more closely.
const NO_FLASH: &str = "the document does not state the drive's flash";

/// All of them.
pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims = vec![unseparated(measured), handles(measured), large_share(measured)];
    claims.extend([
        random(measured, "A", "7.68", 2.0, "27.6"),
        random(measured, "B", "3.84", 3.5, "14.9"),
        streams(measured),
        zns(measured),
        kangaroo(measured),
    ]);
    claims.extend([znswap(measured), intel_320(measured), fusionio(measured), intel_710(measured)]);
    claims
}

/// Amplification of CacheLib over the parts of writes that small objects may have.
fn cache(measured: &Measured, used: f64, small: f64, handles: bool) -> [Option<f64>; 5] {
    SMALL_WRITES.map(|writes| measured.figure(&format!("cache {used} {small} {handles} {writes}")))
}

fn least(values: [Option<f64>; 5]) -> Option<f64> {
    values.into_iter().reduce(|a, b| Some(a?.min(b?))).flatten()
}

fn most(values: [Option<f64>; 5]) -> Option<f64> {
    values.into_iter().reduce(|a, b| Some(a?.max(b?))).flatten()
}

fn unseparated(measured: &Measured) -> Claim {
    let at = |used| cache(measured, used, 0.04, false);
    claim(
        FDP,
        "Allison and others, 6.3 and Figure 6",
        "Samsung PM9D3 1.88 TB: amplification of a key-value cache without handles, 4 % of its space for small objects",
    )
    .also(CACHELIB, "Results with and without FDP")
    .drive("half of the drive, paper", 1.3, &at(0.5))
    .drive("half of the drive, documentation", 1.22, &at(0.5))
    .drive("all of the drive, paper", 3.5, &at(1.0))
    .drive("all of the drive, documentation", 3.22, &at(1.0))
    .larger("all of the drive over half", "", least(at(1.0)), most(at(0.5)))
    .judged()
}

fn handles(measured: &Measured) -> Claim {
    let at = |used, handles| cache(measured, used, 0.04, handles);
    claim(
        FDP,
        "Allison and others, 6.3 and Figure 6",
        "Samsung PM9D3 1.88 TB: the same with a handle for small and one for large objects",
    )
    .also(CACHELIB, "Results with and without FDP")
    .drive("half of the drive", 1.03, &at(0.5, true))
    .drive("all of the drive", 1.03, &at(1.0, true))
    .larger("all of the drive, without handles over with", "", least(at(1.0, false)), most(at(1.0, true)))
    .judged()
}

fn large_share(measured: &Measured) -> Claim {
    let at = |handles| cache(measured, 1.0, 0.64, handles);
    claim(
        FDP,
        "Allison and others, 6.5 and Figure 9",
        "Samsung PM9D3 1.88 TB: all of the drive, 64 % of the space for small objects: 2.5 with handles, above 3 without",
    )
    .drive("with handles", 2.5, &at(true))
    .drive("without, at least", 3.0, &at(false))
    .judged()
}

/// Random writes on one of two drives of `size` TB, and the spare in percent with which the model gives what was published.
fn random(measured: &Measured, drive: &str, size: &str, published: f64, spare: &str) -> Claim {
    claim(
        WARP,
        "Song and others, 3.2 and Figure 2",
        &format!("A drive of {size} TB: amplification of random writes of 128 KiB"),
    )
    .drive(
        &format!("drive {drive}"),
        published,
        &[measured.figure(&format!("warp {}", drive.to_lowercase()))],
    )
    .because(&format!("{NO_FLASH}; with {spare} % of spare the model gives {published:.1}"))
    .judged()
}

fn streams(measured: &Measured) -> Claim {
    let [mixed, apart] = [false, true].map(|handles| measured.figure(&format!("streams stated {handles}")));
    let spare = measured.figure("streams twofold false");
    claim(
        WARP,
        "Song and others, 3.2 and Figure 4",
        "A drive of 7.68 TB: one half written in order, the other at random, without handles and with one for each",
    )
    .drive("without handles", 2.4, &[mixed])
    .drive("with handles", 1.0, &[apart])
    .larger("without handles over with", "", mixed, apart)
    .because(&format!(
        "{NO_FLASH}, nor how much each half is written. More spare is not the reason: with 27.6 %, which gives its figure \
         of random writes, the model gives {} without handles. So this drive collects in a way that the model lacks",
        spare.map_or_else(|| "less".to_owned(), |spare| format!("{spare:.2}"))
    ))
    .judged()
}

fn zns(measured: &Measured) -> Claim {
    let model = |percent| [true, false].map(|turns| measured.figure(&format!("zns {percent} {turns}")));
    let mut draft = claim(
        ZNS,
        "Bjørling and others, 5.1 and Figure 5",
        "One drive of 2 TiB of flash: speed as a zoned one, 1010 MiB/s, over that as an ordinary one, with four zones of \
         1077 MiB written at once and each discarded before",
    );
    for ((percent, _), published) in BESIDE_ZNS.iter().zip([1010.0 / 590.0, 1010.0 / 370.0]) {
        draft = draft.drive(&format!("{percent} % over-provisioning"), published, &model(*percent));
    }
    let [large, small] = [28, 7].map(|percent| measured.figure(&format!("zns {percent} true")));
    draft.larger("7 % over 28 % of over-provisioning", "", small, large).judged()
}

fn kangaroo(measured: &Measured) -> Claim {
    let [half, all] = [0.5, 1.0].map(|used| measured.figure(&format!("kangaroo {used}")));
    claim(KANGAROO, "McAllister and others, 2.2 and Figure 2", "A drive of 1.9 TB: amplification of random writes of 4 KiB by its use")
        .drive("half of the drive", 1.0, &[half])
        .drive("all of the drive", 10.0, &[all])
        .larger("all of the drive over half", "", all, half)
        .because(&format!(
            "{NO_FLASH}, for which the model takes 2 TiB, nor whether its use is that of the flash; tenfold takes a spare \
             of 5 %"
        ))
        .judged()
}

fn znswap(measured: &Measured) -> Claim {
    let published = [2.0, 4.0];
    let model = |used| [false, true].map(|uneven| measured.figure(&format!("chunks {used} {uneven}")));
    let mut draft = claim(
        ZNSWAP,
        "Bergman and others, 3.2 and Figure 6",
        "A drive of 1 TB and 7 % over-provisioning: how many times as fast as in a part of it threads that write in order \
         are on a zoned one; each discards the next GiB before it writes it",
    );
    for (used, published) in CHUNKS.iter().zip(published) {
        draft = draft.drive(&format!("{used} of the drive"), published, &model(*used));
    }
    draft
        .because(
            "data of several threads that die in order cost no copies in the model, and few where threads differ in speed. \
             The model's drive discards a GiB at once. This one may take time for it, or unmap late, which is not modelled",
        )
        .judged()
}

fn intel_320(measured: &Measured) -> Claim {
    let mut draft = claim(
        INTEL_320_POST,
        "ssdperformanceblog.com, Intel 320, figures of throughput by file size",
        "Intel 320 160 GB: speed of random writes of 16 KiB in a file, after 2500 s, over that in one of 70 GiB, 40 MiB/s",
    );
    for (gib, speed) in INTEL_320.iter().filter(|(gib, _)| *gib != 70.0) {
        let model = INTEL_320_FLASH.map(|flash| {
            Some(
                measured.figure(&format!("intel-320 70 of {flash}"))?
                    / measured.figure(&format!("intel-320 {gib} of {flash}"))?,
            )
        });
        draft = draft.drive(&format!("{gib} GiB"), speed / 40.0, &model);
    }
    let [small, large] = [10.0, 140.0].map(|gib| measured.figure(&format!("intel-320 {gib} of 160")));
    draft
        .larger("140 GiB over 10 GiB, in pages programmed", "", large, small)
        .because(
            "in a file of 10 GiB the drive is faster by more than copies explain. The model compares amplifications, and has no \
             other cost that grows with the space in use, such as that of a scattered map",
        )
        .judged()
}

fn fusionio(measured: &Measured) -> Claim {
    let full = measured.figure("fusionio");
    claim(
        FUSIONIO,
        "ssdperformanceblog.com, FusionIO, summary of throughput by file size",
        "FusionIO 320 GB: speed of random writes in a small file, 500 MiB/s, over that of a full card, 110 to 120 MiB/s",
    )
    .drive("small file over full card", 500.0 / 115.0, &[full])
    .because(&format!("{NO_FLASH}, for which the model takes 320 GiB; with 11.8 % of spare it gives 4.3"))
    .judged()
}

fn intel_710(measured: &Measured) -> Claim {
    let [all, part] = [1.0, 0.8].map(|used| measured.figure(&format!("intel-710 {used}")));
    let ratio = (|| Some(all? / part?))();
    claim(
        INTEL_710,
        "Shimpi, Total Bytes Written & Spare Area",
        "Intel 710 200 GB, 320 GB of flash: stated endurance with 20 % more spare, 1.5 PB, over that without, 1.0 PB",
    )
    .drive("with 20 % more spare", 1.5, &[ratio])
    .larger("longer with more spare", "", all, part)
    .because(
        "an endurance that a maker states is no measured amplification. With 41 % of the flash as spare the model writes 1.4 \
         pages for each; the document names twelve, so that most of this flash serves another purpose than cleaning",
    )
    .judged()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_that_is_measured_in_part_has_no_least() {
        assert_eq!(least([Some(1.0); 5]), Some(1.0));
        assert_eq!(most([Some(1.0), Some(2.0), Some(1.0), Some(1.0), Some(1.0)]), Some(2.0));
        assert_eq!(least([Some(1.0), None, Some(1.0), Some(1.0), Some(1.0)]), None);
    }
}
