//! Judges the effect of each layer of a stack on discards, and of all layers together.

use trimtab_core::document::doctor::Layer;
use trimtab_core::verdict::{Finding, Passes, Verdict};
use trimtab_linux::stack::{self, LayerKind, Stack};

use super::opinion::{LayerInStack, Opinion};
use super::{device, file_system, mapper, raid};

/// A judged stack.
pub(super) struct JudgedStack {
    pub(super) layers: Vec<Layer>,
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) findings: Vec<Finding>,
    /// The names of the layers that get no discards.
    pub(super) aside: Vec<String>,
}

/// Judges a stack from the bottom up.
pub(super) fn judge(stack: &Stack) -> JudgedStack {
    let data: Vec<_> = stack.layers.iter().map(|layer| mapper::data_below(stack, layer)).collect();
    let on_way = on_way(&data);
    let mut opinions: Vec<Option<(Opinion, Verdict)>> = vec![None; stack.layers.len()];
    for index in (0..stack.layers.len()).rev() {
        let layer = &stack.layers[index];
        let fate_of = |below: usize| opinions[below].as_ref().map_or(Verdict::Unknown, |(_, fate)| *fate);
        let below = data[index].iter().map(|at| (&stack.layers[*at], fate_of(*at))).collect();
        let lies_on = |upper: &&stack::Layer| upper.below.iter().any(|below| below.layer == index);
        let above = stack.layers[..index].iter().filter(lies_on).collect();
        let place = LayerInStack { layer, above, below };
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
    JudgedStack { layers, verdict, reason, findings, aside }
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

fn opinion(place: &LayerInStack) -> Opinion {
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
