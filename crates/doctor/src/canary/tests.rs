//! Layouts and verdicts of stacks as machines have them.

use std::io;
use std::path::PathBuf;

use trimtab_core::device::{Announced, Limits};
use trimtab_core::verdict::Verdict;
use trimtab_core::{Bytes, Extent, ExtentSet};
use trimtab_linux::block::DeviceNumber;
use trimtab_linux::stack::{Below, FileSystem, Layer, LayerKind, MapLine, Raid, Stack};
use trimtab_linux::trim::TrimError;

use super::host::{Host, Piece};
use super::layout::Layout;
use super::verdict::Proof;
use super::witness::Sight;

const MIB: u64 = 1 << 20;

fn extent(start: u64, length: u64) -> Extent {
    Extent::at(Bytes(start), Bytes(length))
}

/// A layer that lies on those of these indices, from these bytes on.
fn layer(name: &str, kind: LayerKind, below: &[(usize, Option<u64>)]) -> Layer {
    let limits = Limits {
        max: Bytes::GIB,
        max_hardware: Bytes::GIB,
        granularity: Bytes(4096),
        alignment: Bytes::ZERO,
        segments: None,
        write_zeroes_max: Bytes::ZERO,
    };
    let minor = u32::from(name.bytes().last().unwrap());
    Layer {
        name: name.to_owned(),
        label: None,
        kind,
        subsystem: None,
        fabric: None,
        number: Some(DeviceNumber { major: 8, minor }),
        size: Some(Bytes(1 << 30)),
        limits: Some(limits),
        announced: Announced::default(),
        rotational: false,
        zoned: false,
        read_only: false,
        below: below.iter().map(|(layer, start)| Below { layer: *layer, start: start.map(Bytes) }).collect(),
    }
}

/// A stack of an ext4 on these layers. The first of them has the index 1.
fn stack(devices: Vec<Layer>) -> Stack {
    let file_system = FileSystem {
        fstype: "ext4".to_owned(),
        targets: vec![PathBuf::from("/m")],
        writable: vec![PathBuf::from("/m")],
        source: PathBuf::from("/dev/x"),
        options: String::new(),
        undiscarded: Vec::new(),
    };
    let top = layer("/m", LayerKind::FileSystem(file_system), &[(1, Some(0))]);
    Stack { layers: std::iter::once(top).chain(devices).collect() }
}

/// Where 16 MiB from the byte `start` of the file system's device on lie.
fn layout(stack: &Stack, start: u64) -> Layout {
    let range = extent(start, 16 * MIB);
    let piece = Piece { trim: range, length: range.len(), copies: vec![(1, range)] };
    Layout::below(stack, Host { layer: 0, directory: PathBuf::from("/m"), pieces: vec![piece] })
}

fn mapper(target: &str, parameters: &str) -> LayerKind {
    LayerKind::DeviceMapper(vec![line(0, 1 << 30, target, parameters)])
}

fn line(start: u64, length: u64, target: &str, parameters: &str) -> MapLine {
    MapLine { extent: extent(start, length), target: target.to_owned(), parameters: parameters.to_owned() }
}

fn raid(level: &str) -> LayerKind {
    LayerKind::Raid(Raid { level: level.to_owned(), chunk: Bytes(512 << 10), discards_are_safe: None })
}

/// A layer that saw discards of this many bytes from the start of where the canary is, and others.
fn saw(layout: &Layout, layer: usize, bytes: u64, others: u64) -> Sight {
    let mut left = Bytes(bytes);
    let mut named = ExtentSet::new();
    for place in layout.places[layer].iter().flat_map(|place| place.extents.iter()) {
        named.insert(Extent::at(place.start, place.len().min(left)));
        left = left.saturating_sub(place.len());
    }
    Sight { total: named.len() + Bytes(others), commands: u64::from(bytes > 0), named, ..Sight::default() }
}

