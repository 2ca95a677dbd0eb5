//! The status of the service as text.

use std::time::SystemTime;

use trimtab_core::Bytes;
use trimtab_core::document::StatusDocument;
use trimtab_core::document::status::{FileSystemStatus, State};

use crate::number::{bytes, printable};
use crate::table::{Cell, Column, Table, Tone};
use crate::terminal::{BOLD, GREEN, RED, YELLOW, hanging, paint, wrapped};

/// Returns a summary in one sentence, a table of all file systems, and notes on those that wait, fail, are
/// off or are steered; `colour` adds escape codes.
pub fn text(document: &StatusDocument, colour: bool) -> String {
    let (code, summary) = summary(document);
    let mut text = format!("{}\n", paint(colour, code, wrapped(&summary)));
    if !document.file_systems.is_empty() {
        text += &format!("\n{}\n", table(document).terminal(colour));
    }
    let mut notes: Vec<_> = document.file_systems.iter().filter_map(note).collect();
    notes.extend(document.file_systems.iter().filter_map(untrimmed));
    notes.extend(document.file_systems.iter().filter_map(uncounted));
    notes
        .extend(document.frees_unavailable.iter().map(|why| format!("No free events are available: {why}.")));
    if document.lost_events > 0 {
        notes.push(format!(
            "{} free events were lost; all space that was free then was taken as pending.",
            document.lost_events
        ));
    }
    if !notes.is_empty() {
        let lines: Vec<_> = notes.iter().map(|note| hanging("- ", note) + "\n").collect();
        text += &format!("\n{}", lines.concat());
    }
    text
}

/// Returns the summary and its colour.
fn summary(document: &StatusDocument) -> (&'static str, String) {
    let of = |state| document.file_systems.iter().filter(move |fs| fs.state == state);
    let names = |all: &mut dyn Iterator<Item = &FileSystemStatus>| {
        all.map(|fs| printable(&fs.mount)).collect::<Vec<_>>().join(", ")
    };
    let mut late = document.file_systems.iter().filter(|fs| is_late(fs)).peekable();
    if of(State::Failing).next().is_some() {
        return (RED, format!("Trims fail on {}.", names(&mut of(State::Failing))));
    }
    if late.peek().is_some() {
        return (YELLOW, format!("On {}, trims are later than max_age.", names(&mut late)));
    }
    if document.file_systems.iter().any(is_trimmed) {
        let mut blocked = of(State::Off).filter(|fs| fs.unmanaged.as_deref() == Some("blocked")).peekable();
        if blocked.peek().is_some() {
            return (
                YELLOW,
                format!("No trim is late, but discards of {} are blocked.", names(&mut blocked)),
            );
        }
        return (GREEN, "No trim is late.".to_owned());
    }
    if of(State::Steered).next().is_some() {
        return (GREEN, "The file systems discard by themselves and are steered.".to_owned());
    }
    (BOLD, "No file system is managed.".to_owned())
}

/// Returns whether the service trims the file system, and so knows its pending extents.
fn is_trimmed(fs: &FileSystemStatus) -> bool {
    !matches!(fs.state, State::Steered | State::Off)
}

/// Returns whether the oldest pending extent exceeds the maximum age by more than a due trim may take.
fn is_late(fs: &FileSystemStatus) -> bool {
    fs.oldest_s.zip(fs.max_age_s).is_some_and(|(oldest, most)| oldest > most * 1.1 + 5.0)
}

