//! The claims of SSD-iq's data: seven drives, by the files of its repository.
//!
//! Its runs fill a drive in order and then write at random; amplification is what the drive's counters of flash and of
//! host bytes say of the last 40 % of a run, speed the mean of that part.

use trimtab_core::document::reproduce::Claim;

use super::cases::{ACTIVE, EXPONENTS, FILLS, MAX_GIB, PARTS, PRO_GIB, SKEWS};
use crate::reproduce::draft::{Draft, MORE, claim, order};
use crate::reproduce::measured::Measured;

/// The key of the document.
pub(super) const SSD_IQ: &str = "ssd-iq";
/// Erase blocks of 2 and of 1 GiB: the document does not state their size.
const BLOCKS: [u32; 2] = [512, 1024];

/// A drive's speeds, in MiB/s.
struct Speeds {
    name: &'static str,
    /// Its capacity, in GiB.
    user: f64,
    /// The file with its runs, of four threads.
    file: &'static str,
    /// Random writes to all of it.
    uniform: f64,
    /// Random writes to each of [`PARTS`].
    parts: [f64; 5],
    /// Zipf distributions of [`EXPONENTS`].
    zipf: [f64; 5],
}

impl Speeds {
    /// The capacity of the drive that stands for it: those whose capacity is as large a part of a power of two within 0.03 %
    /// have one simulation.
    fn simulated(&self) -> f64 {
        if self.user == MAX_GIB { MAX_GIB } else { PRO_GIB }
    }

    /// A claim on its runs of a pattern.
    fn claim(&self, pattern: &str, says: &str) -> Draft {
        let files = format!(
            "SSD-iq, finalwa14/iob-stats-id0-{}-finalwa14rozipf.csv to id3, pattern {pattern}",
            self.file
        );
        claim(SSD_IQ, &files, &format!("{}: {says}", self.name))
    }
}

/// Amplification of random writes on a Micron 7450 MAX by how much of it is used, for each of [`FILLS`] but the last.
pub(super) const FILL_AMPLIFICATION: [f64; 6] = [1.110, 1.173, 1.279, 1.410, 1.601, 1.890];

const DRIVES: [Speeds; 7] = [
    Speeds {
        name: "Micron 7450 PRO 960 GB",
        user: PRO_GIB,
        file: "m0",
        uniform: 368.0,
        parts: [356.0, 333.0, 321.0, 314.0, 1004.0],
        zipf: [366.0, 357.0, 343.0, 327.0, 394.0],
    },
    Speeds {
        name: "Micron 7450 MAX 800 GB",
        user: MAX_GIB,
        file: "mp0",
        uniform: 623.0,
        parts: [586.0, 586.0, 468.0, 1064.0, 1347.0],
        zipf: [618.0, 602.0, 576.0, 558.0, 554.0],
    },
    Speeds {
        name: "Kioxia CM7-R 3.84 TB",
        user: 3576.0,
        file: "k4",
        uniform: 1286.0,
        parts: [1242.0, 1178.0, 1135.0, 1049.0, 2990.0],
        zipf: [1266.0, 1254.0, 1209.0, 1163.0, 1424.0],
    },
    Speeds {
        name: "SK hynix PE8110 960 GB",
        user: PRO_GIB,
        file: "h0",
        uniform: 326.0,
        parts: [320.0, 306.0, 298.0, 313.0, 622.0],
        zipf: [328.0, 323.0, 316.0, 307.0, 448.0],
    },
    Speeds {
        name: "Samsung PM9A3 960 GB",
        user: PRO_GIB,
        file: "s0",
        uniform: 279.0,
        parts: [279.0, 274.0, 183.0, 261.0, 577.0],
        zipf: [279.0, 279.0, 278.0, 259.0, 396.0],
    },
    Speeds {
        name: "Solidigm D7-P5520 1.92 TB",
        user: 1788.5,
        file: "i1",
        uniform: 507.0,
        parts: [506.0, 545.0, 634.0, 870.0, 656.0],
        zipf: [454.0, 447.0, 432.0, 441.0, 555.0],
    },
    Speeds {
        name: "WD 960 GB, model not given",
        user: PRO_GIB,
        file: "wd",
        uniform: 184.0,
        parts: [186.0, 218.0, 272.0, 357.0, 432.0],
        zipf: [184.0, 183.0, 182.0, 196.0, 335.0],
    },
];

/// Why a drive's flash is not known.
const SPARE: &str = "the document does not state the drive's flash, for which the model takes the next power of two. With 14.9 % of spare in \
                     place of 12.7 % it amplifies 3.5 times";
