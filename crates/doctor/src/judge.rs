//! Judges the effect of each layer of a stack on discards, and of all layers together.

use trimtab_core::Bytes;
use trimtab_core::document::doctor::{Finding, Layer, Passes, Verdict};
use trimtab_linux::stack::{self, LayerKind, Stack};

use super::{device, file_system, mapper, raid};

/// A layer with larger discard units than this drops most discards, because few freed extents contain a whole
/// unit.
const LARGE_UNIT: Bytes = super::ASSUMED_ERASE_BLOCK;

/// Names the blocking layer in the reason of a layer above it, if nothing more is known.
pub(super) const BELOW: &str = "what is below";

/// The judgement of one layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opinion {
    pub(super) passes: Passes,
    /// The layer's own effect, regardless of the layers below.
    pub(super) effect: Verdict,
    pub(super) reason: String,
    pub(super) finding: Option<Finding>,
}

impl Opinion {
    pub(super) fn passes(reason: impl Into<String>) -> Self {
        Self { passes: Passes::Yes, effect: Verdict::Reaches, reason: reason.into(), finding: None }
    }

    pub(super) fn reshapes(effect: Verdict, reason: impl Into<String>) -> Self {
        Self { passes: Passes::Reshaped, effect, reason: reason.into(), finding: None }
    }

    pub(super) fn stops(reason: impl Into<String>) -> Self {
        Self { passes: Passes::No, effect: Verdict::Blocked, reason: reason.into(), finding: None }
    }

    /// A layer that would pass discards on, but takes none because `below` takes none.
    pub(super) fn starved(below: &str) -> Self {
        let reason = format!("it would hand them on, but {below} takes none");
        Self { effect: Verdict::Blocked, ..Self::passes(reason) }
    }

    pub(super) fn unknown(reason: impl Into<String>) -> Self {
        Self { passes: Passes::Unknown, effect: Verdict::Unknown, reason: reason.into(), finding: None }
    }

    pub(super) fn found(self, finding: Finding) -> Self {
        Self { finding: Some(finding), ..self }
    }

    /// A layer that passes discards on only in whole units of `unit`, which is a finding if they are large.
    pub(super) fn in_units(unit: Bytes, reason: String, finding: impl FnOnce() -> Finding) -> Self {
        if unit > LARGE_UNIT {
            Self::reshapes(Verdict::Partial, reason).found(finding())
        } else {
            Self::reshapes(Verdict::Reaches, reason)
        }
    }
}

/// A layer, the layers around it, and the fate of discards below.
pub(super) struct Place<'a> {
    pub(super) layer: &'a stack::Layer,
    /// The layers directly above.
    pub(super) above: Vec<&'a stack::Layer>,
    /// The layers below that hold its data, and the fate of discards there.
    pub(super) below: Vec<(&'a stack::Layer, Verdict)>,
}

impl Place<'_> {
    /// Returns true if it is the target, or carries it as an overlay or swap file, and doesn't hold the file of
    /// a loop device.
    pub(super) fn is_target(&self) -> bool {
        self.above.iter().all(|upper| matches!(upper.kind, LayerKind::FileSystem(_) | LayerKind::Swap))
    }

    /// Returns whether its own queue takes discards; none if sysfs doesn't show it.
    pub(super) fn takes(&self) -> Option<bool> {
        self.layer.limits.map(|limits| limits.max > Bytes::ZERO)
    }

    /// Returns true if a layer directly below takes no discards, so that this one can't either.
    pub(super) fn is_stopped_below(&self) -> bool {
        let takes_none = |layer: &stack::Layer| layer.limits.is_some_and(|limits| limits.max == Bytes::ZERO);
        self.below.iter().any(|(layer, _)| takes_none(layer))
    }

    /// Returns the smallest discard that its queue takes.
    pub(super) fn granularity(&self) -> Bytes {
        self.layer.limits.map_or(Bytes::ZERO, |limits| limits.granularity)
    }
}

/// A judged stack.
pub(super) struct Judged {
    pub(super) layers: Vec<Layer>,
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) findings: Vec<Finding>,
    /// The names of the layers that get no discards.
    pub(super) aside: Vec<String>,
}

/// Judges a stack from the bottom up.
pub(super) fn judge(stack: &Stack) -> Judged {
    let data: Vec<_> = stack.layers.iter().map(|layer| mapper::data_below(stack, layer)).collect();
    let on_way = on_way(&data);
    let mut opinions: Vec<Option<(Opinion, Verdict)>> = vec![None; stack.layers.len()];
    for index in (0..stack.layers.len()).rev() {
        let layer = &stack.layers[index];
        let fate_of = |below: usize| opinions[below].as_ref().map_or(Verdict::Unknown, |(_, fate)| *fate);
        let below = data[index].iter().map(|at| (&stack.layers[*at], fate_of(*at))).collect();
        let lies_on = |upper: &&stack::Layer| upper.below.iter().any(|below| below.layer == index);
        let above = stack.layers[..index].iter().filter(lies_on).collect();
        let place = Place { layer, above, below };
        let opinion = opinion(&place);
        let fate = fate(opinion.effect, place.below.iter().map(|(_, fate)| *fate));
        opinions[index] = Some((opinion, fate));
    }
    let opinions: Vec<_> = opinions.into_iter().flatten().collect();
    let verdict = opinions.first().map_or(Verdict::Unknown, |(_, fate)| *fate);
    let reason = reason(verdict, stack, &opinions, &on_way);
    let mut layers = Vec::new();
    let (mut findings, mut aside) = (Vec::new(), Vec::new());
    for ((layer, (opinion, _)), on_way) in stack.layers.iter().zip(opinions).zip(on_way) {
        layers.push(described(stack, layer, &opinion, on_way));
        if on_way { findings.extend(opinion.finding) } else { aside.push(layer.name.clone()) }
    }
    Judged { layers, verdict, reason, findings, aside }
}

