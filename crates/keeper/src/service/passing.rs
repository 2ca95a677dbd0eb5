//! File systems that come and go: what was mounted a moment ago and is left alone, and what was unmounted a moment ago and is not
//! saved yet.

use std::time::Duration;

use trimtab_core::document::status::FileSystemStatus;

use super::config::Config;
use super::context::Context;
use super::early_seal::EarlySeal;
use super::managed::ManagedFileSystem;
use super::mounts::MountedFileSystem;
use super::survey::unmanaged;

/// How long after an unmount the device is opened to seal the state. Whoever unmounts a file system often removes its device
/// next, which an open device may prevent.
const SEAL_AFTER: Duration = Duration::from_secs(1);
/// How long the last of a file system may take to be unmounted, as by umount --lazy.
const SUPERBLOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// A file system that is not opened yet, because it was mounted a moment ago.
pub(super) struct New {
    pub found: MountedFileSystem,
    /// Its state on the device when it was mounted.
    pub seal: EarlySeal,
    since: Duration,
    /// When it is managed.
    pub due: Duration,
}

impl New {
    /// Reads the device of `found`, but does not open the file system.
    pub fn start(context: &Context, found: MountedFileSystem, config: &Config, now: Duration) -> Self {
        let seal = EarlySeal::read(context, &found.mount);
        let mut new = Self { found, seal, since: now, due: now };
        new.apply(config);
        new
    }

    /// Applies a changed mount.
    pub fn change(&mut self, found: MountedFileSystem, config: &Config) {
        self.found = found;
        self.apply(config);
    }

    fn apply(&mut self, config: &Config) {
        self.due = self.since + config.settings(&self.found.targets, None).min_mount_age;
    }

    /// Returns its status.
    pub fn status(&self, context: &Context, config: &Config, now: Duration) -> FileSystemStatus {
        let policy = config.settings(&self.found.targets, None).policy.unwrap_or_default();
        let left = self.due.saturating_sub(now).as_secs() + 1;
        let reason = format!("mounted a moment ago: left alone for {left} s (min_mount_age)");
        unmanaged(&context.machine, &self.found, policy, "new", reason)
    }
}

/// A file system that was unmounted, and whose state is not saved yet.
pub(super) struct Unmounted {
    pub managed: ManagedFileSystem,
    since: Duration,
    /// When it is looked at again.
    pub due: Duration,
}

impl Unmounted {
    pub fn new(managed: ManagedFileSystem, now: Duration) -> Self {
        Self { managed, since: now, due: now + SEAL_AFTER }
    }

    /// Puts the next look off, because its superblock is still in use. Returns false if that has lasted too long.
    pub fn wait(&mut self, now: Duration) -> bool {
        self.due = now + SEAL_AFTER;
        now < self.since + SUPERBLOCK_TIMEOUT
    }

    /// Returns whether `found` is another file system on the same device, or the same after it ended.
    pub fn is_replaced_by(&self, found: &MountedFileSystem) -> bool {
        found.number() == self.managed.found.number() && !found.continues(&self.managed.found)
    }
}
