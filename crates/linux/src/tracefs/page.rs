//! The kernel's ring buffer: pages of events, as `trace_pipe_raw` hands them out. Their layout is that
//! of `include/linux/ring_buffer.h` and `kernel/trace/ring_buffer.c`.

use super::format::PageLayout;

/// The bits of a page's commit field that hold the number of used bytes. The bits above say that events are
/// missing before it; the buffer's statistics have their exact number.
const USED: u64 = (1 << 30) - 1;

/// Special values of the length in an event's head, which otherwise counts units of four bytes.
const LONG: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The bits of an absolute time stamp; the bits above are those of the time before it.
const STAMP_BITS: u32 = 59;

/// Calls `event` with the time and the bytes of each event of a page, in their order. The time is the
/// kernel's trace clock, in nanoseconds.
///
/// # Errors
/// The reason why the page is malformed; the events before the bad one are valid.
pub(super) fn decode(
    layout: &PageLayout,
    page: &[u8],
    mut event: impl FnMut(u64, &[u8]),
) -> Result<(), &'static str> {
    let commit = layout.commit.number(page);
    let used = (commit & USED) as usize;
    let data = page.get(layout.data..).and_then(|data| data.get(..used)).ok_or("a page is cut short")?;
    let mut time = layout.time.number(page);
    let mut rest = data;
    while let Some((head, after)) = word(rest) {
        let (length, delta) = (head & 31, u64::from(head >> 5));
        let long = || word(after).ok_or("an event is cut short");
        rest = match length {
            PADDING if delta == 0 => return Ok(()),
            PADDING => {
                time = time.wrapping_add(delta);
                skip(after, long()?.0 as usize)?.1
            }
            TIME_EXTEND => {
                let (high, after) = long()?;
                time = time.wrapping_add((u64::from(high) << 27) + delta);
                after
            }
            TIME_STAMP => {
                let (high, after) = long()?;
                time = stamped(time, (u64::from(high) << 27) + delta);
                after
            }
            _ => {
                time = time.wrapping_add(delta);
                let (bytes, after) = match length {
                    LONG => {
                        let (length, after) = long()?;
                        skip(after, (length as usize).checked_sub(4).ok_or("an event has no length")?)?
                    }
                    words => skip(after, words as usize * 4)?,
                };
                event(time, bytes);
                after
            }
        };
    }
    Ok(())
}

/// Returns the first time after `time` that has the low bits of `stamp`.
fn stamped(time: u64, stamp: u64) -> u64 {
    let low = (1 << STAMP_BITS) - 1;
    let high = time & !low;
    let full = high | (stamp & low);
    if high != 0 && full < time { full.wrapping_add(1 << STAMP_BITS) } else { full }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    bytes.split_first_chunk().map(|(word, rest)| (u32::from_ne_bytes(*word), rest))
}

