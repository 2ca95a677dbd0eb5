//! Explains what the policy smart does now, in one sentence with figures.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Gain, LEAST_IDLE, SmartPolicy};
use crate::policy::LearnedCosts;
use crate::units::{Bytes, Nanos};

/// The reason for the current decision on the pending extents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Nothing is pending.
    NothingPending,
    /// A trim is under way.
    Trimming,
    /// Writes have lost as much time as the next trim takes, so that it goes beside them.
    LostTimePays,
    /// Extents are older than the highest age: they are trimmed as pacing allows, whatever they gain.
    Overdue,
    /// The drive is idle, and worthwhile extents are trimmed.
    DriveIsIdle,
    /// Worthwhile extents are trimmed beside others, in the share of the time that trims get.
    SharesTheDrive,
    /// Worthwhile extents wait because a command takes longer than the latency goal, and others use the drive.
    CommandsTooLong,
    /// Others use the drive, and trims are for an idle drive only.
    OnlyWhenIdle,
    /// No pending extent is long enough to gain more than its discard takes; they wait until the drive has been
    /// idle for long enough.
    GainsLittle,
    /// No pending extent is long enough to gain anything; they wait until they are overdue.
    GainsNothing,
}

/// The decision of the policy at one time, with the figures that it goes by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The reason.
    pub why: Why,
    /// The pending bytes.
    pub pending: Bytes,
    /// The number of pending extents.
    pub extents: u64,
    /// How many of them are overdue.
    pub overdue: u64,
    /// The pending bytes in extents whose discard is worth its time beside others.
    pub worthwhile: Bytes,
    /// The shortest extent whose discard is worth its time beside others; `None` if no length is.
    pub least_busy: Option<Bytes>,
    /// The shortest extent whose discard gains anything on an idle drive.
    pub least_idle: Bytes,
    /// How long the discards of all pending extents take.
    pub cost: Nanos,
    /// The copies that these discards save, as time of the drive, as far as that is real; a tenth at least.
    pub gain: Nanos,
    /// The time that writes have lost, and from which on it pays for the next trim.
    pub lost: Nanos,
    /// The lost time from which on a trim is paid for.
    pub price: Nanos,
    /// The share of the lost time that the formulas compute which is real, from 0 to 1.
    #[serde(default = "before_measurements")]
    pub real_loss: f64,
    /// How many times as long as by the profile the flash takes, as far as the busy time of the drive shows that.
    #[serde(default = "before_measurements")]
    pub flash_factor: f64,
    /// The bytes that the drive can write before it has to clean.
    pub spare: Bytes,
    /// Whether the host has written as much, so that trims may exceed their share.
    pub urgent: bool,
    /// How many commands of others the drive had at once, in the mean of the last second. Below 1, it is about the
    /// share of the time in which others used the drive.
    pub busy: f64,
    /// The share of the time that trims get beside others.
    pub share: f64,
    /// The goal for the latency that trims add.
    pub max_latency_added: Nanos,
    /// How long the drive has been idle; none while others use it, and while nothing is pending.
    pub idle: Option<Nanos>,
    /// How long it has to be idle for discards that gain little.
    pub idle_needed: Nanos,
    /// The costs of discards that were learned of the drive.
    pub learned: LearnedCosts,
}

impl SmartPolicy {
    /// Explains what it does at this time. Looks at all pending extents.
    pub fn explain(&self, at: Duration) -> Explanation {
        let (pending, goals) = (self.pending.len(), self.pacer.goals());
        let thresholds = self.worth.thresholds(self.free, pending);
        let least_busy = self.least(|thresholds| thresholds.busy);
        let least_idle = self.least(|thresholds| Some(thresholds.idle)).unwrap_or(thresholds.idle);
        let before = at.checked_sub(goals.max_age);
        let is_overdue = |since: Duration| before.is_some_and(|before| since <= before);
        let overdue = self.pending.iter().filter(|(_, since)| is_overdue(*since)).count() as u64;
        let time = |least: Bytes| -> Duration {
            self.from(Some(least)).map(|extent| self.worth.time(extent.len())).sum()
        };
        let bytes = |least: Bytes| self.from(Some(least)).map(|extent| extent.len()).sum();
        // The load is not read while nothing is pending.
        let idle_since = self.idle_since.filter(|_| !self.pending.is_empty());
        let idle = idle_since.map(|since| at.saturating_sub(since));
        let saved = match self.gain {
            Gain::Copies => self.worth.time_saved(self.free, pending),
            Gain::Space { .. } => Duration::ZERO,
        };
        Explanation {
            why: self.why(overdue > 0),
            pending,
            extents: self.pending.count() as u64,
            overdue,
            worthwhile: least_busy.map_or(Bytes::ZERO, bytes),
            least_busy,
            least_idle,
            cost: nanos(time(Bytes(1))),
            gain: nanos(saved),
            lost: nanos(self.lost),
            price: nanos(self.price()),
            real_loss: self.loss.real_share(),
            flash_factor: self.loss.flash_factor(),
            spare: self.worth.spare(self.free, pending),
            urgent: self.is_urgent(),
            busy: self.pacer.busy(),
            share: self.pacer.share(),
            max_latency_added: nanos(goals.max_latency_added),
            idle: idle.map(nanos),
            idle_needed: nanos(time(least_idle).max(self.worth.shortest() * LEAST_IDLE)),
            learned: self.worth.learned(),
        }
    }

