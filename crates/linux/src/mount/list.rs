//! Lists of file systems to mount or that are mounted: `/etc/fstab` and mountinfo.

use std::path::PathBuf;

use super::{parse_line, text, unescape};

/// The option that excludes a file system from trims of whole lists.
pub const EXCLUDED: &str = "X-fstrim.notrim";

/// Types of lines that name no file system on a device of this machine: bind mounts, swap, automounts, those of the
/// kernel alone, and those of servers.
const WITHOUT_DEVICE: [&str; 32] = [
    "none",
    "swap",
    "autofs",
    "overlay",
    "tmpfs",
    "ramfs",
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "mqueue",
    "hugetlbfs",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "pstore",
    "efivarfs",
    "bpf",
    "fuse",
    "nsfs",
    "virtiofs",
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "9p",
    "ceph",
    "afs",
    "glusterfs",
];

/// A mount point in a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The source as it is listed: a device's path, or a name such as `UUID=...`.
    pub source: PathBuf,
    /// The mount point; `none` or `swap` of swap.
    pub target: PathBuf,
    /// The file system's name; `auto` where it is to be found out.
    pub fstype: String,
    /// Its options, one by one.
    pub options: Vec<String>,
}

impl Listed {
    /// Whether its option X-fstrim.notrim, with a value or without, excludes it from trims of whole lists.
    pub fn is_excluded(&self) -> bool {
        self.options.iter().any(|option| option.split('=').next() == Some(EXCLUDED))
    }

    /// Whether it names a file system on a device, and not just a bind mount, swap or a server.
    pub fn is_on_device(&self) -> bool {
        !WITHOUT_DEVICE.contains(&self.fstype.as_str()) && !self.fstype.starts_with("fuse.")
    }

    /// Whether its own options make it read-only.
    pub fn is_read_only(&self) -> bool {
        self.options.iter().any(|option| option == "ro")
    }
}

/// The lines of a list in the format of `/etc/fstab` or of mountinfo.
pub fn listed_in(text: &[u8]) -> Vec<Listed> {
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).filter_map(listed_line).collect()
}

fn listed_line(line: &[u8]) -> Option<Listed> {
    let (source, target, fstype, options) = match parse_line(line) {
        Some(mount) => {
            let options = mount.all_options();
            (mount.source, mount.target, mount.fstype, options)
        }
        None => {
            let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
            let (source, target) = (unescape(fields.next()?), unescape(fields.next()?));
            (source, target, text(fields.next()?), fields.next().map(text).unwrap_or_default())
        }
    };
    let options = options.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect();
    Some(Listed { source, target, fstype, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_lists_are_read() {
        let fstab = b"# all\nUUID=1 / ext4 defaults,X-fstrim.notrim 0 1\n\n/dev/sdb\t/my\\040disk xfs\n/dev/sdc /bad\n";
        let lines = listed_in(fstab);
        assert_eq!(lines.len(), 2, "a line needs a type");
        assert_eq!(lines[0].options, ["defaults", "X-fstrim.notrim"]);
        let [disk, target] = ["/dev/sdb", "/my disk"].map(PathBuf::from);
        assert_eq!(lines[1], Listed { source: disk, target, fstype: "xfs".to_owned(), options: Vec::new() });
        let mountinfo = b"31 27 7:0 / /mnt rw,noatime shared:1 - ext4 /dev/loop0 rw,discard\n";
        let options = ["rw", "noatime", "discard"].map(str::to_owned).to_vec();
        let [source, target] = ["/dev/loop0", "/mnt"].map(PathBuf::from);
        let expected = Listed { source, target, fstype: "ext4".to_owned(), options };
        assert_eq!(listed_in(mountinfo), [expected]);
    }

    #[test]
    fn an_fstab_is_read() {
        let text = "# a comment\nUUID=1-2 / ext4 discard,errors=remount-ro 0 1\n\n  /dev/sdb /my\\040disk xfs\nbad\n";
        let lines = listed_in(text.as_bytes());
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].options, ["discard", "errors=remount-ro"]);
        assert_eq!((lines[1].target.to_str(), lines[1].options.len()), (Some("/my disk"), 0));
    }

    #[test]
    fn lines_say_what_they_name() {
        let line = |text: &str| listed_in(text.as_bytes()).remove(0);
        for (text, is_on_device, is_excluded, is_read_only) in [
            ("/dev/a /a xfs rw", true, false, false),
            ("/dev/a /a auto X-fstrim.notrim=1,ro", true, true, true),
            ("/a/sub /b none bind", false, false, false),
            ("/dev/b /b swap sw", false, false, false),
            ("host:/x /c nfs rw", false, false, false),
            ("x /d fuse.sshfs rw", false, false, false),
            ("/dev/c /e fuseblk rw,x-fstrim.notrim", true, false, false),
        ] {
            let line = line(text);
            let found = (line.is_on_device(), line.is_excluded(), line.is_read_only());
            assert_eq!(found, (is_on_device, is_excluded, is_read_only), "{text}");
        }
    }
}
