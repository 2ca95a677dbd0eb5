//! Judges a canary.

use std::io;

use trimtab_core::error::chain;
use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, Extent, Nanos};
use trimtab_linux::stack::{Layer, LayerKind, Stack};
use trimtab_linux::trim::TrimError;

use super::host::{Host, Piece};
use super::layout::{Layout, Place};
use super::witness::Sight;
use crate::file_system::is_online;

/// A discard is late if it comes this much later than the first one on the layer above.
const LATE: Nanos = Nanos(1_000_000_000);

/// A file system's metadata reuses less than one part in this many of the space that a canary freed.
const RECORDS: u64 = 100;

/// All observations of a canary.
pub(super) struct Proof<'a> {
    pub stack: &'a Stack,
    pub layout: &'a Layout,
    /// The commands that each layer saw.
    pub sights: Vec<Sight>,
    /// The errors of trimming the file systems that hold it.
    pub refusals: Vec<Option<TrimError>>,
    /// Whether, by layer, other processes discarded where it may be.
    pub shared: Vec<bool>,
    /// The reason, by layer, why "nothing was seen" proves nothing, in a sentence.
    pub doubts: Vec<Option<String>>,
    /// Why the observations are incomplete, in a sentence.
    pub excuse: Option<String>,
}

/// The discards of the canary that reached a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fate {
    verdict: Verdict,
    /// The bytes that should have come.
    due: Bytes,
    /// The bytes that came.
    came: Bytes,
}

impl Fate {
    /// Judges a layer that got `came` of the `due` bytes. Up to `edges` of them may be lost at the edges.
    fn of(due: Bytes, came: Bytes, edges: Bytes) -> Self {
        let verdict = if came == Bytes::ZERO {
            Verdict::Blocked
        } else if came + edges >= due {
            Verdict::Reaches
        } else {
            Verdict::Partial
        };
        Self { verdict, due, came }
    }
}

/// Returns true if a layer allocates space below only when data is written.
fn allocates(kind: &LayerKind) -> bool {
    let lays_out = |target: &str| matches!(target, "striped" | "raid" | "mirror" | "multipath");
    matches!(kind, LayerKind::DeviceMapper(lines) if !lines.iter().all(|line| lays_out(&line.target)))
}

/// Returns true if each layer below holds copies or parity of a part of any large range.
fn keeps_copies(kind: &LayerKind) -> bool {
    matches!(kind, LayerKind::Raid(raid) if !matches!(raid.level.as_str(), "linear" | "raid0"))
}

/// Returns why discards free nothing on a device; `None` if they may.
fn frees_nothing(layer: &Layer) -> Option<&'static str> {
    match &layer.kind {
        LayerKind::Scsi(scsi) if scsi.writes_zeros() => Some("writes zeros in place of discards"),
        _ => layer.limits.filter(|limits| limits.max == Bytes::ZERO).map(|_| "takes no discards"),
    }
}

/// Returns the worse of two verdicts on the layers above.
fn worse(one: Verdict, other: Verdict) -> Verdict {
    if one == Verdict::Reaches { other } else { Verdict::Partial }
}

impl<'a> Proof<'a> {
    /// Starts without observations.
    pub fn new(stack: &'a Stack, layout: &'a Layout, shared: Vec<bool>) -> Self {
        let sights = vec![Sight::default(); stack.layers.len()];
        let doubts = vec![None; stack.layers.len()];
        Self { stack, layout, sights, refusals: Vec::new(), shared, doubts, excuse: None }
    }

