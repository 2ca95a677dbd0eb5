//! The results of a trim or of a dry run, for a terminal.

use trimtab_core::Bytes;
use trimtab_core::document::TrimDocument;
use trimtab_core::document::trim::{Free, Outcome, Sent, Target, TrimPlan};
use trimtab_core::stats::SizeBucket;

use crate::number::{count, printable, seconds};
use crate::terminal::{hanging, wrapped};

/// The widest bar of a histogram.
const BAR: u64 = 32;

/// Returns the outcome of each file system; `verbose` adds its plan. Those that failed are left out: their
/// reason is an error message.
pub fn text(document: &TrimDocument, verbose: bool) -> String {
    document.targets.iter().map(|target| self::target(target, verbose)).collect()
}

fn target(target: &Target, verbose: bool) -> String {
    let name = printable(&target.target);
    let mut text = String::new();
    if let Some(sent) = &target.sent {
        text += &format!("{name}: {}\n", done(sent, target));
    }
    if let (Outcome::Planned, Some(plan)) = (target.outcome, &target.plan) {
        text += &format!("{name}: {}\n", planned(plan));
    }
    if let Some(plan) = target.plan.as_ref().filter(|_| verbose || target.outcome == Outcome::Planned) {
        text += &details(plan);
    }
    if let Some(sent) = &target.sent {
        text += &others(sent);
        if verbose && sent.slices > 0 {
            text += &effort(sent);
        }
    }
    text
}

/// A number of things, by name.
fn many(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number as f64), if number == 1 { "" } else { "s" })
}

fn done(sent: &Sent, target: &Target) -> String {
    let extents = |free: &Option<Free>| free.as_ref().map_or(0, |free| free.extents);
    let all_are_short = |plan: &&TrimPlan| extents(&plan.free) > 0 && extents(&plan.chosen) == 0;
    if let (0, Some(plan)) = (sent.discards, target.plan.as_ref().filter(all_are_short)) {
        return format!("nothing discarded: no free extent is as long as {}", plan.minimum);
    }
    match (sent.discards, target.outcome) {
        (0, Outcome::Done) => match &target.plan {
            Some(plan) if sent.reported_bytes > Bytes::ZERO => uncounted(sent, plan),
            Some(plan) if is_partial(plan) => {
                let end = plan.end.map_or_else(|| "the end".to_owned(), |end| end.to_string());
                format!(
                    "nothing discarded from {} to {end}: no free extent there is {} or longer, or {}",
                    plan.start,
                    plan.minimum,
                    before(plan, "they were")
                )
            }
            Some(plan) => format!("nothing discarded: {}", before(plan, "all that is free was")),
            None => "nothing discarded".to_owned(),
        },
        (0, _) => "nothing discarded".to_owned(),
        (_, Outcome::Failed) => {
            let discards = many(sent.discards, "discard");
            format!("{} sent with {discards} in {} until it failed", sent.bytes, seconds(sent.wall_s))
        }
        _ => {
            let discards = many(sent.discards, "discard");
            let rest = match sent.uncounted.as_slice() {
                [] => String::new(),
                devices => format!("; more was sent to {}, which counted no discard", devices.join(", ")),
            };
            format!("{} discarded with {discards} in {}{rest}", sent.bytes, seconds(sent.wall_s))
        }
    }
}

/// A trim that no counter shows, although the file system reports some bytes.
fn uncounted(sent: &Sent, plan: &TrimPlan) -> String {
    let (fs, reported) = (&plan.fs, sent.reported_bytes);
    match sent.uncounted.as_slice() {
        [] => format!("{fs} reports {reported} trimmed, but {} counted no discard", plan.devices.join(", ")),
        devices => {
            format!("sent, {reported} by {fs}'s count: {} counted no discard so far", devices.join(", "))
        }
    }
}

/// How what was trimmed before is trimmed again.
const FULL: &str = "--full does it again";

/// Why nothing was sent, where nothing is free that was not trimmed before; `free` are the words for it, with their verb.
fn before(plan: &TrimPlan, free: &str) -> String {
    match plan.fs.as_str() {
        // What the service knows to be trimmed, and what ext4 remembers until it is mounted anew.
        "ext2" | "ext3" | "ext4" => format!("{free} trimmed before ({FULL})"),
        // The kernel keeps which space of a btrfs, outside its chunks, it has trimmed, until the file system is unmounted.
        "btrfs" => format!("{free} trimmed before (btrfs does it again after it is mounted anew)"),
        "f2fs" => format!("{free} trimmed before, or f2fs discards it by itself when the device is idle"),
        "gfs2" => format!("{free} trimmed before (gfs2 does it again once more is freed beside it)"),
        _ if plan.only_pending => format!("{free} trimmed before ({FULL})"),
        fs => format!("{fs} reports nothing trimmed"),
    }
}

