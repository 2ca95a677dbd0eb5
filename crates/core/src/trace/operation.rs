//! The operation of a block event: the letters of its field `rwbs`, written by the kernel's `blk_fill_rwbs`.

use super::EventKind;

/// Returns the kind of a request or bio with these letters and number of sectors; `None` if it is not
/// recorded: a change of a zone's state, or a command that a driver or user sends past the block layer.
///
/// The letters are an `F` if a flush goes ahead, the operation (`R`, `W`, `D`, `DE` for a secure erase, `F`
/// for a flush, `Z` and one more for zones, `N` for others), and modifiers. An operation `N` with sectors
/// writes zeroes, and so does `WZ`.
pub fn kind(rwbs: &[u8], sectors: u64) -> Option<EventKind> {
    let operation = match rwbs {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'R' | b'W' | b'D' | b'F' | b'Z' | b'N')) => rest,
        all => all,
    };
    match *operation {
        [b'F', ..] => Some(EventKind::Flush),
        [b'W', ..] if sectors == 0 => (rwbs[0] == b'F').then_some(EventKind::Flush),
        _ if sectors == 0 => None,
        [b'R', ..] => Some(EventKind::Read),
        [b'W', b'Z', ..] => Some(EventKind::WriteZeroes),
        [b'W', ..] | [b'Z', b'A', ..] => Some(EventKind::Write),
        [b'D', b'E', ..] => Some(EventKind::SecureErase),
        [b'D', ..] => Some(EventKind::Discard),
        [b'N', ..] => Some(EventKind::WriteZeroes),
        _ => None,
    }
}

/// Returns the filter that passes block events of `kinds`: `None` if no kind is a request, an empty one if all
/// pass.
pub fn filter(kinds: &[EventKind]) -> Option<String> {
    let letters = |kind| match kind {
        EventKind::Read => &["R*"][..],
        EventKind::Write => &["W*", "FW*", "ZA*"],
        EventKind::Discard => &["D*"],
        EventKind::SecureErase => &["DE*"],
        EventKind::Flush => &["F*"],
        EventKind::WriteZeroes => &["N*", "WZ*"],
        EventKind::Free | EventKind::Allocate | EventKind::Unused => &[],
    };
    let requests = EventKind::ALL.into_iter().filter(|kind| kind.is_request());
    if requests.clone().all(|kind| kinds.contains(&kind)) {
        return Some(String::new());
    }
    let wanted: Vec<_> =
        kinds.iter().flat_map(|kind| letters(*kind)).map(|letters| format!("rwbs ~ \"{letters}\"")).collect();
    (!wanted.is_empty()).then(|| wanted.join(" || "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_several_kernels_are_understood() {
        let kinds: &[(&str, u64, Option<EventKind>)] = &[
            ("R", 8, Some(EventKind::Read)),
            ("RAM", 8, Some(EventKind::Read)),
            ("WS", 8, Some(EventKind::Write)),
            ("FWFS", 8, Some(EventKind::Write)),
            ("WFS", 8, Some(EventKind::Write)),
            ("FWS", 0, Some(EventKind::Flush)),
            ("FF", 0, Some(EventKind::Flush)),
            ("F", 0, Some(EventKind::Flush)),
            ("WS", 0, None),
            ("DS", 8, Some(EventKind::Discard)),
            ("DE", 8, Some(EventKind::SecureErase)),
            ("NS", 8, Some(EventKind::WriteZeroes)),
            ("WZS", 8, Some(EventKind::WriteZeroes)),
            ("N", 0, None),
            ("ZA", 8, Some(EventKind::Write)),
            ("ZR", 0, None),
            ("", 8, None),
        ];
        for (letters, sectors, expected) in kinds {
            let mut rwbs = [0; 10];
            rwbs[..letters.len()].copy_from_slice(letters.as_bytes());
            assert_eq!(kind(&rwbs, *sectors), *expected, "{letters} {sectors}");
        }
        assert_eq!(kind(&[], 8), None);
    }

    #[test]
    fn filters_pass_the_requested_kinds() {
        assert_eq!(filter(&[EventKind::Free, EventKind::Unused]), None);
        assert_eq!(filter(&EventKind::ALL).as_deref(), Some(""));
        assert_eq!(filter(&[EventKind::Free, EventKind::Discard]).as_deref(), Some("rwbs ~ \"D*\""));
        let both = filter(&[EventKind::Discard, EventKind::Flush]);
        assert_eq!(both.as_deref(), Some("rwbs ~ \"D*\" || rwbs ~ \"F*\""));
    }
}
