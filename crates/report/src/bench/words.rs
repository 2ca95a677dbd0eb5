//! Results of a bench in plain words.

use trimtab_core::document::BenchDocument;
use trimtab_core::document::bench::{Granularity, InterferenceCell, PowerCycle, Queueing, Verify};
use trimtab_core::profile::DiscardedReads;

use crate::number::{count, latency, significant};

/// Characters of a model's name that stand in a legend.
const LEGEND: usize = 32;

/// The data that a discarded range reads as; none where that is not known.
pub fn reads(verify: &Verify) -> Option<&'static str> {
    Some(match verify.reads? {
        DiscardedReads::Zeros => "zeros",
        DiscardedReads::Old => "its old data",
        DiscardedReads::Garbage if unstable(verify) > 0 => "something else at every read",
        DiscardedReads::Garbage => "data that was never written there",
        DiscardedReads::Other => "another address's data",
    })
}

/// The most logical blocks that read otherwise than in the reading before.
pub fn unstable(verify: &Verify) -> u64 {
    verify.readings.iter().map(|reading| reading.unstable).max().unwrap_or(0)
}

/// Names the discards that were ignored.
pub fn ignored(verify: &Verify) -> String {
    if verify.areas == 0 && verify.reads.is_none() {
        return "whether discards are ignored is not known: no area fit into the range".to_owned();
    }
    if verify.reads.is_none() {
        return "all discarded data reads as before: the drive returns old data, or ignores discards"
            .to_owned();
    }
    match (verify.ignored.len(), verify.ignored_every) {
        (0, _) => "no discard was ignored".to_owned(),
        (n, Some(every)) => format!("one of every {every} discards is ignored ({n} of {})", verify.areas),
        (n, None) => format!("{n} of {} discards were ignored", verify.areas),
    }
}

/// The granularity it honours beside the one it advertises.
pub fn granularity(granularity: &Granularity) -> String {
    let advertised = granularity.advertised;
    let Some(honoured) = granularity.honoured else {
        let reason = granularity.reason.as_deref().unwrap_or("it was not seen");
        let reason = reason.trim_end_matches('.');
        return format!("its granularity is not known ({reason}; it advertises {advertised})");
    };
    let shift = match granularity.alignment.0 {
        0 => String::new(),
        _ => format!(", on grains that start {} off", granularity.alignment),
    };
    match honoured.cmp(&advertised) {
        std::cmp::Ordering::Equal => format!("it honours the {honoured} granularity it advertises{shift}"),
        std::cmp::Ordering::Less => {
            format!("it honours {honoured}, finer than the {advertised} it advertises{shift}")
        }
        std::cmp::Ordering::Greater => {
            format!("discards below {honoured} do nothing, although {advertised} is advertised{shift}")
        }
    }
}

/// Lists the probes that were tried besides the readings, in lines.
pub fn verify(verify: &Verify) -> Vec<String> {
    let outside = match verify.lost_outside {
        0 => "All data outside the discards read back as written.".to_owned(),
        n => {
            format!("DATA LOSS: {} logical blocks outside the discards are not as written.", count(n as f64))
        }
    };
    let mut lines = vec![
        format!(
            "{} areas of {} each were written, discarded and read, with written data between them.",
            verify.areas, verify.area_size
        ),
        outside,
        sentence(&ignored(verify)),
        sentence(&granularity(&verify.granularity)),
    ];
    lines.extend(verify.power_cycle.as_ref().map(power_cycle));
    lines
}

/// Describes the changes by a power cycle, in a sentence.
pub fn power_cycle(cycle: &PowerCycle) -> String {
    let [same, returned, different, lost] =
        [cycle.same, cycle.returned, cycle.different, cycle.lost_outside].map(|n| count(n as f64));
    format!(
        "After the power cycle, of the logical blocks discarded {}: {same} read as before, {returned} hold their \
         old data again, {different} read otherwise; {lost} outside the discards are lost.",
        cycle.discarded
    )
}

/// Whether a discard waits, and makes wait, in lines with the figures.
pub fn queueing(queueing: &Queueing) -> Vec<String> {
    let [alone, reads, behind, read_after, read_alone] = [
        queueing.alone_us,
        queueing.reads_us,
        queueing.behind_us,
        queueing.read_after_us,
        queueing.read_alone_us,
    ]
    .map(latency);
    let queued =
        if queueing.queued { "it runs beside them (queued)" } else { "it waits for them (not queued)" };
    let holds =
        if queueing.holds_back { "the discard holds it back" } else { "the discard does not hold it back" };
    vec![
        format!(
            "A discard of {} takes {alone} alone, and {behind} behind reads that take another {reads}: {queued}.",
            queueing.discard_size
        ),
        format!("A read takes {read_alone} alone, and {read_after} right after a discard: {holds}."),
        format!("Medians of {} tries, in wall time.", queueing.repeats),
    ]
}

/// Describes the discards beside the foreground: `1 MiB, 100/s`, or `alone`.
pub fn condition(cell: &InterferenceCell) -> String {
    match cell.discard_size {
        None => "alone".to_owned(),
        Some(size) => format!("{size} at {}/s", short(cell.discard_rate_s)),
    }
}

/// A rate without trailing zeros.
pub fn short(rate: f64) -> String {
    if rate.fract() == 0.0 { count(rate) } else { significant(rate) }
}

/// `text` as a sentence.
pub fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| format!("{}{}.", first.to_uppercase(), chars.as_str())).unwrap_or_default()
}

/// Describes the foreground of `document`.
pub fn interference_title(document: &BenchDocument) -> String {
    let mut rates: Vec<_> = document.interference.iter().map(|cell| cell.foreground_rate_s).collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let rates: Vec<_> = rates.into_iter().map(short).collect();
    format!("Interference: {} random reads and writes of 4 KiB a second", rates.join(" or "))
}

/// The letter of the drive at `place`: A to Z, then A1 and so on.
pub fn letter(place: usize) -> String {
    let letter = char::from(b'A' + (place % 26) as u8);
    if place < 26 { letter.to_string() } else { format!("{letter}{}", place / 26) }
}

/// The names of these results in a legend: the drive's letter and model, and when it was measured where a model is
/// there twice.
pub fn labels(documents: &[&BenchDocument]) -> Vec<String> {
    let short = |document: &&BenchDocument| {
        let model = &document.device.model;
        let short: String = model.chars().take(LEGEND).collect();
        let more = if short.len() < model.len() { "…" } else { "" };
        short + more
    };
    let models: Vec<_> = documents.iter().map(short).collect();
    let label = |(place, model): (usize, &String)| {
        let is_twice = models.iter().filter(|other| *other == model).count() > 1;
        let when = if is_twice { format!(", {}", when(documents[place])) } else { String::new() };
        format!("{} {model}{when}", letter(place))
    };
    models.iter().enumerate().map(label).collect()
}

/// When the run was started, such as `2026-11-22 10:00`, in UTC.
pub fn when(document: &BenchDocument) -> String {
    let to_the_minute: String = document.started.chars().take("2026-11-22T10:00".len()).collect();
    to_the_minute.replace('T', " ")
}
