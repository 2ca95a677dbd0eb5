//! The simulations of `drives`, by name.
//!
//! Shapes are those that the documents state. Where one gives no amount of flash, the next power of two above the
//! drive's capacity is taken, in GiB or TiB.

use trimtab_core::profile::GcPolicy;

use super::simulation::{Host, Shape, Simulation};

/// The erase blocks of a drive whose document does not give their size: those of 1 GiB on a drive of 1 TiB.
const BLOCKS: u32 = 1024;
/// The same with blocks of twice the size.
const LARGE_BLOCKS: u32 = 512;
/// The part of a run that SSD-iq leaves out at its start.
const SETTLED: f64 = 0.6;
/// 2 TiB in bytes.
const TWO_TIB: f64 = 2_199_023_255_552.0;

/// The capacity of the Micron 7450 MAX of 800 GB, in GiB.
pub(super) const MAX_GIB: f64 = 745.212;
/// The capacity of the drives of 960 GB, in GiB.
pub(super) const PRO_GIB: f64 = 894.253;
/// Parts of a drive that get all writes.
pub(super) const PARTS: [f64; 5] = [0.8, 0.6, 0.4, 0.2, 0.1];
/// Exponents of Zipf distributions.
pub(super) const EXPONENTS: [f64; 5] = [0.2, 0.4, 0.6, 0.8, 1.0];
/// Parts of the writes to as large a part of the space from the other end.
pub(super) const SKEWS: [f64; 5] = [0.6, 0.7, 0.8, 0.9, 0.95];
/// Zones of 8 GiB that are written at once.
pub(super) const ACTIVE: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Zone sizes in GiB, one written at a time.
pub(super) const ZONES: [f64; 4] = [16.0, 4.0, 2.0, 1.0];
/// The used sizes of the Micron drives, in GiB.
pub(super) const FILLS: [f64; 7] = [372.606, 447.127, 521.648, 596.17, 670.691, MAX_GIB, PRO_GIB];
/// Parts of a cache's writes that are of small objects, where these are said to dominate.
pub(super) const SMALL_WRITES: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];
/// Used sizes of the Intel 320 in GiB, with the MiB/s that are published.
pub(super) const INTEL_320: [(f64, f64); 5] =
    [(10.0, 100.0), (70.0, 40.0), (100.0, 30.0), (120.0, 20.0), (140.0, 15.0)];
/// The flash that an Intel 320 of 160 GB may have, in GiB: nominal, and in the ratio of the one of 300 GB, which has 320.
pub(super) const INTEL_320_FLASH: [f64; 2] = [160.0, 170.6];
/// Over-provisioning of the drive beside the zoned one, in percent, with its capacity in bytes.
pub(super) const BESIDE_ZNS: [(u32, f64); 2] = [(28, 1.6e12), (7, 1.92e12)];
/// Used parts of the drive with discards of whole chunks.
pub(super) const CHUNKS: [f64; 2] = [0.5, 0.8];
/// The spare with which random writes amplify twofold.
pub(super) const TWOFOLD_SPARE: f64 = 0.276;

/// Every simulation, with its name.
pub(super) fn all() -> Vec<(String, Simulation)> {
    [ssd_iq(), skewed(), zoned(), caches(), others()].concat()
}

fn greedy(user: f64, flash: f64) -> Shape {
    Shape { user, flash, blocks: BLOCKS, gc: GcPolicy::Greedy }
}

/// The host on all of the drive for this number of rounds, measured after the part that SSD-iq leaves out.
fn settled(shape: Shape, host: Host, rounds: f64) -> Simulation {
    Simulation { shape, used: 1.0, host, rounds, skipped: SETTLED }
}

const UNIFORM: Host = Host::Uniform { pages: 1 };

/// Nominal flash of a drive of this capacity, in GiB.
fn nominal(user: f64) -> f64 {
    (user.log2().ceil()).exp2()
}

/// Fill sizes and parts at rest, as SSD-iq measures them.
fn ssd_iq() -> Vec<(String, Simulation)> {
    let fills = FILLS.map(|gib| {
        let shape = greedy(gib, nominal(PRO_GIB));
        (format!("fill {gib}"), settled(shape, UNIFORM, 4.0))
    });
    let mut all = fills.to_vec();
    for (user, gc) in
        [(MAX_GIB, GcPolicy::Greedy), (PRO_GIB, GcPolicy::Greedy), (PRO_GIB, GcPolicy::CostBenefit)]
    {
        let shape = Shape { gc, ..greedy(user, nominal(user)) };
        all.push((format!("uniform {user} {gc}"), settled(shape, UNIFORM, 5.0)));
        all.extend(PARTS.map(|part| {
            let rounds = if part == 0.1 { 5.0 } else { 7.0 };
            (format!("part {part} of {user} {gc}"), settled(shape, Host::Part(part), rounds))
        }));
    }
    all.push(("sequential".to_owned(), settled(greedy(PRO_GIB, nominal(PRO_GIB)), Host::Sequential, 1.0)));
    all
}

