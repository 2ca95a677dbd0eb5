//! Stacks made by hand, and what the doctor says of them.

mod devices;
mod listing;
mod reports;
mod service;
mod stacks;
mod starts;

use std::path::PathBuf;

use trimtab_core::device::{Announced, Limits};
use trimtab_core::document::doctor::Target;
use trimtab_core::verdict::{Passes, Severity, Verdict};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::stack::{Below, FileSystem, Layer, LayerKind, MapLine, Raid, Setup, Stack, Timer};

use super::{ASSUMED_ERASE_BLOCK, diagnose};

/// A layer without discards, without anything below it.
fn layer(name: &str, kind: LayerKind) -> Layer {
    Layer {
        name: name.to_owned(),
        label: None,
        kind,
        subsystem: None,
        fabric: None,
        number: None,
        size: Some(Bytes::GIB),
        limits: None,
        announced: Announced::default(),
        rotational: false,
        zoned: false,
        read_only: false,
        below: Vec::new(),
    }
}

/// `layer`, whose queue takes discards of up to `max` in units of `granularity`.
fn taking(max: u64, granularity: u64, layer: Layer) -> Layer {
    let limits = Limits {
        max: Bytes(max),
        max_hardware: Bytes(max),
        granularity: Bytes(granularity),
        alignment: Bytes::ZERO,
        segments: None,
        write_zeroes_max: Bytes::ZERO,
    };
    Layer { limits: Some(limits), ..layer }
}

fn file_system(mount: &str, fstype: &str, options: &str) -> Layer {
    let kind = FileSystem {
        fstype: fstype.to_owned(),
        targets: vec![PathBuf::from(mount)],
        writable: vec![PathBuf::from(mount)],
        source: PathBuf::from("/dev/x"),
        options: options.to_owned(),
        undiscarded: Vec::new(),
    };
    layer(mount, LayerKind::FileSystem(kind))
}

fn mapped(name: &str, target: &str, parameters: &str) -> Layer {
    let line = MapLine {
        extent: Extent::at(Bytes::ZERO, Bytes::GIB),
        target: target.to_owned(),
        parameters: parameters.to_owned(),
    };
    layer(name, LayerKind::DeviceMapper(vec![line]))
}

fn raid(level: &str, discards_are_safe: Option<bool>) -> Layer {
    layer(
        "md0",
        LayerKind::Raid(Raid { level: level.to_owned(), chunk: Bytes(512 << 10), discards_are_safe }),
    )
}

fn nvme(max: u64) -> Layer {
    taking(max, 512, layer("nvme0n1", LayerKind::Nvme))
}

/// Each layer on the next, from its first byte on.
fn row(layers: impl IntoIterator<Item = Layer>) -> Stack {
    let mut layers: Vec<_> = layers.into_iter().collect();
    for index in 1..layers.len() {
        layers[index - 1].below = vec![Below { layer: index, start: Some(Bytes::ZERO) }];
    }
    Stack { layers }
}

/// A machine whose timer is on.
fn timed() -> Setup {
    Setup { timer: Some(Timer { enabled: true, active: true, last: None, next: None }), ..Setup::default() }
}

fn examined(stack: &Stack) -> Target {
    diagnose(stack, &timed(), ASSUMED_ERASE_BLOCK)
}

/// The verdict, the layers that stop discards, and the findings that are more than notes.
fn summary(target: &Target) -> (Verdict, Vec<&str>, Vec<&str>) {
    let stops = target.layers.iter().filter(|layer| layer.passes == Passes::No);
    let grave = target.findings.iter().filter(|finding| finding.severity != Severity::Note);
    (
        target.verdict,
        stops.map(|layer| layer.name.as_str()).collect(),
        grave.map(|finding| finding.id.as_str()).collect(),
    )
}

const YES: u64 = 2 << 30;
