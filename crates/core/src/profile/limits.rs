//! The values that a drive can have. Others would hang the flash model, take more memory than
//! a machine has, or not fit the attributes that the kernel has for a block device.

use std::ops::RangeInclusive;

use super::bound::{Broken, LONGEST, first_above};
use super::{Discard, Profile, Sourced, aging, idle, map_cache, slc, suspend, wear};
use crate::units::{Bytes, Nanos};

/// The largest granularity of discards, advertised or honoured: the kernel stores it in 32 bits.
pub const LARGEST_GRANULARITY: Bytes = Bytes::GIB;

/// The largest erase block: an eighth of its mapping is kept in memory for each drive.
const LARGEST_ERASE_BLOCK: Bytes = Bytes(16 << 30);
/// The largest write buffer: each of its pages takes 8 bytes of memory.
const LARGEST_WRITE_BUFFER: Bytes = Bytes(16 << 30);
/// The most that a command or one of its ranges can name: 1024 TiB, above any drive.
const LARGEST_COMMAND: Bytes = Bytes(1 << 50);
/// The largest journal entry: the model programs it page by page.
const LARGEST_JOURNAL: Bytes = Bytes::MIB;
/// The largest drive: 1024 TiB.
const LARGEST_CAPACITY: Bytes = Bytes(1 << 50);
const COUNTS: RangeInclusive<u32> = 1..=4096;
/// The ranges that a command can name: NVMe has room for this many.
const RANGES: RangeInclusive<u32> = 1..=256;
const RESERVE: RangeInclusive<u32> = 1..=65_536;
/// The share of a die that the work of a discard can take: the rest has to serve the host.
const SHARES: RangeInclusive<f64> = 0.001..=0.99;
const MOST_DIES: u32 = 65_536;

/// The first field whose value no drive can have, with the reason.
pub(super) fn broken(profile: &Profile) -> Option<Broken> {
    page(profile)
        .or_else(|| counts(profile))
        .or_else(|| times(profile))
        .or_else(|| multiples(profile))
        .or_else(|| sizes(profile))
        .or_else(|| spare(profile))
        .or_else(|| shares(profile))
        .or_else(|| idle::broken(profile))
        .or_else(|| slc::broken(profile))
        .or_else(|| map_cache::broken(profile))
        .or_else(|| suspend::broken(profile))
        .or_else(|| aging::broken(profile))
        .or_else(|| wear::broken(profile))
}

fn page(profile: &Profile) -> Option<Broken> {
    let page = profile.geometry.mapping_page.value;
    let possible = page.0.is_power_of_two() && (Bytes(512)..=Bytes::MIB).contains(&page);
    let message = format!("{page} must be a power of two from 512 B to 1 MiB");
    (!possible).then_some(("geometry.mapping_page", message))
}

fn counts(profile: &Profile) -> Option<Broken> {
    let g = &profile.geometry;
    let optional = |count: &Option<Sourced<u32>>| count.as_ref().map_or(1, |count| count.value);
    let counts = [
        ("geometry.channels", g.channels.value, COUNTS),
        ("geometry.dies_per_channel", g.dies_per_channel.value, COUNTS),
        ("geometry.reserve_blocks", g.reserve_blocks.value, RESERVE),
        ("timing.queue_depth", profile.timing.queue_depth.value, COUNTS),
        ("discard.queue_depth", optional(&profile.discard.queue_depth), COUNTS),
        ("discard.ranges_per_command", optional(&profile.discard.ranges_per_command), RANGES),
    ];
    let outside = counts.into_iter().find(|(_, count, possible)| !possible.contains(count));
    if let Some((field, count, possible)) = outside {
        return Some((field, format!("{count} must be from {} to {}", possible.start(), possible.end())));
    }
    if profile.dies() > MOST_DIES {
        let (dies, channels) = (g.dies_per_channel.value, g.channels.value);
        let message = format!("{dies} on each of {channels} channels must be at most {MOST_DIES} dies");
        return Some(("geometry.dies_per_channel", message));
    }
    let every = profile.discard.ignored_every.as_ref().map(|every| every.value);
    (every == Some(0)).then(|| ("discard.ignored_every", "0 must be 1 or more".to_owned()))
}

fn shares(profile: &Profile) -> Option<Broken> {
    let Discard { lazy_share, busy_share, .. } = &profile.discard;
    let shares = [("discard.lazy_share", lazy_share), ("discard.busy_share", busy_share)];
    let given = shares.into_iter().filter_map(|(field, share)| Some((field, share.as_ref()?.value)));
    let outside = given.clone().find(|(_, share)| !SHARES.contains(share));
    if let Some((field, share)) = outside {
        return Some((field, format!("{share} must be from {} to {}", SHARES.start(), SHARES.end())));
    }
    let message = "it cannot be beside lazy_share, which says what the work of a lazy drive takes".to_owned();
    (given.count() > 1).then_some(("discard.busy_share", message))
}

