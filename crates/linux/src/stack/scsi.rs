//! The SCSI layer's facts about a device.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Scsi, Transport};
use crate::block::BlockDevice;

/// The drivers of USB bridges.
const BRIDGES: [&str; 2] = ["uas", "usb-storage"];

impl Scsi {
    /// Whether the kernel writes zeros in place of discards, which frees nothing.
    pub fn writes_zeros(&self) -> bool {
        self.provisioning_mode.as_deref() == Some("writesame_zero")
    }
}

/// Returns the facts about the disk `device`, a SCSI device.
pub(super) fn scsi(sysfs: &Path, device: &BlockDevice) -> Scsi {
    // The directory is .../hostN/targetN:C:T/N:C:T:L/block/sda.
    let place = device.attribute("device").canonicalize().unwrap_or_default();
    let disk = only_in(&place.join("scsi_disk")).unwrap_or_default();
    Scsi {
        transport: transport(sysfs, &place),
        provisioning_mode: word(&disk.join("provisioning_mode")),
        thin_provisioning: word(&disk.join("thin_provisioning")).map(|word| word != "0"),
    }
}

fn transport(sysfs: &Path, place: &Path) -> Transport {
    if let Some(port) = place.ancestors().find_map(|path| numbered(path, "ata")) {
        return Transport::Ata { trim: ata_trim(sysfs, place, port) };
    }
    // The host of uas has no name, but the USB interface that it is on has a driver.
    let bridge =
        place.ancestors().find_map(|path| driver(path).filter(|name| BRIDGES.contains(&name.as_str())));
    if let Some(driver) = bridge {
        return Transport::Usb { driver, ids: place.ancestors().find_map(usb_ids) };
    }
    let host = place.ancestors().find(|path| numbered(path, "host").is_some()).unwrap_or(place);
    let name = host.file_name().unwrap_or_default();
    let adapter = word(&host.join("scsi_host").join(name).join("proc_name"));
    match adapter.as_deref() {
        Some("virtio_scsi") => Transport::Virtio,
        _ => Transport::Other(adapter.filter(|name| !matches!(name.as_str(), "<NULL>" | "(null)"))),
    }
}

/// The name of the driver of the device whose directory is `path`.
fn driver(path: &Path) -> Option<String> {
    let driver = fs::read_link(path.join("driver")).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

/// Returns libata's setting for TRIM of the device at `place`, behind the port `port`. It calls the device
/// `devPORT.LINK.DEVICE` behind a port multiplier, whose links are SCSI's channels, else `devPORT.DEVICE`.
fn ata_trim(sysfs: &Path, place: &Path, port: &str) -> Option<String> {
    let address = place.file_name()?.to_str()?;
    let mut fields = address.split(':').skip(1);
    let (link, device) = (fields.next()?, fields.next()?);
    let names = [format!("dev{port}.{link}.{device}"), format!("dev{port}.{device}")];
    names.iter().find_map(|name| word(&sysfs.join("class/ata_device").join(name).join("trim")))
}

/// The vendor's and product's number of the USB device whose directory is `path`.
fn usb_ids(path: &Path) -> Option<(String, String)> {
    Some((word(&path.join("idVendor"))?, word(&path.join("idProduct"))?))
}

/// The digits after `prefix`, where the file's name is that and nothing more.
fn numbered<'a>(path: &'a Path, prefix: &str) -> Option<&'a str> {
    let digits = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits)
}

/// The first entry of a directory.
fn only_in(directory: &Path) -> Option<PathBuf> {
    Some(fs::read_dir(directory).ok()?.flatten().next()?.path())
}

/// Returns the value of an attribute; none where there is none, or it is empty.
fn word(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
