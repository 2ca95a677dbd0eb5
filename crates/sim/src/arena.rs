//! The arena: every policy on every trace, drive and think time, in model time.

use std::convert::Infallible;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use trimtab_core::document::arena::{ArenaCell, ArenaRun};
use trimtab_core::document::sim::{Clocks, PolicyClock};
use trimtab_core::policy::{Event, Policy, PolicyKind, SimPolicy, SimPolicyError, SmartPolicy, TrimRequest};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{DeviceIndex, EventKind, InMemory, TraceEvent, TraceHeader};
use trimtab_core::{Bytes, Nanos};
use trimtab_ftl::GeometryError;
use trimtab_ftl::replay::{Discards, Replay, ReplayError, ReplayOptions, TraceSurvey};
use trimtab_trace::{Columns, TraceError};

/// Events that a trace hands out at a time.
const BATCH: usize = 4096;
/// The time without requests that [`Contender::AtPauses`] takes for a pause.
const PAUSE: Duration = Duration::from_millis(10);
/// The name of [`Contender::AtPauses`].
const AT_PAUSES: &str = "batched:pauses";

/// A policy of the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// One that `sim` replays.
    Sim(SimPolicy),
    /// A trim of everything as soon as no request came for some milliseconds, if anything was freed since the last
    /// one.
    AtPauses,
}

impl Contender {
    /// All of them: the first discards nothing, the last is the bound.
    pub fn all() -> Vec<Self> {
        let names = [
            "none",
            "online",
            AT_PAUSES,
            "batched:1s",
            "batched:1m",
            "batched:1h",
            "batched:1w",
            "smart",
            "ideal",
        ];
        names.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// The interval of its timer; `None` if it has none.
    fn interval(self) -> Option<Duration> {
        match self {
            Self::Sim(policy) => policy.real()?.interval(),
            Self::AtPauses => None,
        }
    }

    /// Where its discards come from, if it goes by `believed`.
    fn discards(self, trace: &ArenaTrace, believed: &Profile) -> Discards {
        let policy: Box<dyn Policy> = match self {
            Self::AtPauses => Box::new(AtPauses::default()),
            Self::Sim(SimPolicy::Ideal) => return Discards::Ideal,
            Self::Sim(policy) if policy.is(PolicyKind::Online) && trace.has_discards => {
                return Discards::Trace;
            }
            Self::Sim(SimPolicy::Real(choice)) => {
                choice.engine().unwrap_or_else(|| Box::new(SmartPolicy::of_drive(believed, trace.size)))
            }
        };
        Discards::Policy(policy)
    }
}

impl FromStr for Contender {
    type Err = SimPolicyError;
    fn from_str(name: &str) -> Result<Self, SimPolicyError> {
        if name == AT_PAUSES { Ok(Self::AtPauses) } else { name.parse().map(Self::Sim) }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Sim(policy) => policy.fmt(f),
            Self::AtPauses => f.pad(AT_PAUSES),
        }
    }
}

/// The policy of [`Contender::AtPauses`].
#[derive(Default)]
struct AtPauses {
    is_quiet: bool,
    wake: Option<Duration>,
}

impl Policy for AtPauses {
    fn on_event(&mut self, at: Duration, event: &Event) -> Vec<TrimRequest> {
        match event {
            Event::Freed(_) | Event::Unused(_) => {
                self.wake.get_or_insert(at + PAUSE);
            }
            Event::Load(load) => self.is_quiet = load.in_flight == 0 && load.completed == 0,
            Event::Wake if self.is_quiet => {
                self.wake = None;
                return vec![TrimRequest::everything()];
            }
            Event::Wake => self.wake = Some(at + PAUSE),
            _ => {}
        }
        Vec::new()
    }

    fn next_wake(&self) -> Option<Duration> {
        self.wake
    }
}

/// A trace in memory, which many replays share.
#[derive(Debug)]
pub struct ArenaTrace {
    /// The set that it belongs to.
    pub set: String,
    /// Its name.
    pub name: String,
    header: TraceHeader,
    device: DeviceIndex,
    size: Bytes,
    span: Nanos,
    has_discards: bool,
    events: Vec<TraceEvent>,
}

