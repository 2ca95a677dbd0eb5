//! Published measurements of drives: amplification and speed by utilisation, spare and placement, beside the bare
//! flash model. Nothing is fitted: shapes are those that the documents state, or the next power of two.

mod cases;
mod documents;
mod simulation;
mod ssd_iq;

use std::sync::Mutex;
use std::thread;

use trimtab_core::Bytes;
use trimtab_core::document::reproduce::{ChartPair, Claim, Source};
use trimtab_core::interrupt::Interrupt;

use self::cases::{FILLS, PARTS, all};
use self::documents::{CACHELIB, FDP, FUSIONIO, INTEL_320_POST, INTEL_710, KANGAROO, WARP, ZNS, ZNSWAP};
use self::ssd_iq::{FILL_AMPLIFICATION, SSD_IQ, at_rest, published_at_rest};
use super::Definition;
use super::draft::{bars, source};
use super::measured::Measured;
use crate::error::LabError;
use trimtab_linux::environment::processors;

/// The experiment `drives`.
pub(super) const DEFINITION: Definition = Definition {
    summary: "published amplification and speed of drives by utilisation, spare and placement, beside the flash model",
    sources,
    replaced: &[
        "Drives are the flash model's mapping, without time: speeds are compared by the pages programmed for each that the host \
         writes. It has 1024 erase blocks, or as many as the document's block size gives, of 256 pages.",
        "Nothing is fitted. Where a document gives no amount of flash, the model takes the next power of two; where it \
         leaves something else open, the model's figure is a range, and the nearest value in it is compared.",
        "Figures count as met within 15 %.",
    ],
    setups: Vec::new,
    model,
    claims,
    charts,
};

fn sources() -> Vec<Source> {
    let of =
        |key: &str, title: &str, author: &str, date: &str, place: &str, url: &str, hardware: &str| Source {
            url: Some(url.to_owned()),
            hardware: hardware.to_owned(),
            kernel: "not given".to_owned(),
            ..source(key, title, author, date, place)
        };
    vec![
        of(
            SSD_IQ,
            "SSD-iq: Uncovering the Hidden Side of SSD Performance",
            "G. Haas, B. Lee, P. Bonnet and V. Leis",
            "2025",
            "PVLDB 18(11); its data, folder paper/",
            "https://github.com/gabriel-haas/ssdiq-pub",
            "seven NVMe drives of 800 GB to 3.84 TB",
        ),
        of(
            FDP,
            "Towards Efficient Flash Caches with Emerging NVMe Flexible Data Placement SSDs",
            "M. Allison and others",
            "2025",
            "EuroSys 2025, arXiv 2503.11665",
            "https://arxiv.org/abs/2503.11665",
            "Samsung PM9D3 1.88 TB, reclaim units of 6 GB",
        ),
        of(
            CACHELIB,
            "FDP enabled cache",
            "CacheLib's documentation",
            "undated",
            "website/docs/Cache_Library_User_Guides/FDP_enabled_Cache.md",
            "https://cachelib.org/docs/Cache_Library_User_Guides/FDP_enabled_Cache",
            "a drive of 1.88 TB with FDP",
        ),
        of(
            WARP,
            "Characterizing and Emulating FDP SSDs with WARP",
            "I. Song and others",
            "2026",
            "FAST 2026",
            "https://github.com/MoatLab/FEMU",
            "drive A of 7.68 TB and drive B of 3.84 TB, not named",
        ),
        of(
            ZNS,
            "ZNS: Avoiding the Block Interface Tax for Flash-based SSDs",
            "M. Bjørling and others",
            "2021",
            "USENIX ATC 2021",
            "https://www.usenix.org/conference/atc21/presentation/bjorling",
            "a drive of 2 TiB of flash, zoned or ordinary",
        ),
        Source {
            url: None,
            ..of(
                KANGAROO,
                "Kangaroo: Caching Billions of Tiny Objects on Flash",
                "S. McAllister and others",
                "2021",
                "SOSP 2021",
                "",
                "a drive of 1.9 TB",
            )
        },
        of(
            ZNSWAP,
            "ZNSwap: un-Block your Swap",
            "S. Bergman and others",
            "2022",
            "USENIX ATC 2022",
            "https://www.usenix.org/conference/atc22/presentation/bergman",
            "a drive of 1 TB, zoned or ordinary with 7 % over-provisioning",
        ),
        of(
            INTEL_320_POST,
            "Intel 320 SSD random write performance",
            "ssdperformanceblog.com",
            "2011-06",
            "post",
            "http://www.ssdperformanceblog.com/2011/06/intel-320-ssd-random-write-performance/",
            "Intel 320 160 GB",
        ),
        of(
            FUSIONIO,
            "FusionIO 320GB MLC random write performance",
            "ssdperformanceblog.com",
            "2011-06",
            "post",
            "http://www.ssdperformanceblog.com/2011/06/fusionio-320gb-mlc-random-write-performance/",
            "FusionIO 320 GB MLC",
        ),
        of(
            INTEL_710,
            "The Intel SSD 710 (200GB) Review",
            "A. L. Shimpi",
            "2011-09-30",
            "AnandTech, page 3",
            "https://www.anandtech.com/show/4902/intel-ssd-710-200gb-review/3",
            "Intel 710 200 GB, 320 GB of flash",
        ),
    ]
}

