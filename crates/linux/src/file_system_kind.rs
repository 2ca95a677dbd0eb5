//! The kinds of file systems whose space this project follows, and what each reports.

/// How a file system reports the space that it frees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeReports {
    /// Every extent that is freed.
    Frees,
    /// Only what it is going to discard by itself.
    Discards,
}

/// A kind of file system. Those that are not in [`FileSystemKind::ALL`] report nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSystemKind {
    /// The name that the list of mounts has of it.
    pub name: &'static str,
    /// The driver that serves it and reports its events.
    pub driver: &'static str,
    /// The extents that its events report.
    pub reports: FreeReports,
    /// Whether its superblock shows later that it was written meanwhile; see [`generation`](crate::generation).
    pub has_seal: bool,
}

impl FileSystemKind {
    /// All that are followed.
    pub const ALL: [Self; 6] = [
        Self { name: "ext2", driver: "ext4", reports: FreeReports::Frees, has_seal: true },
        Self { name: "ext3", driver: "ext4", reports: FreeReports::Frees, has_seal: true },
        Self { name: "ext4", driver: "ext4", reports: FreeReports::Frees, has_seal: true },
        Self { name: "xfs", driver: "xfs", reports: FreeReports::Frees, has_seal: true },
        Self { name: "btrfs", driver: "btrfs", reports: FreeReports::Frees, has_seal: false },
        Self { name: "f2fs", driver: "f2fs", reports: FreeReports::Discards, has_seal: false },
    ];

    /// The kind with the name `fstype`; none where its space is not followed.
    pub fn named(fstype: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name == fstype)
    }

    /// Whether the file system named `fstype` reports every extent that it frees.
    pub fn reports_frees(fstype: &str) -> bool {
        Self::named(fstype).is_some_and(|kind| kind.reports == FreeReports::Frees)
    }
}
