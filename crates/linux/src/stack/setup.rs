//! The settings of a machine's files and services for discards: who issues them, and when.

mod cron;
mod files;
mod fstrim_service;
mod kernel_line;
mod luks;
mod systemctl;
mod timer;
mod udev;
mod units;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::{Layer, LayerKind, Machine, Stack};
use crate::mount::{Listed, listed_in};

/// The settings in `/etc`, on the kernel's command line and of the service manager.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setup {
    /// The lines of `/etc/fstab`.
    pub fstab: Vec<Listed>,
    /// The lines of `/etc/crypttab`.
    pub crypttab: Vec<CrypttabLine>,
    /// Each dm-crypt device of a stack over a LUKS2 header that can be read, or that the kernel's command line names, by its
    /// kernel name, and whether the header's persistent flags or that line allow discards.
    pub luks_allows: Vec<(String, bool)>,
    /// `devices/issue_discards` of `/etc/lvm/lvm.conf`; none where it isn't set.
    pub lvm_issues_discards: Option<bool>,
    /// The timer that runs fstrim; none where there is no such unit, or nobody to ask.
    pub timer: Option<Timer>,
    /// The service that it starts; none where there is no such unit, or nobody to ask.
    pub fstrim_service: Option<FstrimService>,
    /// The units of trimtab itself that start by themselves: `trimtab.service`, `trimtab-trim.timer`.
    pub own_units: Vec<String>,
    /// The file systems that the running service knows, by its own status; none where that is not known, or none
    /// runs.
    pub served: Option<Vec<ServedMount>>,
    /// Whether `trimtab.service` is enabled, but does not run.
    pub is_down: bool,
    /// The commands that cron runs to trim.
    pub cron: Vec<CronTrim>,
    /// Whether this runs in a container, where fstrim.timer doesn't start.
    pub container: bool,
    /// The words of the kernel's command line that concern discards.
    pub command_line: Vec<String>,
    /// The lines of udev rules that set `provisioning_mode`.
    pub udev_rules: Vec<UdevLine>,
    /// The files that could not be read and why, a sentence each.
    pub left_out: Vec<String>,
}

impl Setup {
    /// Returns whether `machine` is a container.
    pub fn is_in_container(machine: &Machine) -> bool {
        is_container(machine)
    }

    /// Returns the settings of `machine` that concern `stacks`. Files that can't be read are named in
    /// [`left_out`](Self::left_out). Of a live machine, the caller has to ask the service for
    /// [`served`](Self::served) and [`is_down`](Self::is_down).
    pub fn of(machine: &Machine, stacks: &[Stack]) -> Self {
        let mut reader = Reader { machine, left_out: Vec::new() };
        let fstab = listed_in(reader.text("/etc/fstab").as_bytes());
        let crypttab = files::crypttab(&reader.text("/etc/crypttab"));
        // The second overrides the first.
        let lvm = ["/etc/lvm/lvmlocal.conf", "/etc/lvm/lvm.conf"].map(|file| reader.text(file));
        let command_line = files::command_line(&reader.text("/proc/cmdline"));
        let udev_rules = udev::rules(&mut reader);
        let timer = timer::read(&mut reader);
        let fstrim_service = fstrim_service::read(&mut reader);
        let own_units = units::own(&mut reader);
        let cron = cron::trims(&mut reader);
        let luks_allows = luks_allows(&mut reader, stacks, &command_line, &crypttab);
        Self {
            fstab,
            crypttab,
            luks_allows,
            lvm_issues_discards: lvm.iter().find_map(|text| files::issue_discards(text)),
            timer,
            fstrim_service,
            own_units,
            served: units::served(machine),
            is_down: units::is_down(machine),
            cron,
            container: is_container(machine),
            command_line,
            udev_rules,
            left_out: reader.left_out,
        }
    }
}

/// The namespaces of a machine's first processes, as `/proc/self/ns` names them: the numbers are fixed
/// (include/linux/proc_ns.h, `PROC_*_INIT_INO`).
const FIRST_NAMESPACES: [(&str, &str); 4] = [
    ("pid", "pid:[4026531836]"),
    ("cgroup", "cgroup:[4026531835]"),
    ("uts", "uts:[4026531838]"),
    ("ipc", "ipc:[4026531839]"),
];

/// Whether it is a container. systemd says so anew at each start; the files of Docker and Podman stay behind
/// where a container's files become those of a machine, so that they count in a namespace of its own only.
fn is_container(machine: &Machine) -> bool {
    let is_there = |file: &str| machine.file(file).exists();
    let has_own_namespace = || {
        FIRST_NAMESPACES.iter().any(|(kind, first)| {
            let found = fs::read_link(machine.file(&format!("/proc/self/ns/{kind}")));
            found.is_ok_and(|found| found != Path::new(first))
        })
    };
    is_there("/run/systemd/container")
        || ["/run/.containerenv", "/.dockerenv"].into_iter().any(is_there) && has_own_namespace()
}

