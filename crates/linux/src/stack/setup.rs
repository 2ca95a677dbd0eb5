//! What a machine's files and services say about discards: who issues them, and when.

use std::path::PathBuf;

/// What `/etc`, the kernel's command line and the service manager say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Setup {
    /// The lines of `/etc/fstab`.
    pub fstab: Vec<FstabLine>,
    /// The lines of `/etc/crypttab`.
    pub crypttab: Vec<CrypttabLine>,
    /// Each dm-crypt device of a stack over a LUKS2 header that can be read, by its kernel name, and
    /// whether the header's persistent flags allow discards.
    pub luks_allows: Vec<(String, bool)>,
    /// `devices/issue_discards` of `/etc/lvm/lvm.conf`; none where it isn't set.
    pub lvm_issues_discards: Option<bool>,
    /// The timer that runs fstrim; none where there is no such unit, or nobody to ask.
    pub timer: Option<Timer>,
    /// Whether this runs in a container, where fstrim.timer doesn't start.
    pub container: bool,
    /// The words of the kernel's command line that concern discards.
    pub command_line: Vec<String>,
    /// The lines of udev rules that set `provisioning_mode`.
    pub udev_rules: Vec<UdevLine>,
    /// What could not be read and why, a sentence each.
    pub left_out: Vec<String>,
}

/// A line of `/etc/fstab`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FstabLine {
    /// The device as the line names it, such as `UUID=...`.
    pub source: String,
    /// The mount point; `none` or `swap` of swap.
    pub target: PathBuf,
    /// The file system's name.
    pub fstype: String,
    /// The options, one by one.
    pub options: Vec<String>,
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

/// A line of a udev rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdevLine {
    /// The rule's file.
    pub file: PathBuf,
    /// The line.
    pub line: String,
}
