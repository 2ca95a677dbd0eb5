//! Volumes of md's containers.

use super::*;

#[test]
fn container_of_a_volume_does_not_hold_its_disks() {
    let with = |volume: &str| {
        let machine = Captured::new()
            .device("sda", "8:0", &[])
            .device("sdb", "8:16", &[])
            .device("md127", "9:127", &[("md/metadata_version", "external:imsm")])
            .device("md126", "9:126", &[("md/metadata_version", volume)]);
        let arrays = ["md126", "md127"].into_iter().flat_map(|array| [(array, "sda"), (array, "sdb")]);
        arrays.fold(machine, |machine, (array, disk)| machine.stacked(array, disk))
    };
    for volume in ["external:/md127/0", "external:-md127/0"] {
        is_a_part(&with(volume), "md126", "/dev/sda");
    }
    let held = |holder: &str| format!("/dev/sda, which is held by /dev/{holder}; take that down first");
    let stranger = refusal(&with("external:/md125/0"), "md126");
    assert_eq!(stranger, format!("/dev/md126 shares its bytes with {}", held("md127")));
    let machine = with("external:/md127/0");
    assert!(refusal(&machine, "sda").contains("held by /dev/md126"), "a disk of it is in use");
    assert!(refusal(&machine, "md127").contains("held by /dev/md126"), "and so is the container");
    // Another volume in the same container.
    let machine = machine.device("md124", "9:124", &[("md/metadata_version", "external:/md127/1")]);
    let machine = machine.stacked("md124", "sda");
    assert_eq!(refusal(&machine, "md126"), format!("/dev/md126 shares its bytes with {}", held("md124")));
}
