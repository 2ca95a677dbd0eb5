//! Whether SCSI units still are the drives that the kernel takes them for: a storage array can put another drive behind a unit
//! number that is in use, and the kernel keeps the identifiers of the one before until it is told to look again.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::ClaimError;
use super::around::Used;
use crate::block::{BlockDevice, BlockError, DeviceNumber, children, number};
use crate::limited;
use crate::stack::Machine;

/// A SCSI unit whose identifiers the kernel keeps.
struct Unit {
    /// Its directory in sysfs.
    directory: PathBuf,
    /// Its block device or, where it has none, a character device.
    node: PathBuf,
    number: DeviceNumber,
    block: Option<BlockDevice>,
    /// The page of identifiers that the kernel keeps.
    page: Vec<u8>,
}

impl Unit {
    /// The unit with this directory in sysfs; none where no program can send commands to it.
    fn at(directory: PathBuf) -> Option<Self> {
        let page = fs::read(directory.join("vpd_pg83")).ok()?;
        let of = |class: &str, prefix: &str| {
            let place = children(&directory.join(class)).into_iter().next()?;
            let node = Path::new(prefix).join(place.file_name()?);
            Some((node, number(&place)?, place))
        };
        let disk = of("block", "/dev");
        let (node, number, place) =
            disk.or_else(|| of("scsi_generic", "/dev")).or_else(|| of("bsg", "/dev/bsg"))?;
        let block = BlockDevice::at(&place).filter(|_| directory.join("block").exists());
        Some(Self { directory, node, number, block, page })
    }

    /// Whether commands reach it.
    fn is_running(&self) -> bool {
        fs::read_to_string(self.directory.join("state")).is_ok_and(|state| state.trim() == "running")
    }