/// Whether a file system that doesn't report its free space may have had none in the range, or only short extents.
fn is_partial(plan: &TrimPlan) -> bool {
    plan.free.is_none() && (plan.start > Bytes::ZERO || plan.end.is_some() || plan.minimum >= Bytes::MIB)
}

fn planned(plan: &TrimPlan) -> String {
    let Some(chosen) = &plan.chosen else {
        let fs = &plan.fs;
        return format!(
            "would be trimmed; {fs} doesn't tell what is free, so neither bytes nor time are known"
        );
    };
    if chosen.extents == 0 {
        return match &plan.free {
            Some(free) if free.extents > 0 => {
                format!("nothing to trim: no free extent is as long as {}", plan.minimum)
            }
            _ if plan.only_pending => {
                format!("nothing to trim: {}", before(plan, "all that is free was"))
            }
            _ => "nothing to trim: nothing is free there".to_owned(),
        };
    }
    let would = format!("would trim {} in {}", chosen.bytes, many(chosen.extents, "free extent"));
    match &plan.predicted {
        Some(predicted) => format!(
            "{would}: {}, {} on the drive {}",
            many(predicted.discards, "discard"),
            seconds(predicted.wall_s),
            printable(&predicted.profile)
        ),
        None => {
            format!("{would}; --profile NAME tells how long that takes (trimtab drive profiles lists them)")
        }
    }
}

/// The covered range, and the distribution of its free extents.
fn details(plan: &TrimPlan) -> String {
    let line = |what: String| hanging("  ", &what) + "\n";
    let mut text = line(format!("{} on {}", plan.fs, plan.devices.join(", ")));
    if plan.only_pending {
        text += &line("only what was freed since it was trimmed (--full trims all)".to_owned());
    }
    if let Some(reached) = plan.resumed_at.filter(|reached| *reached > plan.start) {
        text += &line(format!("from {reached} on, where the last trim was interrupted (--full starts over)"));
    }
    match (&plan.free, &plan.chosen) {
        (Some(free), Some(chosen)) if free.extents > chosen.extents => {
            text += &line(format!(
                "of {} free in {}, those below {} are left alone ({}; -m changes that)",
                free.bytes,
                many(free.extents, "extent"),
                plan.minimum,
                free.bytes.saturating_sub(chosen.bytes),
            ));
        }
        _ => {}
    }
    text + &plan.free.as_ref().map(|free| histogram(free, plan.minimum)).unwrap_or_default()
}

/// A bar for each power of two of a length.
fn histogram(free: &Free, minimum: Bytes) -> String {
    let buckets: Vec<SizeBucket> = free.sizes.buckets().collect();
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(1);
    let row = |bucket: &SizeBucket| {
        let bar = "█".repeat((bucket.count * BAR).div_ceil(most) as usize);
        let short = if bucket.from_bytes.0 * 2 <= minimum.0 { " (left alone)" } else { "" };
        let from = bucket.from_bytes.to_string();
        format!("  {from:>8} and longer  {bar} {}{short}\n", count(bucket.count as f64))
    };
    buckets.iter().map(row).collect()
}

fn others(sent: &Sent) -> String {
    if sent.others_discards == 0 {
        return String::new();
    }
    let told = format!(
        "Others discarded meanwhile: {} with {} between our own. Some that were counted as ours may be theirs: \
         the device doesn't tell them apart.",
        sent.others_bytes,
        many(sent.others_discards, "discard")
    );
    wrapped(&told) + "\n"
}

fn effort(sent: &Sent) -> String {
    let share = if sent.wall_s > 0.0 { sent.held_wall_s / sent.wall_s * 100.0 } else { 0.0 };
    let added = match sent.latency_added_wall_s {
        0.0 => String::new(),
        added => format!("; others' reads and writes took {} longer on average", seconds(added)),
    };
    let held = seconds(sent.held_wall_s);
    let told = format!(
        "in {}, which held the drive for {held}, {share:.1} % of the time{added}",
        many(sent.slices, "slice")
    );
    hanging("  ", &told) + "\n"
}

#[cfg(test)]
mod tests {
    use trimtab_core::stats::SizeHistogram;

    use super::*;

