//! Tests of the layer that stops discards.

use std::path::PathBuf;

use proptest::prelude::*;
use trimtab_core::document::doctor::Target;
use trimtab_core::verdict::{Passes, Verdict};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::stack::{Below, FileSystem, Layer, LayerKind, MapLine, Raid, Stack};

use super::{YES, examined, file_system, layer, mapped, nvme, raid, row, summary, taking};

#[test]
fn the_layer_that_stops_discards_is_named_and_no_other() {
    let ext4 = || file_system("/mnt", "ext4", "rw");
    let on = |layers: Vec<Layer>| examined(&row([ext4()].into_iter().chain(layers)));
    let crypt = |max, words: &str| {
        taking(max, 512, mapped("dm-0", "crypt", &format!("aes-xts-plain64 - 0 8:1 0{words}")))
    };
    let pool = |max, words: &str| {
        taking(max, 65536, mapped("dm-1", "thin-pool", &format!("254:2 254:3 128 0 {words}")))
    };
    let cases: Vec<(Target, Verdict, &[&str], &[&str])> = vec![
        (on(vec![nvme(YES)]), Verdict::Reaches, &[], &[]),
        (on(vec![nvme(0)]), Verdict::Blocked, &["nvme0n1"], &["device-no-discards"]),
        (on(vec![crypt(YES, " 1 allow_discards"), nvme(YES)]), Verdict::Reaches, &[], &[]),
        (on(vec![crypt(0, ""), nvme(YES)]), Verdict::Blocked, &["dm-0"], &["luks-no-discards"]),
        (on(vec![crypt(0, ""), nvme(0)]), Verdict::Blocked, &["nvme0n1"], &["device-no-discards"]),
        (
            on(vec![taking(0, 0, mapped("dm-0", "linear", "8:1 2048")), nvme(0)]),
            Verdict::Blocked,
            &["nvme0n1"],
            &["device-no-discards"],
        ),
        (
            on(vec![taking(0, 0, layer("sda1", LayerKind::Partition)), nvme(0)]),
            Verdict::Blocked,
            &["nvme0n1"],
            &["device-no-discards"],
        ),
        (on(vec![pool(YES, "0"), nvme(YES)]), Verdict::Reaches, &[], &[]),
        (
            on(vec![pool(0, "1 ignore_discard"), nvme(YES)]),
            Verdict::Blocked,
            &["dm-1"],
            &["thin-no-passdown"],
        ),
        (
            on(vec![pool(YES, "1 no_discard_passdown"), nvme(YES)]),
            Verdict::Blocked,
            &["dm-1"],
            &["thin-no-passdown"],
        ),
        (
            on(vec![taking(YES, 65536, mapped("dm-1", "thin-pool", "254:2 254:3 131072 0 0")), nvme(YES)]),
            Verdict::Partial,
            &[],
            &["thin-large-chunks"],
        ),
        (
            on(vec![taking(0, 0, mapped("dm-0", "snapshot-origin", "8:1")), nvme(YES)]),
            Verdict::Blocked,
            &["dm-0"],
            &["thick-snapshot"],
        ),
        (
            on(vec![taking(YES, 4096, mapped("dm-0", "vdo", "V4 8:1")), nvme(YES)]),
            Verdict::Blocked,
            &["dm-0"],
            &["vdo-keeps-discards"],
        ),
        (
            on(vec![taking(0, 0, raid("raid5", Some(false))), nvme(YES)]),
            Verdict::Blocked,
            &["md0"],
            &["raid-parity"],
        ),
        (
            on(vec![taking(0, 0, raid("raid5", Some(true))), nvme(0)]),
            Verdict::Blocked,
            &["nvme0n1"],
            &["device-no-discards"],
        ),
        (on(vec![taking(YES, 1 << 20, raid("raid5", Some(true))), nvme(YES)]), Verdict::Reaches, &[], &[]),
        (on(vec![taking(YES, 512, raid("raid1", None)), nvme(YES)]), Verdict::Reaches, &[], &[]),
    ];
    for (target, verdict, stops, findings) in cases {
        assert_eq!(summary(&target), (verdict, stops.to_vec(), findings.to_vec()), "{target:#?}");
    }
}