/// Why a trace or a replay of it can't take part.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The trace can't be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// It has several devices with events, or none.
    #[error("trace {0} does not have events of exactly one device; record one device")]
    Devices(String),
    /// The profile has no drive of this size.
    #[error("profile {profile} cannot be scaled to {size}")]
    Geometry {
        /// The profile's name.
        profile: String,
        /// The size.
        size: Bytes,
        /// Why.
        source: GeometryError,
    },
    /// An event names bytes past the end of the device.
    #[error("cannot replay trace {trace}")]
    Replay {
        /// The trace's name.
        trace: String,
        /// Why.
        source: ReplayError<Infallible>,
    },
}

impl ArenaTrace {
    /// Reads the trace `path` of the set `set`. It is named after the file.
    ///
    /// # Errors
    /// [`ArenaError::Trace`] and [`ArenaError::Devices`].
    pub fn read(path: &Path, set: &str) -> Result<Self, ArenaError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut source = trimtab_trace::open(path, None, Columns::Replay)?;
        let (mut events, mut batch) = (Vec::new(), Vec::new());
        loop {
            source.next_batch(&mut batch)?;
            if batch.is_empty() {
                break;
            }
            events.append(&mut batch);
        }
        Self::of_events(set, name, source.header().clone(), events)
    }

    fn of_events(
        set: &str,
        name: String,
        header: TraceHeader,
        events: Vec<TraceEvent>,
    ) -> Result<Self, ArenaError> {
        let mut memory = InMemory::new(&header, &events, BATCH);
        let Ok(survey) = TraceSurvey::of(&mut memory, &mut |_| true);
        let mut used = (0_u16..).zip(&survey.devices).filter(|(_, device)| device.total() > 0);
        let (Some((device, surveyed)), None) = (used.next(), used.next()) else {
            return Err(ArenaError::Devices(name));
        };
        let size = header.devices.get(usize::from(device)).map_or(Bytes::ZERO, |device| device.size);
        let has_discards = events.iter().any(|event| event.kind == EventKind::Discard);
        Ok(Self {
            set: set.to_owned(),
            device: DeviceIndex(device),
            size: size.max(surveyed.end()),
            span: survey.span,
            has_discards,
            name,
            events,
            header,
        })
    }

    /// Replays it `passes` times under each of `contenders` on a used drive of the traced device's size that
    /// behaves like `profile`. Timers go by the drive's time, and the policy smart by the profile `believed`.
    ///
    /// # Errors
    /// [`ArenaError::Geometry`] and [`ArenaError::Replay`].
    pub fn fight(
        &self,
        profile: &Profile,
        believed: &Profile,
        think_scale: f64,
        contenders: &[Contender],
        passes: u32,
    ) -> Result<Vec<ArenaRun>, ArenaError> {
        let cell = ArenaCell {
            set: self.set.clone(),
            trace: self.name.clone(),
            profile: profile.name.clone(),
            think_scale,
        };
        let mut none: Option<(ArenaRun, Nanos)> = None;
        let mut runs = Vec::new();
        for contender in contenders {
            // A timer that is not over by the end of all requests starts nothing.
            if let (Some(interval), Some((run, end))) = (contender.interval(), &none)
                && interval.as_nanos() > u128::from(end.0)
            {
                runs.push(ArenaRun { policy: contender.to_string(), ..run.clone() });
                continue;
            }
            let (run, end) = self.replay([profile, believed], &cell, *contender, passes)?;
            if *contender == Contender::Sim(PolicyKind::None.into()) {
                none = Some((run.clone(), end));
            }
            runs.push(run);
        }
        Ok(runs)
    }

    /// Replays it under one policy. Returns the results, and a time by which all requests have ended.
    fn replay(
        &self,
        [profile, believed]: [&Profile; 2],
        cell: &ArenaCell,
        contender: Contender,
        passes: u32,
    ) -> Result<(ArenaRun, Nanos), ArenaError> {
        let options = ReplayOptions {
            profile,
            size: self.size,
            preconditioned: true,
            device: self.device,
            scale: None,
            span: self.span,
            clocks: Clocks { think_scale: cell.think_scale, policy: PolicyClock::Drive },
        };
        let mut replay = Replay::new(&options, contender.discards(self, believed)).map_err(|source| {
            ArenaError::Geometry { profile: profile.name.clone(), size: self.size, source }
        })?;
        for _ in 0..passes {
            let mut memory = InMemory::new(&self.header, &self.events, BATCH);
            let failed = |source| ArenaError::Replay { trace: self.name.clone(), source };
            replay.pass(&mut memory, &mut |_| true).map_err(failed)?;
        }
        let outcome = replay.outcome();
        let thought = (self.span * u64::from(passes)).0 as f64 * cell.think_scale;
        let counters = &outcome.counters;
        let run = ArenaRun {
            cell: cell.clone(),
            policy: contender.to_string(),
            waited_ns: outcome.waited_ns,
            read_p99_ns: outcome.reads.p99_ns,
            write_p99_ns: outcome.writes.p99_ns,
            erases: counters.erases,
            host_pages: counters.host_pages,
            copied_pages: counters.copied_pages,
            discards: counters.discards,
            discard_bytes: counters.discard_bytes,
            discard_busy_ns: counters.discard_busy_ns,
            pending: outcome.pending,
        };
        Ok((run, outcome.waited_ns + Nanos(thought as u64)))
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::Extent;
    use trimtab_core::trace::{Comm, TraceDevice};

    use super::*;

    const SIZE: Bytes = Bytes(256 << 20);

    /// A host that writes 8 MiB in each round, at places that overlap, frees them, and pauses for 100 ms.
    fn trace() -> ArenaTrace {
        let mib = Bytes(1 << 20);
        let mut events = Vec::new();
        for round in 0..40 {
            for step in 0..16_u64 {
                let kind = if step < 8 { EventKind::Write } else { EventKind::Free };
                events.push(TraceEvent {
                    at: Nanos(round * 200_000_000 + step * 6_000_000),
                    device: DeviceIndex(0),
                    kind,
                    extent: Extent::at(mib * (round * 5 % 240 + step % 8), mib),
                    latency: kind.is_request().then_some(Nanos(4_000_000)),
                    process: Comm::new(b"test"),
                    error: 0,
                    fs: None,
                });
            }
        }
        let device = TraceDevice { name: "sda".to_owned(), size: SIZE, ..TraceDevice::default() };
        let header = TraceHeader { devices: vec![device], has_frees: true, ..TraceHeader::new("test") };
        ArenaTrace::of_events("tuning", "rounds".to_owned(), header, events).unwrap()
    }

    fn fight(think_scale: f64) -> Vec<ArenaRun> {
        let profile = Profile::named("ocz-agility-3").unwrap();
        trace().fight(&profile, &profile, think_scale, &Contender::all(), 1).unwrap()
    }

    fn of<'a>(runs: &'a [ArenaRun], policy: &str) -> &'a ArenaRun {
        runs.iter().find(|run| run.policy == policy).unwrap()
    }

    #[test]
    fn contenders_have_the_names_that_they_are_asked_for_by() {
        let names: Vec<_> = Contender::all().iter().map(Contender::to_string).collect();
        assert_eq!(names.len(), 9);
        assert_eq!((names[0].as_str(), names[8].as_str()), ("none", "ideal"));
        assert!("fastest".parse::<Contender>().is_err());
    }

    #[test]
    fn pauses_are_used_if_there_are_any() {
        let with = fight(1.0);
        assert!(of(&with, "batched:pauses").discards >= 30, "{:?}", of(&with, "batched:pauses"));
        let without = fight(0.0);
        assert!(of(&without, "batched:pauses").discards <= 2, "{:?}", of(&without, "batched:pauses"));
    }

    #[test]
    fn timers_that_never_end_do_what_none_does() {
        let runs = fight(10.0);
        let none = of(&runs, "none");
        assert_eq!(none.discards, 0);
        let week = ArenaRun { policy: "none".to_owned(), ..of(&runs, "batched:7days").clone() };
        assert_eq!(&week, none);
        assert!(of(&runs, "batched:1s").discards > 0);
        let profile = Profile::named("ocz-agility-3").unwrap();
        let alone = trace().fight(&profile, &profile, 10.0, &["batched:1h".parse().unwrap()], 1);
        assert_eq!(&ArenaRun { policy: "none".to_owned(), ..alone.unwrap()[0].clone() }, none);
    }

    #[test]
    fn bound_is_reached_by_nobody_without_pauses() {
        let runs = fight(0.0);
        let ideal = of(&runs, "ideal").waited_ns;
        assert!(runs.iter().all(|run| run.waited_ns >= ideal), "{runs:#?}");
    }
}
