//! Drives whose profiles are at the limits of what [`Profile::parse`] takes work, and end.

use proptest::prelude::{Just, ProptestConfig, Strategy, prop, proptest};
use trimtab_core::document::sim::Clocks;
use trimtab_core::policy::{PolicyChoice, SmartPolicy};
use trimtab_core::profile::Profile;
use trimtab_core::trace::{Comm, DeviceIndex, EventKind, TraceEvent};
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_ftl::replay::{Discards, Replay, ReplayOptions};
use trimtab_ftl::{ClosedLoop, Command, Device, GeometryError, Op};

mod common;

use common::in_memory;

const BASE: &str = include_str!("../../../profiles/nvme-tlc.toml");

/// Whole pages of any size, and of no larger grain.
const SIZE: Bytes = Bytes(129 << 20);

/// Settings with which drives this small work.
const ROOM: [(&str, &str); 2] = [("erase_block", "'1 MiB'"), ("over_provisioning", "0.5")];

/// Fields of a profile, each with values that are its limits, just inside them or uncommon.
const FIELDS: [(&str, &[&str]); 44] = [
    ("mapping_page", &["'512 B'", "'64 KiB'", "'1 MiB'"]),
    ("program_unit", &["'1 MiB'", "'3 MiB'", "'16 GiB'"]),
    ("erase_block", &["'3 MiB'", "'6 MiB'", "'16 GiB'"]),
    ("over_provisioning", &["1e-300", "0.5", "10.0"]),
    ("reserve_blocks", &["1", "20", "65536"]),
    ("channels", &["1", "16", "4096"]),
    ("dies_per_channel", &["1", "16", "4096"]),
    ("read", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("program", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("erase", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("channel_rate", &["'0 B/s'", "'1 B/s'", "'16777215 TiB/s'"]),
    ("link_read_rate", &["'0 B/s'", "'1 B/s'", "'16777215 TiB/s'"]),
    ("link_write_rate", &["'0 B/s'", "'1 B/s'", "'16777215 TiB/s'"]),
    ("command_overhead", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("flush", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("write_buffer", &["'1 MiB'", "'3 MiB'", "'1 GiB'"]),
    ("queue_depth", &["1", "3", "4096"]),
    ("policy", &["'fifo'", "'cost-benefit'", "'d-choices:1'", "'d-choices:1024'"]),
    ("command", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("range", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("per_gib", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("range_limit", &["'512 B'", "'1536 B'", "'1024 TiB'"]),
    ("command_limit", &["'1 MiB'", "'3 MiB'", "'1024 TiB'"]),
    ("honoured_granularity", &["'1 MiB'", "'3 MiB'", "'1 GiB'"]),
    ("journal_per_range", &["'0 B'", "'1 B'", "'512 B'", "'1 MiB'"]),
    ("per_mapped_gib", &["'1 ns'", "'3600 s'"]),
    ("lazy_share", &["0.001", "0.99"]),
    ("discard_depth", &["1", "4096"]),
    ("ranges_per_command", &["1", "2", "256"]),
    ("after", &["'0 ns'", "'1 ns'", "'3600 s'"]),
    ("bits_per_cell", &["3", "4"]),
    ("cache_program", &["'0 ns'", "'3600 s'"]),
    ("static_size", &["1e-9", "0.01", "1.0"]),
    ("dynamic_size", &["1e-9", "0.1", "0.25"]),
    ("reserve", &["1e-9", "0.25", "0.5"]),
    ("share", &["1e-9", "0.1", "1.0"]),
    ("entry", &["'1 B'", "'64 B'"]),
    ("latency", &["'0 ns'", "'3600 s'"]),
    ("resume", &["'0 ns'", "'3600 s'"]),
    ("random_writes", &["1e-9", "1.5"]),
    ("endurance", &["1", "2", "10000000"]),
    ("variation", &["1e-9", "0.9"]),
    ("bad_blocks", &["1e-9", "0.1", "0.5"]),
    ("level_at", &["8", "1000000"]),
];

/// Fields and tables that the base profile doesn't have, behind `[discard]`.
const OPTIONAL: &str = "
per_mapped_gib = { value = '0 ns', source = 'a test' }
discard_depth = { value = 2, source = 'a test' }
ranges_per_command = { value = 3, source = 'a test' }

[idle]
after = { value = '1 ms', source = 'a test' }
reserve = { value = 0.0, source = 'a test' }
";

/// Only of drives that have one.
const CACHE: &str = "
[slc]
bits_per_cell = { value = 2, source = 'a test' }
cache_program = { value = '1 us', source = 'a test' }
static_size = { value = 0.02, source = 'a test' }
dynamic_size = { value = 0.0, source = 'a test' }
";

/// Only of drives whose memory holds a part of the map.
const MAP: &str = "
[map_cache]
share = { value = 0.5, source = 'a test' }
entry = { value = '4 B', source = 'a test' }
";

/// Only of drives whose reads go first.
const SUSPEND: &str = "
[suspend]
latency = { value = '1 us', source = 'a test' }
resume = { value = '1 us', source = 'a test' }
";

/// Only of aged drives.
const AGING: &str = "
[aging]
random_writes = { value = 1.0, source = 'a test' }
";

/// Only of drives that wear out.
const WEAR: &str = "
[wear]
endurance = { value = 3, source = 'a test' }
variation = { value = 0.5, source = 'a test' }
bad_blocks = { value = 0.01, source = 'a test' }
level_at = { value = 8, source = 'a test' }
";

/// The base profile with other values for some fields.
fn text(values: &[(&str, &str)]) -> String {
    let line = |line: &str| {
        let field = line.split(' ').next().unwrap_or_default();
        let value = values.iter().find(|(name, _)| *name == field);
        value.map_or(line.to_owned(), |(_, value)| {
            format!("{field} = {{ value = {value}, source = 'a test' }}")
        })
    };
    let table = |table: &'static str| {
        let is_named = |line: &str| values.iter().any(|(name, _)| line.split(' ').next() == Some(*name));
        if table.lines().any(is_named) { table } else { "" }
    };
    let lazy = if values.iter().any(|(name, _)| *name == "lazy_share") { "lazy_share = " } else { "" };
    let base = BASE.split_once("\n[wear]").map_or(BASE, |(base, _)| base);
    let lines = base.lines().chain(lazy.lines()).chain(OPTIONAL.lines());
    let lines = lines
        .chain([CACHE, MAP, SUSPEND, AGING, WEAR].into_iter().flat_map(|text| table(text).lines()))
        .map(line);
    lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("cache_program", "program")
        .replace("discard_depth", "queue_depth")
}

/// Extents at the start, in the middle and at the end of a drive, whole grains of nothing and all of it.
fn extents(size: Bytes) -> Vec<Extent> {
    let (sector, end) = (Bytes(512), size);
    let middle = Bytes(size.0 / 2 / 512 * 512);
    vec![
        Extent::new(Bytes::ZERO, end),
        Extent::at(Bytes::ZERO, sector),
        Extent::new(end - sector, end),
        Extent::new(end - Bytes(3 << 20), end),
        Extent::new(end, end),
        Extent::at(middle, sector),
        Extent::new(middle, end),
        Extent::new(sector, end - sector),
    ]
}

/// Does a little of everything to a drive, and holds it to what its profile promises.
fn work(profile: &Profile, size: Bytes) -> Result<(), GeometryError> {
    let mut device = Device::new(profile, size)?;
    device.precondition();
    let mut host = ClosedLoop::new(profile.timing.queue_depth.value);
    let mut last = Nanos::ZERO;
    for op in [Op::Write, Op::Read, Op::Discard, Op::Flush, Op::Write, Op::Discard, Op::Read] {
        for extent in extents(size) {
            let done = host.submit(&mut device, Command { op, extent });
            assert!(done.done >= done.arrival && done.arrival >= last, "time goes on");
            last = done.arrival;
        }
    }
    device.ftl().assert_sound();
    let (counters, journal) = (device.counters(), profile.discard.journal_per_range.value);
    let journaled = Bytes(counters.journal_pages * profile.geometry.mapping_page.value.0);
    assert!(journaled <= counters.discard_bytes + journal * counters.discards, "{journaled} of journal");
    for policy in ["none", "online", "batched", "smart"] {
        replay(profile, size, policy)?;
    }
    Ok(())
}

/// Replays what writes and frees all of a drive, over all the time that a trace can tell; `smart`, which
/// looks at a drive every second, over a quarter of an hour.
fn replay(profile: &Profile, size: Bytes, policy: &str) -> Result<(), GeometryError> {
    let end = if policy == "smart" { 900_000_000_000 } else { u64::MAX };
    let times = [0, 1, 1_000_000_000, end / 2, end];
    let mut events = Vec::new();
    for at in times {
        for (kind, latency) in
            [(EventKind::Write, Some(Nanos(end))), (EventKind::Read, None), (EventKind::Free, None)]
        {
            events.extend(extents(size).into_iter().map(|extent| TraceEvent {
                at: Nanos(at),
                device: DeviceIndex(0),
                kind,
                extent,
                latency,
                process: Comm::default(),
                error: 0,
                fs: None,
            }));
        }
    }
    let engine = policy.parse::<PolicyChoice>().unwrap().engine();
    let engine = engine.unwrap_or_else(|| Box::new(SmartPolicy::of_drive(profile, size)));
    let options = ReplayOptions {
        profile,
        size,
        preconditioned: true,
        device: DeviceIndex(0),
        scale: None,
        span: Nanos(end),
        clocks: Clocks::default(),
    };
    let mut replay = Replay::new(&options, Discards::Policy(engine))?;
    for _ in 0..2 {
        replay.pass(&mut in_memory(&events), &mut |_| true).unwrap();
    }
    assert_eq!(replay.outcome().events, 2 * events.len() as u64);
    Ok(())
}

#[test]
fn a_drive_at_one_limit_works_or_is_refused_with_the_reason() {
    for (field, values) in FIELDS {
        for value in values {
            // Nothing else is in the way of the value.
            let mut fields = vec![(field, *value)];
            match (field, *value) {
                ("mapping_page", "'1 MiB'") => {
                    fields.extend([("program_unit", "'1 MiB'"), ("honoured_granularity", "'1 MiB'")]);
                }
                ("mapping_page", "'64 KiB'") => fields.push(("honoured_granularity", "'64 KiB'")),
                ("program_unit", unit) => fields.push(("erase_block", unit)),
                ("erase_block", "'3 MiB'" | "'6 MiB'") => fields.push(("program_unit", "'1 MiB'")),
                ("channels", "4096") => fields.push(("dies_per_channel", "16")),
                ("dies_per_channel", "4096") => fields.push(("channels", "16")),
                _ => {}
            }
            fields.extend(ROOM);
            let profile = Profile::parse(&text(&fields), "extreme.toml").unwrap();
            let refused = work(&profile, SIZE).err().map(|error| error.to_string());
            let half_is_bad = (field, *value) == ("bad_blocks", "0.5");
            let too_large = matches!(*value, "'16 GiB'" | "1e-300") || half_is_bad;
            assert_eq!(refused.is_some(), too_large, "{field} = {value}: {refused:?}");
        }
    }
}

#[test]
fn a_drive_that_is_no_multiple_of_its_grain_takes_discards_at_its_end() {
    for (size, grain) in [(1 << 30, 3 << 20), ((64 << 20) + 4096, 8192), (96 << 20, 1 << 30)] {
        let mut profile = Profile::named("ocz-agility-3").unwrap();
        profile.geometry.over_provisioning.value = 0.5;
        profile.discard.honoured_granularity.value = Bytes(grain);
        let mut device = Device::new(&profile, Bytes(size)).unwrap();
        device.precondition();
        let tail = size / grain * grain;
        for start in [size - 4096, tail, size - 2 * 4096, 0] {
            let extent = Extent::new(Bytes(start), Bytes(size));
            device.submit(Nanos::ZERO, Command { op: Op::Discard, extent });
        }
        assert_eq!(device.mapped(), Bytes(size - tail), "only whole grains are unmapped");
        device.ftl().assert_sound();
    }
}

fn profiles() -> impl Strategy<Value = Vec<(&'static str, &'static str)>> {
    let choice = |(field, values): (&'static str, &'static [&'static str])| {
        let changed = prop::sample::select(values).prop_map(move |value| Some((field, value)));
        (0..3_u8, changed, Just(None))
            .prop_map(|(draw, changed, same)| if draw == 0 { changed } else { same })
    };
    FIELDS.map(choice).to_vec().prop_map(|fields| {
        let mut fields: Vec<_> = fields.into_iter().flatten().collect();
        fields.extend(ROOM);
        fields
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn a_drive_at_many_limits_works_or_is_refused(fields in profiles(), pages in 40..140_u64) {
        let text = text(&fields);
        match Profile::parse(&text, "extreme.toml") {
            // A drive that can't be is an error, never a panic.
            Ok(profile) => drop(work(&profile, Bytes(pages << 20))),
            Err(error) => assert!(error.to_string().contains("must be"), "{error}"),
        }
    }
}