fn table(document: &StatusDocument) -> Table {
    let column = |head: &str, cell: &dyn Fn(&FileSystemStatus) -> Cell| {
        Column::new(head, document.file_systems.iter().map(cell))
    };
    let if_trimmed = |cell: fn(&FileSystemStatus) -> Option<String>| {
        move |fs: &FileSystemStatus| match cell(fs) {
            Some(text) if is_trimmed(fs) => Cell::plain(text),
            _ => Cell::nothing(),
        }
    };
    let now = humantime::parse_rfc3339(&document.at).ok();
    let last = |fs: &FileSystemStatus| fs.last_trim.as_deref().and_then(|at| since(at, now?));
    Table(vec![
        column("mount", &|fs| Cell::plain(&fs.mount)),
        column("fs", &|fs| Cell::plain(&fs.fs)),
        column("policy", &|fs| Cell::plain(&fs.policy)),
        column("state", &|fs| match fs.state {
            State::Failing => Cell::toned(fs.state.name(), Tone::Worse),
            state => Cell::plain(state.name()),
        }),
        column(
            "pending",
            &if_trimmed(|fs| match fs.pending {
                Bytes::ZERO if fs.unread => Some("unread".to_owned()),
                pending => Some(bytes(pending.0 as f64)),
            }),
        ),
        column("oldest", &|fs| match fs.oldest_s {
            Some(age) if is_late(fs) => Cell::toned(span(age), Tone::Worse),
            Some(age) => Cell::plain(span(age)),
            None => Cell::nothing(),
        }),
        column("goal", &if_trimmed(|fs| fs.max_age_s.map(span))),
        column("last trim", &|fs| last(fs).map_or_else(Cell::nothing, Cell::plain)),
        column(
            "trimmed in all",
            &if_trimmed(|fs| match fs.trimmed {
                Bytes::ZERO if !fs.uncounted.is_empty() => Some("uncounted".to_owned()),
                trimmed => Some(bytes(trimmed.0 as f64)),
            }),
        ),
    ])
}

fn note(fs: &FileSystemStatus) -> Option<String> {
    let reason = fs.reason.as_ref()?;
    Some(format!("{} is {}: {reason}.", fs.mount, fs.state))
}

/// Says which device of a trimmed file system the service leaves alone.
fn untrimmed(fs: &FileSystemStatus) -> Option<String> {
    let device = fs.untrimmed.as_ref().filter(|_| is_trimmed(fs))?;
    Some(format!(
        "The service does not trim the realtime device of {}, {device}; fstrim does, from Linux 6.11 on, if that \
         takes discards.",
        fs.mount
    ))
}

/// Says that the figure of a file system lacks what no counter shows.
fn uncounted(fs: &FileSystemStatus) -> Option<String> {
    let devices = Some(fs.uncounted.join(", ")).filter(|devices| !devices.is_empty() && is_trimmed(fs))?;
    Some(format!("The service trims {}, but {devices} counted no discard so far.", fs.mount))
}

fn since(at: &str, now: SystemTime) -> Option<String> {
    let at = humantime::parse_rfc3339(at).ok()?;
    Some(format!("{} ago", span(now.duration_since(at).unwrap_or_default().as_secs_f64())))
}

