//! Hardware's announcements about discards: SCSI's vital product data and the attributes of cards, as sysfs
//! has them.

use std::fs;
use std::ops::Range;

use trimtab_core::Bytes;
use trimtab_core::device::{Announced, AtaTrim, CardErase, Provisioning, UnmapLimits};

use super::LayerKind;
use crate::block::BlockDevice;

/// Where IDENTIFY DEVICE's data begins in the page "ATA information", of T10's SAT-4.
const IDENTIFY: usize = 60;

/// The pages that are read.
pub(super) const PAGES: [&str; 3] = ["vpd_pgb0", "vpd_pgb2", "vpd_pg89"];

/// Whether a byte of one of [`PAGES`] says nothing of whose device it is.
pub(super) fn is_impersonal(page: &str, at: usize) -> bool {
    match page {
        "vpd_pgb0" => at < 64,
        "vpd_pgb2" => at < 8,
        _ => at < 4 || [69, 105, 169].into_iter().any(|word| identified(word).contains(&at)),
    }
}

/// Where a word of IDENTIFY DEVICE's data is in its page.
fn identified(word: usize) -> Range<usize> {
    IDENTIFY + 2 * word..IDENTIFY + 2 * word + 2
}

/// Returns the announcements of `device`, which is of this kind.
pub(super) fn announced(device: &BlockDevice, kind: &LayerKind) -> Announced {
    let page = |name: &str| fs::read(device.attribute("device").join(name)).unwrap_or_default();
    let block = || device.logical_block().ok();
    match kind {
        LayerKind::Scsi(_) => Announced {
            limits: block().and_then(|block| limits(&page("vpd_pgb0"), block)),
            provisioning: provisioning(&page("vpd_pgb2")),
            trim: trim(&page("vpd_pg89")),
            erase: None,
        },
        LayerKind::Mmc => Announced { erase: erase(device), ..Announced::default() },
        _ => Announced::default(),
    }
}

/// The page with this number as far as it says that it goes; none where it is another.
fn checked(page: &[u8], number: u8) -> Option<&[u8]> {
    let length = u16::from_be_bytes(*page.get(2..)?.first_chunk()?);
    (page[1] == number).then(|| &page[..page.len().min(4 + usize::from(length))])
}

fn limits(page: &[u8], block: Bytes) -> Option<UnmapLimits> {
    let page = checked(page, 0xb0)?;
    let number = |at: usize| Some(u32::from_be_bytes(*page.get(at..)?.first_chunk()?));
    let bytes = |blocks: u64| blocks.checked_mul(block.get()).map(Bytes);
    let limit = |most: &u32| *most != u32::MAX;
    let (most, ranges, unit, first) = (number(20)?, number(24)?, number(28)?, number(32)?);
    // The first bit says whether the others mean anything.
    let first = (first >> 31 == 1).then_some(first & (u32::MAX >> 1));
    let same = page.get(36..).and_then(|rest| rest.first_chunk()).map(|most| u64::from_be_bytes(*most));
    Some(UnmapLimits {
        max_unmap: Some(most).filter(limit).and_then(|most| bytes(most.into())),
        max_ranges: Some(ranges).filter(limit),
        granularity: Some(unit).filter(|unit| *unit > 0).and_then(|unit| bytes(unit.into())),
        alignment: first.and_then(|first| bytes(first.into())),
        max_write_same: same.filter(|most| *most > 0).and_then(bytes),
    })
}

fn provisioning(page: &[u8]) -> Option<Provisioning> {
    let flags = checked(page, 0xb2)?.get(5)?;
    let has = |bit: u8| flags >> bit & 1 == 1;
    Some(Provisioning {
        unmap: has(7),
        write_same_16: has(6),
        write_same_10: has(5),
        // Of the field's three bits, the lowest says zeros; the next a pattern.
        zeroes: has(2),
    })
}

fn trim(page: &[u8]) -> Option<AtaTrim> {
    let page = checked(page, 0x89)?;
    let word = |at: usize| Some(u16::from_le_bytes(*page.get(identified(at))?.first_chunk()?));
    let (additional, most, management) = (word(69)?, word(105)?, word(169)?);
    let supported = management & 1 == 1;
    let deterministic = supported && additional >> 14 & 1 == 1;
    Some(AtaTrim {
        supported,
        deterministic,
        zeroes: deterministic && additional >> 5 & 1 == 1,
        max_blocks: Some(most).filter(|most| *most > 0),
    })
}

