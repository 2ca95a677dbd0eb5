//! Stacks made by hand, and what the doctor says of them.

use std::path::PathBuf;

use proptest::prelude::*;
use trimtab_core::document::doctor::{Announced, Limits, Passes, Severity, Target, Verdict};
use trimtab_core::{Bytes, Extent};
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::stack::{
    Below, CrypttabLine, FileSystem, FstabLine, Kind, Layer, MapLine, Raid, Scsi, Setup, Stack, Timer,
    Transport,
};

use super::{ASSUMED_ERASE_BLOCK, diagnose};

/// A layer without discards, without anything below it.
fn layer(name: &str, kind: Kind) -> Layer {
    Layer {
        name: name.to_owned(),
        label: None,
        kind,
        subsystem: None,
        number: None,
        size: Some(Bytes::GIB),
        limits: None,
        announced: Announced::default(),
        rotational: false,
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
        source: PathBuf::from("/dev/x"),
        options: options.to_owned(),
    };
    layer(mount, Kind::FileSystem(kind))
}

fn mapped(name: &str, target: &str, parameters: &str) -> Layer {
    let line = MapLine {
        extent: Extent::at(Bytes::ZERO, Bytes::GIB),
        target: target.to_owned(),
        parameters: parameters.to_owned(),
    };
    layer(name, Kind::DeviceMapper(vec![line]))
}

fn raid(level: &str, discards_are_safe: Option<bool>) -> Layer {
    layer("md0", Kind::Raid(Raid { level: level.to_owned(), chunk: Bytes(512 << 10), discards_are_safe }))
}

fn nvme(max: u64) -> Layer {
    taking(max, 512, layer("nvme0n1", Kind::Nvme))
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
            on(vec![taking(0, 0, layer("sda1", Kind::Partition)), nvme(0)]),
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
fn of_two_drives_one_is_not_enough() {
    let mut stack = row([file_system("/mnt", "btrfs", "rw,discard=async"), nvme(YES)]);
    stack.layers.push(Layer { name: "nvme1n1".to_owned(), ..nvme(0) });
    stack.layers[0].below.push(Below { layer: 2, start: None });
    assert_eq!(summary(&examined(&stack)), (Verdict::Partial, vec!["nvme1n1"], vec!["device-no-discards"]));
    stack.layers[2] = nvme(YES);
    assert_eq!(summary(&examined(&stack)).0, Verdict::Reaches);
}

#[test]
fn the_pool_s_own_records_are_no_way_down() {
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
        let device = taking(max, 4096, layer("loop0", Kind::Loop { file: PathBuf::from("/images/disk") }));
        examined(&row([file_system("/mnt", "ext4", "rw"), device].into_iter().chain(below)))
    };
    let holds = |fstype: &str, options: &str| file_system("/images", fstype, options);
    let waits = on_loop(YES, vec![holds("ext4", "rw"), nvme(YES)]);
    assert_eq!(summary(&waits), (Verdict::Partial, vec![], vec!["nested-file-system"]));
    assert!(waits.reason.contains("/images"), "{}", waits.reason);
    let told = on_loop(YES, vec![holds("ext4", "rw,discard"), nvme(YES)]);
    assert_eq!(summary(&told), (Verdict::Reaches, vec![], vec![]));
    let memory = on_loop(YES, vec![holds("tmpfs", "rw")]);
    assert_eq!(summary(&memory), (Verdict::Reaches, vec![], vec![]));
    let fat = on_loop(0, vec![holds("vfat", "rw"), nvme(YES)]);
    let (verdict, stops, findings) = summary(&fat);
    assert_eq!((verdict, stops, findings[0]), (Verdict::Blocked, vec!["loop0"], "loop-no-holes"));
}

