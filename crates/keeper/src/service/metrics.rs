//! The status as metrics of Prometheus.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{FileSystemStatus, State};

/// A file system.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileSystem {
    mountpoint: String,
    device: String,
    fstype: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refusal {
    mountpoint: String,
    device: String,
    fstype: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    mountpoint: String,
    device: String,
    fstype: String,
    state: &'static str,
}

impl FileSystem {
    fn of(status: &FileSystemStatus) -> Self {
        Self { mountpoint: status.mount.clone(), device: status.device.clone(), fstype: status.fs.clone() }
    }

    fn refusing(self, reason: &str) -> Refusal {
        let Self { mountpoint, device, fstype } = self;
        Refusal { mountpoint, device, fstype, reason: reason.to_owned() }
    }

    fn state(self, state: State) -> InState {
        let Self { mountpoint, device, fstype } = self;
        InState { mountpoint, device, fstype, state: state.name() }
    }
}

type Count<L = FileSystem> = Family<L, Counter>;
type Sum = Family<FileSystem, Counter<f64, AtomicU64>>;
type Level = Family<FileSystem, Gauge<f64, AtomicU64>>;

/// The metrics that say what `status` says, in the text format of OpenMetrics.
///
/// # Errors
/// None that is known of: text always has room.
pub(super) fn render(status: &StatusDocument) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("trimtab");
    let (pending, oldest) = (Level::default(), Level::default());
    let (bytes, discards, seconds) = (Count::default(), Count::default(), Sum::default());
    let (last, latency) = (Level::default(), Level::default());
    let (refusals, states) = (Count::<Refusal>::default(), Family::<InState, Gauge>::default());
    let lost: Counter = Counter::default();
    lost.inc_by(status.lost_events);
    for fs in &status.file_systems {
        let labels = FileSystem::of(fs);
        pending.get_or_create(&labels).set(fs.pending.0 as f64);
        oldest.get_or_create(&labels).set(fs.oldest_s.unwrap_or(0.0));
        bytes.get_or_create(&labels).inc_by(fs.trimmed.0);
        discards.get_or_create(&labels).inc_by(fs.discards);
        seconds.get_or_create(&labels).inc_by(fs.trim_s);
        latency.get_or_create(&labels).set(fs.latency_added_s);
        if let Some(at) = fs.last_trim.as_ref().and_then(|at| humantime::parse_rfc3339(at).ok()) {
            let since_1970 = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            last.get_or_create(&labels).set(since_1970.as_secs_f64());
        }
        for (reason, count) in &fs.refusals {
            refusals.get_or_create(&labels.clone().refusing(reason)).inc_by(*count);
        }
        for state in State::ALL {
            states.get_or_create(&labels.clone().state(state)).set((state == fs.state).into());
        }
    }
    registry.register(
        "build",
        "The version of the service",
        Info::new([("version", status.version.clone())]),
    );
    registry.register_with_unit("pending", "Free and maybe not discarded yet", Unit::Bytes, pending);
    registry.register_with_unit(
        "pending_oldest_age",
        "How long the oldest of what is pending has been free",
        Unit::Seconds,
        oldest,
    );
    registry.register_with_unit(
        "discarded",
        "What the device counted in trims of the service",
        Unit::Bytes,
        bytes,
    );
    registry.register("discards", "Discards that the device counted in trims of the service", discards);
    registry.register_with_unit("trim", "Time spent in trims", Unit::Seconds, seconds);
    registry.register("refusals", "Trims that were refused or put off", refusals);
    registry.register_with_unit(
        "last_trim_timestamp",
        "When it was trimmed last, since 1970",
        Unit::Seconds,
        last,
    );
    registry.register_with_unit(
        "latency_added",
        "How much longer other commands took beside trims, on average, when there were both",
        Unit::Seconds,
        latency,
    );
    registry.register("state", "Whether the file system is in this state", states);
    registry.register("lost_events", "Events of the kernel that were lost", lost);
    let mut body = String::new();
    text::encode(&mut body, &registry)?;
    Ok(body)
}
