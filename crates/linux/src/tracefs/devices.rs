//! The devices named in events.

use std::path::{Path, PathBuf};

use trimtab_core::trace::{DeviceIndex, TraceDevice, TraceHeader};
use trimtab_core::{Bytes, Extent};

use super::error::TracefsError;
use super::event::FsId;
use crate::block::{BlockDevice, BlockError, DeviceNumber};
use crate::btrfs;
use trimtab_core::hash::FastMap;

/// The major numbers of ram disks and of optical drives, which are not recorded by default.
const LEFT_OUT: [u32; 2] = [1, 11];

/// The disks of a recording, by their kernel numbers.
#[derive(Debug)]
pub(super) struct Devices {
    sysfs: PathBuf,
    /// The disks to record; empty for all.
    wanted: Vec<BlockDevice>,
    known: FastMap<KernelNumber, Option<Disk>>,
    /// The numbers of hidden paths, which sysfs does not have, and of the disks above them.
    paths: FastMap<KernelNumber, KernelNumber>,
}

/// A recorded disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Disk {
    pub index: DeviceIndex,
    /// Whether the driver takes bios instead of requests.
    pub takes_bios: bool,
    /// Whether the kernel sends it discards of several ranges.
    pub takes_ranges: bool,
    /// Distinguishes it from earlier disks with its number; none before Linux 5.15.
    sequence: Option<u64>,
    /// Whether it was gone, or without a backing file, at the last check.
    gone: bool,
}

/// Where a file system's device begins: the disk and the offset on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DiskOffset {
    pub disk: DeviceIndex,
    pub start: Bytes,
}

impl DiskOffset {
    /// Translates `extent` of the device to its disk.
    pub fn place(&self, extent: Extent) -> (DeviceIndex, Extent) {
        (self.disk, Extent::at(self.start + extent.start, extent.len()))
    }
}

/// A device's number as the kernel keeps it: the major in the high 12 bits, the minor in the low 20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KernelNumber(pub u32);

impl From<DeviceNumber> for KernelNumber {
    fn from(number: DeviceNumber) -> Self {
        Self(number.major << 20 | number.minor)
    }
}

impl From<KernelNumber> for DeviceNumber {
    fn from(number: KernelNumber) -> Self {
        Self { major: number.0 >> 20, minor: number.0 & ((1 << 20) - 1) }
    }
}

impl KernelNumber {
    /// Unpacks a number as the kernel packs it for user space.
    pub fn unpack(number: u32) -> Self {
        Self::from(DeviceNumber::unpack(number.into()))
    }
}

impl Devices {
    pub fn new(sysfs: &Path, wanted: &[BlockDevice]) -> Self {
        Self {
            sysfs: sysfs.to_owned(),
            wanted: wanted.to_vec(),
            known: FastMap::default(),
            paths: FastMap::default(),
        }
    }

    /// Returns the disk with this number, or the disk of the partition with this number; `None` if it is not
    /// recorded. A new disk is added to `header`.
    pub fn find(&mut self, number: KernelNumber, header: &mut TraceHeader) -> Option<Disk> {
        let number = self.paths.get(&number).copied().unwrap_or(number);
        match self.known.get(&number) {
            Some(Some(disk)) if disk.gone => self.forget_replaced(),
            Some(known) => return *known,
            None => {}
        }
        if let Some(known) = self.known.get(&number) {
            return *known;
        }
        let disk = BlockDevice::numbered(&self.sysfs, number.into())
            .and_then(|device| self.add(&device.whole(), header).ok().flatten());
        self.known.insert(number, disk);
        disk
    }