#[test]
fn scsi_devices_are_told_apart() {
    let on = |transport: Transport, mode: &str, thin, rotational| {
        let scsi = Scsi { transport, provisioning_mode: Some(mode.to_owned()), thin_provisioning: thin };
        let disk = Layer { rotational, ..taking(0, 0, layer("sda", Kind::Scsi(scsi))) };
        let target = examined(&row([file_system("/mnt", "ext4", "rw"), disk]));
        (target.verdict, target.findings[0].id.clone(), target.findings[0].severity)
    };
    let ata = |trim: &str| Transport::Ata { trim: Some(trim.to_owned()) };
    let usb = Transport::Usb { driver: "uas".to_owned(), ids: Some(("152d".to_owned(), "0583".to_owned())) };
    let blocked = |id: &str, severity| (Verdict::Blocked, id.to_owned(), severity);
    assert_eq!(
        on(ata("unsupported"), "full", None, false),
        blocked("device-no-discards", Severity::Critical)
    );
    assert_eq!(on(ata("unsupported"), "full", None, true), blocked("rotating-disk", Severity::Note));
    assert_eq!(
        on(ata("forced_unsupported"), "full", None, false),
        blocked("trim-forced-off", Severity::Critical)
    );
    assert_eq!(on(usb, "full", None, false), blocked("usb-bridge", Severity::Critical));
    assert_eq!(on(Transport::Virtio, "full", None, true), blocked("host-no-discards", Severity::Critical));
    assert_eq!(
        on(Transport::Other(None), "disabled", Some(true), false),
        blocked("provisioning-mode", Severity::Critical)
    );
    assert_eq!(
        on(Transport::Other(None), "full", Some(false), false),
        blocked("device-no-discards", Severity::Critical)
    );
}

#[test]
fn zeros_written_are_no_discards() {
    let transport = Transport::Usb { driver: "usb-storage".to_owned(), ids: None };
    let mode = Some("writesame_zero".to_owned());
    let disk = layer("sda", Kind::Scsi(Scsi { transport, provisioning_mode: mode, thin_provisioning: None }));
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), taking(YES, 512, disk)]));
    assert_eq!(summary(&target), (Verdict::Blocked, vec!["sda"], vec!["provisioning-mode"]));
}

#[test]
fn ntfs3_has_to_be_asked() {
    let mounted = |options| examined(&row([file_system("/mnt", "ntfs3", options), nvme(YES)]));
    assert_eq!(summary(&mounted("rw")), (Verdict::Blocked, vec!["/mnt"], vec!["ntfs3-needs-discard"]));
    assert_eq!(summary(&mounted("rw,discard")), (Verdict::Reaches, vec![], vec![]));
}

#[test]
fn a_limit_set_to_zero_is_no_property_of_the_drive() {
    let mut disk = nvme(YES);
    disk.limits.as_mut().unwrap().max = Bytes::ZERO;
    let target = examined(&row([file_system("/mnt", "ext4", "rw"), disk]));
    assert_eq!(summary(&target), (Verdict::Blocked, vec!["nvme0n1"], vec!["limit-set-to-zero"]));
    assert_eq!(
        target.findings[0].fix.as_deref(),
        Some("echo 2147483648 > /sys/block/nvme0n1/queue/discard_max_bytes")
    );
}

#[test]
fn where_the_data_starts_is_set_against_the_units() {
    let starting = |start: u64, granularity| {
        let mut stack = row([
            file_system("/mnt", "ext4", "rw"),
            taking(YES, granularity, layer("sda1", Kind::Partition)),
            taking(YES, granularity, layer("sda", Kind::Nvme)),
        ]);
        stack.layers[1].below[0].start = Some(Bytes(start));
        let target = examined(&stack);
        target.findings.iter().map(|finding| finding.id.clone()).collect::<Vec<_>>()
    };
    assert_eq!(starting(63 * 512, 4096), ["misaligned"]);
    assert_eq!(starting(63 * 512, 512), ["erase-block"]);
    assert_eq!(starting(1 << 20, 4096), ["erase-block"]);
    assert!(starting(4 << 20, 4096).is_empty());
    assert!(starting(4 << 20, 0).is_empty());
}

