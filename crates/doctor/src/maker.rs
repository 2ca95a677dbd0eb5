//! The program that made a device-mapper device, which decides what mends it.

use trimtab_core::shell::quoted;
use trimtab_linux::stack::Layer;

/// The maker of a device-mapper device, by the words that its UUID starts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// cryptsetup or systemd, with a header that keeps options.
    Luks2,
    /// cryptsetup or systemd, with a header that keeps none.
    Luks1,
    /// cryptsetup, with one of its other types.
    Cryptsetup(&'static str),
    /// integritysetup.
    Integritysetup,
    /// LVM.
    Lvm,
    /// Stratis.
    Stratis,
    /// dmsetup, or a program that leaves no name, such as VeraCrypt.
    Unnamed,
}

impl Maker {
    /// The maker of `layer`.
    pub(super) fn of(layer: &Layer) -> Self {
        match layer.subsystem.as_deref() {
            Some("CRYPT-LUKS2") => Self::Luks2,
            Some("CRYPT-LUKS1") => Self::Luks1,
            Some("CRYPT-PLAIN") => Self::Cryptsetup("plain"),
            Some("CRYPT-BITLK") => Self::Cryptsetup("bitlk"),
            Some("CRYPT-TCRYPT") => Self::Cryptsetup("tcrypt"),
            Some("CRYPT-FVAULT2") => Self::Cryptsetup("fvault2"),
            Some("CRYPT-LOOPAES") => Self::Cryptsetup("loopaes"),
            Some("CRYPT-INTEGRITY") => Self::Integritysetup,
            Some("LVM") => Self::Lvm,
            Some("stratis") => Self::Stratis,
            _ => Self::Unnamed,
        }
    }
}

/// A change of the options at the end of a device's table: of their number, which is the field `at`, and of a word.
pub(super) enum TableChange<'a> {
    /// The word is added.
    Add(&'a str),
    /// The word is taken out.
    Remove(&'a str),
}

/// Returns the commands that change the table of the device `name`, which no program but dmsetup manages. `at` is the field, from
/// 1 on, with the number of options; a table may end before it.
pub(super) fn reloaded(name: &str, at: usize, change: &TableChange<'_>) -> String {
    let name = quoted(name);
    let script = match change {
        TableChange::Add(word) => {
            format!("{{ if (NF < {at}) $0 = $0 \" 0\"; ${at} += 1; print $0, \"{word}\" }}")
        }
        TableChange::Remove(word) => format!("{{ sub(/ {word}/, \"\"); ${at} -= 1; print }}"),
    };
    format!(
        "dmsetup table --showkeys {name} | awk '{script}' | dmsetup reload {name} && dmsetup resume {name}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_changed_at_its_options() {
        assert_eq!(
            reloaded("a b", 9, &TableChange::Add("allow_discards")),
            "dmsetup table --showkeys 'a b' | awk '{ if (NF < 9) $0 = $0 \" 0\"; $9 += 1; print $0, \"allow_discards\" }' | \
             dmsetup reload 'a b' && dmsetup resume 'a b'"
        );
        let removed = reloaded("pool", 8, &TableChange::Remove("no_discard_passdown"));
        assert!(removed.contains("awk '{ sub(/ no_discard_passdown/, \"\"); $8 -= 1; print }'"), "{removed}");
    }
}