#[test]
fn one_of_two_drives_is_not_enough() {
    let mut stack = row([file_system("/mnt", "btrfs", "rw,discard=async"), nvme(YES)]);
    stack.layers.push(Layer { name: "nvme1n1".to_owned(), ..nvme(0) });
    stack.layers[0].below.push(Below { layer: 2, start: None });
    assert_eq!(summary(&examined(&stack)), (Verdict::Partial, vec!["nvme1n1"], vec!["device-no-discards"]));
    stack.layers[2] = nvme(YES);
    let both = examined(&stack);
    assert_eq!((both.verdict, both.layers[0].passes), (Verdict::Reaches, Passes::Reshaped), "it waits");
}

#[test]
fn pool_metadata_device_does_not_decide_the_verdict() {
    let number = |minor| Some(DeviceNumber { major: 254, minor });
    let mut stack = row([
        file_system("/mnt", "xfs", "rw"),
        taking(YES, 65536, mapped("dm-1", "thin-pool", "254:2 254:3 128 0 0")),
    ]);
    for (minor, max) in [(2, 0), (3, YES)] {
        let name = format!("dm-{minor}");
        stack.layers.push(Layer { name: name.clone(), number: number(minor), ..nvme(max) });
    }
    stack.layers[1].below = [2, 3].map(|layer| Below { layer, start: None }).to_vec();
    assert_eq!(summary(&examined(&stack)).0, Verdict::Reaches);
}

#[test]
fn a_loop_s_discards_become_free_space_of_the_file_system_below() {
    let on_loop = |max, below: Vec<Layer>| {
        let device =
            taking(max, 4096, layer("loop0", LayerKind::Loop { file: PathBuf::from("/images/disk") }));
        examined(&row([file_system("/mnt", "ext4", "rw"), device].into_iter().chain(below)))
    };
    let holds = |fstype: &str, options: &str| file_system("/images", fstype, options);
    let waits = on_loop(YES, vec![holds("ext4", "rw"), nvme(YES)]);
    // fstrim.timer trims it.
    assert_eq!(summary(&waits), (Verdict::Partial, vec![], vec![]));
    assert!(waits.findings.iter().any(|finding| finding.id == "nested-file-system"), "{waits:#?}");
    assert!(waits.reason.contains("/images"), "{}", waits.reason);
    let told = on_loop(YES, vec![holds("ext4", "rw,discard"), nvme(YES)]);
    assert_eq!(summary(&told), (Verdict::Reaches, vec![], vec![]));
    // Without root, a file in a private directory is on nothing.
    let hidden = on_loop(YES, vec![]);
    assert_eq!(summary(&hidden), (Verdict::Unknown, vec![], vec![]));
    assert!(hidden.reason.contains("that takes root"), "{}", hidden.reason);
    let memory = on_loop(YES, vec![holds("tmpfs", "rw")]);
    assert_eq!(summary(&memory), (Verdict::Reaches, vec![], vec![]));
    let fat = on_loop(0, vec![holds("vfat", "rw"), nvme(YES)]);
    let (verdict, stops, findings) = summary(&fat);
    assert_eq!((verdict, stops, findings[0]), (Verdict::Blocked, vec!["loop0"], "loop-no-holes"));
}

#[test]
fn read_only_layers_of_an_overlay_are_ignored() {
    let overlay = |options| {
        let mut stack = row([
            file_system("/merged", "overlay", options),
            file_system("/up", "ext4", "rw,discard"),
            nvme(YES),
            file_system("/low", "ext4", "rw,discard"),
            Layer { name: "nvme1n1".to_owned(), ..nvme(0) },
        ]);
        stack.layers[0].below = [1, 3].map(|layer| Below { layer, start: None }).to_vec();
        stack.layers[2].below.clear();
        // It would be said of data that starts so.
        stack.layers[3].below[0].start = Some(Bytes(512));
        examined(&stack)
    };
    let target = overlay("rw,lowerdir=/low,upperdir=/up");
    assert_eq!(summary(&target), (Verdict::Reaches, vec!["nvme1n1"], vec![]));
    assert_eq!(target.reason, "all 3 layers hand them on");
    assert!(target.findings.iter().all(|finding| finding.layer != "nvme1n1"), "{:?}", target.findings);
    assert!(target.layers[4].reason.starts_with("no discards from above come here; "));
    assert!(!target.layers[2].reason.contains("come here"));
    let fixed = overlay("ro,lowerdir=/up:/low");
    assert_eq!(summary(&fixed), (Verdict::Blocked, vec!["/merged", "nvme1n1"], vec![]));
    assert!(fixed.reason.contains("no upper directory"), "{}", fixed.reason);
}

