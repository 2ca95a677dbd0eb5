//! What a block event says of its operation: the letters of its field `rwbs`, which the kernel's
//! `blk_fill_rwbs` writes.

use trimtab_core::trace::Kind;

/// What a request or bio with these letters and so many sectors is; none where it is nothing that is
/// recorded: a zone's state, or a command that a driver or user sends past the block layer.
///
/// The letters are an `F` where a flush goes ahead, the operation (`R`, `W`, `D`, `DE` for a secure
/// erase, `F` for a flush, `Z` and one more for zones, `N` for others), and modifiers. What has no
/// letter and yet names sectors writes zeroes.
pub(super) fn kind(rwbs: &[u8], sectors: u64) -> Option<Kind> {
    let operation = match rwbs {
        [b'F', rest @ ..] if matches!(rest.first(), Some(b'R' | b'W' | b'D' | b'F' | b'Z' | b'N')) => rest,
        all => all,
    };
    match *operation {
        [b'F', ..] => Some(Kind::Flush),
        [b'W', ..] if sectors == 0 => (rwbs[0] == b'F').then_some(Kind::Flush),
        _ if sectors == 0 => None,
        [b'R', ..] => Some(Kind::Read),
        [b'W', ..] | [b'Z', b'A', ..] => Some(Kind::Write),
        [b'D', b'E', ..] => Some(Kind::SecureErase),
        [b'D', ..] => Some(Kind::Discard),
        [b'N', ..] => Some(Kind::WriteZeroes),
        _ => None,
    }
}

/// The filter that lets through block events of `kinds`: none where no kind is a request, and an empty
/// one where all pass.
pub(super) fn filter(kinds: &[Kind]) -> Option<String> {
    let letters = |kind| match kind {
        Kind::Read => &["R*"][..],
        Kind::Write => &["W*", "FW*", "ZA*"],
        Kind::Discard => &["D*"],
        Kind::SecureErase => &["DE*"],
        Kind::Flush => &["F*"],
        Kind::WriteZeroes => &["N*"],
        Kind::Free | Kind::Allocate | Kind::Unused => &[],
    };
    let requests = Kind::ALL.into_iter().filter(|kind| kind.is_request());
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
    fn letters_of_several_kernels() {
        let kinds: &[(&str, u64, Option<Kind>)] = &[
            ("R", 8, Some(Kind::Read)),
            ("RAM", 8, Some(Kind::Read)),
            ("WS", 8, Some(Kind::Write)),
            ("FWFS", 8, Some(Kind::Write)),
            ("WFS", 8, Some(Kind::Write)),
            ("FWS", 0, Some(Kind::Flush)),
            ("FF", 0, Some(Kind::Flush)),
            ("F", 0, Some(Kind::Flush)),
            ("WS", 0, None),
            ("DS", 8, Some(Kind::Discard)),
            ("DE", 8, Some(Kind::SecureErase)),
            ("NS", 8, Some(Kind::WriteZeroes)),
            ("N", 0, None),
            ("ZA", 8, Some(Kind::Write)),
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
    fn filters_let_through_what_is_asked_for() {
        assert_eq!(filter(&[Kind::Free, Kind::Unused]), None);
        assert_eq!(filter(&Kind::ALL).as_deref(), Some(""));
        assert_eq!(filter(&[Kind::Free, Kind::Discard]).as_deref(), Some("rwbs ~ \"D*\""));
        let both = filter(&[Kind::Discard, Kind::Flush]);
        assert_eq!(both.as_deref(), Some("rwbs ~ \"D*\" || rwbs ~ \"F*\""));
    }
}
