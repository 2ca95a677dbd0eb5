//! Copies what sysfs says of the devices in a stack.

use std::fs;
use std::path::{Path, PathBuf};

use super::scrub::Scrub;
use super::tree::Tree;
use crate::block::BlockDevice;
use crate::stack::announced::{PAGES, is_impersonal};
use crate::stack::in_use::subsystem;
use crate::stack::{Layer, Machine};

/// The files that are copied of a device's directory.
const OF_DEVICE: [&str; 20] = [
    "dev",
    "size",
    "ro",
    "partition",
    "start",
    "discard_alignment",
    "queue/discard_granularity",
    "queue/discard_max_bytes",
    "queue/discard_max_hw_bytes",
    "queue/max_discard_segments",
    "queue/write_zeroes_max_bytes",
    "queue/logical_block_size",
    "queue/physical_block_size",
    "queue/rotational",
    "queue/zoned",
    "md/level",
    "md/chunk_size",
    "loop/offset",
    "bcache/state",
    "bcachefs/discard",
];
/// The files that are copied of the directory of the hardware behind it, or of a parent directory.
const OF_HARDWARE: [&str; 6] =
    ["vendor", "idVendor", "idProduct", "type", "erase_size", "preferred_erase_size"];
/// Files with names that an owner may have given the hardware.
const NAMES: [&str; 2] = ["model", "name"];
/// The files that are copied from the directory of its SCSI disk.
const OF_SCSI_DISK: [&str; 2] = ["provisioning_mode", "thin_provisioning"];

/// Adds to `tree` what there is of the devices among `layers`.
pub(super) fn copy(machine: &Machine, layers: &[&Layer], scrub: &mut Scrub, tree: &mut Tree) {
    let Ok(root) = machine.file("/").canonicalize() else { return };
    let sysfs = machine.sysfs();
    let mut copy = Copy { root, scrub, tree };
    for number in layers.iter().filter_map(|layer| layer.number) {
        if let Some(device) = BlockDevice::numbered(&sysfs, number) {
            copy.device(&device);
            copy.link(format!("sys/dev/block/{number}"), device.directory());
        }
    }
    for device in list(&sysfs.join("class/ata_device")) {
        copy.file(format!("sys/class/ata_device/{}/trim", name_of(&device)), &device.join("trim"));
    }
    let parameter = "sys/module/raid456/parameters/devices_handle_discard_safely";
    copy.file(parameter, &machine.file(parameter));
    for (index, system) in list(&sysfs.join("fs/btrfs")).iter().enumerate() {
        let members = list(&system.join("devices"));
        for device in members.iter().filter(|device| layers.iter().any(|layer| layer.name == name_of(device)))
        {
            copy.link(format!("sys/fs/btrfs/{index}/devices/{}", name_of(device)), device);
        }
    }
}

struct Copy<'a> {
    /// The root of the machine.
    root: PathBuf,
    scrub: &'a mut Scrub,
    tree: &'a mut Tree,
}

impl Copy<'_> {
    fn device(&mut self, device: &BlockDevice) {
        let directory = device.directory();
        let (Some(place), Some(name)) = (self.place(directory), directory.file_name()) else { return };
        for attribute in OF_DEVICE {
            self.file(place.join(attribute), &directory.join(attribute));
        }
        for (attribute, scrubbed) in [
            ("dm/name", device.identity("dm/name").map(|name| self.scrub.text(&name))),
            ("dm/uuid", subsystem(device).map(|name| name + "-")),
            ("loop/backing_file", device.identity("loop/backing_file").map(|file| self.scrub.text(&file))),
        ] {
            if let Some(text) = scrubbed.filter(|_| directory.join(attribute).exists()) {
                self.tree.file(place.join(attribute), text + "\n");
            }
        }
        for member in list(&directory.join("md")) {
            for attribute in ["offset", "slot"] {
                let copy = place.join("md").join(name_of(&member)).join(attribute);
                self.file(copy, &member.join(attribute));
            }
        }
        for slave in list(&directory.join("slaves")) {
            self.link(place.join("slaves").join(name_of(&slave)), &slave);
        }
        if directory.join("bcache").is_symlink() {
            self.link(place.join("bcache"), &directory.join("bcache"));
        }
        if device.disk().is_none() {
            self.link(Path::new("sys/block").join(name), directory);
            self.hardware(&directory.join("device"), &place);
        }
        self.link(Path::new("sys/class/block").join(name), directory);
    }

    /// Copies what is known of the hardware at `device`, which the disk at `place` links to.
    fn hardware(&mut self, device: &Path, place: &Path) {
        let (Ok(directory), Some(hardware)) = (device.canonicalize(), self.place(device)) else { return };
        self.link(place.join("device"), device);
        for name in NAMES {
            if let Ok(text) = fs::read_to_string(device.join(name)) {
                self.tree.file(hardware.join(name), self.scrub.text(text.trim()) + "\n");
            }
        }
        // A namespace with several paths has the directory of its subsystem, with the controllers in it.
        for controller in [directory.clone()].into_iter().chain(list(&directory)) {
            if let (true, Some(place)) = (controller.join("transport").is_file(), self.place(&controller)) {
                self.file(place.join("transport"), &controller.join("transport"));
            }
        }
        for page in PAGES {
            if let Ok(bytes) = fs::read(directory.join(page)) {
                let kept = |(at, byte): (usize, &u8)| if is_impersonal(page, at) { *byte } else { 0 };
                self.tree.file(hardware.join(page), bytes.iter().enumerate().map(kept).collect::<Vec<_>>());
            }
        }
        for disk in list(&directory.join("scsi_disk")) {
            for attribute in OF_SCSI_DISK {
                let to = hardware.join("scsi_disk").join(name_of(&disk)).join(attribute);
                self.file(to, &disk.join(attribute));
            }
        }
        for directory in directory.ancestors() {
            let Some(place) = self.place(directory) else { break };
            if let Ok(driver) = fs::read_link(directory.join("driver")) {
                self.tree.link(place.join("driver"), &Path::new("sys/drivers").join(name_of(&driver)));
            }
            for attribute in OF_HARDWARE {
                self.file(place.join(attribute), &directory.join(attribute));
            }
            let adapter = Path::new("scsi_host").join(name_of(directory)).join("proc_name");
            self.file(place.join(&adapter), &directory.join(&adapter));
        }
    }

    /// Copies the file at `from`, where there is one that can be read.
    fn file(&mut self, to: impl Into<PathBuf>, from: &Path) {
        if let Ok(bytes) = fs::read(from) {
            self.tree.file(to, bytes);
        }
    }

    /// Adds a link at `at` to what `from` is, or leads to.
    fn link(&mut self, at: impl Into<PathBuf>, from: &Path) {
        if let Some(place) = self.place(from) {
            self.tree.link(at.into(), &place);
        }
    }

    /// Where below the root `path` leads to.
    fn place(&mut self, path: &Path) -> Option<PathBuf> {
        let path = path.canonicalize().ok()?;
        let names = path.strip_prefix(&self.root).ok()?.iter();
        Some(names.map(|name| self.scrub.directory(&name.to_string_lossy())).collect())
    }
}

/// Returns the entries of a directory, by name; none where there is no such directory.
fn list(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
