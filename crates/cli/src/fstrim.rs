//! The program `fstrim` of util-linux: `trimtab` under that name takes its options, prints its messages and
//! returns its exit codes.

mod options;
mod size;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use rustix::fs::fstatfs;
use rustix::io::Errno;
use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;
use trimtab_core::document::trim::{Outcome, Sent, Target as Report};
use trimtab_core::interrupt::Interrupt;
use trimtab_core::policy::Goals;
use trimtab_core::{Bytes, Extent};
use trimtab_keeper::service::Config;
use trimtab_keeper::service::control::RUN;
use trimtab_keeper::trim::{Announced, ListedError, RefusedError, Request, Scope, Selected, selected};
use trimtab_linux::btrfs;
use trimtab_linux::mount::{covering, mounts};
use trimtab_linux::stack::Machine;
use trimtab_linux::trim::{fitrim, is_of_lost_data};

use crate::pause;
use crate::trim::{self, Job};
use options::{Options, Parsed, UsageError, What};

/// The name under which this program is `fstrim`.
const NAME: &str = "fstrim";
/// The exit code of a single trim that failed, and of a command line that is refused.
const FAILED: u8 = 1;
/// The exit code if no list can be read, or all trims failed.
const ALL_FAILED: u8 = 32;
/// The exit code if some of several trims failed.
const SOME_FAILED: u8 = 64;
/// The exit code if all lists are empty.
const EMPTY: u8 = 255;

const HELP: &str = "
Usage:
 fstrim [options] -A|-a|<mountpoint>

Tells the drive of a mounted file system which blocks are free.

Options:
 -a, --all                all mounted file systems
 -A, --fstab              the file systems in /etc/fstab
 -I, --listed-in <list>   the file systems in the first of these files that has any lines
                          (paths with colons between them, in the format of fstab or mountinfo)
 -o, --offset <num>       start at this byte
 -l, --length <num>       trim this many bytes
 -m, --minimum <num>      skip shorter free extents
 -t, --types <list>       with a list, only these types of file systems
 -v, --verbose            print the number of bytes trimmed
     --quiet-unsupported  no message for file systems that do not support it
 -n, --dry-run            trim nothing

Options that only this fstrim has; [fstrim] in /etc/trimtab.toml can set the first two:
     --paced              slow down while others use the drive
     --incremental        skip what earlier trims covered
     --progress           show a progress bar on a terminal

 -h, --help               print this help
 -V, --version            print the version

 <num> may have a suffix: KiB, MiB, GiB and so on (the \"iB\" is optional), or KB, MB, GB and so on.

This is trimtab, called as fstrim; see trimtab trim --help for more.
";

/// Whether this program was called as `fstrim`.
pub fn is_called() -> bool {
    let name = std::env::args_os().next();
    name.is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Runs `fstrim` with this program's arguments.
pub fn run() -> ExitCode {
    match options::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Help) => ExitCode::from(Printed::of(HELP.as_bytes()).ended(0)),
        Ok(Parsed::Version) => {
            let version = format!("fstrim from trimtab {}\n", env!("CARGO_PKG_VERSION"));
            ExitCode::from(Printed::of(version.as_bytes()).ended(0))
        }
        Ok(Parsed::Trim(options)) => match Fstrim::new(options) {
            Ok(fstrim) => ExitCode::from(fstrim.trim()),
            Err(error) => {
                warn(&[OsStr::new(&format!("{error:#}"))]);
                ExitCode::from(FAILED)
            }
        },
        Err(UsageError { message, hints_at_help }) => {
            warn(&[&message]);
            if hints_at_help {
                let _ = writeln!(io::stderr(), "Try 'fstrim --help' for more information.");
            }
            ExitCode::from(FAILED)
        }
    }
}

/// Returns the text of the system's error, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Prints a message on stderr.
fn warn(parts: &[&OsStr]) {
    let mut line = format!("{NAME}: ").into_bytes();
    parts.iter().for_each(|part| line.extend(part.as_bytes()));
    line.push(b'\n');
    let _ = io::stderr().write_all(&line);
}