    fn why(&self, has_overdue: bool) -> Why {
        let (goals, is_idle) = (self.pacer.goals(), self.pacer.is_idle());
        let has_from = |least: Option<Bytes>| self.from(least).next().is_some();
        if self.under_way.is_some() {
            Why::Trimming
        } else if self.pending.is_empty() {
            Why::NothingPending
        } else if !is_idle && goals.idle_only {
            Why::OnlyWhenIdle
        } else if has_overdue {
            Why::Overdue
        } else if !has_from(self.least(|thresholds| thresholds.busy)) {
            let gains = has_from(self.least(|thresholds| Some(thresholds.idle)));
            if gains { Why::GainsLittle } else { Why::GainsNothing }
        } else if is_idle {
            Why::DriveIsIdle
        } else if self.is_paid() {
            Why::LostTimePays
        } else if self.is_urgent() || self.worth.shortest() <= goals.max_latency_added {
            Why::SharesTheDrive
        } else {
            Why::CommandsTooLong
        }
    }
}

/// The share of real loss and the factor of the flash before the first measurement.
fn before_measurements() -> f64 {
    1.0
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// A span to three digits.
fn rounded(span: Nanos) -> Nanos {
    let digits = span.0.max(1).ilog10().saturating_sub(2);
    let unit = 10_u64.pow(digits);
    Nanos((span.0 / unit).saturating_mul(unit))
}

impl fmt::Display for Explanation {
    /// One sentence without a full stop, for engineers.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { pending, extents, learned, .. } = self;
        let percent = |share: f64| format!("{:.2} %", share * 100.0);
        let busy = percent(self.busy.min(1.0));
        if self.why != Why::NothingPending {
            let plural = if *extents == 1 { "" } else { "s" };
            write!(f, "{pending} pending in {extents} extent{plural}, ")?;
            match (self.worthwhile, self.least_busy) {
                (Bytes::ZERO, Some(least)) if least <= *pending => {
                    write!(f, "none of {least} or more, which would be worth a discard now; ")?;
                }
                (Bytes::ZERO, _) => f.write_str("none of them worth a discard now; ")?,
                (_, None) => write!(f, "{} of it worth a discard now; ", self.worthwhile)?,
                (_, Some(least)) => write!(
                    f,
                    "{} of it in extents of {least} or more, which are worth a discard now; ",
                    self.worthwhile
                )?,
            }
        }
        match self.why {
            Why::NothingPending => f.write_str("nothing is pending")?,
            Why::Trimming => f.write_str("a trim is under way")?,
            Why::LostTimePays => write!(
                f,
                "writes lost {} to copies, which pays for a trim of {} beside them",
                rounded(self.lost),
                rounded(self.price)
            )?,
            Why::Overdue => write!(
                f,
                "{} past the maximum age, trimmed in {} of the time while others use the drive",
                self.overdue,
                percent(self.share)
            )?,
            Why::DriveIsIdle => f.write_str("the drive is idle, and they are trimmed")?,
            Why::SharesTheDrive => write!(
                f,
                "others use the drive {busy} of the time, and trims get {}{}",
                percent(self.share),
                if self.urgent { " because it runs out of spare" } else { "" }
            )?,
            Why::CommandsTooLong => write!(
                f,
                "others use the drive {busy} of the time, a command takes longer than the latency goal of {}, and \
                 writes have lost {} of the {} that pay for a trim",
                self.max_latency_added,
                rounded(self.lost),
                rounded(self.price)
            )?,
            Why::OnlyWhenIdle => write!(f, "others use the drive {busy} of the time, and idle_only is set")?,
            Why::GainsLittle => write!(
                f,
                "{} or more gain something once the drive has been idle for {}",
                self.least_idle,
                rounded(self.idle_needed)
            )?,
            Why::GainsNothing => {
                write!(f, "less than {} gains nothing, and waits for the maximum age", self.least_idle)?
            }
        }
        if self.why != Why::NothingPending {
            let (cost, gain) = (rounded(self.cost), rounded(self.gain));
            write!(f, "; discarding all of it would take the drive {cost} and save it {gain} of copying")?;
        }
        let source = match learned.trims {
            0 => "by the profile".to_owned(),
            1 => "by the profile and 1 trim".to_owned(),
            trims => format!("by the profile and {trims} trims"),
        };
        write!(
            f,
            "; {source}, a command takes {} and a GiB {}",
            rounded(learned.command),
            rounded(learned.per_gib)
        )
    }
}
