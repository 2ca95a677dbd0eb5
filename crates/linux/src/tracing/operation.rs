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
