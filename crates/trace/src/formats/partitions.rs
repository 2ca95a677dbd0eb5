//! Partitions: blktrace on one has the number of the partition, and the addresses of its disk. The remaps say where it
//! begins; where they were filtered out (`blktrace -a queue`), only its number shows that it is one.

use trimtab_core::SECTOR;
use trimtab_core::trace::DeviceIndex;

use crate::error::RowError;
use crate::rows::Rows;
use crate::text::{number, scaled, unknown};

/// The major and the minor number of a device.
pub(super) type Number = (u32, u32);

/// A bio that the device `from` handed down: its `from_sector` became `sector` on the traced device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remap {
    pub(super) from: Number,
    pub(super) from_sector: u64,
    pub(super) sector: u64,
}

impl Remap {
    /// The sector at which the device begins on the other one, if it is a part of that.
    const fn begins(&self) -> u64 {
        self.sector.wrapping_sub(self.from_sector)
    }

    /// Takes a remap in the trace of `device`, which has the number `traced`.
    pub(super) fn take(&self, traced: Number, device: DeviceIndex, rows: &mut Rows) -> Result<(), RowError> {
        if self.from != traced {
            // A partition has the major number of its disk, or the extended one.
            if self.from.0 == traced.0 || self.from.0 == EXTENDED {
                rows.set_disk(device);
            }
            return Ok(());
        }
        let begins = self.sector.checked_sub(self.from_sector).ok_or_else(|| {
            unknown("sector", self.from_sector.to_string().as_bytes(), "is remapped to before its disk")
        })?;
        rows.set_partition(device, scaled("sector", begins, SECTOR.0)?)
    }
}

/// The remaps of a text from one device to another. The line of a remap has the number of the device that the bio was handed
/// to, the disk, also if a partition was traced (blkparse 1.2). Its bio is queued next, under the number of the traced device.
#[derive(Debug, Default)]
pub(super) struct Remaps {
    /// The last remap from each device whose bio was not queued yet, and the device of its line.
    waiting: Vec<(Remap, Number)>,
    /// The devices of such remaps, and the sector at which the first begins on the second.
    settled: Vec<(Number, Number, u64)>,
}

impl Remaps {
    /// Takes a remap in a line of the device `on`.
    pub(super) fn take(&mut self, remap: Remap, on: Number) {
        if self.settled.contains(&(remap.from, on, remap.begins())) {
            return;
        }
        match self.waiting.iter_mut().find(|(other, _)| other.from == remap.from) {
            Some(place) => *place = (remap, on),
            None => self.waiting.push((remap, on)),
        }
    }

    /// Takes a bio that is queued at the address `start` of `device`.
    pub(super) fn queued(
        &mut self,
        start: u64,
        device: DeviceIndex,
        rows: &mut Rows,
    ) -> Result<(), RowError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let Some(traced) = numbers(rows.header.devices[usize::from(device.0)].name.as_bytes()) else {
            return Ok(());
        };
        let is_its = |(remap, on): &(Remap, Number)| {
            remap.sector.checked_mul(SECTOR.0) == Some(start) && (remap.from == traced || *on == traced)
        };
        let Some(place) = self.waiting.iter().position(is_its) else { return Ok(()) };
        let (remap, on) = self.waiting.swap_remove(place);
        self.settled.push((remap.from, on, remap.begins()));
        remap.take(traced, device, rows)
    }
}

/// The extended major number: NVMe's disks and partitions, and partitions for which a driver has no minor numbers left.
const EXTENDED: u32 = 259;

/// The meaning of a device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Disk,
    Partition,
    /// One or the other.
    Either,
}

/// The meaning of a number (the kernel's Documentation/admin-guide/devices.txt).
fn kind_of((major, minor): Number) -> Kind {
    let of = |minors: u32| if minor.is_multiple_of(minors) { Kind::Disk } else { Kind::Partition };
    match major {
        // SCSI and Xen.
        8 | 65..=71 | 128..=135 | 202 => of(16),
        // IDE.
        3 | 22 | 33 | 34 | 56 | 57 | 88..=91 => of(64),
        // DASD.
        94 => of(4),
        // Cards have 8 minors or more, as the kernel was configured.
        179 if minor == 0 => Kind::Disk,
        179 if minor.is_multiple_of(8) => Kind::Either,
        179 => Kind::Partition,
        EXTENDED => Kind::Either,
        // Numbers that drivers are given on request: a disk of virtio has 16, a device of the device mapper 1.
        234..=254 | 384..=511 if !minor.is_multiple_of(16) => Kind::Either,
        _ => Kind::Disk,
    }
}

/// Names the devices that have, or may have, the addresses of their disks.
pub(super) fn name_gaps(rows: &mut Rows) {
    for index in 0..rows.header.devices.len() {
        let device = DeviceIndex(index as u16);
        if rows.is_partition(device) || rows.is_disk(device) {
            continue;
        }
        let name = rows.header.devices[index].name.clone();
        let Some(found) = numbers(name.as_bytes()) else { continue };
        match kind_of(found) {
            Kind::Disk => {}
            Kind::Partition => rows.gap(format!(
                "{name} is a partition, and no remap event says where it begins: its addresses are those of its disk"
            )),
            Kind::Either => rows.gap(format!(
                "if {name} is a partition, its addresses are those of its disk: no remap event says where it begins"
            )),
        }
    }
}

/// The numbers in `major,minor`.
pub(super) fn numbers(text: &[u8]) -> Option<Number> {
    let comma = memchr::memchr(b',', text)?;
    let part = |text| number("device", text).ok().and_then(|it| u32::try_from(it).ok());
    Some((part(&text[..comma])?, part(&text[comma + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_which_devices_are_partitions() {
        for (number, kind) in [
            ((8, 0), Kind::Disk),
            ((8, 1), Kind::Partition),
            ((8, 16), Kind::Disk),
            ((65, 17), Kind::Partition),
            ((202, 1), Kind::Partition),
            ((3, 1), Kind::Partition),
            ((3, 64), Kind::Disk),
            ((94, 1), Kind::Partition),
            ((179, 0), Kind::Disk),
            ((179, 1), Kind::Partition),
            ((179, 8), Kind::Either),
            ((259, 0), Kind::Either),
            ((254, 0), Kind::Disk),
            ((254, 1), Kind::Either),
            ((254, 16), Kind::Disk),
            ((7, 1), Kind::Disk),
            ((9, 127), Kind::Disk),
        ] {
            assert_eq!(kind_of(number), kind, "{number:?}");
        }
        assert_eq!(numbers(b"259,12"), Some((259, 12)));
        assert_eq!((numbers(b"259"), numbers(b"a,1"), numbers(b",")), (None, None, None));
    }
}