/// Reads files, and keeps what could not be read.
struct Reader<'a> {
    machine: &'a Machine,
    left_out: Vec<String>,
}

impl Reader<'_> {
    /// Returns the text of a file; empty where there is none, or it can't be read.
    fn text(&mut self, file: &str) -> String {
        let read = fs::read(self.machine.file(file));
        let bytes = self.noting(&format!("read {file}"), read).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The outcome; none where it failed, which is noted unless there was just nothing.
    fn noting<T>(&mut self, what: &str, outcome: io::Result<T>) -> Option<T> {
        if let Err(error) = &outcome
            && error.kind() != ErrorKind::NotFound
        {
            self.left_out.push(format!("cannot {what}: {error}"));
        }
        outcome.ok()
    }
}

/// Returns the settings in the LUKS2 headers below the dm-crypt devices of `stacks`, and those of the kernel's command line.
fn luks_allows(
    reader: &mut Reader,
    stacks: &[Stack],
    command_line: &[String],
    crypttab: &[CrypttabLine],
) -> Vec<(String, bool)> {
    let mut allows: Vec<(String, bool)> = Vec::new();
    for (stack, layer) in stacks.iter().flat_map(|stack| stack.layers.iter().map(move |layer| (stack, layer)))
    {
        let LayerKind::DeviceMapper(table) = &layer.kind else { continue };
        if table.is_empty() {
            let unread = format!("cannot read the table of {}; run as root", layer.name);
            if !reader.left_out.contains(&unread) {
                reader.left_out.push(unread);
            }
        }
        let below = layer.below.first().and_then(|below| stack.layers.get(below.layer));
        let is_crypt = table.first().is_some_and(|line| line.target == "crypt");
        if is_crypt && allows.iter().all(|(name, _)| *name != layer.name) {
            let flags = luks_flags(reader, layer, below);
            let by_header = flags.map(|flags| files::has_word(&flags, "allow-discards"));
            let volume = kernel_line::Volume::of(reader.machine, layer, crypttab);
            let by_kernel = command_line.iter().any(|word| volume.is_allowed_by(word)).then_some(true);
            allows.extend(by_kernel.or(by_header).map(|allows| (layer.name.clone(), allows)));
        }
    }
    allows
}

/// The persistent flags in the header of the dm-crypt device `crypt` on `below`; none where that has no
/// header of LUKS2.
fn luks_flags(reader: &mut Reader, crypt: &Layer, below: Option<&Layer>) -> Option<String> {
    if !reader.machine.is_live() {
        return fs::read_to_string(reader.machine.file(&format!("/trimtab/luks/{}", crypt.name))).ok();
    }
    let device = PathBuf::from("/dev").join(&below?.name);
    let header = luks::flags(&device);
    reader.noting(&format!("read the LUKS header of {}", device.display()), header)?
}

/// A line of `/etc/crypttab`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrypttabLine {
    /// The name of the device that it sets up.
    pub name: String,
    /// The device below it, as the line names it.
    pub source: String,
    /// The options, one by one.
    pub options: Vec<String>,
    /// The words after the options, which nobody reads: a blank after a comma ends the options.
    pub unread: Vec<String>,
}

/// Returns whether an option of a dm-crypt device, as crypttab and the kernel's command line name it, allows discards.
pub fn allows_discards(option: &str) -> bool {
    matches!(option, "discard" | "allow-discards")
}

/// The service that `fstrim.timer` starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FstrimService {
    /// Its commands, word by word.
    pub commands: Vec<Vec<String>>,
    /// How it ended last, in the service manager's word: `success`, or `exit-code` and the like.
    pub result: String,
    /// Whether it can't see the directories `/home`, `/root` and `/run/user`.
    pub hides_homes: bool,
}

/// The state of `fstrim.timer`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Whether it starts by itself.
    pub enabled: bool,
    /// Whether it is waiting for its time.
    pub active: bool,
    /// When it last ran, in the service manager's words; none where it never did.
    pub last: Option<String>,
    /// When it runs next.
    pub next: Option<String>,
}

/// A file system as trimtab's running service knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedMount {
    /// Its mount point.
    pub mount: PathBuf,
    /// Whether the service trims it.
    pub is_trimmed: bool,
}

/// A command in a file of cron that trims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronTrim {
    /// The file.
    pub file: PathBuf,
    /// Whether it calls trimtab, or its stand-in for fstrim.
    pub is_own: bool,
    /// The words after `fstrim` or `trimtab trim`, as the file has them.
    pub words: Vec<String>,
}

/// A line of a udev rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdevLine {
    /// The rule's file.
    pub file: PathBuf,
    /// The line.
    pub line: String,
}