#[test]
fn target_without_a_layer_below_is_unknown() {
    for top in [layer("/swapfile", LayerKind::Swap), file_system("/", "btrfs", "rw")] {
        assert_eq!(summary(&examined(&row([top]))), (Verdict::Unknown, vec![], vec![]));
    }
}

#[test]
fn file_system_without_data_has_nothing_to_discard() {
    for (mount, fstype) in [("/proc", "proc"), ("/sys", "sysfs"), ("/dev/pts", "devpts")] {
        let target = examined(&row([file_system(mount, fstype, "rw,relatime")]));
        assert_eq!(summary(&target), (Verdict::Blocked, vec![mount], vec![]));
        assert!(target.reason.contains("it holds no data"), "{}", target.reason);
    }
}

#[test]
fn overlay_with_a_relative_upper_directory_is_unknown() {
    let options = "rw,lowerdir=/usr,upperdir=up,workdir=work";
    let target = examined(&row([file_system("/merged", "overlay", options)]));
    assert_eq!(summary(&target), (Verdict::Unknown, vec![], vec![]));
    assert!(target.reason.contains("its upper directory up is named relative"), "{}", target.reason);
}

#[test]
fn ntfs3_needs_the_discard_option() {
    let mounted = |options| examined(&row([file_system("/mnt", "ntfs3", options), nvme(YES)]));
    assert_eq!(
        summary(&mounted("rw")),
        (Verdict::Blocked, vec!["/mnt"], vec!["ntfs3-needs-discard", "trim-loses-data"])
    );
    assert_eq!(summary(&mounted("rw,discard")), (Verdict::Reaches, vec![], vec!["trim-loses-data"]));
}

#[test]
fn file_system_without_discards_is_not_called_read_only() {
    for fstype in ["udf", "reiserfs", "minix", "hfsplus"] {
        let target = examined(&row([file_system("/mnt", fstype, "rw"), nvme(YES)]));
        assert_eq!(summary(&target), (Verdict::Blocked, vec!["/mnt"], vec!["file-system-no-discards"]));
        assert!(!target.reason.contains("read-only"), "{}", target.reason);
    }
}

#[test]
fn snapshot_is_judged_by_the_words_of_its_table() {
    let snapshot = |words: &str| {
        let layer = taking(YES, 4096, mapped("dm-0", "snapshot", &format!("8:1 8:2 P 8{words}")));
        examined(&row([file_system("/mnt", "ext4", "rw"), layer, nvme(YES)])).verdict
    };
    assert_eq!(snapshot(" 1 discard_zeroes_cow"), Verdict::Blocked);
    assert_eq!(snapshot(" 2 discard_zeroes_cow discard_passdown_origin"), Verdict::Reaches);
}

#[test]
fn maker_of_a_volume_decides_the_fix() {
    let found = |maker: &str, target: &str, parameters: &str, label: &str, max| {
        let layer = Layer {
            subsystem: Some(maker.to_owned()).filter(|maker| !maker.is_empty()),
            label: Some(label.to_owned()),
            ..taking(max, 4096, mapped("dm-0", target, parameters))
        };
        let target = examined(&row([file_system("/mnt", "ext4", "rw"), layer, nvme(YES)]));
        target.findings[0].clone()
    };
    let integrity = |maker, label| found(maker, "integrity", "8:1 0 - J 0", label, 0);
    assert!(integrity("CRYPT-INTEGRITY", "data").fix.unwrap().starts_with("integritysetup close data"));
    let leg = integrity("LVM", "vg/lv_rimage_0").fix.unwrap();
    assert_eq!(leg, "lvconvert --raidintegrity n vg/lv");
    assert_eq!(integrity("", "data").fix, None);
    let pool = |maker, label| found(maker, "thin-pool", "8:1 8:2 128 0 1 no_discard_passdown", label, YES);
    assert_eq!(pool("LVM", "vg/pool-tpool").fix.unwrap(), "lvchange --discards passdown vg/pool");
    assert_eq!(pool("stratis", "stratis-1-private-x").fix, None);
    assert!(pool("", "docker-pool").fix.unwrap().starts_with("dmsetup table --showkeys docker-pool | awk "));
    let cache = |maker| found(maker, "cache", "8:1 8:2 8:3 128 1 no_discard_passdown smq 0", "vg/lv", YES);
    assert!(cache("LVM").fix.unwrap().starts_with("lvconvert --splitcache"));
    assert!(cache("").fix.unwrap().starts_with("dmsetup table"));
    let clone = found("", "clone", "8:1 8:2 8:3 8 1 no_discard_passdown", "copy", YES);
    assert_eq!(clone.id, "clone-no-passdown");
    assert!(clone.fix.unwrap().contains("sub(/ no_discard_passdown/, \"\"); $8 -= 1"));
}

