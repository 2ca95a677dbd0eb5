//! The kernel's ring buffer: pages of events, as `trace_pipe_raw` hands them out. Their layout is that
//! of `include/linux/ring_buffer.h` and `kernel/trace/ring_buffer.c`.

use super::format::PageLayout;

/// Bits of a page's count of used bytes that count; those above say that events are missing before it,
/// which the buffer's own statistics tell exactly.
const USED: u64 = (1 << 30) - 1;

/// What the length in an event's head means where it isn't one, in units of four bytes.
const LONG: u32 = 0;
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// An absolute time stamp has room for so many bits; the rest are those of the time before it.
const STAMP_BITS: u32 = 59;

/// Calls `event` with the time and the bytes of each event of a page, in their order. The time is the
/// kernel's trace clock, in nanoseconds.
///
/// # Errors
/// What is wrong, where the page isn't as the kernel makes them; the events before that are good.
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

/// The time that follows `time` and whose low bits are those of `stamp`.
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
