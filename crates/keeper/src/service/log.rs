//! The service's log: one line of fields on stderr for each event.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};
use std::time::SystemTime;

use rustix::fs::fstat;

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// A failure that lasts.
    Error,
    /// A failure that may pass, or a reduced function.
    Warning,
    /// Normal operation.
    Info,
}

/// The event that a line reports. Its key is stable, so that programs can match it; the message is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogEvent {
    /// The configuration was read and applied.
    ConfigurationLoaded,
    /// The configuration could not be used; the previous one stays in effect.
    ConfigurationRejected,
    /// The log of decisions could not be written.
    DecisionsNotLogged,
    /// A discard failed; it is retried.
    DiscardFailed,
    /// Discards succeed again after a failure.
    DiscardRecovered,
    /// Some free events of the kernel were lost.
    FreeEventsLost,
    /// No free events are available, for one file system or for all.
    FreesUnavailable,
    /// A setting that a killed service changed could not be restored.
    KnobNotRestored,
    /// The service trims the file system.
    Managed,
    /// The list of mounts could not be read.
    MountsUnreadable,
    /// The service stops trimming the file system.
    NoLongerManaged,
    /// The service neither trims nor steers the file system.
    NotManaged,
    /// The configuration names a mount point without a file system on a block device.
    NotMounted,
    /// The state saved before can't be used.
    StateNotRestored,
    /// The state could not be saved.
    StateNotSaved,
    /// The state of a file system that was unmounted was saved.
    StateSaved,
    /// The file system discards by itself, at the pace that the service sets.
    Steered,
    /// The service ends.
    Stopped,
    /// The file system was unmounted.
    Unmounted,
}

impl LogEvent {
    /// The value of the field `event`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::ConfigurationLoaded => "configuration_loaded",
            Self::ConfigurationRejected => "configuration_rejected",
            Self::DecisionsNotLogged => "decisions_not_logged",
            Self::DiscardFailed => "discard_failed",
            Self::DiscardRecovered => "discard_recovered",
            Self::FreeEventsLost => "free_events_lost",
            Self::FreesUnavailable => "frees_unavailable",
            Self::KnobNotRestored => "knob_not_restored",
            Self::Managed => "managed",
            Self::MountsUnreadable => "mounts_unreadable",
            Self::NoLongerManaged => "no_longer_managed",
            Self::NotManaged => "not_managed",
            Self::NotMounted => "not_mounted",
            Self::StateNotRestored => "state_not_restored",
            Self::StateNotSaved => "state_not_saved",
            Self::StateSaved => "state_saved",
            Self::Steered => "steered",
            Self::Stopped => "stopped",
            Self::Unmounted => "unmounted",
        }
    }
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }

    /// The syslog priority.
    const fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }
}

/// The name and value of a field.
pub type Field<'a> = (&'a str, &'a dyn Display);

/// Writes lines to stderr. The journal gets a priority prefix; other destinations get the time and the level.
#[derive(Debug, Clone, Copy)]
pub struct Log {
    to_journal: bool,
}

impl Log {
    /// Returns a log in the format that fits the current destination of stderr.
    pub fn to_stderr() -> Self {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let device_and_inode = named.as_deref().and_then(|named| {
            let (device, inode) = named.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        // The variable is inherited even if stderr was redirected.
        let to_journal = device_and_inode.is_some_and(|(device, inode): (u64, u64)| {
            fstat(io::stderr()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
        });
        Self { to_journal }
    }

    /// Logs normal operation.
    pub fn info(self, event: LogEvent, message: &str, fields: &[Field]) {
        self.write(Level::Info, Line { event, message, fields });
    }

    /// Logs a failure that may pass, or a reduced function.
    pub fn warning(self, event: LogEvent, message: &str, fields: &[Field]) {
        self.write(Level::Warning, Line { event, message, fields });
    }

    /// Logs a failure that lasts.
    pub fn error(self, event: LogEvent, message: &str, fields: &[Field]) {
        self.write(Level::Error, Line { event, message, fields });
    }

    fn write(self, level: Level, line: Line) {
        let line = if self.to_journal {
            format!("<{}>{line}\n", level.priority())
        } else {
            let now = humantime::format_rfc3339_millis(SystemTime::now());
            format!("time={now} level={} {line}\n", level.name())
        };
        // A failure to log can't be reported anywhere.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

struct Line<'a> {
    event: LogEvent,
    message: &'a str,
    fields: &'a [Field<'a>],
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "event={} msg=", self.event.key())?;
        write_value(f, self.message)?;
        self.fields.iter().try_for_each(|(name, value)| {
            write!(f, " {name}=")?;
            write_value(f, &value.to_string())
        })
    }
}

/// Writes the value, quoted and escaped if it is empty or has spaces or special characters.
fn write_value(f: &mut fmt::Formatter, value: &str) -> fmt::Result {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\\');
    if !value.is_empty() && value.chars().all(is_plain) {
        return f.write_str(value);
    }
    f.write_char('"')?;
    for c in value.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c.is_control() => write!(f, "{}", c.escape_default())?,
            c => f.write_char(c)?,
        }
    }
    f.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_stays_single_and_its_fields_separate() {
        let fields: [Field; 5] = [
            ("mount", &"/a\nb=\"c\""),
            ("bytes", &7),
            ("empty", &""),
            ("back", &"a\\"),
            ("plain", &"/größe"),
        ];
        let event = LogEvent::DiscardFailed;
        let line = Line { event, message: "discard failed", fields: &fields }.to_string();
        let expected = r#"event=discard_failed msg="discard failed" mount="/a\nb=\"c\"" bytes=7 empty="" back="a\\" plain=/größe"#;
        assert_eq!(line, expected);
    }
}