/// A device that dm-clone copies: what is freed goes to the copy, and the source is only read.
#[test]
fn clone_is_judged_by_its_destination() {
    let clone = |source, destination| {
        let number = |minor| Some(DeviceNumber { major: 8, minor });
        let disk =
            |name: &str, minor, max| Layer { name: name.to_owned(), number: number(minor), ..nvme(max) };
        let mut stack = row([
            file_system("/mnt", "ext4", "rw"),
            taking(YES, 4096, mapped("dm-0", "clone", "8:1 8:2 8:3 8 0")),
            disk("meta", 1, 0),
        ]);
        stack.layers[2].below.clear();
        stack.layers.extend([disk("to", 2, destination), disk("from", 3, source)]);
        stack.layers[1].below = [2, 3, 4].map(|layer| Below { layer, start: None }).to_vec();
        examined(&stack)
    };
    assert_eq!(clone(0, YES).verdict, Verdict::Reaches);
    assert_eq!(clone(YES, 0).verdict, Verdict::Blocked);
}

fn any_kind() -> impl Strategy<Value = LayerKind> {
    let parameters = "[a-z0-9:_ -]{0,40}|7:0 7:1 [0-9]{1,6} 0( ignore_discard| no_discard_passdown)?";
    let targets =
        "(linear|striped|crypt|integrity|thin|thin-pool|cache|clone|vdo|snapshot|raid|zoned|zero|odd)";
    prop_oneof![
        ("(ext4|xfs|btrfs|overlay|zfs|squashfs|tmpfs|nfs|odd)", "[a-z=,]{0,20}").prop_map(
            |(fstype, options)| {
                LayerKind::FileSystem(FileSystem {
                    fstype,
                    targets: Vec::new(),
                    writable: Vec::new(),
                    source: PathBuf::new(),
                    options,
                    undiscarded: Vec::new(),
                })
            }
        ),
        (targets, parameters).prop_map(|(target, parameters)| {
            let extent = Extent::at(Bytes::ZERO, Bytes::MIB);
            LayerKind::DeviceMapper(vec![MapLine { extent, target, parameters }])
        }),
        ("(raid0|raid1|raid5|odd)", any::<u64>(), any::<Option<bool>>()).prop_map(|(level, chunk, safe)| {
            LayerKind::Raid(Raid { level, chunk: Bytes(chunk), discards_are_safe: safe })
        }),
        Just(LayerKind::DeviceMapper(Vec::new())),
        Just(LayerKind::Swap),
        Just(LayerKind::Partition),
        Just(LayerKind::Zram),
        Just(LayerKind::Nvme),
        Just(LayerKind::Loop { file: PathBuf::from("/f") }),
        Just(LayerKind::Other(None)),
    ]
}

proptest! {
    /// Whatever a row of layers is: it is judged, and what stops all discards is never said to reach.
    #[test]
    fn a_layer_that_stops_discards_blocks_the_row(
        kinds in proptest::collection::vec((any_kind(), any::<Option<u64>>(), any::<u64>(), any::<u64>()), 1..8),
    ) {
        let layers = kinds.into_iter().enumerate().map(|(index, (kind, max, granularity, start))| {
            let mut made = layer(&format!("l{index}"), kind);
            if let (Some(max), false) = (max, matches!(made.kind, LayerKind::FileSystem(_) | LayerKind::Swap)) {
                made = taking(max % 3, granularity, made);
            }
            made.below = vec![Below { layer: index + 1, start: Some(Bytes(start >> 8)) }];
            made
        });
        let mut stack = Stack { layers: layers.collect() };
        stack.layers.last_mut().unwrap().below.clear();
        let target = examined(&stack);
        prop_assert_eq!(target.layers.len(), stack.layers.len());
        let stops = target.layers.iter().any(|layer| layer.passes == Passes::No);
        let doubts = target.layers.iter().any(|layer| layer.passes == Passes::Unknown);
        prop_assert!(!stops || target.verdict == Verdict::Blocked);
        prop_assert!(target.verdict != Verdict::Blocked || stops || doubts);
        prop_assert!(!doubts || target.verdict != Verdict::Reaches);
    }
}