fn erase(device: &BlockDevice) -> Option<CardErase> {
    let size = |name: &str| device.number_in(name).ok().filter(|size| *size > 0).map(Bytes);
    let found = CardErase {
        card: device.identity("device/type"),
        unit: size("device/erase_size"),
        preferred: size("device/preferred_erase_size"),
    };
    (found.unit.is_some() || found.preferred.is_some()).then_some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page with this number and length in which these bytes are set.
    fn page(number: u8, length: u16, set: &[(usize, &[u8])]) -> Vec<u8> {
        let mut page = vec![0; 4 + usize::from(length)];
        page[1] = number;
        page[2..4].copy_from_slice(&length.to_be_bytes());
        set.iter().for_each(|(at, bytes)| page[*at..][..bytes.len()].copy_from_slice(bytes));
        page
    }

    #[test]
    fn the_limits_of_unmap_are_read() {
        let block = Bytes(4096);
        let set: [(usize, &[u8]); 5] = [
            (20, &[0, 16, 0, 0]),
            (24, &[0, 0, 1, 0]),
            (28, &[0, 0, 0, 16]),
            (32, &[0x80, 0, 0, 3]),
            (36, &[0, 0, 0, 0, 0, 0, 32, 0]),
        ];
        let full = page(0xb0, 0x3c, &set);
        let expected = UnmapLimits {
            max_unmap: Some(Bytes(4 << 30)),
            max_ranges: Some(256),
            granularity: Some(Bytes(64 << 10)),
            alignment: Some(Bytes(3 * 4096)),
            max_write_same: Some(Bytes(32 << 20)),
        };
        assert_eq!(limits(&full, block), Some(expected));
        let boundless = page(0xb0, 0x3c, &[(20, &[0xff; 8]), (32, &[0, 0, 0, 3])]);
        let nothing = UnmapLimits {
            max_unmap: None,
            max_ranges: None,
            granularity: None,
            alignment: None,
            max_write_same: None,
        };
        assert_eq!(limits(&boundless, block), Some(nothing));
        assert_eq!(limits(&page(0xb0, 0x0c, &[]), block), None, "SBC-2 knew no UNMAP");
        assert_eq!(limits(&full, Bytes(u64::MAX)).unwrap().max_unmap, None);
    }

    #[test]
    fn the_commands_of_provisioning_are_read() {
        let flags = |flags: u8| provisioning(&page(0xb2, 4, &[(5, &[flags])]));
        let only = Provisioning { unmap: true, write_same_16: false, write_same_10: false, zeroes: false };
        assert_eq!(flags(0x80), Some(only));
        assert_eq!(
            flags(0b0110_0100),
            Some(Provisioning { unmap: false, write_same_16: true, write_same_10: true, zeroes: true })
        );
        assert_eq!(flags(0x88), Some(only), "a pattern is no zeros");
        assert_eq!(provisioning(&page(0xb0, 4, &[(5, &[0x80])])), None);
    }

    #[test]
    fn the_words_of_identify_are_read() {
        let words = |words: &[(usize, u16)]| {
            let words: Vec<_> =
                words.iter().map(|(at, word)| (identified(*at).start, word.to_le_bytes())).collect();
            let set: Vec<_> = words.iter().map(|(at, word)| (*at, word.as_slice())).collect();
            trim(&page(0x89, 0x238, &set)).unwrap()
        };
        let none = AtaTrim { supported: false, deterministic: false, zeroes: false, max_blocks: None };
        assert_eq!(words(&[]), none);
        assert_eq!(words(&[(69, 0x4020)]), none, "a drive without TRIM promises nothing");
        let zeroes = AtaTrim { supported: true, deterministic: true, zeroes: true, max_blocks: Some(8) };
        assert_eq!(words(&[(69, 0x4020), (105, 8), (169, 1)]), zeroes);
        assert_eq!(words(&[(69, 0x4000), (105, 8), (169, 1)]), AtaTrim { zeroes: false, ..zeroes });
        assert!(!words(&[(69, 0x0020), (169, 1)]).zeroes, "zeros at times are none");
        assert_eq!(trim(&page(0x89, 0x100, &[])), None);
    }

    proptest! {
        #[test]
        fn arbitrary_page_causes_no_panic(
            mut page in proptest::collection::vec(any::<u8>(), 0..600),
            number in proptest::sample::select([0xb0, 0xb2, 0x89].as_slice()),
            length in any::<u16>(),
            block in any::<u64>(),
        ) {
            if let Some(head) = page.get_mut(1..4) {
                head[0] = number;
                head[1..].copy_from_slice(&length.to_be_bytes());
            }
            let (limits, provisioning) = (limits(&page, Bytes(block)), provisioning(&page));
            let trim = trim(&page);
            prop_assert!(limits.is_none() || number == 0xb0);
            prop_assert!(provisioning.is_none() || number == 0xb2);
            prop_assert!(trim.is_none_or(|trim| number == 0x89 && (trim.supported || !trim.zeroes)));
        }
    }
}