/// Drives that get faster, the less of their data changes.
const APART: &str = "the drive is as fast as one that keeps data at rest apart from data that change. The model's greedy collection does \
                     not keep them apart, its cost-benefit collection does";

/// All of them.
pub(super) fn claims(measured: &Measured) -> Vec<Claim> {
    let mut claims =
        vec![fills(measured), fill_speeds(measured), uniform(measured), zipf_amplification(measured)];
    claims.extend(DRIVES.iter().map(|drive| parts(measured, drive)));
    claims.extend(DRIVES.iter().map(|drive| zipf(measured, drive)));
    claims.extend([skews(measured), active(measured), zones(measured)]);
    claims
}

/// How many times as fast as random writes to all of a drive others are, by their amplification.
fn speed(measured: &Measured, uniform: &str, other: &str) -> Option<f64> {
    Some(measured.figure(uniform)? / measured.figure(other)?)
}

fn fills(measured: &Measured) -> Claim {
    let draft = claim(
        SSD_IQ,
        "SSD-iq, finalop02b/iob-log-mp0op02.csv, pattern uniform",
        "Micron 7450 MAX 800 GB: amplification of random writes by how much of the drive is used",
    );
    let draft = FILLS.iter().zip(FILL_AMPLIFICATION).fold(draft, |draft, (gib, published)| {
        draft.drive(&format!("{gib} GiB"), published, &[measured.figure(&format!("fill {gib}"))])
    });
    draft.judged()
}

fn fill_speeds(measured: &Measured) -> Claim {
    let published = [1117.0, 995.0, 882.0, 760.0, 626.0, 368.0];
    let least = format!("fill {}", FILLS[0]);
    let draft = claim(
        SSD_IQ,
        "SSD-iq, finalop02b/iob-stats-id0-m0op02.csv to id3, pattern uniform",
        "Micron 7450 PRO 960 GB: speed of random writes over that with 372.6 GiB in use, 1222 MiB/s",
    );
    let draft = FILLS[1..].iter().zip(published).fold(draft, |draft, (gib, published)| {
        let model = speed(measured, &least, &format!("fill {gib}"));
        draft.drive(&format!("{gib} GiB"), published / 1222.0, &[model])
    });
    draft.judged()
}

fn uniform(measured: &Measured) -> Claim {
    claim(
        SSD_IQ,
        "SSD-iq, finalinit07/iob-log-init07-san-seq-uni.csv",
        "Solidigm D7-P5520 1.92 TB: amplification of writes in order, and at random afterwards",
    )
    .drive("in order", 1.039, &[measured.figure("sequential")])
    .drive("at random", 3.499, &[measured.figure(&format!("uniform {PRO_GIB} greedy"))])
    .because(SPARE)
    .judged()
}

fn zipf_amplification(measured: &Measured) -> Claim {
    claim(
        SSD_IQ,
        "SSD-iq, finalinit07/iob-log-init07-san-seq-zipf.csv",
        "Solidigm D7-P5520 1.92 TB: amplification of writes by a Zipf distribution of 0.8 over shuffled pages",
    )
    .drive("Zipf 0.8", 3.373, &[measured.figure("zipf 0.8 of 1788.5")])
    .because(&format!("{SPARE}. Also, {APART}"))
    .judged()
}

/// Parts at rest: one claim a drive.
fn parts(measured: &Measured, drive: &Speeds) -> Claim {
    let user = drive.simulated();
    let model = |part: f64, gc: &str| {
        speed(measured, &format!("uniform {user} {gc}"), &format!("part {part} of {user} {gc}"))
    };
    let draft = drive.claim(
        "zones with f0",
        "speed of random writes to a part of the pages, while the others are never written again, over that of random \
         writes to all",
    );
    let mut draft = PARTS.iter().zip(drive.parts).fold(draft, |draft, (part, published)| {
        draft.drive(&format!("writes to {part}"), published / drive.uniform, &[model(*part, "greedy")])
    });
    let name = "writes to 0.2 of the pages beside writes to all";
    let (all, part) = (Some(1.0).filter(|_| model(0.2, "greedy").is_some()), model(0.2, "greedy"));
    let published = drive.parts[3] / drive.uniform;
    if published > MORE {
        draft = draft.larger(&format!("faster: {name}"), "", part, all);
    } else if published < 1.0 / MORE {
        draft = draft.larger(&format!("slower: {name}"), "", all, part);
    }
    let faster = |part| {
        order(&format!("with cost-benefit: writes to {part}"), "", model(part, "cost-benefit"), all, MORE)
    };
    match drive.file {
        "i1" | "wd" => draft.shown(APART, [0.4, 0.2].map(faster).to_vec()),
        "s0" => {
            draft.because("why this drive alone slows down by a third where 0.4 are written is not known")
        }
        "h0" | "m0" => draft.because(TENTH),
        _ => draft,
    }
    .judged()
}