    /// Returns true if the layers directly below `host` have not seen all of a piece.
    pub fn lacks(&self, host: &Host, piece: &Piece) -> bool {
        let lacks_copy = |(layer, extent): &(usize, Extent)| {
            let all = self.layout.places[*layer].as_ref().map_or(Bytes::ZERO, |place| place.extents.len());
            if self.is_blind(*layer) || self.came_through(*layer) >= all {
                return false;
            }
            let seen: Bytes = self.sights[*layer].named.inside(*extent).map(Extent::len).sum();
            let cut = self.cut(*layer, [*extent]);
            seen + self.edges(*layer, cut, extent.len()) < extent.len()
        };
        let is_below = |layer: usize| self.parents(layer).any(|parent| parent == host.layer);
        let lacks_somewhere = |(layer, fate): (usize, Option<Fate>)| {
            is_below(layer) && fate.is_some_and(|fate| fate.verdict != Verdict::Reaches)
        };
        if piece.copies.is_empty() {
            self.fates().into_iter().enumerate().any(lacks_somewhere)
        } else {
            piece.copies.iter().any(lacks_copy)
        }
    }

    /// Returns true if the file system of `host` discards by itself, on a device that takes discards.
    pub fn discards_by_itself(&self, host: &Host) -> bool {
        let Layer { kind, below, .. } = &self.stack.layers[host.layer];
        let LayerKind::FileSystem(file_system) = kind else { return false };
        let takes =
            |layer: usize| self.stack.layers[layer].limits.is_none_or(|limits| limits.max > Bytes::ZERO);
        is_online(file_system) && below.iter().any(|below| takes(below.layer))
    }

    /// Whether only some of it came down to a layer directly below a file system, which may have given the
    /// rest to another file before it was trimmed.
    pub fn is_disturbed(&self) -> bool {
        let is_host = |layer: usize| self.layout.hosts.iter().any(|host| host.layer == layer);
        let came_in_part = |(layer, fate): (usize, Option<Fate>)| {
            fate.is_some_and(|fate| fate.verdict == Verdict::Partial) && self.parents(layer).any(is_host)
        };
        self.fates().into_iter().enumerate().any(came_in_part)
    }

    /// Returns whether the canary reached the lowest layers, and a sentence that names the layer that lost it.
    pub fn judge(&self) -> (Verdict, String) {
        let fates = self.fates();
        let lowest = (0..fates.len()).filter(|layer| self.is_lowest(*layer));
        let verdicts: Vec<_> = lowest.filter_map(|layer| Some(fates[layer]?.verdict)).collect();
        let all = |wanted| verdicts.iter().all(|verdict| *verdict == wanted);
        let verdict = if self.zoned().is_some() {
            Verdict::Unknown
        } else if all(Verdict::Reaches) {
            if self.unseen().is_some() { Verdict::Unknown } else { Verdict::Reaches }
        } else if self.doubted(&fates).is_some() {
            Verdict::Unknown
        } else if all(Verdict::Blocked) {
            if self.puts_off().is_some() { Verdict::Unknown } else { Verdict::Blocked }
        } else {
            Verdict::Partial
        };
        let mut reason = match verdict {
            Verdict::Reaches => self.arrival(&fates),
            Verdict::Unknown => {
                let reasons = [self.zoned(), self.puts_off(), self.doubted(&fates), self.unseen()];
                reasons.into_iter().flatten().next().unwrap_or_default()
            }
            Verdict::Blocked | Verdict::Partial => self.blame(&fates),
        };
        let counted = self.stack.layers.iter().zip(&self.sights).filter(|(_, sight)| sight.is_counted);
        let counted: Vec<_> = counted.map(|(layer, _)| layer.name.as_str()).collect();
        if let Some(excuse) = &self.excuse {
            reason = format!("{reason} ({excuse})");
        } else if !counted.is_empty() {
            let names = counted.join(", ");
            reason = format!("{reason} ({names}: counted by /sys/block/*/stat, whoever discarded)");
        }
        (verdict, reason)
    }

    /// Returns the discards that reached each device with the canary.
    fn fates(&self) -> Vec<Option<Fate>> {
        let mut fates: Vec<Option<Fate>> = Vec::new();
        for (layer, place) in self.layout.places.iter().enumerate() {
            let fate = place.as_ref().map(|place| self.fate(layer, place, &fates));
            fates.push(fate);
        }
        fates
    }