    fn free(lengths: &[u64]) -> Option<Free> {
        let mut sizes = SizeHistogram::default();
        lengths.iter().for_each(|length| sizes.record(Bytes(*length)));
        Some(Free { extents: lengths.len() as u64, bytes: Bytes(lengths.iter().sum()), sizes })
    }

    fn plan(only_pending: bool, lengths: &[u64], chosen: &[u64]) -> TrimPlan {
        TrimPlan {
            fs: "ext4".to_owned(),
            devices: vec!["vda".to_owned()],
            only_pending,
            start: Bytes::ZERO,
            end: None,
            resumed_at: None,
            minimum: Bytes::MIB,
            free: free(lengths),
            chosen: free(chosen),
            predicted: None,
        }
    }

    #[test]
    fn dry_run_with_nothing_to_do_says_why() {
        let mib = Bytes::MIB.0;
        for (plan, said) in [
            (
                plan(true, &[], &[]),
                "nothing to trim: all that is free was trimmed before (--full does it again)",
            ),
            (plan(false, &[4096], &[]), "nothing to trim: no free extent is as long as 1 MiB"),
            (plan(false, &[], &[]), "nothing to trim: nothing is free there"),
        ] {
            assert_eq!(planned(&plan), said);
        }
        assert!(planned(&plan(true, &[mib], &[mib])).starts_with("would trim 1 MiB in 1 free extent; "));
    }

    #[test]
    fn trim_that_sent_nothing_has_no_share_of_time() {
        let nothing = Sent {
            slices: 0,
            discards: 0,
            bytes: Bytes::ZERO,
            reported_bytes: Bytes::ZERO,
            uncounted: Vec::new(),
            others_discards: 0,
            others_bytes: Bytes::ZERO,
            held_wall_s: 0.0,
            wall_s: 0.0,
            latency_added_wall_s: 0.0,
        };
        let done = |sent| Target {
            target: "/mnt".to_owned(),
            outcome: Outcome::Done,
            reason: None,
            plan: Some(plan(true, &[], &[])),
            sent: Some(sent),
        };
        assert!(!target(&done(nothing.clone()), true).contains("held the drive"));
        assert!(target(&done(Sent { slices: 1, ..nothing }), true).contains("held the drive"));
    }

    #[test]
    fn zero_counters_are_no_proof() {
        let sent = |discards: u64, bytes: u64, reported: u64, uncounted: &[&str]| Sent {
            slices: 1,
            discards,
            bytes: Bytes(bytes * Bytes::MIB.0),
            reported_bytes: Bytes(reported * Bytes::MIB.0),
            uncounted: uncounted.iter().map(|name| (*name).to_owned()).collect(),
            others_discards: 0,
            others_bytes: Bytes::ZERO,
            held_wall_s: 0.0,
            wall_s: 1.0,
            latency_added_wall_s: 0.0,
        };
        let said = |fs: &str, outcome, sent: &Sent| {
            let mib = Bytes::MIB.0;
            let plan = TrimPlan { fs: fs.to_owned(), ..plan(false, &[mib], &[mib]) };
            let target =
                Target { target: "/m".to_owned(), outcome, reason: None, plan: Some(plan), sent: None };
            done(sent, &target)
        };
        let well = |fs: &str, sent: &Sent| said(fs, Outcome::Done, sent);
        assert_eq!(
            well("xfs", &sent(0, 0, 448, &["md0"])),
            "sent, 448 MiB by xfs's count: md0 counted no discard so far"
        );
        assert_eq!(
            well("vfat", &sent(0, 0, 448, &[])),
            "vfat reports 448 MiB trimmed, but vda counted no discard"
        );
        assert_eq!(
            well("ext4", &sent(0, 0, 0, &["md0"])),
            "nothing discarded: all that is free was trimmed before (--full does it again)"
        );
        for (fs, end) in [
            ("gfs2", "trimmed before (gfs2 does it again once more is freed beside it)"),
            ("f2fs", "or f2fs discards it by itself when the device is idle"),
            ("xfs", "xfs reports nothing trimmed"),
        ] {
            let said = well(fs, &sent(0, 0, 0, &[]));
            assert!(said.ends_with(end) && !said.contains("--full"), "{said}");
        }
        assert_eq!(
            well("btrfs", &sent(2, 5, 9, &["zram0"])),
            "5 MiB discarded with 2 discards in 1.00 s; more was sent to zram0, which counted no discard"
        );
        let failed = said("ext4", Outcome::Failed, &sent(2, 5, 0, &[]));
        assert_eq!(failed, "5 MiB sent with 2 discards in 1.00 s until it failed");
    }
}