/// Returns the verdict where the devices, from index 1 on, saw these bytes of the canary, and these of others.
fn proved(stack: &Stack, sights: &[(u64, u64)]) -> (Verdict, String, Vec<u64>) {
    let layout = layout(stack, 0);
    let mut proof = Proof::new(stack, &layout, vec![false; stack.layers.len()]);
    for (layer, (bytes, others)) in (1..).zip(sights) {
        proof.sights[layer] = saw(&layout, layer, *bytes, *others);
    }
    let (verdict, reason) = proof.judge();
    (verdict, reason, proof.bytes_seen()[1..].iter().map(|bytes| bytes.get()).collect())
}

#[test]
fn canary_is_followed_through_partitions_and_tables() {
    let segments = LayerKind::DeviceMapper(vec![
        line(0, 10 * MIB, "linear", "8:98 2048"),
        line(10 * MIB, 90 * MIB, "linear", "8:97 8192"),
    ]);
    let stack = stack(vec![
        layer("dm-0", segments, &[(2, None), (3, None)]),
        layer("a", LayerKind::Partition, &[(4, Some(MIB))]),
        layer("b", LayerKind::Partition, &[(4, Some(500 * MIB))]),
        layer("disk", LayerKind::Nvme, &[]),
    ]);
    let places = layout(&stack, 4 * MIB).places;
    let found = |layer: usize| places[layer].as_ref().unwrap().extents.iter().collect::<Vec<_>>();
    assert_eq!(found(2), [extent(4 * MIB, 10 * MIB)], "the second segment begins at 4 MiB of a");
    assert_eq!(found(3), [extent(5 * MIB, 6 * MIB)]);
    assert_eq!(found(4), [extent(5 * MIB, 10 * MIB), extent(505 * MIB, 6 * MIB)]);
    assert!(places.iter().flatten().all(|place| place.is_exact));
}

#[test]
fn copies_have_exact_positions_and_stripes_and_pools_have_none() {
    let two = |kind: LayerKind| {
        stack(vec![
            layer("md0", kind, &[(2, Some(MIB)), (3, Some(MIB))]),
            layer("sda", LayerKind::Nvme, &[]),
            layer("sdb", LayerKind::Nvme, &[]),
        ])
    };
    let exact = |stack: &Stack| -> Vec<_> {
        layout(stack, 0).places.into_iter().map(|place| place.map(|place| place.is_exact)).collect()
    };
    assert_eq!(exact(&two(raid("raid1"))), [None, Some(true), Some(true), Some(true)]);
    assert_eq!(exact(&two(raid("raid0"))), [None, Some(true), Some(false), Some(false)]);
    assert_eq!(exact(&two(mapper("mirror", "core 1 1024 2 8:97 2048 8:98 2048")))[2..], [Some(true); 2]);
    assert_eq!(exact(&two(mapper("striped", "2 128 8:97 0 8:98 0")))[2..], [Some(false), Some(false)]);
    let pool = stack(vec![
        layer("dm-3", mapper("thin", "8:50 0"), &[(2, None)]),
        layer("dm-2", mapper("thin-pool", "8:48 8:49 128"), &[(3, None), (4, Some(0))]),
        layer("dm-0", mapper("linear", "8:97 0"), &[]),
        layer("dm-1", mapper("linear", "8:97 9"), &[]),
    ]);
    assert_eq!(exact(&pool), [None, Some(true), Some(false), None, Some(false)], "metadata holds no data");
}

#[test]
fn layer_that_drops_discards_is_named() {
    let mut crypt = stack(vec![
        layer("dm-0", mapper("crypt", "aes - 0 8:97 32768"), &[(2, Some(16 * MIB))]),
        layer("sda", LayerKind::Nvme, &[]),
    ]);
    let all = 16 * MIB;
    let proof = proved(&crypt, &[(all, 0), (all, 0)]);
    assert_eq!(proof, (Verdict::Reaches, "16 MiB reached sda".to_owned(), vec![all, all]));
    let (verdict, reason, _) = proved(&crypt, &[(all, 0), (0, 90 * MIB)]);
    assert_eq!((verdict, reason.as_str()), (Verdict::Blocked, "dm-0 handed nothing of 16 MiB on to sda"));
    let (verdict, reason, _) = proved(&crypt, &[(all, 0), (all / 4, 0)]);
    assert_eq!((verdict, reason.as_str()), (Verdict::Partial, "dm-0 handed 4 MiB of 16 MiB on to sda"));
    // What a file system's records have taken again is nobody's fault.
    assert_eq!(proved(&crypt, &[(all, 0), (all - all / 100, 0)]).0, Verdict::Reaches);
    assert_eq!(proved(&crypt, &[(all, 0), (all - all / 50, 0)]).0, Verdict::Partial);
    for device in &mut crypt.layers[1..] {
        device.limits.as_mut().unwrap().max = Bytes::ZERO;
    }
    let (verdict, reason, _) = proved(&crypt, &[(0, 0), (0, 0)]);
    assert_eq!(verdict, Verdict::Blocked);
    assert_eq!(reason, "ext4 at /m handed nothing of 16 MiB on to dm-0: sda takes no discards");
}