fn times(profile: &Profile) -> Option<Broken> {
    let (t, d) = (&profile.timing, &profile.discard);
    first_above([
        ("timing.read", t.read.value, LONGEST),
        ("timing.program", t.program.value, LONGEST),
        ("timing.erase", t.erase.value, LONGEST),
        ("timing.command_overhead", t.command_overhead.value, LONGEST),
        ("timing.flush", t.flush.value, LONGEST),
        ("discard.command", d.command.value, LONGEST),
        ("discard.range", d.range.value, LONGEST),
        ("discard.per_gib", d.per_gib.value, LONGEST),
        ("discard.per_mapped_gib", d.per_mapped_gib.as_ref().map_or(Nanos::ZERO, |time| time.value), LONGEST),
    ])
}

fn multiples(profile: &Profile) -> Option<Broken> {
    let (g, d) = (&profile.geometry, &profile.discard);
    let (page, unit, sector) = (g.mapping_page.value, g.program_unit.value, Bytes(512));
    let capacity = g.capacity.as_ref().map_or(sector, |capacity| capacity.value);
    [
        ("geometry.capacity", capacity, sector, "512 B"),
        ("geometry.program_unit", unit, page, "mapping_page"),
        ("geometry.erase_block", g.erase_block.value, unit, "program_unit"),
        ("timing.write_buffer", profile.timing.write_buffer.value, page, "mapping_page"),
        ("discard.advertised_granularity", d.advertised_granularity.value, sector, "512 B"),
        ("discard.honoured_granularity", d.honoured_granularity.value, page, "mapping_page"),
        ("discard.range_limit", d.range_limit.value, sector, "512 B"),
        ("discard.command_limit", d.command_limit.value, page, "mapping_page"),
    ]
    .into_iter()
    .find(|(_, value, of, _)| *value == Bytes::ZERO || !value.0.is_multiple_of(of.0))
    .map(|(field, value, _, of)| (field, format!("{value} must be a whole multiple of {of}")))
}

fn sizes(profile: &Profile) -> Option<Broken> {
    let (g, d) = (&profile.geometry, &profile.discard);
    let journal = d.journal_per_range.value;
    let capacity = g.capacity.as_ref().map_or(Bytes::ZERO, |capacity| capacity.value);
    first_above([
        ("geometry.capacity", capacity, LARGEST_CAPACITY),
        ("geometry.erase_block", g.erase_block.value, LARGEST_ERASE_BLOCK),
        ("timing.write_buffer", profile.timing.write_buffer.value, LARGEST_WRITE_BUFFER),
        ("discard.advertised_granularity", d.advertised_granularity.value, LARGEST_GRANULARITY),
        ("discard.honoured_granularity", d.honoured_granularity.value, LARGEST_GRANULARITY),
        ("discard.range_limit", d.range_limit.value, LARGEST_COMMAND),
        ("discard.command_limit", d.command_limit.value, LARGEST_COMMAND),
        ("discard.journal_per_range", journal, LARGEST_JOURNAL),
    ])
    .or_else(|| {
        // A discard would make the drive write more than it names.
        let limit = d.range_limit.value;
        let message = format!("{journal} must be at most range_limit, {limit}");
        (journal > limit).then_some(("discard.journal_per_range", message))
    })
}

