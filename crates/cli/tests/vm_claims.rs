//! `trimtab bench` refuses volumes, arrays, further paths, served disks and hidden mounts, on Debian's kernel
//! 6.12.

mod guest;

use guest::run;

const UNKNOWN_RING: &[&str] = &["cannot tell which files process ", "(python3) writes to by its io_uring"];

/// The expected messages for each claim, in order.
const EXPECTED: [(&str, &[&str]); 118] = [
    ("lvm-unmounted", &["shares its bytes with /dev/loop", "is held by /dev/dm-0 (vg-lv)"]),
    (
        "lvm-mounted",
        &["shares its bytes with /dev/loop", "is below /dev/dm-0 (vg-lv), which is mounted on /run/mnt"],
    ),
    (
        "lvm-in-namespace",
        &["shares its bytes with /dev/dm-0", "is mounted on /run/mnt in the mount namespace of process "],
    ),
    ("lvm-beside", &["accepted"]),
    ("lvm-part", &["is a part of /dev/loop", " (/dev/dm-", " (group-used) in use)", "add --allow-part"]),
    ("lvm-thin", &["accepted"]),
    ("lvm-pool", &["is in use: /dev/dm-", " is a pool whose bytes are its thin volumes'"]),
    ("lvm-pool-over", &["is a pool whose bytes are its thin volumes'"]),
    ("lvm-pool-data", &["is below /dev/dm-", "(group-pool-tpool), which is a pool"]),
    ("lvm-thin-beside", &["accepted"]),
    ("lvm-thin-mounted-beside", &["may share its bytes with /dev/dm-", "which is mounted on /run/mnt"]),
    ("lvm-thin-pool-written", &["(sleep) has /dev/dm-", " open for writing"]),
    (
        "dm-beside",
        &["shares its bytes with /dev/loop", "is below /dev/dm-0 (lower), which is mounted on /run/mnt"],
    ),
    (
        "dm-above-sibling",
        &["shares its bytes with /dev/loop", "is below /dev/dm-0 (lower), which is mounted on /run/mnt"],
    ),
    ("dm-over-mounted", &["shares its bytes with /dev/loop", "which is mounted on /run/mnt"]),
    ("md-member", &["shares its bytes with /dev/loop", "is held by /dev/md0"]),
    ("md-kept-for-itself", &["accepted"]),
    ("md-written", &["/dev/md0 is in use: process ", "(sleep) has /dev/nvme", " open for writing"]),
    ("ext4-journal", &["shares its bytes with /dev/loop", "the kernel keeps for another user"]),
    ("xfs-log", &["shares its bytes with /dev/loop", "the kernel keeps for another user"]),
    ("xfs-realtime", &["shares its bytes with /dev/loop", "the kernel keeps for another user"]),
    ("btrfs-second", &["is mounted on /run/mnt"]),
    ("zram", &["shares its bytes with /dev/loop", "the kernel keeps for another user"]),
    ("crypt", &["shares its bytes with /dev/loop", "is held by /dev/dm-0 (secret)"]),
    ("md-spare", &["shares its bytes with /dev/loop", "is held by /dev/md0"]),
    ("md-journal", &["shares its bytes with /dev/loop", "is held by /dev/md0"]),
    ("bcache-cache", &["shares its bytes with /dev/loop", "is held by /dev/bcache0"]),
    ("bcache-backing", &["shares its bytes with /dev/loop", "is held by /dev/bcache0"]),
    ("dm-apart", &["accepted"]),
    (
        "dm-loaded",
        &["may share its bytes with /dev/nvme", "is below /dev/dm-1 (beside), which is mounted on /run/mnt"],
    ),
    ("dm-cleared", &["accepted"]),
    ("dm-alone", &["accepted"]),
    ("dm-written", &["is in use: process ", "(sleep) has /dev/nvme", " open for writing"]),
    ("partition-below", &["shares its bytes with /dev/nvme", "p1, which is mounted on /run/mnt"]),
    ("overlap-below-loop", &["shares its bytes with /dev/nvme", "p2, which is claimed by the kernel"]),
    ("overlap-below-dm", &["shares its bytes with /dev/nvme", "p2, which is claimed by the kernel"]),
    ("ring-registered", UNKNOWN_RING),
    ("ring-deleted", UNKNOWN_RING),
    ("ring-mapped", UNKNOWN_RING),
    ("ring-polled", UNKNOWN_RING),
    ("ring-named-like-socket", UNKNOWN_RING),
    ("covered-class", &["tmpfs, mounted on /sys/class, hides what the kernel lists there"]),
    ("covered-swaps", &["mounted on /proc/swaps, hides what the kernel lists there"]),
    ("covered-1", &["tmpfs, mounted on /proc/1, hides what the kernel lists there"]),
    ("uncovered", &["accepted"]),
    ("path-alone", &["accepted"]),
    (
        "path-mounted",
        &["has the same WWID and so may share its bytes with /dev/sd", "is mounted on /run/mnt"],
    ),
    ("sg-written-by-path", &["(sleep) has /dev/sg", " open for writing"]),
    ("bsg-written-by-path", &["(sleep) has /dev/bsg/", " open for writing"]),
    ("multipath-without-paths", &["may be a drive that /dev/dm-0 (mpatha) has lost and will use again"]),
    ("multipath-of-another", &["accepted"]),
    ("multipath-without-wwid", &["may be the drive of the multipath device /dev/dm-0 (mpatha)"]),
    ("multipath-of-ata", &["may be the drive of the multipath device /dev/dm-0 (mpatha)"]),
    ("multipath-of-nvme", &["may be the drive of the multipath device /dev/dm-0 (mpatha)"]),
    ("unit-remapped", &["is another drive by now than the kernel takes it for", "/rescan)"]),
    ("unit-rescanned", &["accepted"]),
    ("unit-without-node", &["accepted"]),
    ("unit-of-sg-alone", &["(sleep) has /dev/sg", " open for writing"]),
    ("unit-offline", &["is in use, but offline"]),
    ("drive-of-its-own", &["accepted"]),
    ("drive-of-another-server", &["(sleep) has /run/held, which may be the same file, open for writing"]),
    (
        "drive-of-another-server-beside",
        &["(sleep) has /run/held, which may be the same file, open for writing"],
    ),
    ("thin-pool", &["/dev/dm-0 is a pool whose bytes are its thin volumes'"]),
    ("partition-shrunk", &["p1 is mounted on /run/mnt; unmount it first"]),
    ("partition-shrunk-unmounted", &["accepted"]),
    ("partition-shrunk-array-1.2", &["p1 is held by /dev/md0"]),
    ("partition-shrunk-array-1.0", &["p1, which lies before it", "it is held by /dev/md0"]),
    ("partition-shrunk-journal", &["p1, which lies before it on the disk", "it is claimed by the kernel"]),
    ("partition-shrunk-hidden", &["p1, which lies before it on the disk", "it is claimed by the kernel"]),
    (
        "partition-shrunk-hidden-behind-node",
        &["p1, which lies before it on the disk", "it is claimed by the kernel"],
    ),
    ("partition-shrunk-unused", &["accepted"]),
    ("partition-beside", &["accepted"]),
    ("volume-shrunk", &["its bytes with /dev/loop", "dm-"]),
    ("volume-beside", &["accepted"]),
    ("partition-of-grown-xfs", &["p1 is mounted on /run/mnt; unmount it first"]),
    ("volume-of-grown-xfs", &["is below /dev/dm-0 (home), which is mounted on /run/mnt"]),
    ("volume-beside-minix", &["is below /dev/dm-0 (home), which is mounted on /run/mnt"]),
    ("ng-written", &["(sleep) has /dev/ng", " open for writing"]),
    ("nbd-served", &["/dev/nbd0 is served by an NBD server"]),
    ("nbd-below", &["/dev/dm-0 cannot be proven unused: /dev/nbd0 is served by an NBD server"]),
    ("gadget", &["shares its bytes with /run/image, which is served to others by /sys/", "gadget"]),
    ("nvmet", &["is served to others by /sys/kernel/config/nvmet/subsystems/served/namespaces/1"]),
    ("nvmet-hidden", &["is served to others by /sys/kernel/config/nvmet/subsystems/served/namespaces/1"]),
    ("nvmet-unmounted", &["is served to others by /sys/kernel/config/nvmet/subsystems/served/namespaces/1"]),
    ("nvmet-fcloop", &["is served by a target of this machine (nvmet)"]),
    ("nvmet-off", &["is served to others by /sys/kernel/config/nvmet/subsystems/served/namespaces/1"]),
    (
        "nvmet-renamed",
        &["may be the device that /sys/kernel/config/nvmet/subsystems/served/namespaces/1 serves to others"],
    ),
    ("nvmet-renamed-other", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-unlinked", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-unlinked", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-unlinked", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-unlinked", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-gone", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-gone-file", &["may be the device that /sys/kernel/config/nvmet/"]),
    ("nvmet-relative", &["may be ", "nvmet"]),
    ("nvmet-file", &["shares its bytes with /run/exported/image", "nvmet"]),
    ("nvmet-removed", &["accepted"]),
    (
        "nvmet-passthru",
        &[
            "is in use: /dev/nvme",
            "is served to others by /sys/kernel/config/nvmet/subsystems/through/passthru",
        ],
    ),
    ("nvmet-passthru-other", &["accepted"]),
    ("nvmet-passthru-off", &["is served to others by /sys/kernel/config/nvmet/subsystems/through/passthru"]),
    ("nvmet-passthru-gone", &["is served to others by /sys/kernel/config/nvmet/subsystems/through/passthru"]),
    ("lio-fileio", &["shares its bytes with /run/image, which is served to others by "]),
    (
        "lio-iblock",
        &[
            "shares its bytes with /dev/loop",
            "is served to others by /sys/kernel/config/target/core/iblock_0/disk",
        ],
    ),
    ("lio-iblock-shared", &["is served to others by /sys/kernel/config/target/core/iblock_0/disk"]),
    ("overlay", &["/run/disk/merged/file, the file below it, is on overlay"]),
    ("ecryptfs-written-below", &["/run/disk/plain/file, the file below it, is on ecryptfs"]),
    (
        "ecryptfs-written-above",
        &["(sleep) has /run/disk/plain/file, which may be the same file, open for writing"],
    ),
    ("md-bitmap", &[" shares its bytes with /run/disk/hidden/bitmap, which holds the bitmap of /dev/md0"]),
    (
        "md-bitmap-hidden",
        &["may share its bytes with /run/disk/hidden/bitmap, which holds the bitmap of /dev/md0"],
    ),
    ("md-bitmap-stopped", &["accepted"]),
    ("swap-hidden", &["may share its bytes with /run/disk/hidden/swap, which is active swap"]),
    ("swap", &[" shares its bytes with /run/disk/hidden/swap, which is active swap"]),
    ("erofs-renamed", &["may share its bytes with /run/disk/image, which is mounted on /run/disk/mnt"]),
    ("erofs-replaced", &["may share its bytes with /run/disk/image, which is mounted on /run/disk/mnt"]),
    ("erofs-unmounted", &["accepted"]),
    ("erofs-lazily-unmounted", &["may share its bytes with ", "which is an image of erofs"]),
    ("erofs-other", &["accepted"]),
    ("erofs-in-kept-namespace", &["may share its bytes with ", "which is an image of erofs"]),
];

#[test]
fn volumes_arrays_and_namespaces_that_share_bytes_are_refused() {
    let trimtab = env!("CARGO_BIN_EXE_trimtab");
    let Some(output) = run(&[
        "-t",
        "900",
        "-d",
        "nvme:256M",
        "-d",
        "nvme:256M",
        "-d",
        "virtio-scsi:256M",
        "-d",
        "ahci:256M",
        "vm/claims",
        trimtab,
    ]) else {
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), EXPECTED.len(), "{stdout}{stderr}");
    for (line, (name, words)) in lines.iter().zip(EXPECTED) {
        let said = line.strip_prefix(name).unwrap_or_else(|| panic!("{line} is not of {name}"));
        assert!(words.iter().all(|word| said.contains(word)), "{line:?} doesn't say {words:?}");
    }
}