#[test]
fn failed_discards_did_not_arrive() {
    let stack = stack(vec![layer("sda", LayerKind::Nvme, &[])]);
    let layout = layout(&stack, 0);
    let mut proof = Proof::new(&stack, &layout, vec![false; 2]);
    proof.sights[1] = saw(&layout, 1, 16 * MIB, 0);
    proof.sights[1].failed = proof.sights[1].named.clone();
    proof.sights[1].error = Some(5);
    let (verdict, reason) = proof.judge();
    assert_eq!(verdict, Verdict::Blocked);
    assert!(reason.starts_with("sda refused 16 MiB of 16 MiB: Input/output error"), "{reason}");
}

#[test]
fn counted_bytes_are_compared_with_all_bytes_of_the_layer_above() {
    let striped = stack(vec![
        layer("md0", raid("raid0"), &[(2, Some(MIB)), (3, Some(MIB))]),
        layer("sda", LayerKind::Nvme, &[]),
        layer("sdb", LayerKind::Nvme, &[]),
    ]);
    // Another file was deleted beside the canary.
    let (verdict, reason, bytes) = proved(&striped, &[(16 * MIB, 96 * MIB), (56 * MIB, 0), (56 * MIB, 0)]);
    assert_eq!((verdict, bytes), (Verdict::Reaches, vec![16 * MIB, 8 * MIB, 8 * MIB]), "{reason}");
    let (verdict, reason, bytes) = proved(&striped, &[(16 * MIB, 96 * MIB), (56 * MIB, 0), (0, 0)]);
    assert_eq!((verdict, bytes[1]), (Verdict::Partial, 8 * MIB), "{reason}");
    assert_eq!(reason, "md0 handed 56 MiB of 112 MiB on to sda");
}

#[test]
fn missing_copy_is_not_made_up_for_by_another() {
    let mut copies = stack(vec![
        layer("md0", raid("raid10"), &[(2, Some(MIB)), (3, Some(MIB)), (4, None)]),
        layer("sda", LayerKind::Nvme, &[]),
        layer("sdb", LayerKind::Nvme, &[]),
        layer("sdc", LayerKind::Nvme, &[]),
    ]);
    let all = 16 * MIB;
    assert_eq!(layout(&copies, 0).places[4], None, "a spare holds nothing");
    assert_eq!(proved(&copies, &[(all, 0), (all, 0), (all, 0), (0, 0)]).0, Verdict::Reaches);
    let (verdict, reason, _) = proved(&copies, &[(all, 0), (0, 0), (all, 0), (0, 0)]);
    assert_eq!((verdict, reason.as_str()), (Verdict::Partial, "md0 handed nothing of 16 MiB on to sda"));
    // One of a concatenation holds nothing of a small file.
    copies.layers[1].kind = raid("linear");
    assert_eq!(proved(&copies, &[(all, 0), (0, 0), (all, 0), (0, 0)]).0, Verdict::Reaches);
}