/// Skewed writes, as SSD-iq measures them.
fn skewed() -> Vec<(String, Simulation)> {
    let zipf = |user: f64, exponent: f64| {
        let host = Host::Zipf { exponent, real_pages: user * f64::from(1 << 18) };
        let rounds = if exponent == 1.0 { 6.0 } else { 5.0 };
        (format!("zipf {exponent} of {user}"), settled(greedy(user, nominal(user)), host, rounds))
    };
    let drives = [MAX_GIB, PRO_GIB, 1788.5, 3576.0];
    let mut all: Vec<_> =
        drives.iter().flat_map(|user| EXPONENTS.map(|exponent| zipf(*user, exponent))).collect();
    all.extend(SKEWS.into_iter().zip([5.0, 5.0, 6.0, 7.0, 8.0]).map(|(writes, rounds)| {
        let host = Host::TwoZones { writes, space: 1.0 - writes };
        (format!("skew {writes}"), settled(greedy(MAX_GIB, nominal(MAX_GIB)), host, rounds))
    }));
    all
}

/// Zones without discards, as SSD-iq measures them, and with, beside a zoned drive.
fn zoned() -> Vec<(String, Simulation)> {
    let mut all = Vec::new();
    for blocks in [LARGE_BLOCKS, BLOCKS] {
        let shape = Shape { blocks, ..greedy(MAX_GIB, nominal(MAX_GIB)) };
        let zones =
            |active, zone| settled(shape, Host::Zones { active, zone, discards: false, turns: false }, 4.0);
        all.extend(ACTIVE.map(|active| (format!("active {active} of {blocks}"), zones(active, 8.0))));
        all.extend(ZONES.map(|zone| (format!("zone {zone} of {blocks}"), zones(1, zone))));
    }
    let zone = 1077.0 * 1024.0 * 1024.0;
    for (percent, user) in BESIDE_ZNS {
        let flash = user * (1.0 + f64::from(percent) / 100.0);
        let shape = Shape { blocks: (flash / zone).round() as u32, ..greedy(user, flash) };
        all.extend([true, false].map(|turns| {
            let host = Host::Zones { active: 4, zone, discards: true, turns };
            (format!("zns {percent} {turns}"), settled(shape, host, 10.0))
        }));
    }
    all
}

/// CacheLib with and without handles; streams beside each other.
fn caches() -> Vec<(String, Simulation)> {
    let shape = Shape { blocks: (TWO_TIB / 6e9).round() as u32, ..greedy(1.88e12, TWO_TIB) };
    let mut all = Vec::new();
    for (used, small) in [(0.5, 0.04), (1.0, 0.04), (1.0, 0.64)] {
        for (handles, writes) in
            [true, false].iter().flat_map(|handles| SMALL_WRITES.map(|part| (*handles, part)))
        {
            let host = Host::Cache { small, writes, handles };
            let name = format!("cache {used} {small} {handles} {writes}");
            all.push((name, Simulation { used, ..settled(shape, host, 12.0) }));
        }
    }
    let eight_tib = 4.0 * TWO_TIB;
    all.extend([("stated", 1.0 - 7.68e12 / eight_tib), ("twofold", TWOFOLD_SPARE)].into_iter().flat_map(
        |(of, spare)| {
            [false, true].map(|handles| {
                let host = Host::Cache { small: 0.5, writes: 0.5, handles };
                (format!("streams {of} {handles}"), settled(greedy(1.0 - spare, 1.0), host, 8.0))
            })
        },
    ));
    all
}

/// The other documents.
fn others() -> Vec<(String, Simulation)> {
    let steady = |shape, used| Simulation { used, ..settled(shape, UNIFORM, 6.0) };
    let mut all = vec![
        ("warp a".to_owned(), steady(greedy(7.68e12, 4.0 * TWO_TIB), 1.0)),
        ("warp b".to_owned(), steady(greedy(3.84e12, 2.0 * TWO_TIB), 1.0)),
        ("fusionio".to_owned(), steady(greedy(298.02, 320.0), 1.0)),
    ];
    all.extend([0.5, 1.0].map(|used| (format!("kangaroo {used}"), steady(greedy(1.9e12, TWO_TIB), used))));
    all.extend([1.0, 0.8].map(|used| (format!("intel-710 {used}"), steady(greedy(186.26, 320.0), used))));
    // A run of an hour of 16 KiB at the published speed, measured once 2500 s have passed.
    for (flash, (gib, speed)) in INTEL_320_FLASH.iter().flat_map(|flash| INTEL_320.map(|of| (*flash, of))) {
        let simulation = Simulation {
            shape: greedy(149.01, flash),
            used: gib / 149.01,
            host: Host::Uniform { pages: 4 },
            rounds: speed * 3600.0 / 1024.0 / gib,
            skipped: 2500.0 / 3600.0,
        };
        all.push((format!("intel-320 {gib} of {flash}"), simulation));
    }
    let shape = Shape { blocks: (1.07e12 / f64::from(1 << 30)).round() as u32, ..greedy(1.0, 1.07) };
    for (used, uneven) in CHUNKS.iter().flat_map(|used| [false, true].map(|uneven| (*used, uneven))) {
        let host = Host::Threads { count: 16, uneven };
        let rounds = if uneven { 30.0 } else { 10.0 };
        all.push((format!("chunks {used} {uneven}"), Simulation { used, ..settled(shape, host, rounds) }));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn simulations_have_names_of_their_own() {
        let all = all();
        let names: BTreeSet<_> = all.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), all.len());
    }

    #[test]
    fn flash_that_no_document_gives_is_the_next_power_of_two() {
        for (user, flash) in [(MAX_GIB, 1024.0), (PRO_GIB, 1024.0), (1788.5, 2048.0), (3576.0, 4096.0)] {
            assert_eq!(nominal(user), flash);
        }
    }
}
