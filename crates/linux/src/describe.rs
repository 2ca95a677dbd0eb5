//! What a block device is: its model, identity and limits, as a bench's document keeps them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use trimtab_core::Bytes;
use trimtab_core::document::bench::BenchDevice;

use crate::block::{BlockDevice, BlockError};

impl BlockDevice {
    /// What it is and what its queue takes.
    ///
    /// # Errors
    /// [`BlockError::Read`] or [`BlockError::Malformed`].
    pub fn describe(&self) -> Result<BenchDevice, BlockError> {
        let limits = self.discard_limits()?;
        Ok(BenchDevice {
            path: self.path().display().to_string(),
            model: self.model(),
            firmware: self.first_of(&["device/firmware_rev", "device/fwrev", "device/rev"]),
            serial: self.first_of(&["device/serial", "serial", "wwid", "device/wwid"]),
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

    /// The model, with the vendor where that is not just the transport; for what is no hardware, the
    /// file behind it or the driver's name.
    fn model(&self) -> String {
        if let Some(file) = self.identity("loop/backing_file") {
            return format!("loop over {file}");
        }
        if let Some(name) = self.identity("dm/name") {
            return format!("device mapper {name}");
        }
        // SCSI's vendor of a SATA disk is `ATA`, and the model starts with the real one.
        let vendor =
            self.identity("device/vendor").filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
        match (vendor, self.identity("device/model").or_else(|| self.identity("device/name"))) {
            (Some(vendor), Some(model)) => format!("{vendor} {model}"),
            (None, Some(model)) => model,
            (_, None) => self.driver(),
        }
    }

    /// The name of its driver; its own without the number where it has none.
    fn driver(&self) -> String {
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
    fn identity(&self, attribute: &str) -> Option<String> {
        let disk = self.whole();
        let text = fs::read(disk.attribute(attribute)).ok()?;
        let text = String::from_utf8_lossy(&text).trim_matches(['\0', ' ', '\n']).to_owned();
        (!text.is_empty()).then_some(text)
    }
}

/// What a queue has that the kernel schedules; `otherwise` where it has no such attribute, as those of
/// zram and the device mapper since Linux 6.10.
fn absent<T>(otherwise: T, attribute: Result<T, BlockError>) -> Result<T, BlockError> {
    match attribute {
        Err(BlockError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(otherwise),
        outcome => outcome,
    }
}