    /// Adds a whole disk to `header` unless it is listed already; returns `None` if it is not recorded.
    pub fn add(&mut self, disk: &BlockDevice, header: &mut TraceHeader) -> Result<Option<Disk>, BlockError> {
        let number = disk.number()?;
        if let Some(known) = self.known.get(&number.into()) {
            return Ok(*known);
        }
        let wanted = match self.wanted.as_slice() {
            [] => !LEFT_OUT.contains(&number.major),
            wanted => wanted.contains(disk),
        };
        let found = if wanted {
            let index = DeviceIndex(header.devices.len() as u16);
            let before = header.devices.iter().filter(|device| device.number == (number.major, number.minor));
            let before = before.count();
            let mut found = describe(disk, number);
            if before > 0 {
                found.name = format!("{} ({})", found.name, before + 1);
            }
            header.devices.push(found);
            Some(Disk {
                index,
                takes_bios: takes_bios(disk),
                takes_ranges: takes_ranges(disk),
                sequence: sequence(disk),
                gone: false,
            })
        } else {
            None
        };
        self.known.insert(number.into(), found);
        Ok(found)
    }

    /// Returns where `device` begins; `None` if its disk is not recorded.
    pub fn on_disk(&mut self, device: &BlockDevice, header: &mut TraceHeader) -> Option<DiskOffset> {
        let disk = self.add(&device.whole(), header).ok().flatten()?;
        Some(DiskOffset { disk: disk.index, start: device.extent().ok()?.start })
    }

    /// Returns where the device at the path `device` begins; `None` if its disk is not recorded.
    pub fn path_on_disk(&mut self, device: &Path, header: &mut TraceHeader) -> Option<DiskOffset> {
        let device = BlockDevice::open(&self.sysfs, device).ok()?;
        self.on_disk(&device, header)
    }

    /// Returns where the device with this number begins; `None` if its disk is not recorded.
    pub fn number_on_disk(&mut self, number: DeviceNumber, header: &mut TraceHeader) -> Option<DiskOffset> {
        let device = BlockDevice::numbered(&self.sysfs, number)?;
        self.on_disk(&device, header)
    }

    /// Returns true if the btrfs on the device at the path `device` uses a recorded disk.
    pub fn have_btrfs(&mut self, device: &Path, header: &mut TraceHeader) -> bool {
        let Ok(device) = BlockDevice::open(&self.sysfs, device) else { return false };
        let names = btrfs::member_names(&self.sysfs, &device.name());
        let members: Vec<_> = self.named(names).into_iter().chain([device]).collect();
        members.iter().any(|member| self.on_disk(member, header).is_some())
    }

    /// Returns the devices with these names, as far as they are there.
    fn named(&self, names: Vec<String>) -> Vec<BlockDevice> {
        let at = |name| BlockDevice::at(&self.sysfs.join("class/block").join(name));
        names.into_iter().filter_map(at).collect()
    }

    /// Returns whether the file system may lie on a recorded disk.
    pub fn may_hold(&mut self, id: &FsId, header: &mut TraceHeader) -> bool {
        let devices = match id {
            FsId::Device(number) => Vec::from_iter(BlockDevice::numbered(&self.sysfs, (*number).into())),
            FsId::Btrfs(id) => self.named(btrfs::member_names_of(&self.sysfs, id)),
        };
        let is_or_is_above = |device: &BlockDevice| {
            self.on_disk(device, header).is_some() || self.recorded_below(device).is_some()
        };
        devices.is_empty() || devices.iter().any(is_or_is_above)
    }

    /// Returns the names of the device at the path `device`, such as a logical volume, and of a recorded
    /// disk below it; `None` if there is no such disk.
    pub fn above(&self, device: &Path) -> Option<(String, String)> {
        let device = BlockDevice::open(&self.sysfs, device).ok()?;
        Some((device.name(), self.recorded_below(&device)?.name()))
    }

    fn recorded_below(&self, device: &BlockDevice) -> Option<BlockDevice> {
        let mut layer = vec![device.whole()];
        while !layer.is_empty() {
            let slaves = layer.iter().flat_map(|disk| disk.slaves().unwrap_or_default());
            layer = slaves.map(|slave| slave.whole()).collect();
            if let Some(disk) = layer.iter().find(|disk| self.wanted.contains(disk)) {
                return Some(disk.clone());
            }
        }
        None
    }

    /// The path of the device with this number.
    pub fn path_of(&self, number: DeviceNumber) -> Option<PathBuf> {
        Some(BlockDevice::numbered(&self.sysfs, number)?.path())
    }

