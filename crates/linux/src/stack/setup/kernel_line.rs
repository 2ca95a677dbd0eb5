//! The words of the kernel's command line that allow discards of encrypted volumes.

use super::{CrypttabLine, allows_discards};
use crate::block::BlockDevice;
use crate::stack::{Layer, Machine};

/// A dm-crypt device, by what the kernel's command line may name it.
pub(super) struct Volume {
    /// Its name in `/dev/mapper`.
    name: Option<String>,
    /// The UUIDs of its LUKS header, in hexadecimal digits.
    uuids: Vec<String>,
}

impl Volume {
    /// The volume that is `layer`.
    pub(super) fn of(machine: &Machine, layer: &Layer, crypttab: &[CrypttabLine]) -> Self {
        let device = layer.number.and_then(|number| BlockDevice::numbered(&machine.sysfs(), number));
        // `CRYPT-LUKS2-UUID-NAME`, the UUID without its hyphens.
        let uuid = device.and_then(|device| device.identity("dm/uuid"));
        let uuid = uuid.and_then(|uuid| Some(uuid.strip_prefix("CRYPT-LUKS")?.split('-').nth(1)?.to_owned()));
        let name = layer.label.clone();
        let lines = crypttab.iter().filter(|line| name.as_ref() == Some(&line.name));
        let listed = lines.filter_map(|line| line.source.strip_prefix("UUID="));
        let uuids = uuid.iter().map(String::as_str).chain(listed).map(digits).collect();
        Self { name, uuids }
    }

    /// Returns whether `word` of the command line has its discards allowed: `luks.options` of systemd (for all volumes, or for a
    /// UUID), `rd.luks.allow-discards` of dracut (likewise), `cryptdevice` of Arch Linux.
    pub(super) fn is_allowed_by(&self, word: &str) -> bool {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let allows = |options: &str| options.split(',').any(allows_discards);
        match key {
            "luks.options" | "rd.luks.options" => match value.split_once('=') {
                Some((uuid, options)) if is_uuid(uuid) => self.has(uuid) && allows(options),
                _ => allows(value),
            },
            "rd.luks.allow-discards" | "rd_LUKS_allow_discards" => {
                value.is_empty() || self.starts_with(value)
            }
            // DEVICE:NAME:OPTION,...
            "cryptdevice" => {
                let fields: Vec<_> = value.split(':').collect();
                match fields.as_slice() {
                    [_, name, options, ..] => self.name.as_deref() == Some(*name) && allows(options),
                    _ => false,
                }
            }
            _ => false,
        }
    }

    fn has(&self, uuid: &str) -> bool {
        self.uuids.contains(&digits(uuid))
    }

    /// Whether dracut takes `start`, which may be the start of a UUID, for one of its.
    fn starts_with(&self, start: &str) -> bool {
        let start = digits(start.strip_prefix("luks-").unwrap_or(start));
        !start.is_empty() && self.uuids.iter().any(|uuid| uuid.starts_with(&start))
    }
}

fn is_uuid(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn digits(uuid: &str) -> String {
    uuid.to_ascii_lowercase().replace('-', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_of_another_volume_allows_nothing() {
        let uuid = "3e6be9de-8139-11d1-9106-a43f08d823a6";
        let ours = Volume { name: Some("root".to_owned()), uuids: vec![digits(uuid)] };
        let other = Volume { name: Some("home".to_owned()), uuids: vec![digits("1234")] };
        let all = ["luks.options=discard", "rd.luks.options=luks,discard", "rd.luks.allow-discards"];
        for word in all {
            assert!(ours.is_allowed_by(word) && other.is_allowed_by(word), "{word}");
        }
        let own = [
            &format!("luks.options={uuid}=discard"),
            &format!("rd.luks.options={}=timeout=9,discard", uuid.to_ascii_uppercase()),
            &format!("rd.luks.allow-discards=luks-{}", &uuid[..8]),
            "cryptdevice=UUID=3e6be9de:root:allow-discards",
            "cryptdevice=/dev/sda2:root:no-read-workqueue,allow-discards",
        ];
        for word in own {
            assert!(ours.is_allowed_by(word) && !other.is_allowed_by(word), "{word}");
        }
        for word in ["luks.options=tries=9", "cryptdevice=/dev/sda2:root", "luks.name=discard", "discard"] {
            assert!(!ours.is_allowed_by(word), "{word}");
        }
    }
}
