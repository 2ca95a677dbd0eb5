//! One replay: a trace on one drive under one policy.

use trimtab_core::document::sim::{DiscardsFrom, Passes, ReplayOutcome};
use trimtab_core::policy::{SimPolicy, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::stats::is_steady;
use trimtab_core::trace::TraceSource;
use trimtab_ftl::GeometryError;
use trimtab_ftl::replay::{Discards, Replay, ReplayError, ReplayOptions};
use trimtab_trace::TraceError;

use super::tiles::Tiles;
use super::{Plan, SimulateOptions};

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayFailure {
    #[error(transparent)]
    Drive(#[from] GeometryError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Replay(#[from] ReplayError<TraceError>),
}

/// The results of a finished replay. They depend on nothing but the trace and the options.
pub(crate) struct Finished {
    pub(crate) discards_from: DiscardsFrom,
    pub(crate) steady: Option<bool>,
    pub(crate) lifetime_years: Option<f64>,
    pub(crate) endurance_cycles: Option<u32>,
    pub(crate) outcome: ReplayOutcome,
}

/// Replays the trace on one drive under one policy. `open` begins the trace anew for each pass. `watch` is called
/// with the number of events of each batch, and ends the replay by returning false.
pub(crate) fn replay<S: TraceSource<Error = TraceError>>(
    options: &SimulateOptions,
    plan: &Plan,
    profile: &Profile,
    policy: SimPolicy,
    open: &dyn Fn() -> Result<S, TraceError>,
    watch: &mut dyn FnMut(u64) -> bool,
) -> Result<Finished, ReplayFailure> {
    let discards_from = plan.discards_from(policy);
    let discards = match (discards_from, policy) {
        (DiscardsFrom::Trace, _) => Discards::Trace,
        (_, SimPolicy::Ideal) => Discards::Ideal,
        (_, SimPolicy::Real(policy)) => {
            let smart = || Box::new(SmartPolicy::of_drive(profile, plan.size));
            Discards::Policy(policy.engine().unwrap_or_else(|| smart()))
        }
    };
    let replay_options = ReplayOptions {
        profile,
        size: plan.size,
        preconditioned: options.preconditioned,
        device: plan.device,
        scale: plan.scale,
        span: plan.pass_span,
        clocks: options.clocks,
    };
    let mut replay = Replay::seeded(&replay_options, discards, options.seed)?;
    let mut tiles = plan.tiles.map(|layout| Tiles::new(layout, plan.device, open)).transpose()?;
    let steady = loop {
        match &mut tiles {
            Some(tiles) => replay.pass(tiles, watch)?,
            None => replay.pass(&mut open()?, watch)?,
        }
        let wafs = replay.waf_passes();
        let passes = wafs.len() as u32;
        match options.passes {
            Passes::Count(count) if passes >= count => break None,
            Passes::Count(_) => {}
            Passes::UntilSteady(most) => {
                let wafs: Vec<_> = wafs.iter().flatten().copied().collect();
                if is_steady(&wafs) || passes >= most {
                    break Some(is_steady(&wafs));
                }
            }
        }
    };
    let outcome = replay.outcome();
    let of_profile = profile.wear.as_ref().and_then(|wear| wear.endurance.as_ref());
    let assumed = plan.description.endurance_assumed;
    let endurance_cycles = of_profile.filter(|_| assumed).map(|endurance| endurance.value);
    Ok(Finished {
        discards_from,
        steady,
        lifetime_years: plan
            .trace
            .tells_life()
            .then(|| outcome.lifetime_years(endurance_cycles.unwrap_or(plan.description.endurance_cycles)))
            .flatten(),
        endurance_cycles,
        outcome,
    })
}