#[test]
fn whole_units_lose_nothing_at_the_edges() {
    let mut coarse = stack(vec![layer("sda", LayerKind::Nvme, &[])]);
    coarse.layers[1].limits.as_mut().unwrap().granularity = Bytes(MIB);
    let verdict = |start: u64, lost: u64| {
        let ranges = (0..4).map(|at| extent(start + at * 8 * MIB, 4 * MIB));
        let piece = |range: Extent| Piece { trim: range, length: range.len(), copies: vec![(1, range)] };
        let pieces = ranges.map(piece).collect();
        let layout = Layout::below(&coarse, Host { layer: 0, directory: PathBuf::from("/m"), pieces });
        let mut proof = Proof::new(&coarse, &layout, vec![false; 2]);
        proof.sights[1] = saw(&layout, 1, 16 * MIB - lost, 0);
        (proof.judge().0, proof.is_disturbed())
    };
    assert_eq!(verdict(MIB, 0), (Verdict::Reaches, false));
    assert_eq!(verdict(MIB, 4 * MIB), (Verdict::Partial, true));
    assert_eq!(verdict(MIB + 4096, 4 * MIB), (Verdict::Reaches, false));
    assert_eq!(verdict(MIB, 16 * MIB), (Verdict::Blocked, false));
}

#[test]
fn pool_passes_on_only_written_extents() {
    let pool = stack(vec![
        layer("dm-3", mapper("thin", "8:50 0"), &[(2, None)]),
        layer("dm-2", mapper("thin-pool", "8:48 8:49 128"), &[(3, Some(0))]),
        layer("sda", LayerKind::Nvme, &[]),
    ]);
    // The file system discards the free space around the canary too, which the pool never gave a place.
    let (verdict, reason, bytes) = proved(&pool, &[(16 * MIB, 31 * MIB), (17 * MIB, 0), (17 * MIB, 0)]);
    assert_eq!((verdict, bytes), (Verdict::Reaches, vec![16 * MIB; 3]), "{reason}");
    assert_eq!(proved(&pool, &[(16 * MIB, 31 * MIB), (17 * MIB, 0), (4 * MIB, 0)]).0, Verdict::Partial);
}

#[test]
fn file_system_that_delays_discards_proves_nothing() {
    let mut lazy = stack(vec![layer("sda", LayerKind::Nvme, &[])]);
    assert_eq!(proved(&lazy, &[(0, 0)]).0, Verdict::Blocked);
    let LayerKind::FileSystem(file_system) = &mut lazy.layers[0].kind else { panic!() };
    file_system.options = "rw,discard,relatime".to_owned();
    assert_eq!(proved(&lazy, &[(0, 0)]).0, Verdict::Unknown);
    // A bcachefs has a setting for each device in place of the mount option.
    let mut bcachefs = |undiscarded: &[&str]| {
        let LayerKind::FileSystem(file_system) = &mut lazy.layers[0].kind else { panic!() };
        (file_system.fstype, file_system.options) = ("bcachefs".to_owned(), "rw".to_owned());
        file_system.undiscarded = undiscarded.iter().map(|name| (*name).to_owned()).collect();
        proved(&lazy, &[(0, 0)])
    };
    let (verdict, reason, _) = bcachefs(&[]);
    assert!(verdict == Verdict::Unknown && reason.ends_with("has not yet"), "{reason}");
    assert_eq!(bcachefs(&["sda"]).0, Verdict::Blocked);
    lazy.layers[1].limits.as_mut().unwrap().max = Bytes::ZERO;
    assert_eq!(proved(&lazy, &[(0, 0)]).0, Verdict::Blocked);
}

#[test]
fn zoned_device_proves_nothing() {
    let disk = Layer { zoned: true, ..layer("sda", LayerKind::Nvme, &[]) };
    let mut zoned = stack(vec![layer("dm-0", mapper("zoned", "8:97"), &[(2, None)]), disk]);
    zoned.layers[2].limits.as_mut().unwrap().max = Bytes::ZERO;
    let (verdict, reason, _) = proved(&zoned, &[(16 * MIB, 0), (0, 0)]);
    assert_eq!(verdict, Verdict::Unknown);
    assert!(reason.starts_with("sda is zoned"), "{reason}");
}

/// Returns the verdict where the devices saw these bytes of the canary, and those with a word are doubted.
fn doubted(stack: &Stack, sights: &[u64], doubts: &[Option<&str>]) -> (Verdict, String) {
    let layout = layout(stack, 0);
    let mut proof = Proof::new(stack, &layout, vec![false; stack.layers.len()]);
    for (layer, bytes) in (1..).zip(sights) {
        proof.sights[layer] = saw(&layout, layer, *bytes, 0);
    }
    for (layer, doubt) in (1..).zip(doubts) {
        proof.doubts[layer] = doubt.map(str::to_owned);
    }
    proof.judge()
}