/// Whether what was printed reached stdout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Printed {
    Whole,
    Failed,
    /// Stdout is a pipe that nobody reads.
    Unread,
}

impl Printed {
    /// Prints `text` on stdout.
    fn of(text: &[u8]) -> Self {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(text).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Self::Unread,
            Err(error) => {
                warn(&[OsStr::new(&format!("write error: {}", reason(&error)))]);
                Self::Failed
            }
            Ok(()) => Self::Whole,
        }
    }

    /// Returns the exit code of a program whose work ended with `code`. The SIGPIPE of an unread pipe, which
    /// ends util-linux's, comes after the work: it prints only then into a pipe.
    fn ended(self, code: u8) -> u8 {
        if self == Self::Unread {
            let _ = emulate_default_handler(SIGPIPE);
        }
        if code == 0 && self == Self::Failed { FAILED } else { code }
    }
}

/// How the trim of a file system ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Unsupported,
    /// It would lose data, which was said.
    LosesData,
    Failed,
}

struct Fstrim {
    options: Options,
    /// Set by signals while it trims in slices; otherwise they end the program.
    interrupt: Interrupt,
    /// Whether it trims in slices, as `trimtab trim` does.
    is_sliced: bool,
    /// Whether the service did not answer.
    is_service_silent: AtomicBool,
    /// Whether all that was printed reached stdout.
    printed: Printed,
}

impl Fstrim {
    fn new(mut options: Options) -> Result<Self> {
        match Config::find(None) {
            Ok(config) => {
                let rules = config.map(|config| config.fstrim()).unwrap_or_default();
                options.paced |= rules.paced;
                options.incremental |= rules.incremental;
            }
            Err(error) => {
                let error = format!("{:#}; trimming without it", anyhow::Error::from(error));
                warn(&[OsStr::new(&error)]);
            }
        }
        let is_sliced = options.paced || options.incremental || options.progress;
        let interrupt = if is_sliced { crate::interrupt()? } else { Interrupt::never() };
        crate::trace::guard_instances();
        let is_service_silent = AtomicBool::new(false);
        Ok(Self { options, interrupt, is_sliced, is_service_silent, printed: Printed::Whole })
    }

    /// Trims the file systems that the options name, and returns the exit code.
    fn trim(mut self) -> u8 {
        let code = match self.options.what.clone() {
            What::Directory(path) => self.directory(Path::new(&path)),
            What::Lists(lists) => self.lists(&lists),
        };
        self.printed.ended(code)
    }

    fn directory(&mut self, path: &Path) -> u8 {
        match fs::metadata(path) {
            Err(error) => {
                let failed = format!(" failed: {}", reason(&error));
                warn(&["stat of ".as_ref(), path.as_ref(), failed.as_ref()]);
                return FAILED;
            }
            Ok(found) if !found.is_dir() => {
                warn(&[path.as_ref(), ": not a directory".as_ref()]);
                return FAILED;
            }
            Ok(_) => {}
        }
        match self.file_system(path, None) {
            Ended::Well => 0,
            Ended::Unsupported if self.options.quiet_unsupported => 0,
            Ended::Unsupported => {
                unsupported(path);
                FAILED
            }
            Ended::LosesData | Ended::Failed => FAILED,
        }
    }

    fn lists(&mut self, lists: &OsStr) -> u8 {
        let machine = Machine::live();
        let types = self.options.types.as_ref().map(|types| types.to_string_lossy().into_owned());
        let mut code = ALL_FAILED;
        for list in lists.as_bytes().split(|byte| *byte == b':').filter(|list| !list.is_empty()) {
            let list = Path::new(OsStr::from_bytes(list));
            if !list.is_file() {
                continue;
            }
            match selected(&machine, list, types.as_deref()) {
                Ok(None) => code = EMPTY,
                Ok(Some(found)) => return self.all(&found),
                Err(ListedError::Read { source, .. }) => {
                    let failed = format!(": {}", reason(&source));
                    warn(&["failed to parse ".as_ref(), list.as_ref(), failed.as_ref()]);
                    return ALL_FAILED;
                }
                Err(error) => {
                    warn(&[OsStr::new(&error.to_string())]);
                    return ALL_FAILED;
                }
            }
        }
        code
    }

