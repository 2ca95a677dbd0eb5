//! Notes for the reader about a trace and its replay, in sentences.

use std::time::Duration;

use trimtab_core::document::sim::{Clocks, LEAST_SPAN_OF_LIFE, Passes, PolicyClock, TileOrder, Tiling};
use trimtab_core::policy::{PolicyKind, SimPolicy};
use trimtab_core::trace::{EventKind, TraceHeader};
use trimtab_core::{Bytes, Nanos};
use trimtab_ftl::FtlConfig;
use trimtab_ftl::replay::DeviceSurvey;

use super::{SimulateOptions, has_discards, has_frees};

/// The facts that notes are made of.
pub(super) struct Facts<'a> {
    pub(super) options: &'a SimulateOptions,
    pub(super) header: &'a TraceHeader,
    pub(super) surveyed: &'a DeviceSurvey,
    /// The device's size as the trace states it; zero if it doesn't.
    pub(super) header_size: Bytes,
    /// The device's size as assumed for the replay.
    pub(super) traced: Bytes,
    /// The drives' size.
    pub(super) size: Bytes,
    /// How long one pass takes, in the trace's time.
    pub(super) span: Nanos,
    pub(super) policies: &'a [SimPolicy],
}

/// The notes, those on policies first.
pub(super) fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = of_policies(facts);
    notes.extend(of_aged(facts.options));
    notes.extend(of_few_blocks(facts));
    notes.extend(of_times(facts));
    notes.extend(of_trace(facts));
    notes
}

impl Facts<'_> {
    fn has(&self, kind: PolicyKind) -> bool {
        self.policies.iter().any(|policy| policy.is(kind))
    }

    /// Whether any of the policies depends on free events.
    fn has_any_of_frees(&self) -> bool {
        self.has(PolicyKind::Batched)
            || self.has(PolicyKind::Smart)
            || self.policies.contains(&SimPolicy::Ideal)
    }
}

/// Notes about the policies on this trace.
fn of_policies(facts: &Facts) -> Vec<String> {
    let surveyed = facts.surveyed;
    let mut notes = Vec::new();
    if !has_frees(surveyed) {
        let known = if has_discards(surveyed) { "none, online and ideal" } else { "none" };
        notes.push(format!("The trace has no free events of this device: only {known} can be replayed."));
    }
    if facts.has(PolicyKind::Online) {
        let discards = surveyed.count(EventKind::Discard) + surveyed.count(EventKind::SecureErase);
        notes.push(if discards > 0 {
            format!(
                "online is the trace as it was recorded, with its own {discards} discard{}; other policies leave \
                 those out.",
                if discards == 1 { "" } else { "s" }
            )
        } else {
            "online discards what is freed at once: the trace has no discards of its own.".to_owned()
        });
    }
    if facts.policies.contains(&SimPolicy::Ideal) {
        notes.push(
            "ideal is no policy but the bound: a drive that knows of every free at once, at no cost."
                .to_owned(),
        );
    }
    if has_frees(surveyed) && facts.has_any_of_frees() {
        notes.push(of_unused(facts));
    }
    notes
}

/// A note for each drive that was overwritten at random before the trace begins.
fn of_aged(options: &SimulateOptions) -> impl Iterator<Item = String> {
    let drives = options.drives.iter().filter(|_| options.preconditioned);
    drives.filter_map(|(profile, _)| {
        let writes = profile.aging.as_ref()?.random_writes.value;
        Some(format!("{} is an aged drive: it was overwritten at random {writes} times.", profile.name))
    })
}

/// Below this number of erase blocks, uniform writes amplify at least 4 % less than with many, and skewed ones at least
/// 14 % less (`trimtab sim --spare 0.0905 --pages-per-block 1024 --blocks 94 --workload uniform`, or `hotcold:.9/.1`).
const MANY: u32 = 100;

/// A note for each drive of few erase blocks.
fn of_few_blocks(facts: &Facts) -> impl Iterator<Item = String> {
    let size = facts.size;
    facts.options.drives.iter().filter_map(move |(profile, _)| {
        let blocks = FtlConfig::of_drive(profile, size).ok()?.data_blocks();
        (blocks < MANY).then(|| {
            format!(
                "At {size}, {} has only {blocks} erase blocks for data, and copies 5 to 25 % less than a large one. \
                 --tiles replays several copies on a larger drive.",
                profile.name
            )
        })
    })
}

