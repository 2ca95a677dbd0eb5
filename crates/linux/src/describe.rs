//! Describes a block device: its model, identity and limits, as a bench's document keeps them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use trimtab_core::Bytes;
use trimtab_core::document::bench::BenchDevice;

use crate::block::{BlockDevice, BlockError};

/// The attributes that may hold a disk's serial number.
const SERIAL: [&str; 4] = ["device/serial", "serial", "wwid", "device/wwid"];

impl BlockDevice {
    /// Returns its description and the limits of its queue.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn describe(&self) -> Result<BenchDevice, BlockError> {
        let limits = self.discard_limits()?;
        Ok(BenchDevice {
            path: self.path().display().to_string(),
            model: self.model(),
            firmware: self.first_of(&["device/firmware_rev", "device/fwrev", "device/rev"]),
            serial: self.first_of(&SERIAL),
            size: self.size()?,
            logical_block: self.logical_block()?,
            physical_block: Bytes(self.number_in("queue/physical_block_size")?),
            rotational: self.number_in("queue/rotational")? != 0,
            scheduler: absent("none".to_owned(), self.scheduler())?,
            queue_requests: absent(0, self.queue_requests())?,
            discard_granularity: limits.granularity,
            discard_alignment: limits.alignment,
            discard_max: limits.max,
            discard_max_hardware: limits.max_hardware,
            write_zeroes_max: limits.write_zeroes_max,
        })
    }

    /// Returns the model and the serial number of its disk, which no other disk has; `None` if the disk reports no
    /// serial number.
    pub fn hardware_identity(&self) -> Option<String> {
        let serial = self.first_of(&SERIAL);
        (!serial.is_empty()).then(|| format!("{} {serial}", self.hardware().unwrap_or_default()))
    }

    /// The model, with the vendor where that is not just the transport; for what is no hardware, the
    /// file behind it or the driver's name.
    fn model(&self) -> String {
        if let Some(file) = self.identity("loop/backing_file") {
            return format!("loop over {file}");
        }
        if let Some(name) = self.identity("dm/name") {
            return format!("device mapper {name}");
        }
        self.hardware().unwrap_or_else(|| self.driver())
    }

    /// The hardware's vendor and model; none where it is no hardware, or names none.
    pub(crate) fn hardware(&self) -> Option<String> {
        // SCSI's vendor of a SATA disk is `ATA`, and the model starts with the real one.
        let vendor =
            self.identity("device/vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
        let model = self.identity("device/model").or_else(|| self.identity("device/name"))?;
        Some(vendor.map_or(model.clone(), |vendor| format!("{vendor} {model}")))
    }

    /// The name of its driver; its own without the number where it has none.
    pub(crate) fn driver(&self) -> String {
        let disk = self.whole();
        let driver = fs::read_link(disk.attribute("device/driver")).ok();
        match driver.as_deref().and_then(Path::file_name) {
            Some(name) => name.to_string_lossy().into_owned(),
            None => disk.name().trim_end_matches(|digit: char| digit.is_ascii_digit()).to_owned(),
        }
    }

    /// The first of these attributes of the disk that there is; empty where there is none.
    fn first_of(&self, attributes: &[&str]) -> String {
        attributes.iter().find_map(|attribute| self.identity(attribute)).unwrap_or_default()
    }

    /// An attribute of the disk that names something; none where it is missing or blank, or the
    /// driver fails to ask the hardware.
    pub(crate) fn identity(&self, attribute: &str) -> Option<String> {
        let disk = self.whole();
        let text = fs::read(disk.attribute(attribute)).ok()?;
        let text = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n']).to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// Returns an attribute of a queue that the kernel schedules; `otherwise` where it has no such attribute, as
/// those of zram and the device mapper since Linux 6.10.
fn absent<T>(otherwise: T, attribute: Result<T, BlockError>) -> Result<T, BlockError> {
    match attribute {
        Err(BlockError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(otherwise),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured::Captured;

    const QUEUE: [(&str, &str); 7] = [
        ("queue/logical_block_size", "512"),
        ("queue/physical_block_size", "4096"),
        ("queue/rotational", "0"),
        ("queue/discard_granularity", "4096"),
        ("queue/discard_max_bytes", "2147450880"),
        ("queue/discard_max_hw_bytes", "4294966784"),
        ("queue/write_zeroes_max_bytes", "0"),
    ];
    const SCHEDULED: [(&str, &str); 2] =
        [("queue/scheduler", "[none] mq-deadline"), ("queue/nr_requests", "1023")];

    /// A machine with one disk of these attributes.
    fn with(name: &str, attributes: &[(&str, &str)]) -> Captured {
        let attributes = [&QUEUE[..], &[("discard_alignment", "512")], attributes].concat();
        Captured::new().device(name, "8:0", &attributes)
    }

    fn identity(machine: &Captured, name: &str) -> [String; 3] {
        let BenchDevice { model, firmware, serial, .. } = machine.open(name).describe().unwrap();
        [model, firmware, serial]
    }

    #[test]
    fn nvme_drive_is_described() {
        let identified = [
            ("device/model", "Samsung SSD 980 PRO 1TB                 "),
            ("device/firmware_rev", "5B2QGXA7"),
            ("device/serial", "S5P2NS0R     "),
            ("wwid", "eui.002538b111"),
        ];
        let machine = with("nvme0n1", &[&identified[..], &SCHEDULED].concat());
        assert_eq!(identity(&machine, "nvme0n1"), ["Samsung SSD 980 PRO 1TB", "5B2QGXA7", "S5P2NS0R"]);
        let found = machine.open("nvme0n1").describe().unwrap();
        let expected = BenchDevice {
            path: "/dev/nvme0n1".into(),
            size: Bytes::MIB,
            logical_block: Bytes(512),
            physical_block: Bytes(4096),
            rotational: false,
            scheduler: "none".into(),
            queue_requests: 1023,
            discard_granularity: Bytes(4096),
            discard_alignment: Bytes(512),
            discard_max: Bytes(2_147_450_880),
            discard_max_hardware: Bytes(4_294_966_784),
            write_zeroes_max: Bytes(0),
            ..found.clone()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn disks_behind_scsi_are_described() {
        let sata = [
            ("device/vendor", "ATA     "),
            ("device/model", "M4-CT512M4SSD2  "),
            ("device/rev", "070H"),
            ("device/wwid", "t10.ATA     M4-CT512M4SSD2  00000"),
        ];
        let expected = ["M4-CT512M4SSD2", "070H", "t10.ATA     M4-CT512M4SSD2  00000"];
        assert_eq!(identity(&with("sda", &sata), "sda"), expected);
        let sas = [("device/vendor", "SEAGATE "), ("device/model", "XS800LE70004"), ("device/rev", "0003")];
        assert_eq!(identity(&with("sda", &sas), "sda"), ["SEAGATE XS800LE70004", "0003", ""]);
    }

    #[test]
    fn mmc_card_is_described() {
        let card = [("device/name", "MMC04G"), ("device/fwrev", "0x1"), ("device/serial", "0x0f3c")];
        assert_eq!(identity(&with("mmcblk0", &card), "mmcblk0"), ["MMC04G", "0x1", "0x0f3c"]);
    }

    #[test]
    fn virtual_devices_are_described() {
        let looped = with("loop0", &[("loop/backing_file", "/run/a b/drive")]);
        assert_eq!(identity(&looped, "loop0"), ["loop over /run/a b/drive", "", ""]);
        let mapped = with("dm-0", &[("dm/name", "vg-spare")]);
        assert_eq!(identity(&mapped, "dm-0"), ["device mapper vg-spare", "", ""]);
        let paravirtual = with("vda", &[("serial", "disk-1"), ("device/vendor", "0x1af4")])
            .link("devices/vda/device/driver", "../../bus/virtio/drivers/virtio_blk");
        assert_eq!(identity(&paravirtual, "vda"), ["virtio_blk", "", "disk-1"]);
    }

    #[test]
    fn queue_without_a_scheduler_is_described() {
        let found = with("zram0", &[]).open("zram0").describe().unwrap();
        assert_eq!(
            (found.model.as_str(), found.scheduler.as_str(), found.queue_requests),
            ("zram", "none", 0)
        );
    }

    #[test]
    fn partition_is_described_as_its_disk() {
        let machine = with("mmcblk0", &[("device/name", "MMC04G")]).device(
            "mmcblk0/mmcblk0p1",
            "8:1",
            &[("discard_alignment", "0"), ("size", "1024")],
        );
        let found = machine.open("mmcblk0p1").describe().unwrap();
        assert_eq!((found.model.as_str(), found.path.as_str()), ("MMC04G", "/dev/mmcblk0p1"));
        assert_eq!((found.size, found.discard_alignment), (Bytes(512 << 10), Bytes(0)));
        assert_eq!(found.physical_block, Bytes(4096));
    }
}
