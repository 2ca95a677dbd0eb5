//! The command line of `fstrim`, as util-linux 2.41 and getopt_long of the GNU C library read it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::size;

/// The options, by their long and short names.
const OPTIONS: [(&str, Option<u8>, Name); 15] = [
    ("all", Some(b'a'), Name::All),
    ("fstab", Some(b'A'), Name::Fstab),
    ("help", Some(b'h'), Name::Help),
    ("listed-in", Some(b'I'), Name::ListedIn),
    ("version", Some(b'V'), Name::Version),
    ("offset", Some(b'o'), Name::Offset),
    ("length", Some(b'l'), Name::Length),
    ("minimum", Some(b'm'), Name::Minimum),
    ("types", Some(b't'), Name::Types),
    ("verbose", Some(b'v'), Name::Verbose),
    ("quiet-unsupported", None, Name::QuietUnsupported),
    ("dry-run", Some(b'n'), Name::DryRun),
    ("paced", None, Name::Paced),
    ("incremental", None, Name::Incremental),
    ("progress", None, Name::Progress),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    All,
    Fstab,
    Help,
    ListedIn,
    Version,
    Offset,
    Length,
    Minimum,
    Types,
    Verbose,
    QuietUnsupported,
    DryRun,
    Paced,
    Incremental,
    Progress,
}

impl Name {
    fn takes_value(self) -> bool {
        matches!(self, Self::ListedIn | Self::Offset | Self::Length | Self::Minimum | Self::Types)
    }

    fn is_list(self) -> bool {
        matches!(self, Self::All | Self::Fstab | Self::ListedIn)
    }
}

/// A command line that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// Trims.
    Trim(Options),
    /// The help.
    Help,
    /// The version.
    Version,
}

/// The options of a trim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file systems.
    pub what: What,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// The shortest free extent to discard.
    pub minimum: u64,
    /// File-system types to select from a list, as for `mount -t`.
    pub types: Option<OsString>,
    /// Print what was trimmed.
    pub verbose: bool,
    /// No message for file systems that do not support it.
    pub quiet_unsupported: bool,
    /// Trim nothing.
    pub dry_run: bool,
    /// Slow down while others use the drive.
    pub paced: bool,
    /// Skip what earlier trims covered.
    pub incremental: bool,
    /// Show a progress bar on a terminal.
    pub progress: bool,
}

/// The file systems to trim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The file system of this directory.
    Directory(OsString),
    /// The file systems in the first of these files that has any lines; the paths have colons between them.
    Lists(OsString),
}

/// A command line that `fstrim` refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageError {
    /// The message, without the program's name.
    pub message: OsString,
    /// Whether a hint to `--help` follows.
    pub hints_at_help: bool,
}

impl UsageError {
    fn new(message: impl Into<OsString>) -> Self {
        Self { message: message.into(), hints_at_help: true }
    }

    fn without_hint(message: impl Into<OsString>) -> Self {
        Self { message: message.into(), hints_at_help: false }
    }
}

/// Reads the arguments that follow the program's name, one after the other: the first error, `--help` or
/// `--version` ends it.
///
/// # Errors
/// [`UsageError`].
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, UsageError> {
    let mut left: VecDeque<OsString> = arguments.into_iter().collect();
    let mut builder = Builder::default();
    let mut operands = Vec::new();
    while let Some(argument) = left.pop_front() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            operands.extend(left.drain(..));
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            let (name, value) = long_option(long, &mut left)?;
            if let Some(parsed) = builder.set(name, value)? {
                return Ok(parsed);
            }
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            if let Some(parsed) = builder.set_cluster(&bytes[1..], &mut left)? {
                return Ok(parsed);
            }
        } else {
            operands.push(argument);
        }
    }
    builder.finish(operands)
}

/// Returns the option that `text`, the part after `--`, names or abbreviates, and its value.
fn long_option(text: &[u8], left: &mut VecDeque<OsString>) -> Result<(Name, OsString), UsageError> {
    let equals = text.iter().position(|byte| *byte == b'=');
    let (name, value) = text.split_at(equals.unwrap_or(text.len()));
    let whole = |before: &str, after: &str| {
        UsageError::new(joined(&[before.as_bytes(), b"option '--", text, b"'", after.as_bytes()]))
    };
    let found: Vec<_> = match OPTIONS.iter().find(|option| option.0.as_bytes() == name) {
        Some(exact) => vec![exact],
        None => OPTIONS.iter().filter(|option| option.0.as_bytes().starts_with(name)).collect(),
    };
    let (long, _, name) = match found[..] {
        [] => return Err(whole("unrecognized ", "")),
        [found] => *found,
        _ => {
            let names: String = found.iter().map(|option| format!(" '--{}'", option.0)).collect();
            return Err(whole("", &format!(" is ambiguous; possibilities:{names}")));
        }
    };
    match (name.takes_value(), value) {
        (false, []) => Ok((name, OsString::new())),
        (false, _) => Err(UsageError::new(format!("option '--{long}' doesn't allow an argument"))),
        (true, [_, value @ ..]) => Ok((name, OsStr::from_bytes(value).to_owned())),
        (true, []) => match left.pop_front() {
            Some(value) => Ok((name, value)),
            None => Err(UsageError::new(format!("option '--{long}' requires an argument"))),
        },
    }
}

fn joined(parts: &[&[u8]]) -> OsString {
    OsString::from_vec(parts.concat())
}

/// The options that were read so far.
#[derive(Default)]
struct Builder {
    list: Option<(Name, OsString)>,
    offset: u64,
    length: Option<u64>,
    minimum: u64,
    types: Option<OsString>,
    flags: Vec<Name>,
}