    fn all(&mut self, found: &[Selected]) -> u8 {
        let mut failed = 0;
        for selected in found {
            if self.interrupt.is_set() {
                warn(&["interrupted before ".as_ref(), selected.target.as_ref()]);
                return SOME_FAILED;
            }
            match self.file_system(&selected.target, Some(&selected.device)) {
                Ended::Failed => failed += 1,
                Ended::Unsupported if !self.options.quiet_unsupported => unsupported(&selected.target),
                Ended::Well | Ended::LosesData | Ended::Unsupported => {}
            }
        }
        match failed {
            0 => 0,
            failed if failed == found.len() => ALL_FAILED,
            _ => SOME_FAILED,
        }
    }

    /// Trims the file system that the directory `path` is on, and says so as the options want it.
    fn file_system(&mut self, path: &Path, device: Option<&Path>) -> Ended {
        let directory = match path.canonicalize().and_then(File::open) {
            Ok(directory) => directory,
            Err(error) => {
                let failed = format!(": {}", reason(&error));
                warn(&["cannot open ".as_ref(), path.as_ref(), failed.as_ref()]);
                return Ended::Failed;
            }
        };
        if self.options.dry_run {
            self.print(path, "0 B (dry run) trimmed", device);
            return Ended::Well;
        }
        let trimmed = match self.is_sliced {
            true => self
                .check(path, &directory)
                .and_then(|()| trim::in_thread(|| self.in_slices(path, &directory))),
            false => self.at_once(path, &directory),
        };
        match trimmed {
            Ok(bytes) => {
                if self.options.verbose {
                    let text = format!("{} ({bytes} bytes) trimmed", size::human(bytes));
                    self.print(path, &text, device);
                }
                Ended::Well
            }
            Err(ended) => ended,
        }
    }

    /// Calls FITRIM once, as util-linux does. Returns the number of bytes that the kernel reports.
    fn at_once(&self, path: &Path, directory: &File) -> Result<u64, Ended> {
        let mounts = mount_point(&Machine::live(), path).and_then(|mount| pause::mount_points(&mount));
        let mounts = mounts.unwrap_or_default();
        // Without the rights for it, no pause ends the trim.
        let announced = mounts.first().and_then(|mount| Announced::new(Path::new(RUN), mount).ok());
        if let Err(error) = pause::check(Path::new(RUN), &mounts) {
            warn(&[path.as_ref(), OsStr::new(&format!(": {error}"))]);
            return Err(Ended::Failed);
        }
        let Options { offset, length, minimum, .. } = self.options;
        let range = Extent::new(Bytes(offset), Bytes(offset.saturating_add(length)));
        let trimmed = fitrim(directory, range, Bytes(minimum));
        drop(announced);
        trimmed.map(|bytes| bytes.0).map_err(|error| refused(path, &error, self.options.quiet_unsupported))
    }

    /// Checks that the kernel takes the range and the least length, by a trim that is too short to discard anything; slices would
    /// hide what it refuses.
    fn check(&self, path: &Path, directory: &File) -> Result<(), Ended> {
        let Ok(found) = fstatfs(directory) else { return Ok(()) };
        if found.f_type == btrfs::MAGIC {
            // It refuses neither, and trims all that is in no chunk whatever the range is.
            return Ok(());
        }
        let Options { offset, length, minimum, .. } = self.options;
        let block = u64::try_from(found.f_bsize).unwrap_or_default().max(64 << 10);
        let range = Extent::new(Bytes(offset), Bytes(offset.saturating_add(length.min(block))));
        let minimum = Bytes(minimum.max(block + 1));
        fitrim(directory, range, minimum)
            .map(|_| ())
            .map_err(|error| refused(path, &error, self.options.quiet_unsupported))
    }