fn skip(bytes: &[u8], length: usize) -> Result<(&[u8], &[u8]), &'static str> {
    bytes.split_at_checked(length).ok_or("an event is cut short")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::format::PageLayout;
    use super::*;

    fn layout() -> PageLayout {
        let text = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";
        PageLayout::parse(text).unwrap()
    }

    /// An entry of a page.
    #[derive(Debug, Clone)]
    enum Piece {
        Event { delta: u64, words: usize },
        Discarded { delta: u64, words: usize },
        Stamp { ahead: u64 },
    }

    fn pieces() -> impl Strategy<Value = Vec<Piece>> {
        let delta = prop_oneof![0..1_u64 << 27, 0..1_u64 << 50];
        let event = (delta, 1..60_usize).prop_map(|(delta, words)| Piece::Event { delta, words });
        let discarded =
            (1..1_u64 << 27, 1..60_usize).prop_map(|(delta, words)| Piece::Discarded { delta, words });
        let stamp = (0..1_u64 << 52).prop_map(|ahead| Piece::Stamp { ahead });
        proptest::collection::vec(prop_oneof![6 => event, 1 => discarded, 1 => stamp], 0..40)
    }

    fn push(data: &mut Vec<u8>, word: u64) {
        data.extend_from_slice(&(word as u32).to_ne_bytes());
    }

    /// Writes pieces as the kernel does; returns the page and the events that should be read from it.
    fn encode(start: u64, pieces: &[Piece], missed: u64) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
        let (mut data, mut expected, mut time) = (Vec::new(), Vec::new(), start);
        for (number, piece) in pieces.iter().enumerate() {
            match *piece {
                Piece::Event { delta, words } => {
                    time += delta;
                    let mut rest = delta;
                    if delta >= 1 << 27 {
                        push(&mut data, u64::from(TIME_EXTEND) | (delta & ((1 << 27) - 1)) << 5);
                        push(&mut data, delta >> 27);
                        rest = 0;
                    }
                    let bytes = vec![number as u8; words * 4];
                    match words {
                        1..=28 => push(&mut data, words as u64 | rest << 5),
                        _ => {
                            push(&mut data, u64::from(LONG) | rest << 5);
                            push(&mut data, bytes.len() as u64 + 4);
                        }
                    }
                    data.extend_from_slice(&bytes);
                    expected.push((time, bytes));
                }
                Piece::Discarded { delta, words } => {
                    time += delta;
                    push(&mut data, u64::from(PADDING) | delta << 5);
                    push(&mut data, words as u64 * 4);
                    data.resize(data.len() + words * 4 - 4, 0xee);
                }
                Piece::Stamp { ahead } => {
                    time += ahead;
                    let low = time & ((1 << STAMP_BITS) - 1);
                    push(&mut data, u64::from(TIME_STAMP) | (low & ((1 << 27) - 1)) << 5);
                    push(&mut data, low >> 27);
                }
            }
        }
        let mut page = start.to_ne_bytes().to_vec();
        page.extend_from_slice(&(data.len() as u64 | missed).to_ne_bytes());
        page.extend_from_slice(&data);
        page.resize(page.len() + 64, 0);
        (page, expected)
    }

    proptest! {
        #[test]
        fn pages_are_read_as_they_were_written(
            // The kernel corrects the high bits of a stamp if there are any.
            start in prop_oneof![0..1_u64 << 57, (1_u64 << 60) - (1 << 55)..1 << 60],
            pieces in pieces(),
            missed in prop_oneof![Just(0), Just(1 << 31), Just(3_u64 << 30)],
        ) {
            let (page, expected) = encode(start, &pieces, missed);
            let mut read = Vec::new();
            decode(&layout(), &page, |time, event| read.push((time, event.to_vec()))).unwrap();
            prop_assert_eq!(read, expected);
        }

        #[test]
        fn garbage_never_causes_a_panic(
            start in any::<u64>(),
            pieces in pieces(),
            noise in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..20),
            length in any::<proptest::sample::Index>(),
        ) {
            let (mut page, _) = encode(start >> 2, &pieces, 0);
            for (place, byte) in noise {
                let place = place.index(page.len());
                page[place] = byte;
            }
            page.truncate(length.index(page.len() + 1));
            let mut total = 0;
            _ = decode(&layout(), &page, |_, event| total += event.len());
            prop_assert!(total <= page.len());
        }
    }

    #[test]
    fn page_may_end_in_padding() {
        let mut page = 7_u64.to_ne_bytes().to_vec();
        page.extend_from_slice(&16_u64.to_ne_bytes());
        [1_u64 | 3 << 5, 0xabcd, u64::from(PADDING), 99].iter().for_each(|word| push(&mut page, *word));
        let mut read = Vec::new();
        decode(&layout(), &page, |time, event| read.push((time, event.len()))).unwrap();
        assert_eq!(read, [(10, 4)]);
        assert_eq!(decode(&layout(), &page[..20], |_, _| {}), Err("a page is cut short"));
    }
}