/// Formats a span of time, to about a tenth of it: `50 s`, `12 min`, `3.5 h`, `2 d`.
fn span(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 100.0 => (s, "s"),
        s if s < 3600.0 => (s / 60.0, "min"),
        s if s < 48.0 * 3600.0 => (s / 3600.0, "h"),
        s => (s / 86400.0, "d"),
    };
    if value < 10.0 && value.fract() >= 0.05 && unit != "s" {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0} {unit}")
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::document::STATUS_SCHEMA;

    use super::*;

    fn fs(mount: &str, state: State) -> FileSystemStatus {
        FileSystemStatus {
            mount: mount.to_owned(),
            device: "/dev/vda1".to_owned(),
            fs: "ext4".to_owned(),
            policy: "smart".to_owned(),
            state,
            reason: None,
            unmanaged: None,
            unread: false,
            pending: Bytes(3 << 29),
            pending_extents: 7,
            oldest_s: Some(720.0),
            max_age_s: Some(3600.0),
            last_trim: Some("2026-01-01T00:00:00Z".to_owned()),
            trimmed: Bytes(1 << 34),
            discards: 5,
            trim_s: 1.5,
            refusals: std::collections::BTreeMap::new(),
            latency_added_s: 0.0,
            decision: None,
            btrfs: None,
            untrimmed: None,
            uncounted: Vec::new(),
        }
    }

    fn document(file_systems: Vec<FileSystemStatus>) -> StatusDocument {
        StatusDocument {
            schema: STATUS_SCHEMA.to_owned(),
            version: "0".to_owned(),
            pid: 1,
            started: "2026-01-01T00:00:00Z".to_owned(),
            at: "2026-01-01T03:30:00Z".to_owned(),
            frees_unavailable: None,
            lost_events: 0,
            file_systems,
            pools: Vec::new(),
        }
    }

    #[test]
    fn summary_comes_first_and_reasons_last() {
        let off = FileSystemStatus {
            oldest_s: None,
            max_age_s: None,
            last_trim: None,
            pending: Bytes::ZERO,
            reason: Some("it is mounted read-only".to_owned()),
            ..fs("/boot", State::Off)
        };
        let waits =
            FileSystemStatus { reason: Some("others use its drive".to_owned()), ..fs("/", State::Waiting) };
        let realtime = Some("/dev/vdb".to_owned());
        let waits = FileSystemStatus { untrimmed: realtime.clone(), ..waits };
        let off = FileSystemStatus { untrimmed: realtime, ..off };
        let shown = text(&document(vec![waits, off]), false);
        let expected = "\
No trim is late.

mount   fs policy   state  pending oldest goal last trim trimmed in all
/     ext4  smart waiting 1.50 GiB 12 min  1 h 3.5 h ago       16.0 GiB
/boot ext4  smart     off        –      –    –         –              –

- / is waiting: others use its drive.
- /boot is off: it is mounted read-only.
- The service does not trim the realtime device of /, /dev/vdb; fstrim does,
  from Linux 6.11 on, if that takes discards.
";
        assert_eq!(shown, expected);
    }

    #[test]
    fn counter_of_zero_is_not_shown_as_nothing_trimmed() {
        let silent = FileSystemStatus {
            trimmed: Bytes::ZERO,
            uncounted: vec!["zram0".to_owned()],
            ..fs("/", State::Idle)
        };
        let shown = text(&document(vec![silent.clone()]), false);
        assert!(shown.contains("   uncounted\n") && !shown.contains(" 0 B"), "{shown}");
        assert!(shown.ends_with("- The service trims /, but zram0 counted no discard so far.\n"), "{shown}");
        let partly = FileSystemStatus { trimmed: Bytes(1 << 34), ..silent };
        let shown = text(&document(vec![partly]), false);
        assert!(shown.contains("16.0 GiB\n") && shown.contains("but zram0 counted"), "{shown}");
    }

    #[test]
    fn summary_names_what_is_wrong() {
        let late = FileSystemStatus { oldest_s: Some(7200.0), ..fs("/late", State::Waiting) };
        let shown = text(&document(vec![late.clone()]), false);
        assert!(shown.starts_with("On /late, trims are later than max_age.\n"), "{shown}");
        let failing = FileSystemStatus { reason: Some("EIO".to_owned()), ..fs("/bad", State::Failing) };
        let shown = text(&document(vec![late, failing]), false);
        assert!(shown.starts_with("Trims fail on /bad.\n"), "{shown}");
        assert!(shown.ends_with("- /bad is failing: EIO.\n"), "{shown}");
        let knobs = Some("discard/iops_limit = 5".to_owned());
        let steered = FileSystemStatus { reason: knobs, oldest_s: None, ..fs("/own", State::Steered) };
        let shown = text(&document(vec![steered]), false);
        assert!(shown.starts_with("The file systems discard by themselves and are steered.\n"), "{shown}");
        assert!(shown.ends_with("- /own is steered: discard/iops_limit = 5.\n"), "{shown}");
        let blocked = FileSystemStatus { unmanaged: Some("blocked".to_owned()), ..fs("/raid", State::Off) };
        let unread = FileSystemStatus { unread: true, pending: Bytes::ZERO, ..fs("/", State::Waiting) };
        let shown = text(&document(vec![unread, blocked]), false);
        assert!(shown.starts_with("No trim is late, but discards of /raid are blocked.\n"), "{shown}");
        assert!(shown.contains("waiting  unread "), "{shown}");
        assert_eq!(text(&document(Vec::new()), false), "No file system is managed.\n");
    }
}
