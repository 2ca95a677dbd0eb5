//! Linux kernel images for x86, as the kernel's `Documentation/arch/x86/boot.rst` describes them.

use elf::ElfBytes;
use elf::abi::PT_NOTE;
use elf::endian::LittleEndian;
use elf::note::Note;

use super::decompress::decompress;

/// The type of Xen's note that gives the address where a kernel is entered directly.
const XEN_ELFNOTE_PHYS32_ENTRY: u64 = 18;

/// The version of the boot protocol from which on the payload can be found.
const WITH_PAYLOAD: u16 = 0x0208;

/// Returns the release of the kernel in `image`, such as `6.12.90-amd64`, or `None` if it is no kernel.
pub(super) fn release(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = usize::from(u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?));
    let version = image.get(offset + 0x200..)?;
    let end = version.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(&version[..end]).ok()?;
    Some(text.split_whitespace().next()?.to_owned())
}

/// Returns the kernel proper if QEMU can enter it directly (PVH). That saves the guest the
/// decompression, which takes seconds on an emulated processor.
pub(super) fn direct(image: &[u8]) -> Option<Vec<u8>> {
    let number = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let protocol = u16::from_le_bytes(image.get(0x206..0x208)?.try_into().ok()?);
    if protocol < WITH_PAYLOAD {
        return None;
    }
    let sectors = match image.get(0x1f1)? {
        0 => 4,
        count => usize::from(*count),
    };
    let start = (sectors + 1) * 512 + number(0x248)?;
    let payload = image.get(start..start + number(0x24c)?)?;
    let kernel = decompress(payload).ok()??;
    has_direct_entry(&kernel).then_some(kernel)
}

fn has_direct_entry(kernel: &[u8]) -> bool {
    let Ok(file) = ElfBytes::<LittleEndian>::minimal_parse(kernel) else { return false };
    let Some(segments) = file.segments() else { return false };
    let mut notes = segments.iter().filter(|segment| segment.p_type == PT_NOTE);
    notes.any(|segment| {
        let Ok(mut notes) = file.segment_data_as_notes(&segment) else { return false };
        notes.any(|note| match note {
            Note::Unknown(note) => {
                note.n_type == XEN_ELFNOTE_PHYS32_ENTRY && note.name_str().is_ok_and(|name| name == "Xen")
            }
            _ => false,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_word_of_the_version() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x310].copy_from_slice(b"6.1.0-56 (build)");
        assert_eq!(release(&image).as_deref(), Some("6.1.0-56"));
        assert_eq!(direct(&image), None);
        image[0x202] = 0;
        assert_eq!(release(&image), None);
        assert_eq!(release(b"text"), None);
    }
}