    /// Whether something is known to use it or a part of it.
    fn is_used(&self, uses: &[Used]) -> Result<bool, BlockError> {
        let Some(disk) = &self.block else { return Ok(false) };
        for block in [vec![disk.clone()], disk.partitions()?].concat() {
            let number = block.number()?;
            if !block.holders()?.is_empty() || uses.iter().any(|used| used.number == number) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Checks that all SCSI units of the machine have the identifiers that the kernel keeps of them, where a device of `stack` is
/// one; units that it does not keep are passed over. `uses` are those of the machine's devices.
///
/// # Errors
/// [`ClaimError::Remapped`], [`ClaimError::NoIdentifiers`] or [`ClaimError::Offline`].
pub(super) fn check(
    machine: &Machine,
    sysfs: &Path,
    stack: &[BlockDevice],
    uses: &[Used],
) -> Result<(), ClaimError> {
    if !stack.iter().any(|disk| disk.attribute("device/scsi_level").exists()) {
        return Ok(());
    }
    let mut asked = Vec::new();
    for unit in children(&sysfs.join("bus/scsi/devices")).into_iter().filter_map(Unit::at) {
        if unit.is_running() {
            let (machine, node, number) = (machine.clone(), unit.node.clone(), unit.number);
            let kind = if unit.block.is_some() { FileType::BlockDevice } else { FileType::CharacterDevice };
            asked.push((unit, limited::ask(move || machine.identification(&node, kind, number))));
        } else if unit.is_used(uses)? {
            return Err(ClaimError::Offline { node: unit.node.display().to_string(), unit: unit.directory });
        }
    }
    for (unit, asked) in asked {
        let node = unit.node.display().to_string();
        let Some(now) = asked.answer().flatten() else {
            return Err(ClaimError::NoIdentifiers { node, unit: unit.directory });
        };
        if units(&now) != units(&unit.page) {
            return Err(ClaimError::Remapped { node, unit: unit.directory });
        }
    }
    Ok(())
}

/// The identifiers of the unit itself, in order, in a page with header; those of its ports and of its target are left out.
fn units(page: &[u8]) -> Vec<&[u8]> {
    let end = page
        .first_chunk()
        .map_or(0, |head: &[u8; 4]| 4 + usize::from(u16::from_be_bytes([head[2], head[3]])));
    let mut rest = page.get(4..end).unwrap_or_default();
    let mut all = Vec::new();
    while let Some(head) = rest.first_chunk::<4>() {
        let Some((one, next)) = rest.split_at_checked(4 + usize::from(head[3])) else { break };
        // Bits 4 and 5 say what it identifies.
        if head[1] >> 4 & 3 == 0 {
            all.push(one);
        }
        rest = next;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::Use;
    use super::*;
    use crate::captured::Captured;

    /// A page with these identifiers: what each identifies, and itself.
    fn page(identifiers: &[(u8, &[u8])]) -> Vec<u8> {
        let mut all = Vec::new();
        for (association, identifier) in identifiers {
            all.extend([1, association << 4 | 3, 0, identifier.len() as u8]);
            all.extend(*identifier);
        }
        let length = (all.len() as u16).to_be_bytes();
        [&[0, 0x83][..], &length, &all].concat()
    }

    /// The disks `sda` and `sdb`, and a unit with nothing but `sg2`, which answer so now.
    fn machine(now: &[(&str, &[u8])]) -> Captured {
        let before = page(&[(0, b"drive A"), (1, b"port 1")]);
        let mut machine = Captured::new().device("sda", "8:0", &[("device/scsi_level", "7")]);
        for (unit, node, number) in [
            ("0:0:0:0", "block/sda", "8:0"),
            ("0:0:0:1", "block/sdb", "8:16"),
            ("0:0:0:2", "scsi_generic/sg2", "21:2"),
        ] {
            let unit = format!("sys/bus/scsi/devices/{unit}");
            machine = machine
                .file(&format!("{unit}/vpd_pg83"), &before)
                .file(&format!("{unit}/state"), "running\n")
                .file(&format!("{unit}/{node}/dev"), number)
                .file(&format!("trimtab/vpd_pg83/{number}"), &before);
        }
        for (number, now) in now {
            machine = machine.file(&format!("trimtab/vpd_pg83/{number}"), now);
        }
        fs::create_dir_all(machine.sysfs().join("bus/scsi/devices/0:0:0:1/block/sdb/holders")).unwrap();
        machine
    }

    fn refusal(machine: &Captured, uses: &[Used]) -> Option<String> {
        let stack = [machine.open("sda")];
        check(&machine.machine(), &machine.sysfs(), &stack, uses).err().map(|error| error.to_string())
    }

    #[test]
    fn units_must_be_what_the_kernel_takes_them_for() {
        let same = page(&[(0, b"drive A"), (1, b"port 2")]);
        let other = page(&[(0, b"drive B"), (1, b"port 1")]);
        assert_eq!(refusal(&machine(&[("8:0", &same)]), &[]), None, "a port is no drive");
        for (number, node) in [("8:0", "/dev/sda"), ("8:16", "/dev/sdb"), ("21:2", "/dev/sg2")] {
            let refused = refusal(&machine(&[(number, &other)]), &[]).unwrap();
            assert!(refused.contains(&format!("{node} is another drive by now")), "{refused}");
            assert!(refused.contains("/rescan)"), "{refused}");
        }
    }

    #[test]
    fn unit_that_does_not_answer_is_no_proof() {
        let refused = refusal(&machine(&[("8:16", b"")]), &[]).unwrap();
        assert!(refused.contains("/dev/sdb is another drive"), "{refused}");
        let silent = machine(&[]);
        fs::remove_file(silent.root().join("trimtab/vpd_pg83/8:16")).unwrap();
        let refused = refusal(&silent, &[]).unwrap();
        assert!(refused.contains("/dev/sdb does not answer"), "{refused}");
        let offline = silent.file("sys/bus/scsi/devices/0:0:0:1/state", "offline\n");
        assert_eq!(refusal(&offline, &[]), None, "nothing uses it");
        let number = DeviceNumber { major: 8, minor: 16 };
        let used = [Used { number, via: None, found: Use::Mounted("/mnt".into()) }];
        let refused = refusal(&offline, &used).unwrap();
        assert!(refused.contains("/dev/sdb is in use, but offline"), "{refused}");
    }

    #[test]
    fn machines_without_scsi_disks_are_asked_nothing() {
        let machine = machine(&[("8:16", b"")]).device("nvme0n1", "259:0", &[]);
        let stack = [machine.open("nvme0n1")];
        assert!(check(&machine.machine(), &machine.sysfs(), &stack, &[]).is_ok());
    }

    #[test]
    fn damaged_pages_have_no_identifiers() {
        for page in [&[][..], &[0, 0x83, 0], &[0, 0x83, 0, 9, 1, 3, 0, 200]] {
            assert!(units(page).is_empty(), "{page:?}");
        }
    }
}