fn spare(profile: &Profile) -> Option<Broken> {
    let spare = profile.geometry.over_provisioning.value;
    let possible = spare > 0.0 && spare <= 10.0;
    let message = format!("{spare} must be above 0 and at most 10 (0.07 is 7 %)");
    (!possible).then_some(("geometry.over_provisioning", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = include_str!("../../profiles/ocz-agility-3.toml");

    /// Returns the error of a profile whose fields have these values.
    fn wrong(values: &[(&str, &str)]) -> Option<String> {
        assert!(values.iter().all(|(field, _)| GOOD.contains(&format!("\n{field} = "))), "{values:?}");
        let line = |line: &str| {
            let name = line.split(' ').next();
            let value = values.iter().find(|(field, _)| name == Some(field)).map(|(_, value)| value);
            value.map_or(line.to_owned(), |value| {
                format!("{} = {{ value = {value}, source = \"a test\" }}", name.unwrap())
            })
        };
        let text: Vec<_> = GOOD.lines().map(line).collect();
        Profile::parse(&text.join("\n"), "my.toml").err().map(|error| error.to_string())
    }

    #[test]
    fn a_value_outside_its_limits_is_named_with_them() {
        for (field, value, message) in [
            (
                "mapping_page",
                "\"2 MiB\"",
                "geometry.mapping_page: 2 MiB must be a power of two from 512 B to 1 MiB",
            ),
            (
                "program_unit",
                "\"1 TiB\"",
                "geometry.erase_block: 2 MiB must be a whole multiple of program_unit",
            ),
            ("erase_block", "\"1 TiB\"", "geometry.erase_block: 1 TiB must be at most 16 GiB"),
            (
                "over_provisioning",
                "11.0",
                "geometry.over_provisioning: 11 must be above 0 and at most 10 (0.07 is 7 %)",
            ),
            (
                "over_provisioning",
                "nan",
                "geometry.over_provisioning: NaN must be above 0 and at most 10 (0.07 is 7 %)",
            ),
            ("reserve_blocks", "0", "geometry.reserve_blocks: 0 must be from 1 to 65536"),
            ("reserve_blocks", "4294967295", "geometry.reserve_blocks: 4294967295 must be from 1 to 65536"),
            ("channels", "4097", "geometry.channels: 4097 must be from 1 to 4096"),
            ("dies_per_channel", "0", "geometry.dies_per_channel: 0 must be from 1 to 4096"),
            ("queue_depth", "5000", "timing.queue_depth: 5000 must be from 1 to 4096"),
            ("per_gib", "\"3601 s\"", "discard.per_gib: 3601 s must be at most 3600 s"),
            ("write_buffer", "\"4096 TiB\"", "timing.write_buffer: 4096 TiB must be at most 16 GiB"),
            (
                "command_limit",
                "\"16777215 TiB\"",
                "discard.command_limit: 16777215 TiB must be at most 1024 TiB",
            ),
            ("range_limit", "\"16777215 TiB\"", "discard.range_limit: 16777215 TiB must be at most 1024 TiB"),
            (
                "advertised_granularity",
                "\"4 GiB\"",
                "discard.advertised_granularity: 4 GiB must be at most 1 GiB",
            ),
            (
                "honoured_granularity",
                "\"4 GiB\"",
                "discard.honoured_granularity: 4 GiB must be at most 1 GiB",
            ),
            ("journal_per_range", "\"1 TiB\"", "discard.journal_per_range: 1 TiB must be at most 1 MiB"),
        ] {
            assert_eq!(wrong(&[(field, value)]), Some(format!("my.toml: {message}")));
        }
        assert_eq!(
            wrong(&[("channels", "4096"), ("dies_per_channel", "17")]),
            Some(
                "my.toml: geometry.dies_per_channel: 17 on each of 4096 channels must be at most 65536 dies"
                    .to_owned()
            )
        );
        assert_eq!(
            wrong(&[("range_limit", "\"4 KiB\""), ("journal_per_range", "\"1 MiB\"")]),
            Some("my.toml: discard.journal_per_range: 1 MiB must be at most range_limit, 4 KiB".to_owned())
        );
        let choices = wrong(&[("policy", "\"d-choices:4294967295\"")]).unwrap();
        assert!(
            choices.starts_with("my.toml: gc.policy.value: ") && choices.contains("D from 1 to 1024"),
            "{choices}"
        );
    }

    #[test]
    fn optional_costs_of_discards_have_limits() {
        let discard = |field: &str, value: &str| {
            let line = format!("[discard]\n{field} = {{ value = {value}, source = \"a test\" }}");
            let parsed = Profile::parse(&GOOD.replacen("[discard]", &line, 1), "my.toml");
            parsed.err().map(|error| error.to_string())
        };
        for share in ["0.0", "1.0", "nan", "-1.0"] {
            let number = if share == "nan" { "NaN" } else { share.trim_end_matches(".0") };
            for field in ["lazy_share", "busy_share"] {
                let message = format!("my.toml: discard.{field}: {number} must be from 0.001 to 0.99");
                assert_eq!(discard(field, share), Some(message));
            }
        }
        let both = "busy_share = { value = 0.5, source = \"a test\" }\nlazy_share";
        let message = "my.toml: discard.busy_share: it cannot be beside lazy_share, which says what the work of a lazy drive takes";
        assert_eq!(discard(both, "0.5"), Some(message.to_owned()));
        let message = "my.toml: discard.per_mapped_gib: 3601 s must be at most 3600 s".to_owned();
        assert_eq!(discard("per_mapped_gib", "\"3601 s\""), Some(message));
        for (field, counts, most) in
            [("queue_depth", ["0", "4097"], 4096), ("ranges_per_command", ["0", "257"], 256)]
        {
            for count in counts {
                let message = format!("my.toml: discard.{field}: {count} must be from 1 to {most}");
                assert_eq!(discard(field, count), Some(message));
            }
            assert_eq!(discard(field, &most.to_string()), None);
        }
        assert_eq!(discard("lazy_share", "0.99"), None);
        assert_eq!(discard("busy_share", "0.99"), None);
        assert_eq!(discard("per_mapped_gib", "\"3600 s\""), None);
    }

    #[test]
    fn a_value_at_its_limit_is_possible() {
        for (field, value) in [
            ("erase_block", "\"16 GiB\""),
            ("over_provisioning", "10.0"),
            ("reserve_blocks", "65536"),
            ("queue_depth", "4096"),
            ("write_buffer", "\"16 GiB\""),
            ("range_limit", "\"1024 TiB\""),
            ("command_limit", "\"1024 TiB\""),
            ("advertised_granularity", "\"1 GiB\""),
            ("honoured_granularity", "\"1 GiB\""),
            ("journal_per_range", "\"1 MiB\""),
            ("policy", "\"d-choices:1024\""),
            ("per_gib", "\"3600 s\""),
        ] {
            assert_eq!(wrong(&[(field, value)]), None, "{field} = {value}");
        }
    }
}
