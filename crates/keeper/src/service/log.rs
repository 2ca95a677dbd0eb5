//! What the service says while it runs: a line of fields on stderr for each event.

use std::fmt::{self, Display, Write as _};
use std::io::{self, Write as _};
use std::time::SystemTime;

use rustix::fs::fstat;

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Something doesn't work and stays so.
    Error,
    /// Something doesn't work now, or not as it should.
    Warning,
    /// What happened.
    Info,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }

    /// The number that syslog gives it.
    const fn priority(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Info => 6,
        }
    }
}

/// A value of a line.
pub type Field<'a> = (&'a str, &'a dyn Display);

/// Writes lines to stderr: for the journal with their priority before them, for others with the time and
/// the level.
#[derive(Debug, Clone, Copy)]
pub struct Log {
    to_journal: bool,
}

impl Log {
    /// For where stderr goes now.
    pub fn to_stderr() -> Self {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let device_and_inode = named.as_deref().and_then(|named| {
            let (device, inode) = named.split_once(':')?;
            Some((device.parse().ok()?, inode.parse().ok()?))
        });
        // The variable is inherited where stderr has been sent elsewhere.
        let to_journal = device_and_inode.is_some_and(|(device, inode): (u64, u64)| {
            fstat(io::stderr()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (device, inode))
        });
        Self { to_journal }
    }

    /// Says that something happened.
    pub fn info(self, message: &str, fields: &[Field]) {
        self.say(Level::Info, message, fields);
    }

    /// Says that something doesn't work as it should.
    pub fn warning(self, message: &str, fields: &[Field]) {
        self.say(Level::Warning, message, fields);
    }

    /// Says that something doesn't work.
    pub fn error(self, message: &str, fields: &[Field]) {
        self.say(Level::Error, message, fields);
    }

    fn say(self, level: Level, message: &str, fields: &[Field]) {
        let line = match self.to_journal {
            true => format!("<{}>{}\n", level.priority(), Line { message, fields }),
            false => {
                let now = humantime::format_rfc3339_millis(SystemTime::now());
                format!("time={now} level={} {}\n", level.name(), Line { message, fields })
            }
        };
        // There is nobody to tell that nobody listens.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

struct Line<'a> {
    message: &'a str,
    fields: &'a [Field<'a>],
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("msg=")?;
        write_value(f, self.message)?;
        self.fields.iter().try_for_each(|(name, value)| {
            write!(f, " {name}=")?;
            write_value(f, &value.to_string())
        })
    }
}

/// As it is, or in quotes where it could be taken for something else.
fn write_value(f: &mut fmt::Formatter, value: &str) -> fmt::Result {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=' | '\\');
    match !value.is_empty() && value.chars().all(is_plain) {
        true => f.write_str(value),
        false => {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_one_and_its_fields_apart() {
        let fields: [Field; 5] = [
            ("mount", &"/a\nb=\"c\""),
            ("bytes", &7),
            ("empty", &""),
            ("back", &"a\\"),
            ("plain", &"/größe"),
        ];
        let line = Line { message: "trimmed all", fields: &fields }.to_string();
        assert_eq!(line, r#"msg="trimmed all" mount="/a\nb=\"c\"" bytes=7 empty="" back="a\\" plain=/größe"#);
    }
}