    /// Records that `path` is the number of a path to the disk `disk`. A number that sysfs has is another disk's.
    pub fn learn_path(&mut self, path: KernelNumber, disk: KernelNumber) {
        let is_path = |sysfs: &Path| BlockDevice::numbered(sysfs, path.into()).is_none();
        if self.paths.get(&path) != Some(&disk) && is_path(&self.sysfs) {
            self.paths.insert(path, disk);
        }
    }

    /// Returns the names and numbers of the recorded disks with several paths (NVMe's native multipath).
    pub fn above_paths(&self) -> Vec<(String, KernelNumber)> {
        let all = if self.wanted.is_empty() {
            BlockDevice::disks(&self.sysfs).unwrap_or_default()
        } else {
            Vec::new()
        };
        let disks = self.wanted.iter().chain(&all).filter(|disk| disk.has_paths());
        disks.filter_map(|disk| Some((disk.name(), disk.number().ok()?.into()))).collect()
    }

    /// Forgets the numbers that may belong to another disk by now, so that the next event with such a number
    /// looks it up again and adds the replacement to the header as another disk.
    pub fn forget_replaced(&mut self) {
        let Self { sysfs, known, .. } = self;
        // Until a replacement appears, late events belong to the disk that was there.
        let is_in_use = |device: &BlockDevice| device.size().is_ok_and(|size| size > Bytes::ZERO);
        known.retain(|number, disk| {
            let now = BlockDevice::numbered(sysfs, (*number).into()).filter(is_in_use);
            disk.as_mut().is_some_and(|disk| {
                disk.gone = now.is_none();
                now.is_none_or(|now| sequence(&now) == disk.sequence)
            })
        });
    }

    /// Returns the filter condition that passes requests to recorded disks: `None` if there can be no such
    /// request, empty if all pass.
    pub fn requests_filter(&self) -> Result<Option<String>, TracefsError> {
        if self.wanted.is_empty() {
            return Ok(Some(String::new()));
        }
        let mut numbers = Vec::new();
        for disk in self.wanted.iter().filter(|disk| !takes_bios(disk)) {
            numbers.push(disk.number()?);
        }
        Ok(any_of(&numbers))
    }

    /// Returns the filter condition that passes bios for recorded disks whose drivers take bios, and for
    /// their partitions: `None` if there is no such disk now, empty if all pass.
    pub fn bios_filter(&self) -> Result<Option<String>, TracefsError> {
        self.filter(takes_bios)
    }

    /// Does the same for the other disks: their drivers take requests.
    pub fn requests_bios_filter(&self) -> Result<Option<String>, TracefsError> {
        self.filter(|disk| !takes_bios(disk))
    }

    fn filter(&self, is_such: impl Fn(&BlockDevice) -> bool) -> Result<Option<String>, TracefsError> {
        if self.wanted.is_empty() {
            return Ok(self.some_in_use(is_such)?.then(String::new));
        }
        let disks = self.wanted.iter().filter(|disk| is_such(disk));
        let devices =
            disks.flat_map(|disk| std::iter::once(disk.clone()).chain(disk.partitions().unwrap_or_default()));
        // A disk that has gone has no number.
        Ok(any_of(&devices.filter_map(|device| device.number().ok()).collect::<Vec<_>>()))
    }

    /// Returns true if there is such a disk now, apart from those that are never recorded.
    fn some_in_use(&self, is_such: impl Fn(&BlockDevice) -> bool) -> Result<bool, TracefsError> {
        let wanted = |disk: &BlockDevice| disk.number().is_ok_and(|number| !LEFT_OUT.contains(&number.major));
        let in_use = |disk: &BlockDevice| disk.size().is_ok_and(|size| size > Bytes::ZERO);
        let mut disks = BlockDevice::disks(&self.sysfs)?.into_iter();
        Ok(disks.any(|disk| is_such(&disk) && in_use(&disk) && wanted(&disk)))
    }
}

