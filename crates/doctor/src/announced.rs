//! Describes the discard capabilities that hardware announces.

use trimtab_core::Bytes;
use trimtab_core::device::{AtaTrim, CardErase, Provisioning, UnmapLimits};
use trimtab_linux::stack::{Layer, LayerKind, Transport};

/// The number of ranges in one block of a TRIM's list.
const RANGES_OF_BLOCK: u32 = 64;

/// Returns a disk's announcement in a clause; none for other kinds.
pub(super) fn clause(layer: &Layer) -> Option<String> {
    let announced = &layer.announced;
    match &layer.kind {
        LayerKind::Scsi(scsi) => match &scsi.transport {
            Transport::Ata { trim } => Some(ata(trim.as_deref(), announced.trim)),
            _ => Some(match announced.provisioning {
                Some(found) => of_scsi(announced.limits, found),
                None => "what freed blocks read as is unknown".to_owned(),
            }),
        },
        LayerKind::Mmc => announced.erase.as_ref().map(card),
        _ => None,
    }
}

/// Describes libata's use of a drive's TRIM, and the drive's own description.
fn ata(word: Option<&str>, trim: Option<AtaTrim>) -> String {
    let queued = match word {
        Some("queued") => "queued TRIM",
        Some("unqueued") => "unqueued TRIM",
        Some("forced_unqueued") => "TRIM, unqueued as the kernel's list of drives or its command line says",
        _ => "TRIM",
    };
    let ranges = trim.and_then(|trim| trim.max_blocks).map(|blocks| u32::from(blocks) * RANGES_OF_BLOCK);
    let ranges = ranges.map(|ranges| format!(" of up to {ranges} ranges")).unwrap_or_default();
    let reads = match trim {
        None => "what trimmed blocks read as is unknown",
        Some(AtaTrim { zeroes: true, .. }) => "trimmed blocks read as zeros (RZAT)",
        Some(AtaTrim { deterministic: true, .. }) => {
            "trimmed blocks read alike each time, but not surely as zeros (DRAT)"
        }
        Some(_) => "trimmed blocks may read as anything",
    };
    format!("it has {queued}{ranges}; {reads}")
}

/// Describes the commands and limits of a SCSI device.
fn of_scsi(limits: Option<UnmapLimits>, provisioning: Provisioning) -> String {
    let up_to = |most: Option<Bytes>| most.map(|most| format!("up to {most}"));
    let most_same = up_to(limits.and_then(|limits| limits.max_write_same));
    let of_unmap = limits.map(|limits| {
        let ranges = limits.max_ranges.map(|ranges| format!("{ranges} ranges"));
        let unit = limits.granularity.map(|unit| format!("units of {unit}"));
        [up_to(limits.max_unmap), ranges, unit].into_iter().flatten().collect::<Vec<_>>().join(", ")
    });
    let commands = [
        (provisioning.unmap, "UNMAP", of_unmap.unwrap_or_default()),
        (provisioning.write_same_16, "WRITE SAME(16)", most_same.clone().unwrap_or_default()),
        (provisioning.write_same_10, "WRITE SAME(10)", most_same.unwrap_or_default()),
    ];
    let commands = commands
        .iter()
        .filter(|(takes, ..)| *takes)
        .map(|(_, name, most)| if most.is_empty() { (*name).to_owned() } else { format!("{name} ({most})") });
    let commands: Vec<_> = commands.collect();
    let takes = if commands.is_empty() { "no command for them".to_owned() } else { commands.join(" and ") };
    let surely = if provisioning.zeroes { "read as zeros" } else { "may read as anything" };
    format!("it announces {takes}; freed blocks {surely}")
}

fn card(erase: &CardErase) -> String {
    let size = |size: Option<Bytes>| size.map_or("unknown sizes".to_owned(), |size| size.to_string());
    format!(
        "the {} card erases units of {}, best of {}; whether it has TRIM, sysfs doesn't tell",
        erase.card.as_deref().unwrap_or("memory"),
        size(erase.unit),
        size(erase.preferred)
    )
}