    fn fate(&self, layer: usize, place: &Place, above: &[Option<Fate>]) -> Fate {
        if self.is_lowest(layer) && frees_nothing(&self.stack.layers[layer]).is_some() {
            return Fate { verdict: Verdict::Blocked, due: self.layout.hosts[0].size(), came: Bytes::ZERO };
        }
        if self.is_blind(layer) {
            let due = self.told(layer);
            let lost_above = self.parents(layer).filter_map(|parent| above[parent]).map(|fate| fate.verdict);
            return Fate { verdict: lost_above.fold(Verdict::Reaches, worse), due, came: due };
        }
        if place.is_exact {
            let cut = self.cut(layer, place.extents.iter());
            let sight = &self.sights[layer];
            let refused = if self.is_lowest(layer) { sight.failed.len() } else { Bytes::ZERO };
            let (due, came) = (place.extents.len(), self.came_through(layer).saturating_sub(refused));
            return Fate::of(due, came, self.edges(layer, cut, due));
        }
        let parents: Vec<_> = self.parents(layer).collect();
        let due = parents.iter().map(|parent| self.told(*parent)).sum();
        let keeps_copies = |parent: &usize| keeps_copies(&self.stack.layers[*parent].kind);
        // A surplus on one layer doesn't make up for a layer that got nothing.
        let came = match self.landed(layer) {
            Bytes::ZERO if parents.iter().any(keeps_copies) => Bytes::ZERO,
            _ => self.siblings(layer).map(|sibling| self.landed(sibling)).sum(),
        };
        let pieces = parents.iter().map(|parent| self.sights[*parent].commands.max(1)).sum();
        let fate = Fate::of(due, came, self.edges(layer, pieces, due));
        let lost_above = parents.iter().filter_map(|parent| above[*parent]).map(|fate| fate.verdict);
        match (fate.verdict, lost_above.fold(Verdict::Reaches, worse)) {
            (Verdict::Reaches, above) => Fate { verdict: above, ..fate },
            _ => fate,
        }
    }

    /// The bytes that a layer was told to discard and has to pass on to the layers that hold the canary: all of them
    /// if it maps every byte in advance; if it allocates bytes when they are written, those known to be written.
    fn told(&self, layer: usize) -> Bytes {
        let host = self.layout.hosts.iter().find(|host| host.layer == layer);
        let sight = &self.sights[layer];
        let place = self.layout.places[layer].as_ref();
        match host {
            Some(host) => host.size(),
            None if self.is_blind(layer) => self.parents(layer).map(|parent| self.told(parent)).sum(),
            None if allocates(&self.stack.layers[layer].kind)
                && place.is_some_and(|place| place.is_exact) =>
            {
                sight.named.len()
            }
            None => sight.total,
        }
    }

    /// Returns the bytes of the canary that came to a layer on which it has an exact place: those that it shows, or that the only
    /// layer below shows, if these are more. The device mapper shows a part only of a discard that it splits above NVMe with
    /// several paths (Linux 6.12).
    fn came_through(&self, layer: usize) -> Bytes {
        let own = self.sights[layer].named.len();
        let length = |layer: usize| {
            let place = self.layout.places[layer].as_ref().filter(|place| place.is_exact)?;
            Some(place.extents.len())
        };
        match self.stack.layers[layer].below.as_slice() {
            [below] if length(layer).is_some() && length(layer) == length(below.layer) => {
                own.max(self.came_through(below.layer))
            }
            _ => own,
        }
    }

    /// Returns true if a layer shows no discards, although a layer below has got some that came through it.
    fn is_blind(&self, layer: usize) -> bool {
        if self.sights[layer].total > Bytes::ZERO {
            return false;
        }
        let is_doubted = self.doubts[layer].is_some();
        self.stack.layers[layer].below.iter().map(|below| below.layer).any(|below| {
            let sight = &self.sights[below];
            let Some(place) = &self.layout.places[below] else { return false };
            let came = if place.is_exact { sight.named.len() } else { sight.total };
            came > Bytes::ZERO && (place.is_exact || is_doubted) || self.is_blind(below)
        })
    }

