//! The status in Prometheus' text format, which Prometheus, promtool and node_exporter all read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::UNIX_EPOCH;

use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{BtrfsDiscards, FileSystemStatus, State, ThinPoolStatus};

use super::managed::REFUSALS;

/// Renders `status`, which the service gave or, if `is_running` is false, [`survey`](super::survey). Figures
/// that only the service knows are left out then.
pub fn render(status: &StatusDocument, is_running: bool) -> String {
    let mut text = Text::default();
    let version = vec![("version", status.version.as_str())];
    text.family("build_info", GAUGE, "The version of trimtab.", [(version, 1.0)]);
    let up = f64::from(u8::from(is_running));
    text.family("service_up", GAUGE, "Whether the service runs.", [(Vec::new(), up)]);
    if is_running {
        let lost = status.lost_events as f64;
        text.family("lost_events_total", COUNTER, "Free events that were lost.", [(Vec::new(), lost)]);
        trims(&mut text, &status.file_systems);
        states(&mut text, &status.file_systems);
    }
    let all = &status.file_systems;
    let unmanaged =
        all.iter().filter_map(|fs| Some((labels_with(fs, "reason", fs.unmanaged.as_deref()?), 1.0)));
    text.family(
        "unmanaged",
        GAUGE,
        "File systems that the service leaves alone, with the kind of the reason.",
        unmanaged,
    );
    btrfs(&mut text, all);
    pools(&mut text, &status.pools);
    text.0
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Metrics that were rendered so far.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Appends a metric with its `series` of labels and values; nothing if there is no series.
    fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        series: impl IntoIterator<Item = (Labels<'a>, f64)>,
    ) {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return;
        }
        self.line(&format!("# HELP trimtab_{name} {help}"));
        self.line(&format!("# TYPE trimtab_{name} {kind}"));
        for (labels, value) in series {
            let labels: Vec<_> =
                labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escaped(text))).collect();
            let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
            self.line(&format!("trimtab_{name}{labels} {}", number(value)));
        }
    }

    fn line(&mut self, line: &str) {
        // Writing to a string does not fail.
        _ = writeln!(self.0, "{line}");
    }
}

/// Returns a number with all digits of an integer, which `to_string` rounds.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { value.to_string() }
}

/// Returns the value of a label as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

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

/// Appends what is pending, the trims, and what they cost.
fn trims(text: &mut Text, all: &[FileSystemStatus]) {
    let of_each = |value: fn(&FileSystemStatus) -> f64| all.iter().map(move |fs| (labels(fs), value(fs)));
    let if_known = |value: fn(&FileSystemStatus) -> Option<f64>| {
        all.iter().filter_map(move |fs| Some((labels(fs), value(fs)?)))
    };
    let help = "Bytes that are free and maybe not discarded yet.";
    text.family("pending_bytes", GAUGE, help, of_each(|fs| fs.pending.0 as f64));
    let help = "Time since the oldest pending extent was freed.";
    text.family("pending_oldest_age_seconds", GAUGE, help, of_each(|fs| fs.oldest_s.unwrap_or(0.0)));
    let help = "The age from which pending extents are trimmed whatever their discard is worth.";
    text.family("pending_max_age_seconds", GAUGE, help, if_known(|fs| fs.max_age_s));
    let help = "Bytes that the device discarded in trims of the service.";
    text.family("discarded_bytes_total", COUNTER, help, of_each(|fs| fs.trimmed.0 as f64));
    let help = "Discards that the device completed in trims of the service.";
    text.family("discards_total", COUNTER, help, of_each(|fs| fs.discards as f64));
    text.family("trim_seconds_total", COUNTER, "Time spent in trims.", of_each(|fs| fs.trim_s));
    let refusals = all.iter().flat_map(|fs| {
        // Reasons that did not occur yet are zero, so that the first failure is an increase.
        let mut counts = BTreeMap::from(REFUSALS.map(|reason| (reason, 0)));
        counts.extend(fs.refusals.iter().map(|(reason, count)| (reason.as_str(), *count)));
        counts.into_iter().map(|(reason, count)| (labels_with(fs, "reason", reason), count as f64))
    });
    text.family("refusals_total", COUNTER, "Trims that failed or were delayed.", refusals);
    text.family(
        "last_trim_timestamp_seconds",
        GAUGE,
        "Time of the last trim, since 1970.",
        if_known(last_trim),
    );
    let help = "Mean increase in latency of other commands beside trims.";
    text.family("latency_added_seconds", GAUGE, help, of_each(|fs| fs.latency_added_s));
}

/// Returns the time of the last trim in seconds since 1970.
fn last_trim(fs: &FileSystemStatus) -> Option<f64> {
    let at = humantime::parse_rfc3339(fs.last_trim.as_ref()?).ok()?;
    Some(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64())
}

/// Appends the state of each file system.
fn states(text: &mut Text, all: &[FileSystemStatus]) {
    let states = all.iter().flat_map(|fs| {
        State::ALL
            .map(|state| (labels_with(fs, "state", state.name()), f64::from(u8::from(state == fs.state))))
    });
    text.family("state", GAUGE, "Whether the file system is in this state.", states);
}

/// Appends the discards that btrfs delays and sends by itself.
fn btrfs(text: &mut Text, all: &[FileSystemStatus]) {
    let of_each = |value: fn(&BtrfsDiscards) -> f64| {
        all.iter().filter_map(move |fs| Some((labels(fs), value(fs.btrfs.as_ref()?))))
    };
    let help = "Bytes that wait until btrfs discards them by itself.";
    text.family("btrfs_discardable_bytes", GAUGE, help, of_each(|own| own.discardable.0 as f64));
    let help = "Extents that wait until btrfs discards them by itself.";
    text.family("btrfs_discardable_extents", GAUGE, help, of_each(|own| own.discardable_extents as f64));
    let discarded = all.iter().filter_map(|fs| Some((fs, fs.btrfs.as_ref()?))).flat_map(|(fs, own)| {
        [("extent", own.discarded_extents), ("bitmap", own.discarded_bitmaps)]
            .map(|(kind, bytes)| (labels_with(fs, "kind", kind), bytes.0 as f64))
    });
    let help = "Bytes that btrfs discarded by itself since it was mounted.";
    text.family("btrfs_discarded_bytes_total", COUNTER, help, discarded);
    let help = "Bytes that btrfs used again before it discarded them, since it was mounted.";
    text.family("btrfs_discard_saved_bytes_total", COUNTER, help, of_each(|own| own.saved.0 as f64));
}

/// Appends how much of each thin pool is in use.
fn pools(text: &mut Text, all: &[ThinPoolStatus]) {
    let of_each = |value: fn(&ThinPoolStatus) -> f64| {
        all.iter()
            .map(move |pool| (vec![("pool", pool.name.as_str()), ("device", &pool.device)], value(pool)))
    };
    let help = "Bytes of the thin pool that its volumes use.";
    text.family("pool_used_bytes", GAUGE, help, of_each(|pool| pool.used.0 as f64));
    text.family("pool_size_bytes", GAUGE, "Bytes of the thin pool.", of_each(|pool| pool.size.0 as f64));
    let help = "Bytes of the thin pool's metadata that are in use.";
    text.family("pool_metadata_used_bytes", GAUGE, help, of_each(|pool| pool.metadata_used.0 as f64));
    let help = "Bytes of the thin pool's metadata.";
    text.family("pool_metadata_size_bytes", GAUGE, help, of_each(|pool| pool.metadata_size.0 as f64));
}

#[cfg(test)]
mod tests;
