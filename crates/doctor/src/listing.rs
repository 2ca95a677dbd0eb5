//! Finds out which file systems the timers trim, which go by `/etc/fstab`.

use std::path::{Path, PathBuf};

use trimtab_linux::mount::Listed;
use trimtab_linux::stack::{FileSystem, Setup};

/// How a list that a timer goes by treats a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Listing {
    /// It is trimmed.
    Trims,
    /// The list doesn't name it.
    Absent,
    /// The service can't see its mount points.
    Hidden,
    /// The list has no lines, and nothing else is consulted.
    NoList,
    /// Its line has the option X-fstrim.notrim.
    Excluded,
    /// It is named only where it is read-only, such as here.
    ReadOnly(PathBuf),
}

/// The directories that systemd's ProtectHome hides.
const HOMES: [&str; 3] = ["/home", "/root", "/run/user"];

/// Returns how fstrim.service treats `file_system`, by its commands; without any, as [`by_lists`].
pub(super) fn by_fstrim(file_system: &FileSystem, setup: &Setup) -> Listing {
    let is_home = |target: &PathBuf| HOMES.iter().any(|home| target.starts_with(home));
    if setup.fstrim_service.as_ref().is_some_and(|service| service.hides_homes)
        && file_system.targets.iter().all(is_home)
    {
        return Listing::Hidden;
    }
    let commands = setup.fstrim_service.iter().flat_map(|service| &service.commands);
    let mut found = None;
    for command in commands {
        match by_command(command, file_system, setup) {
            Listing::Trims => return Listing::Trims,
            listing => found = found.or(Some(listing)),
        }
    }
    found.unwrap_or_else(|| by_lists(file_system, setup))
}

/// Returns how the words of a command, fstrim's or trimtab's, treat `file_system`.
fn by_command(command: &[String], file_system: &FileSystem, setup: &Setup) -> Listing {
    let has = |letter, name| has_option(command.get(1..).unwrap_or_default(), letter, name);
    let names_it = |word: &String| file_system.targets.iter().any(|target| target == Path::new(word));
    let is_fallback = command.iter().any(|word| word.contains("/proc/self/mountinfo"));
    if has('a', "--all") || command.iter().skip(1).any(names_it) {
        Listing::Trims
    } else if has('A', "--fstab") || has('I', "--listed-in") && !is_fallback {
        // Only the root is trimmed then, and a list without lines is no list.
        if setup.fstab.is_empty() { Listing::NoList } else { by_lists(file_system, setup) }
    } else if has('I', "--listed-in") {
        by_lists(file_system, setup)
    } else if command.first().is_some_and(|program| program.ends_with("fstrim")) {
        Listing::Absent
    } else {
        // A script may trim anything.
        Listing::Trims
    }
}

/// Returns whether an option is among the words of a command, by its letter or by its long name.
pub(super) fn has_option(words: &[String], letter: char, name: &str) -> bool {
    words.iter().any(|word| match word.strip_prefix('-') {
        Some(letters) if !letters.starts_with('-') => letters.contains(letter),
        _ => word.split('=').next() == Some(name),
    })
}

/// Returns how `fstrim --listed-in /etc/fstab:/proc/self/mountinfo` treats `file_system`, as fstrim.service of
/// util-linux 2.41 runs it: it passes over what is read-only by its line or at that mount point, and adds `/`. If fstab
/// has no lines, all mounts count.
pub(super) fn by_lists(file_system: &FileSystem, setup: &Setup) -> Listing {
    let is_writable = |target: &Path| file_system.writable.iter().any(|writable| writable == target);
    let is_trimmed = |line: &Listed| is_writable(&line.target) && !line.is_read_only();
    listing(file_system, setup, is_trimmed, is_writable(Path::new("/")))
}

/// Returns how `trimtab trim` with the same lists treats `file_system`: it trims what is read-only at one mount point
/// at another.
pub(super) fn by_own_timer(file_system: &FileSystem, setup: &Setup) -> Listing {
    let is_root = file_system.targets.iter().any(|target| target == Path::new("/"));
    listing(file_system, setup, |_| true, is_root)
}

fn listing(
    file_system: &FileSystem,
    setup: &Setup,
    is_trimmed: impl Fn(&Listed) -> bool,
    is_root: bool,
) -> Listing {
    // Bind mounts and the like name no file system.
    let is_of_it = |line: &&Listed| file_system.targets.contains(&line.target) && line.is_on_device();
    let lines = || setup.fstab.iter().filter(is_of_it);
    let mut open = lines().filter(|line| !line.is_excluded());
    // Only where no line names it is the root added.
    let has_root = setup.fstab.iter().any(|line| line.target == Path::new("/"));
    if setup.fstab.is_empty() || is_root && !has_root || open.clone().any(is_trimmed) {
        return Listing::Trims;
    }
    match (open.next(), lines().next()) {
        (Some(line), _) => Listing::ReadOnly(line.target.clone()),
        (None, Some(_)) => Listing::Excluded,
        (None, None) => Listing::Absent,
    }
}
