//! The two encodings of Parquet that trace files use, a page at a time. The layouts are in the format's
//! `Encodings.md`.
//!
//! Decoders return `None` if the bytes make no sense.

/// Appends the `count` numbers of `width` bits in `data`, stored as runs and packed groups (RLE).
pub(super) fn decode_runs(mut data: &[u8], width: u32, count: usize, out: &mut Vec<u32>) -> Option<()> {
    if width > 32 {
        return None;
    }
    let mut missing = count;
    while missing > 0 {
        let head = varint(&mut data)?;
        if head & 1 == 0 {
            let value = data.split_off(..(width as usize).div_ceil(8))?;
            let run = usize::try_from(head >> 1).ok()?.min(missing);
            out.resize(out.len() + run, value.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)));
            missing -= run;
        } else {
            let groups = usize::try_from(head >> 1).ok()?.min(missing.div_ceil(8));
            let values = (groups * 8).min(missing);
            let packed = data.split_off(..groups * width as usize)?;
            unpack(packed, width, values, |value| out.push(value as u32));
            missing -= values;
        }
    }
    Some(())
}

/// Appends `numbers` of `width` bits, at most 32, as runs and packed groups (RLE).
pub(super) fn encode_runs(numbers: impl Iterator<Item = u32>, width: u32, out: &mut Vec<u8>) {
    /// Numbers in a packed group; a shorter run is not worth its head.
    const GROUP: usize = 8;
    let mut numbers = numbers.peekable();
    let mut unpacked = Vec::new();
    while let Some(number) = numbers.next() {
        let mut run = 1;
        while numbers.next_if_eq(&number).is_some() {
            run += 1;
        }
        let fills = run.min(unpacked.len().next_multiple_of(GROUP) - unpacked.len());
        unpacked.resize(unpacked.len() + fills, number);
        run -= fills;
        if run >= GROUP {
            pack(&mut unpacked, width, out);
            put_varint(out, (run as u64) << 1);
            out.extend_from_slice(&number.to_le_bytes()[..width.div_ceil(8) as usize]);
        } else {
            unpacked.resize(unpacked.len() + run, number);
        }
    }
    unpacked.resize(unpacked.len().next_multiple_of(GROUP), 0);
    pack(&mut unpacked, width, out);
}

/// Appends `numbers`, as many as fill groups of 8, and empties it.
fn pack(numbers: &mut Vec<u32>, width: u32, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    put_varint(out, (numbers.len() as u64 / 8) << 1 | 1);
    let (mut bits, mut held) = (0_u64, 0);
    for number in numbers.drain(..) {
        bits |= u64::from(number) << held;
        held += width;
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

/// Appends a number of 7 bits a byte, lowest first.
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the `count` numbers in `data`, stored as packed differences (DELTA_BINARY_PACKED).
pub(super) fn decode_deltas(mut data: &[u8], count: usize, out: &mut Vec<i64>) -> Option<()> {
    let block = varint(&mut data)?;
    let parts = usize::try_from(varint(&mut data)?).ok()?;
    let part = usize::try_from(block).ok()?.checked_div(parts)?;
    let stored = varint(&mut data)?;
    let mut value = zigzag(varint(&mut data)?);
    if stored != count as u64 || part == 0 || !part.is_multiple_of(32) || part > 1 << 16 {
        return None;
    }
    if count == 0 {
        return Some(());
    }
    out.push(value);
    let mut missing = count - 1;
    while missing > 0 {
        let least = zigzag(varint(&mut data)?);
        let widths = data.split_off(..parts)?;
        for width in widths.iter().map(|width| u32::from(*width)) {
            if missing == 0 {
                break;
            }
            if width > 64 {
                return None;
            }
            let packed = data.split_off(..part / 8 * width as usize)?;
            let values = part.min(missing);
            unpack(packed, width, values, |delta| {
                value = value.wrapping_add(least).wrapping_add(delta as i64);
                out.push(value);
            });
            missing -= values;
        }
    }
    Some(())
}

/// Hands `count` numbers of `width` bits each, at most 64, to `take`.
#[inline(always)]
fn unpack(packed: &[u8], width: u32, count: usize, mut take: impl FnMut(u64)) {
    /// Numbers that are unpacked at once: they fill whole bytes, whatever their width.
    const STRIDE: usize = 32;
    if width == 0 {
        (0..count).for_each(|_| take(0));
        return;
    }
    let width = width as usize;
    let mask = u64::MAX >> (64 - width);
    // Loads reach past the last number's bytes, so each stride is copied in front of zeros.
    let mut padded = [0; STRIDE * 8 + 16];
    let mut left = count;
    for bytes in packed.chunks(STRIDE / 8 * width) {
        padded[..bytes.len()].copy_from_slice(bytes);
        for number in 0..left.min(STRIDE) {
            let bit = number * width;
            let (byte, shift) = (bit / 8, bit % 8);
            let value = if width <= 56 {
                u64::from_le_bytes(*padded[byte..].first_chunk().expect("it is padded")) >> shift
            } else {
                (u128::from_le_bytes(*padded[byte..].first_chunk().expect("it is padded")) >> shift) as u64
            };
            take(value & mask);
        }
        left -= left.min(STRIDE);
    }
}

/// Takes a number of 7 bits a byte, lowest first.
fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *data.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// The signed number that `value` stands for: 0, -1, 1, -2, ...
const fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_read_as_they_were_written(
            width in 1..=32_u32,
            runs in proptest::collection::vec((any::<u32>(), prop_oneof![1..3_usize, 1..40_usize]), 0..40),
        ) {
            let mask = u32::MAX >> (32 - width);
            let numbers: Vec<_> =
                runs.iter().flat_map(|(number, run)| std::iter::repeat_n(number & mask, *run)).collect();
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            encode_runs(numbers.iter().copied(), width, &mut bytes);
            prop_assert_eq!(decode_runs(&bytes, width, numbers.len(), &mut read), Some(()));
            prop_assert_eq!(read, numbers);
        }
    }

    #[test]
    fn a_long_run_takes_a_few_bytes() {
        let mut bytes = Vec::new();
        encode_runs(std::iter::repeat_n(5, 100_000), 4, &mut bytes);
        assert_eq!(bytes.len(), 4);
    }
}