/// The note about space that was free when recording began.
fn of_unused(facts: &Facts) -> String {
    let begins = if facts.options.preconditioned { "full of old data" } else { "empty" };
    if facts.surveyed.count(EventKind::Unused) == 0 {
        return format!(
            "The trace doesn't say what was unused when recording began: policies know only what was freed \
             since. The drive begins {begins}."
        );
    }
    format!(
        "The drive begins {begins}. batched, smart and ideal know what was unused when recording began; online \
         discards only what is freed since."
    )
}

/// Notes about times and lifetimes.
fn of_times(facts: &Facts) -> Vec<String> {
    let Facts { options, policies, span, .. } = *facts;
    let mut notes = Vec::new();
    let only_at_the_end = policies.contains(&PolicyKind::Batched.into());
    if only_at_the_end && options.passes == Passes::Count(1) {
        notes.push(
            "batched trims at the end of a pass, and no pass follows: use batched:1h or --repeat to see what its \
             trims bring."
                .to_owned(),
        );
    }
    let (Passes::Count(most) | Passes::UntilSteady(most)) = options.passes;
    let replayed = Duration::from_nanos(span.0.saturating_mul(most.into()));
    let timers = policies.iter().filter_map(|policy| policy.real());
    let never = timers.filter(|policy| policy.interval().is_some_and(|interval| interval > replayed));
    notes.extend(never.map(|policy| {
        let replayed = humantime::format_duration(Duration::from_millis(replayed.as_millis() as u64));
        format!("{policy} never trims: its interval is longer than what is replayed, {replayed}.")
    }));
    let has_timers =
        policies.iter().filter_map(|policy| policy.real()).any(|policy| policy.interval().is_some());
    let Clocks { think_scale, policy: clock } = options.clocks;
    if has_timers && clock == PolicyClock::Trace && think_scale != 1.0 {
        notes.push(format!(
            "Intervals of policies are in the trace's time, which --think-scale {think_scale} does not change; with \
             --policy-clock drive they are in the replay's."
        ));
    }
    if options.endurance.is_some() && span < LEAST_SPAN_OF_LIFE {
        notes.push(
            "--endurance has no effect: a trace shorter than a day says too little to state a lifetime; compare \
             the erases."
                .to_owned(),
        );
    }
    notes
}

/// Notes about data that the trace lacks, and assumptions in its place.
fn of_trace(facts: &Facts) -> Vec<String> {
    let Facts { options, header, surveyed, header_size, traced, .. } = *facts;
    let mut notes = Vec::new();
    if options.size.or(options.scale_to).is_none() && header_size == Bytes::ZERO {
        notes.push(format!(
            "The trace doesn't say how large its device was: it reaches up to {}, and {traced} is assumed; --size says \
             otherwise.",
            surveyed.end()
        ));
    }
    if let Some(to) = options.scale_to.filter(|to| *to != traced) {
        notes.push(format!(
            "Addresses are scaled from {traced} to {to}, and the sizes of requests with them. A drive of {to} whose requests \
             keep their size may behave differently: --tiles."
        ));
    }
    if let Some(Tiling { copies, order }) = options.tiling {
        let turns = match order {
            TileOrder::Slice => "one at a time, each for a 64th of the trace",
            TileOrder::Interleave => "all at once, each as many times slower",
        };
        notes.push(format!(
            "{copies} copies of the trace lie side by side and write {turns}. Each begins later than the one before, so the \
             last ones are cut off at the end: --repeat lowers the effect."
        ));
    }
    if surveyed.untimed > 0 {
        notes.push(format!(
            "The trace doesn't say how long {} of {} requests took: they come at their own times, or once the \
             drive's queue has room.",
            surveyed.untimed,
            surveyed.requests()
        ));
    }
    if header.lost > 0 {
        notes.push(format!("{} events were lost when the trace was recorded.", header.lost));
    }
    notes.extend(header.gaps.iter().map(|gap| format!("Of the trace: {gap}.")));
    notes
}