impl Builder {
    /// Sets the short options in `cluster`, the part after `-`.
    fn set_cluster(
        &mut self,
        cluster: &[u8],
        left: &mut VecDeque<OsString>,
    ) -> Result<Option<Parsed>, UsageError> {
        for (index, letter) in cluster.iter().enumerate() {
            let quoted = |before: &str| joined(&[before.as_bytes(), b" -- '", &[*letter], b"'"]);
            let Some((.., name)) = OPTIONS.iter().find(|option| option.1 == Some(*letter)) else {
                return Err(UsageError::new(quoted("invalid option")));
            };
            if !name.takes_value() {
                if let Some(parsed) = self.set(*name, OsString::new())? {
                    return Ok(Some(parsed));
                }
                continue;
            }
            let value = match &cluster[index + 1..] {
                [] => {
                    left.pop_front().ok_or_else(|| UsageError::new(quoted("option requires an argument")))?
                }
                rest => OsStr::from_bytes(rest).to_owned(),
            };
            return self.set(*name, value);
        }
        Ok(None)
    }

    /// Sets an option. Returns the request that ends the command line, if it is one.
    fn set(&mut self, name: Name, value: OsString) -> Result<Option<Parsed>, UsageError> {
        if name.is_list() && self.list.as_ref().is_some_and(|(other, _)| *other != name) {
            let message = "mutually exclusive arguments: --fstab --listed-in --all";
            return Err(UsageError::without_hint(message));
        }
        match name {
            Name::All => self.list = Some((name, "/proc/self/mountinfo".into())),
            Name::Fstab => self.list = Some((name, "/etc/fstab".into())),
            Name::ListedIn => self.list = Some((name, value)),
            Name::Offset => self.offset = size_of(&value, "offset")?,
            Name::Length => self.length = Some(size_of(&value, "length")?),
            Name::Minimum => self.minimum = size_of(&value, "minimum extent length")?,
            Name::Types => self.types = Some(value),
            Name::Help => return Ok(Some(Parsed::Help)),
            Name::Version => return Ok(Some(Parsed::Version)),
            Name::Verbose
            | Name::QuietUnsupported
            | Name::DryRun
            | Name::Paced
            | Name::Incremental
            | Name::Progress => self.flags.push(name),
        }
        Ok(None)
    }

    fn finish(self, operands: Vec<OsString>) -> Result<Parsed, UsageError> {
        let mut operands = operands.into_iter();
        let what = match self.list {
            Some((_, lists)) => What::Lists(lists),
            None => What::Directory(
                operands.next().ok_or_else(|| UsageError::without_hint("no mountpoint specified"))?,
            ),
        };
        if operands.next().is_some() {
            return Err(UsageError::new("unexpected number of arguments"));
        }
        let has = |name| self.flags.contains(&name);
        Ok(Parsed::Trim(Options {
            what,
            offset: self.offset,
            length: self.length.unwrap_or(u64::MAX),
            minimum: self.minimum,
            types: self.types,
            verbose: has(Name::Verbose),
            quiet_unsupported: has(Name::QuietUnsupported),
            dry_run: has(Name::DryRun),
            paced: has(Name::Paced),
            incremental: has(Name::Incremental),
            progress: has(Name::Progress),
        }))
    }
}

fn size_of(text: &OsStr, what: &str) -> Result<u64, UsageError> {
    size::parse(text).map_err(|error| {
        let before = format!("failed to parse {what}: '");
        let after = format!("': {}", super::reason(&error));
        UsageError::without_hint(joined(&[before.as_bytes(), text.as_bytes(), after.as_bytes()]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Parsed, UsageError> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn options(line: &str) -> Options {
        match read(line) {
            Ok(Parsed::Trim(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(line: &str) -> String {
        read(line).unwrap_err().message.into_string().unwrap()
    }

    #[test]
    fn options_stand_anywhere_and_in_clusters() {
        let found = options("-nv / -o1K --len 2M -m 0x10");
        assert_eq!(found.what, What::Directory("/".into()));
        assert_eq!((found.offset, found.length, found.minimum), (1 << 10, 2 << 20, 16));
        assert!(found.verbose && found.dry_run && !found.quiet_unsupported);
        assert_eq!(options("-- -n").what, What::Directory("-n".into()));
        assert_eq!(options("-").what, What::Directory("-".into()));
        assert_eq!(options("--all -t xfs").what, What::Lists("/proc/self/mountinfo".into()));
        assert_eq!(options("-Ia:b -vIa:b").what, What::Lists("a:b".into()));
    }

    #[test]
    fn the_first_error_or_request_counts() {
        assert_eq!(read("-v --help --nonsense"), Ok(Parsed::Help));
        assert_eq!(read("-nVx"), Ok(Parsed::Version));
        assert_eq!(refusal("-x --help"), "invalid option -- 'x'");
    }

    #[test]
    fn refusals_are_those_of_getopt() {
        for (line, message) in [
            ("--foo=1", "unrecognized option '--foo=1'"),
            ("--l 3", "option '--l' is ambiguous; possibilities: '--listed-in' '--length'"),
            ("--verbose=3", "option '--verbose' doesn't allow an argument"),
            ("--of", "option '--offset' requires an argument"),
            ("-vo", "option requires an argument -- 'o'"),
            ("-aA", "mutually exclusive arguments: --fstab --listed-in --all"),
            ("a b", "unexpected number of arguments"),
            ("-a b", "unexpected number of arguments"),
            ("-v", "no mountpoint specified"),
            ("-m 1.5 /", "failed to parse minimum extent length: '1.5': Invalid argument"),
        ] {
            assert_eq!(refusal(line), message, "{line}");
        }
    }
}
