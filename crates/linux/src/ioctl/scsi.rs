//! SCSI commands. Opcode and structure are those of the kernel's `include/scsi/sg.h`.

use std::os::fd::AsFd;
use std::ptr;

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Updater, ioctl};

const SG_IO: Opcode = 0x2285;

const SG_DXFER_FROM_DEV: i32 = -3;

/// The time that a drive has for its answer, in ms.
const TIMEOUT: u32 = 4000;

/// The page of device identification in the vital product data (SPC-5, 7.7.6).
const IDENTIFICATION: u8 = 0x83;

/// The room for the page: the kernel keeps no longer ones either, in most versions.
const ROOM: usize = 4096;

/// `struct sg_io_hdr`.
#[repr(C)]
struct SgIo {
    interface_id: i32,
    direction: i32,
    command_length: u8,
    most_sense: u8,
    vectors: u16,
    data_length: u32,
    data: *mut u8,
    command: *const u8,
    sense: *mut u8,
    timeout: u32,
    flags: u32,
    pack_id: i32,
    user: *mut u8,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_written: u8,
    host_status: u16,
    driver_status: u16,
    missing: i32,
    duration: u32,
    info: u32,
}

/// Asks a SCSI device, by its block device, for the identifiers that it has now: page 0x83 of its vital product data, with header.
///
/// # Errors
/// The kernel's error: `ENOTTY` where it takes no SCSI commands; `EIO` where it does not answer as it should.
pub fn scsi_identification(device: impl AsFd) -> Result<Vec<u8>> {
    let mut page = vec![0; ROOM];
    let [high, low] = (ROOM as u16).to_be_bytes();
    // INQUIRY for a page of vital product data.
    let command = [0x12, 1, IDENTIFICATION, high, low, 0];
    let mut request = SgIo {
        interface_id: i32::from(b'S'),
        direction: SG_DXFER_FROM_DEV,
        command_length: command.len() as u8,
        most_sense: 0,
        vectors: 0,
        data_length: ROOM as u32,
        data: page.as_mut_ptr(),
        command: command.as_ptr(),
        sense: ptr::null_mut(),
        timeout: TIMEOUT,
        flags: 0,
        pack_id: 0,
        user: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_written: 0,
        host_status: 0,
        driver_status: 0,
        missing: 0,
        duration: 0,
        info: 0,
    };
    // SAFETY: SG_IO reads and writes a `struct sg_io_hdr`, which `SgIo` lays out, reads the command and writes at most
    // `data_length` bytes of data; both outlive the call.
    unsafe { ioctl(device, Updater::<SG_IO, _>::new(&mut request))? };
    let is_done = (request.status, request.host_status, request.driver_status & 0xf) == (0, 0, 0);
    let length = 4 + usize::from(u16::from_be_bytes([page[2], page[3]]));
    if !is_done || page[1] != IDENTIFICATION || length > ROOM {
        return Err(Errno::IO);
    }
    page.truncate(length);
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_matches_the_kernel() {
        let pointer = size_of::<*const u8>();
        assert_eq!(size_of::<SgIo>(), if pointer == 8 { 88 } else { 64 });
        assert_eq!(std::mem::offset_of!(SgIo, data), 16);
        assert_eq!(std::mem::offset_of!(SgIo, timeout), 16 + 3 * pointer);
    }

    #[test]
    fn other_devices_take_no_scsi_commands() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(scsi_identification(null), Err(Errno::NOTTY));
    }
}