    /// Names a device that may have got some without showing it, or the error for which nothing was sent, in a sentence. A device
    /// that takes none, or whose file system can't be trimmed, got none.
    fn doubted(&self, fates: &[Option<Fate>]) -> Option<String> {
        let is_refused = |refusal: &Option<TrimError>| {
            matches!(refusal, Some(TrimError::Unsupported { .. } | TrimError::LosesData { .. }))
        };
        if self.refusals.iter().any(is_refused) {
            return None;
        }
        let is_lost = |layer: &usize| {
            let fate = fates[*layer].filter(|fate| fate.verdict != Verdict::Reaches);
            fate.is_some() && self.is_lowest(*layer) && self.sights[*layer].total == Bytes::ZERO
        };
        let is_stopped = |layer: usize| self.is_stopped(layer);
        let mut lost = (0..fates.len()).filter(is_lost).filter(|layer| !is_stopped(*layer));
        // ntfs-3g, for example, takes no trim of a range.
        let unsent = self.refusals.iter().flatten().next().map(|refusal| chain(refusal));
        let doubt = lost.find_map(|layer| self.doubts[layer].clone().or_else(|| unsent.clone()))?;
        Some(format!("none were seen, which proves nothing: {doubt}"))
    }

    /// Returns true if a layer, or one above it that holds the canary, takes no discards.
    fn is_stopped(&self, layer: usize) -> bool {
        let frees_none = frees_nothing(&self.stack.layers[layer]).is_some();
        frees_none || self.parents(layer).any(|parent| self.is_stopped(parent))
    }

    /// Returns all discards that a layer got; for the lowest, without the failed ones.
    fn landed(&self, layer: usize) -> Bytes {
        let sight = &self.sights[layer];
        let refused = if self.is_lowest(layer) { sight.failed.len() } else { Bytes::ZERO };
        sight.total.saturating_sub(refused)
    }

    /// Returns the bytes of the canary that each layer saw. Without an exact position on a layer, the canary's
    /// share of all bytes seen is taken to be the same as on the layers above.
    pub fn bytes_seen(&self) -> Vec<Bytes> {
        let mut seen = Vec::new();
        for (layer, place) in self.layout.places.iter().enumerate() {
            let is_exact = place.as_ref().is_none_or(|place| place.is_exact);
            let host = self.layout.hosts.iter().find(|host| host.layer == layer);
            seen.push(match host {
                Some(host) => host.size(),
                None if self.is_blind(layer) => self.parents(layer).map(|parent| seen[parent]).sum(),
                None if is_exact => self.came_through(layer),
                None => {
                    let of_canary: Bytes = self.parents(layer).map(|parent| seen[parent]).sum();
                    let above: Bytes = self.parents(layer).map(|parent| self.told(parent)).sum();
                    let here: Bytes = self.siblings(layer).map(|sibling| self.sights[sibling].total).sum();
                    let part = of_canary.0 as f64 / above.max(here).0.max(1) as f64;
                    Bytes((self.sights[layer].total.0 as f64 * part) as u64)
                }
            });
        }
        seen
    }

    /// Returns how many of `due` bytes may be lost at the edges of pieces that are not whole units, or reused
    /// by a file system's own metadata before they are discarded; never all.
    fn edges(&self, layer: usize, pieces: u64, due: Bytes) -> Bytes {
        let lost = Bytes(self.unit(layer).0.saturating_mul(2 * pieces));
        lost.max(Bytes(due.0 / RECORDS)).min(Bytes(due.0 / 2))
    }

    /// Returns how many of these pieces of a layer are not whole units.
    fn cut(&self, layer: usize, pieces: impl IntoIterator<Item = Extent>) -> u64 {
        let unit = self.unit(layer).0.max(1);
        let is_cut =
            |piece: &Extent| !piece.start.0.is_multiple_of(unit) || !piece.end.0.is_multiple_of(unit);
        pieces.into_iter().filter(is_cut).count() as u64
    }

