//! The files of `/etc` and the kernel's command line.

use std::path::PathBuf;

use super::CrypttabLine;
use crate::mount::unescape;

/// The first letters of words of the kernel's command line that concern discards, besides those with
/// `discard` or `trim`.
const CONCERNING: [&str; 6] =
    ["libata.", "luks.options", "rd.luks.options", "scsi_mod.", "usb-storage.quirks", "usb_storage.quirks"];

/// The lines of a crypttab.
pub(super) fn crypttab(text: &str) -> Vec<CrypttabLine> {
    let line = |fields: Vec<PathBuf>| {
        let [name, source, rest @ ..] = fields.as_slice() else { return None };
        Some(CrypttabLine {
            name: name.display().to_string(),
            source: source.display().to_string(),
            // The key's file comes before.
            options: options(rest.get(1)),
            unread: rest.iter().skip(2).flat_map(|field| options(Some(field))).collect(),
        })
    };
    table(text).filter_map(line).collect()
}

/// The fields of each line that is no comment.
fn table(text: &str) -> impl Iterator<Item = Vec<PathBuf>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_ascii_whitespace().map(|field| unescape(field.as_bytes())).collect())
}

fn options(field: Option<&PathBuf>) -> Vec<String> {
    let text = field.map(|field| field.display().to_string()).unwrap_or_default();
    text.split(',').filter(|option| !option.is_empty()).map(str::to_owned).collect()
}

/// `devices/issue_discards` of an lvm.conf; none where it isn't set.
pub(super) fn issue_discards(text: &str) -> Option<bool> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let spaced = lines.map(|line| line.replace('{', " { ").replace('}', " } ").replace('=', " "));
    let spaced = spaced.collect::<Vec<_>>().join("\n");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut sections = Vec::new();
    let mut set = None;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" => sections.push(words[at.saturating_sub(1)]),
            "}" => drop(sections.pop()),
            "issue_discards" if sections == ["devices"] => set = words.get(at + 1),
            "devices/issue_discards" => set = words.get(at + 1),
            _ => {}
        }
    }
    set.map(|value| *value != "0")
}

/// The words of the kernel's command line that concern discards.
pub(super) fn command_line(text: &str) -> Vec<String> {
    let concerns = |word: &&str| {
        let named = CONCERNING.iter().any(|start| word.starts_with(start));
        named || word.contains("discard") || word.contains("trim")
    };
    text.split_ascii_whitespace().filter(concerns).map(str::to_owned).collect()
}

/// Whether `word` is one of those in `text`.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    text.split_ascii_whitespace().any(|found| found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crypttab_is_read_without_its_keys() {
        let lines = crypttab("data /dev/sda3 /root/key luks,discard\nswap /dev/sda4\n");
        assert_eq!(lines[0].options, ["luks", "discard"]);
        assert_eq!((lines[1].name.as_str(), lines[1].options.len()), ("swap", 0));
        // systemd and Debian's scripts take four fields.
        let spaced = &crypttab("data UUID=1 none luks, discard\n")[0];
        assert_eq!(
            (&spaced.options, &spaced.unread),
            (&vec!["luks".to_owned()], &vec!["discard".to_owned()])
        );
    }

    #[test]
    fn lvm_settings_count_in_their_section() {
        assert_eq!(
            issue_discards("devices {\n\t# issue_discards = 1\n\tissue_discards = 0\n}\n"),
            Some(false)
        );
        assert_eq!(issue_discards("devices/issue_discards=1\n"), Some(true));
        assert_eq!(
            issue_discards("allocation { a=1 }\ndevices { dir=\"/dev\" issue_discards=1 }"),
            Some(true)
        );
        assert_eq!(issue_discards("global { issue_discards = 1 }\n# devices { issue_discards = 1 }"), None);
        assert_eq!(issue_discards("} { {} issue_discards"), None);
    }

    #[test]
    fn words_that_concern_discards_are_kept() {
        let words = command_line("root=UUID=x ro libata.force=noncqtrim rd.luks.options=discard quiet\n");
        assert_eq!(words, ["libata.force=noncqtrim", "rd.luks.options=discard"]);
    }
}