/// Why writes to a tenth of the pages differ.
const TENTH: &str = "where a tenth is written, the whole spare serves it once the data at rest have left its blocks. How soon they have \
                     depends on the collector and on the size of the blocks, which the document does not state";

/// Zipf distributions: one claim a drive.
fn zipf(measured: &Measured, drive: &Speeds) -> Claim {
    let uniform = format!("uniform {} greedy", drive.simulated());
    let draft = drive.claim(
        "zipf",
        "speed of writes by a Zipf distribution over shuffled pages, over that of uniform ones",
    );
    let draft = EXPONENTS.iter().zip(drive.zipf).fold(draft, |draft, (exponent, published)| {
        let model = speed(measured, &uniform, &format!("zipf {exponent} of {}", drive.user));
        draft.drive(&format!("Zipf {exponent}"), published / drive.uniform, &[model])
    });
    match drive.file {
        "s0" | "wd" => draft.because(APART),
        _ => draft,
    }
    .judged()
}

fn skews(measured: &Measured) -> Claim {
    let published = [613.0, 585.0, 552.0, 522.0, 422.0];
    let uniform = format!("uniform {MAX_GIB} greedy");
    let draft = claim(
        SSD_IQ,
        "SSD-iq, finalwa03c/iob-stats-id0-mp0-finalwa03.csv to id3, pattern zones",
        "Micron 7450 MAX 800 GB: speed where a part of the writes goes to as large a part of the space from the other end, \
         over that of uniform writes, 622 MiB/s",
    );
    let draft = SKEWS.iter().zip(published).fold(draft, |draft, (writes, published)| {
        let name = format!("{writes} of the writes to {:.2} of the space", 1.0 - writes);
        draft.drive(&name, published / 622.0, &[speed(measured, &uniform, &format!("skew {writes}"))])
    });
    draft.judged()
}

fn active(measured: &Measured) -> Claim {
    let published = [1.033, 1.169, 1.288, 1.455, 1.410, 1.270];
    let draft = claim(
        SSD_IQ,
        "SSD-iq, finalwa30/iob-log-mp0-finalwa30znstrimzonesize8GBz1to32.csv",
        "Micron 7450 MAX 800 GB: amplification where zones of 8 GiB are written over in order, so many at once",
    );
    let draft = ACTIVE.iter().zip(published).fold(draft, |draft, (active, published)| {
        let model = BLOCKS.map(|blocks| measured.figure(&format!("active {active} of {blocks}")));
        draft.drive(&format!("{active} at once"), published, &model)
    });
    draft
        .because(
            "runs of four rounds are not in their steady state, and depend on which zones are drawn; the document does not \
             state the size of erase blocks, for which the model takes 1 and 2 GiB",
        )
        .judged()
}

fn zones(measured: &Measured) -> Claim {
    let draft = claim(
        SSD_IQ,
        "SSD-iq, finalwa28/iob-log-mp0-finalwa28znstrim.csv",
        "Micron 7450 MAX 800 GB: amplification where one zone after the other is written over in order, by its size",
    );
    let published = [(16.0, 1.043), (4.0, 1.033), (2.0, 1.055), (1.0, 1.206)];
    let draft = published.iter().fold(draft, |draft, (zone, published)| {
        let model = BLOCKS.map(|blocks| measured.figure(&format!("zone {zone} of {blocks}")));
        draft.drive(&format!("{zone} GiB"), *published, &model)
    });
    draft.judged()
}

/// The model's speeds for [`PARTS`], for a chart.
pub(super) fn at_rest(measured: &Measured, gc: &str) -> Vec<Option<f64>> {
    PARTS
        .iter()
        .map(|part| {
            speed(measured, &format!("uniform {PRO_GIB} {gc}"), &format!("part {part} of {PRO_GIB} {gc}"))
        })
        .collect()
}

/// The published speeds of the drives with 12.7 % of spare, for a chart.
pub(super) fn published_at_rest() -> Vec<(&'static str, Vec<Option<f64>>)> {
    let with_spare = DRIVES.iter().filter(|drive| drive.user != MAX_GIB);
    with_spare
        .map(|drive| (drive.name, drive.parts.iter().map(|speed| Some(speed / drive.uniform)).collect()))
        .collect()
}
