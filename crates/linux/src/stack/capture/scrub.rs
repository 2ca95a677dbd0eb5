//! Replaces what names people, hosts and things.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::words::{KEPT, NUMERIC};

/// Words before a number that is kept everywhere: the device mapper's in the names of its devices,
/// and a USB bridge's in rules.
const BEFORE_NUMBERS: [&str; 3] = ["/dm-", "idVendor}==\"", "idProduct}==\""];

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
        let words = known.flat_map(|word| word.split(is_between)).filter(|word| !is_decimal(word));
        Self { kept: words.map(str::to_owned).collect(), replaced: HashMap::new() }
    }

    /// The path without private words; it has no blanks then.
    pub(super) fn path(&mut self, path: &Path) -> String {
        self.text(&path.to_string_lossy())
    }

    /// The text without private words and numbers. Blanks are part of words, and gone then.
    pub(super) fn text(&mut self, text: &str) -> String {
        let is_kept = |before: &str| BEFORE_NUMBERS.iter().any(|known| before.ends_with(known));
        self.words(text, |word, before| is_short_number(word) && is_kept(before))
    }

    /// Mount options and their like, with commas between them: of those that take a value, it is kept
    /// where they are well known.
    pub(super) fn options(&mut self, options: &str) -> String {
        let options: Vec<_> = options.split(',').map(|option| self.option(option)).collect();
        options.join(",")
    }

    fn option(&mut self, option: &str) -> String {
        let Some((name, value)) = option.split_once('=') else { return self.text(option) };
        if NUMERIC.split_ascii_whitespace().any(|known| known == name) {
            return format!("{name}={}", self.numbers(value));
        }
        let known = self.text(name);
        let value = if known == name { self.text(value) } else { self.replace(value) };
        format!("{known}={value}")
    }

    /// Words of the kernel's command line, with blanks between them.
    pub(super) fn command_line(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').map(|word| self.option(word)).collect();
        words.join(" ")
    }

    /// A rule of udev without private words.
    pub(super) fn rule(&mut self, line: &str) -> String {
        let fields: Vec<_> = line.split(' ').map(|field| self.text(field)).collect();
        fields.join(" ")
    }

    /// A line of a device-mapper table without private words.
    pub(super) fn table_line(&mut self, line: &str) -> String {
        let fields = line
            .split(' ')
            .map(|field| if field.starts_with('/') { self.text(field) } else { self.numbers(field) });
        fields.collect::<Vec<_>>().join(" ")
    }

    /// The name of a directory in sysfs, which is replaced where it may be a GUID or the name of a port.
    pub(super) fn directory(&mut self, name: &str) -> String {
        let is_number = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
        if name.as_bytes().windows(8).any(is_number) { self.replace(name) } else { name.to_owned() }
    }

    /// The text without private words, but with its numbers.
    fn numbers(&mut self, text: &str) -> String {
        self.words(text, |word, _| is_decimal(word))
    }

    /// Replaces the words but those that `is_kept` says, which is told what comes before.
    fn words(&mut self, text: &str, is_kept: impl Fn(&str, &str) -> bool) -> String {
        let mut scrubbed = String::new();
        for piece in text.split_inclusive(is_between) {
            let word = piece.trim_end_matches(is_between);
            scrubbed += &if is_kept(word, &scrubbed) { word.to_owned() } else { self.word(word) };
            scrubbed += &piece[word.len()..];
        }
        scrubbed
    }

    fn word(&mut self, word: &str) -> String {
        if word.is_empty() || self.kept.contains(word) {
            return word.to_owned();
        }
        self.replace(word)
    }

    fn replace(&mut self, word: &str) -> String {
        let next = self.replaced.len() + 1;
        self.replaced.entry(word.to_owned()).or_insert_with(|| format!("w{next}")).clone()
    }
}

/// Whether the character stands between words.
fn is_between(c: char) -> bool {
    c.is_ascii_punctuation() && c != '\\'
}

fn is_decimal(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_short_number(word: &str) -> bool {
    word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit())
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
        assert_eq!(scrub.text("/dev/sda1"), "/dev/sda1");
        let rule = r#"ACTION=="add", ATTRS{idVendor}=="152d", ATTRS{serial}=="5150", ATTR{provisioning_mode}="unmap""#;
        let expected =
            r#"ACTION=="add", ATTRS{idVendor}=="152d", ATTRS{serial}=="w5", ATTR{provisioning_mode}="unmap""#;
        assert_eq!(scrub.rule(rule), expected);
        let uuid = scrub.text("UUID=3e6be9de-8139-11d1-9106-a43f08d823a6");
        assert_eq!(uuid, "UUID=w6-w7-w8-w9-w10");
        assert_eq!(scrub.text("UUID=1234-8139"), "UUID=w11-w7");
    }

    #[test]
    fn numbers_that_identify_nobody_are_kept() {
        let mut scrub = Scrub::new(["dm-12".to_owned()].iter());
        assert_eq!(scrub.text("/dev/dm-12"), "/dev/dm-12");
        assert_eq!(
            scrub.options("rw,discard=async,commit=30,size=50%"),
            "rw,discard=async,commit=30,size=50%"
        );
        assert_eq!(scrub.options("password=home,sys=1.1"), "w1=w2,w3=w4");
        assert_eq!(scrub.options("lowerdir=/var/lib/17:/home"), "lowerdir=/var/lib/w5:/home");
        assert_eq!(scrub.command_line("libata.force=1.00:noncq discard"), "libata.force=1.00:noncq discard");
        let table = "0 4096 integrity 8:1 0 32 J 2 internal_hash:crc32c block_size:512";
        assert!(scrub.table_line(table).ends_with("block_size:512"));
        assert_eq!(scrub.directory("0000:00:1f.2"), "0000:00:1f.2");
        assert_ne!(scrub.directory("naa.5000c500a1b2c3d4"), "naa.5000c500a1b2c3d4");
    }
}