#[test]
fn who_trims_is_said() {
    let fstab = |options: &str| FstabLine {
        source: "UUID=1".to_owned(),
        target: PathBuf::from("/mnt"),
        fstype: "ext4".to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
    };
    let ids = |options: &str, setup: &Setup| {
        let stack = row([file_system("/mnt", "ext4", options), nvme(YES)]);
        diagnose(&stack, setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("rw", &Setup::default()), ["nobody-trims"]);
    assert!(ids("rw,discard", &Setup::default()).is_empty());
    assert!(ids("rw", &timed()).is_empty());
    assert_eq!(ids("rw,discard", &timed()), ["double-work"]);
    let listed = |options| Setup { fstab: vec![fstab(options)], ..timed() };
    assert!(ids("rw", &listed("defaults")).is_empty());
    assert_eq!(ids("rw", &listed("defaults,X-fstrim.notrim")), ["fstrim-skips"]);
    let elsewhere = FstabLine { target: PathBuf::from("/other"), ..fstab("defaults") };
    assert_eq!(ids("rw", &Setup { fstab: vec![elsewhere], ..timed() }), ["not-in-fstab"]);
    assert_eq!(ids("rw", &Setup { container: true, ..timed() }), ["container"]);
    let off = Setup {
        timer: Some(Timer { enabled: false, active: false, last: None, next: None }),
        ..Setup::default()
    };
    assert_eq!(ids("rw", &off), ["nobody-trims"]);
}

#[test]
fn discards_allowed_until_the_next_start_are_said_to_be() {
    let crypt = taking(YES, 512, mapped("dm-0", "crypt", "aes-xts-plain64 - 0 8:1 0 1 allow_discards"));
    let stack = row([
        file_system("/mnt", "ext4", "rw"),
        Layer { label: Some("home".to_owned()), ..crypt },
        nvme(YES),
    ]);
    let ids = |options: &[&str], luks_allows: &[(String, bool)]| {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let line = CrypttabLine { name: "home".to_owned(), source: "/dev/sda1".to_owned(), options };
        let setup = Setup { crypttab: vec![line], luks_allows: luks_allows.to_vec(), ..timed() };
        diagnose(&stack, &setup, ASSUMED_ERASE_BLOCK)
            .findings
            .iter()
            .map(|finding| finding.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&["luks"], &[]), ["luks-until-restart"]);
    assert!(ids(&["luks", "discard"], &[]).is_empty());
    assert!(ids(&["luks"], &[("dm-0".to_owned(), true)]).is_empty());
    assert_eq!(ids(&["luks"], &[("dm-0".to_owned(), false)]), ["luks-until-restart"]);
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let words = "[a-z0-9:_ -]{0,40}";
    prop_oneof![
        ("(ext4|xfs|btrfs|overlay|zfs|squashfs|tmpfs|nfs|odd)", "[a-z=,]{0,20}").prop_map(
            |(fstype, options)| {
                Kind::FileSystem(FileSystem { fstype, targets: Vec::new(), source: PathBuf::new(), options })
            }
        ),
        ("(linear|crypt|thin|thin-pool|cache|vdo|snapshot|odd)", words).prop_map(|(target, parameters)| {
            let extent = Extent::at(Bytes::ZERO, Bytes::MIB);
            Kind::DeviceMapper(vec![MapLine { extent, target, parameters }])
        }),
        ("(raid0|raid1|raid5|odd)", any::<u64>(), any::<Option<bool>>()).prop_map(|(level, chunk, safe)| {
            Kind::Raid(Raid { level, chunk: Bytes(chunk), discards_are_safe: safe })
        }),
        Just(Kind::DeviceMapper(Vec::new())),
        Just(Kind::Swap),
        Just(Kind::Partition),
        Just(Kind::Zram),
        Just(Kind::Nvme),
        Just(Kind::Loop { file: PathBuf::from("/f") }),
        Just(Kind::Other(None)),
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
            if let (Some(max), false) = (max, matches!(made.kind, Kind::FileSystem(_) | Kind::Swap)) {
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