    /// Returns the unit that discards to a layer are rounded to, by itself or by the layers above.
    fn unit(&self, layer: usize) -> Bytes {
        let granularity = |layer: usize| {
            let limits = self.stack.layers[layer].limits;
            limits.map_or(Bytes::ZERO, |limits| limits.granularity)
        };
        self.parents(layer).map(granularity).fold(granularity(layer), Bytes::max)
    }

    /// Returns the layers directly above that also have the canary.
    fn parents(&self, layer: usize) -> impl Iterator<Item = usize> + '_ {
        (0..layer).filter(|upper| self.holds(*upper)).filter(move |upper| self.is_on(*upper, layer))
    }

    /// Returns the layers below the same parents, this one included.
    fn siblings(&self, layer: usize) -> impl Iterator<Item = usize> + '_ {
        let is_sibling = move |other: &usize| self.parents(*other).any(|parent| self.is_on(parent, layer));
        (0..self.layout.places.len()).filter(|other| self.layout.places[*other].is_some()).filter(is_sibling)
    }

    fn is_on(&self, upper: usize, lower: usize) -> bool {
        self.stack.layers[upper].below.iter().any(|below| below.layer == lower)
    }

    fn holds(&self, layer: usize) -> bool {
        self.layout.places[layer].is_some() || self.layout.hosts.iter().any(|host| host.layer == layer)
    }

    /// Returns true if it is the last layer of its branch that is known to have the canary.
    fn is_lowest(&self, layer: usize) -> bool {
        let mut below = self.stack.layers[layer].below.iter();
        self.layout.places[layer].is_some() && !below.any(|below| self.holds(below.layer))
    }

    /// Names a file system that may discard later, in a sentence; `None` if anything came to a device.
    fn puts_off(&self) -> Option<String> {
        let nothing_came = self.sights.iter().all(|sight| sight.named.is_empty());
        let late = |host: &Host| {
            let name = self.name(host.layer);
            match &self.stack.layers[host.layer].kind {
                LayerKind::FileSystem(found) if found.fstype == "nilfs2" => {
                    Some(format!("{name} keeps what was deleted until its cleaner has run (nilfs-clean)"))
                }
                LayerKind::FileSystem(found) if found.fstype == "bcachefs" => {
                    let below = &self.stack.layers[host.layer].below;
                    let is_off = |name| found.undiscarded.contains(name);
                    let is_on = !below.iter().all(|below| is_off(&self.stack.layers[below.layer].name));
                    is_on.then(|| format!("{name} discards when it finds the time, and has not yet"))
                }
                _ if self.discards_by_itself(host) => Some(format!(
                    "{name} discards when it finds the time, and has not yet; try with nodiscard"
                )),
                _ => None,
            }
        };
        self.layout.hosts.iter().find_map(late).filter(|_| nothing_came)
    }

    /// Names a device with the canary whose zones are freed by resets, in a sentence.
    fn zoned(&self) -> Option<String> {
        let mut held = self.stack.layers.iter().zip(&self.layout.places).filter(|(_, place)| place.is_some());
        let (layer, _) = held.find(|(layer, _)| layer.zoned)?;
        Some(format!("{} is zoned: resets free its zones, and only discards are watched", layer.name))
    }

    /// Names a layer with devices below it that can't be examined, in a sentence.
    fn unseen(&self) -> Option<String> {
        let layers = self.stack.layers.iter().enumerate();
        let mut lowest = layers.filter(|(index, _)| self.is_lowest(*index));
        let (_, layer) = lowest.find(|(_, layer)| {
            layer.below.iter().any(|below| !self.stack.layers[below.layer].below.is_empty())
        })?;
        Some(format!("all of it reached {}; its position on the layers below is unknown", layer.name))
    }

    /// Describes how a canary reached the lowest layers.
    fn arrival(&self, fates: &[Option<Fate>]) -> String {
        let layers = &self.stack.layers;
        let lowest: Vec<_> = (0..layers.len()).filter(|layer| self.is_lowest(*layer)).collect();
        let names: Vec<_> = lowest.iter().map(|layer| layers[*layer].name.as_str()).collect();
        let mut text = format!("{} reached {}", self.layout.hosts[0].size(), names.join(", "));
        let first = self.sights.iter().map(|sight| sight.commands).find(|commands| *commands > 0);
        for layer in lowest {
            let (name, commands) = (&layers[layer].name, self.sights[layer].commands);
            if Some(commands) > first {
                text = format!("{text}, split into {commands} discards at {name}");
            }
            if let Some(late) = self.late(layer) {
                text = format!("{text}, {:.1} s later at {name}", late.seconds());
            }
        }
        let counted =
            |layer: &usize| self.layout.places[*layer].as_ref().is_some_and(|place| !place.is_exact);
        if let Some(layer) = (0..fates.len()).find(counted) {
            let others = if self.shared[layer] { ", and other processes discard there too" } else { "" };
            text =
                format!("{text}; from {} down only the number of bytes is known{others}", layers[layer].name);
        }
        text
    }

    /// Returns the delay of the first discard after the first layer's; `None` if it wasn't late.
    fn late(&self, layer: usize) -> Option<Nanos> {
        let first = self.sights.iter().filter_map(|sight| sight.first).min()?;
        Some(self.sights[layer].first?.saturating_sub(first)).filter(|late| *late >= LATE)
    }

    /// Names the first layer that lost some of the canary.
    fn blame(&self, fates: &[Option<Fate>]) -> String {
        let is_lost = |layer: &usize| fates[*layer].is_some_and(|fate| fate.verdict != Verdict::Reaches);
        let Some((layer, fate)) =
            (0..fates.len()).find(is_lost).and_then(|layer| Some((layer, fates[layer]?)))
        else {
            return String::new();
        };
        let name = &self.stack.layers[layer].name;
        let sight = &self.sights[layer];
        if self.is_lowest(layer) && !sight.failed.is_empty() {
            let error = io::Error::from_raw_os_error(sight.error.unwrap_or_default().into());
            return format!("{name} refused {} of {}: {error}", sight.failed.len(), fate.due);
        }
        let above = self.parents(layer).next().map_or(String::new(), |above| self.name(above));
        if fate.came > Bytes::ZERO {
            return format!("{above} handed {} of {} on to {name}", fate.came, fate.due);
        }
        let refusal = self.parents(layer).find_map(|above| self.refusal(above));
        let why = match (self.frees_nothing(layer), refusal) {
            (Some((taker, why)), _) => format!(": {} {why}", self.stack.layers[taker].name),
            (None, Some(refusal)) => format!(": {}", chain(refusal)),
            (None, None) => String::new(),
        };
        format!("{above} handed nothing of {} on to {name}{why}", fate.due)
    }

    /// Returns the layer that frees nothing, and why, among `layer` and the layers below that block it.
    fn frees_nothing(&self, layer: usize) -> Option<(usize, &'static str)> {
        let why = frees_nothing(&self.stack.layers[layer])?;
        let below = self.stack.layers[layer].below.iter().filter(|below| self.holds(below.layer));
        below.map(|below| below.layer).find_map(|below| self.frees_nothing(below)).or(Some((layer, why)))
    }

    fn refusal(&self, layer: usize) -> Option<&TrimError> {
        let host = self.layout.hosts.iter().position(|host| host.layer == layer)?;
        self.refusals.get(host)?.as_ref()
    }

    /// Returns a layer's name in sentences.
    fn name(&self, layer: usize) -> String {
        let layer = &self.stack.layers[layer];
        match &layer.kind {
            LayerKind::FileSystem(file_system) => format!("{} at {}", file_system.fstype, layer.name),
            _ => layer.name.clone(),
        }
    }
}
