//! How several formats write the kind of a request.

use trimtab_core::trace::EventKind;

/// Returns the kind of a request that a letter names, R or W.
#[inline]
pub(super) fn by_letter(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"R" => EventKind::Read,
        b"W" => EventKind::Write,
        _ => return None,
    })
}

/// Returns the kind of a request that a digit names, 0 for reads or 1 for writes.
#[inline]
pub(super) fn by_digit(text: &[u8]) -> Option<EventKind> {
    Some(match text {
        b"0" => EventKind::Read,
        b"1" => EventKind::Write,
        _ => return None,
    })
}
