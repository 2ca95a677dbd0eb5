//! Recordings without names.

use std::hash::{BuildHasher, RandomState};

use trimtab_core::trace::{Comm, TraceHeader};

/// Mount options with a value that is a word of the kernel's.
const WORDS: [&str; 3] = ["data", "discard", "errors"];
/// Stands for all gaps that name a file system or a device.
const NAMELESS_GAP: &str = "something of file systems or devices, which is left out since it has their names";

/// Replaces names by hashes. Nobody can tell a name from its hash: the key is random, and kept nowhere. A name has the
/// same hash in all of a recording, and another one in the next.
#[derive(Debug, Default)]
pub(crate) struct Anonymous {
    key: RandomState,
}

impl Anonymous {
    /// The hash of a process's name, which is as long as such a name may be; an unknown one stays unknown.
    pub(crate) fn process(&self, name: Comm) -> Comm {
        if name.is_empty() { name } else { Comm::new(self.name(name.as_bytes()).as_bytes()) }
    }

    /// Replaces the names of devices, mount points, and mount options' values, and removes the command line. Kernel,
    /// processor, drive models, sizes and limits stay.
    pub(crate) fn header(&self, header: &mut TraceHeader) {
        header.command = ["trimtab", "record", "--anonymise"].map(str::to_owned).into();
        for device in &mut header.devices {
            device.name = self.name(device.name.as_bytes());
        }
        for file_system in &mut header.file_systems {
            file_system.mount_point = self.name(file_system.mount_point.as_bytes());
            file_system.source = self.name(file_system.source.as_bytes());
            file_system.options = self.options(&file_system.options);
        }
        let all = header.gaps.len();
        header.gaps.retain(|gap| gap.starts_with("this kernel"));
        if header.gaps.len() < all {
            header.gaps.push(NAMELESS_GAP.to_owned());
        }
    }

    fn options(&self, options: &str) -> String {
        let option = |option: &str| match option.split_once('=') {
            Some((key, value)) if !WORDS.contains(&key) && value.parse::<u64>().is_err() => {
                format!("{key}={}", self.name(value.as_bytes()))
            }
            _ => option.to_owned(),
        };
        options.split(',').map(option).collect::<Vec<_>>().join(",")
    }

    /// 14 bytes: a process's name has at most 15.
    fn name(&self, name: &[u8]) -> String {
        format!("n-{:012x}", self.key.hash_one(name) >> 16)
    }
}

#[cfg(test)]
mod tests {
    use trimtab_core::trace::{TraceDevice, TraceFileSystem};

    use super::*;

    #[test]
    fn names_are_the_same_in_a_recording_and_differ_between_two() {
        let (one, other) = (Anonymous::default(), Anonymous::default());
        let name = Comm::new(b"alice-backup");
        assert_eq!(one.process(name), one.process(name));
        assert_ne!(one.process(name), one.process(Comm::new(b"alice-backuq")));
        assert_ne!(one.process(name), other.process(name));
        assert_eq!(one.process(name).as_bytes().len(), 14);
        assert_eq!(one.process(Comm::default()), Comm::default());
    }

    #[test]
    fn header_keeps_no_name() {
        let mut header = TraceHeader {
            command: vec!["trimtab".to_owned(), "record".to_owned(), "/home/alice".to_owned()],
            devices: vec![TraceDevice {
                name: "md_alice".to_owned(),
                number: (9, 1),
                ..TraceDevice::default()
            }],
            file_systems: vec![TraceFileSystem {
                kind: "btrfs".to_owned(),
                mount_point: "/home/alice".to_owned(),
                options: "rw,discard=async,subvolid=256,subvol=/alice".to_owned(),
                source: "/dev/mapper/alice".to_owned(),
            }],
            gaps: vec![
                "what the btrfs at /home/alice frees in unknown chunks".to_owned(),
                "this kernel has no event block_rq_issue (CONFIG_BLK_DEV_IO_TRACE)".to_owned(),
            ],
            ..TraceHeader::new("record")
        };
        let names = Anonymous::default();
        names.header(&mut header);
        let text = serde_json::to_string(&header).unwrap();
        assert!(!text.contains("alice"), "{text}");
        let file_system = &header.file_systems[0];
        assert_eq!(file_system.kind, "btrfs");
        assert!(file_system.options.starts_with("rw,discard=async,subvolid=256,subvol=n-"), "{text}");
        assert_eq!((header.devices[0].number, header.gaps.len()), ((9, 1), 2));
        assert!(header.gaps[0].starts_with("this kernel has no event"));
    }
}