#[test]
fn counter_of_zero_is_no_proof() {
    let all = 16 * MIB;
    let disk = stack(vec![layer("nvme0n1", LayerKind::Nvme, &[])]);
    let off = Some("nvme0n1 counts nothing, because its queue/iostats is 0");
    let (verdict, reason) = doubted(&disk, &[0], &[off]);
    assert_eq!(verdict, Verdict::Unknown);
    assert_eq!(
        reason,
        "none were seen, which proves nothing: nvme0n1 counts nothing, because its queue/iostats is 0"
    );
    assert_eq!(doubted(&disk, &[all], &[off]).0, Verdict::Reaches, "what was seen came");
    assert_eq!(doubted(&disk, &[0], &[None]).0, Verdict::Blocked, "two witnesses that count");
    let mut none = disk;
    none.layers[1].limits.as_mut().unwrap().max = Bytes::ZERO;
    assert_eq!(doubted(&none, &[0], &[off]).0, Verdict::Blocked, "it takes none");
}

/// ntfs-3g takes a trim of everything only, and answers a range with EINVAL.
#[test]
fn failed_trim_is_no_proof() {
    let disk = stack(vec![layer("nvme0n1", LayerKind::Nvme, &[])]);
    let layout = layout(&disk, 0);
    let judged = |refusal| {
        let mut proof = Proof::new(&disk, &layout, vec![false; disk.layers.len()]);
        proof.refusals = vec![Some(refusal)];
        proof.judge()
    };
    let mount = || PathBuf::from("/mnt");
    let invalid = TrimError::Trim { mount: mount(), source: io::Error::from_raw_os_error(22) };
    let (verdict, reason) = judged(invalid);
    assert_eq!(verdict, Verdict::Unknown);
    assert!(
        reason.starts_with("none were seen, which proves nothing: cannot trim /mnt: Invalid"),
        "{reason}"
    );
    assert_eq!(judged(TrimError::Unsupported { mount: mount() }).0, Verdict::Blocked);
}

#[test]
fn layer_that_counts_no_discards_is_not_to_blame() {
    let all = 16 * MIB;
    let cached = stack(vec![
        layer("bcache0", LayerKind::Bcache, &[(2, None), (3, None)]),
        layer("sda", LayerKind::Nvme, &[]),
        layer("nvme0n1", LayerKind::Nvme, &[]),
    ]);
    let silent = [Some("bcache0 has counted no discard so far"), None, None];
    let (verdict, reason) = doubted(&cached, &[0, all, 0], &silent);
    assert_eq!(verdict, Verdict::Reaches, "{reason}");
    assert!(!reason.contains("nvme0n1"), "the cache holds nothing of it: {reason}");
    assert_eq!(doubted(&cached, &[0, 0, 0], &silent).0, Verdict::Blocked);
    assert_eq!(doubted(&cached, &[0, all / 4, 0], &silent).0, Verdict::Partial);
    let striped = stack(vec![
        layer("md0", raid("raid0"), &[(2, Some(MIB)), (3, Some(MIB))]),
        layer("sda", LayerKind::Nvme, &[]),
        layer("sdb", LayerKind::Nvme, &[]),
    ]);
    let silent = [Some("md0 has counted no discard so far"), None, None];
    assert_eq!(doubted(&striped, &[0, all / 2, all / 2], &silent).0, Verdict::Reaches);
    // Events of a multipath device name the path, and its counters are silent on old kernels.
    let linear = stack(vec![
        layer("dm-0", mapper("linear", "8:49 0"), &[(2, Some(0))]),
        layer("nvme0n1", LayerKind::Nvme, &[]),
    ]);
    let head = [None, Some("nvme0n1 has counted no discard so far")];
    assert_eq!(doubted(&linear, &[all, 0], &head).0, Verdict::Unknown);
    // A split discard shows in part above, and as a whole below.
    let (verdict, reason, bytes) = proved(&linear, &[(all / 2, 0), (all, 0)]);
    assert_eq!((verdict, bytes), (Verdict::Reaches, vec![all, all]), "{reason}");
}
