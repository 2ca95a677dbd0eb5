//! A profile as the text of a file, written as the ones that come with trimtab are.

use std::fmt::Display;
use std::str::FromStr;

use serde::Serialize;
use toml::Value;
use trimtab_core::profile::{Profile, Sourced};
use trimtab_core::{Bytes, Nanos, Rate};

/// The text of `profile`: a line a field, in the order of the types. [`Profile::parse`] reads it
/// back as it was.
pub(super) fn text(profile: &Profile) -> String {
    let Profile {
        name,
        model,
        notes,
        interface,
        geometry,
        timing,
        gc,
        idle,
        slc,
        map_cache,
        suspend,
        aging,
        discard,
        wear,
    } = profile;
    let quoted = |text: &str| Value::from(text).to_string();
    let mut head = format!("name = {}\nmodel = {}\nnotes = {}\n", quoted(name), quoted(model), quoted(notes));
    if let Some(interface) = interface {
        head += &format!("interface = \"{}\"\n", interface.name());
    }
    let geometry = [
        geometry.capacity.as_ref().map(|capacity| unit("capacity", capacity)).unwrap_or_default(),
        unit("mapping_page", &geometry.mapping_page),
        unit("program_unit", &geometry.program_unit),
        unit("erase_block", &geometry.erase_block),
        plain("over_provisioning", &geometry.over_provisioning),
        plain("reserve_blocks", &geometry.reserve_blocks),
        plain("channels", &geometry.channels),
        plain("dies_per_channel", &geometry.dies_per_channel),
    ];
    let timing = [
        unit("read", &timing.read),
        unit("program", &timing.program),
        unit("erase", &timing.erase),
        unit("channel_rate", &timing.channel_rate),
        unit("link_read_rate", &timing.link_read_rate),
        unit("link_write_rate", &timing.link_write_rate),
        unit("command_overhead", &timing.command_overhead),
        unit("flush", &timing.flush),
        unit("write_buffer", &timing.write_buffer),
        plain("queue_depth", &timing.queue_depth),
    ];
    let gc = [plain("policy", &gc.policy)];
    let idle =
        idle.as_ref().map(|idle| [unit("after", &idle.after), plain("reserve", &idle.reserve)].concat());
    let slc = slc.as_ref().map(|slc| {
        [
            plain("bits_per_cell", &slc.bits_per_cell),
            unit("program", &slc.program),
            plain("static_size", &slc.static_size),
            plain("dynamic_size", &slc.dynamic_size),
        ]
        .concat()
    });
    let map_cache =
        map_cache.as_ref().map(|cache| [plain("share", &cache.share), unit("entry", &cache.entry)].concat());
    let suspend = suspend
        .as_ref()
        .map(|suspend| [unit("latency", &suspend.latency), unit("resume", &suspend.resume)].concat());
    let aging = aging.as_ref().map(|aging| plain("random_writes", &aging.random_writes));
    let discard: Vec<_> = [
        unit("command", &discard.command),
        unit("range", &discard.range),
        unit("per_gib", &discard.per_gib),
        unit("range_limit", &discard.range_limit),
        unit("command_limit", &discard.command_limit),
        unit("advertised_granularity", &discard.advertised_granularity),
        unit("honoured_granularity", &discard.honoured_granularity),
        plain("queued", &discard.queued),
        unit("journal_per_range", &discard.journal_per_range),
        plain("reads", &discard.reads),
    ]
    .into_iter()
    .chain(discard.ignored_every.as_ref().map(|every| plain("ignored_every", every)))
    .chain(discard.per_mapped_gib.as_ref().map(|time| unit("per_mapped_gib", time)))
    .chain(discard.lazy_share.as_ref().map(|share| plain("lazy_share", share)))
    .chain(discard.busy_share.as_ref().map(|share| plain("busy_share", share)))
    .chain(discard.queue_depth.as_ref().map(|depth| plain("queue_depth", depth)))
    .chain(discard.ranges_per_command.as_ref().map(|ranges| plain("ranges_per_command", ranges)))
    .collect();
    let wear = wear.as_ref().map(|wear| {
        [
            wear.endurance.as_ref().map(|cycles| plain("endurance", cycles)),
            wear.variation.as_ref().map(|share| plain("variation", share)),
            wear.bad_blocks.as_ref().map(|share| plain("bad_blocks", share)),
            wear.level_at.as_ref().map(|count| plain("level_at", count)),
        ]
        .into_iter()
        .flatten()
        .collect()
    });
    let tables = [
        ("geometry", Some(geometry.concat())),
        ("timing", Some(timing.concat())),
        ("gc", Some(gc.concat())),
        ("idle", idle),
        ("slc", slc),
        ("map_cache", map_cache),
        ("suspend", suspend),
        ("aging", aging),
        ("discard", Some(discard.concat())),
        ("wear", wear),
    ];
    let tables = tables.iter().filter_map(|(name, lines)| Some((name, lines.as_ref()?)));
    tables.fold(head, |text, (name, lines)| format!("{text}\n[{name}]\n{lines}"))
}

/// The line of a field that is a number, a truth value or a name.
fn plain<T: Serialize>(name: &str, field: &Sourced<T>) -> String {
    let value = Value::try_from(&field.value).expect("numbers, truth values and names are TOML");
    line(name, &value, &field.source)
}

/// The line of a field with a unit, in its base unit where the rounder text would lose something.
fn unit<T: Base>(name: &str, field: &Sourced<T>) -> String {
    let text = field.value.to_string();
    let text = if text.parse().ok() == Some(field.value) { text } else { field.value.in_base() };
    line(name, &Value::from(text), &field.source)
}

fn line(name: &str, value: &Value, source: &str) -> String {
    format!("{name} = {{ value = {value}, source = {} }}\n", Value::from(source))
}

/// A unit that can be written without loss.
trait Base: Copy + Display + FromStr + PartialEq {
    /// The count in the base unit, with the unit.
    fn in_base(&self) -> String;
}

impl Base for Bytes {
    fn in_base(&self) -> String {
        format!("{} B", self.0)
    }
}

impl Base for Nanos {
    fn in_base(&self) -> String {
        format!("{} ns", self.0)
    }
}

impl Base for Rate {
    fn in_base(&self) -> String {
        format!("{} B/s", self.0)
    }
}
