//! The header of LUKS2.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::Value;

/// The binary part of the header, before its JSON; the most that both take.
const BINARY: usize = 4096;
const LONGEST: u64 = 4 << 20;

/// The persistent flags in the header of LUKS2 at the start of the device at the path `device`, with
/// blanks between them; none where there is no such header.
pub(super) fn flags(device: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(device)?;
    let mut header = Vec::new();
    file.by_ref().take(BINARY as u64).read_to_end(&mut header)?;
    if let Some(length) = length(&header) {
        file.take(length.min(LONGEST).saturating_sub(BINARY as u64)).read_to_end(&mut header)?;
    }
    Ok(flags_in(&header))
}

/// The length of the header that starts so; none where it is none of LUKS2.
fn length(header: &[u8]) -> Option<u64> {
    let rest = header.strip_prefix(b"LUKS\xba\xbe\x00\x02")?;
    rest.first_chunk().map(|length| u64::from_be_bytes(*length))
}

fn flags_in(header: &[u8]) -> Option<String> {
    length(header)?;
    let text = header.get(BINARY..)?.split(|byte| *byte == 0).next()?;
    let json: Value = serde_json::from_slice(text).ok()?;
    let flags = json["config"]["flags"].as_array();
    let flags: Vec<_> = flags.into_iter().flatten().filter_map(Value::as_str).collect();
    Some(flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with this JSON.
    fn header(json: &str) -> Vec<u8> {
        let mut header = b"LUKS\xba\xbe\x00\x02".to_vec();
        header.extend(16384u64.to_be_bytes());
        header.resize(BINARY, 0);
        header.extend(json.as_bytes());
        header.resize(16384, 0);
        header
    }

    #[test]
    fn the_flags_of_a_header_are_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            flags(file.path()).unwrap()
        };
        let allowed = header(r#"{"config":{"flags":["allow-discards","no-read-workqueue"]}}"#);
        assert_eq!(read(&allowed).as_deref(), Some("allow-discards no-read-workqueue"));
        assert_eq!(read(&header(r#"{"config":{}}"#)).as_deref(), Some(""));
        assert_eq!(read(&header("{")), None);
        assert_eq!(read(b"LUKS\xba\xbe\x00\x01"), None);
        assert_eq!(read(&allowed[..100]), None);
    }
}