fn any_of(numbers: &[DeviceNumber]) -> Option<String> {
    let condition = |number: &DeviceNumber| format!("dev == {}", KernelNumber::from(*number).0);
    (!numbers.is_empty()).then(|| numbers.iter().map(condition).collect::<Vec<_>>().join(" || "))
}

/// Returns true if a disk's driver takes bios: it has no hardware queues.
fn takes_bios(disk: &BlockDevice) -> bool {
    !disk.attribute("mq").exists()
}

/// Returns true if the kernel sends the disk discards of several ranges.
fn takes_ranges(disk: &BlockDevice) -> bool {
    !takes_bios(disk) && disk.number_in("queue/max_discard_segments").is_ok_and(|most| most > 1)
}

/// Returns the sequence number, which is new for each disk and for each file behind a loop device.
fn sequence(device: &BlockDevice) -> Option<u64> {
    device.whole().number_in("diskseq").ok()
}

fn describe(disk: &BlockDevice, number: DeviceNumber) -> TraceDevice {
    let named =
        TraceDevice { name: disk.name(), number: (number.major, number.minor), ..TraceDevice::default() };
    match disk.describe() {
        Ok(found) => TraceDevice {
            model: found.model,
            size: found.size,
            logical_block: found.logical_block,
            rotational: found.rotational,
            discard_granularity: found.discard_granularity,
            discard_max: found.discard_max,
            discard_max_hardware: found.discard_max_hardware,
            ..named
        },
        Err(_) => TraceDevice { size: disk.size().unwrap_or_default(), ..named },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    #[test]
    fn devices_built_on_a_disk_are_found() {
        let machine = Captured::new()
            .device("sda", "8:0", &[])
            .device("sda/sda2", "8:2", &[])
            .device("sdb", "8:16", &[])
            .device("dm-0", "253:0", &[])
            .device("dm-1", "253:1", &[])
            .stacked("dm-0", "sda/sda2")
            .stacked("dm-1", "dm-0");
        let of = |wanted: &str, device: &str| {
            let devices = Devices::new(&machine.sysfs(), &[machine.open(wanted)]);
            devices.above(&machine.node(device))
        };
        assert_eq!(of("sda", "dm-1"), Some(("dm-1".to_owned(), "sda".to_owned())));
        assert_eq!(of("dm-0", "dm-1"), Some(("dm-1".to_owned(), "dm-0".to_owned())));
        assert_eq!((of("sdb", "dm-1"), of("sda", "sdb")), (None, None));
        let may_hold = |wanted: &str, minor| {
            let id = FsId::Device(DeviceNumber { major: 253, minor }.into());
            Devices::new(&machine.sysfs(), &[machine.open(wanted)])
                .may_hold(&id, &mut TraceHeader::new("record"))
        };
        assert_eq!(["sda", "dm-1", "sdb"].map(|wanted| may_hold(wanted, 1)), [true, true, false]);
        assert!(may_hold("sdb", 7), "no such device is there any more");
    }

    #[test]
    fn filters_name_the_present_disks() {
        let machine = Captured::new()
            .device("sda", "8:0", &[("mq/0/nr_tags", "1"), ("queue/max_discard_segments", "256")])
            .device("zram0", "252:0", &[])
            .device("zram0/zram0p1", "252:1", &[]);
        let wanted = ["sda", "zram0"].map(|name| machine.open(name));
        let devices = Devices::new(&machine.sysfs(), &wanted);
        let of = |numbers: &[(u32, u32)]| {
            let number = |(major, minor): &(u32, u32)| DeviceNumber { major: *major, minor: *minor };
            any_of(&numbers.iter().map(number).collect::<Vec<_>>())
        };
        let filters = || (devices.bios_filter().unwrap(), devices.requests_bios_filter().unwrap());
        assert_eq!(filters(), (of(&[(252, 0), (252, 1)]), of(&[(8, 0)])));
        let machine = machine.device("sda/sda1", "8:1", &[]);
        std::fs::remove_dir_all(machine.sysfs().join("devices/zram0/zram0p1")).unwrap();
        assert_eq!(filters(), (of(&[(252, 0)]), of(&[(8, 0), (8, 1)])));
        for disk in ["sda", "zram0"] {
            std::fs::remove_dir_all(machine.sysfs().join("devices").join(disk)).unwrap();
        }
        assert_eq!(filters(), (None, None));
    }

    #[test]
    fn path_of_a_disk_stands_for_the_disk() {
        let machine =
            Captured::new().device("nvme-subsystem/nvme1n1", "259:2", &[]).device("nvme0n1", "259:0", &[]);
        let above = machine.sysfs().join("devices/nvme-subsystem/nvme1n1");
        for file in ["partition", "start"] {
            std::fs::remove_file(above.join(file)).unwrap();
        }
        std::os::unix::fs::symlink(&above, machine.sysfs().join("block/nvme1n1")).unwrap();
        let number = |minor: u32| KernelNumber(259 << 20 | minor);
        let mut devices = Devices::new(&machine.sysfs(), &[]);
        let mut header = TraceHeader::new("record");
        assert_eq!(devices.above_paths(), [("nvme1n1".to_owned(), number(2))]);
        assert_eq!(devices.find(number(1), &mut header), None, "nothing is known of it yet");
        devices.learn_path(number(1), number(2));
        devices.learn_path(number(0), number(2));
        let disk = devices.find(number(2), &mut header);
        assert!(disk.is_some());
        assert_eq!(devices.find(number(1), &mut header), disk);
        assert_ne!(devices.find(number(0), &mut header), disk, "a disk of its own");
    }

    #[test]
    fn btrfs_is_on_all_its_disks() {
        let machine = Captured::new().device("sda", "8:0", &[]).device("sdb", "8:16", &[]);
        let machine = machine.device("sdc", "8:32", &[]);
        let machine =
            machine.file("sys/fs/btrfs/aaaa/devices/sda", "").file("sys/fs/btrfs/aaaa/devices/sdb", "");
        let mut devices = Devices::new(&machine.sysfs(), &[machine.open("sdb")]);
        let mut have = |device| devices.have_btrfs(&machine.node(device), &mut TraceHeader::new("record"));
        assert_eq!(["sda", "sdb", "sdc"].map(&mut have), [true, true, false]);
        let id = [0xaa; 16];
        let members = "sys/fs/btrfs/aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa/devices";
        let machine = machine.file(&format!("{members}/sda"), "").file(&format!("{members}/sdb"), "");
        let may_hold = |wanted: &str| {
            Devices::new(&machine.sysfs(), &[machine.open(wanted)])
                .may_hold(&FsId::Btrfs(id), &mut TraceHeader::new("record"))
        };
        assert_eq!(["sdb", "sdc"].map(may_hold), [true, false]);
    }

    #[test]
    fn number_may_pass_to_another_disk() {
        let machine = Captured::new().device("loop0", "7:0", &[("diskseq", "5")]);
        let (mut devices, mut header) = (Devices::new(&machine.sysfs(), &[]), TraceHeader::new("record"));
        let mut find = |devices: &mut Devices, minor| {
            let number = KernelNumber::from(DeviceNumber { major: 7, minor });
            devices.find(number, &mut header).map(|disk| disk.index.0)
        };
        assert_eq!((find(&mut devices, 0), find(&mut devices, 1)), (Some(0), None));
        std::fs::write(machine.sysfs().join("devices/loop0/diskseq"), "6\n").unwrap();
        std::fs::write(machine.sysfs().join("devices/loop0/size"), "0\n").unwrap();
        devices.forget_replaced();
        assert_eq!(find(&mut devices, 0), Some(0), "it is detached");
        std::fs::write(machine.sysfs().join("devices/loop0/size"), "8\n").unwrap();
        let machine = machine.device("loop1", "7:1", &[("diskseq", "6")]);
        std::fs::write(machine.sysfs().join("devices/loop0/diskseq"), "7\n").unwrap();
        assert_eq!((find(&mut devices, 0), find(&mut devices, 1)), (Some(1), Some(2)));
        let names: Vec<_> = header.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["loop0", "loop0 (2)", "loop1"]);
    }
}
