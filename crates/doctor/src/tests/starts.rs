//! Where data starts on disks.

use trimtab_core::device::{Announced, CardErase};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::stack::{Below, Layer, LayerKind, MapLine, Stack};

use super::{YES, examined, file_system, layer, nvme, raid, row, taking};

#[test]
fn data_start_is_compared_with_the_discard_units() {
    let starting = |start: u64, granularity| {
        let mut stack = row([
            file_system("/mnt", "ext4", "rw"),
            taking(YES, granularity, layer("sda1", LayerKind::Partition)),
            taking(YES, granularity, layer("sda", LayerKind::Nvme)),
        ]);
        stack.layers[1].below[0].start = Some(Bytes(start));
        let target = examined(&stack);
        target.findings.iter().map(|finding| finding.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(starting(63 * 512, 4096), ["misaligned"]);
    assert_eq!(starting(63 * 512, 512), ["erase-block-edges"]);
    assert_eq!(starting(1 << 20, 4096), ["erase-block-edges"]);
    assert!(starting(4 << 20, 4096).is_empty());
    assert!(starting(4 << 20, 0).is_empty());
}

#[test]
fn striped_data_is_followed_from_its_first_byte_only() {
    let found = |level: &str, start: u64| {
        let mut stack = row([
            file_system("/mnt", "ext4", "rw"),
            taking(YES, 4096, layer("md0p1", LayerKind::Partition)),
            taking(YES, 4096, raid(level, None)),
            nvme(YES),
        ]);
        stack.layers[1].below[0].start = Some(Bytes(start));
        examined(&stack).findings.len()
    };
    assert_eq!((found("raid1", MIB), found("raid0", MIB)), (1, 0), "at 512 KiB of each of two drives");
    assert_eq!((found("raid1", 0), found("raid0", 0)), (0, 0));
}

const MIB: u64 = 1 << 20;

/// A file system on a linear volume with these segments, `(start on the partition, length)` in MiB, on a
/// partition at 1 MiB of an NVMe drive.
fn volume(segments: &[(u64, u64)]) -> Stack {
    let number = DeviceNumber { major: 259, minor: 1 };
    let mut lines = Vec::new();
    let mut end = 0;
    for (start, length) in segments {
        lines.push(MapLine {
            extent: Extent::at(Bytes(end), Bytes(length * MIB)),
            target: "linear".to_owned(),
            parameters: format!("{number} {}", start * MIB / 512),
        });
        end += length * MIB;
    }
    let mapped = Layer { size: Some(Bytes(end)), ..layer("dm-0", LayerKind::DeviceMapper(lines)) };
    let partition = Layer { number: Some(number), ..layer("nvme0n1p1", LayerKind::Partition) };
    let mut stack = row([
        file_system("/mnt", "ext4", "rw"),
        taking(YES, 4096, mapped),
        taking(YES, 4096, partition),
        nvme(YES),
    ]);
    stack.layers[1].below[0].start = None;
    stack.layers[2].below = vec![Below { layer: 3, start: Some(Bytes(MIB)) }];
    stack
}

#[test]
fn every_segment_of_a_volume_is_compared_with_the_erase_blocks() {
    let said = |segments: &[(u64, u64)]| {
        let findings = examined(&volume(segments)).findings;
        findings.into_iter().find(|finding| finding.id == "erase-block-edges").map(|finding| finding.message)
    };
    assert_eq!(said(&[(3, 16), (23, 8)]), None);
    assert_eq!(
        said(&[(3, 16), (24, 8), (43, 16)]).unwrap(),
        "Of the 3 pieces that the data lies in, 1 begin or end inside an erase block of 4 MiB on nvme0n1: \
         4 MiB (10.00 %) is in no whole one."
    );
    assert_eq!(said(&[(3, 16), (19, 8)]), None, "two in a row are one piece");
    let one = said(&[(1, 16), (17, 8)]).unwrap();
    assert_eq!(one, "The data starts 2 MiB after an erase block of 4 MiB on nvme0n1.");
}

#[test]
fn card_announces_its_erase_block() {
    let erase = |preferred: u64| {
        let erase = CardErase { card: None, unit: Some(Bytes(512)), preferred: Some(Bytes(preferred)) };
        let announced = Announced { erase: Some(erase), ..Announced::default() };
        let disk = Layer { announced, ..taking(YES, 512, layer("mmcblk0", LayerKind::Mmc)) };
        let partition = taking(YES, 512, layer("mmcblk0p1", LayerKind::Partition));
        let mut stack = row([file_system("/mnt", "ext4", "rw"), partition, disk]);
        stack.layers[1].below[0].start = Some(Bytes(4 << 20));
        examined(&stack).findings
    };
    assert!(erase(4 << 20).is_empty());
    let found = &erase(16 << 20)[0];
    assert_eq!(found.message, "The data starts 4 MiB after an erase block of 16 MiB on mmcblk0.");
    assert!(found.why.starts_with("The card says that size."), "{}", found.why);
}
