//! Device-mapper tables: their text, and where on the devices below they lay the data.

use trimtab_core::Bytes;

use crate::block::DeviceNumber;
use crate::ioctl::MapLine;

/// Reads the lines `START LENGTH TARGET PARAMETERS`, both figures in sectors; none where one makes no
/// sense.
pub(super) fn parse(text: &str) -> Option<Vec<MapLine>> {
    text.lines().map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<MapLine> {
    let mut fields = line.splitn(4, ' ');
    let (start, length) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    MapLine::new(start, length, fields.next()?, fields.next().unwrap_or_default())
}

/// The line as [`parse`] reads it.
pub(super) fn line_of(line: &MapLine) -> String {
    let MapLine { extent, target, parameters } = line;
    format!("{} {} {target} {parameters}", extent.start.get() / 512, extent.len().get() / 512)
}

/// The line with its keys, and the digests that name its data, blotted out.
pub(super) fn without_keys(line: MapLine) -> MapLine {
    let fields = line.parameters.split(' ').enumerate();
    let secret = |at: usize, field: &str| match line.target.as_str() {
        "crypt" => at == 1,
        // Root digest and salt.
        "verity" => at == 8 || at == 9,
        // `internal_hash:ALGORITHM:KEY` and its like.
        "integrity" => at > 3 && field.matches(':').count() > 1,
        _ => false,
    };
    let blotted = fields.map(|(at, field)| match (secret(at, field), field.rsplit_once(':')) {
        (false, _) => field.to_owned(),
        (true, Some((algorithm, _))) if line.target == "integrity" => format!("{algorithm}:-"),
        (true, _) => "-".to_owned(),
    });
    MapLine { parameters: blotted.collect::<Vec<_>>().join(" "), ..line }
}

/// The devices that a table names, each with the byte at which the table's data starts on it; none of
/// one on which the data isn't laid out in a row.
pub(super) fn places(table: &[MapLine]) -> Vec<(DeviceNumber, Option<Bytes>)> {
    let mut places: Vec<(DeviceNumber, Option<Bytes>)> = Vec::new();
    for line in table {
        for (number, start) in places_in(line) {
            if places.iter().all(|(known, _)| *known != number) {
                places.push((number, start.filter(|_| table.len() == 1)));
            }
        }
    }
    places
}

/// The devices that a line names, in its order.
fn places_in(line: &MapLine) -> Vec<(DeviceNumber, Option<Bytes>)> {
    let fields: Vec<_> = line.parameters.split(' ').collect();
    let named = fields.iter().enumerate();
    let named = named.filter_map(|(at, field)| Some((at, field.parse::<DeviceNumber>().ok()?)));
    // The sector that is the field after the device, where it is one.
    let next = |at: usize| {
        let sector: u64 = fields.get(at + 1)?.parse().ok()?;
        sector.checked_mul(512).map(Bytes)
    };
    let start = |number: DeviceNumber, at: usize| match line.target.as_str() {
        "linear" | "striped" | "crypt" | "delay" | "flakey" | "unstriped" => next(at),
        // LOG #ARGUMENTS ARGUMENT... #DEVICES DEVICE START ...: the first argument may be the log's device.
        "mirror" if at != 2 => next(at),
        // LEVEL #PARAMETERS PARAMETER... #DEVICES METADATA DATA ...: each copy is whole.
        "raid" if fields[0] == "raid1" && (fields.len() - at) % 2 == 1 => Some(Bytes::ZERO),
        "multipath" | "snapshot-origin" => Some(Bytes::ZERO),
        "thin-pool" | "era" | "cache" | "verity" if line.data_device() == Some(number) => Some(Bytes::ZERO),
        _ => None,
    };
    named.map(|(at, number)| (number, start(number, at))).collect()
}

impl MapLine {
    /// The device that a line of the target `linear` lies on, and the byte at which it starts there; none of
    /// other lines.
    pub fn linear(&self) -> Option<(DeviceNumber, Bytes)> {
        match places_in(self).first() {
            Some((number, Some(start))) if self.target == "linear" => Some((*number, *start)),
            _ => None,
        }
    }

    /// The one device that the line's discards go to, where it names others for metadata, digests or a
    /// cache; none of other lines. See the kernel's Documentation/admin-guide/device-mapper.
    pub fn data_device(&self) -> Option<DeviceNumber> {
        let mut words = self.parameters.split_whitespace();
        let word = match self.target.as_str() {
            // METADATA DATA BLOCK_SIZE ...
            "thin-pool" => words.nth(1),
            // METADATA CACHE ORIGIN ...
            "cache" => words.nth(2),
            // ORIGIN COW ...
            "snapshot" => words.next(),
            // DATA ...
            "integrity" => words.next(),
            // TYPE ORIGIN CACHE ..., VERSION DATA HASHES ..., METADATA DATA ...
            "writecache" | "verity" | "clone" | "era" => words.nth(1),
            _ => None,
        };
        word?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(minor: u32) -> DeviceNumber {
        DeviceNumber { major: 8, minor }
    }

    fn placed(table: &str) -> Vec<(u32, Option<u64>)> {
        let places = places(&parse(table).unwrap());
        places
            .into_iter()
            .map(|(number, start)| (number.minor, start.map(|start| start.get() / 512)))
            .collect()
    }

    #[test]
    fn tables_say_where_data_lies() {
        assert_eq!(placed("0 4096 linear 8:2 2048"), [(2, Some(2048))]);
        assert_eq!(
            placed("0 8 linear 8:2 2048\n8 8 linear 8:3 2048\n16 8 linear 8:2 9"),
            [(2, None), (3, None)]
        );
        assert_eq!(placed("0 8 striped 2 128 8:1 384 8:2 512"), [(1, Some(384)), (2, Some(512))]);
        assert_eq!(
            placed("0 8 crypt aes-xts-plain64 :64:logon:x 0 8:1 32768 1 allow_discards"),
            [(1, Some(32768))]
        );
        assert_eq!(placed("0 8 thin-pool 8:1 8:2 128 0 1 skip_block_zeroing"), [(1, None), (2, Some(0))]);
        assert_eq!(placed("0 8 thin 8:7 3"), [(7, None)]);
        assert_eq!(
            placed("0 8 raid raid1 3 0 region_size 1024 2 8:1 8:2 - 8:4"),
            [(1, None), (2, Some(0)), (4, Some(0))]
        );
        assert_eq!(placed("0 8 raid raid5_ls 3 128 region_size 1024 2 8:1 8:2 8:3 8:4")[1], (2, None));
        assert_eq!(
            placed("0 8 mirror core 2 1024 nosync 2 8:1 0 8:2 8 1 handle_errors"),
            [(1, Some(0)), (2, Some(8))]
        );
        assert_eq!(
            placed("0 8 mirror disk 2 8:3 1024 2 8:1 0 8:2 8"),
            [(3, None), (1, Some(0)), (2, Some(8))]
        );
        assert_eq!(placed("0 8 zero "), []);
        let linear = |line: &str| parse_line(line).unwrap().linear();
        assert_eq!(linear("0 8 linear 8:2 9"), Some((number(2), Bytes(9 * 512))));
        assert_eq!((linear("0 8 crypt a b 0 8:2 9"), linear("0 8 linear 8:2")), (None, None));
        assert_eq!(parse("0 x linear 8:2 0"), None);
        assert_eq!(parse("18446744073709551615 1 linear 8:2 0"), None);
    }

    #[test]
    fn keys_are_redacted() {
        let blotted = |line: &str| without_keys(parse_line(line).unwrap()).parameters;
        let crypt = blotted("0 8 crypt aes-xts-plain64 00ff00ff 0 8:1 32768 1 allow_discards");
        assert_eq!(crypt, "aes-xts-plain64 - 0 8:1 32768 1 allow_discards");
        let integrity =
            blotted("0 8 integrity 8:1 0 32 J 2 internal_hash:hmac(sha256):c0ffee block_size:512");
        assert_eq!(integrity, "8:1 0 32 J 2 internal_hash:hmac(sha256):- block_size:512");
        let verity = blotted("0 8 verity 1 8:1 8:2 4096 4096 9 1 sha256 c0ffee 5a17");
        assert_eq!(verity, "1 8:1 8:2 4096 4096 9 1 sha256 - -");
    }

    #[test]
    fn a_line_is_read_as_written() {
        let line = MapLine::new(8, 4096, "linear", "8:2 2048").unwrap();
        assert_eq!(parse_line(&line_of(&line)), Some(line));
        assert_eq!(
            places(&[MapLine::new(0, 8, "snapshot-origin", "8:5").unwrap()]),
            [(number(5), Some(Bytes::ZERO))]
        );
    }
}
