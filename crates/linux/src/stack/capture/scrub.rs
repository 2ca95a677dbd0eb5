//! Replaces what names people, hosts and things.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::words::KEPT;

/// Replaces all but well-known words, each by the same everywhere.
pub(super) struct Scrub {
    kept: HashSet<String>,
    replaced: HashMap<String, String>,
}

impl Scrub {
    /// One that keeps the kernel's names of these devices.
    pub(super) fn new<'a>(devices: impl Iterator<Item = &'a String>) -> Self {
        let well_known = KEPT.iter().flat_map(|words| words.split_ascii_whitespace());
        let known = well_known.chain(devices.map(String::as_str));
        let kept = known.flat_map(|word| word.split(is_between)).map(str::to_owned).collect();
        Self { kept, replaced: HashMap::new() }
    }

    /// The path without private words; it has no blanks then.
    pub(super) fn path(&mut self, path: &Path) -> String {
        self.text(&path.to_string_lossy())
    }

    /// The text without private words. Blanks are part of words, and gone then.
    pub(super) fn text(&mut self, text: &str) -> String {
        let mut scrubbed = String::new();
        for piece in text.split_inclusive(is_between) {
            let word = piece.trim_end_matches(is_between);
            let between = &piece[word.len()..];
            let around = [scrubbed.chars().next_back(), between.chars().next()];
            scrubbed += &if is_number(word, around) { word.to_owned() } else { self.word(word) };
            scrubbed += between;
        }
        scrubbed
    }

    /// The text without private words, field by field.
    pub(super) fn fields(&mut self, text: &str) -> String {
        let fields: Vec<_> = text.split(' ').map(|field| self.text(field)).collect();
        fields.join(" ")
    }

    /// A line of numbers and other fields without private words.
    pub(super) fn table_line(&mut self, text: &str) -> String {
        let is_number = |field: &str| field.bytes().all(|byte| byte.is_ascii_digit() || byte == b':');
        let scrubbed = |field: &str| if is_number(field) { field.to_owned() } else { self.text(field) };
        text.split(' ').map(scrubbed).collect::<Vec<_>>().join(" ")
    }

    fn word(&mut self, word: &str) -> String {
        if word.is_empty() || self.kept.contains(word) {
            return word.to_owned();
        }
        let next = self.replaced.len() + 1;
        self.replaced.entry(word.to_owned()).or_insert_with(|| format!("w{next}")).clone()
    }
}

/// Whether the character stands between words.
fn is_between(c: char) -> bool {
    c.is_ascii_punctuation() && c != '\\'
}

/// Whether the word names nobody, seeing what stands around it: a short number that is no part of an
/// UUID, or in quotes as a USB vendor's.
fn is_number(word: &str, around: [Option<char>; 2]) -> bool {
    let is_decimal = word.bytes().all(|byte| byte.is_ascii_digit());
    let is_hexadecimal = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_decimal && word.len() <= 4 && !around.contains(&Some('-')))
        || (is_hexadecimal && word.len() == 4 && around == [Some('"'); 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_alike_and_words_kept() {
        let mut scrub = Scrub::new(["sda1".to_owned()].iter());
        assert_eq!(scrub.text("/home/alice/my disk.img"), "/home/w1/w2.w3");
        assert_eq!(scrub.text("/dev/mapper/alice--pc-root"), "/dev/mapper/w1--w4-root");
        assert_eq!(scrub.text("alice_tmeta"), "w1_tmeta");
        assert_eq!(scrub.text("rw,discard=async,commit=30"), "rw,discard=async,commit=30");
        assert_eq!(scrub.text("/dev/sda1"), "/dev/sda1");
        let rule = r#"ACTION=="add", ATTRS{idVendor}=="152d", ATTRS{serial}=="S5P2NS0R", ATTR{provisioning_mode}="unmap""#;
        let expected =
            r#"ACTION=="add", ATTRS{idVendor}=="152d", ATTRS{serial}=="w5", ATTR{provisioning_mode}="unmap""#;
        assert_eq!(scrub.fields(rule), expected);
        let uuid = scrub.text("UUID=3e6be9de-8139-11d1-9106-a43f08d823a6");
        assert_eq!(uuid, "UUID=w6-w7-w8-w9-w10");
        assert_eq!(scrub.text("UUID=1234-8139"), "UUID=w11-w7");
    }
}
