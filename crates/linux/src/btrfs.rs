//! What btrfs shows of its own delayed discards in sysfs.

use std::fs;
use std::path::Path;

use trimtab_core::Bytes;

/// The bytes that a btrfs mounted with `discard=async` on the block device at the path `device`
/// still means to discard; none where the device carries no mounted btrfs, or the kernel (before
/// 5.6) doesn't say. `sysfs` is where sysfs is mounted.
pub fn discardable_bytes(sysfs: &Path, device: &Path) -> Option<Bytes> {
    let node = device.canonicalize().unwrap_or_else(|_| device.to_owned());
    let name = node.file_name()?;
    let file_systems = fs::read_dir(sysfs.join("fs/btrfs")).ok()?;
    let ours = file_systems.flatten().find(|entry| entry.path().join("devices").join(name).exists())?;
    let text = fs::read_to_string(ours.path().join("discard/discardable_bytes")).ok()?;
    text.trim().parse().ok().map(Bytes)
}

/// The names of all devices of the mounted btrfs that the device named `name` belongs to; none where
/// it belongs to none. `sysfs` is where sysfs is mounted.
pub fn devices(sysfs: &Path, name: &str) -> Vec<String> {
    let Ok(file_systems) = fs::read_dir(sysfs.join("fs/btrfs")) else { return Vec::new() };
    let mut lists = file_systems.flatten().map(|entry| entry.path().join("devices"));
    let ours = lists.find(|list| list.join(name).exists()).and_then(|list| fs::read_dir(list).ok());
    let names = ours.into_iter().flatten().flatten();
    names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_file_system_is_read() {
        let sysfs = tempfile::tempdir().unwrap();
        for (uuid, device, bytes) in [("aaaa", "sda1", "7\n"), ("bbbb", "sdb", "4096\n")] {
            let dir = sysfs.path().join("fs/btrfs").join(uuid);
            fs::create_dir_all(dir.join("devices").join(device)).unwrap();
            fs::create_dir_all(dir.join("discard")).unwrap();
            fs::write(dir.join("discard/discardable_bytes"), bytes).unwrap();
        }
        fs::create_dir_all(sysfs.path().join("fs/btrfs/features")).unwrap();
        let of = |device: &str| discardable_bytes(sysfs.path(), Path::new(device));
        assert_eq!(of("/dev/sdb"), Some(Bytes(4096)));
        assert_eq!(of("/dev/sda1"), Some(Bytes(7)));
        assert_eq!(of("/dev/sdc"), None);
    }
}
