//! Whether SCSI disks still are the drives that the kernel takes them for: a storage array can put another drive behind a unit
//! number that is in use, and the kernel keeps the identifiers of the one before until it is told to look again.

use std::fs;
use std::path::Path;

use super::ClaimError;
use crate::block::BlockDevice;
use crate::limited;
use crate::stack::Machine;

/// Checks that all SCSI disks of the machine have the identifiers that sysfs shows, where a device of `stack` is one of
/// them. A disk that reports none, or that is offline, proves nothing.
///
/// # Errors
/// [`ClaimError::Remapped`]; [`ClaimError::NoIdentifiers`].
pub(super) fn check(machine: &Machine, sysfs: &Path, stack: &[BlockDevice]) -> Result<(), ClaimError> {
    let known = |disk: &BlockDevice| fs::read(disk.attribute("device/vpd_pg83")).ok();
    if !stack.iter().any(|disk| known(disk).is_some()) {
        return Ok(());
    }
    let is_running = |disk: &BlockDevice| {
        fs::read_to_string(disk.attribute("device/state")).is_ok_and(|state| state.trim() == "running")
    };
    let all = BlockDevice::disks(sysfs)?.into_iter().filter(is_running);
    let asked: Vec<_> = all
        .filter_map(|disk| {
            let (before, asked_disk, machine) = (known(&disk)?, disk.clone(), machine.clone());
            Some((disk, before, limited::ask(move || machine.identification(&asked_disk))))
        })
        .collect();
    for (disk, before, asked) in asked {
        let node = disk.path().display().to_string();
        let Some(now) = asked.answer().flatten() else {
            return Err(ClaimError::NoIdentifiers { node, name: disk.name() });
        };
        if units(&now) != units(&before) {
            return Err(ClaimError::Remapped { node, name: disk.name() });
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

    fn machine(now: &[(&str, &[u8])]) -> Captured {
        let before = page(&[(0, b"drive A"), (1, b"port 1")]);
        let mut machine = Captured::new().device("sda", "8:0", &[]).device("sdb", "8:16", &[]);
        for name in ["sda", "sdb"] {
            let device = format!("sys/devices/{name}/device");
            machine = machine
                .file(&format!("{device}/vpd_pg83"), &before)
                .file(&format!("{device}/state"), "running\n");
        }
        for (number, now) in now {
            machine = machine.file(&format!("trimtab/vpd_pg83/{number}"), now);
        }
        machine
    }

    fn refusal(machine: &Captured) -> Option<String> {
        let stack = [machine.open("sda")];
        check(&machine.machine(), &machine.sysfs(), &stack).err().map(|error| error.to_string())
    }

    #[test]
    fn disks_must_be_what_the_kernel_takes_them_for() {
        let same = page(&[(0, b"drive A"), (1, b"port 2")]);
        let other = page(&[(0, b"drive B"), (1, b"port 1")]);
        assert_eq!(refusal(&machine(&[("8:0", &same), ("8:16", &same)])), None, "a port is no drive");
        let own = refusal(&machine(&[("8:0", &other), ("8:16", &same)])).unwrap();
        assert!(
            own.contains("/dev/sda is another drive by now") && own.contains("/sys/block/sda/device/rescan"),
            "{own}"
        );
        let beside = refusal(&machine(&[("8:0", &same), ("8:16", &other)])).unwrap();
        assert!(beside.contains("/dev/sdb is another drive by now"), "{beside}");
    }

    #[test]
    fn disk_that_does_not_answer_is_no_proof() {
        let same = page(&[(0, b"drive A")]);
        let refused = refusal(&machine(&[("8:0", &same)])).unwrap();
        assert!(refused.contains("/dev/sdb does not answer"), "{refused}");
        let machine = machine(&[("8:0", &page(&[(0, b"drive A"), (1, b"x")]))]);
        let machine = machine.file("sys/devices/sdb/device/state", "offline\n");
        assert_eq!(refusal(&machine), None);
    }

    #[test]
    fn machines_without_scsi_disks_are_asked_nothing() {
        let machine = machine(&[]).device("nvme0n1", "259:0", &[]);
        let stack = [machine.open("nvme0n1")];
        assert!(check(&machine.machine(), &machine.sysfs(), &stack).is_ok());
    }

    #[test]
    fn damaged_pages_have_no_identifiers() {
        for page in [&[][..], &[0, 0x83, 0], &[0, 0x83, 0, 9, 1, 3, 0, 200]] {
            assert!(units(page).is_empty(), "{page:?}");
        }
    }
}
