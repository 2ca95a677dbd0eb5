//! Media that may be taken out: whoever has finished with one unmounts it next.

use std::time::Duration;

use trimtab_linux::block::BlockDevice;

/// How long after somebody used the medium it may be trimmed.
const USED_LATELY: Duration = Duration::from_secs(5);
/// How often an unused medium is looked at.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// When others last used a removable medium.
#[derive(Debug)]
pub struct Removable {
    disk: BlockDevice,
    /// The reads and writes at the last look.
    requests: Option<u64>,
    /// When they were found to have become more; `None` if they have not.
    used: Option<Duration>,
}

impl Removable {
    /// Returns the use of the disk below `devices`; `None` if its medium can't be taken out.
    pub fn of(devices: &[BlockDevice]) -> Option<Self> {
        let disk = devices.first()?.whole();
        disk.is_removable().then_some(Self { disk, requests: None, used: None })
    }

    /// Returns whether others used it a moment ago.
    pub fn is_in_use(&mut self, now: Duration) -> bool {
        let requests = self.count();
        if self.requests.replace(requests).is_some_and(|before| before != requests) {
            self.used = Some(now);
        }
        self.used.is_some_and(|used| now.saturating_sub(used) < USED_LATELY)
    }

    /// Leaves out what a trim read.
    pub fn leave_out_own(&mut self) {
        self.requests = Some(self.count());
    }

    fn count(&self) -> u64 {
        self.disk.counters().map_or(0, |counters| counters.reads + counters.writes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn medium_is_in_use_for_a_moment_after_others_used_it() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("class/block/sdx");
        fs::create_dir_all(directory.join("queue")).unwrap();
        let reads = |count: u64| {
            fs::write(directory.join("stat"), format!("{count} 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n")).unwrap();
        };
        reads(1);
        fs::write(directory.join("removable"), "0\n").unwrap();
        let devices = [BlockDevice::open(root.path(), Path::new("/dev/sdx")).unwrap()];
        assert!(Removable::of(&devices).is_none());
        fs::write(directory.join("removable"), "1\n").unwrap();
        let mut removable = Removable::of(&devices).unwrap();
        let second = Duration::from_secs(1);
        assert!(!removable.is_in_use(second), "nobody was seen to use it");
        reads(2);
        assert!(removable.is_in_use(second * 2) && removable.is_in_use(second * 6));
        assert!(!removable.is_in_use(second * 7));
        reads(3);
        removable.leave_out_own();
        assert!(!removable.is_in_use(second * 8));
    }
}