/// Runs every simulation, on as many threads as there are processors, until the user interrupts.
fn model(measured: &mut Measured, interrupt: &Interrupt) -> Result<(), LabError> {
    let simulations = all();
    let next = Mutex::new(simulations.iter());
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..processors() {
            scope.spawn(|| {
                while !interrupt.is_set()
                    && let Some((name, simulation)) = next.lock().ok().and_then(|mut next| next.next())
                {
                    let result = (name, simulation.amplification());
                    if let Ok(mut done) = done.lock() {
                        done.push(result);
                    }
                }
            });
        }
    });
    for (name, result) in done.into_inner().unwrap_or_default() {
        let value = result.map_err(|source| LabError::Geometry {
            profile: name.clone(),
            size: Bytes::ZERO,
            source,
        })?;
        measured.keep(name, value);
    }
    Ok(())
}

fn claims(measured: &Measured) -> Vec<Claim> {
    [ssd_iq::claims(measured), documents::claims(measured)].concat()
}

fn charts(measured: &Measured) -> Vec<ChartPair> {
    let gib: Vec<String> = FILLS[..6].iter().map(|gib| format!("{gib:.0} GiB")).collect();
    let gib: Vec<&str> = gib.iter().map(String::as_str).collect();
    let filled = FILLS[..6].iter().map(|gib| measured.figure(&format!("fill {gib}"))).collect();
    let published = FILL_AMPLIFICATION.map(Some).to_vec();
    let parts: Vec<String> = PARTS.iter().map(|part| part.to_string()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let pair =
        |published, measured| ChartPair { source: SSD_IQ.to_owned(), published: Some(published), measured };
    vec![
        pair(
            bars(
                "Micron 7450 MAX: random writes by the size in use",
                "amplification",
                &gib,
                vec![("published", published)],
            ),
            bars("Random writes by the size in use", "amplification", &gib, vec![("model", filled)]),
        ),
        pair(
            bars(
                "Random writes to a part of the pages, over those to all",
                "times the speed",
                &parts,
                published_at_rest(),
            ),
            bars(
                "Random writes to a part of the pages, over those to all",
                "times the speed",
                &parts,
                vec![
                    ("greedy", at_rest(measured, "greedy")),
                    ("cost-benefit", at_rest(measured, "cost-benefit")),
                ],
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_above_15_percent_has_a_reason_and_no_other_claim_has_one() {
        let mut measured = Measured::default();
        model(&mut measured, &Interrupt::never()).unwrap();
        let claims = claims(&measured);
        let mut within = 0;
        for claim in &claims {
            let figures = &claim.figures;
            assert!(figures.iter().all(|figure| figure.measured.is_some()), "{}", claim.says);
            let off = figures.iter().filter(|figure| !figure.is_close()).count();
            within += figures.len() - off;
            assert_eq!(claim.reason.is_some(), off > 0, "{}: {off} are off", claim.says);
        }
        let figures: usize = claims.iter().map(|claim| claim.figures.len()).sum();
        assert!(within * 4 >= figures * 3, "{within} of {figures} figures are within 15 %");
    }
}
