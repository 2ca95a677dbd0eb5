//! The space of LVM volumes that are removed, which nobody discards by default.

use trimtab_core::verdict::{Finding, Severity};
use trimtab_linux::stack::{Layer, LayerKind, Setup, Stack};

use super::service::finding;

fn is_lvm(layer: &Layer) -> bool {
    matches!(&layer.kind, LayerKind::DeviceMapper(_))
        && layer.label.as_deref().is_some_and(|label| label.contains('/'))
}

/// Returns the finding on the first volume of LVM in a stack; `None` if there is none, or its space is discarded.
pub(super) fn volumes(stack: &Stack, setup: &Setup) -> Option<Finding> {
    let layer = stack.layers.iter().find(|layer| is_lvm(layer))?;
    if is_thin(layer) {
        return Some(thin_volume(layer));
    }
    (setup.lvm_issues_discards != Some(true)).then(|| Finding {
        fix: Some("issue_discards = 1   # in the section devices of /etc/lvm/lvm.conf".to_owned()),
        cost: Some("A volume removed by mistake can't be brought back with vgcfgrestore.".to_owned()),
        ..finding(
            "lvm-keeps-removed",
            Severity::Note,
            layer,
            "LVM doesn't discard the space of volumes that are removed or made smaller.".to_owned(),
            "It stays live data for the drive until another volume discards it.",
            "lvmconfig devices/issue_discards",
        )
    })
}

fn is_thin(layer: &Layer) -> bool {
    matches!(&layer.kind, LayerKind::DeviceMapper(lines) if lines.iter().any(|line| line.target == "thin"))
}

/// A thin volume: its removal gives its chunks back to the pool, which tells nothing of them to what is below.
fn thin_volume(layer: &Layer) -> Finding {
    Finding {
        // With placeholders: a command on this volume would destroy it.
        fix: Some("# before you remove a thin volume: blkdiscard /dev/VG/VOLUME; then lvremove VG/VOLUME".to_owned()),
        cost: Some("All data of the volume is gone, as after its removal.".to_owned()),
        ..finding(
            "lvm-keeps-removed",
            Severity::Note,
            layer,
            "A thin volume or snapshot that is removed gives its space back to the pool, and not to what is below the pool."
                .to_owned(),
            "What is below takes it for live data until the pool uses it again. issue_discards in lvm.conf does not count for thin \
             volumes.",
            "lvs -o name,pool_lv,discards",
        )
    }
}
