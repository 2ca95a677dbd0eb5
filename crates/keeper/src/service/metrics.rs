//! The status as OpenMetrics text.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{FileSystemStatus, State};

/// Renders `status` in the text format of OpenMetrics.
///
/// # Errors
/// Only if the encoder fails, which writing to a string does not.
pub(super) fn render(status: StatusDocument) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("trimtab");
    let version = Info::new([("version", status.version.clone())]);
    registry.register("build", "The version of the service", version);
    let lost = ConstCounter::new(status.lost_events);
    registry.register("lost_events", "Free events that were lost", lost);
    registry.register_collector(Box::new(Status(status)));
    let mut body = String::new();
    text::encode(&mut body, &registry)?;
    Ok(body)
}

/// Encodes file systems in their order; the library's own metric families don't keep it.
#[derive(Debug)]
struct Status(StatusDocument);

impl Collector for Status {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let (to, all) = (&mut to, &self.0.file_systems);
        let of_each = |value: fn(&FileSystemStatus) -> f64| {
            all.iter().map(move |fs| (labels(fs), ConstGauge::new(value(fs))))
        };
        let pending = of_each(|fs| fs.pending.0 as f64);
        family(
            to,
            "pending",
            "Bytes that are free and maybe not discarded yet.",
            Some(Unit::Bytes),
            pending,
        )?;
        let oldest = of_each(|fs| fs.oldest_s.unwrap_or(0.0));
        let help = "Time since the oldest pending extent was freed.";
        family(to, "pending_oldest_age", help, Some(Unit::Seconds), oldest)?;
        let bytes = all.iter().map(|fs| (labels(fs), ConstCounter::new(fs.trimmed.0)));
        let help = "Bytes that the device discarded in trims of the service.";
        family(to, "discarded", help, Some(Unit::Bytes), bytes)?;
        let discards = all.iter().map(|fs| (labels(fs), ConstCounter::new(fs.discards)));
        family(
            to,
            "discards",
            "Discards that the device completed in trims of the service.",
            None,
            discards,
        )?;
        let took = all.iter().map(|fs| (labels(fs), ConstCounter::new(fs.trim_s)));
        family(to, "trim", "Time spent in trims.", Some(Unit::Seconds), took)?;
        let refusals = all.iter().flat_map(|fs| {
            let refusals = fs.refusals.iter();
            refusals.map(|(reason, count)| (labels_with(fs, "reason", reason), ConstCounter::new(*count)))
        });
        family(to, "refusals", "Trims that failed or were delayed.", None, refusals)?;
        let last = all.iter().filter_map(|fs| Some((labels(fs), ConstGauge::new(last_trim(fs)?))));
        let help = "Time of the last trim, since 1970.";
        family(to, "last_trim_timestamp", help, Some(Unit::Seconds), last)?;
        let help = "Mean increase in latency of other commands beside trims.";
        family(to, "latency_added", help, Some(Unit::Seconds), of_each(|fs| fs.latency_added_s))?;
        let states = all.iter().flat_map(|fs| {
            State::ALL.map(|state| {
                (labels_with(fs, "state", state.name()), ConstGauge::new(u32::from(state == fs.state)))
            })
        });
        family(to, "state", "Whether the file system is in this state.", None, states)
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Returns the labels of a file system.
fn labels(fs: &FileSystemStatus) -> Labels<'_> {
    vec![("mountpoint", &fs.mount), ("device", &fs.device), ("fstype", &fs.fs)]
}

/// Returns the labels of a file system and one more.
fn labels_with<'a>(fs: &'a FileSystemStatus, name: &'static str, value: &'a str) -> Labels<'a> {
    let mut labels = labels(fs);
    labels.push((name, value));
    labels
}

/// Returns the time of the last trim in seconds since 1970.
fn last_trim(fs: &FileSystemStatus) -> Option<f64> {
    let at: SystemTime = humantime::parse_rfc3339(fs.last_trim.as_ref()?).ok()?;
    Some(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

/// Encodes a metric with its `series` of labels and values.
fn family<'a, M: EncodeMetric + TypedMetric>(
    to: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    series: impl IntoIterator<Item = (Labels<'a>, M)>,
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, unit.as_ref(), M::TYPE)?;
    for (labels, value) in series {
        value.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use trimtab_core::Bytes;
    use trimtab_core::document::STATUS_SCHEMA;

    use super::*;

    #[test]
    fn file_systems_keep_their_order() {
        let fs = |mount: &str| FileSystemStatus {
            mount: mount.to_owned(),
            device: "/dev/vda1".to_owned(),
            fs: "ext4".to_owned(),
            policy: "smart".to_owned(),
            state: State::Waiting,
            reason: None,
            pending: Bytes(4096),
            pending_extents: 1,
            oldest_s: Some(1.5),
            max_age_s: Some(3600.0),
            last_trim: Some("1970-01-01T00:00:02Z".to_owned()),
            trimmed: Bytes(1 << 60),
            discards: 5,
            trim_s: 1.5,
            refusals: [("busy".to_owned(), 2)].into(),
            latency_added_s: 0.0,
        };
        let names: Vec<_> = (10..30).map(|number| format!("/{number}")).collect();
        let body = render(StatusDocument {
            schema: STATUS_SCHEMA.to_owned(),
            version: "0".to_owned(),
            pid: 1,
            started: String::new(),
            at: String::new(),
            frees_unavailable: None,
            lost_events: 0,
            file_systems: names.iter().map(|name| fs(name)).collect(),
        })
        .unwrap();
        for (metric, rest) in [
            ("pending_bytes", "} 4096.0"),
            ("discarded_bytes_total", "} 1152921504606846976"),
            ("last_trim_timestamp_seconds", "} 2.0"),
            ("refusals_total", ",reason=\"busy\"} 2"),
        ] {
            let encoded = body.lines().filter(|line| line.starts_with(&format!("trimtab_{metric}{{")));
            let series = |name: &String| {
                format!("trimtab_{metric}{{mountpoint=\"{name}\",device=\"/dev/vda1\",fstype=\"ext4\"{rest}")
            };
            assert_eq!(encoded.collect::<Vec<_>>(), names.iter().map(series).collect::<Vec<_>>());
        }
        assert_eq!(body.matches(",state=\"waiting\"} 1\n").count(), names.len(), "{body}");
    }
}