    /// Trims as `trimtab trim` does; what that refuses, such as a mount that is read-only, at once. Returns the number of bytes
    /// that were discarded.
    fn in_slices(&self, path: &Path, directory: &File) -> Result<u64, Ended> {
        let report = match self.report(path) {
            Err(error) if error.is::<RefusedError>() => return self.at_once(path, directory),
            Err(error) if trim::is_unsupported(&error) => return Err(Ended::Unsupported),
            Err(error) => {
                warn(&[path.as_ref(), OsStr::new(&format!(": {error:#}"))]);
                return Err(Ended::Failed);
            }
            Ok(report) => report,
        };
        if report.outcome == Outcome::Stopped {
            warn(&[path.as_ref(), ": interrupted".as_ref()]);
            return Err(Ended::Failed);
        }
        // Where no counter shows the discards, the kernel's figure is all there is.
        let bytes = |sent: Sent| match sent.bytes {
            Bytes::ZERO if !sent.uncounted.is_empty() => sent.reported_bytes.0,
            Bytes(bytes) => bytes,
        };
        Ok(report.sent.map_or(0, bytes))
    }

    fn report(&self, path: &Path) -> Result<Report> {
        let Options { offset, length, minimum, .. } = self.options;
        let request = Request {
            range: Extent::new(Bytes(offset), Bytes(offset.saturating_add(length))),
            minimum: Some(Bytes(minimum)),
            scope: Scope::Everything,
            full: !self.options.incremental,
            goals: self.options.paced.then(Goals::default),
            profile: None,
        };
        let machine = Machine::live();
        let job = Job {
            machine: &machine,
            request: &request,
            run: Path::new(RUN),
            is_service_silent: &self.is_service_silent,
            dry_run: false,
            shows_progress: self.options.progress,
            interrupt: &self.interrupt,
        };
        let mut report =
            Report { target: String::new(), outcome: Outcome::Failed, reason: None, plan: None, sent: None };
        job.attempt(&mount_point(&machine, path)?, &mut report)?;
        Ok(report)
    }

    fn print(&mut self, path: &Path, text: &str, device: Option<&Path>) {
        let mut line: Vec<u8> = path.as_os_str().as_bytes().to_vec();
        line.extend(format!(": {text}").bytes());
        if let Some(device) = device {
            line.extend(b" on ");
            line.extend(device.as_os_str().as_bytes());
        }
        line.push(b'\n');
        let printed = Printed::of(&line);
        if self.printed == Printed::Whole {
            self.printed = printed;
        }
    }
}

/// Returns where the file system that `path` is on is mounted.
fn mount_point(machine: &Machine, path: &Path) -> Result<PathBuf> {
    let place = path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
    Ok(covering(&mounts(&machine.procfs())?, &place).map_or(place, |mount| mount.target.clone()))
}

/// How a trim ended that was refused with `error`; says so, unless it is not supported or, where `is_quiet`, would lose data.
fn refused(path: &Path, error: &io::Error, is_quiet: bool) -> Ended {
    if is_unsupported(error) {
        return Ended::Unsupported;
    }
    if is_of_lost_data(error) {
        if is_quiet {
            return Ended::Unsupported;
        }
        warn(&[path.as_ref(), OsStr::new(&format!(": not trimmed: {error}"))]);
        return Ended::LosesData;
    }
    let failed = format!(": FITRIM ioctl failed: {}", reason(error));
    warn(&[path.as_ref(), failed.as_ref()]);
    Ended::Failed
}

fn unsupported(path: &Path) {
    warn(&[path.as_ref(), ": the discard operation is not supported".as_ref()]);
}

/// Whether FITRIM fails with `error` where it is not supported.
fn is_unsupported(error: &io::Error) -> bool {
    let unsupported = [Errno::BADF, Errno::NOTTY, Errno::OPNOTSUPP, Errno::NOSYS];
    error.raw_os_error().is_some_and(|number| unsupported.iter().any(|errno| errno.raw_os_error() == number))
}