/// Returns for each layer whether the topmost layer's discards pass it. The lower directories of an overlay,
/// for example, are only read. `data` has the indices of the layers that hold each one's data.
fn on_way(data: &[Vec<usize>]) -> Vec<bool> {
    let mut on_way = vec![false; data.len()];
    on_way.iter_mut().take(1).for_each(|top| *top = true);
    for (upper, below) in data.iter().enumerate() {
        if on_way[upper] {
            below.iter().for_each(|below| on_way[*below] = true);
        }
    }
    on_way
}

fn opinion(place: &Place) -> Opinion {
    match &place.layer.kind {
        LayerKind::FileSystem(file_system) => file_system::opinion(place, file_system),
        LayerKind::Swap => file_system::swap(place),
        _ if place.layer.zoned => device::zoned(place),
        LayerKind::DeviceMapper(lines) => mapper::opinion(place, lines),
        LayerKind::Raid(raid) => raid::opinion(place, raid),
        _ => device::opinion(place),
    }
}

/// Returns the fate of discards in a layer with this effect, above branches with these fates.
fn fate(effect: Verdict, mut below: impl Iterator<Item = Verdict>) -> Verdict {
    let Some(first) = below.next() else { return effect };
    let together = below.fold(first, |all, branch| if all == branch { all } else { mixed(all, branch) });
    match (effect, together) {
        (Verdict::Blocked, _) | (_, Verdict::Blocked) => Verdict::Blocked,
        (Verdict::Unknown, _) | (_, Verdict::Unknown) => Verdict::Unknown,
        (Verdict::Partial, _) | (_, Verdict::Partial) => Verdict::Partial,
        (Verdict::Reaches, Verdict::Reaches) => Verdict::Reaches,
    }
}

/// Combines the different fates of two branches.
fn mixed(one: Verdict, other: Verdict) -> Verdict {
    if one == Verdict::Unknown || other == Verdict::Unknown { Verdict::Unknown } else { Verdict::Partial }
}

/// Returns the verdict's reason, which names the first layer responsible for it.
fn reason(verdict: Verdict, stack: &Stack, opinions: &[(Opinion, Verdict)], on_way: &[bool]) -> String {
    let culprits: &[Verdict] = match verdict {
        Verdict::Reaches => &[],
        Verdict::Blocked => &[Verdict::Blocked],
        Verdict::Partial => &[Verdict::Partial, Verdict::Blocked],
        Verdict::Unknown => &[Verdict::Unknown],
    };
    let passed: Vec<_> =
        stack.layers.iter().zip(opinions).zip(on_way).filter(|(_, on_way)| **on_way).collect();
    let is_culprit = |opinion: &Opinion| culprits.contains(&opinion.effect) && opinion.passes != Passes::Yes;
    match passed.iter().find(|((_, (opinion, _)), _)| is_culprit(opinion)) {
        Some(((layer, (opinion, _)), _)) => {
            format!("{} ({}): {}", layer.name, kind(&layer.kind), opinion.reason)
        }
        None => match passed.as_slice() {
            [((_, (only, _)), _)] => only.reason.clone(),
            [_, _] => "both layers hand them on".to_owned(),
            layers => format!("all {} layers hand them on", layers.len()),
        },
    }
}

fn described(stack: &Stack, layer: &stack::Layer, opinion: &Opinion, on_way: bool) -> Layer {
    Layer {
        kind: kind(&layer.kind),
        name: layer.name.clone(),
        label: layer.label.clone(),
        passes: opinion.passes,
        reason: if on_way {
            opinion.reason.clone()
        } else {
            format!("no discards from above come here; {}", opinion.reason)
        },
        limits: layer.limits,
        announced: layer.announced.clone(),
        on: layer.below.iter().map(|below| stack.layers[below.layer].name.clone()).collect(),
    }
}

/// Returns a layer's kind in a word.
fn kind(kind: &LayerKind) -> String {
    match kind {
        LayerKind::FileSystem(file_system) => file_system.fstype.clone(),
        LayerKind::Swap => "swap".to_owned(),
        LayerKind::Partition => "partition".to_owned(),
        LayerKind::DeviceMapper(lines) => mapper::kind(lines),
        LayerKind::Raid(raid) => format!("md-{}", raid.level),
        LayerKind::Bcache => "bcache".to_owned(),
        LayerKind::Loop { .. } => "loop".to_owned(),
        LayerKind::Nbd => "nbd".to_owned(),
        LayerKind::Zram => "zram".to_owned(),
        LayerKind::Nvme => "nvme".to_owned(),
        LayerKind::Scsi(scsi) => device::scsi_kind(scsi).to_owned(),
        LayerKind::Mmc => "mmc".to_owned(),
        LayerKind::VirtioBlk => "virtio-blk".to_owned(),
        LayerKind::Other(driver) => driver.clone().unwrap_or_else(|| "device".to_owned()),
    }
}
